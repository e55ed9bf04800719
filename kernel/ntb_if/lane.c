// SPDX-License-Identifier: GPL-2.0
/*
 * One lane number of a peer: sending and receiving under their locks, and the
 * words that ask for and answer doorbells.
 *
 * Owns: who may use the ring code when. Does not know who receives and sleeps
 * (lane_thread.c), nor when a link is good (peer.c), nor the hardware.
 *
 * Doorbells are asked for and saved like this. A receiver that is about to
 * sleep writes an odd number into the peer's memory, reads it back, and looks
 * at its lane once more. The answer to that read comes behind all that the
 * peer wrote before it saw the number, so either the last look finds the
 * record, or the sender finds the number, and rings: once for each odd number,
 * when there is something that the receiver has not consumed.
 * A sender that finds the lane full does the same with want_space.
 */
#include <linux/slab.h>
#include <linux/mm.h>

#include "backend.h"

/* What is drained with bottom halves off at a time. */
#define ROPCIE_DRAIN_RECORDS 64
#define ROPCIE_DRAIN_BYTES (256 * 1024)

/* Write a word of the peer's control page. */
static void lane_post(const struct ropcie_lane *lane, __le32 *word, u32 val)
{
	WRITE_ONCE(*word, cpu_to_le32(val));
	if (lane->peer->write_combining)
		wmb(); /* push it out of the write-combining buffer */
}

/* The same, and it has arrived, behind all that this side wrote before. */
static void lane_post_sync(const struct ropcie_lane *lane, __le32 *word,
			   u32 val)
{
	lane_post(lane, word, val);
	mb(); /* the answer comes from there, not from this processor's store buffer */
	(void)READ_ONCE(*word);
	mb(); /* what is read from now on is newer than the answer */
}

static struct ropcie_lane_ctl *lane_in(const struct ropcie_lane *lane)
{
	return &lane->peer->in->lane[lane->index];
}

static struct ropcie_lane_ctl *lane_out(const struct ropcie_lane *lane)
{
	return &lane->peer->out->lane[lane->index];
}

static void lane_ring(struct ropcie_lane *lane)
{
	if (lane->peer->self)
		ropcie_lane_doorbell(lane);
	else
		lane->peer->adapter->backend->ring(lane->peer, lane->index);
}

/* Is it up, seen without its lock? Under RCU what it was set up with stays. */
static bool lane_sends(const struct ropcie_lane *lane)
{
	/* Pairs with ropcie_lane_open(). */
	return smp_load_acquire(&lane->tx_up);
}

/**
 * ropcie_lane_init() - a lane that is down
 * @lane: lane
 * @peer: whose
 * @index: number
 */
void ropcie_lane_init(struct ropcie_lane *lane, struct ropcie_peer *peer,
		      u32 index)
{
	lane->peer = peer;
	lane->index = index;
	spin_lock_init(&lane->tx_lock);
	spin_lock_init(&lane->rx_lock);
}

static void *lane_base(struct ropcie_control *window,
		       const struct ropcie_lane_geom *geom, u32 index)
{
	return (u8 *)window + ROPCIE_CONTROL_SIZE +
	       index * ropcie_lane_size(geom);
}

/**
 * ropcie_lane_open() - set both halves up and begin to send
 * @lane: lane, down for a grace period
 * @own: shape of the own inbound window
 * @own_epoch: own epoch
 * @theirs: shape of the peer's inbound window, which was checked to fit
 * @their_epoch: the peer's epoch
 *
 * Receiving begins with ropcie_lane_open_rx(). May sleep.
 *
 * Return: 0 or -ENOMEM.
 */
