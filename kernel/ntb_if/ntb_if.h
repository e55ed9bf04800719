/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What ropcie_ntb_if.ko exports: adapters, peers and message queues with
 * vectored send and receive. Nothing here knows of verbs.
 *
 * An adapter is one end of an NTB (or of a loopback pair). It has peers: the
 * nodes at the other ends of its links, and itself (a peer that is always up
 * and whose lanes run in local memory). To each peer run a few lanes; a
 * message queue is a number at the receiver. Records to one peer with the
 * same lane stay in order.
 */
#ifndef ROPCIE_NTB_IF_H
#define ROPCIE_NTB_IF_H

#include <linux/device.h>
#include <linux/if_ether.h>
#include <linux/jump_label.h>

#include "mq_id.h"
#include "ring.h"

struct ropcie_adapter;
struct ropcie_peer;

/**
 * struct ropcie_mq - a message queue: receives the records sent to its ID
 * @id: ID, unique in its adapter (mq_id.h)
 * @recv: called for each record, in order per lane, from a thread, a tasklet or
 *	a poller with bottom halves off and the lane's receive lock held: must not
 *	sleep, must not open or close a message queue. @rec is valid until it
 *	returns. It may send.
 * @take: the same for what this kernel sends with bottom halves off, in the context
 *	of ropcie_mq_send(), whose caller may hold the lock of another queue's owner:
 *	must not wait for anything, but returns false, and the record comes by
 *	@recv. @batch_end is not called: what the owner has to send in return he
 *	sends when the caller has let go of his locks. ropcie_mq_close() waits for
 *	it as for @recv. May be NULL
 * @priv: the owner's
 * @for_many: @recv copies a record many times: bottom halves are on again behind it
 *
 * Embedded in the owner's object.
 */
struct ropcie_mq {
	u32 id;
	void (*recv)(struct ropcie_mq *mq, struct ropcie_peer *peer,
		     const struct ropcie_rec *rec);
	bool (*take)(struct ropcie_mq *mq, struct ropcie_peer *peer,
		     const struct ropcie_rec *rec);
	void *priv;
	bool for_many;
};

/**
 * struct ropcie_mq_tx - where a message queue sends to
 * @peer: the node; holds a reference (ropcie_mq_connect())
 * @lane: lane number, chosen by the connecting QP number
 * @link: which of the links to that node it is, one after the other (ropcie_mq_connect())
 */
struct ropcie_mq_tx {
	struct ropcie_peer *peer;
	u32 lane;
	u32 link;
};

/**
 * struct ropcie_adapter_user - who uses an adapter (the verbs driver)
 * @peer_up: a peer connected; process context, may sleep
 * @peer_down: a peer is gone; nothing more is sent to or received from it in
 *	this life of the link; process context, may sleep
 * @batch_end: a lane has been drained; same context as recv
 * @tx_space: a lane that answered -EAGAIN has space again; any context with bottom
 *	halves off, no lane lock held
 */
struct ropcie_adapter_user {
	void (*peer_up)(void *ctx, struct ropcie_peer *peer);
	void (*peer_down)(void *ctx, struct ropcie_peer *peer);
	void (*batch_end)(void *ctx, struct ropcie_peer *peer);
	void (*tx_space)(void *ctx, struct ropcie_peer *peer, u32 lane);
};

/**
 * struct ropcie_adapter_watcher - who is told of adapters (ropcie_device.ko)
 * @list: private
 * @added: an adapter appeared; may sleep
 * @removed: it goes away: when this returns nobody uses it any more; may sleep
 */
struct ropcie_adapter_watcher {
	struct list_head list;
	void (*added)(struct ropcie_adapter_watcher *w,
		      struct ropcie_adapter *a);
	void (*removed)(struct ropcie_adapter_watcher *w,
			struct ropcie_adapter *a);
};

/*
 * Watchers also hear of the adapters that are there already, and at the end
 * (removed) of all that are left. May sleep.
 */
void ropcie_adapter_watch(struct ropcie_adapter_watcher *w);
void ropcie_adapter_unwatch(struct ropcie_adapter_watcher *w);

