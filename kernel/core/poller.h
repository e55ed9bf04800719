/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who polls may take a lane over from its own receiver, as long as he comes back for
 * what arrives. Who leaves records lying, or comes late for them again and again, has
 * others wait: then the lane is its receiver's for a while, and each time twice as
 * long, until a poller is seen to come in time.
 */
#ifndef ROPCIE_CORE_POLLER_H
#define ROPCIE_CORE_POLLER_H

#include "port.h"

/*
 * How often it is looked whether records still lie there. A virtual machine that its
 * host has stopped finds them all late: the poller gets more than one chance.
 */
#define ROPCIE_POLLER_LOOKS 4
/* So long a lane is not taken over: many times what its being left cost. */
#define ROPCIE_POLLER_OWN_NS 500000000ULL
#define ROPCIE_POLLER_OWN_MAX_NS (16 * ROPCIE_POLLER_OWN_NS)

/**
 * struct ropcie_poller - what is known of who polls a lane
 * @own_until: ns; nobody takes it over before
 * @own_for: ns; how long the next time
 * @late: how often in a row records were come for late
 */
struct ropcie_poller {
	u64 own_until;
	u64 own_for;
	u32 late;
};

/**
 * ropcie_poller_init() - nothing known yet
 * @p: poller
 * @now: ns, monotonic; coarse will do
 */
static inline void ropcie_poller_init(struct ropcie_poller *p, u64 now)
{
	p->own_until = now;
	p->own_for = ROPCIE_POLLER_OWN_NS;
	p->late = 0;
}

/* May the lane be taken over? */
static inline bool ropcie_poller_may_take(const struct ropcie_poller *p,
					  u64 now)
{
	return now >= p->own_until;
}

/**
 * ropcie_poller_watched() - records of a lane that was taken over have been watched
 * @p: poller
 * @looks: how often it was looked until they were gone; 0 when they still lie there
 *	after ROPCIE_POLLER_LOOKS
 * @now: ns, monotonic; coarse will do
 *
 * Return: true when the lane is its receiver's again.
 */
static inline bool ropcie_poller_watched(struct ropcie_poller *p, u32 looks,
					 u64 now)
{
	if (looks == 1) {
		p->late = 0;
		p->own_for = ROPCIE_POLLER_OWN_NS;
		return false;
	}
	if (looks && ++p->late < ROPCIE_POLLER_LOOKS)
		return false;
	p->late = 0;
	p->own_until = now + p->own_for;
	p->own_for = min_t(u64, 2 * p->own_for, ROPCIE_POLLER_OWN_MAX_NS);
	return true;
}

#endif /* ROPCIE_CORE_POLLER_H */
