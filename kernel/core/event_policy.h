/* SPDX-License-Identifier: GPL-2.0 */
/*
 * When a consumer that waits for an event is told of completions: at once, or with
 * those that follow. In a stream an event for each completion costs a wake-up each, and
 * where both ends share a processor a change of process. The consumer may say how many
 * an event waits for and how long (ibv_modify_cq()). Who has not said is told at once,
 * unless it has paid to wait (trial.h): many completions came close behind the first.
 *
 * Knows no clock: the caller looks when it is asked to.
 */
#ifndef ROPCIE_CORE_EVENT_POLICY_H
#define ROPCIE_CORE_EVENT_POLICY_H

#include "trial.h"

/* Of who has not said: an event waits for so long at most, from the first completion. */
#define ROPCIE_EVENT_MOST_NS 100000
/*
 * The first look, and the bounds of those behind it: twice the mean interval, but
 * completions come in bursts, as lanes are drained.
 */
#define ROPCIE_EVENT_LOOK_NS 10000
#define ROPCIE_EVENT_LATE_NS 20000
/* So many completions for one event are worth the wait. */
#define ROPCIE_EVENT_WORTH 8

enum ropcie_event_mode {
	ROPCIE_EVENT_AT_ONCE, /* each completion that is asked for */
	ROPCIE_EVENT_SET, /* by @count and @period_ns */
	ROPCIE_EVENT_ADAPTIVE /* by what has paid */
};

/**
 * struct ropcie_event_policy - of one completion queue
 * @period_ns: SET: an event waits for so long at most
 * @delay_ns: from the last look to the next
 * @waited_ns: from the first completion to the last look
 * @count: SET: completions that an event waits for
 * @held: completions that nobody has been told of; 0: nothing is held back
 * @seen: of them at the last look
 * @trial: ADAPTIVE: whether it pays
 * @mode: enum ropcie_event_mode
 */
struct ropcie_event_policy {
	u32 period_ns;
	u32 delay_ns;
	u32 waited_ns;
	u32 count;
	u32 held;
	u32 seen;
	struct ropcie_trial trial;
	u8 mode;
};

/**
 * ropcie_event_init() - nothing known yet
 * @p: policy
 * @adaptive: or else each completion is told at once
 */
void ropcie_event_init(struct ropcie_event_policy *p, bool adaptive);

/**
 * ropcie_event_set() - the consumer says what events are to wait for
 * @p: policy; nothing is held back
 * @count: completions; 0 or 1: each is told at once
 * @period_ns: or so long; 0: each is told at once
 */
void ropcie_event_set(struct ropcie_event_policy *p, u32 count, u32 period_ns);

/* Is the consumer to be told, but not yet? */
static inline bool ropcie_event_holds(const struct ropcie_event_policy *p)
{
	return p->held;
}

/**
 * ropcie_event_first() - a completion that the consumer is to be told of
 * @p: policy; nothing is held back
 *
 * Return: after how many ns to call ropcie_event_look(); 0: tell it at once.
 */
u32 ropcie_event_first(struct ropcie_event_policy *p);

/**
 * ropcie_event_more() - another completion, while one is held back
 * @p: policy
 * @crowded: the queue fills
 *
 * Return: true when it is time to tell.
 */
static inline bool ropcie_event_more(struct ropcie_event_policy *p, bool crowded)
{
	p->held++;
	return crowded || (p->mode == ROPCIE_EVENT_SET && p->held >= p->count);
}

/**
 * ropcie_event_look() - the time is over, and something is held back
 * @p: policy
 *
 * Return: after how many ns to look again; 0: tell it now.
 */
u32 ropcie_event_look(struct ropcie_event_policy *p);

/**
 * ropcie_event_told() - the consumer is told of what was held back
 * @p: policy
 */
void ropcie_event_told(struct ropcie_event_policy *p);

#endif /* ROPCIE_CORE_EVENT_POLICY_H */
