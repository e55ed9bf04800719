/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The process's side of mapped queues: rings in memory that is shared with the
 * kernel (ropcie-abi.h, struct ropcie_abi_ring). Calls for one ring are
 * serialized by the caller.
 */
#ifndef ROPCIE_MAPPED_H
#define ROPCIE_MAPPED_H

#include <ropcie-abi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ibv_context;

/* Memory that a queue has mapped; no address when it is not mapped. */
struct ropcie_map {
	char *addr;
	size_t length;
};

struct ropcie_ring {
	/* NULL: there is no ring. */
	struct ropcie_abi_ring *ctl;
	char *entries;
	uint32_t size;
	uint32_t stride;
	/* The entry that is filled, or taken, next. */
	uint32_t next;
};

/* What to ask the kernel for when a queue is created. */
struct ropcie_abi_create_queue_req
ropcie_queue_req(const struct ibv_context *context);

/**
 * ropcie_remap_ring - map the ring that a queue was moved to
 * @context: the queue's context
 * @resp: the kernel's answer
 * @map: the old memory, which is unmapped
 * @ring: its ring, which goes on where it was
 *
 * When that fails, the queue is lost: @ring has no ring then. Returns 0 or an
 * errno.
 */
int ropcie_remap_ring(struct ibv_context *context,
		      const struct ropcie_abi_create_queue_resp *resp,
		      struct ropcie_map *map, struct ropcie_ring *ring);

/**
 * ropcie_map_rings - map what the kernel has made
 * @context: the queue's context
 * @resp: the kernel's answer; without memory nothing is mapped
 * @map: the memory
 * @ring: its rings
 * @num: how many there can be
 *
 * Returns 0 or an errno, without changes then.
 */
int ropcie_map_rings(struct ibv_context *context,
		     const struct ropcie_abi_create_queue_resp *resp,
		     struct ropcie_map *map, struct ropcie_ring *ring,
		     unsigned int num);

void ropcie_unmap(struct ropcie_map *map);

static inline void *ropcie_ring_at(const struct ropcie_ring *ring, uint32_t idx)
{
	return ring->entries + (size_t)(idx & (ring->size - 1)) * ring->stride;
}

/* The kernel has destroyed the queue, as its device has gone; or has made another ring. */
static inline bool ropcie_ring_gone(const struct ropcie_ring *ring)
{
	return ring->ctl && __atomic_load_n(&ring->ctl->wake, __ATOMIC_RELAXED) &
				    ROPCIE_ABI_RING_GONE;
}

/* Work queues: entries that the kernel is not done with. */
static inline uint32_t ropcie_ring_used(const struct ropcie_ring *ring)
{
	return ring->next - __atomic_load_n(&ring->ctl->tail, __ATOMIC_ACQUIRE);
}

/* Work queues: give the kernel what was filled. Returns: it needs a doorbell.
 */
static inline bool ropcie_ring_publish(const struct ropcie_ring *ring)
{
	__atomic_store_n(&ring->ctl->head, ring->next, __ATOMIC_RELEASE);
	/* The kernel says that it sleeps, then looks at head once more. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&ring->ctl->wake, __ATOMIC_RELAXED);
}

/* CQs: where the entries that can be taken end. */
static inline uint32_t ropcie_ring_end(const struct ropcie_ring *ring)
{
	return __atomic_load_n(&ring->ctl->head, __ATOMIC_ACQUIRE);
}

/* CQs: what was taken may be filled again. */
static inline void ropcie_ring_release(const struct ropcie_ring *ring)
{
	__atomic_store_n(&ring->ctl->tail, ring->next, __ATOMIC_RELEASE);
}

#endif /* ROPCIE_MAPPED_H */
