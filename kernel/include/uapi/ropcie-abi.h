/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * What the RoPCIe kernel driver and its libibverbs provider agree on.
 *
 * This is the only file that both sides include. It owns the layout of the
 * driver-private parts of uverbs commands and responses, and nothing else: the
 * commands themselves are those of <rdma/ib_user_verbs.h>.
 *
 * Rules for every structure here:
 *  - fixed-width fields, 8-byte multiples, the same for 32- and 64-bit users;
 *  - reserved fields are written as zero and refused when they are not;
 *  - a bit that the receiver does not know is refused, never ignored;
 *  - structures only grow at their end, and whoever reads a shorter one takes
 *    the missing fields for zero. Whoever is given a longer one refuses it
 *    (-EOPNOTSUPP) unless the part it does not know is zero.
 */
#ifndef ROPCIE_ABI_H
#define ROPCIE_ABI_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>

/*
 * ib_device_ops.uverbs_abi_ver; shown in /sys/class/infiniband_verbs/.../
 * abi_version. Raised only for a change that feature bits cannot express.
 */
#define ROPCIE_ABI_VERSION 4

/*
 * The ib_device's driver_id is RDMA_DRIVER_UNKNOWN, which other out-of-tree
 * drivers use as well, and its name is whatever an administrator wants. The
 * provider finds its devices by this text in /sys/class/infiniband/.../hca_type.
 */
#define ROPCIE_ABI_HCA_TYPE "RoPCIe"

/**
 * enum ropcie_abi_ctx_feature - what a context can do beyond the uverbs
 * commands
 * @ROPCIE_ABI_CTX_MAPPED_QUEUES: queues can be mapped into the process, see
 *	&struct ropcie_abi_create_queue_req
 * @ROPCIE_ABI_CTX_FEATURES_ALL: every bit that this header defines
 */
enum ropcie_abi_ctx_feature {
	ROPCIE_ABI_CTX_MAPPED_QUEUES = 1 << 0,
	ROPCIE_ABI_CTX_FEATURES_ALL = ROPCIE_ABI_CTX_MAPPED_QUEUES,
};

/**
 * struct ropcie_abi_alloc_ucontext_req - sent by the provider with GET_CONTEXT
 * @comp_mask: features that the provider asks for, of
 *             &enum ropcie_abi_ctx_feature. None of them has to be asked for
 *             here so far: a queue that is to be mapped says so itself. The
 *             driver refuses the context with -EOPNOTSUPP when a bit is set
 *             that it does not know.
 * @reserved: zero, or the driver refuses with -EINVAL
 *
 * A request of no bytes at all is the same as one of zeros.
 */
struct ropcie_abi_alloc_ucontext_req {
	__u32 comp_mask;
	__u32 reserved;
};

/**
 * struct ropcie_abi_alloc_ucontext_resp - the driver's answer to GET_CONTEXT
 * @abi_version: the driver's ROPCIE_ABI_VERSION
 * @comp_mask: those of the request
 * @features: every feature that the driver knows
 * @max_inline_data: most bytes of inline data of a work request in a mapped
 *                   queue; the uverbs commands do not carry any
 * @reserved: zero
 */
struct ropcie_abi_alloc_ucontext_resp {
	__u32 abi_version;
	__u32 comp_mask;
	__u32 features;
	__u32 max_inline_data;
	__u32 reserved[4];
};

/**
 * enum ropcie_abi_queue_flag - what a new queue is to be
 * @ROPCIE_ABI_QUEUE_MAPPED: its rings are shared with the process
 */
enum ropcie_abi_queue_flag {
	ROPCIE_ABI_QUEUE_MAPPED = 1 << 0,
};

/**
 * struct ropcie_abi_create_queue_req - with CREATE_CQ, CREATE_QP, CREATE_(X)SRQ
 * @flags: of &enum ropcie_abi_queue_flag; an unknown one is refused with
 *	-EOPNOTSUPP
 * @reserved: zero, or -EINVAL
 *
 * None, or one of zeros, makes a queue that the uverbs commands serve.
 *
 * Of a mapped queue, the uverbs commands POST_SEND, POST_RECV without work
 * requests are the doorbell, and POLL_CQ finds nothing but lets the device
 * make progress. REQ_NOTIFY_CQ asks for no event, which is @wake's: it says that
 * a process which has made progress so will not for a while; and with completions
 * that it has not taken it raises the event that @wake asks for at once. A process
 * that asks for one calls so when its last poll has left some, or there are some
 * that no event has told of (@told): the next event may be the last.
 */
struct ropcie_abi_create_queue_req {
	__u32 flags;
	__u32 reserved;
};

/**
 * enum ropcie_abi_notify - events that a process asks for, in @wake of a CQ
 * @ROPCIE_ABI_NOTIFY_SOLICITED: one for the next solicited completion
 * @ROPCIE_ABI_NOTIFY_ANY: one for the next completion
 */
enum ropcie_abi_notify {
	ROPCIE_ABI_NOTIFY_SOLICITED = 1 << 0,
	ROPCIE_ABI_NOTIFY_ANY = 1 << 1,
};

