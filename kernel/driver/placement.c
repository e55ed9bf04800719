// SPDX-License-Identifier: GPL-2.0
/*
 * Direct placement: grants of queue pairs, asked for, given, used, revoked and
 * returned. What has to be told to the peer is kept as state, and told by
 * ropcie_placement_flush(), which whoever runs the queue pair calls again when a lane
 * was full.
 *
 * A grant has a reference to its region. So the memory stays until the peer returns
 * the grant, and who takes memory away only has to see that it is told to; or until
 * the link is lost, as the window is closed then. A peer that is alive and does not
 * return what it was told to is given up after as long as one that is silent.
 */
#include <linux/random.h>
#include <linux/slab.h>

#include "core/mq_id.h"
#include "memory.h"
#include "odp.h"
#include "placement.h"
#include "qp.h"

static_assert(ROPCIE_GRANT_PAGE == PAGE_SIZE);

/* The answer to a READ of less goes through the lane: its peer has to be awake anyway. */
#define READ_MIN 4096
/* A WRITE of less does not wait for what is in the lane, but goes behind it. */
#define WRITE_WAIT 32768
/* The answer to a READ of less does not either. */
#define READ_WAIT 16384
/* An answer waits so long at most, and so long from one look at the lane to the next. */
#define ANSWER_PATIENCE_NS 500000
#define ANSWER_LOOK_NS 20000
/* Runs of memory that one step of the store loop fills. */
#define STORE_VECS 16

void ropcie_placement_create(struct ropcie_qp *qp,
			     const struct ropcie_peer *peer)
{
	struct ropcie_placement *p;

	if (qp->ibqp.qp_type != IB_QPT_RC || !ropcie_peer_direct(peer))
		return;
	p = kvzalloc(sizeof(*p), ROPCIE_GFP_USER);
	if (!p)
		return;
	ropcie_grants_init(&p->out, get_random_u32());
	ropcie_holds_init(&p->in, get_random_u32());
	spin_lock_bh(&qp->lock);
	qp->place = p;
	spin_unlock_bh(&qp->lock);
}

static void unreach(struct ropcie_qp *qp, struct ropcie_given *g)
{
	u32 i;

	for (i = 0; i < g->num; i++)
		ropcie_peer_unreach(qp->tx.peer,
				    le64_to_cpu(g->bus[i]) & PAGE_MASK);
	kfree(g->bus);
}

/* There is one grant less of a region, or one that came to nothing. */
static void forget_given(struct ropcie_qp *qp, struct ropcie_mr *mr)
{
	atomic_dec(&mr->grants);
	ropcie_mr_put(mr);
	wake_up_all(&qp->dev->grants_back);
}

/* A grant is over: its memory may go. */
static void release(struct ropcie_qp *qp, int at)
{
	struct ropcie_given *g = &qp->place->given[at];
	struct ropcie_mr *mr = g->mr;

	unreach(qp, g);
	memset(g, 0, sizeof(*g));
	forget_given(qp, mr);
	/* What fails may be told now. */
	if (qp->place->deadline && !qp->place->out.num) {
		qp->place->deadline = 0;
		ropcie_qp_schedule(qp);
	}
}

static void release_all(struct ropcie_qp *qp)
{
	int at;

	while ((at = ropcie_grant_take_back(&qp->place->out, 0)) >= 0)
		release(qp, at);
}

static void forget_holds(struct ropcie_placement *p)
{
	u32 i;

	p->in.closed = true;
	p->in.asked = NULL;
	p->asks = false;
	for (i = 0; i < ROPCIE_HOLDS; i++) {
		kfree(p->in.hold[i].mr.pages);
		ropcie_hold_free(&p->in.hold[i]);
	}
}

static struct ropcie_hdr header(const struct ropcie_qp *qp, u8 op,
				enum ropcie_mq_dir dir)
{
	struct ropcie_hdr hdr = {
		.op = op,
		.mq = ropcie_mq_id(qp->attr.dest_qp_num, dir),
		.src_qpn = qp->ibqp.qp_num,
	};

	return hdr;
}

