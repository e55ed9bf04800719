// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Posting to mapped queues: work requests are written to shared rings, and the
 * kernel is called only when it is not looking.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "call.h"
#include "post.h"
#include "ropcie.h"

/* IBTA 9.4.1: the longest message. */
#define MAX_QPN 0xffffff
#define MAX_SRQN 0xffff

static void fill_list(struct ropcie_abi_sge *dst, const struct ibv_sge *src,
		      int num)
{
	int i;

	for (i = 0; i < num; i++) {
		dst[i].addr = src[i].addr;
		dst[i].length = src[i].length;
		dst[i].lkey = src[i].lkey;
	}
}

/* Copies the data behind a list; EINVAL when it is more than @max. */
static int fill_inline(struct ropcie_abi_send_wqe *wqe,
		       const struct ibv_send_wr *wr, uint32_t max)
{
	char *to = (char *)wqe->sge;
	uint32_t length = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (sge->length > max - length)
			return EINVAL;
		memcpy(to + length, (const void *)(uintptr_t)sge->addr,
		       sge->length);
		length += sge->length;
	}
	wqe->num_sge = 0;
	wqe->inline_length = length;
	if (wr->opcode == IBV_WR_ATOMIC_WRITE && length != sizeof(uint64_t))
		return EINVAL;
	return 0;
}

static void fill_bind(struct ropcie_abi_send_wqe *wqe,
		      const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;

	wqe->rkey = wr->bind_mw.rkey;
	wqe->imm = info->mr ? info->mr->lkey : 0;
	wqe->remote_addr = info->addr;
	wqe->compare_add = info->length;
	wqe->swap = info->mw_access_flags;
}

static void fill_operation(struct ropcie_abi_send_wqe *wqe,
			   const struct ropcie_qp *qp,
			   const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe->remote_addr = wr->wr.atomic.remote_addr;
		wqe->rkey = wr->wr.atomic.rkey;
		wqe->compare_add = wr->wr.atomic.compare_add;
		wqe->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_BIND_MW:
		fill_bind(wqe, wr);
		break;
	default:
		if (qp->vqp.qp.qp_type != IBV_QPT_UD)
			break;
		wqe->ah = to_rah(wr->wr.ud.ah)->number;
		wqe->remote_qpn = wr->wr.ud.remote_qpn;
		wqe->remote_qkey = wr->wr.ud.remote_qkey;
	}
}

static bool is_address(const struct ropcie_qp *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_ah *ah = wr->wr.ud.ah;

	/* A parent domain has the handle of its PD. */
	return ah && ah->pd->handle == qp->vqp.qp.pd->handle &&
	       wr->wr.ud.remote_qpn && wr->wr.ud.remote_qpn <= MAX_QPN;
}

/* Is the request for a shared receive queue that it names? */
static bool is_xrc(const struct ropcie_qp *qp, const struct ibv_send_wr *wr)
{
	return qp->vqp.qp.qp_type == IBV_QPT_XRC_SEND &&
	       wr->opcode != IBV_WR_BIND_MW && wr->opcode != IBV_WR_LOCAL_INV;
}

static bool is_srqn(uint32_t srqn)
{
	return srqn && srqn <= MAX_SRQN;
}

static int post_one_send(struct ropcie_qp *qp, const struct ibv_send_wr *wr)
{
	struct ropcie_abi_send_wqe *wqe;
	int ret;

	ret = ropcie_check_send(qp, wr);
	if (ret)
		return ret;
	if (qp->vqp.qp.qp_type == IBV_QPT_UD && !is_address(qp, wr))
		return EINVAL;
	if (wr->opcode == IBV_WR_BIND_MW && wr->num_sge)
		return EINVAL;
	if (is_xrc(qp, wr) && !is_srqn(wr->qp_type.xrc.remote_srqn))
		return EINVAL;
	if (!qp->sq.ctl || ropcie_ring_used(&qp->sq) >= qp->max_send_wr)
		return ENOMEM;
	wqe = ropcie_ring_at(&qp->sq, qp->sq.next);
	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = wr->wr_id;
	wqe->opcode = wr->opcode;
	wqe->flags = wr->send_flags;
	wqe->imm = wr->imm_data;
	fill_operation(wqe, qp, wr);
	if (is_xrc(qp, wr))
		wqe->remote_srqn = wr->qp_type.xrc.remote_srqn;
	if (wr->send_flags & IBV_SEND_INLINE) {
		ret = fill_inline(wqe, wr, qp->max_inline);
	} else {
		wqe->num_sge = (uint32_t)wr->num_sge;
		fill_list(wqe->sge, wr->sg_list, wr->num_sge);
	}
	if (!ret)
		qp->sq.next++;
	return ret;
}

