/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The part of libibverbs' private ABI 34 (of rdma-core 44 and later) that this
 * provider uses: what a provider must lay out like the library does.
 *
 * Distributions do not package <infiniband/driver.h>, so it is declared here,
 * by the names that the real header uses; verbs_private.h includes the real one
 * instead when the build points at an rdma-core tree. Every size and every
 * offset that the provider or the library reaches through is asserted below.
 * This file must not know anything of RoPCIe.
 */
#ifndef VERBS_PRIVATE_34_H
#define VERBS_PRIVATE_34_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#ifndef __LP64__
#error "libibverbs' private ABI is known for 64-bit systems only"
#endif

#define VERBS_ASSERT_OFFSET(type, member, offset)                              \
	static_assert(offsetof(type, member) == (offset),                      \
		      #type "." #member " is not where ABI 34 has it")
#define VERBS_ASSERT_SIZE(type, size)                                          \
	static_assert(sizeof(type) == (size),                                  \
		      "the size of " #type " is not that of ABI 34")

/* The public structures that private ones begin with or that are passed on. */
VERBS_ASSERT_SIZE(struct verbs_context, 648);
VERBS_ASSERT_OFFSET(struct verbs_context, priv, 208);
VERBS_ASSERT_OFFSET(struct verbs_context, sz, 312);
VERBS_ASSERT_OFFSET(struct verbs_context, context, 320);
VERBS_ASSERT_OFFSET(struct verbs_context, context.device, 320);
VERBS_ASSERT_OFFSET(struct verbs_context, context.cmd_fd, 584);
VERBS_ASSERT_OFFSET(struct verbs_context, context.async_fd, 588);
VERBS_ASSERT_OFFSET(struct verbs_context, context.num_comp_vectors, 592);

/*
 * Devices
 */
struct verbs_list_node {
	struct verbs_list_node *next, *prev;
};

struct ibv_command_buffer;
struct verbs_context_ops;

enum {
	VERBS_MATCH_SENTINEL = 0,
};

struct verbs_match_ent {
	void *driver_data;
	union {
		const char *modalias;
		uint64_t driver_id;
	} u;
	uint16_t vendor;
	uint16_t device;
	uint8_t kind;
};

VERBS_ASSERT_OFFSET(struct verbs_match_ent, driver_data, 0);
VERBS_ASSERT_OFFSET(struct verbs_match_ent, u, 8);
VERBS_ASSERT_OFFSET(struct verbs_match_ent, vendor, 16);
VERBS_ASSERT_OFFSET(struct verbs_match_ent, device, 18);
VERBS_ASSERT_OFFSET(struct verbs_match_ent, kind, 20);
VERBS_ASSERT_SIZE(struct verbs_match_ent, 24);

struct verbs_sysfs_dev {
	struct verbs_list_node entry;
	void *provider_data;
	const struct verbs_match_ent *match;
	unsigned int flags;
	char sysfs_name[IBV_SYSFS_NAME_MAX];
	dev_t sysfs_cdev;
	char ibdev_name[IBV_SYSFS_NAME_MAX];
	char ibdev_path[IBV_SYSFS_PATH_MAX];
	/* more, that we do not use */
};

VERBS_ASSERT_OFFSET(struct verbs_sysfs_dev, provider_data, 16);
VERBS_ASSERT_OFFSET(struct verbs_sysfs_dev, sysfs_name, 36);
VERBS_ASSERT_OFFSET(struct verbs_sysfs_dev, sysfs_cdev, 104);
VERBS_ASSERT_OFFSET(struct verbs_sysfs_dev, ibdev_name, 112);
VERBS_ASSERT_OFFSET(struct verbs_sysfs_dev, ibdev_path, 176);

struct verbs_device_ops {
	const char *name;
	uint32_t match_min_abi_version;
	uint32_t match_max_abi_version;
	const struct verbs_match_ent *match_table;
	const struct verbs_device_ops **static_providers;
	bool (*match_device)(struct verbs_sysfs_dev *sysfs_dev);
	struct verbs_context *(*alloc_context)(struct ibv_device *device,
					       int cmd_fd, void *private_data);
	struct verbs_context *(*import_context)(struct ibv_device *device,
						int cmd_fd);
	struct verbs_device *(*alloc_device)(struct verbs_sysfs_dev *sysfs_dev);
	void (*uninit_device)(struct verbs_device *device);
};

VERBS_ASSERT_OFFSET(struct verbs_device_ops, name, 0);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, match_min_abi_version, 8);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, match_max_abi_version, 12);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, match_table, 16);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, static_providers, 24);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, match_device, 32);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, alloc_context, 40);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, import_context, 48);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, alloc_device, 56);
VERBS_ASSERT_OFFSET(struct verbs_device_ops, uninit_device, 64);
VERBS_ASSERT_SIZE(struct verbs_device_ops, 72);

