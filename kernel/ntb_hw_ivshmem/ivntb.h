/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The driver's own state, shared by its files. layout.h says what the other
 * side sees; docs/ntb-emulation.md explains how it works.
 */
#ifndef _IVNTB_H
#define _IVNTB_H

#include <linux/interrupt.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/ratelimit.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#include "layout.h"

/* BAR0 of the ivshmem device, QEMU's docs/specs/ivshmem-spec.txt. */
#define IVSHMEM_REG_INTRMASK	0 /* of INTx, which is not used */
#define IVSHMEM_REG_IVPOSITION	8
#define IVSHMEM_REG_DOORBELL	12

#define IVSHMEM_BAR_REGS	0
#define IVSHMEM_BAR_MEM		2

#define IVNTB_MAX_VECTORS	32
/* The vector that also says: look at link and messages. */
#define IVNTB_SERVICE_VECTOR	0

/* What a family of hardware has, or does oddly. */
#define IVNTB_ALL_CALLS			BIT(0) /* also what none has */
#define IVNTB_PORT_NUMBERS		BIT(1) /* port_number and the like */
#define IVNTB_READ_MASK			BIT(2) /* db_read_mask */
#define IVNTB_SPAD_ADDR			BIT(3) /* peer_spad_addr */
#define IVNTB_BAR_ALIGNED		BIT(4) /* translation, to the window's size */
#define IVNTB_SENDER_TRANSLATES		BIT(5) /* peer_mw_set_trans */
#define IVNTB_WHOLE_WINDOWS		BIT(6) /* no part of one is translated */
#define IVNTB_LINK_INSIDE		BIT(7) /* events from within link_enable */
#define IVNTB_EMPTY_RINGS		BIT(8) /* only the first bit interrupts */
#define IVNTB_BELLS_ARE_INTERRUPTS	BIT(9) /* no mask, one bit at a time */
#define IVNTB_BELLS_FOR_ALL		BIT(10) /* all ports see all bits */
#define IVNTB_NO_FLAT			BIT(11) /* no window of all memory */
#define IVNTB_SHUTDOWN			BIT(12) /* reboot and kexec take the link down */

/*
 * struct ivntb_family - what a driver of Linux shows of its hardware
 * @name:	Of the parameter.
 * @topo:	Of port 0 and of the others.
 * @max_ports:	Ports that there can be.
 * @spads:	Default of the parameter; so are
 * @msgs:	this,
 * @mw_count:	this,
 * @mw_size:	this, and
 * @interrupts:	that: of vectors=.
 * @db_bits:	Valid doorbell bits of port 0 and of the others.
 * @vectors:	Doorbell vectors that clients see; 0: it does not say.
 * @vector_bits: Doorbell bits of each. 0: clients see the interrupts.
 * @link:	For port 0 and the others: @always wants the link, whatever the
 *		client does, and the client gets @answer.
 * @flags:	See above.
 */
struct ivntb_family {
	const char *name;
	enum ntb_topo topo[2];
	int max_ports;
	int spads;
	int msgs;
	int mw_count;
	resource_size_t mw_size;
	int interrupts;
	int db_bits[2];
	int vectors;
	int vector_bits;
	struct {
		bool always;
		int answer;
	} link[2];
	unsigned int flags;
};

/*
 * enum ivntb_state - this end of the link to one peer
 * @IVNTB_DOWN_NEW:	Down, and the client may not know it yet.
 * @IVNTB_DOWN:		Down, and held there for a while.
 * @IVNTB_ACKED:	This port has accepted the peer's epoch.
 * @IVNTB_UP:		The peer has accepted this port's epoch, too.
 */
enum ivntb_state {
	IVNTB_DOWN_NEW,
	IVNTB_DOWN,
	IVNTB_ACKED,
	IVNTB_UP,
};

