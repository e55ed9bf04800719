// SPDX-License-Identifier: GPL-2.0
/*
 * What the test sends, and the check of what arrives: length and bytes of each
 * record follow from its number.
 */
#include <linux/delay.h>
#include <linux/hash.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/vmalloc.h>

#include "mqtest.h"

/* Sizes in and around the slot, around a page, and up to the largest. */
static u32 record_len(u32 n)
{
	u32 h = hash_32(n, 32);

	switch (n % 4) {
	case 0:
		return h % 32;
	case 1:
		return h % 600;
	case 2:
		return 4080 + h % 32;
	default:
		return n % 32 == 3 ? ROPCIE_MAX_FRAG - h % 3 : h % 9000;
	}
}

static u8 record_byte(u32 n, u32 off)
{
	return n * 31 + off * 7 + (off >> 8);
}

static void fail_record(struct mqt_peer *p, const char *what, u32 n)
{
	p->errors++;
	pr_err_ratelimited("ropcie_mqtest: record %u: %s\n", n, what);
}

static void check_payload(struct mqt_peer *p, const struct ropcie_rec *rec)
{
	u32 n = rec->hdr.psn, off = 0, span, i;

	for (span = 0; span < rec->nspan; span++) {
		const u8 *byte = rec->span[span].base;

		for (i = 0; i < rec->span[span].len; i++, off++) {
			if (byte[i] != record_byte(n, off)) {
				fail_record(p, "wrong byte", n);
				return;
			}
		}
	}
	if (off != rec->hdr.frag_len)
		fail_record(p, "wrong length of payload", n);
}

static void recv_data(struct ropcie_mq *mq, struct ropcie_peer *peer,
		      const struct ropcie_rec *rec)
{
	struct mqt_peer *p = mqt_find(mq->priv, peer);
	struct mqt_flow *flow;

	if (!p)
		return;
	flow = &p->flow[mqt_queue(mq->id)];
	if (rec->hdr.psn != (flow->received & ROPCIE_PSN_MASK))
		fail_record(p, "out of order", rec->hdr.psn);
	else if (rec->hdr.frag_len != record_len(rec->hdr.psn))
		fail_record(p, "wrong length", rec->hdr.psn);
	else
		check_payload(p, rec);
	WRITE_ONCE(flow->received, flow->received + 1);
	wake_up_all(&p->wait);
}

static void recv_ping(struct ropcie_mq *mq, struct ropcie_peer *peer,
		      const struct ropcie_rec *rec)
{
	struct ropcie_hdr hdr = rec->hdr;
	struct mqt_peer *p = mqt_find(mq->priv, peer);

	if (!p)
		return;
	hdr.mq = mqt_id(MQT_PONG);
	hdr.frag_len = 0;
	hdr.msg_len = 0;
	if (ropcie_mq_send(&p->ping, &hdr, NULL, 0) == 0)
		ropcie_mq_flush(&p->ping);
}

static void recv_pong(struct ropcie_mq *mq, struct ropcie_peer *peer,
		      const struct ropcie_rec *rec)
{
	struct mqt_peer *p = mqt_find(mq->priv, peer);

	if (!p)
		return;
	WRITE_ONCE(p->pongs, p->pongs + 1);
	wake_up_all(&p->wait);
}

/* Long enough for ropcie_mq_close() to come in the middle of it. */
static void be_used(struct mqt_adapter *t)
{
	WARN(!READ_ONCE(t->churn_open), "called after ropcie_mq_close()");
	udelay(5);
	WARN(!READ_ONCE(t->churn_open), "ropcie_mq_close() has not waited");
}

static void recv_churn(struct ropcie_mq *mq, struct ropcie_peer *peer,
		       const struct ropcie_rec *rec)
{
	struct mqt_adapter *t = mq->priv;

	be_used(t);
	atomic_inc(&t->churn_received);
}

/* One in four comes by the lane. */
static bool take_churn(struct ropcie_mq *mq, struct ropcie_peer *peer,
		       const struct ropcie_rec *rec)
{
	struct mqt_adapter *t = mq->priv;

	be_used(t);
	return atomic_inc_return(&t->churn_taken) % 4;
}

