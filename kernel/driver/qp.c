// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs: creation, attributes and transitions, connection to a peer,
 * and their end. What a queue pair does between is in post.c, work.c, rx.c.
 */
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <rdma/ib_addr.h>

#include "memory.h"
#include "odp.h"
#include "placement.h"
#include "qp.h"
#include "queues.h"
#include "ropcie.h"
#include "ud.h"

static_assert((int)ROPCIE_QPS_RESET == (int)IB_QPS_RESET);
static_assert((int)ROPCIE_QPS_INIT == (int)IB_QPS_INIT);
static_assert((int)ROPCIE_QPS_RTR == (int)IB_QPS_RTR);
static_assert((int)ROPCIE_QPS_RTS == (int)IB_QPS_RTS);
static_assert((int)ROPCIE_QPS_SQD == (int)IB_QPS_SQD);
static_assert((int)ROPCIE_QPS_SQE == (int)IB_QPS_SQE);
static_assert((int)ROPCIE_QPS_ERR == (int)IB_QPS_ERR);

static int check_type(const struct ib_qp_init_attr *init, bool user)
{
	switch (init->qp_type) {
	case IB_QPT_RC:
	case IB_QPT_UC:
	case IB_QPT_UD:
		return init->send_cq && init->recv_cq ? 0 : -EINVAL;
	case IB_QPT_XRC_INI:
		return init->send_cq ? 0 : -EINVAL;
	case IB_QPT_XRC_TGT:
		return init->xrcd ? 0 : -EINVAL;
	case IB_QPT_GSI:
		return user || init->port_num != 1 || !init->send_cq ||
		       !init->recv_cq ? -EINVAL : 0;
	default:
		return -EOPNOTSUPP;
	}
}

static enum ropcie_qpt core_type(const struct ropcie_qp *qp)
{
	switch (qp->ibqp.qp_type) {
	case IB_QPT_UC:
		return ROPCIE_QPT_UC;
	case IB_QPT_UD:
		return ROPCIE_QPT_UD;
	case IB_QPT_GSI:
		return ROPCIE_QPT_GSI;
	case IB_QPT_XRC_INI:
		return ROPCIE_QPT_XRC_INI;
	case IB_QPT_XRC_TGT:
		return ROPCIE_QPT_XRC_TGT;
	default:
		return ROPCIE_QPT_RC;
	}
}

static int check_caps(const struct ib_qp_init_attr *init, bool mapped)
{
	const struct ib_qp_cap *cap = &init->cap;
	/* The uverbs commands do not carry inline data. */
	u32 max_inline = mapped ? ROPCIE_ABI_MAX_INLINE_DATA : 0;

	if (init->create_flags)
		return -EOPNOTSUPP;
	if (cap->max_send_wr > ROPCIE_MAX_WR ||
	    cap->max_recv_wr > ROPCIE_MAX_WR ||
	    cap->max_send_sge > ROPCIE_MAX_SGE ||
	    cap->max_recv_sge > ROPCIE_MAX_SGE ||
	    cap->max_inline_data > max_inline)
		return -EINVAL;
	return 0;
}

static void free_queues(struct ropcie_qp *qp)
{
	ropcie_rq_destroy(&qp->rq);
	kfree(qp->held);
	kfree(qp->full_until);
	kvfree(qp->sq_ring);
	kfree(qp->sq_uwqe);
	ropcie_shared_put(qp->shared);
}

