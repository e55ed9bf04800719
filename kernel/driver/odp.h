/* SPDX-License-Identifier: GPL-2.0 */
/*
 * On-demand paging: regions of user memory that is not pinned, but brought in
 * when a queue pair needs it, and given up when the kernel wants it.
 */
#ifndef ROPCIE_DRIVER_ODP_H
#define ROPCIE_DRIVER_ODP_H

#include <rdma/ib_umem_odp.h>

#include "ropcie.h"

#ifndef CONFIG_INFINIBAND_ON_DEMAND_PAGING
#error "RoPCIe needs a kernel with CONFIG_INFINIBAND_ON_DEMAND_PAGING"
#endif

/**
 * ropcie_odp_pin() - user memory for a region, brought in on demand
 * @ibdev: device
 * @start: user address
 * @length: bytes
 * @access: IB_ACCESS_*, IB_ACCESS_ON_DEMAND among them
 *
 * Context: process, that of the memory.
 * Return: the memory with one reference, none of it there yet, or an ERR_PTR.
 */
struct ropcie_pinned *ropcie_odp_pin(struct ib_device *ibdev, u64 start,
				     u64 length, int access);

/* Gives up pinned->umem, which counts for its process no more. */
void ropcie_odp_release(struct ropcie_pinned *pinned);

/* Is this memory brought in on demand? */
static inline bool ropcie_is_odp(const struct ropcie_pinned *pinned)
{
	return pinned->umem->is_odp;
}

/* Pages are read and written from here on, with bottom halves off. */
static inline void ropcie_odp_use(struct ropcie_pinned *pinned)
{
	atomic_inc(&pinned->users);
	smp_mb__after_atomic(); /* pairs with that of invalidate() */
}

/* Until here. */
static inline void ropcie_odp_used(struct ropcie_pinned *pinned)
{
	smp_mb__before_atomic(); /* pairs with that of invalidate() */
	atomic_dec(&pinned->users);
}

/**
 * ropcie_odp_missing() - a page that a queue pair needs is not there
 * @qp: queue pair; under its lock
 * @side: for whom
 * @mr: region or window, with a reference
 * @addr: the byte that ropcie_mr_map() did not reach
 * @ahead: bytes behind it that will be needed too
 *
 * Return: -EINPROGRESS: it is being brought in, and the queue pair is run then;
 * -EACCES: it can not be.
 */
int ropcie_odp_missing(struct ropcie_qp *qp, enum ropcie_side side,
		       struct ropcie_mr *mr, u64 addr, u64 ahead);

/**
 * ropcie_odp_init_qp() - before the queue pair can meet a region
 * @qp: queue pair
 *
 * Return: 0 or -ENOMEM.
 */
int ropcie_odp_init_qp(struct ropcie_qp *qp);

/**
 * ropcie_odp_reset_qp() - forget what it waits for (to RESET)
 * @qp: queue pair, in RESET; not under its lock
 */
void ropcie_odp_reset_qp(struct ropcie_qp *qp);

/**
 * ropcie_odp_exit_qp() - the queue pair goes, and waits for no memory
 * @qp: queue pair, in RESET
 */
void ropcie_odp_exit_qp(struct ropcie_qp *qp);

/* ib_device_ops.advise_mr */
int ropcie_advise_mr(struct ib_pd *ibpd, enum ib_uverbs_advise_mr_advice advice,
		     u32 flags, struct ib_sge *list, u32 num,
		     struct uverbs_attr_bundle *attrs);

/* What a device can do with it. */
void ropcie_odp_caps(struct ib_device_attr *attr);

int ropcie_odp_init(void);
void ropcie_odp_exit(void);

#endif /* ROPCIE_DRIVER_ODP_H */
