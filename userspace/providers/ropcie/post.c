// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Posting work requests over uverbs.
 *
 * A list is handed to the kernel in runs of copies: a command's length is
 * counted in a 16-bit number of words, inline data has to be replaced by a copy
 * in registered memory, and the caller's list is not ours to write to. What
 * the command cannot carry is refused here with EOPNOTSUPP, after what stands
 * before it in the list was posted.
 */
#include "post.h"

#include <errno.h>

#include "ropcie.h"

#define ROPCIE_RECV_RUN 64
#define MAX_MESSAGE (UINT64_C(1) << 31)

struct send_run {
	struct ibv_send_wr wr[ROPCIE_SEND_RUN];
	struct ibv_sge sge[ROPCIE_SEND_RUN];
	/* How many slots the requests before this one have filled. */
	uint32_t inline_before[ROPCIE_SEND_RUN + 1];
	uint32_t count;
};

#define OP(name) (1u << IBV_WR_##name)

static const uint32_t uc_opcodes = OP(SEND) | OP(SEND_WITH_IMM) |
				   OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM);
static const uint32_t rc_opcodes =
	OP(SEND) | OP(SEND_WITH_IMM) | OP(RDMA_WRITE) |
	OP(RDMA_WRITE_WITH_IMM) | OP(SEND_WITH_INV) | OP(RDMA_READ) |
	OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD);
/* What no uverbs command carries. */
static const uint32_t mapped_opcodes = OP(BIND_MW) | OP(LOCAL_INV);
static const uint32_t inline_opcodes = OP(SEND) | OP(SEND_WITH_IMM) |
				       OP(SEND_WITH_INV) | OP(RDMA_WRITE) |
				       OP(RDMA_WRITE_WITH_IMM) |
				       OP(ATOMIC_WRITE);

static uint32_t carried_opcodes(const struct ropcie_qp *qp)
{
	uint32_t more = qp->map.addr ? mapped_opcodes : 0;
	uint32_t reliable = more ? rc_opcodes | more | OP(ATOMIC_WRITE) :
				   rc_opcodes;

	switch (qp->vqp.qp.qp_type) {
	case IBV_QPT_RC:
		return reliable;
	case IBV_QPT_UC:
		return uc_opcodes | more;
	case IBV_QPT_XRC_SEND:
		/* No uverbs command has a field for the SRQ's number. */
		return more ? reliable : 0;
	case IBV_QPT_UD:
		return OP(SEND) | OP(SEND_WITH_IMM);
	case IBV_QPT_RAW_PACKET:
		return OP(SEND);
	default:
		return 0;
	}
}

bool ropcie_carries(const struct ropcie_qp *qp, uint32_t opcode)
{
	return opcode < 32 && carried_opcodes(qp) & (1u << opcode);
}

static int check_length(const struct ibv_send_wr *wr)
{
	uint64_t length = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	/* IBTA 9.4.5, A19: an atomic returns 8 bytes, or writes them. */
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	    wr->opcode == IBV_WR_ATOMIC_WRITE)
		return length == sizeof(uint64_t) ? 0 : EINVAL;
	return length <= MAX_MESSAGE ? 0 : EINVAL;
}

int ropcie_check_send(const struct ropcie_qp *qp, const struct ibv_send_wr *wr)
{
	uint32_t opcode = wr->opcode;

	if (!ropcie_carries(qp, opcode))
		return EOPNOTSUPP;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    !(inline_opcodes & (1u << opcode)))
		return EINVAL;
	/* The queue's limit is for lists; inline data is no list then. */
	if (wr->num_sge < 0 || ((uint32_t)wr->num_sge > qp->max_send_sge &&
				!(wr->send_flags & IBV_SEND_INLINE &&
				  wr->num_sge == 1)))
		return EINVAL;
	if (wr->send_flags &
	    ~(unsigned int)(IBV_SEND_FENCE | IBV_SEND_SIGNALED |
			    IBV_SEND_SOLICITED | IBV_SEND_INLINE))
		return EINVAL;
	return check_length(wr);
}

/* Takes requests from *wr until one is refused or the run is full. */
static int fill_run(struct ropcie_qp *qp, struct send_run *run,
		    struct ibv_send_wr **wr)
{
	uint32_t inlines = 0;
	int ret = 0;

