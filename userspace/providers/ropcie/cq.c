// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completion queues: creation, polling. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "ropcie.h"

/*
 * A command's answer is counted in a 16-bit number of words, which a few
 * thousand completions fill.
 */
#define ROPCIE_POLL_MAX 1024

/* What uverbs hands on in wc_flags are the kernel's bits, not the user's. */
enum {
	ROPCIE_KERNEL_WC_GRH = 1 << 0,
	ROPCIE_KERNEL_WC_WITH_IMM = 1 << 1,
	ROPCIE_KERNEL_WC_WITH_INVALIDATE = 1 << 2,
	ROPCIE_KERNEL_WC_IP_CSUM_OK = 1 << 3,
};

static unsigned int user_wc_flags(unsigned int kernel_flags)
{
	unsigned int flags = 0;

	if (kernel_flags & ROPCIE_KERNEL_WC_GRH)
		flags |= IBV_WC_GRH;
	if (kernel_flags & ROPCIE_KERNEL_WC_WITH_IMM)
		flags |= IBV_WC_WITH_IMM;
	if (kernel_flags & ROPCIE_KERNEL_WC_WITH_INVALIDATE)
		flags |= IBV_WC_WITH_INV;
	if (kernel_flags & ROPCIE_KERNEL_WC_IP_CSUM_OK)
		flags |= IBV_WC_IP_CSUM_OK;
	return flags;
}

static const uint64_t standard_flags = IBV_WC_STANDARD_FLAGS;
static const uint64_t mapped_flags =
	IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

static struct ropcie_cq *alloc_cq(void)
{
	struct ropcie_cq *cq = calloc(1, sizeof(*cq));

	if (cq) {
		pthread_mutex_init(&cq->poll_lock, NULL);
		pthread_mutex_init(&cq->ring_lock, NULL);
	}
	return cq;
}

static void free_cq(struct ropcie_cq *cq)
{
	ropcie_unmap(&cq->map);
	pthread_mutex_destroy(&cq->ring_lock);
	pthread_mutex_destroy(&cq->poll_lock);
	free(cq);
}

static int map_cq(struct ropcie_cq *cq, struct ibv_context *context,
		  const struct ropcie_abi_create_queue_resp *resp)
{
	int ret = ropcie_map_rings(context, resp, &cq->map, &cq->ring, 1);

	if (ret)
		ibv_cmd_destroy_cq(&cq->vcq.cq);
	return ret;
}

struct ibv_cq *ropcie_create_cq(struct ibv_context *context, int cqe,
				struct ibv_comp_channel *channel,
				int comp_vector)
{
	struct {
		struct ibv_create_cq core;
		struct ropcie_abi_create_queue_req driver;
	} cmd = { .driver = ropcie_queue_req(context) };
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct ropcie_abi_create_queue_resp driver;
	} resp = {};
	struct ropcie_cq *cq;
	int ret;

	cq = alloc_cq();
	if (!cq)
		return NULL;

	ret = ibv_cmd_create_cq(context, cqe, channel, comp_vector, &cq->vcq.cq,
				&cmd.core, sizeof(cmd), &resp.core,
				sizeof(resp));
	if (!ret)
		ret = map_cq(cq, context, &resp.driver);
	if (ret) {
		free_cq(cq);
		errno = ret;
		return NULL;
	}
	return &cq->vcq.cq;
}

struct ibv_cq_ex *ropcie_create_cq_ex(struct ibv_context *context,
				      struct ibv_cq_init_attr_ex *attr)
{
	struct {
		struct ibv_create_cq_ex core;
		struct ropcie_abi_create_queue_req driver;
	} cmd = { .driver = ropcie_queue_req(context) };
	struct {
		struct ib_uverbs_ex_create_cq_resp core;
		struct ropcie_abi_create_queue_resp driver;
	} resp = {};
	struct ibv_cq_init_attr_ex own = *attr;
	struct ropcie_cq *cq;
	uint32_t flags;
	int ret;

