/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What keys of fast registrations protect: one operation on one region, its key,
 * and what must come of it.
 */
#ifndef ROPCIE_KTEST_KEYS_H
#define ROPCIE_KTEST_KEYS_H

#include <rdma/ib_verbs.h>

#define KEYS_REMOTE_ACCESS                                                     \
	(IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |                      \
	 IB_ACCESS_REMOTE_ATOMIC)
#define KEYS_ALL_ACCESS (IB_ACCESS_LOCAL_WRITE | KEYS_REMOTE_ACCESS)

/*
 * A side's memory; each byte outside of the region is a guard. Regions begin
 * within a page and end within a word.
 */
#define KEYS_PAGES 8
#define KEYS_AREA (KEYS_PAGES * PAGE_SIZE)
#define KEYS_BEGIN 264
#define KEYS_LONG (3 * PAGE_SIZE + 1116)
#define KEYS_SHORT 1004
#define KEYS_WORD 8
/* Up to this length nothing is placed of a transfer, or all of it. */
#define KEYS_RECORD 1024

enum keys_op {
	KEYS_SEND,
	KEYS_WRITE,
	KEYS_WRITE_IMM,
	KEYS_READ,
	KEYS_CAS,
	KEYS_FAA,
	KEYS_SEND_INV, /* from here on the key is changed, not used */
	KEYS_LOCAL_INV,
	KEYS_REG,
};

/* Whose key it is. */
enum keys_where { KEYS_LOCAL, KEYS_REMOTE, KEYS_RECEIVE };

enum keys_kind {
	KEYS_SCATTERED, /* pages in any order */
	KEYS_SINGLE, /* a part of one page */
	KEYS_IOVA, /* its address is the consumer's choice */
	KEYS_HIGH, /* it ends where addresses end, nearly */
	KEYS_DMA, /* pd->local_dma_lkey */
	KEYS_KINDS,
};

enum keys_state {
	KEYS_VALID,
	KEYS_INDEX, /* another index */
	KEYS_ZERO, /* the key 0 */
	KEYS_ONES, /* the key of all ones */
	KEYS_STALE, /* registered again with another tag: the key of before */
	KEYS_REFRESHED, /* the key of now */
	KEYS_NEXT, /* ib_update_fast_reg_key(), and no REG_MR yet: the next key */
	KEYS_KEPT, /* the same: the key of before */
	KEYS_MOVED, /* registered again elsewhere at the same address */
	KEYS_SUCCEEDED, /* deregistered, and another has the memory now */
	KEYS_RECYCLED, /* deregistered, and another has the index now */
	KEYS_HEIR, /* the key of that other one */
	KEYS_FRESH, /* not registered, from here on: never was */
	KEYS_UNMAPPED, /* nor was memory mapped to it */
	KEYS_INVALIDATED, /* by LOCAL_INV */
	KEYS_BY_PEER, /* by SEND with invalidate */
	KEYS_DEREGISTERED,
	KEYS_STATES,
};

struct keys_case {
	enum keys_op op;
	enum keys_where where;
	enum keys_kind kind;
	u32 access;
	u32 qp_access; /* of the responder's queue pair */
	bool foreign; /* protection domain */
	enum keys_state state;
	u8 tag; /* what the key's tag differs by */
	u64 off; /* from the region's first byte on; if absolute: from 0 on */
	bool absolute;
	u32 len;
};

enum keys_placed {
	KEYS_NOTHING,
	KEYS_EVERYTHING,
	KEYS_PERHAPS, /* each byte is the old or the new one */
};

struct keys_outcome {
	enum ib_wc_status status;
	enum ib_wc_status receive; /* if one is posted and completes */
	bool responder_fails;
	u32 event; /* at the responder, or 0 */
	enum keys_placed local; /* at the requester */
	enum keys_placed remote;
};

/* keys_rules.c */
#define KEYS_NAME_LEN 176

u32 keys_length(enum keys_kind kind);
bool keys_is_atomic(enum keys_op op);
bool keys_is_fetch(enum keys_op op);
bool keys_takes_receive(enum keys_op op);
/* Does an operation use the key? The others change it. */
bool keys_is_use(enum keys_op op);
/* Is the region registered when the case begins? */
bool keys_registered(const struct keys_case *one);
struct keys_outcome keys_judge(const struct keys_case *one);
void keys_name(const struct keys_case *one, char *name);

/**
 * struct keys_sample - which cases of the cross
 * @every: one of so many
 * @seed: which of them
 */
struct keys_sample {
	u32 every;
	u32 seed;
};

/* Calls @run for each case until it fails. Return: what it returned. */
int keys_for_each(int (*run)(void *ctx, const struct keys_case *one), void *ctx,
		  const struct keys_sample *sample);

/**
 * keys_run() - all cases, one end of the connection at each device
 * @requester: it requests
 * @responder: it responds; may be the same
 * @sample: of the cross
 * @stop: somebody sets it to end the test soon
 * @result: one line, of KTEST_RESULT_LEN
 *
 * Return: 0, or -EIO or another error; @result says what was done or is wrong.
 */
int keys_run(struct ib_device *requester, struct ib_device *responder,
	     const struct keys_sample *sample, const bool *stop, char *result);

#endif /* ROPCIE_KTEST_KEYS_H */
