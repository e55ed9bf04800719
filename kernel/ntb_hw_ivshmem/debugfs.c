// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/ntb_hw_ivshmem/<PCI address>/:
 *   info  what this port knows of itself and its peers
 *   link  write "down" to pull the cable, "dead" to stop this port's heartbeat,
 *	   as a killed guest's stops, "up" to end either; "blip" for a link that is
 *	   down for less time than it takes to look
 *   doorbells  write "lose N", "delay MS", "double" or "spurious MS" to spoil
 *	   them, "normal" to end that
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "ivntb.h"

static struct dentry *ivntb_debugfs_dir;

static const char * const ivntb_state_names[] = {
	[IVNTB_DOWN_NEW] = "down",
	[IVNTB_DOWN] = "down",
	[IVNTB_ACKED] = "waiting",
	[IVNTB_UP] = "up",
};

static const char * const ivntb_cable_names[] = {
	[IVNTB_CABLE_IN] = "up",
	[IVNTB_CABLE_OUT] = "down",
	[IVNTB_CABLE_DEAD] = "dead",
};

static const struct {
	const char *name;
	bool number;
} ivntb_bells_names[] = {
	[IVNTB_BELLS_NORMAL] = { "normal" },
	[IVNTB_BELLS_LOSE] = { "lose", true },
	[IVNTB_BELLS_DELAY] = { "delay", true },
	[IVNTB_BELLS_DOUBLE] = { "double" },
	[IVNTB_BELLS_SPURIOUS] = { "spurious", true },
};

static const char *ivntb_open_name(struct ivntb_dev *ndev,
				   struct ivntb_peer *peer, bool inbound)
{
	return ivntb_flat_is_open(ndev, peer, inbound) ? "open" : "closed";
}

static int ivntb_info_show(struct seq_file *seq, void *unused)
{
	struct ivntb_dev *ndev = seq->private;
	/* Approximate: see struct ivntb_stats. */
	const struct ivntb_stats stats = data_race(ndev->stats);
	struct ivntb_peer *peer;
	int pidx;

	seq_printf(seq, "port %d of %d, ivposition %u\n", ndev->port,
		   ndev->ports, ndev->ivpos);
	seq_printf(seq, "family %s, doorbell bits %#llx, translations set for peers %llu\n",
		   *ndev->family->name ? ndev->family->name : "none",
		   ndev->db_valid, stats.out_trans);
	seq_printf(seq, "vectors %d, windows per peer %d of %pap bytes\n",
		   ndev->vector_count, ndev->mw_count, &ndev->mw_size);
	if (ndev->flat)
		seq_printf(seq, "flat window of %pap bytes\n",
			   &ndev->flat_size);
	seq_printf(seq, "scratchpads %d, message registers %d\n",
		   ndev->spad_count, ndev->msg_count);
	seq_printf(seq, "enabled %d, cable %s%s\n", ndev->enabled,
		   ivntb_cable_names[ndev->cable], ndev->gone ? ", gone" : "");
	seq_printf(seq, "interrupts %llu, doorbells rung %llu (still pending %llu, masked %llu)\n",
		   stats.irqs, stats.db_rung, stats.db_coalesced,
		   stats.db_masked);
	seq_printf(seq, "doorbell vectors %d, events %llu\n",
		   ntb_db_vector_count(&ndev->ntb), stats.db_events);
	seq_printf(seq, "doorbells spoilt %llu\n", stats.db_faults);
	seq_printf(seq, "links up %llu times, down %llu times\n",
		   stats.link_ups, stats.link_downs);

	spin_lock_irq(&ndev->link_lock);
	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		peer = &ndev->peers[pidx];
		seq_printf(seq,
			   "peer %d: port %d %s, epoch %u (theirs %u), alive %d, doorbells %#llx",
			   pidx, peer->port, ivntb_state_names[peer->state],
			   peer->epoch, peer->in_epoch, peer->beats > 1,
			   peer->db_bits);
		if (ndev->flat)
			seq_printf(seq, ", flat %s in, %s out",
				   ivntb_open_name(ndev, peer, true),
				   ivntb_open_name(ndev, peer, false));
		seq_putc(seq, '\n');
	}
	spin_unlock_irq(&ndev->link_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(ivntb_info);

static int ivntb_link_show(struct seq_file *seq, void *unused)
{
	struct ivntb_dev *ndev = seq->private;

	seq_printf(seq, "%s\n", ivntb_cable_names[ndev->cable]);
	return 0;
}

static int ivntb_link_open(struct inode *inode, struct file *file)
{
	return single_open(file, ivntb_link_show, inode->i_private);
}

static ssize_t ivntb_link_write(struct file *file, const char __user *ubuf,
				size_t size, loff_t *offset)
{
	struct ivntb_dev *ndev = ((struct seq_file *)file->private_data)->private;
	char word[8] = {};
	int cable;

	if (size >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, ubuf, size))
		return -EFAULT;
	if (sysfs_streq(word, "blip") && !IS_ENABLED(CONFIG_PREEMPT_RT)) {
		ivntb_link_blip(ndev);
		return size;
	}
	cable = sysfs_match_string(ivntb_cable_names, word);
	if (cable < 0)
		return cable;
	ivntb_link_cable(ndev, cable);
	return size;
}

