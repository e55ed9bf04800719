// SPDX-License-Identifier: GPL-2.0
/*
 * On-demand paging. A region's page array has NULL for what is not there. Who finds
 * one while copying, under a queue pair's lock, has the page brought in by a work
 * item, and the queue pair run when it is: the requester waits, the responder has
 * its peer send again (RNR NAK). The kernel takes pages away through the notifier.
 *
 * Copies run with bottom halves off, which is an RCU reader: the notifier takes the
 * pages out of the array, waits for RCU, and only then gives them up. So copies need
 * neither a lock nor a reference to a page.
 */
#include <linux/delay.h>
#include <linux/hmm.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "memory.h"
#include "odp.h"
#include "qp.h"

/* Most pages that are brought in at once. */
#define AT_ONCE 16U
/* How often, when the process changes its memory meanwhile. */
#define MAX_TRIES 10
/* Most for one that is missing, and for how long the peer is kept waiting. */
#define MAX_AHEAD (SZ_1M / PAGE_SIZE)
#define AHEAD_US 1000

static struct workqueue_struct *queue;

/* The part of @range that @odp has, as numbers of its pages. */
static void pages_of(struct ib_umem_odp *odp,
		     const struct mmu_notifier_range *range, u64 *first,
		     u64 *end)
{
	u64 start = ib_umem_start(odp);

	*first = (max_t(u64, start, range->start) - start) >> PAGE_SHIFT;
	*end = (min_t(u64, ib_umem_end(odp), range->end) - start) >> PAGE_SHIFT;
}

/* The kernel wants pages back, or changes what may be done with them. */
static bool invalidate(struct mmu_interval_notifier *notifier,
		       const struct mmu_notifier_range *range,
		       unsigned long seq)
{
	struct ib_umem_odp *odp = container_of(notifier, struct ib_umem_odp,
					       notifier);
	struct ropcie_pinned *pinned;
	u64 idx, first, end;
	bool some = false;

	if (!mmu_notifier_range_blockable(range))
		return false;
	mutex_lock(&odp->umem_mutex);
	mmu_interval_set_seq(notifier, seq);
	/* Before the first page is there @odp may not be complete. */
	if (!odp->npages)
		goto out;
	pinned = odp->private;
	pages_of(odp, range, &first, &end);
	for (idx = first; idx < end; idx++) {
		some |= !!pinned->pages[idx];
		WRITE_ONCE(pinned->pages[idx], NULL);
	}
	/*
	 * Copies to and from them end first. Whoever comes later finds no page: only with
	 * copies under way is there something to wait for, or each of many regions of a page
	 * would hold up who wants it back.
	 */
	smp_mb(); /* pairs with ropcie_odp_use(), and with ropcie_odp_used() */
	if (some && atomic_read(&pinned->users))
		synchronize_rcu_expedited();
	smp_mb(); /* the same */
	ib_umem_odp_unmap_dma_pages(odp, range->start, range->end);
out:
	mutex_unlock(&odp->umem_mutex);
	return true;
}

static const struct mmu_interval_notifier_ops notifier_ops = {
	.invalidate = invalidate,
};

/*
 * Bytes that ib_umem_odp_get() takes for each page, of memory or not, and charges
 * to nobody. They count as pinned memory of the process, as the pages of other
 * regions do.
 */
#define TABLE_BYTES (sizeof(unsigned long) + sizeof(dma_addr_t))

static bool charge(struct ropcie_pinned *pinned, struct mm_struct *mm, u64 pages)
{
	u64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	u64 num = DIV_ROUND_UP(pages * TABLE_BYTES, PAGE_SIZE);

	if (atomic64_add_return(num, &mm->pinned_vm) > limit &&
	    !capable(CAP_IPC_LOCK)) {
		atomic64_sub(num, &mm->pinned_vm);
		return false;
	}
	pinned->table_pages = num;
	return true;
}

void ropcie_odp_release(struct ropcie_pinned *pinned)
{
	struct ib_device *ibdev = pinned->umem->ibdev;

	atomic64_sub(pinned->table_pages, &pinned->umem->owning_mm->pinned_vm);
	ib_umem_release(pinned->umem);
	put_device(&ibdev->dev);
}

