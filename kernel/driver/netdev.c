// SPDX-License-Identifier: GPL-2.0
/*
 * The Ethernet interface: one record of the message queue ROPCIE_MQ_NETDEV for
 * each frame, to the peer that has the destination address or to all.
 *
 * Owns the list of peers that frames go to, the transmit queue's stop and
 * wake-up, and the carrier. It knows nothing of verbs, and of lanes only that
 * one can be full.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "netdev.h"
#include "ntb_if/ntb_if.h"

#define ROPCIE_NETDEV_MTU 9000 /* RoCE's path MTU of 4096 fits */
/* A frame is one record, with the tag of a VLAN whose MTU is the device's. */
#define ROPCIE_NETDEV_MAX_MTU (ROPCIE_MAX_FRAG - ETH_HLEN - VLAN_HLEN)
/* Bytes of a long frame that are kept together: all headers of a packet. */
#define ROPCIE_NETDEV_HEAD 256
#define ROPCIE_NETDEV_MAX_VEC (MAX_SKB_FRAGS + 1)
/* Memory is asked for in blocks of at most 2^3 pages, as sockets do. */
#define ROPCIE_NETDEV_PAGE_ORDER 3
/* The longest that one peer's full lane holds up frames for other peers. */
#define ROPCIE_NETDEV_STALL HZ
/* How often a frame that is held is tried again, should a wake-up be missing. */
#define ROPCIE_NETDEV_RETRY (HZ / 10)
/* Frames that wait for the stack; as many as Linux lets wait by default. */
#define ROPCIE_NETDEV_BACKLOG 1000
/* Mbit/s that ethtool shows: nominal, as the link's own rate is not known. */
#define ROPCIE_NETDEV_SPEED SPEED_10000

/*
 * A peer that frames go to. @full to @refused belong to the transmit lock. @known
 * is @mac as a number, and stays when the peer is down.
 */
struct ropcie_netdev_peer {
	struct list_head list;
	struct ropcie_peer *peer;
	struct ropcie_mq_tx tx;
	u8 mac[ETH_ALEN];
	u64 known;
	bool full;
	bool unflushed;
	unsigned long full_since; /* jiffies; valid while @full */
	unsigned long refused; /* the last time; the same */
};

struct ropcie_netdev {
	struct net_device *ndev;
	struct ropcie_adapter *adapter;
	struct ropcie_mq mq;
	struct mutex lock; /* for changes of @peers */
	struct ropcie_netdev_peer *all; /* by ropcie_peer_index() */
	struct list_head peers; /* those of them that are up, under RCU */
	struct delayed_work retry;
	struct sk_buff *held; /* what waits for space, the queue stopped: transmit lock */
	struct sk_buff_head rx; /* in the order of the lanes, whoever drains them */
	struct napi_struct napi;
};

/* The payload of an skb without frag list as runs. Return: number of runs. */
static u32 ropcie_netdev_vec(struct sk_buff *skb, struct ropcie_vec *vec)
{
	u32 n = 0;
	int i;

	vec[n].base = skb->data;
	vec[n++].len = skb_headlen(skb);
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		vec[n].base = skb_frag_address(frag);
		vec[n++].len = skb_frag_size(frag);
	}
	return n;
}

static int ropcie_netdev_send(struct ropcie_netdev_peer *to,
			      const struct ropcie_hdr *hdr,
			      const struct ropcie_vec *vec, u32 nvec)
{
	int err = ropcie_mq_send(&to->tx, hdr, vec, nvec);

	if (!err) {
		to->full = false;
		to->unflushed = true;
	} else if (err == -EAGAIN) {
		/* Who does not try again, waits for nothing. */
		if (!to->full ||
		    time_after(jiffies, to->refused + ROPCIE_NETDEV_STALL))
			to->full_since = jiffies;
		to->full = true;
		to->refused = jiffies;
	}
	return err;
}

/* Has the peer been given its time to make space? */
static bool ropcie_netdev_stalled(const struct ropcie_netdev_peer *to)
{
	return to->full &&
	       time_after(jiffies, to->full_since + ROPCIE_NETDEV_STALL);
}