struct verbs_device {
	struct ibv_device device;
	const struct verbs_device_ops *ops;
	atomic_int refcount;
	struct verbs_list_node entry;
	struct verbs_sysfs_dev *sysfs;
	uint64_t core_support;
};

VERBS_ASSERT_OFFSET(struct verbs_device, device, 0);
VERBS_ASSERT_OFFSET(struct verbs_device, ops, 664);
VERBS_ASSERT_OFFSET(struct verbs_device, refcount, 672);
VERBS_ASSERT_OFFSET(struct verbs_device, entry, 680);
VERBS_ASSERT_OFFSET(struct verbs_device, sysfs, 696);
VERBS_ASSERT_OFFSET(struct verbs_device, core_support, 704);
VERBS_ASSERT_SIZE(struct verbs_device, 712);

/*
 * Objects
 */
enum ibv_mr_type {
	IBV_MR_TYPE_MR,
	IBV_MR_TYPE_NULL_MR,
	IBV_MR_TYPE_IMPORTED_MR,
	IBV_MR_TYPE_DMABUF_MR,
};

struct verbs_mr {
	struct ibv_mr ibv_mr;
	enum ibv_mr_type mr_type;
	int access;
};

VERBS_ASSERT_OFFSET(struct verbs_mr, ibv_mr, 0);
VERBS_ASSERT_OFFSET(struct verbs_mr, ibv_mr.lkey, 36);
VERBS_ASSERT_OFFSET(struct verbs_mr, mr_type, 48);
VERBS_ASSERT_OFFSET(struct verbs_mr, access, 52);
VERBS_ASSERT_SIZE(struct verbs_mr, 56);

struct verbs_dm {
	struct ibv_dm dm;
	uint32_t handle;
};

VERBS_ASSERT_OFFSET(struct verbs_dm, dm.handle, 28);
VERBS_ASSERT_OFFSET(struct verbs_dm, handle, 32);
VERBS_ASSERT_SIZE(struct verbs_dm, 40);

struct verbs_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t comp_mask;
	uint32_t handle;
};

VERBS_ASSERT_OFFSET(struct verbs_xrcd, xrcd, 0);
VERBS_ASSERT_OFFSET(struct verbs_xrcd, comp_mask, 8);
VERBS_ASSERT_OFFSET(struct verbs_xrcd, handle, 12);
VERBS_ASSERT_SIZE(struct verbs_xrcd, 16);

struct verbs_srq {
	struct ibv_srq srq;
	enum ibv_srq_type srq_type;
	struct verbs_xrcd *xrcd;
	struct ibv_cq *cq;
	uint32_t srq_num;
};

VERBS_ASSERT_OFFSET(struct verbs_srq, srq, 0);
VERBS_ASSERT_OFFSET(struct verbs_srq, srq_type, 128);
VERBS_ASSERT_OFFSET(struct verbs_srq, xrcd, 136);
VERBS_ASSERT_OFFSET(struct verbs_srq, cq, 144);
VERBS_ASSERT_OFFSET(struct verbs_srq, srq_num, 152);
VERBS_ASSERT_SIZE(struct verbs_srq, 160);

struct verbs_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex cq_ex;
	};
};

VERBS_ASSERT_OFFSET(struct verbs_cq, cq, 0);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq.handle, 24);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq_ex, 0);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq_ex.status, 132);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq_ex.wr_id, 136);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq_ex.start_poll, 144);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq_ex.next_poll, 152);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq_ex.end_poll, 160);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq_ex.read_opcode, 168);
VERBS_ASSERT_OFFSET(struct verbs_cq, cq_ex.read_dlid_path_bits, 240);
VERBS_ASSERT_SIZE(struct verbs_cq, 288);

