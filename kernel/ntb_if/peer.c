// SPDX-License-Identifier: GPL-2.0
/*
 * A peer and the link to it.
 *
 * Owns: the work that looks at the peer's words and carries out what
 * core/peer_link.c decides; when lanes are set up and taken down; when the
 * user hears of it. Does not know how words travel or memory is mapped
 * (backend.h), nor what runs on the lanes.
 *
 * A peer is announced to the user when the link is up and its hardware
 * address has arrived in the control page; records are received only after
 * the user has been told.
 */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/ktime.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "backend.h"

/* How often the peer's words are looked at before the link is up. */
#define ROPCIE_HELLO_MS 20
/* Before what failed is tried again: so long, and so many times what it took. */
#define ROPCIE_REST_JIFFIES HZ
#define ROPCIE_REST_TIMES 4
#define ROPCIE_REST_TOOK_MOST (15 * HZ)

static u64 now_ms(void)
{
	return ktime_to_ms(ktime_get());
}

static void peer_work(struct work_struct *work);

/**
 * ropcie_peer_alloc() - a peer that is down
 * @a: adapter
 * @index: the backend's number for it
 * @self: it is the own node
 *
 * Return: peer with one reference, or NULL.
 */
struct ropcie_peer *ropcie_peer_alloc(struct ropcie_adapter *a, u32 index,
				      bool self)
{
	struct ropcie_peer *peer = kzalloc(sizeof(*peer), GFP_KERNEL);
	u32 i;

	if (!peer)
		return NULL;
	kref_init(&peer->ref);
	peer->adapter = a;
	peer->index = index;
	peer->self = self;
	peer->twin = self ? peer : NULL;
	peer->stepped = jiffies - 1;
	mutex_init(&peer->mutex);
	ratelimit_state_init(&peer->log, DEFAULT_RATELIMIT_INTERVAL,
			     DEFAULT_RATELIMIT_BURST);
	INIT_DELAYED_WORK(&peer->work, peer_work);
	for (i = 0; i < ROPCIE_MAX_LANES; i++)
		ropcie_lane_init(&peer->lane[i], peer, i);
	return peer;
}

void ropcie_peer_release(struct kref *ref)
{
	struct ropcie_peer *peer = container_of(ref, struct ropcie_peer, ref);
	u32 i;

	for (i = 0; i < ROPCIE_MAX_LANES; i++)
		ropcie_lane_free(&peer->lane[i]);
	kfree(peer);
}

/**
 * ropcie_peer_kick() - something about the link may have changed
 * @peer: peer; any context
 *
 * However often a peer rings, about one step begins in a jiffy.
 */
void ropcie_peer_kick(struct ropcie_peer *peer)
{
	/* adapter_halt() cancels the work a grace period after it ended. */
	rcu_read_lock();
	if (READ_ONCE(peer->adapter->running) && !peer->self)
		mod_delayed_work(ropcie_link_wq, &peer->work,
				 time_after_eq(READ_ONCE(peer->stepped), jiffies));
	rcu_read_unlock();
}

/**
 * ropcie_peer_fail() - the peer broke the protocol: give the link up
 * @peer: peer; any context
 * @error: what a lane said
 */
void ropcie_peer_fail(struct ropcie_peer *peer, int error)
{
	WRITE_ONCE(peer->error, error);
	ropcie_peer_kick(peer);
}

void ropcie_peer_give_up(struct ropcie_peer *peer)
{
	ropcie_peer_fail(peer, -ETIMEDOUT);
}
EXPORT_SYMBOL_GPL(ropcie_peer_give_up);

unsigned int ropcie_peer_patience_ms(void)
{
	return ropcie_heartbeat_limit_ms;
}
EXPORT_SYMBOL_GPL(ropcie_peer_patience_ms);

bool ropcie_peer_direct(const struct ropcie_peer *peer)
{
	return ropcie_peer_is_up(peer) &&
	       (ropcie_link_features(&peer->link) & ROPCIE_FEAT_DIRECT);
}
EXPORT_SYMBOL_GPL(ropcie_peer_direct);

