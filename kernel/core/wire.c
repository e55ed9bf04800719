// SPDX-License-Identifier: GPL-2.0
#include "mq_id.h"
#include "wire.h"

/* What stands where payload can ride in a slot. */
enum operands {
	OPERANDS_NONE,
	OPERANDS_AETH, /* msn, credits, syndrome, timer */
	OPERANDS_RETH, /* rkey, addr; behind a payload that rides in the slot */
	OPERANDS_ATOMIC, /* rkey, addr, compare_add, swap */
	OPERANDS_ORIG, /* value before an atomic */
	OPERANDS_DETH /* qkey, net, vlan */
};

/*
 * What each opcode allows. A record is refused unless every field that its
 * opcode does not use is zero, so that a later version can give it a meaning.
 */
struct op_rule {
	u8 flags;
	bool fragments; /* carries a fragment of a message */
	bool whole; /* that is all of it */
	bool queue_pair; /* addressed to a queue pair, with PSN */
	bool srq; /* of XRC: names a shared receive queue */
	bool grants; /* has no PSN, but may have the number of a question */
	u8 dir; /* enum ropcie_mq_dir, for queue pairs */
	u8 operands; /* enum operands */
};

static const struct op_rule op_rules[ROPCIE_OP_END] = {
	[ROPCIE_OP_SEND] = {
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST | ROPCIE_F_IMM |
			 ROPCIE_F_SOLICITED | ROPCIE_F_ACKREQ | ROPCIE_F_INV,
		.fragments = true,
		.queue_pair = true,
		.srq = true,
		.dir = ROPCIE_MQ_REQUEST,
	},
	[ROPCIE_OP_ACK] = {
		.queue_pair = true,
		.dir = ROPCIE_MQ_RESPONSE,
		.operands = OPERANDS_AETH,
	},
	[ROPCIE_OP_ETH] = {
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST,
		.fragments = true,
		.whole = true,
	},
	[ROPCIE_OP_WRITE] = {
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST | ROPCIE_F_IMM |
			 ROPCIE_F_SOLICITED | ROPCIE_F_ACKREQ |
			 ROPCIE_F_PLACED,
		.fragments = true,
		.queue_pair = true,
		.srq = true,
		.dir = ROPCIE_MQ_REQUEST,
		.operands = OPERANDS_RETH,
	},
	[ROPCIE_OP_READ] = {
		.flags = ROPCIE_F_PLACED,
		.queue_pair = true,
		.srq = true,
		.dir = ROPCIE_MQ_REQUEST,
		.operands = OPERANDS_RETH,
	},
	[ROPCIE_OP_CAS] = {
		.queue_pair = true,
		.srq = true,
		.dir = ROPCIE_MQ_REQUEST,
		.operands = OPERANDS_ATOMIC,
	},
	[ROPCIE_OP_FAA] = {
		.queue_pair = true,
		.srq = true,
		.dir = ROPCIE_MQ_REQUEST,
		.operands = OPERANDS_ATOMIC,
	},
	[ROPCIE_OP_READ_RESP] = {
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST | ROPCIE_F_PLACED,
		.fragments = true,
		.queue_pair = true,
		.dir = ROPCIE_MQ_RESPONSE,
	},
	[ROPCIE_OP_ATOMIC_RESP] = {
		.queue_pair = true,
		.dir = ROPCIE_MQ_RESPONSE,
		.operands = OPERANDS_ORIG,
	},
	[ROPCIE_OP_DATAGRAM] = {
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST | ROPCIE_F_IMM |
			 ROPCIE_F_SOLICITED,
		.fragments = true,
		.whole = true,
		.queue_pair = true,
		.dir = ROPCIE_MQ_REQUEST,
		.operands = OPERANDS_DETH,
	},
	[ROPCIE_OP_ATOMIC_WRITE] = {
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST | ROPCIE_F_ACKREQ,
		.fragments = true,
		.whole = true,
		.queue_pair = true,
		.srq = true,
		.dir = ROPCIE_MQ_REQUEST,
		.operands = OPERANDS_RETH,
	},
	[ROPCIE_OP_ASK] = {
		.queue_pair = true,
		.grants = true,
		.dir = ROPCIE_MQ_REQUEST,
		.operands = OPERANDS_RETH,
	},
	[ROPCIE_OP_GRANT] = {
		.queue_pair = true,
		.grants = true,
		.dir = ROPCIE_MQ_RESPONSE,
		.operands = OPERANDS_RETH,
	},
	[ROPCIE_OP_REVOKE] = {
		.queue_pair = true,
		.grants = true,
		.dir = ROPCIE_MQ_RESPONSE,
	},
	[ROPCIE_OP_RETURN] = {
		.queue_pair = true,
		.grants = true,
		.dir = ROPCIE_MQ_REQUEST,
	},
};

