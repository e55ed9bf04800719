// SPDX-License-Identifier: GPL-2.0
/*
 * What keys of fast registrations protect: runs the cases of keys_rules.c on a
 * connection of two queue pairs, which is made anew after each error. After each
 * case all memory of both sides is compared, byte for byte.
 */
#include <linux/etherdevice.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "keys.h"
#include "ktest.h"

#define PATIENCE (30 * HZ) /* for what has to come */
#define SHOWN 20 /* wrong cases in the log */
#define PARTNER (PAGE_SIZE + 40) /* where the other end of a transfer is */
#define PARTNER_LEN (KEYS_AREA - PARTNER)
#define IMM 0x01020304
#define ADD 0x0101010101010101ULL
#define SWAP 0x1122334455667788ULL
#define IOVA (5ULL << 40)
#define KEY_TAG_BITS 8 /* what ib_update_fast_reg_key() changes */
#define EVENTS (BIT(IB_EVENT_QP_REQ_ERR) | BIT(IB_EVENT_QP_ACCESS_ERR) |       \
		BIT(IB_EVENT_QP_FATAL))

/**
 * struct keys_side - one end of the connection
 * @ibdev: its device
 * @address: of @qp
 * @sgid_index: its GID
 * @pd: protection domain of @qp
 * @foreign: another one
 * @cq: of the sends of @qp and @helper
 * @recv_cq: of the receives of @qp
 * @qp: queue pair
 * @helper: one of @foreign, connected with itself
 * @partner: all memory, with all rights
 * @spare: the same that is not registered
 * @index: of the region that was deregistered before that with @old_key
 * @old_key: of one that is no more
 * @heir: the region that has its index now
 * @qp_access: rights of @qp
 * @area: memory
 * @before: what it has between cases
 * @dma: address of @area in work requests
 * @events: asynchronous events of @qp
 */
struct keys_side {
	struct ib_device *ibdev;
	struct ktest_address address;
	int sgid_index;
	struct ib_pd *pd;
	struct ib_pd *foreign;
	struct ib_cq *cq;
	struct ib_cq *recv_cq;
	struct ib_qp *qp;
	struct ib_qp *helper;
	struct ib_mr *partner;
	struct ib_mr *spare;
	u32 index;
	u32 old_key;
	struct ib_mr *heir;
	u32 qp_access;
	u8 *area;
	u8 *before;
	u64 dma;
	unsigned long events;
};

/**
 * struct keys_subject - the region of a case
 * @mr: region, or NULL
 * @base: address of its first byte
 * @own: the key that it has
 * @key: the key that is used
 */
struct keys_subject {
	struct ib_mr *mr;
	u64 base;
	u32 own;
	u32 key;
};

/**
 * struct keys_test - a test
 * @requester: it
 * @responder: the other side
 * @sample: which cases
 * @stop: somebody wants it to end
 * @result: one line
 * @lives: how often it was connected
 * @cases: how many there were
 * @failed: how many of them are wrong
 * @wrong: this one is
 * @one: case
 */
struct keys_test {
	struct keys_side requester;
	struct keys_side responder;
	const struct keys_sample *sample;
	const bool *stop;
	char *result;
	u32 lives;
	u32 cases;
	u32 failed;
	bool wrong;
	const struct keys_case *one;
};

/* An answer that is wrong: the first of a case counts. */
static void wrong(struct keys_test *t, const char *what, s64 is, s64 right)
{
	char name[KEYS_NAME_LEN];

	if (t->wrong)
		return;
	t->wrong = true;
	keys_name(t->one, name);
	if (!t->failed++)
		snprintf(t->result, KTEST_RESULT_LEN,
			 "%s: %s is %lld, not %lld", name, what, is, right);
	if (t->failed <= SHOWN)
		pr_err("ropcie_ktest: %s: %s is %lld, not %lld\n", name, what,
		       is, right);
}

static void expect(struct keys_test *t, const char *what, s64 is, s64 right)
{
	if (is != right)
		wrong(t, what, is, right);
}

/* Return: true as long as there is something to wait for. */
static bool wait_on(struct keys_test *t, unsigned long end)
{
	cond_resched();
	return time_before(jiffies, end) && !READ_ONCE(*t->stop) &&
	       !fatal_signal_pending(current);
}

static bool await(struct keys_test *t, struct ib_cq *cq, struct ib_wc *wc)
{
	unsigned long end = jiffies + PATIENCE;

	do {
		if (ib_poll_cq(cq, 1, wc) == 1)
			return true;
	} while (wait_on(t, end));
	return false;
}

