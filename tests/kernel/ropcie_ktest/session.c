// SPDX-License-Identifier: GPL-2.0
/*
 * One queue pair of an RDMA device: its set-up, its messages, its end. Does
 * not know how its address reaches the other side.
 */
#include <linux/etherdevice.h>
#include <linux/random.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>

#include "ktest.h"

#define KTEST_PATIENCE (30 * HZ) /* for one message */
#define KTEST_TICK (HZ / 10)

/* Around every size at which a driver may do something else. */
static const u32 ktest_sizes[] = {
	0, 1, 2, 3, 7, 8, 9, 27, 28, 29, 31, 32, 33, 51, 52, 53, 63, 64, 65,
	127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047,
	2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 16383, 16384, 16385,
	32767, 32768, 32769, 65535, 65536, 65537, 131071, 131072, 131073,
	262143, 262144, 262145, 524287, 524288, 524289,
	KTEST_MAX_SIZE - 1, KTEST_MAX_SIZE,
};

static int ktest_fail(struct ktest_session *s, const struct ktest_message *msg,
		      const char *what, int value)
{
	snprintf(s->result, KTEST_RESULT_LEN,
		 "FAIL message %u, %u bytes at %u: %s (%d)\n", msg->num,
		 msg->size, msg->offset, what, value);
	return -EIO;
}

static void ktest_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ktest_work *work =
		container_of(wc->wr_cqe, struct ktest_work, cqe);

	work->wc = *wc;
	complete(&work->done);
}

static int ktest_work_init(struct ktest_session *s, struct ktest_work *work)
{
	work->cqe.done = ktest_done;
	init_completion(&work->done);
	return ktest_buffer_alloc(&work->buf, s->ibdev);
}

int ktest_choose_gid(struct ib_device *ibdev, struct ktest_address *local)
{
	int i, num = ibdev->port_data[KTEST_PORT].immutable.gid_tbl_len;

	for (i = 0; i < num; i++) {
		const struct ib_gid_attr *attr =
			rdma_get_gid_attr(ibdev, KTEST_PORT, i);
		bool fits;

		if (IS_ERR(attr))
			continue;
		fits = attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
		       ipv6_addr_v4mapped((struct in6_addr *)&attr->gid) &&
		       !rdma_read_gid_l2_fields(attr, NULL, local->mac);
		local->gid = attr->gid;
		rdma_put_gid_attr(attr);
		if (fits)
			return i;
	}
	return -ENOENT;
}

static int ktest_create_qp(struct ktest_session *s, enum ib_poll_context poll)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		/* One more of each than is used: draining takes it. */
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 3,
			.max_send_sge = KTEST_CHUNKS,
			.max_recv_sge = KTEST_CHUNKS,
		},
	};
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = KTEST_PORT,
	};
	int err;

	s->pd = ib_alloc_pd(s->ibdev, 0);
	if (IS_ERR(s->pd))
		return PTR_ERR(s->pd);
	s->cq = ib_alloc_cq(s->ibdev, s, 16, 0, poll);
	if (IS_ERR(s->cq))
		return PTR_ERR(s->cq);
	init.send_cq = s->cq;
	init.recv_cq = s->cq;
	s->qp = ib_create_qp(s->pd, &init);
	if (IS_ERR(s->qp))
		return PTR_ERR(s->qp);
	err = ktest_fast_open(&s->fast, s->pd);
	if (err)
		return err;
	s->local.qpn = s->qp->qp_num;
	s->local.psn = get_random_u32() & 0xffffff;
	return ib_modify_qp(s->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			    IB_QP_PORT | IB_QP_ACCESS_FLAGS);
}

int ktest_session_open(struct ktest_session *s, enum ib_poll_context poll)
{
	int err;

	s->sgid_index = ktest_choose_gid(s->ibdev, &s->local);
	err = min(s->sgid_index, 0);
	if (!err)
		err = ktest_work_init(s, &s->send);
	if (!err)
		err = ktest_work_init(s, &s->recv[0]);
	if (!err)
		err = ktest_work_init(s, &s->recv[1]);
	if (!err)
		err = ktest_create_qp(s, poll);
	if (err)
		ktest_session_close(s);
	return err;
}