const u8 ropcie_slot_room[ROPCIE_OP_END] = {
	[ROPCIE_OP_SEND] = ROPCIE_SLOT_INLINE + 1,
	[ROPCIE_OP_WRITE] = ROPCIE_SLOT_WRITE_INLINE + 1,
	[ROPCIE_OP_READ_RESP] = ROPCIE_SLOT_INLINE + 1,
	[ROPCIE_OP_ATOMIC_WRITE] = ROPCIE_SLOT_WRITE_INLINE + 1,
};

static void put_u64(__le32 *to, u64 val)
{
	to[0] = cpu_to_le32((u32)val);
	to[1] = cpu_to_le32((u32)(val >> 32));
}

static u64 get_u64(const __le32 *from)
{
	return le32_to_cpu(from[0]) | (u64)le32_to_cpu(from[1]) << 32;
}

static void encode_placed(const struct ropcie_hdr *hdr,
			  struct ropcie_slot *slot)
{
	if (hdr->op != ROPCIE_OP_READ) {
		slot->grant = cpu_to_le32(hdr->grant);
		return;
	}
	put_u64(slot->reth.sink_addr, hdr->sink_addr);
	slot->reth.sink_key = cpu_to_le32(hdr->sink_key);
}

void ropcie_wire_encode(const struct ropcie_hdr *hdr, struct ropcie_slot *slot)
{
	memset(slot, 0, sizeof(*slot));
	slot->op = hdr->op;
	slot->flags = hdr->flags;
	slot->srqn = op_rules[hdr->op].srq ? cpu_to_le16(hdr->srqn) : 0;
	slot->mq = cpu_to_le32(hdr->mq);
	slot->src_qpn = cpu_to_le32(hdr->src_qpn);
	slot->psn = cpu_to_le32(hdr->psn);
	slot->msg_len = cpu_to_le32(hdr->msg_len);
	slot->frag_len = cpu_to_le32(hdr->frag_len);
	slot->imm = cpu_to_le32(hdr->imm);
	switch (op_rules[hdr->op].operands) {
	case OPERANDS_AETH:
		slot->aeth.msn = cpu_to_le32(hdr->msn);
		slot->aeth.credits = cpu_to_le32(hdr->credits);
		slot->aeth.syndrome = hdr->syndrome;
		slot->aeth.timer = hdr->timer;
		break;
	case OPERANDS_ATOMIC:
		put_u64(slot->reth.compare_add, hdr->compare_add);
		put_u64(slot->reth.swap, hdr->swap);
		fallthrough;
	case OPERANDS_RETH:
		slot->reth.rkey = cpu_to_le32(hdr->rkey);
		put_u64(slot->reth.addr, hdr->addr);
		break;
	case OPERANDS_ORIG:
		put_u64(slot->orig, hdr->orig);
		break;
	case OPERANDS_DETH:
		slot->deth.qkey = cpu_to_le32(hdr->qkey);
		slot->deth.net = hdr->net;
		slot->deth.vlan = cpu_to_le16(hdr->vlan);
		break;
	}
	if (hdr->flags & ROPCIE_F_PLACED)
		encode_placed(hdr, slot);
}

static bool zero(const u8 *bytes, size_t len)
{
	u64 any = 0, word;
	u32 half;

	for (; len >= sizeof(word); len -= sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		any |= word;
		bytes += sizeof(word);
	}
	if (len >= sizeof(half)) {
		len -= sizeof(half);
		memcpy(&half, bytes + len, sizeof(half));
		any |= half;
	}
	while (len)
		any |= bytes[--len];
	return !any;
}

static int decode_aeth(const struct ropcie_slot *slot, struct ropcie_hdr *hdr)
{
	hdr->msn = le32_to_cpu(slot->aeth.msn);
	hdr->credits = le32_to_cpu(slot->aeth.credits);
	hdr->syndrome = slot->aeth.syndrome;
	hdr->timer = slot->aeth.timer;
	if (hdr->msn > ROPCIE_PSN_MASK || hdr->credits > ROPCIE_PSN_MASK ||
	    hdr->syndrome >= ROPCIE_SYNDROME_END || hdr->timer > 31)
		return -EBADMSG;
	return zero(slot->aeth.rsvd, sizeof(slot->aeth.rsvd)) ? 0 : -EBADMSG;
}

/*
 * Where the payload could be is the grant that it was placed by; in a READ, where its
 * answers go.
 */
