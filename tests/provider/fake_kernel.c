// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Takes the place of libibverbs' commands in the test program. */
#define _GNU_SOURCE /* memfd_create() */
#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fake_kernel.h"
#include "ropcie.h"
#include "uring.h"

#define MAX_DEPTH 1024
#define MAX_COMPLETIONS 4096

static struct {
	struct fake_request queue[MAX_DEPTH];
	uint32_t depth;
	uint32_t taken;
	uint32_t retired;
	uint32_t longest_command;
	int regions;
	struct ibv_wc wc[MAX_COMPLETIONS];
	int wc_head;
	int wc_tail;
	struct ropcie_uring ring[2];
	uint32_t ring_size;
	uint32_t calls;
	bool refuses_writes;
	int error;
	uint32_t failures;
	bool gone;
	uint32_t writes;
	int resize_error;
	bool resize_late;
	uint32_t dereg_failures;
	int destroy_error;
} fake;

#define RING_MEMORY 0x100000
#define RING_STRIDE 256

static struct ropcie_context mapped;
static char *memory;

void fake_reset(uint32_t depth)
{
	memset(&fake, 0, sizeof(fake));
	fake.depth = depth;
}

void fake_set_depth(uint32_t depth)
{
	fake.depth = depth;
}

uint32_t fake_outstanding(void)
{
	return fake.taken - fake.retired;
}

uint32_t fake_taken(void)
{
	return fake.taken;
}

uint32_t fake_longest_command(void)
{
	return fake.longest_command;
}

void fake_refuse_writes(void)
{
	fake.refuses_writes = true;
}

void fake_lose_device(void)
{
	fake.gone = true;
}

void fake_fail_calls(int error, uint32_t times)
{
	fake.error = error;
	fake.failures = times;
}

void fake_fail_resize(int error, bool late)
{
	fake.resize_error = error;
	fake.resize_late = late;
}

void fake_fail_deregs(uint32_t times)
{
	fake.dereg_failures = times;
}

void fake_fail_destroy(int error)
{
	fake.destroy_error = error;
}

static int failure(void)
{
	if (fake.gone)
		return EIO;
	if (!fake.failures)
		return 0;
	fake.failures--;
	return fake.error;
}

uint32_t fake_writes(void)
{
	return fake.writes;
}

struct fake_request fake_retire(void)
{
	return fake.queue[fake.retired++ % MAX_DEPTH];
}

struct ibv_context *fake_context(void)
{
	static struct ropcie_context context;

	return &context.ibv_ctx.context;
}

struct ibv_context *fake_mapped_context(uint32_t size)
{
	struct ibv_context *context = &mapped.ibv_ctx.context;

	if (memory) {
		munmap(memory, RING_MEMORY);
		close(context->cmd_fd);
	}
	context->cmd_fd = memfd_create("rings", 0);
	if (context->cmd_fd < 0 || ftruncate(context->cmd_fd, RING_MEMORY))
		return NULL;
	memory = mmap(NULL, RING_MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED,
		      context->cmd_fd, 0);
	if (memory == MAP_FAILED)
		return NULL;
	mapped.mapped = true;
	mapped.write_refused = false;
	mapped.has_polled = false;
	mapped.abi.max_inline_data = 128;
	fake.ring_size = size;
	return context;
}

/* As the driver does: indices first. */
static void make_rings(const struct ropcie_abi_create_queue_req *req,
		       struct ropcie_abi_create_queue_resp *resp, uint32_t num,
		       uint32_t stride)
{
	uint32_t i;

	memset(resp, 0, sizeof(*resp));
	if (req->flags != ROPCIE_ABI_QUEUE_MAPPED)
		return;
	resp->mmap_length = RING_MEMORY;
	for (i = 0; i < num; i++) {
		struct ropcie_abi_ring_place *place = &resp->ring[i];
		struct ropcie_uring *ring = &fake.ring[i];

		place->ctl = i * (uint32_t)sizeof(struct ropcie_abi_ring);
		place->entries = 4096 + i * RING_MEMORY / 2;
		place->size = fake.ring_size;
		place->stride = stride;
		ring->ctl = (struct ropcie_abi_ring *)(memory + place->ctl);
		ring->entries = memory + place->entries;
		ring->size = place->size;
		ring->stride = place->stride;
		ropcie_uring_reset(ring);
	}
}

struct ropcie_uring *fake_ring(int which)
{
	return &fake.ring[which];
}

uint32_t fake_calls(void)
{
	return fake.calls;
}

int fake_regions(void)
{
	return fake.regions;
}

void fake_complete(const struct ibv_wc *wc)
{
	fake.wc[fake.wc_tail++] = *wc;
}

