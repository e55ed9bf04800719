// SPDX-License-Identifier: GPL-2.0
/*
 * Doorbells. A bit is latched in shared memory, and the peer's interrupt is
 * raised only if the bit was clear and is not masked there: a doorbell that a
 * polling peer has masked costs no exit to the hypervisor.
 *
 * Between every two ports A and B there are two words: A toggles a bit in
 * db_rung to set it, B toggles it in db_cleared to clear it, and it is pending
 * where they differ. Neither writes the other's word.
 *
 * Which peer a bit reaches: ntb_peer_db_set() has no peer index. With two
 * ports, every bit reaches the one peer. With more, bit b reaches port
 * b % ports, so port p is rung with bit p (what ntb_pingpong and ntb_perf
 * expect of hardware with several ports), or p + ports * n for any n that
 * fits; the peer sees the bit under the number that was rung. With
 * IVNTB_BELLS_FOR_ALL all of them see it. Bits of a peer whose link is down are
 * lost, as on hardware.
 *
 * Which interrupt a bit raises: the bits that reach a port are dealt to its
 * vectors in turn, so with v vectors that is vector b % v, or with more than
 * two ports (b / ports) % v.
 */
#include "ivntb.h"

static u32 ivntb_bit_to_vector(struct ivntb_dev *ndev, int bit, u32 vectors)
{
	return bit / ndev->db_stride % vectors;
}

/* Raises each interrupt that at least one of the bits belongs to. */
static void ivntb_db_interrupt(struct ivntb_dev *ndev, u64 bits, u32 ivpos,
			       u32 vectors)
{
	u32 raise = 0;
	u32 vector;

	for (; bits; bits &= bits - 1)
		raise |= BIT(ivntb_bit_to_vector(ndev, __ffs64(bits), vectors));
	for (; raise; raise &= raise - 1) {
		vector = __ffs(raise);
		ivntb_interrupt(ndev, ivpos, vector);
	}
}

static u64 ivntb_db_pending_from(struct ivntb_dev *ndev, int port)
{
	return READ_ONCE(ndev->headers[port].pair[ndev->port].db_rung) ^
	       READ_ONCE(ndev->self->pair[port].db_cleared);
}

static u64 ivntb_db_pending(struct ivntb_dev *ndev)
{
	u64 pending = ivntb_db_pending_from(ndev, ndev->port);
	u64 open = READ_ONCE(ndev->link_open);

	for (; open; open &= open - 1)
		pending |= ivntb_db_pending_from(ndev,
						 ndev->peers[__ffs64(open)].port);
	return pending & ndev->db_valid;
}

/* Return: what is still pending. */
static u64 ivntb_db_clear_from(struct ivntb_dev *ndev, int port, u64 bits)
{
	u64 *cleared = &ndev->self->pair[port].db_cleared;
	u64 pending = ivntb_db_pending_from(ndev, port);

	lockdep_assert_held(&ndev->db_lock);

	if (!READ_ONCE(ndev->gone))
		WRITE_ONCE(*cleared, *cleared ^ (bits & pending));
	return pending & ~bits & ndev->db_valid;
}

/*
 * For a peer that comes (back): what was rung in an earlier life is gone. It
 * rings nothing before its own link is up.
 */
void ivntb_db_reset(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	unsigned long flags;

	spin_lock_irqsave(&ndev->db_lock, flags);
	ivntb_db_clear_from(ndev, peer->port, ndev->db_valid);
	spin_unlock_irqrestore(&ndev->db_lock, flags);
}

/* Rings bits that are pending and not masked once more, at this port. */
static void ivntb_db_refire(struct ivntb_dev *ndev, u64 bits)
{
	/*
	 * Against a peer that has latched a bit and found it masked: either it
	 * sees the new mask, or we see its bit.
	 */
	mb();
	bits &= ivntb_db_pending(ndev) & ~READ_ONCE(ndev->db_mask);
	ivntb_db_interrupt(ndev, bits, ndev->ivpos, ndev->vector_count);
}

/*
 * The client is shown the bits of other peers than before: peers have come or
 * gone, and with them what had been the first bit of IVNTB_EMPTY_RINGS.
 */
