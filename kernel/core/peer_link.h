/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Handshake, epoch and heartbeat with one peer.
 *
 * Owns: when a peer counts as connected, which parameters were agreed, when
 * it is lost. It does not know how words reach the peer (scratchpads,
 * messages, memory), how windows are mapped, or who is told.
 *
 * Each side owns a few 32-bit words that the other side can read (struct
 * ropcie_link_words), each with one writer. A side chooses a new random
 * epoch at every (re)start of the link. It acknowledges the peer's epoch
 * only when its own inbound window is translated and clean for it; the link
 * is connected when both epochs are acknowledged. Any change of the peer's
 * words but the heartbeat and a first acknowledge means that the peer has
 * started again: the link is lost and begins anew with a new epoch.
 *
 * Words may be written, read and lost one by one and in any order. The check
 * word covers all but the heartbeat, so a look that catches old words beside
 * new ones, or what another program left in the scratchpads, counts for
 * nothing. Two rules keep the sides from going round in circles: an epoch
 * acknowledges at most one other epoch in its life, and a hello that still
 * acknowledges somebody else (an earlier life of this side) is waited out.
 */
#ifndef ROPCIE_CORE_PEER_LINK_H
#define ROPCIE_CORE_PEER_LINK_H

#include "ring.h"

#define ROPCIE_LINK_MAGIC 0x52500000u /* "RP", low half: wire version */

/* Word numbers, for backends that move them one by one. */
enum ropcie_link_word {
	ROPCIE_LW_MAGIC, /* ROPCIE_LINK_MAGIC | ROPCIE_WIRE_VERSION, 0 = absent */
	ROPCIE_LW_EPOCH, /* own epoch, not 0 */
	ROPCIE_LW_ACK, /* peer's epoch that the inbound window is ready for */
	ROPCIE_LW_GEOM, /* lanes << 24 | log2 slots << 16 | log2 bytes << 8 */
	ROPCIE_LW_FEATURES, /* ROPCIE_FEAT_* offered */
	ROPCIE_LW_CHECK, /* ropcie_link_check() of the words above */
	ROPCIE_LW_HEARTBEAT, /* changes while the side is alive */
	ROPCIE_LW_NUM
};

struct ropcie_link_words {
	u32 w[ROPCIE_LW_NUM];
};

#define ROPCIE_MAX_LANES 8

/* Features. */
#define ROPCIE_FEAT_DIRECT BIT(0) /* a window shows all memory: grant.h */

/* Inbound memory as a side offers it. */
struct ropcie_link_offer {
	u32 lanes;
	struct ropcie_lane_geom geom;
	u32 features;
};

enum ropcie_link_state {
	ROPCIE_LINK_DOWN, /* hardware link down, stopped, or words to be clear */
	ROPCIE_LINK_HELLO, /* epoch announced, waiting for the peer's */
	ROPCIE_LINK_PREPARE, /* peer known: caller prepares the window for it */
	ROPCIE_LINK_READY, /* acknowledge to get out, and the peer's to come */
	ROPCIE_LINK_UP /* both acknowledged */
};

/* Why a link that was up is lost. */
enum ropcie_link_loss {
	ROPCIE_LOSS_KILLED, /* ropcie_link_kill() */
	ROPCIE_LOSS_HARDWARE, /* the hardware's link went down */
	ROPCIE_LOSS_SILENCE, /* no new heartbeat for too long */
	ROPCIE_LOSS_CLEARED, /* the peer's words are clear */
	ROPCIE_LOSS_GARBLED, /* no RoPCIe wrote them, as when reading fails */
	ROPCIE_LOSS_OTHER /* they are those of another link */
};

/*
 * What the caller has to do after a call; in this order.
 *
 * DO_PREPARE: zero the lanes' valid words and the control page (but not the
 * peer's link words, should they live there) and translate the window, then
 * call ropcie_link_prepared() before the next ropcie_link_step(). When that
 * fails, only step again: DO_PREPARE comes again.
 *
 * DO_PUBLISH: then call ropcie_link_published(). Words that did not get out are
 * not worth a DO_NOTIFY; the next step asks for both again.
 *
 * DO_UP: set up the lanes over the prepared window as it is. The peer may be
 * up already and its first records may be there: nothing is cleaned here.
 */
#define ROPCIE_LINK_DO_LOST BIT(0) /* was UP: stop lanes, tell users */
#define ROPCIE_LINK_DO_PREPARE BIT(1) /* see above */
#define ROPCIE_LINK_DO_PUBLISH BIT(2) /* write all own words out */
#define ROPCIE_LINK_DO_NOTIFY BIT(3) /* more than the heartbeat: ring the peer */
#define ROPCIE_LINK_DO_UP BIT(4) /* connected: set up lanes, tell users */
#define ROPCIE_LINK_DO_REFUSE BIT(5) /* peer of another version or impossible offer: log it */

