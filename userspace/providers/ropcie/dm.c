// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Device memory: allocated by the uverbs ioctl, which gives an attribute of the
 * driver's back, and mapped, so that copies to and from it need no call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "ropcie.h"

struct ropcie_dm {
	struct verbs_dm vdm;
	char *mem;
	size_t length;
	size_t mapped;
};

static struct ropcie_dm *to_rdm(struct ibv_dm *dm)
{
	return (struct ropcie_dm *)dm;
}

/* As with other devices, memory is copied in whole words of 4 bytes. */
static int check_range(const struct ropcie_dm *dm, uint64_t offset,
		       size_t length)
{
	if (offset > dm->length || length > dm->length - offset)
		return EFAULT;
	return (offset | length) & 3 ? EINVAL : 0;
}

static int copy_to(struct ibv_dm *ibdm, uint64_t offset, const void *from,
		   size_t length)
{
	struct ropcie_dm *dm = to_rdm(ibdm);
	int ret = check_range(dm, offset, length);

	if (!ret)
		memcpy(dm->mem + offset, from, length);
	return ret;
}

static int copy_from(void *to, struct ibv_dm *ibdm, uint64_t offset,
		     size_t length)
{
	struct ropcie_dm *dm = to_rdm(ibdm);
	int ret = check_range(dm, offset, length);

	if (!ret)
		memcpy(to, dm->mem + offset, length);
	return ret;
}

/* UVERBS_METHOD_DM_ALLOC. */
static int alloc_in_kernel(struct ibv_context *context,
			   const struct ibv_alloc_dm_attr *attr,
			   struct ropcie_dm *dm, uint64_t *offset)
{
	enum { HANDLE, LENGTH, ALIGNMENT, OFFSET, NUM };
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attr[NUM];
	} cmd = {
		.hdr = {
			.length = sizeof(cmd),
			.object_id = UVERBS_OBJECT_DM,
			.method_id = UVERBS_METHOD_DM_ALLOC,
			.num_attrs = NUM,
		},
		.attr = {
			[HANDLE] = {
				.attr_id = UVERBS_ATTR_ALLOC_DM_HANDLE,
				.flags = UVERBS_ATTR_F_MANDATORY,
			},
			[LENGTH] = {
				.attr_id = UVERBS_ATTR_ALLOC_DM_LENGTH,
				.len = sizeof(uint64_t),
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = attr->length,
			},
			[ALIGNMENT] = {
				.attr_id = UVERBS_ATTR_ALLOC_DM_ALIGNMENT,
				.len = sizeof(uint32_t),
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = attr->log_align_req,
			},
			[OFFSET] = {
				.attr_id = ROPCIE_ABI_ATTR_ALLOC_DM_MMAP_OFFSET,
				.len = sizeof(*offset),
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = (uintptr_t)offset,
			},
		},
	};

	if (ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &cmd))
		return errno;
	dm->vdm.handle = (uint32_t)cmd.attr[HANDLE].data;
	dm->vdm.dm.handle = dm->vdm.handle;
	return 0;
}

/* ROPCIE_ABI_METHOD_DM_QUERY. */
static int query_kernel(struct ibv_context *context, struct ropcie_dm *dm,
			uint64_t *offset)
{
	enum { HANDLE, OFFSET, LENGTH, NUM };
	uint64_t length = 0;
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attr[NUM];
	} cmd = {
		.hdr = {
			.length = sizeof(cmd),
			.object_id = UVERBS_OBJECT_DM,
			.method_id = ROPCIE_ABI_METHOD_DM_QUERY,
			.num_attrs = NUM,
		},
		.attr = {
			[HANDLE] = {
				.attr_id = ROPCIE_ABI_ATTR_QUERY_DM_HANDLE,
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = dm->vdm.handle,
			},
			[OFFSET] = {
				.attr_id = ROPCIE_ABI_ATTR_QUERY_DM_MMAP_OFFSET,
				.len = sizeof(*offset),
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = (uintptr_t)offset,
			},
			[LENGTH] = {
				.attr_id = ROPCIE_ABI_ATTR_QUERY_DM_LENGTH,
				.len = sizeof(length),
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = (uintptr_t)&length,
			},
		},
	};

	if (ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &cmd))
		return errno;
	dm->length = length;
	return 0;
}

static int map(struct ibv_context *context, struct ropcie_dm *dm,
	       uint64_t offset)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	dm->mapped = (dm->length + page - 1) & ~(page - 1);
	dm->mem = mmap(NULL, dm->mapped, PROT_READ | PROT_WRITE, MAP_SHARED,
		       context->cmd_fd, (off_t)offset);
	return dm->mem == MAP_FAILED ? errno : 0;
}

static struct ropcie_dm *new_dm(struct ibv_context *context)
{
	struct ropcie_dm *dm = calloc(1, sizeof(*dm));

	if (!dm)
		return NULL;
	dm->vdm.dm.context = context;
	dm->vdm.dm.comp_mask = IBV_DM_MASK_HANDLE;
	dm->vdm.dm.memcpy_to_dm = copy_to;
	dm->vdm.dm.memcpy_from_dm = copy_from;
	return dm;
}

struct ibv_dm *ropcie_alloc_dm(struct ibv_context *context,
			       struct ibv_alloc_dm_attr *attr)
{
	struct ropcie_dm *dm;
	uint64_t offset = 0;
	int ret;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	dm = new_dm(context);
	if (!dm)
		return NULL;
	dm->length = attr->length;
	ret = alloc_in_kernel(context, attr, dm, &offset);
	if (ret)
		goto free_dm;
	ret = map(context, dm, offset);
	if (ret)
		goto free_kernel;
	return &dm->vdm.dm;

free_kernel:
	ibv_cmd_free_dm(&dm->vdm);
free_dm:
	free(dm);
	errno = ret;
	return NULL;
}

int ropcie_free_dm(struct ibv_dm *ibdm)
{
	struct ropcie_dm *dm = to_rdm(ibdm);
	int ret = ibv_cmd_free_dm(&dm->vdm);

	if (ret)
		return ret;
	munmap(dm->mem, dm->mapped);
	free(dm);
	return 0;
}

struct ibv_dm *ropcie_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct ropcie_dm *dm = new_dm(context);
	uint64_t offset = 0;
	int ret;

	if (!dm)
		return NULL;
	dm->vdm.handle = handle;
	dm->vdm.dm.handle = handle;
	ret = query_kernel(context, dm, &offset);
	if (!ret)
		ret = map(context, dm, offset);
	if (ret) {
		free(dm);
		errno = ret;
		return NULL;
	}
	return &dm->vdm.dm;
}

void ropcie_unimport_dm(struct ibv_dm *ibdm)
{
	struct ropcie_dm *dm = to_rdm(ibdm);

	munmap(dm->mem, dm->mapped);
	free(dm);
}

struct ibv_mr *ropcie_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibdm,
				uint64_t offset, size_t length,
				unsigned int access)
{
	struct verbs_mr *vmr = calloc(1, sizeof(*vmr));
	int ret;

	if (!vmr)
		return NULL;
	ret = ibv_cmd_reg_dm_mr(pd, &to_rdm(ibdm)->vdm, offset, length, access,
				vmr, NULL);
	if (ret) {
		free(vmr);
		errno = ret;
		return NULL;
	}
	return &vmr->ibv_mr;
}