int ropcie_peer_reach(struct ropcie_peer *peer, struct page *page, u64 *bus)
{
	struct device *dev = peer->adapter->backend->dma_dev(peer);
	dma_addr_t dma;

	/* It may be mapped more than once: grants of a region overlap. */
	dma = dma_map_page_attrs(dev, page, 0, PAGE_SIZE, DMA_FROM_DEVICE,
				 DMA_ATTR_SKIP_CPU_SYNC);
	if (dma_mapping_error(dev, dma))
		return -EIO;
	/* A copy of the page, or a cache between: what the peer stores would not be seen. */
	if (dma_need_sync(dev, dma)) {
		ropcie_peer_unreach(peer, dma);
		return -EIO;
	}
	*bus = dma;
	return 0;
}
EXPORT_SYMBOL_GPL(ropcie_peer_reach);

void ropcie_peer_unreach(struct ropcie_peer *peer, u64 bus)
{
	dma_unmap_page_attrs(peer->adapter->backend->dma_dev(peer), bus,
			     PAGE_SIZE, DMA_FROM_DEVICE,
			     DMA_ATTR_SKIP_CPU_SYNC);
}
EXPORT_SYMBOL_GPL(ropcie_peer_unreach);

void *ropcie_peer_map(const struct ropcie_peer *peer, u64 bus, u32 len)
{
	if (len > peer->memory_size || bus > peer->memory_size - len)
		return NULL;
	return peer->memory + bus;
}
EXPORT_SYMBOL_GPL(ropcie_peer_map);

/*
 * The MAC address lies in one aligned word with two zero bytes, which is
 * written last: a MAC address says that all of the identity is there.
 */
static u64 *identity_word(struct ropcie_control *control)
{
	return (u64 *)control->mac;
}

static_assert(offsetof(struct ropcie_control, mac) % sizeof(u64) == 0);

static void peer_identify(struct ropcie_peer *peer)
{
	struct ropcie_adapter *a = peer->adapter;
	u64 word = 0;

	memcpy(&word, a->mac, ETH_ALEN);
	WRITE_ONCE(peer->out->node_guid, cpu_to_le64(a->node_guid));
	ropcie_link_wmb(peer->write_combining);
	WRITE_ONCE(*identity_word(peer->out), word);
	ropcie_link_wmb(peer->write_combining);
}

/* No two nodes of an adapter may have the same address. */
static bool peer_mac_taken(struct ropcie_peer *peer, const u8 *mac)
{
	struct ropcie_adapter *a = peer->adapter;
	u32 i;

	if (ether_addr_equal(mac, a->mac))
		return !peer->self;
	for (i = 0; i < a->npeers; i++)
		if (a->peer[i] != peer && ropcie_peer_is_up(a->peer[i]) &&
		    ether_addr_equal(mac, ropcie_peer_mac(a->peer[i])))
			return true;
	return false;
}

/* From here on it can be found by its address. */
static void peer_accept(struct ropcie_peer *peer)
{
	WRITE_ONCE(peer->links, peer->links + 1);
	smp_store_release(&peer->up, true); /* after its identity */
}

/* Take over the peer's identity, when it has come. Return: 0 or an error. */
static int peer_read_identity(struct ropcie_peer *peer)
{
	u64 word = READ_ONCE(*identity_word(peer->in));
	u8 mac[sizeof(word)];

	if (!word)
		return -EAGAIN;
	rmb(); /* the address was written last */
	peer->node_guid = le64_to_cpu(READ_ONCE(peer->in->node_guid));
	memcpy(mac, &word, sizeof(word));
	if (!is_valid_ether_addr(mac))
		return -EPROTO;
	if (peer_mac_taken(peer, mac))
		return -EADDRINUSE;
	ether_addr_copy(peer->mac, mac);
	peer_accept(peer);
	return 0;
}