/* Return: how it completed; -1: not at all. */
static int post(struct keys_test *t, struct keys_side *side, struct ib_qp *qp,
		struct ib_send_wr *wr)
{
	struct ib_wc wc;

	wr->send_flags = IB_SEND_SIGNALED;
	if (ib_post_send(qp, wr, NULL))
		return -1;
	return await(t, side->cq, &wc) ? (int)wc.status : -1;
}

/* What has to be so before a case begins. */
static int post_well(struct keys_test *t, struct keys_side *side,
		     struct ib_qp *qp, struct ib_send_wr *wr)
{
	int status = post(t, side, qp, wr);

	expect(t, "what prepares the case", status, IB_WC_SUCCESS);
	return status == IB_WC_SUCCESS ? 0 : -EIO;
}

static int try_register(struct keys_test *t, struct keys_side *side,
			struct ib_qp *qp, struct ib_mr *mr, u32 key, u32 access)
{
	struct ib_reg_wr wr = {
		.wr.opcode = IB_WR_REG_MR,
		.mr = mr,
		.key = key,
		.access = access,
	};

	return post(t, side, qp, &wr.wr);
}

static int register_well(struct keys_test *t, struct keys_side *side,
			 struct ib_qp *qp, struct ib_mr *mr, u32 access)
{
	int status = try_register(t, side, qp, mr, mr->rkey, access);

	expect(t, "REG_MR before the case", status, IB_WC_SUCCESS);
	return status == IB_WC_SUCCESS ? 0 : -EIO;
}

static int invalidate(struct keys_test *t, struct keys_side *side,
		      struct ib_qp *qp, u32 key)
{
	struct ib_send_wr wr = {
		.opcode = IB_WR_LOCAL_INV,
		.ex.invalidate_rkey = key,
	};

	return post_well(t, side, qp, &wr);
}

static int post_recv(struct keys_side *side, u64 addr, u32 len, u32 lkey)
{
	struct ib_sge sge = { .addr = addr, .length = len, .lkey = lkey };
	struct ib_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(side->qp, &wr, NULL);
}

/* The place in the area of a byte of a region, or -1. */
static s64 region_byte(enum keys_kind kind, bool moved, s64 pos)
{
	/* No two that follow each other touch, and no page has a use in both. */
	static const u8 pages[2][4] = { { 2, 4, 3, 6 }, { 1, 5, 7, 0 } };

	if (kind == KEYS_DMA)
		return 2 * PAGE_SIZE + KEYS_BEGIN + pos;
	if (pos < 0 || pos >= keys_length(kind))
		return -1;
	pos += KEYS_BEGIN;
	return pages[moved][pos / PAGE_SIZE] * PAGE_SIZE + pos % PAGE_SIZE;
}

static int map(struct keys_side *side, struct ib_mr *mr, enum keys_kind kind,
	       bool moved)
{
	u32 length = keys_length(kind), pos, n = 0;
	struct scatterlist sg[4];

	sg_init_table(sg, ARRAY_SIZE(sg));
	for (pos = 0; pos < length; n++) {
		u64 at = region_byte(kind, moved, pos);

		sg_dma_address(&sg[n]) = side->dma + at;
		sg_dma_len(&sg[n]) = min_t(u32, length - pos,
					   PAGE_SIZE - at % PAGE_SIZE);
		pos += sg_dma_len(&sg[n]);
	}
	if (ib_map_mr_sg(mr, sg, n, NULL, PAGE_SIZE) != n)
		return -EINVAL;
	if (kind == KEYS_IOVA)
		mr->iova = IOVA + KEYS_BEGIN;
	else if (kind == KEYS_HIGH)
		mr->iova = KEYS_BEGIN - (u64)n * PAGE_SIZE;
	return 0;
}

/* Another region with the memory of the one that is gone. */
static int succeed(struct keys_test *t, struct keys_side *side,
		   struct ib_qp *qp, struct keys_subject *subject)
{
	const struct keys_case *one = t->one;

	subject->mr = ib_alloc_mr(one->foreign ? side->foreign : side->pd,
				  IB_MR_TYPE_MEM_REG, KEYS_PAGES);
	if (IS_ERR(subject->mr))
		return PTR_ERR(subject->mr);
	if (map(side, subject->mr, one->kind, false))
		return -EINVAL;
	subject->own = subject->mr->rkey;
	return register_well(t, side, qp, subject->mr, one->access);
}

