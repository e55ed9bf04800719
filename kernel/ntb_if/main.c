// SPDX-License-Identifier: GPL-2.0
/*
 * ropcie_ntb_if.ko: message queues over NTB links.
 *
 * Owns: module parameters, the list of adapters and who is told of them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/log2.h>
#include <linux/module.h>

#include <asm/cpufeature.h>

#include "backend.h"

unsigned int ropcie_lanes;
module_param_named(lanes, ropcie_lanes, uint, 0444);
MODULE_PARM_DESC(lanes, "lanes to each peer, 1 to 8 (default: at most 2, as there are doorbell vectors and CPUs)");

unsigned int ropcie_window_kib = 4096;
module_param_named(window_kib, ropcie_window_kib, uint, 0444);
MODULE_PARM_DESC(window_kib, "inbound memory for each peer, a power of two from 256 to 65536 KiB; halved while it can not be had (default 4096)");

unsigned int ropcie_heartbeat_ms = 100;
module_param_named(heartbeat_ms, ropcie_heartbeat_ms, uint, 0444);
MODULE_PARM_DESC(heartbeat_ms, "time from one heartbeat to the next (default 100)");

unsigned int ropcie_heartbeat_limit_ms = 5000;
module_param_named(heartbeat_limit_ms, ropcie_heartbeat_limit_ms, uint, 0444);
MODULE_PARM_DESC(heartbeat_limit_ms, "silence after which a peer is dead (default 5000)");

bool ropcie_hand_over = true;
module_param_named(hand_over, ropcie_hand_over, bool, 0644);
MODULE_PARM_DESC(hand_over, "hand over what a node sends to itself, or over a loopback pair, without a lane where that is possible (default 1)");

int ropcie_dma_threshold = -1;
module_param_named(dma_threshold, ropcie_dma_threshold, int, 0644);
MODULE_PARM_DESC(dma_threshold, "bytes of a record from which on a DMA engine copies them, where there is one; 0: none does; negative: measured; for links that come up from now on (default -1)");

bool ropcie_direct_placement;
module_param_named(direct_placement, ropcie_direct_placement, bool, 0444);
MODULE_PARM_DESC(direct_placement, "let peers store WRITEs and answers to READs where they go to, and do so, where a window shows all memory (default 0)");

static int spin_us = -1;
module_param(spin_us, int, 0444);
MODULE_PARM_DESC(spin_us, "how long a receiver spins at most on a CPU that nobody else wants, before it sleeps (default: 50, or 500 in a virtual machine)");

static unsigned int loopback;
module_param(loopback, uint, 0444);
MODULE_PARM_DESC(loopback, "number of loopback pairs to make (default 0)");

struct workqueue_struct *ropcie_link_wq;

static LIST_HEAD(ropcie_adapters);
static LIST_HEAD(ropcie_watchers);
static DEFINE_MUTEX(ropcie_adapters_lock); /* guards both lists */

/* Interrupts and halts of a virtual machine go through its host. */
static bool is_virtual(void)
{
	return boot_cpu_has(X86_FEATURE_HYPERVISOR);
}

u64 ropcie_wake_ns(void)
{
	return (is_virtual() ? 500 : 20) * NSEC_PER_USEC;
}

u64 ropcie_spin_limit_ns(void)
{
	if (spin_us >= 0)
		return (u64)spin_us * NSEC_PER_USEC;
	return (is_virtual() ? 500 : 50) * NSEC_PER_USEC;
}

size_t ropcie_window_min(void)
{
	return ROPCIE_CONTROL_SIZE + ropcie_lane_size_min();
}

/**
 * ropcie_num_lanes() - lanes to each peer, as asked for or as many as there is use for
 * @vectors: interrupts that there are for them
 */
u32 ropcie_num_lanes(u32 vectors)
{
	return ropcie_lanes ?: min3(vectors, num_possible_cpus(), 2u);
}

/**
 * ropcie_adapter_add() - show an adapter to the watchers
 * @a: adapter; may sleep
 */
void ropcie_adapter_add(struct ropcie_adapter *a)
{
	struct ropcie_adapter_watcher *w;

	mutex_lock(&ropcie_adapters_lock);
	ropcie_debugfs_add(a);
	list_add_tail(&a->list, &ropcie_adapters);
	list_for_each_entry(w, &ropcie_watchers, list)
		w->added(w, a);
	mutex_unlock(&ropcie_adapters_lock);
}

