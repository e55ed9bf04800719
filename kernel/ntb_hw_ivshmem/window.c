// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows, and the DMA memory of clients.
 *
 * The shared memory behind the headers is cut into equal windows: for each
 * port, for each of its peers, the windows that this peer writes to. Where a
 * window leads is fixed: nothing translates. So the memory that a client
 * allocates for a window must be the window itself: this file serves
 * dma_alloc_coherent() on the PCI device from the windows, one allocation per
 * window, and ntb_mw_set_trans() accepts nothing else.
 *
 * dma_alloc_coherent() does not say for which window it is. But every client
 * asks for the window's alignment first, so the window that the calling task
 * last asked about is taken; else the first free one that is large enough.
 *
 * With flat=1 each peer has one more window behind these, which is flat.c's.
 */
#include <linux/dma-map-ops.h>
#include <linux/io.h>
#include <linux/log2.h>
#include <linux/sched/task.h>
#include <linux/sizes.h>

#include "ivntb.h"

#if !defined(CONFIG_DMA_OPS) && !defined(CONFIG_ARCH_HAS_DMA_OPS)
#error "this kernel has no dma_map_ops: enable CONFIG_GART_IOMMU (or XEN)"
#endif

/* Windows from this size on start where a huge page can map them. */
#define IVNTB_HUGE_WINDOW	SZ_8M

static resource_size_t ivntb_window_offset(struct ivntb_dev *ndev, int to,
					   int from, int k)
{
	int row = to * ndev->peer_count + ivntb_port_to_peer(to, from);

	return ndev->mw_offset + (row * ndev->mw_count + k) * ndev->mw_size;
}

/* ntb_perf takes the ports' numbers for window indices; see mw_wrap. */
static int ivntb_wrap(struct ivntb_dev *ndev, int widx, int count)
{
	return ndev->mw_wrap && widx >= 0 ? widx % count : widx;
}

static struct ivntb_window *ivntb_window_get(struct ivntb_dev *ndev, int pidx,
					     int widx)
{
	widx = ivntb_wrap(ndev, widx, ndev->mw_count);
	if (pidx < 0 || pidx >= ndev->peer_count ||
	    widx < 0 || widx >= ndev->mw_count)
		return NULL;
	return &ndev->peers[pidx].windows[widx];
}

/* As many as clients see, the flat one being the last. */
static int ivntb_windows_per_peer(struct ivntb_dev *ndev)
{
	return ndev->mw_count + ndev->flat;
}

static struct ivntb_peer *ivntb_flat_peer(struct ivntb_dev *ndev, int pidx,
					  int widx)
{
	if (!ndev->flat || widx != ndev->mw_count ||
	    pidx < 0 || pidx >= ndev->peer_count)
		return NULL;
	return &ndev->peers[pidx];
}

/* Whom an outbound window leads to, and to which inbound window there. */
static struct ivntb_peer *ivntb_leads_to(struct ivntb_dev *ndev, int widx,
					 int *k)
{
	int count = ivntb_windows_per_peer(ndev);

	widx = ivntb_wrap(ndev, widx, ndev->peer_count * count);
	if (widx < 0 || widx >= ndev->peer_count * count)
		return NULL;
	*k = widx % count;
	return &ndev->peers[widx / count];
}

static struct ivntb_window *ivntb_window_nth(struct ivntb_dev *ndev, int n)
{
	return ivntb_window_get(ndev, n / ndev->mw_count, n % ndev->mw_count);
}

int ivntb_mw_count(struct ntb_dev *ntb, int pidx)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (pidx < 0 || pidx >= ndev->peer_count)
		return -EINVAL;
	return ivntb_windows_per_peer(ndev) *
	       (ivntb_is(ndev, IVNTB_SENDER_TRANSLATES) ? ndev->peer_count : 1);
}

/*
 * Where the sender translates, inbound windows are the peer's outbound ones, as the peer
 * counts them, and only some lead here. Sets @widx to which of those it is, or would be.
 * Return: it leads here.
 */