struct ropcie_pinned *ropcie_odp_pin(struct ib_device *ibdev, u64 start,
				     u64 length, int access)
{
	struct mm_struct *mm = current->mm;
	struct ropcie_pinned *pinned;
	struct ib_umem_odp *odp;
	u64 num;
	int ret;

	/* All of the address space in one region. */
	if (!start && length == U64_MAX)
		return ERR_PTR(-EOPNOTSUPP);
	/* Nobody has so much; the end of it is within a page. */
	if (start >= TASK_SIZE_MAX || length > TASK_SIZE_MAX - start)
		return ERR_PTR(-EINVAL);
	num = (PAGE_ALIGN(start + length) - PAGE_ALIGN_DOWN(start)) >> PAGE_SHIFT;
	pinned = kzalloc(sizeof(*pinned), ROPCIE_GFP_USER);
	if (!pinned)
		return ERR_PTR(-ENOMEM);
	refcount_set(&pinned->refs, 1);
	mutex_init(&pinned->looking);
	ret = -ENOMEM;
	if (!charge(pinned, mm, num))
		goto err_free;
	/* What is accounted is tried first. */
	pinned->pages = kvcalloc(num, sizeof(*pinned->pages), ROPCIE_GFP_USER);
	if (!pinned->pages)
		goto err_uncharge;
	/* Pages of any size are handled in pieces of PAGE_SIZE. */
	odp = ib_umem_odp_get(ibdev, start, length, access & ~IB_ACCESS_HUGETLB,
			      &notifier_ops);
	if (IS_ERR(odp)) {
		ret = PTR_ERR(odp);
		goto err_pages;
	}
	/* Memory that never comes may outlive the device. */
	get_device(&ibdev->dev);
	pinned->umem = &odp->umem;
	odp->private = pinned;
	return pinned;

err_pages:
	kvfree(pinned->pages);
err_uncharge:
	atomic64_sub(pinned->table_pages, &mm->pinned_vm);
err_free:
	kfree(pinned);
	return ERR_PTR(ret);
}

/*
 * Is it memory that the kernel has an address of? Secret memory is in its owner's
 * tables only.
 */
static bool reachable(struct page *page)
{
	struct address_space *mapping = folio_mapping(page_folio(page));

	if (is_pci_p2pdma_page(page))
		return false;
	return !mapping || !mapping->host ||
	       mapping->host->i_sb->s_magic != SECRETMEM_MAGIC;
}

/*
 * Take what the process has of @num pages, none of which is there. What a region
 * lets anybody write to is there only as long as it is writable. What is not taken
 * is given back, so that no page is known to @umem alone. Return: 0; -EFAULT when
 * there is what no region can show.
 */
static int take(struct ropcie_pinned *pinned, u64 first, u64 num)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(pinned->umem);
	u64 start = ib_umem_start(odp) + (first << PAGE_SHIFT);
	unsigned long pfn, need = HMM_PFN_VALID;
	u64 idx, addr;
	int ret;

	if (odp->umem.writable)
		need |= HMM_PFN_WRITE;
	ret = ib_umem_odp_map_dma_and_lock(odp, start, num << PAGE_SHIFT,
					   ODP_READ_ALLOWED_BIT, false);
	if (ret < 0)
		return ret;
	ret = 0;
	for (idx = first; idx < first + num; idx++) {
		addr = ib_umem_start(odp) + (idx << PAGE_SHIFT);
		pfn = odp->pfn_list[idx];
		if ((pfn & need) == need && reachable(hmm_pfn_to_page(pfn))) {
			/* Else it counts as written to when it is given up. */
			if (!odp->umem.writable)
				odp->dma_list[idx] &= ~ODP_WRITE_ALLOWED_BIT;
			WRITE_ONCE(pinned->pages[idx],
				   page_address(hmm_pfn_to_page(pfn)));
			continue;
		}
		if ((pfn & HMM_PFN_ERROR) || (pfn & need) == need)
			ret = -EFAULT;
		odp->dma_list[idx] &= ~ODP_WRITE_ALLOWED_BIT;
		ib_umem_odp_unmap_dma_pages(odp, addr, addr + PAGE_SIZE);
	}
	mutex_unlock(&odp->umem_mutex);
	return ret;
}

