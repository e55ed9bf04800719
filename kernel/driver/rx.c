// SPDX-License-Identifier: GPL-2.0
/*
 * Records that arrive: requests to the responder, acknowledges to the
 * requester, payload to the receive buffers. Runs where ntb_if drains a lane, or in
 * the sender's context (ropcie_rx_take_*()): bottom halves off, the lane's receive
 * lock held.
 */
#include "memory.h"
#include "odp.h"
#include "placement.h"
#include "qp.h"
#include "queues.h"
#include "ropcie.h"

/* The lock of a queue pair that its holder meets again has to refuse. */
#if !defined(CONFIG_SMP) && !defined(CONFIG_DEBUG_SPINLOCK)
#error "RoPCIe needs a kernel with CONFIG_SMP"
#endif

/* Runs of memory that one step of the scatter loop fills. */
#define SCATTER_VECS 16

/*
 * Copy payload from @from on to @piece; @ahead bytes from its beginning on will be
 * needed in all. Return: 0, or what ropcie_odp_missing() says.
 */
static int scatter_piece(struct ropcie_qp *qp, enum ropcie_side side,
			 struct ropcie_mr *mr, const struct ropcie_sge *piece,
			 const struct ropcie_rec *rec, u32 from, u64 ahead)
{
	struct ropcie_vec vec[SCATTER_VECS] ROPCIE_UNINIT;
	u32 done = 0;

	while (done < piece->length) {
		u32 nvec = 0;
		u32 n = ropcie_mr_map(&mr->core, piece->addr + done,
				      piece->length - done, vec, SCATTER_VECS,
				      &nvec);

		if (!n)
			return ropcie_odp_missing(qp, side, mr,
						  piece->addr + done,
						  ahead - done);
		ropcie_rec_scatter(rec, from + done, vec, nvec);
		done += n;
	}
	return 0;
}

int ropcie_place(struct ropcie_qp *qp, enum ropcie_side side, struct ib_pd *pd,
		 const struct ropcie_sge *sge, u32 num_sge, u64 off,
		 const struct ropcie_rec *rec)
{
	u32 len = rec->hdr.frag_len, msg_len = rec->hdr.msg_len;
	u64 ahead = max_t(u64, len, msg_len > off ? msg_len - off : 0);
	struct ropcie_sge_cursor cur;
	struct ropcie_sge piece;
	u32 done = 0;
	int ret;

	ropcie_sge_seek(&cur, sge, num_sge, off);
	while (done < len) {
		struct ropcie_mr *mr;

		if (!ropcie_sge_next(&cur, len - done, &piece))
			return -EACCES;
		mr = ropcie_mr_get(qp, pd, &piece, ROPCIE_ACCESS_LOCAL_WRITE);
		if (!mr)
			return -EACCES;
		ret = mr->core.null ? 0 :
				      scatter_piece(qp, side, mr, &piece, rec,
						    done, ahead - done);
		ropcie_mr_put(mr);
		if (ret)
			return ret;
		done += piece.length;
	}
	return 0;
}

u32 ropcie_tail_length(const struct ropcie_mr_core *mr, u64 addr, u32 len)
{
	struct ropcie_vec last;
	u32 nvec = 0;

	if (!ropcie_mr_map(mr, addr + len - 1, 1, &last, 1, &nvec))
		return 0;
	return min_t(u32, len, ((unsigned long)last.base & 7) + 1);
}

bool ropcie_put_tail(const struct ropcie_mr_core *mr, u64 addr, u32 len,
		     const struct ropcie_rec *rec, u32 from)
{
	union {
		u64 u64;
		u32 u32;
		u16 u16;
		u8 u8;
	} word;
	struct ropcie_vec in = { .base = &word, .len = len };
	struct ropcie_vec to[2];
	u32 nvec = 0;

	if (ropcie_mr_map(mr, addr, len, to, 2, &nvec) != len)
		return false;
	if (nvec > 1 || !is_power_of_2(len) ||
	    !IS_ALIGNED((unsigned long)to[0].base, len)) {
		ropcie_rec_scatter(rec, from, to, nvec);
		return true;
	}
	ropcie_rec_scatter(rec, from, &in, 1);
	switch (len) {
	case 8:
		WRITE_ONCE(*(u64 *)to[0].base, word.u64);
		break;
	case 4:
		WRITE_ONCE(*(u32 *)to[0].base, word.u32);
		break;
	case 2:
		WRITE_ONCE(*(u16 *)to[0].base, word.u16);
		break;
	default:
		WRITE_ONCE(*(u8 *)to[0].base, word.u8);
	}
	return true;
}

