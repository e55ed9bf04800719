/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Datagrams of ropcie.ko: address handles, multicast groups, and how they are sent.
 */
#ifndef ROPCIE_DRIVER_UD_H
#define ROPCIE_DRIVER_UD_H

#include "ropcie.h"

int ropcie_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		     struct ib_udata *udata);
int ropcie_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int ropcie_destroy_ah(struct ib_ah *ibah, u32 flags);
int ropcie_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int ropcie_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
/* The queue pair leaves all groups. Under dev->qp_mutex. */
void ropcie_leave_groups(struct ropcie_qp *qp);
int ropcie_multicast_open(struct ropcie_dev *dev);
void ropcie_multicast_close(struct ropcie_dev *dev);
void ropcie_rx_datagram(struct ropcie_mq *mq, struct ropcie_peer *peer,
			const struct ropcie_rec *rec);
/* A peer is gone: what waits for space in its lane goes nowhere. */
void ropcie_ud_peer_down(struct ropcie_qp *qp, struct ropcie_peer *peer);

/**
 * ropcie_ud_fill() - what makes a work request a datagram
 * @qp: queue pair
 * @wr: work request
 * @wqe: entry with length and flags set
 *
 * Return: 0, or -EINVAL for a destination that can not be.
 */
int ropcie_ud_fill(struct ropcie_qp *qp, const struct ib_ud_wr *wr,
		   struct ropcie_send_wqe *wqe);

/* Before the first datagram of a queue pair. Return: 0 or -ENOMEM. */
int ropcie_ud_init(struct ropcie_qp *qp);

/* No lane is known to be full any more; also of queue pairs without datagrams. */
void ropcie_ud_forget_full(struct ropcie_qp *qp);

/* What goes before the payload of this datagram. */
struct ropcie_vec ropcie_ud_header(const struct ropcie_qp *qp,
				   const struct ropcie_send_wqe *wqe);

/* May a datagram of so many bytes be sent? Else it is not (IBTA C10-93.1.1). */
bool ropcie_ud_fits(const struct ropcie_qp *qp, u32 len);

/**
 * ropcie_ud_send() - send a datagram
 * @qp: its lock is held
 * @rec: its record
 * @vec: header and payload
 * @nvec: number of runs
 *
 * Return: 0, also when it went nowhere; -EAGAIN when the lane that qp->tx names
 * is full.
 */
int ropcie_ud_send(struct ropcie_qp *qp, const struct ropcie_req_rec *rec,
		   const struct ropcie_vec *vec, u32 nvec);

#endif /* ROPCIE_DRIVER_UD_H */
