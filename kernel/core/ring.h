/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A lane: a ring of 64-byte slots plus a ring of payload bytes in the
 * receiver's memory, written by one sender through its window.
 *
 * Owns: positions, space, the valid-word protocol and payload copies. It does
 * not know what a record means (wire.h decodes it), nor threads, doorbells or
 * epochs beyond the number it is given. One thread at a time may use the
 * sending half and one the receiving half; the two need no common lock.
 *
 * Each slot's last word says whether it is filled: epoch and position, so a
 * slot left over from an earlier lap or an earlier life of the peer is never
 * taken for a new one, and payload (which has a ring of its own) can never be
 * taken for a slot. The consumer's position travels back as one posted write
 * into the sender's memory; nothing is read over the link.
 */
#ifndef ROPCIE_CORE_RING_H
#define ROPCIE_CORE_RING_H

#include "wire.h"

/* A run of bytes in the address space of whoever runs the code. */
struct ropcie_vec {
	void *base;
	u32 len;
};

/**
 * struct ropcie_lane_geom - the shape of a lane, agreed at connection
 * @slots: number of slots, a power of two, at least 64
 * @bytes: size of the payload ring, a power of two, at least
 *	2 * ROPCIE_MAX_FRAG
 */
struct ropcie_lane_geom {
	u32 slots;
	u32 bytes;
};

/* Memory that a lane of shape @geom takes: slots, then payload. */
static inline size_t ropcie_lane_size(const struct ropcie_lane_geom *geom)
{
	return (size_t)geom->slots * ROPCIE_SLOT_SIZE + geom->bytes;
}

/* Memory that a lane of the smallest shape takes. */
size_t ropcie_lane_size_min(void);

/**
 * struct ropcie_lane_tx - the sending half of a lane
 * @slots: peer's slot ring (mapped window)
 * @payload: peer's payload ring (mapped window)
 * @geom: shape
 * @cons: word in own memory into which the peer writes its consumer position
 * @ends: private, geom.slots entries: payload position behind each record
 * @head: next slot position to write
 * @tail: slots below this are free again (last checked @cons)
 * @pay_head: next payload position
 * @pay_tail: payload below this is free again
 * @epoch: the receiver's epoch, part of every valid word
 * @write_combining: the window is mapped write-combining
 * @holes: reserved records that have not been filled
 * @first_hole: position of the first of them, if there are any
 */
struct ropcie_lane_tx {
	struct ropcie_slot *slots;
	u8 *payload;
	struct ropcie_lane_geom geom;
	const __le32 *cons;
	u64 *ends;
	u64 head;
	u64 tail;
	u64 pay_head;
	u64 pay_tail;
	u32 epoch;
	bool write_combining;
	u32 holes;
	u64 first_hole;
};

/**
 * struct ropcie_lane_hole - a record that has its place in a lane, and is not there yet
 * @slot: its header
 * @pos: its slot position
 * @dst: where its payload has to be before it is filled: one run, or two around
 *	the end of the ring
 * @ndst: number of runs
 */
struct ropcie_lane_hole {
	struct ropcie_slot slot;
	u64 pos;
	struct ropcie_vec dst[2];
	u32 ndst;
};

/**
 * struct ropcie_lane_rx - the receiving half of a lane
 * @slots: slot ring in own memory, written by the peer
 * @payload: payload ring in own memory, written by the peer
 * @geom: shape
 * @cons: word in the peer's memory (mapped window) for the consumer position
 * @head: next slot position to look at
 * @published: position last written to @cons
 * @pay_head: payload position of the next record with payload
 * @pay_published: payload position when @published was written
 * @epoch: own epoch
 */
struct ropcie_lane_rx {
	const struct ropcie_slot *slots;
	const u8 *payload;
	struct ropcie_lane_geom geom;
	__le32 *cons;
	u64 head;
	u64 published;
	u64 pay_head;
	u64 pay_published;
	u32 epoch;
};

