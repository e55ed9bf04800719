// SPDX-License-Identifier: GPL-2.0
/*
 * ntb_hw_ivshmem: an NTB between QEMU guests that share an ivshmem-doorbell
 * device. This file owns the PCI device, the parameters and the choice of the
 * port; link.c, doorbell.c, register.c, window.c and flat.c are the NTB's parts.
 * It knows nothing of the clients: Linux's own and RoPCIe's run on it unmodified.
 *
 * docs/ntb-emulation.md explains how it works.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/module.h>

#include "ivntb.h"

#define IVSHMEM_PCI_VENDOR	0x1af4
#define IVSHMEM_PCI_DEVICE	0x1110

/* A live port's heartbeat changes within this time, unless it was tuned. */
#define IVNTB_CLAIM_MS		350

MODULE_DESCRIPTION("NTB driver for QEMU's ivshmem-doorbell device");
MODULE_AUTHOR("RoPCIe developers");
MODULE_LICENSE("GPL");

static char *family = "";
module_param(family, charp, 0444);
MODULE_PARM_DESC(family, "Hardware to be as poor as: intel1, intel3, amd, switchtec, idt, epf, worst; the same in every guest (default: none)");

static int ports = 2;
module_param(ports, int, 0444);
MODULE_PARM_DESC(ports, "Ports of the NTB, 2 to 16; the same in every guest (default 2)");

static int port = -1;
module_param(port, int, 0444);
MODULE_PARM_DESC(port, "This guest's port, from 0 on (default: the ID that the ivshmem server gave)");

/* Those that are -1, or mw_size 0, are the family's. */
static int mw_count = -1;
module_param(mw_count, int, 0444);
MODULE_PARM_DESC(mw_count, "Memory windows per peer, 1 to 4; the same in every guest (default 1, or the family's)");

static bool mw_wrap;
module_param(mw_wrap, bool, 0444);
MODULE_PARM_DESC(mw_wrap, "Take window indices modulo their number, as ntb_perf needs with mw_count=1 (default off)");

static bool flat;
module_param(flat, bool, 0444);
MODULE_PARM_DESC(flat, "One more window for each peer, through which it reaches all of this guest's memory; the same in every guest (default off)");

static unsigned long mw_size;
module_param(mw_size, ulong, 0444);
MODULE_PARM_DESC(mw_size, "Largest window in bytes; the same in every guest (default: what fits, or the family's)");

static int spads = -1;
module_param(spads, int, 0444);
MODULE_PARM_DESC(spads, "Scratchpads, 0 to 128 (default 16, or the family's)");

static int msgs = -1;
module_param(msgs, int, 0444);
MODULE_PARM_DESC(msgs, "Message registers, 0 to 4 (default 0, or the family's)");

static int vectors = -1;
module_param(vectors, int, 0444);
MODULE_PARM_DESC(vectors, "Most interrupt vectors to use (default: all there are, or the family's)");

static int ivntb_port_number(struct ntb_dev *ntb)
{
	return ivntb_ndev(ntb)->port;
}

static int ivntb_peer_port_count(struct ntb_dev *ntb)
{
	return ivntb_ndev(ntb)->peer_count;
}

static int ivntb_peer_port_number(struct ntb_dev *ntb, int pidx)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (pidx < 0 || pidx >= ndev->peer_count)
		return -EINVAL;
	return ndev->peers[pidx].port;
}

static int ivntb_peer_port_idx(struct ntb_dev *ntb, int number)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);

	if (number < 0 || number >= ndev->ports || number == ndev->port)
		return -EINVAL;
	return ivntb_port_to_peer(ndev->port, number);
}

static const struct ntb_dev_ops ivntb_ops = {
	.port_number = ivntb_port_number,
	.peer_port_count = ivntb_peer_port_count,
	.peer_port_number = ivntb_peer_port_number,
	.peer_port_idx = ivntb_peer_port_idx,
	.link_is_up = ivntb_link_is_up,
	.link_enable = ivntb_link_enable,
	.link_disable = ivntb_link_disable,
	.mw_count = ivntb_mw_count,
	.mw_get_align = ivntb_mw_get_align,
	.mw_set_trans = ivntb_mw_set_trans,
	.mw_clear_trans = ivntb_mw_clear_trans,
	.peer_mw_set_trans = ivntb_peer_mw_set_trans,
	.peer_mw_clear_trans = ivntb_peer_mw_clear_trans,
	.peer_mw_count = ivntb_peer_mw_count,
	.peer_mw_get_addr = ivntb_peer_mw_get_addr,
	.db_valid_mask = ivntb_db_valid_mask,
	.db_vector_count = ivntb_db_vector_count,
	.db_vector_mask = ivntb_db_vector_mask,
	.db_read = ivntb_db_read,
	.db_set = ivntb_db_set,
	.db_clear = ivntb_db_clear,
	.db_read_mask = ivntb_db_read_mask,
	.db_set_mask = ivntb_db_set_mask,
	.db_clear_mask = ivntb_db_clear_mask,
	.peer_db_set = ivntb_peer_db_set,
	.spad_count = ivntb_spad_count,
	.spad_read = ivntb_spad_read,
	.spad_write = ivntb_spad_write,
	.peer_spad_addr = ivntb_peer_spad_addr,
	.peer_spad_read = ivntb_peer_spad_read,
	.peer_spad_write = ivntb_peer_spad_write,
	.msg_count = ivntb_msg_count,
	.msg_inbits = ivntb_msg_inbits,
	.msg_outbits = ivntb_msg_outbits,
	.msg_read_sts = ivntb_msg_read_sts,
	.msg_clear_sts = ivntb_msg_clear_sts,
	.msg_set_mask = ivntb_msg_set_mask,
	.msg_clear_mask = ivntb_msg_clear_mask,
	.msg_read = ivntb_msg_read,
	.peer_msg_write = ivntb_peer_msg_write,
};