/* Return: false when the lane is full: the QP is run again when it is not. */
static bool tell(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
		 const struct ropcie_vec *vec)
{
	int ret;

	do {
		ret = ropcie_mq_send(&qp->tx, hdr, vec, vec ? 1 : 0);
	} while (ret == -EAGAIN && ropcie_qp_block(qp));
	ropcie_mq_flush(&qp->tx);
	/* A link that is lost has nobody to be told. */
	return ret != -EAGAIN;
}

static bool asks_for_sink(const struct ropcie_placement *p)
{
	return p->ask.imm == ROPCIE_ASK_SINK;
}

/* May the peer write where it asks, with its WRITEs or its answers? */
static bool may_be_written(const struct ropcie_qp *qp)
{
	const struct ropcie_placement *p = qp->place;

	if (p->out.closed)
		return false;
	if (asks_for_sink(p))
		return ropcie_qp_requests((enum ropcie_qps)qp->state) &&
		       !qp->req.error && !qp->req.local_error &&
		       ropcie_req_awaits(&qp->req, p->ask.rkey, p->ask.addr);
	return ropcie_qp_responds((enum ropcie_qps)qp->state) &&
	       (qp->rsp.attr.access & ROPCIE_ACCESS_REMOTE_WRITE);
}

/*
 * The region, if it may be written there, and its pages stay where they are. It is
 * counted as granted already.
 */
static struct ropcie_mr *may_give(struct ropcie_qp *qp)
{
	const struct ropcie_placement *p = qp->place;
	struct ropcie_sge byte = {
		.addr = p->ask.addr,
		.length = 1,
		.lkey = p->ask.rkey,
	};
	struct ropcie_mr *mr;

	if (!may_be_written(qp))
		return NULL;
	mr = ropcie_mr_get(qp, qp->ibqp.pd, &byte,
			   asks_for_sink(p) ? ROPCIE_ACCESS_LOCAL_WRITE :
					      ROPCIE_ACCESS_REMOTE_WRITE);
	if (!mr)
		return NULL;
	atomic_inc(&mr->grants);
	/* Either this finds that it goes, or who takes it finds this. */
	smp_mb__after_atomic();
	if (mr->pinned && !ropcie_is_odp(mr->pinned) && !mr->core.window &&
	    !READ_ONCE(mr->withdrawn))
		return mr;
	forget_given(qp, mr);
	return NULL;
}

/* The bus addresses of a piece, from @first on. */
static int reach(struct ropcie_qp *qp, struct ropcie_mr *mr, u64 first, u32 len,
		 struct ropcie_given *g)
{
	u64 pos = first - mr->core.iova + mr->core.offset;
	u64 page = pos >> PAGE_SHIFT, bus;
	u32 num = DIV_ROUND_UP(offset_in_page(pos) + len, PAGE_SIZE);

	g->num = 0;
	g->mr = mr;
	g->bus = kmalloc_array(num, sizeof(*g->bus), GFP_ATOMIC | __GFP_NOWARN);
	if (!g->bus)
		return -ENOMEM;
	while (g->num < num) {
		if (ropcie_peer_reach(qp->tx.peer,
				      virt_to_page(mr->core.pages[page + g->num]),
				      &bus)) {
			unreach(qp, g);
			return -EIO;
		}
		if (!g->num)
			bus += offset_in_page(pos);
		g->bus[g->num++] = cpu_to_le64(bus);
	}
	return 0;
}

/* Give what the peer asks for. Return: its place, with @hdr filled in, or -1. */
static int give(struct ropcie_qp *qp, struct ropcie_hdr *hdr)
{
	struct ropcie_placement *p = qp->place;
	struct ropcie_mr *mr = may_give(qp);
	struct ropcie_given g;
	u64 first;
	u32 len;
	int at;

	if (!mr)
		return -1;
	len = ropcie_grant_piece(&mr->core, p->ask.addr, &first);
	if (reach(qp, mr, first, len, &g))
		goto err_forget;
	at = ropcie_grant_give(&p->out, p->ask.rkey, asks_for_sink(p), first,
			       len);
	if (at < 0)
		goto err_unreach;
	p->given[at] = g;
	hdr->imm = p->out.grant[at].id;
	hdr->addr = first;
	hdr->msg_len = len;
	hdr->frag_len = g.num * sizeof(*g.bus);
	return at;

err_unreach:
	unreach(qp, &g);
err_forget:
	forget_given(qp, mr);
	return -1;
}

