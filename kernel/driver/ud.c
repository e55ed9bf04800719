// SPDX-License-Identifier: GPL-2.0
/*
 * Unreliable datagrams (IBTA 9.8.3), of UD queue pairs and of QP1: address
 * handles, which peer a datagram goes to, what arrives, multicast groups.
 *
 * A send queue of datagrams has no connection: qp->tx is where its last datagram
 * went, kept because the next one often goes there too. What can not be
 * delivered is dropped without a word, but a full lane is waited for.
 */
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "qp.h"
#include "queues.h"
#include "ropcie.h"
#include "ud.h"

/* How long a full lane holds up a send queue. */
#define PATIENCE_NS (250 * NSEC_PER_MSEC)

static_assert((int)ROPCIE_NET_ROCE_V1 == (int)RDMA_NETWORK_ROCE_V1);
static_assert((int)ROPCIE_NET_IPV4 == (int)RDMA_NETWORK_IPV4);
static_assert((int)ROPCIE_NET_IPV6 == (int)RDMA_NETWORK_IPV6);
static_assert(sizeof(struct ib_grh) == ROPCIE_GRH_LEN);
static_assert(sizeof(union ib_gid) == ROPCIE_GID_LEN);

int ropcie_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		     struct ib_udata *udata)
{
	struct ropcie_dev *dev = to_rdev(ibah->device);
	struct rdma_ah_attr *attr = init->ah_attr;
	struct ropcie_abi_create_ah_resp resp = {};
	struct ropcie_ah *ah = to_rah(ibah);
	const struct ib_global_route *grh;
	int ret;

	if (ropcie_udata_unknown(udata))
		return -EOPNOTSUPP;
	if (attr->type != RDMA_AH_ATTR_TYPE_ROCE ||
	    !(rdma_ah_get_ah_flags(attr) & IB_AH_GRH))
		return -EINVAL;
	grh = rdma_ah_read_grh(attr);
	if (!ibah->sgid_attr)
		return -EINVAL;
	ret = rdma_read_gid_l2_fields(ibah->sgid_attr, &ah->vlan, NULL);
	if (ret)
		return ret;
	ah->attr = *attr;
	memcpy(ah->dmac, ropcie_dev_mac(dev, ibah->sgid_attr, attr->roce.dmac),
	       ETH_ALEN);
	ah->route.net = rdma_gid_attr_network_type(ibah->sgid_attr);
	ah->route.flow_label = grh->flow_label;
	ah->route.traffic_class = grh->traffic_class;
	ah->route.hop_limit = grh->hop_limit;
	memcpy(ah->route.sgid, &ibah->sgid_attr->gid, ROPCIE_GID_LEN);
	memcpy(ah->route.dgid, &grh->dgid, ROPCIE_GID_LEN);
	if (!udata)
		return 0;
	/* The kernel's own have none: a program can not use them up. */
	ret = xa_alloc_cyclic_irq(&dev->ahs, &ah->number, ah,
				  XA_LIMIT(1, ROPCIE_MAX_AH), &dev->next_ah,
				  ROPCIE_GFP_USER);
	if (ret < 0)
		return ret == -EBUSY ? -ENOMEM : ret;
	resp.number = ah->number;
	ret = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (ret)
		xa_erase_irq(&dev->ahs, ah->number);
	return ret;
}

int ropcie_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	*attr = to_rah(ibah)->attr;
	attr->grh.sgid_attr = NULL; /* the handle's reference */
	return 0;
}

int ropcie_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	struct ropcie_dev *dev = to_rdev(ibah->device);
	unsigned long irq;

	if (to_rah(ibah)->number) {
		xa_lock_irqsave(&dev->ahs, irq);
		__xa_erase(&dev->ahs, to_rah(ibah)->number);
		xa_unlock_irqrestore(&dev->ahs, irq);
	}
	return 0;
}

/* Where a work request of @qp keeps its destination. */
static struct ropcie_av *wqe_av(const struct ropcie_qp *qp,
				const struct ropcie_send_wqe *wqe)
{
	return (struct ropcie_av *)((char *)wqe->sge + qp->sq_area);
}

