// SPDX-License-Identifier: GPL-2.0
/*
 * Records that arrive: requests to the responder, acknowledges to the
 * requester, payload to the receive buffers. Runs where ntb_if drains a lane:
 * bottom halves off, the lane's receive lock held.
 */
#include "ropcie.h"

/* Runs of memory that one step of the scatter loop fills. */
#define SCATTER_VECS 16

static bool scatter_piece(struct ropcie_mr *mr, const struct ropcie_sge *piece,
			  const struct ropcie_rec *rec, u32 from)
{
	struct ropcie_vec vec[SCATTER_VECS];
	u32 done = 0;

	while (done < piece->length) {
		u32 nvec = 0;
		u32 n = ropcie_mr_map(&mr->core, piece->addr + done,
				      piece->length - done, vec, SCATTER_VECS,
				      &nvec);

		if (WARN_ON_ONCE(!n))
			return false;
		ropcie_rec_scatter(rec, from + done, vec, nvec);
		done += n;
	}
	return true;
}

/* Copy a record's payload to byte @off of a receive. */
static bool place(struct ropcie_qp *qp, const struct ropcie_recv_wqe *wqe,
		  u64 off, const struct ropcie_rec *rec)
{
	u32 len = rec->hdr.frag_len;
	struct ropcie_sge_cursor cur;
	struct ropcie_sge piece;
	u32 done = 0;
	bool ok;

	ropcie_sge_seek(&cur, wqe->sge, wqe->num_sge, off);
	while (done < len) {
		struct ropcie_mr *mr;

		if (!ropcie_sge_next(&cur, len - done, &piece))
			return false;
		mr = ropcie_mr_get(qp, &piece, ROPCIE_ACCESS_LOCAL_WRITE);
		if (!mr)
			return false;
		ok = scatter_piece(mr, &piece, rec, done);
		ropcie_mr_put(mr);
		if (!ok)
			return false;
		done += piece.length;
	}
	return true;
}

void ropcie_recv_complete(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
			  enum ib_wc_status status, struct ropcie_after *after)
{
	const struct ropcie_recv_wqe *wqe = ropcie_rq_at(&qp->rq, qp->rq.tail);
	struct ib_wc wc = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = IB_WC_RECV,
		.qp = &qp->ibqp,
		.src_qp = qp->attr.dest_qp_num,
		.port_num = 1,
	};
	bool solicited = status != IB_WC_SUCCESS;

	lockdep_assert_held(&qp->lock);
	if (hdr) {
		wc.byte_len = hdr->msg_len;
		if (hdr->flags & ROPCIE_F_IMM) {
			wc.wc_flags |= IB_WC_WITH_IMM;
			wc.ex.imm_data = cpu_to_be32(hdr->imm);
		}
		solicited |= hdr->flags & ROPCIE_F_SOLICITED;
	}
	/* The poster may fill the entry again from here on. */
	smp_store_release(&qp->rq.tail, qp->rq.tail + 1);
	ropcie_cq_add(to_rcq(qp->ibqp.recv_cq), &wc, solicited, after);
}

/* The request can not be served: NAK, and the QP ends (IBTA 9.9.3.1). */
static void refuse(struct ropcie_qp *qp, struct ropcie_after *after)
{
	ropcie_qp_answer(qp);
	ropcie_qp_to_error(qp, after);
	ropcie_mq_flush(&qp->tx);
}

static void request(struct ropcie_qp *qp, const struct ropcie_rec *rec,
		    struct ropcie_after *after)
{
	u32 ready = ropcie_rq_ready(&qp->rq);
	struct ropcie_recv_wqe *wqe = ropcie_rq_at(&qp->rq, qp->rq.tail);
	struct ropcie_rsp_place where;

	switch (ropcie_rsp_request(&qp->rsp, &rec->hdr, ready,
				   ready ? wqe->length : 0, &where)) {
	case ROPCIE_RSP_DROP:
		break;
	case ROPCIE_RSP_PLACE:
		if (!place(qp, wqe, where.off, rec)) {
			ropcie_recv_complete(qp, NULL, IB_WC_LOC_PROT_ERR,
					     after);
			ropcie_rsp_fail(&qp->rsp, ROPCIE_NAK_REM_OP);
			refuse(qp, after);
		} else if (ropcie_rsp_placed(&qp->rsp, &rec->hdr)) {
			ropcie_recv_complete(qp, &rec->hdr, IB_WC_SUCCESS,
					     after);
		}
		break;
	case ROPCIE_RSP_TOO_LONG:
		ropcie_recv_complete(qp, NULL, IB_WC_LOC_LEN_ERR, after);
		refuse(qp, after);
		break;
	case ROPCIE_RSP_INVALID:
		ropcie_after_event(after, IB_EVENT_QP_REQ_ERR);
		refuse(qp, after);
		break;
	}
}

/* Answers go out once for a whole batch. */
static void owe_answer(struct ropcie_qp *qp)
{
	if (test_and_set_bit(ROPCIE_QP_ANSWER, &qp->flags))
		return;
	refcount_inc(&qp->refs);
	llist_add(&qp->answer, &qp->dev->answers);
}

void ropcie_rx_request(struct ropcie_mq *mq, struct ropcie_peer *peer,
		       const struct ropcie_rec *rec)
{
	struct ropcie_qp *qp = container_of(mq, struct ropcie_qp, request_mq);
	struct ropcie_after after = {};

	spin_lock_bh(&qp->lock);
	if (qp->connected && qp->tx.peer == peer &&
	    ropcie_qp_responds((enum ropcie_qps)qp->state)) {
		if (qp->state == IB_QPS_RTR &&
		    !test_and_set_bit(ROPCIE_QP_COMM_EST, &qp->flags))
			ropcie_after_event(&after, IB_EVENT_COMM_EST);
		request(qp, rec, &after);
		if (ropcie_rsp_owes(&qp->rsp))
			owe_answer(qp);
	}
	spin_unlock_bh(&qp->lock);
	ropcie_qp_after(qp, &after);
}

void ropcie_rx_response(struct ropcie_mq *mq, struct ropcie_peer *peer,
			const struct ropcie_rec *rec)
{
	struct ropcie_qp *qp = container_of(mq, struct ropcie_qp, response_mq);
	struct ropcie_after after = {};
	bool more = false;

	spin_lock_bh(&qp->lock);
	if (qp->connected && qp->tx.peer == peer &&
	    ropcie_qp_requests((enum ropcie_qps)qp->state) &&
	    ropcie_req_response(&qp->req, &rec->hdr, ktime_get_ns()))
		more = ropcie_qp_run(qp, ROPCIE_RX_BUDGET, &after);
	spin_unlock_bh(&qp->lock);
	if (more)
		ropcie_qp_schedule(qp);
	ropcie_qp_after(qp, &after);
}

void ropcie_rx_batch_end(void *ctx, struct ropcie_peer *peer)
{
	struct ropcie_dev *dev = ctx;
	struct llist_node *list;
	struct ropcie_qp *qp, *next;

	if (llist_empty(&dev->answers))
		return;
	list = llist_reverse_order(llist_del_all(&dev->answers));
	llist_for_each_entry_safe(qp, next, list, answer) {
		clear_bit(ROPCIE_QP_ANSWER, &qp->flags);
		/* What is owed from here on puts the QP on the list again. */
		smp_mb__after_atomic();
		spin_lock_bh(&qp->lock);
		if (qp->connected) {
			ropcie_qp_answer(qp);
			ropcie_mq_flush(&qp->tx);
		}
		spin_unlock_bh(&qp->lock);
		ropcie_qp_put(qp);
	}
}
