// SPDX-License-Identifier: GPL-2.0
/*
 * Scratchpads, and message registers after those of IDT's switches.
 *
 * A message register of a peer takes one value and stays full until the peer
 * empties it; a write that finds it full is dropped and shows in the sender's
 * outbound status bit. Each sender has registers of its own in the shared
 * memory, and the receiver shows its client one sender's at a time: so the
 * parts of a message of two senders never mix. It turns to another sender when
 * the client has emptied all registers of the first, or that one's link is lost;
 * and a register that the client has read is emptied for its sender only.
 *
 * Inside of this file a bit is a register's number; the client has those of the
 * outbound registers there, and those of the inbound ones behind (IDT_INMSG_MASK).
 */
#include "ivntb.h"

#define IVNTB_MSG_IN_SHIFT	16

static u64 ivntb_outbits(struct ivntb_dev *ndev)
{
	return BIT_ULL(ndev->msg_count) - 1;
}

static u64 ivntb_inbits(struct ivntb_dev *ndev)
{
	return ivntb_outbits(ndev) << IVNTB_MSG_IN_SHIFT;
}

/* Scratchpads */

int ivntb_spad_count(struct ntb_dev *ntb)
{
	return ivntb_ndev(ntb)->spad_count;
}

static u32 *ivntb_spad(struct ntb_dev *ntb, struct ivntb_port *hdr, int idx)
{
	if (idx < 0 || idx >= ivntb_ndev(ntb)->spad_count)
		return NULL;
	return &hdr->spad[idx];
}

static u32 *ivntb_peer_spad(struct ntb_dev *ntb, int pidx, int idx)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (pidx < 0 || pidx >= ndev->peer_count)
		return NULL;
	return ivntb_spad(ntb, ndev->peers[pidx].hdr, idx);
}

static u32 ivntb_spad_load(u32 *spad)
{
	u32 val;

	if (!spad)
		return ~0U;
	val = READ_ONCE(*spad);
	/* Before what the client reads next. */
	rmb();
	return val;
}

static int ivntb_spad_store(struct ivntb_dev *ndev, u32 *spad, u32 val)
{
	if (!spad)
		return -EINVAL;
	if (READ_ONCE(ndev->gone))
		return -ENODEV;
	/* After what the client has written before. */
	wmb();
	WRITE_ONCE(*spad, val);
	return 0;
}

u32 ivntb_spad_read(struct ntb_dev *ntb, int idx)
{
	return ivntb_spad_load(ivntb_spad(ntb, ivntb_ndev(ntb)->self, idx));
}

int ivntb_spad_write(struct ntb_dev *ntb, int idx, u32 val)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	return ivntb_spad_store(ndev, ivntb_spad(ntb, ndev->self, idx), val);
}

int ivntb_peer_spad_addr(struct ntb_dev *ntb, int pidx, int idx,
			 phys_addr_t *addr)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	u32 *spad = ivntb_peer_spad(ntb, pidx, idx);

	if (!spad)
		return -EINVAL;
	if (addr)
		*addr = pci_resource_start(ndev->pdev, IVSHMEM_BAR_MEM) +
			((void *)spad - (void *)ndev->headers);
	return 0;
}

u32 ivntb_peer_spad_read(struct ntb_dev *ntb, int pidx, int idx)
{
	return ivntb_spad_load(ivntb_peer_spad(ntb, pidx, idx));
}

int ivntb_peer_spad_write(struct ntb_dev *ntb, int pidx, int idx, u32 val)
{
	return ivntb_spad_store(ivntb_ndev(ntb), ivntb_peer_spad(ntb, pidx, idx), val);
}

/* Message registers */

static bool ivntb_msg_full(struct ivntb_peer *peer, int midx)
{
	return READ_ONCE(peer->in->msg_seq[midx]) != peer->out->msg_ack[midx];
}

static u64 ivntb_msg_full_bits(struct ivntb_dev *ndev, int pidx)
{
	u64 bits = 0;
	int midx;

	if (!(READ_ONCE(ndev->link_open) & BIT_ULL(pidx)))
		return 0;
	for (midx = 0; midx < ndev->msg_count; midx++)
		if (ivntb_msg_full(&ndev->peers[pidx], midx))
			bits |= BIT_ULL(midx);
	return bits;
}

