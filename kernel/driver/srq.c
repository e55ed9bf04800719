// SPDX-License-Identifier: GPL-2.0
/*
 * Receive queues: the ring of a queue pair or of a shared receive queue, and
 * which receive the next message takes.
 *
 * A shared queue has one lock for posters and for the queue pairs that take
 * from it. A queue pair takes a receive when the first record of a message
 * comes that is going to fill it, and copies it: so it holds one at most, and
 * the order of completions is that of the messages. A target of XRC takes from
 * the queue that the message names (xrc.c).
 */
#include <linux/slab.h>

#include "queues.h"
#include "ropcie.h"

int ropcie_rq_create(struct ropcie_rq *rq, u32 max_wr, u32 max_sge)
{
	rq->size = roundup_pow_of_two(max(max_wr, 1U));
	rq->stride = struct_size_t(struct ropcie_recv_wqe, sge, max_sge);
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	spin_lock_init(&rq->post_lock);
	rq->ring = kvcalloc(rq->size, rq->stride, ROPCIE_GFP_USER);
	return rq->ring ? 0 : -ENOMEM;
}

void ropcie_rq_destroy(struct ropcie_rq *rq)
{
	kvfree(rq->ring);
	kfree(rq->uwqe);
}

struct ropcie_uring_want ropcie_rq_uring(struct ropcie_rq *rq)
{
	return (struct ropcie_uring_want){
		.ring = &rq->uring,
		.size = rq->max_wr,
		.stride = struct_size_t(struct ropcie_abi_recv_wqe, sge,
					rq->max_sge),
	};
}

/* What is done with is the process's to fill again. */
static void release(struct ropcie_rq *rq)
{
	ropcie_uring_release(&rq->uring,
			     rq->uring.next - (rq->head - rq->tail));
}

/* The rings of a mapped queue; nobody uses it yet. */
static int map_srq(struct ropcie_srq *srq, struct ib_udata *udata)
{
	struct ropcie_uring_want want = ropcie_rq_uring(&srq->rq);
	struct ropcie_shared *shared;

	srq->rq.uwqe = kmalloc(want.stride, ROPCIE_GFP_USER);
	if (!srq->rq.uwqe)
		return -ENOMEM;
	shared = ropcie_map_queue(udata, NULL, &want, 1);
	if (IS_ERR(shared))
		return PTR_ERR(shared);
	srq->shared = shared;
	return 0;
}

static void raise_limit(struct tasklet_struct *t)
{
	struct ropcie_srq *srq = from_tasklet(srq, t, limit_reached);
	struct ib_event event = {
		.device = srq->ibsrq.device,
		.element.srq = &srq->ibsrq,
		.event = IB_EVENT_SRQ_LIMIT_REACHED,
	};

	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
}

int ropcie_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		      struct ib_udata *udata)
{
	struct ropcie_dev *dev = to_rdev(ibsrq->device);
	struct ropcie_srq *srq = to_rsrq(ibsrq);
	bool is_xrc = init->srq_type == IB_SRQT_XRC;
	int mapped = ropcie_wants_mapped(udata);
	int ret;

	if (mapped < 0)
		return mapped;
	if (init->srq_type != IB_SRQT_BASIC && init->srq_type != IB_SRQT_XRC)
		return -EOPNOTSUPP;
	if (is_xrc && (!init->ext.xrc.xrcd || !init->ext.cq))
		return -EINVAL;
	/*
	 * Its completions outlive the target QP, whose name those of another
	 * CQ would point at.
	 */
	if (is_xrc && (!mapped || !to_rcq(init->ext.cq)->shared))
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > ROPCIE_MAX_WR ||
	    init->attr.max_sge > ROPCIE_MAX_SGE)
		return -EINVAL;
	if (!atomic_add_unless(&dev->num_srqs, 1, ROPCIE_MAX_SRQ))
		return -ENOMEM;
	mutex_init(&srq->resize);
	tasklet_setup(&srq->limit_reached, raise_limit);
	ret = ropcie_rq_create(&srq->rq, init->attr.max_wr,
			       init->attr.max_sge);
	if (!ret && mapped)
		ret = map_srq(srq, udata);
	if (!ret && is_xrc)
		ret = ropcie_xrc_publish(dev, srq);
	if (ret) {
		ropcie_shared_put(srq->shared);
		ropcie_rq_destroy(&srq->rq);
		atomic_dec(&dev->num_srqs);
	}
	return ret;
}

int ropcie_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct ropcie_dev *dev = to_rdev(ibsrq->device);
	struct ropcie_srq *srq = to_rsrq(ibsrq);

	if (ibsrq->srq_type == IB_SRQT_XRC)
		ropcie_xrc_unpublish(dev, srq);
	tasklet_kill(&srq->limit_reached);
	ropcie_uring_end(&srq->rq.uring);
	ropcie_rq_destroy(&srq->rq);
	ropcie_shared_put(srq->shared);
	atomic_dec(&dev->num_srqs);
	return 0;
}

static void copy_receives(struct ropcie_rq *to, const struct ropcie_rq *from,
			  u32 first, u32 end)
{
	u32 i;

	for (i = first; i != end; i++) {
		/* Only with a later one in the place of one that was taken. */
		data_race(memcpy(ropcie_rq_at(to, i), ropcie_rq_at(from, i),
				 from->stride));
	}
}

/*
 * Take receives of @rq from @first on over into the ring of @new without the lock: those
 * that its process has posted, too, as the ring is given up. Return: the first that is left.
 */