static int alloc_queues(struct ropcie_qp *qp, const struct ib_qp_cap *cap)
{
	u32 size = roundup_pow_of_two(max(cap->max_send_wr, 1U));
	u32 stride, held = 0;

	qp->sq_area = max_t(u32, cap->max_send_sge * sizeof(struct ropcie_sge),
			    ALIGN(cap->max_inline_data, sizeof(u64)));
	stride = sizeof(struct ropcie_send_wqe) + qp->sq_area;
	if (ropcie_is_ud(qp)) {
		/* Behind its list, a datagram has its destination. */
		stride = ALIGN(stride + sizeof(struct ropcie_av), sizeof(u64));
		if (ropcie_ud_init(qp))
			return -ENOMEM;
	}
	qp->sq_ring = kvcalloc(size, stride, ROPCIE_GFP_USER);
	if (!qp->sq_ring)
		return -ENOMEM;
	qp->sq_max_wr = cap->max_send_wr;
	ropcie_req_init(&qp->req, qp->sq_ring, size, stride);

	if (qp->srq || ropcie_is_xrc_target(qp))
		held = qp->srq ? qp->srq->rq.stride :
				 struct_size_t(struct ropcie_recv_wqe, sge,
					       ROPCIE_MAX_SGE);
	if (held)
		qp->held = kzalloc(held, ROPCIE_GFP_USER);
	if (held && !qp->held)
		return -ENOMEM;
	return ropcie_rq_create(&qp->rq, cap->max_recv_wr, cap->max_recv_sge);
}

/* The rings of mapped queues. */
static int map_queues(struct ropcie_qp *qp, struct ib_udata *udata)
{
	struct ropcie_uring_want want[] = {
		{
			.ring = &qp->sq_uring,
			.size = qp->sq_max_wr,
			.stride = sizeof(struct ropcie_abi_send_wqe) +
				  qp->sq_area,
		},
		ropcie_rq_uring(&qp->rq),
	};
	struct ropcie_shared *shared;

	qp->sq_uwqe = kmalloc(want[0].stride, ROPCIE_GFP_USER);
	qp->rq.uwqe = kmalloc(want[1].stride, ROPCIE_GFP_USER);
	if (!qp->sq_uwqe || !qp->rq.uwqe)
		return -ENOMEM;
	shared = ropcie_map_queue(udata, NULL, want, ARRAY_SIZE(want));
	if (IS_ERR(shared))
		return PTR_ERR(shared);
	qp->shared = shared;
	/* A call for a receive is due only when the peer waits for one. */
	ropcie_uring_want_call(&qp->rq.uring, false);
	return 0;
}

/* All that may complete has room. */
static int reserve_cqes(const struct ib_qp_init_attr *init)
{
	int ret = ropcie_cq_reserve(init->send_cq, init->cap.max_send_wr);

	if (ret)
		return ret;
	ret = ropcie_cq_reserve(init->recv_cq, init->cap.max_recv_wr);
	if (ret)
		ropcie_cq_unreserve(init->send_cq, init->cap.max_send_wr);
	return ret;
}

static void unreserve_cqes(const struct ib_qp_init_attr *init)
{
	ropcie_cq_unreserve(init->send_cq, init->cap.max_send_wr);
	ropcie_cq_unreserve(init->recv_cq, init->cap.max_recv_wr);
}

/* Under dev->qp_mutex. */
static struct ropcie_wc_name *take_wc_name(struct ropcie_dev *dev)
{
	struct ropcie_wc_name *name;

	if (dev->num_wc_names < ROPCIE_WC_NAMES_RESTING)
		return kzalloc(sizeof(*name), GFP_NOIO);
	name = list_first_entry(&dev->wc_names, struct ropcie_wc_name, list);
	list_del(&name->list);
	dev->num_wc_names--;
	return name;
}

/* Under dev->qp_mutex. */
static void rest_wc_name(struct ropcie_dev *dev, struct ropcie_wc_name *name)
{
	if (!name)
		return;
	list_add_tail(&name->list, &dev->wc_names);
	dev->num_wc_names++;
}

void ropcie_free_wc_names(struct ropcie_dev *dev)
{
	struct ropcie_wc_name *name, *next;

	list_for_each_entry_safe(name, next, &dev->wc_names, list)
		kfree(name);
}

