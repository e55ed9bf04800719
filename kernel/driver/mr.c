// SPDX-License-Identifier: GPL-2.0
/*
 * Protection domains and memory regions: pins user memory, fills the page
 * array that core/mr maps, keeps a region alive while a queue pair uses it, and
 * gives memory to the regions that work requests register and invalidate. Knows
 * nothing of queue pairs but their protection domain.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "memory.h"
#include "odp.h"
#include "placement.h"
#include "ropcie.h"

static_assert(ROPCIE_ACCESS_LOCAL_WRITE == IB_ACCESS_LOCAL_WRITE);
static_assert(ROPCIE_ACCESS_REMOTE_WRITE == IB_ACCESS_REMOTE_WRITE);
static_assert(ROPCIE_ACCESS_REMOTE_READ == IB_ACCESS_REMOTE_READ);
static_assert(ROPCIE_ACCESS_REMOTE_ATOMIC == IB_ACCESS_REMOTE_ATOMIC);
static_assert(ROPCIE_ACCESS_MW_BIND == IB_ACCESS_MW_BIND);

int ropcie_mr_table_create(struct ropcie_dev *dev)
{
	const u32 size = ROPCIE_MAX_MR + ROPCIE_MAX_MW + 1;

	dev->mr_slots = vzalloc(array_size(size, sizeof(*dev->mr_slots)));
	if (!dev->mr_slots)
		return -ENOMEM;
	spin_lock_init(&dev->mr_lock);
	ropcie_mr_table_init(&dev->mrs, dev->mr_slots, size, get_random_u32());
	return 0;
}

void ropcie_mr_table_destroy(struct ropcie_dev *dev)
{
	vfree(dev->mr_slots);
}

int ropcie_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct ropcie_dev *dev = to_rdev(ibpd->device);
	int num;

	if (ropcie_udata_unknown(udata))
		return -EOPNOTSUPP;
	num = ida_alloc_range(&dev->pds, 1, ROPCIE_MAX_PD, GFP_KERNEL);
	if (num < 0)
		return num == -ENOSPC ? -ENOMEM : num;
	to_rpd(ibpd)->num = num;
	return 0;
}

int ropcie_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	ida_free(&to_rdev(ibpd->device)->pds, to_rpd(ibpd)->num);
	return 0;
}

struct ropcie_mr *ropcie_mr_alloc(struct ib_pd *ibpd, int access)
{
	struct ropcie_mr *mr = kzalloc(sizeof(*mr), ROPCIE_GFP_USER);

	if (!mr)
		return NULL;
	refcount_set(&mr->refs, 1);
	init_completion(&mr->unused);
	INIT_LIST_HEAD(&mr->of_qp);
	mr->device = ibpd->device;
	mr->core.pd = to_rpd(ibpd)->num;
	mr->core.access = access & (ROPCIE_MR_ACCESS | IB_ACCESS_MW_BIND);
	return mr;
}

int ropcie_mr_publish(struct ropcie_dev *dev, struct ropcie_mr *mr)
{
	u32 *num = mr->core.window ? &dev->num_mws : &dev->num_mrs;
	u32 max = mr->core.window ? ROPCIE_MAX_MW : ROPCIE_MAX_MR;
	int ret = -ENOMEM;

	spin_lock_bh(&dev->mr_lock);
	if (*num < max)
		ret = ropcie_mr_add(&dev->mrs, &mr->core);
	if (!ret)
		++*num;
	spin_unlock_bh(&dev->mr_lock);
	if (ret)
		return -ENOMEM;
	mr->ibmr.lkey = mr->core.key;
	mr->ibmr.rkey = mr->core.key;
	return 0;
}

void ropcie_pinned_put(struct ropcie_pinned *pinned)
{
	if (!refcount_dec_and_test(&pinned->refs))
		return;
	/* Until then pages may be taken out of the array (odp.c). */
	if (ropcie_is_odp(pinned))
		ropcie_odp_release(pinned);
	else
		ib_umem_release(pinned->umem);
	kvfree(pinned->pages);
	kfree(pinned);
}

/* Nobody uses the memory any more. */
static void mr_release_memory(struct ropcie_mr *mr)
{
	if (mr->buffer)
		ropcie_mr_release_dmabuf(mr);
	if (mr->pinned)
		ropcie_pinned_put(mr->pinned);
	else
		kvfree(mr->core.pages);
	kvfree(mr->next_pages);
}

/* One that nobody could find. */
static void mr_free(struct ropcie_mr *mr)
{
	mr_release_memory(mr);
	kfree(mr);
}

