// SPDX-License-Identifier: GPL-2.0
/*
 * post_send and post_recv: check a work request, copy it into its queue, and
 * see that somebody runs it. May be called in any context.
 */
#include "qp.h"
#include "queues.h"
#include "ropcie.h"
#include "ud.h"

/* Copy a scatter/gather list and add up its length. */
static u64 copy_sges(struct ropcie_sge *dst, const struct ib_sge *src, int num)
{
	u64 sum = 0;
	int i;

	for (i = 0; i < num; i++) {
		dst[i].addr = src[i].addr;
		dst[i].length = src[i].length;
		dst[i].lkey = src[i].lkey;
		sum += src[i].length;
	}
	return sum;
}

/* Is there such an operation on this service (IBTA 10.8.2, table 87)? */
static bool has_opcode(const struct ropcie_qp *qp, u32 opcode)
{
	switch (opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		return true;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return !ropcie_is_ud(qp);
	case IB_WR_SEND_WITH_INV:
	case IB_WR_RDMA_READ:
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
	case IB_WR_ATOMIC_WRITE:
		return ropcie_is_reliable(qp);
	case IB_WR_LOCAL_INV:
		return !ropcie_is_ud(qp);
	case IB_WR_REG_MR:
		/* It names memory of the kernel. */
		return !ropcie_is_ud(qp) && !qp->wc_name;
	default:
		return false;
	}
}

/* The region may be gone when it is its turn: what is kept of it is its index. */
static int fill_reg(const struct ib_reg_wr *wr, struct ropcie_send_wqe *wqe)
{
	if (wr->access & ~(int)(ROPCIE_MR_ACCESS | IB_ACCESS_OPTIONAL))
		return -EINVAL;
	wqe->op = ROPCIE_LOCAL_REG_MR;
	wqe->imm = wr->mr->rkey;
	wqe->rkey = wr->key;
	wqe->access = wr->access & ROPCIE_MR_ACCESS;
	return 0;
}

/* What the opcode of a work request asks for. */
static int fill_opcode(struct ropcie_qp *qp, const struct ib_send_wr *wr,
		       struct ropcie_send_wqe *wqe)
{
	if (!has_opcode(qp, wr->opcode))
		return -EOPNOTSUPP;
	if (wr->opcode == IB_WR_SEND_WITH_IMM ||
	    wr->opcode == IB_WR_RDMA_WRITE_WITH_IMM) {
		wqe->flags |= ROPCIE_WR_IMM;
		wqe->imm = be32_to_cpu(wr->ex.imm_data);
	}
	switch ((u32)wr->opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		wqe->op = ROPCIE_OP_SEND;
		return ropcie_is_ud(qp) ? ropcie_ud_fill(qp, ud_wr(wr), wqe) : 0;
	case IB_WR_SEND_WITH_INV:
		wqe->op = ROPCIE_OP_SEND;
		wqe->flags |= ROPCIE_WR_INV;
		wqe->imm = wr->ex.invalidate_rkey;
		return 0;
	case IB_WR_LOCAL_INV:
		wqe->op = ROPCIE_LOCAL_INV;
		wqe->rkey = wr->ex.invalidate_rkey;
		return 0;
	case IB_WR_REG_MR:
		return fill_reg(reg_wr(wr), wqe);
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
		wqe->op = wr->opcode == IB_WR_RDMA_READ ? ROPCIE_OP_READ :
							  ROPCIE_OP_WRITE;
		wqe->raddr = rdma_wr(wr)->remote_addr;
		wqe->rkey = rdma_wr(wr)->rkey;
		return 0;
	case IB_WR_ATOMIC_WRITE:
		wqe->op = ROPCIE_OP_ATOMIC_WRITE;
		wqe->raddr = rdma_wr(wr)->remote_addr;
		wqe->rkey = rdma_wr(wr)->rkey;
		return wqe->length == ROPCIE_ATOMIC_LEN ? 0 : -EINVAL;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		wqe->op = wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP ?
				  ROPCIE_OP_CAS : ROPCIE_OP_FAA;
		wqe->raddr = atomic_wr(wr)->remote_addr;
		wqe->rkey = atomic_wr(wr)->rkey;
		wqe->compare_add = atomic_wr(wr)->compare_add;
		wqe->swap = atomic_wr(wr)->swap;
		/* IBTA 9.4.5: it returns 8 bytes. */
		return wqe->length == ROPCIE_ATOMIC_LEN ? 0 : -EINVAL;
	default:
		return -EOPNOTSUPP;
	}
}