void ivntb_db_reopen(struct ivntb_dev *ndev)
{
	unsigned long flags;

	spin_lock_irqsave(&ndev->db_lock, flags);
	ndev->db_filled = false;
	spin_unlock_irqrestore(&ndev->db_lock, flags);
	ivntb_db_refire(ndev, ndev->db_valid);
}

static void ivntb_ring(struct ivntb_dev *ndev, int port, u64 bits, u32 ivpos,
		       u32 vectors)
{
	struct ivntb_port *hdr = &ndev->headers[port];
	u64 *rung = &ndev->self->pair[port].db_rung;
	unsigned long flags;
	u64 fresh, masked;

	spin_lock_irqsave(&ndev->db_lock, flags);
	if (READ_ONCE(ndev->gone)) {
		spin_unlock_irqrestore(&ndev->db_lock, flags);
		return;
	}
	/*
	 * What the bit announces must be visible before it, write-combined or
	 * not. And if we find the bit still pending, the peer must find the
	 * new data after it has cleared the bit: ivntb_db_clear() has the other
	 * barrier.
	 */
	mb();
	fresh = bits & ~(*rung ^ READ_ONCE(hdr->pair[ndev->port].db_cleared));
	WRITE_ONCE(*rung, *rung ^ fresh);
	/* Latched before we look at the mask; see ivntb_db_refire(). */
	mb();
	masked = fresh & READ_ONCE(hdr->db_mask);
	/* It is the receiver that knows if its register was empty. */
	if (ivntb_is(ndev, IVNTB_EMPTY_RINGS))
		masked = 0;
	if (ivntb_is(ndev, IVNTB_BELLS_ARE_INTERRUPTS)) {
		fresh = bits;
		masked = 0;
	}
	ndev->stats.db_rung++;
	if (!fresh)
		ndev->stats.db_coalesced++;
	else if (fresh == masked)
		ndev->stats.db_masked++;
	spin_unlock_irqrestore(&ndev->db_lock, flags);

	ivntb_db_interrupt(ndev, fresh & ~masked, ivpos, vectors);
}

static void ivntb_ring_peers(struct ivntb_dev *ndev, u64 bits)
{
	u64 up = READ_ONCE(ndev->link_up);
	struct ivntb_peer *peer;
	u64 reach;
	int pidx;

	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		peer = &ndev->peers[pidx];
		reach = bits & peer->db_bits;
		if (reach && up & BIT_ULL(pidx))
			ivntb_ring(ndev, peer->port, reach, peer->ivpos,
				   peer->vectors);
	}
}

/* What of the bits rings now; the rest is lost, or left to bells_timer. */
static u64 ivntb_bells_spoil(struct ivntb_dev *ndev, u64 bits)
{
	unsigned long after = 1, flags;
	u64 now = bits;

	spin_lock_irqsave(&ndev->db_lock, flags);
	switch (ndev->bells) {
	case IVNTB_BELLS_LOSE:
		ndev->bells_count++;
		if (ndev->bells_count % ndev->bells_n)
			break;
		ndev->stats.db_faults++;
		now = 0;
		break;
	case IVNTB_BELLS_DELAY:
		after = msecs_to_jiffies(ndev->bells_n);
		now = 0;
		fallthrough;
	case IVNTB_BELLS_DOUBLE:
		ndev->stats.db_faults++;
		ndev->db_late |= bits;
		if (!timer_pending(&ndev->bells_timer))
			mod_timer(&ndev->bells_timer, jiffies + after);
		break;
	default:
		break;
	}
	spin_unlock_irqrestore(&ndev->db_lock, flags);
	return now;
}

void ivntb_bells_timer(struct timer_list *timer)
{
	struct ivntb_dev *ndev = container_of(timer, struct ivntb_dev,
					      bells_timer);
	unsigned long flags;
	bool spurious;
	int vector;
	u64 late;

	spin_lock_irqsave(&ndev->db_lock, flags);
	late = ndev->db_late;
	ndev->db_late = 0;
	spurious = ndev->bells == IVNTB_BELLS_SPURIOUS;
	if (spurious) {
		ndev->stats.db_faults++;
		mod_timer(&ndev->bells_timer,
			  jiffies + msecs_to_jiffies(ndev->bells_n));
	}
	spin_unlock_irqrestore(&ndev->db_lock, flags);

	ivntb_ring_peers(ndev, late);
	for (vector = 0; spurious && vector < ntb_db_vector_count(&ndev->ntb);
	     vector++)
		ntb_db_event(&ndev->ntb, vector);
}

