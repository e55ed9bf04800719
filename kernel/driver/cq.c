// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: a ring of struct ib_wc in kernel memory, or a ring that is
 * shared with a process. Whoever polls an empty queue drains the lanes in his own
 * context first, and sends what is left to send, so that a polling program needs no
 * wake-up.
 */
#include <linux/moduleparam.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "qp.h"
#include "queues.h"
#include "ropcie.h"

static bool adaptive_events = true;
module_param(adaptive_events, bool, 0644);
MODULE_PARM_DESC(adaptive_events, "let events of streams of completions wait for more, where a process has not said (default on; for CQs created later)");

static void cq_notify(struct tasklet_struct *t)
{
	struct ropcie_cq *cq = from_tasklet(cq, t, notify);
	unsigned long due = xchg(&cq->due, 0);
	struct ib_event event = {
		.device = cq->ibcq.device,
		.element.cq = &cq->ibcq,
		.event = IB_EVENT_CQ_ERR,
	};

	if ((due & BIT(ROPCIE_CQ_FAILED)) && cq->ibcq.event_handler)
		cq->ibcq.event_handler(&event, cq->ibcq.cq_context);
	if (due & BIT(ROPCIE_CQ_COMPLETED))
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

static void notify(struct ropcie_cq *cq, enum ropcie_cq_due due)
{
	if (cq->ends)
		return;
	set_bit(due, &cq->due);
	tasklet_schedule(&cq->notify);
}

/* All completions that there are have been told of. */
static void mark_told(struct ropcie_cq *cq)
{
	if (cq->shared)
		ropcie_uring_told(&cq->uring);
	else
		cq->told = cq->head;
}

/* Tell the consumer of what was held back. Under the lock. */
static void tell(struct ropcie_cq *cq)
{
	ropcie_event_told(&cq->policy);
	mark_told(cq);
	notify(cq, ROPCIE_CQ_COMPLETED);
	/* When it is running it finds nothing held back. */
	hrtimer_try_to_cancel(&cq->look);
}

static enum hrtimer_restart look(struct hrtimer *timer)
{
	struct ropcie_cq *cq = container_of(timer, struct ropcie_cq, look);
	enum hrtimer_restart again = HRTIMER_NORESTART;
	unsigned long flags;
	u32 delay;

	spin_lock_irqsave(&cq->lock, flags);
	/* What came meanwhile may have been told, and more be held back again. */
	if (ropcie_event_holds(&cq->policy) && !hrtimer_is_queued(timer)) {
		delay = ropcie_event_look(&cq->policy);
		if (delay) {
			hrtimer_forward_now(timer, ns_to_ktime(delay));
			again = HRTIMER_RESTART;
		} else {
			tell(cq);
		}
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return again;
}

/* A ring for @limit completions: shared, or in kernel memory. */
static int create_ring(struct ropcie_cq *cq, u32 limit, bool mapped,
		       struct ib_udata *udata)
{
	struct ropcie_uring_want want = {
		.ring = &cq->uring,
		.size = limit,
		.stride = sizeof(struct ropcie_abi_cqe),
	};
	unsigned int noio;

	cq->limit = limit;
	cq->size = roundup_pow_of_two(limit);
	if (mapped) {
		struct ropcie_shared *shared;

		shared = ropcie_map_queue(udata, NULL, &want, 1);
		if (IS_ERR(shared))
			return PTR_ERR(shared);
		cq->shared = shared;
		/* Nobody has asked for an event yet. */
		ropcie_uring_want_call(&cq->uring, false);
		return 0;
	}
	/*
	 * Not under cq->resize from a disk: to bring that back its driver may destroy a
	 * queue pair, which takes the lock.
	 */
	noio = memalloc_noio_save();
	cq->ring = kvcalloc(cq->size, sizeof(*cq->ring), ROPCIE_GFP_USER);
	memalloc_noio_restore(noio);
	return cq->ring ? 0 : -ENOMEM;
}

static void destroy_ring(struct ropcie_cq *cq)
{
	kvfree(cq->ring);
	ropcie_shared_put(cq->shared);
}

int ropcie_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		     struct ropcie_cq_arg *arg)
{
	struct ropcie_dev *dev = to_rdev(ibcq->device);
	int mapped = ropcie_wants_mapped(ropcie_cq_udata(arg));
	struct ropcie_cq *cq = to_rcq(ibcq);
	int ret;

	if (mapped < 0)
		return mapped;
	/* Kernel users read no time stamps. */
	if (attr->flags & ~(mapped ? IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION :
				     0))
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > ROPCIE_MAX_CQE)
		return -EINVAL;
	if (!atomic_add_unless(&dev->num_cqs, 1, ROPCIE_MAX_CQ))
		return -ENOMEM;
	ret = create_ring(cq, attr->cqe, mapped, ropcie_cq_udata(arg));
	if (ret) {
		atomic_dec(&dev->num_cqs);
		return ret;
	}
	mutex_init(&cq->resize);
	spin_lock_init(&cq->lock);
	/* What the kernel's users do with an event, they do for many completions. */
	ropcie_event_init(&cq->policy, adaptive_events && ropcie_cq_udata(arg));
	hrtimer_init(&cq->look, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	cq->look.function = look;
	tasklet_setup(&cq->notify, cq_notify);
	cq->timestamps = attr->flags & IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
	ibcq->cqe = attr->cqe;
	return 0;
}

u32 ropcie_cq_used(const struct ropcie_cq *cq)
{
	return cq->shared ? ropcie_uring_used(&cq->uring) : cq->head - cq->tail;
}

static void swap_rings(struct ropcie_cq *one, struct ropcie_cq *other)
{
	swap(one->ring, other->ring);
	swap(one->shared, other->shared);
	swap(one->uring, other->uring);
	swap(one->size, other->size);
	swap(one->limit, other->limit);
}

static u32 cq_end(const struct ropcie_cq *cq)
{
	return cq->shared ? cq->uring.next : cq->head;
}

/* Positions stay: they are looked at without the lock, and by the process. */
static void copy_completions(struct ropcie_cq *to, const struct ropcie_cq *from,
			     u32 first, u32 end)
{
	u32 i;

	for (i = first; i != end; i++) {
		/* Only with a later one in the place of one that was polled. */
		data_race(from->shared ?
			  memcpy(ropcie_uring_at(&to->uring, i),
				 ropcie_uring_at(&from->uring, i),
				 to->uring.stride) :
			  memcpy(&to->ring[i & (to->size - 1)],
				 &from->ring[i & (from->size - 1)],
				 sizeof(*to->ring)));
	}
}

/* Before @to takes the place of @from, which has @num completions in it. */
static void move_words(struct ropcie_cq *to, const struct ropcie_cq *from,
		       u32 num)
{
	const struct ropcie_abi_ring *old = from->uring.ctl;
	struct ropcie_abi_ring *ctl = to->uring.ctl;

	if (!from->shared)
		return;
	to->uring.next = from->uring.next;
	WRITE_ONCE(ctl->wake, READ_ONCE(old->wake));
	WRITE_ONCE(ctl->told, READ_ONCE(old->told));
	WRITE_ONCE(ctl->tail, to->uring.next - num);
	/* As in ropcie_uring_publish(). */
	smp_store_release(&ctl->head, to->uring.next);
}

/* Take over all that @cq has into the ring of @new, most of it without the lock. */
static int move_completions(struct ropcie_cq *cq, struct ropcie_cq *new)
{
	u32 first, end, num, pass = 0;
	unsigned long flags;
	int ret = -EINVAL;

	spin_lock_irqsave(&cq->lock, flags);
	num = ropcie_cq_used(cq); /* once: the process may change it */
	end = cq_end(cq);
	first = end - num;
	while (end - first > ROPCIE_MOVE_MOST && num <= new->limit &&
	       pass++ < ROPCIE_MOVE_PASSES) {
		spin_unlock_irqrestore(&cq->lock, flags);
		copy_completions(new, cq, first, end);
		cond_resched();
		first = end;
		spin_lock_irqsave(&cq->lock, flags);
		num = ropcie_cq_used(cq);
		end = cq_end(cq);
		/* Polled as a whole. */
		if (end - first > num)
			first = end - num;
	}
	if (num <= new->limit) {
		copy_completions(new, cq, first, end);
		move_words(new, cq, num);
		swap_rings(cq, new);
		ret = 0;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return ret;
}

int ropcie_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata)
{
	struct ropcie_cq *cq = to_rcq(ibcq), new = {};
	int ret;

	if (ropcie_udata_unknown(udata))
		return -EOPNOTSUPP;
	if (cqe <= 0 || cqe > ROPCIE_MAX_CQE ||
	    (cq->shared &&
	     udata->outlen < sizeof(struct ropcie_abi_create_queue_resp)))
		return -EINVAL;
	mutex_lock(&cq->resize);
	ret = create_ring(&new, cqe + cq->reserved, cq->shared, udata);
	if (ret)
		goto unlock;
	ret = move_completions(cq, &new);
	if (!ret) {
		ibcq->cqe = cqe;
		/* To a process that will not get the answer it is lost. */
		ropcie_uring_end(&new.uring);
	}
	destroy_ring(&new);
unlock:
	mutex_unlock(&cq->resize);
	return ret;
}

int ropcie_cq_reserve(struct ib_cq *ibcq, u32 num)
{
	struct ropcie_cq *cq = to_rcq(ibcq), new = {};
	unsigned long flags;
	int ret = 0;
	u32 limit;

	if (!ibcq || ibcq->uobject)
		return 0;
	mutex_lock(&cq->resize);
	limit = ibcq->cqe + cq->reserved + num;
	if (limit > cq->size) {
		ret = create_ring(&new, limit, false, NULL);
		if (!ret)
			ret = move_completions(cq, &new);
		destroy_ring(&new);
	} else if (limit > cq->limit) {
		spin_lock_irqsave(&cq->lock, flags);
		cq->limit = limit;
		spin_unlock_irqrestore(&cq->lock, flags);
	}
	if (!ret)
		cq->reserved += num;
	mutex_unlock(&cq->resize);
	return ret;
}

void ropcie_cq_unreserve(struct ib_cq *ibcq, u32 num)
{
	struct ropcie_cq *cq = to_rcq(ibcq);

	if (!ibcq || ibcq->uobject)
		return;
	mutex_lock(&cq->resize);
	cq->reserved -= num;
	mutex_unlock(&cq->resize);
}

/*
 * Before ib_free_cq() cancels the work that the handler may queue. That work may
 * still ask for events, and rdma_dim moderate them.
 */
int ropcie_pre_destroy_cq(struct ib_cq *ibcq)
{
	struct ropcie_cq *cq = to_rcq(ibcq);
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	cq->ends = true;
	spin_unlock_irqrestore(&cq->lock, flags);
	hrtimer_cancel(&cq->look);
	tasklet_kill(&cq->notify);
	return 0;
}

int ropcie_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct ropcie_cq *cq = to_rcq(ibcq), none = {};
	unsigned long flags;

	ropcie_pre_destroy_cq(ibcq);
	/* Older kernels let netlink look at it until this has returned. */
	spin_lock_irqsave(&cq->lock, flags);
	swap_rings(cq, &none);
	cq->tail = cq->head;
	spin_unlock_irqrestore(&cq->lock, flags);
	ropcie_uring_end(&none.uring);
	destroy_ring(&none);
	atomic_dec(&to_rdev(ibcq->device)->num_cqs);
	return 0;
}

