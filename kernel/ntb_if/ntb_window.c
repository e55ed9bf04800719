// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows of an NTB port: the inbound one is memory that the hardware
 * lets the peer write to, the outbound one is the peer's, mapped.
 *
 * Owns: which window belongs to which peer, sizes and alignment. A port's
 * outbound windows are dealt out to its peers in the order of their indices;
 * each pair of ports uses the first of its windows; and the last, where that shows
 * all memory, for direct placement (direct_placement).
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/mm.h>

#include "ntb.h"

/*
 * It is looked whether peers have let go so many times in a heartbeat, or less often when
 * that is short. Looks count, not time: this node may have been stopped.
 */
#define RELEASE_LOOKS_PER_HEARTBEAT 10
#define RELEASE_LOOK_LEAST_MS 20
/* After so many looks a peer that was told something has said what it has to say. */
#define RELEASE_LOOKS_FOR_ANSWER (3 * RELEASE_LOOKS_PER_HEARTBEAT)
/* So many without an answer are enough, before it was told and after. */
#define RELEASE_LOOKS_MOST (5 * RELEASE_LOOKS_PER_HEARTBEAT)

/* Of @count windows to all peers, but one at least. */
static int windows_per_peer(const struct ropcie_ntb_peer *np, int count)
{
	return max(1, count / (int)np->port->npeers);
}

static int out_window(const struct ropcie_ntb_peer *np)
{
	return np->pidx *
	       windows_per_peer(np, ntb_peer_mw_count(np->port->ntb));
}

/* Where the sender translates, it is one of the peer's, as the peer counts them. */
static int in_window(const struct ropcie_ntb_peer *np)
{
	if (!np->port->sender_translates)
		return 0;
	return np->own_slot *
	       windows_per_peer(np, ntb_mw_count(np->port->ntb, np->pidx));
}

/* The last window to the peer, which may show its memory; or that of the lanes. */
static int out_memory(const struct ropcie_ntb_peer *np)
{
	return out_window(np) +
	       windows_per_peer(np, ntb_peer_mw_count(np->port->ntb)) - 1;
}

static int in_memory(const struct ropcie_ntb_peer *np)
{
	return ntb_mw_count(np->port->ntb, np->pidx) - 1;
}

/* Without it everything goes through the lanes: no error. */
static void map_memory(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	resource_size_t size;
	phys_addr_t base;

	/* A window whose sender translates it is not this end's to close. */
	if (!ropcie_direct_placement || np->port->sender_translates ||
	    out_memory(np) == out_window(np) ||
	    ntb_peer_mw_get_addr(np->port->ntb, out_memory(np), &base, &size))
		return;
	np->memory_io = ioremap_wc(base, size);
	peer->memory = (__force void *)np->memory_io;
	peer->memory_size = size;
}

static int show_memory(struct ropcie_ntb_peer *np)
{
	np->memory_open = true;
	return ntb_mw_set_trans(np->port->ntb, np->pidx, in_memory(np), 0,
				np->memory_in);
}

static void hide_memory(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	int ret;

	if (!np->memory_open)
		return;
	ret = ntb_mw_clear_trans(np->port->ntb, np->pidx, in_memory(np));
	np->memory_open = ret;
	if (ret && __ratelimit(&peer->log))
		dev_err(&np->port->ntb->dev,
			"the window that shows all memory to peer %u can not be closed: %d\n",
			np->pidx, ret);
}

/*
 * Has the peer a window as large as the memory, and can it be opened? A device that
 * reaches less than there is would be given copies of pages.
 */
static void try_memory(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	struct device *dma = ntb_get_dma_dev(np->port->ntb);
	resource_size_t align, size_align;

	if (!peer->memory || in_memory(np) == in_window(np) ||
	    ntb_mw_get_align(np->port->ntb, np->pidx, in_memory(np), &align,
			     &size_align, &np->memory_in) ||
	    np->memory_in < (u64)totalram_pages() << PAGE_SHIFT ||
	    dma_get_mask(dma) < np->memory_in - 1)
		return;
	peer->shows_memory = !show_memory(np);
	hide_memory(peer);
}

/**
 * ropcie_ntb_shut() - the peer reaches the own memory no more
 * @peer: peer whose link is lost
 */
void ropcie_ntb_shut(struct ropcie_peer *peer)
{
	hide_memory(peer);
}

/**
 * ropcie_ntb_map_out() - map the outbound window
 * @peer: peer
 *
 * Return: 0 or an error, which has been reported.
 */
