// SPDX-License-Identifier: GPL-2.0
/*
 * dma_dummy.ko: a DMA engine (dmaengine, DMA_MEMCPY) whose channels are threads that
 * copy with the processor, as badly as a test wants. What a copy's destination has
 * until the copy is done is rubbish. Source and destination are physical addresses.
 * In /sys/kernel/debug/dma_dummy/:
 *
 *   delay_us       from a copy's begin to its end, at least
 *   random_us      up to so much more
 *   unordered      1: copies end as soon as they may, else in their order
 *   fail_every     each copy of so many fails, with rubbish in its destination
 *   refuse_every   each copy of so many is not accepted; 1: none is
 *   stuck          1: no copy ends any more, unless it is terminated
 *   hard           1: what has ended is told in a hard interrupt, not as in a tasklet
 *   instant        1: copies end when they are issued, and nothing is copied: what a
 *                  client measures of such an engine, no processor does faster
 *   copied, failed, refused, terminated   copies of which that is true
 *   pending        copies that have been accepted and have not ended
 */
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/io.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/random.h>
#include <linux/slab.h>

MODULE_DESCRIPTION("Test: a DMA engine that is slow, wrong or stuck");
MODULE_AUTHOR("RoPCIe developers");
MODULE_LICENSE("GPL");

static unsigned int channels = 4;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "number of channels (default 4)");

static bool terminates = true;
module_param(terminates, bool, 0444);
MODULE_PARM_DESC(terminates, "copies can be stopped (default on); those of ioat can not");

#define DD_RUBBISH 0xdb

static u32 dd_delay_us;
static u32 dd_random_us;
static u32 dd_unordered;
static u32 dd_fail_every;
static u32 dd_refuse_every;
static u32 dd_stuck;
static u32 dd_hard;
static u32 dd_instant;
static atomic_t dd_asked;
static atomic_t dd_ended;
static atomic_t dd_copied;
static atomic_t dd_failed;
static atomic_t dd_refused;
static atomic_t dd_terminated;
static atomic_t dd_pending;
static struct dentry *dd_debugfs;

struct dd_desc {
	struct list_head list;
	struct dma_async_tx_descriptor tx;
	dma_addr_t dst;
	dma_addr_t src;
	size_t len;
	ktime_t due;
};

/*
 * struct dd_chan - a channel
 * @lock:	Guards the lists.
 * @prepared:	Not submitted yet.
 * @submitted:	Not issued yet.
 * @issued:	The thread has not begun with them.
 * @begun:	There is rubbish in their destinations.
 * @life:	How often all was terminated, and
 * @taken_in:	how often it was when the thread took a copy.
 * @busy:	The thread has hold of a copy that is in no list.
 */
struct dd_chan {
	struct dma_chan chan;
	struct task_struct *thread;
	spinlock_t lock; /* lists */
	struct list_head prepared;
	struct list_head submitted;
	struct list_head issued;
	struct list_head begun;
	u32 life;
	u32 taken_in;
	struct mutex busy; /* the thread's copy */
	ktime_t last_due;
};

static struct dma_device dd_device;
static struct dd_chan *dd_chans;

static struct dd_chan *to_dd_chan(struct dma_chan *chan)
{
	return container_of(chan, struct dd_chan, chan);
}

static bool dd_each(u32 every, atomic_t *count)
{
	return every && !(atomic_inc_return(count) % every);
}

static dma_cookie_t dd_submit(struct dma_async_tx_descriptor *tx)
{
	struct dd_desc *desc = container_of(tx, struct dd_desc, tx);
	struct dd_chan *c = to_dd_chan(tx->chan);

	spin_lock_bh(&c->lock);
	c->chan.cookie = c->chan.cookie < DMA_MIN_COOKIE ||
			 c->chan.cookie == INT_MAX ? DMA_MIN_COOKIE :
						     c->chan.cookie + 1;
	tx->cookie = c->chan.cookie;
	list_move_tail(&desc->list, &c->submitted);
	spin_unlock_bh(&c->lock);
	return tx->cookie;
}

