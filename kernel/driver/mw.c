// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows (IBTA 10.6.7.2): a window has a place in the table of regions, and
 * when it is bound, the pages of a part of a region. One of type 1 can be bound
 * again, or to nothing; one of type 2B belongs to the queue pair that bound it, is
 * invalidated by work requests and only then bound again.
 */
#include <linux/slab.h>

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

/* It shows nothing any more when this returns. */
static void unbind(struct ropcie_dev *dev, struct ropcie_mr *mr)
{
	spin_lock_bh(&dev->mr_lock);
	WRITE_ONCE(mr->core.invalid, true);
	spin_unlock_bh(&dev->mr_lock);
	ropcie_mr_wait_invalid(dev, mr);
}

int ropcie_dealloc_mw(struct ib_mw *ibmw)
{
	struct ropcie_dev *dev = to_rdev(ibmw->device);
	struct ropcie_mr *mr = to_rmw(ibmw)->mr;

	/* A bind that is under way finds it no more, or is undone. */
	ropcie_mr_unpublish(dev, mr);
	spin_lock_bh(&dev->mr_lock);
	if (mr->shows)
		mr->shows->windows--;
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

/* Under dev->mr_lock; nobody uses the window. */
static bool bind(struct ropcie_qp *qp, struct ropcie_mr *window,
		 const struct ropcie_send_wqe *wqe)
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
		.qpn = window->core.dynamic ? qp->ibqp.qp_num : 0,
	};
	struct ropcie_mr_core *core;
	struct ropcie_mr *mr;
	void **before;

	core = ropcie_mr_find(&qp->dev->mrs, wqe->imm);
	if (!core || ropcie_mr_bind(core, &want, &fast) ||
	    ropcie_mr_fast_register(&window->core, &fast, &before))
		return false;
	mr = container_of(core, struct ropcie_mr, core);
	mr->windows++;
	window->shows = mr;
	return true;
}

bool ropcie_mw_bind(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe)
{
	struct ropcie_dev *dev = qp->dev;
	struct ropcie_mr *window;
	bool ok = false, again;

	if (wqe->access & ~(u32)(ROPCIE_MR_ACCESS | IB_ZERO_BASED))
		return false;
	rcu_read_lock(); /* a window that is deallocated meanwhile */
	spin_lock_bh(&dev->mr_lock);
	window = find_window(qp, wqe->rkey);
	again = window && !window->core.dynamic;
	spin_unlock_bh(&dev->mr_lock);
	if (again) {
		unbind(dev, window);
		ok = !wqe->swap;
	}
	if (!ok) {
		spin_lock_bh(&dev->mr_lock);
		ok = window && find_window(qp, wqe->rkey) == window &&
		     bind(qp, window, wqe);
		spin_unlock_bh(&dev->mr_lock);
	}
	rcu_read_unlock();
	return ok;
}
