/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The requester: the send queue from the first record of a work request to its
 * completion. Of a reliable connection by IBTA 9.7.3, 9.7.5 and 9.7.7; of the
 * unreliable services a work request is done when it is in the lane (9.8.2.1,
 * 9.8.3.1), and there are no answers.
 *
 * Owns: PSNs, message sequence and credits, go-back-N after an RNR NAK, a
 * sequence NAK or a time-out, retry counters, completions in order. It does
 * not lock, copy payload, know memory regions or read clocks: the caller does
 * and tells it. All calls for one requester are serialized by the caller,
 * but for ropcie_req_post(), which one poster may run at the same time.
 *
 * How a caller drives it:
 *   ropcie_req_post()                     a work request enters
 *   while (ropcie_req_next() == SEND)     the next record
 *       put it in the lane; ropcie_req_sent(); or ropcie_req_stuck() when that
 *       is full
 *       (ROPCIE_REQ_LOCAL: execute it; ropcie_req_executed())
 *   ropcie_req_response()                 an ACK record came
 *   ropcie_req_data()                     a READ or atomic response came:
 *       put its payload at the place; ropcie_req_placed()
 *   ropcie_req_timeout()                  the deadline passed
 *   while (ropcie_req_complete())         completions, in order
 *   requester in error: QP to ERR, then ropcie_req_flush()
 */
#ifndef ROPCIE_CORE_REQUESTER_H
#define ROPCIE_CORE_REQUESTER_H

#include "mr.h"
#include "status.h"
#include "wire.h"

/* How often a busy link may put a time-out off, before it counts. */
#define ROPCIE_REQ_PATIENCE 15

/* Send flags. */
#define ROPCIE_WR_SIGNALED BIT(0)
#define ROPCIE_WR_SOLICITED BIT(1)
#define ROPCIE_WR_IMM BIT(2)
#define ROPCIE_WR_FENCE BIT(3) /* wait for all READs and atomics before */
#define ROPCIE_WR_INV BIT(4) /* imm is a key that the other end invalidates */
#define ROPCIE_WR_DONE BIT(5) /* the local operation was executed */
#define ROPCIE_WR_INLINE BIT(6) /* the data is in the place of the list */

/*
 * Work requests that are executed here and not sent (IBTA 10.8.2.3), in the
 * place of an enum ropcie_op.
 */
enum ropcie_local_op {
	ROPCIE_LOCAL_REG_MR = 0x80, /* give a region its memory and its key */
	ROPCIE_LOCAL_INV = 0x81, /* take the key away */
	ROPCIE_LOCAL_BAD = 0x82, /* what could not be understood: it fails */
	ROPCIE_LOCAL_BIND = 0x83 /* let a window show a part of a region */
};

static inline bool ropcie_op_is_local(u8 op)
{
	return op >= ROPCIE_LOCAL_REG_MR;
}

/**
 * struct ropcie_send_wqe - a work request in the send queue
 * @wr_id: the poster's
 * @raddr: remote address (WRITE, READ, atomics); BIND: first byte
 * @dest_qpn: DATAGRAM: QP number at the other end
 * @compare_add: CAS: value to compare with; FAA: value to add
 * @swap: CAS: new value; BIND: length
 * @rkey: key of the remote memory, or of the region of a local operation; REG_MR:
 *	that it is to have
 * @access: REG_MR: ROPCIE_ACCESS_*; BIND: IB_ACCESS_*
 * @vlan: DATAGRAM: VLAN identifier, or ROPCIE_NO_VLAN
 * @qkey: DATAGRAM: Q_Key
 * @length: message bytes, sum of the list, at most ROPCIE_MAX_MSG
 * @imm: immediate data, or key to invalidate at the other end; REG_MR, BIND: key
 *	of the region, of which REG_MR takes the index only
 * @op: enum ropcie_op of its requests, or enum ropcie_local_op
 * @flags: ROPCIE_WR_*
 * @num_sge: entries of @sge
 * @srqn: XRC: shared receive queue at the other end, or 0
 * @net: DATAGRAM: enum ropcie_net
 * @psn: first PSN, once sent
 * @npsn: number of PSNs: its records, or those of the answer to a READ; 0 for
 *	a local operation
 * @ssn: send sequence number (IBTA 9.7.7.2): counts messages
 * @sge: list
 */
struct ropcie_send_wqe {
	u64 wr_id;
	union {
		u64 raddr;
		u32 dest_qpn;
	};
	union {
		u64 compare_add;
		u32 access;
		u16 vlan;
	};
	u64 swap;
	union {
		u32 rkey;
		u32 qkey;
	};
	u32 length;
	u32 imm;
	u8 op;
	u8 flags;
	u8 num_sge;
	u8 net;
	u16 srqn;
	u32 psn;
	u32 npsn;
	u32 ssn;
	struct ropcie_sge sge[];
};

