/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs of ropcie.ko, and the engines that run them.
 */
#ifndef ROPCIE_DRIVER_QP_H
#define ROPCIE_DRIVER_QP_H

#include "ropcie.h"

/* qp.c */
int ropcie_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		     struct ib_udata *udata);
int ropcie_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_udata *udata);
int ropcie_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init);
int ropcie_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
void ropcie_qp_put(struct ropcie_qp *qp);
/* No QP is left, and nobody polls. */
void ropcie_free_wc_names(struct ropcie_dev *dev);
/* All queue pairs to a peer that is gone go to ERR. Process context. */
void ropcie_qp_peer_down(struct ropcie_dev *dev, struct ropcie_peer *peer);

/* work.c */
int ropcie_work_init(void);
void ropcie_work_exit(void);

/* Let a work consumer run the QP. Any context. */
void ropcie_qp_schedule(struct ropcie_qp *qp);

/**
 * ropcie_work_help() - run a queue pair that waits for a work consumer
 * @cq: where its completions go, which the caller polls for
 *
 * In task context, with interrupts on.
 *
 * Return: one was run.
 */
bool ropcie_work_help(const struct ropcie_cq *cq);

/* Run the QP here when that may be done, else schedule it. Any context. */
void ropcie_qp_kick(struct ropcie_qp *qp);

/**
 * ropcie_qp_await_more() - a process has posted a send: wait for others, if that pays
 * @qp: queue pair with mapped queues
 *
 * In a stream a call for each post is most of what a small message costs. So the
 * process is told not to call for a few microseconds, at whose end, or when it polls
 * an empty CQ, a work consumer or the poller sends all that there is.
 *
 * Return: the QP is going to be run.
 */
bool ropcie_qp_await_more(struct ropcie_qp *qp);

/**
 * ropcie_qp_run() - send, complete, flush: what the state asks for
 * @qp: its lock is held
 * @budget: bytes to send at most, about
 *
 * Return: true when the budget ended before the work.
 */
bool ropcie_qp_run(struct ropcie_qp *qp, u32 budget);

/*
 * Wait for space in the lane; qp->lock is held. Return: true when the QP was not
 * waiting yet: the lane may have got space before the QP was on the list, so try
 * again.
 */
bool ropcie_qp_block(struct ropcie_qp *qp);

/* Does it wait for space in a lane to this peer? */
bool ropcie_qp_is_blocked_by(struct ropcie_qp *qp,
			     const struct ropcie_peer *peer);

/* Wait for space in a lane no longer; qp->lock is not held. */
void ropcie_qp_unblock(struct ropcie_qp *qp);

void ropcie_tx_space(void *ctx, struct ropcie_peer *peer, u32 lane);
enum hrtimer_restart ropcie_qp_timer(struct hrtimer *timer);

/* It is run at that time at the latest, in ns. qp->lock is held, and not in RESET. */
void ropcie_qp_run_at(struct ropcie_qp *qp, u64 when);

/* send.c */
/**
 * ropcie_qp_send() - send until idle, blocked, or over the budget
 * @qp: its lock is held
 * @budget: bytes to send at most, about
 *
 * Return: true when the budget ended before the work.
 */
bool ropcie_qp_send(struct ropcie_qp *qp, u32 budget);

/* loan.c */
/**
 * ropcie_lend_request() - ropcie_mq_send() of a request, by DMA if its memory may be lent
 * @qp: its lock is held
 * @hdr: header
 * @vec: payload
 * @nvec: entries
 * @mr: regions that the payload is in, with references
 * @nmr: number of them; 0 when they were taken over
 *
 * Return: see ropcie_mq_send().
 */
int ropcie_lend_request(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
			const struct ropcie_vec *vec, u32 nvec,
			struct ropcie_mr **mr, u32 *nmr);

/* The same of an answer out of one region, which becomes NULL if it was taken over. */
int ropcie_lend_answer(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
		       const struct ropcie_vec *vec, u32 nvec,
		       struct ropcie_mr **mr);

bool ropcie_lends_any(struct ropcie_qp *qp);
bool ropcie_is_unseen(struct ropcie_qp *qp, const struct ropcie_hdr *hdr);

/* Process context: until it lends nothing; nothing more is sent. */
void ropcie_wait_loans(struct ropcie_qp *qp);

/* Has a DMA engine memory of its requests? Then it is run when that ends. */
static inline bool ropcie_qp_lends(struct ropcie_qp *qp)
{
	return static_branch_unlikely(&ropcie_dma_key) && ropcie_lends_any(qp);
}

/* The same, and it is to fail; a request that fails may have been sent in part. */
static inline bool ropcie_qp_fails_late(struct ropcie_qp *qp)
{
	return static_branch_unlikely(&ropcie_dma_key) &&
	       (qp->req.error || qp->req.local_error) && ropcie_lends_any(qp);
}

/* An answer to a request that its sender can not have seen. */
static inline bool ropcie_qp_unseen(struct ropcie_qp *qp,
				    const struct ropcie_hdr *hdr)
{
	return static_branch_unlikely(&ropcie_dma_key) &&
	       ropcie_is_unseen(qp, hdr);
}

/* settle.c */
void ropcie_settle_init(void);