	run->count = 0;
	for (; *wr && run->count < ROPCIE_SEND_RUN; *wr = (*wr)->next) {
		struct ibv_send_wr *copy = &run->wr[run->count];

		ret = ropcie_check_send(qp, *wr);
		if (ret)
			break;
		*copy = **wr;
		run->inline_before[run->count] = inlines;
		if (copy->send_flags & IBV_SEND_INLINE) {
			ret = ropcie_inline_fill(&qp->inline_ring, inlines,
						 copy, &run->sge[run->count]);
			if (ret)
				break;
			copy->send_flags &= ~(unsigned int)IBV_SEND_INLINE;
			inlines += copy->num_sge ? 1 : 0;
		}
		copy->next = NULL;
		if (run->count)
			run->wr[run->count - 1].next = copy;
		run->count++;
	}
	run->inline_before[run->count] = inlines;
	return ret;
}

/* Returns how many requests the kernel took; its answer in *ret. */
static uint32_t post_run(struct ropcie_qp *qp, struct send_run *run, int *ret)
{
	struct ibv_send_wr *bad = run->wr;
	uint32_t taken = run->count;

	*ret = ibv_cmd_post_send(&qp->vqp.qp, run->wr, &bad);
	if (*ret)
		taken = (uint32_t)(bad - run->wr);
	ropcie_inline_commit(&qp->inline_ring, run->inline_before[taken]);
	return taken;
}

static int post_send_runs(struct ropcie_qp *qp, struct ibv_send_wr *wr,
			  struct ibv_send_wr **bad_wr)
{
	while (wr) {
		struct ibv_send_wr *next = wr;
		struct send_run run;
		int refused = fill_run(qp, &run, &next);

		if (run.count) {
			int ret;
			uint32_t taken = post_run(qp, &run, &ret);

			if (ret) {
				while (taken--)
					wr = wr->next;
				*bad_wr = wr;
				return ret;
			}
		}
		wr = next;
		if (refused) {
			*bad_wr = wr;
			return refused;
		}
	}
	return 0;
}

int ropcie_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad_wr)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	int ret;

	if (qp->map.addr)
		return ropcie_post_send_mapped(qp, wr, bad_wr, false);
	/* Slots of the ring are filled and posted in one order. */
	if (qp->inline_ring.max_data)
		pthread_mutex_lock(&qp->inline_ring.lock);
	ret = post_send_runs(qp, wr, bad_wr);
	if (qp->inline_ring.max_data)
		pthread_mutex_unlock(&qp->inline_ring.lock);
	return ret;
}

typedef int (*post_recv_fn)(void *queue, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr);

static int post_recv_runs(post_recv_fn post, void *queue, uint32_t max_sge,
			  struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct ibv_recv_wr run[ROPCIE_RECV_RUN];

	while (wr) {
		struct ibv_recv_wr *bad = run, *next = wr;
		uint32_t count = 0;
		int ret = 0;

		for (; next && count < ROPCIE_RECV_RUN; next = next->next) {
			if (next->num_sge < 0 ||
			    (uint32_t)next->num_sge > max_sge) {
				ret = EINVAL;
				break;
			}
			run[count] = *next;
			run[count].next = NULL;
			if (count)
				run[count - 1].next = &run[count];
			count++;
		}
		if (count) {
			int err = post(queue, run, &bad);

			if (err) {
				for (; bad > run; bad--)
					wr = wr->next;
				*bad_wr = wr;
				return err;
			}
		}
		wr = next;
		if (ret) {
			*bad_wr = wr;
			return ret;
		}
	}
	return 0;
}

static int post_to_qp(void *queue, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr)
{
	return ibv_cmd_post_recv(queue, wr, bad_wr);
}

int ropcie_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr)
{
	if (to_rqp(qp)->map.addr)
		return ropcie_post_recv_mapped(to_rqp(qp), wr, bad_wr);
	return post_recv_runs(post_to_qp, qp, to_rqp(qp)->max_recv_sge, wr,
			      bad_wr);
}

static int post_to_srq(void *queue, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad_wr)
{
	return ibv_cmd_post_srq_recv(queue, wr, bad_wr);
}

int ropcie_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr)
{
	if (to_rsrq(srq)->map.addr)
		return ropcie_post_srq_recv_mapped(to_rsrq(srq), wr, bad_wr);
	return post_recv_runs(post_to_srq, srq, to_rsrq(srq)->max_sge, wr,
			      bad_wr);
}