static int ivntb_default(int param, int family_has)
{
	return param == -1 ? family_has : param;
}

static irqreturn_t ivntb_irq(int irq, void *data)
{
	struct ivntb_vector *vector = data;
	struct ivntb_dev *ndev = vector->ndev;

	/* Until then ntb.ko has not even initialised its lock. */
	if (!smp_load_acquire(&ndev->started))
		return IRQ_HANDLED;
	/* Approximate: see struct ivntb_stats. */
	data_race(ndev->stats.irqs++);
	ivntb_db_irq(vector);
	if (vector->index == IVNTB_SERVICE_VECTOR) {
		ivntb_msg_irq(ndev);
		ivntb_link_irq(ndev);
	}
	return IRQ_HANDLED;
}

static void ivntb_free_irqs(struct ivntb_dev *ndev, int count)
{
	while (count--)
		free_irq(pci_irq_vector(ndev->pdev, count),
			 &ndev->vectors[count]);
	pci_free_irq_vectors(ndev->pdev);
}

static int ivntb_request_irqs(struct ivntb_dev *ndev)
{
	int count, ret, i;

	count = pci_alloc_irq_vectors(ndev->pdev, 1,
				      clamp(ivntb_default(vectors, ndev->family->interrupts),
					    1, IVNTB_MAX_VECTORS),
				      PCI_IRQ_MSIX);
	if (count < 0)
		return count;
	ndev->vector_count = count;
	for (i = 0; i < count; i++) {
		ndev->vectors[i].ndev = ndev;
		ndev->vectors[i].index = i;
		ret = request_irq(pci_irq_vector(ndev->pdev, i), ivntb_irq, 0,
				  KBUILD_MODNAME, &ndev->vectors[i]);
		if (ret) {
			ivntb_free_irqs(ndev, i);
			return ret;
		}
	}
	return 0;
}

static int ivntb_check_params(struct ivntb_dev *ndev)
{
	struct device *dev = &ndev->pdev->dev;

	ndev->family = ivntb_family_find(family);
	if (!ndev->family) {
		dev_err(dev, "there is no family=%s, modinfo lists them\n", family);
		return -EINVAL;
	}
	ndev->ports = ports;
	ndev->peer_count = ports - 1;
	ndev->mw_count = ivntb_default(mw_count, ndev->family->mw_count);
	ndev->mw_wrap = mw_wrap;
	ndev->flat = flat;
	ndev->spad_count = ivntb_default(spads, ndev->family->spads);
	ndev->msg_count = ivntb_default(msgs, ndev->family->msgs);
	if (ports < 2 || ports > IVNTB_MAX_PORTS ||
	    ndev->mw_count < 1 || ndev->mw_count > IVNTB_MAX_MWS ||
	    ndev->spad_count < 0 || ndev->spad_count > IVNTB_MAX_SPADS ||
	    ndev->msg_count < 0 || ndev->msg_count > IVNTB_MAX_MSGS) {
		dev_err(dev, "a parameter is out of range, modinfo lists them\n");
		return -EINVAL;
	}
	if (ports > ndev->family->max_ports) {
		dev_err(dev, "family=%s joins %d ports at most, not %d\n",
			family, ndev->family->max_ports, ports);
		return -EINVAL;
	}

	if (flat && ivntb_is(ndev, IVNTB_NO_FLAT)) {
		dev_err(dev, "family=%s has no window that reaches all memory: leave flat= out\n",
			family);
		return -EINVAL;
	}
	if (flat && mw_wrap) {
		dev_err(dev, "mw_wrap=1 does not go with flat=1\n");
		return -EINVAL;
	}

	/* With the ID of the device as the default, no two guests collide. */
	ndev->ivpos = readl(ndev->regs + IVSHMEM_REG_IVPOSITION);
	ndev->port = port < 0 ? (int)ndev->ivpos : port;
	if (ndev->port < 0 || ndev->port >= ports) {
		dev_err(dev, "port %d does not exist with ports=%d (the ivshmem ID is %d): give ports= or port=\n",
			ndev->port, ports, (int)ndev->ivpos);
		return -EINVAL;
	}
	ivntb_family_ops(ndev, &ivntb_ops);
	ndev->ntb.ops = &ndev->ops;
	ndev->ntb.topo = ndev->family->topo[ivntb_side(ndev)];
	return 0;
}

