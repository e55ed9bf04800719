/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The responder of a connection: requests in PSN order, receives consumed one
 * per message, answers owed (IBTA 9.7.4, 9.7.5.2.8, 9.9.3). An unreliable
 * connection answers nothing, and passes over what it can not take (9.8.2.2).
 *
 * Owns: expected PSN, MSN, the message being received, which answer is owed
 * and its coalescing, credits. It does not lock, copy payload or hold the
 * receive queue: the caller does, and tells it how many receives are ready.
 * All calls for one responder are serialized by the caller.
 *
 * How a caller drives it, for each record:
 *   XRC: if ropcie_rsp_names_srq(), find that queue, or ropcie_rsp_fail()
 *   v = ropcie_rsp_request()
 *   ROPCIE_RSP_PLACE: copy the payload to @off of the current receive, then
 *       ropcie_rsp_placed(), or ropcie_rsp_fail() when the copy may not be
 *   ROPCIE_RSP_WRITE: the same with the memory that @addr and @rkey name
 *   ROPCIE_RSP_READ: look whether the request may read what it names, then
 *       ropcie_rsp_fetched(), or ropcie_rsp_fail()
 *   ROPCIE_RSP_ATOMIC: execute it, then the same
 *   whatever needs memory that is not there now: ropcie_rsp_not_there(), and when
 *       it is, ropcie_rsp_there()
 *   at the end of a batch: while (ropcie_rsp_owes()) build, send with what the
 *       answer names as its payload, ropcie_rsp_answered()
 */
#ifndef ROPCIE_CORE_RESPONDER_H
#define ROPCIE_CORE_RESPONDER_H

#include "status.h"
#include "wire.h"

/* READs and atomics whose answers are owed or remembered. */
#define ROPCIE_RSP_DEPTH 16

/**
 * struct ropcie_rsp_attr - connection attributes that the responder honours
 * @psn: first PSN to expect (rq_psn)
 * @dest_qpn: QP at the other end; records of others are dropped
 * @src_qpn: own QP number
 * @min_rnr_timer: RNR timer code to ask for
 * @max_rd_atomic: READs and atomics to take before the first is answered, up
 *	to ROPCIE_RSP_DEPTH
 * @unreliable: an unreliable connection
 * @xrc: each request names a shared receive queue (IBTA annex A14); of others
 *	none does
 * @access: ROPCIE_ACCESS_* that the queue pair allows its peer
 */
struct ropcie_rsp_attr {
	u32 psn;
	u32 dest_qpn;
	u32 src_qpn;
	u8 min_rnr_timer;
	u8 max_rd_atomic;
	bool unreliable;
	bool xrc;
	u32 access;
};

/**
 * struct ropcie_rsp_fetch - a READ or an atomic (IBTA: responder resource)
 * @hdr: the request
 * @off: READ: bytes of the answer that were sent
 * @orig: atomic: value before
 */
struct ropcie_rsp_fetch {
	struct ropcie_hdr hdr;
	u32 off;
	u64 orig;
};

/**
 * struct ropcie_responder - responder state
 * @epsn: next PSN
 * @msn: messages completed
 * @in_msg: between the first and the last record of a message
 * @op: opcode of that message
 * @rkey: key that a WRITE names
 * @addr: address that it names
 * @srqn: shared receive queue that it names (XRC)
 * @msg_len: bytes of that message
 * @msg_off: bytes received of it
 * @owes: an acknowledge is owed
 * @nak: its syndrome
 * @nak_psn: the PSN that a NAK is for
 * @nak_sent: an RNR or sequence NAK was owed for the current epsn: what comes
 *	behind it is dropped without another one
 * @dead: a fatal NAK is owed or sent; everything else is dropped
 * @starved: an RNR NAK was sent and no credits since: the other end waits
 * @paging: the RNR NAK is for memory that is being brought in
 * @page_naks: such ones since @epsn has moved
 * @fetch: the last READs and atomics, a ring
 * @fetch_head: where the next one goes
 * @fetch_known: how many there are in it
 * @fetch_next: the next to answer
 * @fetch_done: the first that was not answered yet. What lies before it and
 *	at or behind @fetch_next is answered again
 * @attr: attributes
 */
struct ropcie_responder {
	u32 epsn;
	u32 msn;
	bool in_msg;
	bool owes;
	bool nak_sent;
	bool dead;
	bool starved;
	bool paging;
	u32 page_naks;
	u8 nak;
	u8 op;
	u16 srqn;
	u32 nak_psn;
	u32 rkey;
	u64 addr;
	u32 msg_len;
	u32 msg_off;
	struct ropcie_rsp_fetch fetch[ROPCIE_RSP_DEPTH];
	u32 fetch_head;
	u32 fetch_known;
	u32 fetch_next;
	u32 fetch_done;
	struct ropcie_rsp_attr attr;
};