/**
 * struct ropcie_rec - one received record
 * @hdr: validated header, private
 * @span: payload: @nspan runs; the bytes may change at any time while they are read
 * @nspan: number of runs
 * @ring: from a lane: runs of shared memory, at most two (the ring may wrap), or one
 *	in @slot
 * @slot: from a lane: private copy of the slot
 */
struct ropcie_rec {
	struct ropcie_hdr hdr;
	const struct ropcie_vec *span;
	u32 nspan;
	struct ropcie_vec ring[2];
	struct ropcie_slot slot;
};

/**
 * ropcie_lane_geom_ok() - may a peer propose this shape?
 * @geom: shape
 */
bool ropcie_lane_geom_ok(const struct ropcie_lane_geom *geom);

/**
 * ropcie_lane_geom_fit() - the largest shape whose @lanes lanes fit
 * @size: bytes of window behind the control page
 * @lanes: number of lanes, at least 1
 * @geom: result
 *
 * Return: 0, or -ENOSPC when not even the smallest shape fits.
 */
int ropcie_lane_geom_fit(u64 size, u32 lanes, struct ropcie_lane_geom *geom);

/**
 * ropcie_lane_tx_init() - an empty sending half
 * @tx: half to set up
 * @base: mapped start of the lane, ropcie_lane_size() bytes
 * @geom: shape, valid
 * @cons: word the peer reports its position in; set to 0 by the caller
 * @ends: geom->slots words of private memory
 * @epoch: the receiver's epoch
 * @write_combining: how @base is mapped
 */
void ropcie_lane_tx_init(struct ropcie_lane_tx *tx, void *base,
			 const struct ropcie_lane_geom *geom,
			 const __le32 *cons, u64 *ends, u32 epoch,
			 bool write_combining);

/**
 * ropcie_lane_rx_init() - an empty receiving half
 * @rx: half to set up
 * @base: start of the lane in own memory; its valid words are zero
 * @geom: shape, valid
 * @cons: mapped word in the peer's memory
 * @epoch: own epoch
 */
void ropcie_lane_rx_init(struct ropcie_lane_rx *rx, const void *base,
			 const struct ropcie_lane_geom *geom, __le32 *cons,
			 u32 epoch);

/**
 * ropcie_lane_send() - gather a payload, copy it and publish one record
 * @tx: sending half
 * @hdr: valid header; hdr->frag_len is the sum of the vector's lengths, unless
 *	the payload is placed already: then there is no vector
 * @vec: payload runs
 * @nvec: number of runs
 *
 * Return: 0; -EAGAIN when the lane has no space now (nothing was written);
 * -EPROTO when the peer reported a consumer position that it can not have.
 */
int ropcie_lane_send(struct ropcie_lane_tx *tx, const struct ropcie_hdr *hdr,
		     const struct ropcie_vec *vec, u32 nvec);

/**
 * ropcie_lane_room() - would a record be sent?
 * @tx: sending half
 * @hdr: valid header
 *
 * Return: as ropcie_lane_send(), which does not fail when nothing was sent since.
 */
int ropcie_lane_room(struct ropcie_lane_tx *tx, const struct ropcie_hdr *hdr);

/**
 * ropcie_lane_reserve() - give a record its place, while somebody else copies its payload
 * @tx: sending half
 * @hdr: valid header of a record with payload in the ring
 * @hole: result
 *
 * The receiver sees neither this record nor those behind it before
 * ropcie_lane_fill(). Records may be filled in any order; those that never are end
 * with the lane, which must be set up anew then.
 *
 * Return: as ropcie_lane_send().
 */
int ropcie_lane_reserve(struct ropcie_lane_tx *tx, const struct ropcie_hdr *hdr,
			struct ropcie_lane_hole *hole);

/**
 * ropcie_lane_fill() - publish a reserved record
 * @tx: sending half
 * @hole: what ropcie_lane_reserve() gave in this life of the lane; its payload is in
 *	the peer's memory, or ordered before all stores of this processor
 */