int ropcie_ud_fill(struct ropcie_qp *qp, const struct ib_ud_wr *wr,
		   struct ropcie_send_wqe *wqe)
{
	struct ropcie_av *av = wqe_av(qp, wqe);
	const struct ropcie_ah *ah;

	if (!wr->ah || wr->ah->pd != qp->ibqp.pd ||
	    wr->remote_qpn > ROPCIE_QPN_MASK || !wr->remote_qpn)
		return -EINVAL;
	ah = to_rah(wr->ah);
	ether_addr_copy(av->dmac, ah->dmac);
	wqe->op = ROPCIE_OP_DATAGRAM;
	wqe->net = ah->route.net;
	wqe->vlan = ah->vlan;
	wqe->dest_qpn = is_multicast_ether_addr(av->dmac) ?
				ROPCIE_MULTICAST_QPN : wr->remote_qpn;
	/* IBTA 10.2.5: the highest bit asks for the queue pair's own. */
	wqe->qkey = wr->remote_qkey & BIT(31) ? READ_ONCE(qp->qkey) :
						wr->remote_qkey;
	ropcie_grh_build(&ah->route, min_t(u32, wqe->length,
					   ROPCIE_MAX_DATAGRAM),
			 wqe->flags & ROPCIE_WR_IMM, av->grh);
	return 0;
}

struct ropcie_vec ropcie_ud_header(const struct ropcie_qp *qp,
				   const struct ropcie_send_wqe *wqe)
{
	return (struct ropcie_vec){
		.base = wqe_av(qp, wqe)->grh,
		.len = ROPCIE_GRH_LEN,
	};
}

/* Forget where the last datagram went; qp->lock is held. */
static void forget_peer(struct ropcie_qp *qp)
{
	ropcie_mq_disconnect(&qp->tx);
	qp->req.deadline = 0;
}

static u32 num_full(const struct ropcie_qp *qp)
{
	return ropcie_adapter_num_peers(qp->dev->adapter) + 1;
}

int ropcie_ud_init(struct ropcie_qp *qp)
{
	qp->full_until = kcalloc(num_full(qp), sizeof(*qp->full_until),
				 ROPCIE_GFP_USER);
	return qp->full_until ? 0 : -ENOMEM;
}

void ropcie_ud_forget_full(struct ropcie_qp *qp)
{
	if (qp->full_until)
		memset(qp->full_until, 0, num_full(qp) * sizeof(*qp->full_until));
}

/* The own node comes behind the peers. */
static u64 *full_until(struct ropcie_qp *qp, const struct ropcie_peer *peer)
{
	return &qp->full_until[ropcie_peer_is_self(peer) ?
				       num_full(qp) - 1 :
				       ropcie_peer_index(peer)];
}

/*
 * The lane is full. A peer that takes nothing must not hold up what goes to
 * others for long, so wait for it once, until a datagram gets through to it
 * again.
 */
static int full(struct ropcie_qp *qp)
{
	u64 *until = full_until(qp, qp->tx.peer), now = ktime_get_ns();

	if (!*until)
		*until = now + PATIENCE_NS;
	if (now >= *until) {
		qp->req.deadline = 0;
		ropcie_count(qp->counters, ROPCIE_TX_DATAGRAM_DROPS, 1);
		return 0;
	}
	qp->req.deadline = *until; /* to be run again then */
	return -EAGAIN;
}

/* Let qp->tx lead to the peer with this address. */
static bool find_peer(struct ropcie_qp *qp, const u8 *dmac)
{
	if (qp->tx.peer) {
		if (ether_addr_equal_unaligned(ropcie_peer_mac(qp->tx.peer),
					       dmac))
			return true;
		ropcie_mq_flush(&qp->tx);
		forget_peer(qp);
	}
	return !ropcie_mq_connect(qp->dev->adapter, dmac, qp->ibqp.qp_num,
				  &qp->tx);
}

bool ropcie_ud_fits(const struct ropcie_qp *qp, u32 len)
{
	enum ib_mtu path = iboe_get_mtu(READ_ONCE(qp->dev->netdev->mtu));
	int mtu = ib_mtu_enum_to_int(path);

	return mtu > 0 && len <= mtu;
}