enum ropcie_rsp_verdict {
	ROPCIE_RSP_DROP, /* nothing to do with the payload */
	ROPCIE_RSP_PLACE, /* payload belongs to the current receive */
	ROPCIE_RSP_WRITE, /* payload belongs to memory that the peer names */
	ROPCIE_RSP_READ, /* the peer wants to read memory */
	ROPCIE_RSP_ATOMIC, /* the peer wants an atomic executed */
	ROPCIE_RSP_TOO_LONG, /* the receive is too short: LOC_LEN_ERR */
	ROPCIE_RSP_INVALID /* the request breaks the protocol: QP to ERR */
};

/**
 * struct ropcie_rsp_place - where the payload of a record goes
 * @addr: WRITE: address of its first byte
 * @rkey: WRITE: key of the memory
 * @off: byte position within the message
 * @first: the message begins: the current receive is the head of the queue
 * @last: the message is complete when this is placed
 */
struct ropcie_rsp_place {
	u64 addr;
	u32 rkey;
	u32 off;
	bool first;
	bool last;
};

/**
 * ropcie_rsp_connect() - start (INIT to RTR)
 * @rsp: responder
 * @attr: attributes
 */
void ropcie_rsp_connect(struct ropcie_responder *rsp,
			const struct ropcie_rsp_attr *attr);

/**
 * ropcie_rsp_request() - what to do with a request record
 * @rsp: responder
 * @hdr: validated header
 * @ready: receives in the queue, the current one included
 * @room: bytes of the receive at the head of the queue (ready > 0)
 * @place: result for ROPCIE_RSP_PLACE and ROPCIE_RSP_WRITE
 *
 * After TOO_LONG and INVALID the fatal NAK is owed; the caller completes the
 * current receive with LOC_LEN_ERR (TOO_LONG), sends the answer and takes the
 * QP to ERR.
 */
enum ropcie_rsp_verdict ropcie_rsp_request(struct ropcie_responder *rsp,
					   const struct ropcie_hdr *hdr,
					   u32 ready, u64 room,
					   struct ropcie_rsp_place *place);

/**
 * ropcie_rsp_placed() - the payload of the last PLACE or WRITE is in memory
 * @rsp: responder
 * @hdr: header of that record
 *
 * Return: true when the message is complete and has taken a receive: the
 * current receive completes with success and leaves the queue.
 */
bool ropcie_rsp_placed(struct ropcie_responder *rsp,
		       const struct ropcie_hdr *hdr);

/**
 * ropcie_rsp_fetched() - the last READ is allowed, or ATOMIC was executed
 * @rsp: responder
 * @hdr: header of that request
 * @orig: atomic: value before
 */
void ropcie_rsp_fetched(struct ropcie_responder *rsp,
			const struct ropcie_hdr *hdr, u64 orig);

/**
 * ropcie_rsp_fail() - the last request may not be executed
 * @rsp: responder
 * @syndrome: fatal NAK to owe, e.g. ROPCIE_NAK_REM_OP
 *
 * An unreliable connection passes over the message instead (class E).
 */
void ropcie_rsp_fail(struct ropcie_responder *rsp, enum ropcie_syndrome syndrome);

/**
 * ropcie_rsp_not_there() - the memory for the last request is being brought in
 * @rsp: responder
 *
 * The other end is asked to send it again later (RNR NAK). An unreliable
 * connection passes over the message.
 */
void ropcie_rsp_not_there(struct ropcie_responder *rsp);

/**
 * ropcie_rsp_there() - that memory has been brought in, or can not be
 * @rsp: responder
 *
 * If there are receives, an unsolicited acknowledge becomes due, which ends the
 * other end's wait: ropcie_rsp_replenished().
 */
void ropcie_rsp_there(struct ropcie_responder *rsp);

/**
 * ropcie_rsp_read_left() - what is still to be sent of the answer to a READ
 * @rsp: responder; ropcie_rsp_answer() has made a READ_RESP
 *
 * Return: bytes, those of this READ_RESP too.
 */
u32 ropcie_rsp_read_left(struct ropcie_responder *rsp);

/**
 * ropcie_rsp_fail_read() - the READ to be answered next may not be, any more
 * @rsp: responder
 * @syndrome: fatal NAK to owe
 *
 * Return: false when it was only being repeated: the peer may have all of it,
 * so it is passed over.
 */