/* A number, and a name for completions. Under dev->qp_mutex. */
static int name_qp(struct ropcie_dev *dev, struct ropcie_qp *qp, bool user)
{
	int ret;

	if (qp->ibqp.qp_type == IB_QPT_GSI) {
		qp->ibqp.qp_num = ROPCIE_GSI_QPN;
		return xa_insert(&dev->qps, ROPCIE_GSI_QPN, qp, GFP_NOIO);
	}
	if (dev->num_qps == ROPCIE_MAX_QP)
		return -ENOMEM;
	if (user) {
		qp->wc_name = take_wc_name(dev);
		if (!qp->wc_name)
			return -ENOMEM;
	}
	ret = xa_alloc_cyclic(&dev->qps, &qp->ibqp.qp_num, qp,
			      XA_LIMIT(ROPCIE_FIRST_QPN, ROPCIE_LAST_QPN),
			      &dev->next_qpn, GFP_NOIO);
	if (ret < 0) {
		rest_wc_name(dev, qp->wc_name);
		return ret;
	}
	if (qp->wc_name)
		WRITE_ONCE(qp->wc_name->ibqp.qp_num, qp->ibqp.qp_num);
	dev->num_qps++;
	return 0;
}

int ropcie_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		     struct ib_udata *udata)
{
	struct ropcie_dev *dev = to_rdev(ibqp->device);
	struct ropcie_qp *qp = to_rqp(ibqp);
	int mapped = ropcie_wants_mapped(udata);
	int ret;

	if (mapped < 0)
		return mapped;
	if (init->qp_type == IB_QPT_XRC_TGT) {
		/* It has no queues; core passes what the process asked for. */
		memset(&init->cap, 0, sizeof(init->cap));
		init->srq = NULL;
	}
	if (init->srq || init->qp_type == IB_QPT_XRC_INI) {
		/* IBTA 11.2.4.1: they are ignored. */
		init->cap.max_recv_wr = 0;
		init->cap.max_recv_sge = 0;
		qp->srq = init->srq ? to_rsrq(init->srq) : NULL;
	}
	ret = check_type(init, udata);
	/* Only mapped queues have room for the number of a shared queue. */
	if (!ret && init->qp_type == IB_QPT_XRC_INI && !mapped)
		ret = -EOPNOTSUPP;
	if (!ret)
		ret = check_caps(init, mapped);
	if (ret)
		return ret;
	qp->dev = dev;
	qp->counters = dev->counters;
	qp->init = *init;
	qp->state = IB_QPS_RESET;
	spin_lock_init(&qp->lock);
	spin_lock_init(&qp->sq_lock);
	spin_lock_init(&qp->loans_lock);
	mutex_init(&qp->mutex);
	INIT_LIST_HEAD(&qp->windows);
	INIT_LIST_HEAD(&qp->loans);
	INIT_LIST_HEAD(&qp->ready);
	INIT_LIST_HEAD(&qp->blocked);
	INIT_LIST_HEAD(&qp->owes);
	ropcie_trial_init(&qp->sq_trial);
	tasklet_setup(&qp->raise, ropcie_qp_raise);
	refcount_set(&qp->refs, 1);
	init_completion(&qp->unused);
	hrtimer_init(&qp->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	qp->timer.function = ropcie_qp_timer;
	ret = alloc_queues(qp, &init->cap);
	if (!ret && mapped)
		ret = map_queues(qp, udata);
	if (!ret)
		ret = ropcie_odp_init_qp(qp);
	if (ret)
		goto err_queues;
	ret = reserve_cqes(init);
	if (ret)
		goto err_odp;
	mutex_lock(&dev->qp_mutex);
	/* Core makes XRC's targets for processes, in its own name. */
	ret = name_qp(dev, qp, udata || init->qp_type == IB_QPT_XRC_TGT);
	mutex_unlock(&dev->qp_mutex);
	if (ret)
		goto err_cqes;
	return 0;

err_cqes:
	unreserve_cqes(init);
err_odp:
	ropcie_odp_exit_qp(qp);
err_queues:
	free_queues(qp);
	return ret;
}

static bool hears_requests(const struct ropcie_qp *qp)
{
	return qp->ibqp.qp_type != IB_QPT_XRC_INI;
}

static bool hears_responses(const struct ropcie_qp *qp)
{
	return ropcie_is_reliable(qp) && !ropcie_is_xrc_target(qp);
}

/* Open the inbound queues. Under qp->mutex. */
static int qp_open(struct ropcie_qp *qp)
{
	struct ropcie_adapter *a = qp->dev->adapter;
	u32 qpn = qp->ibqp.qp_num;
	int ret = 0;

	qp->request_mq.id = ropcie_mq_id(qpn, ROPCIE_MQ_REQUEST);
	qp->request_mq.recv = ropcie_is_ud(qp) ? ropcie_rx_datagram :
						 ropcie_rx_request;
	/* One of XRC turns to another queue with each message: in its time. */
	if (!ropcie_is_ud(qp) && !ropcie_is_xrc_target(qp))
		qp->request_mq.take = ropcie_rx_take_request;
	qp->response_mq.id = ropcie_mq_id(qpn, ROPCIE_MQ_RESPONSE);
	qp->response_mq.recv = ropcie_rx_response;
	qp->response_mq.take = ropcie_rx_take_response;
	if (hears_requests(qp)) {
		ret = ropcie_mq_open(a, &qp->request_mq);
		if (ret)
			return ret;
	}
	if (hears_responses(qp)) {
		ret = ropcie_mq_open(a, &qp->response_mq);
		if (ret && hears_requests(qp))
			ropcie_mq_close(a, &qp->request_mq);
	}
	return ret;
}

/* Find the peer, and be ready to hear from it. Under qp->mutex. */
static int qp_connect(struct ropcie_qp *qp, struct rdma_ah_attr *ah)
{
	struct ropcie_mq_tx tx = {};
	int ret;

	if (ah) {
		const u8 *mac = ropcie_dev_mac(qp->dev, ah->grh.sgid_attr,
					       rdma_ah_retrieve_dmac(ah));

		ret = ropcie_mq_connect(qp->dev->adapter, mac,
					qp->ibqp.qp_num, &tx);
		if (ret)
			return ret;
	}
	ret = qp_open(qp);
	if (ret) {
		ropcie_mq_disconnect(&tx);
		return ret;
	}
	if (tx.peer)
		ropcie_placement_create(qp, tx.peer);
	spin_lock_bh(&qp->lock);
	qp->tx = tx;
	qp->connected = true;
	spin_unlock_bh(&qp->lock);
	return 0;
}

/* No record comes in or goes out after this. Under qp->mutex. */
static void qp_disconnect(struct ropcie_qp *qp)
{
	struct ropcie_adapter *a = qp->dev->adapter;
	struct ropcie_mq_tx tx;

	if (!qp->connected)
		return;
	if (hears_requests(qp))
		ropcie_mq_close(a, &qp->request_mq);
	if (hears_responses(qp))
		ropcie_mq_close(a, &qp->response_mq);
	spin_lock_bh(&qp->lock);
	qp->connected = false;
	tx = qp->tx;
	memset(&qp->tx, 0, sizeof(qp->tx));
	ropcie_ud_forget_full(qp);
	spin_unlock_bh(&qp->lock);
	ropcie_mq_disconnect(&tx);
}

/*
 * A process whose device goes may still post: it is told before its queue is emptied,
 * as one that only the kernel had emptied would look full. Under qp->lock.
 */
static void end_rings(struct ropcie_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->sq_lock, flags);
	ropcie_uring_end(&qp->sq_uring);
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	spin_lock_irqsave(&qp->rq.post_lock, flags);
	ropcie_uring_end(&qp->rq.uring);
	spin_unlock_irqrestore(&qp->rq.post_lock, flags);
}

