// SPDX-License-Identifier: GPL-2.0
/*
 * What debugfs shows of an adapter: ropcie_ntb_if/ADAPTER/state. For people;
 * its form may change.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "backend.h"

struct dentry *ropcie_debugfs;

static void show_counters(struct seq_file *s, struct ropcie_adapter *a)
{
	struct ropcie_adapter_stats stats;

	ropcie_adapter_get_stats(a, &stats);
	seq_printf(s, "tx_records %llu\n", stats.tx_records);
	seq_printf(s, "tx_bytes %llu\n", stats.tx_bytes);
	seq_printf(s, "rx_records %llu\n", stats.rx_records);
	seq_printf(s, "rx_bytes %llu\n", stats.rx_bytes);
	seq_printf(s, "handed_records %llu\n", stats.handed_records);
	seq_printf(s, "tx_dma_bytes %llu\n", stats.tx_dma_bytes);
	seq_printf(s, "dma_fallbacks %llu\n", stats.dma_fallbacks);
	seq_printf(s, "doorbells_rung %llu\n", stats.doorbells_rung);
	seq_printf(s, "doorbells_received %llu\n", stats.doorbells_received);
	seq_printf(s, "spins_paid %llu\n", stats.spins_paid);
	seq_printf(s, "spins_unpaid %llu\n", stats.spins_unpaid);
	seq_printf(s, "lane_stalls %llu\n", stats.lane_stalls);
	seq_printf(s, "rx_unknown_mq %llu\n", stats.rx_unknown_mq);
	seq_printf(s, "link_ups %llu\n", stats.link_ups);
	seq_printf(s, "link_losses %llu\n", stats.link_losses);
	seq_printf(s, "protocol_errors %llu\n", stats.protocol_errors);
}

static const char *link_name(const struct ropcie_peer *peer)
{
	static const char * const names[] = {
		[ROPCIE_LINK_DOWN] = "down",
		[ROPCIE_LINK_HELLO] = "hello",
		[ROPCIE_LINK_PREPARE] = "prepare",
		[ROPCIE_LINK_READY] = "ready",
		[ROPCIE_LINK_UP] = "up",
	};

	if (peer->self)
		return "self";
	return peer->link_ready ? names[peer->link.state] : "no window";
}

static int state_show(struct seq_file *s, void *unused)
{
	struct ropcie_adapter *a = s->private;
	u32 i;

	show_counters(s, a);
	for (i = 0; i < a->npeers; i++) {
		struct ropcie_peer *peer = a->peer[i];

		mutex_lock(&peer->mutex);
		seq_printf(s, "peer %u: link %s, %pM GUID %016llx %s, %u lanes, window in %zu KiB out %zu KiB%s\n",
			   peer->index, link_name(peer), peer->mac,
			   peer->node_guid,
			   peer->up ? "announced" : "not announced",
			   peer->nlanes, peer->in_size >> 10,
			   peer->out_size >> 10,
			   ropcie_peer_direct(peer) ? ", direct" : "");
		ropcie_dma_show(peer, s);
		mutex_unlock(&peer->mutex);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(state);

void ropcie_debugfs_init(void)
{
	ropcie_debugfs = debugfs_create_dir("ropcie_ntb_if", NULL);
}

void ropcie_debugfs_exit(void)
{
	debugfs_remove(ropcie_debugfs);
}

void ropcie_debugfs_add(struct ropcie_adapter *a)
{
	a->debugfs = debugfs_create_dir(a->name, ropcie_debugfs);
	debugfs_create_file("state", 0400, a->debugfs, a, &state_fops);
}

void ropcie_debugfs_remove(struct ropcie_adapter *a)
{
	debugfs_remove(a->debugfs);
}
