// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: a ring of struct ib_wc in kernel memory. Whoever polls an
 * empty queue drains the lanes in his own context first, so that a polling
 * program needs no wake-up.
 */
#include <linux/slab.h>

#include "ropcie.h"

static void cq_notify(struct tasklet_struct *t)
{
	struct ropcie_cq *cq = from_tasklet(cq, t, notify);

	cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

int ropcie_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		     struct ropcie_cq_arg *arg)
{
	struct ropcie_dev *dev = to_rdev(ibcq->device);
	struct ropcie_cq *cq = to_rcq(ibcq);

	if (attr->flags || ropcie_udata_unknown(ropcie_cq_udata(arg)))
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > ROPCIE_MAX_CQE)
		return -EINVAL;
	if (!atomic_add_unless(&dev->num_cqs, 1, ROPCIE_MAX_CQ))
		return -ENOMEM;
	cq->size = roundup_pow_of_two(attr->cqe);
	cq->ring = kvcalloc(cq->size, sizeof(*cq->ring), GFP_KERNEL_ACCOUNT);
	if (!cq->ring) {
		atomic_dec(&dev->num_cqs);
		return -ENOMEM;
	}
	spin_lock_init(&cq->lock);
	tasklet_setup(&cq->notify, cq_notify);
	ibcq->cqe = attr->cqe;
	return 0;
}

int ropcie_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata)
{
	struct ropcie_cq *cq = to_rcq(ibcq);
	struct ib_wc *ring;
	u32 i, size, num;
	unsigned long flags;
	int ret = -EINVAL;

	if (ropcie_udata_unknown(udata))
		return -EOPNOTSUPP;
	if (cqe <= 0 || cqe > ROPCIE_MAX_CQE)
		return -EINVAL;
	size = roundup_pow_of_two(cqe);
	ring = kvcalloc(size, sizeof(*ring), GFP_KERNEL_ACCOUNT);
	if (!ring)
		return -ENOMEM;
	spin_lock_irqsave(&cq->lock, flags);
	num = cq->head - cq->tail;
	if (num <= cqe) {
		/* Positions stay: they are looked at without the lock. */
		for (i = cq->tail; i != cq->head; i++)
			ring[i & (size - 1)] = cq->ring[i & (cq->size - 1)];
		swap(cq->ring, ring);
		cq->size = size;
		ibcq->cqe = cqe;
		ret = 0;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	kvfree(ring);
	return ret;
}

/* Before ib_free_cq() cancels the work that the handler may queue. */
int ropcie_pre_destroy_cq(struct ib_cq *ibcq)
{
	tasklet_kill(&to_rcq(ibcq)->notify);
	return 0;
}

int ropcie_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct ropcie_cq *cq = to_rcq(ibcq);

	tasklet_kill(&cq->notify);
	kvfree(cq->ring);
	atomic_dec(&to_rdev(ibcq->device)->num_cqs);
	return 0;
}

/* Each CQ at most once: a QP has two. */
static void after_add(struct ropcie_cq **list, struct ropcie_cq *cq)
{
	if (list[0] == cq || list[1] == cq)
		return;
	list[list[0] ? 1 : 0] = cq;
}

void ropcie_cq_add(struct ropcie_cq *cq, const struct ib_wc *wc,
		   bool solicited, struct ropcie_after *after)
{
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	if (cq->overflow || cq->head - cq->tail == cq->ibcq.cqe) {
		if (!cq->overflow)
			after_add(after->overflow, cq);
		cq->overflow = true;
		after->lost = true;
	} else {
		cq->ring[cq->head & (cq->size - 1)] = *wc;
		WRITE_ONCE(cq->head, cq->head + 1);
	}
	if (cq->armed == IB_CQ_NEXT_COMP ||
	    (cq->armed == IB_CQ_SOLICITED && solicited)) {
		cq->armed = 0;
		tasklet_schedule(&cq->notify);
	}
	spin_unlock_irqrestore(&cq->lock, flags);
}

void ropcie_cq_forget(struct ropcie_cq *cq, const struct ib_qp *ibqp)
{
	unsigned long flags;
	u32 from, to;

	spin_lock_irqsave(&cq->lock, flags);
	for (from = to = cq->tail; from != cq->head; from++) {
		const struct ib_wc *wc = &cq->ring[from & (cq->size - 1)];

		if (wc->qp == ibqp)
			continue;
		if (from != to)
			cq->ring[to & (cq->size - 1)] = *wc;
		to++;
	}
	WRITE_ONCE(cq->head, to);
	spin_unlock_irqrestore(&cq->lock, flags);
}

static int cq_take(struct ropcie_cq *cq, int num, struct ib_wc *wc)
{
	unsigned long flags;
	int n = 0;

	if (READ_ONCE(cq->head) == READ_ONCE(cq->tail))
		return 0;
	spin_lock_irqsave(&cq->lock, flags);
	while (n < num && cq->tail != cq->head) {
		wc[n++] = cq->ring[cq->tail & (cq->size - 1)];
		WRITE_ONCE(cq->tail, cq->tail + 1);
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return n;
}

int ropcie_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct ropcie_cq *cq = to_rcq(ibcq);
	int n = cq_take(cq, num, wc);

	if (n || !ropcie_may_run())
		return n;
	if (!ropcie_adapter_poll(to_rdev(ibcq->device)->adapter))
		return 0;
	return cq_take(cq, num, wc);
}

int ropcie_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	enum ib_cq_notify_flags want = flags & IB_CQ_SOLICITED_MASK;
	struct ropcie_cq *cq = to_rcq(ibcq);
	unsigned long irq;
	bool missed;

	spin_lock_irqsave(&cq->lock, irq);
	/* A request for all completions is not weakened (IBTA 11.4.2.2). */
	if (cq->armed != IB_CQ_NEXT_COMP)
		cq->armed = want;
	missed = cq->head != cq->tail;
	spin_unlock_irqrestore(&cq->lock, irq);

	if (ropcie_may_run())
		ropcie_adapter_arm(to_rdev(ibcq->device)->adapter);
	return missed && (flags & IB_CQ_REPORT_MISSED_EVENTS);
}
