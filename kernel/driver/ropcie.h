/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Objects of ropcie.ko, the verbs provider, and its locks. What is done with them is in
 * memory.h, queues.h, qp.h and ud.h, with odp.h and placement.h for memory that is not
 * pinned and for direct placement.
 *
 * The way of a work request: post.c -> work.c -> send.c, core/requester
 * -> ntb_if | ntb_if -> rx.c, core/responder -> complete.c, cq.c -> poll. Datagrams
 * turn off to ud.c.
 *
 * Locks, outermost first. Completion and event handlers are called by tasklets, with
 * none of them held and never in a call of their consumer. Under qp->lock, a lane's
 * and another QP's lock may be tried (struct ropcie_mq, take):
 *   devices_lock    which devices hear of their interfaces; process context
 *   dev->qp_mutex   which queue pairs, and queues of XRC, exist; process context
 *   qp->mutex       attributes and transitions of one QP; process context
 *   cq->resize      the ring of one CQ, whose entries may move; process context
 *   pinned->looking which pages of memory on demand are there; process context
 *   paging->lock    whose queue pair pages are brought in for; bottom halves off
 *   qp->lock        both engines of one QP, its state; bottom halves off
 *   qp->sq_lock, rq->post_lock   posters of one queue, and those who take from
 *                   a shared one; interrupts off
 *   dev->blocked_lock, dev->mr_lock   who waits for space; which keys there are;
 *	bottom halves off
 *   qp->loans_lock  which memory of one QP a DMA engine has; bottom halves off
 *   cq->lock        one CQ; interrupts off
 *   worker->lock    the ready list of one work consumer; interrupts off
 */
#ifndef ROPCIE_DRIVER_H
#define ROPCIE_DRIVER_H

#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

#include "bus/bus.h"
#include "core/datagram.h"
#include "core/event_policy.h"
#include "core/mr.h"
#include "core/qp_state.h"
#include "core/requester.h"
#include "core/responder.h"
#include "core/trial.h"
#include "core/uring.h"
#include "ntb_if/ntb_if.h"
#include "ropcie_compat.h"
#include "uapi/ropcie-abi.h"

/*
 * Memory behind what a process asks for: at its cgroup's expense, and where there
 * is no more, it is told so and not killed.
 */
#define ROPCIE_GFP_USER                                                        \
	(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/* Lists of who waits for space in a lane. */
#define ROPCIE_BLOCKED_BITS 4

#define ROPCIE_MAX_SGE 32
#define ROPCIE_MAX_WR 16384
#define ROPCIE_MAX_CQE BIT(16)
/* As many pages as kvmalloc() makes a table for. */
#define ROPCIE_MAX_MR_SIZE ((u64)(INT_MAX / sizeof(void *)) << PAGE_SHIFT)
#define ROPCIE_MAX_QP 16384
#define ROPCIE_MAX_CQ 16384
#define ROPCIE_MAX_SRQ 16384
#define ROPCIE_MAX_PD 16384
#define ROPCIE_MAX_MR 65535
#define ROPCIE_MAX_MW 65535
#define ROPCIE_MAX_FAST_REG_PAGES 1024
#define ROPCIE_MAX_DM_SIZE (16 * 1024 * 1024) /* of all, in bytes */
#define ROPCIE_MAX_AH 65536
/* Queue pairs in multicast groups: in all, and in one. */
#define ROPCIE_MAX_MCAST 1024
#define ROPCIE_MAX_MCAST_QP 128
#define ROPCIE_FIRST_QPN 16 /* 0 and 1 are IBTA's, a few are left to grow */
#define ROPCIE_LAST_QPN (ROPCIE_MULTICAST_QPN - 1)
#define ROPCIE_GSI_QPN 1
#define ROPCIE_MAX_RD_ATOMIC ROPCIE_RSP_DEPTH
#define ROPCIE_GID_TBL_LEN 128
/* Rights that a region, and a queue pair's peer, can be given. */
#define ROPCIE_MR_ACCESS                                                       \
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |                      \
	 IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)