/* IBTA 10.8.3: not before RTS. */
static int may_send(const struct ropcie_qp *qp)
{
	switch (qp->vqp.qp.state) {
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		return EINVAL;
	default:
		return ropcie_ring_gone(&qp->sq) ? EIO : qp->error;
	}
}

/*
 * What was posted is posted, so the call has to be made. When the device is gone
 * it can not be. The kernel may have found the request by itself and complete it
 * yet, so this post is none that has failed; the next one is.
 */
static void ring_doorbell(struct ropcie_qp *qp, int (*call)(struct ibv_qp *qp))
{
	int ret;

	for (;;) {
		ret = call(&qp->vqp.qp);
		if (!ropcie_call_again(ret))
			break;
		sched_yield();
	}
	if (!ret)
		return;
	pthread_mutex_lock(&qp->sq_lock);
	pthread_mutex_lock(&qp->rq_lock);
	qp->error = ret;
	pthread_mutex_unlock(&qp->rq_lock);
	pthread_mutex_unlock(&qp->sq_lock);
}

int ropcie_post_send_mapped(struct ropcie_qp *qp, struct ibv_send_wr *wr,
			    struct ibv_send_wr **bad_wr, bool all)
{
	bool ring = false;
	uint32_t first;
	int ret;

	pthread_mutex_lock(&qp->sq_lock);
	ret = may_send(qp);
	first = qp->sq.next;
	*bad_wr = wr;
	for (; !ret && wr; wr = wr->next) {
		*bad_wr = wr;
		ret = post_one_send(qp, wr);
	}
	if (ret && all)
		qp->sq.next = first;
	if (qp->sq.ctl)
		ring = ropcie_ring_publish(&qp->sq);
	pthread_mutex_unlock(&qp->sq_lock);
	if (ring)
		ring_doorbell(qp, ropcie_call_for_sends);
	return ret;
}

static int post_recvs(struct ropcie_ring *ring, uint32_t max_wr,
		      uint32_t max_sge, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr)
{
	struct ropcie_abi_recv_wqe *wqe;

	*bad_wr = wr;
	if (ropcie_ring_gone(ring))
		return EIO;
	for (; wr; wr = wr->next) {
		*bad_wr = wr;
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
			return EINVAL;
		if (!ring->ctl || ropcie_ring_used(ring) >= max_wr)
			return ENOMEM;
		wqe = ropcie_ring_at(ring, ring->next);
		wqe->wr_id = wr->wr_id;
		wqe->num_sge = (uint32_t)wr->num_sge;
		wqe->reserved = 0;
		fill_list(wqe->sge, wr->sg_list, wr->num_sge);
		ring->next++;
	}
	return 0;
}

/* A window of type 1: its key changes with each bind. */
int ropcie_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw,
		   struct ibv_mw_bind *mw_bind)
{
	const struct ibv_mw_bind_info *info = &mw_bind->bind_info;
	struct ibv_send_wr wr = {
		.wr_id = mw_bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = mw_bind->send_flags,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = *info,
		},
	};
	struct ibv_send_wr *bad;
	int ret;

	if (mw->type != IBV_MW_TYPE_1 || (!info->mr && info->length))
		return EINVAL;
	ret = ropcie_post_send(ibqp, &wr, &bad);
	if (!ret)
		mw->rkey = wr.bind_mw.rkey;
	return ret;
}

int ropcie_post_recv_mapped(struct ropcie_qp *qp, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr)
{
	bool ring = false;
	int ret;

	pthread_mutex_lock(&qp->rq_lock);
	ret = qp->error;
	*bad_wr = wr;
	if (qp->vqp.qp.state == IBV_QPS_RESET || qp->vqp.qp.srq)
		ret = EINVAL;
	if (!ret)
		ret = post_recvs(&qp->rq, qp->max_recv_wr, qp->max_recv_sge, wr,
				 bad_wr);
	if (qp->rq.ctl)
		ring = ropcie_ring_publish(&qp->rq);
	pthread_mutex_unlock(&qp->rq_lock);
	if (ring)
		ring_doorbell(qp, ropcie_call_for_recvs);
	return ret;
}

int ropcie_post_srq_recv_mapped(struct ropcie_srq *srq, struct ibv_recv_wr *wr,
				struct ibv_recv_wr **bad_wr)
{
	int ret;

	pthread_mutex_lock(&srq->lock);
	ret = post_recvs(&srq->ring, srq->max_wr, srq->max_sge, wr, bad_wr);
	/* Who was refused for want of a receive tries again when it is time. */
	if (srq->ring.ctl)
		ropcie_ring_publish(&srq->ring);
	pthread_mutex_unlock(&srq->lock);
	return ret;
}