/* See what of @num pages the process has. Return: as above. */
static int look(struct ropcie_pinned *pinned, u64 first, u64 num)
{
	u64 idx, n, end = first + num;
	int ret = 0;

	/* Only here pages come; and odp->pfn_list is for one at a time. */
	mutex_lock(&pinned->looking);
	for (idx = first; idx < end && !ret; idx += n) {
		for (n = 0; idx + n < end &&
		     !READ_ONCE(pinned->pages[idx + n]); n++)
			;
		if (n)
			ret = take(pinned, idx, n);
		else
			n = 1;
	}
	mutex_unlock(&pinned->looking);
	return ret;
}

/*
 * As if the process had touched those of @num pages that are not there: as with any
 * fault, the address space is not locked while a page is read. Return: 0 or a
 * negative errno.
 */
static int touch(struct ropcie_pinned *pinned, u64 first, u64 num)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(pinned->umem);
	struct mm_struct *mm = odp->umem.owning_mm;
	unsigned int flags = FAULT_FLAG_REMOTE;
	bool unlocked; /* that it may be */
	int ret;
	u64 idx;

	if (odp->umem.writable)
		flags |= FAULT_FLAG_WRITE;
	if (!mmget_not_zero(mm))
		return -EINVAL;
	ret = mmap_read_lock_killable(mm);
	if (ret)
		goto out;
	for (idx = first; idx < first + num && !ret; idx++)
		if (!READ_ONCE(pinned->pages[idx]))
			ret = fixup_user_fault(mm, ib_umem_start(odp) +
					       (idx << PAGE_SHIFT), flags,
					       &unlocked);
	mmap_read_unlock(mm);
out:
	mmput_async(mm);
	return ret;
}

static bool all_there(struct ropcie_pinned *pinned, u64 first, u64 num)
{
	u64 idx;

	for (idx = first; idx < first + num; idx++)
		if (!READ_ONCE(pinned->pages[idx]))
			return false;
	return true;
}

/*
 * See that pages are there. Return: 0; -EBUSY when they go as fast as they come, or
 * another negative errno.
 */
static int bring_in(struct ropcie_pinned *pinned, u64 first, u64 num)
{
	int tries, ret;

	for (tries = 0; tries < MAX_TRIES; tries++) {
		if (tries)
			usleep_range(500, 1000);
		ret = touch(pinned, first, num);
		if (!ret)
			ret = look(pinned, first, num);
		if (ret || all_there(pinned, first, num))
			return ret;
	}
	return -EBUSY;
}

/*
 * The pages that are missing, and of those ahead as many as take no time. Return:
 * 0 when the first is there.
 */
static int bring_in_ahead(struct ropcie_pinned *pinned, u64 first, u32 num)
{
	ktime_t start = ktime_get();
	u32 done, n;
	int ret = 0;

	for (done = 0; done < num && !ret; done += n) {
		if (done && ktime_us_delta(ktime_get(), start) > AHEAD_US)
			return 0;
		n = min_t(u32, num - done, AT_ONCE);
		ret = bring_in(pinned, first + done, n);
		/* What lies ahead may be no memory. */
		if (ret && !done)
			return bring_in(pinned, first, 1);
	}
	return 0;
}

/* For the process whose memory it is, as if it had touched it. */
static int bring_in_for_owner(struct ropcie_page_in *p)
{
	struct mem_cgroup *memcg, *before;
	int ret;

	memcg = get_mem_cgroup_from_mm(p->pinned->umem->owning_mm);
	before = set_active_memcg(memcg);
	ret = bring_in_ahead(p->pinned, p->first, p->num);
	set_active_memcg(before);
	mem_cgroup_put(memcg);
	return ret;
}

static void paging_put(struct ropcie_paging *paging)
{
	if (refcount_dec_and_test(&paging->refs))
		kfree(paging);
}

/* What a page_in holds while it is busy. */
static void page_in_put(struct ropcie_page_in *p, struct ropcie_pinned *pinned)
{
	ropcie_pinned_put(pinned);
	paging_put(p->paging);
	/* The module goes when its works have ended: see ropcie_odp_exit(). */
	module_put(THIS_MODULE);
}