/*
 * Payload of all but the last record of a message to another node: what one end copies
 * out while the other copies in. Where there is one copy, records are as large as may be.
 */
#define ROPCIE_FRAG 16384
/* Bytes that a poster sends in its own context before a consumer takes over. */
#define ROPCIE_POST_BUDGET (64 * 1024)
/* The same for whoever receives an acknowledge: he has a whole lane to drain. */
#define ROPCIE_RX_BUDGET ROPCIE_FRAG

/* What a device counts; names and meaning are in docs/verbs.md. */
enum ropcie_counter {
	ROPCIE_TX_SEND,
	ROPCIE_TX_WRITE,
	ROPCIE_TX_READ,
	ROPCIE_TX_ATOMIC,
	ROPCIE_TX_SEND_BYTES,
	ROPCIE_TX_WRITE_BYTES,
	ROPCIE_TX_READ_BYTES,
	ROPCIE_RX_SEND,
	ROPCIE_RX_WRITE,
	ROPCIE_RX_READ,
	ROPCIE_RX_ATOMIC,
	ROPCIE_RX_SEND_BYTES,
	ROPCIE_RX_WRITE_BYTES,
	ROPCIE_RX_READ_BYTES,
	/* In the order of enum ropcie_syndrome. */
	ROPCIE_TX_ACKS,
	ROPCIE_TX_RNR_NAKS,
	ROPCIE_TX_SEQ_NAKS,
	ROPCIE_TX_INV_REQ_NAKS,
	ROPCIE_TX_REM_ACCESS_NAKS,
	ROPCIE_TX_REM_OP_NAKS,
	ROPCIE_RX_ACKS,
	ROPCIE_RX_RNR_NAKS,
	ROPCIE_RX_SEQ_NAKS,
	ROPCIE_RX_INV_REQ_NAKS,
	ROPCIE_RX_REM_ACCESS_NAKS,
	ROPCIE_RX_REM_OP_NAKS,
	ROPCIE_TIMEOUTS,
	ROPCIE_RX_QKEY_VIOLATIONS,
	ROPCIE_RX_DATAGRAM_DROPS,
	ROPCIE_TX_DATAGRAM_DROPS,
	ROPCIE_TX_DIRECT_BYTES,
	ROPCIE_NUM_COUNTERS
};

struct ropcie_counters {
	u64 value[ROPCIE_NUM_COUNTERS];
};

/**
 * struct ropcie_dev - one RDMA device, on one adapter
 * @ib: the verbs device
 * @rdev: its device on the bus, or NULL: made by "rdma link add"
 * @adapter: what it sends and receives with
 * @netdev: its Ethernet interface; without @rdev somebody else's
 * @mac: address by which @adapter knows this node
 * @list: place on the list of all
 * @link: without @rdev: place on the list of these, with a reference to @ib
 * @ended: of these: it is memory only
 * @port_active: what the port's last event said
 * @qps: QP number to struct ropcie_qp
 * @qp_mutex: guards @qps
 * @next_qpn: where the search for a free number starts
 * @num_qps: queue pairs that there are, but QP1; under @qp_mutex
 * @members: queue pairs in multicast groups; changed under @qp_mutex, RCU
 * @num_members: how many; under @qp_mutex
 * @multicast_mq: where multicast datagrams arrive
 * @counters: of each processor; of all QPs that have no others
 * @qp_counters: those of other QPs, by number of the struct rdma_counter
 * @num_cqs: completion queues that there are
 * @num_srqs: shared receive queues that there are
 * @xrc_srqs: numbers to those of XRC; changed under @qp_mutex
 * @next_srqn: where the search for a free number starts
 * @ahs: numbers to the address handles that programs have; its lock, with
 *	interrupts off, guards them while work requests name them
 * @next_ah: where the search for a free number starts
 * @dm_pages: pages of device memory that were given out
 * @wc_names: names that rest, oldest first; under @qp_mutex
 * @num_wc_names: how many; under @qp_mutex
 * @pds: protection domain numbers
 * @mrs: keys to regions; @mr_lock for add and delete, RCU for find
 * @mr_slots: memory of @mrs
 * @num_mrs: regions, under @mr_lock
 * @num_mws: windows, under @mr_lock
 * @mr_lock: guards @mrs
 * @blocked: queue pairs that wait for space in a lane, by peer and lane
 * @blocked_lock: guards @blocked
 * @grants_back: who waits for what peers have to return (placement.c)
 */
