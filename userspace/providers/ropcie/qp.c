// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Queue pairs, address handles, flows: everything but posting. */
#include <errno.h>
#include <stdlib.h>

#include "post.h"
#include "ropcie.h"

/*
 * The kernel is told of no inline data that uverbs would have to carry: it is a list of
 * one piece to it.
 */
static int create_in_kernel(struct ibv_context *context, struct ropcie_qp *qp,
			    struct ibv_qp_init_attr_ex *attr)
{
	struct {
		struct ibv_create_qp core;
		struct ropcie_abi_create_queue_req driver;
	} cmd = { .driver = ropcie_queue_req(context) };
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct ropcie_abi_create_queue_resp driver;
	} resp = {};
	struct ropcie_ring rings[2] = {};
	int ret;

	if (!to_rctx(context)->mapped) {
		if (attr->cap.max_inline_data && !attr->cap.max_send_sge)
			attr->cap.max_send_sge = 1;
		attr->cap.max_inline_data = 0;
	}
	ret = ibv_cmd_create_qp_ex(context, &qp->vqp, attr, &cmd.core,
				   sizeof(cmd), &resp.core, sizeof(resp));
	if (ret)
		return ret;
	ret = ropcie_map_rings(context, &resp.driver, &qp->map, rings, 2);
	if (ret)
		ibv_cmd_destroy_qp(&qp->vqp.qp);
	qp->sq = rings[0];
	qp->rq = rings[1];
	return ret;
}

static int create_qp(struct ibv_context *context, struct ropcie_qp *qp,
		     struct ibv_qp_init_attr_ex *attr)
{
	const struct ropcie_context *ctx = to_rctx(context);
	uint32_t max_inline = attr->cap.max_inline_data;
	bool sends = attr->qp_type != IBV_QPT_XRC_RECV;
	uint32_t list = attr->cap.max_send_sge * sizeof(struct ropcie_abi_sge);
	int ret;

	/* Data may lie where the list would: programs count on this gift. */
	if (ctx->mapped && sends && max_inline < list)
		max_inline = list;

	if (max_inline >
	    (ctx->mapped ? ctx->abi.max_inline_data : ROPCIE_MAX_INLINE_DATA))
		return EINVAL;

	attr->cap.max_inline_data = max_inline;
	ret = create_in_kernel(context, qp, attr);
	if (ret)
		return ret;
	qp->max_send_sge = attr->cap.max_send_sge;
	qp->max_recv_sge = attr->cap.max_recv_sge;
	qp->max_send_wr = attr->cap.max_send_wr;
	qp->max_recv_wr = attr->cap.max_recv_wr;
	qp->max_inline = sends ? max_inline : 0;
	pthread_mutex_init(&qp->sq_lock, NULL);
	pthread_mutex_init(&qp->rq_lock, NULL);

	ret = ropcie_inline_init(&qp->inline_ring, attr->pd,
				 qp->map.addr ? 0 : qp->max_inline,
				 attr->cap.max_send_wr, ROPCIE_SEND_RUN);
	if (ret)
		goto destroy_qp;
	attr->cap.max_inline_data = qp->max_inline;

	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		ret = ropcie_init_qp_ex(qp, attr);
		if (ret)
			goto free_inline;
	}
	return 0;

free_inline:
	ropcie_inline_free(&qp->inline_ring);
destroy_qp:
	ibv_cmd_destroy_qp(&qp->vqp.qp);
	ropcie_unmap(&qp->map);
	return ret;
}

struct ibv_qp *ropcie_create_qp_ex(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_init_attr_ex own = *attr;
	struct ropcie_qp *qp;
	int ret;

	if (attr->comp_mask &
		    ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
				IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
				IBV_QP_INIT_ATTR_CREATE_FLAGS) ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	     attr->create_flags)) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	own.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_CREATE_FLAGS;
	/* What is not given may be anything, and the library takes it. */
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD))
		own.pd = NULL;
	/* Its value rides in the request. */
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    attr->send_ops_flags & IBV_QP_EX_WITH_ATOMIC_WRITE &&
	    own.cap.max_inline_data < sizeof(uint64_t))
		own.cap.max_inline_data = sizeof(uint64_t);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;

	ret = create_qp(context, qp, &own);
	if (ret) {
		free(qp);
		errno = ret;
		return NULL;
	}
	attr->cap = own.cap;
	ropcie_pd_hold(qp->vqp.qp.pd);
	return &qp->vqp.qp;
}

struct ibv_qp *ropcie_create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex attr_ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = ropcie_create_qp_ex(pd->context, &attr_ex);

	if (qp)
		attr->cap = attr_ex.cap;
	return qp;
}