/* Return: 0; -EAGAIN when the frame can wait for the peer's full lane; or an error. */
static int ropcie_netdev_send_to(struct ropcie_netdev *nd,
				 struct ropcie_netdev_peer *to,
				 const struct ropcie_hdr *hdr,
				 const struct ropcie_vec *vec, u32 nvec)
{
	int err = ropcie_netdev_send(to, hdr, vec, nvec);

	/* A slow peer holds up nobody but itself. */
	if (err == -EAGAIN &&
	    (ropcie_netdev_stalled(to) || !list_is_singular(&nd->peers)))
		return -ENOBUFS;
	return err;
}

/*
 * To every peer. A full lane loses its copy, as a switch's port would, and
 * does not hold up the others.
 */
static int ropcie_netdev_flood(struct ropcie_netdev *nd,
			       const struct ropcie_hdr *hdr,
			       const struct ropcie_vec *vec, u32 nvec)
{
	struct ropcie_netdev_peer *to;
	int err = -EHOSTUNREACH;

	list_for_each_entry_rcu(to, &nd->peers, list) {
		if (!ropcie_netdev_send(to, hdr, vec, nvec))
			err = 0;
	}
	return err;
}

static struct ropcie_netdev_peer *ropcie_netdev_find(struct ropcie_netdev *nd,
						     const u8 *mac)
{
	struct ropcie_netdev_peer *to;

	list_for_each_entry_rcu(to, &nd->peers, list) {
		if (ether_addr_equal(to->mac, mac))
			return to;
	}
	return NULL;
}

/* Is it a peer's that is down? Then it is nobody else's, and for nobody else's eyes. */
static bool ropcie_netdev_knows(const struct ropcie_netdev *nd, const u8 *mac)
{
	u64 number = ether_addr_to_u64(mac);
	u32 i;

	for (i = 0; i < ropcie_adapter_num_peers(nd->adapter); i++)
		if (READ_ONCE(nd->all[i].known) == number)
			return true;
	return false;
}

static int ropcie_netdev_forward(struct ropcie_netdev *nd, struct sk_buff *skb)
{
	struct ropcie_vec vec[ROPCIE_NETDEV_MAX_VEC];
	const u8 *dest = eth_hdr(skb)->h_dest;
	struct ropcie_netdev_peer *to = NULL;
	struct ropcie_hdr hdr = {
		.op = ROPCIE_OP_ETH,
		.flags = ROPCIE_F_FIRST | ROPCIE_F_LAST,
		.mq = ROPCIE_MQ_NETDEV,
		.msg_len = skb->len,
		.frag_len = skb->len,
	};
	u32 nvec;

	if (skb_headlen(skb) < ETH_HLEN || skb->len > ROPCIE_MAX_FRAG)
		return -EMSGSIZE;
	if (ether_addr_equal(dest, nd->ndev->dev_addr))
		return -ELOOP;
	nvec = ropcie_netdev_vec(skb, vec);
	if (!is_multicast_ether_addr(dest)) {
		to = ropcie_netdev_find(nd, dest);
		if (!to && ropcie_netdev_knows(nd, dest))
			return -EHOSTUNREACH;
	}
	return to ? ropcie_netdev_send_to(nd, to, &hdr, vec, nvec) :
		    ropcie_netdev_flood(nd, &hdr, vec, nvec);
}

static void ropcie_netdev_flush(struct ropcie_netdev *nd)
{
	struct ropcie_netdev_peer *to;

	list_for_each_entry_rcu(to, &nd->peers, list) {
		if (to->unflushed) {
			to->unflushed = false;
			ropcie_mq_flush(&to->tx);
		}
	}
}

/*
 * Sends a frame, or holds it with the queue stopped. It is not handed back with
 * NETDEV_TX_BUSY: dev_requeue_skb() would put it behind the frames that Linux has
 * made of the same packet. Under RCU and the transmit lock.
 */
