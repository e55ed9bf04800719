// SPDX-License-Identifier: GPL-2.0
/*
 * Work consumers: turn the work requests of queue pairs into vectored sends.
 *
 * A queue pair is run by whoever has reason to: the poster, the receiver of an
 * acknowledge, or one of a small pool of kthreads, always under qp->lock. The
 * kthreads take what may not or can not end in the other contexts: posts with
 * interrupts off, what exceeds the poster's budget, timers, full lanes.
 */
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "netdev.h"
#include "ropcie.h"

/*
 * Most runs of memory behind one record: a piece of n bytes touches at most
 * n / PAGE_SIZE + 2 pages. One more for the header of a datagram.
 */
#define GATHER_VECS (2 * ROPCIE_MAX_SGE + ROPCIE_FRAG / PAGE_SIZE + 1)
/* Bytes that a consumer sends before it lets others at the QP. */
#define WORKER_BUDGET (64 * 1024)
/* Bytes that a local operation counts for. */
#define LOCAL_COST 1024

static_assert((int)ROPCIE_WC_SUCCESS == (int)IB_WC_SUCCESS);
static_assert((int)ROPCIE_WC_LOC_LEN_ERR == (int)IB_WC_LOC_LEN_ERR);
static_assert((int)ROPCIE_WC_LOC_QP_OP_ERR == (int)IB_WC_LOC_QP_OP_ERR);
static_assert((int)ROPCIE_WC_LOC_PROT_ERR == (int)IB_WC_LOC_PROT_ERR);
static_assert((int)ROPCIE_WC_WR_FLUSH_ERR == (int)IB_WC_WR_FLUSH_ERR);
static_assert((int)ROPCIE_WC_MW_BIND_ERR == (int)IB_WC_MW_BIND_ERR);
static_assert((int)ROPCIE_WC_BAD_RESP_ERR == (int)IB_WC_BAD_RESP_ERR);
static_assert((int)ROPCIE_WC_REM_INV_REQ_ERR == (int)IB_WC_REM_INV_REQ_ERR);
static_assert((int)ROPCIE_WC_REM_ACCESS_ERR == (int)IB_WC_REM_ACCESS_ERR);
static_assert((int)ROPCIE_WC_REM_OP_ERR == (int)IB_WC_REM_OP_ERR);
static_assert((int)ROPCIE_WC_RETRY_EXC_ERR == (int)IB_WC_RETRY_EXC_ERR);
static_assert((int)ROPCIE_WC_RNR_RETRY_EXC_ERR ==
	      (int)IB_WC_RNR_RETRY_EXC_ERR);

/**
 * struct worker - one work consumer
 * @task: its thread
 * @lock: guards @ready
 * @ready: queue pairs to run
 */
struct worker {
	struct task_struct *task;
	spinlock_t lock; /* guards ready */
	struct list_head ready;
};

static struct worker *workers;
static u32 num_workers;

/* What gathering a record holds until the record is sent. */
struct gather {
	struct ropcie_vec vec[GATHER_VECS];
	struct ropcie_mr *mr[ROPCIE_MAX_SGE];
	u32 nvec;
	u32 nmr;
};

static void gather_put(struct gather *g)
{
	while (g->nmr)
		ropcie_mr_put(g->mr[--g->nmr]);
}

/*
 * Runs of memory behind @len bytes at @off of a work request's list. False
 * when a key or its bounds do not allow it.
 */
static bool gather(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe,
		   u64 off, u32 len, struct gather *g)
{
	struct ropcie_sge_cursor cur;
	struct ropcie_sge piece;

	ropcie_sge_seek(&cur, wqe->sge, wqe->num_sge, off);
	while (len && ropcie_sge_next(&cur, len, &piece)) {
		struct ropcie_mr *mr = ropcie_mr_get(qp, qp->ibqp.pd, &piece,
						      0);

		if (!mr)
			return false;
		g->mr[g->nmr++] = mr;
		if (ropcie_mr_map(&mr->core, piece.addr, piece.length, g->vec,
				  GATHER_VECS, &g->nvec) != piece.length)
			return false;
		len -= piece.length;
	}
	return !len;
}

