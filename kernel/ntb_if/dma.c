// SPDX-License-Identifier: GPL-2.0
/*
 * A DMA engine copies large payloads to a peer, where Linux has a channel of one
 * (dmaengine, DMA_MEMCPY).
 *
 * Owns: channels, copies under way, and from which size on they are worth it. Knows of
 * a payload's memory only that somebody holds it (struct ropcie_mq_hold), and of lanes
 * that a record's place is reserved first and filled when its payload has arrived
 * (ring.h): payload before header, as with copies by the processor.
 *
 * What the engine can not or does not copy the processor does, piece by piece, at last
 * all that a stuck engine has left when it was stopped. So no record is lost. Senders
 * use peer->dma under RCU; a copy is on dma->copies until nobody uses it any more.
 *
 * Providers call back from tasklets, threads or hard interrupts, some with locks of theirs
 * held that they take to prepare a copy: so a callback takes no lock, and a tasklet of
 * this side's does what follows.
 */
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/interrupt.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/llist.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "internal.h"

/*
 * An engine is stuck when so many looks in a row find copies, and none that has ended
 * since. Looks and not time: a machine that stood still is no reason. Meanwhile the peer
 * waits for what is behind the copies, answers to its own requests among them: so all of
 * them take less than the patience of usual queue pairs (8 times 67 ms).
 */
#define ROPCIE_DMA_LOOKS 3
#define ROPCIE_DMA_LOOK_JIFFIES msecs_to_jiffies(100)
/* What is under way may take so long when the link is lost. */
#define ROPCIE_DMA_DRAIN_JIFFIES msecs_to_jiffies(250)
/* Sizes that are measured: powers of two. */
#define ROPCIE_DMA_LEAST 1024u
#define ROPCIE_DMA_MOST 16384u
/* Copies that are measured at a time, and how often; the best time counts. */
#define ROPCIE_DMA_BATCH 8
#define ROPCIE_DMA_TRIES 3
#define ROPCIE_DMA_NEVER U32_MAX

/**
 * struct ropcie_dma - a DMA engine's channel that copies to one peer
 * @peer: peer
 * @chan: channel, or NULL when it is of no use
 * @name: its name
 * @window: the peer's outbound window as the engine sees it
 * @min: payload from which on it is used
 * @measured: as was measured, not set
 * @ended: it is not used any more
 * @missed: it did not do all that was measured
 * @lock: guards @copies
 * @copies: under way, oldest first
 * @done: pieces that the engine is done with
 * @finish: ends those
 * @pieces: that have ended
 * @seen: @pieces at the last look
 * @looks: in a row that have found no progress
 * @next_look: jiffies
 * @idle: woken when there are none
 */
struct ropcie_dma {
	struct ropcie_peer *peer;
	struct dma_chan *chan;
	char name[32];
	dma_addr_t window;
	u32 min;
	bool measured;
	bool ended;
	bool missed;
	spinlock_t lock; /* copies */
	struct list_head copies;
	struct llist_head done;
	struct tasklet_struct finish;
	atomic_t pieces;
	int seen;
	u32 looks;
	unsigned long next_look;
	wait_queue_head_t idle;
};

/**
 * struct dma_piece - memory that is contiguous at both ends
 * @copy: what it is a piece of
 * @src: from where
 * @dst: to where, in the window
 * @len: bytes
 * @mapped: @src as the engine sees it
 * @given: the engine has it
 * @done: in dma->done
 * @copied: the engine says that it did it
 */
struct dma_piece {
	struct dma_copy *copy;
	void *src;
	void *dst;
	u32 len;
	dma_addr_t mapped;
	bool given;
	struct llist_node done;
	bool copied;
};

/**
 * struct dma_copy - the payload of one record on its way
 * @list: in dma->copies
 * @dma: engine
 * @lane: lane whose record it is, or NULL for a copy that is only measured
 * @hole: the record's place
 * @hold: holds the payload's memory
 * @left: pieces that the engine has, and one until all have been cut
 * @num: entries of @piece
 * @piece: pieces
 */