/* Only XRC receive QPs can be opened: they have nothing to post to. */
struct ibv_qp *ropcie_open_qp(struct ibv_context *context,
			      struct ibv_qp_open_attr *attr)
{
	struct ib_uverbs_create_qp_resp resp;
	struct ibv_open_qp cmd;
	struct ropcie_qp *qp;
	int ret;

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;

	ret = ropcie_inline_init(&qp->inline_ring, NULL, 0, 0, 0);
	if (ret)
		goto free_qp;
	ret = ibv_cmd_open_qp(context, &qp->vqp, sizeof(qp->vqp), attr, &cmd,
			      sizeof(cmd), &resp, sizeof(resp));
	if (ret)
		goto free_inline;
	return &qp->vqp.qp;

free_inline:
	ropcie_inline_free(&qp->inline_ring);
free_qp:
	free(qp);
	errno = ret;
	return NULL;
}

static void forget_completions(struct ibv_qp *qp)
{
	/* They are the shared receive queue's, whatever the program gave. */
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		return;
	if (qp->send_cq)
		ropcie_cq_forget(qp->send_cq, qp->qp_num);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		ropcie_cq_forget(qp->recv_cq, qp->qp_num);
}

/* The kernel empties the queues: nobody posts meanwhile. */
static int reset_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	struct ibv_modify_qp cmd;
	int ret;

	pthread_mutex_lock(&qp->sq_lock);
	pthread_mutex_lock(&qp->rq_lock);
	ret = ibv_cmd_modify_qp(ibqp, attr, mask, &cmd, sizeof(cmd));
	if (!ret) {
		qp->sq.next = 0;
		qp->rq.next = 0;
		qp->vqp.qp.state = IBV_QPS_RESET;
		qp->error = 0;
	}
	pthread_mutex_unlock(&qp->rq_lock);
	pthread_mutex_unlock(&qp->sq_lock);
	if (!ret)
		forget_completions(ibqp);
	return ret;
}

int ropcie_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_modify_qp cmd;

	if (to_rqp(qp)->map.addr && mask & IBV_QP_STATE &&
	    attr->qp_state == IBV_QPS_RESET)
		return reset_qp(qp, attr, mask);
	return ibv_cmd_modify_qp(qp, attr, mask, &cmd, sizeof(cmd));
}

int ropcie_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		    struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd;
	int ret;

	ret = ibv_cmd_query_qp(qp, attr, mask, init_attr, &cmd, sizeof(cmd));
	if (ret)
		return ret;

	/* The kernel knows nothing of the inline ring. */
	attr->cap.max_inline_data = to_rqp(qp)->max_inline;
	init_attr->cap.max_inline_data = attr->cap.max_inline_data;
	return 0;
}

int ropcie_destroy_qp(struct ibv_qp *ibqp)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	int ret;

	/*
	 * If the answer could not be copied (EFAULT) the kernel's part is gone, but nobody
	 * can tell, and the handle may soon be another's: this part stays.
	 */
	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;
	ropcie_pd_release(ibqp->pd);
	forget_completions(ibqp);
	ropcie_free_qp_ex(qp);
	ropcie_inline_free(&qp->inline_ring);
	ropcie_unmap(&qp->map);
	pthread_mutex_destroy(&qp->sq_lock);
	pthread_mutex_destroy(&qp->rq_lock);
	free(qp);
	return 0;
}

struct ibv_ah *ropcie_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct {
		struct ib_uverbs_create_ah_resp core;
		struct ropcie_abi_create_ah_resp driver;
	} resp = {};
	struct ropcie_ah *ah;
	int ret;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;

	ret = ibv_cmd_create_ah(pd, &ah->ibv_ah, attr, &resp.core,
				sizeof(resp));
	if (ret) {
		free(ah);
		errno = ret;
		return NULL;
	}
	ah->number = resp.driver.number;
	ropcie_pd_hold(pd);
	return &ah->ibv_ah;
}

int ropcie_destroy_ah(struct ibv_ah *ah)
{
	int ret = ibv_cmd_destroy_ah(ah);

	if (ret)
		return ret;
	ropcie_pd_release(ah->pd);
	free(to_rah(ah));
	return 0;
}

struct ibv_flow *ropcie_create_flow(struct ibv_qp *qp,
				    struct ibv_flow_attr *attr)
{
	struct ibv_flow *flow;
	int ret;

	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return NULL;

	ret = ibv_cmd_create_flow(qp, flow, attr, NULL, 0);
	if (ret) {
		free(flow);
		errno = ret;
		return NULL;
	}
	return flow;
}

int ropcie_destroy_flow(struct ibv_flow *flow)
{
	int ret = ibv_cmd_destroy_flow(flow);

	if (!ret)
		free(flow);
	return ret;
}
