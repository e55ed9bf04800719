/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues of ropcie.ko that consumers post to and poll, and those that a process has
 * mapped.
 */
#ifndef ROPCIE_DRIVER_QUEUES_H
#define ROPCIE_DRIVER_QUEUES_H

#include "ropcie.h"

/*
 * When a queue is resized: entries that are moved with interrupts off, and how often it
 * is tried to have no more of them.
 */
#define ROPCIE_MOVE_MOST 256
#define ROPCIE_MOVE_PASSES 16

/* mmap.c */
/**
 * ropcie_shared_alloc() - memory that a process may map
 * @ibuc: its context
 * @size: bytes, rounded up to pages
 * @charged: count of pages that they are part of, to be taken off at the end,
 *	or NULL
 *
 * Return: memory, to be given back with ropcie_shared_put(), or an error
 * pointer.
 */
struct ropcie_shared *ropcie_shared_alloc(struct ib_ucontext *ibuc, size_t size,
					  atomic_t *charged);
/* The kernel is done with it; the process may not be. NULL is nothing. */
void ropcie_shared_put(struct ropcie_shared *mem);
int ropcie_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma);
int ropcie_mmap_init(void);
void ropcie_mmap_exit(void);
void ropcie_mmap_free(struct rdma_user_mmap_entry *entry);

/* uqueue.c */
/**
 * ropcie_wants_mapped() - what a process asks of a new queue
 * @udata: the driver's part of its command, or NULL
 *
 * Return: 1 for a mapped queue, 0 for another one, or a negative errno.
 */
int ropcie_wants_mapped(struct ib_udata *udata);

/**
 * struct ropcie_uring_want - a ring of a new mapped queue
 * @ring: what is to lead to it
 * @size: most entries in use; 0 for no ring
 * @stride: bytes of an entry
 */
struct ropcie_uring_want {
	struct ropcie_uring *ring;
	u32 size;
	u32 stride;
};

/**
 * ropcie_map_queue() - make the rings of a queue, and tell the process of them
 * @udata: the driver's part of its command
 * @to: where the process wants to be told, or NULL for the command's answer
 * @want: rings
 * @num: how many, at most 2
 *
 * Return: their memory, or an error pointer.
 */
struct ropcie_shared *ropcie_map_queue(struct ib_udata *udata,
				       void __user *to,
				       const struct ropcie_uring_want *want,
				       u32 num);

/**
 * ropcie_pull_sends() - take over what the process has posted
 * @qp: its lock is held
 *
 * As long as there is room, but not for long; not before the state allows it.
 *
 * Return: how many.
 */
u32 ropcie_pull_sends(struct ropcie_qp *qp);

/* The same for a receive queue; its post_lock is not held. */
u32 ropcie_pull_recvs(struct ropcie_rq *rq);

/* The same, with post_lock held. */
u32 ropcie_pull_recvs_locked(struct ropcie_rq *rq);

/**
 * ropcie_sends_left() - before the engine stops: has the process posted more?
 * @qp: its lock is held
 *
 * If not, the process calls when it has.
 */
bool ropcie_sends_left(struct ropcie_qp *qp);

/* cq.c */
int ropcie_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		     struct ropcie_cq_arg *arg);
int ropcie_pre_destroy_cq(struct ib_cq *ibcq);
int ropcie_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int ropcie_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata);

/**
 * ropcie_cq_reserve() - a queue pair is made whose requests complete to a CQ
 * @ibcq: the CQ, or NULL
 * @num: work requests that the queue pair may have
 *
 * Kernel code makes a CQ for what it has signaled, but a flush completes all (IBTA
 * 10.3.1.7), also for CQs that many queue pairs share (ib_cq_pool_get()): it gets room for
 * both, and keeps it. Of a process's CQ the process has to see to that. Context: process.
 *
 * Return: 0 or -ENOMEM.
 */
int ropcie_cq_reserve(struct ib_cq *ibcq, u32 num);

/* The queue pair is destroyed. */
void ropcie_cq_unreserve(struct ib_cq *ibcq, u32 num);
int ropcie_modify_cq(struct ib_cq *ibcq, u16 count, u16 period_us);
int ropcie_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc);
int ropcie_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);

/**
 * ropcie_cq_add() - a completion
 * @cq: queue
 * @wc: completion
 * @solicited: wakes a consumer that asked for solicited completions only
 *
 * Return: false when there was no room: it is lost.
 */
bool ropcie_cq_add(struct ropcie_cq *cq, const struct ib_wc *wc,
		   bool solicited);

