// SPDX-License-Identifier: GPL-2.0
#include "grant.h"

/* What a question costs, in pages placed; and most that can be saved up. */
#define ASK_COST 64
#define CREDIT_MAX (ASK_COST * ROPCIE_GRANTS)
/* Records without a grant after which a question was lost: nobody was there yet. */
#define ASK_PATIENCE 1024

void ropcie_grants_init(struct ropcie_grants *out, u32 seed)
{
	memset(out, 0, sizeof(*out));
	out->next_id = seed;
}

u32 ropcie_grant_piece(const struct ropcie_mr_core *mr, u64 addr, u64 *first)
{
	u64 end = mr->offset + mr->length;
	u64 pos = addr - mr->iova + mr->offset;
	u64 from = pos & ~(u64)(ROPCIE_GRANT_PIECE - 1);
	u64 to = from + ROPCIE_GRANT_PIECE + ROPCIE_MAX_FRAG;

	from = max_t(u64, from, mr->offset);
	to = min_t(u64, to, end);
	*first = mr->iova + (from - mr->offset);
	return (u32)(to - from);
}

int ropcie_grant_give(struct ropcie_grants *out, u32 key, bool sink, u64 addr,
		      u32 len)
{
	int i;

	if (out->closed)
		return -1;
	for (i = 0; i < ROPCIE_GRANTS; i++) {
		struct ropcie_grant *g = &out->grant[i];

		if (g->id)
			continue;
		if (!++out->next_id)
			out->next_id++;
		memset(g, 0, sizeof(*g));
		g->id = out->next_id;
		g->key = key;
		g->sink = sink;
		g->addr = addr;
		g->len = len;
		out->num++;
		return i;
	}
	return -1;
}

u32 ropcie_grant_revoke(struct ropcie_grants *out, u32 key)
{
	u32 i, num = 0;

	for (i = 0; i < ROPCIE_GRANTS; i++) {
		struct ropcie_grant *g = &out->grant[i];

		if (!g->id || (key && g->key != key))
			continue;
		num++;
		g->tell |= !g->revoked;
		g->revoked = true;
		out->tells = true;
	}
	return num;
}

struct ropcie_grant *ropcie_grant_to_revoke(struct ropcie_grants *out)
{
	u32 i;

	for (i = 0; out->tells && i < ROPCIE_GRANTS; i++)
		if (out->grant[i].id && out->grant[i].tell)
			return &out->grant[i];
	out->tells = false;
	return NULL;
}

int ropcie_grant_take_back(struct ropcie_grants *out, u32 id)
{
	int i;

	for (i = 0; i < ROPCIE_GRANTS; i++) {
		struct ropcie_grant *g = &out->grant[i];

		if (!g->id || (id && g->id != id))
			continue;
		g->id = 0;
		out->num--;
		return i;
	}
	return -1;
}

/* Does [@first, @first + @have) contain [@addr, @addr + @len)? */
static bool contains(u64 first, u64 have, u64 addr, u32 len)
{
	u64 off = addr - first;

	return off < have && len <= have - off;
}

bool ropcie_grant_covers(const struct ropcie_grants *out, u32 id, u32 key,
			 bool sink, u64 addr, u32 len)
{
	u32 i;

	for (i = 0; i < ROPCIE_GRANTS; i++) {
		const struct ropcie_grant *g = &out->grant[i];

		if (g->id && g->id == id)
			return g->key == key && g->sink == sink &&
			       contains(g->addr, g->len, addr, len);
	}
	return false;
}

void ropcie_holds_init(struct ropcie_holds *in, u32 seed)
{
	memset(in, 0, sizeof(*in));
	in->question = seed & ROPCIE_PSN_MASK;
	in->credit = CREDIT_MAX;
}

struct ropcie_hold *ropcie_hold_find(struct ropcie_holds *in, u32 key, bool sink,
				     u64 addr, u32 len)
{
	u32 i;

	for (i = 0; i < ROPCIE_HOLDS; i++) {
		struct ropcie_hold *h = &in->hold[i];

		if (h->state == ROPCIE_HOLD_GRANTED && h->mr.key == key &&
		    h->sink == sink &&
		    contains(h->mr.iova, h->mr.length, addr, len)) {
			h->used = ++in->clock;
			return h;
		}
	}
	return NULL;
}

/* It is used no more. */
static void give_back(struct ropcie_holds *in, struct ropcie_hold *h)
{
	h->state = ROPCIE_HOLD_RETURNING;
	in->returns = true;
}

static void earn(struct ropcie_holds *in, u32 pages)
{
	in->credit = min_t(u32, CREDIT_MAX, in->credit + pages);
}

void ropcie_hold_used(struct ropcie_holds *in, u32 bytes)
{
	earn(in, max_t(u32, bytes >> ROPCIE_GRANT_SHIFT, 1));
}

/*
 * For a question: a free place, or the one whose grant is to go; NULL while none can.
 */