static void ropcie_netdev_transmit(struct ropcie_netdev *nd, struct sk_buff *skb)
{
	struct net_device *ndev = nd->ndev;
	unsigned int len = skb->len;
	int err = ropcie_netdev_forward(nd, skb);

	if (err == -EAGAIN && !netif_queue_stopped(ndev)) {
		/*
		 * Space may have come, and have been told, before the queue
		 * stopped; what a second refusal leads to comes after it.
		 */
		netif_stop_queue(ndev);
		err = ropcie_netdev_forward(nd, skb);
		if (err != -EAGAIN)
			netif_start_queue(ndev);
	}
	if (err == -EAGAIN) {
		nd->held = skb;
		schedule_delayed_work(&nd->retry, ROPCIE_NETDEV_RETRY);
	} else if (err) {
		dev_core_stats_tx_dropped_inc(ndev);
		dev_kfree_skb_any(skb);
	} else {
		skb_tx_timestamp(skb);
		dev_sw_netstats_tx_add(ndev, 1, len);
		dev_consume_skb_any(skb);
	}
}

static netdev_tx_t ropcie_netdev_xmit(struct sk_buff *skb,
				      struct net_device *ndev)
{
	struct ropcie_netdev *nd = netdev_priv(ndev);

	rcu_read_lock();
	skb_reset_mac_header(skb);
	ropcie_netdev_transmit(nd, skb);
	if (!netdev_xmit_more() || nd->held)
		ropcie_netdev_flush(nd);
	rcu_read_unlock();
	return NETDEV_TX_OK;
}

/* The frame that is held, again; when it is sent or dropped, those behind it. */
static void ropcie_netdev_resume(struct ropcie_netdev *nd)
{
	struct netdev_queue *txq = netdev_get_tx_queue(nd->ndev, 0);
	struct sk_buff *skb;

	rcu_read_lock();
	__netif_tx_lock(txq, smp_processor_id());
	skb = nd->held;
	nd->held = NULL;
	if (skb)
		ropcie_netdev_transmit(nd, skb);
	if (skb && !nd->held) {
		ropcie_netdev_flush(nd);
		netif_tx_wake_queue(txq);
	}
	__netif_tx_unlock(txq);
	rcu_read_unlock();
}

static void ropcie_netdev_retry(struct work_struct *work)
{
	struct ropcie_netdev *nd =
		container_of(work, struct ropcie_netdev, retry.work);

	local_bh_disable();
	ropcie_netdev_tx_space(nd->ndev);
	local_bh_enable();
}

/* An skb of @len bytes, in pages when it is long; NULL when memory is short. */
static struct sk_buff *ropcie_netdev_alloc(struct net_device *ndev, u32 len)
{
	struct sk_buff *skb;
	int err;

	if (len <= SKB_WITH_OVERHEAD(PAGE_SIZE) - NET_SKB_PAD - NET_IP_ALIGN) {
		skb = netdev_alloc_skb_ip_align(ndev, len);
		if (skb)
			skb_put(skb, len);
		return skb;
	}
	skb = alloc_skb_with_frags(ROPCIE_NETDEV_HEAD + NET_IP_ALIGN,
				   len - ROPCIE_NETDEV_HEAD,
				   ROPCIE_NETDEV_PAGE_ORDER, &err, GFP_ATOMIC);
	if (!skb)
		return NULL;
	skb->dev = ndev;
	skb_reserve(skb, NET_IP_ALIGN);
	skb_put(skb, ROPCIE_NETDEV_HEAD);
	skb->data_len = len - ROPCIE_NETDEV_HEAD;
	skb->len += skb->data_len;
	return skb;
}

/* The peer's record is hostile: nothing of it is right until it is checked. */
static void ropcie_netdev_recv(struct ropcie_mq *mq, struct ropcie_peer *peer,
			       const struct ropcie_rec *rec)
{
	struct ropcie_netdev *nd = mq->priv;
	struct net_device *ndev = nd->ndev;
	struct ropcie_vec vec[ROPCIE_NETDEV_MAX_VEC];
	u32 len = rec->hdr.frag_len;
	struct sk_buff *skb;

	if (rec->hdr.op != ROPCIE_OP_ETH || rec->hdr.msg_len != len ||
	    len < ETH_HLEN ||
	    len > READ_ONCE(ndev->mtu) + ETH_HLEN + VLAN_HLEN) {
		DEV_STATS_INC(ndev, rx_errors);
		DEV_STATS_INC(ndev, rx_length_errors);
		return;
	}
	skb = skb_queue_len_lockless(&nd->rx) < ROPCIE_NETDEV_BACKLOG ?
		      ropcie_netdev_alloc(ndev, len) : NULL;
	if (!skb) {
		dev_core_stats_rx_dropped_inc(ndev);
		return;
	}
	ropcie_rec_scatter(rec, 0, vec, ropcie_netdev_vec(skb, vec));
	dev_sw_netstats_rx_add(ndev, len);
	skb->protocol = eth_type_trans(skb, ndev);
	skb_queue_tail(&nd->rx, skb);
	napi_schedule(&nd->napi);
}