/*
 * What failed is tried again later, however often the peer rings, and the later
 * the longer it took: the search for memory goes before programs.
 */
static void peer_rest(struct ropcie_peer *peer, unsigned long began)
{
	unsigned long took = min_t(unsigned long, jiffies - began,
				   ROPCIE_REST_TOOK_MOST);

	peer->rests = true;
	peer->rest_until = jiffies + ROPCIE_REST_JIFFIES +
			   ROPCIE_REST_TIMES * took;
}

/* The handshake is done: set lanes up, and tell the peer who this is. */
static int peer_connect(struct ropcie_peer *peer)
{
	const struct ropcie_link_offer *theirs = &peer->link.peer_offer;
	const struct ropcie_backend *backend = peer->adapter->backend;
	u32 i;
	int ret;

	if (backend->connect) {
		ret = backend->connect(peer);
		if (ret)
			return ret;
	}
	peer->nlanes = min(peer->link.offer.lanes, theirs->lanes);
	peer->lanes_set = true;
	WRITE_ONCE(peer->error, 0); /* what is left was said of the last link */
	for (i = 0; i < peer->nlanes; i++) {
		ret = ropcie_lane_open(&peer->lane[i], &peer->link.offer,
				       peer->link.own.w[ROPCIE_LW_EPOCH],
				       theirs, peer->link.peer_epoch);
		if (ret) {
			if (__ratelimit(&peer->log))
				dev_err(peer->adapter->dev,
					"no lanes to peer %u: %d, its link starts again\n",
					peer->index, ret);
			return ret;
		}
	}
	ropcie_dma_start(peer);
	peer_identify(peer);
	backend->notify(peer);
	return 0;
}

static void peer_announce(struct ropcie_peer *peer)
{
	struct ropcie_adapter *a = peer->adapter;
	u32 i;

	atomic64_inc(&a->link_ups);
	if (!peer->self && __ratelimit(&peer->log))
		dev_info(a->dev, "link to %pM (peer %u) up, %u lanes of %u KiB out, %u KiB in\n",
			 peer->mac, peer->index, peer->nlanes,
			 (u32)(ropcie_lane_size(&peer->link.peer_offer.geom) >> 10),
			 (u32)(ropcie_lane_size(&peer->link.offer.geom) >> 10));
	a->user->peer_up(a->ctx, peer);
	for (i = 0; i < peer->nlanes; i++)
		ropcie_lane_open_rx(&peer->lane[i]);
}

/* Whatever the handshake has opened to the peer is closed again. */
static void peer_shut(struct ropcie_peer *peer)
{
	const struct ropcie_backend *backend = peer->adapter->backend;

	if (backend->shut && !peer->self)
		backend->shut(peer);
}

static const char *peer_loss(enum ropcie_link_loss loss)
{
	switch (loss) {
	case ROPCIE_LOSS_KILLED:
		return "given up at this end";
	case ROPCIE_LOSS_HARDWARE:
		return "the hardware's link went down";
	case ROPCIE_LOSS_SILENCE:
		return "no heartbeat";
	case ROPCIE_LOSS_CLEARED:
		return "the other end has left, or given it up";
	case ROPCIE_LOSS_GARBLED:
		return "the other end's words can not be read";
	case ROPCIE_LOSS_OTHER:
		return "the other end has begun another";
	}
	return "";
}

/* Take the lanes down and tell the user, as far as that was set up. */
static void peer_disconnect(struct ropcie_peer *peer)
{
	struct ropcie_adapter *a = peer->adapter;
	bool was_up = peer->up;
	u32 i;

	if (!peer->lanes_set)
		return;
	WRITE_ONCE(peer->up, false);
	for (i = 0; i < ROPCIE_MAX_LANES; i++)
		ropcie_lane_close(&peer->lane[i]);
	/* Whoever looks at a lane without its lock is done with it. */
	synchronize_rcu();
	ropcie_dma_stop(peer);
	/* Before the user gives memory back that the peer had. */
	peer_shut(peer);
	peer->lanes_set = false;
	if (!was_up)
		return;
	if (!peer->self) {
		if (__ratelimit(&peer->log))
			dev_info(a->dev, "link to %pM (peer %u) lost: %s\n",
				 peer->mac, peer->index,
				 peer_loss(peer->link.loss));
		atomic64_inc(&a->link_losses);
	}
	a->user->peer_down(a->ctx, peer);
}