static struct ropcie_hold *find_room(struct ropcie_holds *in)
{
	struct ropcie_hold *unused = NULL, *oldest = NULL;
	u32 i, num = 0;

	for (i = 0; i < ROPCIE_HOLDS; i++) {
		struct ropcie_hold *h = &in->hold[i];

		if (h->state == ROPCIE_HOLD_FREE)
			unused = h;
		else
			num++;
		if (h->state == ROPCIE_HOLD_GRANTED &&
		    (!oldest || h->used < oldest->used))
			oldest = h;
	}
	return num < ROPCIE_GRANTS ? unused : oldest;
}

static struct ropcie_hold *find_unused(struct ropcie_holds *in)
{
	u32 i;

	for (i = 0; i < ROPCIE_HOLDS; i++)
		if (in->hold[i].state == ROPCIE_HOLD_FREE)
			return &in->hold[i];
	return NULL;
}

bool ropcie_hold_wants(struct ropcie_holds *in, u32 bytes)
{
	struct ropcie_hold *room;

	earn(in, bytes >= ROPCIE_GRANT_PAGE);
	if (in->asked && ++in->waits > ASK_PATIENCE) {
		ropcie_hold_free(in->asked);
		in->asked = NULL;
	}
	if (in->closed || in->asked || in->credit < ASK_COST ||
	    ropcie_hold_to_return(in))
		return false;
	room = find_room(in);
	if (!room)
		return false;
	if (room->state == ROPCIE_HOLD_GRANTED)
		give_back(in, room);
	return true;
}

u32 ropcie_hold_ask(struct ropcie_holds *in, u32 key, bool sink, u64 addr)
{
	in->asked = find_room(in);
	in->asked->state = ROPCIE_HOLD_ASKED;
	in->question = ropcie_psn_add(in->question, 1);
	in->key = key;
	in->sink = sink;
	in->addr = addr;
	in->credit -= ASK_COST;
	in->ever = true;
	in->waits = 0;
	return in->question;
}

/* The addresses are those of as many pages as the bytes take. */
static bool bus_fits(const struct ropcie_hdr *hdr, const __le64 *bus)
{
	u32 pages = hdr->frag_len / sizeof(*bus), i;
	u32 offset = (u32)le64_to_cpu(bus[0]) & (ROPCIE_GRANT_PAGE - 1);

	if (hdr->addr + hdr->msg_len < hdr->addr ||
	    DIV_ROUND_UP(offset + hdr->msg_len, (u32)ROPCIE_GRANT_PAGE) != pages)
		return false;
	for (i = 1; i < pages; i++)
		if (!IS_ALIGNED(le64_to_cpu(bus[i]), (u64)ROPCIE_GRANT_PAGE))
			return false;
	return true;
}

int ropcie_hold_expects(struct ropcie_holds *in, const struct ropcie_hdr *hdr,
			const __le64 *bus)
{
	bool ours = in->asked && hdr->psn == in->question;

	if (ours) {
		in->asked->state = ROPCIE_HOLD_FREE;
		in->asked = NULL;
	}
	if (!hdr->imm)
		return 0;
	return ours && !in->closed && hdr->rkey == in->key &&
	       contains(hdr->addr, hdr->msg_len, in->addr, 1) && bus &&
	       bus_fits(hdr, bus) ? 1 : -EPROTO;
}

void ropcie_hold_fill(struct ropcie_holds *in, const struct ropcie_hdr *hdr,
		      void **pages, u32 offset)
{
	struct ropcie_hold *h = find_unused(in);

	/* Only a peer that gives more than it may leaves no place. */
	if (!h)
		return;
	memset(h, 0, sizeof(*h));
	h->id = hdr->imm;
	if (pages)
		h->state = ROPCIE_HOLD_GRANTED;
	else
		give_back(in, h);
	h->sink = in->sink;
	h->used = ++in->clock;
	h->mr.key = hdr->rkey;
	h->mr.iova = hdr->addr;
	h->mr.length = hdr->msg_len;
	h->mr.offset = offset;
	h->mr.page_shift = ROPCIE_GRANT_SHIFT;
	h->mr.pages = pages;
}

void ropcie_hold_drop(struct ropcie_holds *in, u32 id)
{
	u32 i;

	for (i = 0; i < ROPCIE_HOLDS; i++)
		if (in->hold[i].state == ROPCIE_HOLD_GRANTED &&
		    in->hold[i].id == id)
			give_back(in, &in->hold[i]);
}

struct ropcie_hold *ropcie_hold_to_return(struct ropcie_holds *in)
{
	u32 i;

	for (i = 0; in->returns && i < ROPCIE_HOLDS; i++)
		if (in->hold[i].state == ROPCIE_HOLD_RETURNING)
			return &in->hold[i];
	in->returns = false;
	return NULL;
}

void ropcie_hold_free(struct ropcie_hold *hold)
{
	memset(hold, 0, sizeof(*hold));
}
