// SPDX-License-Identifier: GPL-2.0
/*
 * ropcie.ko: binds to devices of the RoPCIe bus and registers a verbs device
 * and an Ethernet interface for each. Owns their life and what they say of
 * themselves; the verbs are in mr.c, cq.c, qp.c, post.c.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <net/addrconf.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/uverbs_ioctl.h>

#include "memory.h"
#include "netdev.h"
#include "odp.h"
#include "qp.h"
#include "queues.h"
#include "ropcie.h"
#include "ud.h"

static int ropcie_query_device(struct ib_device *ibdev,
			       struct ib_device_attr *attr,
			       struct ib_udata *udata)
{
	if (udata->inlen || udata->outlen)
		return -EINVAL;
	attr->sys_image_guid = ibdev->node_guid;
	attr->vendor_id = 0xffffff; /* no OUI: as other software devices */
	attr->max_mr_size = ROPCIE_MAX_MR_SIZE;
	attr->page_size_cap = PAGE_SIZE;
	attr->device_cap_flags = IB_DEVICE_RC_RNR_NAK_GEN |
				 IB_DEVICE_PORT_ACTIVE_EVENT |
				 IB_DEVICE_SYS_IMAGE_GUID |
				 IB_DEVICE_SRQ_RESIZE |
				 IB_DEVICE_XRC |
				 IB_DEVICE_ATOMIC_WRITE |
				 IB_DEVICE_MEM_WINDOW |
				 IB_DEVICE_MEM_WINDOW_TYPE_2B |
				 IB_DEVICE_MEM_MGT_EXTENSIONS;
	attr->max_qp = ROPCIE_MAX_QP;
	attr->max_qp_wr = ROPCIE_MAX_WR;
	attr->max_send_sge = ROPCIE_MAX_SGE;
	attr->max_recv_sge = ROPCIE_MAX_SGE;
	attr->max_sge_rd = ROPCIE_MAX_SGE;
	attr->max_qp_rd_atom = ROPCIE_MAX_RD_ATOMIC;
	attr->max_qp_init_rd_atom = ROPCIE_MAX_RD_ATOMIC;
	attr->max_res_rd_atom = ROPCIE_MAX_RD_ATOMIC * ROPCIE_MAX_QP;
	attr->max_cq = ROPCIE_MAX_CQ;
	attr->max_cqe = ROPCIE_MAX_CQE;
	attr->cq_caps.max_cq_moderation_count = U16_MAX;
	attr->cq_caps.max_cq_moderation_period = U16_MAX;
	attr->max_srq = ROPCIE_MAX_SRQ;
	attr->max_srq_wr = ROPCIE_MAX_WR;
	attr->max_srq_sge = ROPCIE_MAX_SGE;
	attr->max_mr = ROPCIE_MAX_MR;
	attr->max_mw = ROPCIE_MAX_MW;
	attr->max_fast_reg_page_list_len = ROPCIE_MAX_FAST_REG_PAGES;
	attr->max_dm_size = ROPCIE_MAX_DM_SIZE;
	attr->max_pd = ROPCIE_MAX_PD;
	attr->max_ah = ROPCIE_MAX_AH;
	attr->max_mcast_grp = ROPCIE_MAX_MCAST;
	attr->max_mcast_qp_attach = ROPCIE_MAX_MCAST_QP;
	attr->max_total_mcast_qp_attach = ROPCIE_MAX_MCAST;
	attr->max_pkeys = 1;
	attr->atomic_cap = IB_ATOMIC_GLOB;
	if (!to_rdev(ibdev)->rdev)
		attr->kernel_cap_flags = IBK_ALLOW_USER_UNREG;
	ropcie_odp_caps(attr);
	/* Time stamps are CLOCK_MONOTONIC in ns: a clock of 10^6 kHz. */
	attr->timestamp_mask = U64_MAX;
	attr->hca_core_clock = USEC_PER_SEC;
	return 0;
}

static bool port_active(const struct ropcie_dev *dev)
{
	return netif_running(dev->netdev) && netif_carrier_ok(dev->netdev);
}

/* Where it is not, core would say so each time that somebody asks. */
static bool speed_is_known(struct net_device *ndev)
{
	struct ethtool_link_ksettings settings;
	int ret = -ENODEV;

	if (!netif_carrier_ok(ndev))
		return false;
	rtnl_lock();
	/* One that is going may stand on one that is gone. */
	if (ndev->reg_state == NETREG_REGISTERED)
		ret = __ethtool_get_link_ksettings(ndev, &settings);
	rtnl_unlock();
	return !ret && settings.base.speed != (u32)SPEED_UNKNOWN;
}

