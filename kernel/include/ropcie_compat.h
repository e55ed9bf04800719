/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All differences between kernel versions, hidden behind one name each. The
 * only reader of ropcie_probes.h, which kernel/compat/probe.sh writes for the
 * kernel that is built for. No other file asks for a kernel version.
 */
#ifndef ROPCIE_COMPAT_H
#define ROPCIE_COMPAT_H

#include <rdma/uverbs_ioctl.h>

#include "ropcie_probes.h"

#ifdef ROPCIE_HAVE_LINUX_UNALIGNED_H
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif

/* The driver argument of bus_type.match. */
#ifdef ROPCIE_HAVE_BUS_MATCH_CONST_DRIVER
#define ROPCIE_BUS_MATCH_CONST const
#else
#define ROPCIE_BUS_MATCH_CONST
#endif

/* The device argument of bus_type.uevent. */
#ifdef ROPCIE_HAVE_BUS_UEVENT_CONST_DEVICE
#define ROPCIE_BUS_UEVENT_CONST const
#else
#define ROPCIE_BUS_UEVENT_CONST
#endif

/*
 * Programs can ask for it where the kernel has no name for it yet. Its numbers are
 * those of user space; in the kernel 9 stood for an operation that nobody had.
 */
#ifndef ROPCIE_HAVE_ATOMIC_WRITE
#define IB_WR_ATOMIC_WRITE 15
#define IB_WC_ATOMIC_WRITE ((enum ib_wc_opcode)9)
#define IB_DEVICE_ATOMIC_WRITE BIT_ULL(40)
#endif

/* The last argument of ib_device_ops.reg_user_mr_dmabuf, and its driver data. */
#ifdef ROPCIE_HAVE_REG_DMABUF_ATTRS
#define ropcie_reg_dmabuf_arg uverbs_attr_bundle
#define ropcie_reg_dmabuf_udata(arg) (&(arg)->driver_udata)
#else
#define ropcie_reg_dmabuf_arg ib_udata
#define ropcie_reg_dmabuf_udata(arg) (arg)
#endif

/* Formerly the caller did not hold the reservation, and there was one name. */
#ifndef ROPCIE_HAVE_DMA_BUF_VMAP_UNLOCKED
#define dma_buf_vmap_unlocked dma_buf_vmap
#define dma_buf_vunmap_unlocked dma_buf_vunmap
#endif

/* Where call_rcu() is never lazy. */
#ifndef ROPCIE_HAVE_CALL_RCU_HURRY
#define call_rcu_hurry call_rcu
#endif

/*
 * The last argument of ib_device_ops.create_cq is a struct ropcie_cq_arg *;
 * ropcie_cq_udata() gives the driver-private data of a user's request, or
 * NULL for a CQ of the kernel.
 */
#ifdef ROPCIE_HAVE_CREATE_CQ_ATTRS
#define ropcie_cq_arg uverbs_attr_bundle

static inline struct ib_udata *ropcie_cq_udata(struct uverbs_attr_bundle *arg)
{
	return arg ? &arg->driver_udata : NULL;
}
#else
#define ropcie_cq_arg ib_udata

static inline struct ib_udata *ropcie_cq_udata(struct ib_udata *arg)
{
	return arg;
}
#endif

#endif /* ROPCIE_COMPAT_H */
