// SPDX-License-Identifier: GPL-2.0
/*
 * ntb_flattest.ko: an NTB client for windows that reach all memory. It takes each
 * peer's last window for one. In /sys/kernel/debug/ntb_flattest/DEVICE/:
 *
 *   links   read: a bit for each peer whose link is up
 *   peerN/
 *     targets  read: bus address and length of each place that peer N may write
 *     open     write 1 or 0: sets or clears the window's translation, at the end
 *              that does so; 1 checks first what the window must refuse
 *     address, length, write  the third is given a seed, and writes what
 *              belongs to it to that place of the peer's memory
 *     ring     write: the peer's doorbell
 *     check    write a seed: waits for the peer's doorbell; then the targets
 *              have what belongs to the seed and the ones after it, and the
 *              memory around them is as it was
 *
 * A check that fails says in the kernel log what it found.
 */
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/ntb.h>
#include <linux/scatterlist.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

MODULE_DESCRIPTION("Test of flat NTB windows");
MODULE_AUTHOR("RoPCIe developers");
MODULE_LICENSE("GPL");

#define FT_TARGETS	4
/* A target lies somewhere in a block of pages, none at its ends. */
#define FT_ORDER	2
#define FT_BLOCK	(PAGE_SIZE << FT_ORDER)
#define FT_UNTOUCHED	0x5a
#define FT_PATIENCE	(20 * HZ)

/*
 * struct ft_peer - a peer, and the memory that it may write
 * @blocks:	Of FT_BLOCK bytes.
 * @sg:		The target in each; the first one is mapped by itself.
 * @mapped:	Targets that are mapped.
 * @io:		The peer's memory, of
 * @io_size:	bytes.
 * @rings:	Of its doorbell, and
 * @checked:	how many of them have been checked.
 * @address:	Where to write, and
 * @length:	how much.
 */
struct ft_peer {
	struct ft_dev *ft;
	int pidx;
	struct page *blocks[FT_TARGETS];
	struct scatterlist sg[FT_TARGETS];
	int mapped;
	void __iomem *io;
	resource_size_t io_size;
	u64 bit_out;
	u64 bit_in;
	u32 rings;
	u32 checked;
	u64 address;
	u64 length;
};

struct ft_dev {
	struct ntb_dev *ntb;
	struct device *dma;
	wait_queue_head_t wait;
	struct dentry *debugfs;
	int peer_count;
	struct ft_peer peers[];
};

static struct dentry *ft_debugfs;

static int ft_in_window(struct ft_peer *p)
{
	return ntb_mw_count(p->ft->ntb, p->pidx) - 1;
}

static int ft_out_window(struct ft_peer *p)
{
	int each = ntb_peer_mw_count(p->ft->ntb) / p->ft->peer_count;

	return (p->pidx + 1) * each - 1;
}

static u8 ft_pattern(u64 seed, size_t i)
{
	return seed * 59 + i * 7 + (i >> 8);
}

/* At the end that has the register for it. */
static int ft_trans(struct ft_peer *p, u64 addr, resource_size_t size)
{
	struct ntb_dev *ntb = p->ft->ntb;

	if (ntb->ops->mw_set_trans)
		return ntb_mw_set_trans(ntb, p->pidx, ft_in_window(p), addr,
					size);
	return ntb_peer_mw_set_trans(ntb, p->pidx, ft_out_window(p), addr,
				     size);
}

static int ft_clear_trans(struct ft_peer *p)
{
	struct ntb_dev *ntb = p->ft->ntb;

	if (ntb->ops->mw_set_trans)
		return ntb_mw_clear_trans(ntb, p->pidx, ft_in_window(p));
	return ntb_peer_mw_clear_trans(ntb, p->pidx, ft_out_window(p));
}

static int ft_wrong(struct ft_peer *p, const char *what)
{
	dev_err(&p->ft->ntb->dev, "peer %d: %s\n", p->pidx, what);
	return -EBADMSG;
}

