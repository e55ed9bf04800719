// SPDX-License-Identifier: GPL-2.0
#include "mq_id.h"
#include "wire.h"

/*
 * What each opcode allows. A record is refused unless every field that its
 * opcode does not use is zero, so that a later version can give it a meaning.
 */
struct op_rule {
	u8 flags;
	bool fragments; /* carries a fragment of a message */
	bool queue_pair; /* addressed to a queue pair, with PSN */
	u8 dir; /* enum ropcie_mq_dir, for queue pairs */
};

static const struct op_rule op_rules[ROPCIE_OP_END] = {
	[ROPCIE_OP_SEND] = {
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST | ROPCIE_F_IMM |
			 ROPCIE_F_SOLICITED | ROPCIE_F_ACKREQ,
		.fragments = true,
		.queue_pair = true,
		.dir = ROPCIE_MQ_REQUEST,
	},
	[ROPCIE_OP_ACK] = {
		.queue_pair = true,
		.dir = ROPCIE_MQ_RESPONSE,
	},
	[ROPCIE_OP_ETH] = {
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST,
		.fragments = true,
	},
};

void ropcie_wire_encode(const struct ropcie_hdr *hdr, struct ropcie_slot *slot)
{
	memset(slot, 0, sizeof(*slot));
	slot->op = hdr->op;
	slot->flags = hdr->flags;
	slot->mq = cpu_to_le32(hdr->mq);
	slot->src_qpn = cpu_to_le32(hdr->src_qpn);
	slot->psn = cpu_to_le32(hdr->psn);
	slot->msg_len = cpu_to_le32(hdr->msg_len);
	slot->frag_len = cpu_to_le32(hdr->frag_len);
	slot->imm = cpu_to_le32(hdr->imm);
	if (hdr->op == ROPCIE_OP_ACK) {
		slot->aeth.msn = cpu_to_le32(hdr->msn);
		slot->aeth.credits = cpu_to_le32(hdr->credits);
		slot->aeth.syndrome = hdr->syndrome;
		slot->aeth.timer = hdr->timer;
	}
}

static int decode_ack(const struct ropcie_slot *slot, struct ropcie_hdr *hdr)
{
	size_t i;

	hdr->msn = le32_to_cpu(slot->aeth.msn);
	hdr->credits = le32_to_cpu(slot->aeth.credits);
	hdr->syndrome = slot->aeth.syndrome;
	hdr->timer = slot->aeth.timer;
	for (i = 0; i < sizeof(slot->aeth.rsvd); i++)
		if (slot->aeth.rsvd[i])
			return -EBADMSG;
	if (hdr->msn > ROPCIE_PSN_MASK || hdr->credits > ROPCIE_PSN_MASK ||
	    hdr->syndrome >= ROPCIE_SYNDROME_END || hdr->timer > 31)
		return -EBADMSG;
	if (hdr->msg_len || hdr->frag_len || hdr->imm)
		return -EBADMSG;
	return 0;
}

/* Lengths against the first and last flags. */
static int check_fragment(const struct ropcie_hdr *hdr)
{
	bool first = hdr->flags & ROPCIE_F_FIRST;
	bool last = hdr->flags & ROPCIE_F_LAST;

	if (hdr->msg_len > ROPCIE_MAX_MSG || hdr->frag_len > ROPCIE_MAX_FRAG ||
	    hdr->frag_len > hdr->msg_len)
		return -EBADMSG;
	if (first && last && hdr->frag_len != hdr->msg_len)
		return -EBADMSG;
	if (!(first && last) &&
	    (hdr->frag_len == 0 || hdr->frag_len == hdr->msg_len))
		return -EBADMSG;
	if (!last && (hdr->flags & (ROPCIE_F_IMM | ROPCIE_F_SOLICITED |
				    ROPCIE_F_ACKREQ)))
		return -EBADMSG;
	if (!(hdr->flags & ROPCIE_F_IMM) && hdr->imm)
		return -EBADMSG;
	return 0;
}

static bool operands_zero(const struct ropcie_slot *slot)
{
	__le32 any = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(slot->operands); i++)
		any |= slot->operands[i];
	return !any;
}

int ropcie_wire_decode(const struct ropcie_slot *slot, struct ropcie_hdr *hdr)
{
	const struct op_rule *rule;

	memset(hdr, 0, sizeof(*hdr));
	if (!slot->op || slot->op >= ROPCIE_OP_END || slot->rsvd)
		return -EBADMSG;
	rule = &op_rules[slot->op];
	if (slot->flags & ~rule->flags)
		return -EBADMSG;

	hdr->op = slot->op;
	hdr->flags = slot->flags;
	hdr->mq = le32_to_cpu(slot->mq);
	hdr->src_qpn = le32_to_cpu(slot->src_qpn);
	hdr->psn = le32_to_cpu(slot->psn);
	hdr->msg_len = le32_to_cpu(slot->msg_len);
	hdr->frag_len = le32_to_cpu(slot->frag_len);
	hdr->imm = le32_to_cpu(slot->imm);

	if (rule->queue_pair) {
		if (hdr->mq > ROPCIE_MQ_MAX || !ropcie_mq_qpn(hdr->mq) ||
		    ropcie_mq_dir(hdr->mq) != rule->dir)
			return -EBADMSG;
		if (!hdr->src_qpn || hdr->src_qpn > ROPCIE_QPN_MASK ||
		    hdr->psn > ROPCIE_PSN_MASK)
			return -EBADMSG;
	} else if (hdr->mq != ROPCIE_MQ_NETDEV || hdr->src_qpn || hdr->psn) {
		return -EBADMSG;
	}
	if (hdr->op == ROPCIE_OP_ACK)
		return decode_ack(slot, hdr);
	if (check_fragment(hdr))
		return -EBADMSG;
	return ropcie_hdr_inline(hdr) || operands_zero(slot) ? 0 : -EBADMSG;
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
