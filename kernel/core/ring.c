// SPDX-License-Identifier: GPL-2.0
#include "ring.h"

#define GEOM_MIN_SLOTS 64u
#define GEOM_MAX_SLOTS 65536u
#define GEOM_MIN_BYTES (2u * ROPCIE_MAX_FRAG)
#define GEOM_MAX_BYTES (64u << 20)
/* In tx->ends: the record has not been filled. Positions never come so far. */
#define HOLE BIT_ULL(63)

static bool power_of_two(u32 n)
{
	return n && !(n & (n - 1));
}

bool ropcie_lane_geom_ok(const struct ropcie_lane_geom *geom)
{
	return power_of_two(geom->slots) && geom->slots >= GEOM_MIN_SLOTS &&
	       geom->slots <= GEOM_MAX_SLOTS && power_of_two(geom->bytes) &&
	       geom->bytes >= GEOM_MIN_BYTES && geom->bytes <= GEOM_MAX_BYTES;
}

size_t ropcie_lane_size_min(void)
{
	const struct ropcie_lane_geom geom = { GEOM_MIN_SLOTS, GEOM_MIN_BYTES };

	return ropcie_lane_size(&geom);
}

int ropcie_lane_geom_fit(u64 size, u32 lanes, struct ropcie_lane_geom *geom)
{
	struct ropcie_lane_geom g = { GEOM_MIN_SLOTS, GEOM_MIN_BYTES };
	u64 room;

	if (!lanes)
		return -ENOSPC;
	room = size / lanes;
	if (ropcie_lane_size(&g) > room)
		return -ENOSPC;
	while (g.bytes < GEOM_MAX_BYTES &&
	       (u64)g.bytes * 2 + (u64)g.slots * ROPCIE_SLOT_SIZE <= room)
		g.bytes *= 2;
	/* What the power of two leaves over goes to slots, up to one per 512 B. */
	while (g.slots < GEOM_MAX_SLOTS && g.slots < g.bytes / 512 &&
	       (u64)g.slots * 2 * ROPCIE_SLOT_SIZE + g.bytes <= room)
		g.slots *= 2;
	*geom = g;
	return 0;
}

void ropcie_lane_tx_init(struct ropcie_lane_tx *tx, void *base,
			 const struct ropcie_lane_geom *geom,
			 const __le32 *cons, u64 *ends, u32 epoch,
			 bool write_combining)
{
	memset(tx, 0, sizeof(*tx));
	tx->slots = (struct ropcie_slot *)base;
	tx->payload = (u8 *)base + (size_t)geom->slots * ROPCIE_SLOT_SIZE;
	tx->geom = *geom;
	tx->cons = cons;
	tx->ends = ends;
	tx->epoch = epoch;
	tx->write_combining = write_combining;
}

void ropcie_lane_rx_init(struct ropcie_lane_rx *rx, const void *base,
			 const struct ropcie_lane_geom *geom, __le32 *cons,
			 u32 epoch)
{
	memset(rx, 0, sizeof(*rx));
	rx->slots = (const struct ropcie_slot *)base;
	rx->payload = (const u8 *)base + (size_t)geom->slots * ROPCIE_SLOT_SIZE;
	rx->geom = *geom;
	rx->cons = cons;
	rx->epoch = epoch;
}

/*
 * Take over the peer's consumer position. It is hostile: it may only lie
 * between what was known and what it can have seen.
 */
static int tx_reclaim(struct ropcie_lane_tx *tx)
{
	/* The peer is done reading what lies before its position. */
	u32 cons = le32_to_cpu(smp_load_acquire(tx->cons));
	u32 used = (u32)ropcie_lane_tx_shown(tx) - (u32)tx->tail;
	u32 freed = cons - (u32)tx->tail;

	if (freed > used)
		return -EPROTO;
	if (freed) {
		WRITE_ONCE(tx->tail, tx->tail + freed);
		tx->pay_tail = tx->ends[(tx->tail - 1) & (tx->geom.slots - 1)];
	}
	return 0;
}

static bool tx_fits(const struct ropcie_lane_tx *tx, u32 bytes)
{
	return tx->head - tx->tail < tx->geom.slots &&
	       tx->pay_head + bytes - tx->pay_tail <= tx->geom.bytes;
}

