// SPDX-License-Identifier: GPL-2.0
#include "mq_id.h"
#include "mr.h"
#include "responder.h"

/* Code of 0.64 ms (IBTA table 45); 4 more are four times as long, up to 28. */
#define PAGING_TIMER 12
#define PAGING_NAKS 5

void ropcie_rsp_connect(struct ropcie_responder *rsp,
			const struct ropcie_rsp_attr *attr)
{
	memset(rsp, 0, sizeof(*rsp));
	rsp->attr = *attr;
	rsp->epsn = attr->psn & ROPCIE_PSN_MASK;
}

static void owe(struct ropcie_responder *rsp, enum ropcie_syndrome syndrome)
{
	rsp->owes = true;
	rsp->nak = (u8)syndrome;
	rsp->nak_psn = rsp->epsn;
}

static struct ropcie_rsp_fetch *fetch_at(struct ropcie_responder *rsp, u32 idx)
{
	return &rsp->fetch[idx % ROPCIE_RSP_DEPTH];
}

static bool fetch_pending(const struct ropcie_responder *rsp)
{
	return rsp->fetch_next != rsp->fetch_head;
}

/* The PSN of the next record of a READ's answer. */
static u32 read_psn(const struct ropcie_rsp_fetch *f)
{
	return ropcie_psn_add(f->hdr.psn, f->off / f->hdr.imm);
}

void ropcie_rsp_fail(struct ropcie_responder *rsp,
		     enum ropcie_syndrome syndrome)
{
	if (rsp->attr.unreliable) {
		rsp->in_msg = false;
		return;
	}
	rsp->dead = true;
	owe(rsp, syndrome);
}

void ropcie_rsp_not_there(struct ropcie_responder *rsp)
{
	if (rsp->attr.unreliable) {
		rsp->in_msg = false;
		return;
	}
	rsp->nak_sent = true;
	rsp->paging = true;
	rsp->page_naks++;
	owe(rsp, ROPCIE_RNR_NAK);
}

void ropcie_rsp_there(struct ropcie_responder *rsp)
{
	/* What has been sent again meanwhile waits for nothing. */
	if (rsp->paging && rsp->nak_sent && !rsp->owes)
		rsp->starved = true;
	rsp->paging = false;
}

/* The next fetch has all of its answer. */
static void fetch_answered(struct ropcie_responder *rsp)
{
	if (rsp->fetch_next++ == rsp->fetch_done)
		rsp->fetch_done++;
}

bool ropcie_rsp_fail_read(struct ropcie_responder *rsp,
			  enum ropcie_syndrome syndrome)
{
	u32 psn = read_psn(fetch_at(rsp, rsp->fetch_next));

	if (rsp->fetch_next != rsp->fetch_done) {
		fetch_answered(rsp);
		return false;
	}
	ropcie_rsp_stop(rsp);
	ropcie_rsp_fail(rsp, syndrome);
	rsp->nak_psn = psn;
	return true;
}

void ropcie_rsp_stop(struct ropcie_responder *rsp)
{
	rsp->fetch_next = rsp->fetch_head;
	rsp->fetch_done = rsp->fetch_head;
	rsp->owes = false;
	rsp->starved = false;
	rsp->paging = false;
}

static enum ropcie_rsp_verdict invalid(struct ropcie_responder *rsp)
{
	ropcie_rsp_fail(rsp, ROPCIE_NAK_INV_REQ);
	return ROPCIE_RSP_INVALID;
}

/*
 * Is @hdr the fetch @f, or the rest of it (READ)? @off becomes where that
 * begins. A new request with an old PSN is none of them.
 */
static bool same_fetch(const struct ropcie_rsp_fetch *f,
		       const struct ropcie_hdr *hdr, u32 *off)
{
	u32 nth = (hdr->psn - f->hdr.psn) & ROPCIE_PSN_MASK;

	if (hdr->op != f->hdr.op || hdr->imm != f->hdr.imm ||
	    hdr->rkey != f->hdr.rkey || hdr->srqn != f->hdr.srqn ||
	    nth >= (hdr->op == ROPCIE_OP_READ ?
		    ropcie_num_psn(f->hdr.msg_len, f->hdr.imm) : 1))
		return false;
	*off = nth * f->hdr.imm;
	return hdr->addr == f->hdr.addr + *off &&
	       hdr->msg_len == f->hdr.msg_len - *off;
}

