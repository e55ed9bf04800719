# SPDX-License-Identifier: GPL-2.0
"""Deliberate bugs for scripts/mutate: what they break, where, and how.

Each takes the place of text that its file has exactly once.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A bug in a file of kernel/core."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = (
    # What a peer writes.
    Mutant("a fragment longer than its message", "wire.c",
           "hdr->frag_len > hdr->msg_len)", "false)"),
    Mutant("messages without a limit", "wire.c",
           "if (hdr->msg_len > ROPCIE_MAX_MSG || hdr->frag_len > ROPCIE_MAX_FRAG ||",
           "if (hdr->frag_len > ROPCIE_MAX_FRAG ||"),
    Mutant("flags that the opcode does not know", "wire.c",
           "(slot->flags & ~rule->flags) || ", ""),
    Mutant("READ responses as small as the peer likes", "wire.c",
           "hdr->imm < ROPCIE_MIN_READ_FRAG", "!hdr->imm"),
    Mutant("a READ of more PSNs than may be under way", "wire.c",
           "    ropcie_num_psn(hdr->msg_len, hdr->imm) > ROPCIE_MAX_INFLIGHT)", "    false)"),
    Mutant("reserved bytes of an acknowledge", "wire.c",
           "return zero(slot->aeth.rsvd, sizeof(slot->aeth.rsvd)) ? 0 : -EBADMSG;", "return 0;"),
    Mutant("PSNs of more than 24 bits", "wire.c",
           "hdr->src_qpn > ROPCIE_QPN_MASK ||\n\t\t    hdr->psn > ROPCIE_PSN_MASK)",
           "hdr->src_qpn > ROPCIE_QPN_MASK)"),
    Mutant("a short datagram", "wire.c", "hdr->frag_len < ROPCIE_GRH_LEN ||", ""),
    # Lanes.
    Mutant("a consumer position that can not be", "ring.c", "if (freed > used)", "if (false)"),
    Mutant("one slot too many", "ring.c",
           "return tx->head - tx->tail < tx->geom.slots &&",
           "return tx->head - tx->tail <= tx->geom.slots &&"),
    Mutant("payload over what was not consumed", "ring.c",
           "tx->pay_head + bytes - tx->pay_tail <= tx->geom.bytes;", "true;"),
    Mutant("payload space of another record", "ring.c",
           "tx->pay_tail = tx->ends[(tx->tail - 1) & (tx->geom.slots - 1)];",
           "tx->pay_tail = tx->ends[tx->tail & (tx->geom.slots - 1)];"),
    Mutant("payload that does not go round", "ring.c",
           "rec->nspan = len > first ? 2 : 1;", "rec->nspan = 1;"),
    Mutant("a record of an earlier life", "wire.h",
           "return ((u64)epoch << 32) | (u32)(pos + 1);", "return (u32)(pos + 1);"),
    Mutant("a slot published before it is filled", "ring.c",
           "\tmemcpy(dst, &slot, offsetof(struct ropcie_slot, valid));\n"
           "\tropcie_link_wmb(tx->write_combining);\n"
           "\t/* Pairs with the acquire in ropcie_lane_recv(). */\n"
           "\tsmp_store_release(&dst->valid,\n"
           "\t\t\t  cpu_to_le64(ropcie_valid(tx->epoch, tx->head)));\n",
           "\tsmp_store_release(&dst->valid,\n"
           "\t\t\t  cpu_to_le64(ropcie_valid(tx->epoch, tx->head)));\n"
           "\tmemcpy(dst, &slot, offsetof(struct ropcie_slot, valid));\n"),
    Mutant("a position that is never told", "ring.c",
           "rx->pay_head - rx->pay_published >= rx->geom.bytes / 4)", "false)"),
    # The link.
    Mutant("torn words", "peer_link.c",
           "if (peer->w[ROPCIE_LW_CHECK] != ropcie_link_check(peer))", "if (false)"),
    Mutant("an offer larger than the window", "peer_link.c",
           " ||\n\t    ropcie_link_offer_size(offer) > l->room)", ")"),
    Mutant("another life of the peer", "peer_link.c",
           "return peer->w[ROPCIE_LW_EPOCH] == l->peer_epoch &&", "return"),
    Mutant("a peer that still answers somebody else", "peer_link.c",
           "if (look != LOOK_GOOD || (ack && ack != l->own.w[ROPCIE_LW_EPOCH]))",
           "if (look != LOOK_GOOD)"),
    Mutant("silence without an end", "peer_link.c",
           "return l->silence > l->beat_limit;", "return false;"),
    Mutant("the same epoch again", "peer_link.c",
           "while (!epoch || epoch == l->last_epoch)", "while (!epoch)"),
    Mutant("an acknowledge before the window is ready", "peer_link.c",
           "own->w[ROPCIE_LW_ACK] = 0;", "own->w[ROPCIE_LW_ACK] = l->peer.w[ROPCIE_LW_EPOCH];"),
    # Memory.
    Mutant("one byte behind a region", "mr.c",
           "len > mr->length - first)", "len > mr->length - first + 1)"),
    Mutant("another protection domain", "mr.c",
           "if (mr->pd != pd || (mr->access & access) != access)",
           "if ((mr->access & access) != access)"),
    Mutant("one of the rights is enough", "mr.c",
           "(mr->access & access) != access)", "!(mr->access & access))"),
    Mutant("addresses before a region", "mr.c", "addr < mr->iova || ", ""),
    Mutant("the tag of a key does not change", "mr.c",
           "slot->tag = (u8)(mr->key + 1);", "slot->tag = (u8)mr->key;"),
    Mutant("a key whose tag is another", "mr.c",
           "return mr && READ_ONCE(mr->key) == key ? mr : NULL;", "return mr;"),
    Mutant("a window over what may not be written", "mr.c",
           "!(mr->access & ROPCIE_ACCESS_LOCAL_WRITE))", "false)"),
    Mutant("a run over the end of its page", "mr.c",
           "\tif (len > size - in_page)\n\t\trun.len = (u32)(size - in_page);\n", ""),
    Mutant("invalidated by a peer without a right", "mr.c",
           "(remote && !(mr->access & ROPCIE_ACCESS_REMOTE))", "false"),
    # The responder.
    Mutant("rights of the queue pair", "responder.c",
           "return op == ROPCIE_OP_SEND || (rsp->attr.access & need);", "return true;"),
    Mutant("a message longer than the receive", "responder.c",
           "if (hdr->msg_len > room) {", "if (false) {"),
    Mutant("another message in the middle of one", "responder.c",
           "if (first ? rsp->in_msg : !continues(rsp, hdr))\n\t\treturn invalid(rsp);\n\tverdict",
           "verdict"),
    Mutant("a last record that is not the last", "responder.c",
           "!(hdr->flags & ROPCIE_F_LAST) == (hdr->frag_len < left);", "true;"),
    Mutant("an atomic at any address", "responder.c",
           "return IS_ALIGNED(hdr->addr, ROPCIE_ATOMIC_LEN) ? ROPCIE_RSP_ATOMIC :\n"
           "\t\t\t\t\t\t\t  invalid(rsp);",
           "return ROPCIE_RSP_ATOMIC;"),
    Mutant("more READs than agreed", "responder.c",
           "rsp->fetch_head - rsp->fetch_done >= rsp->attr.max_rd_atomic)", "false)"),
    Mutant("an atomic executed twice", "responder.c",
           "if (ropcie_op_fetches(hdr->op))\n\t\t\trepeat_fetch(rsp, hdr);\n\t\telse if (!rsp->owes)",
           "if (hdr->op == ROPCIE_OP_READ)\n\t\t\trepeat_fetch(rsp, hdr);\n"
           "\t\telse if (ropcie_op_fetches(hdr->op))\n\t\t\treturn ROPCIE_RSP_ATOMIC;\n"
           "\t\telse if (!rsp->owes)"),
    Mutant("a NAK for each record behind a gap", "responder.c",
           "} else if (!rsp->nak_sent) {", "} else {"),
    Mutant("no credits when receives are posted", "responder.c",
           "rsp->starved = !rsp->paging;\n\telse", "rsp->starved = false;\n\telse"),
    Mutant("a refusal forgotten for an acknowledge", "responder.c",
           "rsp->starved &= rsp->nak_sent && !hdr->credits;", "rsp->starved = false;"),
    Mutant("what follows memory that is not there", "responder.c",
           "rsp->nak_sent = true;\n\trsp->paging = true;", "rsp->paging = true;"),
    Mutant("a peer that waits for memory is called by receives", "responder.c",
           "rsp->starved = !rsp->paging;", "rsp->starved = true;"),
    Mutant("memory that is there, and nobody told", "responder.c",
           "if (rsp->paging && rsp->nak_sent && !rsp->owes)", "if (false)"),
    Mutant("a READ that goes back while it is answered", "responder.c",
           "f->off = min_t(u32, f->off, off);", ""),
    Mutant("data that nobody asks for again", "requester.c",
           "if (!req->error && req->fetches && !req->rnr_wait)", "if (false)"),
    Mutant("a wait that is forgotten for data", "requester.c",
           "if (!req->error && req->fetches && !req->rnr_wait)",
           "if (!req->error && req->fetches)"),
    Mutant("a cursor left behind by what completes", "requester.c",
           "if (req->next == req->tail)\n\t\t\treq->next++;", ""),
    Mutant("memory that is not there", "mr.c", "if (!page) {", "if (false) {"),
    Mutant("a dead connection lives on", "responder.c", "if (rsp->dead || ", "if ("),
    Mutant("fragments of another PSN on UC", "responder.c",
           "if (!first && (!expected || !continues(rsp, hdr)))",
           "if (!first && !continues(rsp, hdr))"),
    # The requester.
    Mutant("PSNs ahead of what was sent", "requester.c",
           "ropcie_psn_diff(psn, req->max_psn) > 0 ||\n", "false ||\n"),
    Mutant("old acknowledges", "requester.c",
           "if (ropcie_psn_diff(psn, req->acked_psn) < 0 ||", "if ("),
    Mutant("RNR retries without an end", "requester.c", "req->rnr_left--;", ""),
    Mutant("retries without an end", "requester.c",
           "\treq->retry_left--;\n", ""),
    Mutant("the fence", "requester.c",
           "if ((wqe->flags & ROPCIE_WR_FENCE) && req->fetches && !again)", "if (false)"),
    Mutant("more READs under way than allowed", "requester.c",
           "return req->fetches < req->attr.max_rd_atomic || again;", "return true;"),
    Mutant("a READ's answer of another length", "requester.c",
           "hdr->frag_len == min_t(u32, left, req->attr.frag) &&", ""),
    Mutant("an acknowledge overtakes a READ's answer", "requester.c",
           "if (req->fetches && ropcie_psn_diff(psn, fetch_psn(req)) > 0)", "if (false)"),
    Mutant("LOCAL_INV while requests are under way", "requester.c",
           "if (wqe->op == ROPCIE_LOCAL_INV && req->acked_psn != wqe->psn)", "if (false)"),
    Mutant("completions after an error", "requester.c",
           "\treq->reported = true;\n\tpop(req, req->error, comp);",
           "\tpop(req, req->error, comp);"),
    Mutant("credits of an old acknowledge for ever", "requester.c",
           "req->credit_limit = req->ssn - behind + hdr->credits;",
           "req->credit_limit = req->ssn + hdr->credits;"),
    Mutant("a timer that never ends a wait", "requester.c",
           "req->deadline = now + ropcie_rnr_timer_ns(hdr->timer);", "req->deadline = 0;"),
    Mutant("the cursor stays behind a late answer", "requester.c",
           "if (ropcie_psn_diff(psn, req->psn) > 0)\n\t\tset_cursor(req, psn);", ""),
    Mutant("a queue that drains takes what is new", "requester.c",
           "if (req->draining)\n\t\t\t\treturn NULL;", ""),
    # States, polling, shared rings, datagrams.
    Mutant("attributes that are missing", "qp_state.c",
           "(mask & attrs->required) != attrs->required)", "false)"),
    Mutant("attributes that have no place", "qp_state.c",
           "if (mask & ~(attrs->required | attrs->optional | A(STATE)))", "if (false)"),
    Mutant("spinning where a sleep is cheaper", "poll_policy.c",
           "if (p->gap_ns > p->wake_ns)\n\t\t\treturn 0;", ""),
    Mutant("an index that a process made up", "uring.h",
           "return num <= ring->size ? num : 0;", "return num;"),
    Mutant("the sum of an IPv4 header", "datagram.c",
           "return (u16)~(sum + (sum >> 16));", "return (u16)~sum;"),
)
