// SPDX-License-Identifier: GPL-2.0
/*
 * Sending: work requests of a queue pair become vectored sends, or are executed
 * here. Runs under qp->lock, wherever the queue pair is run.
 */
#include "memory.h"
#include "odp.h"
#include "placement.h"
#include "qp.h"
#include "ropcie.h"
#include "ud.h"

/*
 * Most runs of memory behind one record: a piece of n bytes touches at most
 * n / PAGE_SIZE + 2 pages. One more for the header of a datagram.
 */
#define GATHER_VECS (2 * ROPCIE_MAX_SGE + ROPCIE_MAX_FRAG / PAGE_SIZE + 1)
/* Bytes that a local operation counts for. */
#define LOCAL_COST 1024

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
 * Runs of memory behind @len bytes at @off of a work request's list. Return: 0;
 * -EACCES when a key or its bounds do not allow it; -EINPROGRESS when memory is
 * being brought in.
 */
static int gather(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe,
		  u64 off, u32 len, struct gather *g)
{
	struct ropcie_sge_cursor cur;
	struct ropcie_sge piece;
	u32 n;

	ropcie_sge_seek(&cur, wqe->sge, wqe->num_sge, off);
	while (len && ropcie_sge_next(&cur, len, &piece)) {
		struct ropcie_mr *mr = ropcie_mr_get(qp, qp->ibqp.pd, &piece,
						      0);

		if (!mr)
			return -EACCES;
		g->mr[g->nmr++] = mr;
		n = ropcie_mr_map(&mr->core, piece.addr, piece.length, g->vec,
				  GATHER_VECS, &g->nvec);
		if (n != piece.length)
			return ropcie_odp_missing(qp, ROPCIE_REQUESTER, mr,
						  piece.addr + n,
						  wqe->length - off - n);
		len -= piece.length;
		off += piece.length;
	}
	return len ? -EACCES : 0;
}

static int send_gathered(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
			 struct gather *g)
{
	if (g->nvec && ropcie_mq_wants_dma(&qp->tx, hdr->frag_len))
		return ropcie_lend_request(qp, hdr, g->vec, g->nvec, g->mr,
					   &g->nmr);
	return ropcie_mq_send(&qp->tx, hdr, g->vec, g->nvec);
}

/* Return: as gather(); -EBUSY when it has to wait for what is in the lane. */
static int send_record(struct ropcie_qp *qp, struct ropcie_req_rec *rec)
{
	struct ropcie_hold *hold = NULL;
	bool datagram = rec->hdr.op == ROPCIE_OP_DATAGRAM;
	u32 len = rec->hdr.frag_len;
	struct gather g ROPCIE_UNINIT;
	int ret = 0;

	g.nvec = 0;
	g.nmr = 0;
	if (unlikely(qp->place)) {
		hold = ropcie_placement_choose(qp, rec);
		if (IS_ERR(hold))
			return PTR_ERR(hold);
	}
	if (datagram) {
		len = rec->wqe->length;
		if (!ropcie_ud_fits(qp, len))
			return 0;
		g.vec[g.nvec++] = ropcie_ud_header(qp, rec->wqe);
	}
	if (rec->wqe->flags & ROPCIE_WR_INLINE) {
		g.vec[g.nvec].base = (char *)rec->wqe->sge + rec->off;
		g.vec[g.nvec++].len = len;
	} else {
		ret = gather(qp, rec->wqe, rec->off, len, &g);
	}
	if (!ret && hold)
		ret = ropcie_placement_send(qp, hold, &rec->hdr,
					    rec->wqe->raddr + rec->off, g.vec,
					    g.nvec);
	else if (!ret)
		ret = datagram ? ropcie_ud_send(qp, rec, g.vec, g.nvec) :
				 send_gathered(qp, &rec->hdr, &g);
	gather_put(&g);
	return ret;
}

/* IBTA 10.6.4.3; what may not be is a memory management operation error. */
static void execute(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe)
{
	bool ok;

	switch (wqe->op) {
	case ROPCIE_LOCAL_REG_MR:
		ok = ropcie_mr_reg(qp, wqe);
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

bool ropcie_qp_send(struct ropcie_qp *qp, u32 budget)
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
			ropcie_req_stuck(&qp->req, ktime_get_ns());
			break;
		}
		if (ret == -EINPROGRESS || ret == -EBUSY) {
			/* What is waited for runs it; a datagram's lane does not. */
			if (!ropcie_is_reliable(qp))
				qp->req.deadline = 0;
			break;
		}
		if (ret == -EACCES)
			ropcie_req_local_error(&qp->req,
					       ROPCIE_WC_LOC_PROT_ERR);
		else if (ret)
			ropcie_qp_link_lost(qp);
		else
			ropcie_req_sent(&qp->req, &rec,
					ropcie_timeout_base(qp->req.attr.timeout_ns));
		spent += rec.hdr.frag_len + ROPCIE_SLOT_SIZE;
	}
	return more;
}