bool ropcie_rsp_fail_read(struct ropcie_responder *rsp,
			  enum ropcie_syndrome syndrome);

/**
 * ropcie_rsp_stop() - answer nothing more of what has come
 * @rsp: responder
 */
void ropcie_rsp_stop(struct ropcie_responder *rsp);

/* Is there an answer to send? */
static inline bool ropcie_rsp_owes(const struct ropcie_responder *rsp)
{
	return rsp->owes || rsp->fetch_next != rsp->fetch_head;
}

/* Does a message in progress hold the receive at the head of the queue? */
static inline bool ropcie_rsp_holds_receive(const struct ropcie_responder *rsp)
{
	return rsp->in_msg && rsp->op == ROPCIE_OP_SEND;
}

/*
 * Is this the request that comes next, of a kind that the connection knows, and
 * not one to drop?
 */
static inline bool ropcie_rsp_expects(const struct ropcie_responder *rsp,
				      const struct ropcie_hdr *hdr)
{
	return !rsp->dead && hdr->src_qpn == rsp->attr.dest_qpn &&
	       ropcie_op_connected(hdr->op) &&
	       !!hdr->srqn == rsp->attr.xrc &&
	       (hdr->psn == rsp->epsn || rsp->attr.unreliable);
}

/* That of ropcie_rsp_takes_receive() which is of unreliable connections. */
bool ropcie_rsp_unreliable_takes_receive(const struct ropcie_responder *rsp,
					 const struct ropcie_hdr *hdr);

/*
 * Will this request fill the next receive? Then there has to be one when it is
 * given to ropcie_rsp_request().
 */
static inline bool ropcie_rsp_takes_receive(const struct ropcie_responder *rsp,
					    const struct ropcie_hdr *hdr)
{
	if (!ropcie_rsp_expects(rsp, hdr) ||
	    (rsp->in_msg && hdr->srqn != rsp->srqn))
		return false;
	/*
	 * What has not the right form takes none of a shared queue. A receive whose
	 * message a bad key costs stays for the next one.
	 */
	if (rsp->attr.unreliable)
		return ropcie_rsp_unreliable_takes_receive(rsp, hdr);
	return hdr->op == ROPCIE_OP_SEND ?
		       !rsp->in_msg && (hdr->flags & ROPCIE_F_FIRST) :
		       hdr->op == ROPCIE_OP_WRITE && (hdr->flags & ROPCIE_F_IMM);
}

/*
 * Bytes that the receive must have, or the message is dropped: on a reliable
 * connection a receive that is too short completes, in error.
 */
static inline u32 ropcie_rsp_needs(const struct ropcie_responder *rsp,
				   const struct ropcie_hdr *hdr)
{
	return rsp->attr.unreliable && hdr->op == ROPCIE_OP_SEND ? hdr->msg_len : 0;
}

/*
 * Does this request begin a message for a shared receive queue that it names?
 * Then the caller has to find that queue first.
 */
static inline bool ropcie_rsp_names_srq(const struct ropcie_responder *rsp,
					const struct ropcie_hdr *hdr)
{
	return rsp->attr.xrc && !rsp->in_msg && ropcie_rsp_expects(rsp, hdr);
}

/**
 * ropcie_rsp_answer() - build the next answer that is owed
 * @rsp: responder
 * @ready: receives in the queue, not counting one in use
 * @hdr: result; mq is the response queue of the other end. Its payload is
 *	hdr->frag_len bytes at hdr->addr of the memory that hdr->rkey names; it may be
 *	placed at hdr->sink_addr of what hdr->sink_key names, unless that is 0
 */
void ropcie_rsp_answer(struct ropcie_responder *rsp, u32 ready,
		       struct ropcie_hdr *hdr);

/**
 * ropcie_rsp_answered() - that answer is in the lane
 * @rsp: responder
 * @hdr: answer that was sent
 */
void ropcie_rsp_answered(struct ropcie_responder *rsp,
			 const struct ropcie_hdr *hdr);

/**
 * ropcie_rsp_replenished() - receives were posted
 * @rsp: responder
 *
 * When the other end was refused for want of one, an unsolicited acknowledge
 * becomes due, which ends its wait (IBTA 9.7.7.2).
 *
 * Return: true when an answer is owed now.
 */
bool ropcie_rsp_replenished(struct ropcie_responder *rsp);

#endif /* ROPCIE_CORE_RESPONDER_H */