/* Return: false when the lane is full. */
static bool answer(struct ropcie_qp *qp)
{
	struct ropcie_placement *p = qp->place;
	struct ropcie_hdr hdr = header(qp, ROPCIE_OP_GRANT, ROPCIE_MQ_RESPONSE);
	struct ropcie_vec vec = {};
	int at;

	hdr.psn = p->ask.psn;
	hdr.rkey = p->ask.rkey;
	at = give(qp, &hdr);
	if (at >= 0) {
		vec.base = p->given[at].bus;
		vec.len = hdr.frag_len;
	}
	if (!tell(qp, &hdr, at >= 0 ? &vec : NULL)) {
		/* Who knows what may be given when there is space again. */
		if (at >= 0) {
			ropcie_grant_take_back(&p->out, hdr.imm);
			release(qp, at);
		}
		return false;
	}
	p->asked = false;
	return true;
}

static bool flush_returns(struct ropcie_qp *qp)
{
	struct ropcie_hdr hdr = header(qp, ROPCIE_OP_RETURN, ROPCIE_MQ_REQUEST);
	struct ropcie_placement *p = qp->place;
	struct ropcie_hold *hold;

	if (p->bye) {
		if (!tell(qp, &hdr, NULL))
			return false;
		p->bye = false;
		wake_up_all(&qp->dev->grants_back);
	}
	while ((hold = ropcie_hold_to_return(&p->in))) {
		hdr.imm = hold->id;
		if (!tell(qp, &hdr, NULL))
			return false;
		kfree(hold->mr.pages);
		ropcie_hold_free(hold);
	}
	return true;
}

static bool flush_revokes(struct ropcie_qp *qp)
{
	struct ropcie_hdr hdr = header(qp, ROPCIE_OP_REVOKE, ROPCIE_MQ_RESPONSE);
	struct ropcie_grant *grant;

	while ((grant = ropcie_grant_to_revoke(&qp->place->out))) {
		hdr.imm = grant->id;
		if (!tell(qp, &hdr, NULL))
			return false;
		grant->tell = false;
	}
	return true;
}

static u64 patience_ns(void)
{
	return (u64)ropcie_peer_patience_ms() * NSEC_PER_MSEC;
}

/* A queue pair that fails waits for it: has the peer had its time to return all? */
static void watch_failing(struct ropcie_qp *qp)
{
	struct ropcie_placement *p = qp->place;
	u64 now;

	if (!p->out.num || qp->state == IB_QPS_RESET)
		return;
	now = ktime_get_ns();
	if (p->deadline && now >= p->deadline)
		ropcie_peer_give_up(qp->tx.peer);
	if (now >= p->deadline)
		p->deadline = now + patience_ns();
	ropcie_qp_run_at(qp, p->deadline);
}

/* In this order: who makes room for a grant returns one first. */
void ropcie_placement_flush(struct ropcie_qp *qp)
{
	struct ropcie_placement *p = qp->place;

	lockdep_assert_held(&qp->lock);
	if (p->lost || !qp->connected)
		return;
	if (p->deadline)
		watch_failing(qp);
	if (!flush_returns(qp) || !flush_revokes(qp))
		return;
	if (p->asks) {
		if (!tell(qp, &p->question, NULL))
			return;
		p->asks = false;
	}
	if (p->asked)
		answer(qp);
}

/* Where each page of a grant is reached, in the place of its bus addresses. */
static bool map_pages(struct ropcie_qp *qp, void **pages, u32 num)
{
	__le64 *bus = (__le64 *)pages;
	u32 i;

	for (i = 0; i < num; i++) {
		pages[i] = ropcie_peer_map(qp->tx.peer,
					   le64_to_cpu(bus[i]) & PAGE_MASK,
					   PAGE_SIZE);
		if (!pages[i])
			return false;
	}
	return true;
}