/* From a region that is registered to one of the case's state. */
static int change(struct keys_test *t, struct keys_side *side,
		  struct keys_subject *subject)
{
	struct keys_side *peer = side == &t->requester ? &t->responder :
							 &t->requester;
	const struct keys_case *one = t->one;
	struct ib_qp *qp = one->foreign ? side->helper : side->qp;
	struct ib_send_wr inv = {
		.opcode = IB_WR_SEND_WITH_INV,
		.ex.invalidate_rkey = subject->own,
	};
	struct ib_mr *mr = subject->mr;
	struct ib_wc wc;
	u64 iova;
	int err;

	switch (one->state) {
	case KEYS_STALE:
	case KEYS_REFRESHED:
	case KEYS_MOVED:
		iova = mr->iova;
		err = invalidate(t, side, qp, subject->own);
		if (!err && one->state == KEYS_MOVED)
			err = map(side, mr, one->kind, true);
		mr->iova = iova;
		if (one->state != KEYS_MOVED)
			ib_update_fast_reg_key(mr, ib_inc_rkey(subject->own));
		if (!err)
			err = register_well(t, side, qp, mr, one->access);
		subject->own = mr->rkey;
		if (one->state == KEYS_REFRESHED)
			subject->key = mr->rkey;
		return err;
	case KEYS_NEXT:
	case KEYS_KEPT:
		ib_update_fast_reg_key(mr, ib_inc_rkey(subject->own));
		if (one->state == KEYS_NEXT)
			subject->key = mr->rkey;
		return map(side, mr, one->kind, true);
	case KEYS_INVALIDATED:
		return invalidate(t, side, qp, subject->own);
	case KEYS_BY_PEER:
		err = post_recv(side, side->dma, 0, side->pd->local_dma_lkey);
		if (!err)
			err = post_well(t, peer, peer->qp, &inv);
		if (!err && (!await(t, side->recv_cq, &wc) || wc.status ||
			     !(wc.wc_flags & IB_WC_WITH_INVALIDATE) ||
			     wc.ex.invalidate_rkey != subject->own))
			err = -EIO;
		return err;
	case KEYS_DEREGISTERED:
	case KEYS_SUCCEEDED:
		err = ib_dereg_mr(mr);
		subject->mr = NULL;
		return err || one->state == KEYS_DEREGISTERED ?
			       err : succeed(t, side, qp, subject);
	default:
		return 0;
	}
}

/* Another key, of which nothing is known, or that is another region's. */
static u32 spoiled(const struct keys_side *side, const struct keys_case *one,
		   u32 key)
{
	switch (one->state) {
	case KEYS_INDEX:
		return one->op == KEYS_REG ? side->spare->rkey : key ^ BIT(23);
	case KEYS_ZERO:
		return 0;
	case KEYS_ONES:
		return U32_MAX;
	default:
		return key ^ one->tag;
	}
}

/* Return: 0 with a region to be released. */
static int prepare(struct keys_test *t, struct keys_side *side,
		   struct keys_subject *subject)
{
	const struct keys_case *one = t->one;
	struct ib_pd *pd = one->foreign ? side->foreign : side->pd;
	struct ib_mr *mr;
	int err = 0;

	memset(subject, 0, sizeof(*subject));
	if (one->kind == KEYS_DMA) {
		subject->base = side->dma + region_byte(KEYS_DMA, false, 0);
		subject->own = pd->local_dma_lkey;
		subject->key = spoiled(side, one, subject->own);
		return 0;
	}
	if (one->state == KEYS_RECYCLED || one->state == KEYS_HEIR) {
		subject->base = side->heir->iova;
		subject->own = side->heir->rkey;
		subject->key = one->state == KEYS_HEIR ? subject->own :
							 side->old_key;
		return 0;
	}
	mr = ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, KEYS_PAGES);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	subject->mr = mr;
	subject->own = mr->rkey;
	subject->key = mr->rkey;
	if (one->state != KEYS_UNMAPPED)
		err = map(side, mr, one->kind, false);
	subject->base = mr->iova;
	if (!err && (keys_registered(one) || one->state > KEYS_UNMAPPED))
		err = register_well(t, side,
				    one->foreign ? side->helper : side->qp, mr,
				    one->op == KEYS_REG ? KEYS_ALL_ACCESS :
							  one->access);
	if (!err)
		err = change(t, side, subject);
	subject->key = spoiled(side, one, subject->key);
	return err;
}

static void release(struct keys_subject *subject)
{
	if (!IS_ERR_OR_NULL(subject->mr))
		ib_dereg_mr(subject->mr);
	subject->mr = NULL;
}