/* Open all queues but the one that churns. */
int mqt_open_queues(struct mqt_adapter *t)
{
	u32 i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(t->mq); i++) {
		struct ropcie_mq *mq = &t->mq[i];

		mq->id = mqt_id(i);
		mq->priv = t;
		mq->recv = i == MQT_PING ? recv_ping :
			   i == MQT_PONG ? recv_pong : recv_data;
		ret = ropcie_mq_open(t->a, mq);
		if (ret) {
			mq->priv = NULL;
			return ret;
		}
	}
	t->churn.id = mqt_id(MQT_CHURN);
	t->churn.priv = t;
	t->churn.recv = recv_churn;
	t->churn.take = take_churn;
	return 0;
}

void mqt_close_queues(struct mqt_adapter *t)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(t->mq); i++)
		if (t->mq[i].priv)
			ropcie_mq_close(t->a, &t->mq[i]);
}

/* Send one record, waiting for space if need be. */
static int send_record(struct mqt_peer *p, struct ropcie_mq_tx *tx, u32 queue,
		       u32 n, const struct ropcie_vec *vec, u32 nvec, u32 len)
{
	struct ropcie_hdr hdr = {
		.op = ROPCIE_OP_SEND,
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST,
		.mq = mqt_id(queue),
		.src_qpn = 32,
		.psn = n & ROPCIE_PSN_MASK,
		.msg_len = len,
		.frag_len = len,
	};
	u32 space;
	int ret;

	for (;;) {
		space = READ_ONCE(p->space);
		ret = ropcie_mq_send(tx, &hdr, vec, nvec);
		if (ret != -EAGAIN)
			return ret;
		ropcie_mq_flush(tx);
		if (!wait_event_timeout(p->wait, READ_ONCE(p->dead) ||
					READ_ONCE(p->space) != space,
					msecs_to_jiffies(mqt_patience_ms)))
			return -ETIMEDOUT;
	}
}

static int send_data(struct mqt_peer *p, u32 queue, u8 *buf)
{
	struct mqt_flow *flow = &p->flow[queue];
	u32 n = flow->sent, len = record_len(n & ROPCIE_PSN_MASK), i, cut;
	struct ropcie_vec vec[3];
	int ret;

	for (i = 0; i < len; i++)
		buf[i] = record_byte(n & ROPCIE_PSN_MASK, i);
	/* Three runs, one of them empty now and then. */
	cut = len / 3;
	vec[0] = (struct ropcie_vec){ buf, cut };
	vec[1] = (struct ropcie_vec){ buf + cut, n % 5 ? len - 2 * cut : 0 };
	vec[2].base = buf + cut + vec[1].len;
	vec[2].len = len - cut - vec[1].len;
	ret = send_record(p, &flow->tx, queue, n, vec, 3, len);
	if (ret)
		return ret;
	flow->sent++;
	if (n % 7 == 0)
		ropcie_mq_flush(&flow->tx);
	return 0;
}

static bool all_received(struct mqt_peer *p)
{
	u32 i;

	for (i = 0; i < MQT_QUEUES; i++)
		if ((s32)(READ_ONCE(p->flow[i].received) - p->target) < 0)
			return false;
	return true;
}

static u32 received(struct mqt_peer *p)
{
	u32 i, n = 0;

	for (i = 0; i < MQT_QUEUES; i++)
		n += READ_ONCE(p->flow[i].received);
	return n;
}

/* Wait until all has come, as long as there is progress. */
static int await_data(struct mqt_peer *p)
{
	u32 seen;

	do {
		seen = received(p);
		if (wait_event_timeout(p->wait,
				       READ_ONCE(p->dead) || all_received(p),
				       msecs_to_jiffies(mqt_patience_ms)))
			return READ_ONCE(p->dead) ? -ENOTCONN : 0;
	} while (received(p) != seen);
	return -ETIMEDOUT;
}

/* Send to all queues of a peer, which does the same. */
int mqt_send_traffic(struct mqt_peer *p)
{
	u8 *buf = vmalloc(ROPCIE_MAX_FRAG);
	u32 i, queue;
	int ret = 0;

	if (!buf)
		return -ENOMEM;
	p->target += mqt_records;
	for (i = 0; i < mqt_records && !ret; i++) {
		for (queue = 0; queue < MQT_QUEUES && !ret; queue++)
			ret = send_data(p, queue, buf);
		cond_resched();
	}
	for (queue = 0; queue < MQT_QUEUES; queue++)
		ropcie_mq_flush(&p->flow[queue].tx);
	vfree(buf);
	return ret;
}