/*
 * enum ivntb_cable - faults that debugfs can inject
 * @IVNTB_CABLE_IN:	None.
 * @IVNTB_CABLE_OUT:	The link is down, and both sides see it at once.
 * @IVNTB_CABLE_DEAD:	The port says and sees nothing of the link any more,
 *			as if its guest had been stopped or killed; doorbells
 *			and messages go on.
 */
enum ivntb_cable {
	IVNTB_CABLE_IN,
	IVNTB_CABLE_OUT,
	IVNTB_CABLE_DEAD,
};

/*
 * enum ivntb_bells - faults of doorbells that debugfs can inject
 * @IVNTB_BELLS_NORMAL:		None.
 * @IVNTB_BELLS_LOSE:		Each n-th that this port rings is lost.
 * @IVNTB_BELLS_DELAY:		They ring n milliseconds late.
 * @IVNTB_BELLS_DOUBLE:		They ring now and once more a moment later.
 * @IVNTB_BELLS_SPURIOUS:	Each n milliseconds an event without a bit.
 */
enum ivntb_bells {
	IVNTB_BELLS_NORMAL,
	IVNTB_BELLS_LOSE,
	IVNTB_BELLS_DELAY,
	IVNTB_BELLS_DOUBLE,
	IVNTB_BELLS_SPURIOUS,
};

/*
 * struct ivntb_window - one inbound memory window
 * @virt:	Where the CPU sees it.
 * @dma:	Its address on the bus, and what a client's dma_alloc returns.
 * @busy:	A client has allocated it. Under ivntb_dev.mw_lock.
 */
struct ivntb_window {
	void *virt;
	dma_addr_t dma;
	bool busy;
};

/*
 * struct ivntb_peer - another port, as this one knows it
 * @port:	Its number.
 * @hdr:	Its header. All of it may be garbage at any time.
 * @out:	What this port tells it.
 * @in:		What it tells this port.
 * @db_bits:	Doorbell bits that reach it.
 * @ivpos:	Its device's ID and
 * @vectors:	number of vectors; both checked when it is accepted.
 * @state:	Of this end of the link. This and the rest under link_lock.
 * @epoch:	Of this port's end.
 * @accepted:	Its epoch that this port accepted, or 0.
 * @heartbeat:	The last one seen,
 * @beat_at:	when it was first seen (jiffies), and
 * @beats:	how many have been seen, up to 2: the first may be of a dead
 *		port.
 * @down_since:	Since when the client knows that the link is down (jiffies).
 * @complained:	Its layout differs, and that has been said.
 * @log:	How often that may be.
 * @in_epoch:	What the last poll found, for the interrupt handler to compare.
 * @in_seen:	Likewise.
 * @in_enabled:	Likewise.
 * @msg_told:	Its messages that the client knows of, or has to look for. Under msg_lock.
 * @windows:	The memory that it writes to.
 * @flat:	The device that shows its memory, or NULL.
 * @flat_size:	Bytes of that, or 0.
 */
struct ivntb_peer {
	int port;
	struct ivntb_port *hdr;
	struct ivntb_pair *out;
	struct ivntb_pair *in;
	u64 db_bits;
	u32 ivpos;
	u32 vectors;

	enum ivntb_state state;
	u32 epoch;
	u32 accepted;
	u64 heartbeat;
	unsigned long beat_at;
	unsigned int beats;
	unsigned long down_since;
	bool complained;
	struct ratelimit_state log;
	u32 in_epoch;
	u32 in_seen;
	u32 in_enabled;
	u32 msg_told[IVNTB_MAX_MSGS];

	struct ivntb_window windows[IVNTB_MAX_MWS];
	struct pci_dev *flat;
	resource_size_t flat_size;
};

struct ivntb_vector {
	struct ivntb_dev *ndev;
	int index;
	u64 db_bits;
};