static int send_record(struct ropcie_qp *qp, const struct ropcie_req_rec *rec)
{
	bool datagram = rec->hdr.op == ROPCIE_OP_DATAGRAM;
	u32 len = rec->hdr.frag_len;
	struct gather g;
	int ret = -EACCES;
	bool ok;

	g.nvec = 0;
	g.nmr = 0;
	if (datagram) {
		len = rec->wqe->length;
		if (!ropcie_ud_fits(qp, len))
			return 0;
		g.vec[g.nvec++] = ropcie_ud_header(qp, rec->wqe);
	}
	if (rec->wqe->flags & ROPCIE_WR_INLINE) {
		g.vec[g.nvec].base = (char *)rec->wqe->sge + rec->off;
		g.vec[g.nvec++].len = len;
		ok = true;
	} else {
		ok = gather(qp, rec->wqe, rec->off, len, &g);
	}
	if (ok)
		ret = datagram ? ropcie_ud_send(qp, rec, g.vec, g.nvec) :
				 ropcie_mq_send(&qp->tx, &rec->hdr, g.vec,
						g.nvec);
	gather_put(&g);
	return ret;
}

bool ropcie_qp_block(struct ropcie_qp *qp)
{
	struct ropcie_dev *dev = qp->dev;

	bool again;

	spin_lock_bh(&dev->blocked_lock);
	/* Datagrams may have turned to another peer since. */
	again = qp->blocked_peer != qp->tx.peer ||
		qp->blocked_lane != qp->tx.lane;
	qp->blocked_peer = qp->tx.peer;
	qp->blocked_lane = qp->tx.lane;
	if (!test_and_set_bit(ROPCIE_QP_BLOCKED, &qp->flags)) {
		refcount_inc(&qp->refs);
		list_add_tail(&qp->blocked, &dev->blocked);
		again = true;
	}
	spin_unlock_bh(&dev->blocked_lock);
	return again;
}

bool ropcie_qp_is_blocked_by(struct ropcie_qp *qp,
			     const struct ropcie_peer *peer)
{
	bool blocked;

	spin_lock_bh(&qp->dev->blocked_lock);
	blocked = !list_empty(&qp->blocked) && qp->blocked_peer == peer;
	spin_unlock_bh(&qp->dev->blocked_lock);
	return blocked;
}

void ropcie_qp_unblock(struct ropcie_qp *qp)
{
	bool was;

	spin_lock_bh(&qp->dev->blocked_lock);
	was = !list_empty(&qp->blocked);
	list_del_init(&qp->blocked);
	spin_unlock_bh(&qp->dev->blocked_lock);
	if (was) {
		clear_bit(ROPCIE_QP_BLOCKED, &qp->flags);
		ropcie_qp_put(qp);
	}
}

void ropcie_tx_space(void *ctx, struct ropcie_peer *peer, u32 lane)
{
	struct ropcie_dev *dev = ctx;
	struct ropcie_qp *qp, *next;
	LIST_HEAD(list);

	/* Who blocks again meanwhile waits for the next call. */
	spin_lock_bh(&dev->blocked_lock);
	list_for_each_entry_safe(qp, next, &dev->blocked, blocked)
		if (qp->blocked_peer == peer && qp->blocked_lane == lane)
			list_move_tail(&qp->blocked, &list);
	spin_unlock_bh(&dev->blocked_lock);
	for (;;) {
		spin_lock_bh(&dev->blocked_lock);
		qp = list_first_entry_or_null(&list, struct ropcie_qp, blocked);
		if (qp)
			list_del_init(&qp->blocked);
		spin_unlock_bh(&dev->blocked_lock);
		if (!qp)
			break;
		clear_bit(ROPCIE_QP_BLOCKED, &qp->flags);
		ropcie_qp_schedule(qp);
		ropcie_qp_put(qp);
	}
	if (dev->rdev)
		ropcie_netdev_tx_space(dev->netdev);
}