static struct dma_async_tx_descriptor *
dd_prepare(struct dma_chan *chan, dma_addr_t dst, dma_addr_t src, size_t len,
	   unsigned long flags)
{
	struct dd_chan *c = to_dd_chan(chan);
	struct dd_desc *desc;

	if (dd_each(READ_ONCE(dd_refuse_every), &dd_asked)) {
		atomic_inc(&dd_refused);
		return NULL;
	}
	desc = kzalloc(sizeof(*desc), GFP_NOWAIT);
	if (!desc)
		return NULL;
	dma_async_tx_descriptor_init(&desc->tx, chan);
	desc->tx.tx_submit = dd_submit;
	desc->tx.flags = flags;
	desc->dst = dst;
	desc->src = src;
	desc->len = len;
	spin_lock_bh(&c->lock);
	list_add_tail(&desc->list, &c->prepared);
	spin_unlock_bh(&c->lock);
	atomic_inc(&dd_pending);
	return &desc->tx;
}

static void dd_call_back(const struct dd_desc *desc, bool copied)
{
	struct dmaengine_result result = {
		.result = copied ? DMA_TRANS_NOERROR : DMA_TRANS_WRITE_FAILED,
	};

	if (desc->tx.callback_result)
		desc->tx.callback_result(desc->tx.callback_param, &result);
	else if (desc->tx.callback)
		desc->tx.callback(desc->tx.callback_param);
}

/* As from a tasklet. */
static void dd_tell(const struct dd_desc *desc, bool copied)
{
	local_bh_disable();
	dd_call_back(desc, copied);
	local_bh_enable();
}

struct dd_irq {
	struct irq_work work;
	const struct dd_desc *desc;
	bool copied;
};

static void dd_irq(struct irq_work *work)
{
	struct dd_irq *irq = container_of(work, struct dd_irq, work);

	dd_call_back(irq->desc, irq->copied);
}

static void dd_tell_hard(const struct dd_desc *desc, bool copied)
{
	struct dd_irq irq = {
		.work = IRQ_WORK_INIT_HARD(dd_irq),
		.desc = desc,
		.copied = copied,
	};

	irq_work_queue(&irq.work);
	irq_work_sync(&irq.work);
}

static void dd_pretend(struct list_head *list)
{
	struct dd_desc *desc, *next;

	list_for_each_entry_safe(desc, next, list, list) {
		list_del(&desc->list);
		dd_tell(desc, true);
		kfree(desc);
		atomic_dec(&dd_pending);
	}
}

static void dd_issue(struct dma_chan *chan)
{
	struct dd_chan *c = to_dd_chan(chan);
	LIST_HEAD(instant);

	spin_lock_bh(&c->lock);
	list_splice_tail_init(&c->submitted,
			      READ_ONCE(dd_instant) ? &instant : &c->issued);
	spin_unlock_bh(&c->lock);
	if (list_empty(&instant))
		wake_up_process(c->thread);
	dd_pretend(&instant);
}

/* Nobody waits for it with this. */
static enum dma_status dd_status(struct dma_chan *chan, dma_cookie_t cookie,
				 struct dma_tx_state *state)
{
	return DMA_IN_PROGRESS;
}

static void dd_free_all(struct list_head *list, atomic_t *count)
{
	struct dd_desc *desc, *next;

	list_for_each_entry_safe(desc, next, list, list) {
		list_del(&desc->list);
		kfree(desc);
		atomic_dec(&dd_pending);
		atomic_inc(count);
	}
}

static int dd_terminate(struct dma_chan *chan)
{
	struct dd_chan *c = to_dd_chan(chan);
	LIST_HEAD(list);

	spin_lock_bh(&c->lock);
	list_splice_init(&c->prepared, &list);
	list_splice_init(&c->submitted, &list);
	list_splice_init(&c->issued, &list);
	list_splice_init(&c->begun, &list);
	c->life++;
	spin_unlock_bh(&c->lock);
	dd_free_all(&list, &dd_terminated);
	return 0;
}

static void dd_synchronize(struct dma_chan *chan)
{
	struct dd_chan *c = to_dd_chan(chan);

	mutex_lock(&c->busy);
	mutex_unlock(&c->busy);
}

static void dd_free_chan(struct dma_chan *chan)
{
	dd_terminate(chan);
	dd_synchronize(chan);
}

/* Clients have windows of devices mapped in the same way. */
static void *dd_map(const struct dd_desc *desc)
{
	void *dst = memremap(desc->dst, desc->len, MEMREMAP_WC);

	WARN_ONCE(!dst, "dma_dummy: %pad can not be mapped\n", &desc->dst);
	return dst;
}

