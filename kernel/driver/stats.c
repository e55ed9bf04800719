// SPDX-License-Identifier: GPL-2.0
/*
 * What a device tells of itself: counters (`rdma statistic`) and details of its
 * objects (`rdma res show -dd`).
 */
#include <rdma/rdma_counter.h>
#include <rdma/restrack.h>

#include "queues.h"
#include "ropcie.h"

/* Behind the device's own counters stand those of its adapter. */
enum {
	ADAPTER_TX_RECORDS = ROPCIE_NUM_COUNTERS,
	ADAPTER_RX_RECORDS,
	ADAPTER_TX_DMA_BYTES,
	ADAPTER_DMA_FALLBACKS,
	ADAPTER_DOORBELLS_RUNG,
	ADAPTER_DOORBELLS_RECEIVED,
	ADAPTER_LANE_STALLS,
	ADAPTER_RX_UNKNOWN_MQ,
	ADAPTER_LINK_UPS,
	ADAPTER_LINK_LOSSES,
	ADAPTER_PROTOCOL_ERRORS,
	NUM_COUNTERS
};

static const struct rdma_stat_desc descs[NUM_COUNTERS] = {
	[ROPCIE_TX_SEND].name = "tx_send_msgs",
	[ROPCIE_TX_WRITE].name = "tx_write_msgs",
	[ROPCIE_TX_READ].name = "tx_read_msgs",
	[ROPCIE_TX_ATOMIC].name = "tx_atomic_msgs",
	[ROPCIE_TX_SEND_BYTES].name = "tx_send_bytes",
	[ROPCIE_TX_WRITE_BYTES].name = "tx_write_bytes",
	[ROPCIE_TX_READ_BYTES].name = "tx_read_bytes",
	[ROPCIE_RX_SEND].name = "rx_send_msgs",
	[ROPCIE_RX_WRITE].name = "rx_write_msgs",
	[ROPCIE_RX_READ].name = "rx_read_msgs",
	[ROPCIE_RX_ATOMIC].name = "rx_atomic_msgs",
	[ROPCIE_RX_SEND_BYTES].name = "rx_send_bytes",
	[ROPCIE_RX_WRITE_BYTES].name = "rx_write_bytes",
	[ROPCIE_RX_READ_BYTES].name = "rx_read_bytes",
	[ROPCIE_TX_ACKS].name = "tx_acks",
	[ROPCIE_TX_RNR_NAKS].name = "tx_rnr_naks",
	[ROPCIE_TX_SEQ_NAKS].name = "tx_seq_naks",
	[ROPCIE_TX_INV_REQ_NAKS].name = "tx_inv_req_naks",
	[ROPCIE_TX_REM_ACCESS_NAKS].name = "tx_rem_access_naks",
	[ROPCIE_TX_REM_OP_NAKS].name = "tx_rem_op_naks",
	[ROPCIE_RX_ACKS].name = "rx_acks",
	[ROPCIE_RX_RNR_NAKS].name = "rx_rnr_naks",
	[ROPCIE_RX_SEQ_NAKS].name = "rx_seq_naks",
	[ROPCIE_RX_INV_REQ_NAKS].name = "rx_inv_req_naks",
	[ROPCIE_RX_REM_ACCESS_NAKS].name = "rx_rem_access_naks",
	[ROPCIE_RX_REM_OP_NAKS].name = "rx_rem_op_naks",
	[ROPCIE_TIMEOUTS].name = "timeouts",
	[ROPCIE_RX_QKEY_VIOLATIONS].name = "rx_qkey_violations",
	[ROPCIE_RX_DATAGRAM_DROPS].name = "rx_datagram_drops",
	[ROPCIE_TX_DATAGRAM_DROPS].name = "tx_datagram_drops",
	[ROPCIE_TX_DIRECT_BYTES].name = "tx_direct_bytes",
	[ADAPTER_TX_RECORDS].name = "tx_records",
	[ADAPTER_RX_RECORDS].name = "rx_records",
	[ADAPTER_TX_DMA_BYTES].name = "tx_dma_bytes",
	[ADAPTER_DMA_FALLBACKS].name = "dma_fallbacks",
	[ADAPTER_DOORBELLS_RUNG].name = "doorbells_rung",
	[ADAPTER_DOORBELLS_RECEIVED].name = "doorbells_received",
	[ADAPTER_LANE_STALLS].name = "lane_stalls",
	[ADAPTER_RX_UNKNOWN_MQ].name = "rx_unknown_mq",
	[ADAPTER_LINK_UPS].name = "link_ups",
	[ADAPTER_LINK_LOSSES].name = "link_losses",
	[ADAPTER_PROTOCOL_ERRORS].name = "protocol_errors",
};

