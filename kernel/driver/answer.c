// SPDX-License-Identifier: GPL-2.0
/*
 * What the responder of a queue pair owes its peer: acknowledges, NAKs, the data
 * of READs and the results of atomics, in the order of the requests. Runs under
 * qp->lock, wherever the queue pair is run.
 */
#include "memory.h"
#include "odp.h"
#include "placement.h"
#include "qp.h"
#include "queues.h"
#include "ropcie.h"

/* The domain of what a READ asked for: see ropcie_remote_pd(). */
static struct ib_pd *source_pd(const struct ropcie_qp *qp,
			       const struct ropcie_hdr *hdr)
{
	const struct ropcie_srq *srq;

	if (!ropcie_is_xrc_target(qp))
		return qp->ibqp.pd;
	srq = ropcie_xrc_find(qp, hdr->srqn);
	return srq ? srq->ibsrq.pd : NULL;
}

/* An answer with what a READ asked for, if it still may be read. */
static int send_answer(struct ropcie_qp *qp, struct ropcie_hdr *hdr)
{
	struct ropcie_hold *hold = NULL;
	struct ropcie_sge source = {
		.addr = hdr->addr,
		.length = hdr->frag_len,
		.lkey = hdr->rkey,
	};
	struct ropcie_vec vec[ROPCIE_MAX_FRAG / PAGE_SIZE + 2] ROPCIE_UNINIT;
	struct ropcie_mr *mr;
	u32 nvec = 0, n;
	int ret;

	if (!hdr->frag_len)
		return ropcie_mq_send(&qp->tx, hdr, NULL, 0);
	mr = ropcie_mr_get(qp, source_pd(qp, hdr), &source,
			   ROPCIE_ACCESS_REMOTE_READ);
	if (!mr)
		return -EACCES;
	n = ropcie_mr_map(&mr->core, source.addr, source.length, vec,
			  ARRAY_SIZE(vec), &nvec);
	if (n == source.length && unlikely(qp->place))
		hold = ropcie_placement_choose_answer(qp, hdr);
	/* All that the READ asked for will be needed. */
	if (n != source.length)
		ret = ropcie_odp_missing(qp, ROPCIE_SOURCE, mr,
					 source.addr + n,
					 ropcie_rsp_read_left(&qp->rsp) - n);
	else if (IS_ERR(hold))
		ret = PTR_ERR(hold);
	else if (hold)
		ret = ropcie_placement_send(qp, hold, hdr, hdr->sink_addr, vec,
					    nvec);
	else if (ropcie_mq_wants_dma(&qp->tx, hdr->frag_len))
		ret = ropcie_lend_answer(qp, hdr, vec, nvec, &mr);
	else
		ret = ropcie_mq_send(&qp->tx, hdr, vec, nvec);
	if (mr)
		ropcie_mr_put(mr);
	return ret;
}

/* Is there something in the lane that the peer writes to its memory? */
static bool brings_data(const struct ropcie_hdr *hdr)
{
	return hdr->op == ROPCIE_OP_ATOMIC_RESP ||
	       (hdr->op == ROPCIE_OP_READ_RESP && hdr->frag_len &&
		!(hdr->flags & ROPCIE_F_PLACED));
}

/*
 * Receives that the peer may count on. There is no promise for a shared queue,
 * so the peer is told to send as if there were always some (IBTA 9.7.7.2).
 */
static bool promises_receives(const struct ropcie_qp *qp)
{
	return !qp->srq && !ropcie_is_xrc_target(qp);
}

static u32 credits(struct ropcie_qp *qp)
{
	u32 ready;

	if (!promises_receives(qp))
		return ROPCIE_NO_CREDITS;
	ready = ropcie_rq_ready(&qp->rq);
	/* One of them may be in use already. */
	return ready ? ready - ropcie_rsp_holds_receive(&qp->rsp) : 0;
}

/* A process that posts receives calls when somebody waits for them. */
static void want_receives(struct ropcie_qp *qp)
{
	ropcie_uring_want_call(&qp->rq.uring,
			       qp->rsp.starved || qp->state == IB_QPS_ERR);
}

/* A peer that was refused for want of a receive waits for one: is it there? */
static void replenish(struct ropcie_qp *qp)
{
	/* Who was refused for a shared queue tries again when it is time. */
	if (!promises_receives(qp))
		return;
	want_receives(qp);
	/*
	 * Receives posted since they were counted must not wait for the next
	 * request. Pairs with the barrier in ropcie_post_recv(), and with the
	 * process's.
	 */
	smp_mb();
	if (!credits(qp))
		return;
	ropcie_rsp_replenished(&qp->rsp);
	want_receives(qp);
}

static void count_answer(struct ropcie_qp *qp, const struct ropcie_hdr *hdr)
{
	if (hdr->op == ROPCIE_OP_ACK)
		ropcie_count(qp->counters, ROPCIE_TX_ACKS + hdr->syndrome, 1);
	else if (hdr->op == ROPCIE_OP_READ_RESP)
		ropcie_count(qp->counters, ROPCIE_RX_READ_BYTES, hdr->frag_len);
}

/* Answers until none is owed, the lane is full, or over the budget (true). */
static bool answer_loop(struct ropcie_qp *qp, u32 budget, bool *denied)
{
	struct ropcie_hdr hdr;
	u32 spent = 0;
	int ret;

	while (qp->connected && ropcie_rsp_owes(&qp->rsp)) {
		ropcie_rsp_answer(&qp->rsp, credits(qp), &hdr);
		if (spent && spent + hdr.frag_len > budget)
			return true;
		ret = send_answer(qp, &hdr);
		if (ret == -EAGAIN && ropcie_qp_block(qp))
			continue;
		if (ret == -EACCES) {
			*denied |= ropcie_rsp_fail_read(&qp->rsp,
							ROPCIE_NAK_REM_ACCESS);
			continue;
		}
		if (ret)
			return false;
		ropcie_rsp_answered(&qp->rsp, &hdr);
		count_answer(qp, &hdr);
		if (unlikely(qp->place) && brings_data(&hdr))
			ropcie_placement_laned(qp);
		spent += hdr.frag_len + ROPCIE_SLOT_SIZE;
		if (hdr.op != ROPCIE_OP_ACK)
			continue;
		if (hdr.syndrome == ROPCIE_RNR_NAK && qp->ibqp.recv_cq)
			ropcie_cq_hurry(to_rcq(qp->ibqp.recv_cq));
		if (!qp->rsp.starved) {
			want_receives(qp);
			return false;
		}
		replenish(qp);
	}
	return false;
}

bool ropcie_qp_answer(struct ropcie_qp *qp, u32 budget)
{
	bool denied = false, more;

	lockdep_assert_held(&qp->lock);
	/* A QP that has ended owes nothing but the reason. */
	if (qp->state == IB_QPS_RESET ||
	    (qp->state == IB_QPS_ERR && !qp->rsp.dead))
		return false;
	if (qp->rsp.starved)
		replenish(qp);
	more = answer_loop(qp, budget, &denied);
	if (denied) {
		ropcie_qp_event(qp, IB_EVENT_QP_ACCESS_ERR);
		ropcie_qp_to_error(qp);
	}
	return more;
}

void ropcie_qp_stop_answering(struct ropcie_qp *qp)
{
	bool denied = false;

	if (qp->connected && qp->rsp.owes &&
	    qp->rsp.fetch_next == qp->rsp.fetch_head) {
		answer_loop(qp, 0, &denied);
		ropcie_mq_flush(&qp->tx);
	}
	ropcie_rsp_stop(&qp->rsp);
}