struct ib_mr *ropcie_mr_finish(struct ib_pd *ibpd, struct ropcie_mr *mr)
{
	int ret = ropcie_mr_publish(to_rdev(ibpd->device), mr);

	if (ret) {
		mr_free(mr);
		return ERR_PTR(ret);
	}
	return &mr->ibmr;
}

struct ib_mr *ropcie_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct ropcie_mr *mr;

	mr = ropcie_mr_alloc(ibpd, access);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	/* DMA addresses are kernel addresses: ib_device.dma_device is NULL. */
	mr->core.length = U64_MAX;
	return ropcie_mr_finish(ibpd, mr);
}

struct ib_mr *ropcie_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			      u32 max_num_sg)
{
	struct ropcie_mr *mr;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg || max_num_sg > ROPCIE_MAX_FAST_REG_PAGES)
		return ERR_PTR(-EINVAL);
	mr = ropcie_mr_alloc(ibpd, 0);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->core.dynamic = true;
	mr->core.invalid = true;
	mr->max_pages = max_num_sg;
	mr->core.pages = kvcalloc(max_num_sg, sizeof(*mr->core.pages),
				  GFP_KERNEL);
	mr->next_pages = kvcalloc(max_num_sg, sizeof(*mr->next_pages),
				  GFP_KERNEL);
	if (!mr->core.pages || !mr->next_pages) {
		mr_free(mr);
		return ERR_PTR(-ENOMEM);
	}
	return ropcie_mr_finish(ibpd, mr);
}

/* DMA addresses are kernel addresses: ib_device.dma_device is NULL. */
static int set_page(struct ib_mr *ibmr, u64 addr)
{
	struct ropcie_mr *mr = to_rmr(ibmr);

	if (mr->num_pages == mr->max_pages)
		return -ENOMEM;
	mr->next_pages[mr->num_pages++] = (void *)(uintptr_t)addr;
	return 0;
}

/*
 * What a region still has belongs to whoever has its key: consumers map what
 * comes next before the LOCAL_INV in front of the REG_MR is executed.
 */
int ropcie_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		     unsigned int *offset)
{
	struct ropcie_mr *mr = to_rmr(ibmr);

	mr->num_pages = 0;
	mr->mapped = true;
	return ib_sg_to_pages(ibmr, sg, nents, offset, set_page);
}

/* The region, if it is one that work requests change. dev->mr_lock is held. */
static struct ropcie_mr *find_dynamic(struct ropcie_dev *dev, u32 key)
{
	struct ropcie_mr_core *core = ropcie_mr_find_index(&dev->mrs, key);

	return core && core->dynamic ?
		       container_of(core, struct ropcie_mr, core) : NULL;
}

bool ropcie_mr_unused(struct ropcie_mr *mr)
{
	lockdep_assert_held(&to_rdev(mr->device)->mr_lock);
	/*
	 * Copies to or from it end first. They run with bottom halves off and
	 * wait for no lock that this context holds. Pairs with the barrier in
	 * ropcie_mr_get().
	 */
	smp_mb();
	if (refcount_read(&mr->refs) > 1)
		return false;
	if (mr->shows) {
		mr->shows->windows--;
		mr->shows = NULL;
		mr->core.qpn = 0;
		list_del_init(&mr->of_qp);
	}
	return true;
}

/* Return: -EAGAIN when somebody uses it still. dev->mr_lock is held. */
static int fast_register(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe)
{
	struct ropcie_mr_fast fast = {
		.key = wqe->rkey,
		.pd = to_rpd(qp->ibqp.pd)->num,
		.access = wqe->access,
	};
	struct ropcie_mr *mr = find_dynamic(qp->dev, wqe->imm);
	void **before;

	if (!mr || !mr->num_pages)
		return -EINVAL;
	if (mr->core.invalid && !ropcie_mr_unused(mr))
		return -EAGAIN;
	fast.iova = mr->ibmr.iova;
	fast.length = mr->ibmr.length;
	fast.page_shift = ilog2(mr->ibmr.page_size);
	fast.offset = fast.iova & (mr->ibmr.page_size - 1);
	fast.pages = mr->mapped ? mr->next_pages : mr->core.pages;
	if (ropcie_mr_fast_register(&mr->core, &fast, &before))
		return -EINVAL;
	if (mr->mapped)
		mr->next_pages = before;
	mr->mapped = false;
	return 0;
}