/**
 * ropcie_self_create() - an adapter without links, whose node reaches itself
 * @dev: what it sits on; must stay
 * @name: for people; must stay as well
 *
 * Watchers do not hear of it. Return: adapter, to be stopped by its user and given
 * to ropcie_self_destroy(), or NULL.
 */
struct ropcie_adapter *ropcie_self_create(struct device *dev, const char *name);
void ropcie_self_destroy(struct ropcie_adapter *a);

/* The device that the adapter sits on (PCI function, or a virtual device). */
struct device *ropcie_adapter_dev(struct ropcie_adapter *a);
const char *ropcie_adapter_name(const struct ropcie_adapter *a);
/* How many peers it may have, the own node left out. */
u32 ropcie_adapter_num_peers(const struct ropcie_adapter *a);

/**
 * ropcie_adapter_start() - begin to use an adapter
 * @a: adapter; one user at a time
 * @user: callbacks; must stay until ropcie_adapter_stop()
 * @ctx: passed to them
 * @mac: own hardware address, told to the peers
 * @node_guid: own node GUID, told to the peers
 *
 * Links are brought up from here on; @peer_up is called for the own peer
 * (loopback to self) as well. May sleep.
 *
 * Return: 0, -EBUSY when it has a user, -ENOMEM.
 */
int ropcie_adapter_start(struct ropcie_adapter *a,
			 const struct ropcie_adapter_user *user, void *ctx,
			 const u8 *mac, u64 node_guid);

/**
 * ropcie_adapter_stop() - end it
 * @a: adapter
 *
 * Links go down (peer_down is called for each peer that was up), no callback
 * runs after return. All message queues must be closed before or after, in any
 * order. May sleep.
 */
void ropcie_adapter_stop(struct ropcie_adapter *a);

/**
 * ropcie_mq_open() - receive records under mq->id
 * @a: adapter
 * @mq: id, recv and priv are set
 *
 * May sleep. Return: 0, -EEXIST, -ENOMEM.
 */
int ropcie_mq_open(struct ropcie_adapter *a, struct ropcie_mq *mq);

/**
 * ropcie_mq_close() - receive no more
 * @a: adapter
 * @mq: open queue
 *
 * When it returns, recv is not running and will not be called. May sleep; not
 * from a callback.
 */
void ropcie_mq_close(struct ropcie_adapter *a, struct ropcie_mq *mq);

/**
 * ropcie_mq_connect() - choose the node and lane that a queue sends to
 * @a: adapter
 * @mac: hardware address of the destination (own address: itself)
 * @key: spreads queues over lanes (a QP number); same key, same lane
 * @tx: result; holds a reference to the peer
 *
 * Return: 0, -EHOSTUNREACH when no connected peer has this address.
 */
int ropcie_mq_connect(struct ropcie_adapter *a, const u8 *mac, u32 key,
		      struct ropcie_mq_tx *tx);
void ropcie_mq_disconnect(struct ropcie_mq_tx *tx);
/* Is the link up over which ropcie_mq_connect() has connected it? It may be a later one. */
bool ropcie_mq_is_connected(const struct ropcie_mq_tx *tx);

/**
 * ropcie_mq_send() - vectored send of one record
 * @tx: connected
 * @hdr: valid header, hdr->mq the destination queue
 * @vec: payload runs, kernel addresses, sum of lengths = hdr->frag_len
 * @nvec: number of runs
 *
 * Rings no doorbell by itself: end a batch with ropcie_mq_flush(). Any
 * context with interrupts enabled (not hard interrupt).
 *
 * Return: 0; -EAGAIN when the lane is full (user->tx_space follows);
 * -ENOTCONN when the peer is gone (user->peer_down was called or is about to).
 */
int ropcie_mq_send(struct ropcie_mq_tx *tx, const struct ropcie_hdr *hdr,
		   const struct ropcie_vec *vec, u32 nvec);

/**
 * struct ropcie_mq_placing - who stores a payload where it is for
 * @place: called once the record has its place, and before the peer sees it; with a
 *	lane's lock: it copies, and does nothing else
 */
struct ropcie_mq_placing {
	void (*place)(struct ropcie_mq_placing *placing);
};