/* Where a side's part of a transfer is. */
static s64 place(const struct keys_case *one, bool requester, u32 i)
{
	bool local = one->where == KEYS_LOCAL;

	if (local != requester || !keys_is_use(one->op))
		return PARTNER + i;
	return one->absolute ? -1 :
			       region_byte(one->kind, one->state == KEYS_MOVED,
					   (s64)(one->off + i));
}

static u64 word_before(const struct keys_test *t, const struct keys_case *one)
{
	s64 at = place(one, false, 0);
	u64 word = 0;

	if (at >= 0)
		memcpy(&word, t->responder.before + at, sizeof(word));
	return word;
}

/* The byte that a case places. */
static u8 placed_byte(const struct keys_test *t, const struct keys_case *one,
		      bool requester, u32 i)
{
	const struct keys_side *from =
		requester ? &t->responder : &t->requester;
	u64 word = one->op == KEYS_CAS ? SWAP : word_before(t, one) + ADD;
	s64 at = place(one, !requester, i);

	if (!requester && keys_is_atomic(one->op))
		return ((u8 *)&word)[i];
	return at < 0 ? 0 : from->before[at];
}

static void check_memory(struct keys_test *t, const struct keys_case *one,
			 bool requester, enum keys_placed placed)
{
	struct keys_side *side = requester ? &t->requester : &t->responder;
	u32 i, len = min_t(u32, one->len, KEYS_AREA);
	bool all = placed == KEYS_EVERYTHING;

	ib_dma_sync_single_for_cpu(side->ibdev, side->dma, KEYS_AREA,
				   DMA_BIDIRECTIONAL);
	if (placed == KEYS_NOTHING &&
	    !memcmp(side->area, side->before, KEYS_AREA))
		return;
	/* What may have changed is put back, then nothing has. */
	for (i = 0; i < len && placed != KEYS_NOTHING; i++) {
		s64 at = place(one, requester, i);
		u8 new;

		if (at < 0 || at >= KEYS_AREA)
			continue;
		new = placed_byte(t, one, requester, i);
		if (side->area[at] != new &&
		    (all || side->area[at] != side->before[at]))
			wrong(t, "a byte that is placed", side->area[at], new);
		side->area[at] = side->before[at];
	}
	for (i = 0; i < KEYS_AREA; i++) {
		if (side->area[i] == side->before[i])
			continue;
		pr_err("ropcie_ktest: byte %u of the %s\n", i,
		       requester ? "requester" : "responder");
		wrong(t, "a byte that is not to be touched", side->area[i],
		      side->before[i]);
		memcpy(side->area, side->before, KEYS_AREA);
	}
	ib_dma_sync_single_for_device(side->ibdev, side->dma, KEYS_AREA,
				      DMA_BIDIRECTIONAL);
}

static int state_of(struct ib_qp *qp)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return ib_query_qp(qp, &attr, IB_QP_STATE, &init) ? -1 :
							    (int)attr.qp_state;
}

static void expect_state(struct keys_test *t, const char *what,
			 struct ib_qp *qp, int right)
{
	unsigned long end = jiffies + PATIENCE;
	int state;

	do {
		state = state_of(qp);
	} while (state != right && !t->wrong && wait_on(t, end));
	expect(t, what, state, right);
}

static void expect_event(struct keys_test *t, const struct keys_outcome *right)
{
	unsigned long want = right->event ? BIT(right->event) : 0;
	unsigned long end = jiffies + PATIENCE;

	while (READ_ONCE(t->responder.events) != want && want && !t->wrong &&
	       wait_on(t, end))
		;
	expect(t, "events at the responder", t->responder.events, want);
	expect(t, "events at the requester", t->requester.events, 0);
	t->responder.events = 0;
	t->requester.events = 0;
}

static void expect_receive(struct keys_test *t, const struct keys_case *one,
			   const struct keys_outcome *right, u32 key)
{
	bool ends = right->responder_fails || right->status == IB_WC_SUCCESS;
	struct ib_cq *cq = t->responder.recv_cq;
	struct ib_wc wc;

	if (keys_takes_receive(one->op) && ends && !t->wrong) {
		if (!await(t, cq, &wc)) {
			wrong(t, "number of receives", 0, 1);
			return;
		}
		expect(t, "status of the receive", wc.status, right->receive);
		if (!wc.status)
			expect(t, "length of the receive", wc.byte_len,
			       one->len);
		if (!wc.status && one->op == KEYS_SEND_INV)
			expect(t, "the key that the peer invalidated",
			       wc.wc_flags & IB_WC_WITH_INVALIDATE ?
				       wc.ex.invalidate_rkey : -1, key);
	}
	if (!t->wrong)
		expect(t, "more receives", ib_poll_cq(cq, 1, &wc), 0);
}