static bool ivntb_leads_here(struct ivntb_dev *ndev, int pidx, int *widx)
{
	int count = ivntb_windows_per_peer(ndev), index = *widx;

	if (!ivntb_is(ndev, IVNTB_SENDER_TRANSLATES) || pidx < 0 ||
	    pidx >= ndev->peer_count || index < 0 ||
	    index >= ivntb_mw_count(&ndev->ntb, pidx))
		return true;
	*widx = index % count;
	return index / count == ivntb_port_to_peer(ndev->peers[pidx].port,
						   ndev->port);
}

int ivntb_mw_get_align(struct ntb_dev *ntb, int pidx, int widx,
		       resource_size_t *addr_align, resource_size_t *size_align,
		       resource_size_t *size_max)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	bool leads_here = ivntb_leads_here(ndev, pidx, &widx);
	struct ivntb_window *window = ivntb_window_get(ndev, pidx, widx);
	struct task_struct *task;
	unsigned long flags;

	if (ivntb_flat_peer(ndev, pidx, widx)) {
		if (addr_align)
			*addr_align = ndev->flat_size;
		if (size_align)
			*size_align = ndev->flat_size;
		if (size_max)
			*size_max = ndev->flat_size;
		return 0;
	}
	if (!window)
		return -EINVAL;
	/* Of one that leads elsewhere nothing is allocated here. */
	task = leads_here ? get_task_struct(current) : NULL;
	spin_lock_irqsave(&ndev->mw_lock, flags);
	swap(ndev->mw_task, task);
	ndev->mw_hint = window;
	spin_unlock_irqrestore(&ndev->mw_lock, flags);
	if (task)
		put_task_struct(task);

	if (addr_align)
		*addr_align = ivntb_is(ndev, IVNTB_BAR_ALIGNED) ?
			      ndev->mw_size : PAGE_SIZE;
	if (size_align)
		*size_align = ivntb_is(ndev, IVNTB_WHOLE_WINDOWS) ?
			      ndev->mw_size : PAGE_SIZE;
	if (size_max)
		*size_max = ndev->mw_size;
	return 0;
}

int ivntb_mw_set_trans(struct ntb_dev *ntb, int pidx, int widx,
		       dma_addr_t addr, resource_size_t size)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	struct ivntb_window *window = ivntb_window_get(ndev, pidx, widx);
	struct ivntb_peer *peer = ivntb_flat_peer(ndev, pidx, widx);

	if (peer)
		return ivntb_flat_set_trans(ndev, peer, ndev->flat_size, addr,
					    size);
	if (!window)
		return -EINVAL;
	if (!addr || !size)
		return 0;
	if (addr == window->dma && size <= ndev->mw_size)
		return 0;
	dev_err_ratelimited(&ndev->pdev->dev,
			    "peer %d window %d can only lead to %pad, %pap bytes: see docs/ntb-emulation.md\n",
			    pidx, widx, &window->dma, &ndev->mw_size);
	return -EINVAL;
}

int ivntb_mw_clear_trans(struct ntb_dev *ntb, int pidx, int widx)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	struct ivntb_peer *peer = ivntb_flat_peer(ndev, pidx, widx);

	if (peer)
		return ivntb_flat_set_trans(ndev, peer, ndev->flat_size, 0, 0);
	return ivntb_window_get(ndev, pidx, widx) ? 0 : -EINVAL;
}

/*
 * The address that the receiver has told the sender must be that of the window
 * as the receiver's bus has it.
 */