static u32 copy_ahead(struct ropcie_rq *rq, struct ropcie_rq *new, u32 first)
{
	u32 end;

	while (ropcie_pull_recvs(rq))
		cond_resched();
	/* Pairs with whoever fills an entry and moves it. */
	end = smp_load_acquire(&rq->head);
	copy_receives(new, rq, first, end);
	return end;
}

/*
 * The ring of @new takes the place of that of @rq; those before @first have been copied.
 * rq->post_lock is held.
 */
static void move_receives(struct ropcie_rq *rq, struct ropcie_rq *new, u32 first)
{
	copy_receives(new, rq, first, rq->head);
	swap(rq->ring, new->ring);
	rq->size = new->size;
	rq->max_wr = new->max_wr;
	if (!new->uring.ctl)
		return;
	/* The process goes on where it was. */
	new->uring.next = rq->uring.next;
	WRITE_ONCE(new->uring.ctl->head, rq->uring.next);
	rq->uring = new->uring;
	release(rq);
}

static int resize_req(struct ropcie_abi_resize_srq_req *req,
		      struct ib_udata *udata)
{
	if (udata->inlen < sizeof(*req))
		return -EINVAL;
	return ropcie_copy_req(udata, req, sizeof(*req));
}

int ropcie_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		      enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct ropcie_srq *srq = to_rsrq(ibsrq);
	struct ropcie_rq *rq = &srq->rq, new = {};
	struct ropcie_abi_resize_srq_req req = {};
	struct ropcie_shared *shared = NULL;
	struct ropcie_uring_want want;
	u32 max_wr, limit, first, pass = 0;
	unsigned long flags;
	int ret = 0;

	if (mask & ~(IB_SRQ_MAX_WR | IB_SRQ_LIMIT))
		return -EOPNOTSUPP;
	if (srq->shared && mask & IB_SRQ_MAX_WR)
		ret = resize_req(&req, udata);
	else if (ropcie_udata_unknown(udata))
		ret = -EOPNOTSUPP;
	if (ret)
		return ret;
	mutex_lock(&srq->resize);
	if (mask & IB_SRQ_MAX_WR) {
		ret = -EINVAL;
		if (!attr->max_wr || attr->max_wr > ROPCIE_MAX_WR)
			goto unlock;
		ret = ropcie_rq_create(&new, attr->max_wr, rq->max_sge);
		if (!ret && srq->shared) {
			want = ropcie_rq_uring(&new);
			shared = ropcie_map_queue(udata,
						  u64_to_user_ptr(req.resp),
						  &want, 1);
			ret = PTR_ERR_OR_ZERO(shared);
		}
		if (ret) {
			kvfree(new.ring);
			goto unlock;
		}
	}
	spin_lock_irqsave(&rq->post_lock, flags);
	first = rq->tail;
	while (new.ring && pass++ < ROPCIE_MOVE_PASSES &&
	       (ropcie_uring_ready(&rq->uring) ||
		rq->head - first > ROPCIE_MOVE_MOST)) {
		spin_unlock_irqrestore(&rq->post_lock, flags);
		first = copy_ahead(rq, &new, first);
		spin_lock_irqsave(&rq->post_lock, flags);
		if ((s32)(rq->tail - first) > 0)
			first = rq->tail;
	}
	max_wr = mask & IB_SRQ_MAX_WR ? attr->max_wr : rq->max_wr;
	limit = mask & IB_SRQ_LIMIT ? attr->srq_limit : srq->limit;
	if (limit > max_wr || rq->head - rq->tail > max_wr) {
		ret = -EINVAL;
	} else if (new.ring && ropcie_uring_ready(&rq->uring)) {
		ret = -EAGAIN; /* the process posts all the while, or more than fits */
	} else {
		if (new.ring)
			move_receives(rq, &new, first);
		if (shared)
			swap(srq->shared, shared);
		WRITE_ONCE(srq->limit, limit);
	}
	spin_unlock_irqrestore(&rq->post_lock, flags);
	kvfree(new.ring);
	ropcie_shared_put(shared);
unlock:
	mutex_unlock(&srq->resize);
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

/* Take the oldest receive out. Return: false when there is none, or it is shorter. */
static bool srq_take(struct ropcie_srq *srq, struct ropcie_recv_wqe *wqe, u32 length)
{
	struct ropcie_rq *rq = &srq->rq;
	unsigned long flags;
	bool some;
	u32 left;

	spin_lock_irqsave(&rq->post_lock, flags);
	ropcie_pull_recvs_locked(rq);
	some = rq->head != rq->tail &&
	       ropcie_rq_at(rq, rq->tail)->length >= length;
	if (some) {
		memcpy(wqe, ropcie_rq_at(rq, rq->tail), rq->stride);
		rq->tail++;
		release(rq);
		/* The limit is told once (IBTA 10.2.9.1). */
		left = rq->head - rq->tail + ropcie_uring_ready(&rq->uring);
		if (left < srq->limit) {
			srq->limit = 0;
			tasklet_schedule(&srq->limit_reached);
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

struct ropcie_recv_wqe *ropcie_recv_for(struct ropcie_qp *qp, bool take, u32 length)
{
	lockdep_assert_held(&qp->lock);
	if (take && qp->srq && !qp->holds)
		qp->holds = srq_take(qp->srq, qp->held, length);
	return ropcie_recv_current(qp);
}

void ropcie_recv_release(struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	if (qp->srq) {
		qp->holds = false;
		return;
	}
	/* The poster may fill the entry again from here on. */
	smp_store_release(&qp->rq.tail, qp->rq.tail + 1);
	release(&qp->rq);
}