static int to_reset(struct keys_side *side)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };
	int err = ib_modify_qp(side->qp, &attr, IB_QP_STATE);
	struct ib_wc wc;

	while (ib_poll_cq(side->cq, 1, &wc) > 0)
		;
	while (ib_poll_cq(side->recv_cq, 1, &wc) > 0)
		;
	return err;
}

static int to_init(struct ib_qp *qp, u32 access)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = KTEST_PORT,
		.qp_access_flags = access,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			    IB_QP_PORT | IB_QP_ACCESS_FLAGS);
}

/* Both ends, also when they were connected. */
static int connect(struct keys_test *t)
{
	struct keys_side *a = &t->requester, *b = &t->responder;
	/* Far from what may still be under way. */
	u32 psn = (++t->lives << 16) & 0xffffff;
	int err;

	a->address.psn = psn;
	b->address.psn = psn;
	err = to_init(a->qp, a->qp_access);
	if (!err)
		err = to_init(b->qp, b->qp_access);
	if (!err)
		err = ktest_connect(b->qp, b->sgid_index, psn, &a->address, 4);
	if (!err)
		err = ktest_connect(a->qp, a->sgid_index, psn, &b->address, 4);
	return err;
}

static int reconnect(struct keys_test *t)
{
	int err = to_reset(&t->requester) ?: to_reset(&t->responder);

	return err ? err : connect(t);
}

static int set_access(struct keys_side *side, u32 access)
{
	struct ib_qp_attr attr = { .qp_access_flags = access };

	if (side->qp_access == access)
		return 0;
	side->qp_access = access;
	return ib_modify_qp(side->qp, &attr, IB_QP_ACCESS_FLAGS);
}

/* The work request of a case; returns how it completed. */
static int request(struct keys_test *t, const struct keys_case *one, u64 addr,
		   u32 key)
{
	static const enum ib_wr_opcode opcodes[] = {
		IB_WR_SEND, IB_WR_RDMA_WRITE, IB_WR_RDMA_WRITE_WITH_IMM,
		IB_WR_RDMA_READ, IB_WR_ATOMIC_CMP_AND_SWP,
		IB_WR_ATOMIC_FETCH_AND_ADD, IB_WR_SEND_WITH_INV,
	};
	struct keys_side *a = &t->requester, *b = &t->responder;
	bool local = one->where == KEYS_LOCAL;
	u64 raddr = local ? b->dma + PARTNER : addr;
	u32 rkey = local ? b->partner->rkey : key;
	struct ib_sge sge = {
		.addr = local ? addr : a->dma + PARTNER,
		.length = one->len,
		.lkey = local ? key : a->pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.opcode = opcodes[one->op],
		.sg_list = &sge,
		.num_sge = 1,
		.ex.imm_data = cpu_to_be32(IMM),
	};
	struct ib_rdma_wr rdma = { .remote_addr = raddr, .rkey = rkey };
	struct ib_atomic_wr atomic = {
		.remote_addr = raddr,
		.rkey = rkey,
		.compare_add = one->op == KEYS_FAA ? ADD : word_before(t, one),
		.swap = SWAP,
	};

	switch (one->op) {
	case KEYS_SEND_INV:
		wr.ex.invalidate_rkey = key;
		fallthrough;
	case KEYS_SEND:
		return post(t, a, a->qp, &wr);
	case KEYS_CAS:
	case KEYS_FAA:
		atomic.wr = wr;
		return post(t, a, a->qp, &atomic.wr);
	default:
		rdma.wr = wr;
		return post(t, a, a->qp, &rdma.wr);
	}
}

static int receive(struct keys_test *t, const struct keys_case *one, u64 addr,
		   u32 key)
{
	struct keys_side *side = &t->responder;

	if (one->where == KEYS_RECEIVE)
		return post_recv(side, addr, one->len, key);
	return post_recv(side, side->dma + PARTNER,
			 min_t(u32, one->len, PARTNER_LEN),
			 side->pd->local_dma_lkey);
}

