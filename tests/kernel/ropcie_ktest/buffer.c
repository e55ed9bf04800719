// SPDX-License-Identifier: GPL-2.0
/*
 * Messages in memory: allocation in pieces, so that a work request needs
 * several SGEs, and the bytes that a message must have.
 */
#include <linux/etherdevice.h>
#include <linux/slab.h>

#include "ktest.h"

#define KTEST_POISON 0xa5

void ktest_buffer_free(struct ktest_buffer *buf, struct ib_device *ibdev)
{
	int i;

	for (i = 0; i < KTEST_CHUNKS; i++) {
		if (!buf->chunk[i])
			continue;
		ib_dma_unmap_single(ibdev, buf->dma[i], KTEST_CHUNK,
				    DMA_BIDIRECTIONAL);
		kfree(buf->chunk[i]);
		buf->chunk[i] = NULL;
	}
}

int ktest_buffer_alloc(struct ktest_buffer *buf, struct ib_device *ibdev)
{
	int i;

	for (i = 0; i < KTEST_CHUNKS; i++) {
		u8 *chunk = kmalloc(KTEST_CHUNK, GFP_KERNEL);

		if (!chunk)
			return -ENOMEM;
		buf->dma[i] = ib_dma_map_single(ibdev, chunk, KTEST_CHUNK,
						DMA_BIDIRECTIONAL);
		if (ib_dma_mapping_error(ibdev, buf->dma[i])) {
			kfree(chunk);
			return -EIO;
		}
		buf->chunk[i] = chunk;
	}
	return 0;
}

static u8 *ktest_byte(struct ktest_buffer *buf, u32 pos)
{
	return &buf->chunk[pos / KTEST_CHUNK][pos % KTEST_CHUNK];
}

/* No two pages of a message, and no two messages in turn, are alike. */
static u8 ktest_pattern(const struct ktest_message *msg, u32 pos)
{
	return pos * 7 + (pos >> 8) * 13 + (pos >> 16) * 29 + msg->num * 31 +
	       msg->seed;
}

void ktest_buffer_poison(struct ktest_buffer *buf)
{
	int i;

	for (i = 0; i < KTEST_CHUNKS; i++)
		memset(buf->chunk[i], KTEST_POISON, KTEST_CHUNK);
}

void ktest_buffer_fill(struct ktest_buffer *buf,
		       const struct ktest_message *msg)
{
	u32 i;

	for (i = 0; i < msg->size; i++)
		*ktest_byte(buf, msg->offset + i) = ktest_pattern(msg, i);
}

int ktest_buffer_check(struct ktest_buffer *buf,
		       const struct ktest_message *msg)
{
	u32 first = msg->offset - KTEST_GUARD;
	u32 end = msg->offset + msg->size;
	u32 pos;

	for (pos = first; pos < end + KTEST_GUARD; pos++) {
		u8 want = KTEST_POISON;

		if (pos >= msg->offset && pos < end)
			want = ktest_pattern(msg, pos - msg->offset);
		if (*ktest_byte(buf, pos) != want)
			return pos - first;
	}
	return -1;
}

int ktest_buffer_sges(struct ktest_buffer *buf, struct ib_device *ibdev,
		      const struct ktest_message *msg, u32 lkey,
		      enum dma_data_direction dir, struct ib_sge *sge)
{
	u32 pos = msg->offset;
	u32 left = msg->size;
	int n = 0;

	while (left) {
		u32 off = pos % KTEST_CHUNK;
		u32 len = min_t(u32, left, KTEST_CHUNK - off);

		sge[n].addr = buf->dma[pos / KTEST_CHUNK] + off;
		sge[n].length = len;
		sge[n].lkey = lkey;
		ib_dma_sync_single_for_device(ibdev, sge[n].addr, len, dir);
		n++;
		pos += len;
		left -= len;
	}
	return n;
}

void ktest_buffer_sync_for_cpu(struct ktest_buffer *buf,
			       struct ib_device *ibdev)
{
	int i;

	for (i = 0; i < KTEST_CHUNKS; i++)
		ib_dma_sync_single_for_cpu(ibdev, buf->dma[i], KTEST_CHUNK,
					   DMA_FROM_DEVICE);
}
