// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Shared receive queues. */
#include <errno.h>
#include <stdlib.h>

#include "ropcie.h"

struct ibv_srq *ropcie_create_srq(struct ibv_pd *pd,
				  struct ibv_srq_init_attr *attr)
{
	struct ib_uverbs_create_srq_resp resp;
	struct ibv_create_srq cmd;
	struct ropcie_srq *rsrq;
	int ret;

	rsrq = calloc(1, sizeof(*rsrq));
	if (!rsrq)
		return NULL;

	ret = ibv_cmd_create_srq(pd, &rsrq->vsrq.srq, attr, &cmd, sizeof(cmd),
				 &resp, sizeof(resp));
	if (ret) {
		free(rsrq);
		errno = ret;
		return NULL;
	}
	rsrq->vsrq.srq_type = IBV_SRQT_BASIC;
	rsrq->max_sge = attr->attr.max_sge;
	return &rsrq->vsrq.srq;
}

struct ibv_srq *ropcie_create_srq_ex(struct ibv_context *context,
				     struct ibv_srq_init_attr_ex *attr)
{
	struct ib_uverbs_create_srq_resp resp;
	struct ibv_create_xsrq cmd;
	struct ropcie_srq *rsrq;
	int ret;

	rsrq = calloc(1, sizeof(*rsrq));
	if (!rsrq)
		return NULL;

	ret = ibv_cmd_create_srq_ex(context, &rsrq->vsrq, attr, &cmd,
				    sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(rsrq);
		errno = ret;
		return NULL;
	}
	rsrq->max_sge = attr->attr.max_sge;
	return &rsrq->vsrq.srq;
}

int ropcie_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ibv_modify_srq cmd;

	return ibv_cmd_modify_srq(srq, attr, mask, &cmd, sizeof(cmd));
}

int ropcie_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd;

	return ibv_cmd_query_srq(srq, attr, &cmd, sizeof(cmd));
}

int ropcie_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	struct verbs_srq *vsrq = &to_rsrq(srq)->vsrq;

	if (vsrq->srq_type != IBV_SRQT_XRC)
		return EINVAL;
	*srq_num = vsrq->srq_num;
	return 0;
}

int ropcie_destroy_srq(struct ibv_srq *srq)
{
	int ret = ibv_cmd_destroy_srq(srq);

	if (!ret)
		free(to_rsrq(srq));
	return ret;
}