int ivntb_peer_mw_set_trans(struct ntb_dev *ntb, int pidx, int widx, u64 addr,
			    resource_size_t size)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	struct ivntb_peer *peer;
	unsigned long flags;
	u64 leads;
	int k;

	peer = ivntb_leads_to(ndev, widx, &k);
	if (!peer || pidx != peer - ndev->peers)
		return -EINVAL;
	if (k == ndev->mw_count)
		return ivntb_flat_set_trans(ndev, peer, peer->flat_size, addr,
					    size);
	leads = READ_ONCE(peer->hdr->mem) +
		ivntb_window_offset(ndev, peer->port, ndev->port, k);
	if (size > ndev->mw_size ||
	    (ivntb_is(ndev, IVNTB_WHOLE_WINDOWS) && size % ndev->mw_size))
		return -EINVAL;
	if (addr != leads) {
		dev_err_ratelimited(&ndev->pdev->dev,
				    "window %d can only lead to %#llx of peer %d, not %#llx\n",
				    widx, leads, pidx, addr);
		return -EINVAL;
	}
	spin_lock_irqsave(&ndev->mw_lock, flags);
	ndev->stats.out_trans++;
	spin_unlock_irqrestore(&ndev->mw_lock, flags);
	return 0;
}

int ivntb_peer_mw_clear_trans(struct ntb_dev *ntb, int pidx, int widx)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	struct ivntb_peer *peer;
	int k;

	peer = ivntb_leads_to(ndev, widx, &k);
	if (!peer || pidx != peer - ndev->peers)
		return -EINVAL;
	if (k == ndev->mw_count)
		return ivntb_flat_set_trans(ndev, peer, peer->flat_size, 0, 0);
	return 0;
}

int ivntb_peer_mw_count(struct ntb_dev *ntb)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	return ndev->peer_count * ivntb_windows_per_peer(ndev);
}

int ivntb_peer_mw_get_addr(struct ntb_dev *ntb, int widx, phys_addr_t *base,
			   resource_size_t *size)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	struct ivntb_peer *peer;
	bool is_flat;
	int k;

	peer = ivntb_leads_to(ndev, widx, &k);
	if (!peer)
		return -EINVAL;
	is_flat = k == ndev->mw_count;
	if (base && is_flat)
		*base = pci_resource_start(peer->flat, IVSHMEM_BAR_MEM);
	else if (base)
		*base = pci_resource_start(ndev->pdev, IVSHMEM_BAR_MEM) +
			ivntb_window_offset(ndev, peer->port, ndev->port, k);
	if (size)
		*size = is_flat ? peer->flat_size : ndev->mw_size;
	return 0;
}

static struct ivntb_window *ivntb_window_take(struct ivntb_dev *ndev)
{
	int count = ndev->peer_count * ndev->mw_count;
	struct ivntb_window *window = NULL;
	unsigned long flags;
	int n = 0;

	spin_lock_irqsave(&ndev->mw_lock, flags);
	if (ndev->mw_task == current && !ndev->mw_hint->busy)
		window = ndev->mw_hint;
	for (; !window && n < count; n++)
		if (!ivntb_window_nth(ndev, n)->busy)
			window = ivntb_window_nth(ndev, n);
	if (window)
		window->busy = true;
	spin_unlock_irqrestore(&ndev->mw_lock, flags);
	return window;
}

static void *ivntb_dma_alloc(struct device *dev, size_t size, dma_addr_t *handle,
			     gfp_t gfp, unsigned long attrs)
{
	struct ivntb_dev *ndev = dev_get_drvdata(dev);
	struct ivntb_window *window;
	resource_size_t offset = 0;

	if (!size || size > ndev->mw_size)
		return NULL;
	window = ivntb_window_take(ndev);
	if (!window)
		return NULL;
	/* An allocation is aligned to its own size, not to that of the BAR. */
	if (ivntb_is(ndev, IVNTB_BAR_ALIGNED))
		offset = ndev->mw_size - roundup_pow_of_two(PAGE_ALIGN(size));
	/* As every allocator of DMA memory; an earlier life may have used it. */
	memset(window->virt + offset, 0, size);
	*handle = window->dma + offset;
	return window->virt + offset;
}

