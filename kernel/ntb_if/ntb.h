/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The Linux NTB backend's own objects, shared by its files: ntb_client.c
 * (probe, events, doorbells), ntb_window.c (memory), ntb_words.c (link words
 * over scratchpads or message registers).
 */
#ifndef ROPCIE_NTB_IF_NTB_H
#define ROPCIE_NTB_IF_NTB_H

#include <linux/ntb.h>

#include "backend.h"
#include "word_pass.h"

/* An event that leaves something behind looks again so much later. */
#define ROPCIE_NTB_AGAIN_JIFFIES 1

/*
 * Words that a port tells its peer: the link words, and for hardware whose
 * sender sets the translation the bus address of the inbound window.
 */
enum {
	ROPCIE_NTB_ADDR_LO = ROPCIE_LW_NUM,
	ROPCIE_NTB_ADDR_HI,
	ROPCIE_NTB_WORDS
};

/**
 * struct ropcie_ntb_peer - a port at the other end
 * @port: the NTB port that it is a peer of
 * @pidx: its index in Linux's NTB API
 * @rank: how many of all ports have a lower number than it
 * @own_slot: the own port's place among this peer's peers
 * @db_bit: doorbell bit of each lane at the peer
 * @db_event: doorbell bit at the peer that says that words have changed
 * @db_in: doorbell bit of each lane at this port
 * @db_in_event: bits at this port that say that the peer's words have changed
 * @dma: bus address of the inbound window
 * @buf: allocation that the inbound window lies in
 * @buf_dma: its bus address
 * @buf_size: its size
 * @io: outbound window as it is mapped
 * @io_size: its size, mapped or not
 * @memory_io: outbound window that may show the peer's memory, or NULL
 * @memory_in: bytes of the inbound one that shows the own memory
 * @memory_open: it may show it now
 * @reached: the peer may still write to @buf
 * @dismissed: it has been told that this node is down
 * @answers: looks since then that would have seen its answer
 * @looks: looks since then, or without
 * @was_down: an event has found its link down since it was last looked at
 * @pass: how far the own words have got
 * @msg: words as the peer's messages have brought them; written by events,
 *	which ntb.ko serialises
 * @msg_low: low halves of words whose high halves have yet to come
 */
struct ropcie_ntb_peer {
	struct ropcie_ntb *port;
	u32 pidx;
	u32 rank;
	u32 own_slot;
	u64 db_bit[ROPCIE_MAX_LANES];
	u64 db_event;
	u64 db_in[ROPCIE_MAX_LANES];
	u64 db_in_event;
	dma_addr_t dma;
	void *buf;
	dma_addr_t buf_dma;
	size_t buf_size;
	void __iomem *io;
	resource_size_t io_size;
	void __iomem *memory_io;
	resource_size_t memory_in;
	bool memory_open;
	bool reached;
	bool dismissed;
	u32 answers;
	u32 looks;
	u32 was_down;
	struct ropcie_word_pass pass;
	u32 msg[ROPCIE_NTB_WORDS];
	u16 msg_low[ROPCIE_NTB_WORDS];
};

/**
 * struct ropcie_ntb - an NTB port
 * @ntb: device
 * @adapter: adapter
 * @npeers: number of peers
 * @rank: how many of all ports have a lower number than the own one
 * @db_mine: doorbell bits that mean this port
 * @db_unnamed: the hardware has one event for all of them
 * @db_work: looks at them again
 * @use_msg: words travel in message registers, not in scratchpads
 * @msg_work: looks at them again
 * @sender_translates: the sender sets the translation of a window
 * @nwords: words that travel
 * @msg_send_lock: one message at a time
 * @peer: peers
 */
struct ropcie_ntb {
	struct ntb_dev *ntb;
	struct ropcie_adapter *adapter;
	u32 npeers;
	u32 rank;
	u64 db_mine;
	bool db_unnamed;
	struct delayed_work db_work;
	bool use_msg;
	struct delayed_work msg_work;
	bool sender_translates;
	u32 nwords;
	struct mutex msg_send_lock; /* one message at a time */
	struct ropcie_ntb_peer peer[];
};

static inline struct ropcie_ntb_peer *ropcie_ntb_peer(struct ropcie_peer *peer)
{
	return peer->priv;
}

static inline struct ropcie_ntb *ropcie_ntb_port(struct ropcie_peer *peer)
{
	return ropcie_ntb_peer(peer)->port;
}

/* ntb_window.c */
int ropcie_ntb_map_out(struct ropcie_peer *peer);
void ropcie_ntb_unmap_out(struct ropcie_peer *peer);
int ropcie_ntb_open(struct ropcie_peer *peer);
void ropcie_ntb_await_release(struct ropcie_ntb *port);
void ropcie_ntb_close(struct ropcie_peer *peer);
void ropcie_ntb_shut(struct ropcie_peer *peer);
int ropcie_ntb_prepare(struct ropcie_peer *peer);
int ropcie_ntb_connect(struct ropcie_peer *peer);

/* ntb_words.c */
int ropcie_ntb_words_init(struct ropcie_ntb *port);
void ropcie_ntb_words_forget(struct ropcie_ntb *port);
void ropcie_ntb_words_start(struct ropcie_ntb *port);
void ropcie_ntb_words_stop(struct ropcie_ntb *port);
int ropcie_ntb_publish(struct ropcie_peer *peer,
		       const struct ropcie_link_words *words);
void ropcie_ntb_read_words(struct ropcie_peer *peer,
			   struct ropcie_link_words *words);
u64 ropcie_ntb_peer_dma(struct ropcie_ntb_peer *np);
bool ropcie_ntb_msg_waits(struct ropcie_ntb *port);
void ropcie_ntb_msg_look(struct work_struct *work);
void ropcie_ntb_msg_event(struct ropcie_ntb *port);

#endif /* ROPCIE_NTB_IF_NTB_H */