static int ropcie_netdev_poll(struct napi_struct *napi, int budget)
{
	struct ropcie_netdev *nd =
		container_of(napi, struct ropcie_netdev, napi);
	struct sk_buff *skb;
	int done = 0;

	if (netif_queue_stopped(nd->ndev))
		ropcie_netdev_resume(nd);
	while (done < budget && (skb = skb_dequeue(&nd->rx))) {
		napi_gro_receive(napi, skb);
		done++;
	}
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}

static int ropcie_netdev_open(struct net_device *ndev)
{
	struct ropcie_netdev *nd = netdev_priv(ndev);
	int err;

	napi_enable(&nd->napi);
	err = ropcie_mq_open(nd->adapter, &nd->mq);
	if (err) {
		napi_disable(&nd->napi);
		return err;
	}
	netif_start_queue(ndev);
	return 0;
}

static int ropcie_netdev_stop(struct net_device *ndev)
{
	struct ropcie_netdev *nd = netdev_priv(ndev);

	netif_stop_queue(ndev);
	ropcie_mq_close(nd->adapter, &nd->mq);
	napi_disable(&nd->napi);
	skb_queue_purge(&nd->rx);
	if (nd->held)
		dev_core_stats_tx_dropped_inc(ndev);
	kfree_skb(nd->held);
	nd->held = NULL;
	return 0;
}

/* No ndo_set_mac_address: the peers know the address from the handshake. */
static const struct net_device_ops ropcie_netdev_ops = {
	.ndo_open = ropcie_netdev_open,
	.ndo_stop = ropcie_netdev_stop,
	.ndo_start_xmit = ropcie_netdev_xmit,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_validate_addr = eth_validate_addr,
};

static void ropcie_netdev_get_drvinfo(struct net_device *ndev,
				      struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "ropcie", sizeof(info->driver));
	strscpy(info->bus_info, dev_name(ndev->dev.parent),
		sizeof(info->bus_info));
}

static int ropcie_netdev_get_link_ksettings(struct net_device *ndev,
					    struct ethtool_link_ksettings *cmd)
{
	cmd->base.speed = netif_carrier_ok(ndev) ? ROPCIE_NETDEV_SPEED :
						   SPEED_UNKNOWN;
	cmd->base.duplex = DUPLEX_FULL;
	cmd->base.port = PORT_OTHER;
	cmd->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static const struct ethtool_ops ropcie_netdev_ethtool_ops = {
	.get_drvinfo = ropcie_netdev_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = ropcie_netdev_get_link_ksettings,
	.get_ts_info = ethtool_op_get_ts_info,
};

bool ropcie_netdev_is_own(const struct net_device *ndev)
{
	return ndev->netdev_ops == &ropcie_netdev_ops;
}

static void ropcie_netdev_free(struct net_device *ndev)
{
	struct ropcie_netdev *nd = netdev_priv(ndev);

	free_percpu(ndev->tstats);
	kfree(nd->all);
	free_netdev(ndev);
}

struct net_device *ropcie_netdev_create(struct ropcie_adapter *a,
					struct device *parent)
{
	struct ropcie_netdev *nd;
	struct net_device *ndev;

	ndev = alloc_netdev(sizeof(*nd), "ropcie%d", NET_NAME_ENUM,
			    ether_setup);
	if (!ndev)
		return NULL;
	nd = netdev_priv(ndev);
	/* Now: nobody would try again, should there be no memory when a link comes up. */
	nd->all = kcalloc(ropcie_adapter_num_peers(a), sizeof(*nd->all),
			  GFP_KERNEL);
	ndev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	if (!nd->all || !ndev->tstats) {
		ropcie_netdev_free(ndev);
		return NULL;
	}

