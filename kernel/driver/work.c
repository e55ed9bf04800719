// SPDX-License-Identifier: GPL-2.0
/*
 * Work consumers: see that queue pairs are run, and when.
 *
 * A queue pair is run by whoever has reason to: the poster, the receiver of an
 * acknowledge, who hands a record over (settle.c), or one of a small pool of kthreads,
 * always under qp->lock. The
 * kthreads take what may not or can not end in the other contexts: posts with
 * interrupts off, what exceeds the poster's budget, timers, full lanes. Whoever
 * polls an empty CQ helps them with its queue pairs (but targets of XRC, which have
 * none), and with all that waits for his processor, instead of keeping it from them.
 */
#include <linux/hash.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "netdev.h"
#include "odp.h"
#include "placement.h"
#include "qp.h"
#include "queues.h"
#include "ropcie.h"

/* Bytes that a consumer sends before it lets others at the QP. */
#define WORKER_BUDGET (64 * 1024)
/* How long a queue pair waits for more to send, and how many are worth it. */
#define AWAIT_NS 5000
#define AWAIT_WORTH 8
/* How many queue pairs of others a poller looks at to find one of its own. */
#define HELP_LOOK 8

/**
 * struct worker - one work consumer
 * @task: its thread
 * @lock: guards @ready
 * @ready: queue pairs to run
 * @late: wakes it for queue pairs that wait for more to send
 */
struct worker {
	struct task_struct *task;
	spinlock_t lock; /* guards ready */
	struct list_head ready;
	struct hrtimer late;
};

static struct worker *workers;
static u32 num_workers;

/* Few lanes share a list: those of others are not looked at. */
static struct list_head *blocked_list(struct ropcie_dev *dev, const struct ropcie_peer *peer,
				      u32 lane)
{
	return &dev->blocked[hash_long((unsigned long)peer + lane, ROPCIE_BLOCKED_BITS)];
}

bool ropcie_qp_block(struct ropcie_qp *qp)
{
	struct ropcie_dev *dev = qp->dev;
	struct list_head *list = blocked_list(dev, qp->tx.peer, qp->tx.lane);
	bool again;

	spin_lock_bh(&dev->blocked_lock);
	/* Datagrams may have turned to another peer since. */
	again = qp->blocked_peer != qp->tx.peer ||
		qp->blocked_lane != qp->tx.lane;
	qp->blocked_peer = qp->tx.peer;
	qp->blocked_lane = qp->tx.lane;
	if (!test_and_set_bit(ROPCIE_QP_BLOCKED, &qp->flags)) {
		refcount_inc(&qp->refs);
		list_add_tail(&qp->blocked, list);
		again = true;
	} else if (again && !list_empty(&qp->blocked)) {
		list_move_tail(&qp->blocked, list);
	}
	spin_unlock_bh(&dev->blocked_lock);
	return again;
}

bool ropcie_qp_is_blocked_by(struct ropcie_qp *qp,
			     const struct ropcie_peer *peer)
{
	bool blocked;

	spin_lock_bh(&qp->dev->blocked_lock);
	blocked = !list_empty(&qp->blocked) && qp->blocked_peer == peer;
	spin_unlock_bh(&qp->dev->blocked_lock);
	return blocked;
}

void ropcie_qp_unblock(struct ropcie_qp *qp)
{
	bool was;

	spin_lock_bh(&qp->dev->blocked_lock);
	was = !list_empty(&qp->blocked);
	list_del_init(&qp->blocked);
	spin_unlock_bh(&qp->dev->blocked_lock);
	if (was) {
		clear_bit(ROPCIE_QP_BLOCKED, &qp->flags);
		ropcie_qp_put(qp);
	}
}

void ropcie_tx_space(void *ctx, struct ropcie_peer *peer, u32 lane)
{
	struct ropcie_dev *dev = ctx;
	struct ropcie_qp *qp, *next;
	LIST_HEAD(list);

	/* Who blocks again meanwhile waits for the next call. */
	spin_lock_bh(&dev->blocked_lock);
	list_for_each_entry_safe(qp, next, blocked_list(dev, peer, lane), blocked)
		if (qp->blocked_peer == peer && qp->blocked_lane == lane)
			list_move_tail(&qp->blocked, &list);
	spin_unlock_bh(&dev->blocked_lock);
	for (;;) {
		spin_lock_bh(&dev->blocked_lock);
		qp = list_first_entry_or_null(&list, struct ropcie_qp, blocked);
		if (qp)
			list_del_init(&qp->blocked);
		spin_unlock_bh(&dev->blocked_lock);
		if (!qp)
			break;
		clear_bit(ROPCIE_QP_BLOCKED, &qp->flags);
		ropcie_qp_schedule(qp);
		ropcie_qp_put(qp);
	}
	if (dev->rdev)
		ropcie_netdev_tx_space(dev->netdev);
}

enum hrtimer_restart ropcie_qp_timer(struct hrtimer *timer)
{
	struct ropcie_qp *qp = container_of(timer, struct ropcie_qp, timer);

	WRITE_ONCE(qp->timer_at, 0);
	ropcie_qp_schedule(qp);
	return HRTIMER_NORESTART;
}

