// SPDX-License-Identifier: GPL-2.0
#include "control.h"
#include "peer_link.h"

/* What a look at the peer's words shows. */
enum look {
	LOOK_ABSENT, /* no RoPCIe there */
	LOOK_TORN, /* words of two moments, or lost ones: look again */
	LOOK_FOREIGN, /* another version, or an offer that can not be */
	LOOK_GOOD
};

u32 ropcie_link_check(const struct ropcie_link_words *words)
{
	u32 i, sum = 0x811c9dc5;

	/* Every bit of every word spreads over the whole sum. */
	for (i = 0; i < ROPCIE_LW_CHECK; i++) {
		sum = (sum ^ words->w[i]) * 0x85ebca6b;
		sum = (sum ^ (sum >> 15)) * 0xc2b2ae35;
		sum ^= sum >> 13;
	}
	return sum;
}

static u32 log2_of(u32 power)
{
	u32 n = 0;

	while (power >>= 1)
		n++;
	return n;
}

u32 ropcie_link_geom_pack(const struct ropcie_link_offer *offer)
{
	return offer->lanes << 24 | log2_of(offer->geom.slots) << 16 |
	       log2_of(offer->geom.bytes) << 8;
}

int ropcie_link_geom_unpack(u32 word, struct ropcie_link_offer *offer)
{
	u32 lanes = word >> 24;
	u32 slots = word >> 16 & 0xff;
	u32 bytes = word >> 8 & 0xff;

	if (word & 0xff || !lanes || lanes > ROPCIE_MAX_LANES || slots > 31 ||
	    bytes > 31)
		return -EPROTO;
	offer->lanes = lanes;
	offer->geom.slots = 1u << slots;
	offer->geom.bytes = 1u << bytes;
	return ropcie_lane_geom_ok(&offer->geom) ? 0 : -EPROTO;
}

u64 ropcie_link_offer_size(const struct ropcie_link_offer *offer)
{
	return ROPCIE_CONTROL_SIZE +
	       (u64)offer->lanes * ropcie_lane_size(&offer->geom);
}

static enum look look_at(const struct ropcie_peer_link *l,
			 const struct ropcie_link_words *peer,
			 struct ropcie_link_offer *offer)
{
	u32 magic = peer->w[ROPCIE_LW_MAGIC];

	if ((magic & 0xffff0000) != ROPCIE_LINK_MAGIC)
		return LOOK_ABSENT;
	/* The other words of another version can not be judged. */
	if (magic != (ROPCIE_LINK_MAGIC | ROPCIE_WIRE_VERSION))
		return LOOK_FOREIGN;
	if (peer->w[ROPCIE_LW_CHECK] != ropcie_link_check(peer))
		return LOOK_TORN;
	offer->features = peer->w[ROPCIE_LW_FEATURES];
	if (!peer->w[ROPCIE_LW_EPOCH] ||
	    ropcie_link_geom_unpack(peer->w[ROPCIE_LW_GEOM], offer) ||
	    ropcie_link_offer_size(offer) > l->room)
		return LOOK_FOREIGN;
	return LOOK_GOOD;
}

void ropcie_link_init(struct ropcie_peer_link *l,
		      const struct ropcie_link_offer *offer, u64 room,
		      u64 beat_limit, u64 hold)
{
	memset(l, 0, sizeof(*l));
	l->offer = *offer;
	l->room = room;
	l->beat_limit = beat_limit;
	l->hold = hold;
}

/* Clear the own words but the heartbeat, which never starts again. */
static u32 go_down(struct ropcie_peer_link *l, enum ropcie_link_loss why)
{
	u32 todo = ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY;
	u32 i;

	if (l->state == ROPCIE_LINK_UP) {
		todo |= ROPCIE_LINK_DO_LOST;
		l->loss = why;
	}
	l->state = ROPCIE_LINK_DOWN;
	l->peer_epoch = 0;
	l->told = false;
	for (i = 0; i <= ROPCIE_LW_CHECK; i++)
		l->own.w[i] = 0;
	return todo;
}

u32 ropcie_link_kill(struct ropcie_peer_link *l)
{
	return go_down(l, ROPCIE_LOSS_KILLED);
}

void ropcie_link_published(struct ropcie_peer_link *l, bool sent, u64 now)
{
	if (l->told || !l->hw_up || !sent)
		return;
	l->told = true;
	l->hold_until = now + l->hold;
}

static u32 say_hello(struct ropcie_peer_link *l, u32 epoch)
{
	struct ropcie_link_words *own = &l->own;

	while (!epoch || epoch == l->last_epoch)
		epoch++;
	l->last_epoch = epoch;
	own->w[ROPCIE_LW_MAGIC] = ROPCIE_LINK_MAGIC | ROPCIE_WIRE_VERSION;
	own->w[ROPCIE_LW_EPOCH] = epoch;
	own->w[ROPCIE_LW_ACK] = 0;
	own->w[ROPCIE_LW_GEOM] = ropcie_link_geom_pack(&l->offer);
	own->w[ROPCIE_LW_FEATURES] = l->offer.features;
	own->w[ROPCIE_LW_CHECK] = ropcie_link_check(own);
	l->state = ROPCIE_LINK_HELLO;
	l->told = false;
	return ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY;
}

