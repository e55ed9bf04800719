/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the extended posting interface needs to know of the plain one. */
#ifndef ROPCIE_POST_H
#define ROPCIE_POST_H

#include <stdbool.h>
#include <stdint.h>

/* The most work requests that are handed to the kernel in one command. */
#define ROPCIE_SEND_RUN 32

struct ibv_send_wr;
struct ropcie_qp;

/* Of enum ibv_wr_opcode, or the ABI's of an atomic write: has this QP the operation? */
bool ropcie_carries(const struct ropcie_qp *qp, uint32_t opcode);

/* EOPNOTSUPP for what the post command cannot carry, EINVAL for nonsense. */
int ropcie_check_send(const struct ropcie_qp *qp, const struct ibv_send_wr *wr);

#endif /* ROPCIE_POST_H */
