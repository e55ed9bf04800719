/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The wire format: one 64-byte slot per record, written by the sender into a
 * lane of the receiver's memory, and the header that it decodes to.
 *
 * Owns: layout, encoding, decoding and the validation of single records. It
 * knows nothing of rings (ring.h) or of QP state (requester.h, responder.h).
 * docs/protocol.md is the same in prose.
 */
#ifndef ROPCIE_CORE_WIRE_H
#define ROPCIE_CORE_WIRE_H

#include "port.h"

#define ROPCIE_WIRE_VERSION 5
#define ROPCIE_SLOT_SIZE 64
/* Payload bytes that fit into the slot of a record whose opcode allows it. */
#define ROPCIE_SLOT_INLINE 28
/* The same for an RDMA WRITE, whose remote address takes the rest. */
#define ROPCIE_SLOT_WRITE_INLINE 16
/* Bytes that an atomic is of. */
#define ROPCIE_ATOMIC_LEN 8
/* Most payload that one record carries: the netdev's largest frame. */
#define ROPCIE_MAX_FRAG 65536
/* Largest message (IBTA C9-29: 2^31 octets). */
#define ROPCIE_MAX_MSG BIT(31)
/*
 * A datagram: the header that lies before its payload in the receive, and the
 * most payload (one packet of the largest MTU).
 */
#define ROPCIE_GRH_LEN 40
#define ROPCIE_MAX_DATAGRAM 4096
#define ROPCIE_NO_VLAN 0xffff
#define ROPCIE_QPN_MASK 0xffffff
#define ROPCIE_MULTICAST_QPN 0xffffff
#define ROPCIE_PSN_MASK 0xffffff
/* Credits of a responder that makes no promise (IBTA table 44, 11111b). */
#define ROPCIE_NO_CREDITS 0xffffff
/*
 * Direct placement: the unit in which memory is named, and the most pages that one
 * grant names: a piece, as much behind it as a record carries, and where it begins.
 */
#define ROPCIE_GRANT_SHIFT 12
#define ROPCIE_GRANT_PAGE BIT(ROPCIE_GRANT_SHIFT)
#define ROPCIE_GRANT_PIECE BIT(20)
#define ROPCIE_GRANT_PAGES                                                     \
	((ROPCIE_GRANT_PIECE + ROPCIE_MAX_FRAG) / ROPCIE_GRANT_PAGE)

/* What an ASK is for: the target of a WRITE, or where a READ's answers go. */
#define ROPCIE_ASK_TARGET 0
#define ROPCIE_ASK_SINK 1

/**
 * enum ropcie_op - what a record is
 * @ROPCIE_OP_SEND: a fragment of a SEND message; payload in slot or ring
 * @ROPCIE_OP_ACK: acknowledge of RC requests; carries an AETH-like syndrome
 * @ROPCIE_OP_ETH: one Ethernet frame of the netdev; unconnected
 * @ROPCIE_OP_WRITE: a fragment of an RDMA WRITE; the first has the RETH
 * @ROPCIE_OP_READ: RDMA READ request; takes as many PSNs as it has responses
 * @ROPCIE_OP_CAS: atomic compare and swap of 8 bytes
 * @ROPCIE_OP_FAA: atomic fetch and add of 8 bytes
 * @ROPCIE_OP_READ_RESP: a fragment of what a READ asked for
 * @ROPCIE_OP_ATOMIC_RESP: what was in memory before an atomic
 * @ROPCIE_OP_DATAGRAM: a whole unreliable datagram; its payload is what the
 *	receive gets, the GRH first
 * @ROPCIE_OP_ATOMIC_WRITE: a WRITE of 8 aligned bytes, which nobody sees half
 *	done (IBTA annex A19)
 * @ROPCIE_OP_ASK: asks where memory lies that a WRITE or READ named (grant.h); this and
 *	what follows has no place in the sequence of requests and answers
 * @ROPCIE_OP_GRANT: the answer: bus addresses, or none
 * @ROPCIE_OP_REVOKE: takes a grant back
 * @ROPCIE_OP_RETURN: a grant is not used any more, and nothing is under way
 * @ROPCIE_OP_END: one more than the highest
 *
 * 0 is never valid.
 */
