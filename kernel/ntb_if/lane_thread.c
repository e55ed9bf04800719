// SPDX-License-Identifier: GPL-2.0
/*
 * Who receives: a tasklet, which a doorbell starts; two threads for each lane; or
 * the callers of ropcie_adapter_poll(), who take lanes over while they poll.
 *
 * Owns: sleeping and waking. What is received is lane.c's.
 *
 * A lane is in one of four modes. Awake: the thread drains it. Asleep: the peer has been
 * asked for a doorbell (lane->armed); a slow timer stands behind it, because a doorbell
 * may get lost. When it comes, the tasklet receives at once, asks for the next one, and
 * the thread sleeps on, unless there is more to do than a little. Spun
 * (ROPCIE_SPIN_ON): the spinner looks out for records and receives them. It is of the class
 * SCHED_IDLE, so it comes to run when those that were woken by the last records sleep
 * again, and whoever wants its processor gets it; the lane is asleep meanwhile. Polled: a
 * poller has found records, so the peer is
 * told not to ring, and the thread only looks now and then if the polls still go on. A
 * program may poll for its sends and then look at memory that the peer writes: a lane
 * whose records nobody comes for is not taken over again for a while.
 */
#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <uapi/linux/sched/types.h>

#include "internal.h"

/* What a lost doorbell costs at most. */
#define ROPCIE_SAFETY_JIFFIES msecs_to_jiffies(50)
/* How often the thread of a polled lane looks if the polls still go on. */
#define ROPCIE_WATCH_JIFFIES msecs_to_jiffies(2)
/* From one look at the records of a polled lane to the next. */
#define ROPCIE_LOOK_NS (500 * NSEC_PER_USEC)
/* So long the spinner keeps its processor at most from others of its class. */
#define ROPCIE_SPIN_PAUSE_NS NSEC_PER_MSEC
/* So long after an ropcie_adapter_arm() no lane is taken over by pollers. */
#define ROPCIE_SLEEPER_JIFFIES msecs_to_jiffies(20)

static u32 lane_receive(struct ropcie_lane *lane)
{
	u32 n = ropcie_lane_drain(lane);

	if (n)
		ropcie_poll_arrival(&lane->policy, ktime_get_ns());
	return n;
}

static bool lane_has_records(struct ropcie_lane *lane)
{
	bool pending;

	rcu_read_lock();
	pending = ropcie_lane_pending(lane);
	rcu_read_unlock();
	return pending;
}

/* Until when to spin for the next record, ns; in the past if it is not worth that. */
static u64 lane_spins_until(const struct ropcie_lane *lane)
{
	u64 budget = ropcie_poll_budget(&lane->policy);

	lockdep_assert_held(&lane->rx_lock);
	if (!lane->rx_up || READ_ONCE(lane->polled) || !budget)
		return 0;
	return lane->policy.last + budget;
}

/* Who has received goes to sleep: is the spinner to look out for what follows? */
static void lane_want_spin(struct ropcie_lane *lane)
{
	lockdep_assert_held(&lane->rx_lock);
	/* Who is in this kernel rings without an interrupt. */
	if (!lane->spinner || READ_ONCE(lane->peer->twin) ||
	    lane->spin != ROPCIE_SPIN_NONE ||
	    ktime_get_ns() >= lane_spins_until(lane) ||
	    !ropcie_trial_wait(&lane->spins))
		return;
	WRITE_ONCE(lane->spin, ROPCIE_SPIN_WANTED);
	wake_up_process(lane->spinner);
}

/* need_resched() leaves out the wishes that PREEMPT_LAZY (Linux 6.13) lets wait. */
static bool lane_spin_in_the_way(void)
{
#ifdef TIF_NEED_RESCHED_LAZY
	if (test_thread_flag(TIF_NEED_RESCHED_LAZY))
		return true;
#endif
	return need_resched();
}

static u64 lane_begin_spin(struct ropcie_lane *lane, u64 now)
{
	u64 until;

	spin_lock_bh(&lane->rx_lock);
	until = lane_spins_until(lane);
	if (now < until && !lane_spin_in_the_way()) {
		WRITE_ONCE(lane->spin, ROPCIE_SPIN_ON);
		ropcie_lane_refuse_doorbell(lane);
	}
	spin_unlock_bh(&lane->rx_lock);
	return until;
}

/* Records have come. Return: until when to spin on. */
static u64 lane_spin_pays(struct ropcie_lane *lane)
{
	u64 until;

	spin_lock_bh(&lane->rx_lock);
	/* A poller may have been quicker. */
	if (!READ_ONCE(lane->polled) && lane_receive(lane)) {
		ropcie_trial_end(&lane->spins, true);
		lane->spins_paid++;
	}
	until = lane_spins_until(lane);
	spin_unlock_bh(&lane->rx_lock);
	return until;
}