struct ropcie_dev {
	struct ib_device ib;
	struct ropcie_device *rdev;
	struct ropcie_adapter *adapter;
	struct net_device *netdev;
	u8 mac[ETH_ALEN];
	struct list_head list;
	struct list_head link;
	bool ended;
	bool port_active;
	struct xarray qps;
	struct mutex qp_mutex; /* guards qps */
	u32 next_qpn;
	u32 num_qps;
	struct list_head members;
	u32 num_members;
	struct ropcie_mq multicast_mq;
	struct ropcie_counters __percpu *counters;
	struct xarray qp_counters;
	atomic_t num_cqs;
	atomic_t num_srqs;
	struct xarray xrc_srqs;
	u32 next_srqn;
	atomic_t dm_pages;
	struct xarray ahs;
	u32 next_ah;
	struct list_head wc_names;
	u32 num_wc_names;
	struct ida pds;
	struct ropcie_mr_table mrs;
	struct ropcie_mr_slot *mr_slots;
	u32 num_mrs;
	u32 num_mws;
	spinlock_t mr_lock; /* guards mrs against add and delete */
	struct list_head blocked[1 << ROPCIE_BLOCKED_BITS];
	spinlock_t blocked_lock; /* guards blocked */
	wait_queue_head_t grants_back;
};

struct ropcie_ucontext {
	struct ib_ucontext ibuc;
};

/**
 * struct ropcie_shared - memory that a process may map
 * @entry: place in its context's space of mmap offsets
 * @file: what is mapped
 * @pages: its pages
 * @num: how many
 * @addr: where the kernel has them, in a row
 * @charged: count of pages that they are part of, or NULL
 * @charge: pages that are taken off @charged at the end
 */
struct ropcie_shared {
	struct rdma_user_mmap_entry entry;
	struct file *file;
	struct page **pages;
	u32 num;
	void *addr;
	atomic_t *charged;
	u32 charge;
};

/**
 * struct ropcie_wc_name - what completions of a user's QP point at
 * @ibqp: of which only qp_num is set
 * @list: place on dev->wc_names when its QP is gone
 *
 * uverbs looks at wc->qp->qp_num after poll_cq has returned, when another
 * thread may have destroyed the QP. So that is not the QP: it is given to
 * another one only after many more have been destroyed, and freed with the
 * device, which so has a few more names than it has had such QPs at once.
 */
struct ropcie_wc_name {
	struct ib_qp ibqp;
	struct list_head list;
};

/* How many names rest before the oldest is used again. */
#define ROPCIE_WC_NAMES_RESTING 256

struct ropcie_pd {
	struct ib_pd ibpd;
	u32 num;
};

/**
 * struct ropcie_pinned - user memory behind a region, or behind two while one
 *	takes the other's place
 * @refs: those regions, and whoever brings its pages in
 * @umem: pinned pages, or memory that is brought in on demand (odp.h)
 * @pages: their addresses, or NULL of what is not there
 * @looking: on demand: one at a time looks which pages there are
 * @users: on demand: copies that may be under way
 * @table_pages: on demand: what counts as pinned of its process: the tables
 */
struct ropcie_pinned {
	refcount_t refs;
	struct ib_umem *umem;
	void **pages;
	struct mutex looking; /* one at a time looks */
	atomic_t users;
	u64 table_pages;
};

/**
 * ropcie_pinned_put() - give up a reference
 * @pinned: memory; the last reference unpins it
 *
 * Context: process.
 */
void ropcie_pinned_put(struct ropcie_pinned *pinned);