/**
 * struct ropcie_req_attr - connection attributes that the requester honours
 * @psn: first PSN (sq_psn)
 * @frag: payload bytes of all but the last record of a message
 * @dest_qpn: QP at the other end
 * @src_qpn: own QP number
 * @retry_cnt: 0 to 7
 * @rnr_retry: 0 to 6, or 7 for ever
 * @max_rd_atomic: READs and atomics that may be outstanding
 * @unreliable: nothing is answered; without a time-out
 * @timeout_ns: time without an answer before a retry, 0 for never
 */
struct ropcie_req_attr {
	u32 psn;
	u32 frag;
	u32 dest_qpn;
	u32 src_qpn;
	u8 retry_cnt;
	u8 rnr_retry;
	u8 max_rd_atomic;
	bool unreliable;
	u64 timeout_ns;
};

/**
 * struct ropcie_requester - requester state
 * @ring: @size work requests of @stride bytes each
 * @size: entries, a power of two
 * @stride: bytes from one to the next
 * @head: next to post (written by the poster with release)
 * @next: next to send
 * @tail: oldest not completed
 * @off: bytes of @next already sent
 * @fresh: work requests at or behind this have no PSN yet
 * @psn: PSN of the next record
 * @next_psn: PSN that the next fresh work request will get
 * @acked_psn: all PSNs before this are acknowledged
 * @max_psn: PSN behind the last one that was ever sent
 * @laned_psn: PSN behind the last one that is under way in the lane, or before
 *	@acked_psn: what is placed past the lane would overtake it
 * @fetches: READs and atomics that were sent and have not all of their answer
 * @fetch: the oldest of them
 * @ssn: number of the next fresh work request
 * @credit_limit: requests that consume a receive may be sent freely below
 *	this ssn; one at or above it only when nothing else is outstanding
 * @rnr_left: RNR retries left
 * @retry_left: retries left
 * @extended: how often the deadline was put off because the link was busy
 * @rnr_wait: waiting for @deadline after an RNR NAK
 * @deadline: when to call ropcie_req_timeout(), 0 for never. It runs while an
 *	answer is due to what was sent to its end (IBTA 9.7.6.1.3), or a full
 *	lane keeps the next record
 * @draining: send no new work request (SQD)
 * @error: status of the oldest work request that is not acknowledged, which
 *	ended the queue; or success
 * @reported: the completion with @error was taken
 * @local_error: status that the work request at @next failed with before it
 *	was sent; becomes @error when its predecessors are done
 * @attr: attributes
 */
struct ropcie_requester {
	void *ring;
	u32 size;
	u32 stride;
	u32 head;
	u32 next;
	u32 tail;
	u32 off;
	u32 fresh;
	u32 psn;
	u32 next_psn;
	u32 acked_psn;
	u32 max_psn;
	u32 laned_psn;
	u32 fetches;
	u32 fetch;
	u32 ssn;
	u32 credit_limit;
	u8 rnr_left;
	u8 retry_left;
	u8 extended;
	bool rnr_wait;
	bool draining;
	u64 deadline;
	u8 error;
	u8 local_error;
	bool reported;
	struct ropcie_req_attr attr;
};

enum ropcie_req_verdict {
	ROPCIE_REQ_IDLE, /* nothing to send */
	ROPCIE_REQ_SEND, /* a record is ready */
	ROPCIE_REQ_LOCAL, /* a local operation is to be executed: rec->wqe */
	ROPCIE_REQ_WAIT, /* for credits, an RNR timer, or an answer */
	ROPCIE_REQ_FAILED /* the queue is in error */
};

/**
 * struct ropcie_req_rec - the next record to send
 * @hdr: its header
 * @wqe: work request whose payload it carries
 * @off: first payload byte within the message
 * @npsn: PSNs that it takes
 * @last: last record of its message
 */
struct ropcie_req_rec {
	struct ropcie_hdr hdr;
	const struct ropcie_send_wqe *wqe;
	u32 off;
	u32 npsn;
	bool last;
};

/**
 * struct ropcie_req_place - where the payload of a response goes
 * @wqe: work request whose list takes it
 * @off: first byte within that list
 * @len: number of bytes
 */
struct ropcie_req_place {
	const struct ropcie_send_wqe *wqe;
	u32 off;
	u32 len;
};

/* A completion of the send queue. */
struct ropcie_req_comp {
	u64 wr_id;
	u32 length;
	u8 op;
	u8 flags;
	u8 status;
};

