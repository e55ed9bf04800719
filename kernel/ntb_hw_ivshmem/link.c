// SPDX-License-Identifier: GPL-2.0
/*
 * The state of the link to each peer: epochs, acknowledgements, heartbeats.
 * Knows nothing of what the link carries.
 *
 * Each end of a link has an epoch, and accepts one of the other end. The link
 * is up at an end that has accepted the other's epoch and found its own
 * accepted. An end that takes the link down (client's wish, no heartbeat, a
 * restarted peer, a peer that took it down) also changes its epoch: so the
 * other end goes down as well, even if it slept through the whole time, and
 * no client can miss that its peer has lost its state. A new epoch is
 * accepted only when the own client has known for a while that the link is
 * down, because clients clean up in a work of their own: after a link-down
 * event, and after they have enabled the link.
 *
 * One end is up before the other. Its doorbells and messages wait until the
 * client at the other end has been told that the link is up.
 *
 * The shared memory outlives a guest, so a new port carries on from the
 * epochs that it finds in its header.
 */
#include <linux/jiffies.h>
#include <linux/moduleparam.h>

#include "ivntb.h"

static unsigned int heartbeat_ms = 100;
module_param(heartbeat_ms, uint, 0444);
MODULE_PARM_DESC(heartbeat_ms, "Milliseconds from one heartbeat to the next");

static unsigned int timeout_ms = 5000;
module_param(timeout_ms, uint, 0444);
MODULE_PARM_DESC(timeout_ms, "Milliseconds without a heartbeat until a peer is dead");

static unsigned int hold_ms = 100;
module_param(hold_ms, uint, 0444);
MODULE_PARM_DESC(hold_ms, "Milliseconds that a link stays down at least");

static void ivntb_kick_peer(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	/* What it is to look at must be there first. */
	mb();
	if (READ_ONCE(peer->hdr->magic) == IVNTB_MAGIC)
		ivntb_interrupt(ndev, READ_ONCE(peer->hdr->ivpos) & 0xffff,
				IVNTB_SERVICE_VECTOR);
}

/* The words may be another device's by now, or this port plays dead. */
static bool ivntb_silent(struct ivntb_dev *ndev)
{
	return ndev->gone || ndev->cable == IVNTB_CABLE_DEAD;
}

static u32 ivntb_next_epoch(u32 epoch)
{
	return epoch + 1 ?: 1;
}

static void ivntb_peer_down(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	lockdep_assert_held(&ndev->link_lock);

	if (peer->state == IVNTB_UP) {
		WRITE_ONCE(ndev->link_up,
			   ndev->link_up & ~BIT_ULL(peer - ndev->peers));
		ndev->stats.link_downs++;
	}
	WRITE_ONCE(ndev->link_open,
		   ndev->link_open & ~BIT_ULL(peer - ndev->peers));
	peer->state = IVNTB_DOWN_NEW;
	peer->accepted = 0;
	peer->epoch = ivntb_next_epoch(peer->epoch);
	if (ivntb_silent(ndev))
		return;
	WRITE_ONCE(peer->out->seen, 0);
	WRITE_ONCE(peer->out->epoch, peer->epoch);
	ivntb_kick_peer(ndev, peer);
}

static void ivntb_peer_up(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	lockdep_assert_held(&ndev->link_lock);

	peer->state = IVNTB_UP;
	WRITE_ONCE(ndev->link_up, ndev->link_up | BIT_ULL(peer - ndev->peers));
	ndev->stats.link_ups++;
}

/* Takes what is known of the peer while it is up out of its header, once. */
static void ivntb_peer_accept(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	lockdep_assert_held(&ndev->link_lock);

	peer->ivpos = READ_ONCE(peer->hdr->ivpos) & 0xffff;
	peer->vectors = clamp_t(u32, READ_ONCE(peer->hdr->vectors), 1,
				IVNTB_MAX_VECTORS);
	ivntb_db_reset(ndev, peer);
	ivntb_msg_reset(ndev, peer);
	peer->accepted = peer->in_epoch;
	peer->state = IVNTB_ACKED;
	WRITE_ONCE(peer->out->seen, peer->accepted);
	ivntb_kick_peer(ndev, peer);
}