/*
 * The last record of a WRITE. Programs poll the end of a message: its last word
 * lands last. What lies before any such word goes first, so that memory is brought
 * in from the beginning of what is missing.
 */
static int scatter_last(struct ropcie_qp *qp, struct ropcie_mr *mr,
			const struct ropcie_sge *piece,
			const struct ropcie_rec *rec)
{
	u32 len = piece->length, tail;
	struct ropcie_sge front = *piece;
	int ret;

	front.length = len > sizeof(u64) ? len - sizeof(u64) : 0;
	ret = scatter_piece(qp, ROPCIE_RESPONDER, mr, &front, rec, 0, len);
	if (ret)
		return ret;
	tail = ropcie_tail_length(&mr->core, piece->addr, len);
	if (!tail)
		return ropcie_odp_missing(qp, ROPCIE_RESPONDER, mr,
					  piece->addr + len - 1, 1);
	/* Its address is aligned, but is the memory behind it? */
	if (rec->hdr.op == ROPCIE_OP_ATOMIC_WRITE && tail != ROPCIE_ATOMIC_LEN)
		return -EACCES;
	front.addr += front.length;
	front.length = len - tail - front.length;
	ret = scatter_piece(qp, ROPCIE_RESPONDER, mr, &front, rec,
			    front.addr - piece->addr, front.length);
	if (ret)
		return ret;
	smp_wmb(); /* the rest before the last word */
	if (ropcie_put_tail(&mr->core, piece->addr + len - tail, tail, rec,
			    len - tail))
		return 0;
	return ropcie_odp_missing(qp, ROPCIE_RESPONDER, mr,
				  piece->addr + len - 1, 1);
}

/*
 * Copy the payload of a WRITE. The right to all of it is checked before the
 * first byte is written, and at each record again. Return: as ropcie_place().
 */
static int place_remote(struct ropcie_qp *qp,
			const struct ropcie_rsp_place *where,
			const struct ropcie_rec *rec)
{
	struct ropcie_sge piece = {
		.addr = where->addr,
		.length = where->first ? rec->hdr.msg_len : rec->hdr.frag_len,
		.lkey = where->rkey,
	};
	struct ropcie_mr *mr;
	int ret;

	/* IBTA 9.7.4.1.4: the key of a WRITE of no bytes is not looked at. */
	if (!piece.length)
		return 0;
	mr = ropcie_mr_get(qp, ropcie_remote_pd(qp), &piece,
			   ROPCIE_ACCESS_REMOTE_WRITE);
	if (!mr)
		return -EACCES;
	piece.length = rec->hdr.frag_len;
	if (rec->hdr.flags & ROPCIE_F_PLACED)
		ret = 0;
	else
		ret = where->last ?
			      scatter_last(qp, mr, &piece, rec) :
			      scatter_piece(qp, ROPCIE_RESPONDER, mr, &piece,
					    rec, 0,
					    rec->hdr.msg_len - where->off);
	ropcie_mr_put(mr);
	return ret;
}

/*
 * May the peer read what it asks for? Looked at again with each answer. Where it
 * begins has to be there: nobody's patience is tried by the first page. Return: as
 * ropcie_place().
 */
static int may_read(struct ropcie_qp *qp, const struct ropcie_hdr *hdr)
{
	struct ropcie_sge piece = {
		.addr = hdr->addr,
		.length = hdr->msg_len,
		.lkey = hdr->rkey,
	};
	struct ropcie_vec vec;
	struct ropcie_mr *mr;
	u32 nvec = 0;
	int ret = 0;

	if (!piece.length)
		return 0;
	mr = ropcie_mr_get(qp, ropcie_remote_pd(qp), &piece,
			   ROPCIE_ACCESS_REMOTE_READ);
	if (!mr)
		return -EACCES;
	if (!ropcie_mr_map(&mr->core, piece.addr, 1, &vec, 1, &nvec))
		ret = ropcie_odp_missing(qp, ROPCIE_RESPONDER, mr, piece.addr,
					 piece.length);
	ropcie_mr_put(mr);
	return ret;
}