enum verbs_qp_mask {
	VERBS_QP_XRCD = 1 << 0,
	VERBS_QP_EX = 1 << 1,
};

struct verbs_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex qp_ex;
	};
	uint32_t comp_mask;
	struct verbs_xrcd *xrcd;
};

VERBS_ASSERT_OFFSET(struct verbs_qp, qp, 0);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp.handle, 48);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp.qp_num, 52);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp.qp_type, 60);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex, 0);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_id, 168);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_flags, 176);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_atomic_cmp_swp, 184);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_atomic_fetch_add, 192);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_rdma_read, 216);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_send, 240);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_set_ud_addr, 272);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_set_inline_data, 288);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_set_sge_list, 312);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_start, 320);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_complete, 328);
VERBS_ASSERT_OFFSET(struct verbs_qp, qp_ex.wr_abort, 336);
/* The public structure grows, and the ABI keeps its number. */
VERBS_ASSERT_OFFSET(struct verbs_qp, comp_mask, sizeof(struct ibv_qp_ex));
VERBS_ASSERT_OFFSET(struct verbs_qp, xrcd, sizeof(struct ibv_qp_ex) + 8);
VERBS_ASSERT_SIZE(struct verbs_qp, sizeof(struct ibv_qp_ex) + 16);

/*
 * The operations that a provider gives to the library. One that it leaves NULL
 * answers EOPNOTSUPP.
 */
typedef void (*verbs_op_unused)(void);

struct verbs_context_ops {
	int (*advise_mr)(struct ibv_pd *, enum ibv_advise_mr_advice, uint32_t,
			 struct ibv_sge *, uint32_t);
	struct ibv_dm *(*alloc_dm)(struct ibv_context *,
				   struct ibv_alloc_dm_attr *);
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *, enum ibv_mw_type);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *);
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *,
					      struct ibv_parent_domain_init_attr *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	struct ibv_td *(*alloc_td)(struct ibv_context *,
				   struct ibv_td_init_attr *);
	verbs_op_unused async_event;
	verbs_op_unused attach_counters_point_flow;
	int (*attach_mcast)(struct ibv_qp *, const union ibv_gid *, uint16_t);
	int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
	int (*close_xrcd)(struct ibv_xrcd *);
	verbs_op_unused cq_event;
	struct ibv_ah *(*create_ah)(struct ibv_pd *, struct ibv_ah_attr *);
	verbs_op_unused create_counters;
	struct ibv_cq *(*create_cq)(struct ibv_context *, int,
				    struct ibv_comp_channel *, int);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *,
					  struct ibv_cq_init_attr_ex *);
	struct ibv_flow *(*create_flow)(struct ibv_qp *,
					struct ibv_flow_attr *);
	verbs_op_unused create_flow_action_esp;
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *,
				       struct ibv_qp_init_attr_ex *);
	verbs_op_unused create_rwq_ind_table;
	struct ibv_srq *(*create_srq)(struct ibv_pd *,
				      struct ibv_srq_init_attr *);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *,
					 struct ibv_srq_init_attr_ex *);
	verbs_op_unused create_wq;
	int (*dealloc_mw)(struct ibv_mw *);
	int (*dealloc_pd)(struct ibv_pd *);
	int (*dealloc_td)(struct ibv_td *);
	int (*dereg_mr)(struct verbs_mr *);
	int (*destroy_ah)(struct ibv_ah *);
	verbs_op_unused destroy_counters;
	int (*destroy_cq)(struct ibv_cq *);
	int (*destroy_flow)(struct ibv_flow *);
	verbs_op_unused destroy_flow_action;
	int (*destroy_qp)(struct ibv_qp *);
	verbs_op_unused destroy_rwq_ind_table;
	int (*destroy_srq)(struct ibv_srq *);
	verbs_op_unused destroy_wq;
	int (*detach_mcast)(struct ibv_qp *, const union ibv_gid *, uint16_t);
	void (*free_context)(struct ibv_context *);
	int (*free_dm)(struct ibv_dm *);
	int (*get_srq_num)(struct ibv_srq *, uint32_t *);
	struct ibv_dm *(*import_dm)(struct ibv_context *, uint32_t);
	struct ibv_mr *(*import_mr)(struct ibv_pd *, uint32_t);
	struct ibv_pd *(*import_pd)(struct ibv_context *, uint32_t);
	int (*modify_cq)(struct ibv_cq *, struct ibv_modify_cq_attr *);
	verbs_op_unused modify_flow_action_esp;
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	verbs_op_unused modify_qp_rate_limit;
	int (*modify_srq)(struct ibv_srq *, struct ibv_srq_attr *, int);
	verbs_op_unused modify_wq;
	struct ibv_qp *(*open_qp)(struct ibv_context *,
				  struct ibv_qp_open_attr *);
	struct ibv_xrcd *(*open_xrcd)(struct ibv_context *,
				      struct ibv_xrcd_init_attr *);
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *,
			 struct ibv_recv_wr **);
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *,
			 struct ibv_send_wr **);
	verbs_op_unused post_srq_ops;
	int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *,
			     struct ibv_recv_wr **);
	int (*query_device_ex)(struct ibv_context *,
			       const struct ibv_query_device_ex_input *,
			       struct ibv_device_attr_ex *, size_t);
	verbs_op_unused query_ece;
	int (*query_port)(struct ibv_context *, uint8_t,
			  struct ibv_port_attr *);
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int,
			struct ibv_qp_init_attr *);
	verbs_op_unused query_qp_data_in_order;
	int (*query_rt_values)(struct ibv_context *, struct ibv_values_ex *);
	int (*query_srq)(struct ibv_srq *, struct ibv_srq_attr *);
	verbs_op_unused read_counters;
	struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *, struct ibv_dm *, uint64_t,
				    size_t, unsigned int);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t,
					uint64_t, int, int);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, uint64_t,
				 int);
	int (*req_notify_cq)(struct ibv_cq *, int);
	int (*rereg_mr)(struct verbs_mr *, int, struct ibv_pd *, void *, size_t,
			int);
	int (*resize_cq)(struct ibv_cq *, int);
	verbs_op_unused set_ece;
	void (*unimport_dm)(struct ibv_dm *);
	void (*unimport_mr)(struct ibv_mr *);
	void (*unimport_pd)(struct ibv_pd *);
};

