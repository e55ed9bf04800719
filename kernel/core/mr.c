// SPDX-License-Identifier: GPL-2.0
#include "mr.h"

#define KEY_TAG_BITS 8

/* A small generator (xorshift), good enough to make tags differ. */
static u32 scramble(u32 x)
{
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

void ropcie_mr_table_init(struct ropcie_mr_table *table,
			  struct ropcie_mr_slot *slots, u32 size, u32 seed)
{
	u32 i, x = seed ? seed : 1;

	memset(table, 0, sizeof(*table));
	table->slots = slots;
	table->size = min_t(u32, size, ROPCIE_MR_MAX);
	for (i = 0; i < table->size; i++) {
		x = scramble(x);
		slots[i].mr = NULL;
		slots[i].next = i + 1 < table->size ? i + 1 : ROPCIE_MR_NONE;
		slots[i].tag = (u8)(x >> 24);
	}
	table->free_head = table->size > 1 ? 1 : ROPCIE_MR_NONE;
	table->free_tail = table->size > 1 ? table->size - 1 : ROPCIE_MR_NONE;
}

int ropcie_mr_add(struct ropcie_mr_table *table, struct ropcie_mr_core *mr)
{
	u32 index = table->free_head;
	struct ropcie_mr_slot *slot;

	if (index == ROPCIE_MR_NONE)
		return -ENOSPC;
	slot = &table->slots[index];
	table->free_head = slot->next;
	if (table->free_head == ROPCIE_MR_NONE)
		table->free_tail = ROPCIE_MR_NONE;
	table->used++;
	mr->key = index << KEY_TAG_BITS | slot->tag;
	/* Whoever finds the region sees all of it. */
	smp_store_release(&slot->mr, mr);
	return 0;
}

void ropcie_mr_del(struct ropcie_mr_table *table, struct ropcie_mr_core *mr)
{
	u32 index = mr->key >> KEY_TAG_BITS;
	struct ropcie_mr_slot *slot;

	if (ROPCIE_ASSERT(index < table->size))
		return;
	slot = &table->slots[index];
	if (slot->mr != mr)
		return;
	WRITE_ONCE(slot->mr, NULL);
	slot->tag = (u8)(mr->key + 1); /* a dynamic region has chosen its own */
	slot->next = ROPCIE_MR_NONE;
	if (table->free_tail == ROPCIE_MR_NONE)
		table->free_head = index;
	else
		table->slots[table->free_tail].next = index;
	table->free_tail = index;
	table->used--;
}

void ropcie_mr_replace(struct ropcie_mr_table *table,
		       const struct ropcie_mr_core *old,
		       struct ropcie_mr_core *with)
{
	with->key = old->key;
	/* Whoever finds the region sees all of it. */
	smp_store_release(&table->slots[old->key >> KEY_TAG_BITS].mr, with);
}

struct ropcie_mr_core *ropcie_mr_find_index(const struct ropcie_mr_table *table,
					    u32 key)
{
	u32 index = key >> KEY_TAG_BITS;

	if (index >= table->size)
		return NULL;
	index = array_index_nospec(index, table->size);
	/* Pairs with the release in ropcie_mr_add(). */
	return smp_load_acquire(&table->slots[index].mr);
}

struct ropcie_mr_core *ropcie_mr_find(const struct ropcie_mr_table *table,
				      u32 key)
{
	struct ropcie_mr_core *mr = ropcie_mr_find_index(table, key);

	return mr && READ_ONCE(mr->key) == key ? mr : NULL;
}

/* IBTA 10.6.3.1: who lets peers write may write. */
static bool gives_too_much(u32 remote, u32 own)
{
	const u32 writes = ROPCIE_ACCESS_REMOTE_WRITE |
			   ROPCIE_ACCESS_REMOTE_ATOMIC;

	return (remote & writes) && !(own & ROPCIE_ACCESS_LOCAL_WRITE);
}

int ropcie_mr_fast_register(struct ropcie_mr_core *mr,
			    const struct ropcie_mr_fast *fast, void ***before)
{
	if (!(mr->dynamic || mr->window) || !mr->invalid ||
	    mr->pd != fast->pd ||
	    (mr->key ^ fast->key) & ~ROPCIE_MR_TAG_MASK)
		return -EINVAL;
	/* The region that a window shows was asked by ropcie_mr_bind(). */
	if (!mr->window && gives_too_much(fast->access, fast->access))
		return -EINVAL;
	*before = mr->pages;
	mr->pages = fast->pages;
	mr->access = fast->access;
	mr->iova = fast->iova;
	mr->length = fast->length;
	mr->page_shift = fast->page_shift;
	mr->offset = fast->offset;
	mr->qpn = fast->qpn;
	WRITE_ONCE(mr->key, fast->key);
	/* Whoever sees that it is valid sees all of it. */
	smp_store_release(&mr->invalid, false);
	return 0;
}

int ropcie_mr_invalidate(struct ropcie_mr_core *mr, u32 pd, u32 key,
			 bool remote)
{
	if (!mr->dynamic || mr->pd != pd || mr->key != key ||
	    (remote && !(mr->access & ROPCIE_ACCESS_REMOTE)))
		return -EINVAL;
	WRITE_ONCE(mr->invalid, true);
	return 0;
}

int ropcie_mr_check(const struct ropcie_mr_core *mr, u32 pd, u64 addr, u64 len,
		    u32 access)
{
	u64 first = addr - mr->iova;

	if (mr->pd != pd || (mr->access & access) != access)
		return -EACCES;
	if (!len)
		return 0;
	/*
	 * No sum that could wrap: what is left behind the first byte. What lies
	 * before a region is far behind it.
	 */
	if (first >= mr->length || len > mr->length - first)
		return -ERANGE;
	return 0;
}

int ropcie_mr_bind(const struct ropcie_mr_core *mr,
		   const struct ropcie_mw_attr *bind,
		   struct ropcie_mr_fast *fast)
{
	u64 pos;

	if (mr->window || mr->dynamic || !mr->pages || !bind->length)
		return -EINVAL;
	if (ropcie_mr_check(mr, fast->pd, bind->addr, bind->length,
			    ROPCIE_ACCESS_MW_BIND))
		return -EINVAL;
	if (gives_too_much(bind->access, mr->access))
		return -EINVAL;
	pos = bind->addr - mr->iova + mr->offset;
	fast->pages = mr->pages + (pos >> mr->page_shift);
	fast->page_shift = mr->page_shift;
	fast->offset = (u32)(pos & ((1ULL << mr->page_shift) - 1));
	fast->iova = bind->zero_based ? 0 : bind->addr;
	fast->length = bind->length;
	fast->access = bind->access & ROPCIE_ACCESS_REMOTE;
	return 0;
}

/*
 * The run of memory at @addr up to the end of its page, at most @len bytes; of no
 * length when the page is not there.
 */
static struct ropcie_vec run_at(const struct ropcie_mr_core *mr, u64 addr,
				u32 len)
{
	struct ropcie_vec run = { .len = len };
	u64 pos, in_page, size;
	u8 *page;

	if (!mr->pages) {
		run.base = (void *)(uintptr_t)addr;
		return run;
	}
	size = 1ULL << mr->page_shift;
	pos = addr - mr->iova + mr->offset;
	in_page = pos & (size - 1);
	/* It may go at any time: it is looked at once. */
	page = READ_ONCE(mr->pages[mr->null ? 0 : pos >> mr->page_shift]);
	if (!page) {
		run.len = 0;
		return run;
	}
	run.base = page + in_page;
	if (len > size - in_page)
		run.len = (u32)(size - in_page);
	return run;
}

u32 ropcie_mr_map(const struct ropcie_mr_core *mr, u64 addr, u32 len,
		  struct ropcie_vec *vec, u32 max, u32 *nvec)
{
	u32 done = 0;

	while (done < len) {
		struct ropcie_vec run = run_at(mr, addr + done, len - done);
		struct ropcie_vec *prev = *nvec ? &vec[*nvec - 1] : NULL;

		if (!run.len)
			break;
		if (prev && (u8 *)prev->base + prev->len == run.base &&
		    run.len <= U32_MAX - prev->len) {
			prev->len += run.len;
		} else {
			if (*nvec == max)
				break;
			vec[(*nvec)++] = run;
		}
		done += run.len;
	}
	return done;
}

u64 ropcie_sge_length(const struct ropcie_sge *sge, u32 num)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < num; i++)
		sum += sge[i].length;
	return sum;
}

void ropcie_sge_seek(struct ropcie_sge_cursor *cur, const struct ropcie_sge *sge,
		     u32 num, u64 off)
{
	cur->sge = sge;
	cur->num = num;
	cur->idx = 0;
	while (cur->idx < num && off >= sge[cur->idx].length)
		off -= sge[cur->idx++].length;
	cur->off = cur->idx < num ? (u32)off : 0;
}

bool ropcie_sge_next(struct ropcie_sge_cursor *cur, u32 want,
		     struct ropcie_sge *piece)
{
	const struct ropcie_sge *sge;

	while (cur->idx < cur->num && cur->off == cur->sge[cur->idx].length) {
		cur->idx++;
		cur->off = 0;
	}
	if (cur->idx == cur->num || !want)
		return false;
	sge = &cur->sge[cur->idx];
	piece->addr = sge->addr + cur->off;
	piece->length = min_t(u32, want, sge->length - cur->off);
	piece->lkey = sge->lkey;
	cur->off += piece->length;
	return true;
}