static void hear_grant(struct ropcie_qp *qp, const struct ropcie_rec *rec)
{
	struct ropcie_holds *in = &qp->place->in;
	struct ropcie_vec vec = { .len = rec->hdr.frag_len };
	u32 offset = 0;
	int ret;

	static_assert(sizeof(void *) == sizeof(__le64));
	if (vec.len)
		vec.base = kmalloc(vec.len, GFP_ATOMIC | __GFP_NOWARN);
	/* Copied once: the peer may go on writing. */
	if (vec.base)
		ropcie_rec_scatter(rec, 0, &vec, 1);
	ret = ropcie_hold_expects(in, &rec->hdr, vec.base);
	if (!ret)
		goto out;
	if (ret > 0) {
		offset = offset_in_page(le64_to_cpu(*(__le64 *)vec.base));
		if (map_pages(qp, vec.base, vec.len / sizeof(void *))) {
			ropcie_hold_fill(in, &rec->hdr, vec.base, offset);
			return;
		}
	}
	ropcie_hold_fill(in, &rec->hdr, NULL, 0);
out:
	kfree(vec.base);
}

static void hear_return(struct ropcie_qp *qp, u32 id)
{
	int at;

	if (!id) {
		/* Nobody would return what a question before it is answered with. */
		qp->place->asked = false;
		release_all(qp);
		return;
	}
	at = ropcie_grant_take_back(&qp->place->out, id);
	if (at >= 0)
		release(qp, at);
}

void ropcie_placement_hear(struct ropcie_qp *qp, const struct ropcie_rec *rec)
{
	struct ropcie_placement *p = qp->place;

	lockdep_assert_held(&qp->lock);
	if (!p || p->lost || rec->hdr.src_qpn != qp->attr.dest_qp_num)
		return;
	/* It has ended: what is still given goes back with the RETURN of 0. */
	if (p->in.closed && rec->hdr.op != ROPCIE_OP_RETURN)
		return;
	switch (rec->hdr.op) {
	case ROPCIE_OP_ASK:
		p->ask = rec->hdr;
		p->asked = true;
		break;
	case ROPCIE_OP_GRANT:
		hear_grant(qp, rec);
		break;
	case ROPCIE_OP_REVOKE:
		ropcie_hold_drop(&p->in, rec->hdr.imm);
		break;
	case ROPCIE_OP_RETURN:
		hear_return(qp, rec->hdr.imm);
		break;
	}
	ropcie_placement_flush(qp);
}

static void ask(struct ropcie_qp *qp, u32 key, bool sink, u64 addr, u32 len)
{
	struct ropcie_placement *p = qp->place;

	/* What makes room may have to be returned first. */
	if (!ropcie_hold_wants(&p->in, len) || !flush_returns(qp))
		return;
	p->question = header(qp, ROPCIE_OP_ASK, ROPCIE_MQ_REQUEST);
	p->question.psn = ropcie_hold_ask(&p->in, key, sink, addr);
	p->question.imm = sink ? ROPCIE_ASK_SINK : ROPCIE_ASK_TARGET;
	p->question.rkey = key;
	p->question.addr = addr;
	p->asks = true;
	ropcie_placement_flush(qp);
}

/* The grant by which a payload may be placed, or NULL: then it is asked for. */
static struct ropcie_hold *find(struct ropcie_qp *qp, u32 key, bool sink,
				u64 addr, u32 len)
{
	struct ropcie_hold *hold =
		ropcie_hold_find(&qp->place->in, key, sink, addr, len);

	if (!hold)
		ask(qp, key, sink, addr, len);
	return hold;
}

struct ropcie_hold *ropcie_placement_choose(struct ropcie_qp *qp,
					    struct ropcie_req_rec *rec)
{
	bool clear = ropcie_req_clear(&qp->req);
	struct ropcie_hold *hold;

	lockdep_assert_held(&qp->lock);
	if (!ropcie_req_may_place(&qp->req, rec))
		return NULL;
	if (rec->hdr.op == ROPCIE_OP_READ) {
		if (rec->wqe->num_sge == 1 && rec->wqe->length >= READ_MIN)
			ropcie_req_name_sink(rec);
		return NULL;
	}
	if (!clear && rec->wqe->length < WRITE_WAIT)
		return NULL;
	hold = find(qp, rec->wqe->rkey, false, rec->wqe->raddr + rec->off,
		    rec->hdr.frag_len);
	if (!hold || clear)
		return hold;
	/*
	 * Of one that began in the lane, the end is acknowledged with its beginning;
	 * what it has asked for on its way is for the next one.
	 */
	return rec->off ? NULL : ERR_PTR(-EBUSY);
}