VERBS_ASSERT_OFFSET(struct verbs_context_ops, advise_mr, 0);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, alloc_mw, 16);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, alloc_pd, 40);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, attach_mcast, 72);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, close_xrcd, 88);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, create_ah, 104);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, create_cq, 120);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, create_cq_ex, 128);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, create_flow, 136);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, create_qp, 152);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, create_qp_ex, 160);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, create_srq, 176);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, create_srq_ex, 184);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, dealloc_mw, 200);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, dealloc_pd, 208);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, dereg_mr, 224);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, destroy_ah, 232);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, destroy_cq, 248);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, destroy_flow, 256);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, destroy_qp, 272);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, destroy_srq, 288);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, detach_mcast, 304);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, free_context, 312);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, get_srq_num, 328);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, import_mr, 344);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, import_pd, 352);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, modify_cq, 360);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, modify_qp, 376);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, modify_srq, 392);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, open_qp, 408);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, open_xrcd, 416);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, poll_cq, 424);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, post_recv, 432);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, post_send, 440);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, post_srq_recv, 456);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, query_device_ex, 464);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, query_port, 480);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, query_qp, 488);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, query_srq, 512);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, reg_dmabuf_mr, 536);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, reg_mr, 544);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, req_notify_cq, 552);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, rereg_mr, 560);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, resize_cq, 568);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, unimport_mr, 592);
VERBS_ASSERT_OFFSET(struct verbs_context_ops, unimport_pd, 600);
VERBS_ASSERT_SIZE(struct verbs_context_ops, 608);

/*
 * Commands: the write() header, then the public structure of the command, then
 * the driver's own data. The library fills in all but the latter.
 */