static int ropcie_query_port(struct ib_device *ibdev, u32 port,
			     struct ib_port_attr *attr)
{
	struct net_device *ndev = to_rdev(ibdev)->netdev;
	bool up = port_active(to_rdev(ibdev));

	attr->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP :
			   netif_running(ndev) ?
				IB_PORT_PHYS_STATE_POLLING :
				IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = iboe_get_mtu(ndev->mtu);
	attr->gid_tbl_len = ROPCIE_GID_TBL_LEN;
	attr->ip_gids = true;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->qkey_viol_cntr = ropcie_counter_sum(to_rdev(ibdev)->counters,
						  ROPCIE_RX_QKEY_VIOLATIONS);
	attr->max_msg_sz = ROPCIE_MAX_MSG;
	attr->pkey_tbl_len = 1;
	attr->max_vl_num = 1;
	if (!up || !speed_is_known(ndev) ||
	    ib_get_eth_speed(ibdev, port, &attr->active_speed,
			     &attr->active_width)) {
		attr->active_speed = IB_SPEED_SDR;
		attr->active_width = IB_WIDTH_1X;
	}
	return 0;
}

static int ropcie_query_pkey(struct ib_device *ibdev, u32 port, u16 index,
			     u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

static int ropcie_get_port_immutable(struct ib_device *ibdev, u32 port,
				     struct ib_port_immutable *immutable)
{
	struct ib_port_attr attr = {};
	int ret;

	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE |
				    RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	ret = ib_query_port(ibdev, port, &attr);
	if (ret)
		return ret;
	immutable->pkey_tbl_len = attr.pkey_tbl_len;
	immutable->gid_tbl_len = attr.gid_tbl_len;
	return 0;
}

static enum rdma_link_layer ropcie_get_link_layer(struct ib_device *ibdev,
						  u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static struct net_device *ropcie_get_netdev(struct ib_device *ibdev, u32 port)
{
	struct net_device *ndev = to_rdev(ibdev)->netdev;

	dev_hold(ndev);
	return ndev;
}

static int ropcie_alloc_ucontext(struct ib_ucontext *ibuc,
				 struct ib_udata *udata)
{
	struct ropcie_abi_alloc_ucontext_resp resp = {
		.abi_version = ROPCIE_ABI_VERSION,
		.features = ROPCIE_ABI_CTX_FEATURES_ALL,
		.max_inline_data = ROPCIE_ABI_MAX_INLINE_DATA,
	};
	struct ropcie_abi_alloc_ucontext_req req = {};
	int ret;

	ret = ropcie_copy_req(udata, &req, sizeof(req));
	if (ret)
		return ret;
	if (req.comp_mask & ~ROPCIE_ABI_CTX_FEATURES_ALL)
		return -EOPNOTSUPP;
	if (req.reserved)
		return -EINVAL;
	resp.comp_mask = req.comp_mask;
	return ib_copy_to_udata(udata, &resp,
				min(sizeof(resp), udata->outlen));
}

/* For a process that was given the file of a context (ibv_import_device). */
static int ropcie_query_ucontext(struct ib_ucontext *ibuc,
				 struct uverbs_attr_bundle *attrs)
{
	return 0;
}

/* Contexts hold nothing of their own; what is mapped has its pages. */
static void ropcie_dealloc_ucontext(struct ib_ucontext *ibuc)
{
}

static void ropcie_disassociate_ucontext(struct ib_ucontext *ibuc)
{
}

/* By this the provider knows its devices, whatever their names are. */
static ssize_t hca_type_show(struct device *device,
			     struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", ROPCIE_ABI_HCA_TYPE);
}
static DEVICE_ATTR_RO(hca_type);

static struct attribute *device_attributes[] = {
	&dev_attr_hca_type.attr,
	NULL,
};

static const struct attribute_group device_group = {
	.attrs = device_attributes,
};

static const struct ib_device_ops ropcie_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = ROPCIE_ABI_VERSION,

	.alloc_dm = ropcie_alloc_dm,
	.alloc_hw_port_stats = ropcie_alloc_hw_port_stats,
	.alloc_mr = ropcie_alloc_mr,
	.alloc_mw = ropcie_alloc_mw,
	.alloc_pd = ropcie_alloc_pd,
	.alloc_ucontext = ropcie_alloc_ucontext,
	.alloc_xrcd = ropcie_alloc_xrcd,
	.attach_mcast = ropcie_attach_mcast,
	.counter_alloc_stats = ropcie_counter_alloc_stats,
	.counter_bind_qp = ropcie_counter_bind_qp,
	.counter_dealloc = ropcie_counter_dealloc,
	.counter_unbind_qp = ropcie_counter_unbind_qp,
	.counter_update_stats = ropcie_counter_update_stats,
	.create_ah = ropcie_create_ah,
	.create_cq = ropcie_create_cq,
	.create_qp = ropcie_create_qp,
	.create_srq = ropcie_create_srq,
	.create_user_ah = ropcie_create_ah,
	.dealloc_dm = ropcie_dealloc_dm,
	.dealloc_mw = ropcie_dealloc_mw,
	.dealloc_pd = ropcie_dealloc_pd,
	.dealloc_ucontext = ropcie_dealloc_ucontext,
	.dealloc_xrcd = ropcie_dealloc_xrcd,
	.dereg_mr = ropcie_dereg_mr,
	.pre_destroy_cq = ropcie_pre_destroy_cq,
	.destroy_ah = ropcie_destroy_ah,
	.destroy_cq = ropcie_destroy_cq,
	.destroy_qp = ropcie_destroy_qp,
	.destroy_srq = ropcie_destroy_srq,
	.detach_mcast = ropcie_detach_mcast,
	.device_group = &device_group,
	.disassociate_ucontext = ropcie_disassociate_ucontext,
	.fill_res_cq_entry = ropcie_fill_res_cq_entry,
	.fill_res_mr_entry = ropcie_fill_res_mr_entry,
	.fill_res_qp_entry = ropcie_fill_res_qp_entry,
	.get_dma_mr = ropcie_get_dma_mr,
	.get_hw_stats = ropcie_get_hw_stats,
	.get_link_layer = ropcie_get_link_layer,
	.get_netdev = ropcie_get_netdev,
	.get_port_immutable = ropcie_get_port_immutable,
	.map_mr_sg = ropcie_map_mr_sg,
	.mmap = ropcie_mmap,
	.mmap_free = ropcie_mmap_free,
	.modify_cq = ropcie_modify_cq,
	.modify_qp = ropcie_modify_qp,
	.modify_srq = ropcie_modify_srq,
	.poll_cq = ropcie_poll_cq,
	.post_recv = ropcie_post_recv,
	.post_send = ropcie_post_send,
	.post_srq_recv = ropcie_post_srq_recv,
	.query_ah = ropcie_query_ah,
	.query_device = ropcie_query_device,
	.query_pkey = ropcie_query_pkey,
	.query_port = ropcie_query_port,
	.query_qp = ropcie_query_qp,
	.query_srq = ropcie_query_srq,
	.query_ucontext = ropcie_query_ucontext,
	.reg_dm_mr = ropcie_reg_dm_mr,
	.reg_user_mr = ropcie_reg_user_mr,
	.advise_mr = ropcie_advise_mr,
	.reg_user_mr_dmabuf = ropcie_reg_user_mr_dmabuf,
	.req_notify_cq = ropcie_req_notify_cq,
	.rereg_user_mr = ropcie_rereg_user_mr,
	.resize_cq = ropcie_resize_cq,

	INIT_RDMA_OBJ_SIZE(ib_ah, ropcie_ah, ibah),
	INIT_RDMA_OBJ_SIZE(ib_cq, ropcie_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_mw, ropcie_mw, ibmw),
	INIT_RDMA_OBJ_SIZE(ib_pd, ropcie_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, ropcie_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_srq, ropcie_srq, ibsrq),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, ropcie_ucontext, ibuc),
	INIT_RDMA_OBJ_SIZE(ib_xrcd, ropcie_xrcd, ibxrcd),
};