/* The shape of the own inbound window: as many lanes as fit. */
static int peer_make_offer(struct ropcie_peer *peer,
			   struct ropcie_link_offer *offer)
{
	u32 lanes = peer->adapter->lanes;
	int ret = -ENOSPC;

	for (; lanes && ret; lanes--) {
		ret = ropcie_lane_geom_fit(peer->in_size - ROPCIE_CONTROL_SIZE,
					   lanes, &offer->geom);
		if (!ret)
			offer->lanes = lanes;
	}
	return ret;
}

/*
 * Words and slots of an earlier life go; payload needs no cleaning, because
 * nobody looks at it before a valid slot says so.
 */
static void peer_clean_window(struct ropcie_peer *peer)
{
	const struct ropcie_lane_geom *geom = &peer->link.offer.geom;
	u8 *lane = (u8 *)peer->in + ROPCIE_CONTROL_SIZE;
	u32 i;

	memset(peer->in, 0, ROPCIE_CONTROL_SIZE);
	for (i = 0; i < peer->link.offer.lanes; i++)
		memset(lane + i * ropcie_lane_size(geom), 0,
		       (size_t)geom->slots * ROPCIE_SLOT_SIZE);
	wmb(); /* before the peer may hear that the window is ready */
}

static bool peer_rests(struct ropcie_peer *peer)
{
	peer->rests = peer->rests && time_before(jiffies, peer->rest_until);
	return peer->rests;
}

/* The windows must be there before anything is offered to the peer. */
static bool peer_link_ready(struct ropcie_peer *peer)
{
	struct ropcie_adapter *a = peer->adapter;
	struct ropcie_link_offer offer = {};
	int ret;

	if (peer->link_ready)
		return true;
	if (peer_rests(peer))
		return false;
	ret = a->backend->open(peer);
	if (!ret)
		ret = peer_make_offer(peer, &offer);
	if (ret == -EAGAIN)
		return false;
	if (ret == -ENOLINK) {
		peer_rest(peer, peer->stepped);
		return false;
	}
	if (ret) {
		if (peer->window_error != ret)
			dev_err(a->dev, "no window for peer %u: %d\n",
				peer->index, ret);
		peer->window_error = ret;
		peer_rest(peer, peer->stepped);
		return false;
	}
	peer->window_error = 0;
	if (peer->memory && peer->shows_memory)
		offer.features |= ROPCIE_FEAT_DIRECT;
	ropcie_link_init(&peer->link, &offer, peer->out_size,
			 ropcie_heartbeat_limit_ms, 2 * ropcie_heartbeat_ms);
	peer->link_ready = true;
	return true;
}

static void peer_refuse(struct ropcie_peer *peer, const char *why)
{
	if (__ratelimit(&peer->log))
		dev_warn(peer->adapter->dev, "peer %u refused: %s\n",
			 peer->index, why);
}

/* What the peer did, of which a lane or the user said @error. */
static const char *peer_offence(int error)
{
	switch (error) {
	case -EBADMSG:
		return "it sent a malformed record";
	case -EPROTO:
		return "it claims to have consumed what was not sent";
	case -ETIMEDOUT:
		return "it does not give memory back";
	default:
		return "an error that is none of the protocol's";
	}
}