	/* None carries a VLAN or a tag, and over uverbs no time stamp. */
	if (attr->wc_flags & ~(to_rctx(context)->mapped ? mapped_flags :
							  standard_flags) ||
	    attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS |
					  IBV_CQ_INIT_ATTR_MASK_PD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	if (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	cq = alloc_cq();
	if (!cq)
		return NULL;

	/* To the kernel, one kind of time stamp is the other. */
	if (own.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		own.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	/* A parent domain is nothing to the kernel. */
	own.comp_mask &= ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_PD;
	ret = ibv_cmd_create_cq_ex(context, &own, &cq->vcq, &cmd.core,
				   sizeof(cmd), &resp.core, sizeof(resp), 0);
	if (!ret)
		ret = map_cq(cq, context, &resp.driver);
	if (ret) {
		free_cq(cq);
		errno = ret;
		return NULL;
	}
	cq->single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	ropcie_init_cq_ex(cq);
	return &cq->vcq.cq_ex;
}

static void read_cqe(struct ibv_wc *wc, const struct ropcie_abi_cqe *cqe)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = cqe->wr_id;
	wc->status = cqe->status;
	wc->opcode = cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->imm_data = cqe->imm;
	wc->qp_num = cqe->qp_num;
	wc->src_qp = cqe->src_qp;
	if (cqe->flags & ROPCIE_ABI_WC_GRH)
		wc->wc_flags |= IBV_WC_GRH;
	if (cqe->flags & ROPCIE_ABI_WC_IMM)
		wc->wc_flags |= IBV_WC_WITH_IMM;
	if (cqe->flags & ROPCIE_ABI_WC_INV)
		wc->wc_flags |= IBV_WC_WITH_INV;
}

/* @timestamp: becomes the last one's. */
static int take(struct ropcie_cq *cq, int num_entries, struct ibv_wc *wc,
		uint64_t *timestamp)
{
	const struct ropcie_abi_cqe *cqe;
	struct ropcie_ring *ring = &cq->ring;
	uint32_t end;
	int n = 0;

	pthread_mutex_lock(&cq->ring_lock);
	/* It was lost when it was resized. */
	if (!ring->ctl) {
		errno = EIO;
		n = -1;
		goto unlock;
	}
	end = ropcie_ring_end(ring);
	while (n < num_entries && ring->next != end) {
		cqe = ropcie_ring_at(ring, ring->next++);
		*timestamp = cqe->timestamp;
		read_cqe(&wc[n++], cqe);
	}
	cq->left = ring->next != end;
	if (n)
		ropcie_ring_release(ring);
unlock:
	pthread_mutex_unlock(&cq->ring_lock);
	return n;
}

/* The process waits for an event, and only looks whether it has to. */
static bool wants_event(struct ropcie_cq *cq)
{
	bool wants;

	pthread_mutex_lock(&cq->ring_lock);
	wants = cq->ring.ctl && !ropcie_ring_gone(&cq->ring) &&
		__atomic_load_n(&cq->ring.ctl->wake, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&cq->ring_lock);
	return wants;
}

static int poll_mapped(struct ropcie_cq *cq, int num_entries, struct ibv_wc *wc,
		       uint64_t *timestamp)
{
	int n = take(cq, num_entries, wc, timestamp), ret;

	if (n || num_entries <= 0)
		return n;
	if (wants_event(cq))
		return 0;
	/* Nothing there: this thread drains the lanes, and no other has to. */
	__atomic_store_n(&to_rctx(cq->vcq.cq.context)->has_polled, true,
			 __ATOMIC_RELAXED);
	ret = ropcie_call_for_progress(&cq->vcq.cq);
	return ret ? -ret : take(cq, num_entries, wc, timestamp);
}

/*
 * There are completions that the last poll has left, or that no event has told of.
 * Nothing but a call may raise the event for them. Under the ring's lock.
 */
static bool are_due(const struct ropcie_cq *cq)
{
	uint32_t end = ropcie_ring_end(&cq->ring);

	return cq->ring.next != end &&
	       (cq->left ||
		__atomic_load_n(&cq->ring.ctl->told, __ATOMIC_RELAXED) != end);
}

int ropcie_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct ropcie_context *ctx = to_rctx(ibcq->context);
	struct ropcie_cq *cq = to_rcq(ibcq);
	bool lost, gone, due = false;

	if (!cq->map.addr)
		return ibv_cmd_req_notify_cq(ibcq, solicited_only);
	pthread_mutex_lock(&cq->ring_lock);
	lost = !cq->ring.ctl;
	if (!lost) {
		/* A full barrier: the caller polls once more. */
		__atomic_fetch_or(&cq->ring.ctl->wake,
				  solicited_only ? ROPCIE_ABI_NOTIFY_SOLICITED :
						   ROPCIE_ABI_NOTIFY_ANY,
				  __ATOMIC_SEQ_CST);
		due = !solicited_only && are_due(cq);
	}
	gone = ropcie_ring_gone(&cq->ring);
	pthread_mutex_unlock(&cq->ring_lock);
	if (lost)
		return EINVAL;
	if (gone)
		return EIO;
	if (!__atomic_exchange_n(&ctx->has_polled, false, __ATOMIC_RELAXED) &&
	    !due)
		return 0;
	return ropcie_call_before_sleep(ibcq);
}

void ropcie_cq_forget(struct ibv_cq *ibcq, uint32_t qp_num)
{
	struct ropcie_cq *cq = to_rcq(ibcq);
	struct ropcie_ring *ring = &cq->ring;
	const struct ropcie_abi_cqe *cqe;
	uint32_t i, dropped = 0;

	if (!cq->map.addr)
		return;
	/* The rest moves towards the end; the kernel goes on behind that. */
	pthread_mutex_lock(&cq->ring_lock);
	if (!ring->ctl)
		goto unlock;
	for (i = ropcie_ring_end(ring); i-- != ring->next;) {
		cqe = ropcie_ring_at(ring, i);
		if (cqe->qp_num == qp_num)
			dropped++;
		else if (dropped)
			memcpy(ropcie_ring_at(ring, i + dropped), cqe,
			       sizeof(*cqe));
	}
	ring->next += dropped;
	ropcie_ring_release(ring);
unlock:
	pthread_mutex_unlock(&cq->ring_lock);
}

int ropcie_poll_one(struct ropcie_cq *cq, struct ibv_wc *wc,
		    uint64_t *timestamp)
{
	*timestamp = 0;
	return cq->map.addr ? poll_mapped(cq, 1, wc, timestamp) :
			      ropcie_poll_cq(&cq->vcq.cq, 1, wc);
}

int ropcie_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	uint64_t timestamp;
	int done = 0;

