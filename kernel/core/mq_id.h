/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Message-queue IDs: how a record names the queue that it is for.
 *
 * Each QP has two inbound queues: one for requests to its responder and one
 * for answers to its requester. The ID is the QP number doubled plus the
 * direction, so both ends compute it alike from the QP numbers that they
 * exchanged, and neither has to be told who initiated the connection.
 */
#ifndef ROPCIE_CORE_MQ_ID_H
#define ROPCIE_CORE_MQ_ID_H

#include "wire.h"

enum ropcie_mq_dir {
	ROPCIE_MQ_REQUEST = 0,
	ROPCIE_MQ_RESPONSE = 1
};

/* QP number 0 (IBTA's SMI) does not exist on Ethernet: the netdev's queue. */
#define ROPCIE_MQ_NETDEV 0u
#define ROPCIE_MQ_MAX ((ROPCIE_QPN_MASK << 1) | 1)

static inline u32 ropcie_mq_id(u32 qpn, enum ropcie_mq_dir dir)
{
	return ((qpn & ROPCIE_QPN_MASK) << 1) | dir;
}

static inline u32 ropcie_mq_qpn(u32 mq)
{
	return mq >> 1;
}

static inline enum ropcie_mq_dir ropcie_mq_dir(u32 mq)
{
	return (enum ropcie_mq_dir)(mq & 1);
}

#endif /* ROPCIE_CORE_MQ_ID_H */