static void peer_protocol_error(struct ropcie_peer *peer, int error)
{
	struct ropcie_adapter *a = peer->adapter;

	atomic64_inc(&a->protocol_errors);
	if (__ratelimit(&peer->log))
		dev_err(a->dev, "%pM (peer %u) broke the protocol: %s, its link starts again\n",
			peer->mac, peer->index, peer_offence(error));
}

/* Return: what there is to do then. */
static u32 peer_prepare(struct ropcie_peer *peer)
{
	struct ropcie_adapter *a = peer->adapter;
	int ret;

	/* The next step asks for it again. */
	if (peer_rests(peer))
		return 0;
	peer_clean_window(peer);
	ret = a->backend->prepare(peer);
	if (!ret)
		return ropcie_link_prepared(&peer->link);
	if (__ratelimit(&peer->log))
		dev_err(a->dev, "no window can be opened to peer %u: %d\n",
			peer->index, ret);
	peer_rest(peer, peer->stepped);
	return 0;
}

/* A full register is no error. Once for each, as for those of a window. */
static void peer_words_result(struct ropcie_peer *peer, int ret)
{
	if (ret == -EAGAIN || ret == peer->words_error)
		return;
	peer->words_error = ret;
	if (ret)
		dev_err(peer->adapter->dev,
			"nothing can be said to peer %u: %d\n", peer->index,
			ret);
}

/* Carry out what the handshake asks for, in the order that it asks for. */
static void peer_carry_out(struct ropcie_peer *peer, u32 todo)
{
	const struct ropcie_backend *backend = peer->adapter->backend;
	unsigned long began;
	int ret;

	lockdep_assert_held(&peer->mutex);
	if (todo & ROPCIE_LINK_DO_LOST)
		peer_disconnect(peer);
	/* Also when the handshake did not come to its end. */
	if (peer->link.state == ROPCIE_LINK_DOWN)
		peer_shut(peer);
	if (todo & ROPCIE_LINK_DO_PREPARE)
		todo |= peer_prepare(peer);
	if (todo & ROPCIE_LINK_DO_PUBLISH) {
		ret = backend->publish(peer, &peer->link.own);
		ropcie_link_published(&peer->link, !ret, now_ms());
		if ((todo & ROPCIE_LINK_DO_NOTIFY) && !ret)
			backend->notify(peer);
		peer_words_result(peer, ret);
	}
	began = jiffies;
	if ((todo & ROPCIE_LINK_DO_UP) && peer_connect(peer)) {
		peer_rest(peer, began);
		peer_carry_out(peer, ropcie_link_kill(&peer->link));
	}
	if (todo & ROPCIE_LINK_DO_REFUSE)
		peer_refuse(peer,
			    "another version of RoPCIe, or more memory than the window to it shows (window_kib)");
}

/* Give the link up after an error of the peer's, or at the end. */
static void peer_kill(struct ropcie_peer *peer)
{
	peer_carry_out(peer, ropcie_link_kill(&peer->link));
	/* In case it was not up for the handshake: lanes never outlive it. */
	peer_disconnect(peer);
}

static void peer_look_at_identity(struct ropcie_peer *peer)
{
	struct ropcie_adapter *a = peer->adapter;
	int ret;

	mutex_lock(&a->identity);
	ret = peer_read_identity(peer);
	mutex_unlock(&a->identity);
	switch (ret) {
	case 0:
		peer_announce(peer);
		break;
	case -EAGAIN:
		break;
	case -EADDRINUSE:
		peer_refuse(peer, "another node has its hardware address");
		peer_rest(peer, jiffies);
		peer_kill(peer);
		break;
	default:
		peer_refuse(peer, "it has no valid hardware address");
		peer_rest(peer, jiffies);
		peer_kill(peer);
	}
}

