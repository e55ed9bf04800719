/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The Ethernet interface of a RoPCIe device. The driver creates it, passes on
 * what the adapter says of its peers, and destroys it; the rest is between
 * Linux's network stack and the adapter.
 */
#ifndef ROPCIE_NETDEV_H
#define ROPCIE_NETDEV_H

#include <linux/netdevice.h>

struct ropcie_adapter;
struct ropcie_peer;

/**
 * ropcie_netdev_create() - make an Ethernet interface, not registered yet
 * @a: adapter that carries its frames; may not be started yet; must stay until
 *	ropcie_netdev_destroy()
 * @parent: the device on the RoPCIe bus
 *
 * The interface has a random hardware address in dev_addr, which is never
 * changed: it is what the adapter tells the peers. Its carrier is off. May
 * sleep.
 *
 * Return: the interface, or NULL when memory is short.
 */
struct net_device *ropcie_netdev_create(struct ropcie_adapter *a,
					struct device *parent);

/* Is it one of these? */
bool ropcie_netdev_is_own(const struct net_device *ndev);

/**
 * ropcie_netdev_register() - show it to the network stack
 * @ndev: from ropcie_netdev_create()
 *
 * May sleep; takes the RTNL lock.
 *
 * Return: 0, or a negative errno of register_netdev().
 */
int ropcie_netdev_register(struct net_device *ndev);

/**
 * ropcie_netdev_peer_up() - a peer connected
 * @ndev: interface, registered or not
 * @peer: peer; the own one (loopback) is ignored
 *
 * May sleep. Frames are sent to the peer, and the carrier is on, from now on.
 */
void ropcie_netdev_peer_up(struct net_device *ndev, struct ropcie_peer *peer);

/**
 * ropcie_netdev_peer_down() - a peer is gone
 * @ndev: interface, registered or not
 * @peer: peer; no reference to it is held when this returns
 *
 * May sleep. The carrier goes off with the last peer.
 */
void ropcie_netdev_peer_down(struct net_device *ndev, struct ropcie_peer *peer);

/**
 * ropcie_netdev_tx_space() - a lane that was full has space again
 * @ndev: interface, registered or not
 *
 * Any thread, bottom halves off.
 */
void ropcie_netdev_tx_space(struct net_device *ndev);

/**
 * ropcie_netdev_destroy() - unregister if registered, and free
 * @ndev: interface; no other function of this header runs or is called again
 *
 * May sleep; takes the RTNL lock. Peers that are still up are forgotten.
 */
void ropcie_netdev_destroy(struct net_device *ndev);

#endif /* ROPCIE_NETDEV_H */
