/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory regions as the engines see them, and the table that turns a key into
 * one.
 *
 * Owns: the key rule (index << 8 | tag), bounds and access checks, mapping of
 * a byte range or a scatter/gather list to runs of memory. Does not own the
 * memory, its pinning or the region's lifetime: the caller locks alloc and
 * free, and keeps a region found by ropcie_mr_find() alive while it is used.
 */
#ifndef ROPCIE_CORE_MR_H
#define ROPCIE_CORE_MR_H

#include "ring.h"

/* Access rights; numbers equal to IBTA's as the kernel has them. */
#define ROPCIE_ACCESS_LOCAL_WRITE BIT(0)
#define ROPCIE_ACCESS_REMOTE_WRITE BIT(1)
#define ROPCIE_ACCESS_REMOTE_READ BIT(2)
#define ROPCIE_ACCESS_REMOTE_ATOMIC BIT(3)
#define ROPCIE_ACCESS_MW_BIND BIT(4)
/* What a peer can be given. */
#define ROPCIE_ACCESS_REMOTE                                                   \
	(ROPCIE_ACCESS_REMOTE_WRITE | ROPCIE_ACCESS_REMOTE_READ |              \
	 ROPCIE_ACCESS_REMOTE_ATOMIC)

/**
 * struct ropcie_mr_core - a memory region
 * @key: lkey and rkey: index << 8 | tag
 * @access: ROPCIE_ACCESS_*
 * @pd: number of the protection domain
 * @iova: address of the first byte as keys' users name it
 * @length: bytes
 * @offset: position of the first byte in @pages[0]
 * @page_shift: log2 of the size of each page
 * @pages: start address of each page, or NULL for one that is not there now;
 *	NULL for a region whose iova is the address itself (a kernel DMA region)
 * @dynamic: its memory and the tag of its key are given and taken away by work
 *	requests (IBTA 10.6.4.3); whoever registers has it for himself
 * @invalid: it has none now: read behind taking a reference
 * @window: a memory window: it shows a part of a region to peers
 * @null: the null region: whatever its address, it reads as @pages[0], which is zeros;
 *	what is written to it is to be dropped by the caller
 * @qpn: window of type 2B: the queue pair whose peer it is shown to; else 0
 */
struct ropcie_mr_core {
	u32 key;
	u32 access;
	u32 pd;
	u64 iova;
	u64 length;
	u32 offset;
	u32 page_shift;
	void **pages;
	bool dynamic;
	bool invalid;
	bool window;
	bool null;
	u32 qpn;
};

/* A scatter/gather element (IBTA 10.8.2.1). */
struct ropcie_sge {
	u64 addr;
	u32 length;
	u32 lkey;
};

/**
 * struct ropcie_mr_slot - an entry of the table
 * @mr: the region, or NULL
 * @next: next free index
 * @tag: tag of the next key that this entry gives
 */
struct ropcie_mr_slot {
	struct ropcie_mr_core *mr;
	u32 next;
	u8 tag;
};

/* A key is index << 8 | tag. */
#define ROPCIE_MR_TAG_MASK 0xffu
#define ROPCIE_MR_NONE 0xffffffffu
#define ROPCIE_MR_MAX BIT(24)

/**
 * struct ropcie_mr_table - keys to regions
 * @slots: memory of @size entries, the caller's
 * @size: number of entries, at most ROPCIE_MR_MAX
 * @free_head: first free entry (oldest freed first)
 * @free_tail: last free entry
 * @used: regions in the table
 */
struct ropcie_mr_table {
	struct ropcie_mr_slot *slots;
	u32 size;
	u32 free_head;
	u32 free_tail;
	u32 used;
};

/**
 * ropcie_mr_table_init() - an empty table
 * @table: table
 * @slots: @size entries
 * @size: number of entries; entry 0 is never given out (key 0 is no key)
 * @seed: random; makes the first tags unpredictable
 */
void ropcie_mr_table_init(struct ropcie_mr_table *table,
			  struct ropcie_mr_slot *slots, u32 size, u32 seed);