static void paging_work(struct work_struct *work)
{
	struct ropcie_page_in *p = container_of(work, struct ropcie_page_in, work);
	struct ropcie_paging *paging = p->paging;
	struct ropcie_pinned *pinned = p->pinned;
	struct ropcie_qp *qp;
	int ret = bring_in_for_owner(p);

	spin_lock_bh(&paging->lock);
	qp = paging->qp;
	if (qp) {
		spin_lock(&qp->lock);
		p->busy = false;
		/* Memory that is in motion is met again. */
		p->failed = ret && ret != -EBUSY;
		if (p == &paging->sides[ROPCIE_RESPONDER])
			ropcie_rsp_there(&qp->rsp);
		else if (p->fetch)
			ropcie_req_fetch_again(&qp->req);
		p->fetch = false;
		spin_unlock(&qp->lock);
		ropcie_qp_schedule(qp);
	}
	spin_unlock_bh(&paging->lock);
	page_in_put(p, pinned);
}

int ropcie_odp_missing(struct ropcie_qp *qp, enum ropcie_side side,
		       struct ropcie_mr *mr, u64 addr, u64 ahead)
{
	struct ropcie_page_in *p = &qp->paging->sides[side];
	struct ropcie_pinned *pinned = mr->on_demand;
	u64 pos = addr - mr->core.iova + mr->core.offset;
	u64 first, behind;
	bool failed;

	lockdep_assert_held(&qp->lock);
	if (WARN_ON_ONCE(!pinned))
		return -EACCES;
	if (p->busy)
		return -EINPROGRESS;
	first = mr->core.pages - pinned->pages + (pos >> PAGE_SHIFT);
	failed = p->failed && p->pinned == pinned && p->first == first &&
		 p->key == mr->core.key;
	p->failed = false;
	/* A module that goes has no work any more. */
	if (failed || !try_module_get(THIS_MODULE))
		return -EACCES;
	p->busy = true;
	p->pinned = pinned;
	p->key = mr->core.key;
	p->first = first;
	behind = (u64)ib_umem_odp_num_pages(to_ib_umem_odp(pinned->umem)) - first;
	p->num = clamp_t(u64, DIV_ROUND_UP(offset_in_page(pos) + ahead, PAGE_SIZE),
			 1, min_t(u64, behind, MAX_AHEAD));
	refcount_inc(&pinned->refs);
	refcount_inc(&p->paging->refs);
	queue_work(queue, &p->work);
	return -EINPROGRESS;
}

static struct ropcie_paging *paging_alloc(struct ropcie_qp *qp, gfp_t gfp)
{
	struct ropcie_paging *paging = kzalloc(sizeof(*paging), gfp);
	int side;

	if (!paging)
		return NULL;
	refcount_set(&paging->refs, 1);
	spin_lock_init(&paging->lock);
	paging->qp = qp;
	for (side = 0; side < ROPCIE_SIDES; side++) {
		INIT_WORK(&paging->sides[side].work, paging_work);
		paging->sides[side].paging = paging;
	}
	return paging;
}

/* Nothing comes to the queue pair of what is still under way. */
static void paging_leave(struct ropcie_paging *paging)
{
	spin_lock_bh(&paging->lock);
	paging->qp = NULL;
	spin_unlock_bh(&paging->lock);
	paging_put(paging);
}

int ropcie_odp_init_qp(struct ropcie_qp *qp)
{
	qp->paging = paging_alloc(qp, ROPCIE_GFP_USER);
	return qp->paging ? 0 : -ENOMEM;
}

void ropcie_odp_reset_qp(struct ropcie_qp *qp)
{
	struct ropcie_paging *paging = qp->paging;
	struct ropcie_page_in *p;
	bool begun = false, cancelled;
	int side;

	for (side = 0; side < ROPCIE_SIDES; side++) {
		p = &paging->sides[side];
		spin_lock_bh(&qp->lock);
		cancelled = p->busy && cancel_work(&p->work);
		begun |= p->busy && !cancelled;
		if (cancelled)
			p->busy = false;
		p->failed = false;
		p->fetch = false;
		spin_unlock_bh(&qp->lock);
		if (cancelled)
			page_in_put(p, p->pinned);
	}
	if (!begun)
		return;
	/* What has begun may never end. A transition to RESET can not fail. */
	paging = paging_alloc(qp, GFP_KERNEL | __GFP_NOFAIL);
	spin_lock_bh(&qp->lock);
	swap(paging, qp->paging);
	spin_unlock_bh(&qp->lock);
	paging_leave(paging);
}

