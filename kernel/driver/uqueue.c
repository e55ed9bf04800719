// SPDX-License-Identifier: GPL-2.0
/*
 * Mapped queues: rings that a process posts to without a call. Work requests are
 * copied out of them into the kernel's own queues, where the engines know
 * nothing of where they came from. Completions go the other way, in cq.c.
 */
#include <linux/log2.h>
#include <linux/uaccess.h>

#include "queues.h"
#include "ropcie.h"

static_assert(sizeof(struct ropcie_abi_ring) == 128);
static_assert(sizeof(struct ropcie_abi_cqe) == 64);
static_assert(sizeof(struct ropcie_abi_send_wqe) == 72);
static_assert(sizeof(struct ropcie_abi_recv_wqe) == 16);
/* The process's list is the kernel's. */
static_assert(sizeof(struct ropcie_abi_sge) == sizeof(struct ib_sge));
static_assert(offsetof(struct ropcie_abi_sge, addr) ==
	      offsetof(struct ib_sge, addr));
static_assert(offsetof(struct ropcie_abi_sge, length) ==
	      offsetof(struct ib_sge, length));
static_assert(offsetof(struct ropcie_abi_sge, lkey) ==
	      offsetof(struct ib_sge, lkey));

/* Entries that are taken over at a time: interrupts are off meanwhile. */
#define PULL_BATCH 64

int ropcie_wants_mapped(struct ib_udata *udata)
{
	struct ropcie_abi_create_queue_req req = {};
	int ret;

	if (!udata)
		return 0;
	ret = ropcie_copy_req(udata, &req, sizeof(req));
	if (ret)
		return ret;
	if (req.flags & ~ROPCIE_ABI_QUEUE_MAPPED)
		return -EOPNOTSUPP;
	if (req.reserved)
		return -EINVAL;
	if (req.flags &&
	    udata->outlen < sizeof(struct ropcie_abi_create_queue_resp))
		return -EINVAL;
	return req.flags;
}

/* Lay the rings out: indices in cache lines of their own, then entries. */
static size_t place_rings(const struct ropcie_uring_want *want, u32 num,
			  struct ropcie_abi_ring_place *place)
{
	size_t end = num * sizeof(struct ropcie_abi_ring);
	u32 i;

	for (i = 0; i < num; i++) {
		if (!want[i].size)
			continue;
		place[i].ctl = i * sizeof(struct ropcie_abi_ring);
		place[i].entries = end;
		place[i].size = roundup_pow_of_two(want[i].size);
		place[i].stride = want[i].stride;
		end += ALIGN((size_t)place[i].size * place[i].stride,
			     SMP_CACHE_BYTES);
	}
	return end;
}

struct ropcie_shared *ropcie_map_queue(struct ib_udata *udata,
				       void __user *to,
				       const struct ropcie_uring_want *want,
				       u32 num)
{
	struct ropcie_ucontext *uc =
		rdma_udata_to_drv_context(udata, struct ropcie_ucontext, ibuc);
	struct ropcie_abi_create_queue_resp resp = {};
	struct ropcie_shared *mem;
	size_t size;
	u32 i;
	int ret;

	size = place_rings(want, num, resp.ring);
	if (size > U32_MAX)
		return ERR_PTR(-EINVAL);
	mem = ropcie_shared_alloc(&uc->ibuc, size, NULL);
	if (IS_ERR(mem))
		return mem;
	resp.mmap_offset = rdma_user_mmap_get_offset(&mem->entry);
	resp.mmap_length = (u64)mem->num << PAGE_SHIFT;
	if (to)
		ret = copy_to_user(to, &resp, sizeof(resp)) ? -EFAULT : 0;
	else
		ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (ret) {
		ropcie_shared_put(mem);
		return ERR_PTR(ret);
	}
	for (i = 0; i < num; i++) {
		struct ropcie_uring *ring = want[i].ring;

		if (!want[i].size)
			continue;
		ring->ctl = mem->addr + resp.ring[i].ctl;
		ring->entries = mem->addr + resp.ring[i].entries;
		ring->size = resp.ring[i].size;
		ring->stride = resp.ring[i].stride;
		ropcie_uring_reset(ring);
	}
	return mem;
}

/* All that is sent over XRC is for a shared receive queue. */
static bool names_srq_well(const struct ropcie_qp *qp,
			   const struct ropcie_abi_send_wqe *uwqe)
{
	if (qp->ibqp.qp_type != IB_QPT_XRC_INI)
		return !uwqe->remote_srqn;
	return uwqe->remote_srqn <= U16_MAX &&
	       (uwqe->remote_srqn || uwqe->opcode == IB_WR_LOCAL_INV);
}

/* A copy of what the process wrote, as verbs has it. */
static int fill_send(struct ropcie_qp *qp,
		     const struct ropcie_abi_send_wqe *uwqe,
		     struct ropcie_send_wqe *wqe)
{
	union {
		struct ib_send_wr wr;
		struct ib_rdma_wr rdma;
		struct ib_atomic_wr atomic;
		struct ib_ud_wr ud;
	} u = {
		.wr.wr_id = uwqe->wr_id,
		.wr.sg_list = (struct ib_sge *)uwqe->sge,
		.wr.opcode = (enum ib_wr_opcode)uwqe->opcode,
		.wr.send_flags = uwqe->flags,
		.wr.ex.imm_data = (__force __be32)uwqe->imm,
	};
	struct ropcie_inline in = {
		.data = uwqe->sge,
		.length = uwqe->inline_length,
	};
	bool has_data = uwqe->flags & IB_SEND_INLINE;
	int ret;