struct dma_copy {
	struct list_head list;
	struct ropcie_dma *dma;
	struct ropcie_lane *lane;
	struct ropcie_lane_hole hole;
	struct ropcie_mq_hold *hold;
	atomic_t left;
	u32 num;
	struct dma_piece piece[];
};

DEFINE_STATIC_KEY_FALSE(ropcie_dma_key);
EXPORT_SYMBOL_GPL(ropcie_dma_key);

static struct device *dma_dev(const struct ropcie_dma *dma)
{
	return dma->chan->device->dev;
}

static bool dma_is_idle(struct ropcie_dma *dma)
{
	bool idle;

	spin_lock_bh(&dma->lock);
	idle = list_empty(&dma->copies);
	spin_unlock_bh(&dma->lock);
	return idle;
}

/* One run of the destination may end within a run of the source. */
static struct dma_copy *copy_alloc(struct ropcie_dma *dma, u32 nvec)
{
	struct dma_copy *copy;

	copy = kmalloc(struct_size(copy, piece, nvec + 1),
		       GFP_ATOMIC | __GFP_NOWARN);
	if (!copy)
		return NULL;
	copy->dma = dma;
	copy->num = 0;
	atomic_set(&copy->left, 1);
	return copy;
}

static void copy_begin(struct dma_copy *copy)
{
	struct ropcie_dma *dma = copy->dma;

	spin_lock_bh(&dma->lock);
	list_add_tail(&copy->list, &dma->copies);
	spin_unlock_bh(&dma->lock);
}

/* All of the payload is there. Who waits for the last copy may free @dma then. */
static void copy_end(struct dma_copy *copy)
{
	struct ropcie_dma *dma = copy->dma;
	struct ropcie_lane *lane = copy->lane;

	/* First: from then on the peer may answer, and whoever holds it must know. */
	copy->hold->release(copy->hold);
	if (lane)
		ropcie_lane_tx_fill(lane, &copy->hole);
	spin_lock_bh(&dma->lock);
	list_del(&copy->list);
	if (list_empty(&dma->copies))
		wake_up(&dma->idle);
	spin_unlock_bh(&dma->lock);
	kfree(copy);
}

static void copy_put(struct dma_copy *copy)
{
	if (atomic_dec_and_test(&copy->left))
		copy_end(copy);
}

/* The processor does it, if it is for a lane that is up. */
static void piece_by_cpu(const struct dma_piece *piece)
{
	struct dma_copy *copy = piece->copy;

	if (!copy->lane)
		WRITE_ONCE(copy->dma->missed, true);
	if (!copy->lane || !READ_ONCE(copy->lane->tx_up))
		return;
	memcpy(piece->dst, piece->src, piece->len);
	/* Who fills the hole may run elsewhere: leave nothing in this one's buffers. */
	wmb();
	atomic64_inc(&copy->dma->peer->adapter->dma_fallbacks);
}

/* The engine does not have the piece any more. */
static void piece_end(struct dma_piece *piece, bool copied)
{
	struct dma_copy *copy = piece->copy;
	struct ropcie_dma *dma = copy->dma;

	piece->given = false;
	atomic_inc(&dma->pieces);
	dma_unmap_page(dma_dev(dma), piece->mapped, piece->len, DMA_TO_DEVICE);
	if (copied && copy->lane)
		atomic64_add(piece->len, &dma->peer->adapter->tx_dma_bytes);
	else if (!copied)
		piece_by_cpu(piece);
	copy_put(copy);
}

static void dma_finish(struct tasklet_struct *t)
{
	struct ropcie_dma *dma = from_tasklet(dma, t, finish);
	struct llist_node *list = llist_del_all(&dma->done);
	struct dma_piece *piece, *next;

	llist_for_each_entry_safe(piece, next, llist_reverse_order(list), done)
		piece_end(piece, piece->copied);
}

static void piece_done(void *param, const struct dmaengine_result *result)
{
	struct dma_piece *piece = param;
	struct ropcie_dma *dma = piece->copy->dma;

	piece->copied = !result || result->result == DMA_TRANS_NOERROR;
	/* Whoever frees @dma waits for a grace period: the tasklet may run at once. */
	rcu_read_lock();
	if (llist_add(&piece->done, &dma->done))
		tasklet_schedule(&dma->finish);
	rcu_read_unlock();
}