/* All verbs devices, for what becomes of their interfaces. */
static LIST_HEAD(devices);
static DEFINE_MUTEX(devices_lock); /* guards the list; taken under RTNL */

/* Before and after the device's registration nobody listens. */
static void dispatch_port_event(struct ropcie_dev *dev)
{
	struct ib_event event = {
		.device = &dev->ib,
		.element.port_num = 1,
		.event = dev->port_active ? IB_EVENT_PORT_ACTIVE :
					    IB_EVENT_PORT_ERR,
	};

	if (ib_device_try_get(&dev->ib)) {
		ib_dispatch_event(&event);
		ib_device_put(&dev->ib);
	}
}

/* The interface went up or down, or its carrier did. */
static void look_at_netdev(struct ropcie_dev *dev)
{
	bool active = port_active(dev);

	if (active == dev->port_active)
		return;
	WRITE_ONCE(dev->port_active, active);
	dispatch_port_event(dev);
}

/*
 * Under RTNL. One notifier for all: a device that ends must not wait for the
 * lock of notifiers, whose owner may wait for the device's interface.
 */
static int on_netdev_event(struct notifier_block *nb, unsigned long what,
			   void *info)
{
	struct net_device *ndev = netdev_notifier_info_to_dev(info);
	struct ropcie_dev *dev;

	mutex_lock(&devices_lock);
	list_for_each_entry(dev, &devices, list) {
		if (dev->netdev != ndev)
			continue;
		look_at_netdev(dev);
		/* Without the interface that it borrows a device is nothing. */
		if (what == NETDEV_UNREGISTER && !dev->rdev &&
		    ib_device_try_get(&dev->ib)) {
			ib_unregister_device_queued(&dev->ib);
			ib_device_put(&dev->ib);
		}
	}
	mutex_unlock(&devices_lock);
	return NOTIFY_DONE;
}