/* Return: 0, or as ropcie_lane_send(). */
static inline int tx_make_room(struct ropcie_lane_tx *tx, u32 bytes)
{
	int ret;

	if (tx_fits(tx, bytes))
		return 0;
	ret = tx_reclaim(tx);
	if (ret)
		return ret;
	return tx_fits(tx, bytes) ? 0 : -EAGAIN;
}

int ropcie_lane_room(struct ropcie_lane_tx *tx, const struct ropcie_hdr *hdr)
{
	return tx_make_room(tx, ropcie_hdr_ring_len(hdr));
}

/* The receiver sees the record from here on. */
static inline void tx_publish(struct ropcie_lane_tx *tx,
			      const struct ropcie_slot *slot, u64 pos)
{
	struct ropcie_slot *dst = &tx->slots[pos & (tx->geom.slots - 1)];

	memcpy(dst, slot, offsetof(struct ropcie_slot, valid));
	ropcie_link_wmb(tx->write_combining);
	/* Pairs with the acquire in ropcie_lane_recv(). */
	smp_store_release(&dst->valid,
			  cpu_to_le64(ropcie_valid(tx->epoch, pos)));
	if (tx->write_combining)
		wmb(); /* push the line out of the write-combining buffer */
}

/* The next record comes behind this one. */
static inline void tx_advance(struct ropcie_lane_tx *tx, u32 bytes, u64 mark)
{
	tx->pay_head += bytes;
	tx->ends[tx->head & (tx->geom.slots - 1)] = tx->pay_head | mark;
	WRITE_ONCE(tx->head, tx->head + 1);
}

/* Copy a run to the payload ring at @pos, around its end if need be. */
static void ring_put(const struct ropcie_lane_tx *tx, u64 pos,
		     const struct ropcie_vec *vec)
{
	u32 off = (u32)pos & (tx->geom.bytes - 1);
	u32 first = min_t(u32, vec->len, tx->geom.bytes - off);

	memcpy(tx->payload + off, vec->base, first);
	if (vec->len > first)
		memcpy(tx->payload, (const u8 *)vec->base + first,
		       vec->len - first);
}

int ropcie_lane_send(struct ropcie_lane_tx *tx, const struct ropcie_hdr *hdr,
		     const struct ropcie_vec *vec, u32 nvec)
{
	u32 bytes = ropcie_hdr_ring_len(hdr);
	u32 len = hdr->flags & ROPCIE_F_PLACED ? 0 : hdr->frag_len;
	struct ropcie_slot slot ROPCIE_UNINIT;
	u32 i, off = 0;
	int ret;

	ret = tx_make_room(tx, bytes);
	if (ret)
		return ret;

	ropcie_wire_encode(hdr, &slot);
	for (i = 0; i < nvec; i++) {
		if (ROPCIE_ASSERT(vec[i].len <= len - off))
			return -EINVAL;
		if (bytes)
			ring_put(tx, tx->pay_head + off, &vec[i]);
		else if (vec[i].len)
			memcpy(slot.inl + off, vec[i].base, vec[i].len);
		off += vec[i].len;
	}
	if (ROPCIE_ASSERT(off == len))
		return -EINVAL;

	tx_publish(tx, &slot, tx->head);
	tx_advance(tx, bytes, 0);
	return 0;
}

int ropcie_lane_reserve(struct ropcie_lane_tx *tx, const struct ropcie_hdr *hdr,
			struct ropcie_lane_hole *hole)
{
	u32 bytes = ropcie_hdr_ring_len(hdr);
	u32 off = (u32)tx->pay_head & (tx->geom.bytes - 1);
	u32 first = min_t(u32, hdr->frag_len, tx->geom.bytes - off);
	int ret;

	if (ROPCIE_ASSERT(bytes))
		return -EINVAL;
	ret = tx_make_room(tx, bytes);
	if (ret)
		return ret;
	ropcie_wire_encode(hdr, &hole->slot);
	hole->pos = tx->head;
	hole->dst[0].base = tx->payload + off;
	hole->dst[0].len = first;
	hole->dst[1].base = tx->payload;
	hole->dst[1].len = hdr->frag_len - first;
	hole->ndst = hdr->frag_len > first ? 2 : 1;
	if (!tx->holes++)
		tx->first_hole = tx->head;
	tx_advance(tx, bytes, HOLE);
	return 0;
}