enum ropcie_op {
	ROPCIE_OP_SEND = 1,
	ROPCIE_OP_ACK = 2,
	ROPCIE_OP_ETH = 3,
	ROPCIE_OP_WRITE = 4,
	ROPCIE_OP_READ = 5,
	ROPCIE_OP_CAS = 6,
	ROPCIE_OP_FAA = 7,
	ROPCIE_OP_READ_RESP = 8,
	ROPCIE_OP_ATOMIC_RESP = 9,
	ROPCIE_OP_DATAGRAM = 10,
	ROPCIE_OP_ATOMIC_WRITE = 11,
	ROPCIE_OP_ASK = 12,
	ROPCIE_OP_GRANT = 13,
	ROPCIE_OP_REVOKE = 14,
	ROPCIE_OP_RETURN = 15,
	ROPCIE_OP_END
};

/* Flags of a record; a decoder refuses those that its opcode does not know. */
#define ROPCIE_F_FIRST BIT(0) /* first fragment of its message */
#define ROPCIE_F_LAST BIT(1) /* last fragment of its message */
#define ROPCIE_F_IMM BIT(2) /* imm holds immediate data */
#define ROPCIE_F_SOLICITED BIT(3) /* solicited event (IBTA BTH.SE) */
#define ROPCIE_F_ACKREQ BIT(4) /* the responder must acknowledge */
#define ROPCIE_F_INV BIT(5) /* imm holds a key to invalidate */
#define ROPCIE_F_PLACED BIT(6) /* the payload is, or that of the answer may be, placed */

/**
 * enum ropcie_syndrome - what an ACK record says (IBTA 9.7.5.2.1, AETH)
 * @ROPCIE_ACK: all requests up to and with psn are done
 * @ROPCIE_RNR_NAK: all before psn are done, psn found no receive; retry after
 *	the time that timer encodes
 * @ROPCIE_NAK_SEQ: all before psn are done, psn is missing; go back to it
 * @ROPCIE_NAK_INV_REQ: psn is an invalid request
 * @ROPCIE_NAK_REM_ACCESS: psn has no right to the memory that it names
 * @ROPCIE_NAK_REM_OP: the responder could not complete psn
 * @ROPCIE_SYNDROME_END: one more than the highest
 */
enum ropcie_syndrome {
	ROPCIE_ACK = 0,
	ROPCIE_RNR_NAK,
	ROPCIE_NAK_SEQ,
	ROPCIE_NAK_INV_REQ,
	ROPCIE_NAK_REM_ACCESS,
	ROPCIE_NAK_REM_OP,
	ROPCIE_SYNDROME_END
};

/**
 * enum ropcie_net - which network header a datagram's GRH is; numbers equal to
 *	enum rdma_network_type
 * @ROPCIE_NET_ROCE_V1: GRH (IBTA 8.3)
 * @ROPCIE_NET_IPV4: IPv4 header in the last 20 bytes (IBTA annex A17)
 * @ROPCIE_NET_IPV6: IPv6 header
 * @ROPCIE_NET_END: one more than the highest
 */
enum ropcie_net {
	ROPCIE_NET_ROCE_V1 = 1,
	ROPCIE_NET_IPV4 = 2,
	ROPCIE_NET_IPV6 = 3,
	ROPCIE_NET_END
};

/**
 * struct ropcie_slot - a record as it lies in shared memory
 * @op: enum ropcie_op
 * @flags: ROPCIE_F_*
 * @srqn: XRC requests: number of the shared receive queue that they are for;
 *	zero for all others
 * @mq: destination message queue (mq_id.h)
 * @src_qpn: sending QP, 24 bits; zero for ROPCIE_OP_ETH
 * @psn: packet sequence number, 24 bits
 * @msg_len: bytes of the whole message
 * @frag_len: payload bytes of this record
 * @imm: immediate data as the poster gave it (network order, opaque here);
 *	with ROPCIE_F_INV the key to invalidate; ROPCIE_OP_READ: payload bytes of
 *	each response but the last; ROPCIE_OP_ASK: ROPCIE_ASK_*; ROPCIE_OP_GRANT,
 *	REVOKE, RETURN: the grant
 * @inl: payload of records with at most ROPCIE_SLOT_INLINE bytes; what it
 *	does not fill is ignored
 * @aeth: operands of ROPCIE_OP_ACK
 * @reth: operands of requests that name remote memory: key and address (all
 *	but the later records of a WRITE), 64-bit operands of atomics, and the
 *	payload of a WRITE with at most ROPCIE_SLOT_WRITE_INLINE bytes, or where the
 *	answers to a READ may be placed
 * @grant: what is placed: number of the grant
 * @orig: ROPCIE_OP_ATOMIC_RESP: the old value, low word first
 * @deth: ROPCIE_OP_DATAGRAM: Q_Key, enum ropcie_net, VLAN
 * @operands: zero for all others
 * @valid: epoch << 32 | low 32 bits of (slot position + 1); written last
 */
