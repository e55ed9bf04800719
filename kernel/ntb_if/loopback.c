// SPDX-License-Identifier: GPL-2.0
/*
 * Loopback pairs: two adapters back to back in one kernel, each other's window
 * being the other's memory. Handshake, heartbeat, lanes and doorbells run as they
 * do over an NTB; with ropcie_hand_over what one end sends may go past the lanes.
 *
 * debugfs ropcie_ntb_if/loopbackN/link cuts (0) and mends (1) the link of a
 * pair.
 */
#include <linux/debugfs.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "backend.h"

/**
 * struct ropcie_loopback_end - one adapter of a pair
 * @pair: pair
 * @twin: the other end
 * @name: of the adapter
 * @pdev: what the adapter sits on
 * @adapter: adapter
 * @window: inbound memory
 * @words: own link words, which the twin reads; under the pair's lock
 */
struct ropcie_loopback_end {
	struct ropcie_loopback_pair *pair;
	struct ropcie_loopback_end *twin;
	char name[24];
	struct platform_device *pdev;
	struct ropcie_adapter *adapter;
	void *window;
	struct ropcie_link_words words;
};

/**
 * struct ropcie_loopback_pair - two ends
 * @list: in the list of pairs
 * @end: ends
 * @lock: guards the ends' words
 * @cut: the link is cut
 * @debugfs: directory
 */
struct ropcie_loopback_pair {
	struct list_head list;
	struct ropcie_loopback_end end[2];
	spinlock_t lock; /* the ends' words */
	bool cut;
	struct dentry *debugfs;
};

static LIST_HEAD(ropcie_loopback_pairs);

static struct ropcie_loopback_end *peer_end(struct ropcie_peer *peer)
{
	return peer->adapter->priv;
}

static struct ropcie_peer *end_peer(struct ropcie_loopback_end *end)
{
	return end->adapter->peer[1];
}

static size_t loopback_window_bytes(void)
{
	return (size_t)ropcie_window_kib << 10;
}

static int loopback_start(struct ropcie_adapter *a)
{
	return 0;
}

static void loopback_stop(struct ropcie_adapter *a)
{
}

static bool loopback_link_up(struct ropcie_peer *peer)
{
	return !READ_ONCE(peer_end(peer)->pair->cut);
}

static int loopback_open(struct ropcie_peer *peer)
{
	struct ropcie_loopback_end *end = peer_end(peer);

	WRITE_ONCE(peer->twin, end_peer(end->twin));
	peer->in = end->window;
	peer->in_size = loopback_window_bytes();
	peer->out = end->twin->window;
	peer->out_size = loopback_window_bytes();
	return 0;
}

static void loopback_close(struct ropcie_peer *peer)
{
	peer->in = NULL;
	peer->out = NULL;
	WRITE_ONCE(peer->twin, NULL);
}

static int loopback_prepare(struct ropcie_peer *peer)
{
	return 0;
}

static int loopback_publish(struct ropcie_peer *peer,
			    const struct ropcie_link_words *words)
{
	struct ropcie_loopback_end *end = peer_end(peer);

	spin_lock(&end->pair->lock);
	end->words = *words;
	spin_unlock(&end->pair->lock);
	return 0;
}

static void loopback_read_words(struct ropcie_peer *peer,
				struct ropcie_link_words *words)
{
	struct ropcie_loopback_end *end = peer_end(peer);

	spin_lock(&end->pair->lock);
	*words = end->twin->words;
	spin_unlock(&end->pair->lock);
}

static void loopback_notify(struct ropcie_peer *peer)
{
	struct ropcie_loopback_end *twin = peer_end(peer)->twin;

	ropcie_peer_kick(end_peer(twin));
}

static void loopback_ring(struct ropcie_peer *peer, u32 lane)
{
	struct ropcie_loopback_end *twin = peer_end(peer)->twin;

	ropcie_lane_doorbell(&end_peer(twin)->lane[lane]);
}

static const struct ropcie_backend ropcie_loopback_backend = {
	.start = loopback_start,
	.stop = loopback_stop,
	.link_up = loopback_link_up,
	.open = loopback_open,
	.close = loopback_close,
	.prepare = loopback_prepare,
	.publish = loopback_publish,
	.read_words = loopback_read_words,
	.notify = loopback_notify,
	.ring = loopback_ring,
};