int ropcie_lane_open(struct ropcie_lane *lane,
		     const struct ropcie_link_offer *own, u32 own_epoch,
		     const struct ropcie_link_offer *theirs, u32 their_epoch)
{
	struct ropcie_peer *peer = lane->peer;
	u64 *ends, *old;

	ends = kvmalloc_array(theirs->geom.slots, sizeof(*ends), GFP_KERNEL);
	if (!ends)
		return -ENOMEM;

	spin_lock_bh(&lane->rx_lock);
	ropcie_lane_rx_init(&lane->rx,
			    lane_base(peer->in, &own->geom, lane->index),
			    &own->geom, &lane_out(lane)->cons, own_epoch);
	lane->polled = false;
	lane->armed = false;
	lane->arm = 0;
	lane->space_rung = 0;

	spin_lock(&lane->tx_lock);
	old = lane->ends;
	lane->ends = ends;
	ropcie_lane_tx_init(&lane->tx,
			    lane_base(peer->out, &theirs->geom, lane->index),
			    &theirs->geom, &lane_in(lane)->cons, ends,
			    their_epoch, peer->write_combining);
	lane->want = 0;
	lane->rung = 0;
	lane->stalled = false;
	/* Pairs with lane_sends(). */
	smp_store_release(&lane->tx_up, true);
	spin_unlock(&lane->tx_lock);
	spin_unlock_bh(&lane->rx_lock);
	kvfree(old);
	return 0;
}

/**
 * ropcie_lane_open_rx() - begin to receive; the user knows the peer
 * @lane: opened lane
 */
void ropcie_lane_open_rx(struct ropcie_lane *lane)
{
	spin_lock_bh(&lane->rx_lock);
	/* Pairs with ropcie_lane_pending(), which looks at the ring. */
	smp_store_release(&lane->rx_up, true);
	spin_unlock_bh(&lane->rx_lock);
	ropcie_lane_kick(lane);
}

/**
 * ropcie_lane_close() - nobody uses the lane's memory any more when it returns
 * @lane: lane; the caller waits for a grace period, after which nothing is handed
 *	over past it either, before it opens it again
 */
void ropcie_lane_close(struct ropcie_lane *lane)
{
	spin_lock_bh(&lane->rx_lock);
	WRITE_ONCE(lane->rx_up, false);
	spin_lock(&lane->tx_lock);
	WRITE_ONCE(lane->tx_up, false);
	WRITE_ONCE(lane->stalled, false);
	spin_unlock(&lane->tx_lock);
	spin_unlock_bh(&lane->rx_lock);
}

void ropcie_lane_free(struct ropcie_lane *lane)
{
	kvfree(lane->ends);
	lane->ends = NULL;
}

/*
 * The lane is full. Ask the receiver for a doorbell when it has moved, and
 * look once more, as it may have moved before it saw the question.
 * Return: as ropcie_lane_room().
 */
static int lane_stall(struct ropcie_lane *lane, const struct ropcie_hdr *hdr)
{
	int ret;

	lockdep_assert_held(&lane->tx_lock);
	if (lane->stalled)
		return -EAGAIN;
	lane->stalls++;
	lane->want = (lane->want + 1) | 1;
	/* First: the doorbell may come before this has seen that it needs one. */
	WRITE_ONCE(lane->stalled, true);
	/* Before the question: the move that answers it must be seen as one. */
	lane->stall_cons = le32_to_cpu(READ_ONCE(*lane->tx.cons));
	lane_post_sync(lane, &lane_out(lane)->want_space, lane->want);
	ret = ropcie_lane_room(&lane->tx, hdr);
	if (ret != -EAGAIN)
		WRITE_ONCE(lane->stalled, false);
	return ret;
}

/* A record was sent, or @ret says why not. Return: see ropcie_mq_send(). */
static int lane_sent(struct ropcie_lane *lane, const struct ropcie_hdr *hdr,
		     int ret)
{
	lockdep_assert_held(&lane->tx_lock);
	if (!ret) {
		lane->tx_records++;
		lane->tx_bytes += hdr->frag_len;
	} else if (ret == -EPROTO) {
		WRITE_ONCE(lane->tx_up, false);
		ropcie_peer_fail(lane->peer, ret);
		ret = -ENOTCONN;
	}
	return ret;
}

static struct ropcie_mq *lane_find_mq(struct ropcie_lane *lane, u32 id)
{
	struct ropcie_mq **mq = &lane->recent[id & 1];

	lockdep_assert_held(&lane->rx_lock);
	if (!*mq || (*mq)->id != id)
		*mq = xa_load(&lane->peer->adapter->mqs, id);
	return *mq;
}

/* Both ends have the same life of the link in mind, and nothing is under way. */
static bool lane_is_clear(const struct ropcie_lane *lane,
			  const struct ropcie_lane *to)
{
	lockdep_assert_held(&to->rx_lock);
	return to->rx_up && lane->tx.epoch == to->rx.epoch &&
	       READ_ONCE(lane->tx.head) == to->rx.head;
}