/* Full registers of the sender on show; turns to the next when there are none. */
static u64 ivntb_msg_in_status(struct ivntb_dev *ndev)
{
	int i, pidx;
	u64 bits;

	lockdep_assert_held(&ndev->msg_lock);

	for (i = 0; i < ndev->peer_count; i++) {
		pidx = (ndev->msg_src + i) % ndev->peer_count;
		bits = ivntb_msg_full_bits(ndev, pidx);
		if (bits) {
			ndev->msg_src = pidx;
			return bits;
		}
	}
	return 0;
}

/*
 * Look for messages, not masked, of which no event has told, and with @tell take them
 * for told. All at once: what comes behind the look raises an interrupt of its own.
 *
 * Return: an event is due. There is none where an inbound status bit that is not masked
 * was set before: the client has to look (idt_msg_isr() has the rule).
 */
static bool ivntb_msg_untold(struct ivntb_dev *ndev, bool tell)
{
	u64 full = ivntb_msg_in_status(ndev) & ~(ndev->msg_mask >> IVNTB_MSG_IN_SHIFT);
	struct ivntb_peer *peer = &ndev->peers[ndev->msg_src];
	bool due = full;
	int midx;
	u32 seq;

	for (; full; full &= full - 1) {
		midx = __ffs64(full);
		seq = READ_ONCE(peer->in->msg_seq[midx]);
		if (peer->msg_told[midx] == seq)
			due = false;
		if (tell)
			peer->msg_told[midx] = seq;
	}
	return due;
}

int ivntb_msg_count(struct ntb_dev *ntb)
{
	return ivntb_ndev(ntb)->msg_count;
}

u64 ivntb_msg_inbits(struct ntb_dev *ntb)
{
	return ivntb_inbits(ivntb_ndev(ntb));
}

u64 ivntb_msg_outbits(struct ntb_dev *ntb)
{
	return ivntb_outbits(ivntb_ndev(ntb));
}

u64 ivntb_msg_read_sts(struct ntb_dev *ntb)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	unsigned long flags;
	u64 status;

	spin_lock_irqsave(&ndev->msg_lock, flags);
	status = ivntb_msg_in_status(ndev) << IVNTB_MSG_IN_SHIFT | ndev->msg_out;
	spin_unlock_irqrestore(&ndev->msg_lock, flags);
	return status;
}

/* Makes the own interrupt handler look at the registers again. */
void ivntb_msg_refire(struct ivntb_dev *ndev)
{
	ivntb_interrupt(ndev, ndev->ivpos, IVNTB_SERVICE_VECTOR);
}

int ivntb_msg_clear_sts(struct ntb_dev *ntb, u64 bits)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	struct ivntb_peer *peer;
	unsigned long flags;
	int midx, from;
	bool more;
	u64 full;

	spin_lock_irqsave(&ndev->msg_lock, flags);
	ndev->msg_out &= ~bits;
	full = bits >> IVNTB_MSG_IN_SHIFT & ivntb_msg_in_status(ndev);
	peer = &ndev->peers[ndev->msg_src];
	/* The client has read them: only now may the sender write again. */
	mb();
	for (; full; full &= full - 1) {
		midx = __ffs64(full);
		from = ndev->msg_from[midx];
		ndev->msg_from[midx] = -1;
		/* The registers may have turned since: this one is not read. */
		if (from < 0 || from == ndev->msg_src)
			WRITE_ONCE(peer->out->msg_ack[midx],
				   READ_ONCE(peer->in->msg_seq[midx]));
	}
	more = ivntb_msg_untold(ndev, false);
	spin_unlock_irqrestore(&ndev->msg_lock, flags);

	if (more)
		ivntb_msg_refire(ndev);
	return 0;
}

int ivntb_msg_set_mask(struct ntb_dev *ntb, u64 bits)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	unsigned long flags;

	if (bits & ~(ivntb_inbits(ndev) | ivntb_outbits(ndev)))
		return -EINVAL;
	spin_lock_irqsave(&ndev->msg_lock, flags);
	ndev->msg_mask |= bits;
	spin_unlock_irqrestore(&ndev->msg_lock, flags);
	return 0;
}

