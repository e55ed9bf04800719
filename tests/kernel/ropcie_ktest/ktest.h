/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Inner interfaces of ropcie_ktest.ko, which sends and receives between two
 * RDMA devices through the kernel's verbs and checks every byte. It knows no
 * driver: any RoCE device will do.
 */
#ifndef ROPCIE_KTEST_H
#define ROPCIE_KTEST_H

#include <linux/completion.h>
#include <linux/scatterlist.h>
#include <rdma/ib_verbs.h>

#define KTEST_MAX_SIZE (1024 * 1024)
#define KTEST_CHUNK (64 * 1024)
/* Unused bytes before and behind a message, which must stay as they are. */
#define KTEST_GUARD 64
#define KTEST_CHUNKS (KTEST_MAX_SIZE / KTEST_CHUNK + 1)
#define KTEST_RESULT_LEN 320
#define KTEST_PORT 1

/**
 * struct ktest_buffer - memory for one message, in pieces
 * @chunk: pieces of KTEST_CHUNK bytes
 * @dma: their addresses for work requests
 */
struct ktest_buffer {
	u8 *chunk[KTEST_CHUNKS];
	u64 dma[KTEST_CHUNKS];
};

int ktest_buffer_alloc(struct ktest_buffer *buf, struct ib_device *ibdev);
void ktest_buffer_free(struct ktest_buffer *buf, struct ib_device *ibdev);

/* Which bytes a message has: those of its number and direction. */
struct ktest_message {
	u32 num;
	u32 size;
	u32 offset; /* in the buffer, from KTEST_GUARD on */
	u32 imm; /* 0 for none */
	u8 seed;
};

void ktest_buffer_fill(struct ktest_buffer *buf,
		       const struct ktest_message *msg);
void ktest_buffer_poison(struct ktest_buffer *buf);

/* Return: -1 when all is right, else the position of the first wrong byte. */
int ktest_buffer_check(struct ktest_buffer *buf,
		       const struct ktest_message *msg);

/* Return: number of SGEs, none for an empty message. */
int ktest_buffer_sges(struct ktest_buffer *buf, struct ib_device *ibdev,
		      const struct ktest_message *msg, u32 lkey,
		      enum dma_data_direction dir, struct ib_sge *sge);
void ktest_buffer_sync_for_cpu(struct ktest_buffer *buf,
			       struct ib_device *ibdev);

/**
 * struct ktest_fast - a region that is registered for each message anew
 * @mr: region
 * @registered: it is
 * @sg: memory of the message
 * @nents: entries of @sg
 * @reg: REG_MR
 * @inv: LOCAL_INV
 * @first: which of them is the first
 */
struct ktest_fast {
	struct ib_mr *mr;
	bool registered;
	struct scatterlist sg[KTEST_CHUNKS];
	int nents;
	struct ib_reg_wr reg;
	struct ib_send_wr inv;
	struct ib_send_wr *first;
};

int ktest_fast_open(struct ktest_fast *fast, struct ib_pd *pd);
void ktest_fast_close(struct ktest_fast *fast);

/**
 * ktest_fast_list() - send a message out of a region
 * @fast: region
 * @buf: memory of the message, which is not empty
 * @msg: message
 * @send: its SEND, with room for an SGE; fast->first is what is to be posted
 *
 * Return: 0, to be followed by ktest_fast_unmap(); or an error.
 */
int ktest_fast_list(struct ktest_fast *fast, struct ktest_buffer *buf,
		    const struct ktest_message *msg, struct ib_send_wr *send);
void ktest_fast_unmap(struct ktest_fast *fast);

/* What the other end has to know. */
struct ktest_address {
	u32 qpn;
	u32 psn;
	union ib_gid gid;
	u8 mac[ETH_ALEN];
};

/**
 * ktest_choose_gid() - the first RoCE v2 GID of an IPv4 address
 * @ibdev: device
 * @local: its gid and mac are set
 *
 * Return: its index, or -ENOENT.
 */
int ktest_choose_gid(struct ib_device *ibdev, struct ktest_address *local);

/**
 * ktest_connect() - a queue pair from INIT to RTS
 * @qp: queue pair
 * @sgid_index: what ktest_choose_gid() returned
 * @psn: of its first packet
 * @remote: the other end
 * @rd_atomic: READs and atomics under way, either way
 *
 * Return: 0 or an error.
 */
int ktest_connect(struct ib_qp *qp, int sgid_index, u32 psn,
		  const struct ktest_address *remote, u8 rd_atomic);

/* A work request in flight. */
struct ktest_work {
	struct ib_cqe cqe;
	struct completion done;
	struct ib_wc wc;
	struct ktest_buffer buf;
};

/* One queue pair and its test. */
struct ktest_session {
	struct ib_device *ibdev;
	const bool *stop; /* somebody sets it to end a running test soon */
	struct ktest_address local;
	int sgid_index;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	bool connected;
	struct ktest_work send;
	struct ktest_work recv[2];
	struct ktest_fast fast;
	u32 messages;
	u64 bytes;
	char *result; /* one line */
};

/**
 * ktest_session_open() - a queue pair in INIT, and all that it needs
 * @s: session with @ibdev, @stop and @result set, otherwise zero
 * @poll: how completions are polled
 *
 * Return: 0 with @local set, or an error; -ENOENT without a RoCE v2 GID of an
 * IPv4 address.
 */
int ktest_session_open(struct ktest_session *s, enum ib_poll_context poll);
int ktest_session_connect(struct ktest_session *s,
			  const struct ktest_address *remote);

/**
 * ktest_session_run() - all messages one way, then the other
 * @s: connected session
 * @first: this side sends first; the other side must not
 * @rounds: how often
 *
 * Return: 0, or -EIO; @result says what was done or what is wrong.
 */
int ktest_session_run(struct ktest_session *s, bool first, u32 rounds);
void ktest_session_close(struct ktest_session *s);

/**
 * own_run() - messages that take the key of their own source away
 * @ibdev: device, of which two queue pairs are connected with each other
 * @rounds: how many
 * @stop: somebody sets it to end the test soon
 * @result: one line says what was done or what is wrong
 *
 * Return: 0 or an error.
 */
int own_run(struct ib_device *ibdev, u32 rounds, const bool *stop, char *result);

#endif /* ROPCIE_KTEST_H */
