// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Copies of inline data in registered memory; the rules are in inline.h. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call.h"
#include "inline.h"

#define ROPCIE_INLINE_FREE_TRIES 10

int ropcie_inline_init(struct ropcie_inline_ring *ring, struct ibv_pd *pd,
		       uint32_t max_data, uint32_t depth, uint32_t ahead)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;
	size_t length;
	int ret;

	pthread_mutex_init(&ring->lock, NULL);
	if (!max_data)
		return 0;

	/* Both factors are 32 bits wide: no overflow in 64. */
	length = ((size_t)depth + ahead) * max_data;
	length = (length + page - 1) & ~(page - 1);
	ring->map = mmap(NULL, length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ring->map == MAP_FAILED) {
		ret = errno;
		goto destroy_lock;
	}

	/*
	 * A fork() must not copy-on-write pages away from the device. That fails for want
	 * of memory only, which madvise(2) calls EAGAIN.
	 */
	if (madvise(ring->map, length, MADV_DONTFORK)) {
		ret = ENOMEM;
		goto unmap;
	}

	/* No access right: the device only reads, and only for this QP's PD. */
	ret = ibv_cmd_reg_mr(pd, ring->map, length, (uintptr_t)ring->map, 0,
			     &ring->mr, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (ret)
		goto unmap;

	ring->map_length = length;
	ring->slots = depth + ahead;
	ring->max_data = max_data;
	return 0;

unmap:
	munmap(ring->map, length);
destroy_lock:
	pthread_mutex_destroy(&ring->lock);
	return ret;
}

void ropcie_inline_free(struct ropcie_inline_ring *ring)
{
	int tries = 0;

	if (ring->max_data) {
		/*
		 * A single call may fail for its own reasons. Nothing can be done about an
		 * error that stays: the region then goes with the context, and its PD is in
		 * use until then. Its pages stay pinned, so unmapping is safe.
		 */
		while (ropcie_call_again(ibv_cmd_dereg_mr(&ring->mr)) &&
		       ++tries < ROPCIE_INLINE_FREE_TRIES)
			;
		munmap(ring->map, ring->map_length);
		ring->max_data = 0;
	}
	pthread_mutex_destroy(&ring->lock);
}

int ropcie_inline_fill(struct ropcie_inline_ring *ring, uint32_t index,
		       struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	uint32_t length = 0;
	char *start;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length > ring->max_data - length)
			return EINVAL;
		length += wr->sg_list[i].length;
	}
	if (!length) {
		wr->num_sge = 0;
		return 0;
	}

	start = ring->map +
		(size_t)((ring->head + index) % ring->slots) * ring->max_data;
	sge->addr = (uintptr_t)start;
	sge->length = length;
	sge->lkey = ring->mr.ibv_mr.lkey;
	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *from = &wr->sg_list[i];

		memcpy(start, (const void *)(uintptr_t)from->addr,
		       from->length);
		start += from->length;
	}
	wr->sg_list = sge;
	wr->num_sge = 1;
	return 0;
}

void ropcie_inline_commit(struct ropcie_inline_ring *ring, uint32_t count)
{
	if (count)
		ring->head = (ring->head + count) % ring->slots;
}
