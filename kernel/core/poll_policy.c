// SPDX-License-Identifier: GPL-2.0
#include "poll_policy.h"

void ropcie_poll_init(struct ropcie_poll_policy *p, u64 max_ns, u64 wake_ns)
{
	memset(p, 0, sizeof(*p));
	p->max_ns = max_ns;
	p->wake_ns = wake_ns;
}

void ropcie_poll_arrival(struct ropcie_poll_policy *p, u64 now)
{
	/* A clock that steps back is taken for one that stands still. */
	u64 gap = now > p->last ? now - p->last : 0;

	gap = min_t(u64, gap, 4 * p->wake_ns);
	if (p->known == 1)
		p->gap_ns = gap;
	else if (p->known == 2)
		p->gap_ns = p->gap_ns - p->gap_ns / 8 + gap / 8;
	if (p->known < 2)
		p->known++;
	p->last = now;
}

u64 ropcie_poll_budget(const struct ropcie_poll_policy *p)
{
	u64 budget = p->wake_ns;

	if (p->known == 2) {
		if (p->gap_ns > p->wake_ns)
			return 0;
		budget = max_t(u64, 2 * p->gap_ns, p->wake_ns / 4);
	}
	return min_t(u64, budget, p->max_ns);
}