/* Back to an empty queue pair (IBTA 10.3.1.1), or to none: @gone. Under qp->mutex. */
static void qp_reset(struct ropcie_qp *qp, bool gone)
{
	unsigned long flags;

	spin_lock_bh(&qp->lock);
	/*
	 * As far as the lane has room, what has completed here succeeds there, too, and
	 * who was refused hears it.
	 */
	if (qp->rsp.dead) {
		ropcie_qp_answer(qp, ROPCIE_RX_BUDGET);
		ropcie_mq_flush(&qp->tx);
	} else {
		ropcie_qp_stop_answering(qp);
	}
	WRITE_ONCE(qp->state, IB_QPS_RESET);
	if (gone)
		end_rings(qp);
	ropcie_qp_unlock(qp);
	/* Nobody arms the timer in RESET, or blocks when not connected. */
	hrtimer_cancel(&qp->timer);
	ropcie_placement_end(qp);
	qp_disconnect(qp);
	ropcie_wait_loans(qp);
	ropcie_placement_free(qp);
	ropcie_qp_unblock(qp);
	ropcie_mw_unbind_all(qp);
	ropcie_odp_reset_qp(qp);

	spin_lock_bh(&qp->lock);
	/* It is not this queue pair's: its queue's owner waits for it. */
	if (ropcie_is_xrc_target(qp) && qp->holds)
		ropcie_recv_complete(qp, NULL, IB_WC_WR_FLUSH_ERR);
	spin_lock_irqsave(&qp->sq_lock, flags);
	ropcie_req_init(&qp->req, qp->sq_ring, qp->req.size, qp->req.stride);
	ropcie_uring_reset(&qp->sq_uring);
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	spin_lock_irqsave(&qp->rq.post_lock, flags);
	qp->rq.head = 0;
	qp->rq.tail = 0;
	ropcie_uring_reset(&qp->rq.uring);
	ropcie_uring_want_call(&qp->rq.uring, false);
	qp->holds = false;
	qp->last_wqe_due = false;
	spin_unlock_irqrestore(&qp->rq.post_lock, flags);
	memset(&qp->rsp, 0, sizeof(qp->rsp));
	if (ropcie_is_xrc_target(qp))
		qp->srq = NULL;
	clear_bit(ROPCIE_QP_COMM_EST, &qp->flags);
	clear_bit(ROPCIE_QP_RUNS, &qp->flags);
	qp->timer_at = 0;
	ropcie_qp_unlock(qp);
	/* Events come before the end of the life that they tell of. */
	tasklet_kill(&qp->raise);
	/* The address held a reference to its source GID. */
	rdma_destroy_ah_attr(&qp->attr.ah_attr);
	memset(&qp->attr, 0, sizeof(qp->attr));

	/* Those of an XRC target belong to the shared queue and stay. */
	if (qp->ibqp.send_cq)
		ropcie_cq_forget(to_rcq(qp->ibqp.send_cq), ropcie_wc_qp(qp));
	if (qp->ibqp.recv_cq && qp->ibqp.recv_cq != qp->ibqp.send_cq)
		ropcie_cq_forget(to_rcq(qp->ibqp.recv_cq), ropcie_wc_qp(qp));
}

