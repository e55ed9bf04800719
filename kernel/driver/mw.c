// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows (IBTA 10.6.7.2): a window has a place in the table of regions, and
 * when it is bound, the pages of a part of a region. One of type 1 can be bound
 * again, or to nothing; one of type 2B belongs to the queue pair that bound it, is
 * invalidated by its work requests, or its end, and only then bound again.
 *
 * Whether a window is valid, what it shows and who uses it change together, under
 * dev->mr_lock: ropcie_mr_unused().
 */
#include <linux/slab.h>

#include "memory.h"
#include "ropcie.h"

static struct ropcie_mw *to_rmw(struct ib_mw *ibmw)
{
	return container_of(ibmw, struct ropcie_mw, ibmw);
}

int ropcie_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct ropcie_mr *mr;
	int ret;

	if (ropcie_udata_unknown(udata))
		return -EOPNOTSUPP;
	if (ibmw->type != IB_MW_TYPE_1 && ibmw->type != IB_MW_TYPE_2)
		return -EINVAL;
	mr = ropcie_mr_alloc(ibmw->pd, 0);
	if (!mr)
		return -ENOMEM;
	mr->core.window = true;
	mr->core.invalid = true;
	/* Work requests invalidate it. */
	mr->core.dynamic = ibmw->type == IB_MW_TYPE_2;
	ret = ropcie_mr_publish(to_rdev(ibmw->device), mr);
	if (ret) {
		kfree(mr);
		return ret;
	}
	to_rmw(ibmw)->mr = mr;
	ibmw->rkey = mr->core.key;
	return 0;
}

int ropcie_dealloc_mw(struct ib_mw *ibmw)
{
	struct ropcie_dev *dev = to_rdev(ibmw->device);
	struct ropcie_mr *mr = to_rmw(ibmw)->mr;

	/* Nobody finds or uses it any more then. */
	ropcie_mr_unpublish(dev, mr);
	spin_lock_bh(&dev->mr_lock);
	if (mr->shows)
		mr->shows->windows--;
	list_del_init(&mr->of_qp);
	spin_unlock_bh(&dev->mr_lock);
	kfree_rcu(mr, rcu);
	return 0;
}

/* The window with this key, whatever the key's tag; under dev->mr_lock. */
static struct ropcie_mr *find_window(struct ropcie_qp *qp, u32 key)
{
	struct ropcie_mr_core *core = ropcie_mr_find_index(&qp->dev->mrs, key);

	return core && core->window && core->pd == to_rpd(qp->ibqp.pd)->num ?
		       container_of(core, struct ropcie_mr, core) : NULL;
}

/* A bind fails that has taken away what the window showed: it shows nothing then. */
static int leave_unbound(struct ropcie_mr *window)
{
	return window->core.invalid && !ropcie_mr_unused(window) ? -EAGAIN :
								   -EINVAL;
}

/*
 * What is asked for is checked before the window loses what it shows; and again
 * (@again) when somebody had used the window still, as the region may have gone
 * meanwhile. Under dev->mr_lock. Return: -EAGAIN: when nobody uses it any more.
 */
static int bind(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe,
		bool again)
{
	struct ropcie_mw_attr want = {
		.addr = wqe->raddr,
		.length = wqe->swap,
		.access = wqe->access & ROPCIE_MR_ACCESS,
		.zero_based = wqe->access & IB_ZERO_BASED,
	};
	struct ropcie_mr_fast fast = {
		.key = wqe->rkey,
		.pd = to_rpd(qp->ibqp.pd)->num,
	};
	struct ropcie_mr *window = find_window(qp, wqe->rkey);
	struct ropcie_mr_core *core;
	struct ropcie_mr *mr;
	bool type_2;
	void **before;

	if (!window)
		return -EINVAL;
	type_2 = window->core.dynamic;
	/* IBTA o10-36.2.2: zero based is for type 2, which is unbound first. */
	if (type_2 ? !window->core.invalid : want.zero_based)
		return -EINVAL;
	core = ropcie_mr_find(&qp->dev->mrs, wqe->imm);
	if ((want.length || type_2) &&
	    (!core || ropcie_mr_bind(core, &want, &fast)))
		return again ? leave_unbound(window) : -EINVAL;
	WRITE_ONCE(window->core.invalid, true);
	if (!ropcie_mr_unused(window))
		return -EAGAIN;
	if (!want.length)
		return 0;
	fast.qpn = type_2 ? qp->ibqp.qp_num : 0;
	mr = container_of(core, struct ropcie_mr, core);
	/* Whoever finds it valid looks at what it shows. */
	window->shows = mr;
	window->on_demand = mr->on_demand;
	if (ropcie_mr_fast_register(&window->core, &fast, &before)) {
		window->shows = NULL;
		return -EINVAL;
	}
	mr->windows++;
	if (type_2)
		list_add(&window->of_qp, &qp->windows);
	return 0;
}

bool ropcie_mw_bind(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe)
{
	struct ropcie_dev *dev = qp->dev;
	bool again = false;
	int ret;

	if (wqe->access & ~(u32)(ROPCIE_MR_ACCESS | IB_ZERO_BASED |
				 IB_ACCESS_OPTIONAL))
		return false;
	do {
		spin_lock_bh(&dev->mr_lock);
		ret = bind(qp, wqe, again);
		spin_unlock_bh(&dev->mr_lock);
		again = ret == -EAGAIN;
		cpu_relax();
	} while (again);
	return !ret;
}

void ropcie_mw_unbind_all(struct ropcie_qp *qp)
{
	struct ropcie_dev *dev = qp->dev;
	struct ropcie_mr *mr;

	do {
		spin_lock_bh(&dev->mr_lock);
		mr = list_first_entry_or_null(&qp->windows, struct ropcie_mr,
					      of_qp);
		if (mr) {
			WRITE_ONCE(mr->core.invalid, true);
			ropcie_mr_unused(mr);
		}
		spin_unlock_bh(&dev->mr_lock);
		cpu_relax();
	} while (mr);
}