struct ropcie_hold *
ropcie_placement_choose_answer(struct ropcie_qp *qp,
			       const struct ropcie_hdr *hdr)
{
	struct ropcie_placement *p = qp->place;
	struct ropcie_hold *hold;
	u64 now;

	lockdep_assert_held(&qp->lock);
	if (!hdr->sink_key)
		return NULL;
	hold = find(qp, hdr->sink_key, true, hdr->sink_addr, hdr->frag_len);
	if (!hold)
		return NULL;
	/* Answers are written in the order of their requests (IBTA 9.5). */
	if (ropcie_mq_passed(&qp->tx, p->laned)) {
		p->patience = 0;
		return hold;
	}
	if (hdr->msg_len < READ_WAIT)
		return NULL;
	now = ktime_get_ns();
	if (!p->patience)
		p->patience = now + ANSWER_PATIENCE_NS;
	if (now >= p->patience)
		return NULL;
	ropcie_qp_run_at(qp, now + ANSWER_LOOK_NS);
	return ERR_PTR(-EBUSY);
}

void ropcie_placement_laned(struct ropcie_qp *qp)
{
	qp->place->laned = ropcie_mq_position(&qp->tx);
}

static void store(const struct ropcie_mr_core *to, u64 addr, u32 len,
		  const struct ropcie_rec *from)
{
	struct ropcie_vec vec[STORE_VECS] ROPCIE_UNINIT;
	u32 done = 0;

	while (done < len) {
		u32 nvec = 0;
		u32 n = ropcie_mr_map(to, addr + done, len - done, vec,
				      STORE_VECS, &nvec);

		ropcie_rec_scatter(from, done, vec, nvec);
		done += n;
	}
}

/* A payload on its way to its target. */
struct placing {
	struct ropcie_mq_placing mq;
	const struct ropcie_mr_core *to;
	u64 addr;
	u32 len;
	bool last;
	struct ropcie_rec from;
};

static void place(struct ropcie_mq_placing *mq)
{
	struct placing *p = container_of(mq, struct placing, mq);
	u32 tail = 0;

	/* Programs poll the end of a message: its last word lands last. */
	if (p->last)
		tail = ropcie_tail_length(p->to, p->addr, p->len);
	store(p->to, p->addr, p->len - tail, &p->from);
	if (tail) {
		wmb(); /* the rest has left the write-combining buffers */
		ropcie_put_tail(p->to, p->addr + p->len - tail, tail, &p->from,
				p->len - tail);
	}
	wmb(); /* and so has this, before the record or the grant's return */
}

int ropcie_placement_send(struct ropcie_qp *qp, const struct ropcie_hold *hold,
			  struct ropcie_hdr *hdr, u64 addr,
			  const struct ropcie_vec *vec, u32 nvec)
{
	struct placing p ROPCIE_UNINIT;
	int ret;

	p.mq.place = place;
	p.to = &hold->mr;
	p.addr = addr;
	p.len = hdr->frag_len;
	p.last = hdr->flags & ROPCIE_F_LAST;
	p.from.span = vec;
	p.from.nspan = nvec;
	hdr->flags |= ROPCIE_F_PLACED;
	hdr->grant = hold->id;
	ret = ropcie_mq_send_placed(&qp->tx, hdr, &p.mq);
	if (ret)
		return ret;
	ropcie_hold_used(&qp->place->in, hdr->frag_len);
	ropcie_count(qp->counters, ROPCIE_TX_DIRECT_BYTES, hdr->frag_len);
	return 0;
}

bool ropcie_placement_covers(const struct ropcie_qp *qp,
			     const struct ropcie_hdr *hdr,
			     const struct ropcie_rsp_place *where)
{
	return qp->place &&
	       ropcie_grant_covers(&qp->place->out, hdr->grant, where->rkey,
				   false, where->addr, hdr->frag_len);
}

bool ropcie_placement_covers_answer(const struct ropcie_qp *qp,
				    const struct ropcie_hdr *hdr,
				    const struct ropcie_req_place *at)
{
	const struct ropcie_sge *sge = at->wqe->sge;

	return qp->place && at->wqe->num_sge == 1 &&
	       ropcie_grant_covers(&qp->place->out, hdr->grant, sge->lkey, true,
				   sge->addr + at->off, hdr->frag_len);
}

