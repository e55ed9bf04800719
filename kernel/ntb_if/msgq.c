// SPDX-License-Identifier: GPL-2.0
/*
 * Message queues: the table of those that receive, and what a sender holds.
 * The lane that carries a queue is lane.c's.
 */
#include <linux/etherdevice.h>

#include "internal.h"

int ropcie_mq_open(struct ropcie_adapter *a, struct ropcie_mq *mq)
{
	int ret = xa_insert(&a->mqs, mq->id, mq, GFP_KERNEL);

	return ret == -EBUSY ? -EEXIST : ret;
}
EXPORT_SYMBOL_GPL(ropcie_mq_open);

void ropcie_mq_close(struct ropcie_adapter *a, struct ropcie_mq *mq)
{
	struct ropcie_lane *l;
	u32 i, lane;

	xa_erase(&a->mqs, mq->id);
	/*
	 * Receivers look queues up, remember and call them under a lane's lock:
	 * whoever found this one is done when its lock was free once.
	 */
	for (i = 0; i < a->npeers; i++) {
		for (lane = 0; lane < a->lanes; lane++) {
			l = &a->peer[i]->lane[lane];
			spin_lock_bh(&l->rx_lock);
			if (l->recent[mq->id & 1] == mq)
				l->recent[mq->id & 1] = NULL;
			spin_unlock_bh(&l->rx_lock);
		}
	}
}
EXPORT_SYMBOL_GPL(ropcie_mq_close);

static u32 choose_lane(const struct ropcie_peer *peer, u32 key)
{
	return key % max_t(u32, 1, READ_ONCE(peer->nlanes));
}

void ropcie_mq_to_peer(struct ropcie_peer *peer, u32 key,
		       struct ropcie_mq_tx *tx)
{
	kref_get(&peer->ref);
	tx->peer = peer;
	tx->lane = choose_lane(peer, key);
}
EXPORT_SYMBOL_GPL(ropcie_mq_to_peer);

int ropcie_mq_connect(struct ropcie_adapter *a, const u8 *mac, u32 key,
		      struct ropcie_mq_tx *tx)
{
	u32 i;

	for (i = 0; i < a->npeers; i++) {
		struct ropcie_peer *peer = a->peer[i];
		/* Before all else is looked at, which may be of a later one. */
		u32 link = smp_load_acquire(&peer->links);

		if (ropcie_peer_is_up(peer) &&
		    ether_addr_equal_unaligned(mac, peer->mac)) {
			ropcie_mq_to_peer(peer, key, tx);
			tx->link = link;
			return 0;
		}
	}
	return -EHOSTUNREACH;
}
EXPORT_SYMBOL_GPL(ropcie_mq_connect);

void ropcie_mq_disconnect(struct ropcie_mq_tx *tx)
{
	if (tx->peer)
		kref_put(&tx->peer->ref, ropcie_peer_release);
	tx->peer = NULL;
}
EXPORT_SYMBOL_GPL(ropcie_mq_disconnect);

bool ropcie_mq_is_connected(const struct ropcie_mq_tx *tx)
{
	return ropcie_peer_is_up(tx->peer) &&
	       READ_ONCE(tx->peer->links) == tx->link;
}
EXPORT_SYMBOL_GPL(ropcie_mq_is_connected);

int ropcie_mq_send(struct ropcie_mq_tx *tx, const struct ropcie_hdr *hdr,
		   const struct ropcie_vec *vec, u32 nvec)
{
	return ropcie_lane_tx_send(&tx->peer->lane[tx->lane], hdr, vec, nvec);
}
EXPORT_SYMBOL_GPL(ropcie_mq_send);

int ropcie_mq_send_placed(struct ropcie_mq_tx *tx, const struct ropcie_hdr *hdr,
			  struct ropcie_mq_placing *placing)
{
	return ropcie_lane_tx_place(&tx->peer->lane[tx->lane], hdr, placing);
}
EXPORT_SYMBOL_GPL(ropcie_mq_send_placed);

void ropcie_mq_broadcast(struct ropcie_adapter *a, u32 key,
			 const struct ropcie_hdr *hdr,
			 const struct ropcie_vec *vec, u32 nvec)
{
	u32 i;

	for (i = 0; i < a->npeers; i++) {
		struct ropcie_peer *peer = a->peer[i];
		struct ropcie_lane *l = &peer->lane[choose_lane(peer, key)];

		if (ropcie_peer_is_up(peer) &&
		    !ropcie_lane_tx_send(l, hdr, vec, nvec))
			ropcie_lane_flush(l);
	}
}
EXPORT_SYMBOL_GPL(ropcie_mq_broadcast);

void ropcie_mq_flush(struct ropcie_mq_tx *tx)
{
	ropcie_lane_flush(&tx->peer->lane[tx->lane]);
}
EXPORT_SYMBOL_GPL(ropcie_mq_flush);

bool ropcie_mq_delivered(struct ropcie_mq_tx *tx)
{
	struct ropcie_peer *peer = tx->peer;
	u32 i;

	if (!ropcie_lane_tx_idle_now(&peer->lane[tx->lane]))
		return false;
	/* The peer chooses by its own number which lane it answers on. */
	rcu_read_lock();
	for (i = 0; i < ROPCIE_MAX_LANES; i++) {
		if (ropcie_lane_pending(&peer->lane[i])) {
			rcu_read_unlock();
			return false;
		}
	}
	rcu_read_unlock();
	return true;
}
EXPORT_SYMBOL_GPL(ropcie_mq_delivered);

u64 ropcie_mq_position(const struct ropcie_mq_tx *tx)
{
	return ropcie_lane_position(&tx->peer->lane[tx->lane]);
}
EXPORT_SYMBOL_GPL(ropcie_mq_position);

bool ropcie_mq_passed(const struct ropcie_mq_tx *tx, u64 pos)
{
	return ropcie_lane_passed(&tx->peer->lane[tx->lane], pos);
}
EXPORT_SYMBOL_GPL(ropcie_mq_passed);
