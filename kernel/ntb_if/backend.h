/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the ways of being joined: Linux's NTB API and the
 * loopback pair. The rest of the module sees a backend only through this.
 */
#ifndef ROPCIE_NTB_IF_BACKEND_H
#define ROPCIE_NTB_IF_BACKEND_H

#include "internal.h"

/**
 * struct ropcie_backend - operations of an adapter's backend
 * @start: begin to listen to the links; from here on the backend may call
 *	ropcie_peer_kick() and ropcie_lane_doorbell()
 * @stop: end that; no such call is running when it returns
 * @link_up: the hardware says that the link to this peer works, and has not said
 *	since the last call that it does not
 * @open: make the inbound window (peer->in, peer->in_size) and map the
 *	outbound one (peer->out, ...), if that has not been done yet; find out
 *	whether the peer can be shown all memory (peer->shows_memory). Return: 0,
 *	or -EAGAIN: ask again at the next step; -ENOLINK: after a rest
 * @close: free what open made; after @stop
 * @prepare: let the peer reach the inbound window, which is clean
 * @connect: the peer's words say that it is ready: make the outbound window
 *	reach it. Optional
 * @shut: the link is lost, or did not come up: the peer reaches no memory any more
 *	but the inbound window, until @prepare. Optional
 * @dma_dev: what maps memory for the peer's access, or NULL. Optional
 * @publish: write own words to where the peer reads them; 0, and it has them all; -EAGAIN:
 *	not yet, the next step goes on; another error: the hardware refuses them
 * @read_words: a copy of the peer's words, as they are
 * @notify: tell the peer that words or identity have changed
 * @ring: doorbell: wake the peer's receiver of a lane; called with the lane's
 *	transmit or receive lock held
 *
 * All but @link_up, @notify and @ring may sleep, and are called by one thread
 * at a time for each peer. Words that get lost are repaired by a later
 * heartbeat, with which all of them are written again.
 */
struct ropcie_backend {
	int (*start)(struct ropcie_adapter *a);
	void (*stop)(struct ropcie_adapter *a);
	bool (*link_up)(struct ropcie_peer *peer);
	int (*open)(struct ropcie_peer *peer);
	void (*close)(struct ropcie_peer *peer);
	int (*prepare)(struct ropcie_peer *peer);
	int (*connect)(struct ropcie_peer *peer);
	void (*shut)(struct ropcie_peer *peer);
	struct device *(*dma_dev)(struct ropcie_peer *peer);
	int (*publish)(struct ropcie_peer *peer,
		       const struct ropcie_link_words *words);
	void (*read_words)(struct ropcie_peer *peer,
			   struct ropcie_link_words *words);
	void (*notify)(struct ropcie_peer *peer);
	void (*ring)(struct ropcie_peer *peer, u32 lane);
};

/* ntb_client.c */
int ropcie_ntb_client_register(void);
void ropcie_ntb_client_unregister(void);

/* loopback.c */
int ropcie_loopback_create(unsigned int pairs);
void ropcie_loopback_destroy(void);

#endif /* ROPCIE_NTB_IF_BACKEND_H */
