// SPDX-License-Identifier: GPL-2.0
/*
 * The Linux NTB backend: an adapter for each NTB port that this client gets.
 *
 * Owns: probe and remove, events, doorbell bits. Its callbacks run under a
 * spin lock with interrupts off, so all they do is to wake somebody.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "ntb.h"

/* How often a doorbell event looks for more bits. */
#define ROPCIE_DB_LOOKS 16

static u32 db_vectors(struct ntb_dev *ntb)
{
	return max(1, ntb_db_vector_count(ntb));
}

/* The n-th of the bits that are set in @mask, counted around. */
static u64 nth_bit(u64 mask, u32 n)
{
	u32 count = hweight64(mask);

	if (!count)
		return 0;
	for (n %= count; n; n--)
		mask &= mask - 1;
	return BIT_ULL(__ffs64(mask));
}

/*
 * The doorbell bits that mean a port. With two ports all do, as each rings
 * only the other. With more of them the ports share the bits out: bit b means
 * the port of rank b % ports, which is also how Linux's own test clients and
 * ntb_hw_ivshmem have it.
 */
static u64 db_of_port(const struct ropcie_ntb *port, u32 rank)
{
	u64 valid = ntb_db_valid_mask(port->ntb), mask = 0;
	u32 ports = port->npeers + 1, bit;

	if (ports == 2)
		return valid;
	for (bit = rank; bit < 64; bit += ports)
		mask |= BIT_ULL(bit);
	return mask & valid;
}

/*
 * Of the bits that mean a port: lane by lane one for each of its peers, as far
 * as they go. The last one says that words have changed.
 */
static u64 db_lane_bit(const struct ropcie_ntb *port, u64 mask, u32 sender,
		       u32 lane)
{
	return nth_bit(mask, lane * port->npeers + sender);
}

static u64 db_event_bit(u64 mask)
{
	return nth_bit(mask, hweight64(mask) - 1);
}

static void db_assign(struct ropcie_ntb *port)
{
	u32 i, lane;

	port->db_mine = db_of_port(port, port->rank);
	for (i = 0; i < port->npeers; i++) {
		struct ropcie_ntb_peer *np = &port->peer[i];
		u64 theirs = db_of_port(port, np->rank);

		for (lane = 0; lane < ROPCIE_MAX_LANES; lane++) {
			np->db_bit[lane] = db_lane_bit(port, theirs,
						       np->own_slot, lane);
			np->db_in[lane] = db_lane_bit(port, port->db_mine, i,
						      lane);
		}
		np->db_event = db_event_bit(theirs);
		np->db_in_event = db_event_bit(port->db_mine);
	}
}

static void ntb_doorbell_ring(struct ropcie_peer *peer, u32 lane)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);

	ntb_peer_db_set(np->port->ntb, np->db_bit[lane]);
}

static void ntb_notify(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);

	ntb_peer_db_set(np->port->ntb, np->db_event);
}

static void event_link(void *ctx)
{
	struct ropcie_ntb *port = ctx;
	u64 up = ntb_link_is_up(port->ntb, NULL, NULL);
	u32 i;

	for (i = 0; i < port->npeers; i++) {
		/* It may be up again before anybody looks, and have lost stores. */
		if (!(up & BIT_ULL(port->peer[i].pidx)))
			WRITE_ONCE(port->peer[i].was_down, 1);
		ropcie_peer_kick(port->adapter->peer[1 + i]);
	}
}

/* A lane that holds records is woken too: not all hardware names its bits. */
static void event_for_peer(struct ropcie_ntb *port, u32 i, u64 bits)
{
	struct ropcie_peer *peer = port->adapter->peer[1 + i];
	struct ropcie_ntb_peer *np = &port->peer[i];
	u32 lane;

	if (!READ_ONCE(peer->up)) {
		ropcie_peer_kick(peer);
		return;
	}
	for (lane = 0; lane < peer->nlanes; lane++)
		if ((bits & np->db_in[lane]) ||
		    ropcie_lane_pending(&peer->lane[lane]))
			ropcie_lane_doorbell(&peer->lane[lane]);
	/* A bit that lanes share with it says nothing while the link is up. */
	if ((bits & np->db_in_event) && hweight64(port->db_mine) >
	    port->npeers * port->adapter->lanes)
		ropcie_peer_kick(peer);
}