/* Under the receive lock of @to. */
static bool lane_offer(struct ropcie_lane *lane, struct ropcie_lane *to,
		       const struct ropcie_hdr *hdr,
		       const struct ropcie_vec *vec, u32 nvec)
{
	struct ropcie_rec rec ROPCIE_UNINIT;
	struct ropcie_mq *mq;

	if (!lane_is_clear(lane, to))
		return false;
	mq = lane_find_mq(to, hdr->mq);
	if (!mq || !mq->take)
		return false;
	rec.hdr = *hdr;
	rec.span = vec;
	rec.nspan = nvec;
	if (!mq->take(mq, to->peer, &rec))
		return false;
	lane->handed_records++;
	lane->handed_bytes += hdr->frag_len;
	to->rx_records++;
	to->rx_bytes += hdr->frag_len;
	return true;
}

/* The same, without the lock; it waits for nobody. */
static bool lane_try_offer(struct ropcie_lane *lane, struct ropcie_lane *to,
			   const struct ropcie_hdr *hdr,
			   const struct ropcie_vec *vec, u32 nvec)
{
	bool taken;

	if (!spin_trylock(&to->rx_lock))
		return false;
	taken = lane_offer(lane, to, hdr, vec, nvec);
	spin_unlock(&to->rx_lock);
	return taken;
}

/*
 * Both ends are in this kernel: the receiver takes the payload from where the sender
 * has it. It overtakes nothing, as who sends holds the lock of his queue, and what he
 * sent before is not in the lane any more. Return: it was taken.
 */
static bool lane_hand_over(struct ropcie_lane *lane,
			   const struct ropcie_hdr *hdr,
			   const struct ropcie_vec *vec, u32 nvec)
{
	struct ropcie_peer *twin;
	bool taken = false;

	rcu_read_lock();
	/* The twin stays as long as a lane is up, and a grace period. */
	if (lane_sends(lane) && in_softirq() && READ_ONCE(ropcie_hand_over)) {
		twin = READ_ONCE(lane->peer->twin);
		taken = lane_try_offer(lane, &twin->lane[lane->index], hdr, vec,
				       nvec);
	}
	rcu_read_unlock();
	return taken;
}

/**
 * ropcie_lane_tx_send() - send one record
 * @lane: lane
 * @hdr: see ropcie_mq_send()
 * @vec: payload
 * @nvec: entries
 *
 * Return: see ropcie_mq_send().
 */
int ropcie_lane_tx_send(struct ropcie_lane *lane, const struct ropcie_hdr *hdr,
			const struct ropcie_vec *vec, u32 nvec)
{
	int ret = -ENOTCONN;

	if (READ_ONCE(lane->peer->twin) && lane_hand_over(lane, hdr, vec, nvec))
		return 0;
	spin_lock_bh(&lane->tx_lock);
	if (!lane->tx_up)
		goto out;
	ret = ropcie_lane_send(&lane->tx, hdr, vec, nvec);
	if (ret == -EAGAIN) {
		ret = lane_stall(lane, hdr);
		if (!ret)
			ret = ropcie_lane_send(&lane->tx, hdr, vec, nvec);
	}
	ret = lane_sent(lane, hdr, ret);
out:
	spin_unlock_bh(&lane->tx_lock);
	return ret;
}

/**
 * ropcie_lane_tx_place() - send a record whose payload goes past the lane
 * @lane: lane
 * @hdr: see ropcie_mq_send_placed()
 * @placing: the same
 *
 * Return: see ropcie_mq_send_placed().
 */
int ropcie_lane_tx_place(struct ropcie_lane *lane, const struct ropcie_hdr *hdr,
			 struct ropcie_mq_placing *placing)
{
	int ret = -ENOTCONN;

	spin_lock_bh(&lane->tx_lock);
	if (!lane->tx_up)
		goto out;
	ret = ropcie_lane_room(&lane->tx, hdr);
	if (ret == -EAGAIN)
		ret = lane_stall(lane, hdr);
	if (!ret) {
		placing->place(placing);
		ret = ropcie_lane_send(&lane->tx, hdr, NULL, 0);
	}
	ret = lane_sent(lane, hdr, ret);
out:
	spin_unlock_bh(&lane->tx_lock);
	return ret;
}

