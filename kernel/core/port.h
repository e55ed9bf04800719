/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only file of kernel/core that knows what it is compiled for: the kernel
 * or a host program (tests, simulation, benchmarks). It maps types, byte
 * order, barriers and checks; it holds no logic.
 */
#ifndef ROPCIE_CORE_PORT_H
#define ROPCIE_CORE_PORT_H

#ifdef __KERNEL__

#include <linux/bits.h>
#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/minmax.h>
#include <linux/nospec.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/barrier.h>
#include <asm/byteorder.h>

#else /* host */

#include "port_host.h"

#endif /* __KERNEL__ */

/*
 * ropcie_link_wmb() - order earlier stores to a peer's memory before later
 * ones. A write-combining mapping needs a real store fence; ordinary memory
 * needs only what the memory model asks of a release.
 */
static inline void ropcie_link_wmb(bool write_combining)
{
	if (write_combining)
		wmb(); /* drains write-combining buffers */
	else
		smp_wmb(); /* pairs with the acquire in ropcie_lane_recv() */
}

/*
 * A variable of which only what was written is read, and that is too big to be
 * zeroed for each record, as kernels with CONFIG_INIT_STACK_ALL_ZERO do. Those that
 * fill it with a pattern are there to find who is wrong.
 */
#if __has_attribute(__uninitialized__) && \
	!defined(CONFIG_INIT_STACK_ALL_PATTERN)
#define ROPCIE_UNINIT __attribute__((__uninitialized__))
#else
#define ROPCIE_UNINIT
#endif

/* The expression must hold by construction; a peer or user can not break it. */
#define ROPCIE_ASSERT(cond) WARN_ON_ONCE(!(cond))

#endif /* ROPCIE_CORE_PORT_H */
