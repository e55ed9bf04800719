/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A kernel for the provider: one QP whose send queue takes requests up to its
 * depth and reads their data only when it is told to, as late as a device may;
 * and one CQ that hands out what a test puts there. It keeps the rules that
 * inline.h counts on, and nothing else of verbs.
 */
#ifndef ROPCIE_TESTS_PROVIDER_FAKE_KERNEL_H_
#define ROPCIE_TESTS_PROVIDER_FAKE_KERNEL_H_

#include <infiniband/verbs.h>
#include <stdbool.h> /* NOLINT(modernize-deprecated-headers): C too */
#include <stdint.h> /* NOLINT(modernize-deprecated-headers): C too */

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_QP_NUM 17
#define FAKE_LKEY_INLINE 0x1111u
#define FAKE_MAX_SGE 4

struct fake_request {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	unsigned int send_flags;
	int num_sge;
	struct ibv_sge sge[FAKE_MAX_SGE];
};

/* Empties everything; the send queue has this depth. */
void fake_reset(uint32_t depth);
void fake_set_depth(uint32_t depth);

/* How many requests are outstanding, were taken, and came in one command. */
uint32_t fake_outstanding(void);
uint32_t fake_taken(void);
uint32_t fake_longest_command(void);

/* The oldest outstanding request, whose data is read now and not before. */
struct fake_request fake_retire(void);

/* A context without mapped queues. */
struct ibv_context *fake_context(void);

/* A context with mapped queues of so many entries, new each time. */
struct ibv_context *fake_mapped_context(uint32_t size);

/* The kernel's end of the queue that was created last: 0 send queue or CQ, 1 RQ. */
struct ropcie_uring *fake_ring(int which);

/* Doorbells, and polls that found an empty mapped CQ. */
uint32_t fake_calls(void);

/* Commands are not to be written any more; how many were, refused or not. */
void fake_refuse_writes(void);
uint32_t fake_writes(void);

/* So many doorbells and polls fail, with that errno. */
void fake_fail_calls(int error, uint32_t times);

/*
 * Resizing fails with that errno, and before or after the CQ has a new ring, whose place
 * the process does not hear of.
 */
void fake_fail_resize(int error, bool late);

/* So many times, regions can not be deregistered. */
void fake_fail_deregs(uint32_t times);

/* QPs are not destroyed from now on, or that is not heard. */
void fake_fail_destroy(int error);

/* Doorbells and polls return EIO from now on. */
void fake_lose_device(void);

/*
 * From now on clocks begin at `mono` and at `wall` ns, and go on by 100 ns with each look
 * at one. Before look number `stop` (from 1) whoever looks loses the processor for 13 ms.
 */
void fake_clocks(uint64_t mono, uint64_t wall, uint32_t stop);

/* Registered regions that are still there. */
int fake_regions(void);

/* The next completion; wc_flags are the kernel's. */
void fake_complete(const struct ibv_wc *wc);

/* The provider's functions under test; its header is C only. */
struct ibv_qp *ropcie_create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr);
struct ibv_qp *ropcie_create_qp_ex(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr);
int ropcie_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		    struct ibv_qp_init_attr *init_attr);
int ropcie_destroy_qp(struct ibv_qp *qp);
int ropcie_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int ropcie_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr);
void ropcie_cq_forget(struct ibv_cq *cq, uint32_t qp_num);
int ropcie_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad_wr);
struct ibv_cq *ropcie_create_cq(struct ibv_context *context, int cqe,
				struct ibv_comp_channel *channel,
				int comp_vector);
struct ibv_cq_ex *ropcie_create_cq_ex(struct ibv_context *context,
				      struct ibv_cq_init_attr_ex *attr);
int ropcie_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int ropcie_resize_cq(struct ibv_cq *cq, int cqe);
int ropcie_destroy_cq(struct ibv_cq *cq);
int ropcie_req_notify_cq(struct ibv_cq *cq, int solicited_only);

#ifdef __cplusplus
}
#endif

#endif /* ROPCIE_TESTS_PROVIDER_FAKE_KERNEL_H_ */
