/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The objects of ropcie_ntb_if.ko: adapter, peer, lane; and the calls between
 * its files. No other module sees this.
 *
 * Locks, outermost first:
 *   ropcie_adapters_lock  which adapters and watchers there are (main.c)
 *   adapter->mutex        start and stop
 *   peer->mutex           the state of the link to one peer
 *   adapter->identity     no two peers are accepted with one address
 *   port->msg_send_lock   one message at a time (ntb.h), not with the former
 *   lane->rx_lock         receiving half; receive callbacks run under it
 *   lane->tx_lock         sending half
 *   dma->lock             copies under way (dma.c)
 * The last three are spin locks with bottom halves off. Who sends may try the receive
 * lock of a lane in the same kernel (lane_hand_over()). Whoever looks at a lane
 * without its lock (ropcie_lane_pending()) does so under RCU: lanes are set up
 * anew only a grace period after they were taken down.
 */
#ifndef ROPCIE_NTB_IF_INTERNAL_H
#define ROPCIE_NTB_IF_INTERNAL_H

#include <linux/interrupt.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/ratelimit.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "control.h"
#include "ntb_if.h"
#include "peer_link.h"
#include "poll_policy.h"
#include "poller.h"
#include "trial.h"

struct ropcie_backend;

/* What the spinner of a lane does. */
enum ropcie_spin {
	ROPCIE_SPIN_NONE, /* sleeps */
	ROPCIE_SPIN_WANTED, /* waits for a processor that nobody wants */
	ROPCIE_SPIN_ON, /* spins; the peer has not been asked for a doorbell */
};

/**
 * struct ropcie_lane - a lane number of a peer, both directions
 * @peer: whose
 * @index: lane number
 * @bell: receives what a doorbell announces, if it is little
 * @thread: receives the rest, and calls tx_space
 * @spinner: spins for what comes next; NULL where that is never worth it
 * @kicked: @thread has something to do
 * @tx_lock: guards what follows, up to @tx_doorbells
 * @tx: sending half
 * @ends: memory of @tx
 * @tx_up: may be sent to
 * @stalled: a sender met a full lane and waits for tx_space
 * @stall_cons: the peer's consumer word then
 * @want: last want_space value written to the peer; odd while stalled
 * @rung: last arm value of the peer that was answered with a doorbell
 * @tx_records: counter
 * @tx_bytes: counter, payload
 * @stalls: counter: the lane was full
 * @tx_doorbells: counter: rung for records
 * @handed_records: counter: records that went past the lane; under the receive lock
 *	of the twin's lane
 * @handed_bytes: counter, their payload
 * @rx_lock: guards the rest
 * @policy: how long @spinner spins
 * @spins: whether that pays
 * @spin: what it does, enum ropcie_spin
 * @rx: receiving half
 * @rx_up: may be received from
 * @polled: callers of ropcie_adapter_poll() drain it, @thread only watches
 * @poller: whether they come in time
 * @armed: the peer has been asked for a doorbell, and none came yet
 * @arm: last arm value written to the peer
 * @space_rung: last want_space value of the peer that was answered
 * @recent: the open queues, one for requests and one for answers, that had the
 *	last records, or NULL
 * @rx_records: counter
 * @rx_bytes: counter, payload
 * @rx_unknown: counter: records to a queue that is not open
 * @rx_doorbells: counter: rung for space
 * @spins_paid: counter: @spinner has received something
 * @spins_unpaid: counter: nothing came while it spun
 */
struct ropcie_lane {
	struct ropcie_peer *peer;
	u32 index;
	struct tasklet_struct bell;
	struct task_struct *thread;
	struct task_struct *spinner;
	unsigned long kicked;

	spinlock_t tx_lock ____cacheline_aligned_in_smp;
	struct ropcie_lane_tx tx;
	u64 *ends;
	bool tx_up;
	bool stalled;
	u32 stall_cons;
	u32 want;
	u32 rung;
	u64 tx_records;
	u64 tx_bytes;
	u64 stalls;
	u64 tx_doorbells;
	u64 handed_records;
	u64 handed_bytes;

	spinlock_t rx_lock ____cacheline_aligned_in_smp;
	struct ropcie_poll_policy policy;
	struct ropcie_trial spins;
	u8 spin;
	struct ropcie_lane_rx rx;
	bool rx_up;
	bool polled;
	struct ropcie_poller poller;
	bool armed;
	u32 arm;
	u32 space_rung;
	struct ropcie_mq *recent[2];
	u64 rx_records;
	u64 rx_bytes;
	u64 rx_unknown;
	u64 rx_doorbells;
	u64 spins_paid;
	u64 spins_unpaid;
};