int ropcie_ud_send(struct ropcie_qp *qp, const struct ropcie_req_rec *rec,
		   const struct ropcie_vec *vec, u32 nvec)
{
	const struct ropcie_av *av = wqe_av(qp, rec->wqe);
	int ret;

	lockdep_assert_held(&qp->lock);
	if (is_multicast_ether_addr(av->dmac)) {
		ropcie_mq_broadcast(qp->dev->adapter, qp->ibqp.qp_num,
				    &rec->hdr, vec, nvec);
		return 0;
	}
	if (!find_peer(qp, av->dmac))
		return 0;
	ret = ropcie_mq_send(&qp->tx, &rec->hdr, vec, nvec);
	if (ret == -EAGAIN)
		return full(qp);
	*full_until(qp, qp->tx.peer) = 0;
	qp->req.deadline = 0;
	if (ret)
		forget_peer(qp);
	return 0;
}

void ropcie_ud_peer_down(struct ropcie_qp *qp, struct ropcie_peer *peer)
{
	spin_lock_bh(&qp->lock);
	*full_until(qp, peer) = 0;
	if (qp->tx.peer == peer)
		forget_peer(qp);
	spin_unlock_bh(&qp->lock);
	if (ropcie_qp_is_blocked_by(qp, peer)) {
		ropcie_qp_unblock(qp);
		ropcie_qp_schedule(qp);
	}
}

/*
 * A datagram for this queue pair. What does not fit, or has no memory yet, is
 * dropped, and the receive stays for the next one (IBTA 9.8.3.2.1); one that is too
 * short stays in the shared queue.
 */
static void receive(struct ropcie_qp *qp, const struct ropcie_rec *rec)
{
	struct ropcie_recv_wqe *wqe;
	int ret;

	if (rec->hdr.qkey != qp->qkey) {
		/* The port's (IBTA 14.2.5.6), whatever queue pair it is for. */
		ropcie_count(qp->dev->counters, ROPCIE_RX_QKEY_VIOLATIONS, 1);
		return;
	}
	wqe = ropcie_recv_for(qp, true, rec->hdr.frag_len);
	if (!wqe || rec->hdr.frag_len > wqe->length) {
		ropcie_count(qp->counters, ROPCIE_RX_DATAGRAM_DROPS, 1);
		return;
	}
	ret = ropcie_place(qp, ROPCIE_RESPONDER, ropcie_recv_pd(qp), wqe->sge,
			   wqe->num_sge, 0, rec);
	if (ret == -EINPROGRESS) {
		ropcie_count(qp->counters, ROPCIE_RX_DATAGRAM_DROPS, 1);
	} else if (!ret) {
		ropcie_count(qp->counters, ROPCIE_RX_SEND, 1);
		ropcie_count(qp->counters, ROPCIE_RX_SEND_BYTES,
			     rec->hdr.frag_len - ROPCIE_GRH_LEN);
		ropcie_recv_complete(qp, &rec->hdr, IB_WC_SUCCESS);
	} else {
		ropcie_recv_complete(qp, NULL, IB_WC_LOC_PROT_ERR);
		ropcie_qp_to_error(qp);
	}
}

static void receive_locked(struct ropcie_qp *qp, const struct ropcie_rec *rec)
{
	spin_lock_bh(&qp->lock);
	if (qp->connected && ropcie_qp_responds((enum ropcie_qps)qp->state))
		receive(qp, rec);
	ropcie_qp_unlock(qp);
}

void ropcie_rx_datagram(struct ropcie_mq *mq, struct ropcie_peer *peer,
			const struct ropcie_rec *rec)
{
	/* A peer may send anything to a number that it guesses. */
	if (rec->hdr.op == ROPCIE_OP_DATAGRAM)
		receive_locked(container_of(mq, struct ropcie_qp, request_mq),
			       rec);
}

/**
 * struct member - a queue pair in a multicast group
 * @list: place on dev->members
 * @gid: the group
 * @times: it was attached so often; core counts its attachments by their LIDs, too
 * @qp: queue pair, with a reference
 * @rcu: delays the end for rx_multicast()
 */
struct member {
	struct list_head list;
	union ib_gid gid;
	u32 times;
	struct ropcie_qp *qp;
	struct rcu_head rcu;
};