static enum ib_wc_opcode wc_opcode(u8 op)
{
	switch (op) {
	case ROPCIE_OP_WRITE:
		return IB_WC_RDMA_WRITE;
	case ROPCIE_OP_READ:
		return IB_WC_RDMA_READ;
	case ROPCIE_OP_CAS:
		return IB_WC_COMP_SWAP;
	case ROPCIE_OP_FAA:
		return IB_WC_FETCH_ADD;
	case ROPCIE_OP_ATOMIC_WRITE:
		return IB_WC_ATOMIC_WRITE;
	case ROPCIE_LOCAL_REG_MR:
		return IB_WC_REG_MR;
	case ROPCIE_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case ROPCIE_LOCAL_BIND:
		return IB_WC_BIND_MW;
	default:
		return IB_WC_SEND;
	}
}

static void count_sent(struct ropcie_qp *qp, const struct ropcie_req_comp *comp)
{
	switch (comp->op) {
	case ROPCIE_OP_SEND:
	case ROPCIE_OP_DATAGRAM:
		ropcie_count(qp->counters, ROPCIE_TX_SEND, 1);
		ropcie_count(qp->counters, ROPCIE_TX_SEND_BYTES, comp->length);
		break;
	case ROPCIE_OP_WRITE:
	case ROPCIE_OP_ATOMIC_WRITE:
		ropcie_count(qp->counters, ROPCIE_TX_WRITE, 1);
		ropcie_count(qp->counters, ROPCIE_TX_WRITE_BYTES, comp->length);
		break;
	case ROPCIE_OP_READ:
		ropcie_count(qp->counters, ROPCIE_TX_READ, 1);
		ropcie_count(qp->counters, ROPCIE_TX_READ_BYTES, comp->length);
		break;
	case ROPCIE_OP_CAS:
	case ROPCIE_OP_FAA:
		ropcie_count(qp->counters, ROPCIE_TX_ATOMIC, 1);
		break;
	}
}

static void send_complete(struct ropcie_qp *qp,
			  const struct ropcie_req_comp *comp,
			  struct ropcie_after *after)
{
	struct ib_wc wc = {
		.wr_id = comp->wr_id,
		.status = (enum ib_wc_status)comp->status,
		.opcode = wc_opcode(comp->op),
		.byte_len = comp->length,
		.qp = ropcie_wc_qp(qp),
		.src_qp = qp->attr.dest_qp_num,
		.port_num = 1,
	};

	/* Whoever polls the completion may post in its place. */
	ropcie_uring_release(&qp->sq_uring, qp->req.tail);
	if (!comp->status)
		count_sent(qp, comp);
	if (!comp->status && !(comp->flags & ROPCIE_WR_SIGNALED))
		return;
	/* An error is worth a solicited event (IBTA 11.4.2.2). */
	ropcie_cq_add(to_rcq(qp->ibqp.send_cq), &wc, comp->status, after);
}

void ropcie_qp_flush_sends(struct ropcie_qp *qp, struct ropcie_after *after)
{
	u32 left = qp->sq_max_wr;
	struct ropcie_req_comp comp;
	u32 pulled;

	/* Not for ever, when somebody posts all the while. */
	do {
		pulled = ropcie_pull_sends(qp);
		while (ropcie_req_flush(&qp->req, &comp))
			send_complete(qp, &comp, after);
		left -= min(left, pulled);
	} while (pulled && left);
}

/*
 * Return: true when there is more, because somebody posts all the while: the QP
 * is to be run again.
 */
static bool flush(struct ropcie_qp *qp, struct ropcie_after *after)
{
	u32 left = qp->rq.max_wr + 1;

	ropcie_qp_flush_sends(qp, after);
	while (left && ropcie_recv_current(qp)) {
		ropcie_recv_complete(qp, NULL, IB_WC_WR_FLUSH_ERR, after);
		left--;
	}
	return !left || ropcie_sends_left(qp);
}

/*
 * Completions that are due; an error among them ends the QP. Of an unreliable
 * one it ends the send queue only (IBTA 10.3.1.6).
 */