struct ropcie_slot {
	u8 op;
	u8 flags;
	__le16 srqn;
	__le32 mq;
	__le32 src_qpn;
	__le32 psn;
	__le32 msg_len;
	__le32 frag_len;
	__le32 imm;
	union {
		u8 inl[ROPCIE_SLOT_INLINE];
		struct {
			__le32 msn;
			__le32 credits;
			u8 syndrome;
			u8 timer;
			u8 rsvd[18];
		} aeth;
		struct {
			union {
				u8 inl[ROPCIE_SLOT_WRITE_INLINE];
				struct {
					__le32 compare_add[2];
					__le32 swap[2];
				};
				struct {
					__le32 sink_addr[2];
					__le32 sink_key;
				};
			};
			__le32 rkey;
			__le32 addr[2];
		} reth;
		__le32 grant;
		__le32 orig[2];
		struct {
			__le32 qkey;
			u8 net;
			u8 rsvd;
			__le16 vlan;
			u8 rsvd2[20];
		} deth;
		__le32 operands[ROPCIE_SLOT_INLINE / 4];
	};
	__le64 valid;
};

static_assert(sizeof(struct ropcie_slot) == ROPCIE_SLOT_SIZE, "slot size");
static_assert(offsetof(struct ropcie_slot, imm) == 24, "slot layout");
static_assert(offsetof(struct ropcie_slot, inl) == 28, "slot layout");
static_assert(offsetof(struct ropcie_slot, reth.addr) == 48, "slot layout");
static_assert(offsetof(struct ropcie_slot, valid) == 56, "slot layout");

/**
 * struct ropcie_hdr - a record's header in private memory and native order
 * @op: enum ropcie_op
 * @flags: ROPCIE_F_*
 * @srqn: XRC requests: shared receive queue that they are for. With @rkey also
 *	of a READ_RESP; that is not encoded
 * @mq: destination message queue
 * @src_qpn: sending QP
 * @psn: packet sequence number
 * @msg_len: bytes of the whole message
 * @frag_len: payload bytes of this record
 * @imm: immediate data, opaque; key to invalidate; READ: bytes of each
 *	response but the last; ASK: ROPCIE_ASK_*; GRANT, REVOKE, RETURN: number of
 *	the grant
 * @rkey: first record of a WRITE, READ, CAS, FAA, ATOMIC_WRITE; ASK, GRANT: key of
 *	the remote memory
 * @addr: its address there. With @rkey also where the payload of a READ_RESP
 *	comes from; that is not encoded
 * @compare_add: CAS: value to compare with; FAA: value to add
 * @swap: CAS: new value
 * @sink_addr: READ with ROPCIE_F_PLACED: where its answer goes; private: READ_RESP,
 *	where this one goes
 * @sink_key: key of that memory
 * @grant: what is placed: number of the grant
 * @msn: ACK: messages completed by the responder, 24 bits
 * @credits: ACK: receive work requests ready beyond @msn
 * @syndrome: ACK: enum ropcie_syndrome
 * @timer: ACK: RNR timer code (IBTA table 45), 0 to 31
 * @qkey: DATAGRAM: Q_Key
 * @net: DATAGRAM: enum ropcie_net
 * @vlan: DATAGRAM: VLAN identifier, or ROPCIE_NO_VLAN
 * @orig: ATOMIC_RESP: value before
 * @operands: all of them from @compare_add on; of another opcode they mean nothing
 */
struct ropcie_hdr {
	u8 op;
	u8 flags;
	u16 srqn;
	u32 mq;
	u32 src_qpn;
	u32 psn;
	u32 msg_len;
	u32 frag_len;
	u32 imm;
	u32 rkey;
	u64 addr;
	union {
		struct {
			u64 compare_add;
			u64 swap;
		};
		struct {
			u64 sink_addr;
			u32 sink_key;
			u32 grant;
		};
		struct {
			u32 msn;
			u32 credits;
			u8 syndrome;
			u8 timer;
		};
		struct {
			u32 qkey;
			u8 net;
			u16 vlan;
		};
		u64 orig;
		u64 operands[2];
	};
};

static_assert(sizeof(struct ropcie_hdr) ==
		      offsetof(struct ropcie_hdr, operands) +
			      sizeof(((struct ropcie_hdr *)0)->operands),
	      "operands cover all that lies in their place");

/* Requests that are answered with data, in as many records as it takes. */
static inline bool ropcie_op_fetches(u8 op)
{
	return op == ROPCIE_OP_READ || op == ROPCIE_OP_CAS ||
	       op == ROPCIE_OP_FAA;
}

