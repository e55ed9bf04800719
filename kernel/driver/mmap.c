// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that the driver shares with a process: device memory and queues. It is
 * a file in memory, zero at first, whose pages the kernel holds, and which lives
 * as long as somebody may map it or has done so. What a process has mapped is the
 * file, not its context: that ends when the process does, or closes it, whatever
 * is mapped still, or looked at by the kernel (on-demand paging).
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/shmem_fs.h>
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
	while (mem->num) {
		/* Written to by the kernel, which only it knows. */
		set_page_dirty(mem->pages[--mem->num]);
		put_page(mem->pages[mem->num]);
	}
	kvfree(mem->pages);
	if (mem->file) {
		/* A process may have it mapped for long still. */
		mapping_clear_unevictable(mem->file->f_mapping);
		fput(mem->file);
	}
	if (mem->charged)
		atomic_sub(mem->charge, mem->charged);
	kfree(mem);
}

/* A file of so many pages, which stay where they are. Return: it, or NULL. */
static struct file *make_file(u32 num)
{
	struct file *file = shmem_file_setup("ropcie", (loff_t)num << PAGE_SHIFT,
					     VM_NORESERVE);

	if (IS_ERR(file))
		return NULL;
	mapping_set_gfp_mask(file->f_mapping, GFP_USER | __GFP_NOWARN);
	mapping_set_unevictable(file->f_mapping);
	return file;
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
	mem->file = make_file(num);
	if (!mem->pages || !mem->file)
		goto err_free;
	while (mem->num < num) {
		/* As ROPCIE_GFP_USER; the file is at the cgroup's expense without being told. */
		page = shmem_read_mapping_page_gfp(mem->file->f_mapping, mem->num,
						   GFP_USER | __GFP_RETRY_MAYFAIL |
							   __GFP_NOWARN);
		if (IS_ERR(page))
			goto err_free;
		mem->pages[mem->num++] = page;
	}
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
	struct file *file;
	int ret;

	/* None for a mapping that is not shared. */
	entry = rdma_user_mmap_entry_get(ibuc, vma);
	if (!entry)
		return -EINVAL;
	file = to_shared(entry)->file;
	vma_set_file(vma, file);
	vma->vm_pgoff = 0;
	ret = call_mmap(file, vma);
	rdma_user_mmap_entry_put(entry);
	return ret;
}