static void fill_flags(const struct ropcie_qp *qp, u32 send_flags,
		       struct ropcie_send_wqe *wqe)
{
	if (send_flags & IB_SEND_FENCE)
		wqe->flags |= ROPCIE_WR_FENCE;
	if (send_flags & IB_SEND_SOLICITED)
		wqe->flags |= ROPCIE_WR_SOLICITED;
	if ((send_flags & IB_SEND_SIGNALED) ||
	    qp->init.sq_sig_type == IB_SIGNAL_ALL_WR)
		wqe->flags |= ROPCIE_WR_SIGNALED;
}

/* Inline data goes where the list would be. */
static int fill_inline(struct ropcie_qp *qp, u32 opcode,
		       const struct ropcie_inline *in,
		       struct ropcie_send_wqe *wqe)
{
	switch (opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_SEND_WITH_INV:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_ATOMIC_WRITE:
		break;
	default:
		return -EINVAL;
	}
	if (in->length > qp->init.cap.max_inline_data)
		return -EINVAL;
	memcpy(wqe->sge, in->data, in->length);
	wqe->length = in->length;
	wqe->num_sge = 0;
	wqe->flags = ROPCIE_WR_INLINE;
	return 0;
}

static int fill_list(struct ropcie_qp *qp, const struct ib_send_wr *wr,
		     struct ropcie_send_wqe *wqe)
{
	u64 length;

	if (wr->num_sge < 0 || wr->num_sge > qp->init.cap.max_send_sge)
		return -EINVAL;
	length = copy_sges(wqe->sge, wr->sg_list, wr->num_sge);
	if (length > ROPCIE_MAX_MSG)
		return -EINVAL;
	wqe->length = length;
	wqe->num_sge = wr->num_sge;
	wqe->flags = 0;
	return 0;
}

int ropcie_fill_send(struct ropcie_qp *qp, const struct ib_send_wr *wr,
		     const struct ropcie_inline *in,
		     struct ropcie_send_wqe *wqe)
{
	int ret;

	if (wr->send_flags &
	    ~(IB_SEND_FENCE | IB_SEND_SIGNALED | IB_SEND_SOLICITED |
	      (in ? IB_SEND_INLINE : 0)))
		return -EINVAL;
	ret = in ? fill_inline(qp, wr->opcode, in, wqe) :
		   fill_list(qp, wr, wqe);
	if (ret)
		return ret;
	wqe->wr_id = wr->wr_id;
	wqe->imm = 0;
	wqe->srqn = 0;
	ret = fill_opcode(qp, wr, wqe);
	if (!ret)
		fill_flags(qp, wr->send_flags, wqe);
	return ret;
}

int ropcie_fill_bind(struct ropcie_qp *qp,
		     const struct ropcie_abi_send_wqe *uwqe,
		     struct ropcie_send_wqe *wqe)
{
	if (ropcie_is_ud(qp) || uwqe->num_sge || uwqe->inline_length ||
	    uwqe->remote_srqn || uwqe->ah || uwqe->remote_qpn ||
	    uwqe->remote_qkey || uwqe->swap > U32_MAX ||
	    uwqe->flags & ~(IB_SEND_FENCE | IB_SEND_SIGNALED |
			    IB_SEND_SOLICITED))
		return -EINVAL;
	wqe->wr_id = uwqe->wr_id;
	wqe->op = ROPCIE_LOCAL_BIND;
	wqe->flags = 0;
	wqe->num_sge = 0;
	wqe->length = 0;
	wqe->rkey = uwqe->rkey;
	wqe->raddr = uwqe->remote_addr;
	wqe->swap = uwqe->compare_add;
	wqe->access = uwqe->swap;
	wqe->imm = uwqe->imm;
	fill_flags(qp, uwqe->flags, wqe);
	return 0;
}