/**
 * struct ropcie_mr - a memory region
 * @ibmr: what verbs sees
 * @core: what the engines see
 * @pinned: user memory, or NULL
 * @buffer: buffer of another driver, or NULL
 * @buffer_addr: where it is mapped
 * @next_pages: pages that the next fast registration gives it
 * @max_pages: most of them
 * @num_pages: how many were mapped last
 * @mapped: they have not been registered yet
 * @replaced: another one has taken its key; under dev->mr_lock
 * @windows: that show it; under dev->mr_lock
 * @shows: of a window: the region that it shows, or NULL; under dev->mr_lock
 * @of_qp: of a window of type 2B: place on qp->windows; under dev->mr_lock
 * @device: verbs device; @ibmr is not used in windows
 * @grants: that peers have of it (placement.c)
 * @withdrawn: there will be none
 * @on_demand: @pinned, or that of the region that it shows, if it is such
 * @refs: table entry and users; region memory is freed when it falls to zero
 * @unused: completed then
 * @rcu: delays the freeing for ropcie_mr_find()
 */
struct ropcie_mr {
	struct ib_mr ibmr;
	struct ropcie_mr_core core;
	struct ropcie_pinned *pinned;
	struct dma_buf_attachment *buffer;
	void *buffer_addr;
	void **next_pages;
	u32 max_pages;
	u32 num_pages;
	bool mapped;
	bool replaced;
	u32 windows;
	struct ropcie_mr *shows;
	struct list_head of_qp;
	struct ib_device *device;
	atomic_t grants;
	bool withdrawn;
	struct ropcie_pinned *on_demand;
	refcount_t refs;
	struct completion unused;
	struct rcu_head rcu;
};

/* A memory window: its key is that of a struct ropcie_mr without memory. */
struct ropcie_mw {
	struct ib_mw ibmw;
	struct ropcie_mr *mr;
};

/* What the consumer of a CQ is to be told. */
enum ropcie_cq_due { ROPCIE_CQ_COMPLETED, ROPCIE_CQ_FAILED };

/**
 * struct ropcie_cq - a completion queue: a ring in kernel memory, or shared
 * @ibcq: what verbs sees
 * @resize: who replaces the ring or moves its entries; guards @reserved
 * @reserved: completions that there is room for behind @ibcq.cqe
 * @lock: guards all below
 * @shared: memory of @uring, or NULL
 * @uring: of a mapped queue, in the place of @ring to @tail
 * @ring: @size entries
 * @size: a power of two
 * @limit: of them may be used
 * @head: next to write
 * @tail: next to poll
 * @armed: notifications that the consumer asked for: IB_CQ_SOLICITED_MASK; of a
 *	mapped queue they are in @uring
 * @told: @head when the last event was raised; of a mapped queue in @uring
 * @left: the last poll has not taken all that there was
 * @gap: first entry that is there no more, while those of a queue pair are taken out
 * @gap_end: first behind it that is
 * @overflow: an entry was lost: nothing is added any more (IBTA 11.6.3)
 * @ends: it is being destroyed: the consumer is told no more
 * @timestamps: the process wants to know when
 * @policy: when the consumer is told
 * @look: looks whether it is time to
 * @due: bits of enum ropcie_cq_due
 * @notify: calls the consumer, one call at a time and never from his own calls
 */
struct ropcie_cq {
	struct ib_cq ibcq;
	struct mutex resize; /* of the ring's entries; guards @reserved */
	u32 reserved;
	spinlock_t lock; /* guards all below */
	struct ropcie_shared *shared;
	struct ropcie_uring uring;
	struct ib_wc *ring;
	u32 size;
	u32 limit;
	u32 head;
	u32 tail;
	u32 armed;
	u32 told;
	u32 gap;
	u32 gap_end;
	bool left;
	bool overflow;
	bool ends;
	bool timestamps;
	struct ropcie_event_policy policy;
	struct hrtimer look;
	unsigned long due;
	struct tasklet_struct notify;
};

