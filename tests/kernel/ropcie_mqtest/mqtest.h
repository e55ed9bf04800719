/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ropcie_mqtest.ko's objects. main.c knows adapters and peers, traffic.c what
 * is sent and checked.
 */
#ifndef ROPCIE_MQTEST_H
#define ROPCIE_MQTEST_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "ntb_if.h"

#define MQT_QUEUES 4

/*
 * Message queues of the test; the first MQT_QUEUES carry data, the last one
 * is opened and closed all the time.
 */
enum {
	MQT_PING = MQT_QUEUES,
	MQT_PONG,
	MQT_CHURN,
	MQT_NUM
};

/* All are queues for requests, as the records are (mq_id.h). */
static inline u32 mqt_id(u32 queue)
{
	return ropcie_mq_id(32 + queue, ROPCIE_MQ_REQUEST);
}

static inline u32 mqt_queue(u32 id)
{
	return ropcie_mq_qpn(id) - 32;
}

/* One direction of each data queue: records in order, numbered from 0. */
struct mqt_flow {
	struct ropcie_mq_tx tx;
	u32 sent;
	u32 received;
};

/**
 * struct mqt_peer - a peer in one life of its link
 * @list: in the adapter's list
 * @peer: it
 * @adapter: whose
 * @flow: data queues
 * @target: records that @flow.received has to reach
 * @ping: for pings and pongs
 * @pongs: pongs that came
 * @errors: records that were not as they should be
 * @sender: sends to the queue that opens and closes, or NULL
 * @dead: peer_down was called
 * @space: tx_space calls
 * @wait: for all of that
 */
struct mqt_peer {
	struct list_head list;
	struct ropcie_peer *peer;
	struct mqt_adapter *adapter;
	struct mqt_flow flow[MQT_QUEUES];
	u32 target;
	struct ropcie_mq_tx ping;
	u32 pongs;
	u32 errors;
	struct task_struct *sender;
	bool dead;
	u32 space;
	wait_queue_head_t wait;
};

/**
 * struct mqt_adapter - an adapter under test
 * @list: in the list of adapters
 * @a: it
 * @mq: queues
 * @churn: queue that opens and closes
 * @churn_open: it may receive
 * @churn_taken: records that were handed over to it
 * @churn_received: those that came to it by a lane
 * @lock: guards @peers, which are never freed before the end
 * @peers: peers, dead ones too
 */
struct mqt_adapter {
	struct list_head list;
	struct ropcie_adapter *a;
	struct ropcie_mq mq[MQT_CHURN];
	struct ropcie_mq churn;
	bool churn_open;
	atomic_t churn_taken;
	atomic_t churn_received;
	spinlock_t lock; /* peers */
	struct list_head peers;
};

extern unsigned int mqt_records;
extern unsigned int mqt_pings;
extern unsigned int mqt_patience_ms;

struct mqt_peer *mqt_find(struct mqt_adapter *t, struct ropcie_peer *peer);

int mqt_open_queues(struct mqt_adapter *t);
void mqt_close_queues(struct mqt_adapter *t);
int mqt_send_traffic(struct mqt_peer *p);
int mqt_await_traffic(struct mqt_peer *p);
int mqt_run_pings(struct mqt_peer *p);
int mqt_start_churn(struct mqt_peer *p);
int mqt_churn(struct mqt_adapter *t);
void mqt_stop_churn(struct mqt_peer *p);

#endif /* ROPCIE_MQTEST_H */