static int execute(struct keys_test *t, const struct keys_case *one,
		   const struct keys_subject *subject, u32 key)
{
	const struct keys_outcome right = keys_judge(one);
	u64 addr = (one->absolute ? 0 : subject->base) + one->off;
	struct keys_side *a = &t->requester, *b = &t->responder;
	struct ib_send_wr inv = {
		.opcode = IB_WR_LOCAL_INV,
		.ex.invalidate_rkey = key,
	};
	int status, err = 0;

	switch (one->op) {
	case KEYS_LOCAL_INV:
		status = post(t, a, a->qp, &inv);
		break;
	case KEYS_REG:
		status = try_register(t, a, a->qp, subject->mr, key,
				      one->access);
		break;
	default:
		if (keys_takes_receive(one->op))
			err = receive(t, one, addr, key);
		if (err)
			return err;
		status = request(t, one, addr, key);
	}
	expect(t, "status", status, right.status);
	expect_receive(t, one, &right, key);
	expect_state(t, "state of the responder's QP", b->qp,
		     right.responder_fails ? IB_QPS_ERR : IB_QPS_RTS);
	expect_state(t, "state of the requester's QP", a->qp,
		     right.status ? IB_QPS_ERR : IB_QPS_RTS);
	expect_event(t, &right);
	/* What is still under way is not placed any more then. */
	if (status || right.status || t->wrong)
		err = reconnect(t);
	check_memory(t, one, true, right.local);
	check_memory(t, one, false, right.remote);
	return err;
}

/*
 * A region of the other domain is what it was: its first byte is written to
 * itself by the helper, who has a key to all memory.
 */
static int use_foreign(struct keys_test *t, struct keys_side *side,
		       const struct keys_subject *subject)
{
	u64 at = side->dma + region_byte(t->one->kind, false, 0);
	struct ib_sge sge = {
		.addr = subject->base,
		.length = 1,
		.lkey = subject->own,
	};
	struct ib_rdma_wr wr = {
		.wr.opcode = IB_WR_RDMA_WRITE,
		.wr.sg_list = &sge,
		.wr.num_sge = 1,
		.remote_addr = at,
		.rkey = side->foreign->unsafe_global_rkey,
	};
	int status = post(t, side, side->helper, &wr.wr);

	expect(t, "a region of the foreign domain after it", status,
	       IB_WC_SUCCESS);
	return status ? -EIO : 0;
}

/* What was to change the key has done so, or has changed nothing. */
static int probe(struct keys_test *t, const struct keys_subject *subject)
{
	const struct keys_case *one = t->one;
	bool refused = keys_judge(one).status != IB_WC_SUCCESS;
	bool valid = refused ? keys_registered(one) : one->op == KEYS_REG;
	struct keys_side *side = one->where == KEYS_LOCAL ? &t->requester :
							    &t->responder;
	struct keys_case use = *one;

	if (one->foreign)
		return valid && one->kind != KEYS_DMA ?
			       use_foreign(t, side, subject) : 0;
	use.op = KEYS_SEND;
	use.where = one->where == KEYS_LOCAL ? KEYS_LOCAL : KEYS_RECEIVE;
	use.tag = 0;
	if (one->op == KEYS_REG && refused)
		use.access = KEYS_ALL_ACCESS;
	if (!valid)
		use.state = KEYS_INVALIDATED;
	else
		use.state = one->state == KEYS_MOVED ? KEYS_MOVED : KEYS_VALID;
	return execute(t, &use, subject,
		       one->op == KEYS_REG && !refused ? subject->key :
							 subject->own);
}

static int run_case(void *ctx, const struct keys_case *one)
{
	struct keys_test *t = ctx;
	struct keys_side *side = one->where == KEYS_LOCAL ? &t->requester :
							    &t->responder;
	struct keys_subject subject;
	int err;

	/* A device's own key is good for all of its domains. */
	if (one->kind == KEYS_DMA && one->foreign &&
	    side->pd->local_dma_lkey == side->foreign->local_dma_lkey)
		return 0;
	t->one = one;
	t->wrong = false;
	t->cases++;
	err = prepare(t, side, &subject);
	if (!err)
		err = set_access(&t->responder, one->qp_access);
	if (!err)
		err = execute(t, one, &subject, subject.key);
	if (!err && !keys_is_use(one->op))
		err = probe(t, &subject);
	release(&subject);
	return READ_ONCE(*t->stop) ? -ESHUTDOWN :
	       fatal_signal_pending(current) ? -EINTR : err;
}

static void note_event(struct ib_event *event, void *ctx)
{
	struct keys_side *side = ctx;

	if (event->event < BITS_PER_LONG && BIT(event->event) & EVENTS)
		set_bit(event->event, &side->events);
}

