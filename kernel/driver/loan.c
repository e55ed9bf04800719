// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is lent to a DMA engine, which copies a record out of it after the record
 * was sent (ropcie_mq_send_dma()).
 *
 * Owns: which memory may be lent, and that nobody gets it back too early. A region that
 * is lent has a user, so deregistration waits. Work requests whose memory is lent do not
 * complete: an answer to a record that the peer can not have seen is not believed, and
 * a queue pair is flushed, reset and destroyed only when it has no loans.
 *
 * What may be taken away while records are under way is not lent, as that would have to
 * wait: memory on demand, memory of other drivers, and what work requests register.
 * Nor is memory for records that are sent again (the answer to the first ones would be
 * to them as well), or are complete when they are in the lane (unreliable services).
 */
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "memory.h"
#include "odp.h"
#include "qp.h"
#include "ropcie.h"

/**
 * struct loan - what one record borrows
 * @hold: called when it is over
 * @list: in qp->loans
 * @qp: whose request it is, or NULL for an answer
 * @psn: of the request
 * @num: entries of @mr
 * @mr: regions
 */
struct loan {
	struct ropcie_mq_hold hold;
	struct list_head list;
	struct ropcie_qp *qp;
	u32 psn;
	u32 num;
	struct ropcie_mr *mr[];
};

/* Kernel memory has no owner who could wait, but the queue pair does. */
static bool may_lend(const struct ropcie_mr *mr, bool request)
{
	if (mr->pinned)
		return !ropcie_is_odp(mr->pinned);
	return request && !mr->core.pages && !mr->core.window;
}

static struct loan *loan_alloc(struct ropcie_qp *qp, struct ropcie_mr **mr,
			       u32 num)
{
	struct loan *loan;
	u32 i;

	for (i = 0; i < num; i++)
		if (!may_lend(mr[i], qp))
			return NULL;
	loan = kmalloc(struct_size(loan, mr, num), GFP_ATOMIC | __GFP_NOWARN);
	if (!loan)
		return NULL;
	loan->qp = qp;
	loan->num = num;
	memcpy(loan->mr, mr, num * sizeof(*mr));
	return loan;
}

/* Return: somebody waits for the last one, which this was. */
static bool take_off(struct loan *loan)
{
	struct ropcie_qp *qp = loan->qp;
	bool last;

	spin_lock_bh(&qp->loans_lock);
	list_del(&loan->list);
	last = list_empty(&qp->loans) && qp->loans_awaited;
	if (last)
		qp->loans_awaited = false;
	spin_unlock_bh(&qp->loans_lock);
	return last;
}

static void loan_over(struct ropcie_mq_hold *hold)
{
	struct loan *loan = container_of(hold, struct loan, hold);
	struct ropcie_qp *qp = loan->qp;

	while (loan->num)
		ropcie_mr_put(loan->mr[--loan->num]);
	if (qp) {
		if (take_off(loan)) {
			wake_up_var(&qp->loans);
			ropcie_qp_schedule(qp);
		}
		ropcie_qp_put(qp);
	}
	kfree(loan);
}

int ropcie_lend_request(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
			const struct ropcie_vec *vec, u32 nvec,
			struct ropcie_mr **mr, u32 *nmr)
{
	struct loan *loan = NULL;
	int ret;

	lockdep_assert_held(&qp->lock);
	/* What was sent before, even in part, is sent again. */
	if (ropcie_is_reliable(qp) && hdr->psn == qp->req.max_psn && *nmr)
		loan = loan_alloc(qp, mr, *nmr);
	if (!loan)
		return ropcie_mq_send(&qp->tx, hdr, vec, nvec);
	loan->hold.release = loan_over;
	loan->psn = hdr->psn;
	refcount_inc(&qp->refs);
	spin_lock_bh(&qp->loans_lock);
	list_add_tail(&loan->list, &qp->loans);
	spin_unlock_bh(&qp->loans_lock);
	ret = ropcie_mq_send_dma(&qp->tx, hdr, vec, nvec, &loan->hold);
	if (ret) {
		loan->num = 0;
		loan_over(&loan->hold);
	} else {
		*nmr = 0;
	}
	return ret;
}

int ropcie_lend_answer(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
		       const struct ropcie_vec *vec, u32 nvec,
		       struct ropcie_mr **mr)
{
	struct loan *loan = loan_alloc(NULL, mr, 1);
	int ret;

	if (!loan)
		return ropcie_mq_send(&qp->tx, hdr, vec, nvec);
	loan->hold.release = loan_over;
	ret = ropcie_mq_send_dma(&qp->tx, hdr, vec, nvec, &loan->hold);
	if (ret)
		kfree(loan);
	else
		*mr = NULL;
	return ret;
}

bool ropcie_lends_any(struct ropcie_qp *qp)
{
	bool any;

	spin_lock_bh(&qp->loans_lock);
	any = !list_empty(&qp->loans);
	qp->loans_awaited = any;
	spin_unlock_bh(&qp->loans_lock);
	return any;
}

void ropcie_wait_loans(struct ropcie_qp *qp)
{
	wait_var_event(&qp->loans, !ropcie_qp_lends(qp));
}

bool ropcie_is_unseen(struct ropcie_qp *qp, const struct ropcie_hdr *hdr)
{
	struct loan *first;
	bool unseen;

	spin_lock_bh(&qp->loans_lock);
	first = list_first_entry_or_null(&qp->loans, struct loan, list);
	unseen = first && ropcie_psn_diff(hdr->psn, first->psn) >= 0;
	spin_unlock_bh(&qp->loans_lock);
	return unseen;
}
