// SPDX-License-Identifier: GPL-2.0
#include "mq_id.h"
#include "requester.h"

static struct ropcie_send_wqe *wqe_at(const struct ropcie_requester *req,
				      u32 idx)
{
	return (struct ropcie_send_wqe *)((char *)req->ring +
		(size_t)(idx & (req->size - 1)) * req->stride);
}

void ropcie_req_init(struct ropcie_requester *req, void *ring, u32 size,
		     u32 stride)
{
	memset(req, 0, sizeof(*req));
	req->ring = ring;
	req->size = size;
	req->stride = stride;
}

void ropcie_req_connect(struct ropcie_requester *req,
			const struct ropcie_req_attr *attr)
{
	req->attr = *attr;
	req->psn = attr->psn & ROPCIE_PSN_MASK;
	req->next_psn = req->psn;
	req->acked_psn = req->psn;
	req->max_psn = req->psn;
	req->laned_psn = req->psn;
	req->rnr_left = attr->rnr_retry;
	req->retry_left = attr->retry_cnt;
}

/* Give the work request at the fresh end its place in the PSN sequence. */
static void assign_psn(struct ropcie_requester *req,
		       struct ropcie_send_wqe *wqe)
{
	bool local = ropcie_op_is_local(wqe->op);

	wqe->psn = req->next_psn;
	/* A datagram is one record, or none: one that is too long only completes. */
	if (wqe->op == ROPCIE_OP_DATAGRAM)
		wqe->npsn = 1;
	else
		wqe->npsn = local ? 0 : ropcie_num_psn(wqe->length, req->attr.frag);
	wqe->ssn = req->ssn;
	req->ssn += !local;
	req->next_psn = ropcie_psn_add(wqe->psn, wqe->npsn);
	req->fresh++;
}

/* The next record of this work request may go out now. */
static bool may_send(const struct ropcie_requester *req,
		     const struct ropcie_send_wqe *wqe)
{
	bool again = ropcie_psn_diff(req->psn, req->max_psn) < 0;

	if (req->attr.unreliable)
		return true;
	if (ropcie_psn_diff(req->psn, req->acked_psn) >=
	    (s32)ROPCIE_MAX_INFLIGHT)
		return false;
	/* Nothing before it is under way. */
	if (ropcie_psn_diff(wqe->psn, req->acked_psn) <= 0)
		return true;
	/* IBTA 10.8.3.3. What is sent again has waited for its turn before. */
	if ((wqe->flags & ROPCIE_WR_FENCE) && req->fetches && !again)
		return false;
	if (ropcie_op_fetches(wqe->op))
		return req->fetches < req->attr.max_rd_atomic || again;
	if (req->off)
		return true;
	if (!ropcie_op_receives(wqe->op, wqe->flags & ROPCIE_WR_IMM))
		return true;
	/*
	 * IBTA 9.7.7.2: beyond the credit limit one request may be under way,
	 * to find out whether the other end has receives again.
	 */
	return (s32)(wqe->ssn - req->credit_limit) < 0;
}

/* What goes with the last record of a message. */
static void build_end(const struct ropcie_send_wqe *wqe, struct ropcie_hdr *hdr)
{
	if (wqe->flags & ROPCIE_WR_IMM)
		hdr->flags |= ROPCIE_F_IMM;
	if (wqe->flags & ROPCIE_WR_INV)
		hdr->flags |= ROPCIE_F_INV;
	if (hdr->flags & (ROPCIE_F_IMM | ROPCIE_F_INV))
		hdr->imm = wqe->imm;
	if ((wqe->flags & ROPCIE_WR_SOLICITED) &&
	    ropcie_op_receives(wqe->op, wqe->flags & ROPCIE_WR_IMM))
		hdr->flags |= ROPCIE_F_SOLICITED;
}

/* A record with a fragment of a SEND or a WRITE. */
static void build_fragment(const struct ropcie_requester *req,
			   const struct ropcie_send_wqe *wqe,
			   struct ropcie_req_rec *rec)
{
	struct ropcie_hdr *hdr = &rec->hdr;
	u32 left = wqe->length - req->off;

