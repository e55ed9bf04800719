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
#define ROPCIE_ABI_VERSION 1

/*
 * The ib_device's driver_id is RDMA_DRIVER_UNKNOWN, which other out-of-tree
 * drivers use as well. The provider finds its devices by this name prefix.
 */
#define ROPCIE_ABI_DEVICE_NAME_PREFIX "ropcie"

/**
 * enum ropcie_abi_ctx_feature - what a context can do beyond the uverbs
 * commands. No bit is defined yet: the mapped queues will be the first.
 * @ROPCIE_ABI_CTX_FEATURES_ALL: every bit that this header defines
 */
enum ropcie_abi_ctx_feature {
	ROPCIE_ABI_CTX_FEATURES_ALL = 0,
};

/**
 * struct ropcie_abi_alloc_ucontext_req - sent by the provider with GET_CONTEXT
 * @comp_mask: features that the provider asks for, of
 *             &enum ropcie_abi_ctx_feature. The driver refuses the context
 *             with -EOPNOTSUPP when a bit is set that it does not know.
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
 * @comp_mask: features that are on in this context: those of the request that
 *             the driver granted
 * @features: every feature that the driver knows and could grant, so that a
 *            program can tell "not asked for" from "not there"
 * @max_inline_data: bytes of inline data that a work request may carry in a
 *                   queue of this context; 0 when the uverbs commands are all
 *                   there is, because they do not carry inline data
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
