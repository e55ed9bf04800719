// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The provider's registration, its devices and contexts. */
#include "ropcie.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* RDMA_DRIVER_UNKNOWN: what the kernel driver says that it is. */
#define ROPCIE_DRIVER_ID 0

/* The atomic write has no name in <infiniband/verbs.h> yet: bit 40. */
static const uint64_t mapped_caps = IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_WINDOW_TYPE_2B |
				    IBV_DEVICE_MEM_MGT_EXTENSIONS |
				    IBV_DEVICE_XRC | 1ULL << 40;

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	uint64_t version;
	int ret;

	ret = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp,
				       &resp_size);
	if (ret)
		return ret;

	version = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver),
		 "%u.%u.%u", (unsigned int)(version >> 32) & 0xffff,
		 (unsigned int)(version >> 16) & 0xffff,
		 (unsigned int)version & 0xffff);
	/* What is used with mapped queues only. */
	if (!to_rctx(context)->mapped) {
		attr->orig_attr.device_cap_flags &= ~(unsigned int)mapped_caps;
		attr->orig_attr.max_mw = 0;
		if (attr_size >= offsetof(struct ibv_device_attr_ex,
					  device_cap_flags_ex) +
					 sizeof(attr->device_cap_flags_ex))
			attr->device_cap_flags_ex &= ~mapped_caps;
		/* Completions have no time stamps over uverbs. */
		if (attr_size >= offsetof(struct ibv_device_attr_ex,
					  hca_core_clock) +
					 sizeof(attr->hca_core_clock)) {
			attr->completion_timestamp_mask = 0;
			attr->hca_core_clock = 0;
		}
		if (attr_size >= offsetof(struct ibv_device_attr_ex,
					  xrc_odp_caps) +
					 sizeof(attr->xrc_odp_caps))
			attr->xrc_odp_caps = 0;
	}
	return 0;
}

/* The clock of completions. */
static int query_rt_values(struct ibv_context *context,
			   struct ibv_values_ex *values)
{
	uint32_t want = values->comp_mask;

	(void)context;
	values->comp_mask = 0;
	if (!(want & IBV_VALUES_MASK_RAW_CLOCK))
		return want ? EINVAL : 0;
	if (clock_gettime(CLOCK_MONOTONIC, &values->raw_clock))
		return errno;
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port_num,
		      struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(context, port_num, attr, &cmd, sizeof(cmd));
}

static void free_context(struct ibv_context *context)
{
	struct ropcie_context *ctx = to_rctx(context);

	verbs_uninit_context(&ctx->ibv_ctx);
	free(ctx);
}

/*
 * Operations that are not here are answered EOPNOTSUPP by the library.
 */
static const struct verbs_context_ops context_ops = {
	.advise_mr = ibv_cmd_advise_mr,
	.alloc_dm = ropcie_alloc_dm,
	.alloc_mw = ropcie_alloc_mw,
	.alloc_parent_domain = ropcie_alloc_parent_domain,
	.alloc_pd = ropcie_alloc_pd,
	.alloc_td = ropcie_alloc_td,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = ropcie_bind_mw,
	.close_xrcd = ropcie_close_xrcd,
	.create_ah = ropcie_create_ah,
	.create_cq = ropcie_create_cq,
	.create_cq_ex = ropcie_create_cq_ex,
	.create_flow = ropcie_create_flow,
	.create_qp = ropcie_create_qp,
	.create_qp_ex = ropcie_create_qp_ex,
	.create_srq = ropcie_create_srq,
	.create_srq_ex = ropcie_create_srq_ex,
	.dealloc_mw = ropcie_dealloc_mw,
	.dealloc_pd = ropcie_dealloc_pd,
	.dealloc_td = ropcie_dealloc_td,
	.dereg_mr = ropcie_dereg_mr,
	.destroy_ah = ropcie_destroy_ah,
	.destroy_cq = ropcie_destroy_cq,
	.destroy_flow = ropcie_destroy_flow,
	.destroy_qp = ropcie_destroy_qp,
	.destroy_srq = ropcie_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = free_context,
	.free_dm = ropcie_free_dm,
	.get_srq_num = ropcie_get_srq_num,
	.import_dm = ropcie_import_dm,
	.import_mr = ropcie_import_mr,
	.import_pd = ropcie_import_pd,
	.modify_cq = ropcie_modify_cq,
	.modify_qp = ropcie_modify_qp,
	.modify_srq = ropcie_modify_srq,
	.open_qp = ropcie_open_qp,
	.open_xrcd = ropcie_open_xrcd,
	.poll_cq = ropcie_poll_cq,
	.post_recv = ropcie_post_recv,
	.post_send = ropcie_post_send,
	.post_srq_recv = ropcie_post_srq_recv,
	.query_device_ex = query_device_ex,
	.query_port = query_port,
	.query_qp = ropcie_query_qp,
	.query_rt_values = query_rt_values,
	.query_srq = ropcie_query_srq,
	.reg_dm_mr = ropcie_reg_dm_mr,
	.alloc_null_mr = ropcie_alloc_null_mr,
	.reg_dmabuf_mr = ropcie_reg_dmabuf_mr,
	.reg_mr = ropcie_reg_mr,
	.req_notify_cq = ropcie_req_notify_cq,
	.rereg_mr = ropcie_rereg_mr,
	.resize_cq = ropcie_resize_cq,
	.unimport_dm = ropcie_unimport_dm,
	.unimport_mr = ropcie_unimport_mr,
	.unimport_pd = ropcie_unimport_pd,
};