/**
 * ropcie_req_init() - an empty send queue over caller's memory
 * @req: requester
 * @ring: @size * @stride bytes
 * @size: entries, a power of two
 * @stride: bytes of a struct ropcie_send_wqe with its longest list
 */
void ropcie_req_init(struct ropcie_requester *req, void *ring, u32 size,
		     u32 stride);

/**
 * ropcie_req_connect() - take connection attributes (RTR to RTS)
 * @req: requester with an empty queue
 * @attr: attributes
 */
void ropcie_req_connect(struct ropcie_requester *req,
			const struct ropcie_req_attr *attr);

/* Entries of the ring that are free for ropcie_req_slot(). */
static inline u32 ropcie_req_space(const struct ropcie_requester *req)
{
	/* The engine is done with an entry before tail moves past it. */
	return req->size - (req->head - smp_load_acquire(&req->tail));
}

/* Work requests that have not completed. */
static inline u32 ropcie_req_pending(const struct ropcie_requester *req)
{
	/* Entries are filled before head moves past them. */
	return smp_load_acquire(&req->head) - READ_ONCE(req->tail);
}

/* Is there a work request that was not sent, or is to be sent again? */
static inline bool ropcie_req_unsent(const struct ropcie_requester *req)
{
	return req->next != READ_ONCE(req->head);
}

/* The entry to fill before ropcie_req_post(); needs ropcie_req_space() > 0. */
static inline struct ropcie_send_wqe *
ropcie_req_slot(const struct ropcie_requester *req)
{
	return (struct ropcie_send_wqe *)((char *)req->ring +
		(size_t)(req->head & (req->size - 1)) * req->stride);
}

/* Make the entry that ropcie_req_slot() gave visible to the engine. */
static inline void ropcie_req_post(struct ropcie_requester *req)
{
	/* Pairs with the acquire in ropcie_req_pending(). */
	smp_store_release(&req->head, req->head + 1);
}

/**
 * ropcie_req_next() - what to send now
 * @req: requester
 * @rec: result for ROPCIE_REQ_SEND; nothing changes until ropcie_req_sent()
 *	but that a fresh work request gets its PSNs
 */
enum ropcie_req_verdict ropcie_req_next(struct ropcie_requester *req,
					struct ropcie_req_rec *rec);

/**
 * ropcie_req_may_place() - may this record's payload go past the lane, or that of
 * its answers?
 * @req: requester
 * @rec: result of ropcie_req_next()
 *
 * Only that of a WRITE or READ which is sent for the first time. One that is
 * repeated may have been executed, and its memory be in use. Is it not
 * @ropcie_req_clear(), a WRITE has to wait, or to go through the lane.
 */
bool ropcie_req_may_place(const struct ropcie_requester *req,
			  const struct ropcie_req_rec *rec);

/**
 * ropcie_req_name_sink() - let the answers to a READ be placed
 * @rec: READ with one entry in its list
 */
void ropcie_req_name_sink(struct ropcie_req_rec *rec);

/**
 * ropcie_req_awaits() - is a READ's answer due at this address?
 * @req: requester
 * @key: key that the READ's only entry has
 * @addr: address
 */
bool ropcie_req_awaits(const struct ropcie_requester *req, u32 key, u64 addr);

/*
 * Nothing that the other end has yet to take from the lane comes before what is
 * placed now.
 */
static inline bool ropcie_req_clear(const struct ropcie_requester *req)
{
	return ropcie_psn_diff(req->laned_psn, req->acked_psn) <= 0;
}

/**
 * ropcie_req_stuck() - the lane has no space for the record of ropcie_req_next()
 * @req: requester
 * @now: time in ns
 */
void ropcie_req_stuck(struct ropcie_requester *req, u64 now);

/**
 * ropcie_req_sent() - the record of ropcie_req_next() is in the lane
 * @req: requester
 * @rec: that record, with ROPCIE_F_PLACED when its payload is in its place
 * @now: time in ns
 */
void ropcie_req_sent(struct ropcie_requester *req,
		     const struct ropcie_req_rec *rec, u64 now);

/**
 * ropcie_req_executed() - the local operation of ropcie_req_next() is done
 * @req: requester
 */
void ropcie_req_executed(struct ropcie_requester *req);

/**
 * ropcie_req_local_error() - the work request of ropcie_req_next() is bad
 * @req: requester
 * @status: its completion status
 *
 * Its predecessors still complete first (IBTA 10.8.3.3, order).
 */
void ropcie_req_local_error(struct ropcie_requester *req, u8 status);

