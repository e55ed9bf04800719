/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * libropcie, the libibverbs provider of RoPCIe: its objects and the verbs that
 * its files give to each other.
 *
 * Objects are made and changed with the uverbs commands. Queues are rings that
 * are shared with the kernel (mapped.h, post_mapped.c), so that neither posting
 * nor polling need a call. With ROPCIE_MAPPED_QUEUES=0 in the environment, or
 * an older kernel module, queues too are served by uverbs commands ("slow
 * path", post.c); inline data is made here then, because uverbs does not carry
 * it (inline.c). The extended polling and posting interfaces (cq_ex.c, qp_ex.c)
 * are made of the plain ones.
 *
 * As everywhere in verbs: functions that return int return 0 or an errno,
 * functions that return a pointer return NULL and set errno.
 */
#ifndef ROPCIE_H
#define ROPCIE_H

#include <pthread.h>
#include <ropcie-abi.h>
#include <stdatomic.h>

#include "inline.h"
#include "mapped.h"
#include "verbs_private.h"

struct ropcie_context {
	struct verbs_context ibv_ctx;
	struct ropcie_abi_alloc_ucontext_resp abi;
	/* Queues are mapped. */
	bool mapped;
	/* This process may not write to the device any more. */
	bool write_refused;
	/* It has received in the kernel since it said that it would sleep. */
	bool has_polled;
};

/* A thread domain: only counts its users. */
struct ropcie_td {
	struct ibv_td ibv_td;
	atomic_int users;
};

/* A protection domain, or a parent domain, which shares its handle. */
struct ropcie_pd {
	struct ibv_pd ibv_pd;
	/* Parent domains made of it; or of a parent domain queues and addresses. */
	atomic_int users;
	/* Of a parent domain. */
	struct ropcie_pd *parent_of;
	struct ropcie_td *td;
};

struct ropcie_cq {
	struct verbs_cq vcq;
	/* The extended interface: the completion that is being looked at. */
	pthread_mutex_t poll_lock;
	bool single_threaded;
	struct ibv_wc wc;
	/* Its time stamp, CLOCK_MONOTONIC, ns; 0 without mapped queues. */
	uint64_t timestamp;
	/* A mapped CQ; the lock guards the ring. */
	pthread_mutex_t ring_lock;
	struct ropcie_map map;
	struct ropcie_ring ring;
	/* The last poll has not taken all that there was. */
	bool left;
};

struct ropcie_send_batch;

struct ropcie_qp {
	struct verbs_qp vqp;
	struct ropcie_inline_ring inline_ring;
	/* NULL unless the QP was created for the ibv_wr_* interface. */
	struct ropcie_send_batch *batch;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline;
	/* Mapped queues; a lock guards posting to each. */
	pthread_mutex_t sq_lock;
	pthread_mutex_t rq_lock;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	/* A doorbell failed for good: the errno for all posts from then on. */
	int error;
	struct ropcie_map map;
	struct ropcie_ring sq;
	struct ropcie_ring rq;
};

struct ropcie_srq {
	struct verbs_srq vsrq;
	uint32_t max_sge;
	/* A mapped SRQ; the lock guards posting. */
	pthread_mutex_t lock;
	uint32_t max_wr;
	struct ropcie_map map;
	struct ropcie_ring ring;
};

struct ropcie_ah {
	struct ibv_ah ibv_ah;
	/* What mapped queues call it. */
	uint32_t number;
};

static inline struct ropcie_context *to_rctx(const struct ibv_context *context)
{
	return (struct ropcie_context *)((char *)context -
					 offsetof(struct ropcie_context,
						  ibv_ctx.context));
}

static inline struct ropcie_ah *to_rah(struct ibv_ah *ah)
{
	return (struct ropcie_ah *)ah;
}

static inline struct ropcie_pd *to_rpd(struct ibv_pd *pd)
{
	return (struct ropcie_pd *)pd;
}

static inline struct ropcie_td *to_rtd(struct ibv_td *td)
{
	return (struct ropcie_td *)td;
}

static inline struct ropcie_cq *to_rcq(struct ibv_cq *cq)
{
	return (struct ropcie_cq *)cq;
}

static inline struct ropcie_qp *to_rqp(struct ibv_qp *qp)
{
	return (struct ropcie_qp *)qp;
}

static inline struct ropcie_srq *to_rsrq(struct ibv_srq *srq)
{
	return (struct ropcie_srq *)srq;
}

/* What is made of a parent domain keeps it; others are the kernel's to keep. */
static inline void ropcie_pd_hold(struct ibv_pd *pd)
{
	if (pd && to_rpd(pd)->parent_of)
		atomic_fetch_add(&to_rpd(pd)->users, 1);
}

static inline void ropcie_pd_release(struct ibv_pd *pd)
{
	if (pd && to_rpd(pd)->parent_of)
		atomic_fetch_sub(&to_rpd(pd)->users, 1);
}

/* pd.c: protection, thread and parent domains */
struct ibv_pd *ropcie_alloc_pd(struct ibv_context *context);
int ropcie_dealloc_pd(struct ibv_pd *pd);
struct ibv_pd *ropcie_import_pd(struct ibv_context *context, uint32_t handle);
void ropcie_unimport_pd(struct ibv_pd *pd);
struct ibv_td *ropcie_alloc_td(struct ibv_context *context,
			       struct ibv_td_init_attr *attr);
int ropcie_dealloc_td(struct ibv_td *td);
struct ibv_pd *
ropcie_alloc_parent_domain(struct ibv_context *context,
			   struct ibv_parent_domain_init_attr *attr);

/* dm.c */
struct ibv_dm *ropcie_alloc_dm(struct ibv_context *context,
			       struct ibv_alloc_dm_attr *attr);
int ropcie_free_dm(struct ibv_dm *dm);
struct ibv_dm *ropcie_import_dm(struct ibv_context *context, uint32_t handle);
void ropcie_unimport_dm(struct ibv_dm *dm);
struct ibv_mr *ropcie_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm,
				uint64_t offset, size_t length,
				unsigned int access);