/*
 * Linux may have put the registers where another device answers, such as the IO-APIC:
 * doorbells would be lost without a word.
 */
static int ivntb_check_regs(struct ivntb_dev *ndev)
{
	void __iomem *mask = ndev->regs + IVSHMEM_REG_INTRMASK;
	const u32 any = 0x5afe;
	u32 back;

	writel(any, mask);
	back = readl(mask);
	writel(0, mask);
	if (back == any)
		return 0;
	dev_err(&ndev->pdev->dev,
		"its registers do not answer at %pR: keep Linux from moving the BARs (boot with ACPI's PCI resources)\n",
		&ndev->pdev->resource[IVSHMEM_BAR_REGS]);
	return -EIO;
}

/* Refuses a port that another device keeps alive. May sleep. */
static int ivntb_claim_port(struct ivntb_dev *ndev)
{
	u64 before = READ_ONCE(ndev->self->heartbeat);

	if (READ_ONCE(ndev->self->magic) != IVNTB_MAGIC ||
	    READ_ONCE(ndev->self->ivpos) == ndev->ivpos)
		return 0;
	msleep(IVNTB_CLAIM_MS);
	if (READ_ONCE(ndev->self->heartbeat) == before)
		return 0;
	dev_err(&ndev->pdev->dev, "port %d belongs to the guest with ivshmem ID %u\n",
		ndev->port, READ_ONCE(ndev->self->ivpos));
	return -EBUSY;
}

static void ivntb_init_peers(struct ivntb_dev *ndev)
{
	struct ivntb_peer *peer;
	int pidx;

	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		peer = &ndev->peers[pidx];
		peer->port = ivntb_peer_to_port(ndev->port, pidx);
		ratelimit_state_init(&peer->log, DEFAULT_RATELIMIT_INTERVAL,
				     DEFAULT_RATELIMIT_BURST);
		peer->hdr = &ndev->headers[peer->port];
		peer->out = &ndev->self->pair[peer->port];
		peer->in = &peer->hdr->pair[ndev->port];
	}
}

/* A new life of this port: everything that the peers will read of it. */
static void ivntb_init_header(struct ivntb_dev *ndev)
{
	struct ivntb_port *self = ndev->self;

	ivntb_link_init(ndev);
	ivntb_db_init(ndev);
	ivntb_register_init(ndev);
	ivntb_flat_publish(ndev);
	WRITE_ONCE(self->ivpos, ndev->ivpos);
	WRITE_ONCE(self->vectors, ndev->vector_count);
	WRITE_ONCE(self->layout,
		   ivntb_layout_word(ivntb_family_number(ndev), ndev->ports,
				     ndev->mw_count));
	WRITE_ONCE(self->mw_size, ndev->mw_size);
	WRITE_ONCE(self->mem, pci_resource_start(ndev->pdev, IVSHMEM_BAR_MEM));
	/* The peers believe the rest as soon as they see the magic. */
	mb();
	WRITE_ONCE(self->magic, IVNTB_MAGIC);
}

static struct ivntb_dev *ivntb_create(struct pci_dev *pdev)
{
	struct ivntb_dev *ndev;

	ndev = kzalloc(sizeof(*ndev), GFP_KERNEL);
	if (!ndev)
		return NULL;
	ndev->wq = alloc_ordered_workqueue("ntb_hw_ivshmem", WQ_HIGHPRI);
	if (!ndev->wq) {
		kfree(ndev);
		return NULL;
	}
	ndev->pdev = pdev;
	ndev->ntb.pdev = pdev;
	spin_lock_init(&ndev->link_lock);
	spin_lock_init(&ndev->db_lock);
	spin_lock_init(&ndev->msg_lock);
	spin_lock_init(&ndev->mw_lock);
	INIT_WORK(&ndev->link_work, ivntb_link_work);
	timer_setup(&ndev->beat_timer, ivntb_beat_timer, 0);
	timer_setup(&ndev->bells_timer, ivntb_bells_timer, 0);
	pci_set_drvdata(pdev, ndev);
	return ndev;
}

static void ivntb_destroy(struct ivntb_dev *ndev)
{
	destroy_workqueue(ndev->wq);
	kfree(ndev);
}