/*
 * Hardware that does not name its doorbells (IDT's) interrupts only when no bit at
 * all was pending: a bit that comes between the look and the clearing has to be found
 * here, or no doorbell would be heard ever again. Bounded, because the peer decides;
 * what it rings last is then found a moment later.
 */
static u64 take_bits(struct ropcie_ntb *port, u64 mask)
{
	u64 bits, taken = 0;
	int look;

	for (look = 0; look < ROPCIE_DB_LOOKS; look++) {
		bits = ntb_db_read(port->ntb) & mask;
		if (!bits)
			return taken;
		ntb_db_clear(port->ntb, bits);
		taken |= bits;
		if (!port->db_unnamed)
			return taken;
	}
	/* Not behind programs, whose traffic it may be. */
	queue_delayed_work(ropcie_link_wq, &port->db_work,
			   ROPCIE_NTB_AGAIN_JIFFIES);
	return taken;
}

/* Bits that mean other ports are taken too: they would keep the next from interrupting. */
static void event_doorbell(void *ctx, int vector)
{
	struct ropcie_ntb *port = ctx;
	u64 mask = ntb_db_vector_mask(port->ntb, vector);
	u64 bits = (take_bits(port, mask) ?: mask) & port->db_mine;
	u32 i;

	if (!bits)
		return;
	rcu_read_lock();
	for (i = 0; i < port->npeers; i++)
		event_for_peer(port, i, bits);
	rcu_read_unlock();
}

static void look_again(struct work_struct *work)
{
	struct ropcie_ntb *port = container_of(to_delayed_work(work),
					       struct ropcie_ntb, db_work);

	ntb_db_event(port->ntb, 0);
}

static void event_message(void *ctx)
{
	ropcie_ntb_msg_event(ctx);
}

static const struct ntb_ctx_ops ropcie_ntb_events = {
	.link_event = event_link,
	.db_event = event_doorbell,
	.msg_event = event_message,
};

static int ntb_start(struct ropcie_adapter *a)
{
	struct ropcie_ntb *port = a->priv;
	struct ntb_dev *ntb = port->ntb;
	int ret;

	ntb_db_set_mask(ntb, ntb_db_valid_mask(ntb));
	ntb_db_clear(ntb, ntb_db_valid_mask(ntb));
	/* Before the first event, which may start the peers' work. */
	ropcie_ntb_words_forget(port);
	ret = ntb_set_ctx(ntb, port, &ropcie_ntb_events);
	if (ret)
		return ret;
	ropcie_ntb_words_start(port);
	/* Some topologies can not be switched by this side: not an error. */
	ntb_link_enable(ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);
	/* Those of other ports too: see event_doorbell(). */
	ntb_db_clear_mask(ntb, ntb_db_valid_mask(ntb));
	ntb_link_event(ntb);
	return 0;
}

static void ntb_stop(struct ropcie_adapter *a)
{
	struct ropcie_ntb *port = a->priv;
	struct ntb_dev *ntb = port->ntb;

	ropcie_ntb_await_release(port);
	ropcie_ntb_words_stop(port);
	ntb_db_set_mask(ntb, ntb_db_valid_mask(ntb));
	ntb_link_disable(ntb);
	ntb_clear_ctx(ntb);
	cancel_delayed_work_sync(&port->db_work);
	cancel_delayed_work_sync(&port->msg_work);
}

static bool ntb_link_up(struct ropcie_peer *peer)
{
	struct ropcie_ntb_peer *np = ropcie_ntb_peer(peer);

	if (xchg(&np->was_down, 0)) {
		/* Both events may have been before this look. */
		ropcie_peer_kick(peer);
		return false;
	}
	return ntb_link_is_up(np->port->ntb, NULL, NULL) & BIT_ULL(np->pidx);
}

static struct device *ntb_dma_dev(struct ropcie_peer *peer)
{
	return ntb_get_dma_dev(ropcie_ntb_port(peer)->ntb);
}

static const struct ropcie_backend ropcie_ntb_backend = {
	.start = ntb_start,
	.stop = ntb_stop,
	.link_up = ntb_link_up,
	.open = ropcie_ntb_open,
	.close = ropcie_ntb_close,
	.shut = ropcie_ntb_shut,
	.dma_dev = ntb_dma_dev,
	.prepare = ropcie_ntb_prepare,
	.connect = ropcie_ntb_connect,
	.publish = ropcie_ntb_publish,
	.read_words = ropcie_ntb_read_words,
	.notify = ntb_notify,
	.ring = ntb_doorbell_ring,
};