static struct dma_async_tx_descriptor *piece_prepare(struct dma_piece *piece)
{
	struct ropcie_dma *dma = piece->copy->dma;
	size_t off = (u8 *)piece->dst - (u8 *)dma->peer->out;

	return dmaengine_prep_dma_memcpy(dma->chan, dma->window + off,
					 piece->mapped, piece->len,
					 DMA_PREP_INTERRUPT | DMA_CTRL_ACK);
}

/* Return: the engine has it, and will say so when it is done. */
static bool piece_give(struct dma_piece *piece)
{
	struct dma_copy *copy = piece->copy;
	struct ropcie_dma *dma = copy->dma;
	struct device *dev = dma_dev(dma);
	struct dma_async_tx_descriptor *desc;

	if (!virt_addr_valid(piece->src) ||
	    !is_dma_copy_aligned(dma->chan->device, offset_in_page(piece->src),
				 offset_in_page(piece->dst), piece->len))
		return false;
	piece->mapped = dma_map_page(dev, virt_to_page(piece->src),
				     offset_in_page(piece->src), piece->len,
				     DMA_TO_DEVICE);
	if (dma_mapping_error(dev, piece->mapped))
		return false;
	desc = piece_prepare(piece);
	if (!desc)
		goto unmap;
	desc->callback_result = piece_done;
	desc->callback_param = piece;
	piece->given = true;
	atomic_inc(&copy->left);
	if (!dma_submit_error(dmaengine_submit(desc)))
		return true;
	piece->given = false;
	atomic_dec(&copy->left);
unmap:
	dma_unmap_page(dev, piece->mapped, piece->len, DMA_TO_DEVICE);
	return false;
}

/* Cut where either end is not contiguous. */
static void copy_cut(struct dma_copy *copy, const struct ropcie_vec *vec,
		     u32 nvec)
{
	const struct ropcie_vec *dst = copy->hole.dst;
	u32 i, off, put = 0;

	for (i = 0; i < nvec; i++) {
		for (off = 0; off < vec[i].len;) {
			struct dma_piece *piece = &copy->piece[copy->num++];

			if (put == dst->len) {
				dst++;
				put = 0;
			}
			piece->copy = copy;
			piece->src = (u8 *)vec[i].base + off;
			piece->dst = (u8 *)dst->base + put;
			piece->len = min(vec[i].len - off, dst->len - put);
			piece->given = false;
			off += piece->len;
			put += piece->len;
		}
	}
}

/* The copy may be gone when this returns. */
static void copy_run(struct dma_copy *copy, const struct ropcie_vec *vec,
		     u32 nvec)
{
	struct ropcie_dma *dma = copy->dma;
	u32 i;

	copy_cut(copy, vec, nvec);
	for (i = 0; i < copy->num; i++)
		if (!piece_give(&copy->piece[i]))
			piece_by_cpu(&copy->piece[i]);
	dma_async_issue_pending(dma->chan);
	copy_put(copy);
}

bool ropcie_mq_dma_wanted(const struct ropcie_mq_tx *tx, u32 len)
{
	const struct ropcie_dma *dma;
	bool wanted;

	rcu_read_lock();
	dma = rcu_dereference(tx->peer->dma);
	wanted = dma && len >= dma->min && !READ_ONCE(dma->ended);
	rcu_read_unlock();
	return wanted;
}
EXPORT_SYMBOL_GPL(ropcie_mq_dma_wanted);

/* Return: 0; or an error, and nothing has happened. Under RCU. */
static int dma_send(struct ropcie_lane *lane, const struct ropcie_hdr *hdr,
		    const struct ropcie_vec *vec, u32 nvec,
		    struct ropcie_mq_hold *hold)
{
	struct ropcie_dma *dma = rcu_dereference(lane->peer->dma);
	struct dma_copy *copy;
	int ret;