/* A work request in the receive queue. */
struct ropcie_recv_wqe {
	u64 wr_id;
	u64 length;
	u32 num_sge;
	struct ropcie_sge sge[];
};

/**
 * struct ropcie_rq - a receive queue, of one QP or shared
 * @ring: @size entries of @stride bytes
 * @size: a power of two
 * @stride: bytes from one entry to the next
 * @max_wr: most entries in use
 * @max_sge: most SGEs of an entry
 * @head: next to post; written under @post_lock
 * @tail: oldest not completed; written under the QP's lock. Of a shared
 *	queue: oldest not taken, written under @post_lock
 * @post_lock: one poster at a time
 * @uring: of a mapped queue: where the process posts; @ring is filled from it
 * @uwqe: a copy of one of its entries; under @post_lock
 */
struct ropcie_rq {
	void *ring;
	u32 size;
	u32 stride;
	u32 max_wr;
	u32 max_sge;
	u32 head;
	u32 tail;
	spinlock_t post_lock; /* one poster at a time */
	struct ropcie_uring uring;
	struct ropcie_abi_recv_wqe *uwqe;
};

struct ropcie_xrcd {
	struct ib_xrcd ibxrcd;
};

/**
 * struct ropcie_srq - a shared receive queue
 * @ibsrq: what verbs sees
 * @resize: one at a time
 * @shared: memory of a mapped queue, or NULL
 * @rq: the queue
 * @limit: raise an event, and disarm, when it has less receives; 0 for never
 * @limit_reached: raises that event
 */
struct ropcie_srq {
	struct ib_srq ibsrq;
	struct mutex resize; /* one at a time */
	struct ropcie_shared *shared;
	struct ropcie_rq rq;
	u32 limit;
	struct tasklet_struct limit_reached;
};

/**
 * struct ropcie_ah - an address handle
 * @ibah: what verbs sees
 * @attr: as given, without a reference of its own
 * @route: what goes into the header of a datagram
 * @dmac: hardware address, which names the peer
 * @vlan: VLAN of its source GID, or ROPCIE_NO_VLAN
 * @number: its place in dev->ahs, or 0
 */
struct ropcie_ah {
	struct ib_ah ibah;
	struct rdma_ah_attr attr;
	struct ropcie_route route;
	u8 dmac[ETH_ALEN];
	u16 vlan;
	u32 number;
};

/**
 * struct ropcie_av - destination of a datagram in the send queue
 * @dmac: hardware address
 * @grh: what goes before the payload
 */
struct ropcie_av {
	u8 dmac[ETH_ALEN];
	u8 grh[ROPCIE_GRH_LEN];
};

enum ropcie_qp_flag {
	ROPCIE_QP_QUEUED, /* on a work consumer's list, or run by it */
	ROPCIE_QP_DELAYED, /* the work consumer is not woken yet */
	ROPCIE_QP_OWES, /* on a list of ropcie_settle() */
	ROPCIE_QP_RUNS, /* is to be run there; else it only answers */
	ROPCIE_QP_BLOCKED, /* on dev->blocked */
	ROPCIE_QP_COMM_EST /* that event was raised */
};

/* For what of a queue pair. Each waits for memory by itself. */
enum ropcie_side {
	ROPCIE_REQUESTER, /* what it sends */
	ROPCIE_SINK, /* where the answers to it go */
	ROPCIE_RESPONDER, /* what a request goes to, and the beginning of a READ */
	ROPCIE_SOURCE, /* the answers to READs */
	ROPCIE_SIDES
};

/**
 * struct ropcie_page_in - memory that one side of a queue pair waits for (odp.c);
 *	under qp->lock
 * @work: brings it in
 * @paging: that of the queue pair; with a reference while @busy, as to the module
 * @pinned: the memory; with a reference while @busy
 * @key: of the region
 * @first: its first page that is missing
 * @num: pages to bring in
 * @busy: it is being done
 * @failed: the first page could not be brought in
 * @fetch: ROPCIE_SINK: the data have to be asked for again then
 */
