// SPDX-License-Identifier: GPL-2.0
/*
 * What a key allows, and which combinations are tried. The statuses are those of
 * the InfiniBand Architecture Specification, volume 1, chapters 9.7.5, 10.6 and
 * 11.6.2.
 */
#include <linux/prandom.h>

#include "keys.h"

#define MANY 101 /* bytes */
#define MIDDLE 136
#define HUGE BIT(31) /* what a message can have at most */

u32 keys_length(enum keys_kind kind)
{
	return kind == KEYS_SINGLE || kind == KEYS_DMA ? KEYS_SHORT : KEYS_LONG;
}

bool keys_is_atomic(enum keys_op op)
{
	return op == KEYS_CAS || op == KEYS_FAA;
}

bool keys_is_fetch(enum keys_op op)
{
	return op == KEYS_READ || keys_is_atomic(op);
}

bool keys_takes_receive(enum keys_op op)
{
	return op == KEYS_SEND || op == KEYS_WRITE_IMM || op == KEYS_SEND_INV;
}

bool keys_is_use(enum keys_op op)
{
	return op < KEYS_SEND_INV;
}

bool keys_registered(const struct keys_case *one)
{
	/* REG_MR is tried with all of the others on one that is not. */
	if (one->op == KEYS_REG)
		return one->state == KEYS_VALID;
	return one->state < KEYS_FRESH;
}

/* What the region has to allow for its part in the operation. */
static u32 needs(const struct keys_case *one)
{
	if (one->where == KEYS_RECEIVE)
		return IB_ACCESS_LOCAL_WRITE;
	if (one->where == KEYS_LOCAL)
		return keys_is_fetch(one->op) ? IB_ACCESS_LOCAL_WRITE : 0;
	if (one->op == KEYS_READ)
		return IB_ACCESS_REMOTE_READ;
	return keys_is_atomic(one->op) ? IB_ACCESS_REMOTE_ATOMIC :
					 IB_ACCESS_REMOTE_WRITE;
}

/* Is it the key that the region has, if it has one? */
static bool key_is_current(const struct keys_case *one)
{
	switch (one->state) {
	case KEYS_VALID:
	case KEYS_REFRESHED:
	case KEYS_KEPT:
	case KEYS_MOVED:
	case KEYS_HEIR:
	case KEYS_FRESH:
	case KEYS_INVALIDATED:
	case KEYS_BY_PEER:
		return !one->tag;
	default:
		return false;
	}
}

/* No range here goes so far that it wraps around into the region. */
static bool within(const struct keys_case *one)
{
	u32 length = keys_length(one->kind);

	return !one->absolute && one->off < length &&
	       one->len <= length - one->off;
}

static bool use_allowed(const struct keys_case *one)
{
	if (!key_is_current(one) || !keys_registered(one) || one->foreign)
		return false;
	/* All memory, but for this side only. */
	if (one->kind == KEYS_DMA)
		return one->where != KEYS_REMOTE;
	return !(needs(one) & ~one->access) && within(one);
}

/* To make it invalid again is no error; a peer needs some right to it. */
static bool invalidate_allowed(const struct keys_case *one)
{
	if (!key_is_current(one) || one->foreign || one->kind == KEYS_DMA)
		return false;
	return one->op == KEYS_LOCAL_INV ||
	       (one->state != KEYS_FRESH && (one->access & KEYS_REMOTE_ACCESS));
}

/*
 * IBTA 10.6.4.3, 11.4.1.1: the region is not registered, the consumer chooses the
 * tag only, and who may write may write here.
 */
static bool register_allowed(const struct keys_case *one)
{
	u32 writes = IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC;

	if (one->state != KEYS_FRESH && one->state != KEYS_INVALIDATED)
		return false;
	return !one->foreign && (!(one->access & writes) ||
				 (one->access & IB_ACCESS_LOCAL_WRITE));
}

static struct keys_outcome success(const struct keys_case *one)
{
	struct keys_outcome right = {};

	if (keys_is_fetch(one->op))
		right.local = KEYS_EVERYTHING;
	if (one->op != KEYS_READ && one->op < KEYS_LOCAL_INV)
		right.remote = KEYS_EVERYTHING;
	return right;
}

static struct keys_outcome judge_remote(const struct keys_case *one)
{
	struct keys_outcome right = {
		.receive = IB_WC_WR_FLUSH_ERR,
		.responder_fails = true,
	};

