// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory: a device that is software has none of its own, so these are
 * pages of the kernel that the process maps and registers. Nothing is pinned for
 * them.
 */
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#define UVERBS_MODULE_NAME ropcie
#include <rdma/uverbs_named_ioctl.h>

#include "memory.h"
#include "queues.h"
#include "ropcie.h"

/**
 * struct dm - a device memory
 * @ibdm: what verbs sees
 * @mem: its pages
 * @addr: start address of each
 */
struct dm {
	struct ib_dm ibdm;
	struct ropcie_shared *mem;
	void **addr;
};

static struct dm *to_dm(struct ib_dm *ibdm)
{
	return container_of(ibdm, struct dm, ibdm);
}

/* Keep within what the device has. Return: false when it has no more. */
static bool charge(struct ropcie_dev *dev, u32 num)
{
	if (atomic_add_return(num, &dev->dm_pages) <=
	    ROPCIE_MAX_DM_SIZE >> PAGE_SHIFT)
		return true;
	atomic_sub(num, &dev->dm_pages);
	return false;
}

struct ib_dm *ropcie_alloc_dm(struct ib_device *ibdev, struct ib_ucontext *ibuc,
			      struct ib_dm_alloc_attr *attr,
			      struct uverbs_attr_bundle *attrs)
{
	struct ropcie_dev *dev = to_rdev(ibdev);
	struct dm *dm;
	u32 i, num;
	u64 offset;
	int ret;

	if (attr->flags || attr->alignment > PAGE_SHIFT)
		return ERR_PTR(-EOPNOTSUPP);
	if (!attr->length || attr->length > ROPCIE_MAX_DM_SIZE)
		return ERR_PTR(-EINVAL);
	dm = kzalloc(sizeof(*dm), ROPCIE_GFP_USER);
	if (!dm)
		return ERR_PTR(-ENOMEM);
	num = PFN_UP(attr->length);
	dm->addr = kvcalloc(num, sizeof(*dm->addr), ROPCIE_GFP_USER);
	ret = dm->addr && charge(dev, num) ? 0 : -ENOMEM;
	if (ret)
		goto err_dm;
	dm->mem = ropcie_shared_alloc(ibuc, attr->length, &dev->dm_pages);
	if (IS_ERR(dm->mem)) {
		ret = PTR_ERR(dm->mem);
		atomic_sub(num, &dev->dm_pages);
		goto err_dm;
	}
	for (i = 0; i < num; i++)
		dm->addr[i] = dm->mem->addr + (size_t)i * PAGE_SIZE;
	offset = rdma_user_mmap_get_offset(&dm->mem->entry);
	ret = uverbs_copy_to(attrs, ROPCIE_ABI_ATTR_ALLOC_DM_MMAP_OFFSET,
			     &offset, sizeof(offset));
	if (ret) {
		ropcie_shared_put(dm->mem);
		goto err_dm;
	}
	return &dm->ibdm;

err_dm:
	kvfree(dm->addr);
	kfree(dm);
	return ERR_PTR(ret);
}

int ropcie_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	struct dm *dm = to_dm(ibdm);

	ropcie_shared_put(dm->mem);
	kvfree(dm->addr);
	kfree(dm);
	return 0;
}

struct ib_mr *ropcie_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
			       struct ib_dm_mr_attr *attr,
			       struct uverbs_attr_bundle *attrs)
{
	struct dm *dm = to_dm(ibdm);

	if (attr->access_flags & ~(u32)(ROPCIE_MR_ACCESS | IB_ZERO_BASED |
					IB_ACCESS_OPTIONAL))
		return ERR_PTR(-EOPNOTSUPP);
	return ropcie_reg_pages(ibpd, dm->addr, dm->mem->num, attr->offset,
				attr->length, attr->access_flags);
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(ropcie_dm_alloc, UVERBS_OBJECT_DM,
			     UVERBS_METHOD_DM_ALLOC,
	UVERBS_ATTR_PTR_OUT(ROPCIE_ABI_ATTR_ALLOC_DM_MMAP_OFFSET,
			    UVERBS_ATTR_TYPE(u64), UA_MANDATORY));

static int UVERBS_HANDLER(ROPCIE_ABI_METHOD_DM_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ibdm = uverbs_attr_get_obj(attrs,
			ROPCIE_ABI_ATTR_QUERY_DM_HANDLE);
	u64 offset = rdma_user_mmap_get_offset(&to_dm(ibdm)->mem->entry);
	u64 length = ibdm->length;
	int ret;

	ret = uverbs_copy_to(attrs, ROPCIE_ABI_ATTR_QUERY_DM_MMAP_OFFSET,
			     &offset, sizeof(offset));
	return ret ?: uverbs_copy_to(attrs, ROPCIE_ABI_ATTR_QUERY_DM_LENGTH,
				     &length, sizeof(length));
}

DECLARE_UVERBS_NAMED_METHOD(ROPCIE_ABI_METHOD_DM_QUERY,
			    UVERBS_ATTR_IDR(ROPCIE_ABI_ATTR_QUERY_DM_HANDLE,
					    UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(ROPCIE_ABI_ATTR_QUERY_DM_MMAP_OFFSET,
						UVERBS_ATTR_TYPE(u64),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(ROPCIE_ABI_ATTR_QUERY_DM_LENGTH,
						UVERBS_ATTR_TYPE(u64),
						UA_MANDATORY));

DECLARE_UVERBS_GLOBAL_METHODS(UVERBS_OBJECT_DM,
			      &UVERBS_METHOD(ROPCIE_ABI_METHOD_DM_QUERY));

const struct uapi_definition ropcie_uapi_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &ropcie_dm_alloc),
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(UVERBS_OBJECT_DM),
	{}
};