/* In @wake of every ring: its object is no more, as when the device has gone. */
#define ROPCIE_ABI_RING_GONE 0x80000000u

/**
 * struct ropcie_abi_ring - indices of a shared ring, in shared memory
 * @head: entries that were ever filled, modulo 2^32; the filling side writes it
 * @told: of completions: @head when the last event was raised
 * @reserved0: so that the two sides write to different cache lines
 * @tail: entries that the taking side is done with
 * @wake: of rings that the kernel takes from: a filled entry needs a doorbell.
 *	Read it behind a full barrier after @head was written. Of completions:
 *	the events that the process asks for, &enum ropcie_abi_notify, before a
 *	full barrier and its last look at @head; the kernel writes 0 when it
 *	raises one. ROPCIE_ABI_RING_GONE is the last that the kernel writes: the
 *	queue is destroyed, or a CQ has been resized and has another ring.
 * @reserved1: as @reserved0
 *
 * Entry n is at (n modulo size) * stride of the ring. Both indices are 0 after
 * creation and after the queue pair's transition to RESET.
 *
 * An entry of a work queue is done with when its work request is complete: the
 * process fills no more than it asked for when it created the queue.
 */
struct ropcie_abi_ring {
	__u32 head;
	__u32 told;
	__u32 reserved0[14];
	__u32 tail;
	__u32 wake;
	__u32 reserved1[14];
};

/**
 * struct ropcie_abi_ring_place - where a ring is in the queue's memory
 * @ctl: offset of its &struct ropcie_abi_ring
 * @entries: offset of its first entry
 * @size: number of entries, a power of two
 * @stride: bytes from one entry to the next
 */
struct ropcie_abi_ring_place {
	__u32 ctl;
	__u32 entries;
	__u32 size;
	__u32 stride;
};

/**
 * struct ropcie_abi_create_queue_resp - the answer to CREATE_CQ, CREATE_QP,
 *	CREATE_(X)SRQ, RESIZE_CQ, and through &struct ropcie_abi_resize_srq_req
 * @mmap_offset: where the queue's memory is in the file of the context
 * @mmap_length: its bytes, in whole pages
 * @ring: of a QP: send queue, receive queue (none with an SRQ). Of the others:
 *	the first one
 *
 * Not written when the queue is not mapped. Entries are a struct ropcie_abi_send_wqe,
 * ropcie_abi_recv_wqe, ropcie_abi_cqe. Resizing moves a queue to new memory, with
 * indices where they were; what it takes out of the old memory it takes with the
 * call.
 */
struct ropcie_abi_create_queue_resp {
	__aligned_u64 mmap_offset;
	__aligned_u64 mmap_length;
	struct ropcie_abi_ring_place ring[2];
};

/**
 * struct ropcie_abi_resize_srq_req - with a MODIFY_SRQ that resizes a mapped SRQ
 * @resp: address of a struct ropcie_abi_create_queue_resp, because the command
 *	has no answer of its own
 */
struct ropcie_abi_resize_srq_req {
	__aligned_u64 resp;
};

/**
 * enum ropcie_abi_mr_flag - a kind of region
 * @ROPCIE_ABI_MR_NULL: the null region of ibv_alloc_null_mr(3); address, length and
 *	access are 0
 */
enum ropcie_abi_mr_flag {
	ROPCIE_ABI_MR_NULL = 1 << 0,
};

/**
 * struct ropcie_abi_reg_mr_req - with REG_MR; none, or one of zeros: of user memory
 * @flags: of &enum ropcie_abi_mr_flag; an unknown one is refused with -EOPNOTSUPP
 * @reserved: zero, or -EINVAL
 */
struct ropcie_abi_reg_mr_req {
	__u32 flags;
	__u32 reserved;
};

/* Most bytes of inline data of a work request. */
#define ROPCIE_ABI_MAX_INLINE_DATA 1024

/**
 * struct ropcie_abi_sge - a part of memory
 * @addr: address
 * @length: bytes
 * @lkey: key of the region
 */
struct ropcie_abi_sge {
	__aligned_u64 addr;
	__u32 length;
	__u32 lkey;
};

/**
 * struct ropcie_abi_send_wqe - a work request in a send queue
 * @wr_id: comes back with the completion
 * @remote_addr: RDMA and atomic operations; bind: first byte of the region
 * @compare_add: atomic operations: compare, or add; bind: length
 * @swap: compare and swap; bind: of enum ib_uverbs_access_flags
 * @opcode: of enum ib_uverbs_wr_opcode
 * @flags: of enum ib_uverbs_wr_send_flags: fence, signaled, solicited, inline
 * @num_sge: entries of @sge
 * @inline_length: with the flag inline: bytes of data in the place of @sge
 * @imm: immediate data (big-endian), or key to invalidate; bind: key of the
 *	region
 * @rkey: RDMA and atomic operations; bind: key that the window gets
 * @ah: datagrams: number of the address handle, which stays until the work
 *	request is complete (as ibv_post_send() has it)
 * @remote_qpn: datagrams
 * @remote_qkey: datagrams
 * @remote_srqn: XRC: number of the shared receive queue at the other end, which
 *	is less than 65536; zero for the others
 * @sge: as many as the queue pair was created with, or inline data
 *
 * What is wrong with an entry completes it with IB_WC_LOC_QP_OP_ERR.
 */
