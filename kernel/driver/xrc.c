// SPDX-License-Identifier: GPL-2.0
/*
 * Extended reliable connections (IBTA annex A14): domains, and the numbers of
 * the shared receive queues that requests name.
 *
 * A target QP belongs to nobody's shared queue: each message says for which one
 * it is. That queue, and with it the memory that it and the peer may name, stays
 * in qp->srq until the next message, guarded by qp->lock. Whoever destroys a
 * queue takes its number away first, and then goes through the targets: all that
 * have a queue are in dev->qps.
 */
#include "qp.h"
#include "queues.h"
#include "ropcie.h"

/* The wire has so much room for a number. */
#define MAX_SRQN U16_MAX

int ropcie_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	return ropcie_udata_unknown(udata) ? -EOPNOTSUPP : 0;
}

int ropcie_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	return 0;
}

int ropcie_xrc_publish(struct ropcie_dev *dev, struct ropcie_srq *srq)
{
	u32 *num = &srq->ibsrq.ext.xrc.srq_num;
	int ret;

	mutex_lock(&dev->qp_mutex);
	ret = xa_alloc_cyclic(&dev->xrc_srqs, num, srq, XA_LIMIT(1, MAX_SRQN),
			      &dev->next_srqn, GFP_NOIO);
	mutex_unlock(&dev->qp_mutex);
	return min(ret, 0);
}

/*
 * The target receives no more for a queue that is going. Of a message that is under
 * way the next record is refused: see has_srq() in rx.c.
 */
static void forget(struct ropcie_qp *qp, const struct ropcie_srq *srq)
{
	spin_lock_bh(&qp->lock);
	if (qp->srq == srq) {
		qp->holds = false;
		qp->srq = NULL;
	}
	ropcie_qp_unlock(qp);
}

void ropcie_xrc_unpublish(struct ropcie_dev *dev, struct ropcie_srq *srq)
{
	struct ropcie_qp *qp;
	unsigned long qpn;

	mutex_lock(&dev->qp_mutex);
	xa_erase(&dev->xrc_srqs, srq->ibsrq.ext.xrc.srq_num);
	xa_for_each(&dev->qps, qpn, qp) {
		if (ropcie_is_xrc_target(qp))
			forget(qp, srq);
		cond_resched();
	}
	mutex_unlock(&dev->qp_mutex);
}

struct ropcie_srq *ropcie_xrc_find(const struct ropcie_qp *qp, u32 srqn)
{
	struct ropcie_srq *srq;

	lockdep_assert_held(&qp->lock);
	srq = xa_load(&qp->dev->xrc_srqs, srqn);
	return srq && srq->ibsrq.ext.xrc.xrcd == qp->ibqp.xrcd ? srq : NULL;
}
