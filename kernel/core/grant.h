/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Direct placement: who may store where in whose memory, for one queue pair.
 *
 * The owner of memory answers the question where a WRITE's target lies with a
 * grant: the bus addresses of a piece of the region. The requester holds grants and
 * stores by them, until it returns them: because it is told to (revoke), or wants
 * another one. Memory that was granted stays where it is until the grant was
 * returned: that comes behind all stores, and behind all records that tell of them.
 *
 * Owns: the numbers and states of grants at both ends; which pieces there are; when
 * asking pays. It does not lock, send, or know how memory is reached: the caller
 * does, in this order:
 *   owner:     ropcie_rsp_request() is given what is placed, if
 *              ropcie_grant_covers(); ASK: ropcie_grant_give();
 *              ropcie_grant_revoke(), then while (ropcie_grant_to_revoke()) send it;
 *              RETURN: ropcie_grant_take_back()
 *   requester: ropcie_hold_find(), or ropcie_hold_wants(); ropcie_hold_ask() when
 *              that is sent; GRANT: ropcie_hold_fill(); REVOKE: ropcie_hold_drop();
 *              while (ropcie_hold_to_return()) send it; ropcie_hold_free()
 */
#ifndef ROPCIE_CORE_GRANT_H
#define ROPCIE_CORE_GRANT_H

#include "mr.h"
#include "wire.h"

/* Grants that a queue pair gives, and holds, at most. */
#define ROPCIE_GRANTS 32
/* With a place for the question, so that an answer that comes late has one too. */
#define ROPCIE_HOLDS (ROPCIE_GRANTS + 1)

/**
 * struct ropcie_grant - a grant that was given
 * @id: its number, or 0
 * @key: key of the region
 * @sink: it is for answers to READs, and else for WRITEs
 * @addr: first byte, as @key names it
 * @len: bytes
 * @revoked: it is to be returned
 * @tell: the peer has to be told so
 */
struct ropcie_grant {
	u32 id;
	u32 key;
	bool sink;
	u64 addr;
	u32 len;
	bool revoked;
	bool tell;
};

/**
 * struct ropcie_grants - what an owner has given to one peer's queue pair
 * @grant: grants
 * @num: how many there are
 * @next_id: number of the next
 * @tells: the peer may have to be told of some
 * @closed: no more are given
 */
struct ropcie_grants {
	struct ropcie_grant grant[ROPCIE_GRANTS];
	u32 num;
	u32 next_id;
	bool tells;
	bool closed;
};

/**
 * ropcie_grants_init() - none
 * @out: grants
 * @seed: random: numbers of an earlier life are told apart
 */
void ropcie_grants_init(struct ropcie_grants *out, u32 seed);

/**
 * ropcie_grant_piece() - the part of a region that is given for an address
 * @mr: region of pages
 * @addr: address within it
 * @first: becomes the first byte
 *
 * Pieces begin at multiples of ROPCIE_GRANT_PIECE in the region's pages. Each
 * overlaps the next by what a record carries at most, so that a record never needs
 * two.
 *
 * Return: bytes.
 */
u32 ropcie_grant_piece(const struct ropcie_mr_core *mr, u64 addr, u64 *first);

/**
 * ropcie_grant_give() - a new grant
 * @out: grants
 * @key: key of the region
 * @sink: for answers to READs, not for WRITEs
 * @addr: first byte
 * @len: bytes
 *
 * Return: its place in @out->grant, or -1 when it is refused.
 */
int ropcie_grant_give(struct ropcie_grants *out, u32 key, bool sink, u64 addr,
		      u32 len);

/**
 * ropcie_grant_revoke() - take grants back: they are still used until returned
 * @out: grants
 * @key: those of this key, or 0 for all
 *
 * Return: how many there are of these.
 */
u32 ropcie_grant_revoke(struct ropcie_grants *out, u32 key);

/* The next grant whose peer has to be told; then clear @tell; or NULL. */
struct ropcie_grant *ropcie_grant_to_revoke(struct ropcie_grants *out);

/**
 * ropcie_grant_take_back() - a grant was returned
 * @out: grants
 * @id: what the peer says; 0 for whatever there is
 *
 * Return: its place in @out->grant, which is free; or -1. With 0 as @id call it
 * until it returns that.
 */
int ropcie_grant_take_back(struct ropcie_grants *out, u32 id);

/**
 * ropcie_grant_covers() - may a payload have been placed by this grant?
 * @out: grants
 * @id: what the peer says
 * @key: key that the WRITE names, or the READ's list
 * @sink: it answers a READ
 * @addr: first byte
 * @len: bytes, at least one
 */
bool ropcie_grant_covers(const struct ropcie_grants *out, u32 id, u32 key,
			 bool sink, u64 addr, u32 len);