/*
 * What is answered again may have arrived, and its memory be in use: from @idx on no
 * answer is placed any more.
 */
static void lane_answers(struct ropcie_responder *rsp, u32 idx)
{
	for (; idx != rsp->fetch_head; idx++)
		fetch_at(rsp, idx)->hdr.flags &= (u8)~ROPCIE_F_PLACED;
}

/*
 * A READ or an atomic comes again. Answer it again, a READ from there on, and
 * all that came behind it; an atomic is not executed twice (IBTA 9.4.5). What
 * is not answered yet will be anyway.
 */
static void repeat_fetch(struct ropcie_responder *rsp,
			 const struct ropcie_hdr *hdr)
{
	u32 left = rsp->fetch_known - (rsp->fetch_head - rsp->fetch_next);
	u32 idx = rsp->fetch_next, off;
	struct ropcie_rsp_fetch *f = fetch_at(rsp, idx);

	if (fetch_pending(rsp) && same_fetch(f, hdr, &off)) {
		f->off = min_t(u32, f->off, off);
		lane_answers(rsp, idx);
		return;
	}
	while (left && !same_fetch(fetch_at(rsp, idx - 1), hdr, &off)) {
		idx--;
		left--;
	}
	if (!left)
		return;
	rsp->fetch_next = --idx;
	fetch_at(rsp, idx)->off = off;
	lane_answers(rsp, idx);
	while (++idx != rsp->fetch_head)
		fetch_at(rsp, idx)->off = 0;
}

/* A request whose PSN is not the expected one (IBTA 9.7.4.1, 9.7.5.1.2). */
static enum ropcie_rsp_verdict out_of_order(struct ropcie_responder *rsp,
					    const struct ropcie_hdr *hdr,
					    s32 ahead)
{
	if (ahead < 0) {
		/* Seen before: the answer may have come too late. */
		if (ropcie_op_fetches(hdr->op))
			repeat_fetch(rsp, hdr);
		else if (!rsp->owes)
			owe(rsp, ROPCIE_ACK);
	} else if (!rsp->nak_sent) {
		rsp->nak_sent = true;
		owe(rsp, ROPCIE_NAK_SEQ);
	}
	return ROPCIE_RSP_DROP;
}

static enum ropcie_rsp_verdict rnr(struct ropcie_responder *rsp)
{
	rsp->nak_sent = true;
	rsp->paging = false;
	owe(rsp, ROPCIE_RNR_NAK);
	return ROPCIE_RSP_DROP;
}

/* Has the queue pair been told to let its peer do that (IBTA 9.7.4.1.3)? */
static bool allowed(const struct ropcie_responder *rsp, u8 op)
{
	u32 need = ropcie_op_writes(op) ? ROPCIE_ACCESS_REMOTE_WRITE :
		   op == ROPCIE_OP_READ ? ROPCIE_ACCESS_REMOTE_READ :
					  ROPCIE_ACCESS_REMOTE_ATOMIC;

	return op == ROPCIE_OP_SEND || (rsp->attr.access & need);
}

static enum ropcie_rsp_verdict fetch_request(struct ropcie_responder *rsp,
					     const struct ropcie_hdr *hdr)
{
	/* What is only repeated does not count: its data have arrived once. */
	if (rsp->in_msg ||
	    rsp->fetch_head - rsp->fetch_done >= rsp->attr.max_rd_atomic)
		return invalid(rsp);
	if (hdr->op == ROPCIE_OP_READ)
		return ROPCIE_RSP_READ;
	return IS_ALIGNED(hdr->addr, ROPCIE_ATOMIC_LEN) ? ROPCIE_RSP_ATOMIC :
							  invalid(rsp);
}

/* Nothing of the message that this record belongs to is taken any more. */
static enum ropcie_rsp_verdict pass_over(struct ropcie_responder *rsp)
{
	rsp->in_msg = false;
	return ROPCIE_RSP_DROP;
}

static enum ropcie_rsp_verdict send_request(struct ropcie_responder *rsp,
					    const struct ropcie_hdr *hdr,
					    u32 ready, u64 room)
{
	if (hdr->flags & ROPCIE_F_FIRST) {
		if (!ready)
			return rnr(rsp);
		if (hdr->msg_len > room) {
			ropcie_rsp_fail(rsp, ROPCIE_NAK_INV_REQ);
			return ROPCIE_RSP_TOO_LONG;
		}
	}
	return ROPCIE_RSP_PLACE;
}