/* Counters for debugfs; approximate: two interrupts may count at the same time. */
struct ivntb_stats {
	u64 irqs;
	u64 db_events;
	u64 db_rung;
	u64 db_coalesced;
	u64 db_masked;
	u64 db_faults;
	u64 link_ups;
	u64 link_downs;
	u64 out_trans;
};

/*
 * struct ivntb_dev - one ivshmem device as an NTB port
 * @family:	Hardware that it is like, and
 * @ops:	the calls that this has.
 * @started:	Events may be given to ntb.ko.
 * @db_stride:	Doorbell bit b reaches port b % db_stride; 1 with two ports.
 * @link_lock:	Protects the states of all peers and this port's words about
 *		the link. Never held while a client is called.
 * @link_up:	A bit per peer: what the client sees.
 * @link_told:	What the client was last told.
 * @link_open:	Peers whose doorbells and messages the client sees: those that
 *		it has been told are up.
 * @enabled:	The client wants the link.
 * @cable:	What debugfs has done to the cable.
 * @gone:	Shut down, or another device has taken the port over.
 * @db_lock:	Protects this port's words about doorbells.
 * @db_filled:	IVNTB_EMPTY_RINGS: bits have been pending since the last look.
 * @bells:	What debugfs has done to the doorbells, with
 * @bells_n:	the number that belongs to it. Under db_lock, as
 * @bells_count:	doorbells rung since then, and
 * @db_late:	bits that @bells_timer rings.
 * @msg_lock:	Protects this port's words about messages.
 * @msg_src:	Peer whose messages the registers show.
 * @msg_from:	Peer whose message the client has read in each of them; or -1.
 * @msg_out:	Status bits of messages that could not be sent.
 * @msg_mask:	Status bits that raise no event.
 * @mw_wrap:	Take window indices modulo their number.
 * @flat:	There is one more window for each peer, the flat one.
 * @flat_size:	Its size, which covers this guest's memory, or 0.
 * @mw_lock:	Protects the windows' allocation, and
 * @mw_task:	who last asked for the properties of which window: it will
 *		allocate that one next. With a reference, so that no other task
 *		gets its place.
 * @mw_hint:	That window.
 */
struct ivntb_dev {
	struct ntb_dev ntb;
	const struct ivntb_family *family;
	struct ntb_dev_ops ops;
	struct pci_dev *pdev;
	void __iomem *regs;
	struct ivntb_port *headers;
	struct ivntb_port *self;
	bool started;

	u32 ivpos;
	int port;
	int ports;
	int peer_count;
	struct ivntb_peer peers[IVNTB_MAX_PORTS - 1];

	int vector_count;
	struct ivntb_vector vectors[IVNTB_MAX_VECTORS];
	u64 db_valid;
	int db_stride;

	int mw_count;
	resource_size_t mw_size;
	resource_size_t mw_offset;
	bool mw_wrap;
	void *inbound;
	bool flat;
	resource_size_t flat_size;
	int spad_count;
	int msg_count;

	/* link states and this port's words about the link */
	spinlock_t link_lock;
	u64 link_up;
	u64 link_told;
	u64 link_open;
	bool enabled;
	enum ivntb_cable cable;
	bool gone;
	u64 heartbeat;
	struct timer_list beat_timer;
	struct workqueue_struct *wq;
	struct work_struct link_work;

	/* this port's words about doorbells */
	spinlock_t db_lock;
	u64 db_mask;
	bool db_filled;
	enum ivntb_bells bells;
	unsigned int bells_n;
	unsigned int bells_count;
	u64 db_late;
	struct timer_list bells_timer;

	/* this port's words about messages */
	spinlock_t msg_lock;
	int msg_src;
	int msg_from[IVNTB_MAX_MSGS];
	u64 msg_out;
	u64 msg_mask;

	/* allocation of the windows */
	spinlock_t mw_lock;
	struct task_struct *mw_task;
	struct ivntb_window *mw_hint;

	struct ivntb_stats stats;
	struct dentry *debugfs;
};

