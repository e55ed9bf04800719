/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Regions, windows and device memory of ropcie.ko, and who may use them.
 */
#ifndef ROPCIE_DRIVER_MEMORY_H
#define ROPCIE_DRIVER_MEMORY_H

#include "ropcie.h"

/* mr.c */
int ropcie_mr_table_create(struct ropcie_dev *dev);
void ropcie_mr_table_destroy(struct ropcie_dev *dev);
int ropcie_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int ropcie_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *ropcie_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *ropcie_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				 u64 iova, int access, struct ib_udata *udata);
struct ib_mr *ropcie_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				   u64 length, u64 iova, int access,
				   struct ib_pd *ibpd, struct ib_udata *udata);
int ropcie_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
/**
 * ropcie_reg_pages() - a region of pages that the driver has, from address 0
 * @ibpd: protection domain
 * @addr: start addresses of the pages, which stay as long as the region
 * @num: number of pages
 * @offset: first byte
 * @length: number of bytes, within the pages
 * @access: IB_ACCESS_*
 *
 * Return: region, or an error pointer.
 */
struct ib_mr *ropcie_reg_pages(struct ib_pd *ibpd, void **addr, u32 num,
			       u64 offset, u64 length, int access);
struct ib_mr *ropcie_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			      u32 max_num_sg);
int ropcie_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		     unsigned int *offset);

/**
 * ropcie_mr_reg() - give a region the memory that was mapped to it (REG_MR)
 * @qp: queue pair that asks; its lock is held
 * @wqe: the region's index, the key that it gets, and its rights
 *
 * Return: false when that may not be.
 */
bool ropcie_mr_reg(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe);

/**
 * ropcie_mr_inv() - take its memory away (LOCAL_INV, SEND_WITH_INV)
 * @qp: queue pair that asks; its lock is held
 * @key: key that the region has
 * @remote: the peer asks
 *
 * Nobody uses the memory when this returns. Return: as ropcie_mr_reg().
 */
bool ropcie_mr_inv(struct ropcie_qp *qp, u32 key, bool remote);

/**
 * ropcie_mr_get() - the region behind a key, checked, with a reference
 * @qp: queue pair that uses it
 * @pd: protection domain that it has to be of, or NULL for none
 * @sge: bytes that it uses, at least one
 * @access: ROPCIE_ACCESS_* that are needed
 *
 * Return: region to be given back with ropcie_mr_put(), or NULL.
 */
struct ropcie_mr *ropcie_mr_get(struct ropcie_qp *qp, struct ib_pd *pd,
				const struct ropcie_sge *sge, u32 access);
void ropcie_mr_put(struct ropcie_mr *mr);
/*
 * The region that has this key, with a reference and nothing else checked: to be given
 * back with ropcie_mr_drop().
 */
struct ropcie_mr *ropcie_mr_lookup(struct ropcie_dev *dev, u32 key);
void ropcie_mr_drop(struct ropcie_mr *mr);

/* A region without memory and key, or NULL. */
struct ropcie_mr *ropcie_mr_alloc(struct ib_pd *ibpd, int access);
/* Give a complete region or window its key. Return: 0 or -ENOMEM. */
int ropcie_mr_publish(struct ropcie_dev *dev, struct ropcie_mr *mr);
/* The same of a region, which is freed when there is no key for it. */
struct ib_mr *ropcie_mr_finish(struct ib_pd *ibpd, struct ropcie_mr *mr);
/* May a region be like that? Return: 0 or an error. */
int ropcie_mr_check_args(u64 start, u64 length, u64 iova, int access);
/* Take the key away: nobody uses it then. Return: 0, or -EBUSY with windows. */
int ropcie_mr_unpublish(struct ropcie_dev *dev, struct ropcie_mr *mr);

/**
 * ropcie_mr_unused() - does nobody use a region or window any more?
 * @mr: invalid, and found in the table; dev->mr_lock is held
 *
 * If so, a window shows nothing any more. Else look it up and try again later,
 * without the lock in between.
 */
bool ropcie_mr_unused(struct ropcie_mr *mr);

/* mw.c */
int ropcie_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int ropcie_dealloc_mw(struct ib_mw *ibmw);
/* Execute a bind; qp->lock is held. Return: false when that may not be. */
bool ropcie_mw_bind(struct ropcie_qp *qp, const struct ropcie_send_wqe *wqe);
/* The queue pair's windows of type 2B show nothing any more. */
void ropcie_mw_unbind_all(struct ropcie_qp *qp);

/* dm.c */
struct ib_dm *ropcie_alloc_dm(struct ib_device *ibdev, struct ib_ucontext *ibuc,
			      struct ib_dm_alloc_attr *attr,
			      struct uverbs_attr_bundle *attrs);
int ropcie_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs);
struct ib_mr *ropcie_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
			       struct ib_dm_mr_attr *attr,
			       struct uverbs_attr_bundle *attrs);
extern const struct uapi_definition ropcie_uapi_defs[];

/* dmabuf.c */
struct ib_mr *ropcie_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
					u64 length, u64 iova, int fd,
					int access,
					struct ropcie_reg_dmabuf_arg *arg);
/* Nobody uses the buffer behind the region any more. */
void ropcie_mr_release_dmabuf(struct ropcie_mr *mr);

#endif /* ROPCIE_DRIVER_MEMORY_H */
