// SPDX-License-Identifier: GPL-2.0
/*
 * An adapter: its peers, start and stop, polling, counters.
 *
 * Owns: the life of peers and threads. Does not know what an adapter sits on
 * (backend.h) or which adapters there are (main.c).
 */
#include <linux/etherdevice.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "backend.h"

/**
 * ropcie_adapter_alloc() - an adapter that nobody sees yet
 * @dev: what it sits on; must stay until ropcie_adapter_free()
 * @name: for people; must stay as well
 * @backend: operations
 * @others: number of peers besides the own node
 * @lanes: most lanes to each
 *
 * Return: adapter, or NULL.
 */
struct ropcie_adapter *ropcie_adapter_alloc(struct device *dev,
					    const char *name,
					    const struct ropcie_backend *backend,
					    u32 others, u32 lanes)
{
	struct ropcie_adapter *a = kzalloc(sizeof(*a), GFP_KERNEL);
	u32 i;

	if (!a)
		return NULL;
	INIT_LIST_HEAD(&a->list);
	a->dev = dev;
	a->name = name;
	a->backend = backend;
	a->lanes = clamp_t(u32, lanes, 1, ROPCIE_MAX_LANES);
	a->npeers = others + 1;
	a->last_arm = jiffies - HZ;
	xa_init(&a->mqs);
	mutex_init(&a->mutex);
	mutex_init(&a->identity);
	a->peer = kcalloc(a->npeers, sizeof(*a->peer), GFP_KERNEL);
	for (i = 0; a->peer && i < a->npeers; i++) {
		a->peer[i] = ropcie_peer_alloc(a, i ? i - 1 : 0, !i);
		if (!a->peer[i])
			break;
	}
	if (i < a->npeers) {
		ropcie_adapter_free(a);
		return NULL;
	}
	return a;
}

/**
 * ropcie_adapter_free() - the end of an adapter that nobody uses
 * @a: adapter; peers that are still referenced stay, for ever down
 */
void ropcie_adapter_free(struct ropcie_adapter *a)
{
	u32 i;

	WARN_ON(a->user || !xa_empty(&a->mqs));
	for (i = 0; a->peer && i < a->npeers && a->peer[i]; i++)
		kref_put(&a->peer[i]->ref, ropcie_peer_release);
	kfree(a->peer);
	kfree(a);
}

static size_t window_bytes(void)
{
	return (size_t)ropcie_window_kib << 10;
}

/* The own node's lanes lie in memory of their own. */
static int self_open(struct ropcie_peer *self)
{
	for (self->in_size = window_bytes(); self->in_size >= ropcie_window_min();
	     self->in_size /= 2) {
		self->in = vzalloc(self->in_size);
		if (self->in)
			break;
	}
	self->out = self->in;
	self->out_size = self->in_size;
	return self->in ? 0 : -ENOMEM;
}

static void self_close(struct ropcie_peer *self)
{
	vfree(self->in);
	self->in = NULL;
	self->out = NULL;
}

static void adapter_stop_threads(struct ropcie_adapter *a)
{
	u32 i, lane;

	for (i = 0; i < a->npeers; i++)
		for (lane = 0; lane < a->lanes; lane++)
			ropcie_lane_stop_threads(&a->peer[i]->lane[lane]);
}

static int adapter_start_threads(struct ropcie_adapter *a)
{
	u32 i, lane;
	int ret;

	for (i = 0; i < a->npeers; i++) {
		for (lane = 0; lane < a->lanes; lane++) {
			ret = ropcie_lane_start_threads(&a->peer[i]->lane[lane]);
			if (ret)
				return ret;
		}
	}
	return 0;
}

/* Undo a start as far as it came: a peer may have been kicked before its end. */
static void adapter_halt(struct ropcie_adapter *a, bool backend_started)
{
	u32 i;

	lockdep_assert_held(&a->mutex);
	WRITE_ONCE(a->running, false);
	for (i = 1; i < a->npeers; i++)
		ropcie_peer_stop(a->peer[i]);
	if (backend_started)
		a->backend->stop(a);
	/* A kick that saw it run may have queued it meanwhile. */
	synchronize_rcu();
	for (i = 1; i < a->npeers; i++)
		cancel_delayed_work_sync(&a->peer[i]->work);
	ropcie_peer_stop_self(a->peer[0]);
	/* Pollers, and whoever kicks a thread, saw that it runs: wait. */
	synchronize_rcu();
	adapter_stop_threads(a);
	for (i = 1; i < a->npeers; i++)
		a->backend->close(a->peer[i]);
	self_close(a->peer[0]);
	a->user = NULL;
}

/**
 * struct adapter_stop - an adapter that is to be stopped
 * @work: does it
 * @adapter: adapter
 */
struct adapter_stop {
	struct work_struct work;
	struct ropcie_adapter *adapter;
};

static void adapter_stop_work(struct work_struct *work)
{
	struct ropcie_adapter *a =
		container_of(work, struct adapter_stop, work)->adapter;

	mutex_lock(&a->mutex);
	if (a->user)
		adapter_halt(a, true);
	mutex_unlock(&a->mutex);
}

int ropcie_adapter_start(struct ropcie_adapter *a,
			 const struct ropcie_adapter_user *user, void *ctx,
			 const u8 *mac, u64 node_guid)
{
	bool backend_started = false;
	int ret;
	u32 i;

	mutex_lock(&a->mutex);
	ret = -EBUSY;
	if (a->user)
		goto out;
	a->user = user;
	a->ctx = ctx;
	ether_addr_copy(a->mac, mac);
	a->node_guid = node_guid;
	WRITE_ONCE(a->running, true);

	ret = self_open(a->peer[0]);
	if (!ret)
		ret = adapter_start_threads(a);
	if (!ret)
		ret = ropcie_peer_start_self(a->peer[0]);
	if (!ret) {
		ret = a->backend->start(a);
		backend_started = !ret;
	}
	if (ret) {
		adapter_halt(a, backend_started);
		goto out;
	}
	for (i = 1; i < a->npeers; i++)
		ropcie_peer_start(a->peer[i]);
out:
	mutex_unlock(&a->mutex);
	return ret;
}
EXPORT_SYMBOL_GPL(ropcie_adapter_start);