	rec->last = left <= req->attr.frag;
	rec->npsn = 1;
	hdr->msg_len = wqe->length;
	hdr->frag_len = rec->last ? left : req->attr.frag;
	if (!req->off) {
		hdr->flags |= ROPCIE_F_FIRST;
		hdr->rkey = wqe->rkey;
		hdr->addr = wqe->raddr;
	}
	if (!rec->last)
		return;
	hdr->flags |= ROPCIE_F_LAST;
	if (!req->attr.unreliable)
		hdr->flags |= ROPCIE_F_ACKREQ;
	build_end(wqe, hdr);
}

/* A datagram, with the header that the caller puts before its payload. */
static void build_datagram(const struct ropcie_send_wqe *wqe,
			   struct ropcie_req_rec *rec)
{
	struct ropcie_hdr *hdr = &rec->hdr;

	rec->last = true;
	rec->npsn = 1;
	hdr->mq = ropcie_mq_id(wqe->dest_qpn, ROPCIE_MQ_REQUEST);
	hdr->flags = ROPCIE_F_FIRST | ROPCIE_F_LAST;
	hdr->msg_len = wqe->length + ROPCIE_GRH_LEN;
	hdr->frag_len = hdr->msg_len;
	hdr->qkey = wqe->qkey;
	hdr->net = wqe->net;
	hdr->vlan = wqe->vlan;
	build_end(wqe, hdr);
}

/* A request for data: a READ goes on where its answer broke off. */
static void build_fetch(const struct ropcie_requester *req,
			const struct ropcie_send_wqe *wqe,
			struct ropcie_req_rec *rec)
{
	struct ropcie_hdr *hdr = &rec->hdr;

	rec->last = true;
	rec->npsn = wqe->npsn - req->off / req->attr.frag;
	hdr->rkey = wqe->rkey;
	hdr->addr = wqe->raddr + req->off;
	if (wqe->op == ROPCIE_OP_READ) {
		hdr->msg_len = wqe->length - req->off;
		hdr->imm = req->attr.frag;
	} else {
		hdr->compare_add = wqe->compare_add;
		if (wqe->op == ROPCIE_OP_CAS)
			hdr->swap = wqe->swap;
	}
}

static void build(const struct ropcie_requester *req,
		  const struct ropcie_send_wqe *wqe, struct ropcie_req_rec *rec)
{
	memset(rec, 0, sizeof(*rec));
	rec->wqe = wqe;
	rec->off = req->off;
	rec->hdr.op = wqe->op;
	rec->hdr.srqn = wqe->srqn;
	rec->hdr.mq = ropcie_mq_id(req->attr.dest_qpn, ROPCIE_MQ_REQUEST);
	rec->hdr.src_qpn = req->attr.src_qpn;
	rec->hdr.psn = req->psn;
	if (ropcie_op_fetches(wqe->op))
		build_fetch(req, wqe, rec);
	else if (wqe->op == ROPCIE_OP_DATAGRAM)
		build_datagram(wqe, rec);
	else
		build_fragment(req, wqe, rec);
}

/* The work request at the cursor; what was executed here is not again. */
static struct ropcie_send_wqe *current_wqe(struct ropcie_requester *req)
{
	struct ropcie_send_wqe *wqe;

	for (;;) {
		if (req->next - req->tail == ropcie_req_pending(req))
			return NULL;
		wqe = wqe_at(req, req->next);
		if (req->next == req->fresh) {
			if (req->draining)
				return NULL;
			assign_psn(req, wqe);
		}
		if (!(wqe->flags & ROPCIE_WR_DONE))
			return wqe;
		req->next++;
	}
}

/*
 * A message that was sent to its end is not acknowledged: the other end owes an
 * answer. For the one that is being sent it does not yet.
 */
static bool answer_due(const struct ropcie_requester *req)
{
	u32 whole = req->off ? wqe_at(req, req->next)->psn : req->psn;

	return ropcie_psn_diff(whole, req->acked_psn) > 0;
}

void ropcie_req_drain(struct ropcie_requester *req, bool drain)
{
	const struct ropcie_send_wqe *wqe;

	req->draining = drain;
	if (!drain || req->fresh == req->tail)
		return;
	wqe = wqe_at(req, req->fresh - 1);
	if (wqe->psn != req->max_psn || wqe->flags & ROPCIE_WR_DONE)
		return;
	/* It has its PSN, but had to wait: nothing of it was sent. */
	req->fresh--;
	req->next_psn = wqe->psn;
	req->ssn = wqe->ssn;
	req->local_error = ROPCIE_WC_SUCCESS;
	/* Nor does it wait for a lane with space. */
	if (!req->rnr_wait && !answer_due(req))
		req->deadline = 0;
}