/* Return: the thread has to look. */
static bool lane_end_spin(struct ropcie_lane *lane, u64 start, u64 now)
{
	bool over, mine, more = false;

	spin_lock_bh(&lane->rx_lock);
	mine = lane->rx_up && !READ_ONCE(lane->polled);
	over = now >= lane_spins_until(lane);
	/* Who had no processor to spin on, or was not the first, has learnt nothing. */
	if (mine && over && lane->spin == ROPCIE_SPIN_ON && lane->policy.last < start) {
		ropcie_trial_end(&lane->spins, false);
		lane->spins_unpaid++;
	}
	WRITE_ONCE(lane->spin, over ? ROPCIE_SPIN_NONE : ROPCIE_SPIN_WANTED);
	if (mine) {
		more = ropcie_lane_peek(&lane->rx);
		if (!more && !lane->armed) {
			ropcie_lane_ask_doorbell(lane);
			more = ropcie_lane_peek(&lane->rx);
		}
	}
	spin_unlock_bh(&lane->rx_lock);
	return more;
}

/*
 * As long as nobody else wants the processor. Who gets it may keep it for long, so the
 * peer is asked for a doorbell before.
 */
static void lane_spin(struct ropcie_lane *lane)
{
	u64 start, now, until;

	preempt_disable();
	start = ktime_get_ns();
	now = start;
	until = lane_begin_spin(lane, now);
	while (now < min(until, start + ROPCIE_SPIN_PAUSE_NS) &&
	       !lane_spin_in_the_way() && !READ_ONCE(lane->polled)) {
		cpu_relax();
		if (lane_has_records(lane))
			until = lane_spin_pays(lane);
		now = ktime_get_ns();
	}
	if (lane_end_spin(lane, start, now))
		ropcie_lane_kick(lane);
	preempt_enable();
}