static int decode_placed(const struct ropcie_slot *slot, struct ropcie_hdr *hdr)
{
	size_t len = hdr->op == ROPCIE_OP_READ_RESP ? sizeof(slot->inl) :
						      sizeof(slot->reth.inl);
	size_t used = sizeof(slot->grant);

	if (hdr->op == ROPCIE_OP_READ) {
		hdr->sink_addr = get_u64(slot->reth.sink_addr);
		hdr->sink_key = le32_to_cpu(slot->reth.sink_key);
		used = sizeof(slot->reth.sink_addr) +
		       sizeof(slot->reth.sink_key);
		if (!hdr->msg_len)
			return -EBADMSG;
	} else {
		hdr->grant = le32_to_cpu(slot->grant);
		if (!hdr->grant || !hdr->frag_len)
			return -EBADMSG;
	}
	return zero(slot->inl + used, len - used) ? 0 : -EBADMSG;
}

static int decode_deth(const struct ropcie_slot *slot, struct ropcie_hdr *hdr)
{
	hdr->qkey = le32_to_cpu(slot->deth.qkey);
	hdr->net = slot->deth.net;
	hdr->vlan = le16_to_cpu(slot->deth.vlan);
	if (!hdr->net || hdr->net >= ROPCIE_NET_END || slot->deth.rsvd ||
	    (hdr->vlan > 4095 && hdr->vlan != ROPCIE_NO_VLAN) ||
	    hdr->frag_len < ROPCIE_GRH_LEN ||
	    hdr->frag_len > ROPCIE_GRH_LEN + ROPCIE_MAX_DATAGRAM)
		return -EBADMSG;
	return zero(slot->deth.rsvd2, sizeof(slot->deth.rsvd2)) ? 0 : -EBADMSG;
}

/* Operands of a record that is known to be well-formed otherwise. */
static int decode_operands(const struct ropcie_slot *slot,
			   struct ropcie_hdr *hdr)
{
	bool payload = ropcie_hdr_inline(hdr);

	switch (op_rules[hdr->op].operands) {
	case OPERANDS_AETH:
		return decode_aeth(slot, hdr);
	case OPERANDS_DETH:
		return decode_deth(slot, hdr);
	case OPERANDS_ATOMIC:
		hdr->compare_add = get_u64(slot->reth.compare_add);
		hdr->swap = get_u64(slot->reth.swap);
		if (hdr->op == ROPCIE_OP_FAA && hdr->swap)
			return -EBADMSG;
		payload = true; /* the operands stand there */
		fallthrough;
	case OPERANDS_RETH:
		hdr->rkey = le32_to_cpu(slot->reth.rkey);
		hdr->addr = get_u64(slot->reth.addr);
		if (hdr->op == ROPCIE_OP_WRITE &&
		    !(hdr->flags & ROPCIE_F_FIRST) && (hdr->rkey || hdr->addr))
			return -EBADMSG;
		if (hdr->flags & ROPCIE_F_PLACED)
			return decode_placed(slot, hdr);
		return payload || zero(slot->reth.inl, sizeof(slot->reth.inl)) ?
			       0 : -EBADMSG;
	case OPERANDS_ORIG:
		hdr->orig = get_u64(slot->orig);
		return zero(slot->inl + sizeof(slot->orig),
			    sizeof(slot->inl) - sizeof(slot->orig)) ?
			       0 : -EBADMSG;
	default:
		if (hdr->flags & ROPCIE_F_PLACED)
			return decode_placed(slot, hdr);
		return payload || zero(slot->inl, sizeof(slot->inl)) ?
			       0 : -EBADMSG;
	}
}

/* Lengths against the first and last flags, and what only a last one may have. */
static int check_fragment(const struct ropcie_hdr *hdr, bool whole)
{
	const u8 last_only = ROPCIE_F_IMM | ROPCIE_F_SOLICITED |
			     ROPCIE_F_ACKREQ | ROPCIE_F_INV;
	const u8 ends = ROPCIE_F_FIRST | ROPCIE_F_LAST;
	bool imm = hdr->flags & ROPCIE_F_IMM;
	bool inv = hdr->flags & ROPCIE_F_INV;

	if (hdr->frag_len > ROPCIE_MAX_FRAG)
		return -EBADMSG;
	if ((hdr->flags & ends) == ends) {
		if (hdr->frag_len != hdr->msg_len)
			return -EBADMSG;
	} else if (whole || hdr->msg_len > ROPCIE_MAX_MSG || !hdr->frag_len ||
		   hdr->frag_len >= hdr->msg_len) {
		return -EBADMSG;
	}
	if (hdr->op == ROPCIE_OP_ATOMIC_WRITE &&
	    hdr->msg_len != ROPCIE_ATOMIC_LEN)
		return -EBADMSG;
	if (!(hdr->flags & last_only))
		return hdr->imm ? -EBADMSG : 0;
	if (!(hdr->flags & ROPCIE_F_LAST) || (imm && inv))
		return -EBADMSG;
	/* Only what completes a receive can be solicited (IBTA 9.2.3). */
	if ((hdr->flags & ROPCIE_F_SOLICITED) &&
	    !ropcie_op_receives(hdr->op, imm))
		return -EBADMSG;
	return hdr->imm && !imm && !inv ? -EBADMSG : 0;
}