/* Wait for what the peer sends. */
int mqt_await_traffic(struct mqt_peer *p)
{
	int ret = await_data(p);

	if (!ret && READ_ONCE(p->errors))
		ret = -EBADMSG;
	pr_info("ropcie_mqtest: traffic with %pM: %d, %u received\n",
		ropcie_peer_mac(p->peer), ret, received(p));
	return ret;
}

static int await_pong(struct mqt_peer *p, u32 n, bool poll)
{
	u64 end = ktime_get_ns() + (u64)mqt_patience_ms * NSEC_PER_MSEC;

	if (!poll)
		return wait_event_timeout(p->wait, READ_ONCE(p->dead) ||
					  READ_ONCE(p->pongs) == n,
					  msecs_to_jiffies(mqt_patience_ms)) ?
			       0 : -ETIMEDOUT;
	while (READ_ONCE(p->pongs) != n && !READ_ONCE(p->dead)) {
		ropcie_adapter_poll(p->adapter->a);
		if (need_resched())
			cond_resched();
		if (ktime_get_ns() > end)
			return -ETIMEDOUT;
	}
	return 0;
}

/* Round trips; with @poll this side receives by itself. */
static int run_pings(struct mqt_peer *p, bool poll)
{
	u64 start, ns, max = 0, total = 0;
	u32 i, first = p->pongs;
	int ret = 0;

	for (i = 1; i <= mqt_pings && !ret; i++) {
		start = ktime_get_ns();
		ret = send_record(p, &p->ping, MQT_PING, i, NULL, 0, 0);
		ropcie_mq_flush(&p->ping);
		if (!ret)
			ret = await_pong(p, first + i, poll);
		if (!ret && READ_ONCE(p->dead))
			ret = -ENOTCONN;
		ns = ktime_get_ns() - start;
		total += ns;
		max = max(max, ns);
	}
	ropcie_adapter_arm(p->adapter->a);
	pr_info("ropcie_mqtest: %u pings with %pM%s, %s: %d, mean %llu ns, max %llu ns\n",
		i - 1, ropcie_peer_mac(p->peer),
		ropcie_peer_is_self(p->peer) ? " (self)" : "",
		poll ? "polling" : "sleeping", ret, total / max(1u, i - 1), max);
	return ret;
}

int mqt_run_pings(struct mqt_peer *p)
{
	int ret = run_pings(p, false);

	return ret ?: run_pings(p, true);
}

/* Send to the queue that opens and closes, one record at a time. */
static int churn_sender(void *arg)
{
	struct mqt_peer *p = arg;
	struct ropcie_hdr hdr = {
		.op = ROPCIE_OP_SEND,
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST,
		.mq = mqt_id(MQT_CHURN),
		.src_qpn = 32,
	};
	int ret;

	while (!kthread_should_stop()) {
		/* As who has records handed over sends. */
		local_bh_disable();
		ret = ropcie_mq_send(&p->ping, &hdr, NULL, 0);
		if (!ret)
			ropcie_mq_flush(&p->ping);
		local_bh_enable();
		do {
			cond_resched();
		} while (!kthread_should_stop() &&
			 !ropcie_mq_delivered(&p->ping));
	}
	return 0;
}

int mqt_start_churn(struct mqt_peer *p)
{
	struct task_struct *task = kthread_run(churn_sender, p, "mqt_churn");

	if (IS_ERR(task))
		return PTR_ERR(task);
	p->sender = task;
	return 0;
}

void mqt_stop_churn(struct mqt_peer *p)
{
	if (p->sender)
		kthread_stop(p->sender);
	p->sender = NULL;
}

/* Open and close a queue while all peers send to it. */
int mqt_churn(struct mqt_adapter *t)
{
	int taken = atomic_read(&t->churn_taken);
	int received = atomic_read(&t->churn_received);
	u32 i;
	int ret;

	for (i = 0; i < mqt_records; i++) {
		WRITE_ONCE(t->churn_open, true);
		ret = ropcie_mq_open(t->a, &t->churn);
		if (ret)
			return ret;
		usleep_range(20, 60);
		ropcie_mq_close(t->a, &t->churn);
		WRITE_ONCE(t->churn_open, false);
	}
	taken = atomic_read(&t->churn_taken) - taken;
	received = atomic_read(&t->churn_received) - received;
	pr_info("ropcie_mqtest: churn of %s: %d taken, %d received\n",
		ropcie_adapter_name(t->a), taken, received);
	return taken && received ? 0 : -ENODATA;
}