static struct ib_qp *create_qp(struct keys_side *side, struct ib_pd *pd)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.send_cq = side->cq,
		.recv_cq = side->recv_cq,
		.event_handler = note_event,
		.qp_context = side,
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	return ib_create_qp(pd, &init);
}

static int make_area(struct keys_side *side)
{
	side->before = kmalloc(KEYS_AREA, GFP_KERNEL);
	side->area = (u8 *)__get_free_pages(GFP_KERNEL, get_order(KEYS_AREA));
	if (!side->before || !side->area)
		return -ENOMEM;
	get_random_bytes(side->before, KEYS_AREA);
	memcpy(side->area, side->before, KEYS_AREA);
	side->dma = ib_dma_map_single(side->ibdev, side->area, KEYS_AREA,
				      DMA_BIDIRECTIONAL);
	if (!ib_dma_mapping_error(side->ibdev, side->dma))
		return 0;
	side->dma = 0;
	return -EIO;
}

static int open_side(struct keys_side *side, struct ib_device *ibdev)
{
	struct ktest_address helper;
	int err;

	side->ibdev = ibdev;
	side->sgid_index = ktest_choose_gid(ibdev, &side->address);
	if (side->sgid_index < 0)
		return side->sgid_index;
	err = make_area(side);
	if (err)
		return err;
	side->pd = ib_alloc_pd(ibdev, 0);
	if (IS_ERR(side->pd))
		return PTR_ERR(side->pd);
	side->foreign = ib_alloc_pd(ibdev, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(side->foreign))
		return PTR_ERR(side->foreign);
	side->cq = ib_alloc_cq(ibdev, side, 16, 0, IB_POLL_DIRECT);
	if (IS_ERR(side->cq))
		return PTR_ERR(side->cq);
	side->recv_cq = ib_alloc_cq(ibdev, side, 16, 0, IB_POLL_DIRECT);
	if (IS_ERR(side->recv_cq))
		return PTR_ERR(side->recv_cq);
	side->qp = create_qp(side, side->pd);
	if (IS_ERR(side->qp))
		return PTR_ERR(side->qp);
	side->helper = create_qp(side, side->foreign);
	if (IS_ERR(side->helper))
		return PTR_ERR(side->helper);
	side->partner = ib_alloc_mr(side->pd, IB_MR_TYPE_MEM_REG, KEYS_PAGES);
	if (IS_ERR(side->partner))
		return PTR_ERR(side->partner);
	side->spare = ib_alloc_mr(side->pd, IB_MR_TYPE_MEM_REG, KEYS_PAGES);
	if (IS_ERR(side->spare))
		return PTR_ERR(side->spare);
	side->qp_access = KEYS_REMOTE_ACCESS;
	side->address.qpn = side->qp->qp_num;
	helper = side->address;
	helper.qpn = side->helper->qp_num;
	helper.psn = 0;
	err = to_init(side->helper, KEYS_REMOTE_ACCESS);
	return err ? err : ktest_connect(side->helper, side->sgid_index, 0,
					 &helper, 1);
}

static void close_side(struct keys_side *side)
{
	if (!IS_ERR_OR_NULL(side->qp))
		ib_destroy_qp(side->qp);
	if (!IS_ERR_OR_NULL(side->helper))
		ib_destroy_qp(side->helper);
	if (!IS_ERR_OR_NULL(side->partner))
		ib_dereg_mr(side->partner);
	if (!IS_ERR_OR_NULL(side->spare))
		ib_dereg_mr(side->spare);
	if (!IS_ERR_OR_NULL(side->heir))
		ib_dereg_mr(side->heir);
	if (!IS_ERR_OR_NULL(side->recv_cq))
		ib_free_cq(side->recv_cq);
	if (!IS_ERR_OR_NULL(side->cq))
		ib_free_cq(side->cq);
	if (!IS_ERR_OR_NULL(side->foreign))
		ib_dealloc_pd(side->foreign);
	if (!IS_ERR_OR_NULL(side->pd))
		ib_dealloc_pd(side->pd);
	if (side->dma)
		ib_dma_unmap_single(side->ibdev, side->dma, KEYS_AREA,
				    DMA_BIDIRECTIONAL);
	free_pages((unsigned long)side->area, get_order(KEYS_AREA));
	kfree(side->before);
}

/* All memory, for the other end of what is tried. */
static int map_all(struct keys_side *side, struct ib_mr *mr)
{
	struct scatterlist sg;

	sg_init_table(&sg, 1);
	sg_dma_address(&sg) = side->dma;
	sg_dma_len(&sg) = KEYS_AREA;
	return ib_map_mr_sg(mr, &sg, 1, NULL, PAGE_SIZE) == 1 ? 0 : -EINVAL;
}

