// SPDX-License-Identifier: GPL-2.0
/*
 * "rdma link add NAME type ropcie netdev DEV": verbs devices that have an
 * interface from somewhere else, no links, and reach themselves.
 *
 * Whoever unregisters such a device ends it: a user, its interface that goes
 * away, or this module. It stays on the list, as memory, until somebody finds
 * that it has ended, so that the module can wait for all of them.
 */
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>

#include "netdev.h"
#include "ropcie.h"

static LIST_HEAD(links);
static DEFINE_MUTEX(links_lock); /* guards the list */

/* Wait for its end, which may have come long ago. */
static void forget(struct ropcie_dev *dev)
{
	ib_unregister_device(&dev->ib);
	list_del(&dev->link);
	put_device(&dev->ib.dev);
}

/* Is there a device on this interface? Forgets those that have ended. */
static bool is_used(const struct net_device *ndev)
{
	struct ropcie_dev *dev, *next;
	bool used = false;

	lockdep_assert_held(&links_lock);
	list_for_each_entry_safe(dev, next, &links, link) {
		if (READ_ONCE(dev->ended))
			forget(dev);
		else
			used |= dev->netdev == ndev;
	}
	return used;
}

static int create(const char *name, struct net_device *ndev,
		  const struct net *net)
{
	struct ropcie_dev_origin origin = {
		.netdev = ndev,
		.name = name,
	};
	struct ropcie_dev *dev;
	bool gone;

	origin.adapter = ropcie_self_create(&ndev->dev, "self");
	if (!origin.adapter)
		return -ENOMEM;
	dev = ropcie_dev_create(&origin);
	if (IS_ERR(dev)) {
		ropcie_self_destroy(origin.adapter);
		return PTR_ERR(dev);
	}
	list_add_tail(&dev->link, &links);
	/* Before it is registered it does not hear that its interface ends, or moves. */
	rtnl_lock();
	gone = ndev->reg_state != NETREG_REGISTERED ||
	       !net_eq(dev_net(ndev), net);
	rtnl_unlock();
	if (gone)
		forget(dev);
	return gone ? -ENODEV : 0;
}

static int newlink(const char *name, struct net_device *ndev)
{
	/* Where whoever asks has found it. */
	const struct net *net = dev_net(ndev);
	int ret;

	/* Addresses of a VLAN are GIDs of the interface below it. */
	if (ndev->type != ARPHRD_ETHER || is_vlan_dev(ndev) ||
	    ropcie_netdev_is_own(ndev))
		return -EINVAL;
	mutex_lock(&links_lock);
	ret = is_used(ndev) ? -EEXIST : create(name, ndev, net);
	mutex_unlock(&links_lock);
	return ret;
}

static struct rdma_link_ops link_ops = {
	.type = "ropcie",
	.newlink = newlink,
};

void ropcie_link_init(void)
{
	rdma_link_register(&link_ops);
}

void ropcie_link_exit(void)
{
	struct ropcie_dev *dev, *next;

	/* Nobody is in newlink() when this returns. */
	rdma_link_unregister(&link_ops);
	mutex_lock(&links_lock);
	list_for_each_entry_safe(dev, next, &links, link)
		forget(dev);
	mutex_unlock(&links_lock);
}