static int check_attr(struct ropcie_qp *qp, const struct ib_qp_attr *attr,
		      int mask)
{
	enum ib_mtu port_mtu = iboe_get_mtu(READ_ONCE(qp->dev->netdev->mtu));

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if (mask & (IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE))
		return -EOPNOTSUPP;
	if (((mask & IB_QP_PORT) && attr->port_num != 1) ||
	    ((mask & IB_QP_PKEY_INDEX) && attr->pkey_index) ||
	    ((mask & IB_QP_ACCESS_FLAGS) &&
	     (attr->qp_access_flags & ~IB_ACCESS_SUPPORTED)) ||
	    ((mask & IB_QP_PATH_MTU) && (attr->path_mtu < IB_MTU_256 ||
					 attr->path_mtu > port_mtu)) ||
	    ((mask & IB_QP_TIMEOUT) && attr->timeout > 31) ||
	    ((mask & IB_QP_RETRY_CNT) && attr->retry_cnt > 7) ||
	    ((mask & IB_QP_RNR_RETRY) && attr->rnr_retry > 7) ||
	    ((mask & IB_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31) ||
	    ((mask & IB_QP_DEST_QPN) && (!attr->dest_qp_num ||
			attr->dest_qp_num > ROPCIE_QPN_MASK)) ||
	    ((mask & IB_QP_MAX_QP_RD_ATOMIC) &&
	     attr->max_rd_atomic > ROPCIE_MAX_RD_ATOMIC) ||
	    ((mask & IB_QP_MAX_DEST_RD_ATOMIC) &&
	     attr->max_dest_rd_atomic > ROPCIE_MAX_RD_ATOMIC))
		return -EINVAL;
	if ((mask & IB_QP_AV) &&
	    (attr->ah_attr.type != RDMA_AH_ATTR_TYPE_ROCE ||
	     !(rdma_ah_get_ah_flags(&attr->ah_attr) & IB_AH_GRH)))
		return -EINVAL;
	return 0;
}

/* Remember what was set, for query_qp and for the engines. */
static void store_attr(struct ropcie_qp *qp, const struct ib_qp_attr *attr,
		       int mask)
{
	struct ib_qp_attr *a = &qp->attr;

	if (mask & IB_QP_PORT)
		a->port_num = attr->port_num;
	if (mask & IB_QP_PKEY_INDEX)
		a->pkey_index = attr->pkey_index;
	if (mask & IB_QP_ACCESS_FLAGS)
		a->qp_access_flags = attr->qp_access_flags;
	if (mask & IB_QP_PATH_MTU)
		a->path_mtu = attr->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		a->timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		a->retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		a->rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_MIN_RNR_TIMER)
		a->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_QKEY)
		a->qkey = attr->qkey;
	if (mask & IB_QP_DEST_QPN)
		a->dest_qp_num = attr->dest_qp_num;
	if (mask & IB_QP_RQ_PSN)
		a->rq_psn = attr->rq_psn & ROPCIE_PSN_MASK;
	if (mask & IB_QP_SQ_PSN)
		a->sq_psn = attr->sq_psn & ROPCIE_PSN_MASK;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		a->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		a->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_AV)
		rdma_copy_ah_attr(&a->ah_attr, &attr->ah_attr);
	/* Asked for with each transition to SQD (IBTA 10.3.1.5). */
	if ((mask & IB_QP_STATE) && attr->qp_state == IB_QPS_SQD &&
	    qp->state != IB_QPS_SQD)
		a->en_sqd_async_notify = (mask & IB_QP_EN_SQD_ASYNC_NOTIFY) &&
					 attr->en_sqd_async_notify;
}