int ropcie_ntb_map_out(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	struct device *dev = &np->port->ntb->dev;
	resource_size_t size;
	phys_addr_t base;
	int ret;

	ret = ntb_peer_mw_get_addr(np->port->ntb, out_window(np), &base, &size);
	if (ret) {
		dev_err(dev, "no memory window towards peer %u (of %d windows): %d; give the NTB more windows, or fewer peers\n",
			np->pidx, ntb_peer_mw_count(np->port->ntb), ret);
		return ret;
	}
	if (size < ropcie_window_min()) {
		dev_err(dev, "the memory window towards peer %u has %llu KiB, RoPCIe needs %zu: enlarge the NTB's BAR in its firmware or driver\n",
			np->pidx, (u64)size >> 10, ropcie_window_min() >> 10);
		return -ENOSPC;
	}
	np->io_size = size;
	size = min_t(resource_size_t, size, ROPCIE_WINDOW_MAX);
	np->io = ioremap_wc(base, size);
	if (!np->io) {
		dev_err(dev, "the memory window towards peer %u can not be mapped\n",
			np->pidx);
		return -ENOMEM;
	}
	/* Stores to it are ordered where it matters, as core/ring.h says. */
	peer->out = (__force void *)np->io;
	peer->out_size = size;
	peer->out_phys = base;
	peer->write_combining = true;
	map_memory(peer);
	return 0;
}

void ropcie_ntb_unmap_out(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);

	if (np->io)
		iounmap(np->io);
	np->io = NULL;
	peer->out = NULL;
	peer->out_phys = 0;
	if (np->memory_io)
		iounmap(np->memory_io);
	np->memory_io = NULL;
	peer->memory = NULL;
}

static void free_buf(struct ropcie_ntb_peer *np)
{
	if (np->buf)
		dma_free_coherent(ntb_get_dma_dev(np->port->ntb), np->buf_size,
				  np->buf, np->buf_dma);
	np->buf = NULL;
}

/*
 * Try for a buffer of @alloc bytes with @size bytes at aligned @align in it. The BAR of
 * some hardware, which @align then is, may be larger than the memory.
 */
static bool try_alloc(struct ropcie_peer *peer, size_t alloc, size_t size,
		      resource_size_t align)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);

	if (alloc >> PAGE_SHIFT > totalram_pages() / 4)
		return false;
	np->buf = dma_alloc_coherent(ntb_get_dma_dev(np->port->ntb), alloc,
				     &np->buf_dma, GFP_KERNEL | __GFP_NOWARN |
				     __GFP_RETRY_MAYFAIL);
	if (!np->buf)
		return false;
	np->buf_size = alloc;
	np->dma = ALIGN(np->buf_dma, align);
	if (np->dma + size > np->buf_dma + alloc) {
		free_buf(np);
		return false;
	}
	peer->in = np->buf + (np->dma - np->buf_dma);
	peer->in_size = size;
	return true;
}

/*
 * Buffers come aligned to their size from most allocators, so a big alignment
 * is had by asking for as much, or at last by cutting the aligned part out.
 */
static bool alloc_window(struct ropcie_peer *peer, size_t size,
			 resource_size_t align)
{
	return try_alloc(peer, size, size, align) ||
	       (align > size && try_alloc(peer, align, size, align)) ||
	       try_alloc(peer, size + align, size, align);
}

/**
 * ropcie_ntb_open() - make the inbound window
 * @peer: peer
 *
 * Return: 0; -EAGAIN while the hardware's link is down, which hides what it
 * demands of a window; -ENOLINK when it went down in the middle; -ENOMEM;
 * what else the NTB's driver says.
 */
int ropcie_ntb_open(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	struct device *dev = &np->port->ntb->dev;
	resource_size_t align, size_align, size_max;
	size_t size, last = SIZE_MAX, want = (size_t)ropcie_window_kib << 10;
	int ret;

	if (peer->in)
		return 0;
	/*
	 * What some drivers let a window show (Switchtec's max_mw_size) only its sender
	 * sees. It is most likely the same at both ends.
	 */
	want = min(want, peer->out_size);
	do {
		/* Anew each time: some hardware takes it for a request. */
		ret = ntb_mw_get_align(np->port->ntb, np->pidx, in_window(np),
				       &align, &size_align, &size_max);
		if (ret == -ENOTCONN)
			return last == SIZE_MAX ? -EAGAIN : -ENOLINK;
		if (ret)
			return ret;
		want = min_t(resource_size_t, want, size_max);
		size = round_up(want, size_align);
		/* Rounded up, it may be what could not be had. */
		if (size > size_max || size < ropcie_window_min() ||
		    size >= last)
			break;
		if (alloc_window(peer, size, align)) {
			try_memory(peer);
			return 0;
		}
		last = size;
		want = size / 2;
	} while (want >= ropcie_window_min());

	if (peer->window_error != -ENOMEM)
		dev_err(dev, "no inbound window of %zu to %u KiB, aligned to %llu KiB: reserve memory with cma=, switch the IOMMU on, or make the NTB's BAR smaller\n",
			ropcie_window_min() >> 10, ropcie_window_kib,
			(u64)align >> 10);
	return -ENOMEM;
}

/*
 * Who is up with this node acknowledges its epoch, and has told it so before; who has heard
 * that it is down clears its words first. One that does not say so may be stopped in a copy.
 */