/**
 * ropcie_mq_send_placed() - send a record whose payload does not go through the lane
 * @tx: connected, to a peer of ropcie_peer_direct()
 * @hdr: as ropcie_mq_send(), with PLACED
 * @placing: who stores the payload
 *
 * Return: as ropcie_mq_send(); after an error nothing was stored: what is stored is told
 * of, so nothing is stored twice.
 */
int ropcie_mq_send_placed(struct ropcie_mq_tx *tx, const struct ropcie_hdr *hdr,
			  struct ropcie_mq_placing *placing);

/* Some peer has a DMA engine. */
DECLARE_STATIC_KEY_FALSE(ropcie_dma_key);

bool ropcie_mq_dma_wanted(const struct ropcie_mq_tx *tx, u32 len);

/**
 * ropcie_mq_wants_dma() - is a payload better sent by ropcie_mq_send_dma()?
 * @tx: connected
 * @len: bytes of payload
 */
static inline bool ropcie_mq_wants_dma(const struct ropcie_mq_tx *tx, u32 len)
{
	return static_branch_unlikely(&ropcie_dma_key) &&
	       ropcie_mq_dma_wanted(tx, len);
}

/**
 * struct ropcie_mq_hold - keeps a payload's memory as it is while it is copied
 * @release: called once, when nothing reads it any more: within ropcie_mq_send_dma(),
 *	or later, but before the peer can see the record; in any context with interrupts
 *	enabled. Must not sleep, nor take a lock under which that is called
 *
 * Embedded in the owner's object.
 */
struct ropcie_mq_hold {
	void (*release)(struct ropcie_mq_hold *hold);
};

/**
 * ropcie_mq_send_dma() - as ropcie_mq_send(), with a payload that may be copied later
 * @tx: connected
 * @hdr: as there
 * @vec: as there; the array is not used after return, what it names is until release
 * @nvec: number of runs
 * @hold: what holds that memory; not used when this fails
 *
 * The record keeps its place before those that are sent after it. When the link is
 * lost release comes before user->peer_down.
 *
 * Return: as ropcie_mq_send().
 */
int ropcie_mq_send_dma(struct ropcie_mq_tx *tx, const struct ropcie_hdr *hdr,
		       const struct ropcie_vec *vec, u32 nvec,
		       struct ropcie_mq_hold *hold);

/**
 * ropcie_mq_broadcast() - send one record to every peer, this node too
 * @a: adapter
 * @key: as in ropcie_mq_connect()
 * @hdr: as in ropcie_mq_send()
 * @vec: the same
 * @nvec: the same
 *
 * A full lane loses its copy, as a switch's port would. Receivers are woken.
 * Same contexts as ropcie_mq_send().
 */
void ropcie_mq_broadcast(struct ropcie_adapter *a, u32 key,
			 const struct ropcie_hdr *hdr,
			 const struct ropcie_vec *vec, u32 nvec);

/* Wake the receiver if it sleeps. Same contexts as ropcie_mq_send(). */
void ropcie_mq_flush(struct ropcie_mq_tx *tx);

/**
 * ropcie_mq_delivered() - has the peer consumed all that this lane holds and
 * has this side consumed all of the peer's? (requester.h, time-outs)
 * @tx: connected
 *
 * Return: also true when the peer is gone.
 */
bool ropcie_mq_delivered(struct ropcie_mq_tx *tx);

/**
 * ropcie_mq_position() - how far the queue's lane is
 * @tx: connected
 *
 * Return: for ropcie_mq_passed(), once the peer has consumed all that was sent so far.
 */
u64 ropcie_mq_position(const struct ropcie_mq_tx *tx);

/**
 * ropcie_mq_passed() - has the peer consumed what was sent before?
 * @tx: connected
 * @pos: of ropcie_mq_position() in the same life of the link
 *
 * Return: also true when the peer is gone.
 */
bool ropcie_mq_passed(const struct ropcie_mq_tx *tx, u64 pos);

/**
 * ropcie_adapter_poll() - drain what has arrived, in the caller's context
 * @a: adapter
 *
 * Does not wait for a receiver: a lane that another thread drains is left to
 * it. Not from hard interrupts or with interrupts off. Return: records.
 */
int ropcie_adapter_poll(struct ropcie_adapter *a);