	/* IBTA 9.7.4.1.3: looked at before the region is. */
	if (keys_is_atomic(one->op) && one->off % KEYS_WORD) {
		right.status = IB_WC_REM_INV_REQ_ERR;
		right.event = IB_EVENT_QP_REQ_ERR;
		return right;
	}
	/* IBTA 9.7.4.1.4: the key of no bytes is not looked at. */
	if (!one->len || use_allowed(one))
		return success(one);
	right.status = IB_WC_REM_ACCESS_ERR;
	right.event = IB_EVENT_QP_ACCESS_ERR;
	return right;
}

static enum keys_placed part_of(const struct keys_case *one)
{
	return one->len > KEYS_RECORD ? KEYS_PERHAPS : KEYS_NOTHING;
}

static struct keys_outcome judge_local(const struct keys_case *one)
{
	struct keys_outcome right = { .status = IB_WC_LOC_PROT_ERR };

	if (!one->len || use_allowed(one))
		return success(one);
	/* What fetches is executed before there is anything to place. */
	if (keys_is_fetch(one->op))
		right.local = part_of(one);
	else
		right.remote = part_of(one);
	if (keys_is_atomic(one->op))
		right.remote = KEYS_PERHAPS;
	return right;
}

static struct keys_outcome judge_receive(const struct keys_case *one)
{
	struct keys_outcome right = {
		.status = IB_WC_REM_OP_ERR,
		.receive = IB_WC_LOC_PROT_ERR,
		.responder_fails = true,
		.remote = part_of(one),
	};

	return !one->len || use_allowed(one) ? success(one) : right;
}

/*
 * IBTA 9.7.4.1.3: what the responder's queue pair does not allow is refused before
 * the region is asked; what fails here never gets there.
 */
static bool stopped_by_qp(const struct keys_case *one,
			  const struct keys_outcome *right)
{
	struct keys_case remote = *one;

	if (one->op == KEYS_SEND ||
	    (one->where == KEYS_LOCAL && right->status &&
	     !keys_is_fetch(one->op)))
		return false;
	remote.where = KEYS_REMOTE;
	return needs(&remote) & ~one->qp_access;
}

static struct keys_outcome judge_use(const struct keys_case *one)
{
	struct keys_outcome right;

	right = one->where == KEYS_LOCAL  ? judge_local(one) :
		one->where == KEYS_REMOTE ? judge_remote(one) :
					    judge_receive(one);
	if (stopped_by_qp(one, &right))
		right = (struct keys_outcome){
			.status = IB_WC_REM_INV_REQ_ERR,
			.receive = IB_WC_WR_FLUSH_ERR,
			.responder_fails = true,
			.event = IB_EVENT_QP_REQ_ERR,
		};
	return right;
}

struct keys_outcome keys_judge(const struct keys_case *one)
{
	struct keys_outcome right = {};

	switch (one->op) {
	case KEYS_SEND_INV:
		if (invalidate_allowed(one))
			return success(one);
		/* The message is there; its key is refused. */
		right.status = IB_WC_REM_ACCESS_ERR;
		right.receive = IB_WC_REM_INV_REQ_ERR;
		right.responder_fails = true;
		right.event = IB_EVENT_QP_ACCESS_ERR;
		right.remote = KEYS_PERHAPS;
		return right;
	case KEYS_LOCAL_INV:
	case KEYS_REG:
		/* A memory management operation error. */
		if (!(one->op == KEYS_REG ? register_allowed(one) :
					    invalidate_allowed(one)))
			right.status = IB_WC_MW_BIND_ERR;
		return right;
	default:
		return judge_use(one);
	}
}

void keys_name(const struct keys_case *one, char *name)
{
	static const char *const ops[] = {
		"SEND", "WRITE", "WRITE with immediate data", "READ",
		"compare and swap", "fetch and add", "SEND with invalidate",
		"LOCAL_INV", "REG_MR",
	};
	static const char *const wheres[] = { "local", "remote", "receive" };
	static const char *const kinds[] = {
		"scattered", "single page", "chosen address", "high", "DMA",
	};
	static const char *const states[] = {
		"valid", "other index", "0", "all ones", "stale", "refreshed",
		"not registered yet", "kept", "moved", "of a predecessor",
		"of the index's predecessor", "of a recycled index",
		"fresh", "not mapped", "invalidated",
		"invalidated by the peer", "deregistered",
	};

	snprintf(name, KEYS_NAME_LEN,
		 "%s, %s %s, access %u, QP's %u, %s PD, key %s ^ %u, %u bytes at %s%lld",
		 ops[one->op], wheres[one->where], kinds[one->kind], one->access,
		 one->qp_access,
		 one->foreign ? "foreign" : "own", states[one->state], one->tag,
		 one->len, one->absolute ? "address " : "", (s64)one->off);
}