static void complete_sends(struct ropcie_qp *qp, struct ropcie_after *after)
{
	struct ropcie_req_comp comp;

	while (ropcie_req_complete(&qp->req, &comp))
		send_complete(qp, &comp, after);
	if (!qp->req.error || qp->state == IB_QPS_ERR)
		return;
	if (ropcie_is_reliable(qp)) {
		ropcie_qp_to_error(qp, after);
		return;
	}
	WRITE_ONCE(qp->state, IB_QPS_SQE);
	ropcie_qp_flush_sends(qp, after);
}

void ropcie_qp_to_error(struct ropcie_qp *qp, struct ropcie_after *after)
{
	lockdep_assert_held(&qp->lock);
	if (qp->state == IB_QPS_RESET)
		return;
	if (!qp->rsp.dead)
		ropcie_qp_stop_answering(qp);
	/* It takes nothing from a shared queue any more (IBTA 11.6.3.4). */
	if (qp->srq && qp->state != IB_QPS_ERR && !ropcie_is_xrc_target(qp))
		ropcie_after_event(after, IB_EVENT_QP_LAST_WQE_REACHED);
	WRITE_ONCE(qp->state, IB_QPS_ERR);
	ropcie_uring_want_call(&qp->rq.uring, true);
	/*
	 * Either the flush finds a receive, or its poster finds ERR. Pairs
	 * with the barrier in ropcie_post_recv().
	 */
	smp_mb();
	complete_sends(qp, after);
	if (flush(qp, after))
		ropcie_qp_schedule(qp);
}

enum hrtimer_restart ropcie_qp_timer(struct hrtimer *timer)
{
	struct ropcie_qp *qp = container_of(timer, struct ropcie_qp, timer);

	WRITE_ONCE(qp->timer_at, 0);
	ropcie_qp_schedule(qp);
	return HRTIMER_NORESTART;
}

/*
 * See that somebody looks at the deadline. A timer that fires too early only
 * looks and starts again, so acknowledges need not touch it.
 */
static void arm_timer(struct ropcie_qp *qp)
{
	u64 deadline = qp->req.deadline;
	u64 at = READ_ONCE(qp->timer_at);

	if (!deadline || (at && at <= deadline))
		return;
	WRITE_ONCE(qp->timer_at, deadline);
	hrtimer_start(&qp->timer, ns_to_ktime(deadline), HRTIMER_MODE_ABS);
}

static void check_deadline(struct ropcie_qp *qp)
{
	u64 now;

	if (!qp->req.deadline || !ropcie_is_reliable(qp))
		return;
	now = ktime_get_ns();
	if (now < qp->req.deadline)
		return;
	if (!qp->req.rnr_wait)
		ropcie_count(qp->counters, ROPCIE_TIMEOUTS, 1);
	ropcie_req_timeout(&qp->req, now, ropcie_mq_delivered(&qp->tx));
}

/* A record can not be sent any more; ropcie_qp_peer_down() is to come. */
static void link_lost(struct ropcie_qp *qp, struct ropcie_after *after)
{
	ropcie_req_fail(&qp->req, ROPCIE_WC_RETRY_EXC_ERR);
	ropcie_qp_to_error(qp, after);
	ropcie_after_event(after, IB_EVENT_QP_FATAL);
}

/* IBTA 10.6.4.3; what may not be is a memory management operation error. */
static void execute(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe)
{
	bool ok;

	switch (wqe->op) {
	case ROPCIE_LOCAL_REG_MR:
		ok = ropcie_mr_reg(qp, wqe->rkey, wqe->access);
		break;
	case ROPCIE_LOCAL_INV:
		ok = ropcie_mr_inv(qp, wqe->rkey, false);
		break;
	case ROPCIE_LOCAL_BIND:
		ok = ropcie_mw_bind(qp, wqe);
		break;
	default:
		ropcie_req_local_error(&qp->req, ROPCIE_WC_LOC_QP_OP_ERR);
		return;
	}
	if (ok)
		ropcie_req_executed(&qp->req);
	else
		ropcie_req_local_error(&qp->req, ROPCIE_WC_MW_BIND_ERR);
}

