// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "call.h"

#include <rdma/ib_user_verbs.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ropcie.h"

#define WORDS(object) (sizeof(object) / 4)

/* False: libibverbs has to make the call, or to say why it fails. */
static bool write_command(struct ibv_context *context, const void *cmd,
			  size_t length)
{
	bool *refused = &to_rctx(context)->write_refused;

	if (__atomic_load_n(refused, __ATOMIC_RELAXED))
		return false;
	/* Not write(), where a thread may be cancelled: callers hold locks. */
	if (syscall(SYS_write, context->cmd_fd, cmd, length) == (long)length)
		return true;
	if (!ropcie_call_again(errno))
		__atomic_store_n(refused, true, __ATOMIC_RELAXED);
	return false;
}

int ropcie_call_for_sends(struct ibv_qp *qp)
{
	struct ib_uverbs_post_send_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_send core;
	} cmd = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_POST_SEND,
			.in_words = WORDS(cmd),
			.out_words = WORDS(resp),
		},
		.core = {
			.response = (uintptr_t)&resp,
			.qp_handle = qp->handle,
			.wqe_size = sizeof(struct ib_uverbs_send_wr),
		},
	};
	struct ibv_send_wr *none;

	if (write_command(qp->context, &cmd, sizeof(cmd)))
		return 0;
	return ibv_cmd_post_send(qp, NULL, &none);
}

int ropcie_call_for_recvs(struct ibv_qp *qp)
{
	struct ib_uverbs_post_recv_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_recv core;
	} cmd = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_POST_RECV,
			.in_words = WORDS(cmd),
			.out_words = WORDS(resp),
		},
		.core = {
			.response = (uintptr_t)&resp,
			.qp_handle = qp->handle,
			.wqe_size = sizeof(struct ib_uverbs_recv_wr),
		},
	};
	struct ibv_recv_wr *none;

	if (write_command(qp->context, &cmd, sizeof(cmd)))
		return 0;
	return ibv_cmd_post_recv(qp, NULL, &none);
}

int ropcie_call_for_progress(struct ibv_cq *cq)
{
	struct {
		struct ib_uverbs_poll_cq_resp core;
		struct ib_uverbs_wc wc; /* never filled: the ring is mapped */
	} resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_poll_cq core;
	} cmd = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_POLL_CQ,
			.in_words = WORDS(cmd),
			.out_words = WORDS(resp),
		},
		.core = {
			.response = (uintptr_t)&resp,
			.cq_handle = cq->handle,
			.ne = 1,
		},
	};
	struct ibv_wc wc;

	if (write_command(cq->context, &cmd, sizeof(cmd)))
		return 0;
	errno = 0;
	if (ibv_cmd_poll_cq(cq, 1, &wc) >= 0)
		return 0;
	return errno ? errno : EIO;
}

int ropcie_call_before_sleep(struct ibv_cq *cq)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_req_notify_cq core;
	} cmd = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
			.in_words = WORDS(cmd),
		},
		.core = { .cq_handle = cq->handle },
	};

	if (write_command(cq->context, &cmd, sizeof(cmd)))
		return 0;
	return ibv_cmd_req_notify_cq(cq, 0);
}