struct ropcie_abi_send_wqe {
	__aligned_u64 wr_id;
	__aligned_u64 remote_addr;
	__aligned_u64 compare_add;
	__aligned_u64 swap;
	__u32 opcode;
	__u32 flags;
	__u32 num_sge;
	__u32 inline_length;
	__u32 imm;
	__u32 rkey;
	__u32 ah;
	__u32 remote_qpn;
	__u32 remote_qkey;
	__u32 remote_srqn;
	struct ropcie_abi_sge sge[];
};

/**
 * struct ropcie_abi_recv_wqe - a work request in a receive queue
 * @wr_id: comes back with the completion
 * @num_sge: entries of @sge
 * @reserved: zero
 * @sge: as many as the queue was created with
 *
 * What is wrong with an entry makes it one that has no room.
 */
struct ropcie_abi_recv_wqe {
	__aligned_u64 wr_id;
	__u32 num_sge;
	__u32 reserved;
	struct ropcie_abi_sge sge[];
};

/**
 * enum ropcie_abi_wc_flag - what a completion has
 * @ROPCIE_ABI_WC_GRH: the first 40 bytes of the buffer are a GRH
 * @ROPCIE_ABI_WC_IMM: @imm is immediate data
 * @ROPCIE_ABI_WC_INV: @imm is the key that was invalidated
 */
enum ropcie_abi_wc_flag {
	ROPCIE_ABI_WC_GRH = 1 << 0,
	ROPCIE_ABI_WC_IMM = 1 << 1,
	ROPCIE_ABI_WC_INV = 1 << 2,
};

/**
 * struct ropcie_abi_cqe - a completion
 * @wr_id: of the work request
 * @timestamp: when it was written, CLOCK_MONOTONIC, ns; 0 when the CQ was made without
 *	IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION
 * @status: enum ibv_wc_status
 * @opcode: enum ibv_wc_opcode
 * @vendor_err: 0
 * @byte_len: bytes of the message
 * @imm: as @flags says
 * @qp_num: queue pair
 * @src_qp: the other end's, of receives
 * @flags: of &enum ropcie_abi_wc_flag
 * @reserved: zero
 */
struct ropcie_abi_cqe {
	__aligned_u64 wr_id;
	__aligned_u64 timestamp;
	__u32 status;
	__u32 opcode;
	__u32 vendor_err;
	__u32 byte_len;
	__u32 imm;
	__u32 qp_num;
	__u32 src_qp;
	__u32 flags;
	__u32 reserved[4];
};

/**
 * struct ropcie_abi_create_ah_resp - the answer to CREATE_AH
 * @number: names the address handle in mapped queues of its protection domain
 * @reserved: zero
 */
struct ropcie_abi_create_ah_resp {
	__u32 number;
	__u32 reserved;
};

/**
 * enum ropcie_abi_dm_method - methods of UVERBS_OBJECT_DM that are the driver's
 *	own
 * @ROPCIE_ABI_METHOD_DM_QUERY: tells a process that was given a context what it
 *	needs to map a device memory of that context
 */
enum ropcie_abi_dm_method {
	ROPCIE_ABI_METHOD_DM_QUERY = (1U << UVERBS_ID_NS_SHIFT),
};

/**
 * enum ropcie_abi_dm_query_attr - attributes of ROPCIE_ABI_METHOD_DM_QUERY
 * @ROPCIE_ABI_ATTR_QUERY_DM_HANDLE: in: the device memory
 * @ROPCIE_ABI_ATTR_QUERY_DM_MMAP_OFFSET: out, u64: as when it was allocated
 * @ROPCIE_ABI_ATTR_QUERY_DM_LENGTH: out, u64: bytes
 */
enum ropcie_abi_dm_query_attr {
	ROPCIE_ABI_ATTR_QUERY_DM_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	ROPCIE_ABI_ATTR_QUERY_DM_MMAP_OFFSET,
	ROPCIE_ABI_ATTR_QUERY_DM_LENGTH,
};

/**
 * enum ropcie_abi_attr - attributes of uverbs methods that are the driver's own
 * @ROPCIE_ABI_ATTR_ALLOC_DM_MMAP_OFFSET: UVERBS_METHOD_DM_ALLOC, out, u64: where
 *	the device memory is in the file of the context, for mmap() with
 *	MAP_SHARED; all of it, in whole pages
 */
enum ropcie_abi_attr {
	ROPCIE_ABI_ATTR_ALLOC_DM_MMAP_OFFSET = (1U << UVERBS_ID_NS_SHIFT),
};

#endif /* ROPCIE_ABI_H */
