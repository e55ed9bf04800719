// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions of dma-bufs, which are memory of other devices' drivers. A
 * device that is software copies with the processor, so the buffer is mapped
 * into the kernel for as long as the region lives; its exporter keeps it in
 * place meanwhile. Buffers that lie in a device's I/O memory are refused.
 */
#include <linux/dma-buf.h>
#include <linux/iosys-map.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "ropcie.h"

MODULE_IMPORT_NS(DMA_BUF);

/* The mapping has no gaps: pages as large as the offset within one can be. */
#define PAGE_SHIFT_OF_MAP 31

/* Return: address of the buffer in the kernel, or an error as a pointer. */
static void *map_buffer(struct dma_buf *buf)
{
	struct iosys_map map;
	int ret;

	if (!buf->ops->vmap)
		return ERR_PTR(-EOPNOTSUPP);
	ret = dma_buf_vmap_unlocked(buf, &map);
	if (ret)
		return ERR_PTR(ret);
	ret = map.is_iomem ? -EOPNOTSUPP :
			     dma_buf_begin_cpu_access(buf, DMA_BIDIRECTIONAL);
	if (ret) {
		dma_buf_vunmap_unlocked(buf, &map);
		return ERR_PTR(ret);
	}
	return map.vaddr;
}

static void unmap_buffer(struct dma_buf *buf, void *addr)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(addr);

	dma_buf_end_cpu_access(buf, DMA_BIDIRECTIONAL);
	dma_buf_vunmap_unlocked(buf, &map);
}

/* A region that has no key yet; with success it has taken @buf over. */
static struct ropcie_mr *mr_of_buffer(struct ib_pd *ibpd, struct dma_buf *buf,
				      u64 offset, u64 length, u64 iova,
				      int access)
{
	u32 i, num = DIV_ROUND_UP_ULL(length, BIT_ULL(PAGE_SHIFT_OF_MAP));
	struct ropcie_mr *mr;
	void *addr;

	mr = ropcie_mr_alloc(ibpd, access);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->core.pages = kvcalloc(num, sizeof(*mr->core.pages), ROPCIE_GFP_USER);
	addr = mr->core.pages ? map_buffer(buf) : ERR_PTR(-ENOMEM);
	if (IS_ERR(addr)) {
		kvfree(mr->core.pages);
		kfree(mr);
		return ERR_CAST(addr);
	}
	for (i = 0; i < num; i++)
		mr->core.pages[i] = addr + offset +
				    ((u64)i << PAGE_SHIFT_OF_MAP);
	mr->core.iova = iova;
	mr->core.length = length;
	mr->core.page_shift = PAGE_SHIFT_OF_MAP;
	mr->ibmr.length = length;
	mr->ibmr.iova = iova;
	mr->dmabuf = buf;
	mr->dmabuf_addr = addr;
	return mr;
}

void ropcie_mr_release_dmabuf(struct ropcie_mr *mr)
{
	unmap_buffer(mr->dmabuf, mr->dmabuf_addr);
	dma_buf_put(mr->dmabuf);
}

/* May the buffer be registered like that? */
static int check_buffer(const struct dma_buf *buf, u64 offset, u64 length,
			int access)
{
	u64 end;

	if (!length || check_add_overflow(offset, length, &end) ||
	    end > buf->size)
		return -EINVAL;
	/* As mmap() would: who was given it for reading does not write. */
	if (ib_access_writable(access) && !(buf->file->f_mode & FMODE_WRITE))
		return -EACCES;
	return 0;
}

struct ib_mr *ropcie_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
					u64 length, u64 iova, int fd,
					int access,
					struct ropcie_reg_dmabuf_arg *arg)
{
	struct ropcie_mr *mr;
	struct dma_buf *buf;
	int ret;

	ret = ropcie_mr_check_args(offset, length, iova, access);
	if (ret)
		return ERR_PTR(ret);
	buf = dma_buf_get(fd);
	if (IS_ERR(buf))
		return ERR_CAST(buf);
	ret = check_buffer(buf, offset, length, access);
	mr = ret ? ERR_PTR(ret) :
		   mr_of_buffer(ibpd, buf, offset, length, iova, access);
	if (IS_ERR(mr)) {
		dma_buf_put(buf);
		return ERR_CAST(mr);
	}
	return ropcie_mr_finish(ibpd, mr);
}