/*
 * Execute an atomic: one towards all others and towards the atomics of this
 * machine's processors (IB_ATOMIC_GLOB). Return: as ropcie_place().
 */
static int execute(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
		   u64 *orig)
{
	struct ropcie_sge piece = {
		.addr = hdr->addr,
		.length = sizeof(u64),
		.lkey = hdr->rkey,
	};
	struct ropcie_vec vec;
	struct ropcie_mr *mr;
	u32 nvec = 0, mapped;
	int ret = 0;

	mr = ropcie_mr_get(qp, ropcie_remote_pd(qp), &piece,
			   ROPCIE_ACCESS_REMOTE_ATOMIC);
	if (!mr)
		return -EACCES;
	mapped = ropcie_mr_map(&mr->core, piece.addr, piece.length, &vec, 1,
			       &nvec);
	if (!mapped)
		ret = ropcie_odp_missing(qp, ROPCIE_RESPONDER, mr, piece.addr,
					 piece.length);
	else if (mapped < piece.length ||
		 !IS_ALIGNED((unsigned long)vec.base, sizeof(u64)))
		ret = -EACCES;
	else if (hdr->op == ROPCIE_OP_CAS)
		*orig = atomic64_cmpxchg(vec.base, hdr->compare_add, hdr->swap);
	else
		*orig = atomic64_fetch_add(hdr->compare_add, vec.base);
	ropcie_mr_put(mr);
	return ret;
}

/* Who sent it, and what lies before the payload. */
static void from_datagram(const struct ropcie_qp *qp,
			  const struct ropcie_hdr *hdr, struct ib_wc *wc)
{
	wc->src_qp = hdr->src_qpn;
	wc->wc_flags |= IB_WC_GRH;
	/* To user space the bits would mean something else. */
	if (!qp->wc_name) {
		wc->wc_flags |= IB_WC_WITH_NETWORK_HDR_TYPE;
		wc->network_hdr_type = hdr->net;
		if (hdr->vlan != ROPCIE_NO_VLAN) {
			wc->wc_flags |= IB_WC_WITH_VLAN;
			wc->vlan_id = hdr->vlan;
		}
	}
}

void ropcie_recv_complete(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
			  enum ib_wc_status status)
{
	const struct ropcie_recv_wqe *wqe = ropcie_recv_current(qp);
	struct ib_wc wc = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = IB_WC_RECV,
		.qp = ropcie_wc_qp(qp),
		.src_qp = qp->attr.dest_qp_num,
		.port_num = 1,
	};
	bool solicited = status != IB_WC_SUCCESS;
	struct ropcie_cq *cq;

	lockdep_assert_held(&qp->lock);
	if (hdr) {
		if (hdr->op == ROPCIE_OP_WRITE)
			wc.opcode = IB_WC_RECV_RDMA_WITH_IMM;
		if (hdr->op == ROPCIE_OP_DATAGRAM)
			from_datagram(qp, hdr, &wc);
		wc.byte_len = hdr->msg_len;
		if (hdr->flags & ROPCIE_F_IMM) {
			wc.wc_flags |= IB_WC_WITH_IMM;
			wc.ex.imm_data = cpu_to_be32(hdr->imm);
		} else if (hdr->flags & ROPCIE_F_INV) {
			wc.wc_flags |= IB_WC_WITH_INVALIDATE;
			wc.ex.invalidate_rkey = hdr->imm;
		}
		solicited |= hdr->flags & ROPCIE_F_SOLICITED;
	}
	ropcie_recv_release(qp);
	cq = to_rcq(ropcie_is_xrc_target(qp) ? qp->srq->ibsrq.ext.cq :
					       qp->ibqp.recv_cq);
	if (!ropcie_cq_add(cq, &wc, solicited))
		qp->lost = true;
}

void ropcie_qp_refuse(struct ropcie_qp *qp)
{
	lockdep_assert_held(&qp->lock);
	ropcie_qp_answer(qp, ROPCIE_RX_BUDGET);
	ropcie_qp_to_error(qp);
	ropcie_mq_flush(&qp->tx);
}