struct ropcie_page_in {
	struct work_struct work;
	struct ropcie_paging *paging;
	struct ropcie_pinned *pinned;
	u32 key;
	u64 first;
	u32 num;
	bool busy;
	bool failed;
	bool fetch;
};

/**
 * struct ropcie_paging - what a queue pair waits for; memory that never comes may
 *	outlive it, and a queue pair that is reset gets another one
 * @refs: the queue pair and the works that are under way
 * @lock: guards @qp; taken before qp->lock
 * @qp: queue pair, or NULL when it is gone
 * @sides: of enum ropcie_side
 */
struct ropcie_paging {
	refcount_t refs;
	spinlock_t lock; /* guards qp */
	struct ropcie_qp *qp;
	struct ropcie_page_in sides[ROPCIE_SIDES];
};

/**
 * struct ropcie_qp - a queue pair
 * @ibqp: what verbs sees
 * @dev: device
 * @counters: where it counts: @dev's own, or those that it is bound to; under
 *	@lock
 * @wc_name: what completions of a user's QP point at, or NULL
 * @lock: engines and @state
 * @mutex: modify and query
 * @state: under @lock; modify changes it under @mutex, too
 * @attr: attributes as set, for query_qp; under @mutex
 * @init: attributes that it was created with
 * @req: requester; its post side under @sq_lock
 * @sq_ring: memory of its send queue
 * @sq_lock: one poster at a time
 * @sq_max_wr: most send work requests
 * @sq_area: bytes behind an entry of @sq_ring for its list or its inline data
 * @shared: memory of mapped queues, or NULL
 * @sq_uring: of a mapped queue: where the process posts; @sq_ring is filled
 *	from it under @sq_lock
 * @sq_uwqe: a copy of one of its entries
 * @sq_trial: whether it pays to wait for more of them; under @sq_lock
 * @sq_waits_at: where the process's index was when the wait began; likewise
 * @rsp: responder
 * @rq: receive queue; of no entries with @srq
 * @srq: shared receive queue, or NULL. Of XRC: that of the last request; under
 *	@lock
 * @held: copy of the receive that was taken from @srq
 * @holds: there is one
 * @request_mq: where the peer's requests arrive
 * @response_mq: where the answers to own requests arrive
 * @tx: where both of the peer's queues are. Of datagrams: where the last one
 *	went, or nowhere
 * @connected: the queues are open, and @tx is set but for datagrams
 * @qkey: Q_Key of datagrams that arrive
 * @full_until: datagrams: for each peer and the own node, until when one waits that
 *	finds the lane to it full, ns; 0: the last one got through
 * @flags: bits of enum ropcie_qp_flag
 * @windows: of type 2B that it has bound; under dev->mr_lock
 * @ready: place on a work consumer's list
 * @blocked: place on dev->blocked
 * @blocked_peer: peer of the full lane that it waits for
 * @blocked_lane: number of that lane
 * @owes: place on a list of ropcie_settle()
 * @owes_to: processor whose list that is
 * @refs: queues and lists that hold the QP
 * @unused: completed when @refs falls to zero
 * @timer: the requester's deadline
 * @timer_at: when @timer fires, ns; 0 when it is not running
 * @sq_drained: SQD: that event was raised
 * @last_wqe_due: ERR: the event of the last work request of a shared queue is not
 * @loans_lock: guards the two that follow
 * @loans: requests whose payload a DMA engine copies, oldest first (loan.c)
 * @loans_awaited: the end of the last of them is to be told
 * @paging: memory that it waits for
 * @place: direct placement, or NULL; under @lock
 * @lost: a completion was lost; under @lock, and seen to before that is released
 * @events: bits of enum ib_event_type that are to be raised
 * @raise: raises them, with no lock held and never in the consumer's own calls
 */
struct ropcie_qp {
	struct ib_qp ibqp;
	struct ropcie_dev *dev;
	struct ropcie_counters __percpu *counters;
	struct ropcie_wc_name *wc_name;
	spinlock_t lock; /* guards engines and state */
	struct mutex mutex; /* one modify at a time; guards attr */
	enum ib_qp_state state;
	struct ib_qp_attr attr;
	struct ib_qp_init_attr init;