static struct notifier_block netdev_notifier = {
	.notifier_call = on_netdev_event,
};

static void list_dev(struct ropcie_dev *dev)
{
	/* What has happened to its interface before is looked at here. */
	rtnl_lock();
	mutex_lock(&devices_lock);
	dev->port_active = port_active(dev);
	list_add_tail(&dev->list, &devices);
	mutex_unlock(&devices_lock);
	rtnl_unlock();
}

/* What look_at_netdev() may have seen while the device was being registered. */
static void tell_of_port(struct ropcie_dev *dev)
{
	mutex_lock(&devices_lock);
	dispatch_port_event(dev);
	mutex_unlock(&devices_lock);
}

static void unlist_dev(struct ropcie_dev *dev)
{
	mutex_lock(&devices_lock);
	list_del(&dev->list);
	mutex_unlock(&devices_lock);
}

static void on_peer_up(void *ctx, struct ropcie_peer *peer)
{
	struct ropcie_dev *dev = ctx;

	if (dev->rdev)
		ropcie_netdev_peer_up(dev->netdev, peer);
}

static void on_peer_down(void *ctx, struct ropcie_peer *peer)
{
	struct ropcie_dev *dev = ctx;

	if (dev->rdev)
		ropcie_netdev_peer_down(dev->netdev, peer);
	ropcie_qp_peer_down(dev, peer);
}

static const struct ropcie_adapter_user adapter_user = {
	.peer_up = on_peer_up,
	.peer_down = on_peer_down,
	.batch_end = ropcie_rx_batch_end,
	.tx_space = ropcie_tx_space,
};

static int start_adapter(struct ropcie_dev *dev)
{
	return ropcie_adapter_start(dev->adapter, &adapter_user, dev, dev->mac,
				    be64_to_cpu(dev->ib.node_guid));
}

/*
 * Of no other device, also where rxe or siw is on the same interface: the connection
 * manager and many of its users tell devices apart by it. Those take FF FE for the two
 * bytes in the middle.
 */
static void set_guid(struct ropcie_dev *dev)
{
	u8 *guid = (u8 *)&dev->ib.node_guid;

	addrconf_addr_eui48(guid, dev->mac);
	guid[3] = 'r';
	guid[4] = 'p';
}

static void setup_ibdev(struct ropcie_dev *dev)
{
	struct ib_device *ib = &dev->ib;

	ib_set_device_ops(ib, &ropcie_ops);
	ib->driver_def = ropcie_uapi_defs;
	strscpy(ib->node_desc, "RoPCIe", sizeof(ib->node_desc));
	ib->node_type = RDMA_NODE_IB_CA;
	ib->phys_port_cnt = 1;
	/* Completions are told of where they come; more vectors are more queues. */
	ib->num_comp_vectors = num_possible_cpus();
	/* A borrowed interface's parent would let its provider take the device. */
	ib->dev.parent = dev->rdev ? &dev->rdev->dev : NULL;
	/* The uverbs commands that a provider without mapped queues needs. */
	ib->uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
			       BIT_ULL(IB_USER_VERBS_CMD_POST_RECV) |
			       BIT_ULL(IB_USER_VERBS_CMD_POST_SRQ_RECV) |
			       BIT_ULL(IB_USER_VERBS_CMD_POLL_CQ) |
			       BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	set_guid(dev);
}