/**
 * ropcie_adapter_arm() - the caller is about to sleep until something arrives
 * @a: adapter
 *
 * Gives polled lanes back to their threads. Same contexts as poll.
 */
void ropcie_adapter_arm(struct ropcie_adapter *a);

/**
 * ropcie_peer_direct() - do this node and the peer reach each other's memory?
 * @peer: peer that was announced
 *
 * Return: true when both have a window that shows all memory of the other, and
 * have been told to use it (direct_placement).
 */
bool ropcie_peer_direct(const struct ropcie_peer *peer);

/**
 * ropcie_peer_reach() - let the peer reach a page
 * @peer: peer, ropcie_peer_direct()
 * @page: page that stays until ropcie_peer_unreach()
 * @bus: becomes the address by which the peer's bridge finds it
 *
 * Any context. Return: 0, or -EIO when it can not be reached.
 */
int ropcie_peer_reach(struct ropcie_peer *peer, struct page *page, u64 *bus);
void ropcie_peer_unreach(struct ropcie_peer *peer, u64 bus);

/**
 * ropcie_peer_map() - where the peer's memory is mapped
 * @peer: peer, ropcie_peer_direct()
 * @bus: address that the peer gave
 * @len: bytes
 *
 * Return: where it may be written, or NULL when it lies outside the window.
 */
void *ropcie_peer_map(const struct ropcie_peer *peer, u64 bus, u32 len);

/* The peer does not do what it has to: its link starts again. Any context. */
void ropcie_peer_give_up(struct ropcie_peer *peer);

/* After this time without a sign of life a peer is dead. */
unsigned int ropcie_peer_patience_ms(void);

/* A peer's identity. */
const u8 *ropcie_peer_mac(const struct ropcie_peer *peer);
/* Below ropcie_adapter_num_peers(); that of the own node means nothing. */
u32 ropcie_peer_index(const struct ropcie_peer *peer);
bool ropcie_peer_is_self(const struct ropcie_peer *peer);
/* Are both ends in this kernel? Then records may go past the lanes, with one copy. */
bool ropcie_peer_is_near(const struct ropcie_peer *peer);

/**
 * ropcie_mq_to_peer() - as ropcie_mq_connect(), to a peer that is known
 * @peer: peer
 * @key: as there
 * @tx: result; holds a reference, to be ended with ropcie_mq_disconnect()
 */
void ropcie_mq_to_peer(struct ropcie_peer *peer, u32 key,
		       struct ropcie_mq_tx *tx);

/**
 * struct ropcie_adapter_stats - counters of an adapter, summed over its lanes
 * @tx_records: records sent
 * @tx_bytes: payload bytes sent
 * @rx_records: records received
 * @rx_bytes: payload bytes received
 * @handed_records: records of @tx_records that went past the lanes
 * @tx_dma_bytes: bytes of @tx_bytes that a DMA engine has copied
 * @dma_fallbacks: pieces of payload that were meant for one, and were not copied by it
 * @doorbells_rung: doorbells for records and for space
 * @doorbells_received: doorbells heard, needed or not
 * @spins_paid: times that a spinner received something before a doorbell could say so
 * @spins_unpaid: times that nothing came while it spun
 * @lane_stalls: times that a sender met a full lane
 * @rx_unknown_mq: records to a queue that is not open
 * @link_ups: links that came up, the own node's too
 * @link_losses: links that went down
 * @protocol_errors: links given up because the peer broke the protocol
 */
struct ropcie_adapter_stats {
	u64 tx_records;
	u64 tx_bytes;
	u64 rx_records;
	u64 rx_bytes;
	u64 handed_records;
	u64 tx_dma_bytes;
	u64 dma_fallbacks;
	u64 doorbells_rung;
	u64 doorbells_received;
	u64 spins_paid;
	u64 spins_unpaid;
	u64 lane_stalls;
	u64 rx_unknown_mq;
	u64 link_ups;
	u64 link_losses;
	u64 protocol_errors;
};

void ropcie_adapter_get_stats(struct ropcie_adapter *a,
			      struct ropcie_adapter_stats *stats);

#endif /* ROPCIE_NTB_IF_H */