int ktest_connect(struct ib_qp *qp, int sgid_index, u32 psn,
		  const struct ktest_address *remote, u8 rd_atomic)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = rd_atomic,
		.min_rnr_timer = 1,
	};
	int err;

	attr.ah_attr.type = rdma_ah_find_type(qp->device, KTEST_PORT);
	rdma_ah_set_port_num(&attr.ah_attr, KTEST_PORT);
	rdma_ah_set_grh(&attr.ah_attr, NULL, 0, sgid_index, 64, 0);
	rdma_ah_set_dgid_raw(&attr.ah_attr, (void *)&remote->gid);
	/* ib_core resolves this for user space and for its own CM only. */
	ether_addr_copy(attr.ah_attr.roce.dmac, remote->mac);
	err = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV |
			   IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			   IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	if (err)
		return err;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IB_QPS_RTS;
	attr.sq_psn = psn;
	attr.timeout = 18; /* 1 s */
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = rd_atomic;
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT |
			    IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN |
			    IB_QP_MAX_QP_RD_ATOMIC);
}

int ktest_session_connect(struct ktest_session *s,
			  const struct ktest_address *remote)
{
	int err = ktest_connect(s->qp, s->sgid_index, s->local.psn, remote, 0);

	s->connected = !err;
	return err;
}

/* Return: 0, or an errno that says why the wait has ended. */
static int ktest_wait(struct ktest_session *s, struct ktest_work *work)
{
	unsigned long end = jiffies + KTEST_PATIENCE;
	long left;

	while (time_before(jiffies, end) && !READ_ONCE(*s->stop)) {
		if (s->cq->poll_ctx == IB_POLL_DIRECT) {
			ib_process_cq_direct(s->cq, 4);
			if (try_wait_for_completion(&work->done))
				return 0;
			if (fatal_signal_pending(current))
				return -EINTR;
			cond_resched();
			continue;
		}
		left = wait_for_completion_killable_timeout(&work->done,
							    KTEST_TICK);
		if (left)
			return left < 0 ? left : 0;
	}
	return READ_ONCE(*s->stop) ? -ESHUTDOWN : -ETIMEDOUT;
}

/* The messages of one direction: number, size, place and immediate data. */
static void ktest_message(struct ktest_message *msg, u32 num, bool first)
{
	msg->num = num;
	msg->size = ktest_sizes[num % ARRAY_SIZE(ktest_sizes)];
	msg->offset = KTEST_GUARD + num * 5 % 64;
	msg->imm = num % 3 ? 0 : num + 1;
	msg->seed = first ? 0 : 101;
}

static int ktest_post_send(struct ktest_session *s,
			   const struct ktest_message *msg,
			   struct ib_send_wr *wr)
{
	int err;

	reinit_completion(&s->send.done);
	/* Every other message comes from a region of its own. */
	if (!msg->size || msg->num % 2)
		return ib_post_send(s->qp, wr, NULL);
	err = ktest_fast_list(&s->fast, &s->send.buf, msg, wr);
	if (err)
		return err;
	err = ib_post_send(s->qp, s->fast.first, NULL);
	if (err)
		ktest_fast_unmap(&s->fast);
	return err;
}

static int ktest_send_one(struct ktest_session *s,
			  const struct ktest_message *msg)
{
	struct ib_sge sge[KTEST_CHUNKS];
	struct ib_send_wr wr = {
		.wr_cqe = &s->send.cqe,
		.sg_list = sge,
		.opcode = msg->imm ? IB_WR_SEND_WITH_IMM : IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
		.ex.imm_data = cpu_to_be32(msg->imm),
	};
	int err;

	ktest_buffer_fill(&s->send.buf, msg);
	wr.num_sge = ktest_buffer_sges(&s->send.buf, s->ibdev, msg,
				       s->pd->local_dma_lkey, DMA_TO_DEVICE,
				       sge);
	err = ktest_post_send(s, msg, &wr);
	if (err)
		return ktest_fail(s, msg, "ib_post_send", err);
	err = ktest_wait(s, &s->send);
	if (msg->size && !(msg->num % 2))
		ktest_fast_unmap(&s->fast);
	if (err)
		return ktest_fail(s, msg, "no send completion", err);
	if (s->send.wc.status != IB_WC_SUCCESS)
		return ktest_fail(s, msg, ib_wc_status_msg(s->send.wc.status),
				  s->send.wc.status);
	if (s->send.wc.opcode != IB_WC_SEND)
		return ktest_fail(s, msg, "opcode of the send completion",
				  s->send.wc.opcode);
	return 0;
}