static enum ropcie_rsp_verdict write_request(struct ropcie_responder *rsp,
					     const struct ropcie_hdr *hdr,
					     u32 ready)
{
	/* It takes no resource here, but needs the leave for those that do. */
	if (hdr->op == ROPCIE_OP_ATOMIC_WRITE &&
	    (!IS_ALIGNED(hdr->addr, ROPCIE_ATOMIC_LEN) ||
	     !rsp->attr.max_rd_atomic))
		return invalid(rsp);
	/* Immediate data come with the last record, and need a receive. */
	if ((hdr->flags & ROPCIE_F_IMM) && !ready)
		return rnr(rsp);
	if (hdr->flags & ROPCIE_F_FIRST) {
		rsp->rkey = hdr->rkey;
		rsp->addr = hdr->addr;
	}
	return ROPCIE_RSP_WRITE;
}

/* Does the record go on where the message stands, or begin one? */
static bool continues(const struct ropcie_responder *rsp,
		      const struct ropcie_hdr *hdr)
{
	return rsp->in_msg && hdr->op == rsp->op &&
	       hdr->srqn == rsp->srqn && hdr->msg_len == rsp->msg_len;
}

/* The last fragment ends the message, and only it does. */
static bool ends_well(const struct ropcie_hdr *hdr, u32 off)
{
	u32 left = hdr->msg_len - off;

	return hdr->frag_len <= left &&
	       !(hdr->flags & ROPCIE_F_LAST) == (hdr->frag_len < left);
}

static void fill_place(const struct ropcie_responder *rsp,
		       const struct ropcie_hdr *hdr,
		       struct ropcie_rsp_place *place)
{
	place->first = hdr->flags & ROPCIE_F_FIRST;
	place->last = hdr->flags & ROPCIE_F_LAST;
	place->off = place->first ? 0 : rsp->msg_off;
	place->addr = rsp->addr + place->off;
	place->rkey = rsp->rkey;
}

/* Does an unreliable connection take the record, if there is a receive where it needs one? */
static bool unreliable_fits(const struct ropcie_responder *rsp,
			    const struct ropcie_hdr *hdr)
{
	bool first = hdr->flags & ROPCIE_F_FIRST;

	return allowed(rsp, hdr->op) && !ropcie_op_reliable(hdr->op) &&
	       !(hdr->flags & (ROPCIE_F_INV | ROPCIE_F_PLACED)) && !hdr->srqn &&
	       (first || (hdr->psn == rsp->epsn && continues(rsp, hdr))) &&
	       ends_well(hdr, first ? 0 : rsp->msg_off);
}

bool ropcie_rsp_unreliable_takes_receive(const struct ropcie_responder *rsp,
					 const struct ropcie_hdr *hdr)
{
	bool takes = hdr->op == ROPCIE_OP_SEND ? hdr->flags & ROPCIE_F_FIRST :
						 hdr->flags & ROPCIE_F_IMM;

	return takes && unreliable_fits(rsp, hdr);
}

/*
 * IBTA 9.8.2.2: a record that is missing costs its message, and so does
 * whatever would be an error. The next one that begins is taken.
 */
static enum ropcie_rsp_verdict
unreliable_request(struct ropcie_responder *rsp, const struct ropcie_hdr *hdr,
		   u32 ready, u64 room, struct ropcie_rsp_place *place)
{
	bool first = hdr->flags & ROPCIE_F_FIRST;
	bool fits = unreliable_fits(rsp, hdr);

	rsp->epsn = ropcie_psn_add(hdr->psn, 1);
	if (!fits)
		return pass_over(rsp);
	if (hdr->op == ROPCIE_OP_SEND && first &&
	    (!ready || hdr->msg_len > room))
		return pass_over(rsp);
	if (hdr->op == ROPCIE_OP_WRITE) {
		if ((hdr->flags & ROPCIE_F_IMM) && !ready)
			return pass_over(rsp);
		if (first) {
			rsp->rkey = hdr->rkey;
			rsp->addr = hdr->addr;
		}
	}
	fill_place(rsp, hdr, place);
	return hdr->op == ROPCIE_OP_SEND ? ROPCIE_RSP_PLACE : ROPCIE_RSP_WRITE;
}