static void peer_step(struct ropcie_peer *peer)
{
	struct ropcie_adapter *a = peer->adapter;
	bool up = a->backend->link_up(peer);
	struct ropcie_link_words words = {};
	int error;

	lockdep_assert_held(&peer->mutex);
	if (!peer->link_ready && (!up || !peer_link_ready(peer)))
		return;
	error = READ_ONCE(peer->error);
	if (error) {
		WRITE_ONCE(peer->error, 0);
		if (peer->lanes_set) {
			peer_protocol_error(peer, error);
			peer_kill(peer);
			if (up)
				return;
		}
	}
	if (up)
		a->backend->read_words(peer, &words);
	peer_carry_out(peer, ropcie_link_step(&peer->link, up, &words,
					      get_random_u32(), now_ms()));
	ropcie_dma_check(peer);
	if (peer->link.state == ROPCIE_LINK_UP && peer->lanes_set && !peer->up)
		peer_look_at_identity(peer);
}

static void peer_work(struct work_struct *work)
{
	struct ropcie_peer *peer = container_of(to_delayed_work(work),
						struct ropcie_peer, work);
	unsigned int ms = ropcie_heartbeat_ms;
	unsigned int noio = memalloc_noio_save();

	/* A disk that is reached over this peer may wait for its link. */
	mutex_lock(&peer->mutex);
	if (READ_ONCE(peer->adapter->running)) {
		WRITE_ONCE(peer->stepped, jiffies);
		peer_step(peer);
		if (!peer->up && peer->link_ready &&
		    peer->link.state != ROPCIE_LINK_DOWN)
			ms = min_t(unsigned int, ms, ROPCIE_HELLO_MS);
	}
	/* Unless it was kicked meanwhile: then it runs again soon. */
	if (READ_ONCE(peer->adapter->running))
		queue_delayed_work(ropcie_link_wq, &peer->work,
				   msecs_to_jiffies(ms));
	mutex_unlock(&peer->mutex);
	memalloc_noio_restore(noio);
}

/**
 * ropcie_peer_start() - begin to look for a peer
 * @peer: peer; the backend has started
 */
void ropcie_peer_start(struct ropcie_peer *peer)
{
	peer->error = 0;
	ropcie_peer_kick(peer);
}

/**
 * ropcie_peer_stop() - say goodbye; the user has been told when it returns
 * @peer: peer; its adapter does not run any more, the backend still does
 */
void ropcie_peer_stop(struct ropcie_peer *peer)
{
	cancel_delayed_work_sync(&peer->work);
	mutex_lock(&peer->mutex);
	if (peer->link_ready)
		peer_kill(peer);
	peer->link_ready = false;
	peer->window_error = 0;
	peer->words_error = 0;
	peer->rests = false;
	mutex_unlock(&peer->mutex);
}

/**
 * ropcie_peer_start_self() - bring the own node up
 * @peer: own node; its window is there
 *
 * There is nothing to agree with anybody. May sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int ropcie_peer_start_self(struct ropcie_peer *peer)
{
	struct ropcie_link_offer offer = {};
	u32 epoch = get_random_u32() | 1;
	int ret;
	u32 i;

	ret = peer_make_offer(peer, &offer);
	if (ret)
		return ret;
	mutex_lock(&peer->mutex);
	peer->link.offer = offer;
	peer->link.peer_offer = offer;
	ether_addr_copy(peer->mac, peer->adapter->mac);
	peer->node_guid = peer->adapter->node_guid;
	peer_clean_window(peer);
	peer->nlanes = offer.lanes;
	peer->lanes_set = true;
	for (i = 0; i < offer.lanes && !ret; i++)
		ret = ropcie_lane_open(&peer->lane[i], &offer, epoch, &offer,
				       epoch);
	if (!ret) {
		peer_accept(peer);
		peer_announce(peer);
	} else {
		peer_disconnect(peer);
	}
	mutex_unlock(&peer->mutex);
	return ret;
}

/**
 * ropcie_peer_stop_self() - take the own node down
 * @peer: own node
 */
void ropcie_peer_stop_self(struct ropcie_peer *peer)
{
	mutex_lock(&peer->mutex);
	peer_disconnect(peer);
	mutex_unlock(&peer->mutex);
}