/**
 * ropcie_mr_add() - give a region a key and make it findable
 * @table: table; the caller holds its lock
 * @mr: region, complete but for @key
 *
 * Return: 0 with mr->key set, or -ENOSPC. A freed entry is reused as late as
 * possible and with another tag, so that stale keys are refused.
 */
int ropcie_mr_add(struct ropcie_mr_table *table, struct ropcie_mr_core *mr);

/**
 * ropcie_mr_del() - take a region out
 * @table: table; the caller holds its lock
 * @mr: region; one that was replaced is not in it
 */
void ropcie_mr_del(struct ropcie_mr_table *table, struct ropcie_mr_core *mr);

/**
 * ropcie_mr_replace() - let a key mean another region
 * @table: table; the caller holds its lock
 * @old: region that has the key; not in the table any more
 * @with: region that gets it, complete but for @key
 *
 * Whoever looks the key up finds one or the other.
 */
void ropcie_mr_replace(struct ropcie_mr_table *table,
		       const struct ropcie_mr_core *old,
		       struct ropcie_mr_core *with);

/**
 * ropcie_mr_find() - the region of a key, or NULL
 * @table: table; needs no lock, but the caller must keep freed regions from
 *	being reused meanwhile (RCU) and take a reference of its own
 * @key: any 32 bits, trusted in no way
 */
struct ropcie_mr_core *ropcie_mr_find(const struct ropcie_mr_table *table,
				      u32 key);

/**
 * ropcie_mr_find_index() - the region of a key, whatever its tag is now
 * @table: as in ropcie_mr_find()
 * @key: any 32 bits, trusted in no way
 */
struct ropcie_mr_core *ropcie_mr_find_index(const struct ropcie_mr_table *table,
					    u32 key);

/**
 * ropcie_mr_is_current() - does this key still mean this region?
 * @mr: region that ropcie_mr_find() returned, with a reference
 * @key: the key
 *
 * A full barrier has to stand between the reference and this, and one between
 * ropcie_mr_invalidate() and a look at the references: then a region is not
 * used any more when it is invalid and has no users.
 */
static inline bool ropcie_mr_is_current(const struct ropcie_mr_core *mr, u32 key)
{
	/* Pairs with the release in ropcie_mr_fast_register(). */
	return !smp_load_acquire(&mr->invalid) && READ_ONCE(mr->key) == key;
}

/**
 * struct ropcie_mr_fast - what a fast registration gives a region
 * @key: its new key, of which only the tag may differ
 * @pd: protection domain of the queue pair
 * @access: ROPCIE_ACCESS_*
 * @qpn: the queue pair that a window is for, or 0
 * @iova: address of the first byte
 * @length: bytes
 * @offset: position of the first byte in @pages[0]
 * @page_shift: log2 of the size of its pages
 * @pages: start addresses of its pages
 */
struct ropcie_mr_fast {
	u32 key;
	u32 pd;
	u32 access;
	u32 qpn;
	u64 iova;
	u64 length;
	u32 offset;
	u32 page_shift;
	void **pages;
};

/**
 * ropcie_mr_fast_register() - give a dynamic region its memory (REG_MR), or a
 *	window its part of a region
 * @mr: region; nobody uses it, and calls for one region are serialized
 * @fast: what it gets
 * @before: becomes the page array that it had
 *
 * Return: 0; -EINVAL when it is neither dynamic nor a window, is valid, belongs to
 * another protection domain, or would let peers write where its owner may not.
 */
int ropcie_mr_fast_register(struct ropcie_mr_core *mr,
			    const struct ropcie_mr_fast *fast, void ***before);

/**
 * struct ropcie_mw_attr - what a window is to show of a region
 * @addr: first byte, as the region names it
 * @length: bytes, at least one
 * @access: ROPCIE_ACCESS_*, of which those for peers count
 * @zero_based: peers name the first byte 0
 */
struct ropcie_mw_attr {
	u64 addr;
	u64 length;
	u32 access;
	bool zero_based;
};