enum ropcie_rsp_verdict ropcie_rsp_request(struct ropcie_responder *rsp,
					   const struct ropcie_hdr *hdr,
					   u32 ready, u64 room,
					   struct ropcie_rsp_place *place)
{
	s32 ahead = ropcie_psn_diff(hdr->psn, rsp->epsn);
	bool first = hdr->flags & ROPCIE_F_FIRST;
	enum ropcie_rsp_verdict verdict;

	if (rsp->dead || hdr->src_qpn != rsp->attr.dest_qpn ||
	    !ropcie_op_connected(hdr->op))
		return ROPCIE_RSP_DROP;
	if (rsp->attr.unreliable)
		return unreliable_request(rsp, hdr, ready, room, place);
	if (ahead)
		return out_of_order(rsp, hdr, ahead);
	if (!allowed(rsp, hdr->op) || !!hdr->srqn != rsp->attr.xrc)
		return invalid(rsp);
	if (ropcie_op_fetches(hdr->op))
		return fetch_request(rsp, hdr);
	if (first ? rsp->in_msg : !continues(rsp, hdr))
		return invalid(rsp);
	verdict = hdr->op == ROPCIE_OP_SEND ?
			  send_request(rsp, hdr, ready, room) :
			  write_request(rsp, hdr, ready);
	if (verdict != ROPCIE_RSP_PLACE && verdict != ROPCIE_RSP_WRITE)
		return verdict;
	if (!ends_well(hdr, first ? 0 : rsp->msg_off))
		return invalid(rsp);
	fill_place(rsp, hdr, place);
	return verdict;
}

bool ropcie_rsp_placed(struct ropcie_responder *rsp,
		       const struct ropcie_hdr *hdr)
{
	bool first = hdr->flags & ROPCIE_F_FIRST;
	bool last = hdr->flags & ROPCIE_F_LAST;

	rsp->epsn = ropcie_psn_add(hdr->psn, 1);
	rsp->nak_sent = false;
	rsp->page_naks = 0;
	rsp->op = hdr->op;
	rsp->srqn = hdr->srqn;
	rsp->msg_len = hdr->msg_len;
	rsp->msg_off = (first ? 0 : rsp->msg_off) + hdr->frag_len;
	rsp->in_msg = !last;
	if (last)
		rsp->msn = ropcie_psn_add(rsp->msn, 1);
	if (!rsp->attr.unreliable &&
	    (rsp->owes || (hdr->flags & ROPCIE_F_ACKREQ)))
		owe(rsp, ROPCIE_ACK);
	return last && ropcie_op_receives(hdr->op, hdr->flags & ROPCIE_F_IMM);
}

void ropcie_rsp_fetched(struct ropcie_responder *rsp,
			const struct ropcie_hdr *hdr, u64 orig)
{
	struct ropcie_rsp_fetch *f = fetch_at(rsp, rsp->fetch_head++);
	bool read = hdr->op == ROPCIE_OP_READ;

	if (rsp->fetch_known < ROPCIE_RSP_DEPTH)
		rsp->fetch_known++;
	/*
	 * Whoever asks for this has all but the last answers: give up what is
	 * still being repeated of those before.
	 */
	while (rsp->fetch_head - rsp->fetch_next > rsp->attr.max_rd_atomic &&
	       rsp->fetch_next != rsp->fetch_done)
		rsp->fetch_next++;
	f->hdr = *hdr;
	f->off = 0;
	f->orig = orig;
	rsp->epsn = ropcie_psn_add(rsp->epsn,
				   read ? ropcie_num_psn(hdr->msg_len,
							 hdr->imm) : 1);
	rsp->nak_sent = false;
	rsp->page_naks = 0;
	rsp->msn = ropcie_psn_add(rsp->msn, 1);
	/* A sequence NAK that is still owed has been overtaken. */
	if (rsp->owes)
		owe(rsp, ROPCIE_ACK);
}

u32 ropcie_rsp_read_left(struct ropcie_responder *rsp)
{
	const struct ropcie_rsp_fetch *f = fetch_at(rsp, rsp->fetch_next);

	return f->hdr.msg_len - f->off;
}

