// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that the driver shares with a process: device memory and queues. It is
 * pages of the kernel, zero at first, that live as long as somebody may map them
 * or has done so.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "queues.h"
#include "ropcie.h"

static struct ropcie_shared *to_shared(struct rdma_user_mmap_entry *entry)
{
	return container_of(entry, struct ropcie_shared, entry);
}

static void shared_free(struct ropcie_shared *mem)
{
	vunmap(mem->addr);
	while (mem->num)
		__free_page(mem->pages[--mem->num]);
	kvfree(mem->pages);
	if (mem->charged)
		atomic_sub(mem->charge, mem->charged);
	kfree(mem);
}

struct ropcie_shared *ropcie_shared_alloc(struct ib_ucontext *ibuc, size_t size,
					  atomic_t *charged)
{
	u32 num = PFN_UP(size);
	struct ropcie_shared *mem;
	struct page *page;
	int ret = -ENOMEM;

	mem = kzalloc(sizeof(*mem), ROPCIE_GFP_USER);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->pages = kvcalloc(num, sizeof(*mem->pages), ROPCIE_GFP_USER);
	while (mem->pages && mem->num < num) {
		page = alloc_page(ROPCIE_GFP_USER | __GFP_ZERO);
		if (!page)
			goto err_free;
		mem->pages[mem->num++] = page;
	}
	if (!mem->pages)
		goto err_free;
	mem->addr = vmap(mem->pages, num, VM_MAP, PAGE_KERNEL);
	if (!mem->addr)
		goto err_free;
	ret = rdma_user_mmap_entry_insert(ibuc, &mem->entry,
					  (size_t)num << PAGE_SHIFT);
	if (ret)
		goto err_free;
	/* From here on it is freed with the entry, and so is the charge. */
	mem->charged = charged;
	mem->charge = num;
	return mem;

err_free:
	shared_free(mem);
	return ERR_PTR(ret);
}

void ropcie_shared_put(struct ropcie_shared *mem)
{
	if (mem)
		rdma_user_mmap_entry_remove(&mem->entry);
}

void ropcie_mmap_free(struct rdma_user_mmap_entry *entry)
{
	shared_free(to_shared(entry));
}

int ropcie_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	struct ropcie_shared *mem;
	unsigned long num;
	int ret = -EINVAL;

	entry = rdma_user_mmap_entry_get(ibuc, vma);
	if (!entry)
		return -EINVAL;
	mem = to_shared(entry);
	num = mem->num;
	/* The mapping holds the pages, not the entry. */
	if (vma->vm_flags & VM_SHARED)
		ret = vm_insert_pages(vma, vma->vm_start, mem->pages, &num);
	rdma_user_mmap_entry_put(entry);
	return ret;
}
