/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The calls of the data path: commands of uverbs that carry nothing but a handle.
 *
 * They are written to the device's file. libibverbs would make an ioctl of each,
 * which the kernel takes apart for hundreds of instructions; that is what is
 * left to whoever has other credentials than the one that opened the device had
 * (the child of a fork, a process that has changed its user): the kernel lets him
 * not write. Each returns 0 or an errno, and is no point of cancellation.
 */
#ifndef ROPCIE_CALL_H
#define ROPCIE_CALL_H

#include <errno.h>
#include <stdbool.h>

struct ibv_cq;
struct ibv_qp;

/*
 * Has a call failed only this time? What it names is on its own stack, so EFAULT is a
 * copy that was made to fail.
 */
static inline bool ropcie_call_again(int error)
{
	return error == ENOMEM || error == EBUSY || error == EINTR ||
	       error == EFAULT;
}

/* The kernel looks at the send queue. */
int ropcie_call_for_sends(struct ibv_qp *qp);

/* The kernel looks at the receive queue. */
int ropcie_call_for_recvs(struct ibv_qp *qp);

/* Records that wait are received; completions come through the mapped ring. */
int ropcie_call_for_progress(struct ibv_cq *cq);

/* Nobody polls the kernel for a while: completions have to come by themselves. */
int ropcie_call_before_sleep(struct ibv_cq *cq);

#endif /* ROPCIE_CALL_H */