/* The next record of the answer to a READ or an atomic. */
static void fetch_answer(struct ropcie_responder *rsp, struct ropcie_hdr *hdr)
{
	const struct ropcie_rsp_fetch *f = fetch_at(rsp, rsp->fetch_next);
	u32 left = ropcie_rsp_read_left(rsp);

	if (f->hdr.op != ROPCIE_OP_READ) {
		hdr->op = ROPCIE_OP_ATOMIC_RESP;
		hdr->psn = f->hdr.psn;
		hdr->orig = f->orig;
		return;
	}
	hdr->op = ROPCIE_OP_READ_RESP;
	hdr->psn = read_psn(f);
	hdr->msg_len = f->hdr.msg_len;
	hdr->frag_len = min_t(u32, left, f->hdr.imm);
	if (!f->off)
		hdr->flags |= ROPCIE_F_FIRST;
	if (hdr->frag_len == left)
		hdr->flags |= ROPCIE_F_LAST;
	hdr->addr = f->hdr.addr + f->off;
	hdr->rkey = f->hdr.rkey;
	hdr->srqn = f->hdr.srqn;
	if (f->hdr.flags & ROPCIE_F_PLACED) {
		hdr->sink_key = f->hdr.sink_key;
		hdr->sink_addr = f->hdr.sink_addr + f->off;
	}
}

/*
 * How long the other end is to wait. Receives are the consumer's business, who names
 * a time. Memory takes less; when it does not, four times as long with each NAK, until
 * the consumer's time: the other end may count them.
 */
static u8 rnr_timer(const struct ropcie_responder *rsp)
{
	u8 timer = rsp->attr.min_rnr_timer & 31, paging;

	if (!rsp->paging || rsp->page_naks > PAGING_NAKS)
		return timer;
	paging = (u8)(PAGING_TIMER + 4 * (rsp->page_naks - 1));
	return ropcie_rnr_timer_ns(timer) > ropcie_rnr_timer_ns(paging) ?
		       paging : timer;
}

void ropcie_rsp_answer(struct ropcie_responder *rsp, u32 ready,
		       struct ropcie_hdr *hdr)
{
	memset(hdr, 0, sizeof(*hdr));
	hdr->mq = ropcie_mq_id(rsp->attr.dest_qpn, ROPCIE_MQ_RESPONSE);
	hdr->src_qpn = rsp->attr.src_qpn;
	/* In the order of the requests: an ACK covers all before it. */
	if (fetch_pending(rsp)) {
		fetch_answer(rsp, hdr);
		return;
	}
	hdr->op = ROPCIE_OP_ACK;
	/* An ACK names the last request that is done, a NAK the first not. */
	hdr->psn = rsp->nak == ROPCIE_ACK ?
			   ropcie_psn_add(rsp->epsn, ROPCIE_PSN_MASK) :
			   rsp->nak_psn;
	hdr->msn = rsp->msn;
	hdr->credits = min_t(u32, ready, ROPCIE_PSN_MASK);
	hdr->syndrome = rsp->nak;
	if (rsp->nak == ROPCIE_RNR_NAK)
		hdr->timer = rnr_timer(rsp);
}

void ropcie_rsp_answered(struct ropcie_responder *rsp,
			 const struct ropcie_hdr *hdr)
{
	if (hdr->op == ROPCIE_OP_READ_RESP)
		fetch_at(rsp, rsp->fetch_next)->off += hdr->frag_len;
	if (hdr->op != ROPCIE_OP_ACK) {
		if (hdr->op == ROPCIE_OP_ATOMIC_RESP ||
		    (hdr->flags & ROPCIE_F_LAST))
			fetch_answered(rsp);
		return;
	}
	rsp->owes = false;
	/*
	 * Then the other end waits for time or for credits, whatever else it is
	 * told until what was refused comes again. Without credits only, it
	 * sends one request to find out (IBTA 9.7.7.2), and need not be told.
	 */
	if (hdr->syndrome == ROPCIE_RNR_NAK)
		rsp->starved = !rsp->paging;
	else
		rsp->starved &= rsp->nak_sent && !hdr->credits;
}

bool ropcie_rsp_replenished(struct ropcie_responder *rsp)
{
	if (rsp->starved && !rsp->owes && !rsp->dead)
		owe(rsp, ROPCIE_ACK);
	return rsp->owes;
}