/* Send until idle, blocked, or over the budget (true). */
static bool send_loop(struct ropcie_qp *qp, u32 budget,
		      struct ropcie_after *after)
{
	enum ropcie_req_verdict verdict;
	struct ropcie_req_rec rec;
	u32 spent = 0;
	bool more = false;
	int ret;

	for (;;) {
		verdict = ropcie_req_next(&qp->req, &rec);
		if (verdict != ROPCIE_REQ_SEND && verdict != ROPCIE_REQ_LOCAL)
			break;
		more = spent >= budget;
		if (more)
			break;
		if (verdict == ROPCIE_REQ_LOCAL) {
			execute(qp, rec.wqe);
			spent += LOCAL_COST;
			continue;
		}
		ret = send_record(qp, &rec);
		if (ret == -EAGAIN) {
			if (ropcie_qp_block(qp))
				continue;
			break;
		}
		if (ret == -EACCES)
			ropcie_req_local_error(&qp->req,
					       ROPCIE_WC_LOC_PROT_ERR);
		else if (ret)
			link_lost(qp, after);
		else
			ropcie_req_sent(&qp->req, &rec, ktime_get_ns());
		spent += rec.hdr.frag_len + ROPCIE_SLOT_SIZE;
	}
	return more;
}

/* SQD: nothing of what was sent is under way any more (IBTA 10.3.1.5). */
static void check_drained(struct ropcie_qp *qp, struct ropcie_after *after)
{
	if (qp->state != IB_QPS_SQD || qp->sq_drained ||
	    !ropcie_req_drained(&qp->req))
		return;
	qp->sq_drained = true;
	if (qp->attr.en_sqd_async_notify)
		ropcie_after_event(after, IB_EVENT_SQ_DRAINED);
}

bool ropcie_qp_run(struct ropcie_qp *qp, u32 budget,
		   struct ropcie_after *after)
{
	bool more;

	lockdep_assert_held(&qp->lock);
	if (!qp->connected || qp->state == IB_QPS_RESET)
		return qp->state == IB_QPS_ERR && flush(qp, after);
	more = ropcie_qp_answer(qp, budget, after);
	ropcie_pull_sends(qp);
	check_deadline(qp);
	complete_sends(qp, after);
	if (ropcie_qp_requests((enum ropcie_qps)qp->state)) {
		more |= send_loop(qp, budget, after);
		complete_sends(qp, after);
	}
	if (qp->state == IB_QPS_ERR)
		more |= flush(qp, after);
	else if (qp->state == IB_QPS_SQE)
		ropcie_qp_flush_sends(qp, after);
	check_drained(qp, after);
	arm_timer(qp);
	if (qp->tx.peer)
		ropcie_mq_flush(&qp->tx);
	return ropcie_sends_left(qp) || more;
}

static void raise_cq_error(struct ropcie_cq *cq)
{
	struct ib_event event = {
		.device = cq->ibcq.device,
		.element.cq = &cq->ibcq,
		.event = IB_EVENT_CQ_ERR,
	};

	if (cq->ibcq.event_handler)
		cq->ibcq.event_handler(&event, cq->ibcq.cq_context);
}

/*
 * The consumer will never hear of a work request: its QP is of no more use
 * (IBTA 11.6.3.2).
 */
static void completion_lost(struct ropcie_qp *qp, struct ropcie_after *after)
{
	spin_lock_bh(&qp->lock);
	if (qp->state != IB_QPS_ERR && qp->state != IB_QPS_RESET) {
		ropcie_req_fail(&qp->req, ROPCIE_WC_WR_FLUSH_ERR);
		ropcie_qp_to_error(qp, after);
		ropcie_after_event(after, IB_EVENT_QP_FATAL);
	}
	spin_unlock_bh(&qp->lock);
}

static void raise_srq_limit(struct ropcie_srq *srq)
{
	struct ib_event event = {
		.device = srq->ibsrq.device,
		.element.srq = &srq->ibsrq,
		.event = IB_EVENT_SRQ_LIMIT_REACHED,
	};

	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
}