static inline struct ivntb_dev *ivntb_ndev(struct ntb_dev *ntb)
{
	return container_of(ntb, struct ivntb_dev, ntb);
}

/* Interrupts the device with an ID; one that is absent does not hear it. */
static inline void ivntb_interrupt(struct ivntb_dev *ndev, u32 ivpos, u32 vector)
{
	writel(ivpos << 16 | vector, ndev->regs + IVSHMEM_REG_DOORBELL);
}

/* The half of a family's table that is this port's. */
static inline int ivntb_side(const struct ivntb_dev *ndev)
{
	return ndev->port > 0;
}

static inline bool ivntb_is(const struct ivntb_dev *ndev, unsigned int flag)
{
	return ndev->family->flags & flag;
}

/* family.c */
const struct ivntb_family *ivntb_family_find(const char *name);
int ivntb_family_number(const struct ivntb_dev *ndev);
void ivntb_family_ops(struct ivntb_dev *ndev, const struct ntb_dev_ops *all);
u64 ivntb_family_rung(const struct ivntb_dev *ndev, u64 bits);
int ivntb_family_event(const struct ivntb_dev *ndev, int index);

/* link.c */
void ivntb_link_init(struct ivntb_dev *ndev);
void ivntb_link_start(struct ivntb_dev *ndev);
void ivntb_link_stop(struct ivntb_dev *ndev);
void ivntb_link_irq(struct ivntb_dev *ndev);
void ivntb_link_cable(struct ivntb_dev *ndev, enum ivntb_cable cable);
void ivntb_link_blip(struct ivntb_dev *ndev);
void ivntb_link_work(struct work_struct *work);
void ivntb_beat_timer(struct timer_list *timer);
u64 ivntb_link_is_up(struct ntb_dev *ntb, enum ntb_speed *speed,
		     enum ntb_width *width);
int ivntb_link_enable(struct ntb_dev *ntb, enum ntb_speed max_speed,
		      enum ntb_width max_width);
int ivntb_link_disable(struct ntb_dev *ntb);

/* doorbell.c */
void ivntb_db_init(struct ivntb_dev *ndev);
void ivntb_db_irq(struct ivntb_vector *vector);
void ivntb_db_reopen(struct ivntb_dev *ndev);
void ivntb_bells_timer(struct timer_list *timer);
void ivntb_bells_set(struct ivntb_dev *ndev, enum ivntb_bells bells,
		     unsigned int n);
void ivntb_bells_stop(struct ivntb_dev *ndev);
void ivntb_db_reset(struct ivntb_dev *ndev, struct ivntb_peer *peer);
u64 ivntb_db_valid_mask(struct ntb_dev *ntb);
int ivntb_db_vector_count(struct ntb_dev *ntb);
u64 ivntb_db_vector_mask(struct ntb_dev *ntb, int vector);
u64 ivntb_db_read(struct ntb_dev *ntb);
int ivntb_db_set(struct ntb_dev *ntb, u64 bits);
int ivntb_db_clear(struct ntb_dev *ntb, u64 bits);
u64 ivntb_db_read_mask(struct ntb_dev *ntb);
int ivntb_db_set_mask(struct ntb_dev *ntb, u64 bits);
int ivntb_db_clear_mask(struct ntb_dev *ntb, u64 bits);
int ivntb_peer_db_set(struct ntb_dev *ntb, u64 bits);

/* register.c */
void ivntb_register_init(struct ivntb_dev *ndev);
void ivntb_msg_irq(struct ivntb_dev *ndev);
void ivntb_msg_refire(struct ivntb_dev *ndev);
void ivntb_msg_reset(struct ivntb_dev *ndev, struct ivntb_peer *peer);
int ivntb_spad_count(struct ntb_dev *ntb);
u32 ivntb_spad_read(struct ntb_dev *ntb, int idx);
int ivntb_spad_write(struct ntb_dev *ntb, int idx, u32 val);
int ivntb_peer_spad_addr(struct ntb_dev *ntb, int pidx, int idx,
			 phys_addr_t *addr);