static const struct file_operations ivntb_link_fops = {
	.owner = THIS_MODULE,
	.open = ivntb_link_open,
	.read = seq_read,
	.write = ivntb_link_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int ivntb_bells_show(struct seq_file *seq, void *unused)
{
	struct ivntb_dev *ndev = seq->private;

	spin_lock_irq(&ndev->db_lock);
	seq_puts(seq, ivntb_bells_names[ndev->bells].name);
	if (ivntb_bells_names[ndev->bells].number)
		seq_printf(seq, " %u", ndev->bells_n);
	seq_putc(seq, '\n');
	spin_unlock_irq(&ndev->db_lock);
	return 0;
}

static int ivntb_bells_open(struct inode *inode, struct file *file)
{
	return single_open(file, ivntb_bells_show, inode->i_private);
}

static int ivntb_bells_parse(struct ivntb_dev *ndev, const char *line)
{
	char name[16], more;
	unsigned int n = 0;
	int words, i;

	words = sscanf(line, "%15s %9u %c", name, &n, &more);
	for (i = 0; i < ARRAY_SIZE(ivntb_bells_names) && words > 0; i++) {
		if (strcmp(name, ivntb_bells_names[i].name))
			continue;
		if (words != 1 + ivntb_bells_names[i].number ||
		    (ivntb_bells_names[i].number && (!n || n > 1000000)))
			return -EINVAL;
		ivntb_bells_set(ndev, i, n);
		return 0;
	}
	return -EINVAL;
}

static ssize_t ivntb_bells_write(struct file *file, const char __user *ubuf,
				 size_t size, loff_t *offset)
{
	struct ivntb_dev *ndev = ((struct seq_file *)file->private_data)->private;
	char line[32] = {};

	if (size >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, ubuf, size))
		return -EFAULT;
	return ivntb_bells_parse(ndev, line) ?: size;
}

static const struct file_operations ivntb_bells_fops = {
	.owner = THIS_MODULE,
	.open = ivntb_bells_open,
	.read = seq_read,
	.write = ivntb_bells_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void ivntb_debugfs_init(void)
{
	ivntb_debugfs_dir = debugfs_create_dir(KBUILD_MODNAME, NULL);
}

void ivntb_debugfs_exit(void)
{
	debugfs_remove_recursive(ivntb_debugfs_dir);
}

void ivntb_debugfs_add(struct ivntb_dev *ndev)
{
	ndev->debugfs = debugfs_create_dir(pci_name(ndev->pdev),
					   ivntb_debugfs_dir);
	debugfs_create_file("info", 0400, ndev->debugfs, ndev,
			    &ivntb_info_fops);
	debugfs_create_file("link", 0600, ndev->debugfs, ndev,
			    &ivntb_link_fops);
	debugfs_create_file("doorbells", 0600, ndev->debugfs, ndev,
			    &ivntb_bells_fops);
}

void ivntb_debugfs_remove(struct ivntb_dev *ndev)
{
	debugfs_remove_recursive(ndev->debugfs);
}
