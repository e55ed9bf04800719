/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether it pays to wait a little for more of the same before something is done about
 * the first: only a trial can tell. One is made now and then; where it has paid, all
 * wait until several in a row have not; each trial that does not pay puts the next one
 * off for twice as long.
 */
#ifndef ROPCIE_CORE_TRIAL_H
#define ROPCIE_CORE_TRIAL_H

#include "port.h"

/* From one trial to the next: least and most. */
#define ROPCIE_TRIAL_PAUSE 16
#define ROPCIE_TRIAL_MOST_PAUSE 1024
/* Waits in a row that may not pay, where one has. */
#define ROPCIE_TRIAL_CREDIT 4

/**
 * struct ropcie_trial - what is known of it
 * @pause: from one trial to the next
 * @left: of them to the next one
 * @credit: waits that may still not pay before it is given up
 */
struct ropcie_trial {
	u16 pause;
	u16 left;
	u16 credit;
};

static inline void ropcie_trial_init(struct ropcie_trial *t)
{
	t->pause = ROPCIE_TRIAL_PAUSE;
	t->left = ROPCIE_TRIAL_PAUSE;
	t->credit = 0;
}

/* Is this one to wait? Then ropcie_trial_end() follows, if it could. */
static inline bool ropcie_trial_wait(struct ropcie_trial *t)
{
	if (t->left > 1 && !t->credit) {
		t->left--;
		return false;
	}
	return true;
}

/* The wait is over. */
static inline void ropcie_trial_end(struct ropcie_trial *t, bool paid)
{
	if (paid) {
		t->credit = ROPCIE_TRIAL_CREDIT;
		t->pause = ROPCIE_TRIAL_PAUSE;
	} else if (t->credit) {
		t->credit--;
	} else {
		t->pause = min_t(u16, 2 * t->pause, ROPCIE_TRIAL_MOST_PAUSE);
	}
	t->left = t->pause;
}

#endif /* ROPCIE_CORE_TRIAL_H */