/**
 * ropcie_req_response() - an ACK record came
 * @req: requester
 * @hdr: validated header
 * @now: time in ns
 *
 * Stale and impossible acknowledges are ignored.
 *
 * Return: true when there may be completions to take or records to send.
 */
bool ropcie_req_response(struct ropcie_requester *req,
			 const struct ropcie_hdr *hdr, u64 now);

/**
 * ropcie_req_data() - a response to a READ or an atomic came
 * @req: requester
 * @hdr: validated header
 * @place: where its payload goes
 * @now: time in ns
 *
 * It also acknowledges all that was sent before its request (IBTA 9.7.5.1.2).
 * Stale ones are ignored; one that does not fit its request ends the queue
 * with ROPCIE_WC_BAD_RESP_ERR.
 *
 * Return: true when the payload (of an atomic: hdr->orig) is to be placed, and
 * ropcie_req_placed() to be called; or ropcie_req_fail() when that may not be, or
 * nothing when it can not be now: ropcie_req_fetch_again().
 */
bool ropcie_req_data(struct ropcie_requester *req, const struct ropcie_hdr *hdr,
		     struct ropcie_req_place *place, u64 now);

/**
 * ropcie_req_fetch_again() - ask again for data that could not be placed yet
 * @req: requester
 *
 * For a response of ropcie_req_data() that was dropped, because the memory had to
 * be brought in first. It costs no retry.
 */
void ropcie_req_fetch_again(struct ropcie_requester *req);

/**
 * ropcie_req_placed() - the payload of that response is in its place
 * @req: requester
 * @hdr: its header
 * @now: time in ns
 */
void ropcie_req_placed(struct ropcie_requester *req,
		       const struct ropcie_hdr *hdr, u64 now);

/**
 * ropcie_req_timeout() - the deadline passed
 * @req: requester
 * @now: time in ns; before the deadline nothing happens
 * @delivered: the peer has taken all records from the lane and this side has
 *	taken all of the peer's: only then does silence mean that the QP at the
 *	other end did not answer, and a retry is counted, if an answer is due. A
 *	link that is never idle puts the deadline off ROPCIE_REQ_PATIENCE times at
 *	most
 *
 * Return: true when there is something to send or the queue is in error.
 */
bool ropcie_req_timeout(struct ropcie_requester *req, u64 now, bool delivered);

/**
 * ropcie_req_fail() - end the queue: its oldest work request gets @status
 * @req: requester
 * @status: e.g. ROPCIE_WC_RETRY_EXC_ERR when the link is lost
 */
void ropcie_req_fail(struct ropcie_requester *req, u8 status);

/**
 * ropcie_req_complete() - the next completion that is due, in order
 * @req: requester
 * @comp: result; without ROPCIE_WR_SIGNALED and with success the caller
 *	gives the poster none
 *
 * After the one with an error status nothing more completes until
 * ropcie_req_flush().
 *
 * Return: true with a completion.
 */
bool ropcie_req_complete(struct ropcie_requester *req,
			 struct ropcie_req_comp *comp);

/**
 * ropcie_req_flush() - the next work request flushed in the ERR state
 * @req: requester; ropcie_req_complete() has returned false
 * @comp: result, status ROPCIE_WC_WR_FLUSH_ERR
 *
 * The first call ends the queue, also when it was empty: what is posted later
 * is flushed too, and nothing is sent until ropcie_req_init().
 *
 * Return: true with a completion, false when the queue is empty.
 */
bool ropcie_req_flush(struct ropcie_requester *req,
		      struct ropcie_req_comp *comp);

/**
 * ropcie_req_resume() - send again after an error (SQE to RTS)
 * @req: requester; unreliable, its queue was flushed
 */
void ropcie_req_resume(struct ropcie_requester *req);

/**
 * ropcie_req_set_retries() - from now on (SQD)
 * @req: requester
 * @retry_cnt: as in struct ropcie_req_attr; one that is another counts anew
 * @rnr_retry: the same
 * @timeout_ns: as there; another begins now
 * @now: current time, ns
 */
void ropcie_req_set_retries(struct ropcie_requester *req, u8 retry_cnt,
			    u8 rnr_retry, u64 timeout_ns, u64 now);

/**
 * ropcie_req_drain() - begin no work request any more (SQD), or go on
 * @req: requester
 * @drain: the former
 *
 * One that could not be sent yet (its fence, or the other end's receives) has not begun.
 */
void ropcie_req_drain(struct ropcie_requester *req, bool drain);

/*
 * Every work request that has been begun is done (SQD): also those that have to
 * be sent again.
 */
static inline bool ropcie_req_drained(const struct ropcie_requester *req)
{
	return req->tail == req->fresh;
}

#endif /* ROPCIE_CORE_REQUESTER_H */
