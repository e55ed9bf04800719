/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the ports of the emulated NTB keep in the shared memory (BAR2).
 *
 * A header per port, then the memory of the windows. Every word but the
 * scratchpads has exactly one writer, so that nobody needs an atomic
 * read-modify-write: a guest with one CPU does not have one that another
 * guest would respect, and neither has a real NTB. Scratchpads may be written
 * from both sides, as on hardware: plain stores, the last one stays.
 *
 * There is no common superblock, because it would have many writers. Each
 * port says in its own header which layout it follows, and two ports that
 * disagree never link.
 *
 * Words are in the byte order of the machine that all guests share.
 */
#ifndef _IVNTB_LAYOUT_H
#define _IVNTB_LAYOUT_H

#include <linux/build_bug.h>
#include <linux/stddef.h>
#include <linux/types.h>

#define IVNTB_MAGIC		0x31425443564e5649ULL
#define IVNTB_MAX_PORTS		16
#define IVNTB_MAX_MWS		4
#define IVNTB_MAX_SPADS		128
#define IVNTB_MAX_MSGS		4
#define IVNTB_DB_BITS		64
#define IVNTB_LINE		64

/*
 * struct ivntb_pair - what port A tells port B; in the header of A, written
 *		       by A alone
 * @epoch:	Of A's end of the link: a new one whenever A takes it down.
 * @seen:	B's epoch that A accepts, 0 when A holds the link down.
 * @flat_open:	1 while the translation of a flat window between the two is
 *		set that A sets: of B's into A's memory or, where the sender
 *		sets it, of A's into B's.
 * @db_rung:	A doorbell bit is pending at B where this differs from
 *		db_cleared in B's words for A: A toggles it to ring.
 * @msg_seq:	Messages that A has put into its registers towards B.
 * @msg_data:	The last of them.
 * @db_cleared:	Follows B's db_rung towards A as A clears its doorbell.
 * @msg_ack:	Follows B's msg_seq towards A as A empties its registers.
 */
struct ivntb_pair {
	u32 epoch;
	u32 seen;
	u32 flat_open;
	u8 pad0[IVNTB_LINE - 12];

	u64 db_rung;
	u32 msg_seq[IVNTB_MAX_MSGS];
	u32 msg_data[IVNTB_MAX_MSGS];
	u8 pad1[IVNTB_LINE - 40];

	u64 db_cleared;
	u32 msg_ack[IVNTB_MAX_MSGS];
	u8 pad2[2 * IVNTB_LINE - 24];
};

static_assert(sizeof(struct ivntb_pair) == 256);
static_assert(offsetof(struct ivntb_pair, db_rung) == IVNTB_LINE);
static_assert(offsetof(struct ivntb_pair, db_cleared) == 2 * IVNTB_LINE);

/*
 * struct ivntb_port - the header of one port
 * @magic:	IVNTB_MAGIC once the rest is valid.
 * @layout:	See ivntb_layout_word(); ports with different ones never link.
 * @mw_size:	Bytes of one window, likewise.
 * @ivpos:	The ID under which the device of this port can be rung.
 * @vectors:	Interrupt vectors that it has.
 * @enabled:	1 while its NTB client wants the link.
 * @mem:	Where this port's bus has the shared memory.
 * @flat_size:	Bytes of the flat window that shows its own memory, or 0.
 * @heartbeat:	Changes as long as the port lives.
 * @db_mask:	Doorbell bits that must not interrupt it.
 * @spad:	Its scratchpads.
 * @pair:	What it tells each other port (and, for db_set, itself).
 */
struct ivntb_port {
	u64 magic;
	u64 layout;
	u64 mw_size;
	u32 ivpos;
	u32 vectors;
	u32 enabled;
	u32 reserved;
	u64 mem;
	u64 flat_size;
	u8 pad0[IVNTB_LINE - 56];

	u64 heartbeat;
	u8 pad1[IVNTB_LINE - 8];

	u64 db_mask;
	u8 pad2[IVNTB_LINE - 8];

	u32 spad[IVNTB_MAX_SPADS];
	u8 pad3[4096 - 3 * IVNTB_LINE - 4 * IVNTB_MAX_SPADS];

	struct ivntb_pair pair[IVNTB_MAX_PORTS];
};

static_assert(sizeof(struct ivntb_port) == 8192);
static_assert(offsetof(struct ivntb_port, heartbeat) == IVNTB_LINE);
static_assert(offsetof(struct ivntb_port, spad) == 3 * IVNTB_LINE);
static_assert(offsetof(struct ivntb_port, pair) == 4096);

static inline u64 ivntb_layout_word(int family, int ports, int mw_count)
{
	return (u64)family << 16 | ports << 8 | mw_count;
}

/*
 * The n-th other port, counted upwards and without the port itself, is its
 * peer n: peer indices and the order of the sections follow from that.
 */
static inline int ivntb_peer_to_port(int port, int pidx)
{
	return pidx < port ? pidx : pidx + 1;
}

static inline int ivntb_port_to_peer(int port, int other)
{
	return other < port ? other : other - 1;
}

#endif /* _IVNTB_LAYOUT_H */