/*
 * A region may get another memory while older requests are under way, but not
 * lose it: they may have to be sent again (IBTA 10.8.3.3, strong ordering).
 */
static enum ropcie_req_verdict local_op(const struct ropcie_requester *req,
					const struct ropcie_send_wqe *wqe,
					struct ropcie_req_rec *rec)
{
	if (wqe->op == ROPCIE_LOCAL_INV && req->acked_psn != wqe->psn)
		return ROPCIE_REQ_WAIT;
	if ((wqe->flags & ROPCIE_WR_FENCE) && req->fetches)
		return ROPCIE_REQ_WAIT;
	memset(rec, 0, sizeof(*rec));
	rec->wqe = wqe;
	return ROPCIE_REQ_LOCAL;
}

enum ropcie_req_verdict ropcie_req_next(struct ropcie_requester *req,
					struct ropcie_req_rec *rec)
{
	struct ropcie_send_wqe *wqe;

	if (req->error)
		return ROPCIE_REQ_FAILED;
	if (req->rnr_wait || req->local_error)
		return ROPCIE_REQ_WAIT;
	wqe = current_wqe(req);
	if (!wqe)
		return ROPCIE_REQ_IDLE;
	if (ropcie_op_is_local(wqe->op))
		return local_op(req, wqe, rec);
	if (ropcie_op_reliable(wqe->op) && !req->attr.max_rd_atomic) {
		/* It could never be sent (IBTA 10.2.5, initiator depth). */
		ropcie_req_local_error(req, ROPCIE_WC_LOC_QP_OP_ERR);
		return ROPCIE_REQ_WAIT;
	}
	if (!may_send(req, wqe))
		return ROPCIE_REQ_WAIT;
	build(req, wqe, rec);
	return ROPCIE_REQ_SEND;
}

static void begin_waiting(struct ropcie_requester *req, u64 now)
{
	req->deadline = req->attr.timeout_ns ? now + req->attr.timeout_ns : 0;
}

void ropcie_req_set_retries(struct ropcie_requester *req, u8 retry_cnt,
			    u8 rnr_retry, u64 timeout_ns, u64 now)
{
	bool changes = req->attr.timeout_ns != timeout_ns;

	if (req->attr.retry_cnt != retry_cnt)
		req->retry_left = retry_cnt;
	if (req->attr.rnr_retry != rnr_retry)
		req->rnr_left = rnr_retry;
	req->attr.retry_cnt = retry_cnt;
	req->attr.rnr_retry = rnr_retry;
	req->attr.timeout_ns = timeout_ns;
	if (changes && answer_due(req) && !req->rnr_wait && !req->error)
		begin_waiting(req, now);
}

/*
 * Was it placed, and will it not be refused for want of a receive? What is placed behind
 * it would be there before it is sent again.
 */
static bool is_certain(const struct ropcie_req_rec *rec)
{
	return rec->hdr.op == ROPCIE_OP_WRITE &&
	       (rec->hdr.flags & ROPCIE_F_PLACED) &&
	       !(rec->hdr.flags & ROPCIE_F_IMM);
}

void ropcie_req_sent(struct ropcie_requester *req,
		     const struct ropcie_req_rec *rec, u64 now)
{
	bool was_due = answer_due(req);

	if (req->psn == req->max_psn && ropcie_op_fetches(rec->hdr.op) &&
	    !req->fetches++)
		req->fetch = req->next;
	req->psn = ropcie_psn_add(req->psn, rec->npsn);
	if (ropcie_psn_diff(req->psn, req->max_psn) > 0)
		req->max_psn = req->psn;
	/* What is placed has waited for all before: 24 bits are not outrun. */
	req->laned_psn = is_certain(rec) ? req->acked_psn : req->psn;
	if (rec->last) {
		req->next++;
		req->off = 0;
	} else {
		req->off += rec->hdr.frag_len;
	}
	if (req->attr.unreliable) {
		req->acked_psn = req->psn;
		req->deadline = 0; /* a datagram waited for space, or is not sent at all */
		return;
	}
	if (was_due && req->deadline)
		return;
	req->extended = 0;
	req->deadline = 0;
	if (answer_due(req))
		begin_waiting(req, now);
}