u32 ropcie_link_prepared(struct ropcie_peer_link *l)
{
	if (l->state != ROPCIE_LINK_PREPARE)
		return 0;
	l->own.w[ROPCIE_LW_ACK] = l->peer_epoch;
	l->own.w[ROPCIE_LW_CHECK] = ropcie_link_check(&l->own);
	l->state = ROPCIE_LINK_READY;
	l->told = false;
	return ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY;
}

/* HELLO: is there somebody to prepare for? */
static u32 meet(struct ropcie_peer_link *l,
		const struct ropcie_link_words *peer, enum look look,
		const struct ropcie_link_offer *offer)
{
	u32 ack = peer->w[ROPCIE_LW_ACK];

	if (look == LOOK_FOREIGN && !l->refused) {
		l->refused = true;
		return ROPCIE_LINK_DO_REFUSE;
	}
	if (look == LOOK_ABSENT || look == LOOK_GOOD)
		l->refused = false;
	/* Who acknowledges an earlier epoch has yet to notice this one. */
	if (look != LOOK_GOOD || (ack && ack != l->own.w[ROPCIE_LW_EPOCH]))
		return 0;
	l->peer = *peer;
	l->peer_epoch = peer->w[ROPCIE_LW_EPOCH];
	l->peer_offer = *offer;
	l->state = ROPCIE_LINK_PREPARE;
	return ROPCIE_LINK_DO_PREPARE;
}

/* Is this the life of the peer that was met, with the offer it then made? */
static bool same_peer(const struct ropcie_peer_link *l,
		      const struct ropcie_link_words *peer)
{
	return peer->w[ROPCIE_LW_EPOCH] == l->peer_epoch &&
	       peer->w[ROPCIE_LW_GEOM] == l->peer.w[ROPCIE_LW_GEOM] &&
	       peer->w[ROPCIE_LW_FEATURES] == l->peer.w[ROPCIE_LW_FEATURES];
}

/* UP: has the heart stopped? A torn look shows no heartbeat. */
static bool silent(struct ropcie_peer_link *l,
		   const struct ropcie_link_words *peer, bool good, u64 passed)
{
	u32 beat = peer->w[ROPCIE_LW_HEARTBEAT];

	if (good && beat != l->last_beat) {
		l->last_beat = beat;
		l->silence = 0;
		return false;
	}
	l->silence += min_t(u64, passed, max_t(u64, l->beat_limit / 4, 1));
	return l->silence > l->beat_limit;
}

/* PREPARE, READY, UP: is the peer still who it was, and is it ready too? */
static u32 follow(struct ropcie_peer_link *l,
		  const struct ropcie_link_words *peer, enum look look,
		  u64 passed)
{
	bool good = look == LOOK_GOOD;
	bool acked = peer->w[ROPCIE_LW_ACK] == l->own.w[ROPCIE_LW_EPOCH];
	bool up = l->state == ROPCIE_LINK_UP;

	if (look == LOOK_ABSENT)
		return go_down(l, peer->w[ROPCIE_LW_MAGIC] ?
			       ROPCIE_LOSS_GARBLED : ROPCIE_LOSS_CLEARED);
	if (look == LOOK_FOREIGN || (good && !same_peer(l, peer)) ||
	    (good && up && !acked))
		return go_down(l, ROPCIE_LOSS_OTHER);
	if (up && silent(l, peer, good, passed))
		return go_down(l, ROPCIE_LOSS_SILENCE);
	if (up || !good)
		return 0;
	if (l->state == ROPCIE_LINK_PREPARE)
		return ROPCIE_LINK_DO_PREPARE;
	/* Who is UP writes, and the peer has to know that it may. */
	if (!acked || !l->told)
		return 0;
	l->state = ROPCIE_LINK_UP;
	l->last_beat = peer->w[ROPCIE_LW_HEARTBEAT];
	l->silence = 0;
	return ROPCIE_LINK_DO_UP;
}

u32 ropcie_link_step(struct ropcie_peer_link *l, bool hw_up,
		     const struct ropcie_link_words *peer, u32 epoch, u64 now)
{
	struct ropcie_link_offer offer = { 0 };
	u64 passed = now - l->last_step;
	u32 todo = ROPCIE_LINK_DO_PUBLISH;
	enum look look;

	l->last_step = now;
	l->own.w[ROPCIE_LW_HEARTBEAT]++;
	if (hw_up != l->hw_up)
		l->hw_changes++;
	l->hw_up = hw_up;
	if (!hw_up) {
		/* What is written now may be lost: clear again when it is up. */
		l->told = false;
		return l->state == ROPCIE_LINK_DOWN ?
		       0 : go_down(l, ROPCIE_LOSS_HARDWARE);
	}
	if (!l->told)
		todo |= ROPCIE_LINK_DO_NOTIFY;
	if (l->state == ROPCIE_LINK_DOWN) {
		if (!l->told || now < l->hold_until)
			return todo;
		todo |= say_hello(l, epoch);
	}

	look = look_at(l, peer, &offer);
	if (l->state == ROPCIE_LINK_HELLO)
		return todo | meet(l, peer, look, &offer);
	return todo | follow(l, peer, look, passed);
}
