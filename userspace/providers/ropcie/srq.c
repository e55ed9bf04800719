// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Shared receive queues. */
#include <errno.h>
#include <stdlib.h>

#include "ropcie.h"

struct create_srq_resp {
	struct ib_uverbs_create_srq_resp core;
	struct ropcie_abi_create_queue_resp driver;
};

/* The process's part of an SRQ that the kernel has made. */
static int finish(struct ropcie_srq *srq, struct ibv_context *context,
		  const struct create_srq_resp *resp,
		  const struct ibv_srq_attr *attr)
{
	int ret;

	ret = ropcie_map_rings(context, &resp->driver, &srq->map, &srq->ring,
			       1);
	if (ret) {
		ibv_cmd_destroy_srq(&srq->vsrq.srq);
		return ret;
	}
	pthread_mutex_init(&srq->lock, NULL);
	srq->max_wr = attr->max_wr;
	srq->max_sge = attr->max_sge;
	return 0;
}

struct ibv_srq *ropcie_create_srq(struct ibv_pd *pd,
				  struct ibv_srq_init_attr *attr)
{
	struct {
		struct ibv_create_srq core;
		struct ropcie_abi_create_queue_req driver;
	} cmd = { .driver = ropcie_queue_req(pd->context) };
	struct create_srq_resp resp = {};
	struct ropcie_srq *srq;
	int ret;

	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;

	ret = ibv_cmd_create_srq(pd, &srq->vsrq.srq, attr, &cmd.core,
				 sizeof(cmd), &resp.core, sizeof(resp));
	if (!ret)
		ret = finish(srq, pd->context, &resp, &attr->attr);
	if (ret) {
		free(srq);
		errno = ret;
		return NULL;
	}
	srq->vsrq.srq_type = IBV_SRQT_BASIC;
	ropcie_pd_hold(pd);
	return &srq->vsrq.srq;
}

struct ibv_srq *ropcie_create_srq_ex(struct ibv_context *context,
				     struct ibv_srq_init_attr_ex *attr)
{
	struct {
		struct ibv_create_xsrq core;
		struct ropcie_abi_create_queue_req driver;
	} cmd = { .driver = ropcie_queue_req(context) };
	struct create_srq_resp resp = {};
	struct ropcie_srq *srq;
	int ret;

	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;

	ret = ibv_cmd_create_srq_ex(context, &srq->vsrq, attr, &cmd.core,
				    sizeof(cmd), &resp.core, sizeof(resp));
	if (!ret)
		ret = finish(srq, context, &resp, &attr->attr);
	if (ret) {
		free(srq);
		errno = ret;
		return NULL;
	}
	/* Not each version of the library does. */
	srq->vsrq.srq.srq_context = attr->srq_context;
	srq->vsrq.srq.pd = attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL;
	ropcie_pd_hold(srq->vsrq.srq.pd);
	return &srq->vsrq.srq;
}

/* Moves a mapped SRQ to a ring of another size. */
static int resize(struct ropcie_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ropcie_abi_create_queue_resp resp = {};
	struct {
		struct ibv_modify_srq core;
		struct ropcie_abi_resize_srq_req driver;
	} cmd = { .driver.resp = (uintptr_t)&resp };
	int ret;

	pthread_mutex_lock(&srq->lock);
	ret = ibv_cmd_modify_srq(&srq->vsrq.srq, attr, mask, &cmd.core,
				 sizeof(cmd));
	if (!ret)
		ret = ropcie_remap_ring(srq->vsrq.srq.context, &resp, &srq->map,
					&srq->ring);
	if (!ret)
		srq->max_wr = attr->max_wr;
	pthread_mutex_unlock(&srq->lock);
	return ret;
}

int ropcie_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr,
		      int mask)
{
	struct ropcie_srq *srq = to_rsrq(ibsrq);
	struct ibv_modify_srq cmd;

	if (srq->map.addr && mask & IBV_SRQ_MAX_WR)
		return resize(srq, attr, mask);
	return ibv_cmd_modify_srq(ibsrq, attr, mask, &cmd, sizeof(cmd));
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

	if (ret)
		return ret;
	ropcie_pd_release(srq->pd);
	ropcie_unmap(&to_rsrq(srq)->map);
	pthread_mutex_destroy(&to_rsrq(srq)->lock);
	free(to_rsrq(srq));
	return 0;
}