static bool ivntb_peer_alive(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	u64 heartbeat = READ_ONCE(peer->hdr->heartbeat);

	if (heartbeat != peer->heartbeat || !peer->beats) {
		peer->heartbeat = heartbeat;
		peer->beat_at = jiffies;
		peer->beats = min(peer->beats + 1, 2U);
	}
	if (time_after(jiffies, peer->beat_at + msecs_to_jiffies(timeout_ms))) {
		if (peer->state == IVNTB_UP)
			dev_info(&ndev->pdev->dev,
				 "no heartbeat from port %d for %u ms\n",
				 peer->port,
				 jiffies_to_msecs(jiffies - peer->beat_at));
		peer->beats = 1;
	}
	return peer->beats > 1;
}

static bool ivntb_peer_fits(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	u64 layout, mw_size;

	if (READ_ONCE(peer->hdr->magic) != IVNTB_MAGIC)
		return false;
	layout = READ_ONCE(peer->hdr->layout);
	mw_size = READ_ONCE(peer->hdr->mw_size);
	if (layout == ivntb_layout_word(ivntb_family_number(ndev), ndev->ports,
					ndev->mw_count) &&
	    mw_size == ndev->mw_size && ivntb_flat_fits(ndev, peer)) {
		peer->complained = false;
		return true;
	}
	if (!peer->complained && __ratelimit(&peer->log)) {
		dev_err(&ndev->pdev->dev,
			"port %d has other ports=, mw_count=, mw_size=, flat= or family= than this one, or other memory than its flat window here: no link\n",
			peer->port);
		peer->complained = true;
	}
	return false;
}

static void ivntb_poll_peer(struct ivntb_dev *ndev, struct ivntb_peer *peer)
{
	bool wanted, accepted;

	lockdep_assert_held(&ndev->link_lock);

	WRITE_ONCE(peer->in_epoch, READ_ONCE(peer->in->epoch));
	WRITE_ONCE(peer->in_seen, READ_ONCE(peer->in->seen));
	WRITE_ONCE(peer->in_enabled, READ_ONCE(peer->hdr->enabled));
	/* Evaluated always: they keep track. */
	wanted = ivntb_peer_alive(ndev, peer) & ivntb_peer_fits(ndev, peer);
	wanted = wanted && peer->in_epoch && peer->in_enabled == 1 &&
		 ndev->enabled && ndev->cable == IVNTB_CABLE_IN && !ndev->gone;
	accepted = peer->in_seen == peer->epoch;

	switch (peer->state) {
	case IVNTB_DOWN_NEW:
		break;
	case IVNTB_DOWN:
		if (!wanted || time_before(jiffies, peer->down_since +
						    msecs_to_jiffies(hold_ms)))
			break;
		ivntb_peer_accept(ndev, peer);
		if (accepted)
			ivntb_peer_up(ndev, peer);
		break;
	case IVNTB_ACKED:
		if (!wanted || peer->in_epoch != peer->accepted)
			ivntb_peer_down(ndev, peer);
		else if (accepted)
			ivntb_peer_up(ndev, peer);
		break;
	case IVNTB_UP:
		if (!wanted || peer->in_epoch != peer->accepted || !accepted)
			ivntb_peer_down(ndev, peer);
		break;
	}
}

/*
 * Calls the client about what has become of the link, and is the only place that
 * lets a peer's hold begin: after the client has been told.
 */