/* A record without payload of its own. */
static int check_plain(const struct ropcie_hdr *hdr)
{
	if (hdr->frag_len)
		return -EBADMSG;
	if (hdr->op != ROPCIE_OP_READ)
		return hdr->msg_len || hdr->imm ? -EBADMSG : 0;
	if (hdr->msg_len > ROPCIE_MAX_MSG || hdr->imm < ROPCIE_MIN_READ_FRAG ||
	    hdr->imm > ROPCIE_MAX_FRAG ||
	    ropcie_num_psn(hdr->msg_len, hdr->imm) > ROPCIE_MAX_INFLIGHT)
		return -EBADMSG;
	return 0;
}

/* What names, gives and takes back grants. */
static int check_grant(const struct ropcie_hdr *hdr)
{
	u32 pages = hdr->frag_len / sizeof(__le64);

	if (hdr->op != ROPCIE_OP_GRANT) {
		if (hdr->frag_len || hdr->msg_len)
			return -EBADMSG;
		if (hdr->op == ROPCIE_OP_ASK)
			return hdr->imm > ROPCIE_ASK_SINK ? -EBADMSG : 0;
		/* What is returned may be all that there is. */
		if (hdr->op == ROPCIE_OP_REVOKE && !hdr->imm)
			return -EBADMSG;
		return hdr->psn ? -EBADMSG : 0;
	}
	/* One without a number is a refusal, and names nothing. */
	if (!hdr->imm != !pages || !hdr->imm != !hdr->msg_len)
		return -EBADMSG;
	if (!IS_ALIGNED(hdr->frag_len, sizeof(__le64)) ||
	    pages > ROPCIE_GRANT_PAGES ||
	    hdr->msg_len > pages * ROPCIE_GRANT_PAGE)
		return -EBADMSG;
	return 0;
}

static int check_lengths(const struct ropcie_hdr *hdr,
			 const struct op_rule *rule)
{
	if (rule->fragments)
		return check_fragment(hdr, rule->whole);
	return rule->grants ? check_grant(hdr) : check_plain(hdr);
}

int ropcie_wire_decode(const struct ropcie_slot *slot, struct ropcie_hdr *hdr)
{
	const struct op_rule *rule;

	if (!slot->op || slot->op >= ROPCIE_OP_END)
		return -EBADMSG;
	rule = &op_rules[slot->op];
	if ((slot->flags & ~rule->flags) || (slot->srqn && !rule->srq))
		return -EBADMSG;

	hdr->op = slot->op;
	hdr->flags = slot->flags;
	hdr->srqn = le16_to_cpu(slot->srqn);
	hdr->mq = le32_to_cpu(slot->mq);
	hdr->src_qpn = le32_to_cpu(slot->src_qpn);
	hdr->psn = le32_to_cpu(slot->psn);
	hdr->msg_len = le32_to_cpu(slot->msg_len);
	hdr->frag_len = le32_to_cpu(slot->frag_len);
	hdr->imm = le32_to_cpu(slot->imm);
	hdr->rkey = 0;
	hdr->addr = 0;
	hdr->operands[0] = 0;
	hdr->operands[1] = 0;

	if (rule->queue_pair) {
		/* All three have 24 bits. */
		if ((ropcie_mq_qpn(hdr->mq) | hdr->src_qpn | hdr->psn) >
		    ROPCIE_QPN_MASK)
			return -EBADMSG;
		if (!ropcie_mq_qpn(hdr->mq) || !hdr->src_qpn ||
		    ropcie_mq_dir(hdr->mq) != rule->dir)
			return -EBADMSG;
	} else if (hdr->mq != ROPCIE_MQ_NETDEV || hdr->src_qpn || hdr->psn) {
		return -EBADMSG;
	}
	if (check_lengths(hdr, rule))
		return -EBADMSG;
	return decode_operands(slot, hdr);
}

u64 ropcie_rnr_timer_ns(u8 code)
{
	/* IBTA table 45, in units of 10 us. */
	static const u32 timers[32] = {
		65536, 1,   2,   3,   4,   6,    8,    12,   16,   24,   32,
		48,    64,  96,  128, 192, 256,  384,  512,  768,  1024, 1536,
		2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	};

	return (u64)timers[code & 31] * 10000;
}
