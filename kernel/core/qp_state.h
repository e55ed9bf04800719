/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The queue pair state machine (IBTA 10.3.1) as a table: which transitions
 * exist for which transport, and which attributes each requires or allows.
 *
 * Attribute bits have the numbers of enum ib_qp_attr_mask, states those of
 * enum ib_qp_state; the driver asserts that they agree.
 */
#ifndef ROPCIE_CORE_QP_STATE_H
#define ROPCIE_CORE_QP_STATE_H

#include "port.h"

enum ropcie_qps {
	ROPCIE_QPS_RESET,
	ROPCIE_QPS_INIT,
	ROPCIE_QPS_RTR,
	ROPCIE_QPS_RTS,
	ROPCIE_QPS_SQD,
	ROPCIE_QPS_SQE,
	ROPCIE_QPS_ERR,
	ROPCIE_QPS_NUM
};

enum ropcie_qpt {
	ROPCIE_QPT_RC,
	ROPCIE_QPT_UC,
	ROPCIE_QPT_UD,
	ROPCIE_QPT_GSI, /* QP1: a UD QP that is given no port */
	ROPCIE_QPT_XRC_INI, /* sends only */
	ROPCIE_QPT_XRC_TGT, /* receives only */
	ROPCIE_QPT_NUM
};

/* Attributes of a modify_qp. */
enum ropcie_qp_attr {
	ROPCIE_QP_STATE = BIT(0),
	ROPCIE_QP_CUR_STATE = BIT(1),
	ROPCIE_QP_EN_SQD_ASYNC_NOTIFY = BIT(2),
	ROPCIE_QP_ACCESS_FLAGS = BIT(3),
	ROPCIE_QP_PKEY_INDEX = BIT(4),
	ROPCIE_QP_PORT = BIT(5),
	ROPCIE_QP_QKEY = BIT(6),
	ROPCIE_QP_AV = BIT(7),
	ROPCIE_QP_PATH_MTU = BIT(8),
	ROPCIE_QP_TIMEOUT = BIT(9),
	ROPCIE_QP_RETRY_CNT = BIT(10),
	ROPCIE_QP_RNR_RETRY = BIT(11),
	ROPCIE_QP_RQ_PSN = BIT(12),
	ROPCIE_QP_MAX_QP_RD_ATOMIC = BIT(13),
	ROPCIE_QP_ALT_PATH = BIT(14),
	ROPCIE_QP_MIN_RNR_TIMER = BIT(15),
	ROPCIE_QP_SQ_PSN = BIT(16),
	ROPCIE_QP_MAX_DEST_RD_ATOMIC = BIT(17),
	ROPCIE_QP_PATH_MIG_STATE = BIT(18),
	ROPCIE_QP_CAP = BIT(19),
	ROPCIE_QP_DEST_QPN = BIT(20)
};

/**
 * ropcie_qp_transition() - is this modify_qp legal?
 * @type: transport
 * @cur: state now
 * @next: state asked for; @cur when ROPCIE_QP_STATE is not in @mask
 * @mask: attributes given, ROPCIE_QP_*
 *
 * The rules are those of ib_modify_qp_is_ok(). Values out of their range are
 * refused too.
 *
 * Return: 0; -EINVAL for a transition that does not exist, a required
 * attribute that is missing, or one that is not allowed there.
 */
int ropcie_qp_transition(enum ropcie_qpt type, enum ropcie_qps cur,
			 enum ropcie_qps next, u32 mask);

/* May a work request be posted to the send queue in this state? */
static inline bool ropcie_qp_may_post_send(enum ropcie_qps state)
{
	return state == ROPCIE_QPS_RTS || state == ROPCIE_QPS_SQD ||
	       state == ROPCIE_QPS_SQE || state == ROPCIE_QPS_ERR;
}

/* May a work request be posted to the receive queue in this state? */
static inline bool ropcie_qp_may_post_recv(enum ropcie_qps state)
{
	return state != ROPCIE_QPS_RESET;
}

/* Does the responder take requests in this state? */
static inline bool ropcie_qp_responds(enum ropcie_qps state)
{
	return state == ROPCIE_QPS_RTR || state == ROPCIE_QPS_RTS ||
	       state == ROPCIE_QPS_SQD || state == ROPCIE_QPS_SQE;
}

/* Does the requester take acknowledges in this state? */
static inline bool ropcie_qp_requests(enum ropcie_qps state)
{
	return state == ROPCIE_QPS_RTS || state == ROPCIE_QPS_SQD;
}

#endif /* ROPCIE_CORE_QP_STATE_H */