/* IBTA: 4.096 us * 2^timeout; 0 waits for ever. */
static u64 timeout_ns(u8 timeout)
{
	return timeout ? 4096ULL << timeout : 0;
}

static void start_responder(struct ropcie_qp *qp)
{
	struct ropcie_rsp_attr attr = {
		.psn = qp->attr.rq_psn,
		.dest_qpn = qp->attr.dest_qp_num,
		.src_qpn = qp->ibqp.qp_num,
		.min_rnr_timer = qp->attr.min_rnr_timer,
		.max_rd_atomic = qp->attr.max_dest_rd_atomic,
		.unreliable = !ropcie_is_reliable(qp),
		.xrc = ropcie_is_xrc_target(qp),
		.access = qp->attr.qp_access_flags,
	};

	ropcie_rsp_connect(&qp->rsp, &attr);
}

static void start_requester(struct ropcie_qp *qp)
{
	bool near = qp->tx.peer && ropcie_peer_is_near(qp->tx.peer);
	struct ropcie_req_attr attr = {
		.psn = qp->attr.sq_psn,
		.frag = near ? ROPCIE_MAX_FRAG : ROPCIE_FRAG,
		.dest_qpn = qp->attr.dest_qp_num,
		.src_qpn = qp->ibqp.qp_num,
		.retry_cnt = qp->attr.retry_cnt,
		.rnr_retry = qp->attr.rnr_retry,
		.max_rd_atomic = qp->attr.max_rd_atomic,
		.unreliable = !ropcie_is_reliable(qp),
		.timeout_ns = timeout_ns(qp->attr.timeout),
	};

	ropcie_req_connect(&qp->req, &attr);
}