bool ropcie_mr_reg(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe)
{
	struct ropcie_dev *dev = qp->dev;
	int ret;

	do {
		spin_lock_bh(&dev->mr_lock);
		ret = fast_register(qp, wqe);
		spin_unlock_bh(&dev->mr_lock);
		cpu_relax();
	} while (ret == -EAGAIN);
	return !ret;
}

/* May this queue pair take the key away? dev->mr_lock is held. */
static bool invalidate(struct ropcie_qp *qp, struct ropcie_mr *mr, u32 key,
		       bool remote)
{
	struct ib_pd *pd = remote ? ropcie_remote_pd(qp) : qp->ibqp.pd;

	if (!mr || !pd || (mr->core.qpn && mr->core.qpn != qp->ibqp.qp_num))
		return false;
	return !ropcie_mr_invalidate(&mr->core, to_rpd(pd)->num, key, remote);
}

bool ropcie_mr_inv(struct ropcie_qp *qp, u32 key, bool remote)
{
	struct ropcie_dev *dev = qp->dev;
	struct ropcie_mr *mr;
	bool ok = false, done;

	do {
		spin_lock_bh(&dev->mr_lock);
		mr = find_dynamic(dev, key);
		if (!ok)
			ok = invalidate(qp, mr, key, remote);
		/* Others may have deregistered it, or given it memory again. */
		done = !ok || !mr || !mr->core.invalid ||
		       mr->core.key != key || ropcie_mr_unused(mr);
		spin_unlock_bh(&dev->mr_lock);
		cpu_relax();
	} while (!done);
	return ok;
}

static int pinned_fill(struct ropcie_pinned *pinned)
{
	size_t num = ib_umem_num_pages(pinned->umem);
	struct scatterlist *run;
	unsigned int nr, len;
	size_t i = 0;

	pinned->pages = kvmalloc_array(num, sizeof(*pinned->pages),
				       ROPCIE_GFP_USER);
	if (!pinned->pages)
		return -ENOMEM;
	for_each_sgtable_sg(&pinned->umem->sgt_append.sgt, run, nr) {
		u8 *page = page_address(sg_page(run));

		if (WARN_ON_ONCE(i + PFN_UP(run->length) > num))
			return -EINVAL;
		for (len = 0; len < run->length; len += PAGE_SIZE)
			pinned->pages[i++] = page + len;
	}
	return 0;
}

static struct ropcie_pinned *pin(struct ib_device *ibdev, u64 start, u64 length,
				 int access)
{
	struct ropcie_pinned *pinned;
	int ret;

	if (access & IB_ACCESS_ON_DEMAND)
		return ropcie_odp_pin(ibdev, start, length, access);
	pinned = kzalloc(sizeof(*pinned), ROPCIE_GFP_USER);
	if (!pinned)
		return ERR_PTR(-ENOMEM);
	refcount_set(&pinned->refs, 1);
	pinned->umem = ib_umem_get(ibdev, start, length, access);
	if (IS_ERR(pinned->umem)) {
		ret = PTR_ERR(pinned->umem);
		kfree(pinned);
		return ERR_PTR(ret);
	}
	ret = pinned_fill(pinned);
	if (ret) {
		ropcie_pinned_put(pinned);
		return ERR_PTR(ret);
	}
	return pinned;
}

struct ib_mr *ropcie_reg_pages(struct ib_pd *ibpd, void **addr, u32 num,
			       u64 offset, u64 length, int access)
{
	struct ropcie_mr *mr = ropcie_mr_alloc(ibpd, access);
	u32 first = offset >> PAGE_SHIFT;

	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->core.length = length;
	mr->core.offset = offset_in_page(offset);
	mr->core.page_shift = PAGE_SHIFT;
	mr->ibmr.length = length;
	mr->core.pages = kvmalloc_array(num, sizeof(*mr->core.pages),
					ROPCIE_GFP_USER);
	if (!mr->core.pages) {
		mr_free(mr);
		return ERR_PTR(-ENOMEM);
	}
	memcpy(mr->core.pages, addr + first, (num - first) * sizeof(*addr));
	return ropcie_mr_finish(ibpd, mr);
}

int ropcie_mr_check_args(u64 start, u64 length, u64 iova, int access)
{
	if (access & ~(ROPCIE_MR_ACCESS | IB_ACCESS_MW_BIND |
		       IB_ACCESS_OPTIONAL))
		return -EOPNOTSUPP;
	if (start + length < start || iova + length < iova)
		return -EINVAL;
	return 0;
}

/* What of it is for user memory only. */
static int check_user_args(u64 start, u64 length, u64 iova, int access)
{
	/* How the memory is made up makes no difference. */
	return ropcie_mr_check_args(start, length, iova,
				    access & ~(IB_ACCESS_ON_DEMAND |
					       IB_ACCESS_HUGETLB));
}