void ropcie_odp_exit_qp(struct ropcie_qp *qp)
{
	paging_leave(qp->paging);
}

/*
 * The memory that is meant, with a reference, and where @sge begins in it; errors
 * as in ibv_advise_mr(3).
 */
static struct ropcie_pinned *advised(struct ib_pd *ibpd, const struct ib_sge *sge,
				     bool write, u64 *pos)
{
	struct ropcie_mr *mr;
	struct ropcie_pinned *pinned;

	/* The key may be anybody's, and its owner spin until it is not used. */
	local_bh_disable();
	mr = ropcie_mr_lookup(to_rdev(ibpd->device), sge->lkey);
	if (!mr) {
		pinned = ERR_PTR(-ENOENT);
		goto out;
	}
	pinned = mr->pinned;
	if (mr->core.pd != to_rpd(ibpd)->num)
		pinned = ERR_PTR(-EPERM);
	else if (!pinned || !ropcie_is_odp(pinned))
		pinned = ERR_PTR(-EINVAL);
	else if (write && !pinned->umem->writable)
		pinned = ERR_PTR(-EPERM);
	else if (ropcie_mr_check(&mr->core, mr->core.pd, sge->addr, sge->length, 0))
		pinned = ERR_PTR(-EFAULT);
	else
		refcount_inc(&pinned->refs);
	*pos = sge->addr - mr->core.iova + mr->core.offset;
	ropcie_mr_drop(mr);
out:
	local_bh_enable();
	return pinned;
}

static int advise(struct ropcie_pinned *pinned, u64 pos, u32 length, bool fault)
{
	u64 first = pos >> PAGE_SHIFT;
	u64 end = (pos + length + PAGE_SIZE - 1) >> PAGE_SHIFT;
	u64 num;
	int ret = 0;

	for (; length && first < end && !ret; first += num) {
		num = min_t(u64, end - first, AT_ONCE);
		ret = fault ? bring_in(pinned, first, num) :
			      look(pinned, first, num);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return ret;
}

/*
 * Whoever has not asked to wait does so too. What is brought in to be read may be
 * written as well, if the region may: see look().
 */
int ropcie_advise_mr(struct ib_pd *ibpd, enum ib_uverbs_advise_mr_advice advice,
		     u32 flags, struct ib_sge *list, u32 num,
		     struct uverbs_attr_bundle *attrs)
{
	bool fault = advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
	bool write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct ropcie_pinned *pinned;
	int ret = 0;
	u64 pos;
	u32 i;

	if (fault && !write && advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH)
		return -EOPNOTSUPP;
	for (i = 0; i < num && !ret; i++) {
		pinned = advised(ibpd, &list[i], write, &pos);
		if (IS_ERR(pinned))
			return PTR_ERR(pinned);
		ret = advise(pinned, pos, list[i].length, fault);
		ropcie_pinned_put(pinned);
	}
	return ret;
}

/*
 * Without an answer there is no way to ask for a message again: what an unreliable
 * service receives is lost when the memory is not there.
 */
void ropcie_odp_caps(struct ib_device_attr *attr)
{
	const u32 reliable = IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV |
			     IB_ODP_SUPPORT_WRITE | IB_ODP_SUPPORT_READ |
			     IB_ODP_SUPPORT_ATOMIC | IB_ODP_SUPPORT_SRQ_RECV;

	attr->kernel_cap_flags |= IBK_ON_DEMAND_PAGING;
	attr->odp_caps = (struct ib_odp_caps){
		.general_caps = IB_ODP_SUPPORT,
		.per_transport_caps = {
			.rc_odp_caps = reliable,
			.xrc_odp_caps = reliable,
			.uc_odp_caps = IB_ODP_SUPPORT_SEND,
			.ud_odp_caps = IB_ODP_SUPPORT_SEND,
		},
	};
}

int ropcie_odp_init(void)
{
	queue = alloc_workqueue("ropcie_odp", WQ_UNBOUND,
				WQ_UNBOUND_MAX_ACTIVE);
	return queue ? 0 : -ENOMEM;
}

void ropcie_odp_exit(void)
{
	/* None is queued any more: each has held the module. */
	destroy_workqueue(queue);
}