/*
 * Is a queue pair laid out as the library believes? struct ibv_qp_ex grew in rdma-core
 * 44 and 45, in front of this mark, and the private ABI kept its number.
 */
static bool fits_library(void)
{
	struct verbs_qp qp = { .comp_mask = VERBS_QP_EX };

	return ibv_qp_to_qp_ex(&qp.qp);
}

static struct ropcie_context *new_context(struct ibv_device *device, int cmd_fd)
{
	size_t offset = offsetof(struct ropcie_context, ibv_ctx);

	if (!fits_library()) {
		fprintf(stderr, "libropcie fits another libibverbs: build and install it again\n");
		close(cmd_fd);
		errno = EPROTO;
		return NULL;
	}
	return _verbs_init_and_alloc_context(device, cmd_fd,
					     sizeof(struct ropcie_context),
					     (struct verbs_context *)offset,
					     ROPCIE_DRIVER_ID);
}

static void drop_context(struct ropcie_context *ctx)
{
	verbs_uninit_context(&ctx->ibv_ctx);
	free(ctx);
}

/* The tests run everything without them too. */
static bool wants_mapped(void)
{
	const char *text = getenv("ROPCIE_MAPPED_QUEUES");

	return !text || strcmp(text, "0");
}

static struct verbs_context *alloc_context(struct ibv_device *device,
					   int cmd_fd, void *private_data)
{
	struct {
		struct ibv_get_context core;
		struct ropcie_abi_alloc_ucontext_req driver;
	} cmd = {};
	struct {
		struct ib_uverbs_get_context_resp core;
		struct ropcie_abi_alloc_ucontext_resp driver;
	} resp = {};
	struct ropcie_context *ctx;
	int ret;

	(void)private_data;
	ctx = new_context(device, cmd_fd);
	if (!ctx)
		return NULL;

	ret = ibv_cmd_get_context(&ctx->ibv_ctx, &cmd.core, sizeof(cmd),
				  &resp.core, sizeof(resp));
	if (!ret && resp.driver.comp_mask & ~cmd.driver.comp_mask)
		ret = EPROTO;
	if (ret) {
		drop_context(ctx);
		errno = ret;
		return NULL;
	}

	ctx->abi = resp.driver;
	ctx->mapped = resp.driver.features & ROPCIE_ABI_CTX_MAPPED_QUEUES &&
		      wants_mapped();
	verbs_set_ops(&ctx->ibv_ctx, &context_ops);
	return &ctx->ibv_ctx;
}

/* A context that another process opened and whose file it passed to us. */
static struct verbs_context *import_context(struct ibv_device *device,
					    int cmd_fd)
{
	struct ropcie_context *ctx;
	int ret;

	ctx = new_context(device, cmd_fd);
	if (!ctx)
		return NULL;

	ret = ibv_cmd_query_context(&ctx->ibv_ctx.context, NULL);
	if (ret) {
		drop_context(ctx);
		errno = ret;
		return NULL;
	}

	verbs_set_ops(&ctx->ibv_ctx, &context_ops);
	return &ctx->ibv_ctx;
}

static struct verbs_device *alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	(void)sysfs_dev;
	return calloc(1, sizeof(struct verbs_device));
}

static void uninit_device(struct verbs_device *device)
{
	free(device);
}

/* Is it ours? Its name says nothing: an administrator may change it. */
static bool match_device(struct verbs_sysfs_dev *sysfs_dev)
{
	static const char type[] = ROPCIE_ABI_HCA_TYPE "\n";
	char found[sizeof(type)] = "";

	return ibv_read_sysfs_file(sysfs_dev->ibdev_path, "hca_type", found,
				   sizeof(found)) > 0 &&
	       !strncmp(found, ROPCIE_ABI_HCA_TYPE, sizeof(found));
}

/*
 * match_device decides; but the library also walks a table, without asking
 * whether there is one, for every device that has a driver id (rxe, mlx5, ...).
 */
static const struct verbs_match_ent match_table[] = {
	{ .kind = VERBS_MATCH_SENTINEL },
};

static const struct verbs_device_ops device_ops = {
	.name = "ropcie",
	.match_min_abi_version = ROPCIE_ABI_VERSION,
	.match_max_abi_version = ROPCIE_ABI_VERSION,
	.match_table = match_table,
	.match_device = match_device,
	.alloc_context = alloc_context,
	.import_context = import_context,
	.alloc_device = alloc_device,
	.uninit_device = uninit_device,
};

static __attribute__((constructor)) void register_driver(void)
{
	verbs_register_driver(&device_ops);
}