/* mr.c: memory regions and windows, XRC domains */
struct ibv_mr *ropcie_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			     uint64_t hca_va, int access);
struct ibv_mr *ropcie_alloc_null_mr(struct ibv_pd *pd);
struct ibv_mr *ropcie_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				    size_t length, uint64_t iova, int fd,
				    int access);
struct ibv_mr *ropcie_import_mr(struct ibv_pd *pd, uint32_t handle);
void ropcie_unimport_mr(struct ibv_mr *mr);
int ropcie_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd,
		    void *addr, size_t length, int access);
int ropcie_dereg_mr(struct verbs_mr *vmr);
struct ibv_mw *ropcie_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int ropcie_dealloc_mw(struct ibv_mw *mw);
struct ibv_xrcd *ropcie_open_xrcd(struct ibv_context *context,
				  struct ibv_xrcd_init_attr *attr);
int ropcie_close_xrcd(struct ibv_xrcd *xrcd);

/* cq.c: completion queues */
struct ibv_cq *ropcie_create_cq(struct ibv_context *context, int cqe,
				struct ibv_comp_channel *channel,
				int comp_vector);
struct ibv_cq_ex *ropcie_create_cq_ex(struct ibv_context *context,
				      struct ibv_cq_init_attr_ex *attr);
int ropcie_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
/* The same for one completion, with its time stamp; as ropcie_cq.timestamp. */
int ropcie_poll_one(struct ropcie_cq *cq, struct ibv_wc *wc,
		    uint64_t *timestamp);
int ropcie_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int ropcie_resize_cq(struct ibv_cq *cq, int cqe);
int ropcie_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int ropcie_destroy_cq(struct ibv_cq *cq);
/* Drop the completions of a QP that is reset or destroyed (IBTA 10.3.1.1). */
void ropcie_cq_forget(struct ibv_cq *cq, uint32_t qp_num);

/* cq_ex.c: ibv_start_poll() and what follows it */
void ropcie_init_cq_ex(struct ropcie_cq *cq);

/* srq.c: shared receive queues */
struct ibv_srq *ropcie_create_srq(struct ibv_pd *pd,
				  struct ibv_srq_init_attr *attr);
struct ibv_srq *ropcie_create_srq_ex(struct ibv_context *context,
				     struct ibv_srq_init_attr_ex *attr);
int ropcie_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int ropcie_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int ropcie_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
int ropcie_destroy_srq(struct ibv_srq *srq);
int ropcie_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr);

/* qp.c: queue pairs, address handles, flows */
struct ibv_qp *ropcie_create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr);
struct ibv_qp *ropcie_create_qp_ex(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *ropcie_open_qp(struct ibv_context *context,
			      struct ibv_qp_open_attr *attr);
int ropcie_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int ropcie_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		    struct ibv_qp_init_attr *init_attr);
int ropcie_destroy_qp(struct ibv_qp *qp);
struct ibv_ah *ropcie_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int ropcie_destroy_ah(struct ibv_ah *ah);
struct ibv_flow *ropcie_create_flow(struct ibv_qp *qp,
				    struct ibv_flow_attr *attr);
int ropcie_destroy_flow(struct ibv_flow *flow);

/* post.c: posting to the work queues of a QP */
int ropcie_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad_wr);
int ropcie_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr);

/* post_mapped.c: the same, to mapped queues */
/* @all: all of the list, or nothing of it. */
int ropcie_post_send_mapped(struct ropcie_qp *qp, struct ibv_send_wr *wr,
			    struct ibv_send_wr **bad_wr, bool all);
int ropcie_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
		   struct ibv_mw_bind *mw_bind);
int ropcie_post_recv_mapped(struct ropcie_qp *qp, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr);
int ropcie_post_srq_recv_mapped(struct ropcie_srq *srq, struct ibv_recv_wr *wr,
				struct ibv_recv_wr **bad_wr);

/* qp_ex.c: ibv_wr_start() and what follows it */
int ropcie_init_qp_ex(struct ropcie_qp *qp,
		      const struct ibv_qp_init_attr_ex *attr);
void ropcie_free_qp_ex(struct ropcie_qp *qp);

#endif /* ROPCIE_H */