/**
 * struct ropcie_peer - a node at the other end of a link, or the own one
 * @ref: message queues that send to it, and the adapter
 * @adapter: whose peer; valid as long as any lane is up
 * @index: number for the backend; not used for the own node
 * @self: the own node: @in and @out are the same memory
 * @twin: where both ends are in this kernel, what the other end calls this node; of
 *	the own node itself; else NULL. Stays as long as any lane is up
 * @up: announced to the user and not taken back
 * @links: how often it was
 * @nlanes: lanes that both sides have; queues are spread over them
 * @lanes_set: lanes are set up (some time before @up)
 * @mac: its hardware address
 * @node_guid: its node GUID
 * @in: inbound window: control page and the lanes that it sends on
 * @in_size: bytes of it
 * @out: outbound window, its inbound one; mapped by the backend
 * @out_size: bytes of it that are mapped
 * @out_phys: its physical address, or 0 when it is not a device's
 * @write_combining: @out is mapped write-combining
 * @memory: window that shows the peer's memory from address 0 on, or NULL
 * @memory_size: bytes of it
 * @shows_memory: the peer has such a window of this node's memory
 * @mutex: guards the link's state: all of the following
 * @link: handshake
 * @link_ready: @link is initialised, because the windows are there
 * @stepped: when its last step began, jiffies; read by anybody
 * @rests: something has failed, and is not tried before @rest_until
 * @rest_until: jiffies
 * @window_error: why a window could not be had, which people have been told; or 0
 * @words_error: why nothing can be said, likewise
 * @work: calls ropcie_link_step() at each event and heartbeat
 * @dma: copies large payloads, or NULL; senders read it under RCU
 * @log: how often the log tells of it: its own, so that no peer can keep the log from
 *	telling of another
 * @error: a lane found that the peer breaks the protocol; set by anybody
 * @lane: lanes
 * @priv: the backend's
 */
struct ropcie_peer {
	struct kref ref;
	struct ropcie_adapter *adapter;
	u32 index;
	bool self;
	struct ropcie_peer *twin;
	bool up;
	u32 links;
	u32 nlanes;
	bool lanes_set;
	u8 mac[ETH_ALEN];
	u64 node_guid;
	struct ropcie_control *in;
	size_t in_size;
	struct ropcie_control *out;
	size_t out_size;
	phys_addr_t out_phys;
	bool write_combining;
	void *memory;
	resource_size_t memory_size;
	bool shows_memory;
	struct mutex mutex; /* state of the link */
	struct ropcie_peer_link link;
	bool link_ready;
	unsigned long stepped;
	bool rests;
	unsigned long rest_until;
	int window_error;
	int words_error;
	struct delayed_work work;
	struct ropcie_dma __rcu *dma;
	struct ratelimit_state log;
	int error;
	struct ropcie_lane lane[ROPCIE_MAX_LANES];
	void *priv;
};

/**
 * struct ropcie_adapter - one end of an NTB or of a loopback pair
 * @list: in the list of adapters
 * @name: for people
 * @dev: what it sits on
 * @backend: how it is joined to its peers
 * @priv: the backend's
 * @lanes: most lanes to a peer
 * @npeers: entries of @peer; the first is the own node
 * @peer: peers
 * @mqs: message queues by ID
 * @mutex: serialises start and stop
 * @identity: one peer at a time is checked and announced
 * @running: started, and not being stopped
 * @user: callbacks while started, else NULL
 * @ctx: for them
 * @mac: own hardware address
 * @node_guid: own node GUID
 * @last_poll: jiffies at the last ropcie_adapter_poll()
 * @last_arm: jiffies at the last ropcie_adapter_arm()
 * @doorbells: counter: doorbells received
 * @link_ups: counter
 * @link_losses: counter
 * @protocol_errors: counter
 * @tx_dma_bytes: counter
 * @dma_fallbacks: counter
 * @debugfs: directory
 */
struct ropcie_adapter {
	struct list_head list;
	const char *name;
	struct device *dev;
	const struct ropcie_backend *backend;
	void *priv;
	u32 lanes;
	u32 npeers;
	struct ropcie_peer **peer;
	struct xarray mqs;
	struct mutex mutex; /* start and stop */
	struct mutex identity; /* one peer at a time is checked and accepted */
	bool running;
	const struct ropcie_adapter_user *user;
	void *ctx;
	u8 mac[ETH_ALEN];
	u64 node_guid;
	unsigned long last_poll;
	unsigned long last_arm;
	atomic64_t doorbells;
	atomic64_t link_ups;
	atomic64_t link_losses;
	atomic64_t protocol_errors;
	atomic64_t tx_dma_bytes;
	atomic64_t dma_fallbacks;
	struct dentry *debugfs;
};