/* Who sends waits for this consumer: what it was to be told later it is told now. */
void ropcie_cq_hurry(struct ropcie_cq *cq);

/* Completions that were not polled; of a mapped queue, as the process says. */
u32 ropcie_cq_used(const struct ropcie_cq *cq);

/* Drop the completions of a QP that is reset or destroyed (IBTA 10.3.1.1). */
void ropcie_cq_forget(struct ropcie_cq *cq, const struct ib_qp *ibqp);

/* srq.c */
int ropcie_rq_create(struct ropcie_rq *rq, u32 max_wr, u32 max_sge);
void ropcie_rq_destroy(struct ropcie_rq *rq);
/* The ring through which a process posts to it. */
struct ropcie_uring_want ropcie_rq_uring(struct ropcie_rq *rq);
int ropcie_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		      struct ib_udata *udata);
int ropcie_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		      enum ib_srq_attr_mask mask, struct ib_udata *udata);
int ropcie_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int ropcie_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);

/* The receive that is in use, or the next of the QP's own queue; or NULL. */
struct ropcie_recv_wqe *ropcie_recv_current(struct ropcie_qp *qp);

/**
 * ropcie_recv_for() - the receive that a request may fill
 * @qp: its lock is held
 * @take: take one from a shared queue if need be
 * @length: bytes; a shorter one stays in the shared queue, for a message that it fits
 *
 * Return: the receive, or NULL when there is none.
 */
struct ropcie_recv_wqe *ropcie_recv_for(struct ropcie_qp *qp, bool take, u32 length);

/* Be done with the current receive; qp->lock is held. */
void ropcie_recv_release(struct ropcie_qp *qp);

/* xrc.c */
int ropcie_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int ropcie_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
/* Give a complete shared receive queue its number. Return: 0 or an errno. */
int ropcie_xrc_publish(struct ropcie_dev *dev, struct ropcie_srq *srq);
/* Take it away: nobody receives for the queue, or raises its events, then. */
void ropcie_xrc_unpublish(struct ropcie_dev *dev, struct ropcie_srq *srq);

/**
 * ropcie_xrc_find() - the shared receive queue that a request names
 * @qp: target that got it; its lock is held, and keeps the queue alive
 * @srqn: number
 *
 * Return: queue, or NULL when there is none in the QP's domain.
 */
struct ropcie_srq *ropcie_xrc_find(const struct ropcie_qp *qp, u32 srqn);

/* post.c */
int ropcie_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		     const struct ib_send_wr **bad_wr);
int ropcie_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		     const struct ib_recv_wr **bad_wr);
int ropcie_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			 const struct ib_recv_wr **bad_wr);

/* The same for a bind of a memory window, which only a process has. */
int ropcie_fill_bind(struct ropcie_qp *qp,
		     const struct ropcie_abi_send_wqe *uwqe,
		     struct ropcie_send_wqe *wqe);

/* Fill an entry of a receive queue. */
void ropcie_fill_recv(struct ropcie_recv_wqe *wqe, u64 wr_id,
		      const struct ib_sge *sge, u32 num_sge);

/* Inline data of a work request. */
struct ropcie_inline {
	const void *data;
	u32 length;
};

/**
 * ropcie_fill_send() - check a work request and copy it into the send queue
 * @qp: its sq_lock is held
 * @wr: work request
 * @in: inline data, or NULL
 * @wqe: entry
 *
 * Return: 0, or -EINVAL, -EOPNOTSUPP.
 */
int ropcie_fill_send(struct ropcie_qp *qp, const struct ib_send_wr *wr,
		     const struct ropcie_inline *in,
		     struct ropcie_send_wqe *wqe);

/* What wc->qp is to be. */
static inline struct ib_qp *ropcie_wc_qp(struct ropcie_qp *qp)
{
	return qp->wc_name ? &qp->wc_name->ibqp : &qp->ibqp;
}

static inline u32 ropcie_rq_ready(struct ropcie_rq *rq)
{
	if (ropcie_uring_ready(&rq->uring))
		ropcie_pull_recvs(rq);
	/* Entries are filled before head moves past them. */
	return smp_load_acquire(&rq->head) - rq->tail;
}

static inline struct ropcie_recv_wqe *ropcie_rq_at(const struct ropcie_rq *rq,
						   u32 idx)
{
	return rq->ring + (size_t)(idx & (rq->size - 1)) * rq->stride;
}

#endif /* ROPCIE_DRIVER_QUEUES_H */