	struct ropcie_requester req;
	void *sq_ring;
	spinlock_t sq_lock; /* one poster at a time */
	u32 sq_max_wr;
	u32 sq_area;
	struct ropcie_shared *shared;
	struct ropcie_uring sq_uring;
	struct ropcie_abi_send_wqe *sq_uwqe;
	struct ropcie_trial sq_trial;
	u32 sq_waits_at;
	struct ropcie_responder rsp;
	struct ropcie_rq rq;
	struct ropcie_srq *srq;
	struct ropcie_recv_wqe *held;
	bool holds;

	struct ropcie_mq request_mq;
	struct ropcie_mq response_mq;
	struct ropcie_mq_tx tx;
	bool connected;
	u32 qkey;
	u64 *full_until;

	unsigned long flags;
	struct list_head windows;
	struct list_head ready;
	struct list_head blocked;
	const struct ropcie_peer *blocked_peer;
	u32 blocked_lane;
	struct list_head owes;
	int owes_to;
	refcount_t refs;
	struct completion unused;
	struct hrtimer timer;
	u64 timer_at;
	bool sq_drained;
	bool last_wqe_due;
	spinlock_t loans_lock; /* guards loans, and loans_awaited */
	struct list_head loans;
	bool loans_awaited;
	struct ropcie_paging *paging;
	struct ropcie_placement *place;
	bool lost;
	unsigned long events;
	struct tasklet_struct raise;
};

static inline struct ropcie_dev *to_rdev(struct ib_device *ib)
{
	return container_of(ib, struct ropcie_dev, ib);
}

static inline struct ropcie_pd *to_rpd(struct ib_pd *ibpd)
{
	return container_of(ibpd, struct ropcie_pd, ibpd);
}

static inline struct ropcie_mr *to_rmr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct ropcie_mr, ibmr);
}

static inline struct ropcie_cq *to_rcq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct ropcie_cq, ibcq);
}

static inline struct ropcie_ah *to_rah(struct ib_ah *ibah)
{
	return container_of(ibah, struct ropcie_ah, ibah);
}

static inline struct ropcie_srq *to_rsrq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct ropcie_srq, ibsrq);
}

static inline struct ropcie_qp *to_rqp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct ropcie_qp, ibqp);
}

/* Does it send datagrams? */
static inline bool ropcie_is_ud(const struct ropcie_qp *qp)
{
	return qp->ibqp.qp_type == IB_QPT_UD || qp->ibqp.qp_type == IB_QPT_GSI;
}

/* Does it know what became of each request? */
static inline bool ropcie_is_reliable(const struct ropcie_qp *qp)
{
	return qp->ibqp.qp_type == IB_QPT_RC ||
	       qp->ibqp.qp_type == IB_QPT_XRC_INI ||
	       qp->ibqp.qp_type == IB_QPT_XRC_TGT;
}

/* Does it receive for whatever shared queue a request names? */
static inline bool ropcie_is_xrc_target(const struct ropcie_qp *qp)
{
	return qp->ibqp.qp_type == IB_QPT_XRC_TGT;
}

/*
 * The domain of the memory that receives name (IBTA 10.2.9.2: of a shared queue
 * its own); qp->lock is held.
 */
static inline struct ib_pd *ropcie_recv_pd(const struct ropcie_qp *qp)
{
	return qp->srq ? qp->srq->ibsrq.pd : qp->ibqp.pd;
}

/*
 * The domain of the memory that the peer names. Of XRC it is that of the shared
 * queue that the request names (IBTA annex A14), or NULL. qp->lock is held.
 */
static inline struct ib_pd *ropcie_remote_pd(const struct ropcie_qp *qp)
{
	return ropcie_is_xrc_target(qp) ? ropcie_recv_pd(qp) : qp->ibqp.pd;
}