/*
 * In a thread of the kernel's: a signal of whoever unloads a module would keep drivers
 * of NTB hardware (Switchtec's) from closing a window.
 */
void ropcie_adapter_stop(struct ropcie_adapter *a)
{
	struct adapter_stop stop = { .adapter = a };

	INIT_WORK_ONSTACK(&stop.work, adapter_stop_work);
	queue_work(system_unbound_wq, &stop.work);
	flush_work(&stop.work);
	destroy_work_on_stack(&stop.work);
}
EXPORT_SYMBOL_GPL(ropcie_adapter_stop);

struct device *ropcie_adapter_dev(struct ropcie_adapter *a)
{
	return a->dev;
}
EXPORT_SYMBOL_GPL(ropcie_adapter_dev);

const char *ropcie_adapter_name(const struct ropcie_adapter *a)
{
	return a->name;
}
EXPORT_SYMBOL_GPL(ropcie_adapter_name);

u32 ropcie_adapter_num_peers(const struct ropcie_adapter *a)
{
	return a->npeers - 1;
}
EXPORT_SYMBOL_GPL(ropcie_adapter_num_peers);

int ropcie_adapter_poll(struct ropcie_adapter *a)
{
	unsigned long now = jiffies;
	u32 i, lane;
	int n = 0;

	if (READ_ONCE(a->last_poll) != now)
		WRITE_ONCE(a->last_poll, now);
	rcu_read_lock();
	if (!READ_ONCE(a->running))
		goto out;
	for (i = 0; i < a->npeers; i++) {
		if (!READ_ONCE(a->peer[i]->up))
			continue;
		for (lane = 0; lane < a->lanes; lane++)
			n += ropcie_lane_poll(&a->peer[i]->lane[lane]);
	}
out:
	rcu_read_unlock();
	return n;
}
EXPORT_SYMBOL_GPL(ropcie_adapter_poll);

void ropcie_adapter_arm(struct ropcie_adapter *a)
{
	unsigned long now = jiffies;
	u32 i, lane;

	if (READ_ONCE(a->last_arm) != now)
		WRITE_ONCE(a->last_arm, now);
	rcu_read_lock();
	if (!READ_ONCE(a->running))
		goto out;
	for (i = 0; i < a->npeers; i++) {
		if (!READ_ONCE(a->peer[i]->up))
			continue;
		for (lane = 0; lane < a->lanes; lane++)
			ropcie_lane_unpoll(&a->peer[i]->lane[lane]);
	}
out:
	rcu_read_unlock();
}
EXPORT_SYMBOL_GPL(ropcie_adapter_arm);

const u8 *ropcie_peer_mac(const struct ropcie_peer *peer)
{
	return peer->mac;
}
EXPORT_SYMBOL_GPL(ropcie_peer_mac);

u32 ropcie_peer_index(const struct ropcie_peer *peer)
{
	return peer->index;
}
EXPORT_SYMBOL_GPL(ropcie_peer_index);

bool ropcie_peer_is_self(const struct ropcie_peer *peer)
{
	return peer->self;
}
EXPORT_SYMBOL_GPL(ropcie_peer_is_self);

bool ropcie_peer_is_near(const struct ropcie_peer *peer)
{
	return READ_ONCE(peer->twin);
}
EXPORT_SYMBOL_GPL(ropcie_peer_is_near);

static void add_lane_stats(struct ropcie_adapter_stats *stats,
			   const struct ropcie_lane *lane)
{
	u64 handed = READ_ONCE(lane->handed_records);

	stats->tx_records += READ_ONCE(lane->tx_records) + handed;
	stats->tx_bytes += READ_ONCE(lane->tx_bytes) +
			   READ_ONCE(lane->handed_bytes);
	stats->rx_records += READ_ONCE(lane->rx_records);
	stats->rx_bytes += READ_ONCE(lane->rx_bytes);
	stats->handed_records += handed;
	stats->doorbells_rung += READ_ONCE(lane->tx_doorbells) +
				 READ_ONCE(lane->rx_doorbells);
	stats->spins_paid += READ_ONCE(lane->spins_paid);
	stats->spins_unpaid += READ_ONCE(lane->spins_unpaid);
	stats->lane_stalls += READ_ONCE(lane->stalls);
	stats->rx_unknown_mq += READ_ONCE(lane->rx_unknown);
}

void ropcie_adapter_get_stats(struct ropcie_adapter *a,
			      struct ropcie_adapter_stats *stats)
{
	u32 i, lane;

	memset(stats, 0, sizeof(*stats));
	for (i = 0; i < a->npeers; i++)
		for (lane = 0; lane < a->lanes; lane++)
			add_lane_stats(stats, &a->peer[i]->lane[lane]);
	stats->doorbells_received = atomic64_read(&a->doorbells);
	stats->link_ups = atomic64_read(&a->link_ups);
	stats->link_losses = atomic64_read(&a->link_losses);
	stats->protocol_errors = atomic64_read(&a->protocol_errors);
	stats->tx_dma_bytes = atomic64_read(&a->tx_dma_bytes);
	stats->dma_fallbacks = atomic64_read(&a->dma_fallbacks);
}
EXPORT_SYMBOL_GPL(ropcie_adapter_get_stats);