/**
 * ropcie_mr_bind() - what a window gets (IBTA 10.6.7.2)
 * @mr: region
 * @bind: what is asked for
 * @fast: result, for ropcie_mr_fast_register(); @fast->pd is set before
 *
 * Return: 0; -EINVAL when the region does not allow it.
 */
int ropcie_mr_bind(const struct ropcie_mr_core *mr,
		   const struct ropcie_mw_attr *bind,
		   struct ropcie_mr_fast *fast);

/*
 * A window serves peers only, and one of type 2B those of its queue pair
 * (IBTA 10.6.7.2.4).
 */
static inline bool ropcie_mr_serves(const struct ropcie_mr_core *mr, u32 qpn,
				    u32 access)
{
	return !mr->window || ((access & ROPCIE_ACCESS_REMOTE) &&
			       (!mr->qpn || mr->qpn == qpn));
}

/**
 * ropcie_mr_invalidate() - take the memory away (LOCAL_INV, remote invalidate)
 * @mr: region
 * @pd: protection domain of the queue pair
 * @key: the key that is to be invalid
 * @remote: the peer asks: only for a region that it has a right to
 *
 * Return: 0, also when it is invalid already; -EINVAL when it is not dynamic or
 * this is not its key now.
 */
int ropcie_mr_invalidate(struct ropcie_mr_core *mr, u32 pd, u32 key,
			 bool remote);

/**
 * ropcie_mr_check() - may these bytes be used so?
 * @mr: region
 * @pd: protection domain of the queue pair
 * @addr: first byte
 * @len: number of bytes; 0 is always within bounds (IBTA 10.6.3.2)
 * @access: all of these ROPCIE_ACCESS_* are needed
 *
 * Return: 0; -EACCES for the wrong domain or missing rights; -ERANGE for bytes
 * outside the region or a range that wraps.
 */
int ropcie_mr_check(const struct ropcie_mr_core *mr, u32 pd, u64 addr, u64 len,
		    u32 access);

/**
 * ropcie_mr_map() - runs of memory behind a checked range
 * @mr: region
 * @addr: first byte; the range passed ropcie_mr_check()
 * @len: number of bytes
 * @vec: runs to fill; neighbouring pages that touch become one run
 * @max: entries of @vec
 * @nvec: number of runs used (in: runs already used, which may be extended)
 *
 * Return: bytes mapped; less than @len when @vec is full, or before a page that
 * is not there.
 */
u32 ropcie_mr_map(const struct ropcie_mr_core *mr, u64 addr, u32 len,
		  struct ropcie_vec *vec, u32 max, u32 *nvec);

/**
 * struct ropcie_sge_cursor - a place in a scatter/gather list
 * @sge: list
 * @num: entries
 * @idx: current entry
 * @off: bytes of it already passed
 */
struct ropcie_sge_cursor {
	const struct ropcie_sge *sge;
	u32 num;
	u32 idx;
	u32 off;
};

/**
 * ropcie_sge_length() - sum of the lengths of a list
 * @sge: list
 * @num: entries
 *
 * Return: bytes, up to 2^32 * num (no overflow).
 */
u64 ropcie_sge_length(const struct ropcie_sge *sge, u32 num);

/**
 * ropcie_sge_seek() - a cursor at byte @off of a list
 * @cur: result
 * @sge: list
 * @num: entries
 * @off: byte position; at or behind the end gives an exhausted cursor
 */
void ropcie_sge_seek(struct ropcie_sge_cursor *cur, const struct ropcie_sge *sge,
		     u32 num, u64 off);

/**
 * ropcie_sge_next() - the next piece of a list within one entry
 * @cur: cursor, advanced by the piece
 * @want: most bytes wanted
 * @piece: result: address, length (at most @want) and key
 *
 * Entries of length zero are passed over and their key is not looked at.
 *
 * Return: true with a piece of at least one byte, false at the end.
 */
bool ropcie_sge_next(struct ropcie_sge_cursor *cur, u32 want,
		     struct ropcie_sge *piece);

#endif /* ROPCIE_CORE_MR_H */