static int ivntb_map(struct ivntb_dev *ndev)
{
	struct pci_dev *pdev = ndev->pdev;
	int ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = pcim_iomap_regions(pdev, BIT(IVSHMEM_BAR_REGS), KBUILD_MODNAME);
	if (ret)
		return ret;
	ndev->regs = pcim_iomap_table(pdev)[IVSHMEM_BAR_REGS];
	ret = ivntb_check_regs(ndev);
	if (ret)
		return ret;
	ret = pci_request_region(pdev, IVSHMEM_BAR_MEM, KBUILD_MODNAME);
	if (ret)
		return ret;
	ret = ivntb_check_params(ndev);
	if (ret)
		return ret;
	ret = ivntb_window_layout(ndev, mw_size ?: ndev->family->mw_size);
	if (ret) {
		dev_err(&pdev->dev, "the shared memory is too small\n");
		return ret;
	}
	ndev->headers = memremap(pci_resource_start(pdev, IVSHMEM_BAR_MEM),
				 ndev->ports * sizeof(*ndev->headers),
				 MEMREMAP_WB);
	if (!ndev->headers)
		return -ENOMEM;
	ndev->self = &ndev->headers[ndev->port];
	return 0;
}

static int ivntb_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct ivntb_dev *ndev;
	int ret;

	/* ivshmem-plain has the same ID, but no interrupts. */
	if (!pdev->msix_cap)
		return -ENODEV;
	ndev = ivntb_create(pdev);
	if (!ndev)
		return -ENOMEM;
	ret = ivntb_map(ndev);
	if (ret)
		goto err_destroy;
	ret = ivntb_claim_port(ndev);
	if (ret)
		goto err_unmap;
	ivntb_init_peers(ndev);
	ret = ivntb_window_init(ndev);
	if (ret)
		goto err_unmap;
	pci_set_master(pdev);
	ret = ivntb_request_irqs(ndev);
	if (ret)
		goto err_windows;
	ivntb_init_header(ndev);

	ret = ntb_register_device(&ndev->ntb);
	if (ret)
		goto err_irqs;
	/* Pairs with the interrupt handler: ntb.ko is ready. */
	smp_store_release(&ndev->started, true);
	ivntb_link_start(ndev);
	ivntb_debugfs_add(ndev);
	dev_info(&pdev->dev,
		 "port %d of %d, %d windows of %pap bytes per peer, %d vectors\n",
		 ndev->port, ndev->ports, ndev->mw_count, &ndev->mw_size,
		 ndev->vector_count);
	return 0;

err_irqs:
	ivntb_free_irqs(ndev, ndev->vector_count);
err_windows:
	ivntb_window_exit(ndev);
err_unmap:
	memunmap(ndev->headers);
err_destroy:
	ivntb_destroy(ndev);
	return ret;
}

static void ivntb_remove(struct pci_dev *pdev)
{
	struct ivntb_dev *ndev = pci_get_drvdata(pdev);

	ivntb_debugfs_remove(ndev);
	ntb_unregister_device(&ndev->ntb);
	ivntb_bells_stop(ndev);
	/* Before the link's work ends for good: the handler queues it. */
	ivntb_free_irqs(ndev, ndev->vector_count);
	ivntb_link_stop(ndev);
	ivntb_window_exit(ndev);
	memunmap(ndev->headers);
	ivntb_destroy(ndev);
}

/* Reboot or kexec: the peers need not wait for the heartbeat to run out. */
static void ivntb_shutdown(struct pci_dev *pdev)
{
	struct ivntb_dev *ndev = pci_get_drvdata(pdev);

	if (!(ndev->family->flags & IVNTB_SHUTDOWN))
		return;
	ivntb_bells_stop(ndev);
	ivntb_link_stop(ndev);
}

/*
 * No MODULE_DEVICE_TABLE(): a device of that kind may be there for anything, and the
 * driver writes into its memory. It is loaded by name.
 */
static const struct pci_device_id ivntb_pci_ids[] = {
	{ PCI_DEVICE(IVSHMEM_PCI_VENDOR, IVSHMEM_PCI_DEVICE) },
	{ }
};

static struct pci_driver ivntb_driver = {
	.name = KBUILD_MODNAME,
	.id_table = ivntb_pci_ids,
	.probe = ivntb_probe,
	.remove = ivntb_remove,
	.shutdown = ivntb_shutdown,
};

static int __init ivntb_init(void)
{
	int ret;

	ivntb_debugfs_init();
	ret = pci_register_driver(&ivntb_driver);
	if (ret)
		ivntb_debugfs_exit();
	return ret;
}
module_init(ivntb_init);

static void __exit ivntb_exit(void)
{
	pci_unregister_driver(&ivntb_driver);
	ivntb_debugfs_exit();
}
module_exit(ivntb_exit);