/* In the form that a process reads. */
static void put_shared(struct ropcie_cq *cq, const struct ib_wc *wc)
{
	struct ropcie_abi_cqe *cqe = ropcie_uring_at(&cq->uring, cq->uring.next);
	u32 flags = 0;

	if (wc->wc_flags & IB_WC_GRH)
		flags |= ROPCIE_ABI_WC_GRH;
	if (wc->wc_flags & IB_WC_WITH_IMM)
		flags |= ROPCIE_ABI_WC_IMM;
	if (wc->wc_flags & IB_WC_WITH_INVALIDATE)
		flags |= ROPCIE_ABI_WC_INV;
	*cqe = (struct ropcie_abi_cqe){
		.wr_id = wc->wr_id,
		.timestamp = cq->timestamps ? ktime_get_ns() : 0,
		.status = wc->status,
		.opcode = wc->opcode,
		.byte_len = wc->byte_len,
		.imm = wc->ex.invalidate_rkey,
		.qp_num = wc->qp->qp_num,
		.src_qp = wc->src_qp,
		.flags = flags,
	};
	ropcie_uring_publish(&cq->uring);
}

/* Of the consumer's requests, a completion takes all (IBTA 11.4.2.2). */
static bool wants_event(struct ropcie_cq *cq, bool solicited)
{
	if (cq->shared)
		return ropcie_uring_wants_event(&cq->uring, solicited);
	if (!(cq->armed & IB_CQ_NEXT_COMP) &&
	    !((cq->armed & IB_CQ_SOLICITED) && solicited))
		return false;
	cq->armed = 0;
	cq->told = cq->head;
	return true;
}