/* A region of user memory that has no key yet; it takes @pinned over. */
static struct ropcie_mr *mr_of_user(struct ib_pd *ibpd,
				    struct ropcie_pinned *pinned, u64 length,
				    u64 iova, int access)
{
	struct ropcie_mr *mr = ropcie_mr_alloc(ibpd, access);

	if (!mr) {
		ropcie_pinned_put(pinned);
		return NULL;
	}
	mr->pinned = pinned;
	mr->on_demand = ropcie_is_odp(pinned) ? pinned : NULL;
	mr->core.pages = pinned->pages;
	mr->core.iova = iova;
	mr->core.length = length;
	mr->core.offset = ib_umem_offset(pinned->umem);
	mr->core.page_shift = PAGE_SHIFT;
	mr->ibmr.length = length;
	mr->ibmr.iova = iova;
	return mr;
}

/* What a process asks for with a region: enum ropcie_abi_mr_flag, or an errno. */
static int mr_flags(struct ib_udata *udata)
{
	struct ropcie_abi_reg_mr_req req = {};
	int ret;

	ret = ropcie_copy_req(udata, &req, sizeof(req));
	if (ret)
		return ret;
	if (req.flags & ~ROPCIE_ABI_MR_NULL)
		return -EOPNOTSUPP;
	return req.reserved ? -EINVAL : (int)req.flags;
}

/*
 * The null region: any address of it reads as zeros, and what is written to it is
 * dropped. Peers can not use it.
 */
static struct ib_mr *reg_null(struct ib_pd *ibpd)
{
	struct ropcie_mr *mr = ropcie_mr_alloc(ibpd, IB_ACCESS_LOCAL_WRITE);

	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->core.null = true;
	mr->core.length = U64_MAX;
	mr->core.page_shift = PAGE_SHIFT;
	mr->core.pages = kmalloc(sizeof(*mr->core.pages), ROPCIE_GFP_USER);
	if (!mr->core.pages) {
		mr_free(mr);
		return ERR_PTR(-ENOMEM);
	}
	mr->core.pages[0] = page_address(ZERO_PAGE(0));
	return ropcie_mr_finish(ibpd, mr);
}

struct ib_mr *ropcie_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				 u64 iova, int access, struct ib_udata *udata)
{
	struct ropcie_pinned *pinned;
	struct ropcie_mr *mr;
	int ret;

	ret = mr_flags(udata);
	if (ret < 0)
		return ERR_PTR(ret);
	if (ret & ROPCIE_ABI_MR_NULL)
		return start || length || iova || access ? ERR_PTR(-EINVAL) :
							   reg_null(ibpd);
	ret = check_user_args(start, length, iova, access);
	if (ret)
		return ERR_PTR(ret);
	pinned = pin(ibpd->device, start, length, access);
	if (IS_ERR(pinned))
		return ERR_CAST(pinned);
	mr = mr_of_user(ibpd, pinned, length, iova, access);
	return mr ? ropcie_mr_finish(ibpd, mr) : ERR_PTR(-ENOMEM);
}

/*
 * The memory for a region that changes: that of before, unless another one is
 * asked for, or it was pinned for reading only, or is to be pinned or not. What is
 * brought in on demand is brought in for writing, or is not.
 */
static struct ropcie_pinned *repin(struct ib_device *ibdev,
				   struct ropcie_pinned *old, int flags,
				   u64 start, u64 length, int access)
{
	struct ib_umem *umem = old->umem;
	bool writable = ib_access_writable(access);

	if (!(flags & IB_MR_REREG_TRANS)) {
		if (ropcie_is_odp(old) == !!(access & IB_ACCESS_ON_DEMAND) &&
		    (umem->writable == writable ||
		     (umem->writable && !ropcie_is_odp(old)))) {
			refcount_inc(&old->refs);
			return old;
		}
		/* Its address means something to its owner only. */
		if (umem->owning_mm != current->mm)
			return ERR_PTR(-EPERM);
		start = umem->address;
		length = umem->length;
	}
	return pin(ibdev, start, length, access);
}

/*
 * A new region takes the key over; uverbs destroys the old one. When it can not
 * be made the old one stays as it was.
 */