static struct lock_class_key ahs_lock_key;

static void init_dev(struct ropcie_dev *dev,
		     const struct ropcie_dev_origin *origin)
{
	int i;

	dev->rdev = origin->rdev;
	dev->adapter = origin->adapter;
	xa_init_flags(&dev->qps, XA_FLAGS_ALLOC);
	xa_init_flags(&dev->xrc_srqs, XA_FLAGS_ALLOC1);
	xa_init_flags(&dev->qp_counters, XA_FLAGS_ALLOC1);
	mutex_init(&dev->qp_mutex);
	ida_init(&dev->pds);
	xa_init_flags(&dev->ahs, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_IRQ);
	/* Taken by posters, unlike those of the others. */
	lockdep_set_class(&dev->ahs.xa_lock, &ahs_lock_key);
	for (i = 0; i < ARRAY_SIZE(dev->blocked); i++)
		INIT_LIST_HEAD(&dev->blocked[i]);
	INIT_LIST_HEAD(&dev->wc_names);
	INIT_LIST_HEAD(&dev->members);
	spin_lock_init(&dev->blocked_lock);
	init_waitqueue_head(&dev->grants_back);
}

/* All but the memory of the verbs device itself. */
static void free_dev(struct ropcie_dev *dev)
{
	ropcie_mr_table_destroy(dev);
	free_percpu(dev->counters);
	ropcie_free_wc_names(dev);
	ida_destroy(&dev->pds);
	xa_destroy(&dev->ahs);
	xa_destroy(&dev->qps);
	xa_destroy(&dev->xrc_srqs);
	xa_destroy(&dev->qp_counters);
}

static int own_netdev(struct ropcie_dev *dev)
{
	dev->netdev = ropcie_netdev_create(dev->adapter, &dev->rdev->dev);
	if (!dev->netdev)
		return -ENOMEM;
	ether_addr_copy(dev->mac, dev->netdev->dev_addr);
	return 0;
}

static void borrow_netdev(struct ropcie_dev *dev, struct net_device *ndev)
{
	dev_hold(ndev);
	dev->netdev = ndev;
	eth_random_addr(dev->mac);
}

static void put_netdev(struct ropcie_dev *dev)
{
	if (dev->rdev)
		ropcie_netdev_destroy(dev->netdev);
	else
		dev_put(dev->netdev);
}

const u8 *ropcie_dev_mac(const struct ropcie_dev *dev,
			 const struct ib_gid_attr *source, const u8 *dmac)
{
	u8 smac[ETH_ALEN];

	if (source && !rdma_read_gid_l2_fields(source, NULL, smac) &&
	    ether_addr_equal_unaligned(dmac, smac))
		return dev->mac;
	return dmac;
}

/* A device that was made by "rdma link add" has been unregistered. */
static void dealloc_link(struct ib_device *ibdev)
{
	struct ropcie_dev *dev = to_rdev(ibdev);

	ropcie_multicast_close(dev);
	ropcie_adapter_stop(dev->adapter);
	unlist_dev(dev);
	ropcie_self_destroy(dev->adapter);
	put_netdev(dev);
	free_dev(dev);
	WRITE_ONCE(dev->ended, true);
}

struct ropcie_dev *ropcie_dev_create(const struct ropcie_dev_origin *origin)
{
	struct ropcie_dev *dev;
	int ret;

