// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Mapping and unmapping of shared rings. */
#include "mapped.h"

#include <errno.h>
#include <sys/mman.h>

#include "ropcie.h"

struct ropcie_abi_create_queue_req
ropcie_queue_req(const struct ibv_context *context)
{
	struct ropcie_abi_create_queue_req req = {
		.flags = to_rctx(context)->mapped ? ROPCIE_ABI_QUEUE_MAPPED : 0,
	};

	return req;
}

int ropcie_map_rings(struct ibv_context *context,
		     const struct ropcie_abi_create_queue_resp *resp,
		     struct ropcie_map *map, struct ropcie_ring *ring,
		     unsigned int num)
{
	unsigned int i;
	char *addr;

	if (!resp->mmap_length)
		return 0;
	addr = mmap(NULL, resp->mmap_length, PROT_READ | PROT_WRITE, MAP_SHARED,
		    context->cmd_fd, (off_t)resp->mmap_offset);
	if (addr == MAP_FAILED)
		return errno;
	/*
	 * A child has no business with the parent's queues. Only for want of memory that
	 * fails, which madvise(2) calls EAGAIN.
	 */
	if (madvise(addr, resp->mmap_length, MADV_DONTFORK)) {
		munmap(addr, resp->mmap_length);
		return ENOMEM;
	}
	map->addr = addr;
	map->length = resp->mmap_length;
	for (i = 0; i < num; i++) {
		if (!resp->ring[i].size)
			continue;
		ring[i].ctl =
			(struct ropcie_abi_ring *)(addr + resp->ring[i].ctl);
		ring[i].entries = addr + resp->ring[i].entries;
		ring[i].size = resp->ring[i].size;
		ring[i].stride = resp->ring[i].stride;
	}
	return 0;
}

int ropcie_remap_ring(struct ibv_context *context,
		      const struct ropcie_abi_create_queue_resp *resp,
		      struct ropcie_map *map, struct ropcie_ring *ring)
{
	struct ropcie_map old = *map;
	int ret;

	ret = ropcie_map_rings(context, resp, map, ring, 1);
	if (ret) {
		/* The old memory stays, so that this is still a mapped queue. */
		ring->ctl = NULL;
		return ret;
	}
	ropcie_unmap(&old);
	return 0;
}

void ropcie_unmap(struct ropcie_map *map)
{
	if (map->addr)
		munmap(map->addr, map->length);
	map->addr = NULL;
}