void ropcie_qp_after(struct ropcie_qp *qp, struct ropcie_after *after)
{
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
	};
	unsigned int bit;
	int i;

	if (after->lost)
		completion_lost(qp, after);
	for (i = 0; i < ARRAY_SIZE(after->overflow); i++)
		if (after->overflow[i])
			raise_cq_error(after->overflow[i]);
	if (after->srq_limit)
		raise_srq_limit(after->srq_limit);
	for (i = 0; i < ARRAY_SIZE(after->held); i++)
		if (after->held[i])
			ropcie_xrc_put(after->held[i]);
	if (!qp->ibqp.event_handler)
		return;
	for_each_set_bit(bit, &after->events, BITS_PER_LONG) {
		event.event = bit;
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
	}
}

void ropcie_qp_kick(struct ropcie_qp *qp)
{
	struct ropcie_after after = {};
	bool more;

	/*
	 * Either a consumer that is about to run the QP finds what was posted,
	 * or this finds that none is. Pairs with the barrier in worker_run().
	 */
	smp_mb();
	if (test_bit(ROPCIE_QP_QUEUED, &qp->flags))
		return;
	if (!ropcie_may_run()) {
		ropcie_qp_schedule(qp);
		return;
	}
	spin_lock_bh(&qp->lock);
	more = ropcie_qp_run(qp, ROPCIE_POST_BUDGET, &after);
	spin_unlock_bh(&qp->lock);
	if (more)
		ropcie_qp_schedule(qp);
	ropcie_qp_after(qp, &after);
}

void ropcie_qp_schedule(struct ropcie_qp *qp)
{
	struct worker *w = &workers[qp->ibqp.qp_num % num_workers];
	unsigned long flags;

	if (test_and_set_bit(ROPCIE_QP_QUEUED, &qp->flags))
		return;
	refcount_inc(&qp->refs);
	spin_lock_irqsave(&w->lock, flags);
	list_add_tail(&qp->ready, &w->ready);
	spin_unlock_irqrestore(&w->lock, flags);
	wake_up_process(w->task);
}

static struct ropcie_qp *next_ready(struct worker *w)
{
	struct ropcie_qp *qp;

	spin_lock_irq(&w->lock);
	qp = list_first_entry_or_null(&w->ready, struct ropcie_qp, ready);
	if (qp)
		list_del_init(&qp->ready);
	spin_unlock_irq(&w->lock);
	return qp;
}

static void worker_run(struct ropcie_qp *qp)
{
	struct ropcie_after after = {};
	bool more;

	clear_bit(ROPCIE_QP_QUEUED, &qp->flags);
	/* Whoever adds work from here on queues the QP again. */
	smp_mb__after_atomic();
	spin_lock_bh(&qp->lock);
	more = ropcie_qp_run(qp, WORKER_BUDGET, &after);
	spin_unlock_bh(&qp->lock);
	ropcie_qp_after(qp, &after);
	if (more)
		ropcie_qp_schedule(qp);
	ropcie_qp_put(qp);
}

static int worker_thread(void *arg)
{
	struct worker *w = arg;
	struct ropcie_qp *qp;

	for (;;) {
		set_current_state(TASK_IDLE);
		qp = next_ready(w);
		if (!qp) {
			if (kthread_should_stop())
				break;
			schedule();
			continue;
		}
		__set_current_state(TASK_RUNNING);
		worker_run(qp);
		cond_resched();
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

void ropcie_work_exit(void)
{
	u32 i;

	for (i = 0; i < num_workers; i++)
		kthread_stop(workers[i].task);
	kfree(workers);
}

int ropcie_work_init(void)
{
	u32 want = min(num_online_cpus(), 4U);

	workers = kcalloc(want, sizeof(*workers), GFP_KERNEL);
	if (!workers)
		return -ENOMEM;
	for (num_workers = 0; num_workers < want; num_workers++) {
		struct worker *w = &workers[num_workers];

		spin_lock_init(&w->lock);
		INIT_LIST_HEAD(&w->ready);
		w->task = kthread_run(worker_thread, w, "ropcie_work/%u",
				      num_workers);
		if (IS_ERR(w->task)) {
			int ret = PTR_ERR(w->task);

			ropcie_work_exit();
			return ret;
		}
	}
	return 0;
}