int ibv_cmd_create_qp_ex(struct ibv_context *context, struct verbs_qp *vqp,
			 struct ibv_qp_init_attr_ex *attr,
			 struct ibv_create_qp *cmd, size_t cmd_size,
			 struct ib_uverbs_create_qp_resp *resp,
			 size_t resp_size)
{
	struct {
		struct ibv_create_qp core;
		struct ropcie_abi_create_queue_req driver;
	} *req = (void *)cmd;
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct ropcie_abi_create_queue_resp driver;
	} *answer = (void *)resp;

	if (!req->driver.flags && attr->cap.max_inline_data)
		return EINVAL;
	make_rings(&req->driver, &answer->driver, 2, RING_STRIDE);
	vqp->qp.context = context;
	vqp->qp.send_cq = attr->send_cq;
	vqp->qp.recv_cq = attr->recv_cq;
	vqp->qp.qp_num = FAKE_QP_NUM;
	vqp->qp.qp_type = attr->qp_type;
	attr->cap.max_send_wr = fake.depth;
	if (attr->cap.max_send_sge)
		attr->cap.max_send_sge = FAKE_MAX_SGE;
	return 0;
}

int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     struct ibv_qp_init_attr *init_attr,
		     struct ibv_query_qp *cmd, size_t cmd_size)
{
	memset(attr, 0, sizeof(*attr));
	memset(init_attr, 0, sizeof(*init_attr));
	return 0;
}

int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_modify_qp *cmd, size_t cmd_size)
{
	if (attr->qp_state == IBV_QPS_RESET) {
		ropcie_uring_reset(&fake.ring[0]);
		ropcie_uring_reset(&fake.ring[1]);
	}
	return 0;
}

int ibv_cmd_destroy_qp(struct ibv_qp *qp)
{
	return fake.destroy_error;
}

int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
		   uint64_t hca_va, int access, struct verbs_mr *vmr,
		   struct ibv_reg_mr *cmd, size_t cmd_size,
		   struct ib_uverbs_reg_mr_resp *resp, size_t resp_size)
{
	if (access)
		return EINVAL;
	vmr->ibv_mr.lkey = FAKE_LKEY_INLINE;
	fake.regions++;
	return 0;
}

int ibv_cmd_dereg_mr(struct verbs_mr *vmr)
{
	if (fake.dereg_failures) {
		fake.dereg_failures--;
		return ENOMEM;
	}
	fake.regions--;
	return 0;
}

static int take(const struct ibv_send_wr *wr)
{
	struct fake_request *request = &fake.queue[fake.taken % MAX_DEPTH];

	if (fake.taken - fake.retired == fake.depth)
		return ENOMEM;
	if (wr->send_flags & IBV_SEND_INLINE || wr->num_sge > FAKE_MAX_SGE)
		return EINVAL;
	request->wr_id = wr->wr_id;
	request->opcode = wr->opcode;
	request->send_flags = wr->send_flags;
	request->num_sge = wr->num_sge;
	if (wr->num_sge)
		memcpy(request->sge, wr->sg_list,
		       (size_t)wr->num_sge * sizeof(*wr->sg_list));
	fake.taken++;
	return 0;
}

int ibv_cmd_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad_wr)
{
	uint32_t count = 0;
	int failed = failure();

	if (failed)
		return failed;
	fake.calls += !wr;
	for (; wr; wr = wr->next) {
		int ret = take(wr);

		if (ret) {
			*bad_wr = wr;
			return ret;
		}
		if (++count > fake.longest_command)
			fake.longest_command = count;
	}
	return 0;
}

int ibv_cmd_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr)
{
	int failed = failure();

	fake.calls += !wr && !failed;
	return failed;
}

/* A command that is written, as far as the kernel would look at it. */
static int written(const struct ib_uverbs_cmd_hdr *hdr, size_t length)
{
	const union {
		struct ib_uverbs_post_send send;
		struct ib_uverbs_post_recv recv;
		struct ib_uverbs_poll_cq poll;
	} *core = (const void *)(hdr + 1);
	size_t request, answer;
	bool sane = true;

	switch (hdr->command) {
	case IB_USER_VERBS_CMD_POST_SEND:
		request = sizeof(core->send);
		answer = sizeof(struct ib_uverbs_post_send_resp);
		sane = core->send.response && !core->send.wr_count &&
		       !core->send.sge_count &&
		       core->send.wqe_size == sizeof(struct ib_uverbs_send_wr);
		break;
	case IB_USER_VERBS_CMD_POST_RECV:
		request = sizeof(core->recv);
		answer = sizeof(struct ib_uverbs_post_recv_resp);
		sane = core->recv.response && !core->recv.wr_count &&
		       !core->recv.sge_count &&
		       core->recv.wqe_size == sizeof(struct ib_uverbs_recv_wr);
		break;
	case IB_USER_VERBS_CMD_POLL_CQ:
		request = sizeof(core->poll);
		answer = sizeof(struct ib_uverbs_poll_cq_resp) +
			 sizeof(struct ib_uverbs_wc);
		sane = core->poll.response && core->poll.ne == 1;
		break;
	case IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:
		request = sizeof(struct ib_uverbs_req_notify_cq);
		answer = 0;
		break;
	default:
		return EINVAL;
	}
	if (hdr->in_words * 4u != length || !sane)
		return EINVAL;
	if (length < sizeof(*hdr) + request || hdr->out_words * 4u < answer ||
	    (!answer && hdr->out_words))
		return ENOSPC;
	fake.calls++;
	return 0;
}