/* Which part of a region is used. */
struct bounds {
	enum { FIRST, END, ZERO } from;
	s64 off;
	bool whole; /* as many bytes as the region has, and so many more */
	s64 len;
};

static const struct bounds byte_ranges[] = {
	{ FIRST, 0, false, 1 },
	{ FIRST, 0, false, MANY },
	{ END, -1, false, 1 },
	{ END, -MANY, false, MANY },
	{ FIRST, 0, true, 0 },
	{ FIRST, 1, true, -1 },
	/* a byte too many, or the first of several, or all of them */
	{ END, 0, false, 1 },
	{ END, 1 - MANY, false, MANY },
	{ FIRST, 0, true, 1 },
	{ END, 0, false, MANY },
	{ END, PAGE_SIZE, false, MANY },
	{ FIRST, -1, false, 1 },
	{ FIRST, -1, false, MANY },
	{ FIRST, -1, true, 1 },
	{ FIRST, -MANY, false, MANY },
	/* nothing, wherever */
	{ FIRST, MIDDLE, false, 0 },
	{ END, 0, false, 0 },
	{ ZERO, -1, false, 0 },
	/* where addresses end, and around */
	{ ZERO, -1, false, 1 },
	{ ZERO, -MANY / 2, false, MANY },
};

/* The last word of a region is not whole. */
static const struct bounds word_ranges[] = {
	{ FIRST, 0, false, KEYS_WORD },
	{ END, -4 - KEYS_WORD, false, KEYS_WORD },
	{ END, -4, false, KEYS_WORD },
	{ END, 4, false, KEYS_WORD },
	{ FIRST, -KEYS_WORD, false, KEYS_WORD },
	/* not aligned there; here it makes no difference */
	{ FIRST, 4, false, KEYS_WORD },
	{ END, -KEYS_WORD, false, KEYS_WORD },
	{ END, 1 - KEYS_WORD, false, KEYS_WORD },
	{ FIRST, -1, false, KEYS_WORD },
	{ ZERO, -KEYS_WORD, false, KEYS_WORD },
};

/* Of what is sent from here; so that no record of it can be sent. */
static const struct bounds huge_ranges[] = {
	{ END, 1 - MANY, false, HUGE },
	{ FIRST, -1, false, HUGE },
};

/* Of the cross: at either end, inside and outside. */
static const struct bounds cross_byte_ranges[] = {
	{ FIRST, 0, false, 1 },
	{ END, -1, false, 1 },
	{ FIRST, 0, true, 0 },
	{ END, 0, false, 1 },
	{ END, 1 - MANY, false, MANY },
	{ FIRST, -1, false, MANY },
	{ ZERO, -MANY / 2, false, MANY },
};

static const struct bounds cross_word_ranges[] = {
	{ FIRST, 0, false, KEYS_WORD },
	{ END, -4 - KEYS_WORD, false, KEYS_WORD },
	{ END, -4, false, KEYS_WORD },
	{ END, 4, false, KEYS_WORD },
	{ FIRST, -KEYS_WORD, false, KEYS_WORD },
	{ ZERO, -KEYS_WORD, false, KEYS_WORD },
};

/**
 * struct each - who is given the cases
 * @run: it
 * @ctx: its
 * @err: what it returned last
 * @every: one of so many cases is tried
 * @random: decides which
 */
struct each {
	int (*run)(void *ctx, const struct keys_case *one);
	void *ctx;
	int err;
	u32 every;
	struct rnd_state random;
};

static void try(struct each *each, const struct keys_case *one)
{
	if (each->every > 1 && prandom_u32_state(&each->random) % each->every)
		return;
	if (!each->err)
		each->err = each->run(each->ctx, one);
}

