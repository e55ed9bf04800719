// SPDX-License-Identifier: GPL-2.0
#include "mq_id.h"
#include "responder.h"

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
	rsp->nak = syndrome;
}

void ropcie_rsp_fail(struct ropcie_responder *rsp,
		     enum ropcie_syndrome syndrome)
{
	rsp->dead = true;
	owe(rsp, syndrome);
}

static enum ropcie_rsp_verdict invalid(struct ropcie_responder *rsp)
{
	ropcie_rsp_fail(rsp, ROPCIE_NAK_INV_REQ);
	return ROPCIE_RSP_INVALID;
}

/* A request whose PSN is not the expected one (IBTA 9.7.4.1, 9.7.5.1.2). */
static enum ropcie_rsp_verdict out_of_order(struct ropcie_responder *rsp,
					    s32 ahead)
{
	if (ahead < 0) {
		/* Seen before: the acknowledge may have come too late. */
		if (!rsp->owes)
			owe(rsp, ROPCIE_ACK);
	} else if (!rsp->nak_sent) {
		rsp->nak_sent = true;
		owe(rsp, ROPCIE_NAK_SEQ);
	}
	return ROPCIE_RSP_DROP;
}

enum ropcie_rsp_verdict ropcie_rsp_request(struct ropcie_responder *rsp,
					   const struct ropcie_hdr *hdr,
					   u32 ready, u64 room,
					   struct ropcie_rsp_place *place)
{
	s32 ahead = ropcie_psn_diff(hdr->psn, rsp->epsn);
	bool first = hdr->flags & ROPCIE_F_FIRST;
	bool last = hdr->flags & ROPCIE_F_LAST;
	u32 off = first ? 0 : rsp->msg_off;

	if (rsp->dead || hdr->src_qpn != rsp->attr.dest_qpn)
		return ROPCIE_RSP_DROP;
	if (ahead)
		return out_of_order(rsp, ahead);
	if (first == rsp->in_msg)
		return invalid(rsp);
	if (first) {
		if (!ready) {
			rsp->nak_sent = true;
			owe(rsp, ROPCIE_RNR_NAK);
			return ROPCIE_RSP_DROP;
		}
		if (hdr->msg_len > room) {
			ropcie_rsp_fail(rsp, ROPCIE_NAK_INV_REQ);
			return ROPCIE_RSP_TOO_LONG;
		}
	} else if (hdr->msg_len != rsp->msg_len) {
		return invalid(rsp);
	}
	/* The last fragment ends the message, and only it does. */
	if (hdr->frag_len > hdr->msg_len - off ||
	    last != (hdr->frag_len == hdr->msg_len - off))
		return invalid(rsp);

	place->off = off;
	place->first = first;
	place->last = last;
	return ROPCIE_RSP_PLACE;
}

bool ropcie_rsp_placed(struct ropcie_responder *rsp,
		       const struct ropcie_hdr *hdr)
{
	bool first = hdr->flags & ROPCIE_F_FIRST;
	bool last = hdr->flags & ROPCIE_F_LAST;

	rsp->epsn = ropcie_psn_add(rsp->epsn, 1);
	rsp->nak_sent = false;
	rsp->msg_len = hdr->msg_len;
	rsp->msg_off = (first ? 0 : rsp->msg_off) + hdr->frag_len;
	rsp->in_msg = !last;
	if (last)
		rsp->msn = ropcie_psn_add(rsp->msn, 1);
	if (rsp->owes || (hdr->flags & ROPCIE_F_ACKREQ))
		owe(rsp, ROPCIE_ACK);
	return last;
}

void ropcie_rsp_answer(const struct ropcie_responder *rsp, u32 ready,
		       struct ropcie_hdr *hdr)
{
	memset(hdr, 0, sizeof(*hdr));
	hdr->op = ROPCIE_OP_ACK;
	hdr->mq = ropcie_mq_id(rsp->attr.dest_qpn, ROPCIE_MQ_RESPONSE);
	hdr->src_qpn = rsp->attr.src_qpn;
	/* An ACK names the last request that is done, a NAK the first not. */
	hdr->psn = rsp->nak == ROPCIE_ACK ?
			   ropcie_psn_add(rsp->epsn, ROPCIE_PSN_MASK) :
			   rsp->epsn;
	hdr->msn = rsp->msn;
	hdr->credits = min_t(u32, ready, ROPCIE_PSN_MASK);
	hdr->syndrome = rsp->nak;
	if (rsp->nak == ROPCIE_RNR_NAK)
		hdr->timer = rsp->attr.min_rnr_timer & 31;
}

void ropcie_rsp_answered(struct ropcie_responder *rsp,
			 const struct ropcie_hdr *hdr)
{
	rsp->owes = false;
	/* After an RNR NAK the other end waits for time or for credits. */
	rsp->starved = !hdr->credits || hdr->syndrome == ROPCIE_RNR_NAK;
}

bool ropcie_rsp_replenished(struct ropcie_responder *rsp)
{
	if (rsp->starved && !rsp->owes && !rsp->dead)
		owe(rsp, ROPCIE_ACK);
	return rsp->owes;
}
