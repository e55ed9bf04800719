// SPDX-License-Identifier: GPL-2.0
/*
 * A message that takes the key of its own source away: two queue pairs of one domain
 * are connected with each other, and IB_WR_SEND_WITH_INV names the region that it is
 * sent from. Who invalidates waits for who uses the region, which must not be the
 * sender. In the end, more is flushed than the completion queue was made for, of which
 * nothing is signaled.
 */
#include <linux/etherdevice.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "ktest.h"

#define PATIENCE (30 * HZ)
#define OWN_PAGES 64
#define OWN_LEN (OWN_PAGES * PAGE_SIZE)
/* After one in so many, the region is used once more, which ends the connection. */
#define OWN_ENDS 4
#define OWN_CQES 16
#define OWN_FLUSHED (8 * OWN_CQES)

/* From what travels in a slot to several records. */
static const u32 own_sizes[] = { 1, 20, 64, 4096, 10001, 65536, 150000, OWN_LEN };

/**
 * struct own_test - a test
 * @ibdev: device
 * @stop: somebody wants it to end
 * @result: one line
 * @address: of the device
 * @sgid_index: its GID
 * @pd: domain of both
 * @cq: of all sends
 * @recv_cq: of all receives
 * @qp: queue pairs, which take turns in sending
 * @lives: how often they were connected
 * @mr: region behind @source
 * @source: what is sent
 * @target: where it is received
 * @source_dma: address of @source
 * @target_dma: address of @target
 * @round: how many messages there were
 * @flushed: what was flushed
 */
struct own_test {
	struct ib_device *ibdev;
	const bool *stop;
	char *result;
	struct ktest_address address;
	int sgid_index;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_cq *recv_cq;
	struct ib_qp *qp[2];
	u32 lives;
	struct ib_mr *mr;
	u8 *source;
	u8 *target;
	u64 source_dma;
	u64 target_dma;
	u32 round;
	u32 flushed;
};

/* Return: 0 when @is is @right. */
static int expect(struct own_test *t, const char *what, s64 is, s64 right)
{
	if (is == right)
		return 0;
	snprintf(t->result, KTEST_RESULT_LEN,
		 "FAIL message %u: %s is %lld, not %lld\n", t->round, what, is,
		 right);
	return -EIO;
}

static int await(struct own_test *t, struct ib_cq *cq, struct ib_wc *wc)
{
	unsigned long end = jiffies + PATIENCE;

	while (ib_poll_cq(cq, 1, wc) != 1) {
		cond_resched();
		if (READ_ONCE(*t->stop))
			return -ESHUTDOWN;
		if (fatal_signal_pending(current))
			return -EINTR;
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
	}
	return 0;
}

static int post(struct own_test *t, struct ib_qp *qp, struct ib_send_wr *wr,
		const char *what, enum ib_wc_status right)
{
	struct ib_wc wc;
	int err;

	wr->send_flags = IB_SEND_SIGNALED;
	err = ib_post_send(qp, wr, NULL) ?: await(t, t->cq, &wc);
	return expect(t, what, err ? err : wc.status, right);
}

static int register_source(struct own_test *t, struct ib_qp *qp)
{
	struct ib_reg_wr wr = {
		.wr.opcode = IB_WR_REG_MR,
		.mr = t->mr,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ,
	};
	struct scatterlist sg;

	sg_init_table(&sg, 1);
	sg_dma_address(&sg) = t->source_dma;
	sg_dma_len(&sg) = OWN_LEN;
	ib_update_fast_reg_key(t->mr, ib_inc_rkey(t->mr->rkey));
	if (ib_map_mr_sg(t->mr, &sg, 1, NULL, PAGE_SIZE) != 1)
		return expect(t, "what ib_map_mr_sg() returns", 0, 1);
	wr.key = t->mr->rkey;
	/* It fails if the last message has not made the region invalid. */
	return post(t, qp, &wr.wr, "status of REG_MR", IB_WC_SUCCESS);
}

/* Send from the region. */
static int send(struct own_test *t, struct ib_qp *qp, enum ib_wr_opcode op,
		u32 len, enum ib_wc_status right)
{
	struct ib_sge sge = {
		.addr = t->mr->iova,
		.length = len,
		.lkey = t->mr->lkey,
	};
	struct ib_send_wr wr = {
		.opcode = op,
		.sg_list = &sge,
		.num_sge = 1,
		.ex.invalidate_rkey = t->mr->rkey,
	};

	return post(t, qp, &wr, "status of the SEND", right);
}

