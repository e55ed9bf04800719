/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Inline data for a send queue whose kernel side does not carry it.
 *
 * The uverbs post command passes an inline work request as a flag with user
 * addresses and no data, and a kernel must not read those behind the user's
 * back. So the provider copies inline data to memory of its own that it has
 * registered, and posts an ordinary work request for the copy: the caller may
 * reuse his buffer on return, and needs no lkey, as IBV_SEND_INLINE promises.
 *
 * Nobody tells the ring when a slot is free again; it follows from order. The
 * kernel accepts a work request only while at most `depth` of a QP's requests
 * are outstanding, and retires them in order. So when the newest accepted
 * inline request was taken, at most depth inline requests were outstanding,
 * that one included, and every older one had been retired. A ring of depth + N
 * slots therefore always has N free ones to fill before the kernel is asked.
 * This file must not know more of work requests than their SGEs.
 */
#ifndef ROPCIE_INLINE_H
#define ROPCIE_INLINE_H

#include <pthread.h>
#include <stdint.h>

#include "verbs_private.h"

/* The most inline bytes that a QP can be created with. */
#define ROPCIE_MAX_INLINE_DATA 512

struct ropcie_inline_ring {
	/* Held from the first fill until the kernel has answered the post. */
	pthread_mutex_t lock;
	/* Bytes of inline data in one work request; 0: no ring. */
	uint32_t max_data;
	uint32_t slots;
	/* The first free slot: that of the oldest retired request. */
	uint32_t head;
	size_t map_length;
	char *map;
	struct verbs_mr mr;
};

/**
 * ropcie_inline_init - make a QP's ring and register it
 * @ring: the ring, zeroed
 * @pd: the QP's PD
 * @max_data: bytes of inline data per work request; 0 makes an empty ring
 * @depth: the most work requests that the kernel lets be outstanding
 * @ahead: slots that the caller fills at most before he asks the kernel
 */
int ropcie_inline_init(struct ropcie_inline_ring *ring, struct ibv_pd *pd,
		       uint32_t max_data, uint32_t depth, uint32_t ahead);

/**
 * ropcie_inline_free - unregister and unmap
 * @ring: the ring; its QP is gone
 */
void ropcie_inline_free(struct ropcie_inline_ring *ring);

/**
 * ropcie_inline_fill - copy a work request's data
 * @ring: the ring, locked
 * @index: which of the free slots: 0 to ahead - 1, in posting order
 * @wr: the request; its SGEs are read, the one in @sge takes their place
 * @sge: filled in for the copy; lives until the request was posted
 *
 * A request without data needs no slot: it is left without an SGE. Returns
 * EINVAL when there is more data than the QP was created for.
 */
int ropcie_inline_fill(struct ropcie_inline_ring *ring, uint32_t index,
		       struct ibv_send_wr *wr, struct ibv_sge *sge);

/**
 * ropcie_inline_commit - the kernel has taken the first @count filled slots
 * @ring: the ring, locked
 * @count: at most the number of slots filled since the last commit
 */
void ropcie_inline_commit(struct ropcie_inline_ring *ring, uint32_t count);

#endif /* ROPCIE_INLINE_H */