/* Now, or with those that come behind it. */
static void tell_of_first(struct ropcie_cq *cq)
{
	u32 delay = ropcie_event_first(&cq->policy);

	if (delay && !cq->ends)
		hrtimer_start(&cq->look, ns_to_ktime(delay), HRTIMER_MODE_REL);
	else
		notify(cq, ROPCIE_CQ_COMPLETED);
}

bool ropcie_cq_add(struct ropcie_cq *cq, const struct ib_wc *wc,
		   bool solicited)
{
	unsigned long flags;
	bool room;

	spin_lock_irqsave(&cq->lock, flags);
	/* A process may say that it has taken what there never was. */
	room = !cq->overflow && ropcie_cq_used(cq) < cq->limit;
	if (!room) {
		if (!cq->overflow)
			notify(cq, ROPCIE_CQ_FAILED);
		cq->overflow = true;
	} else if (cq->shared) {
		put_shared(cq, wc);
	} else {
		cq->ring[cq->head & (cq->size - 1)] = *wc;
		WRITE_ONCE(cq->head, cq->head + 1);
	}
	if (ropcie_event_holds(&cq->policy)) {
		if (ropcie_event_more(&cq->policy,
				      2 * ropcie_cq_used(cq) >= cq->limit))
			tell(cq);
	} else if (wants_event(cq, solicited)) {
		tell_of_first(cq);
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return room;
}

void ropcie_cq_hurry(struct ropcie_cq *cq)
{
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	if (ropcie_event_holds(&cq->policy))
		tell(cq);
	spin_unlock_irqrestore(&cq->lock, flags);
}

int ropcie_modify_cq(struct ib_cq *ibcq, u16 count, u16 period_us)
{
	struct ropcie_cq *cq = to_rcq(ibcq);
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	if (ropcie_event_holds(&cq->policy))
		tell(cq);
	ropcie_event_set(&cq->policy, count, period_us * NSEC_PER_USEC);
	spin_unlock_irqrestore(&cq->lock, flags);
	return 0;
}

/*
 * Moves what stays towards the tail, and the gap behind that towards the head.
 * Return: there is more behind the gap.
 */
static bool forget_some(struct ropcie_cq *cq, const struct ib_qp *ibqp)
{
	struct ib_wc *wc, *to;
	u32 n;

	/* Polled, and past the gap. */
	if ((s32)(cq->tail - cq->gap) > 0) {
		cq->gap = cq->tail;
		cq->gap_end = cq->tail;
	}
	for (n = 0; n < ROPCIE_MOVE_MOST && cq->gap_end != cq->head; n++) {
		wc = &cq->ring[cq->gap_end++ & (cq->size - 1)];
		if (wc->qp == ibqp)
			continue;
		to = &cq->ring[cq->gap++ & (cq->size - 1)];
		if (to != wc)
			*to = *wc;
	}
	return cq->gap_end != cq->head;
}

void ropcie_cq_forget(struct ropcie_cq *cq, const struct ib_qp *ibqp)
{
	unsigned long flags;

	/* The process does that for itself. */
	if (cq->shared)
		return;
	mutex_lock(&cq->resize);
	spin_lock_irqsave(&cq->lock, flags);
	cq->gap = cq->tail;
	cq->gap_end = cq->tail;
	while (forget_some(cq, ibqp)) {
		spin_unlock_irqrestore(&cq->lock, flags);
		cond_resched();
		spin_lock_irqsave(&cq->lock, flags);
	}
	WRITE_ONCE(cq->head, cq->gap);
	cq->gap_end = cq->gap;
	/* @told may be ahead of that; it is no position that is to come. */
	cq->told = cq->tail - 1;
	spin_unlock_irqrestore(&cq->lock, flags);
	mutex_unlock(&cq->resize);
}

static int cq_take(struct ropcie_cq *cq, int num, struct ib_wc *wc)
{
	unsigned long flags;
	int n = 0;

	/* Nothing can be left then. */
	if (READ_ONCE(cq->head) == READ_ONCE(cq->tail))
		return 0;
	spin_lock_irqsave(&cq->lock, flags);
	for (;;) {
		if (cq->tail == cq->gap)
			WRITE_ONCE(cq->tail, cq->gap_end);
		if (n == num || cq->tail == cq->head)
			break;
		wc[n++] = cq->ring[cq->tail & (cq->size - 1)];
		WRITE_ONCE(cq->tail, cq->tail + 1);
	}
	cq->left = cq->tail != cq->head;
	spin_unlock_irqrestore(&cq->lock, flags);
	return n;
}

int ropcie_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct ropcie_cq *cq = to_rcq(ibcq);
	int n = cq_take(cq, num, wc);

	bool more;

	if (n || !ropcie_may_run())
		return n;
	more = ropcie_adapter_poll(to_rdev(ibcq->device)->adapter);
	if (in_task())
		more |= ropcie_work_help(cq);
	return more ? cq_take(cq, num, wc) : 0;
}