void ropcie_qp_run_at(struct ropcie_qp *qp, u64 when)
{
	u64 at = READ_ONCE(qp->timer_at);

	if (at && at <= when)
		return;
	WRITE_ONCE(qp->timer_at, when);
	hrtimer_start(&qp->timer, ns_to_ktime(when), HRTIMER_MODE_ABS);
}

/*
 * See that somebody looks at the deadline. A timer that fires too early only
 * looks and starts again, so acknowledges need not touch it.
 */
static void arm_timer(struct ropcie_qp *qp)
{
	if (qp->req.deadline)
		ropcie_qp_run_at(qp, qp->req.deadline);
}

static void check_deadline(struct ropcie_qp *qp)
{
	u64 now;

	if (!qp->req.deadline || !ropcie_is_reliable(qp))
		return;
	/* The flush may wait for memory that is lent or granted: that is no time-out. */
	if (!ropcie_qp_requests((enum ropcie_qps)qp->state)) {
		qp->req.deadline = 0;
		return;
	}
	now = ktime_get_ns();
	if (now < qp->req.deadline)
		return;
	/*
	 * An answer has come that has no memory yet: the other end is not late. It is asked
	 * for again, with a deadline, when the memory has come: see odp.c.
	 */
	if (!qp->req.rnr_wait && qp->req.fetches &&
	    qp->paging->sides[ROPCIE_SINK].fetch) {
		qp->req.deadline = 0;
		return;
	}
	if (!qp->req.rnr_wait)
		ropcie_count(qp->counters, ROPCIE_TIMEOUTS, 1);
	ropcie_req_timeout(&qp->req, now, ropcie_mq_delivered(&qp->tx));
}

/* SQD: nothing of what was sent is under way any more (IBTA 10.3.1.5). */
static void check_drained(struct ropcie_qp *qp)
{
	if (qp->state != IB_QPS_SQD || qp->sq_drained ||
	    !ropcie_req_drained(&qp->req))
		return;
	qp->sq_drained = true;
	if (qp->attr.en_sqd_async_notify)
		ropcie_qp_event(qp, IB_EVENT_SQ_DRAINED);
}

bool ropcie_qp_run(struct ropcie_qp *qp, u32 budget)
{
	bool more;

	lockdep_assert_held(&qp->lock);
	if (unlikely(qp->place))
		ropcie_placement_flush(qp);
	if (!qp->connected || qp->state == IB_QPS_RESET)
		return qp->state == IB_QPS_ERR && ropcie_qp_flush(qp);
	more = ropcie_qp_answer(qp, budget);
	ropcie_pull_sends(qp);
	check_deadline(qp);
	ropcie_qp_complete_sends(qp);
	if (ropcie_qp_requests((enum ropcie_qps)qp->state)) {
		more |= ropcie_qp_send(qp, budget);
		ropcie_qp_complete_sends(qp);
	}
	if (qp->state == IB_QPS_ERR)
		more |= ropcie_qp_flush(qp);
	else if (qp->state == IB_QPS_SQE)
		more |= ropcie_qp_flush_sends(qp);
	check_drained(qp);
	arm_timer(qp);
	if (qp->tx.peer)
		ropcie_mq_flush(&qp->tx);
	return ropcie_sends_left(qp) || more;
}

void ropcie_qp_kick(struct ropcie_qp *qp)
{
	bool more;

	/*
	 * Either a consumer that is about to run the QP finds what was posted,
	 * or this finds that none is. Pairs with the barrier in worker_run().
	 */
	smp_mb();
	if (test_bit(ROPCIE_QP_QUEUED, &qp->flags))
		return;
	if (!ropcie_may_run()) {
		ropcie_qp_schedule(qp);
		return;
	}
	spin_lock_bh(&qp->lock);
	more = ropcie_qp_run(qp, ROPCIE_POST_BUDGET);
	ropcie_qp_unlock(qp);
	if (more)
		ropcie_qp_schedule(qp);
}

static struct worker *worker_of(const struct ropcie_qp *qp)
{
	return &workers[qp->ibqp.qp_num % num_workers];
}

/* Return: it was on no list. */
static bool enqueue(struct ropcie_qp *qp, struct worker *w)
{
	unsigned long flags;

	if (test_and_set_bit(ROPCIE_QP_QUEUED, &qp->flags))
		return false;
	refcount_inc(&qp->refs);
	spin_lock_irqsave(&w->lock, flags);
	list_add_tail(&qp->ready, &w->ready);
	spin_unlock_irqrestore(&w->lock, flags);
	return true;
}

void ropcie_qp_schedule(struct ropcie_qp *qp)
{
	struct worker *w = worker_of(qp);

	if (enqueue(qp, w) || test_bit(ROPCIE_QP_DELAYED, &qp->flags))
		wake_up_process(w->task);
}

static enum hrtimer_restart late(struct hrtimer *timer)
{
	wake_up_process(container_of(timer, struct worker, late)->task);
	return HRTIMER_NORESTART;
}