/* All that dma_alloc_coherent() gives is of the other windows. */
static int ft_check_alloc(struct ft_peer *p, resource_size_t size)
{
	struct ft_dev *ft = p->ft;
	int want = ft->peer_count * ft_in_window(p);
	dma_addr_t dma[16];
	void *virt[16];
	int n, ret = 0;

	for (n = 0; n < ARRAY_SIZE(virt); n++) {
		virt[n] = dma_alloc_coherent(ft->dma, PAGE_SIZE, &dma[n],
					     GFP_KERNEL);
		if (!virt[n])
			break;
		if (dma[n] < size)
			ret = ft_wrong(p, "the flat window was allocated");
	}
	if (n != want)
		ret = ft_wrong(p, "not as many allocations as windows");
	while (n--)
		dma_free_coherent(ft->dma, PAGE_SIZE, virt[n], dma[n]);
	return ret;
}

static int ft_check_window(struct ft_peer *p, resource_size_t size,
			   resource_size_t whole)
{
	struct ft_dev *ft = p->ft;
	dma_addr_t dma;

	if (!ft_trans(p, PAGE_SIZE, whole) || !ft_trans(p, 0, whole / 2))
		return ft_wrong(p, "the window leads elsewhere than to all memory");
	dma = dma_map_page(ft->dma, p->blocks[0], 0, size, DMA_FROM_DEVICE);
	if (!dma_mapping_error(ft->dma, dma))
		return ft_wrong(p, "what is beyond the window was mapped");
	return ft_check_alloc(p, size);
}

static int ft_open_set(void *data, u64 val)
{
	struct ft_peer *p = data;
	resource_size_t addr_align, size_align, size, whole;
	int ret;

	if (!val)
		return ft_clear_trans(p);
	ret = ntb_mw_get_align(p->ft->ntb, p->pidx, ft_in_window(p),
			       &addr_align, &size_align, &size);
	if (ret)
		return ret;
	if (addr_align != size || size_align != size || size & (size - 1))
		return ft_wrong(p, "the window is not aligned as a flat one");
	whole = p->ft->ntb->ops->mw_set_trans ? size : p->io_size;
	return ft_check_window(p, size, whole) ?: ft_trans(p, 0, whole);
}
DEFINE_DEBUGFS_ATTRIBUTE(ft_open_fops, NULL, ft_open_set, "%llu\n");

