// SPDX-License-Identifier: GPL-2.0
#include "qp_state.h"

#define A(name) ROPCIE_QP_##name

/* What often goes together. */
#define PATH (A(AV) | A(PATH_MTU) | A(DEST_QPN) | A(RQ_PSN))
#define RETRY (A(TIMEOUT) | A(RETRY_CNT) | A(RNR_RETRY) | A(MAX_QP_RD_ATOMIC))
#define MIGRATE (A(ALT_PATH) | A(PATH_MIG_STATE))
#define PORT_ACCESS (A(PKEY_INDEX) | A(PORT) | A(ACCESS_FLAGS))
#define PORT_QKEY (A(PKEY_INDEX) | A(PORT) | A(QKEY))
#define PKEY_QKEY (A(PKEY_INDEX) | A(QKEY))
#define CUR_QKEY (A(CUR_STATE) | A(QKEY))
#define CUR_ACCESS (A(CUR_STATE) | A(ACCESS_FLAGS))

struct attrs {
	u32 required;
	u32 optional;
};

struct rule {
	bool exists;
	struct attrs attrs[ROPCIE_QPT_NUM];
};

/* IBTA 11.2.5.2, as ib_core reads it. */
static const struct rule rules[ROPCIE_QPS_NUM][ROPCIE_QPS_NUM] = {
	[ROPCIE_QPS_RESET] = {
		[ROPCIE_QPS_RESET] = { true },
		[ROPCIE_QPS_INIT] = { true, {
			[ROPCIE_QPT_RC] = { PORT_ACCESS },
			[ROPCIE_QPT_UC] = { PORT_ACCESS },
			[ROPCIE_QPT_UD] = { PORT_QKEY },
			[ROPCIE_QPT_GSI] = { PKEY_QKEY },
			[ROPCIE_QPT_XRC_INI] = { PORT_ACCESS },
			[ROPCIE_QPT_XRC_TGT] = { PORT_ACCESS },
		} },
	},
	[ROPCIE_QPS_INIT] = {
		[ROPCIE_QPS_RESET] = { true },
		[ROPCIE_QPS_ERR] = { true },
		[ROPCIE_QPS_INIT] = { true, {
			[ROPCIE_QPT_RC] = { 0, PORT_ACCESS },
			[ROPCIE_QPT_UC] = { 0, PORT_ACCESS },
			[ROPCIE_QPT_UD] = { 0, PORT_QKEY },
			[ROPCIE_QPT_GSI] = { 0, PKEY_QKEY },
			[ROPCIE_QPT_XRC_INI] = { 0, PORT_ACCESS },
			[ROPCIE_QPT_XRC_TGT] = { 0, PORT_ACCESS },
		} },
		[ROPCIE_QPS_RTR] = { true, {
			[ROPCIE_QPT_RC] = {
				PATH | A(MAX_DEST_RD_ATOMIC) | A(MIN_RNR_TIMER),
				A(ALT_PATH) | A(ACCESS_FLAGS) | A(PKEY_INDEX),
			},
			[ROPCIE_QPT_UC] = {
				PATH,
				A(ALT_PATH) | A(ACCESS_FLAGS) | A(PKEY_INDEX),
			},
			[ROPCIE_QPT_UD] = { 0, PKEY_QKEY },
			[ROPCIE_QPT_GSI] = { 0, PKEY_QKEY },
			[ROPCIE_QPT_XRC_INI] = {
				PATH,
				A(ALT_PATH) | A(ACCESS_FLAGS) | A(PKEY_INDEX),
			},
			[ROPCIE_QPT_XRC_TGT] = {
				PATH | A(MAX_DEST_RD_ATOMIC) | A(MIN_RNR_TIMER),
				A(ALT_PATH) | A(ACCESS_FLAGS) | A(PKEY_INDEX),
			},
		} },
	},
	[ROPCIE_QPS_RTR] = {
		[ROPCIE_QPS_RESET] = { true },
		[ROPCIE_QPS_ERR] = { true },
		[ROPCIE_QPS_RTS] = { true, {
			[ROPCIE_QPT_RC] = {
				RETRY | A(SQ_PSN),
				CUR_ACCESS | MIGRATE | A(MIN_RNR_TIMER),
			},
			[ROPCIE_QPT_UC] = { A(SQ_PSN), CUR_ACCESS | MIGRATE },
			[ROPCIE_QPT_UD] = { A(SQ_PSN), CUR_QKEY },
			[ROPCIE_QPT_GSI] = { A(SQ_PSN), CUR_QKEY },
			[ROPCIE_QPT_XRC_INI] = {
				RETRY | A(SQ_PSN), CUR_ACCESS | MIGRATE,
			},
			[ROPCIE_QPT_XRC_TGT] = {
				A(TIMEOUT) | A(SQ_PSN),
				CUR_ACCESS | MIGRATE | A(MIN_RNR_TIMER),
			},
		} },
	},
	[ROPCIE_QPS_RTS] = {
		[ROPCIE_QPS_RESET] = { true },
		[ROPCIE_QPS_ERR] = { true },
		[ROPCIE_QPS_RTS] = { true, {
			[ROPCIE_QPT_RC] = {
				0, CUR_ACCESS | MIGRATE | A(MIN_RNR_TIMER),
			},
			[ROPCIE_QPT_UC] = { 0, CUR_ACCESS | MIGRATE },
			[ROPCIE_QPT_UD] = { 0, CUR_QKEY },
			[ROPCIE_QPT_GSI] = { 0, CUR_QKEY },
			[ROPCIE_QPT_XRC_INI] = { 0, CUR_ACCESS | MIGRATE },
			[ROPCIE_QPT_XRC_TGT] = {
				0, CUR_ACCESS | MIGRATE | A(MIN_RNR_TIMER),
			},
		} },
		[ROPCIE_QPS_SQD] = { true, {
			[ROPCIE_QPT_RC] = { 0, A(EN_SQD_ASYNC_NOTIFY) },
			[ROPCIE_QPT_UC] = { 0, A(EN_SQD_ASYNC_NOTIFY) },
			[ROPCIE_QPT_UD] = { 0, A(EN_SQD_ASYNC_NOTIFY) },
			[ROPCIE_QPT_GSI] = { 0, A(EN_SQD_ASYNC_NOTIFY) },
			[ROPCIE_QPT_XRC_INI] = { 0, A(EN_SQD_ASYNC_NOTIFY) },
			[ROPCIE_QPT_XRC_TGT] = { 0, A(EN_SQD_ASYNC_NOTIFY) },
		} },
	},
	[ROPCIE_QPS_SQD] = {
		[ROPCIE_QPS_RESET] = { true },
		[ROPCIE_QPS_ERR] = { true },
		[ROPCIE_QPS_RTS] = { true, {
			[ROPCIE_QPT_RC] = {
				0, CUR_ACCESS | MIGRATE | A(MIN_RNR_TIMER),
			},
			[ROPCIE_QPT_UC] = { 0, CUR_ACCESS | MIGRATE },
			[ROPCIE_QPT_UD] = { 0, CUR_QKEY },
			[ROPCIE_QPT_GSI] = { 0, CUR_QKEY },
			[ROPCIE_QPT_XRC_INI] = { 0, CUR_ACCESS | MIGRATE },
			[ROPCIE_QPT_XRC_TGT] = {
				0, CUR_ACCESS | MIGRATE | A(MIN_RNR_TIMER),
			},
		} },
		[ROPCIE_QPS_SQD] = { true, {
			[ROPCIE_QPT_RC] = {
				0, PORT_ACCESS | MIGRATE | RETRY | A(AV) |
				A(MAX_DEST_RD_ATOMIC) | A(MIN_RNR_TIMER),
			},
			[ROPCIE_QPT_UC] = {
				0, MIGRATE | A(AV) | A(ACCESS_FLAGS) |
				A(PKEY_INDEX),
			},
			[ROPCIE_QPT_UD] = { 0, PKEY_QKEY },
			[ROPCIE_QPT_GSI] = { 0, PKEY_QKEY },
			[ROPCIE_QPT_XRC_INI] = {
				0, PORT_ACCESS | MIGRATE | RETRY | A(AV),
			},
			[ROPCIE_QPT_XRC_TGT] = {
				0, PORT_ACCESS | MIGRATE | A(AV) | A(TIMEOUT) |
				A(MAX_DEST_RD_ATOMIC) | A(MIN_RNR_TIMER),
			},
		} },
	},
	[ROPCIE_QPS_SQE] = {
		[ROPCIE_QPS_RESET] = { true },
		[ROPCIE_QPS_ERR] = { true },
		[ROPCIE_QPS_RTS] = { true, {
			/* RC has no SQE state: its errors end in ERR. */
			[ROPCIE_QPT_UC] = { 0, CUR_ACCESS },
			[ROPCIE_QPT_UD] = { 0, CUR_QKEY },
			[ROPCIE_QPT_GSI] = { 0, CUR_QKEY },
		} },
	},
	[ROPCIE_QPS_ERR] = {
		[ROPCIE_QPS_RESET] = { true },
		[ROPCIE_QPS_ERR] = { true },
	},
};

int ropcie_qp_transition(enum ropcie_qpt type, enum ropcie_qps cur,
			 enum ropcie_qps next, u32 mask)
{
	const struct rule *rule;
	const struct attrs *attrs;

	if ((u32)type >= ROPCIE_QPT_NUM || (u32)cur >= ROPCIE_QPS_NUM ||
	    (u32)next >= ROPCIE_QPS_NUM)
		return -EINVAL;
	/* Only these can be left without the caller's knowledge. */
	if ((mask & A(CUR_STATE)) &&
	    cur != ROPCIE_QPS_RTR && cur != ROPCIE_QPS_RTS &&
	    cur != ROPCIE_QPS_SQD && cur != ROPCIE_QPS_SQE)
		return -EINVAL;

	rule = &rules[cur][next];
	attrs = &rule->attrs[type];
	if (!rule->exists || (mask & attrs->required) != attrs->required)
		return -EINVAL;
	if (mask & ~(attrs->required | attrs->optional | A(STATE)))
		return -EINVAL;
	return 0;
}
