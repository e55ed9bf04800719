/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Direct placement: payload of WRITEs, and of answers to READs, that goes straight into
 * the memory that it is for (core/grant.h). Only where ropcie_peer_direct() says so, and
 * for reliable connections: other queue pairs have no struct ropcie_placement.
 */
#ifndef ROPCIE_DRIVER_PLACEMENT_H
#define ROPCIE_DRIVER_PLACEMENT_H

#include "core/grant.h"
#include "ropcie.h"

/**
 * struct ropcie_given - what a grant that was given keeps
 * @mr: region, with a reference: its memory stays
 * @bus: address of each page for the peer, as it was told
 * @num: how many
 */
struct ropcie_given {
	struct ropcie_mr *mr;
	__le64 *bus;
	u32 num;
};

/**
 * struct ropcie_placement - what a queue pair has given and holds; under qp->lock
 * @out: given to the peer
 * @given: what is behind @out
 * @in: held of the peer
 * @ask: the peer's question that was not answered yet
 * @asked: there is one
 * @question: own question that was not sent yet
 * @asks: there is one
 * @bye: the peer has to be told that nothing is held any more
 * @lost: the link was lost: nobody is told anything
 * @laned: position of the lane behind the last answer that went through it, which the
 *	peer has to have passed before the next one is placed
 * @patience: ns; an answer waits until then that @laned is passed; 0: none waits
 * @deadline: when the peer of a queue pair that fails has to have returned all, in ns,
 *	or 0
 */
struct ropcie_placement {
	struct ropcie_grants out;
	struct ropcie_given given[ROPCIE_GRANTS];
	struct ropcie_holds in;
	struct ropcie_hdr ask;
	bool asked;
	struct ropcie_hdr question;
	bool asks;
	bool bye;
	bool lost;
	u64 laned;
	u64 patience;
	u64 deadline;
};

/*
 * A queue pair is being connected to @peer: may it place, and be placed to? Process
 * context; without memory for it all goes through the lane.
 */
void ropcie_placement_create(struct ropcie_qp *qp,
			     const struct ropcie_peer *peer);

/*
 * It is being reset: when this returns the peer does not place any more. Its queues
 * are still open; qp->mutex is held. May sleep.
 */
void ropcie_placement_end(struct ropcie_qp *qp);

/* Its queues are closed. */
void ropcie_placement_free(struct ropcie_qp *qp);

/* The same for one that its peer may not write with any more. May sleep. */
void ropcie_placement_close(struct ropcie_qp *qp);

/* The queue pair fails: the peer is told, and not waited for. qp->lock is held. */
void ropcie_placement_fail(struct ropcie_qp *qp);

/* The link is lost: nothing more will come. qp->lock is held. */
void ropcie_placement_lost(struct ropcie_qp *qp);

/* Tell the peer what it has to be told; qp->lock is held. */
void ropcie_placement_flush(struct ropcie_qp *qp);

/* A record of direct placement has come; qp->lock is held. */
void ropcie_placement_hear(struct ropcie_qp *qp, const struct ropcie_rec *rec);

/**
 * ropcie_placement_choose() - which way does the payload of a record go?
 * @qp: its lock is held
 * @rec: record; a READ is told where its answers may be placed
 *
 * Return: the grant to place it by; NULL for the lane; or -EBUSY: it has to wait
 * until what is in the lane was taken.
 */
struct ropcie_hold *ropcie_placement_choose(struct ropcie_qp *qp,
					    struct ropcie_req_rec *rec);

/*
 * The same for the answer to a READ. When it has to wait, the queue pair is run again, and
 * it does not wait for ever.
 */
struct ropcie_hold *
ropcie_placement_choose_answer(struct ropcie_qp *qp,
			       const struct ropcie_hdr *hdr);

/* An answer with data went through the lane: what is placed may not overtake it. */
void ropcie_placement_laned(struct ropcie_qp *qp);

/**
 * ropcie_placement_send() - place a payload, and send the record that tells of it
 * @qp: its lock is held
 * @hold: what ropcie_placement_choose() or ropcie_placement_choose_answer() gave
 * @hdr: record; from then on it says that it is placed
 * @addr: where to, as the key names it
 * @vec: payload
 * @nvec: number of runs
 *
 * Return: as ropcie_mq_send(); after an error nothing was placed.
 */
int ropcie_placement_send(struct ropcie_qp *qp, const struct ropcie_hold *hold,
			  struct ropcie_hdr *hdr, u64 addr,
			  const struct ropcie_vec *vec, u32 nvec);

/* May the peer have placed the payload of this record? qp->lock is held. */
bool ropcie_placement_covers(const struct ropcie_qp *qp,
			     const struct ropcie_hdr *hdr,
			     const struct ropcie_rsp_place *where);

/* The same for an answer to a READ. */
bool ropcie_placement_covers_answer(const struct ropcie_qp *qp,
				    const struct ropcie_hdr *hdr,
				    const struct ropcie_req_place *at);

/*
 * It is to fail, and its program takes what it has posted, or has shown to the peer, for
 * its own again then: has the peer still grants? They are revoked, and the queue pair is
 * run when it has not. qp->lock is held.
 */
bool ropcie_placement_fails_late(struct ropcie_qp *qp);

/**
 * ropcie_placement_withdraw() - a region is to lose its memory
 * @dev: device
 * @mr: region
 *
 * When it returns no peer places into it, and none will. May sleep.
 */
void ropcie_placement_withdraw(struct ropcie_dev *dev, struct ropcie_mr *mr);

/* That was for nothing: it keeps its memory. */
static inline void ropcie_placement_allow(struct ropcie_mr *mr)
{
	WRITE_ONCE(mr->withdrawn, false);
}

#endif /* ROPCIE_DRIVER_PLACEMENT_H */