long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	const void *data;
	size_t length;
	va_list args;
	int fd;

	va_start(args, number);
	fd = va_arg(args, int);
	data = va_arg(args, const void *);
	length = va_arg(args, size_t);
	va_end(args);
	if (number != SYS_write || fd != mapped.ibv_ctx.context.cmd_fd)
		abort();
	fake.writes++;
	errno = fake.refuses_writes ? EACCES : failure();
	if (!errno)
		errno = written(data, length);
	return errno ? -1 : (long)length;
}

static struct {
	uint64_t mono;
	uint64_t wall;
	uint64_t passed;
	uint32_t looks;
	uint32_t stop;
} clocks;

void fake_clocks(uint64_t mono, uint64_t wall, uint32_t stop)
{
	memset(&clocks, 0, sizeof(clocks));
	clocks.mono = mono;
	clocks.wall = wall;
	clocks.stop = stop;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	uint64_t ns;

	clocks.passed += 100;
	if (++clocks.looks == clocks.stop)
		clocks.passed += 13000000;
	ns = clocks.passed +
	     (clock == CLOCK_REALTIME ? clocks.wall : clocks.mono);
	now->tv_sec = (time_t)(ns / 1000000000);
	now->tv_nsec = (long)(ns % 1000000000);
	return 0;
}

int ibv_cmd_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	fake.calls++;
	return 0;
}

int ibv_cmd_create_cq(struct ibv_context *context, int cqe,
		      struct ibv_comp_channel *channel, int comp_vector,
		      struct ibv_cq *cq, struct ibv_create_cq *cmd,
		      size_t cmd_size, struct ib_uverbs_create_cq_resp *resp,
		      size_t resp_size)
{
	struct {
		struct ibv_create_cq core;
		struct ropcie_abi_create_queue_req driver;
	} *req = (void *)cmd;
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct ropcie_abi_create_queue_resp driver;
	} *answer = (void *)resp;

	make_rings(&req->driver, &answer->driver, 1,
		   sizeof(struct ropcie_abi_cqe));
	ropcie_uring_want_call(&fake.ring[0], false);
	cq->context = context;
	cq->cqe = cqe;
	return 0;
}

int ibv_cmd_create_cq_ex(struct ibv_context *context,
			 const struct ibv_cq_init_attr_ex *attr,
			 struct verbs_cq *vcq, struct ibv_create_cq_ex *cmd,
			 size_t cmd_size,
			 struct ib_uverbs_ex_create_cq_resp *resp,
			 size_t resp_size, uint32_t flags)
{
	struct {
		struct ibv_create_cq_ex core;
		struct ropcie_abi_create_queue_req driver;
	} *req = (void *)cmd;
	struct {
		struct ib_uverbs_ex_create_cq_resp core;
		struct ropcie_abi_create_queue_resp driver;
	} *answer = (void *)resp;

	make_rings(&req->driver, &answer->driver, 1,
		   sizeof(struct ropcie_abi_cqe));
	ropcie_uring_want_call(&fake.ring[0], false);
	vcq->cq.context = context;
	vcq->cq.cqe = (int)attr->cqe;
	return 0;
}

int ibv_cmd_resize_cq(struct ibv_cq *cq, int cqe, struct ibv_resize_cq *cmd,
		      size_t cmd_size, struct ib_uverbs_resize_cq_resp *resp,
		      size_t resp_size)
{
	if (fake.resize_late)
		ropcie_uring_end(&fake.ring[0]);
	return fake.resize_error;
}

int ibv_cmd_destroy_cq(struct ibv_cq *cq)
{
	return 0;
}

int ibv_cmd_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	int count = 0;

	fake.calls++;
	if (fake.gone) {
		errno = EIO;
		return -1;
	}
	while (count < num_entries && fake.wc_head < fake.wc_tail)
		wc[count++] = fake.wc[fake.wc_head++];
	return count;
}