bool ropcie_qp_await_more(struct ropcie_qp *qp)
{
	struct worker *w = worker_of(qp);
	unsigned long flags;
	bool waits;

	if (test_bit(ROPCIE_QP_QUEUED, &qp->flags) ||
	    READ_ONCE(qp->state) != IB_QPS_RTS)
		return false;
	spin_lock_irqsave(&qp->sq_lock, flags);
	waits = ropcie_trial_wait(&qp->sq_trial);
	if (waits) {
		qp->sq_waits_at = ropcie_uring_posted(&qp->sq_uring);
		ropcie_uring_want_call(&qp->sq_uring, false);
		set_bit(ROPCIE_QP_DELAYED, &qp->flags);
	}
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	if (!waits)
		return false;
	/* Of several that wait, the first one's time is everybody's. */
	if (enqueue(qp, w) && !hrtimer_is_queued(&w->late))
		hrtimer_start(&w->late, ns_to_ktime(AWAIT_NS), HRTIMER_MODE_REL);
	return true;
}

/* The wait is over: was it worth it? From here on the process calls again. */
static void end_wait(struct ropcie_qp *qp)
{
	unsigned long flags;
	u32 come;

	if (!test_and_clear_bit(ROPCIE_QP_DELAYED, &qp->flags))
		return;
	spin_lock_irqsave(&qp->sq_lock, flags);
	come = ropcie_uring_posted(&qp->sq_uring) - qp->sq_waits_at;
	ropcie_trial_end(&qp->sq_trial, come >= AWAIT_WORTH);
	ropcie_uring_want_call(&qp->sq_uring, true);
	spin_unlock_irqrestore(&qp->sq_lock, flags);
}

static bool completes_to(const struct ropcie_qp *qp, const struct ropcie_cq *cq)
{
	return qp->ibqp.send_cq == &cq->ibcq || qp->ibqp.recv_cq == &cq->ibcq;
}

/* The first, or the first near the beginning that completes to @cq. */
static struct ropcie_qp *next_ready(struct worker *w, const struct ropcie_cq *cq)
{
	struct ropcie_qp *qp, *found = NULL;
	u32 look = HELP_LOOK;

	spin_lock_irq(&w->lock);
	list_for_each_entry(qp, &w->ready, ready) {
		if (!cq || completes_to(qp, cq)) {
			found = qp;
			list_del_init(&qp->ready);
			break;
		}
		if (!--look)
			break;
	}
	spin_unlock_irq(&w->lock);
	return found;
}

static void worker_run(struct ropcie_qp *qp)
{
	bool more;

	clear_bit(ROPCIE_QP_QUEUED, &qp->flags);
	/* Whoever adds work from here on queues the QP again. */
	smp_mb__after_atomic();
	spin_lock_bh(&qp->lock);
	end_wait(qp);
	more = ropcie_qp_run(qp, WORKER_BUDGET);
	ropcie_qp_unlock(qp);
	if (more)
		ropcie_qp_schedule(qp);
	ropcie_qp_put(qp);
}

bool ropcie_work_help(const struct ropcie_cq *cq)
{
	struct ropcie_qp *qp = NULL;
	u32 i;

	for (i = 0; i < num_workers && !qp; i++) {
		if (list_empty_careful(&workers[i].ready))
			continue;
		/*
		 * A QP that is on no list and still called queued is everybody's
		 * loss: whoever polls may be of any priority, and is not to be
		 * preempted then.
		 */
		local_bh_disable();
		qp = next_ready(&workers[i], cq);
		/* It waits for the processor that the poller has. */
		if (!qp && task_cpu(workers[i].task) == smp_processor_id())
			qp = next_ready(&workers[i], NULL);
		if (qp)
			worker_run(qp);
		local_bh_enable();
	}
	return qp;
}

static int worker_thread(void *arg)
{
	struct worker *w = arg;
	struct ropcie_qp *qp;

	for (;;) {
		set_current_state(TASK_IDLE);
		qp = next_ready(w, NULL);
		if (!qp) {
			if (kthread_should_stop())
				break;
			schedule();
			continue;
		}
		__set_current_state(TASK_RUNNING);
		worker_run(qp);
		cond_resched();
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

void ropcie_work_exit(void)
{
	u32 i;

	for (i = 0; i < num_workers; i++) {
		hrtimer_cancel(&workers[i].late);
		kthread_stop(workers[i].task);
	}
	kfree(workers);
}

int ropcie_work_init(void)
{
	u32 want = min(num_online_cpus(), 4U);

	workers = kcalloc(want, sizeof(*workers), GFP_KERNEL);
	if (!workers)
		return -ENOMEM;
	ropcie_settle_init();
	for (num_workers = 0; num_workers < want; num_workers++) {
		struct worker *w = &workers[num_workers];

		spin_lock_init(&w->lock);
		INIT_LIST_HEAD(&w->ready);
		hrtimer_init(&w->late, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
		w->late.function = late;
		w->task = kthread_run(worker_thread, w, "ropcie_work/%u",
				      num_workers);
		if (IS_ERR(w->task)) {
			int ret = PTR_ERR(w->task);

			ropcie_work_exit();
			return ret;
		}
	}
	return 0;
}