static int post_one_send(struct ropcie_qp *qp, const struct ib_send_wr *wr)
{
	int ret;

	/* IBTA 10.8.3: not before RTS. */
	if (!ropcie_qp_may_post_send((enum ropcie_qps)READ_ONCE(qp->state)))
		return -EINVAL;
	if (qp->sq_uring.ctl)
		return -EINVAL;
	if (ropcie_req_pending(&qp->req) >= qp->sq_max_wr)
		return -ENOMEM;
	ret = ropcie_fill_send(qp, wr, NULL, ropcie_req_slot(&qp->req));
	if (!ret)
		ropcie_req_post(&qp->req);
	return ret;
}

int ropcie_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		     const struct ib_send_wr **bad_wr)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&qp->sq_lock, flags);
	for (; wr; wr = wr->next) {
		ret = post_one_send(qp, wr);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	if (!qp->sq_uring.ctl || !ropcie_qp_await_more(qp))
		ropcie_qp_kick(qp);
	return ret;
}

void ropcie_fill_recv(struct ropcie_recv_wqe *wqe, u64 wr_id,
		      const struct ib_sge *sge, u32 num_sge)
{
	wqe->wr_id = wr_id;
	wqe->num_sge = num_sge;
	wqe->length = copy_sges(wqe->sge, sge, num_sge);
}

static int rq_add(struct ropcie_rq *rq, const struct ib_recv_wr *wr)
{
	struct ropcie_recv_wqe *wqe = ropcie_rq_at(rq, rq->head);

	if (wr->num_sge < 0 || wr->num_sge > rq->max_sge || rq->uring.ctl)
		return -EINVAL;
	/* The engine is done with entries before tail moves past them. */
	if (rq->head - smp_load_acquire(&rq->tail) >= rq->max_wr)
		return -ENOMEM;
	ropcie_fill_recv(wqe, wr->wr_id, wr->sg_list, wr->num_sge);
	/* Pairs with ropcie_rq_ready(). */
	smp_store_release(&rq->head, rq->head + 1);
	return 0;
}

static int post_one_recv(struct ropcie_qp *qp, const struct ib_recv_wr *wr)
{
	if (qp->srq ||
	    !ropcie_qp_may_post_recv((enum ropcie_qps)READ_ONCE(qp->state)))
		return -EINVAL;
	return rq_add(&qp->rq, wr);
}

int ropcie_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		     const struct ib_recv_wr **bad_wr)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&qp->rq.post_lock, flags);
	for (; wr; wr = wr->next) {
		ret = post_one_recv(qp, wr);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	spin_unlock_irqrestore(&qp->rq.post_lock, flags);

	/*
	 * Only a responder that refused a request for want of one, or a QP in
	 * ERR, needs to be run. Pairs with the barrier in answer.c, replenish().
	 */
	smp_mb();
	if (READ_ONCE(qp->rsp.starved) || READ_ONCE(qp->state) == IB_QPS_ERR)
		ropcie_qp_kick(qp);
	return ret;
}

int ropcie_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			 const struct ib_recv_wr **bad_wr)
{
	struct ropcie_rq *rq = &to_rsrq(ibsrq)->rq;
	unsigned long flags;
	int ret = 0;

	/* Who was refused for want of a receive tries again when it is time. */
	spin_lock_irqsave(&rq->post_lock, flags);
	for (; wr; wr = wr->next) {
		ret = rq_add(rq, wr);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	spin_unlock_irqrestore(&rq->post_lock, flags);
	return ret;
}