void ropcie_placement_fail(struct ropcie_qp *qp)
{
	struct ropcie_placement *p = qp->place;

	p->out.closed = true;
	ropcie_grant_revoke(&p->out, 0);
	watch_failing(qp);
	ropcie_placement_flush(qp);
}

bool ropcie_placement_fails_late(struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	if (!qp->place->out.num)
		return false;
	ropcie_placement_fail(qp);
	return true;
}

void ropcie_placement_lost(struct ropcie_qp *qp)
{
	struct ropcie_placement *p = qp->place;

	lockdep_assert_held(&qp->lock);
	p->lost = true;
	p->bye = false;
	p->asked = false;
	p->out.closed = true;
	forget_holds(p);
	release_all(qp);
	wake_up_all(&qp->dev->grants_back);
}

static unsigned long patience(void)
{
	return nsecs_to_jiffies(patience_ns());
}

/* Under the lock. */
static bool all_is_back(const struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	return !qp->place->out.num && !qp->place->bye;
}

static bool is_over(struct ropcie_qp *qp)
{
	bool over;

	spin_lock_bh(&qp->lock);
	over = all_is_back(qp);
	spin_unlock_bh(&qp->lock);
	return over;
}

/* The peer has returned all, or is gone. Under qp->mutex. */
static void await(struct ropcie_qp *qp)
{
	while (!wait_event_timeout(qp->dev->grants_back, is_over(qp),
				   patience())) {
		/* Not the link that comes after the one whose end returned all. */
		spin_lock_bh(&qp->lock);
		if (!all_is_back(qp))
			ropcie_peer_give_up(qp->tx.peer);
		spin_unlock_bh(&qp->lock);
	}
}

void ropcie_placement_close(struct ropcie_qp *qp)
{
	if (!qp->place)
		return;
	spin_lock_bh(&qp->lock);
	ropcie_placement_fail(qp);
	spin_unlock_bh(&qp->lock);
	await(qp);
}

void ropcie_placement_end(struct ropcie_qp *qp)
{
	if (!qp->place)
		return;
	spin_lock_bh(&qp->lock);
	/* What was asked for and is under way is returned with the rest. */
	qp->place->bye = qp->place->in.ever && !qp->place->lost;
	forget_holds(qp->place);
	ropcie_placement_fail(qp);
	spin_unlock_bh(&qp->lock);
	await(qp);
}

void ropcie_placement_free(struct ropcie_qp *qp)
{
	struct ropcie_placement *p;

	spin_lock_bh(&qp->lock);
	p = qp->place;
	qp->place = NULL;
	spin_unlock_bh(&qp->lock);
	if (p)
		forget_holds(p);
	kvfree(p);
}

/* Has the peer a grant of this region? qp->lock is held. */
static bool gives(const struct ropcie_qp *qp, const struct ropcie_mr *mr)
{
	u32 i;

	for (i = 0; qp->place && i < ROPCIE_GRANTS; i++)
		if (qp->place->given[i].mr == mr)
			return true;
	return false;
}

/* For each queue pair whose peer has one: tell the peer, or be done with it. */
static void call_in(struct ropcie_dev *dev, struct ropcie_mr *mr, bool overdue)
{
	struct ropcie_qp *qp;
	unsigned long qpn;

	mutex_lock(&dev->qp_mutex);
	xa_for_each(&dev->qps, qpn, qp) {
		spin_lock_bh(&qp->lock);
		if (gives(qp, mr)) {
			ropcie_grant_revoke(&qp->place->out, mr->core.key);
			ropcie_placement_flush(qp);
			if (overdue)
				ropcie_peer_give_up(qp->tx.peer);
		}
		spin_unlock_bh(&qp->lock);
		cond_resched();
	}
	mutex_unlock(&dev->qp_mutex);
}

void ropcie_placement_withdraw(struct ropcie_dev *dev, struct ropcie_mr *mr)
{
	bool overdue = false;

	WRITE_ONCE(mr->withdrawn, true);
	/* Pairs with the barrier in may_give(). */
	smp_mb();
	while (atomic_read(&mr->grants)) {
		call_in(dev, mr, overdue);
		overdue = true;
		wait_event_timeout(dev->grants_back, !atomic_read(&mr->grants),
				   patience());
	}
}