static void set_range(struct keys_case *one, const struct bounds *range)
{
	u32 length = keys_length(one->kind);

	one->absolute = range->from == ZERO;
	one->off = range->off;
	if (range->from == END)
		one->off += length;
	one->len = range->len + (range->whole ? length : 0);
}

static void each_range(struct each *each, struct keys_case one,
		       const struct bounds *ranges, size_t num)
{
	size_t i;

	for (i = 0; i < num; i++) {
		set_range(&one, &ranges[i]);
		/* The kernel may touch all of its memory: not so far. */
		if (one.absolute && one.kind == KEYS_DMA && one.len)
			continue;
		try(each, &one);
	}
}

static void each_bounds(struct each *each, const struct keys_case *base)
{
	if (keys_is_atomic(base->op)) {
		each_range(each, *base, word_ranges, ARRAY_SIZE(word_ranges));
		return;
	}
	each_range(each, *base, byte_ranges, ARRAY_SIZE(byte_ranges));
	if (base->where == KEYS_LOCAL && base->op != KEYS_READ &&
	    base->kind != KEYS_DMA)
		each_range(each, *base, huge_ranges, ARRAY_SIZE(huge_ranges));
}

/* REG_MR is tried with those that make no region, too. */
static void each_access(struct each *each, struct keys_case one)
{
	u32 access;

	for (access = 0; access <= KEYS_ALL_ACCESS; access++) {
		struct keys_case reg = {
			.op = KEYS_REG, .state = KEYS_FRESH, .access = access,
		};

		one.access = access;
		if (one.op == KEYS_REG ||
		    keys_judge(&reg).status == IB_WC_SUCCESS)
			try(each, &one);
	}
}

/* The rights of the queue pair, and with them those of the region. */
static void each_qp_access(struct each *each, struct keys_case one)
{
	static const u32 rights[] = {
		IB_ACCESS_REMOTE_WRITE, IB_ACCESS_REMOTE_READ,
		IB_ACCESS_REMOTE_ATOMIC,
	};
	u32 set, i;

	for (set = 0; set < BIT(ARRAY_SIZE(rights)); set++) {
		one.qp_access = 0;
		for (i = 0; i < ARRAY_SIZE(rights); i++)
			if (set & BIT(i))
				one.qp_access |= rights[i];
		if (one.where == KEYS_REMOTE && one.kind != KEYS_DMA)
			each_access(each, one);
		else
			try(each, &one);
	}
}

static void each_domain(struct each *each, struct keys_case one)
{
	one.foreign = true;
	try(each, &one);
	if (keys_is_use(one.op) && !keys_is_atomic(one.op)) {
		one.len = 0;
		try(each, &one);
	}
}

static bool has_state(const struct keys_case *one)
{
	switch (one->state) {
	case KEYS_VALID:
	case KEYS_INDEX:
	case KEYS_ZERO:
	case KEYS_ONES:
		return true;
	case KEYS_FRESH:
	case KEYS_INVALIDATED:
		return one->kind != KEYS_DMA;
	case KEYS_UNMAPPED:
		return one->op == KEYS_REG;
	case KEYS_RECYCLED:
		return one->op != KEYS_REG && one->kind == KEYS_SCATTERED;
	case KEYS_HEIR:
		return keys_is_use(one->op) && one->kind == KEYS_SCATTERED;
	default:
		return one->op != KEYS_REG && one->kind != KEYS_DMA;
	}
}

/* Keys that are none any more, or not yet: with all rights and none, domains and bounds. */
static void each_dead(struct each *each, struct keys_case one,
		      const struct bounds *ranges, size_t num)
{
	static const enum keys_state dead[] = { KEYS_STALE,	  KEYS_FRESH,
						KEYS_INVALIDATED, KEYS_BY_PEER,
						KEYS_DEREGISTERED,
						KEYS_RECYCLED };
	size_t i, range, which;
	bool others;

	for (i = 0; i < ARRAY_SIZE(dead); i++) {
		one.state = dead[i];
		if (!has_state(&one))
			continue;
		/* By a peer, that may; another's, that has all rights in this domain. */
		others = one.state == KEYS_BY_PEER || one.state == KEYS_RECYCLED;
		for (range = 0; range < num; range++) {
			set_range(&one, &ranges[range]);
			for (which = 0; which < 4; which++) {
				if (others && which != 2)
					continue;
				one.foreign = which & 1;
				one.access = which & 2 ? KEYS_ALL_ACCESS : 0;
				try(each, &one);
			}
		}
	}
}