#define VERBS_COMMAND(name, size)                                              \
	struct ibv_##name {                                                    \
		struct ib_uverbs_cmd_hdr hdr;                                  \
		struct ib_uverbs_##name core_payload;                          \
	};                                                                     \
	VERBS_ASSERT_OFFSET(struct ibv_##name, core_payload, 8);               \
	VERBS_ASSERT_SIZE(struct ibv_##name, size)

VERBS_COMMAND(get_context, 16);
VERBS_COMMAND(query_port, 24);
VERBS_COMMAND(alloc_pd, 16);
VERBS_COMMAND(reg_mr, 48);
VERBS_COMMAND(rereg_mr, 56);
VERBS_COMMAND(alloc_mw, 24);
VERBS_COMMAND(open_xrcd, 24);
VERBS_COMMAND(create_cq, 40);
VERBS_COMMAND(resize_cq, 24);
VERBS_COMMAND(create_srq, 40);
VERBS_COMMAND(create_xsrq, 56);
VERBS_COMMAND(modify_srq, 24);
VERBS_COMMAND(query_srq, 24);
VERBS_COMMAND(create_qp, 64);
VERBS_COMMAND(open_qp, 40);
VERBS_COMMAND(query_qp, 24);
VERBS_COMMAND(modify_qp, 120);

#undef VERBS_COMMAND

/* An extended command has a second header. */
#define VERBS_EX_COMMAND(name, payload, size)                                  \
	struct ibv_##name {                                                    \
		struct ib_uverbs_cmd_hdr hdr;                                  \
		struct ib_uverbs_ex_cmd_hdr ex_hdr;                            \
		struct payload core_payload;                                   \
	};                                                                     \
	VERBS_ASSERT_OFFSET(struct ibv_##name, core_payload, 24);              \
	VERBS_ASSERT_SIZE(struct ibv_##name, size)

VERBS_EX_COMMAND(create_cq_ex, ib_uverbs_ex_create_cq, 56);
VERBS_EX_COMMAND(modify_cq, ib_uverbs_ex_modify_cq, 40);

#undef VERBS_EX_COMMAND

/*
 * Functions of libibverbs.so.1, symbol version IBVERBS_PRIVATE_34. Those that
 * return int return 0 or an errno unless noted.
 */
void verbs_register_driver_34(const struct verbs_device_ops *ops);

#define verbs_register_driver verbs_register_driver_34

/* context_offset: that of the verbs_context in the provider's, as a pointer. */
void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd,
				    size_t alloc_size,
				    struct verbs_context *context_offset,
				    uint32_t driver_id);
void verbs_uninit_context(struct verbs_context *context);
void verbs_set_ops(struct verbs_context *context,
		   const struct verbs_context_ops *ops);

int ibv_cmd_get_context(struct verbs_context *, struct ibv_get_context *,
			size_t, struct ib_uverbs_get_context_resp *, size_t);
int ibv_cmd_query_device_any(struct ibv_context *,
			     const struct ibv_query_device_ex_input *,
			     struct ibv_device_attr_ex *, size_t,
			     struct ib_uverbs_ex_query_device_resp *, size_t *);
int ibv_cmd_query_port(struct ibv_context *, uint8_t, struct ibv_port_attr *,
		       struct ibv_query_port *, size_t);
int ibv_cmd_alloc_pd(struct ibv_context *, struct ibv_pd *,
		     struct ibv_alloc_pd *, size_t,
		     struct ib_uverbs_alloc_pd_resp *, size_t);
int ibv_cmd_dealloc_pd(struct ibv_pd *);
int ibv_cmd_free_dm(struct verbs_dm *);
int ibv_cmd_reg_dm_mr(struct ibv_pd *, struct verbs_dm *, uint64_t, size_t,
		      unsigned int, struct verbs_mr *,
		      struct ibv_command_buffer *);
int ibv_cmd_open_xrcd(struct ibv_context *, struct verbs_xrcd *, int,
		      struct ibv_xrcd_init_attr *, struct ibv_open_xrcd *,
		      size_t, struct ib_uverbs_open_xrcd_resp *, size_t);
/* Reads a line; without its end. Negative when there is none, or too long. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf,
			size_t size);
int ibv_cmd_close_xrcd(struct verbs_xrcd *);
int ibv_cmd_reg_mr(struct ibv_pd *, void *, size_t, uint64_t, int,
		   struct verbs_mr *, struct ibv_reg_mr *, size_t,
		   struct ib_uverbs_reg_mr_resp *, size_t);
int ibv_cmd_rereg_mr(struct verbs_mr *, uint32_t, void *, size_t, uint64_t, int,
		     struct ibv_pd *, struct ibv_rereg_mr *, size_t,
		     struct ib_uverbs_rereg_mr_resp *, size_t);
int ibv_cmd_dereg_mr(struct verbs_mr *);
int ibv_cmd_reg_dmabuf_mr(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int,
			  struct verbs_mr *);
int ibv_cmd_alloc_mw(struct ibv_pd *, enum ibv_mw_type, struct ibv_mw *,
		     struct ibv_alloc_mw *, size_t,
		     struct ib_uverbs_alloc_mw_resp *, size_t);
int ibv_cmd_dealloc_mw(struct ibv_mw *);
int ibv_cmd_create_cq(struct ibv_context *, int, struct ibv_comp_channel *, int,
		      struct ibv_cq *, struct ibv_create_cq *, size_t,
		      struct ib_uverbs_create_cq_resp *, size_t);
int ibv_cmd_create_cq_ex(struct ibv_context *,
			 const struct ibv_cq_init_attr_ex *, struct verbs_cq *,
			 struct ibv_create_cq_ex *, size_t,
			 struct ib_uverbs_ex_create_cq_resp *, size_t,
			 uint32_t);
int ibv_cmd_poll_cq(struct ibv_cq *, int, struct ibv_wc *);
int ibv_cmd_req_notify_cq(struct ibv_cq *, int);
int ibv_cmd_resize_cq(struct ibv_cq *, int, struct ibv_resize_cq *, size_t,
		      struct ib_uverbs_resize_cq_resp *, size_t);
int ibv_cmd_modify_cq(struct ibv_cq *, struct ibv_modify_cq_attr *,
		      struct ibv_modify_cq *, size_t);
int ibv_cmd_destroy_cq(struct ibv_cq *);
int ibv_cmd_create_srq(struct ibv_pd *, struct ibv_srq *,
		       struct ibv_srq_init_attr *, struct ibv_create_srq *,
		       size_t, struct ib_uverbs_create_srq_resp *, size_t);
int ibv_cmd_create_srq_ex(struct ibv_context *, struct verbs_srq *,
			  struct ibv_srq_init_attr_ex *,
			  struct ibv_create_xsrq *, size_t,
			  struct ib_uverbs_create_srq_resp *, size_t);
int ibv_cmd_modify_srq(struct ibv_srq *, struct ibv_srq_attr *, int,
		       struct ibv_modify_srq *, size_t);
int ibv_cmd_query_srq(struct ibv_srq *, struct ibv_srq_attr *,
		      struct ibv_query_srq *, size_t);
int ibv_cmd_destroy_srq(struct ibv_srq *);
int ibv_cmd_create_qp_ex(struct ibv_context *, struct verbs_qp *,
			 struct ibv_qp_init_attr_ex *, struct ibv_create_qp *,
			 size_t, struct ib_uverbs_create_qp_resp *, size_t);
int ibv_cmd_open_qp(struct ibv_context *, struct verbs_qp *, int,
		    struct ibv_qp_open_attr *, struct ibv_open_qp *, size_t,
		    struct ib_uverbs_create_qp_resp *, size_t);
int ibv_cmd_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int,
		     struct ibv_qp_init_attr *, struct ibv_query_qp *, size_t);
int ibv_cmd_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int,
		      struct ibv_modify_qp *, size_t);
int ibv_cmd_destroy_qp(struct ibv_qp *);
int ibv_cmd_post_send(struct ibv_qp *, struct ibv_send_wr *,
		      struct ibv_send_wr **);
int ibv_cmd_post_recv(struct ibv_qp *, struct ibv_recv_wr *,
		      struct ibv_recv_wr **);
int ibv_cmd_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *,
			  struct ibv_recv_wr **);
int ibv_cmd_create_ah(struct ibv_pd *, struct ibv_ah *, struct ibv_ah_attr *,
		      struct ib_uverbs_create_ah_resp *, size_t);
int ibv_cmd_destroy_ah(struct ibv_ah *);
int ibv_cmd_attach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t);
int ibv_cmd_detach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t);
int ibv_cmd_create_flow(struct ibv_qp *, struct ibv_flow *,
			struct ibv_flow_attr *, void *, size_t);
int ibv_cmd_destroy_flow(struct ibv_flow *);
int ibv_cmd_advise_mr(struct ibv_pd *, enum ibv_advise_mr_advice, uint32_t,
		      struct ibv_sge *, uint32_t);
int ibv_cmd_query_context(struct ibv_context *, struct ibv_command_buffer *);
int ibv_cmd_query_mr(struct ibv_pd *, struct verbs_mr *, uint32_t);

#endif /* VERBS_PRIVATE_34_H */