static void dd_spoil(const struct dd_desc *desc)
{
	void *dst = dd_map(desc);

	if (!dst)
		return;
	memset(dst, DD_RUBBISH, desc->len);
	wmb(); /* out of the write-combining buffers */
	memunmap(dst);
}

static bool dd_copy(const struct dd_desc *desc)
{
	void *dst;

	if (dd_each(READ_ONCE(dd_fail_every), &dd_ended))
		return false;
	dst = dd_map(desc);
	if (!dst)
		return false;
	memcpy(dst, phys_to_virt(desc->src), desc->len);
	wmb(); /* out of the write-combining buffers */
	memunmap(dst);
	return true;
}

static void dd_end(struct dd_desc *desc)
{
	bool copied = dd_copy(desc);

	atomic_inc(copied ? &dd_copied : &dd_failed);
	if (READ_ONCE(dd_hard))
		dd_tell_hard(desc, copied);
	else
		dd_tell(desc, copied);
	kfree(desc);
	atomic_dec(&dd_pending);
}

/* The time at which it may end; in order, not before the one in front of it. */
static ktime_t dd_due(struct dd_chan *c)
{
	u32 random_us = READ_ONCE(dd_random_us);
	u64 us = READ_ONCE(dd_delay_us);
	ktime_t due;

	if (random_us)
		us += get_random_u32() % random_us;
	due = ktime_add_us(ktime_get(), us);
	if (!READ_ONCE(dd_unordered) && ktime_before(due, c->last_due))
		due = c->last_due;
	c->last_due = due;
	return due;
}

/* The one that is due first, if it is due by now; else when it will be. */
static struct dd_desc *dd_take(struct dd_chan *c, struct list_head *from,
			       ktime_t *next)
{
	struct dd_desc *desc, *first = NULL;

	spin_lock_bh(&c->lock);
	list_for_each_entry(desc, from, list)
		if (!first || ktime_before(desc->due, first->due))
			first = desc;
	if (first && ktime_after(first->due, ktime_get())) {
		*next = min(*next, first->due);
		first = NULL;
	}
	if (first)
		list_del_init(&first->list);
	c->taken_in = c->life;
	spin_unlock_bh(&c->lock);
	return first;
}

/* Unless all were terminated since it was taken. */
static void dd_begin(struct dd_chan *c, struct dd_desc *desc)
{
	LIST_HEAD(late);

	dd_spoil(desc);
	desc->due = dd_due(c);
	spin_lock_bh(&c->lock);
	list_add_tail(&desc->list, c->taken_in == c->life ? &c->begun : &late);
	spin_unlock_bh(&c->lock);
	dd_free_all(&late, &dd_terminated);
}

/* Return: there may be more to do now. */
static bool dd_step(struct dd_chan *c, ktime_t *next)
{
	struct dd_desc *desc;

	/* What is due first: else one that gives a lot would never see an end. */
	desc = READ_ONCE(dd_stuck) ? NULL : dd_take(c, &c->begun, next);
	if (desc) {
		dd_end(desc);
		return true;
	}
	desc = dd_take(c, &c->issued, next);
	if (desc)
		dd_begin(c, desc);
	return desc;
}

static bool dd_has_issued(struct dd_chan *c)
{
	bool has;

	spin_lock_bh(&c->lock);
	has = !list_empty(&c->issued);
	spin_unlock_bh(&c->lock);
	return has;
}