/* Module parameters (main.c), checked. */
extern unsigned int ropcie_lanes;
extern unsigned int ropcie_window_kib;
extern bool ropcie_hand_over;
extern int ropcie_dma_threshold;
extern bool ropcie_direct_placement;
extern unsigned int ropcie_heartbeat_ms;
extern unsigned int ropcie_heartbeat_limit_ms;
extern struct workqueue_struct *ropcie_link_wq;
u64 ropcie_spin_limit_ns(void);
/* A guess at what it costs to sleep and be woken by a doorbell. */
u64 ropcie_wake_ns(void);

/* A window of this size holds one lane of the smallest shape. */
size_t ropcie_window_min(void);
#define ROPCIE_WINDOW_MAX (64u << 20)

/* main.c */
u32 ropcie_num_lanes(u32 vectors);
void ropcie_adapter_add(struct ropcie_adapter *a);
void ropcie_adapter_remove(struct ropcie_adapter *a);

/* debugfs.c */
extern struct dentry *ropcie_debugfs;
void ropcie_debugfs_init(void);
void ropcie_debugfs_exit(void);
void ropcie_debugfs_add(struct ropcie_adapter *a);
void ropcie_debugfs_remove(struct ropcie_adapter *a);

/* adapter.c */
struct ropcie_adapter *ropcie_adapter_alloc(struct device *dev,
					    const char *name,
					    const struct ropcie_backend *backend,
					    u32 others, u32 lanes);
void ropcie_adapter_free(struct ropcie_adapter *a);

/* peer.c */
struct ropcie_peer *ropcie_peer_alloc(struct ropcie_adapter *a, u32 index,
				      bool self);
void ropcie_peer_release(struct kref *ref);
void ropcie_peer_start(struct ropcie_peer *peer);
void ropcie_peer_stop(struct ropcie_peer *peer);
int ropcie_peer_start_self(struct ropcie_peer *peer);
void ropcie_peer_stop_self(struct ropcie_peer *peer);
void ropcie_peer_kick(struct ropcie_peer *peer);
void ropcie_peer_fail(struct ropcie_peer *peer, int error);

static inline bool ropcie_peer_is_up(const struct ropcie_peer *peer)
{
	return smp_load_acquire(&peer->up); /* before its identity */
}

/* lane.c */
void ropcie_lane_init(struct ropcie_lane *lane, struct ropcie_peer *peer,
		      u32 index);
int ropcie_lane_open(struct ropcie_lane *lane,
		     const struct ropcie_link_offer *own, u32 own_epoch,
		     const struct ropcie_link_offer *theirs, u32 their_epoch);
void ropcie_lane_open_rx(struct ropcie_lane *lane);
void ropcie_lane_close(struct ropcie_lane *lane);
void ropcie_lane_free(struct ropcie_lane *lane);
int ropcie_lane_tx_place(struct ropcie_lane *lane, const struct ropcie_hdr *hdr,
			 struct ropcie_mq_placing *placing);
int ropcie_lane_tx_send(struct ropcie_lane *lane, const struct ropcie_hdr *hdr,
			const struct ropcie_vec *vec, u32 nvec);
int ropcie_lane_tx_reserve(struct ropcie_lane *lane,
			   const struct ropcie_hdr *hdr,
			   struct ropcie_lane_hole *hole);
void ropcie_lane_tx_fill(struct ropcie_lane *lane,
			 const struct ropcie_lane_hole *hole);
bool ropcie_lane_tx_idle_now(struct ropcie_lane *lane);
u64 ropcie_lane_position(const struct ropcie_lane *lane);
bool ropcie_lane_passed(struct ropcie_lane *lane, u64 pos);
void ropcie_lane_flush(struct ropcie_lane *lane);
bool ropcie_lane_pending(const struct ropcie_lane *lane);
u32 ropcie_lane_drain(struct ropcie_lane *lane);
void ropcie_lane_check_space(struct ropcie_lane *lane);
void ropcie_lane_ask_doorbell(struct ropcie_lane *lane);
void ropcie_lane_refuse_doorbell(struct ropcie_lane *lane);

/* dma.c */
struct seq_file;
void ropcie_dma_start(struct ropcie_peer *peer);
void ropcie_dma_check(struct ropcie_peer *peer);
void ropcie_dma_stop(struct ropcie_peer *peer);
void ropcie_dma_show(struct ropcie_peer *peer, struct seq_file *s);

static inline struct ropcie_dma *ropcie_peer_dma(struct ropcie_peer *peer)
{
	return rcu_dereference_protected(peer->dma,
					 lockdep_is_held(&peer->mutex));
}

/* lane_thread.c */
int ropcie_lane_start_threads(struct ropcie_lane *lane);
void ropcie_lane_stop_threads(struct ropcie_lane *lane);
void ropcie_lane_kick(struct ropcie_lane *lane);
void ropcie_lane_doorbell(struct ropcie_lane *lane);
int ropcie_lane_poll(struct ropcie_lane *lane);
void ropcie_lane_unpoll(struct ropcie_lane *lane);

#endif /* ROPCIE_NTB_IF_INTERNAL_H */