u32 ivntb_peer_spad_read(struct ntb_dev *ntb, int pidx, int idx);
int ivntb_peer_spad_write(struct ntb_dev *ntb, int pidx, int idx, u32 val);
int ivntb_msg_count(struct ntb_dev *ntb);
u64 ivntb_msg_inbits(struct ntb_dev *ntb);
u64 ivntb_msg_outbits(struct ntb_dev *ntb);
u64 ivntb_msg_read_sts(struct ntb_dev *ntb);
int ivntb_msg_clear_sts(struct ntb_dev *ntb, u64 bits);
int ivntb_msg_set_mask(struct ntb_dev *ntb, u64 bits);
int ivntb_msg_clear_mask(struct ntb_dev *ntb, u64 bits);
u32 ivntb_msg_read(struct ntb_dev *ntb, int *pidx, int midx);
int ivntb_peer_msg_write(struct ntb_dev *ntb, int pidx, int midx, u32 msg);

/* window.c */
int ivntb_window_layout(struct ivntb_dev *ndev, resource_size_t max_size);
int ivntb_window_init(struct ivntb_dev *ndev);
void ivntb_window_exit(struct ivntb_dev *ndev);
int ivntb_mw_count(struct ntb_dev *ntb, int pidx);
int ivntb_mw_get_align(struct ntb_dev *ntb, int pidx, int widx,
		       resource_size_t *addr_align, resource_size_t *size_align,
		       resource_size_t *size_max);
int ivntb_mw_set_trans(struct ntb_dev *ntb, int pidx, int widx,
		       dma_addr_t addr, resource_size_t size);
int ivntb_mw_clear_trans(struct ntb_dev *ntb, int pidx, int widx);
int ivntb_peer_mw_set_trans(struct ntb_dev *ntb, int pidx, int widx, u64 addr,
			    resource_size_t size);
int ivntb_peer_mw_clear_trans(struct ntb_dev *ntb, int pidx, int widx);
int ivntb_peer_mw_count(struct ntb_dev *ntb);
int ivntb_peer_mw_get_addr(struct ntb_dev *ntb, int widx, phys_addr_t *base,
			   resource_size_t *size);

/* flat.c */
int ivntb_flat_init(struct ivntb_dev *ndev);
void ivntb_flat_exit(struct ivntb_dev *ndev);
void ivntb_flat_publish(struct ivntb_dev *ndev);
bool ivntb_flat_fits(struct ivntb_dev *ndev, struct ivntb_peer *peer);
bool ivntb_flat_is_open(struct ivntb_dev *ndev, struct ivntb_peer *peer,
			bool inbound);
int ivntb_flat_set_trans(struct ivntb_dev *ndev, struct ivntb_peer *peer,
			 resource_size_t whole, u64 addr, resource_size_t size);
dma_addr_t ivntb_flat_map_page(struct device *dev, struct page *page,
			       unsigned long offset, size_t size,
			       enum dma_data_direction dir, unsigned long attrs);
void ivntb_flat_unmap_page(struct device *dev, dma_addr_t addr, size_t size,
			   enum dma_data_direction dir, unsigned long attrs);
int ivntb_flat_map_sg(struct device *dev, struct scatterlist *sgl, int nents,
		      enum dma_data_direction dir, unsigned long attrs);
void ivntb_flat_unmap_sg(struct device *dev, struct scatterlist *sgl, int nents,
			 enum dma_data_direction dir, unsigned long attrs);

/* debugfs.c */
void ivntb_debugfs_init(void);
void ivntb_debugfs_exit(void);
void ivntb_debugfs_add(struct ivntb_dev *ndev);
void ivntb_debugfs_remove(struct ivntb_dev *ndev);

#endif /* _IVNTB_H */