static int ktest_post_recv(struct ktest_session *s,
			   const struct ktest_message *msg)
{
	struct ktest_work *work = &s->recv[msg->num % 2];
	struct ib_sge sge[KTEST_CHUNKS];
	struct ib_recv_wr wr = {
		.wr_cqe = &work->cqe,
		.sg_list = sge,
	};
	int err;

	ktest_buffer_poison(&work->buf);
	wr.num_sge = ktest_buffer_sges(&work->buf, s->ibdev, msg,
				       s->pd->local_dma_lkey, DMA_FROM_DEVICE,
				       sge);
	reinit_completion(&work->done);
	err = ib_post_recv(s->qp, &wr, NULL);
	return err ? ktest_fail(s, msg, "ib_post_recv", err) : 0;
}

static int ktest_check_recv(struct ktest_session *s,
			    const struct ktest_message *msg)
{
	struct ktest_work *work = &s->recv[msg->num % 2];
	struct ib_wc *wc = &work->wc;
	int err, pos;

	err = ktest_wait(s, work);
	if (err)
		return ktest_fail(s, msg, "no receive completion", err);
	if (wc->status != IB_WC_SUCCESS)
		return ktest_fail(s, msg, ib_wc_status_msg(wc->status),
				  wc->status);
	if (wc->opcode != IB_WC_RECV || wc->qp != s->qp)
		return ktest_fail(s, msg, "opcode of the receive completion",
				  wc->opcode);
	if (wc->byte_len != msg->size)
		return ktest_fail(s, msg, "byte_len", wc->byte_len);
	if (!!(wc->wc_flags & IB_WC_WITH_IMM) != !!msg->imm ||
	    (msg->imm && be32_to_cpu(wc->ex.imm_data) != msg->imm))
		return ktest_fail(s, msg, "immediate data", wc->wc_flags);
	ktest_buffer_sync_for_cpu(&work->buf, s->ibdev);
	pos = ktest_buffer_check(&work->buf, msg);
	if (pos >= 0)
		return ktest_fail(s, msg, "wrong byte", pos - KTEST_GUARD);
	return 0;
}

static int ktest_send_all(struct ktest_session *s, bool first, u32 count)
{
	struct ktest_message msg;
	u32 num;
	int err = 0;

	for (num = 0; num < count && !err; num++) {
		ktest_message(&msg, num, first);
		err = ktest_send_one(s, &msg);
		s->messages++;
		s->bytes += msg.size;
	}
	return err;
}

/* One receive is posted ahead; a fast sender still finds none at times. */
static int ktest_recv_all(struct ktest_session *s, bool first, u32 count)
{
	struct ktest_message msg, next;
	u32 num;
	int err;

	ktest_message(&next, 0, first);
	err = ktest_post_recv(s, &next);
	for (num = 0; num < count && !err; num++) {
		msg = next;
		if (num + 1 < count) {
			ktest_message(&next, num + 1, first);
			err = ktest_post_recv(s, &next);
		}
		if (!err)
			err = ktest_check_recv(s, &msg);
		s->messages++;
		s->bytes += msg.size;
	}
	return err;
}

int ktest_session_run(struct ktest_session *s, bool first, u32 rounds)
{
	u32 count = rounds * ARRAY_SIZE(ktest_sizes);
	int err;

	err = first ? ktest_send_all(s, true, count) :
		      ktest_recv_all(s, true, count);
	if (!err)
		err = first ? ktest_recv_all(s, false, count) :
			      ktest_send_all(s, false, count);
	if (!err)
		snprintf(s->result, KTEST_RESULT_LEN,
			 "PASS %u messages, %llu bytes\n", s->messages,
			 s->bytes);
	return err;
}

void ktest_session_close(struct ktest_session *s)
{
	if (!IS_ERR_OR_NULL(s->qp)) {
		/* Nothing is in flight before the first connection. */
		if (s->connected)
			ib_drain_qp(s->qp);
		ib_destroy_qp(s->qp);
	}
	if (!IS_ERR_OR_NULL(s->cq))
		ib_free_cq(s->cq);
	ktest_fast_close(&s->fast);
	ktest_buffer_free(&s->send.buf, s->ibdev);
	ktest_buffer_free(&s->recv[0].buf, s->ibdev);
	ktest_buffer_free(&s->recv[1].buf, s->ibdev);
	if (!IS_ERR_OR_NULL(s->pd))
		ib_dealloc_pd(s->pd);
}