/**
 * ropcie_lane_tx_reserve() - a place for a record whose payload somebody else copies
 * @lane: lane
 * @hdr: see ropcie_lane_reserve()
 * @hole: the same; for ropcie_lane_tx_fill()
 *
 * Return: 0, or an error that ropcie_lane_tx_send() will find as well.
 */
int ropcie_lane_tx_reserve(struct ropcie_lane *lane,
			   const struct ropcie_hdr *hdr,
			   struct ropcie_lane_hole *hole)
{
	int ret = -ENOTCONN;

	spin_lock_bh(&lane->tx_lock);
	if (lane->tx_up)
		ret = ropcie_lane_reserve(&lane->tx, hdr, hole);
	if (!ret) {
		lane->tx_records++;
		lane->tx_bytes += hdr->frag_len;
	}
	spin_unlock_bh(&lane->tx_lock);
	return ret;
}

/**
 * ropcie_lane_tx_fill() - the payload of a reserved record has arrived
 * @lane: lane, which has not been opened again since
 * @hole: its place
 */
void ropcie_lane_tx_fill(struct ropcie_lane *lane,
			 const struct ropcie_lane_hole *hole)
{
	spin_lock_bh(&lane->tx_lock);
	if (lane->tx_up)
		ropcie_lane_fill(&lane->tx, hole);
	spin_unlock_bh(&lane->tx_lock);
	ropcie_lane_flush(lane);
}

/**
 * ropcie_lane_tx_idle_now() - has the peer consumed all that was sent?
 * @lane: lane
 *
 * Return: also true for a lane that is down: nothing is under way on it.
 */
bool ropcie_lane_tx_idle_now(struct ropcie_lane *lane)
{
	bool idle;

	spin_lock_bh(&lane->tx_lock);
	idle = !lane->tx_up || ropcie_lane_tx_idle(&lane->tx);
	spin_unlock_bh(&lane->tx_lock);
	return idle;
}

/**
 * ropcie_lane_position() - the position behind all that was sent
 * @lane: lane
 */
u64 ropcie_lane_position(const struct ropcie_lane *lane)
{
	return READ_ONCE(lane->tx.head);
}

/**
 * ropcie_lane_passed() - has the peer consumed all before a position?
 * @lane: lane
 * @pos: of ropcie_lane_position()
 *
 * Return: also true for a lane that is down.
 */
bool ropcie_lane_passed(struct ropcie_lane *lane, u64 pos)
{
	bool passed;

	spin_lock_bh(&lane->tx_lock);
	passed = !lane->tx_up || ropcie_lane_tx_passed(&lane->tx, pos);
	spin_unlock_bh(&lane->tx_lock);
	return passed;
}

/**
 * ropcie_lane_flush() - ring if the receiver has asked for it
 * @lane: lane
 */
void ropcie_lane_flush(struct ropcie_lane *lane)
{
	bool idle;
	u32 arm;

	/* What it has consumed it need not be told of. */
	rcu_read_lock();
	idle = !lane_sends(lane) || ropcie_lane_tx_idle(&lane->tx);
	rcu_read_unlock();
	if (idle)
		return;
	spin_lock_bh(&lane->tx_lock);
	if (lane->tx_up) {
		mb(); /* records before the look at the receiver's wish */
		arm = le32_to_cpu(READ_ONCE(lane_in(lane)->arm));
		if ((arm & 1) && arm != lane->rung &&
		    ropcie_lane_tx_unseen(&lane->tx)) {
			lane->rung = arm;
			lane->tx_doorbells++;
			lane_ring(lane);
		}
	}
	spin_unlock_bh(&lane->tx_lock);
}

/**
 * ropcie_lane_pending() - is a record waiting?
 * @lane: lane; needs no lock, but RCU
 */
bool ropcie_lane_pending(const struct ropcie_lane *lane)
{
	RCU_LOCKDEP_WARN(!rcu_read_lock_any_held(), "lane may be set up anew");
	/* Pairs with ropcie_lane_open_rx(): the ring is set up. */
	return smp_load_acquire(&lane->rx_up) && ropcie_lane_peek(&lane->rx);
}