/* Nothing is known to come with this command; what comes is refused. */
static inline bool ropcie_udata_unknown(struct ib_udata *udata)
{
	return udata && udata->inlen &&
	       !ib_is_udata_cleared(udata, 0, udata->inlen);
}

/**
 * ropcie_copy_req() - what a process passes with a command
 * @udata: the driver's part of the command, or NULL: the kernel's own user
 * @req: result, all zero: an older library passes less
 * @size: bytes of @req
 *
 * Return: 0; -EOPNOTSUPP when a newer library asks for what is not known here; or
 * -EFAULT.
 */
static inline int ropcie_copy_req(struct ib_udata *udata, void *req,
				  size_t size)
{
	if (!udata)
		return 0;
	if (udata->inlen > size &&
	    !ib_is_udata_cleared(udata, size, udata->inlen - size))
		return -EOPNOTSUPP;
	return ib_copy_from_udata(req, udata, min(size, udata->inlen));
}

/*
 * Work that takes locks with bottom halves off can run here: neither in a
 * hard interrupt nor under somebody's spin_lock_irqsave().
 */
static inline bool ropcie_may_run(void)
{
	return !in_hardirq() && !irqs_disabled();
}

/* Where a time-out of many ticks begins: cheap, and late rather than early. */
#define ROPCIE_COARSE_NS (16 * TICK_NSEC)

static inline u64 ropcie_timeout_base(u64 timeout_ns)
{
	return timeout_ns < ROPCIE_COARSE_NS ? ktime_get_ns() :
					       ktime_get_coarse_ns() + TICK_NSEC;
}

/* main.c */
/**
 * struct ropcie_dev_origin - where a new verbs device comes from
 * @adapter: what it sends and receives with
 * @rdev: its device on the bus, or NULL
 * @netdev: without @rdev: interface that it borrows
 * @name: name, or pattern of it
 */
struct ropcie_dev_origin {
	struct ropcie_adapter *adapter;
	struct ropcie_device *rdev;
	struct net_device *netdev;
	const char *name;
};

/**
 * ropcie_dev_create() - make a verbs device and register it
 * @origin: where it comes from
 *
 * It ends with ib_unregister_device(). Without @origin->rdev the caller gets a
 * reference to its memory. May sleep. Return: device, or an error pointer; then the
 * origin is the caller's again.
 */
struct ropcie_dev *ropcie_dev_create(const struct ropcie_dev_origin *origin);

/**
 * ropcie_dev_mac() - by which address the adapter knows a destination
 * @dev: device
 * @source: GID that is sent from
 * @dmac: hardware address of the destination; its own when it is that of @source,
 *	whose interface may be another one above the device's
 */
const u8 *ropcie_dev_mac(const struct ropcie_dev *dev,
			 const struct ib_gid_attr *source, const u8 *dmac);

/* link.c */
void ropcie_link_init(void);
/* No device made by "rdma link add" is left when this returns. */
void ropcie_link_exit(void);

/* stats.c */
static inline void ropcie_count(struct ropcie_counters __percpu *counters,
				u32 id, u64 n)
{
	this_cpu_add(counters->value[id], n);
}

u64 ropcie_counter_sum(struct ropcie_counters __percpu *counters,
		       enum ropcie_counter id);
int ropcie_counter_bind_qp(struct rdma_counter *counter, struct ib_qp *ibqp);
int ropcie_counter_unbind_qp(struct ib_qp *ibqp);
int ropcie_counter_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *ropcie_counter_alloc_stats(struct rdma_counter *counter);
int ropcie_counter_update_stats(struct rdma_counter *counter);
struct rdma_hw_stats *ropcie_alloc_hw_port_stats(struct ib_device *ibdev,
						 u32 port);
int ropcie_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
			u32 port, int index);
int ropcie_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp);
int ropcie_fill_res_cq_entry(struct sk_buff *msg, struct ib_cq *ibcq);
int ropcie_fill_res_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr);

#endif /* ROPCIE_DRIVER_H */