/* The peer has no right to the memory that it names. */
static void deny(struct ropcie_qp *qp)
{
	ropcie_rsp_fail(&qp->rsp, ROPCIE_NAK_REM_ACCESS);
	if (!ropcie_is_reliable(qp))
		return;
	ropcie_qp_event(qp, IB_EVENT_QP_ACCESS_ERR);
	ropcie_qp_refuse(qp);
}

/* The request breaks the rules. */
static void invalid(struct ropcie_qp *qp)
{
	ropcie_qp_event(qp, IB_EVENT_QP_REQ_ERR);
	ropcie_qp_refuse(qp);
}

/* The payload is in its place. Return: a receive is complete. */
static bool taken(struct ropcie_qp *qp, const struct ropcie_hdr *hdr)
{
	bool send = hdr->op == ROPCIE_OP_SEND;

	ropcie_count(qp->counters,
		     send ? ROPCIE_RX_SEND_BYTES : ROPCIE_RX_WRITE_BYTES,
		     hdr->frag_len);
	if (hdr->flags & ROPCIE_F_LAST)
		ropcie_count(qp->counters,
			     send ? ROPCIE_RX_SEND : ROPCIE_RX_WRITE, 1);
	return ropcie_rsp_placed(&qp->rsp, hdr);
}

static void fetched(struct ropcie_qp *qp, const struct ropcie_hdr *hdr,
		    u64 orig)
{
	ropcie_count(qp->counters, hdr->op == ROPCIE_OP_READ ?
					   ROPCIE_RX_READ : ROPCIE_RX_ATOMIC,
		     1);
	ropcie_rsp_fetched(&qp->rsp, hdr, orig);
}

/*
 * Find the shared queue that a message of XRC names. A message that comes again
 * (ropcie_rsp_not_there()) may have a receive of it, and names the same queue.
 */
static bool turn_to_srq(struct ropcie_qp *qp, u32 srqn)
{
	struct ropcie_srq *srq = ropcie_xrc_find(qp, srqn);

	if (!srq || (qp->holds && srq != qp->srq))
		return false;
	qp->srq = srq;
	return true;
}

/*
 * Return: there is a shared queue for a request to a target of XRC. The rest of a
 * message whose queue has been destroyed can not be executed (IBTA 9.9.3.1).
 */
static bool has_srq(struct ropcie_qp *qp, const struct ropcie_hdr *hdr)
{
	if (ropcie_rsp_names_srq(&qp->rsp, hdr) &&
	    !turn_to_srq(qp, hdr->srqn)) {
		ropcie_rsp_fail(&qp->rsp, ROPCIE_NAK_INV_REQ);
		invalid(qp);
		return false;
	}
	if (!qp->srq && ropcie_rsp_expects(&qp->rsp, hdr)) {
		ropcie_rsp_fail(&qp->rsp, ROPCIE_NAK_REM_OP);
		ropcie_qp_event(qp, IB_EVENT_QP_FATAL);
		ropcie_qp_refuse(qp);
		return false;
	}
	return true;
}

