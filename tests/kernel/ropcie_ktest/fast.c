// SPDX-License-Identifier: GPL-2.0
/*
 * Messages out of memory that is registered for them: LOCAL_INV of the message
 * before, REG_MR and the SEND are posted as one list, and the memory is mapped
 * before the first of them is executed, as the kernel's consumers do it.
 */
#include <linux/scatterlist.h>

#include "ktest.h"

#define KTEST_PAGES (KTEST_MAX_SIZE / PAGE_SIZE + 2)

int ktest_fast_open(struct ktest_fast *fast, struct ib_pd *pd)
{
	fast->mr = ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, KTEST_PAGES);
	return PTR_ERR_OR_ZERO(fast->mr);
}

void ktest_fast_close(struct ktest_fast *fast)
{
	if (!IS_ERR_OR_NULL(fast->mr))
		ib_dereg_mr(fast->mr);
}

static int ktest_fast_map(struct ktest_fast *fast, struct ktest_buffer *buf,
			  const struct ktest_message *msg)
{
	u32 pos = msg->offset, end = msg->offset + msg->size;
	int n;

	sg_init_table(fast->sg, KTEST_CHUNKS);
	for (n = 0; pos < end; n++) {
		u32 in_chunk = pos % KTEST_CHUNK;
		u32 len = min(end - pos, KTEST_CHUNK - in_chunk);

		sg_set_buf(&fast->sg[n], buf->chunk[pos / KTEST_CHUNK] +
			   in_chunk, len);
		pos += len;
	}
	sg_mark_end(&fast->sg[n - 1]);
	fast->nents = n;
	n = ib_dma_map_sg(fast->mr->device, fast->sg, n, DMA_TO_DEVICE);
	if (!n)
		return -EIO;
	if (ib_map_mr_sg(fast->mr, fast->sg, n, NULL, PAGE_SIZE) != n) {
		ktest_fast_unmap(fast);
		return -EINVAL;
	}
	return 0;
}

void ktest_fast_unmap(struct ktest_fast *fast)
{
	ib_dma_unmap_sg(fast->mr->device, fast->sg, fast->nents, DMA_TO_DEVICE);
}

int ktest_fast_list(struct ktest_fast *fast, struct ktest_buffer *buf,
		    const struct ktest_message *msg, struct ib_send_wr *send)
{
	u32 old = fast->mr->rkey;
	int err;

	ib_update_fast_reg_key(fast->mr, ib_inc_rkey(old));
	err = ktest_fast_map(fast, buf, msg);
	if (err)
		return err;
	fast->reg = (struct ib_reg_wr){
		.wr.opcode = IB_WR_REG_MR,
		.wr.wr_cqe = send->wr_cqe,
		.wr.next = send,
		.mr = fast->mr,
		.key = fast->mr->rkey,
		.access = IB_ACCESS_LOCAL_WRITE,
	};
	fast->inv = (struct ib_send_wr){
		.opcode = IB_WR_LOCAL_INV,
		.wr_cqe = send->wr_cqe,
		.next = &fast->reg.wr,
		.ex.invalidate_rkey = old,
	};
	fast->first = fast->registered ? &fast->inv : &fast->reg.wr;
	fast->registered = true;
	send->sg_list->addr = fast->mr->iova;
	send->sg_list->length = fast->mr->length;
	send->sg_list->lkey = fast->mr->lkey;
	send->num_sge = 1;
	return 0;
}
