/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long a receiver spins before it sleeps, by the measured time between arrivals.
 * That nobody else wants its processor is the caller's to see.
 */
#ifndef ROPCIE_CORE_POLL_POLICY_H
#define ROPCIE_CORE_POLL_POLICY_H

#include "port.h"

/**
 * struct ropcie_poll_policy - estimate for one receiver
 * @max_ns: never spin longer; 0 switches spinning off
 * @wake_ns: what a sleep and wake-up costs: longer gaps are not worth a spin
 * @gap_ns: smoothed time between arrivals (1/8 weight for the newest, which
 *	counts for at most 4 * @wake_ns: a pause is a pause, however long)
 * @last: time of the last arrival, ns
 * @known: arrivals seen, up to 2: before the second there is no gap
 */
struct ropcie_poll_policy {
	u64 max_ns;
	u64 wake_ns;
	u64 gap_ns;
	u64 last;
	u8 known;
};

/**
 * ropcie_poll_init() - nothing known yet
 * @p: policy
 * @max_ns: limit of one spin, 0 for never
 * @wake_ns: cost of a wake-up
 */
void ropcie_poll_init(struct ropcie_poll_policy *p, u64 max_ns, u64 wake_ns);

/**
 * ropcie_poll_arrival() - something came
 * @p: policy
 * @now: ns, monotonic
 */
void ropcie_poll_arrival(struct ropcie_poll_policy *p, u64 now);

/**
 * ropcie_poll_budget() - how long to spin from now on
 * @p: policy
 *
 * Twice the smoothed gap, so that an ordinary jitter does not end in a sleep;
 * at least a quarter of a wake-up, because in a burst the gap is near 0 and
 * says nothing of the pause behind it; one wake-up while no gap is known.
 *
 * Return: ns, at most max_ns; 0 when arrivals are so far apart that sleeping
 * is cheaper.
 */
u64 ropcie_poll_budget(const struct ropcie_poll_policy *p);

#endif /* ROPCIE_CORE_POLL_POLICY_H */