	/* A piece of any other size is not in the payload ring. */
	if (!dma || READ_ONCE(dma->ended) || !ropcie_hdr_ring_len(hdr))
		return -EOPNOTSUPP;
	copy = copy_alloc(dma, nvec);
	if (!copy)
		return -ENOMEM;
	copy->lane = lane;
	copy->hold = hold;
	ret = ropcie_lane_tx_reserve(lane, hdr, &copy->hole);
	if (ret) {
		kfree(copy);
		return ret;
	}
	copy_begin(copy);
	copy_run(copy, vec, nvec);
	return 0;
}

int ropcie_mq_send_dma(struct ropcie_mq_tx *tx, const struct ropcie_hdr *hdr,
		       const struct ropcie_vec *vec, u32 nvec,
		       struct ropcie_mq_hold *hold)
{
	int ret;

	rcu_read_lock();
	ret = dma_send(&tx->peer->lane[tx->lane], hdr, vec, nvec, hold);
	rcu_read_unlock();
	if (!ret)
		return 0;
	/* Also to learn what is wrong with the lane. */
	ret = ropcie_mq_send(tx, hdr, vec, nvec);
	if (!ret)
		hold->release(hold);
	return ret;
}
EXPORT_SYMBOL_GPL(ropcie_mq_send_dma);

/* The oldest copy; only who has stopped the engine may look at it. */
static struct dma_copy *dma_oldest(struct ropcie_dma *dma)
{
	struct dma_copy *copy;

	spin_lock_bh(&dma->lock);
	copy = list_first_entry_or_null(&dma->copies, struct dma_copy, list);
	spin_unlock_bh(&dma->lock);
	return copy;
}

/*
 * Take all copies away from the engine; those of lanes that are up the processor does.
 * Return: 0, or an error when the engine can not be stopped.
 */
static int dma_abort(struct ropcie_dma *dma)
{
	struct dma_copy *copy;
	int ret;
	u32 i;

	WRITE_ONCE(dma->ended, true);
	synchronize_rcu(); /* nobody gives it anything */
	ret = dmaengine_terminate_sync(dma->chan);
	if (ret)
		return ret;
	/* What it was done with before ends as it says. */
	tasklet_kill(&dma->finish);
	while ((copy = dma_oldest(dma))) {
		atomic_inc(&copy->left);
		for (i = 0; i < copy->num; i++)
			if (copy->piece[i].given)
				piece_end(&copy->piece[i], false);
		copy_put(copy);
	}
	return 0;
}

/* A look at it, if it is time for one. */
static bool dma_is_stuck(struct ropcie_dma *dma)
{
	int pieces = atomic_read(&dma->pieces);

	if (dma_is_idle(dma) || pieces != dma->seen) {
		dma->looks = 0;
	} else {
		if (time_before(jiffies, dma->next_look))
			return false;
		dma->looks++;
	}
	dma->seen = pieces;
	dma->next_look = jiffies + ROPCIE_DMA_LOOK_JIFFIES;
	return dma->looks >= ROPCIE_DMA_LOOKS;
}

/**
 * ropcie_dma_check() - is the engine stuck?
 * @peer: peer; its mutex is held
 */
void ropcie_dma_check(struct ropcie_peer *peer)
{
	struct ropcie_dma *dma = ropcie_peer_dma(peer);

	if (!dma || dma->ended || !dma_is_stuck(dma))
		return;
	if (dma_abort(dma))
		dev_err(peer->adapter->dev,
			"DMA engine %s is stuck and can not be stopped: what is sent to peer %u waits for it\n",
			dma->name, peer->index);
	else
		dev_warn(peer->adapter->dev,
			 "DMA engine %s is stuck, the processor copies to peer %u until its link starts again\n",
			 dma->name, peer->index);
}

/* An engine that can not be stopped has memory until it says that it is done. */
static void dma_drain(struct ropcie_dma *dma)
{
	if (wait_event_timeout(dma->idle, dma_is_idle(dma),
			       ROPCIE_DMA_DRAIN_JIFFIES) ||
	    !dma_abort(dma))
		return;
	dev_err(dma->peer->adapter->dev,
		"DMA engine %s is not done and can not be stopped: waiting\n",
		dma->name);
	wait_event(dma->idle, dma_is_idle(dma));
}