static bool has_let_go(const struct ropcie_ntb_peer *np,
		       struct ropcie_peer *peer)
{
	struct ropcie_link_words words;

	ropcie_ntb_read_words(peer, &words);
	return !words.w[ROPCIE_LW_MAGIC] ||
	       (np->dismissed && np->answers > RELEASE_LOOKS_FOR_ANSWER &&
		!words.w[ROPCIE_LW_ACK]);
}

/* Return: there is nothing to wait for any more; np->reached says why. */
static bool await_peer(struct ropcie_ntb_peer *np, struct ropcie_peer *peer)
{
	/* What it has said may wait in a register for a processor that is stopped. */
	if (!ropcie_ntb_msg_waits(np->port))
		np->answers++;
	if (has_let_go(np, peer)) {
		np->reached = false;
		return true;
	}
	/* Its work has ended, so the words stay. */
	if (!np->dismissed && !ropcie_ntb_publish(peer, &peer->link.own)) {
		peer->adapter->backend->notify(peer);
		np->dismissed = true;
		np->answers = 0;
		np->looks = 0;
	}
	return ++np->looks > RELEASE_LOOKS_MOST;
}

/**
 * ropcie_ntb_await_release() - wait until no peer writes anything any more
 * @port: port whose peers have been told that this node is down; their words still come
 *
 * Where the sender translates nobody else can say so.
 */
void ropcie_ntb_await_release(struct ropcie_ntb *port)
{
	struct ropcie_peer **peers = port->adapter->peer + 1;
	u32 ms = max_t(u32, RELEASE_LOOK_LEAST_MS,
		       ropcie_heartbeat_ms / RELEASE_LOOKS_PER_HEARTBEAT);
	u64 waits = 0;
	u32 i;

	for (i = 0; i < port->npeers; i++) {
		struct ropcie_ntb_peer *np = &port->peer[i];

		np->reached = port->sender_translates && peers[i]->in;
		/* What was said to a link that has gone since then may be lost. */
		np->dismissed = peers[i]->link.told &&
				!READ_ONCE(np->was_down);
		np->answers = 0;
		np->looks = 0;
		if (np->reached)
			waits |= BIT_ULL(i);
	}
	for (;;) {
		for (i = 0; i < port->npeers; i++)
			if ((waits & BIT_ULL(i)) &&
			    await_peer(&port->peer[i], peers[i]))
				waits &= ~BIT_ULL(i);
		if (!waits)
			return;
		msleep(ms);
	}
}

void ropcie_ntb_close(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	struct ntb_dev *ntb = np->port->ntb;

	if (!peer->in)
		return;
	if (np->port->sender_translates)
		ntb_peer_mw_clear_trans(ntb, np->pidx, out_window(np));
	else if (ntb_mw_clear_trans(ntb, np->pidx, in_window(np)))
		np->reached = true;
	hide_memory(peer);
	peer->shows_memory = false;
	if (np->reached)
		dev_warn(&ntb->dev,
			 "peer %u may still write to its window: the %zu KiB of memory behind it are not freed\n",
			 np->pidx, np->buf_size >> 10);
	else
		free_buf(np);
	np->buf = NULL;
	peer->in = NULL;
}

/**
 * ropcie_ntb_prepare() - let the peer reach the inbound window
 * @peer: peer with an inbound window
 *
 * Return: 0 or an error.
 */
int ropcie_ntb_prepare(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	int ret;

	if (np->port->sender_translates)
		return 0; /* the peer does, by the address among the words */
	if (ropcie_link_features(&peer->link) & ROPCIE_FEAT_DIRECT) {
		ret = show_memory(np);
		if (ret)
			return ret;
	}
	return ntb_mw_set_trans(np->port->ntb, np->pidx, in_window(np),
				np->dma, peer->in_size);
}

/**
 * ropcie_ntb_connect() - make the outbound window reach the peer's inbound one
 * @peer: peer whose words are valid
 *
 * Return: 0 or an error.
 */
int ropcie_ntb_connect(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	struct ntb_dev *ntb = np->port->ntb;
	u64 dma;
	int ret;

	if (!np->port->sender_translates)
		return 0;
	dma = ropcie_ntb_peer_dma(np);
	ret = ntb_peer_mw_set_trans(ntb, np->pidx, out_window(np), dma,
				    ropcie_link_offer_size(&peer->link.peer_offer));
	/* A window out of a lookup table leads as a whole; what is used is the offer. */
	if (ret == -EINVAL)
		ret = ntb_peer_mw_set_trans(ntb, np->pidx, out_window(np), dma,
					    np->io_size);
	if (ret && __ratelimit(&peer->log))
		dev_err(&ntb->dev,
			"window %d can not be led to %#llx of peer %u: %d\n",
			out_window(np), dma, np->pidx, ret);
	return ret;
}