struct ib_mr *ropcie_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				   u64 length, u64 iova, int access,
				   struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct ropcie_dev *dev = to_rdev(ibmr->device);
	struct ropcie_mr *old = to_rmr(ibmr), *mr;
	struct ropcie_pinned *pinned;
	bool busy;
	int ret;

	if (!old->pinned || ropcie_udata_unknown(udata))
		return ERR_PTR(-EOPNOTSUPP);
	if (!(flags & IB_MR_REREG_TRANS)) {
		start = old->pinned->umem->address;
		length = old->core.length;
		iova = old->core.iova;
	}
	if (!(flags & IB_MR_REREG_ACCESS))
		access = old->core.access |
			 (ropcie_is_odp(old->pinned) ? IB_ACCESS_ON_DEMAND : 0);
	ret = check_user_args(start, length, iova, access);
	if (ret)
		return ERR_PTR(ret);
	pinned = repin(ibmr->device, old->pinned, flags, start, length, access);
	if (IS_ERR(pinned))
		return ERR_CAST(pinned);
	mr = mr_of_user(ibpd, pinned, length, iova, access);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	/* What a peer says that it has placed lies in the memory of before. */
	ropcie_placement_withdraw(dev, old);
	spin_lock_bh(&dev->mr_lock);
	busy = old->windows;
	if (!busy) {
		ropcie_mr_replace(&dev->mrs, &old->core, &mr->core);
		old->replaced = true;
	}
	spin_unlock_bh(&dev->mr_lock);
	/* IBTA 10.6.7.2.5: not while windows show it. */
	if (busy) {
		ropcie_placement_allow(old);
		mr_free(mr);
		return ERR_PTR(-EBUSY);
	}
	mr->ibmr.lkey = mr->core.key;
	mr->ibmr.rkey = mr->core.key;
	return &mr->ibmr;
}

int ropcie_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct ropcie_dev *dev = to_rdev(ibmr->device);
	struct ropcie_mr *mr = to_rmr(ibmr);

	int ret = ropcie_mr_unpublish(dev, mr);

	if (ret)
		return ret;
	mr_release_memory(mr);
	/* A finder may still look at the reference count. */
	kfree_rcu(mr, rcu);
	return 0;
}

int ropcie_mr_unpublish(struct ropcie_dev *dev, struct ropcie_mr *mr)
{
	bool busy;

	spin_lock_bh(&dev->mr_lock);
	busy = mr->windows;
	if (!busy) {
		ropcie_mr_del(&dev->mrs, &mr->core);
		if (!mr->replaced)
			--*(mr->core.window ? &dev->num_mws : &dev->num_mrs);
	}
	spin_unlock_bh(&dev->mr_lock);
	/* IBTA 10.6.7.2.5: not while windows show it. */
	if (busy)
		return -EBUSY;
	/* A copy that is under way ends before the pages are unpinned. */
	ropcie_placement_withdraw(dev, mr);
	ropcie_mr_drop(mr);
	wait_for_completion(&mr->unused);
	return 0;
}

void ropcie_mr_drop(struct ropcie_mr *mr)
{
	if (refcount_dec_and_test(&mr->refs))
		complete(&mr->unused);
}

void ropcie_mr_put(struct ropcie_mr *mr)
{
	if (unlikely(mr->on_demand))
		ropcie_odp_used(mr->on_demand);
	ropcie_mr_drop(mr);
}

struct ropcie_mr *ropcie_mr_lookup(struct ropcie_dev *dev, u32 key)
{
	struct ropcie_mr_core *core;
	struct ropcie_mr *mr = NULL;

	rcu_read_lock();
	core = ropcie_mr_find(&dev->mrs, key);
	if (core) {
		mr = container_of(core, struct ropcie_mr, core);
		if (!refcount_inc_not_zero(&mr->refs))
			mr = NULL;
	}
	rcu_read_unlock();
	return mr;
}

struct ropcie_mr *ropcie_mr_get(struct ropcie_qp *qp, struct ib_pd *pd,
				const struct ropcie_sge *sge, u32 access)
{
	struct ropcie_mr *mr;

	if (!pd)
		return NULL;
	mr = ropcie_mr_lookup(qp->dev, sge->lkey);
	if (!mr)
		return NULL;
	/* Pairs with the barrier in ropcie_mr_inv(). */
	smp_mb__after_atomic();
	if (!ropcie_mr_is_current(&mr->core, sge->lkey) ||
	    !ropcie_mr_serves(&mr->core, qp->ibqp.qp_num, access) ||
	    ropcie_mr_check(&mr->core, to_rpd(pd)->num, sge->addr, sge->length,
			    access)) {
		ropcie_mr_drop(mr);
		return NULL;
	}
	if (unlikely(mr->on_demand))
		ropcie_odp_use(mr->on_demand);
	return mr;
}