/**
 * struct ropcie_peer_link - state of the link to one peer
 * @state: see above
 * @loss: why the link was lost, valid with DO_LOST
 * @own: words to publish
 * @peer: the peer's words as accepted in HELLO; never looked up again
 * @peer_epoch: epoch of the peer that @state refers to
 * @offer: own inbound memory
 * @peer_offer: the peer's, valid from PREPARE on
 * @room: bytes of the mapped window into the peer's memory
 * @silence: ms that a peer which is UP has shown no new heartbeat
 * @last_beat: its last heartbeat word
 * @last_step: time of the last step, ms
 * @last_epoch: own epoch before this one
 * @beat_limit: ms of silence after which the peer is lost
 * @hold_until: in DOWN, with @told: a new epoch is announced not before this time, ms
 * @hold: ms that the words are out clear after a loss
 * @hw_up: the hardware's link was up at the last step
 * @hw_changes: how often that has changed: what was written before may be lost
 * @told: the own words are out as they are, heartbeat apart, written while @hw_up
 * @refused: DO_REFUSE was given for what the peer says now
 */
struct ropcie_peer_link {
	enum ropcie_link_state state;
	enum ropcie_link_loss loss;
	struct ropcie_link_words own;
	struct ropcie_link_words peer;
	u32 peer_epoch;
	struct ropcie_link_offer offer;
	struct ropcie_link_offer peer_offer;
	u64 room;
	u64 silence;
	u32 last_beat;
	u32 last_epoch;
	u64 last_step;
	u64 beat_limit;
	u64 hold_until;
	u64 hold;
	u32 hw_changes;
	bool hw_up;
	bool told;
	bool refused;
};

/**
 * ropcie_link_init() - a link that is down
 * @l: link
 * @offer: own inbound memory; valid
 * @room: bytes of the mapped window into the peer's memory, control page
 *	included: an offer that needs more is refused
 * @beat_limit: ms of silence that mean death; a few steps long. A pause of
 *	this side itself counts for a quarter of it at most.
 * @hold: ms between the clear words after a loss and the next hello
 */
void ropcie_link_init(struct ropcie_peer_link *l,
		      const struct ropcie_link_offer *offer, u64 room,
		      u64 beat_limit, u64 hold);

/**
 * ropcie_link_step() - look at the world and advance
 * @l: link
 * @hw_up: the hardware says that the link is up
 * @peer: copy of the peer's words (hostile), as read just now
 * @epoch: a fresh random number, used if a new epoch is needed (0 is avoided)
 * @now: ms, monotonic
 *
 * Called from the caller's link work: on events and at every heartbeat tick.
 * Also advances the own heartbeat word. The words are published at each step,
 * which repairs any that were lost on the way.
 *
 * Return: ROPCIE_LINK_DO_* to carry out.
 */
u32 ropcie_link_step(struct ropcie_peer_link *l, bool hw_up,
		     const struct ropcie_link_words *peer, u32 epoch, u64 now);

/**
 * ropcie_link_prepared() - the inbound window is clean and translated
 * @l: link; nothing happens unless it is in PREPARE
 *
 * Return: ROPCIE_LINK_DO_PUBLISH | _NOTIFY: the acknowledge is to be written.
 */
u32 ropcie_link_prepared(struct ropcie_peer_link *l);

/**
 * ropcie_link_kill() - give the link up now (protocol error, stop)
 * @l: link
 *
 * Return: ROPCIE_LINK_DO_LOST if it was up, and DO_PUBLISH | DO_NOTIFY.
 */
u32 ropcie_link_kill(struct ropcie_peer_link *l);

/**
 * ropcie_link_published() - the own words have been written out, or have not
 * @l: link
 * @sent: they are all out, as far as can be known here
 * @now: ms; after they were written, if that took a while
 *
 * No hello follows a loss before the peer has had the time to see the words
 * clear, and nobody is UP whose acknowledge is not out. Words that did not get
 * out are asked for again by the next step.
 */
void ropcie_link_published(struct ropcie_peer_link *l, bool sent, u64 now);

/* Features that both sides offer; from PREPARE on. */
static inline u32 ropcie_link_features(const struct ropcie_peer_link *l)
{
	return l->offer.features & l->peer_offer.features;
}

/* Inbound memory that an offer describes, control page included. */
u64 ropcie_link_offer_size(const struct ropcie_link_offer *offer);

/* The check word of all words before it. */
u32 ropcie_link_check(const struct ropcie_link_words *words);

u32 ropcie_link_geom_pack(const struct ropcie_link_offer *offer);

/* Return: 0, or -EPROTO for a shape that no peer may offer. */
int ropcie_link_geom_unpack(u32 word, struct ropcie_link_offer *offer);

#endif /* ROPCIE_CORE_PEER_LINK_H */