/* A region that is registered, with all rights. */
static struct ib_mr *alloc_good(struct keys_test *t, struct keys_side *side)
{
	struct ib_mr *mr;
	int err;

	mr = ib_alloc_mr(side->pd, IB_MR_TYPE_MEM_REG, KEYS_PAGES);
	if (IS_ERR(mr))
		return mr;
	err = map(side, mr, KEYS_SCATTERED, false);
	if (!err)
		err = register_well(t, side, side->qp, mr, KEYS_ALL_ACCESS);
	if (!err)
		return mr;
	ib_dereg_mr(mr);
	return ERR_PTR(err);
}

/* Makes and ends regions until the first index comes back: then the second is due. */
static int wait_for_index(struct keys_test *t, struct keys_side *side)
{
	u32 max = side->ibdev->attrs.max_mr + side->ibdev->attrs.max_mw + 1, i;
	bool found = false;
	struct ib_mr *mr;

	for (i = 0; i < max && !found && !READ_ONCE(*t->stop) &&
	     !fatal_signal_pending(current); i++) {
		mr = ib_alloc_mr(side->pd, IB_MR_TYPE_MEM_REG, 1);
		if (IS_ERR(mr))
			return PTR_ERR(mr);
		found = mr->rkey >> KEY_TAG_BITS == side->index;
		ib_dereg_mr(mr);
		cond_resched();
	}
	return found ? 0 : -ENOENT;
}

/* Two indices are given up, which will be used again in the same order. */
static int give_up(struct keys_test *t, struct keys_side *side)
{
	struct ib_mr *first, *second;

	first = ib_alloc_mr(side->pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(first))
		return PTR_ERR(first);
	side->index = first->rkey >> KEY_TAG_BITS;
	second = alloc_good(t, side);
	ib_dereg_mr(first);
	if (IS_ERR(second))
		return PTR_ERR(second);
	side->old_key = second->rkey;
	return ib_dereg_mr(second);
}

/* A region gets the second of them. */
static int inherit(struct keys_test *t, struct keys_side *side)
{
	int err = wait_for_index(t, side);

	if (err)
		return err;
	side->heir = alloc_good(t, side);
	if (IS_ERR(side->heir))
		return PTR_ERR(side->heir);
	if (side->heir->rkey >> KEY_TAG_BITS == side->old_key >> KEY_TAG_BITS)
		return 0;
	pr_err("ropcie_ktest: the index of a key is not used again\n");
	return -ENOENT;
}

static int run(struct keys_test *t, struct ib_device *requester,
	       struct ib_device *responder)
{
	static const struct keys_case none;
	int err;

	t->one = &none;
	err = open_side(&t->requester, requester);
	if (!err)
		err = open_side(&t->responder, responder);
	if (!err)
		err = connect(t);
	if (!err)
		err = map_all(&t->requester, t->requester.spare);
	if (!err)
		err = map_all(&t->responder, t->responder.partner);
	if (!err)
		err = register_well(t, &t->responder, t->responder.qp,
				    t->responder.partner, KEYS_ALL_ACCESS);
	if (!err)
		err = give_up(t, &t->requester);
	if (!err)
		err = give_up(t, &t->responder);
	if (!err)
		err = inherit(t, &t->requester);
	if (!err)
		err = inherit(t, &t->responder);
	return err ? err : keys_for_each(run_case, t, t->sample);
}

int keys_run(struct ib_device *requester, struct ib_device *responder,
	     const struct keys_sample *sample, const bool *stop, char *result)
{
	struct keys_test *t = kzalloc(sizeof(*t), GFP_KERNEL);
	char *first = kzalloc(KTEST_RESULT_LEN, GFP_KERNEL);
	int err = -ENOMEM;

	if (t && first) {
		t->sample = sample;
		t->stop = stop;
		t->result = first;
		err = run(t, requester, responder);
		close_side(&t->requester);
		close_side(&t->responder);
		if (!err && !t->failed)
			snprintf(result, KTEST_RESULT_LEN,
				 "PASS %u cases, seed %u\n", t->cases,
				 sample->seed);
		else
			snprintf(result, KTEST_RESULT_LEN,
				 "FAIL %u of %u cases, seed %u (%d): %s\n",
				 t->failed, t->cases, sample->seed, err, first);
		err = err ? err : t->failed ? -EIO : 0;
	}
	kfree(first);
	kfree(t);
	return err;
}