void ivntb_bells_set(struct ivntb_dev *ndev, enum ivntb_bells bells,
		     unsigned int n)
{
	unsigned long flags;

	spin_lock_irqsave(&ndev->db_lock, flags);
	WRITE_ONCE(ndev->bells, bells);
	ndev->bells_n = n;
	ndev->bells_count = 0;
	/* What is late rings now, and what is spurious begins, or ends. */
	if (ndev->db_late || bells == IVNTB_BELLS_SPURIOUS)
		mod_timer(&ndev->bells_timer, jiffies);
	else
		del_timer(&ndev->bells_timer);
	spin_unlock_irqrestore(&ndev->db_lock, flags);
}

/* The client rings no more. */
void ivntb_bells_stop(struct ivntb_dev *ndev)
{
	ivntb_bells_set(ndev, IVNTB_BELLS_NORMAL, 0);
	del_timer_sync(&ndev->bells_timer);
}

int ivntb_peer_db_set(struct ntb_dev *ntb, u64 bits)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (bits & ~ndev->db_valid)
		return -EINVAL;
	bits = ivntb_family_rung(ndev, bits);
	if (READ_ONCE(ndev->bells) != IVNTB_BELLS_NORMAL)
		bits = ivntb_bells_spoil(ndev, bits);
	ivntb_ring_peers(ndev, bits);
	return 0;
}

int ivntb_db_set(struct ntb_dev *ntb, u64 bits)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (bits & ~ndev->db_valid)
		return -EINVAL;
	ivntb_ring(ndev, ndev->port, bits, ndev->ivpos, ndev->vector_count);
	return 0;
}

u64 ivntb_db_valid_mask(struct ntb_dev *ntb)
{
	return ivntb_ndev(ntb)->db_valid;
}

int ivntb_db_vector_count(struct ntb_dev *ntb)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	return ndev->family->vectors ?: ndev->vector_count;
}

/* The bits of a vector that is no interrupt, but what the family has for one. */
static u64 ivntb_vector_bits(struct ivntb_dev *ndev, int vector)
{
	int bits = ndev->family->vector_bits;

	return GENMASK_ULL(bits - 1, 0) << bits * vector;
}

u64 ivntb_db_vector_mask(struct ntb_dev *ntb, int vector)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (vector < 0 || vector >= ivntb_db_vector_count(ntb))
		return 0;
	if (ndev->family->vector_bits)
		return ndev->db_valid & ivntb_vector_bits(ndev, vector);
	return ndev->vectors[vector].db_bits;
}

u64 ivntb_db_read(struct ntb_dev *ntb)
{
	u64 pending = ivntb_db_pending(ivntb_ndev(ntb));

	/* What a bit announces is read after the bit. */
	rmb();
	return pending;
}

int ivntb_db_clear(struct ntb_dev *ntb, u64 bits)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	u64 open = READ_ONCE(ndev->link_open);
	unsigned long flags;
	u64 left;

	spin_lock_irqsave(&ndev->db_lock, flags);
	left = ivntb_db_clear_from(ndev, ndev->port, bits);
	for (; open; open &= open - 1)
		left |= ivntb_db_clear_from(ndev, ndev->peers[__ffs64(open)].port,
					    bits);
	if (!left)
		ndev->db_filled = false;
	/* What is announced from now on sets the bit anew. */
	mb();
	spin_unlock_irqrestore(&ndev->db_lock, flags);
	return 0;
}

u64 ivntb_db_read_mask(struct ntb_dev *ntb)
{
	return READ_ONCE(ivntb_ndev(ntb)->db_mask);
}

