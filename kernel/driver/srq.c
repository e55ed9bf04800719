// SPDX-License-Identifier: GPL-2.0
/*
 * Receive queues: the ring of a queue pair or of a shared receive queue, and
 * which receive the next message takes.
 *
 * A shared queue has one lock for posters and for the queue pairs that take
 * from it. A queue pair takes a receive when the first record of a message
 * comes that is going to fill it, and copies it: so it holds one at most, and
 * the order of completions is that of the messages.
 */
#include <linux/slab.h>

#include "ropcie.h"

int ropcie_rq_create(struct ropcie_rq *rq, u32 max_wr, u32 max_sge)
{
	rq->size = roundup_pow_of_two(max(max_wr, 1U));
	rq->stride = struct_size_t(struct ropcie_recv_wqe, sge, max_sge);
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	spin_lock_init(&rq->post_lock);
	rq->ring = kvcalloc(rq->size, rq->stride, GFP_KERNEL_ACCOUNT);
	return rq->ring ? 0 : -ENOMEM;
}

int ropcie_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		      struct ib_udata *udata)
{
	struct ropcie_dev *dev = to_rdev(ibsrq->device);
	struct ropcie_srq *srq = to_rsrq(ibsrq);
	int ret;

	if (init->srq_type != IB_SRQT_BASIC || ropcie_udata_unknown(udata))
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > ROPCIE_MAX_WR ||
	    init->attr.max_sge > ROPCIE_MAX_SGE)
		return -EINVAL;
	if (!atomic_add_unless(&dev->num_srqs, 1, ROPCIE_MAX_SRQ))
		return -ENOMEM;
	ret = ropcie_rq_create(&srq->rq, init->attr.max_wr,
			       init->attr.max_sge);
	if (ret)
		atomic_dec(&dev->num_srqs);
	return ret;
}

int ropcie_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	kvfree(to_rsrq(ibsrq)->rq.ring);
	atomic_dec(&to_rdev(ibsrq->device)->num_srqs);
	return 0;
}

/* Take the receives of @rq over into the ring of @new; rq->post_lock is held. */
static void move_receives(struct ropcie_rq *rq, struct ropcie_rq *new)
{
	u32 i, num = rq->head - rq->tail;

	for (i = 0; i < num; i++)
		memcpy(ropcie_rq_at(new, i), ropcie_rq_at(rq, rq->tail + i),
		       rq->stride);
	swap(rq->ring, new->ring);
	rq->size = new->size;
	rq->max_wr = new->max_wr;
	rq->tail = 0;
	rq->head = num;
}

int ropcie_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		      enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct ropcie_srq *srq = to_rsrq(ibsrq);
	struct ropcie_rq *rq = &srq->rq, new = {};
	u32 max_wr, limit;
	unsigned long flags;
	int ret = 0;

	if (mask & ~(IB_SRQ_MAX_WR | IB_SRQ_LIMIT) ||
	    ropcie_udata_unknown(udata))
		return -EOPNOTSUPP;
	if (mask & IB_SRQ_MAX_WR) {
		if (!attr->max_wr || attr->max_wr > ROPCIE_MAX_WR)
			return -EINVAL;
		ret = ropcie_rq_create(&new, attr->max_wr, rq->max_sge);
		if (ret)
			return ret;
	}
	spin_lock_irqsave(&rq->post_lock, flags);
	max_wr = mask & IB_SRQ_MAX_WR ? attr->max_wr : rq->max_wr;
	limit = mask & IB_SRQ_LIMIT ? attr->srq_limit : srq->limit;
	if (limit > max_wr || rq->head - rq->tail > max_wr) {
		ret = -EINVAL;
	} else {
		if (new.ring)
			move_receives(rq, &new);
		WRITE_ONCE(srq->limit, limit);
	}
	spin_unlock_irqrestore(&rq->post_lock, flags);
	kvfree(new.ring);
	return ret;
}

int ropcie_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct ropcie_srq *srq = to_rsrq(ibsrq);

	attr->max_wr = srq->rq.max_wr;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = READ_ONCE(srq->limit);
	return 0;
}

/* Take the oldest receive out. Return: false when there is none. */
static bool srq_take(struct ropcie_srq *srq, struct ropcie_recv_wqe *wqe,
		     struct ropcie_after *after)
{
	struct ropcie_rq *rq = &srq->rq;
	unsigned long flags;
	bool some;

	spin_lock_irqsave(&rq->post_lock, flags);
	some = rq->head != rq->tail;
	if (some) {
		memcpy(wqe, ropcie_rq_at(rq, rq->tail), rq->stride);
		rq->tail++;
		/* The limit is told once (IBTA 10.2.9.1). */
		if (rq->head - rq->tail < srq->limit) {
			srq->limit = 0;
			after->srq_limit = srq;
		}
	}
	spin_unlock_irqrestore(&rq->post_lock, flags);
	return some;
}

struct ropcie_recv_wqe *ropcie_recv_current(struct ropcie_qp *qp)
{
	if (qp->srq)
		return qp->holds ? qp->held : NULL;
	return ropcie_rq_ready(&qp->rq) ? ropcie_rq_at(&qp->rq, qp->rq.tail) :
					  NULL;
}

struct ropcie_recv_wqe *ropcie_recv_for(struct ropcie_qp *qp,
					bool take, struct ropcie_after *after)
{
	lockdep_assert_held(&qp->lock);
	if (take && qp->srq && !qp->holds)
		qp->holds = srq_take(qp->srq, qp->held, after);
	return ropcie_recv_current(qp);
}

void ropcie_recv_release(struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	if (qp->srq)
		qp->holds = false;
	else
		/* The poster may fill the entry again from here on. */
		smp_store_release(&qp->rq.tail, qp->rq.tail + 1);
}