void ivntb_link_work(struct work_struct *work)
{
	struct ivntb_dev *ndev = container_of(work, struct ivntb_dev, link_work);
	struct ivntb_peer *peer;
	u64 down = 0;
	u64 opened;
	bool tell;
	int pidx;

	spin_lock_irq(&ndev->link_lock);
	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		peer = &ndev->peers[pidx];
		if (ndev->cable != IVNTB_CABLE_DEAD)
			ivntb_poll_peer(ndev, peer);
		if (peer->state == IVNTB_DOWN_NEW)
			down |= BIT_ULL(pidx);
	}
	/* A link that went down and is not told yet cannot be up again. */
	tell = ndev->link_told != ndev->link_up;
	ndev->link_told = ndev->link_up;
	spin_unlock_irq(&ndev->link_lock);

	if (tell)
		ntb_link_event(&ndev->ntb);

	spin_lock_irq(&ndev->link_lock);
	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		peer = &ndev->peers[pidx];
		if (!(down & BIT_ULL(pidx)))
			continue;
		peer->state = IVNTB_DOWN;
		peer->down_since = jiffies;
	}
	opened = ndev->link_told & ndev->link_up & ~ndev->link_open;
	WRITE_ONCE(ndev->link_open, ndev->link_told & ndev->link_up);
	spin_unlock_irq(&ndev->link_lock);

	if (down || opened)
		ivntb_db_reopen(ndev);
	/* Where one's messages are gone, another's may be on show. */
	if (down || opened)
		ivntb_msg_refire(ndev);
}

/* Another device that calls itself the same port would write our words. */
static bool ivntb_port_lost(struct ivntb_dev *ndev)
{
	if (READ_ONCE(ndev->self->ivpos) == ndev->ivpos &&
	    READ_ONCE(ndev->self->heartbeat) == ndev->heartbeat)
		return false;
	dev_err(&ndev->pdev->dev,
		"another device has taken port %d over: giving it up\n",
		ndev->port);
	return true;
}

void ivntb_beat_timer(struct timer_list *timer)
{
	struct ivntb_dev *ndev = container_of(timer, struct ivntb_dev, beat_timer);
	unsigned long flags;

	spin_lock_irqsave(&ndev->link_lock, flags);
	if (!ivntb_silent(ndev) && ivntb_port_lost(ndev))
		ndev->gone = true;
	if (!ivntb_silent(ndev))
		WRITE_ONCE(ndev->self->heartbeat, ++ndev->heartbeat);
	spin_unlock_irqrestore(&ndev->link_lock, flags);

	queue_work(ndev->wq, &ndev->link_work);
	mod_timer(&ndev->beat_timer, jiffies + msecs_to_jiffies(heartbeat_ms));
}

/* Hard interrupt context: has any peer changed its mind since the last poll? */
void ivntb_link_irq(struct ivntb_dev *ndev)
{
	struct ivntb_peer *peer;
	int pidx;

	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		peer = &ndev->peers[pidx];
		if (READ_ONCE(peer->in->epoch) == READ_ONCE(peer->in_epoch) &&
		    READ_ONCE(peer->in->seen) == READ_ONCE(peer->in_seen) &&
		    READ_ONCE(peer->hdr->enabled) == READ_ONCE(peer->in_enabled))
			continue;
		queue_work(ndev->wq, &ndev->link_work);
		return;
	}
}

/* Publishes what the client and the debugfs knob want. */
static void ivntb_publish(struct ivntb_dev *ndev)
{
	bool enabled = ndev->enabled && ndev->cable != IVNTB_CABLE_OUT;
	struct ivntb_peer *peer;
	int pidx;

	lockdep_assert_held(&ndev->link_lock);

	if (!ivntb_silent(ndev))
		WRITE_ONCE(ndev->self->enabled, enabled);
	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		peer = &ndev->peers[pidx];
		if (!enabled && peer->state > IVNTB_DOWN) {
			ivntb_peer_down(ndev, peer);
		} else {
			/* What a dead port has kept to itself (ivntb_peer_down()). */
			if (!ivntb_silent(ndev)) {
				WRITE_ONCE(peer->out->seen, peer->accepted);
				WRITE_ONCE(peer->out->epoch, peer->epoch);
			}
			ivntb_kick_peer(ndev, peer);
		}
		peer->down_since = jiffies;
	}
	queue_work(ndev->wq, &ndev->link_work);
}

static void ivntb_set_enabled(struct ivntb_dev *ndev, bool enabled)
{
	unsigned long flags;

	spin_lock_irqsave(&ndev->link_lock, flags);
	ndev->enabled = enabled;
	ivntb_publish(ndev);
	spin_unlock_irqrestore(&ndev->link_lock, flags);
}

