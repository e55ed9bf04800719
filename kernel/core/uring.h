/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's side of a ring that a process shares with it: work requests come
 * out of one, completions go into another. See struct ropcie_abi_ring.
 *
 * The process can write to all of it at any time. So each entry is copied once
 * and what is copied is validated; the kernel's own index is in its own memory;
 * and of the process's index only the distance is used, when it is possible.
 * Calls for one ring are serialized by the caller.
 */
#ifndef ROPCIE_CORE_URING_H
#define ROPCIE_CORE_URING_H

#include "port.h"
#include "ropcie-abi.h"

/**
 * struct ropcie_uring - a shared ring
 * @ctl: shared indices, or NULL when there is no ring
 * @entries: shared memory of @size entries of @stride bytes each
 * @size: a power of two
 * @stride: bytes from one entry to the next
 * @next: the entry that the kernel takes or fills next
 */
struct ropcie_uring {
	struct ropcie_abi_ring *ctl;
	char *entries;
	u32 size;
	u32 stride;
	u32 next;
};

static inline void *ropcie_uring_at(const struct ropcie_uring *ring, u32 idx)
{
	return ring->entries + (size_t)(idx & (ring->size - 1)) * ring->stride;
}

/* Both ends start again with an empty ring; the process must not use it. */
static inline void ropcie_uring_reset(struct ropcie_uring *ring)
{
	ring->next = 0;
	if (!ring->ctl)
		return;
	WRITE_ONCE(ring->ctl->head, 0);
	WRITE_ONCE(ring->ctl->tail, 0);
	WRITE_ONCE(ring->ctl->wake, 1);
}

/* Entries that the process has filled; none when its index is impossible. */
static inline u32 ropcie_uring_ready(const struct ropcie_uring *ring)
{
	u32 num;

	if (!ring->ctl)
		return 0;
	/* Entries are filled before head moves past them. */
	num = smp_load_acquire(&ring->ctl->head) - ring->next;
	return num <= ring->size ? num : 0;
}

/* Where the process's index stands: a hint, it may say what it likes. */
static inline u32 ropcie_uring_posted(const struct ropcie_uring *ring)
{
	return ring->ctl ? READ_ONCE(ring->ctl->head) : 0;
}

/**
 * ropcie_uring_take() - copy the next entry out
 * @ring: ring with at least one entry ready
 * @entry: @ring->stride bytes
 *
 * The entry stays the kernel's until ropcie_uring_release().
 */
static inline void ropcie_uring_take(struct ropcie_uring *ring, void *entry)
{
	memcpy(entry, ropcie_uring_at(ring, ring->next++), ring->stride);
}

/* The process may fill all entries before @tail again. */
static inline void ropcie_uring_release(const struct ropcie_uring *ring,
					u32 tail)
{
	if (!ring->ctl)
		return;
	/* The kernel has read entries before tail moves past them. */
	smp_store_release(&ring->ctl->tail, tail);
}

/*
 * Ask the process for a call when it has filled an entry, or not to call. Who
 * asks looks at the ring once more, behind a barrier: the process may have
 * filled an entry before it saw this.
 */
static inline void ropcie_uring_want_call(const struct ropcie_uring *ring,
					  bool call)
{
	if (ring->ctl)
		WRITE_ONCE(ring->ctl->wake, call);
}

/*
 * The last that the process hears; its calls would tell it, but it makes few. The
 * kernel has no ring from here on.
 */
static inline void ropcie_uring_end(struct ropcie_uring *ring)
{
	if (ring->ctl)
		WRITE_ONCE(ring->ctl->wake, ROPCIE_ABI_RING_GONE);
	ring->ctl = NULL;
}

/* Entries that the kernel has filled and the process has not taken. */
static inline u32 ropcie_uring_used(const struct ropcie_uring *ring)
{
	/* The process has read entries before tail moves past them. */
	return ring->next - smp_load_acquire(&ring->ctl->tail);
}

/* The entry at @next is filled, which ropcie_uring_used() has shown to be free. */
static inline void ropcie_uring_publish(struct ropcie_uring *ring)
{
	/* Filled before the process sees it. */
	smp_store_release(&ring->ctl->head, ++ring->next);
}

/* The process is told of all that is there. */
static inline void ropcie_uring_told(const struct ropcie_uring *ring)
{
	WRITE_ONCE(ring->ctl->told, ring->next);
}

/**
 * ropcie_uring_wants_event() - is the process to be told of a completion?
 * @ring: completions
 * @solicited: the one that was put last is solicited
 *
 * Return: true once for each time that the process has asked. What it asks for
 * meanwhile is answered by this event, too.
 */
static inline bool ropcie_uring_wants_event(const struct ropcie_uring *ring,
					    bool solicited)
{
	u32 wish;

	/* The process asks, then looks at head once more. */
	smp_mb();
	wish = READ_ONCE(ring->ctl->wake);
	if (!(wish & ROPCIE_ABI_NOTIFY_ANY) &&
	    !((wish & ROPCIE_ABI_NOTIFY_SOLICITED) && solicited))
		return false;
	WRITE_ONCE(ring->ctl->wake, 0);
	ropcie_uring_told(ring);
	return true;
}

#endif /* ROPCIE_CORE_URING_H */