static int post_recv(struct own_test *t, struct ib_qp *qp)
{
	struct ib_sge sge = {
		.addr = t->target_dma,
		.length = OWN_LEN,
		.lkey = t->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

	memset(t->target, 0, OWN_LEN);
	ib_dma_sync_single_for_device(t->ibdev, t->target_dma, OWN_LEN,
				      DMA_FROM_DEVICE);
	return ib_post_recv(qp, &wr, NULL);
}

static int check_recv(struct own_test *t, u32 len)
{
	struct ib_wc wc;
	int err = await(t, t->recv_cq, &wc);

	err = expect(t, "status of the receive", err ? err : wc.status,
		     IB_WC_SUCCESS);
	if (!err)
		err = expect(t, "the key that was taken away",
			     wc.wc_flags & IB_WC_WITH_INVALIDATE ?
				     wc.ex.invalidate_rkey : -1, t->mr->rkey);
	if (!err)
		err = expect(t, "length of the receive", wc.byte_len, len);
	if (err)
		return err;
	ib_dma_sync_single_for_cpu(t->ibdev, t->target_dma, OWN_LEN,
				   DMA_FROM_DEVICE);
	err = expect(t, "difference of the bytes",
		     !!memcmp(t->target, t->source, len), 0);
	return err ? err : expect(t, "bytes behind them",
				  !!memchr_inv(t->target + len, 0,
					       OWN_LEN - len), 0);
}

static int connect(struct own_test *t)
{
	struct ib_qp_attr init = {
		.qp_state = IB_QPS_INIT,
		.port_num = KTEST_PORT,
	};
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET };
	u32 psn = (++t->lives << 16) & 0xffffff;
	struct ktest_address peer = t->address;
	struct ib_wc wc;
	int i, err = 0;

	for (i = 0; i < 2 && !err; i++) {
		err = ib_modify_qp(t->qp[i], &reset, IB_QP_STATE) ?:
		      ib_modify_qp(t->qp[i], &init,
				   IB_QP_STATE | IB_QP_PKEY_INDEX |
				   IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	}
	while (ib_poll_cq(t->cq, 1, &wc) > 0 ||
	       ib_poll_cq(t->recv_cq, 1, &wc) > 0)
		;
	peer.psn = psn;
	for (i = 0; i < 2 && !err; i++) {
		peer.qpn = t->qp[!i]->qp_num;
		err = ktest_connect(t->qp[i], t->sgid_index, psn, &peer, 1);
	}
	return err;
}

static void fill(struct own_test *t)
{
	u32 i;

	for (i = 0; i < OWN_LEN; i++)
		t->source[i] = i * 7 + (i >> 8) * 13 + t->round;
	ib_dma_sync_single_for_device(t->ibdev, t->source_dma, OWN_LEN,
				      DMA_TO_DEVICE);
}

static int one_message(struct own_test *t)
{
	u32 len = own_sizes[t->round / 2 % ARRAY_SIZE(own_sizes)];
	struct ib_qp *from = t->qp[t->round % 2], *to = t->qp[!(t->round % 2)];
	int err;

	fill(t);
	err = register_source(t, from);
	if (!err)
		err = post_recv(t, to);
	if (!err)
		err = send(t, from, IB_WR_SEND_WITH_INV, len, IB_WC_SUCCESS);
	if (!err)
		err = check_recv(t, len);
	if (err || t->round % OWN_ENDS)
		return err;
	err = send(t, from, IB_WR_SEND, len, IB_WC_LOC_PROT_ERR);
	return err ? err : connect(t);
}

static void count_flushed(struct ib_cq *cq, struct ib_wc *wc)
{
	struct own_test *t = cq->cq_context;

	if (wc->status == IB_WC_WR_FLUSH_ERR)
		t->flushed++;
}

/* Of messages that nobody receives. */
static int flush(struct own_test *t)
{
	struct ib_cqe cqe = { .done = count_flushed };
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .wr_cqe = &cqe };
	u32 i;
	int err = 0;

	for (i = 0; i < OWN_FLUSHED && !err; i++)
		err = ib_post_send(t->qp[0], &wr, NULL);
	if (err)
		return expect(t, "what ib_post_send() returns", err, 0);
	ib_drain_sq(t->qp[0]);
	return expect(t, "number of those flushed", t->flushed, OWN_FLUSHED);
}