/* Requests whose payload goes to memory that they name. */
static inline bool ropcie_op_writes(u8 op)
{
	return op == ROPCIE_OP_WRITE || op == ROPCIE_OP_ATOMIC_WRITE;
}

/* Requests that only a connected queue pair knows. */
static inline bool ropcie_op_connected(u8 op)
{
	return op == ROPCIE_OP_SEND || ropcie_op_writes(op) ||
	       ropcie_op_fetches(op);
}

/* Those of them that only a reliable one knows. */
static inline bool ropcie_op_reliable(u8 op)
{
	return op == ROPCIE_OP_ATOMIC_WRITE || ropcie_op_fetches(op);
}

/* What direct placement is agreed on with. */
static inline bool ropcie_op_grants(u8 op)
{
	return op >= ROPCIE_OP_ASK;
}

/* Does the message take a receive work request at the other end? */
static inline bool ropcie_op_receives(u8 op, bool imm)
{
	return op == ROPCIE_OP_SEND || op == ROPCIE_OP_DATAGRAM ||
	       (op == ROPCIE_OP_WRITE && imm);
}

/* PSNs that a READ of @len bytes takes, and a message of so many records. */
static inline u32 ropcie_num_psn(u32 len, u32 frag)
{
	return len ? DIV_ROUND_UP(len, frag) : 1;
}

/**
 * ropcie_valid() - the valid word of the record at a slot position
 * @epoch: epoch that the receiver announced
 * @pos: free-running slot position
 */
static inline u64 ropcie_valid(u32 epoch, u64 pos)
{
	return ((u64)epoch << 32) | (u32)(pos + 1);
}

/* By opcode: one more than the most payload bytes that ride in the slot; 0: none does. */
extern const u8 ropcie_slot_room[ROPCIE_OP_END];

/**
 * ropcie_hdr_inline() - does the payload of @hdr ride in the slot?
 * @hdr: header with a valid opcode
 */
static inline bool ropcie_hdr_inline(const struct ropcie_hdr *hdr)
{
	return hdr->frag_len < ropcie_slot_room[hdr->op] &&
	       !(hdr->flags & ROPCIE_F_PLACED);
}

/**
 * ropcie_hdr_ring_len() - bytes that the record takes of the payload ring
 * @hdr: header with a valid opcode
 */
static inline u32 ropcie_hdr_ring_len(const struct ropcie_hdr *hdr)
{
	if (ropcie_hdr_inline(hdr) || (hdr->flags & ROPCIE_F_PLACED))
		return 0;
	return ALIGN(hdr->frag_len, (u32)ROPCIE_SLOT_SIZE);
}

/**
 * ropcie_wire_encode() - write all of a slot but its inline payload and valid
 * @hdr: header; must be valid
 * @slot: private slot to fill; bytes not used are zero
 */
void ropcie_wire_encode(const struct ropcie_hdr *hdr, struct ropcie_slot *slot);

/**
 * ropcie_wire_decode() - check a slot and turn it into a header
 * @slot: private copy of a slot; never the shared memory itself
 * @hdr: result; undefined after an error
 *
 * Return: 0, or -EBADMSG when any field is out of its range, a reserved field
 * is not zero, or fields contradict each other.
 */
int ropcie_wire_decode(const struct ropcie_slot *slot, struct ropcie_hdr *hdr);

/*
 * PSNs in flight stay far below half of the 24-bit circle, so that old and
 * new can be told apart. One READ may not take more either.
 */
#define ROPCIE_MAX_INFLIGHT BIT(22)
/* Smallest responses that a READ may ask for. */
#define ROPCIE_MIN_READ_FRAG ROPCIE_SLOT_SIZE

/**
 * ropcie_psn_diff() - signed distance of two PSNs in the 24-bit circle
 * @a: minuend
 * @b: subtrahend
 *
 * Return: a - b, from -2^23 to 2^23 - 1.
 */
static inline s32 ropcie_psn_diff(u32 a, u32 b)
{
	return (s32)((a - b) << 8) >> 8;
}

static inline u32 ropcie_psn_add(u32 psn, u32 n)
{
	return (psn + n) & ROPCIE_PSN_MASK;
}

/**
 * ropcie_rnr_timer_ns() - the time that an RNR timer code stands for
 * @code: 0 to 31 (IBTA table 45; 0 is the longest, 655.36 ms)
 */
u64 ropcie_rnr_timer_ns(u8 code);

#endif /* ROPCIE_CORE_WIRE_H */
