// SPDX-License-Identifier: GPL-2.0
/*
 * ropcie_mqtest.ko: message queues without verbs. It uses all adapters, so the
 * verbs driver must not be loaded. Through /sys/module/ropcie_mqtest/parameters/
 *
 *   peers  read: connected peers of all adapters, without the own nodes
 *   run    write: "traffic", "pings" or "churn", with every peer that is
 *          connected; at both ends. Returns when it is done, or fails.
 *
 * What was measured goes to the kernel log.
 */
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "mqtest.h"

unsigned int mqt_records = 2000;
module_param_named(records, mqt_records, uint, 0644);
MODULE_PARM_DESC(records, "records to each queue of each peer (default 2000)");

unsigned int mqt_pings = 1000;
module_param_named(pings, mqt_pings, uint, 0644);
MODULE_PARM_DESC(pings, "round trips to each peer (default 1000)");

unsigned int mqt_patience_ms = 10000;
module_param_named(patience_ms, mqt_patience_ms, uint, 0644);
MODULE_PARM_DESC(patience_ms, "time without any progress that is a failure (default 10000)");

static LIST_HEAD(mqt_adapters);
static DEFINE_MUTEX(mqt_lock); /* guards the list, one test at a time */

struct mqt_peer *mqt_find(struct mqt_adapter *t, struct ropcie_peer *peer)
{
	struct mqt_peer *p, *found = NULL;

	spin_lock_bh(&t->lock);
	list_for_each_entry(p, &t->peers, list)
		if (p->peer == peer && !p->dead)
			found = p;
	spin_unlock_bh(&t->lock);
	return found;
}

static void mqt_peer_up(void *ctx, struct ropcie_peer *peer)
{
	struct mqt_adapter *t = ctx;
	struct mqt_peer *p = kzalloc(sizeof(*p), GFP_KERNEL);
	u32 i;

	if (!p)
		return;
	p->peer = peer;
	p->adapter = t;
	init_waitqueue_head(&p->wait);
	for (i = 0; i < MQT_QUEUES; i++)
		ropcie_mq_to_peer(peer, i, &p->flow[i].tx);
	ropcie_mq_to_peer(peer, 0, &p->ping);
	spin_lock_bh(&t->lock);
	list_add_tail(&p->list, &t->peers);
	spin_unlock_bh(&t->lock);
}

static void mqt_peer_down(void *ctx, struct ropcie_peer *peer)
{
	struct mqt_peer *p = mqt_find(ctx, peer);

	if (!p)
		return;
	WRITE_ONCE(p->dead, true);
	wake_up_all(&p->wait);
}

static void mqt_batch_end(void *ctx, struct ropcie_peer *peer)
{
}

static void mqt_tx_space(void *ctx, struct ropcie_peer *peer, u32 lane)
{
	struct mqt_peer *p = mqt_find(ctx, peer);

	if (!p)
		return;
	WRITE_ONCE(p->space, p->space + 1);
	wake_up_all(&p->wait);
}

static const struct ropcie_adapter_user mqt_user = {
	.peer_up = mqt_peer_up,
	.peer_down = mqt_peer_down,
	.batch_end = mqt_batch_end,
	.tx_space = mqt_tx_space,
};

static void mqt_free_peer(struct mqt_peer *p)
{
	u32 i;

	for (i = 0; i < MQT_QUEUES; i++)
		ropcie_mq_disconnect(&p->flow[i].tx);
	ropcie_mq_disconnect(&p->ping);
	kfree(p);
}

static void mqt_added(struct ropcie_adapter_watcher *w,
		      struct ropcie_adapter *a)
{
	struct mqt_adapter *t = kzalloc(sizeof(*t), GFP_KERNEL);
	u8 mac[ETH_ALEN];
	int ret;

	if (!t)
		return;
	t->a = a;
	spin_lock_init(&t->lock);
	INIT_LIST_HEAD(&t->peers);
	eth_random_addr(mac);
	ret = mqt_open_queues(t);
	if (!ret)
		ret = ropcie_adapter_start(a, &mqt_user, t, mac, 1);
	if (ret) {
		pr_err("ropcie_mqtest: %s: %d\n", ropcie_adapter_name(a), ret);
		mqt_close_queues(t);
		kfree(t);
		return;
	}
	mutex_lock(&mqt_lock);
	list_add_tail(&t->list, &mqt_adapters);
	mutex_unlock(&mqt_lock);
}

