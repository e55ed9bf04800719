// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that the driver shares with a process: device memory and queues. It is
 * a file in memory, zero at first, whose pages the kernel holds, and which lives
 * as long as somebody may map it or has done so. What a process has mapped is the
 * file, not its context: that ends when the process does, or closes it, whatever
 * is mapped still, or looked at by the kernel (on-demand paging).
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pagevec.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "queues.h"
#include "ropcie.h"

static struct ropcie_shared *to_shared(struct rdma_user_mmap_entry *entry)
{
	return container_of(entry, struct ropcie_shared, entry);
}

/*
 * Of our own: files of the kernel's have huge pages where an administrator asks for
 * them (shmem_enabled), of which a queue would hold a whole one.
 */
static struct vfsmount *files;

int ropcie_mmap_init(void)
{
	struct file_system_type *type = get_fs_type("tmpfs");

	if (!type)
		return -ENODEV;
	files = kern_mount(type);
	return PTR_ERR_OR_ZERO(files);
}

void ropcie_mmap_exit(void)
{
	kern_unmount(files);
}

static void put_pages(struct folio_batch *batch, bool mapped)
{
	if (mapped)
		check_move_unevictable_folios(batch);
	folio_batch_release(batch);
	cond_resched();
}

/* A process may have them mapped for long still: they may be swapped then. */
static void give_up_pages(struct ropcie_shared *mem)
{
	bool mapped = mem->num && mapping_mapped(mem->file->f_mapping);
	struct folio_batch batch;

	if (mapped)
		mapping_clear_unevictable(mem->file->f_mapping);
	folio_batch_init(&batch);
	while (mem->num) {
		struct page *page = mem->pages[--mem->num];

		/* Written to by the kernel, which only it knows. */
		set_page_dirty(page);
		if (!folio_batch_add(&batch, page_folio(page)))
			put_pages(&batch, mapped);
	}
	put_pages(&batch, mapped);
}

static void shared_free(struct ropcie_shared *mem)
{
	vunmap(mem->addr);
	give_up_pages(mem);
	kvfree(mem->pages);
	if (mem->file)
		fput(mem->file);
	if (mem->charged)
		atomic_sub(mem->charge, mem->charged);
	kfree(mem);
}

/* A file of so many pages, which stay where they are. Return: it, or NULL. */
static struct file *make_file(u32 num)
{
	loff_t size = (loff_t)num << PAGE_SHIFT;
	struct file *file = shmem_file_setup_with_mnt(files, "ropcie", size,
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