void ropcie_lane_fill(struct ropcie_lane_tx *tx,
		      const struct ropcie_lane_hole *hole)
{
	u32 mask = tx->geom.slots - 1;

	if (ROPCIE_ASSERT(tx->ends[hole->pos & mask] & HOLE))
		return;
	tx_publish(tx, &hole->slot, hole->pos);
	tx->ends[hole->pos & mask] &= ~HOLE;
	tx->holes--;
	while (tx->holes && !(tx->ends[tx->first_hole & mask] & HOLE))
		tx->first_hole++;
}

bool ropcie_lane_tx_idle(const struct ropcie_lane_tx *tx)
{
	/* Nothing is read on the strength of this: it is a hint. */
	return le32_to_cpu(READ_ONCE(*tx->cons)) ==
	       (u32)READ_ONCE(tx->head);
}

bool ropcie_lane_tx_unseen(const struct ropcie_lane_tx *tx)
{
	/* The same. */
	return le32_to_cpu(READ_ONCE(*tx->cons)) !=
	       (u32)ropcie_lane_tx_shown(tx);
}

/* Point at the payload in the ring: one run, or two around its end. */
static void rec_spans(const struct ropcie_lane_rx *rx, struct ropcie_rec *rec)
{
	u32 len = rec->hdr.frag_len;
	u32 off = (u32)rx->pay_head & (rx->geom.bytes - 1);
	u32 first = min_t(u32, len, rx->geom.bytes - off);

	rec->ring[0].base = (void *)(rx->payload + off);
	rec->ring[0].len = first;
	rec->ring[1].base = (void *)rx->payload;
	rec->ring[1].len = len - first;
	rec->nspan = len > first ? 2 : 1;
}

int ropcie_lane_recv(struct ropcie_lane_rx *rx, struct ropcie_rec *rec)
{
	const struct ropcie_slot *src =
		&rx->slots[rx->head & (rx->geom.slots - 1)];

	/* Header and payload are written before the valid word. */
	if (le64_to_cpu(smp_load_acquire(&src->valid)) !=
	    ropcie_valid(rx->epoch, rx->head))
		return 0;
	/* The only look at the shared header; what follows uses the copy. */
	memcpy(&rec->slot, src, sizeof(rec->slot));
	barrier(); /* the compiler may not read the original again */
	if (ropcie_wire_decode(&rec->slot, &rec->hdr))
		return -EBADMSG;

	rec->span = rec->ring;
	if (ropcie_hdr_inline(&rec->hdr)) {
		rec->ring[0].base = rec->slot.inl;
		rec->ring[0].len = rec->hdr.frag_len;
		rec->nspan = 1;
	} else if (rec->hdr.flags & ROPCIE_F_PLACED) {
		rec->nspan = 0;
	} else {
		rec_spans(rx, rec);
	}
	return 1;
}

void ropcie_lane_consume(struct ropcie_lane_rx *rx,
			 const struct ropcie_rec *rec)
{
	rx->pay_head += ropcie_hdr_ring_len(&rec->hdr);
	WRITE_ONCE(rx->head, rx->head + 1);
	if (rx->head - rx->published >= rx->geom.slots / 4 ||
	    rx->pay_head - rx->pay_published >= rx->geom.bytes / 4)
		ropcie_lane_publish(rx);
}

void ropcie_lane_publish(struct ropcie_lane_rx *rx)
{
	if (rx->published == rx->head)
		return;
	rx->published = rx->head;
	rx->pay_published = rx->pay_head;
	/* All reads of the records come before the sender may overwrite them. */
	smp_store_release(rx->cons, cpu_to_le32((u32)rx->head));
}

u32 ropcie_rec_scatter_runs(const struct ropcie_rec *rec, u32 from,
			    const struct ropcie_vec *vec, u32 nvec)
{
	u32 done = 0, span = 0, soff = from, i = 0, voff = 0;

	while (span < rec->nspan && i < nvec) {
		u32 n;

		if (soff >= rec->span[span].len) {
			soff -= rec->span[span++].len;
			continue;
		}
		n = min_t(u32, rec->span[span].len - soff, vec[i].len - voff);
		if (n)
			memcpy((u8 *)vec[i].base + voff,
			       (const u8 *)rec->span[span].base + soff, n);
		done += n;
		soff += n;
		voff += n;
		if (voff == vec[i].len) {
			i++;
			voff = 0;
		}
	}
	return done;
}