static void measured_release(struct ropcie_mq_hold *hold)
{
}

/* Return: nanoseconds, or U64_MAX when the engine did not do it all. */
static u64 measure_dma(struct ropcie_dma *dma, const struct ropcie_vec *src,
		       void *dst)
{
	static struct ropcie_mq_hold hold = { .release = measured_release };
	u64 start = ktime_get_ns();
	struct dma_copy *copy;
	u32 i;

	dma->missed = false;
	for (i = 0; i < ROPCIE_DMA_BATCH; i++) {
		copy = copy_alloc(dma, 1);
		if (!copy) {
			dma->missed = true;
			break;
		}
		copy->lane = NULL;
		copy->hold = &hold;
		copy->hole.dst[0].base = dst;
		copy->hole.dst[0].len = src->len;
		copy_begin(copy);
		copy_run(copy, src, 1);
	}
	dma_drain(dma);
	return dma->missed ? U64_MAX : ktime_get_ns() - start;
}

static u64 measure_cpu(const struct ropcie_vec *src, void *dst)
{
	u64 start = ktime_get_ns();
	u32 i;

	for (i = 0; i < ROPCIE_DMA_BATCH; i++)
		memcpy(dst, src->base, src->len);
	wmb(); /* out of the write-combining buffers */
	return ktime_get_ns() - start;
}

static bool dma_is_faster(struct ropcie_dma *dma, const struct ropcie_vec *src,
			  void *dst)
{
	u64 by_cpu = U64_MAX, by_dma = U64_MAX;
	u32 i;

	for (i = 0; i < ROPCIE_DMA_TRIES && !dma->ended; i++) {
		by_dma = min(by_dma, measure_dma(dma, src, dst));
		by_cpu = min(by_cpu, measure_cpu(src, dst));
	}
	return by_dma <= by_cpu;
}

/*
 * The least size from which on the engine is not slower than the processor, so that
 * bandwidth does not fall where it begins. Into the payload ring of a lane which is
 * not used yet.
 */
static u32 dma_measure(struct ropcie_dma *dma)
{
	void *dst = dma->peer->lane[0].tx.payload;
	struct ropcie_vec src = { .len = ROPCIE_DMA_MOST };
	u32 min = ROPCIE_DMA_NEVER;

	src.base = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO,
					    get_order(ROPCIE_DMA_MOST));
	if (!src.base)
		return min;
	for (; src.len >= ROPCIE_DMA_LEAST && dma_is_faster(dma, &src, dst);
	     src.len /= 2)
		min = src.len;
	free_pages((unsigned long)src.base, get_order(ROPCIE_DMA_MOST));
	return min;
}

/*
 * Drivers that sleep where they may be called in atomic context: ptdma in issue_pending,
 * ae4dma for each descriptor, idxd when it has none left. The first two also call a copy
 * done that their engine says has failed.
 */
static const char *const dma_sleeps[] = { "ptdma", "ae4dma", "idxd" };

/*
 * An engine that can not be stopped (ioat) keeps all that waits for it when it is
 * stuck: only who asks for it gets it.
 */
static bool dma_is_usable(const struct dma_chan *chan)
{
	const struct device_driver *driver = chan->device->dev->driver;

	if (driver && match_string(dma_sleeps, ARRAY_SIZE(dma_sleeps),
				   driver->name) >= 0)
		return false;
	return chan->device->device_terminate_all ||
	       READ_ONCE(ropcie_dma_threshold) > 0;
}

static bool dma_is_near(struct dma_chan *chan, void *peer)
{
	int node = dev_to_node(((struct ropcie_peer *)peer)->adapter->dev);
	int its = dev_to_node(chan->device->dev);

	return dma_is_usable(chan) &&
	       (node == its || node == NUMA_NO_NODE || its == NUMA_NO_NODE);
}

static struct dma_chan *dma_request(struct ropcie_peer *peer)
{
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	return dma_request_channel(mask, dma_is_near, peer);
}

static void dma_release(struct ropcie_dma *dma)
{
	dma_unmap_resource(dma_dev(dma), dma->window, dma->peer->out_size,
			   DMA_FROM_DEVICE, 0);
	dma_release_channel(dma->chan);
	dma->chan = NULL;
}

