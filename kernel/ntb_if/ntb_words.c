// SPDX-License-Identifier: GPL-2.0
/*
 * Link words between NTB ports: through scratchpads where there are enough,
 * else through a message register, half a word at a time.
 *
 * Owns: where a word lies and how it travels. Knows nothing of its meaning:
 * that words may be lost, or read while they change, is core/peer_link.h's to
 * deal with, and what is written when core/word_pass.h's.
 *
 * Scratchpads of a port: a block for each of its peers, in the order of their
 * port numbers; each block is written by that peer only.
 */
#include <linux/delay.h>

#include "ntb.h"

/* A message: check nibble, word number, half, 16 bits. */
#define ROPCIE_MSG_CHECK 0xa
#define ROPCIE_MSG(word, high, half) \
	((u32)ROPCIE_MSG_CHECK << 28 | (u32)(word) << 24 | \
	 (u32)(high) << 23 | (half))
#define ROPCIE_MSG_REGISTER 0
/* How often, and how long apart, a full message register is tried. */
#define ROPCIE_MSG_TRIES 20
#define ROPCIE_MSG_WAIT_US 500
/* Messages that one event takes, so that a peer can not keep it busy. */
#define ROPCIE_MSG_BATCH 16

/**
 * ropcie_ntb_words_init() - choose the way of the words
 * @port: port
 *
 * Return: 0, or -ENODEV when the hardware has no way for them.
 */
int ropcie_ntb_words_init(struct ropcie_ntb *port)
{
	struct ntb_dev *ntb = port->ntb;
	u32 spads = ntb_spad_count(ntb);

	port->sender_translates = !ntb->ops->mw_set_trans;
	port->nwords = port->sender_translates ? ROPCIE_NTB_WORDS :
						 ROPCIE_LW_NUM;
	mutex_init(&port->msg_send_lock);
	if (spads >= port->nwords * port->npeers)
		return 0;
	if (ntb_msg_count(ntb) > 0) {
		port->use_msg = true;
		return 0;
	}
	dev_err(&ntb->dev,
		"RoPCIe needs %u scratchpads for %u peers, or message registers; this NTB has %u and none\n",
		port->nwords * port->npeers, port->npeers, spads);
	return -ENODEV;
}

/**
 * ropcie_ntb_words_forget() - no word has come, and none is out
 * @port: port; nothing of it runs
 */
void ropcie_ntb_words_forget(struct ropcie_ntb *port)
{
	u32 i;

	for (i = 0; i < port->npeers; i++) {
		struct ropcie_ntb_peer *np = &port->peer[i];

		memset(np->msg, 0, sizeof(np->msg));
		memset(np->msg_low, 0, sizeof(np->msg_low));
		memset(&np->pass, 0, sizeof(np->pass));
	}
}

void ropcie_ntb_words_start(struct ropcie_ntb *port)
{
	u64 bits;

	if (!port->use_msg)
		return;
	bits = ntb_msg_inbits(port->ntb);
	ntb_msg_clear_sts(port->ntb, bits | ntb_msg_outbits(port->ntb));
	ntb_msg_set_mask(port->ntb, bits | ntb_msg_outbits(port->ntb));
	ntb_msg_clear_mask(port->ntb, bits);
}

void ropcie_ntb_words_stop(struct ropcie_ntb *port)
{
	if (port->use_msg)
		ntb_msg_set_mask(port->ntb, ntb_msg_inbits(port->ntb));
}

static int msg_try(struct ropcie_ntb_peer *np, u32 msg)
{
	struct ropcie_ntb *port = np->port;
	u64 out = ntb_msg_outbits(port->ntb);
	int ret;

	mutex_lock(&port->msg_send_lock);
	ntb_msg_clear_sts(port->ntb, out);
	ret = ntb_peer_msg_write(port->ntb, np->pidx, ROPCIE_MSG_REGISTER, msg);
	/* A set bit says that the peer's register was still full. */
	if (!ret && (ntb_msg_read_sts(port->ntb) & out))
		ret = -EAGAIN;
	mutex_unlock(&port->msg_send_lock);
	return ret;
}

/* Words to other peers do not wait for one that leaves its register full. */
static int msg_send(struct ropcie_ntb_peer *np, u32 msg)
{
	int try, ret = msg_try(np, msg);

	for (try = 1; try < ROPCIE_MSG_TRIES && ret == -EAGAIN; try++) {
		usleep_range(ROPCIE_MSG_WAIT_US, 2 * ROPCIE_MSG_WAIT_US);
		ret = msg_try(np, msg);
	}
	return ret;
}

/* The last part of a word that is two messages is its high half. */
static int word_write(void *ctx, u32 word, u32 part, u32 val)
{
	struct ropcie_ntb_peer *np = ctx;
	struct ropcie_ntb *port = np->port;

	if (!port->use_msg)
		return ntb_peer_spad_write(port->ntb, np->pidx,
					   np->own_slot * port->nwords + word,
					   val);
	return msg_send(np, part ? ROPCIE_MSG(word, 0, val & 0xffff) :
				   ROPCIE_MSG(word, 1, val >> 16));
}