static void rx_multicast(struct ropcie_mq *mq, struct ropcie_peer *peer,
			 const struct ropcie_rec *rec)
{
	struct ropcie_dev *dev = container_of(mq, struct ropcie_dev,
					      multicast_mq);
	u8 grh[ROPCIE_GRH_LEN];
	struct ropcie_vec to = { .base = grh, .len = sizeof(grh) };
	struct member *m;
	union ib_gid gid;

	if (rec->hdr.op != ROPCIE_OP_DATAGRAM)
		return;
	ropcie_rec_scatter(rec, 0, &to, 1);
	ropcie_grh_dgid(grh, rec->hdr.net, gid.raw);
	rcu_read_lock();
	list_for_each_entry_rcu(m, &dev->members, list)
		if (!memcmp(&m->gid, &gid, sizeof(gid)))
			receive_locked(m->qp, rec);
	rcu_read_unlock();
}

/* Under dev->qp_mutex. */
static struct member *find_member(struct ropcie_dev *dev,
				  const struct ropcie_qp *qp,
				  const union ib_gid *gid)
{
	struct member *m;

	list_for_each_entry(m, &dev->members, list)
		if (m->qp == qp && (!gid || !memcmp(&m->gid, gid, sizeof(*gid))))
			return m;
	return NULL;
}

static void free_member(struct rcu_head *rcu)
{
	struct member *m = container_of(rcu, struct member, rcu);

	ropcie_qp_put(m->qp);
	kfree(m);
}

/* Under dev->qp_mutex. */
static void remove_member(struct ropcie_dev *dev, struct member *m)
{
	list_del_rcu(&m->list);
	dev->num_members--;
	/* Destroying the queue pair waits for it. */
	call_rcu_hurry(&m->rcu, free_member);
}

/* Queue pairs in a group. Under dev->qp_mutex. */
static u32 group_size(const struct ropcie_dev *dev, const union ib_gid *gid)
{
	const struct member *m;
	u32 n = 0;

	list_for_each_entry(m, &dev->members, list)
		n += !memcmp(&m->gid, gid, sizeof(*gid));
	return n;
}

int ropcie_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	struct ropcie_dev *dev = qp->dev;
	struct member *m, *is;
	int ret = 0;

	m = kzalloc(sizeof(*m), ROPCIE_GFP_USER);
	if (!m)
		return -ENOMEM;
	m->gid = *gid;
	m->times = 1;
	m->qp = qp;
	mutex_lock(&dev->qp_mutex);
	is = find_member(dev, qp, gid);
	if (is) {
		is->times++;
		kfree(m);
	} else if (dev->num_members == ROPCIE_MAX_MCAST ||
		   group_size(dev, gid) == ROPCIE_MAX_MCAST_QP) {
		kfree(m);
		ret = -ENOMEM;
	} else {
		refcount_inc(&qp->refs);
		dev->num_members++;
		list_add_tail_rcu(&m->list, &dev->members);
	}
	mutex_unlock(&dev->qp_mutex);
	return ret;
}

int ropcie_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct ropcie_qp *qp = to_rqp(ibqp);
	struct member *m;

	mutex_lock(&qp->dev->qp_mutex);
	m = find_member(qp->dev, qp, gid);
	if (m && !--m->times)
		remove_member(qp->dev, m);
	mutex_unlock(&qp->dev->qp_mutex);
	return m ? 0 : -EINVAL;
}

void ropcie_leave_groups(struct ropcie_qp *qp)
{
	struct member *m;

	lockdep_assert_held(&qp->dev->qp_mutex);
	for (m = find_member(qp->dev, qp, NULL); m;
	     m = find_member(qp->dev, qp, NULL))
		remove_member(qp->dev, m);
}

int ropcie_multicast_open(struct ropcie_dev *dev)
{
	dev->multicast_mq.id = ropcie_mq_id(ROPCIE_MULTICAST_QPN,
					    ROPCIE_MQ_REQUEST);
	dev->multicast_mq.recv = rx_multicast;
	dev->multicast_mq.for_many = true;
	return ropcie_mq_open(dev->adapter, &dev->multicast_mq);
}

void ropcie_multicast_close(struct ropcie_dev *dev)
{
	ropcie_mq_close(dev->adapter, &dev->multicast_mq);
}
