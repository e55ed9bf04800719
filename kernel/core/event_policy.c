// SPDX-License-Identifier: GPL-2.0
#include "event_policy.h"

void ropcie_event_init(struct ropcie_event_policy *p, bool adaptive)
{
	memset(p, 0, sizeof(*p));
	p->mode = adaptive ? ROPCIE_EVENT_ADAPTIVE : ROPCIE_EVENT_AT_ONCE;
	ropcie_trial_init(&p->trial);
}

void ropcie_event_set(struct ropcie_event_policy *p, u32 count, u32 period_ns)
{
	p->mode = count > 1 && period_ns ? ROPCIE_EVENT_SET :
					   ROPCIE_EVENT_AT_ONCE;
	p->count = count;
	p->period_ns = period_ns;
}

static u32 hold(struct ropcie_event_policy *p, u32 delay_ns)
{
	p->held = 1;
	p->seen = 1;
	p->waited_ns = 0;
	p->delay_ns = delay_ns;
	return delay_ns;
}

u32 ropcie_event_first(struct ropcie_event_policy *p)
{
	if (p->mode == ROPCIE_EVENT_SET)
		return hold(p, p->period_ns);
	if (p->mode != ROPCIE_EVENT_ADAPTIVE || !ropcie_trial_wait(&p->trial))
		return 0;
	return hold(p, ROPCIE_EVENT_LOOK_NS);
}

u32 ropcie_event_look(struct ropcie_event_policy *p)
{
	p->waited_ns += p->delay_ns;
	if (p->mode != ROPCIE_EVENT_ADAPTIVE || p->held == p->seen)
		return 0;
	p->seen = p->held;
	p->delay_ns = 2 * p->waited_ns / p->held;
	p->delay_ns = max_t(u32, p->delay_ns, ROPCIE_EVENT_LOOK_NS);
	p->delay_ns = min_t(u32, p->delay_ns, ROPCIE_EVENT_LATE_NS);
	return p->waited_ns + p->delay_ns <= ROPCIE_EVENT_MOST_NS ?
		       p->delay_ns : 0;
}

void ropcie_event_told(struct ropcie_event_policy *p)
{
	ropcie_trial_end(&p->trial, p->held >= ROPCIE_EVENT_WORTH);
	p->held = 0;
}
