// SPDX-License-Identifier: GPL-2.0
/*
 * What queue pairs owe when others are done with them: answers, once for a whole
 * batch of records; and to be run again, when a record was handed to them by somebody
 * who held another queue pair's lock.
 *
 * The lists are each processor's: whoever makes a queue pair owe something has
 * bottom halves off until he has called ropcie_settle().
 */
#include "qp.h"
#include "ropcie.h"

/* Queue pairs that one caller serves; the rest is for the consumers. */
#define SETTLE_MOST 8

/**
 * struct debts - those of one processor
 * @list: queue pairs, with a reference
 * @busy: they are being settled
 */
struct debts {
	struct list_head list;
	bool busy;
};

static DEFINE_PER_CPU(struct debts, debts);

void ropcie_owe(struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	lockdep_assert(in_softirq());
	if (!test_and_set_bit(ROPCIE_QP_OWES, &qp->flags)) {
		refcount_inc(&qp->refs);
		qp->owes_to = smp_processor_id();
		list_add_tail(&qp->owes, &this_cpu_ptr(&debts)->list);
	} else if (qp->owes_to != smp_processor_id()) {
		/* That processor may be long in coming to it. */
		ropcie_qp_schedule(qp);
	}
}

/* Under qp->lock. Return: the QP is to be run by a consumer. */
static bool serve(struct ropcie_qp *qp)
{
	bool more;

	if (test_and_clear_bit(ROPCIE_QP_RUNS, &qp->flags))
		return ropcie_qp_run(qp, ROPCIE_RX_BUDGET);
	if (!qp->connected)
		return false;
	more = ropcie_qp_answer(qp, ROPCIE_RX_BUDGET);
	ropcie_mq_flush(&qp->tx);
	return more;
}

static void settle(struct ropcie_qp *qp, bool here)
{
	bool more = true;

	/* Off the list before somebody puts it on one again. */
	smp_mb__before_atomic();
	clear_bit(ROPCIE_QP_OWES, &qp->flags);
	/* What is owed from here on puts the QP on a list again. */
	smp_mb__after_atomic();
	spin_lock(&qp->lock);
	if (here)
		more = serve(qp);
	ropcie_qp_leave(qp);
	if (more)
		ropcie_qp_schedule(qp);
	ropcie_qp_put(qp);
}

void ropcie_settle(void)
{
	struct debts *d = this_cpu_ptr(&debts);
	struct ropcie_qp *qp;
	int served = 0;

	lockdep_assert(in_softirq());
	if (list_empty(&d->list) || d->busy)
		return;
	d->busy = true;
	while (!list_empty(&d->list)) {
		qp = list_first_entry(&d->list, struct ropcie_qp, owes);
		list_del_init(&qp->owes);
		settle(qp, served++ < SETTLE_MOST);
	}
	d->busy = false;
}

void ropcie_settle_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		INIT_LIST_HEAD(&per_cpu_ptr(&debts, cpu)->list);
}