bool ropcie_req_may_place(const struct ropcie_requester *req,
			  const struct ropcie_req_rec *rec)
{
	if (req->attr.unreliable || req->psn != req->max_psn)
		return false;
	if (rec->hdr.op == ROPCIE_OP_READ)
		return rec->hdr.msg_len;
	return rec->hdr.op == ROPCIE_OP_WRITE && rec->hdr.frag_len;
}

void ropcie_req_name_sink(struct ropcie_req_rec *rec)
{
	rec->hdr.flags |= ROPCIE_F_PLACED;
	rec->hdr.sink_key = rec->wqe->sge[0].lkey;
	rec->hdr.sink_addr = rec->wqe->sge[0].addr;
}

bool ropcie_req_awaits(const struct ropcie_requester *req, u32 key, u64 addr)
{
	const struct ropcie_send_wqe *wqe;
	u32 idx = req->fetch, left = req->fetches;

	for (; left; idx++) {
		wqe = wqe_at(req, idx);
		if (!ropcie_op_fetches(wqe->op))
			continue;
		left--;
		if (wqe->op == ROPCIE_OP_READ && wqe->num_sge == 1 &&
		    wqe->sge[0].lkey == key &&
		    addr - wqe->sge[0].addr < wqe->length)
			return true;
	}
	return false;
}

void ropcie_req_stuck(struct ropcie_requester *req, u64 now)
{
	if (!req->deadline && !req->attr.unreliable)
		begin_waiting(req, now);
}

void ropcie_req_executed(struct ropcie_requester *req)
{
	wqe_at(req, req->next++)->flags |= ROPCIE_WR_DONE;
}

void ropcie_req_fail(struct ropcie_requester *req, u8 status)
{
	if (!req->error)
		req->error = status;
	req->deadline = 0;
	req->rnr_wait = false;
}

void ropcie_req_local_error(struct ropcie_requester *req, u8 status)
{
	req->local_error = status;
	if (req->next == req->tail)
		ropcie_req_fail(req, status);
}

/* All of it is acknowledged, or it was executed. */
static bool done(const struct ropcie_requester *req,
		 const struct ropcie_send_wqe *wqe)
{
	if (ropcie_op_is_local(wqe->op))
		return wqe->flags & ROPCIE_WR_DONE;
	return ropcie_psn_diff(ropcie_psn_add(wqe->psn, wqe->npsn),
			       req->acked_psn) <= 0;
}

/* Continue with the record that has this PSN (acked_psn to max_psn). */
static void set_cursor(struct ropcie_requester *req, u32 psn)
{
	u32 idx;

	/* A request that failed before it was sent will fail again when due. */
	req->local_error = 0;
	req->psn = psn;
	req->off = 0;
	for (idx = req->tail; idx != req->fresh; idx++) {
		const struct ropcie_send_wqe *wqe = wqe_at(req, idx);
		u32 nth = (psn - wqe->psn) & ROPCIE_PSN_MASK;

		if (nth < wqe->npsn) {
			req->off = nth * req->attr.frag;
			break;
		}
		/* Nothing behind it was sent. */
		if (ropcie_op_is_local(wqe->op) &&
		    !(wqe->flags & ROPCIE_WR_DONE))
			break;
	}
	req->next = idx;
}

/*
 * The PSN of the response that is due next. Nothing behind it can be done: the
 * other end answers in order. Only with fetches under way.
 */
static u32 fetch_psn(const struct ropcie_requester *req)
{
	u32 psn = wqe_at(req, req->fetch)->psn;

	return ropcie_psn_diff(req->acked_psn, psn) > 0 ? req->acked_psn : psn;
}

/* The oldest fetch has all of its answer: find the next. */
static void next_fetch(struct ropcie_requester *req)
{
	if (!--req->fetches)
		return;
	do {
		req->fetch++;
	} while (!ropcie_op_fetches(wqe_at(req, req->fetch)->op));
}

