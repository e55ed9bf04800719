// SPDX-License-Identifier: GPL-2.0
/*
 * Flat windows (flat=1): each peer reaches all of this guest's memory, as
 * through an NTB whose BAR covers the memory and is translated to address 0.
 *
 * QEMU keeps a guest's memory in a file, and shows that file to each peer as
 * the BAR of an ivshmem-plain device, whose PCI slot says whose memory it is. So
 * nothing translates here, either: the bus address of a page is its physical
 * address, and that is its place in the window. Whether the window is open is
 * a word in the shared header, and no more: it stops nobody.
 */
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>

#include "ivntb.h"

/* The slot of the device that shows port 0's memory. */
#define IVNTB_FLAT_SLOT		16

static void ivntb_flat_put(struct ivntb_peer *peer)
{
	if (!peer->flat)
		return;
	pci_release_region(peer->flat, IVSHMEM_BAR_MEM);
	pci_disable_device(peer->flat);
	pci_dev_put(peer->flat);
	peer->flat = NULL;
}

static int ivntb_flat_get(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	struct pci_dev *pdev = ndev->pdev, *flat;
	int slot = IVNTB_FLAT_SLOT + peer->port;
	int ret = -ENODEV;

	flat = pci_get_domain_bus_and_slot(pci_domain_nr(pdev->bus),
					   pdev->bus->number, PCI_DEVFN(slot, 0));
	if (!flat || flat->vendor != pdev->vendor ||
	    flat->device != pdev->device || flat->msix_cap)
		goto err_put;
	ret = pci_enable_device_mem(flat);
	if (ret)
		goto err_put;
	ret = pci_request_region(flat, IVSHMEM_BAR_MEM, KBUILD_MODNAME);
	if (ret)
		goto err_disable;
	peer->flat = flat;
	peer->flat_size = pci_resource_len(flat, IVSHMEM_BAR_MEM);
	return 0;

err_disable:
	pci_disable_device(flat);
err_put:
	pci_dev_put(flat);
	dev_err(&pdev->dev,
		"flat=1, but no ivshmem-plain device in PCI slot %d that shows port %d's memory: %d\n",
		slot, peer->port, ret);
	return ret;
}

void ivntb_flat_exit(struct ivntb_dev *ndev)
{
	int pidx;

	for (pidx = 0; pidx < ndev->peer_count; pidx++)
		ivntb_flat_put(&ndev->peers[pidx]);
}

int ivntb_flat_init(struct ivntb_dev *ndev)
{
	int pidx, ret;

	if (!ndev->flat)
		return 0;
	/* A mask for all memory there is: the power of two that covers it. */
	ndev->flat_size = dma_get_required_mask(&ndev->pdev->dev) + 1;
	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		ret = ivntb_flat_get(ndev, &ndev->peers[pidx]);
		if (ret) {
			ivntb_flat_exit(ndev);
			return ret;
		}
	}
	return 0;
}

/* A new life: all closed. */
void ivntb_flat_publish(struct ivntb_dev *ndev)
{
	int pidx;

	WRITE_ONCE(ndev->self->flat_size, ndev->flat_size);
	for (pidx = 0; pidx < ndev->peer_count; pidx++)
		WRITE_ONCE(ndev->peers[pidx].out->flat_open, 0);
}

/* What the peer has and what is seen of it here is the same. */
bool ivntb_flat_fits(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	return READ_ONCE(peer->hdr->flat_size) == peer->flat_size;
}

bool ivntb_flat_is_open(struct ivntb_dev *ndev, struct ivntb_peer *peer,
			bool inbound)
{
	bool ours = inbound != ivntb_is(ndev, IVNTB_SENDER_TRANSLATES);

	return READ_ONCE((ours ? peer->out : peer->in)->flat_open);
}

/* Of the window that has @whole bytes. Without a size it is closed. */
int ivntb_flat_set_trans(struct ivntb_dev *ndev, struct ivntb_peer *peer,
			 resource_size_t whole, u64 addr, resource_size_t size)
{
	if (size && (addr || size != whole)) {
		dev_err(&ndev->pdev->dev,
			"the flat window of peer %d can only lead to address 0, %pap bytes\n",
			(int)(peer - ndev->peers), &whole);
		return -EINVAL;
	}
	if (!READ_ONCE(ndev->gone))
		WRITE_ONCE(peer->out->flat_open, size > 0);
	return 0;
}

/* The device reaches what the flat window covers, else nothing. */
static dma_addr_t ivntb_flat_map(struct device *dev, phys_addr_t phys,
				 size_t size)
{
	struct ivntb_dev *ndev = dev_get_drvdata(dev);

	if (size > ndev->flat_size || phys > ndev->flat_size - size)
		return DMA_MAPPING_ERROR;
	return phys;
}

dma_addr_t ivntb_flat_map_page(struct device *dev, struct page *page,
			       unsigned long offset, size_t size,
			       enum dma_data_direction dir, unsigned long attrs)
{
	return ivntb_flat_map(dev, page_to_phys(page) + offset, size);
}

int ivntb_flat_map_sg(struct device *dev, struct scatterlist *sgl, int nents,
		      enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		sg->dma_address = ivntb_flat_map(dev, sg_phys(sg), sg->length);
		if (sg->dma_address == DMA_MAPPING_ERROR)
			return -EIO;
		sg_dma_len(sg) = sg->length;
	}
	return nents;
}

/* Nothing was made that would have to go, but newer kernels call these always. */
void ivntb_flat_unmap_page(struct device *dev, dma_addr_t addr, size_t size,
			   enum dma_data_direction dir, unsigned long attrs)
{
}

void ivntb_flat_unmap_sg(struct device *dev, struct scatterlist *sgl, int nents,
			 enum dma_data_direction dir, unsigned long attrs)
{
}