static int dd_thread(void *arg)
{
	struct dd_chan *c = arg;
	ktime_t next;
	bool more;

	while (!kthread_should_stop()) {
		/* Not for ever: what is stuck comes loose without a call. */
		next = ktime_add_ms(ktime_get(), 10);
		mutex_lock(&c->busy);
		more = dd_step(c, &next);
		mutex_unlock(&c->busy);
		if (more) {
			cond_resched();
			continue;
		}
		set_current_state(TASK_IDLE);
		if (!dd_has_issued(c) && !kthread_should_stop())
			schedule_hrtimeout(&next, HRTIMER_MODE_ABS);
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

static int dd_start_chan(struct dd_chan *c, unsigned int index)
{
	struct task_struct *thread;

	spin_lock_init(&c->lock);
	mutex_init(&c->busy);
	INIT_LIST_HEAD(&c->prepared);
	INIT_LIST_HEAD(&c->submitted);
	INIT_LIST_HEAD(&c->issued);
	INIT_LIST_HEAD(&c->begun);
	c->chan.device = &dd_device;
	c->chan.cookie = DMA_MIN_COOKIE;
	c->chan.completed_cookie = DMA_MIN_COOKIE;
	thread = kthread_run(dd_thread, c, "dma_dummy/%u", index);
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	c->thread = thread;
	list_add_tail(&c->chan.device_node, &dd_device.channels);
	return 0;
}

static void dd_stop_chans(void)
{
	unsigned int i;

	for (i = 0; i < channels && dd_chans[i].thread; i++) {
		kthread_stop(dd_chans[i].thread);
		dd_terminate(&dd_chans[i].chan);
	}
	kfree(dd_chans);
}

static int dd_start_chans(void)
{
	unsigned int i;
	int ret = 0;

	dd_chans = kcalloc(channels, sizeof(*dd_chans), GFP_KERNEL);
	if (!dd_chans)
		return -ENOMEM;
	for (i = 0; i < channels && !ret; i++)
		ret = dd_start_chan(&dd_chans[i], i);
	if (ret)
		dd_stop_chans();
	return ret;
}

static int dd_probe(struct platform_device *pdev)
{
	struct dma_device *d = &dd_device;
	int ret;

	ret = dma_coerce_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	INIT_LIST_HEAD(&d->channels);
	d->dev = &pdev->dev;
	dma_cap_set(DMA_MEMCPY, d->cap_mask);
	dma_cap_set(DMA_PRIVATE, d->cap_mask);
	d->device_free_chan_resources = dd_free_chan;
	d->device_prep_dma_memcpy = dd_prepare;
	d->device_issue_pending = dd_issue;
	d->device_tx_status = dd_status;
	d->device_terminate_all = terminates ? dd_terminate : NULL;
	d->device_synchronize = dd_synchronize;
	ret = dd_start_chans();
	if (ret)
		return ret;
	ret = dma_async_device_register(d);
	if (ret)
		dd_stop_chans();
	return ret;
}

static struct platform_driver dd_driver = {
	.driver = {
		.name = KBUILD_MODNAME,
	},
};

static void dd_add_files(void)
{
	struct {
		const char *name;
		u32 *value;
	} knobs[] = {
		{ "delay_us", &dd_delay_us },
		{ "random_us", &dd_random_us },
		{ "unordered", &dd_unordered },
		{ "fail_every", &dd_fail_every },
		{ "refuse_every", &dd_refuse_every },
		{ "stuck", &dd_stuck },
		{ "hard", &dd_hard },
		{ "instant", &dd_instant },
	};
	struct {
		const char *name;
		atomic_t *value;
	} counters[] = {
		{ "copied", &dd_copied },
		{ "failed", &dd_failed },
		{ "refused", &dd_refused },
		{ "terminated", &dd_terminated },
		{ "pending", &dd_pending },
	};
	int i;

	dd_debugfs = debugfs_create_dir(KBUILD_MODNAME, NULL);
	for (i = 0; i < ARRAY_SIZE(knobs); i++)
		debugfs_create_u32(knobs[i].name, 0600, dd_debugfs,
				   knobs[i].value);
	for (i = 0; i < ARRAY_SIZE(counters); i++)
		debugfs_create_atomic_t(counters[i].name, 0400, dd_debugfs,
					counters[i].value);
}

static struct platform_device *dd_platform;

static int __init dd_init(void)
{
	dd_platform = platform_create_bundle(&dd_driver, dd_probe, NULL, 0,
					     NULL, 0);
	if (IS_ERR(dd_platform))
		return PTR_ERR(dd_platform);
	dd_add_files();
	return 0;
}
module_init(dd_init);

/* Clients have a reference to the module, so there are none. */
static void __exit dd_exit(void)
{
	debugfs_remove_recursive(dd_debugfs);
	dma_async_device_unregister(&dd_device);
	platform_device_unregister(dd_platform);
	platform_driver_unregister(&dd_driver);
	dd_stop_chans();
}
module_exit(dd_exit);