static int link_knob_get(void *data, u64 *val)
{
	struct ropcie_loopback_pair *pair = data;

	*val = !READ_ONCE(pair->cut);
	return 0;
}

static int link_knob_set(void *data, u64 val)
{
	struct ropcie_loopback_pair *pair = data;

	if (val > 1)
		return -EINVAL;
	WRITE_ONCE(pair->cut, !val);
	ropcie_peer_kick(end_peer(&pair->end[0]));
	ropcie_peer_kick(end_peer(&pair->end[1]));
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(link_knob, link_knob_get, link_knob_set, "%llu\n");

static void end_free(struct ropcie_loopback_end *end)
{
	if (end->adapter)
		ropcie_adapter_free(end->adapter);
	vfree(end->window);
	if (!IS_ERR_OR_NULL(end->pdev))
		platform_device_unregister(end->pdev);
}

static int end_init(struct ropcie_loopback_end *end, unsigned int pair_index,
		    int side)
{
	snprintf(end->name, sizeof(end->name), "loopback%u%c", pair_index,
		 side ? 'b' : 'a');
	end->pdev = platform_device_register_simple("ropcie_loopback",
						    pair_index * 2 + side,
						    NULL, 0);
	if (IS_ERR(end->pdev))
		return PTR_ERR(end->pdev);
	end->window = vzalloc(loopback_window_bytes());
	if (!end->window)
		return -ENOMEM;
	end->adapter = ropcie_adapter_alloc(&end->pdev->dev, end->name,
					    &ropcie_loopback_backend, 1,
					    ropcie_num_lanes(U32_MAX));
	if (!end->adapter)
		return -ENOMEM;
	end->adapter->priv = end;
	return 0;
}

static void pair_destroy(struct ropcie_loopback_pair *pair)
{
	end_free(&pair->end[1]);
	end_free(&pair->end[0]);
	kfree(pair);
}

static struct ropcie_loopback_pair *pair_create(unsigned int index)
{
	struct ropcie_loopback_pair *pair = kzalloc(sizeof(*pair), GFP_KERNEL);
	int side, ret;

	if (!pair)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&pair->lock);
	for (side = 0; side < 2; side++) {
		pair->end[side].pair = pair;
		pair->end[side].twin = &pair->end[!side];
		ret = end_init(&pair->end[side], index, side);
		if (ret) {
			pair_destroy(pair);
			return ERR_PTR(ret);
		}
	}
	return pair;
}

static void pair_show(struct ropcie_loopback_pair *pair, unsigned int index)
{
	char name[24];

	snprintf(name, sizeof(name), "loopback%u", index);
	pair->debugfs = debugfs_create_dir(name, ropcie_debugfs);
	debugfs_create_file("link", 0600, pair->debugfs, pair, &link_knob);
	ropcie_adapter_add(pair->end[0].adapter);
	ropcie_adapter_add(pair->end[1].adapter);
}

/**
 * ropcie_loopback_create() - make loopback pairs
 * @pairs: number
 *
 * Return: 0 or an error, then there are none.
 */
int ropcie_loopback_create(unsigned int pairs)
{
	struct ropcie_loopback_pair *pair;
	unsigned int i;

	for (i = 0; i < pairs; i++) {
		pair = pair_create(i);
		if (IS_ERR(pair)) {
			ropcie_loopback_destroy();
			return PTR_ERR(pair);
		}
		list_add_tail(&pair->list, &ropcie_loopback_pairs);
		pair_show(pair, i);
	}
	return 0;
}

/* Both ends stop before either is freed: each uses the other's memory. */
void ropcie_loopback_destroy(void)
{
	struct ropcie_loopback_pair *pair, *next;

	list_for_each_entry_safe(pair, next, &ropcie_loopback_pairs, list) {
		debugfs_remove(pair->debugfs);
		ropcie_adapter_remove(pair->end[0].adapter);
		ropcie_adapter_remove(pair->end[1].adapter);
		list_del(&pair->list);
		pair_destroy(pair);
	}
}