void ivntb_link_cable(struct ivntb_dev *ndev, enum ivntb_cable cable)
{
	unsigned long flags;

	spin_lock_irqsave(&ndev->link_lock, flags);
	ndev->cable = cable;
	ivntb_publish(ndev);
	spin_unlock_irqrestore(&ndev->link_lock, flags);
}

/*
 * The link is down, and up again before the client's threads could look: its events
 * alone tell. Nothing else changes; on one processor, none of them runs in between.
 * Not for PREEMPT_RT, whose locks sleep.
 */
void ivntb_link_blip(struct ivntb_dev *ndev)
{
	unsigned long flags;
	int pidx;

	preempt_disable();
	spin_lock_irqsave(&ndev->link_lock, flags);
	WRITE_ONCE(ndev->link_up, 0);
	spin_unlock_irqrestore(&ndev->link_lock, flags);
	ntb_link_event(&ndev->ntb);
	spin_lock_irqsave(&ndev->link_lock, flags);
	for (pidx = 0; pidx < ndev->peer_count; pidx++)
		if (ndev->peers[pidx].state == IVNTB_UP)
			WRITE_ONCE(ndev->link_up, ndev->link_up | BIT_ULL(pidx));
	spin_unlock_irqrestore(&ndev->link_lock, flags);
	ntb_link_event(&ndev->ntb);
	preempt_enable();
}

u64 ivntb_link_is_up(struct ntb_dev *ntb, enum ntb_speed *speed,
		     enum ntb_width *width)
{
	u64 up = READ_ONCE(ivntb_ndev(ntb)->link_up);

	/* There is no such thing; clients may want to compute a rate. */
	if (speed)
		*speed = up ? NTB_SPEED_GEN3 : NTB_SPEED_NONE;
	if (width)
		*width = up ? NTB_WIDTH_16 : NTB_WIDTH_NONE;
	return up;
}

static int ivntb_client_wants(struct ntb_dev *ntb, bool enabled)
{
	struct ivntb_dev *ndev = ivntb_ndev(ntb);
	int side = ivntb_side(ndev);

	if (!ndev->family->link[side].always)
		ivntb_set_enabled(ndev, enabled);
	if (ivntb_is(ndev, IVNTB_LINK_INSIDE))
		ntb_link_event(ntb);
	return ndev->family->link[side].answer;
}

int ivntb_link_enable(struct ntb_dev *ntb, enum ntb_speed max_speed,
		      enum ntb_width max_width)
{
	return ivntb_client_wants(ntb, true);
}

int ivntb_link_disable(struct ntb_dev *ntb)
{
	return ivntb_client_wants(ntb, false);
}

/* New epochs for a new port, before anybody can see it. */
void ivntb_link_init(struct ivntb_dev *ndev)
{
	struct ivntb_peer *peer;
	int pidx;

	heartbeat_ms = clamp(heartbeat_ms, 10U, 10000U);
	timeout_ms = clamp(timeout_ms, 3 * heartbeat_ms, 600000U);
	hold_ms = clamp(hold_ms, 10U, 10000U);

	ndev->heartbeat = READ_ONCE(ndev->self->heartbeat) + 1;
	WRITE_ONCE(ndev->self->heartbeat, ndev->heartbeat);
	WRITE_ONCE(ndev->self->enabled, 0);
	for (pidx = 0; pidx < ndev->peer_count; pidx++) {
		peer = &ndev->peers[pidx];
		peer->epoch = ivntb_next_epoch(READ_ONCE(peer->out->epoch));
		WRITE_ONCE(peer->out->seen, 0);
		WRITE_ONCE(peer->out->epoch, peer->epoch);
	}
}

void ivntb_link_start(struct ivntb_dev *ndev)
{
	if (ndev->family->link[ivntb_side(ndev)].always)
		ivntb_set_enabled(ndev, true);
	mod_timer(&ndev->beat_timer, jiffies);
}

/* Down for good. The heartbeat stops; clients may still call in. */
void ivntb_link_stop(struct ivntb_dev *ndev)
{
	ivntb_set_enabled(ndev, false);
	spin_lock_irq(&ndev->link_lock);
	ndev->gone = true;
	spin_unlock_irq(&ndev->link_lock);
	del_timer_sync(&ndev->beat_timer);
	flush_work(&ndev->link_work);
}