	dev = ib_alloc_device(ropcie_dev, ib);
	if (!dev)
		return ERR_PTR(-ENOMEM);
	init_dev(dev, origin);
	dev->counters = alloc_percpu(struct ropcie_counters);
	ret = dev->counters ? ropcie_mr_table_create(dev) : -ENOMEM;
	if (ret)
		goto err_free;
	if (origin->rdev)
		ret = own_netdev(dev);
	else
		borrow_netdev(dev, origin->netdev);
	if (ret)
		goto err_free;
	setup_ibdev(dev);
	ret = origin->rdev ? ropcie_netdev_register(dev->netdev) : 0;
	if (ret)
		goto err_netdev;
	list_dev(dev);
	/* Before anybody can use the device: it reaches itself at once. */
	ret = start_adapter(dev);
	if (ret)
		goto err_unlist;
	ret = ropcie_multicast_open(dev);
	if (ret)
		goto err_stop;
	ret = ib_device_set_netdev(&dev->ib, dev->netdev, 1);
	if (ret)
		goto err_multicast;
	if (!dev->rdev) {
		/* Whoever unregisters it ends it. */
		dev->ib.ops.dealloc_driver = dealloc_link;
		get_device(&dev->ib.dev);
	}
	ret = ib_register_device(&dev->ib, origin->name, NULL);
	if (ret)
		goto err_unregistered;
	tell_of_port(dev);
	return dev;

err_unregistered:
	if (!dev->rdev) {
		put_device(&dev->ib.dev);
		dev->ib.ops.dealloc_driver = NULL;
	}
	ib_device_set_netdev(&dev->ib, NULL, 1);
err_multicast:
	ropcie_multicast_close(dev);
err_stop:
	ropcie_adapter_stop(dev->adapter);
err_unlist:
	unlist_dev(dev);
err_netdev:
	put_netdev(dev);
err_free:
	free_dev(dev);
	ib_dealloc_device(&dev->ib);
	return ERR_PTR(ret);
}

static int ropcie_probe(struct ropcie_device *rdev)
{
	struct ropcie_dev_origin origin = {
		.adapter = rdev->adapter,
		.rdev = rdev,
		.name = "ropcie%d",
	};
	struct ropcie_dev *dev = ropcie_dev_create(&origin);

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	dev_set_drvdata(&rdev->dev, dev);
	return 0;
}

static void ropcie_remove(struct ropcie_device *rdev)
{
	struct ropcie_dev *dev = dev_get_drvdata(&rdev->dev);

	/* Programs see the device go before their peers see them go. */
	ib_unregister_device(&dev->ib);
	ropcie_multicast_close(dev);
	ropcie_adapter_stop(dev->adapter);
	unlist_dev(dev);
	put_netdev(dev);
	free_dev(dev);
	ib_dealloc_device(&dev->ib);
}

/*
 * Most drivers of NTBs leave the link up and the windows open then: peers would write to
 * what may be another kernel's memory. Programs may still run, as after a lost link.
 */
static void ropcie_shutdown(struct ropcie_device *rdev)
{
	struct ropcie_dev *dev = dev_get_drvdata(&rdev->dev);

	ropcie_adapter_stop(dev->adapter);
}

static int ropcie_resume(struct ropcie_device *rdev)
{
	int ret = start_adapter(dev_get_drvdata(&rdev->dev));

	if (ret)
		dev_err(&rdev->dev,
			"no links after the sleep (%d): unbind the device from its driver, and bind it again\n",
			ret);
	return ret;
}

static struct ropcie_driver ropcie_driver = {
	.driver.name = "ropcie",
	.driver.owner = THIS_MODULE,
	.probe = ropcie_probe,
	.remove = ropcie_remove,
	.shutdown = ropcie_shutdown,
	.resume = ropcie_resume,
};

static int __init ropcie_init(void)
{
	int ret = ropcie_work_init();

	if (ret)
		return ret;
	ret = ropcie_odp_init();
	if (ret)
		goto err_work;
	ret = ropcie_mmap_init();
	if (ret)
		goto err_odp;
	ret = register_netdevice_notifier(&netdev_notifier);
	if (ret)
		goto err_mmap;
	ret = ropcie_driver_register(&ropcie_driver);
	if (ret)
		goto err_notifier;
	ropcie_link_init();
	return 0;

err_notifier:
	unregister_netdevice_notifier(&netdev_notifier);
err_mmap:
	ropcie_mmap_exit();
err_odp:
	ropcie_odp_exit();
err_work:
	ropcie_work_exit();
	return ret;
}

static void __exit ropcie_exit(void)
{
	ropcie_link_exit();
	ropcie_driver_unregister(&ropcie_driver);
	unregister_netdevice_notifier(&netdev_notifier);
	ropcie_mmap_exit();
	ropcie_odp_exit();
	ropcie_work_exit();
	rcu_barrier(); /* members of groups are freed behind it */
}

module_init(ropcie_init);
module_exit(ropcie_exit);
MODULE_ALIAS(ROPCIE_BUS_MODALIAS);
MODULE_ALIAS_RDMA_LINK("ropcie");
MODULE_DESCRIPTION("RDMA over PCI Express NTB: verbs provider");
MODULE_LICENSE("GPL");
