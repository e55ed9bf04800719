/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Where the declarations of libibverbs' private ABI come from: an rdma-core
 * tree if the build was pointed at one (-DRDMA_CORE_DIR), else our own header.
 */
#ifndef VERBS_PRIVATE_H
#define VERBS_PRIVATE_H

#ifdef ROPCIE_RDMA_CORE_TREE
#include <infiniband/driver.h>
#else
#include "verbs_private_34.h"
#endif

#endif /* VERBS_PRIVATE_H */