/*
 * Rights of the queue pair, of the region, domain and bounds, all with all. Of the
 * queue pair: what is asked for, all else, nothing, and all.
 */
static void each_of_cross(struct each *each, struct keys_case one)
{
	u32 right = needs(&one);
	u32 sets[] = { KEYS_REMOTE_ACCESS, right, KEYS_REMOTE_ACCESS & ~right, 0 };
	bool atomic = keys_is_atomic(one.op);
	const struct bounds *ranges = atomic ? cross_word_ranges :
					       cross_byte_ranges;
	size_t num = atomic ? ARRAY_SIZE(cross_word_ranges) :
			      ARRAY_SIZE(cross_byte_ranges);
	size_t i, range, foreign;

	for (i = 0; i < (one.where == KEYS_REMOTE ? ARRAY_SIZE(sets) : 1); i++) {
		one.qp_access = sets[i];
		for (foreign = 0; foreign < 2; foreign++) {
			one.foreign = foreign;
			for (range = 0; range < num; range++) {
				set_range(&one, &ranges[range]);
				each_access(each, one);
			}
		}
	}
	one.qp_access = KEYS_REMOTE_ACCESS;
	each_dead(each, one, ranges, num);
}

static void each_state(struct each *each, struct keys_case one)
{
	static const u8 tags[] = { 0, 1, 0x80, 0xff };
	size_t i;

	for (one.state = 0; one.state < KEYS_STATES; one.state++) {
		if (!has_state(&one))
			continue;
		for (i = 0; i < ARRAY_SIZE(tags); i++) {
			one.tag = tags[i];
			/* What other tags than its own would a state have? */
			if (!i || one.state == KEYS_VALID ||
			    one.state == KEYS_FRESH)
				try(each, &one);
		}
	}
}

int keys_for_each(int (*run)(void *ctx, const struct keys_case *one), void *ctx,
		  const struct keys_sample *sample)
{
	static const struct {
		enum keys_op op;
		enum keys_where where;
	} uses[] = {
		{ KEYS_SEND, KEYS_LOCAL },	{ KEYS_SEND, KEYS_RECEIVE },
		{ KEYS_WRITE, KEYS_LOCAL },	{ KEYS_WRITE, KEYS_REMOTE },
		{ KEYS_WRITE_IMM, KEYS_LOCAL }, { KEYS_WRITE_IMM, KEYS_REMOTE },
		{ KEYS_READ, KEYS_LOCAL },	{ KEYS_READ, KEYS_REMOTE },
		{ KEYS_CAS, KEYS_LOCAL },	{ KEYS_CAS, KEYS_REMOTE },
		{ KEYS_FAA, KEYS_LOCAL },	{ KEYS_FAA, KEYS_REMOTE },
		{ KEYS_SEND_INV, KEYS_REMOTE }, { KEYS_LOCAL_INV, KEYS_LOCAL },
		{ KEYS_REG, KEYS_LOCAL },
	};
	struct each each = { .run = run, .ctx = ctx };
	struct each some = { .run = run, .ctx = ctx, .every = sample->every };
	size_t i, kind;

	prandom_seed_state(&some.random, sample->seed);
	for (i = 0; i < ARRAY_SIZE(uses); i++) {
		for (kind = 0; kind < KEYS_KINDS; kind++) {
			struct keys_case base = {
				.op = uses[i].op,
				.where = uses[i].where,
				.kind = kind,
				.access = KEYS_ALL_ACCESS,
				.qp_access = KEYS_REMOTE_ACCESS,
				.off = MIDDLE,
				.len = keys_is_atomic(uses[i].op) ? KEYS_WORD :
								    MANY,
			};

			if (kind == KEYS_DMA && base.op == KEYS_REG)
				continue;
			each_state(&each, base);
			if (base.op == KEYS_REG)
				base.state = KEYS_FRESH;
			each_domain(&each, base);
			if (kind != KEYS_DMA)
				each_access(&each, base);
			if (!keys_is_use(base.op))
				continue;
			each_qp_access(&each, base);
			each_bounds(&each, &base);
			if (kind != KEYS_DMA && !each.err)
				each_of_cross(&some, base);
			each.err = each.err ?: some.err;
		}
	}
	return each.err;
}