enum ropcie_hold_state {
	ROPCIE_HOLD_FREE,
	ROPCIE_HOLD_ASKED, /* kept for the answer */
	ROPCIE_HOLD_GRANTED,
	ROPCIE_HOLD_RETURNING /* not used any more: the owner has to be told */
};

/**
 * struct ropcie_hold - a grant that is held
 * @state: enum ropcie_hold_state
 * @id: its number
 * @sink: it is for answers to READs, and else for WRITEs
 * @used: when it was used last
 * @mr: the memory, as a region: addresses as @mr.key names them, and pages where
 *	it is reached
 */
struct ropcie_hold {
	enum ropcie_hold_state state;
	u32 id;
	bool sink;
	u64 used;
	struct ropcie_mr_core mr;
};

/**
 * struct ropcie_holds - what a requester holds of one peer's queue pair
 * @hold: grants
 * @clock: counts uses
 * @asked: the one that was asked for, or NULL
 * @waits: records without a grant since then
 * @question: number of the last question, 24 bits
 * @key: what it was for
 * @sink: what it was for
 * @addr: what it was for
 * @credit: what may be spent on questions
 * @returns: some may have to be returned
 * @ever: something was asked in this life
 * @closed: nothing is asked, and what is granted is returned
 */
struct ropcie_holds {
	struct ropcie_hold hold[ROPCIE_HOLDS];
	u64 clock;
	struct ropcie_hold *asked;
	u32 waits;
	u32 question;
	u32 key;
	bool sink;
	u64 addr;
	u32 credit;
	bool returns;
	bool ever;
	bool closed;
};

/**
 * ropcie_holds_init() - none
 * @in: grants
 * @seed: random: answers to an earlier life are told apart
 */
void ropcie_holds_init(struct ropcie_holds *in, u32 seed);

/**
 * ropcie_hold_find() - the grant by which a payload may be placed
 * @in: grants
 * @key: key that the WRITE names, or the READ's list
 * @sink: it answers a READ
 * @addr: first byte
 * @len: bytes, at least one
 *
 * Return: grant, or NULL.
 */
struct ropcie_hold *ropcie_hold_find(struct ropcie_holds *in, u32 key, bool sink,
				     u64 addr, u32 len);

/* That many bytes, or a few, were placed: it pays for questions. */
void ropcie_hold_used(struct ropcie_holds *in, u32 bytes);

/**
 * ropcie_hold_wants() - there is no grant for a WRITE: ask for one?
 * @in: grants
 * @bytes: of the WRITE
 *
 * A question costs as much as 64 pages or small WRITEs that are placed, or 64 WRITEs of
 * a page and more that are not: who writes here and there in more memory than can be held
 * does not ask each time.
 * If it is to be asked and there is no room, the grant that was not used for the
 * longest time is to be returned first: ropcie_hold_to_return().
 */
bool ropcie_hold_wants(struct ropcie_holds *in, u32 bytes);

/**
 * ropcie_hold_ask() - the question of ropcie_hold_wants() is being sent
 * @in: grants; nothing is to be returned
 * @key: key of the region
 * @sink: for answers to READs, not for WRITEs
 * @addr: address that is of interest
 *
 * Return: number of the question; the owner repeats it.
 */
u32 ropcie_hold_ask(struct ropcie_holds *in, u32 key, bool sink, u64 addr);

/**
 * ropcie_hold_expects() - is this the answer to the question?
 * @in: grants
 * @hdr: GRANT
 * @bus: bus addresses, hdr->frag_len bytes; private. NULL when there is no memory
 *	for them
 *
 * Whatever it says, no other answer will come. Then ropcie_hold_fill(), or nothing
 * for a refusal.
 *
 * Return: 1 for a grant to be filled in; 0 for a refusal, or one to forget; -EPROTO
 * for one that is not what was asked for: it is to be returned.
 */
int ropcie_hold_expects(struct ropcie_holds *in, const struct ropcie_hdr *hdr,
			const __le64 *bus);

/**
 * ropcie_hold_fill() - take a grant over, or note that it is to be returned
 * @in: grants
 * @hdr: GRANT with a number
 * @pages: where each of its pages is reached, the caller's; NULL to return it
 * @offset: position of its first byte in the first page
 */
void ropcie_hold_fill(struct ropcie_holds *in, const struct ropcie_hdr *hdr,
		      void **pages, u32 offset);

/* The owner revokes: it is returned. One that is not known was already. */
void ropcie_hold_drop(struct ropcie_holds *in, u32 id);

/* The next grant to be returned, or NULL. */
struct ropcie_hold *ropcie_hold_to_return(struct ropcie_holds *in);

/* It was, and the caller has @hold->mr.pages again. */
void ropcie_hold_free(struct ropcie_hold *hold);

#endif /* ROPCIE_CORE_GRANT_H */