/*
 * Whoever asks for an event, takes some of the completions and waits would wait for
 * ever when no other comes (perftest with -e and many queue pairs does): what the
 * last poll has left, or no event has told of, raises it at once. A process with a
 * ring of its own calls for that. Return: there are completions already.
 */
static bool arm(struct ropcie_cq *cq, enum ib_cq_notify_flags flags)
{
	unsigned long irq;
	bool missed;

	spin_lock_irqsave(&cq->lock, irq);
	/*
	 * Some ask for both, which is for all; and a request for all is not
	 * weakened (IBTA 11.4.2.2).
	 */
	if (!cq->shared)
		cq->armed |= flags & IB_CQ_SOLICITED_MASK;
	missed = ropcie_cq_used(cq);
	if (missed && (cq->shared || cq->left || cq->told != cq->head) &&
	    !(flags & IB_CQ_REPORT_MISSED_EVENTS) && wants_event(cq, false)) {
		if (ropcie_event_holds(&cq->policy))
			tell(cq);
		else
			notify(cq, ROPCIE_CQ_COMPLETED);
	}
	spin_unlock_irqrestore(&cq->lock, irq);
	return missed;
}

int ropcie_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct ropcie_cq *cq = to_rcq(ibcq);
	bool missed = arm(cq, flags);

	if (ropcie_may_run())
		ropcie_adapter_arm(to_rdev(ibcq->device)->adapter);
	return missed && (flags & IB_CQ_REPORT_MISSED_EVENTS);
}