static void request(struct ropcie_qp *qp, const struct ropcie_rec *rec)
{
	struct ropcie_rsp_place where;
	struct ropcie_recv_wqe *wqe;
	int ret = 0;
	u64 orig = 0;

	if (ropcie_is_xrc_target(qp) && !has_srq(qp, &rec->hdr))
		return;
	wqe = ropcie_recv_for(qp, ropcie_rsp_takes_receive(&qp->rsp, &rec->hdr),
			      ropcie_rsp_needs(&qp->rsp, &rec->hdr));
	switch (ropcie_rsp_request(&qp->rsp, &rec->hdr, wqe ? 1 : 0,
				   wqe ? wqe->length : 0, &where)) {
	case ROPCIE_RSP_DROP:
		break;
	case ROPCIE_RSP_PLACE:
		ret = ropcie_place(qp, ROPCIE_RESPONDER, ropcie_recv_pd(qp),
				   wqe->sge, wqe->num_sge, where.off, rec);
		if (ret == -EINPROGRESS)
			break;
		if (ret) {
			ropcie_recv_complete(qp, NULL, IB_WC_LOC_PROT_ERR);
			ropcie_rsp_fail(&qp->rsp, ROPCIE_NAK_REM_OP);
			ropcie_qp_refuse(qp);
		} else if ((rec->hdr.flags & ROPCIE_F_INV) &&
			   !ropcie_mr_inv(qp, rec->hdr.imm, true)) {
			/* The key is not one that the peer may take away. */
			ropcie_recv_complete(qp, NULL, IB_WC_REM_INV_REQ_ERR);
			deny(qp);
		} else if (taken(qp, &rec->hdr)) {
			ropcie_recv_complete(qp, &rec->hdr, IB_WC_SUCCESS);
		}
		break;
	case ROPCIE_RSP_WRITE:
		/* Who places without a grant breaks the rules. */
		if ((rec->hdr.flags & ROPCIE_F_PLACED) &&
		    !ropcie_placement_covers(qp, &rec->hdr, &where)) {
			ropcie_rsp_fail(&qp->rsp, ROPCIE_NAK_INV_REQ);
			invalid(qp);
			break;
		}
		ret = place_remote(qp, &where, rec);
		if (ret == -EACCES)
			deny(qp);
		else if (!ret && taken(qp, &rec->hdr))
			ropcie_recv_complete(qp, &rec->hdr, IB_WC_SUCCESS);
		break;
	case ROPCIE_RSP_READ:
		ret = may_read(qp, &rec->hdr);
		if (ret == -EACCES)
			deny(qp);
		else if (!ret)
			fetched(qp, &rec->hdr, 0);
		break;
	case ROPCIE_RSP_ATOMIC:
		ret = execute(qp, &rec->hdr, &orig);
		if (ret == -EACCES)
			deny(qp);
		else if (!ret)
			fetched(qp, &rec->hdr, orig);
		break;
	case ROPCIE_RSP_TOO_LONG:
		ropcie_recv_complete(qp, NULL, IB_WC_LOC_LEN_ERR);
		ropcie_qp_refuse(qp);
		break;
	case ROPCIE_RSP_INVALID:
		invalid(qp);
		break;
	}
	if (ret == -EINPROGRESS)
		ropcie_rsp_not_there(&qp->rsp);
}

/* A request from @peer; qp->lock is held. */
static void hear_request(struct ropcie_qp *qp, const struct ropcie_peer *peer,
			 const struct ropcie_rec *rec)
{
	u32 epsn = qp->rsp.epsn;

	if (!qp->connected || qp->tx.peer != peer)
		return;
	if (unlikely(ropcie_op_grants(rec->hdr.op))) {
		ropcie_placement_hear(qp, rec);
		return;
	}
	if (!ropcie_qp_responds((enum ropcie_qps)qp->state))
		return;
	request(qp, rec);
	/* The first that was accepted (IBTA 11.6.3.4). */
	if (qp->state == IB_QPS_RTR && qp->rsp.epsn != epsn &&
	    !test_and_set_bit(ROPCIE_QP_COMM_EST, &qp->flags))
		ropcie_qp_event(qp, IB_EVENT_COMM_EST);
	/* Answers go out once for a whole batch. */
	if (ropcie_rsp_owes(&qp->rsp))
		ropcie_owe(qp);
}

void ropcie_rx_request(struct ropcie_mq *mq, struct ropcie_peer *peer,
		       const struct ropcie_rec *rec)
{
	struct ropcie_qp *qp = container_of(mq, struct ropcie_qp, request_mq);

	spin_lock(&qp->lock);
	hear_request(qp, peer, rec);
	ropcie_qp_leave(qp);
}

bool ropcie_rx_take_request(struct ropcie_mq *mq, struct ropcie_peer *peer,
			    const struct ropcie_rec *rec)
{
	struct ropcie_qp *qp = container_of(mq, struct ropcie_qp, request_mq);

	/* Taking a key away waits for those who use it: the sender may. */
	if ((rec->hdr.flags & ROPCIE_F_INV) || !spin_trylock(&qp->lock))
		return false;
	hear_request(qp, peer, rec);
	ropcie_qp_leave(qp);
	return true;
}