/**
 * ropcie_ntb_publish() - give a peer this node's words
 * @peer: peer
 * @words: words
 *
 * Return: 0, and the peer has all of them; -EAGAIN: its message register is still
 * full; what else the NTB's driver says.
 */
int ropcie_ntb_publish(struct ropcie_peer *peer,
		       const struct ropcie_link_words *words)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	u32 val[ROPCIE_NTB_WORDS];

	val[ROPCIE_NTB_ADDR_LO] = lower_32_bits(np->dma);
	val[ROPCIE_NTB_ADDR_HI] = upper_32_bits(np->dma);
	memcpy(val, words->w, sizeof(words->w));
	return ropcie_word_pass_write(&np->pass, &peer->link, val,
				      np->port->nwords,
				      np->port->use_msg ? 2 : 1, word_write,
				      np);
}

static u32 word_read(struct ropcie_ntb_peer *np, u32 word)
{
	struct ropcie_ntb *port = np->port;

	if (port->use_msg)
		return READ_ONCE(np->msg[word]);
	return ntb_spad_read(port->ntb,
			     (np - port->peer) * port->nwords + word);
}

/* And not behind programs: heartbeats may be among what is left. */
static void look_soon(struct ropcie_ntb *port)
{
	queue_delayed_work(ropcie_link_wq, &port->msg_work,
			   ROPCIE_NTB_AGAIN_JIFFIES);
}

/*
 * No event may have told of a message: an interrupt can be lost, and IDT's raise none
 * while another message waits. It would keep those of all peers from coming. Who sends
 * the next one does not wait long, so the next look is soon.
 */
static void look_for_messages(struct ropcie_ntb *port)
{
	if (!ropcie_ntb_msg_waits(port))
		return;
	ntb_msg_event(port->ntb);
	look_soon(port);
}

/**
 * ropcie_ntb_msg_look() - take messages of which no event has told
 * @work: msg_work of a port
 */
void ropcie_ntb_msg_look(struct work_struct *work)
{
	look_for_messages(container_of(to_delayed_work(work), struct ropcie_ntb,
				       msg_work));
}

void ropcie_ntb_read_words(struct ropcie_peer *peer,
			   struct ropcie_link_words *words)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);
	u32 word;

	look_for_messages(np->port);
	for (word = 0; word < ROPCIE_LW_NUM; word++)
		words->w[word] = word_read(np, word);
}

/**
 * ropcie_ntb_peer_dma() - bus address of the peer's inbound window
 * @np: peer whose words are valid; only where the sender translates
 */
u64 ropcie_ntb_peer_dma(struct ropcie_ntb_peer *np)
{
	return (u64)word_read(np, ROPCIE_NTB_ADDR_HI) << 32 |
	       word_read(np, ROPCIE_NTB_ADDR_LO);
}

static void msg_received(struct ropcie_ntb *port, int pidx, u32 msg)
{
	u32 word = msg >> 24 & 0xf;
	struct ropcie_ntb_peer *np;
	struct ropcie_peer *peer;

	if (pidx < 0 || pidx >= port->npeers || word >= port->nwords ||
	    msg >> 28 != ROPCIE_MSG_CHECK)
		return;
	np = &port->peer[pidx];
	peer = port->adapter->peer[1 + pidx];
	if (!(msg & BIT(23))) {
		np->msg_low[word] = msg & 0xffff;
		return;
	}
	WRITE_ONCE(np->msg[word], (msg & 0xffff) << 16 | np->msg_low[word]);
	/* The last one that travels, and not at each heartbeat. */
	if (word == ROPCIE_LW_MAGIC && !READ_ONCE(peer->up))
		ropcie_peer_kick(peer);
}

/**
 * ropcie_ntb_msg_waits() - has a message come that nobody has taken yet?
 * @port: port
 */
bool ropcie_ntb_msg_waits(struct ropcie_ntb *port)
{
	return port->use_msg &&
	       (ntb_msg_read_sts(port->ntb) & ntb_msg_inbits(port->ntb));
}

/**
 * ropcie_ntb_msg_event() - take messages out of their registers
 * @port: port; interrupts are off
 */
void ropcie_ntb_msg_event(struct ropcie_ntb *port)
{
	u64 inbits = ntb_msg_inbits(port->ntb), sts;
	int i, bit, pidx;
	u32 msg;

	for (i = 0; i < ROPCIE_MSG_BATCH; i++) {
		sts = ntb_msg_read_sts(port->ntb) & inbits;
		if (!sts)
			return;
		bit = __ffs64(sts);
		msg = ntb_msg_read(port->ntb, &pidx, bit - __ffs64(inbits));
		ntb_msg_clear_sts(port->ntb, BIT_ULL(bit));
		msg_received(port, pidx, msg);
	}
	/* IDT's interrupts only when none was there: what is left is found a moment later. */
	look_soon(port);
}