/* What was posted in SQE is flushed, not sent; what is posted meanwhile may be either. */
static void flush_sqe(struct ropcie_qp *qp)
{
	u32 left = 2 * qp->sq_max_wr / ROPCIE_FLUSH_BUDGET + 2;
	bool more = true;

	for (; more && left; left--) {
		spin_lock_bh(&qp->lock);
		more = qp->state == IB_QPS_SQE && ropcie_qp_flush_sends(qp);
		ropcie_qp_unlock(qp);
		cond_resched();
	}
}

/*
 * The engines take the new state and attributes. The QP may have failed since
 * the transition was checked, and its peer since it was found.
 */
static int enter_state(struct ropcie_qp *qp, const struct ib_qp_attr *attr,
		       int mask, enum ib_qp_state cur, enum ib_qp_state next)
{
	int ret = 0;

	spin_lock_bh(&qp->lock);
	/* An error may have come first. */
	if (qp->state != cur && next != IB_QPS_ERR) {
		ret = -EINVAL;
		goto out;
	}
	store_attr(qp, attr, mask);
	if (next == IB_QPS_RTR && cur != next)
		start_responder(qp);
	if (next == IB_QPS_RTS && cur == IB_QPS_RTR)
		start_requester(qp);
	if (next == IB_QPS_RTS && cur == IB_QPS_SQE) {
		ropcie_qp_flush_sends(qp);
		ropcie_req_resume(&qp->req);
	}
	WRITE_ONCE(qp->qkey, qp->attr.qkey);
	ropcie_req_set_retries(&qp->req, qp->attr.retry_cnt,
			       qp->attr.rnr_retry, timeout_ns(qp->attr.timeout),
			       ktime_get_ns());
	qp->req.attr.max_rd_atomic = qp->attr.max_rd_atomic;
	qp->rsp.attr.min_rnr_timer = qp->attr.min_rnr_timer;
	qp->rsp.attr.max_rd_atomic = qp->attr.max_dest_rd_atomic;
	qp->rsp.attr.access = qp->attr.qp_access_flags;
	ropcie_req_drain(&qp->req, next == IB_QPS_SQD);
	if (qp->place)
		qp->place->out.closed = qp->place->lost ||
					qp->req.error || qp->req.local_error;
	if (next != cur)
		qp->sq_drained = false;
	if (next == IB_QPS_ERR) {
		ropcie_qp_to_error(qp);
	} else {
		WRITE_ONCE(qp->state, next);
		if (!ropcie_is_ud(qp) && qp->connected &&
		    !ropcie_mq_is_connected(&qp->tx))
			ropcie_qp_link_lost(qp);
	}
out:
	ropcie_qp_unlock(qp);
	return ret;
}

static int modify_locked(struct ropcie_qp *qp, struct ib_qp_attr *attr,
			 int mask)
{
	enum ib_qp_state cur = READ_ONCE(qp->state);
	enum ib_qp_state next = mask & IB_QP_STATE ? attr->qp_state : cur;
	int ret;

	if ((mask & IB_QP_CUR_STATE) && attr->cur_qp_state != cur)
		return -EINVAL;
	ret = ropcie_qp_transition(core_type(qp), (enum ropcie_qps)cur,
				   (enum ropcie_qps)next, mask);
	if (ret)
		return ret;
	ret = check_attr(qp, attr, mask);
	if (ret)
		return ret;
	if (next == IB_QPS_RESET) {
		if (cur != IB_QPS_RESET)
			qp_reset(qp, false);
		return 0;
	}
	if (mask & IB_QP_AV) {
		/* A connected QP keeps its path. */
		if (qp->connected)
			return -EOPNOTSUPP;
		ret = qp_connect(qp, &attr->ah_attr);
		if (ret)
			return ret;
	} else if (ropcie_is_ud(qp) && next == IB_QPS_RTR && cur != next) {
		ret = qp_connect(qp, NULL);
		if (ret)
			return ret;
	}
	if (next == IB_QPS_ERR ||
	    ((mask & IB_QP_ACCESS_FLAGS) &&
	     !(attr->qp_access_flags & IB_ACCESS_REMOTE_WRITE)))
		ropcie_placement_close(qp);
	if (cur == IB_QPS_SQE && next == IB_QPS_RTS)
		flush_sqe(qp);
	return enter_state(qp, attr, mask, cur, next);
}