/* Spins, where ropcie_trial_wait() says so, while all others sleep. */
static int lane_spinner(void *arg)
{
	struct ropcie_lane *lane = arg;

	while (!kthread_should_stop()) {
		if (READ_ONCE(lane->spin) != ROPCIE_SPIN_NONE) {
			lane_spin(lane);
			/* Others of the class, and who waits for RCU, want it called. */
			schedule();
			continue;
		}
		set_current_state(TASK_IDLE);
		if (READ_ONCE(lane->spin) == ROPCIE_SPIN_NONE &&
		    !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

/* Do the lane's work once. Return: number of records. */
static u32 lane_service(struct ropcie_lane *lane)
{
	u32 n = 0;

	if (lane_has_records(lane)) {
		spin_lock_bh(&lane->rx_lock);
		n = lane_receive(lane);
		if (n)
			ropcie_lane_refuse_doorbell(lane);
		spin_unlock_bh(&lane->rx_lock);
	}
	ropcie_lane_check_space(lane);
	return n;
}

static bool lane_polls_go_on(const struct ropcie_lane *lane)
{
	return time_before_eq(jiffies,
			      READ_ONCE(lane->peer->adapter->last_poll) +
				      ROPCIE_WATCH_JIFFIES);
}

/* Get ready to sleep. Return: for how long, 0 for not at all. */
static long lane_before_sleep(struct ropcie_lane *lane)
{
	long timeout = ROPCIE_SAFETY_JIFFIES;

	spin_lock_bh(&lane->rx_lock);
	if (!lane->rx_up) {
		timeout = MAX_SCHEDULE_TIMEOUT;
	} else if (READ_ONCE(lane->polled) && lane_polls_go_on(lane)) {
		timeout = ROPCIE_WATCH_JIFFIES;
	} else {
		WRITE_ONCE(lane->polled, false);
		if (!lane->armed && lane->spin != ROPCIE_SPIN_ON)
			ropcie_lane_ask_doorbell(lane);
		lane_want_spin(lane);
		if (ropcie_lane_peek(&lane->rx))
			timeout = 0;
	}
	spin_unlock_bh(&lane->rx_lock);
	return timeout;
}

/* Has somebody called for the thread since it last looked? */
static void lane_take_kick(struct ropcie_lane *lane)
{
	if (!test_and_clear_bit(0, &lane->kicked))
		return;
	/* It was a doorbell, most likely: the peer will not ring again. */
	spin_lock_bh(&lane->rx_lock);
	lane->armed = false;
	spin_unlock_bh(&lane->rx_lock);
}

static void lane_sleep(struct ropcie_lane *lane)
{
	if (!READ_ONCE(lane->kicked)) {
		long timeout = lane_before_sleep(lane);

		if (!timeout)
			return;
		set_current_state(TASK_IDLE);
		if (!READ_ONCE(lane->kicked) && !kthread_should_stop())
			schedule_timeout(timeout);
		__set_current_state(TASK_RUNNING);
	}
	lane_take_kick(lane);
}

/*
 * Records lie in a polled lane: does anybody come for them? A kick ends the wait,
 * and the thread does the work.
 */
static void lane_watch(struct ropcie_lane *lane)
{
	u64 seen = READ_ONCE(lane->rx_records);
	u32 look, looks = 0;

	if (!READ_ONCE(lane->polled) || !lane_has_records(lane))
		return;
	for (look = 1; look <= ROPCIE_POLLER_LOOKS && !looks; look++) {
		ktime_t wait = ns_to_ktime(ROPCIE_LOOK_NS);

		set_current_state(TASK_IDLE);
		if (!READ_ONCE(lane->kicked) && !kthread_should_stop())
			schedule_hrtimeout_range(&wait, ROPCIE_LOOK_NS,
						 HRTIMER_MODE_REL);
		__set_current_state(TASK_RUNNING);
		if (READ_ONCE(lane->kicked) || kthread_should_stop())
			return;
		if (READ_ONCE(lane->rx_records) != seen ||
		    !lane_has_records(lane))
			looks = look;
	}
	spin_lock_bh(&lane->rx_lock);
	if ((looks == 1 || READ_ONCE(lane->polled)) &&
	    ropcie_poller_watched(&lane->poller, looks, ktime_get_coarse_ns()))
		WRITE_ONCE(lane->polled, false);
	spin_unlock_bh(&lane->rx_lock);
}

static int lane_thread(void *arg)
{
	struct ropcie_lane *lane = arg;

	while (!kthread_should_stop()) {
		lane_watch(lane);
		if (lane_service(lane))
			cond_resched();
		else
			lane_sleep(lane);
	}
	return 0;
}

/* Receive on behalf of the sleeping thread. Return: it has to be woken: more has come. */
static bool lane_answer_bell(struct ropcie_lane *lane)
{
	lockdep_assert_held(&lane->rx_lock);
	if (!lane->rx_up)
		return false;
	/* The peer rings once for each time that it is asked. */
	lane->armed = false;
	if (READ_ONCE(lane->polled))
		return false;
	lane_receive(lane);
	if (!lane->rx_up)
		return false;
	if (ropcie_lane_peek(&lane->rx))
		return true;
	if (lane->spin == ROPCIE_SPIN_ON)
		return false;
	ropcie_lane_ask_doorbell(lane);
	lane_want_spin(lane);
	return ropcie_lane_peek(&lane->rx);
}

static void lane_bell(struct tasklet_struct *t)
{
	struct ropcie_lane *lane = from_tasklet(lane, t, bell);
	bool wake = true;

	rcu_read_lock();
	if (!READ_ONCE(lane->peer->adapter->running))
		goto out;
	if (spin_trylock(&lane->rx_lock)) {
		wake = lane_answer_bell(lane);
		spin_unlock(&lane->rx_lock);
	}
	if (wake)
		ropcie_lane_kick(lane);
	ropcie_lane_check_space(lane);
out:
	rcu_read_unlock();
}

/**
 * ropcie_lane_start_threads() - make the receivers of a lane
 * @lane: lane that is down
 *
 * Return: 0, or an error: ropcie_lane_stop_threads() is due all the same. May sleep.
 */
int ropcie_lane_start_threads(struct ropcie_lane *lane)
{
	struct ropcie_peer *peer = lane->peer;
	const struct sched_attr idle = {
		.size = sizeof(idle),
		.sched_policy = SCHED_IDLE,
	};
	struct task_struct *t;
	int ret;

	ropcie_poll_init(&lane->policy, ropcie_spin_limit_ns(),
			 ropcie_wake_ns());
	ropcie_trial_init(&lane->spins);
	lane->spin = ROPCIE_SPIN_NONE;
	lane->kicked = 0;
	ropcie_poller_init(&lane->poller, ktime_get_coarse_ns());
	tasklet_setup(&lane->bell, lane_bell);
	t = kthread_create(lane_thread, lane, "ropcie-%s/%u.%u",
			   peer->self ? "self" : "rx", peer->index,
			   lane->index);
	if (IS_ERR(t))
		return PTR_ERR(t);
	lane->thread = t;
	wake_up_process(t);
	/* The locks of PREEMPT_RT sleep, which nobody may who keeps the processor. */
	if (peer->self || !ropcie_spin_limit_ns() ||
	    IS_ENABLED(CONFIG_PREEMPT_RT))
		return 0;
	t = kthread_create(lane_spinner, lane, "ropcie-spin/%u.%u", peer->index,
			   lane->index);
	if (IS_ERR(t))
		return PTR_ERR(t);
	lane->spinner = t;
	ret = sched_setattr_nocheck(t, &idle);
	if (!ret)
		wake_up_process(t);
	return ret;
}

/**
 * ropcie_lane_stop_threads() - end the receivers of a lane
 * @lane: lane that is down; may have no threads. The adapter has not been
 *	running for a grace period, so nobody is about to wake it.
 */
void ropcie_lane_stop_threads(struct ropcie_lane *lane)
{
	struct task_struct *t = lane->thread;

	if (!t)
		return;
	tasklet_kill(&lane->bell);
	lane->thread = NULL;
	kthread_stop(t);
	if (!lane->spinner)
		return;
	/* It is to end now, not when nobody else wants its processor. */
	sched_set_normal(lane->spinner, 0);
	kthread_stop(lane->spinner);
	lane->spinner = NULL;
}

/**
 * ropcie_lane_kick() - make the thread look at its lane; any context
 * @lane: lane
 */
void ropcie_lane_kick(struct ropcie_lane *lane)
{
	rcu_read_lock();
	if (READ_ONCE(lane->peer->adapter->running) && lane->thread &&
	    !test_and_set_bit(0, &lane->kicked))
		wake_up_process(lane->thread);
	rcu_read_unlock();
}

/**
 * ropcie_lane_doorbell() - the backend heard a doorbell for this lane
 * @lane: lane, in any state; any context. Late, early, double and spurious
 *	ones do no harm.
 */
void ropcie_lane_doorbell(struct ropcie_lane *lane)
{
	struct ropcie_adapter *a = lane->peer->adapter;

	atomic64_inc(&a->doorbells);
	rcu_read_lock();
	if (READ_ONCE(a->running) && lane->thread)
		tasklet_schedule(&lane->bell);
	rcu_read_unlock();
}

/*
 * Somebody waits for events, or did a moment ago: a program that sleeps for
 * its receives may well poll for its sends in between.
 */
static bool lane_sleepers(const struct ropcie_lane *lane)
{
	return time_before_eq(jiffies,
			      READ_ONCE(lane->peer->adapter->last_arm) +
				      ROPCIE_SLEEPER_JIFFIES);
}

/* A lane that somebody else drains is left to him. */
static u32 lane_try_drain(struct ropcie_lane *lane)
{
	u32 n;

	if (!spin_trylock_bh(&lane->rx_lock))
		return 0;
	n = ropcie_lane_drain(lane);
	if (n && lane->rx_up && !lane_sleepers(lane) &&
	    ropcie_poller_may_take(&lane->poller, ktime_get_coarse_ns())) {
		ropcie_lane_refuse_doorbell(lane);
		/* The thread has to watch from now on if the polls go on. */
		if (!READ_ONCE(lane->polled))
			ropcie_lane_kick(lane);
		WRITE_ONCE(lane->polled, true);
	}
	spin_unlock_bh(&lane->rx_lock);
	return n;
}

/**
 * ropcie_lane_poll() - drain in the caller's context, if it is nobody's job
 * @lane: lane; under RCU, no lock is held
 *
 * Return: number of records.
 */
int ropcie_lane_poll(struct ropcie_lane *lane)
{
	u32 n = 0;

	if (ropcie_lane_pending(lane))
		n = lane_try_drain(lane);
	ropcie_lane_check_space(lane);
	return n;
}

/**
 * ropcie_lane_unpoll() - the poller goes to sleep: doorbells again
 * @lane: lane; under RCU, no lock is held
 */
void ropcie_lane_unpoll(struct ropcie_lane *lane)
{
	bool pending = true;

	if (!READ_ONCE(lane->polled))
		return;
	WRITE_ONCE(lane->polled, false);
	if (spin_trylock_bh(&lane->rx_lock)) {
		/* A poll may have taken it in the meantime: nobody watches who asks. */
		WRITE_ONCE(lane->polled, false);
		if (lane->rx_up && !lane->armed)
			ropcie_lane_ask_doorbell(lane);
		pending = lane->rx_up && ropcie_lane_peek(&lane->rx);
		spin_unlock_bh(&lane->rx_lock);
	}
	if (pending)
		ropcie_lane_kick(lane);
}