	if (to_rcq(cq)->map.addr)
		return poll_mapped(to_rcq(cq), num_entries, wc, &timestamp);

	/* Fewer than asked for means "empty" to callers: go on until it is. */
	while (done < num_entries) {
		int want = num_entries - done;
		int got, i;

		if (want > ROPCIE_POLL_MAX)
			want = ROPCIE_POLL_MAX;
		got = ibv_cmd_poll_cq(cq, want, wc + done);
		if (got < 0)
			return done ? done : got;
		for (i = done; i < done + got; i++)
			wc[i].wc_flags = user_wc_flags(wc[i].wc_flags);
		done += got;
		if (got < want)
			break;
	}
	return done;
}

int ropcie_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct {
		struct ib_uverbs_resize_cq_resp core;
		struct ropcie_abi_create_queue_resp driver;
	} resp = {};
	struct ropcie_cq *rcq = to_rcq(cq);
	struct ibv_resize_cq cmd;
	int ret;

	pthread_mutex_lock(&rcq->ring_lock);
	ret = ibv_cmd_resize_cq(cq, cqe, &cmd, sizeof(cmd), &resp.core,
				sizeof(resp));
	if (!ret && rcq->map.addr)
		ret = ropcie_remap_ring(cq->context, &resp.driver, &rcq->map,
					&rcq->ring);
	/*
	 * The kernel has a new ring, whose place it could not tell; or there is no device
	 * any more (EIO), and what has come is still there.
	 */
	else if (ret != EIO && ropcie_ring_gone(&rcq->ring))
		rcq->ring.ctl = NULL;
	pthread_mutex_unlock(&rcq->ring_lock);
	return ret;
}

int ropcie_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	struct ibv_modify_cq cmd;

	return ibv_cmd_modify_cq(cq, attr, &cmd, sizeof(cmd));
}

int ropcie_destroy_cq(struct ibv_cq *cq)
{
	int ret = ibv_cmd_destroy_cq(cq);

	if (!ret)
		free_cq(to_rcq(cq));
	return ret;
}
