/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control page at the start of every inbound window: words that the peer
 * writes and this side reads. One writer each; lines apart by writer's use.
 */
#ifndef ROPCIE_CORE_CONTROL_H
#define ROPCIE_CORE_CONTROL_H

#include "peer_link.h"

#define ROPCIE_CONTROL_SIZE 4096

/**
 * struct ropcie_lane_ctl - what the peer says of one lane number
 * @cons: how far the peer has consumed this side's lane (slots, low 32 bits)
 * @arm: odd: the peer sleeps on this side's lane and wants a doorbell, one
 *	for each odd value; even: it is awake
 * @want_space: odd: the peer's sender waits for space in the lane that this
 *	side receives, and wants a doorbell when its consumer position moves
 * @pad0: keeps what different writers write in different cache lines
 * @pad1: likewise
 */
struct ropcie_lane_ctl {
	__le32 cons;
	u8 pad0[60];
	__le32 arm;
	__le32 want_space;
	u8 pad1[56];
};

static_assert(sizeof(struct ropcie_lane_ctl) == 128, "control layout");

/**
 * struct ropcie_control - the page
 * @lane: per lane
 * @mac: hardware address of the peer's netdev
 * @rsvd: zero
 * @node_guid: the peer's node GUID
 */
struct ropcie_control {
	struct ropcie_lane_ctl lane[ROPCIE_MAX_LANES];
	u8 mac[6];
	u8 rsvd[2];
	__le64 node_guid;
};

static_assert(sizeof(struct ropcie_control) <= ROPCIE_CONTROL_SIZE,
	      "control page");

#endif /* ROPCIE_CORE_CONTROL_H */