/* Return: how much of a batch's bytes it takes. */
static u32 lane_deliver(struct ropcie_lane *lane, const struct ropcie_rec *rec)
{
	struct ropcie_mq *mq = lane_find_mq(lane, rec->hdr.mq);

	lane->rx_records++;
	lane->rx_bytes += rec->hdr.frag_len;
	if (!mq) {
		lane->rx_unknown++;
		return rec->hdr.frag_len;
	}
	mq->recv(mq, lane->peer, rec);
	return mq->for_many ? ROPCIE_DRAIN_BYTES : rec->hdr.frag_len;
}

/* The consumer position has moved: does the peer's sender wait for that? */
static void lane_answer_space(struct ropcie_lane *lane)
{
	u32 want;

	lockdep_assert_held(&lane->rx_lock);
	mb(); /* position before the look at the sender's wish */
	want = le32_to_cpu(READ_ONCE(lane_in(lane)->want_space));
	if ((want & 1) && want != lane->space_rung) {
		lane->space_rung = want;
		lane->rx_doorbells++;
		lane_ring(lane);
	}
}

/**
 * ropcie_lane_drain() - deliver what has come, up to a budget
 * @lane: lane; its receive lock is held
 *
 * Return: number of records.
 */
u32 ropcie_lane_drain(struct ropcie_lane *lane)
{
	struct ropcie_peer *peer = lane->peer;
	struct ropcie_rec rec ROPCIE_UNINIT;
	u32 records = 0, bytes = 0;
	int ret = 0;

	lockdep_assert_held(&lane->rx_lock);
	if (!lane->rx_up)
		return 0;

	rcu_read_lock();
	while (records < ROPCIE_DRAIN_RECORDS && bytes < ROPCIE_DRAIN_BYTES) {
		ret = ropcie_lane_recv(&lane->rx, &rec);
		if (ret <= 0)
			break;
		bytes += lane_deliver(lane, &rec);
		ropcie_lane_consume(&lane->rx, &rec);
		records++;
	}
	rcu_read_unlock();

	if (records) {
		/* Answers go out before the position that covers them. */
		peer->adapter->user->batch_end(peer->adapter->ctx, peer);
		ropcie_lane_publish(&lane->rx);
		lane_answer_space(lane);
	}
	if (ret < 0) {
		ROPCIE_ASSERT(!peer->self);
		WRITE_ONCE(lane->rx_up, false);
		ropcie_peer_fail(peer, ret);
	}
	return records;
}

/**
 * ropcie_lane_check_space() - tell the user if a full lane has space again
 * @lane: lane; no lock is held, not in a hard interrupt
 */
void ropcie_lane_check_space(struct ropcie_lane *lane)
{
	struct ropcie_adapter *a = lane->peer->adapter;
	bool tell = false;

	if (!READ_ONCE(lane->stalled))
		return;
	spin_lock_bh(&lane->tx_lock);
	if (lane->stalled && lane->tx_up &&
	    le32_to_cpu(READ_ONCE(*lane->tx.cons)) != lane->stall_cons) {
		WRITE_ONCE(lane->stalled, false);
		tell = true;
	}
	spin_unlock_bh(&lane->tx_lock);
	if (!tell)
		return;
	local_bh_disable();
	a->user->tx_space(a->ctx, lane->peer, lane->index);
	local_bh_enable();
}

/**
 * ropcie_lane_ask_doorbell() - the receiver is about to sleep
 * @lane: lane that is up; its receive lock is held
 *
 * The caller must look at the lane once more afterwards.
 */
void ropcie_lane_ask_doorbell(struct ropcie_lane *lane)
{
	lockdep_assert_held(&lane->rx_lock);
	lane->arm = (lane->arm + 1) | 1;
	lane->armed = true;
	lane_post_sync(lane, &lane_out(lane)->arm, lane->arm);
}

/**
 * ropcie_lane_refuse_doorbell() - the receiver is awake, without a doorbell
 * @lane: lane that is up; its receive lock is held
 */
void ropcie_lane_refuse_doorbell(struct ropcie_lane *lane)
{
	lockdep_assert_held(&lane->rx_lock);
	if (!lane->armed)
		return;
	lane->armed = false;
	lane->arm++;
	lane_post(lane, &lane_out(lane)->arm, lane->arm);
}