static bool dma_map_window(struct ropcie_dma *dma)
{
	const struct ropcie_peer *peer = dma->peer;

	dma->window = dma_map_resource(dma_dev(dma), peer->out_phys,
				       peer->out_size, DMA_FROM_DEVICE, 0);
	if (!dma_mapping_error(dma_dev(dma), dma->window))
		return true;
	dev_dbg(peer->adapter->dev, "DMA engine %s does not reach peer %u\n",
		dma->name, peer->index);
	return false;
}

static struct ropcie_dma *dma_create(struct ropcie_peer *peer)
{
	struct ropcie_dma *dma = kzalloc(sizeof(*dma), GFP_KERNEL);

	if (!dma)
		return NULL;
	dma->peer = peer;
	spin_lock_init(&dma->lock);
	INIT_LIST_HEAD(&dma->copies);
	init_llist_head(&dma->done);
	tasklet_setup(&dma->finish, dma_finish);
	init_waitqueue_head(&dma->idle);
	dma->next_look = jiffies + ROPCIE_DMA_LOOK_JIFFIES;
	dma->chan = dma_request(peer);
	if (!dma->chan) {
		dev_dbg(peer->adapter->dev, "no DMA engine for peer %u\n",
			peer->index);
		goto free;
	}
	strscpy(dma->name, dma_chan_name(dma->chan), sizeof(dma->name));
	if (dma_map_window(dma))
		return dma;
	dma_release_channel(dma->chan);
free:
	kfree(dma);
	return NULL;
}

/**
 * ropcie_dma_start() - use an engine for a peer, where there is one
 * @peer: peer whose lanes are set up, and not used by anybody; its mutex is held
 *
 * Not beside direct placement: there a grant's return says that all before it has been
 * stored, and would have to wait for the engine in a lane that waits for the return.
 */
void ropcie_dma_start(struct ropcie_peer *peer)
{
	int threshold = READ_ONCE(ropcie_dma_threshold);
	struct ropcie_dma *dma;

	if (!threshold || !peer->out_phys ||
	    (ropcie_link_features(&peer->link) & ROPCIE_FEAT_DIRECT))
		return;
	dma = dma_create(peer);
	if (!dma)
		return;
	dma->measured = threshold < 0;
	dma->min = dma->measured ? dma_measure(dma) : threshold;
	if (dma->ended || dma->min == ROPCIE_DMA_NEVER) {
		/* Others may have more use for it. */
		dma->ended = true;
		dma_release(dma);
	} else {
		static_branch_inc(&ropcie_dma_key);
	}
	rcu_assign_pointer(peer->dma, dma);
}

/**
 * ropcie_dma_stop() - nothing is copied to the peer any more when it returns
 * @peer: peer whose lanes are down for a grace period; its mutex is held
 */
void ropcie_dma_stop(struct ropcie_peer *peer)
{
	struct ropcie_dma *dma = ropcie_peer_dma(peer);

	if (!dma)
		return;
	RCU_INIT_POINTER(peer->dma, NULL);
	if (dma->chan) {
		dma_drain(dma);
		dma_release(dma);
		static_branch_dec(&ropcie_dma_key);
	}
	/* Who asked whether it is wanted may still look at it, and the last callback. */
	synchronize_rcu();
	tasklet_kill(&dma->finish);
	kfree(dma);
}

/**
 * ropcie_dma_show() - what people are told of a peer's engine
 * @peer: peer; its mutex is held
 * @s: where
 */
void ropcie_dma_show(struct ropcie_peer *peer, struct seq_file *s)
{
	const struct ropcie_dma *dma = ropcie_peer_dma(peer);

	if (!dma)
		return;
	seq_printf(s, "peer %u: DMA engine %s, ", peer->index, dma->name);
	if (!dma->chan)
		seq_puts(s, "not used: the processor is faster\n");
	else if (dma->ended)
		seq_puts(s, "given up\n");
	else
		seq_printf(s, "from %u bytes%s\n", dma->min,
			   dma->measured ? ", measured" : "");
}