static void mqt_report(struct mqt_adapter *t)
{
	struct ropcie_adapter_stats s;

	ropcie_adapter_get_stats(t->a, &s);
	pr_info("ropcie_mqtest: %s: sent %llu records %llu bytes, handed over %llu, received %llu %llu, doorbells %llu rung %llu heard, %llu stalls, %llu unknown, links %llu up %llu lost, %llu protocol errors\n",
		ropcie_adapter_name(t->a), s.tx_records, s.tx_bytes,
		s.handed_records, s.rx_records, s.rx_bytes, s.doorbells_rung,
		s.doorbells_received, s.lane_stalls, s.rx_unknown_mq,
		s.link_ups, s.link_losses, s.protocol_errors);
}

static void mqt_removed(struct ropcie_adapter_watcher *w,
			struct ropcie_adapter *a)
{
	struct mqt_adapter *t, *next;
	struct mqt_peer *p, *next_peer;

	mutex_lock(&mqt_lock);
	list_for_each_entry_safe(t, next, &mqt_adapters, list) {
		if (t->a != a)
			continue;
		list_del(&t->list);
		ropcie_adapter_stop(a);
		mqt_close_queues(t);
		mqt_report(t);
		list_for_each_entry_safe(p, next_peer, &t->peers, list)
			mqt_free_peer(p);
		kfree(t);
	}
	mutex_unlock(&mqt_lock);
}

static struct ropcie_adapter_watcher mqt_watcher = {
	.added = mqt_added,
	.removed = mqt_removed,
};

/* Call @fn for every peer that is connected, until one fails. */
static int mqt_each_peer(int (*fn)(struct mqt_peer *p))
{
	struct mqt_adapter *t;
	struct mqt_peer *p;
	int ret = 0;

	list_for_each_entry(t, &mqt_adapters, list) {
		/* Entries are only added, at the end, while a test runs. */
		list_for_each_entry(p, &t->peers, list)
			if (!ret && !READ_ONCE(p->dead))
				ret = fn(p);
	}
	return ret;
}

static int mqt_run_churn(void)
{
	int ret = mqt_each_peer(mqt_start_churn);
	struct mqt_adapter *t;
	struct mqt_peer *p;

	list_for_each_entry(t, &mqt_adapters, list)
		if (!ret)
			ret = mqt_churn(t);
	list_for_each_entry(t, &mqt_adapters, list)
		list_for_each_entry(p, &t->peers, list)
			mqt_stop_churn(p);
	return ret;
}

static int mqt_run(const char *what, const struct kernel_param *kp)
{
	struct mqt_adapter *t;
	int ret = -EINVAL;

	mutex_lock(&mqt_lock);
	if (sysfs_streq(what, "traffic")) {
		ret = mqt_each_peer(mqt_send_traffic);
		if (!ret)
			ret = mqt_each_peer(mqt_await_traffic);
	} else if (sysfs_streq(what, "pings")) {
		ret = mqt_each_peer(mqt_run_pings);
	} else if (sysfs_streq(what, "churn")) {
		ret = mqt_run_churn();
	}
	list_for_each_entry(t, &mqt_adapters, list)
		mqt_report(t);
	mutex_unlock(&mqt_lock);
	return ret;
}

static const struct kernel_param_ops mqt_run_ops = {
	.set = mqt_run,
};
module_param_cb(run, &mqt_run_ops, NULL, 0200);
MODULE_PARM_DESC(run, "write traffic, pings or churn");

static int mqt_count_peers(char *buf, const struct kernel_param *kp)
{
	struct mqt_adapter *t;
	struct mqt_peer *p;
	int n = 0;

	mutex_lock(&mqt_lock);
	list_for_each_entry(t, &mqt_adapters, list) {
		spin_lock_bh(&t->lock);
		list_for_each_entry(p, &t->peers, list)
			n += !p->dead && !ropcie_peer_is_self(p->peer);
		spin_unlock_bh(&t->lock);
	}
	mutex_unlock(&mqt_lock);
	return sysfs_emit(buf, "%d\n", n);
}

static const struct kernel_param_ops mqt_peers_ops = {
	.get = mqt_count_peers,
};
module_param_cb(peers, &mqt_peers_ops, NULL, 0400);
MODULE_PARM_DESC(peers, "read: connected peers");

static int __init mqt_init(void)
{
	ropcie_adapter_watch(&mqt_watcher);
	return 0;
}
module_init(mqt_init);

static void __exit mqt_exit(void)
{
	ropcie_adapter_unwatch(&mqt_watcher);
}
module_exit(mqt_exit);

MODULE_AUTHOR("RoPCIe developers");
MODULE_DESCRIPTION("RoPCIe: test of message queues without verbs");
MODULE_LICENSE("GPL");