/* Data that a READ or an atomic asked for. Return: the QP has to be run. */
static bool response_data(struct ropcie_qp *qp, const struct ropcie_rec *rec)
{
	struct ropcie_rec orig ROPCIE_UNINIT;
	struct ropcie_vec value;
	struct ropcie_req_place at;
	u64 now = ropcie_timeout_base(qp->req.attr.timeout_ns);
	int ret;

	if (!ropcie_req_data(&qp->req, &rec->hdr, &at, now))
		return qp->req.error;
	if (rec->hdr.op == ROPCIE_OP_ATOMIC_RESP) {
		orig.hdr = rec->hdr;
		orig.hdr.frag_len = sizeof(orig.hdr.orig);
		value.base = &orig.hdr.orig;
		value.len = sizeof(orig.hdr.orig);
		orig.span = &value;
		orig.nspan = 1;
		rec = &orig;
	}
	if (rec->hdr.flags & ROPCIE_F_PLACED) {
		if (!ropcie_placement_covers_answer(qp, &rec->hdr, &at)) {
			ropcie_req_fail(&qp->req, ROPCIE_WC_BAD_RESP_ERR);
			return true;
		}
		ropcie_req_placed(&qp->req, &rec->hdr, now);
		return true;
	}
	ret = ropcie_place(qp, ROPCIE_SINK, qp->ibqp.pd, at.wqe->sge,
			   at.wqe->num_sge, at.off, rec);
	if (ret == -EINPROGRESS)
		qp->paging->sides[ROPCIE_SINK].fetch = true;
	else if (ret)
		ropcie_req_fail(&qp->req, ROPCIE_WC_LOC_PROT_ERR);
	else
		ropcie_req_placed(&qp->req, &rec->hdr, now);
	return true;
}

static bool response(struct ropcie_qp *qp, const struct ropcie_rec *rec)
{
	if (rec->hdr.op == ROPCIE_OP_ACK) {
		ropcie_count(qp->counters, ROPCIE_RX_ACKS + rec->hdr.syndrome, 1);
		/* The time to wait after an RNR NAK may be much less than a tick. */
		return ropcie_req_response(&qp->req, &rec->hdr,
					   rec->hdr.syndrome == ROPCIE_RNR_NAK ?
						   ktime_get_ns() :
						   ropcie_timeout_base(qp->req.attr.timeout_ns));
	}
	return response_data(qp, rec);
}

/* An answer from @peer; qp->lock is held. Return: the QP has to be run. */
static bool hear_response(struct ropcie_qp *qp, const struct ropcie_peer *peer,
			  const struct ropcie_rec *rec)
{
	if (!qp->connected || qp->tx.peer != peer)
		return false;
	if (unlikely(ropcie_op_grants(rec->hdr.op))) {
		ropcie_placement_hear(qp, rec);
		return false;
	}
	return ropcie_qp_requests((enum ropcie_qps)qp->state) &&
	       !ropcie_qp_unseen(qp, &rec->hdr) && response(qp, rec);
}

void ropcie_rx_response(struct ropcie_mq *mq, struct ropcie_peer *peer,
			const struct ropcie_rec *rec)
{
	struct ropcie_qp *qp = container_of(mq, struct ropcie_qp, response_mq);
	bool more = false;

	spin_lock(&qp->lock);
	if (hear_response(qp, peer, rec))
		more = ropcie_qp_run(qp, ROPCIE_RX_BUDGET);
	ropcie_qp_leave(qp);
	if (more)
		ropcie_qp_schedule(qp);
}

bool ropcie_rx_take_response(struct ropcie_mq *mq, struct ropcie_peer *peer,
			     const struct ropcie_rec *rec)
{
	struct ropcie_qp *qp = container_of(mq, struct ropcie_qp, response_mq);

	if (!spin_trylock(&qp->lock))
		return false;
	if (hear_response(qp, peer, rec)) {
		ropcie_qp_complete_sends(qp);
		if (qp->state != IB_QPS_RTS || ropcie_req_unsent(&qp->req) ||
		    ropcie_sends_left(qp)) {
			set_bit(ROPCIE_QP_RUNS, &qp->flags);
			ropcie_owe(qp);
		}
	}
	ropcie_qp_leave(qp);
	return true;
}

void ropcie_rx_batch_end(void *ctx, struct ropcie_peer *peer)
{
	ropcie_settle();
}
