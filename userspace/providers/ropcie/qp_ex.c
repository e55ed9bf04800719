// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The extended posting interface (ibv_wr_start() to ibv_wr_complete()) on top
 * of the plain one: the calls in between build a list, which the last one
 * posts.
 *
 * A batch is all or nothing (ibv_wr_post(3)). The exception, without mapped queues,
 * is what only the kernel can tell, a send queue that fills up inside a batch above
 * all: uverbs takes what fits, and ibv_wr_complete() then returns ENOMEM with the
 * batch's first requests posted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "post.h"
#include "ropcie.h"

struct ropcie_send_batch {
	/* From ibv_wr_start() to ibv_wr_complete() or ibv_wr_abort(). */
	pthread_mutex_t lock;
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	char *data;
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t max_inline;
	uint32_t count;
	/* The first error since ibv_wr_start(). */
	int error;
};

static struct ropcie_send_batch *batch_of(struct ibv_qp_ex *qp_ex)
{
	return to_rqp(&qp_ex->qp_base)->batch;
}

static void fail(struct ropcie_send_batch *batch, int error)
{
	if (!batch->error)
		batch->error = error;
}

/* The request that is being built; NULL once the batch has failed. */
static struct ibv_send_wr *current_wr(struct ropcie_send_batch *batch)
{
	if (!batch->error && !batch->count)
		batch->error = EINVAL;
	return batch->error ? NULL : &batch->wr[batch->count - 1];
}

static struct ibv_send_wr *add_wr(struct ibv_qp_ex *qp_ex,
				  enum ibv_wr_opcode opcode)
{
	struct ropcie_send_batch *batch = batch_of(qp_ex);
	struct ibv_send_wr *wr;

	if (batch->count == batch->max_wr)
		fail(batch, ENOMEM);
	if (batch->error)
		return NULL;

	wr = &batch->wr[batch->count];
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = qp_ex->wr_id;
	wr->send_flags = qp_ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE;
	wr->opcode = opcode;
	wr->sg_list = &batch->sge[(size_t)batch->count * batch->max_sge];
	if (batch->count)
		batch->wr[batch->count - 1].next = wr;
	batch->count++;
	return wr;
}