int ropcie_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_udata *udata)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	int ret;

	if (ropcie_udata_unknown(udata))
		return -EOPNOTSUPP;
	mutex_lock(&qp->mutex);
	ret = modify_locked(qp, attr, mask);
	mutex_unlock(&qp->mutex);
	if (!ret)
		ropcie_qp_kick(qp);
	return ret;
}

int ropcie_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init)
{
	struct ropcie_qp *qp = to_rqp(ibqp);

	mutex_lock(&qp->mutex);
	*attr = qp->attr;
	attr->ah_attr.grh.sgid_attr = NULL; /* the QP's reference */
	spin_lock_bh(&qp->lock);
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	attr->sq_draining = qp->state == IB_QPS_SQD &&
			    !ropcie_req_drained(&qp->req);
	if (qp->state >= IB_QPS_RTS)
		attr->sq_psn = qp->req.next_psn;
	if (qp->state >= IB_QPS_RTR)
		attr->rq_psn = qp->rsp.epsn;
	spin_unlock_bh(&qp->lock);
	mutex_unlock(&qp->mutex);
	attr->cap = qp->init.cap;
	attr->path_mig_state = IB_MIG_MIGRATED;
	*init = qp->init;
	return 0;
}

void ropcie_qp_put(struct ropcie_qp *qp)
{
	if (refcount_dec_and_test(&qp->refs))
		complete(&qp->unused);
}

int ropcie_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	struct ropcie_dev *dev = qp->dev;

	/* Older kernels let netlink look at it until this has returned. */
	mutex_lock(&qp->mutex);
	qp_reset(qp, true);
	mutex_unlock(&qp->mutex);

	/* A target that may receive is among them: see xrc.c. */
	mutex_lock(&dev->qp_mutex);
	xa_erase(&dev->qps, ibqp->qp_num);
	if (ibqp->qp_type != IB_QPT_GSI)
		dev->num_qps--;
	ropcie_leave_groups(qp);
	mutex_unlock(&dev->qp_mutex);

	ropcie_odp_exit_qp(qp);
	ropcie_qp_put(qp);
	wait_for_completion(&qp->unused);
	tasklet_kill(&qp->raise);
	mutex_lock(&dev->qp_mutex);
	rest_wc_name(dev, qp->wc_name);
	mutex_unlock(&dev->qp_mutex);
	unreserve_cqes(&qp->init);
	free_queues(qp);
	return 0;
}

static void peer_lost(struct ropcie_qp *qp, const struct ropcie_peer *peer)
{
	spin_lock_bh(&qp->lock);
	/* It may have been reset, and connected to another, since it was looked at. */
	if (!qp->connected || qp->tx.peer != peer)
		goto out;
	if (qp->place)
		ropcie_placement_lost(qp);
	ropcie_rsp_stop(&qp->rsp);
	if (qp->state != IB_QPS_ERR && qp->state != IB_QPS_RESET)
		ropcie_qp_link_lost(qp);
out:
	ropcie_qp_unlock(qp);
}

void ropcie_qp_peer_down(struct ropcie_dev *dev, struct ropcie_peer *peer)
{
	struct ropcie_qp *qp;
	unsigned long qpn;

	mutex_lock(&dev->qp_mutex);
	xa_for_each(&dev->qps, qpn, qp) {
		if (ropcie_is_ud(qp))
			ropcie_ud_peer_down(qp, peer);
		else if (READ_ONCE(qp->connected) && qp->tx.peer == peer)
			peer_lost(qp, peer);
		cond_resched();
	}
	mutex_unlock(&dev->qp_mutex);
}