static int map(struct own_test *t, u8 *area, enum dma_data_direction dir,
	       u64 *dma)
{
	u64 addr = ib_dma_map_single(t->ibdev, area, OWN_LEN, dir);

	if (ib_dma_mapping_error(t->ibdev, addr))
		return -EIO;
	*dma = addr;
	return 0;
}

static int open(struct own_test *t)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = {
			/* One more: draining takes it. */
			.max_send_wr = OWN_FLUSHED + 1,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	int i, err;

	t->sgid_index = ktest_choose_gid(t->ibdev, &t->address);
	if (t->sgid_index < 0)
		return t->sgid_index;
	t->source = (u8 *)__get_free_pages(GFP_KERNEL, get_order(OWN_LEN));
	t->target = (u8 *)__get_free_pages(GFP_KERNEL, get_order(OWN_LEN));
	if (!t->source || !t->target)
		return -ENOMEM;
	err = map(t, t->source, DMA_TO_DEVICE, &t->source_dma);
	if (!err)
		err = map(t, t->target, DMA_FROM_DEVICE, &t->target_dma);
	if (err)
		return err;
	t->pd = ib_alloc_pd(t->ibdev, 0);
	if (IS_ERR(t->pd))
		return PTR_ERR(t->pd);
	t->cq = ib_alloc_cq(t->ibdev, t, OWN_CQES, 0, IB_POLL_DIRECT);
	if (IS_ERR(t->cq))
		return PTR_ERR(t->cq);
	t->recv_cq = ib_alloc_cq(t->ibdev, t, OWN_CQES, 0, IB_POLL_DIRECT);
	if (IS_ERR(t->recv_cq))
		return PTR_ERR(t->recv_cq);
	init.send_cq = t->cq;
	init.recv_cq = t->recv_cq;
	for (i = 0; i < 2; i++) {
		t->qp[i] = ib_create_qp(t->pd, &init);
		if (IS_ERR(t->qp[i]))
			return PTR_ERR(t->qp[i]);
	}
	t->mr = ib_alloc_mr(t->pd, IB_MR_TYPE_MEM_REG, OWN_PAGES);
	return PTR_ERR_OR_ZERO(t->mr) ?: connect(t);
}

static void close(struct own_test *t)
{
	int i;

	for (i = 0; i < 2; i++)
		if (!IS_ERR_OR_NULL(t->qp[i]))
			ib_destroy_qp(t->qp[i]);
	if (!IS_ERR_OR_NULL(t->mr))
		ib_dereg_mr(t->mr);
	if (!IS_ERR_OR_NULL(t->recv_cq))
		ib_free_cq(t->recv_cq);
	if (!IS_ERR_OR_NULL(t->cq))
		ib_free_cq(t->cq);
	if (!IS_ERR_OR_NULL(t->pd))
		ib_dealloc_pd(t->pd);
	if (t->target_dma)
		ib_dma_unmap_single(t->ibdev, t->target_dma, OWN_LEN,
				    DMA_FROM_DEVICE);
	if (t->source_dma)
		ib_dma_unmap_single(t->ibdev, t->source_dma, OWN_LEN,
				    DMA_TO_DEVICE);
	free_pages((unsigned long)t->source, get_order(OWN_LEN));
	free_pages((unsigned long)t->target, get_order(OWN_LEN));
}

int own_run(struct ib_device *ibdev, u32 rounds, const bool *stop, char *result)
{
	struct own_test *t = kzalloc(sizeof(*t), GFP_KERNEL);
	int err;

	if (!t)
		return -ENOMEM;
	t->ibdev = ibdev;
	t->stop = stop;
	t->result = result;
	snprintf(result, KTEST_RESULT_LEN, "FAIL not connected\n");
	err = open(t);
	for (; t->round < rounds && !err; t->round++)
		err = one_message(t);
	if (!err)
		err = flush(t);
	close(t);
	if (!err)
		snprintf(result, KTEST_RESULT_LEN,
			 "PASS %u messages, %u flushed\n", rounds,
			 OWN_FLUSHED);
	kfree(t);
	return err;
}