	wqe->wr_id = uwqe->wr_id;
	if (uwqe->opcode == IB_UVERBS_WR_BIND_MW)
		return ropcie_fill_bind(qp, uwqe, wqe);
	if (!names_srq_well(qp, uwqe) ||
	    uwqe->num_sge > qp->init.cap.max_send_sge ||
	    (has_data ? uwqe->num_sge : uwqe->inline_length))
		return -EINVAL;
	u.wr.num_sge = uwqe->num_sge;
	switch (uwqe->opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
	case IB_WR_ATOMIC_WRITE:
		u.rdma.remote_addr = uwqe->remote_addr;
		u.rdma.rkey = uwqe->rkey;
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		u.atomic.remote_addr = uwqe->remote_addr;
		u.atomic.rkey = uwqe->rkey;
		u.atomic.compare_add = uwqe->compare_add;
		u.atomic.swap = uwqe->swap;
		break;
	default:
		if (!ropcie_is_ud(qp))
			break;
		u.ud.remote_qpn = uwqe->remote_qpn;
		u.ud.remote_qkey = uwqe->remote_qkey;
		u.ud.ah = xa_load(&qp->dev->ahs, uwqe->ah);
	}
	ret = ropcie_fill_send(qp, &u.wr, has_data ? &in : NULL, wqe);
	wqe->srqn = uwqe->remote_srqn;
	return ret;
}

/* What could not be understood fails in its turn. */
static void make_bad(struct ropcie_send_wqe *wqe)
{
	wqe->op = ROPCIE_LOCAL_BAD;
	wqe->flags = 0;
	wqe->num_sge = 0;
	wqe->length = 0;
}

static void pull_send(struct ropcie_qp *qp)
{
	struct ropcie_send_wqe *wqe = ropcie_req_slot(&qp->req);
	int ret;

	ropcie_uring_take(&qp->sq_uring, qp->sq_uwqe);
	if (ropcie_is_ud(qp)) {
		/* The address handle that it names stays meanwhile. */
		xa_lock(&qp->dev->ahs);
		ret = fill_send(qp, qp->sq_uwqe, wqe);
		xa_unlock(&qp->dev->ahs);
	} else {
		ret = fill_send(qp, qp->sq_uwqe, wqe);
	}
	if (ret)
		make_bad(wqe);
	ropcie_req_post(&qp->req);
}

/* May there be something to take over, and is there room for it? */
static bool may_pull(const struct ropcie_qp *qp)
{
	return ropcie_uring_ready(&qp->sq_uring) &&
	       ropcie_qp_may_post_send((enum ropcie_qps)qp->state) &&
	       ropcie_req_pending(&qp->req) < qp->sq_max_wr;
}

u32 ropcie_pull_sends(struct ropcie_qp *qp)
{
	unsigned long flags;
	u32 num = 0;

	lockdep_assert_held(&qp->lock);
	if (!may_pull(qp))
		return 0;
	spin_lock_irqsave(&qp->sq_lock, flags);
	ropcie_uring_want_call(&qp->sq_uring, false);
	for (; num < PULL_BATCH && may_pull(qp); num++)
		pull_send(qp);
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	return num;
}

bool ropcie_sends_left(struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	if (!qp->sq_uring.ctl)
		return false;
	/* What is complete is the process's again. */
	ropcie_uring_release(&qp->sq_uring, qp->req.tail);
	ropcie_uring_want_call(&qp->sq_uring, true);
	smp_mb(); /* against the process: its entry, then its look at wake */
	return may_pull(qp);
}

u32 ropcie_pull_recvs_locked(struct ropcie_rq *rq)
{
	const struct ropcie_abi_recv_wqe *uwqe = rq->uwqe;
	u32 num = 0;
	bool ok;

	lockdep_assert_held(&rq->post_lock);
	while (num < PULL_BATCH && rq->head - rq->tail < rq->max_wr &&
	       ropcie_uring_ready(&rq->uring)) {
		ropcie_uring_take(&rq->uring, rq->uwqe);
		/* What can not be understood has no room. */
		ok = !uwqe->reserved && uwqe->num_sge <= rq->max_sge;
		ropcie_fill_recv(ropcie_rq_at(rq, rq->head), uwqe->wr_id,
				 (const struct ib_sge *)uwqe->sge,
				 ok ? uwqe->num_sge : 0);
		/* Pairs with ropcie_rq_ready(). */
		smp_store_release(&rq->head, rq->head + 1);
		num++;
	}
	return num;
}

u32 ropcie_pull_recvs(struct ropcie_rq *rq)
{
	unsigned long flags;
	u32 num;

	spin_lock_irqsave(&rq->post_lock, flags);
	num = ropcie_pull_recvs_locked(rq);
	spin_unlock_irqrestore(&rq->post_lock, flags);
	return num;
}