/* All PSNs before this one are done. */
static void acknowledge(struct ropcie_requester *req, u32 psn, u64 now)
{
	if (psn == req->acked_psn)
		return;
	req->acked_psn = psn;
	req->retry_left = req->attr.retry_cnt;
	req->rnr_left = req->attr.rnr_retry;
	req->extended = 0;
	/* A late answer may overtake a cursor that went back. */
	if (ropcie_psn_diff(psn, req->psn) > 0)
		set_cursor(req, psn);
	if (req->rnr_wait)
		return;
	req->deadline = 0;
	if (answer_due(req))
		begin_waiting(req, now);
}

static void take_credits(struct ropcie_requester *req,
			 const struct ropcie_hdr *hdr)
{
	/* MSN has 24 bits: it lies at or behind the newest ssn. */
	u32 behind = (req->ssn - hdr->msn) & ROPCIE_PSN_MASK;

	req->credit_limit = req->ssn - behind + hdr->credits;
	if (hdr->credits && hdr->credits != ROPCIE_NO_CREDITS &&
	    req->rnr_wait) {
		/* The other end says that it is ready: no need to wait on. */
		req->rnr_wait = false;
		req->deadline = 0;
	}
}

static void go_back(struct ropcie_requester *req, u32 psn)
{
	set_cursor(req, psn);
	req->deadline = 0;
	req->rnr_wait = false; /* nobody would end it */
}