void ropcie_lane_fill(struct ropcie_lane_tx *tx,
		      const struct ropcie_lane_hole *hole);

/* The receiver can not be further than this. */
static inline u64 ropcie_lane_tx_shown(const struct ropcie_lane_tx *tx)
{
	return tx->holes ? tx->first_hole : tx->head;
}

/**
 * ropcie_lane_tx_idle() - has the receiver consumed all that was sent?
 * @tx: sending half
 */
bool ropcie_lane_tx_idle(const struct ropcie_lane_tx *tx);

/**
 * ropcie_lane_tx_unseen() - is there something that the receiver has not consumed, and
 *	could?
 * @tx: sending half; nobody else uses it
 */
bool ropcie_lane_tx_unseen(const struct ropcie_lane_tx *tx);

/**
 * ropcie_lane_tx_passed() - has the receiver consumed all before a position?
 * @tx: sending half; nobody else uses it
 * @pos: what tx->head was once
 *
 * What a peer says that lies only makes a difference to itself.
 */
static inline bool ropcie_lane_tx_passed(const struct ropcie_lane_tx *tx,
					 u64 pos)
{
	/* What the caller stores next comes after what the receiver has read. */
	u32 cons = le32_to_cpu(smp_load_acquire(tx->cons));

	return tx->tail + (u32)(cons - (u32)tx->tail) >= pos;
}

/**
 * ropcie_lane_peek() - is a record waiting? Cheap; reads own memory only.
 * @rx: receiving half
 */
static inline bool ropcie_lane_peek(const struct ropcie_lane_rx *rx)
{
	const struct ropcie_slot *slot =
		&rx->slots[READ_ONCE(rx->head) & (rx->geom.slots - 1)];

	return le64_to_cpu(READ_ONCE(slot->valid)) ==
	       ropcie_valid(rx->epoch, READ_ONCE(rx->head));
}

/**
 * ropcie_lane_recv() - the next record, copied to private memory and checked
 * @rx: receiving half
 * @rec: result
 *
 * Return: 1 with a record, which stays in the ring until
 * ropcie_lane_consume(); 0 when the lane is empty; -EBADMSG when the record
 * is malformed (the lane is then of no more use).
 */
int ropcie_lane_recv(struct ropcie_lane_rx *rx, struct ropcie_rec *rec);

/**
 * ropcie_lane_consume() - be done with the record that recv() gave
 * @rx: receiving half
 * @rec: that record
 *
 * Reports the position to the sender only every quarter of either ring;
 * ropcie_lane_publish() does it at the end of a batch.
 */
void ropcie_lane_consume(struct ropcie_lane_rx *rx,
			 const struct ropcie_rec *rec);

/**
 * ropcie_lane_publish() - tell the sender how far the receiver is
 * @rx: receiving half
 */
void ropcie_lane_publish(struct ropcie_lane_rx *rx);

/* ropcie_rec_scatter() of any runs into any runs. */
u32 ropcie_rec_scatter_runs(const struct ropcie_rec *rec, u32 from,
			    const struct ropcie_vec *vec, u32 nvec);

/**
 * ropcie_rec_scatter() - copy a record's payload into a vector
 * @rec: record
 * @from: first payload byte to copy
 * @vec: runs to fill, in order
 * @nvec: number of runs
 *
 * Copies min(payload - from, room) bytes, reading each shared byte once.
 *
 * Return: bytes copied.
 */
static inline u32 ropcie_rec_scatter(const struct ropcie_rec *rec, u32 from,
				     const struct ropcie_vec *vec, u32 nvec)
{
	u32 left;

	/* Nearly all records are one run into another. */
	if (rec->nspan != 1 || !nvec || from >= rec->span->len ||
	    rec->span->len - from > vec->len)
		return ropcie_rec_scatter_runs(rec, from, vec, nvec);
	left = rec->span->len - from;
	memcpy(vec->base, (const u8 *)rec->span->base + from, left);
	return left;
}

#endif /* ROPCIE_CORE_RING_H */