static int ft_write_set(void *data, u64 seed)
{
	struct ft_peer *p = data;
	u8 *bytes;
	u64 i;

	if (!p->length || p->length > FT_BLOCK || p->length > p->io_size ||
	    p->address > p->io_size - p->length)
		return -ERANGE;
	bytes = kmalloc(p->length, GFP_KERNEL);
	if (!bytes)
		return -ENOMEM;
	for (i = 0; i < p->length; i++)
		bytes[i] = ft_pattern(seed, i);
	memcpy_toio(p->io + p->address, bytes, p->length);
	kfree(bytes);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(ft_write_fops, NULL, ft_write_set, "%llu\n");

static int ft_ring_set(void *data, u64 val)
{
	struct ft_peer *p = data;

	/* What was written comes before the doorbell, write-combined or not. */
	wmb();
	return ntb_peer_db_set(p->ft->ntb, p->bit_out);
}
DEFINE_DEBUGFS_ATTRIBUTE(ft_ring_fops, NULL, ft_ring_set, "%llu\n");

static int ft_check_target(struct ft_peer *p, int n, u64 seed)
{
	size_t begin = sg_phys(&p->sg[n]) - page_to_phys(p->blocks[n]);
	u8 *block = page_address(p->blocks[n]);
	size_t i, end = begin + p->sg[n].length;
	u8 want;
	int ret = 0;

	dma_sync_single_for_cpu(p->ft->dma, sg_dma_address(&p->sg[n]),
				p->sg[n].length, DMA_FROM_DEVICE);
	for (i = 0; i < FT_BLOCK && !ret; i++) {
		want = i < begin || i >= end ? FT_UNTOUCHED :
					       ft_pattern(seed, i - begin);
		if (block[i] == want)
			continue;
		dev_err(&p->ft->ntb->dev,
			"peer %d, target %d (%zu to %zu): byte %zu is %#x, not %#x\n",
			p->pidx, n, begin, end, i, block[i], want);
		ret = -EBADMSG;
	}
	memset(block, FT_UNTOUCHED, FT_BLOCK);
	dma_sync_single_for_device(p->ft->dma, sg_dma_address(&p->sg[n]),
				   p->sg[n].length, DMA_FROM_DEVICE);
	return ret;
}

static int ft_check_set(void *data, u64 seed)
{
	struct ft_peer *p = data;
	int n, ret = 0;

	if (!wait_event_timeout(p->ft->wait,
				READ_ONCE(p->rings) != p->checked, FT_PATIENCE))
		return -ETIMEDOUT;
	p->checked++;
	for (n = 0; n < FT_TARGETS; n++)
		ret = ft_check_target(p, n, seed + n) ?: ret;
	return ret;
}
DEFINE_DEBUGFS_ATTRIBUTE(ft_check_fops, NULL, ft_check_set, "%llu\n");

static int ft_targets_show(struct seq_file *seq, void *unused)
{
	struct ft_peer *p = seq->private;
	int n;

	for (n = 0; n < FT_TARGETS; n++)
		seq_printf(seq, "%llu %u\n", (u64)sg_dma_address(&p->sg[n]),
			   p->sg[n].length);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(ft_targets);

static int ft_links_show(struct seq_file *seq, void *unused)
{
	struct ft_dev *ft = seq->private;

	seq_printf(seq, "%#llx\n", ntb_link_is_up(ft->ntb, NULL, NULL));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(ft_links);

static void ft_link_event(void *ctx)
{
}

static void ft_db_event(void *ctx, int vector)
{
	struct ft_dev *ft = ctx;
	u64 bits = ntb_db_read(ft->ntb);
	int i;

	ntb_db_clear(ft->ntb, bits);
	for (i = 0; i < ft->peer_count; i++)
		if (bits & ft->peers[i].bit_in)
			WRITE_ONCE(ft->peers[i].rings, ft->peers[i].rings + 1);
	wake_up_all(&ft->wait);
}

static const struct ntb_ctx_ops ft_ops = {
	.link_event = ft_link_event,
	.db_event = ft_db_event,
};

static void ft_free_peer(struct ft_peer *p)
{
	int n;

	if (p->io)
		iounmap(p->io);
	if (p->mapped > 1)
		dma_unmap_sg(p->ft->dma, &p->sg[1], FT_TARGETS - 1,
			     DMA_FROM_DEVICE);
	if (p->mapped)
		dma_unmap_page(p->ft->dma, sg_dma_address(&p->sg[0]),
			       p->sg[0].length, DMA_FROM_DEVICE);
	for (n = 0; n < FT_TARGETS; n++)
		if (p->blocks[n])
			__free_pages(p->blocks[n], FT_ORDER);
}

/* The first target by itself, the others as a list. */
static int ft_map(struct ft_peer *p)
{
	struct scatterlist *first = &p->sg[0];
	struct device *dev = p->ft->dma;
	dma_addr_t dma;

	dma = dma_map_page(dev, sg_page(first), first->offset, first->length,
			   DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, dma))
		return -EIO;
	sg_dma_address(first) = dma;
	p->mapped = 1;
	if (dma_map_sg(dev, first + 1, FT_TARGETS - 1, DMA_FROM_DEVICE) !=
	    FT_TARGETS - 1)
		return -EIO;
	p->mapped = FT_TARGETS;
	return 0;
}

static int ft_init_peer(struct ft_peer *p)
{
	phys_addr_t base;
	int n, ret;

	sg_init_table(p->sg, FT_TARGETS);
	for (n = 0; n < FT_TARGETS; n++) {
		p->blocks[n] = alloc_pages(GFP_KERNEL, FT_ORDER);
		if (!p->blocks[n])
			return -ENOMEM;
		memset(page_address(p->blocks[n]), FT_UNTOUCHED, FT_BLOCK);
		sg_set_page(&p->sg[n], p->blocks[n] + 1,
			    PAGE_SIZE + 1000 * n, 65 * n);
	}
	ret = ft_map(p);
	if (ret)
		return ret;
	ret = ntb_peer_mw_get_addr(p->ft->ntb, ft_out_window(p), &base,
				   &p->io_size);
	if (ret)
		return ret;
	p->io = ioremap_wc(base, p->io_size);
	return p->io ? 0 : -ENOMEM;
}

/* A doorbell bit for each pair, in both directions. */
static void ft_init_bits(struct ft_peer *p)
{
	int ports = p->ft->peer_count + 1;
	int here = ntb_port_number(p->ft->ntb);
	int there = ntb_peer_port_number(p->ft->ntb, p->pidx);

	p->bit_out = BIT_ULL(there + ports * here);
	p->bit_in = BIT_ULL(here + ports * there);
	ntb_db_clear_mask(p->ft->ntb, p->bit_in);
}

static void ft_add_files(struct ft_peer *p)
{
	struct dentry *dir;
	char name[16];

	snprintf(name, sizeof(name), "peer%d", p->pidx);
	dir = debugfs_create_dir(name, p->ft->debugfs);
	debugfs_create_file("targets", 0400, dir, p, &ft_targets_fops);
	debugfs_create_file_unsafe("open", 0200, dir, p, &ft_open_fops);
	debugfs_create_u64("address", 0600, dir, &p->address);
	debugfs_create_u64("length", 0600, dir, &p->length);
	debugfs_create_file_unsafe("write", 0200, dir, p, &ft_write_fops);
	debugfs_create_file_unsafe("ring", 0200, dir, p, &ft_ring_fops);
	debugfs_create_file_unsafe("check", 0200, dir, p, &ft_check_fops);
}

static void ft_free(struct ft_dev *ft)
{
	int i;

	for (i = 0; i < ft->peer_count; i++)
		ft_free_peer(&ft->peers[i]);
	kfree(ft);
}

static int ft_probe(struct ntb_client *self, struct ntb_dev *ntb)
{
	int peer_count = ntb_peer_port_count(ntb);
	struct ft_dev *ft;
	int i, ret = 0;

	ft = kzalloc(struct_size(ft, peers, peer_count), GFP_KERNEL);
	if (!ft)
		return -ENOMEM;
	ft->ntb = ntb;
	ft->dma = ntb_get_dma_dev(ntb);
	ft->peer_count = peer_count;
	init_waitqueue_head(&ft->wait);
	for (i = 0; i < peer_count && !ret; i++) {
		ft->peers[i].ft = ft;
		ft->peers[i].pidx = i;
		ret = ft_init_peer(&ft->peers[i]);
	}
	if (ret)
		goto err_free;
	ret = ntb_set_ctx(ntb, ft, &ft_ops);
	if (ret)
		goto err_free;
	ft->debugfs = debugfs_create_dir(dev_name(&ntb->dev), ft_debugfs);
	debugfs_create_file("links", 0400, ft->debugfs, ft, &ft_links_fops);
	for (i = 0; i < peer_count; i++) {
		ft_init_bits(&ft->peers[i]);
		ft_add_files(&ft->peers[i]);
	}
	ntb_link_enable(ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);
	return 0;

err_free:
	ft_free(ft);
	return ret;
}

static void ft_remove(struct ntb_client *self, struct ntb_dev *ntb)
{
	struct ft_dev *ft = ntb->ctx;
	int i;

	debugfs_remove_recursive(ft->debugfs);
	ntb_link_disable(ntb);
	for (i = 0; i < ft->peer_count; i++)
		ft_clear_trans(&ft->peers[i]);
	ntb_clear_ctx(ntb);
	ft_free(ft);
}

static struct ntb_client ft_client = {
	.ops = {
		.probe = ft_probe,
		.remove = ft_remove,
	},
};

static int __init ft_init(void)
{
	int ret;

	ft_debugfs = debugfs_create_dir(KBUILD_MODNAME, NULL);
	ret = ntb_register_client(&ft_client);
	if (ret)
		debugfs_remove_recursive(ft_debugfs);
	return ret;
}
module_init(ft_init);

static void __exit ft_exit(void)
{
	ntb_unregister_client(&ft_client);
	debugfs_remove_recursive(ft_debugfs);
}
module_exit(ft_exit);