static void on_rnr(struct ropcie_requester *req, const struct ropcie_hdr *hdr,
		   u64 now)
{
	if (req->attr.rnr_retry != 7) {
		if (!req->rnr_left) {
			ropcie_req_fail(req, ROPCIE_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		req->rnr_left--;
	}
	go_back(req, hdr->psn);
	req->rnr_wait = true;
	req->deadline = now + ropcie_rnr_timer_ns(hdr->timer);
}

static void retry(struct ropcie_requester *req, u32 psn)
{
	if (!req->retry_left) {
		ropcie_req_fail(req, ROPCIE_WC_RETRY_EXC_ERR);
		return;
	}
	req->retry_left--;
	go_back(req, psn);
}

bool ropcie_req_response(struct ropcie_requester *req,
			 const struct ropcie_hdr *hdr, u64 now)
{
	static const u8 fatal[ROPCIE_SYNDROME_END] = {
		[ROPCIE_NAK_INV_REQ] = ROPCIE_WC_REM_INV_REQ_ERR,
		[ROPCIE_NAK_REM_ACCESS] = ROPCIE_WC_REM_ACCESS_ERR,
		[ROPCIE_NAK_REM_OP] = ROPCIE_WC_REM_OP_ERR,
	};
	bool ack = hdr->syndrome == ROPCIE_ACK;
	/* First PSN that the answer does not call done. */
	u32 psn = ropcie_psn_add(hdr->psn, ack);
	u32 limit = req->credit_limit;
	bool waits = req->rnr_wait, moves;

	if (req->error || hdr->src_qpn != req->attr.dest_qpn)
		return false;
	if (ropcie_psn_diff(psn, req->acked_psn) < 0 ||
	    ropcie_psn_diff(psn, req->max_psn) > 0 ||
	    (!ack && psn == req->max_psn))
		return false;
	if (req->fetches && ropcie_psn_diff(psn, fetch_psn(req)) > 0)
		return false;

	moves = psn != req->acked_psn;
	acknowledge(req, psn, now);
	if (ack) {
		take_credits(req, hdr);
		return moves || limit != req->credit_limit ||
		       waits != req->rnr_wait;
	}
	if (hdr->syndrome == ROPCIE_RNR_NAK)
		on_rnr(req, hdr, now);
	else if (hdr->syndrome == ROPCIE_NAK_SEQ)
		retry(req, psn);
	else
		ropcie_req_fail(req, fatal[hdr->syndrome]);
	return true;
}

/* The payload that the response with this PSN has to have. */
static bool fits(const struct ropcie_requester *req,
		 const struct ropcie_hdr *hdr, const struct ropcie_req_place *at)
{
	u32 left = at->wqe->length - at->off;

	if (at->wqe->op != ROPCIE_OP_READ)
		return hdr->op == ROPCIE_OP_ATOMIC_RESP;
	return hdr->op == ROPCIE_OP_READ_RESP &&
	       hdr->frag_len == min_t(u32, left, req->attr.frag) &&
	       !(hdr->flags & ROPCIE_F_LAST) == (left > req->attr.frag);
}

bool ropcie_req_data(struct ropcie_requester *req, const struct ropcie_hdr *hdr,
		     struct ropcie_req_place *place, u64 now)
{
	if (req->error || hdr->src_qpn != req->attr.dest_qpn || !req->fetches ||
	    hdr->psn != fetch_psn(req))
		return false;
	acknowledge(req, hdr->psn, now);
	place->wqe = wqe_at(req, req->fetch);
	place->off = ((hdr->psn - place->wqe->psn) & ROPCIE_PSN_MASK) *
		     req->attr.frag;
	place->len = hdr->op == ROPCIE_OP_READ_RESP ? hdr->frag_len :
						      sizeof(hdr->orig);
	if (!fits(req, hdr, place)) {
		ropcie_req_fail(req, ROPCIE_WC_BAD_RESP_ERR);
		return false;
	}
	return true;
}

void ropcie_req_placed(struct ropcie_requester *req,
		       const struct ropcie_hdr *hdr, u64 now)
{
	const struct ropcie_send_wqe *wqe = wqe_at(req, req->fetch);

	acknowledge(req, ropcie_psn_add(hdr->psn, 1), now);
	if (done(req, wqe))
		next_fetch(req);
}

void ropcie_req_fetch_again(struct ropcie_requester *req)
{
	/* Who waits anyway goes on with it. */
	if (!req->error && req->fetches && !req->rnr_wait)
		go_back(req, req->acked_psn);
}

bool ropcie_req_timeout(struct ropcie_requester *req, u64 now, bool delivered)
{
	if (!req->deadline || now < req->deadline || req->error)
		return false;
	if (req->rnr_wait) {
		req->rnr_wait = false;
		req->deadline = 0;
		return true;
	}
	if (!delivered && req->extended < ROPCIE_REQ_PATIENCE) {
		req->extended++;
		begin_waiting(req, now);
		return false;
	}
	req->extended = 0;
	if (delivered && !answer_due(req)) {
		/* It was stuck, and there is space again. */
		req->deadline = 0;
		return true;
	}
	retry(req, req->acked_psn);
	return true;
}

static void pop(struct ropcie_requester *req, u8 status,
		struct ropcie_req_comp *comp)
{
	const struct ropcie_send_wqe *wqe = wqe_at(req, req->tail);

	comp->wr_id = wqe->wr_id;
	comp->length = wqe->length;
	comp->op = wqe->op;
	comp->flags = wqe->flags;
	comp->status = status;
	/* Executed here, or flushed; a cursor that went back had not passed it. */
	if (req->next == req->tail)
		req->next++;
	/* The poster may fill the entry again from here on. */
	smp_store_release(&req->tail, req->tail + 1);
}

bool ropcie_req_complete(struct ropcie_requester *req,
			 struct ropcie_req_comp *comp)
{
	const struct ropcie_send_wqe *wqe = wqe_at(req, req->tail);

	if (req->reported)
		return false;
	if (req->tail != req->fresh && done(req, wqe)) {
		pop(req, ROPCIE_WC_SUCCESS, comp);
		return true;
	}
	if (req->local_error && req->tail == req->next)
		ropcie_req_fail(req, req->local_error);
	if (!req->error || !ropcie_req_pending(req))
		return false;
	req->reported = true;
	pop(req, req->error, comp);
	return true;
}

bool ropcie_req_flush(struct ropcie_requester *req,
		      struct ropcie_req_comp *comp)
{
	/* The queue has ended: from here on nothing completes but by this. */
	ropcie_req_fail(req, ROPCIE_WC_WR_FLUSH_ERR);
	req->reported = true;
	if (!ropcie_req_pending(req))
		return false;
	pop(req, ROPCIE_WC_WR_FLUSH_ERR, comp);
	return true;
}

void ropcie_req_resume(struct ropcie_requester *req)
{
	/* What was flushed may have had its PSNs, or a part of it been sent. */
	req->next = req->tail;
	req->fresh = req->tail;
	req->off = 0;
	req->psn = req->next_psn;
	req->acked_psn = req->psn;
	req->max_psn = req->psn;
	req->error = ROPCIE_WC_SUCCESS;
	req->local_error = ROPCIE_WC_SUCCESS;
	req->reported = false;
}
