// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The extended polling interface on top of the plain one: each step fetches one
 * completion, so none is ever held back from a poll that comes in between.
 *
 * ibv_start_poll() takes the CQ's lock and ibv_end_poll() gives it back; a
 * start that fails or finds nothing has no end, so it gives it back itself.
 */
#include <errno.h>
#include <time.h>

#include "ropcie.h"

static int fetch(struct ropcie_cq *cq)
{
	int got = ropcie_poll_one(cq, &cq->wc, &cq->timestamp);

	if (got < 0)
		return errno ? errno : EIO;
	if (!got)
		return ENOENT;
	cq->vcq.cq_ex.status = cq->wc.status;
	cq->vcq.cq_ex.wr_id = cq->wc.wr_id;
	return 0;
}

static struct ropcie_cq *from_ex(struct ibv_cq_ex *cq_ex)
{
	return to_rcq(ibv_cq_ex_to_cq(cq_ex));
}

static int start_poll(struct ibv_cq_ex *cq_ex, struct ibv_poll_cq_attr *attr)
{
	struct ropcie_cq *cq = from_ex(cq_ex);
	int ret;

	if (attr->comp_mask)
		return EINVAL;
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
	ret = fetch(cq);
	if (ret && !cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
	return ret;
}

static int next_poll(struct ibv_cq_ex *cq_ex)
{
	return fetch(from_ex(cq_ex));
}

static void end_poll(struct ibv_cq_ex *cq_ex)
{
	struct ropcie_cq *cq = from_ex(cq_ex);

	if (!cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->timestamp;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/*
 * How far the wall clock is ahead of the other one now; never more than that. Who
 * loses the processor between two looks at clocks looks again.
 */
static uint64_t wallclock_ahead_ns(void)
{
	const uint64_t close_ns = 10000;
	uint64_t ahead = 0, best = UINT64_MAX;
	int tries;

	for (tries = 0; tries < 8 && best > close_ns; tries++) {
		uint64_t before = now_ns(CLOCK_MONOTONIC);
		uint64_t wall = now_ns(CLOCK_REALTIME);
		uint64_t after = now_ns(CLOCK_MONOTONIC);

		if (after - before < best) {
			best = after - before;
			ahead = wall - after;
		}
	}
	return ahead;
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->timestamp + wallclock_ahead_ns();
}

void ropcie_init_cq_ex(struct ropcie_cq *cq)
{
	struct ibv_cq_ex *cq_ex = &cq->vcq.cq_ex;

	cq_ex->start_poll = start_poll;
	cq_ex->next_poll = next_poll;
	cq_ex->end_poll = end_poll;
	cq_ex->read_opcode = read_opcode;
	cq_ex->read_vendor_err = read_vendor_err;
	cq_ex->read_byte_len = read_byte_len;
	cq_ex->read_imm_data = read_imm_data;
	cq_ex->read_qp_num = read_qp_num;
	cq_ex->read_src_qp = read_src_qp;
	cq_ex->read_wc_flags = read_wc_flags;
	cq_ex->read_slid = read_slid;
	cq_ex->read_sl = read_sl;
	cq_ex->read_dlid_path_bits = read_dlid_path_bits;
	cq_ex->read_completion_ts = read_completion_ts;
	cq_ex->read_completion_wallclock_ns = read_completion_wallclock_ns;
}