u64 ropcie_counter_sum(struct ropcie_counters __percpu *counters,
		       enum ropcie_counter id)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(counters, cpu)->value[id]);
	return sum;
}

struct rdma_hw_stats *ropcie_alloc_hw_port_stats(struct ib_device *ibdev,
						 u32 port)
{
	return rdma_alloc_hw_stats_struct(descs, ARRAY_SIZE(descs),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int ropcie_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
			u32 port, int index)
{
	struct ropcie_dev *dev = to_rdev(ibdev);
	struct ropcie_adapter_stats a;
	int i;

	if (!port)
		return -EINVAL;
	for (i = 0; i < ROPCIE_NUM_COUNTERS; i++)
		stats->value[i] = ropcie_counter_sum(dev->counters, i);
	ropcie_adapter_get_stats(dev->adapter, &a);
	stats->value[ADAPTER_TX_RECORDS] = a.tx_records;
	stats->value[ADAPTER_RX_RECORDS] = a.rx_records;
	stats->value[ADAPTER_TX_DMA_BYTES] = a.tx_dma_bytes;
	stats->value[ADAPTER_DMA_FALLBACKS] = a.dma_fallbacks;
	stats->value[ADAPTER_DOORBELLS_RUNG] = a.doorbells_rung;
	stats->value[ADAPTER_DOORBELLS_RECEIVED] = a.doorbells_received;
	stats->value[ADAPTER_LANE_STALLS] = a.lane_stalls;
	stats->value[ADAPTER_RX_UNKNOWN_MQ] = a.rx_unknown_mq;
	stats->value[ADAPTER_LINK_UPS] = a.link_ups;
	stats->value[ADAPTER_LINK_LOSSES] = a.link_losses;
	stats->value[ADAPTER_PROTOCOL_ERRORS] = a.protocol_errors;
	return NUM_COUNTERS;
}

/*
 * Counters of single queue pairs (`rdma statistic qp`). A queue pair counts in
 * one place: IB Core adds these up for the port.
 */
static struct ropcie_counters __percpu *
counters_of(const struct rdma_counter *counter)
{
	struct ropcie_dev *dev = to_rdev(counter->device);

	return (__force struct ropcie_counters __percpu *)
		xa_load(&dev->qp_counters, counter->id);
}

static void count_in(struct ropcie_qp *qp,
		     struct ropcie_counters __percpu *counters)
{
	spin_lock_bh(&qp->lock);
	qp->counters = counters;
	spin_unlock_bh(&qp->lock);
}

/* The first queue pair of a counter also gives it its number and memory. */
int ropcie_counter_bind_qp(struct rdma_counter *counter, struct ib_qp *ibqp)
{
	struct ropcie_dev *dev = to_rdev(ibqp->device);
	struct ropcie_counters __percpu *counters;
	int ret;

	if (counter->id) {
		counters = counters_of(counter);
	} else {
		counters = alloc_percpu(struct ropcie_counters);
		if (!counters)
			return -ENOMEM;
		ret = xa_alloc(&dev->qp_counters, &counter->id,
			       (__force void *)counters, xa_limit_31b,
			       GFP_KERNEL);
		if (ret) {
			free_percpu(counters);
			return ret;
		}
	}
	count_in(to_rqp(ibqp), counters);
	ibqp->counter = counter;
	return 0;
}

int ropcie_counter_unbind_qp(struct ib_qp *ibqp)
{
	count_in(to_rqp(ibqp), to_rdev(ibqp->device)->counters);
	ibqp->counter = NULL;
	return 0;
}

int ropcie_counter_dealloc(struct rdma_counter *counter)
{
	struct ropcie_counters __percpu *counters = counters_of(counter);

	xa_erase(&to_rdev(counter->device)->qp_counters, counter->id);
	free_percpu(counters);
	return 0;
}

struct rdma_hw_stats *ropcie_counter_alloc_stats(struct rdma_counter *counter)
{
	/* The adapter's stay 0, but IB Core adds up all that the port has. */
	return rdma_alloc_hw_stats_struct(descs, ARRAY_SIZE(descs),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int ropcie_counter_update_stats(struct rdma_counter *counter)
{
	struct ropcie_counters __percpu *counters = counters_of(counter);
	int i;

	for (i = 0; i < ROPCIE_NUM_COUNTERS; i++)
		counter->stats->value[i] = ropcie_counter_sum(counters, i);
	return 0;
}

/* Begin the table of a driver's own attributes. */
static struct nlattr *table_start(struct sk_buff *msg)
{
	return nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
}

static int table_end(struct sk_buff *msg, struct nlattr *table, bool failed)
{
	if (failed) {
		nla_nest_cancel(msg, table);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, table);
	return 0;
}

int ropcie_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp)
{
	struct nlattr *table = table_start(msg);
	struct ropcie_qp *qp = to_rqp(ibqp);
	u32 posted, unsent, acked_psn, receives, fetches;
	bool connected, failed;

	if (!table)
		return -EMSGSIZE;
	spin_lock_bh(&qp->lock);
	posted = ropcie_req_pending(&qp->req);
	unsent = posted - (qp->req.next - qp->req.tail);
	acked_psn = qp->req.acked_psn;
	fetches = qp->req.fetches;
	receives = ropcie_rq_ready(&qp->rq);
	connected = qp->connected;
	spin_unlock_bh(&qp->lock);
	failed = rdma_nl_put_driver_u32(msg, "sq_posted", posted) ||
		 rdma_nl_put_driver_u32(msg, "sq_unsent", unsent) ||
		 rdma_nl_put_driver_u32_hex(msg, "acked_psn", acked_psn) ||
		 rdma_nl_put_driver_u32(msg, "rd_atomic", fetches) ||
		 rdma_nl_put_driver_u32(msg, "rq_posted", receives) ||
		 rdma_nl_put_driver_u32(msg, "connected", connected);
	return table_end(msg, table, failed);
}

int ropcie_fill_res_cq_entry(struct sk_buff *msg, struct ib_cq *ibcq)
{
	struct nlattr *table = table_start(msg);
	struct ropcie_cq *cq = to_rcq(ibcq);
	unsigned long flags;
	u32 waiting, armed;
	bool overflow;

	if (!table)
		return -EMSGSIZE;
	spin_lock_irqsave(&cq->lock, flags);
	waiting = ropcie_cq_used(cq);
	armed = cq->shared ? READ_ONCE(cq->uring.ctl->wake) : cq->armed;
	overflow = cq->overflow;
	spin_unlock_irqrestore(&cq->lock, flags);
	return table_end(msg, table,
			 rdma_nl_put_driver_u32(msg, "completions", waiting) ||
			 rdma_nl_put_driver_u32(msg, "armed", armed) ||
			 rdma_nl_put_driver_u32(msg, "overflow", overflow));
}

int ropcie_fill_res_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr)
{
	struct nlattr *table = table_start(msg);
	struct ropcie_mr *mr = to_rmr(ibmr);

	if (!table)
		return -EMSGSIZE;
	return table_end(msg, table,
			 rdma_nl_put_driver_u32_hex(msg, "access",
						    mr->core.access) ||
			 rdma_nl_put_driver_u32(msg, "invalid",
						READ_ONCE(mr->core.invalid)) ||
			 rdma_nl_put_driver_u32(msg, "users",
						refcount_read(&mr->refs) - 1));
}