static void ivntb_db_write_mask(struct ivntb_dev *ndev, u64 set, u64 clear)
{
	u64 mask, pending;
	unsigned long flags;

	spin_lock_irqsave(&ndev->db_lock, flags);
	mask = (ndev->db_mask | set) & ~clear;
	pending = ivntb_db_pending(ndev);
	/* What is unmasked may interrupt, if nothing that was not masked is there. */
	if (pending & ~mask && !(pending & ~ndev->db_mask))
		ndev->db_filled = false;
	WRITE_ONCE(ndev->db_mask, mask);
	/* Another device's by now, else. */
	if (!READ_ONCE(ndev->gone))
		WRITE_ONCE(ndev->self->db_mask, ndev->db_mask);
	spin_unlock_irqrestore(&ndev->db_lock, flags);
}

int ivntb_db_set_mask(struct ntb_dev *ntb, u64 bits)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (ivntb_is(ndev, IVNTB_BELLS_ARE_INTERRUPTS))
		return 0;
	if (bits & ~ndev->db_valid)
		return -EINVAL;
	ivntb_db_write_mask(ndev, bits, 0);
	return 0;
}

/*
 * Bits that were latched under the mask interrupt now. That goes through this
 * port's own ID, since the caller may hold what its db_event takes.
 */
int ivntb_db_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (ivntb_is(ndev, IVNTB_BELLS_ARE_INTERRUPTS))
		return 0;
	if (bits & ~ndev->db_valid)
		return -EINVAL;
	ivntb_db_write_mask(ndev, 0, bits);
	ivntb_db_refire(ndev, bits);
	return 0;
}

/*
 * IVNTB_EMPTY_RINGS: bits interrupt when nothing was pending before, of any peer
 * and masked or not. This port is told of each bit, and ivntb_db_clear() says when
 * nothing was.
 */
static u64 ivntb_db_first(struct ivntb_dev *ndev)
{
	u64 pending, bits;

	spin_lock(&ndev->db_lock);
	pending = ivntb_db_pending(ndev);
	bits = ndev->db_filled ? 0 : pending & ~ndev->db_mask;
	ndev->db_filled = pending;
	spin_unlock(&ndev->db_lock);
	return bits;
}

/* Hard interrupt context. */
void ivntb_db_irq(struct ivntb_vector *vector)
{
	struct ivntb_dev *ndev = vector->ndev;
	int index = vector->index;
	u64 bits;

	if (ivntb_is(ndev, IVNTB_EMPTY_RINGS))
		bits = ivntb_db_first(ndev);
	else
		bits = ivntb_db_pending(ndev) & ~READ_ONCE(ndev->db_mask) &
		       vector->db_bits;
	while (bits) {
		if (ndev->family->vector_bits) {
			index = __ffs64(bits) / ndev->family->vector_bits;
			bits &= ~ivntb_vector_bits(ndev, index);
		} else {
			bits = 0;
		}
		/* Approximate: see struct ivntb_stats. */
		data_race(ndev->stats.db_events++);
		ntb_db_event(&ndev->ntb, ivntb_family_event(ndev, index));
	}
}

/* All masked, none pending. */
void ivntb_db_init(struct ivntb_dev *ndev)
{
	int bit, port, pidx, vector;
	u64 reach;

	ndev->db_valid = GENMASK_ULL(ndev->family->db_bits[ivntb_side(ndev)] - 1,
				     0);
	ndev->db_stride = ndev->ports == 2 ? 1 : ndev->ports;
	if (ivntb_is(ndev, IVNTB_BELLS_ARE_INTERRUPTS))
		ivntb_db_write_mask(ndev, 0, ~0ULL);
	else
		ivntb_db_write_mask(ndev, ndev->db_valid, 0);
	WRITE_ONCE(ndev->self->pair[ndev->port].db_cleared,
		   ndev->self->pair[ndev->port].db_rung);
	for (bit = 0; bit < IVNTB_DB_BITS; bit++) {
		vector = ivntb_bit_to_vector(ndev, bit, ndev->vector_count);
		ndev->vectors[vector].db_bits |= BIT_ULL(bit);
	}
	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		port = ndev->peers[pidx].port;
		reach = 0;
		for (bit = 0; bit < IVNTB_DB_BITS; bit++)
			if (ndev->ports == 2 || bit % ndev->ports == port ||
			    ivntb_is(ndev, IVNTB_BELLS_FOR_ALL))
				reach |= BIT_ULL(bit);
		ndev->peers[pidx].db_bits = reach;
	}
}