/*
 * The QP owes answers, or is to be run: ropcie_settle() follows before bottom halves
 * are on again. qp->lock is held.
 */
void ropcie_owe(struct ropcie_qp *qp);

/* Serve those that owe something; bottom halves are off, no QP's lock is held. */
void ropcie_settle(void);

/* complete.c */
/* Flushed of each queue at a time: others wait for the lane and the consumer. */
#define ROPCIE_FLUSH_BUDGET 256

/*
 * Completions that are due; an error among them ends the QP. Of an unreliable
 * one it ends the send queue only (IBTA 10.3.1.6). qp->lock is held.
 */
void ropcie_qp_complete_sends(struct ropcie_qp *qp);

/*
 * Flush some of both queues; qp->lock is held. Return: true when there may be more: the
 * QP is to be run again.
 */
bool ropcie_qp_flush(struct ropcie_qp *qp);

/*
 * The consumer will never hear of a work request: its QP is of no more use (IBTA
 * 11.6.3.2). qp->lock is held.
 */
void ropcie_qp_end_lost(struct ropcie_qp *qp);

/* Let go of a QP, with bottom halves off still: ropcie_settle() follows. */
static inline void ropcie_qp_leave(struct ropcie_qp *qp)
{
	if (unlikely(qp->lost))
		ropcie_qp_end_lost(qp);
	spin_unlock(&qp->lock);
}

/* Let go of a QP that may have sent or completed something. */
static inline void ropcie_qp_unlock(struct ropcie_qp *qp)
{
	ropcie_qp_leave(qp);
	ropcie_settle();
	local_bh_enable();
}

/* The same with the send queue only. */
bool ropcie_qp_flush_sends(struct ropcie_qp *qp);

/* An asynchronous event: a tasklet raises it. */
static inline void ropcie_qp_event(struct ropcie_qp *qp,
				   enum ib_event_type event)
{
	set_bit(event, &qp->events);
	tasklet_schedule(&qp->raise);
}

void ropcie_qp_raise(struct tasklet_struct *t);

/*
 * QP to ERR; qp->lock is held. What was queued is flushed, each queue in its order.
 */
void ropcie_qp_to_error(struct ropcie_qp *qp);

/*
 * The link to its peer is lost, whether ropcie_qp_peer_down() has come or is to come; nobody
 * answers the oldest send. qp->lock is held.
 */
void ropcie_qp_link_lost(struct ropcie_qp *qp);

/* answer.c */
/**
 * ropcie_qp_answer() - send the answers that the responder owes, or should give
 *	unasked because it has receives again
 * @qp: its lock is held
 * @budget: bytes to send at most, about
 *
 * Rings no doorbell. Return: true when the budget ended before the answers.
 */
bool ropcie_qp_answer(struct ropcie_qp *qp, u32 budget);

/*
 * Acknowledge what was received, and then answer nothing any more: a QP in ERR
 * reads no memory for its peer. Not with a NAK that is owed or sent: what was
 * asked for before that is answered all the same. qp->lock is held.
 */
void ropcie_qp_stop_answering(struct ropcie_qp *qp);

/* rx.c */
/*
 * Copy a record's payload to byte @off of a scatter list of memory in @pd;
 * qp->lock is held. Return: 0; -EACCES without the right; -EINPROGRESS when the
 * memory is being brought in: ropcie_odp_missing().
 */
int ropcie_place(struct ropcie_qp *qp, enum ropcie_side side, struct ib_pd *pd,
		 const struct ropcie_sge *sge, u32 num_sge, u64 off,
		 const struct ropcie_rec *rec);
void ropcie_rx_request(struct ropcie_mq *mq, struct ropcie_peer *peer,
		       const struct ropcie_rec *rec);
void ropcie_rx_response(struct ropcie_mq *mq, struct ropcie_peer *peer,
			const struct ropcie_rec *rec);
/* The same for a record of this kernel's, whose sender has his own QP's lock. */
bool ropcie_rx_take_request(struct ropcie_mq *mq, struct ropcie_peer *peer,
			    const struct ropcie_rec *rec);
bool ropcie_rx_take_response(struct ropcie_mq *mq, struct ropcie_peer *peer,
			     const struct ropcie_rec *rec);
void ropcie_rx_batch_end(void *ctx, struct ropcie_peer *peer);

/*
 * Bytes of the last naturally aligned word of a range, at most 8; 0 when it is not
 * there.
 */
u32 ropcie_tail_length(const struct ropcie_mr_core *mr, u64 addr, u32 len);

/*
 * Write that word, from byte @from of a payload on: whole, if it has 1, 2, 4 or 8
 * bytes. Return: false when it is not there.
 */
bool ropcie_put_tail(const struct ropcie_mr_core *mr, u64 addr, u32 len,
		     const struct ropcie_rec *rec, u32 from);

/*
 * A request can not be served: the NAK that is owed, and the QP ends (IBTA
 * 9.9.3.1). An unreliable one tells nobody. qp->lock is held.
 */
void ropcie_qp_refuse(struct ropcie_qp *qp);

/*
 * Complete the receive at the head of the queue; qp->lock is held. @hdr is the
 * last record of its message, or NULL for a failure.
 */
void ropcie_recv_complete(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
			  enum ib_wc_status status);

#endif /* ROPCIE_DRIVER_QP_H */