	nd->ndev = ndev;
	nd->adapter = a;
	nd->mq.id = ROPCIE_MQ_NETDEV;
	nd->mq.recv = ropcie_netdev_recv;
	nd->mq.priv = nd;
	mutex_init(&nd->lock);
	INIT_LIST_HEAD(&nd->peers);
	INIT_DELAYED_WORK(&nd->retry, ropcie_netdev_retry);
	skb_queue_head_init(&nd->rx);
	netif_napi_add(ndev, &nd->napi, ropcie_netdev_poll);

	SET_NETDEV_DEV(ndev, parent);
	eth_hw_addr_random(ndev);
	/* netpoll sends with interrupts off, which lanes do not allow. */
	ndev->priv_flags |= IFF_DISABLE_NETPOLL;
	ndev->netdev_ops = &ropcie_netdev_ops;
	ndev->ethtool_ops = &ropcie_netdev_ethtool_ops;
	ndev->mtu = ROPCIE_NETDEV_MTU;
	ndev->max_mtu = ROPCIE_NETDEV_MAX_MTU;
	/* Without HIGHDMA: fragments must have kernel addresses. */
	ndev->hw_features = NETIF_F_SG;
	ndev->features = NETIF_F_SG;
	ndev->vlan_features = NETIF_F_SG;
	netif_carrier_off(ndev);
	return ndev;
}

int ropcie_netdev_register(struct net_device *ndev)
{
	return register_netdev(ndev);
}

void ropcie_netdev_peer_up(struct net_device *ndev, struct ropcie_peer *peer)
{
	struct ropcie_netdev *nd = netdev_priv(ndev);
	struct ropcie_netdev_peer *to;

	if (ropcie_peer_is_self(peer))
		return;
	to = &nd->all[ropcie_peer_index(peer)];
	to->peer = peer;
	to->full = false;
	to->unflushed = false;
	ether_addr_copy(to->mac, ropcie_peer_mac(peer));
	WRITE_ONCE(to->known, ether_addr_to_u64(to->mac));
	ropcie_mq_to_peer(peer, 0, &to->tx);

	mutex_lock(&nd->lock);
	list_add_tail_rcu(&to->list, &nd->peers);
	netif_carrier_on(ndev);
	mutex_unlock(&nd->lock);
}

/* Forgets one peer, or with NULL all. */
static void ropcie_netdev_forget(struct ropcie_netdev *nd,
				 struct ropcie_peer *peer)
{
	struct ropcie_netdev_peer *to, *next;

	mutex_lock(&nd->lock);
	list_for_each_entry_safe(to, next, &nd->peers, list) {
		if (peer && to->peer != peer)
			continue;
		list_del_rcu(&to->list);
		/* A reader may still stand on it. */
		synchronize_net();
		ropcie_mq_disconnect(&to->tx);
	}
	if (list_empty(&nd->peers))
		netif_carrier_off(nd->ndev);
	mutex_unlock(&nd->lock);
}

void ropcie_netdev_peer_down(struct net_device *ndev, struct ropcie_peer *peer)
{
	ropcie_netdev_forget(netdev_priv(ndev), peer);
	/* A frame may have been waiting for this peer's lane. */
	local_bh_disable();
	ropcie_netdev_tx_space(ndev);
	local_bh_enable();
}

/* A frame that is just being refused is held before the poll can have its lock. */
void ropcie_netdev_tx_space(struct net_device *ndev)
{
	struct ropcie_netdev *nd = netdev_priv(ndev);

	if (netif_queue_stopped(ndev))
		napi_schedule(&nd->napi);
}

void ropcie_netdev_destroy(struct net_device *ndev)
{
	struct ropcie_netdev *nd = netdev_priv(ndev);

	if (ndev->reg_state == NETREG_REGISTERED)
		unregister_netdev(ndev);
	ropcie_netdev_forget(nd, NULL);
	cancel_delayed_work_sync(&nd->retry);
	ropcie_netdev_free(ndev);
}
