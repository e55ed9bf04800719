// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions of dma-bufs, which are memory of other devices' drivers. A
 * device that is software copies with the processor, so the buffer is mapped
 * into the kernel for as long as the region lives. A mapping does not keep the
 * buffer in place; being attached does, with exporters that do not know how to
 * tell that it moves. The others, and I/O memory, are refused.
 *
 * The processor's access begins and ends with the region: copies are made where
 * nobody may sleep. That is enough for memory that is coherent.
 */
#include <linux/dma-buf.h>
#include <linux/iosys-map.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "memory.h"
#include "ropcie.h"

MODULE_IMPORT_NS(DMA_BUF);

/* The mapping has no gaps: pages as large as the offset within one can be. */
#define PAGE_SHIFT_OF_MAP 31

/* Return: address of the buffer in the kernel, or an error as a pointer. */
static void *map_buffer(struct dma_buf *buf)
{
	struct iosys_map map;
	int ret;

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

/* A region that has no key yet; with success it has taken @buffer over. */
static struct ropcie_mr *mr_of_buffer(struct ib_pd *ibpd,
				      struct dma_buf_attachment *buffer,
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
	addr = mr->core.pages ? map_buffer(buffer->dmabuf) : ERR_PTR(-ENOMEM);
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
	mr->buffer = buffer;
	mr->buffer_addr = addr;
	return mr;
}

/* Let the buffer go. */
static void detach(struct dma_buf_attachment *buffer)
{
	struct dma_buf *buf = buffer->dmabuf;

	dma_buf_detach(buf, buffer);
	dma_buf_put(buf);
}

void ropcie_mr_release_dmabuf(struct ropcie_mr *mr)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(mr->buffer_addr);

	dma_buf_end_cpu_access(mr->buffer->dmabuf, DMA_BIDIRECTIONAL);
	dma_buf_vunmap_unlocked(mr->buffer->dmabuf, &map);
	detach(mr->buffer);
}

/* May the buffer be registered like that? */
static int check_buffer(const struct dma_buf *buf, u64 offset, u64 length,
			int access)
{
	fmode_t mode = FMODE_READ;
	u64 end;

	if (!length || check_add_overflow(offset, length, &end) ||
	    end > buf->size)
		return -EINVAL;
	/* As mmap() would: who was given it for reading does not write. */
	if (ib_access_writable(access))
		mode |= FMODE_WRITE;
	if ((buf->file->f_mode & mode) != mode)
		return -EACCES;
	/* One that pins is one that moves otherwise. */
	return buf->ops->pin || !buf->ops->vmap ? -EOPNOTSUPP : 0;
}

/* Return: the buffer of a file, kept in place, or an error pointer. */
static struct dma_buf_attachment *attach(struct ib_device *ibdev, int fd,
					 u64 offset, u64 length, int access)
{
	struct dma_buf_attachment *buffer;
	struct dma_buf *buf;
	int ret;

	buf = dma_buf_get(fd);
	if (IS_ERR(buf))
		return ERR_CAST(buf);
	ret = check_buffer(buf, offset, length, access);
	buffer = ret ? ERR_PTR(ret) : dma_buf_attach(buf, &ibdev->dev);
	if (IS_ERR(buffer))
		dma_buf_put(buf);
	return buffer;
}

struct ib_mr *ropcie_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
					u64 length, u64 iova, int fd,
					int access,
					struct ropcie_reg_dmabuf_arg *arg)
{
	struct dma_buf_attachment *buffer;
	struct ropcie_mr *mr;
	int ret;

	if (ropcie_udata_unknown(ropcie_reg_dmabuf_udata(arg)))
		return ERR_PTR(-EOPNOTSUPP);
	ret = ropcie_mr_check_args(offset, length, iova, access);
	if (ret)
		return ERR_PTR(ret);
	buffer = attach(ibpd->device, fd, offset, length, access);
	if (IS_ERR(buffer))
		return ERR_CAST(buffer);
	mr = mr_of_buffer(ibpd, buffer, offset, length, iova, access);
	if (IS_ERR(mr)) {
		detach(buffer);
		return ERR_CAST(mr);
	}
	return ropcie_mr_finish(ibpd, mr);
}