/*
 * Places in everybody's order of ports. With a single peer there is nothing
 * to order, and some hardware gives both ports the same number.
 */
static void rank_ports(struct ropcie_ntb *port)
{
	int own = ntb_port_number(port->ntb);
	u32 i, j;

	for (i = 0; i < port->npeers && port->npeers > 1; i++) {
		struct ropcie_ntb_peer *np = &port->peer[i];
		int number = ntb_peer_port_number(port->ntb, i);

		np->rank = own < number;
		for (j = 0; j < port->npeers; j++)
			if (ntb_peer_port_number(port->ntb, j) < number)
				np->rank++;
		port->rank += number < own;
	}
	for (i = 0; i < port->npeers; i++)
		port->peer[i].own_slot = port->rank -
			(port->peer[i].rank < port->rank);
}

static void ntb_port_free(struct ropcie_ntb *port)
{
	u32 i;

	if (port->adapter) {
		for (i = 0; i < port->npeers; i++)
			ropcie_ntb_unmap_out(port->adapter->peer[1 + i]);
		ropcie_adapter_free(port->adapter);
	}
	kfree(port);
}

static int ntb_port_init(struct ropcie_ntb *port)
{
	struct ntb_dev *ntb = port->ntb;
	u32 i;
	int ret;

	rank_ports(port);
	db_assign(port);
	if (!port->db_mine) {
		dev_err(&ntb->dev, "no doorbell bit for each of %u ports\n",
			port->npeers + 1);
		return -ENODEV;
	}
	ret = ropcie_ntb_words_init(port);
	if (ret)
		return ret;
	port->adapter = ropcie_adapter_alloc(&ntb->pdev->dev,
					     dev_name(&ntb->dev),
					     &ropcie_ntb_backend, port->npeers,
					     ropcie_num_lanes(db_vectors(ntb)));
	if (!port->adapter)
		return -ENOMEM;
	port->adapter->priv = port;
	for (i = 0; i < port->npeers; i++) {
		port->peer[i].port = port;
		port->peer[i].pidx = i;
		port->adapter->peer[1 + i]->priv = &port->peer[i];
	}
	for (i = 0; i < port->npeers; i++) {
		ret = ropcie_ntb_map_out(port->adapter->peer[1 + i]);
		if (ret)
			return ret;
	}
	return 0;
}

static int ropcie_ntb_probe(struct ntb_client *client, struct ntb_dev *ntb)
{
	int npeers = ntb_peer_port_count(ntb);
	struct ropcie_ntb *port;
	int ret;

	if (npeers < 1)
		return -ENODEV;
	port = kzalloc(struct_size(port, peer, npeers), GFP_KERNEL);
	if (!port)
		return -ENOMEM;
	port->ntb = ntb;
	port->npeers = npeers;
	port->db_unnamed = !ntb->ops->db_vector_mask;
	INIT_DELAYED_WORK(&port->db_work, look_again);
	INIT_DELAYED_WORK(&port->msg_work, ropcie_ntb_msg_look);
	ret = ntb_port_init(port);
	if (ret) {
		ntb_port_free(port);
		return ret;
	}
	dev_set_drvdata(&ntb->dev, port);
	ropcie_adapter_add(port->adapter);
	return 0;
}

static void ropcie_ntb_remove(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct ropcie_ntb *port = dev_get_drvdata(&ntb->dev);

	ropcie_adapter_remove(port->adapter);
	ntb_port_free(port);
}

static struct ntb_client ropcie_ntb_client = {
	.ops = {
		.probe = ropcie_ntb_probe,
		.remove = ropcie_ntb_remove,
	},
};

/* The NTB bus gives a port to the first client that takes it. */
static int report_taken(struct device *dev, void *arg)
{
	device_lock(dev); /* or its driver may go */
	if (dev->driver && dev->driver != &ropcie_ntb_client.drv)
		dev_notice(dev, "this NTB port belongs to %s; unload that to let RoPCIe have it\n",
			   dev->driver->name);
	device_unlock(dev);
	return 0;
}

int ropcie_ntb_client_register(void)
{
	int ret = ntb_register_client(&ropcie_ntb_client);

	if (!ret)
		bus_for_each_dev(ropcie_ntb_client.drv.bus, NULL, NULL,
				 report_taken);
	return ret;
}

void ropcie_ntb_client_unregister(void)
{
	ntb_unregister_client(&ropcie_ntb_client);
}
