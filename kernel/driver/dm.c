// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory: a device that is software has none of its own, so these are
 * pages of the kernel that the process maps and registers. Nothing is pinned for
 * them, and they are zero when they are given out.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#define UVERBS_MODULE_NAME ropcie
#include <rdma/uverbs_named_ioctl.h>

#include "ropcie.h"
#include "uapi/ropcie-abi.h"

/**
 * struct dm_memory - pages that live as long as somebody may map them
 * @entry: place in the context's space of mmap offsets
 * @dev: device
 * @pages: pages, whose addresses are @addr
 * @addr: start address of each
 * @num: how many
 */
struct dm_memory {
	struct rdma_user_mmap_entry entry;
	struct ropcie_dev *dev;
	struct page **pages;
	void **addr;
	u32 num;
};

struct dm {
	struct ib_dm ibdm;
	struct dm_memory *mem;
};

static struct dm *to_dm(struct ib_dm *ibdm)
{
	return container_of(ibdm, struct dm, ibdm);
}

static void memory_free(struct dm_memory *mem)
{
	while (mem->num)
		__free_page(mem->pages[--mem->num]);
	kvfree(mem->pages);
	kvfree(mem->addr);
	kfree(mem);
}

static struct dm_memory *memory_alloc(u32 num)
{
	struct dm_memory *mem = kzalloc(sizeof(*mem), GFP_KERNEL_ACCOUNT);
	struct page *page;

	if (!mem)
		return NULL;
	mem->pages = kvcalloc(num, sizeof(*mem->pages), GFP_KERNEL_ACCOUNT);
	mem->addr = kvcalloc(num, sizeof(*mem->addr), GFP_KERNEL_ACCOUNT);
	while (mem->pages && mem->addr && mem->num < num) {
		page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!page)
			break;
		mem->pages[mem->num] = page;
		mem->addr[mem->num++] = page_address(page);
	}
	if (mem->num < num) {
		memory_free(mem);
		return NULL;
	}
	return mem;
}

void ropcie_mmap_free(struct rdma_user_mmap_entry *entry)
{
	struct dm_memory *mem = container_of(entry, struct dm_memory, entry);

	atomic_sub(mem->num, &mem->dev->dm_pages);
	memory_free(mem);
}

int ropcie_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	struct dm_memory *mem;
	unsigned long num;
	int ret = -EINVAL;

	entry = rdma_user_mmap_entry_get(ibuc, vma);
	if (!entry)
		return -EINVAL;
	mem = container_of(entry, struct dm_memory, entry);
	num = mem->num;
	/* The mapping holds the pages, not the entry. */
	if (vma->vm_flags & VM_SHARED)
		ret = vm_insert_pages(vma, vma->vm_start, mem->pages, &num);
	rdma_user_mmap_entry_put(entry);
	return ret;
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
	u64 offset;
	u32 num;
	int ret;

	if (attr->flags || attr->alignment > PAGE_SHIFT)
		return ERR_PTR(-EOPNOTSUPP);
	if (!attr->length || attr->length > ROPCIE_MAX_DM_SIZE)
		return ERR_PTR(-EINVAL);
	num = DIV_ROUND_UP(attr->length, PAGE_SIZE);
	if (!charge(dev, num))
		return ERR_PTR(-ENOMEM);
	dm = kzalloc(sizeof(*dm), GFP_KERNEL_ACCOUNT);
	if (dm)
		dm->mem = memory_alloc(num);
	if (!dm || !dm->mem) {
		atomic_sub(num, &dev->dm_pages);
		ret = -ENOMEM;
		goto err_dm;
	}
	dm->mem->dev = dev;
	ret = rdma_user_mmap_entry_insert(ibuc, &dm->mem->entry,
					  num * PAGE_SIZE);
	if (ret) {
		ropcie_mmap_free(&dm->mem->entry);
		goto err_dm;
	}
	offset = rdma_user_mmap_get_offset(&dm->mem->entry);
	ret = uverbs_copy_to(attrs, ROPCIE_ABI_ATTR_ALLOC_DM_MMAP_OFFSET,
			     &offset, sizeof(offset));
	if (ret) {
		rdma_user_mmap_entry_remove(&dm->mem->entry);
		goto err_dm;
	}
	return &dm->ibdm;

err_dm:
	kfree(dm);
	return ERR_PTR(ret);
}

int ropcie_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	struct dm *dm = to_dm(ibdm);

	rdma_user_mmap_entry_remove(&dm->mem->entry);
	kfree(dm);
	return 0;
}

struct ib_mr *ropcie_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
			       struct ib_dm_mr_attr *attr,
			       struct uverbs_attr_bundle *attrs)
{
	struct dm_memory *mem = to_dm(ibdm)->mem;

	if (attr->access_flags & ~(u32)(ROPCIE_MR_ACCESS | IB_ZERO_BASED |
					IB_ACCESS_OPTIONAL))
		return ERR_PTR(-EOPNOTSUPP);
	return ropcie_reg_pages(ibpd, mem->addr, mem->num, attr->offset,
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
