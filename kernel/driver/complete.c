// SPDX-License-Identifier: GPL-2.0
/*
 * The end of work requests: completions of sends, flushes, the way of a queue pair
 * to ERR, and its events.
 */
#include "placement.h"
#include "qp.h"
#include "queues.h"
#include "ropcie.h"

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
			  const struct ropcie_req_comp *comp)
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
	if (!ropcie_cq_add(to_rcq(qp->ibqp.send_cq), &wc, comp->status))
		qp->lost = true;
}

bool ropcie_qp_flush_sends(struct ropcie_qp *qp)
{
	u32 left = ROPCIE_FLUSH_BUDGET;
	struct ropcie_req_comp comp;
	u32 pulled;

	do {
		pulled = ropcie_pull_sends(qp);
		while (left && ropcie_req_flush(&qp->req, &comp)) {
			send_complete(qp, &comp);
			left--;
		}
	} while (pulled && left);
	return !left;
}

bool ropcie_qp_flush(struct ropcie_qp *qp)
{
	u32 left = ROPCIE_FLUSH_BUDGET;
	bool more;

	/* The end of the last loan runs the queue pair, and that of the last grant. */
	if (ropcie_qp_lends(qp) ||
	    (unlikely(qp->place) && ropcie_placement_fails_late(qp)))
		return false;
	/* First what it had of a shared queue: who drains waits for sends only. */
	while (left && ropcie_recv_current(qp)) {
		ropcie_recv_complete(qp, NULL, IB_WC_WR_FLUSH_ERR);
		left--;
	}
	more = ropcie_qp_flush_sends(qp);
	/* What it had of the shared queue has its completion (IBTA 11.6.3.4). */
	if (left && qp->last_wqe_due) {
		qp->last_wqe_due = false;
		ropcie_qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
	}
	return more || !left || ropcie_sends_left(qp);
}

void ropcie_qp_complete_sends(struct ropcie_qp *qp)
{
	struct ropcie_req_comp comp;

	if (ropcie_qp_fails_late(qp))
		return;
	if (unlikely(qp->place) && (qp->req.error || qp->req.local_error) &&
	    ropcie_placement_fails_late(qp))
		return;
	while (ropcie_req_complete(&qp->req, &comp))
		send_complete(qp, &comp);
	if (!qp->req.error || qp->state == IB_QPS_ERR)
		return;
	if (ropcie_is_reliable(qp)) {
		ropcie_qp_to_error(qp);
		return;
	}
	WRITE_ONCE(qp->state, IB_QPS_SQE);
	ropcie_qp_flush_sends(qp);
}

void ropcie_qp_to_error(struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	if (qp->state == IB_QPS_RESET)
		return;
	if (!qp->rsp.dead)
		ropcie_qp_stop_answering(qp);
	/* It takes nothing from a shared queue any more; ropcie_qp_flush() tells of it. */
	if (qp->srq && qp->state != IB_QPS_ERR && !ropcie_is_xrc_target(qp))
		qp->last_wqe_due = true;
	WRITE_ONCE(qp->state, IB_QPS_ERR);
	if (qp->place)
		ropcie_placement_fail(qp);
	ropcie_uring_want_call(&qp->rq.uring, true);
	/*
	 * Either the flush finds a receive, or its poster finds ERR. Pairs
	 * with the barrier in ropcie_post_recv().
	 */
	smp_mb();
	ropcie_qp_complete_sends(qp);
	if (ropcie_qp_flush(qp))
		ropcie_qp_schedule(qp);
}

void ropcie_qp_link_lost(struct ropcie_qp *qp)
{
	ropcie_req_fail(&qp->req, ROPCIE_WC_RETRY_EXC_ERR);
	ropcie_qp_to_error(qp);
	ropcie_qp_event(qp, IB_EVENT_QP_FATAL);
}

void ropcie_qp_end_lost(struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	if (qp->state != IB_QPS_ERR && qp->state != IB_QPS_RESET) {
		ropcie_req_fail(&qp->req, ROPCIE_WC_WR_FLUSH_ERR);
		ropcie_qp_to_error(qp);
		ropcie_qp_event(qp, IB_EVENT_QP_FATAL);
	}
	qp->lost = false;
}

void ropcie_qp_raise(struct tasklet_struct *t)
{
	struct ropcie_qp *qp = from_tasklet(qp, t, raise);
	unsigned long events = xchg(&qp->events, 0);
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
	};
	unsigned int bit;

	if (!qp->ibqp.event_handler)
		return;
	for_each_set_bit(bit, &events, BITS_PER_LONG) {
		event.event = bit;
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
	}
}