static void ivntb_dma_free(struct device *dev, size_t size, void *vaddr,
			   dma_addr_t handle, unsigned long attrs)
{
	struct ivntb_dev *ndev = dev_get_drvdata(dev);
	int count = ndev->peer_count * ndev->mw_count;
	unsigned long flags;
	int n;

	spin_lock_irqsave(&ndev->mw_lock, flags);
	for (n = 0; n < count; n++)
		if (handle - ivntb_window_nth(ndev, n)->dma < ndev->mw_size)
			ivntb_window_nth(ndev, n)->busy = false;
	spin_unlock_irqrestore(&ndev->mw_lock, flags);
}

static const struct dma_map_ops ivntb_dma_ops = {
	.alloc = ivntb_dma_alloc,
	.free = ivntb_dma_free,
	.map_page = ivntb_flat_map_page,
	.unmap_page = ivntb_flat_unmap_page,
	.map_sg = ivntb_flat_map_sg,
	.unmap_sg = ivntb_flat_unmap_sg,
};

/* Cuts the shared memory; the same at every port with the same parameters. */
int ivntb_window_layout(struct ivntb_dev *ndev, resource_size_t max_size)
{
	resource_size_t len = pci_resource_len(ndev->pdev, IVSHMEM_BAR_MEM);
	resource_size_t align = PAGE_SIZE;
	int windows = ndev->ports * ndev->peer_count * ndev->mw_count;

	if (len / windows >= IVNTB_HUGE_WINDOW)
		align = SZ_2M;
	ndev->mw_offset = round_up(ndev->ports * sizeof(struct ivntb_port),
				   align);
	if (len <= ndev->mw_offset)
		return -ENOSPC;
	ndev->mw_size = round_down((len - ndev->mw_offset) / windows, align);
	if (max_size)
		ndev->mw_size = min_t(resource_size_t, ndev->mw_size,
				      round_down(max_size, PAGE_SIZE));
	if (ivntb_is(ndev, IVNTB_BAR_ALIGNED) && ndev->mw_size) {
		/* As large as a BAR may be, and where it may be. */
		ndev->mw_size = rounddown_pow_of_two(ndev->mw_size);
		ndev->mw_offset = round_up(ndev->mw_offset, ndev->mw_size);
		if (ndev->mw_offset + windows * ndev->mw_size > len) {
			ndev->mw_size /= 2;
			ndev->mw_offset = round_up(ndev->mw_offset,
						   ndev->mw_size);
		}
	}
	return ndev->mw_size ? 0 : -ENOSPC;
}

/*
 * Maps what the peers write to. All of it lies together, apart from what the
 * clients map of the peers' windows: one page must not be mapped with two
 * memory types.
 */
int ivntb_window_init(struct ivntb_dev *ndev)
{
	resource_size_t bar = pci_resource_start(ndev->pdev, IVSHMEM_BAR_MEM);
	int count = ndev->peer_count * ndev->mw_count;
	struct ivntb_window *window;
	resource_size_t first;
	int ret, n;

	ret = dma_set_mask_and_coherent(&ndev->pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;

	/* It asks the device's first DMA operations for the memory's end. */
	ret = ivntb_flat_init(ndev);
	if (ret)
		return ret;

	first = ivntb_window_offset(ndev, ndev->port, ndev->peers[0].port, 0);
	ndev->inbound = memremap(bar + first, count * ndev->mw_size,
				 MEMREMAP_WB);
	if (!ndev->inbound) {
		ivntb_flat_exit(ndev);
		return -ENOMEM;
	}
	for (n = 0; n < count; n++) {
		window = ivntb_window_nth(ndev, n);
		window->virt = ndev->inbound + n * ndev->mw_size;
		window->dma = bar + first + n * ndev->mw_size;
	}
	set_dma_ops(&ndev->pdev->dev, &ivntb_dma_ops);
	return 0;
}

void ivntb_window_exit(struct ivntb_dev *ndev)
{
	set_dma_ops(&ndev->pdev->dev, NULL);
	memunmap(ndev->inbound);
	if (ndev->mw_task)
		put_task_struct(ndev->mw_task);
	ivntb_flat_exit(ndev);
}