/**
 * ropcie_adapter_remove() - take an adapter away from the watchers
 * @a: adapter; nobody uses it when this returns; may sleep
 */
void ropcie_adapter_remove(struct ropcie_adapter *a)
{
	struct ropcie_adapter_watcher *w;

	mutex_lock(&ropcie_adapters_lock);
	list_del_init(&a->list);
	list_for_each_entry(w, &ropcie_watchers, list)
		w->removed(w, a);
	mutex_unlock(&ropcie_adapters_lock);
	ropcie_adapter_stop(a);
	ropcie_debugfs_remove(a);
}

void ropcie_adapter_watch(struct ropcie_adapter_watcher *w)
{
	struct ropcie_adapter *a;

	mutex_lock(&ropcie_adapters_lock);
	list_add_tail(&w->list, &ropcie_watchers);
	list_for_each_entry(a, &ropcie_adapters, list)
		w->added(w, a);
	mutex_unlock(&ropcie_adapters_lock);
}
EXPORT_SYMBOL_GPL(ropcie_adapter_watch);

void ropcie_adapter_unwatch(struct ropcie_adapter_watcher *w)
{
	struct ropcie_adapter *a;

	mutex_lock(&ropcie_adapters_lock);
	list_del_init(&w->list);
	list_for_each_entry(a, &ropcie_adapters, list)
		w->removed(w, a);
	mutex_unlock(&ropcie_adapters_lock);
}
EXPORT_SYMBOL_GPL(ropcie_adapter_unwatch);

static int check_parameters(void)
{
	if (ropcie_lanes > ROPCIE_MAX_LANES) {
		pr_err("lanes is at most %d\n", ROPCIE_MAX_LANES);
		return -EINVAL;
	}
	/* Some bridges (Switchtec) translate the low bits of a power of two only. */
	if (ropcie_window_kib < 256 || !is_power_of_2(ropcie_window_kib) ||
	    ropcie_window_kib > ROPCIE_WINDOW_MAX / 1024) {
		pr_err("window_kib is a power of two from 256 to %u\n",
		       ROPCIE_WINDOW_MAX / 1024);
		return -EINVAL;
	}
	if (!ropcie_heartbeat_ms || ropcie_heartbeat_ms > 10000 ||
	    ropcie_heartbeat_limit_ms < 2 * ropcie_heartbeat_ms) {
		pr_err("heartbeat_ms is 1 to 10000, heartbeat_limit_ms at least twice as much\n");
		return -EINVAL;
	}
	if (loopback > 16) {
		pr_err("loopback is at most 16\n");
		return -EINVAL;
	}
	return 0;
}

static int __init ropcie_ntb_if_init(void)
{
	int ret = check_parameters();

	if (ret)
		return ret;
	/*
	 * A busy node is not a dead one: its heartbeats do not wait for programs, nor make
	 * up for time that a host took from a worker.
	 */
	ropcie_link_wq = alloc_workqueue("ropcie_link", WQ_UNBOUND | WQ_HIGHPRI |
					 WQ_MEM_RECLAIM, 0);
	if (!ropcie_link_wq)
		return -ENOMEM;
	ropcie_debugfs_init();
	ret = ropcie_loopback_create(loopback);
	if (ret)
		goto err_debugfs;
	ret = ropcie_ntb_client_register();
	if (ret)
		goto err_loopback;
	return 0;

err_loopback:
	ropcie_loopback_destroy();
err_debugfs:
	ropcie_debugfs_exit();
	destroy_workqueue(ropcie_link_wq);
	return ret;
}
module_init(ropcie_ntb_if_init);

static void __exit ropcie_ntb_if_exit(void)
{
	ropcie_ntb_client_unregister();
	ropcie_loopback_destroy();
	ropcie_debugfs_exit();
	destroy_workqueue(ropcie_link_wq);
}
module_exit(ropcie_ntb_if_exit);

MODULE_AUTHOR("RoPCIe developers");
MODULE_DESCRIPTION("RoPCIe: message queues over NTB links");
MODULE_LICENSE("GPL");