int ivntb_msg_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	struct ivntb_peer *peer;
	unsigned long flags;
	bool more;
	u64 full;

	if (bits & ~(ivntb_inbits(ndev) | ivntb_outbits(ndev)))
		return -EINVAL;
	spin_lock_irqsave(&ndev->msg_lock, flags);
	ndev->msg_mask &= ~bits;
	full = bits >> IVNTB_MSG_IN_SHIFT & ivntb_msg_in_status(ndev);
	peer = &ndev->peers[ndev->msg_src];
	for (; full; full &= full - 1)
		peer->msg_told[__ffs64(full)] = peer->out->msg_ack[__ffs64(full)];
	more = ivntb_msg_untold(ndev, false);
	spin_unlock_irqrestore(&ndev->msg_lock, flags);

	if (more)
		ivntb_msg_refire(ndev);
	return 0;
}

u32 ivntb_msg_read(struct ntb_dev *ntb, int *pidx, int midx)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	unsigned long flags;
	u32 msg;

	if (midx < 0 || midx >= ndev->msg_count)
		return ~0U;
	spin_lock_irqsave(&ndev->msg_lock, flags);
	ivntb_msg_in_status(ndev);
	/* The value after the count that says it is there. */
	rmb();
	msg = READ_ONCE(ndev->peers[ndev->msg_src].in->msg_data[midx]);
	ndev->msg_from[midx] = ndev->msg_src;
	if (pidx)
		*pidx = ndev->msg_src;
	spin_unlock_irqrestore(&ndev->msg_lock, flags);
	return msg;
}

int ivntb_peer_msg_write(struct ntb_dev *ntb, int pidx, int midx, u32 msg)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	struct ivntb_peer *peer;
	unsigned long flags;
	bool sent;
	u32 *seq;

	if (pidx < 0 || pidx >= ndev->peer_count ||
	    midx < 0 || midx >= ndev->msg_count)
		return -EINVAL;
	peer = &ndev->peers[pidx];
	seq = &peer->out->msg_seq[midx];

	spin_lock_irqsave(&ndev->msg_lock, flags);
	sent = READ_ONCE(ndev->link_up) & BIT_ULL(pidx) &&
	       READ_ONCE(peer->in->msg_ack[midx]) == *seq;
	if (sent) {
		/* Not over a value that the peer may still be reading. */
		mb();
		WRITE_ONCE(peer->out->msg_data[midx], msg);
		/* The value before the count that says it is there. */
		wmb();
		WRITE_ONCE(*seq, *seq + 1);
	} else {
		ndev->msg_out |= BIT_ULL(midx);
	}
	spin_unlock_irqrestore(&ndev->msg_lock, flags);

	if (sent) {
		/* The interrupt handler looks for it. */
		mb();
		ivntb_interrupt(ndev, peer->ivpos, IVNTB_SERVICE_VECTOR);
	}
	return 0;
}

/* Hard interrupt context: an event for what has become full. */
void ivntb_msg_irq(struct ivntb_dev *ndev)
{
	bool due;

	if (!ndev->msg_count)
		return;
	spin_lock(&ndev->msg_lock);
	due = ivntb_msg_untold(ndev, true);
	spin_unlock(&ndev->msg_lock);

	if (due)
		ntb_msg_event(&ndev->ntb);
}

/*
 * Empties the registers for a peer that comes (back): what an earlier life of
 * either side has not read is of no use to this one. The peer sends nothing
 * before its own link is up.
 */
void ivntb_msg_reset(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	unsigned long flags;
	u32 seq;
	int i;

	spin_lock_irqsave(&ndev->msg_lock, flags);
	for (i = 0; i < IVNTB_MAX_MSGS; i++) {
		seq = READ_ONCE(peer->in->msg_seq[i]);
		peer->msg_told[i] = seq;
		WRITE_ONCE(peer->out->msg_ack[i], seq);
	}
	spin_unlock_irqrestore(&ndev->msg_lock, flags);
}

/* Scratchpads are zero, and no message raises an event. */
void ivntb_register_init(struct ivntb_dev *ndev)
{
	int i;

	for (i = 0; i < IVNTB_MAX_SPADS; i++)
		WRITE_ONCE(ndev->self->spad[i], 0);
	for (i = 0; i < IVNTB_MAX_MSGS; i++)
		ndev->msg_from[i] = -1;
	ndev->msg_mask = ivntb_inbits(ndev) | ivntb_outbits(ndev);
}