static void wr_send(struct ibv_qp_ex *qp_ex)
{
	add_wr(qp_ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp_ex, __be32 imm_data)
{
	struct ibv_send_wr *wr = add_wr(qp_ex, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *qp_ex, uint32_t invalidate_rkey)
{
	struct ibv_send_wr *wr = add_wr(qp_ex, IBV_WR_SEND_WITH_INV);

	if (wr)
		wr->invalidate_rkey = invalidate_rkey;
}

static void wr_local_inv(struct ibv_qp_ex *qp_ex, uint32_t invalidate_rkey)
{
	struct ibv_send_wr *wr = add_wr(qp_ex, IBV_WR_LOCAL_INV);

	if (wr)
		wr->invalidate_rkey = invalidate_rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *qp_ex, struct ibv_mw *mw,
		       uint32_t rkey, const struct ibv_mw_bind_info *bind_info)
{
	struct ibv_send_wr *wr = add_wr(qp_ex, IBV_WR_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *bind_info;
}

static struct ibv_send_wr *add_rdma(struct ibv_qp_ex *qp_ex,
				    enum ibv_wr_opcode opcode, uint32_t rkey,
				    uint64_t remote_addr)
{
	struct ibv_send_wr *wr = add_wr(qp_ex, opcode);

	if (wr) {
		wr->wr.rdma.remote_addr = remote_addr;
		wr->wr.rdma.rkey = rkey;
	}
	return wr;
}

static void wr_rdma_read(struct ibv_qp_ex *qp_ex, uint32_t rkey,
			 uint64_t remote_addr)
{
	add_rdma(qp_ex, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_rdma_write(struct ibv_qp_ex *qp_ex, uint32_t rkey,
			  uint64_t remote_addr)
{
	add_rdma(qp_ex, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp_ex, uint32_t rkey,
			      uint64_t remote_addr, __be32 imm_data)
{
	struct ibv_send_wr *wr =
		add_rdma(qp_ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr);

	if (wr)
		wr->imm_data = imm_data;
}

static void add_atomic(struct ibv_qp_ex *qp_ex, enum ibv_wr_opcode opcode,
		       uint32_t rkey, uint64_t remote_addr,
		       uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = add_wr(qp_ex, opcode);

	if (wr) {
		wr->wr.atomic.remote_addr = remote_addr;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = compare_add;
		wr->wr.atomic.swap = swap;
	}
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp_ex, uint32_t rkey,
			      uint64_t remote_addr, uint64_t compare,
			      uint64_t swap)
{
	add_atomic(qp_ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare,
		   swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp_ex, uint32_t rkey,
				uint64_t remote_addr, uint64_t add)
{
	add_atomic(qp_ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add,
		   0);
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp_ex, struct ibv_ah *ah,
			   uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct ibv_send_wr *wr = current_wr(batch_of(qp_ex));

	if (wr) {
		wr->wr.ud.ah = ah;
		wr->wr.ud.remote_qpn = remote_qpn;
		wr->wr.ud.remote_qkey = remote_qkey;
	}
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp_ex, uint32_t remote_srqn)
{
	struct ibv_send_wr *wr = current_wr(batch_of(qp_ex));

	if (wr)
		wr->qp_type.xrc.remote_srqn = remote_srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp_ex, size_t num_sge,
			    const struct ibv_sge *sg_list)
{
	struct ropcie_send_batch *batch = batch_of(qp_ex);
	struct ibv_send_wr *wr = current_wr(batch);

	if (!wr)
		return;
	if (num_sge > batch->max_sge) {
		fail(batch, EINVAL);
		return;
	}
	if (num_sge)
		memcpy(wr->sg_list, sg_list, num_sge * sizeof(*sg_list));
	wr->num_sge = (int)num_sge;
}

static void wr_set_sge(struct ibv_qp_ex *qp_ex, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	struct ibv_sge sge = {
		.addr = addr,
		.length = length,
		.lkey = lkey,
	};

	wr_set_sge_list(qp_ex, 1, &sge);
}

/* The data is copied now: the caller may change it before the batch is done. */
static void wr_set_inline_data_list(struct ibv_qp_ex *qp_ex, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct ropcie_send_batch *batch = batch_of(qp_ex);
	struct ibv_send_wr *wr = current_wr(batch);
	size_t length = 0, i;
	char *data;

	if (!wr)
		return;
	data = batch->data + (size_t)(batch->count - 1) * batch->max_inline;
	for (i = 0; i < num_buf; i++) {
		if (buf_list[i].length > batch->max_inline - length) {
			fail(batch, EINVAL);
			return;
		}
		if (buf_list[i].length)
			memcpy(data + length, buf_list[i].addr,
			       buf_list[i].length);
		length += buf_list[i].length;
	}
	wr->send_flags |= IBV_SEND_INLINE;
	wr->num_sge = length ? 1 : 0;
	if (length) {
		wr->sg_list->addr = (uintptr_t)data;
		wr->sg_list->length = (uint32_t)length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *qp_ex, void *addr,
			       size_t length)
{
	struct ibv_data_buf buf = {
		.addr = addr,
		.length = length,
	};

	wr_set_inline_data_list(qp_ex, 1, &buf);
}

/* The value is part of the request: it is copied now. */
static void wr_atomic_write(struct ibv_qp_ex *qp_ex, uint32_t rkey,
			    uint64_t remote_addr, const void *atomic_wr)
{
	add_rdma(qp_ex, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);
	wr_set_inline_data(qp_ex, (void *)atomic_wr, sizeof(uint64_t));
}

static void wr_start(struct ibv_qp_ex *qp_ex)
{
	struct ropcie_send_batch *batch = batch_of(qp_ex);

	pthread_mutex_lock(&batch->lock);
	batch->count = 0;
	batch->error = 0;
}

static int wr_complete(struct ibv_qp_ex *qp_ex)
{
	struct ropcie_qp *qp = to_rqp(&qp_ex->qp_base);
	struct ropcie_send_batch *batch = qp->batch;
	struct ibv_send_wr *bad;
	int ret = batch->error;
	uint32_t i;

	for (i = 0; !ret && !qp->map.addr && i < batch->count; i++)
		ret = ropcie_check_send(qp, &batch->wr[i]);
	if (!ret && batch->count)
		ret = qp->map.addr ?
			      ropcie_post_send_mapped(qp, batch->wr, &bad, true) :
			      ropcie_post_send(&qp->vqp.qp, batch->wr, &bad);
	pthread_mutex_unlock(&batch->lock);
	return ret;
}

static void wr_abort(struct ibv_qp_ex *qp_ex)
{
	pthread_mutex_unlock(&batch_of(qp_ex)->lock);
}

static struct ropcie_send_batch *alloc_batch(const struct ropcie_qp *qp,
					     uint32_t max_wr)
{
	struct ropcie_send_batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return NULL;
	batch->max_wr = max_wr;
	/* One at least: inline data needs it. */
	batch->max_sge = qp->max_send_sge ? qp->max_send_sge : 1;
	batch->max_inline = qp->max_inline;
	pthread_mutex_init(&batch->lock, NULL);
	batch->wr = calloc(max_wr, sizeof(*batch->wr));
	batch->sge =
		calloc((size_t)max_wr * batch->max_sge, sizeof(*batch->sge));
	batch->data = calloc((size_t)max_wr + 1, batch->max_inline + 1);
	return batch;
}

/* Are there all the operations that are asked for? */
static bool ops_exist(const struct ropcie_qp *qp, uint64_t flags)
{
	static const struct {
		uint64_t flag;
		uint32_t opcode;
	} ops[] = {
		{ IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE },
		{ IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
		  IBV_WR_RDMA_WRITE_WITH_IMM },
		{ IBV_QP_EX_WITH_SEND, IBV_WR_SEND },
		{ IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM },
		{ IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ },
		{ IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
		  IBV_WR_ATOMIC_CMP_AND_SWP },
		{ IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
		  IBV_WR_ATOMIC_FETCH_AND_ADD },
		{ IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV },
		{ IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW },
		{ IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV },
		{ IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE },
	};
	size_t i;

	for (i = 0; i < sizeof(ops) / sizeof(*ops); i++)
		if (ropcie_carries(qp, ops[i].opcode))
			flags &= ~ops[i].flag;
	return !flags;
}

int ropcie_init_qp_ex(struct ropcie_qp *qp,
		      const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_ex *qp_ex = &qp->vqp.qp_ex;
	struct ropcie_send_batch *batch;

	if (!ops_exist(qp, attr->send_ops_flags) ||
	    (qp->vqp.qp.qp_type != IBV_QPT_RC &&
	     qp->vqp.qp.qp_type != IBV_QPT_UC &&
	     qp->vqp.qp.qp_type != IBV_QPT_XRC_SEND &&
	     qp->vqp.qp.qp_type != IBV_QPT_UD))
		return EOPNOTSUPP;

	batch = alloc_batch(qp, attr->cap.max_send_wr);
	if (!batch)
		return ENOMEM;
	qp->batch = batch;
	if (!batch->wr || !batch->sge || !batch->data) {
		ropcie_free_qp_ex(qp);
		return ENOMEM;
	}

	qp_ex->wr_start = wr_start;
	qp_ex->wr_complete = wr_complete;
	qp_ex->wr_abort = wr_abort;
	qp_ex->wr_send = wr_send;
	qp_ex->wr_send_imm = wr_send_imm;
	qp_ex->wr_send_inv = wr_send_inv;
	qp_ex->wr_local_inv = wr_local_inv;
	qp_ex->wr_bind_mw = wr_bind_mw;
	qp_ex->wr_rdma_read = wr_rdma_read;
	qp_ex->wr_rdma_write = wr_rdma_write;
	qp_ex->wr_rdma_write_imm = wr_rdma_write_imm;
	qp_ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	qp_ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	qp_ex->wr_atomic_write = wr_atomic_write;
	qp_ex->wr_set_ud_addr = wr_set_ud_addr;
	qp_ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	qp_ex->wr_set_sge = wr_set_sge;
	qp_ex->wr_set_sge_list = wr_set_sge_list;
	qp_ex->wr_set_inline_data = wr_set_inline_data;
	qp_ex->wr_set_inline_data_list = wr_set_inline_data_list;
	qp->vqp.comp_mask |= VERBS_QP_EX;
	return 0;
}

void ropcie_free_qp_ex(struct ropcie_qp *qp)
{
	struct ropcie_send_batch *batch = qp->batch;

	if (!batch)
		return;
	pthread_mutex_destroy(&batch->lock);
	free(batch->data);
	free(batch->sge);
	free(batch->wr);
	free(batch);
	qp->batch = NULL;
}
