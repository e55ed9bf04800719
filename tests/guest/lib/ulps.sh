# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests beside which TCP and NVMe over Fabrics of nodes 1 and 2 go on from their
# start to their end; sourced after rdma.sh, tcp.sh and nvmet.sh.

# start_ulps: node 2 is the host of node 1's disk. They leave the processor to others.
start_ulps() {
	[ "$NODE" != 1 ] || start_target
	lab-barrier ulps-target
	if [ "$NODE" = 2 ]; then
		connect
		start_io 100000 --rate_iops=50
	fi
	start_stream $((3 - NODE))
	lab-barrier ulps
}

# expect_ulps WHEN: they go on.
expect_ulps() {
	local before

	before=$(<"/sys/class/net/$NETDEV/statistics/rx_bytes")
	retry "$patience" netdev_has_more_than $((before + 65536)) || fail "TCP stands still after $1"
	! ended "$stream" || fail "TCP has ended with $1: $(<"$stream_log")"
	[ "$NODE" = 2 ] || return 0
	before=$(disk_requests)
	retry "$patience" disk_has_done_more_than $((before + 10)) || fail "NVMe over Fabrics stands still after $1"
	! ended "$io" || fail "fio has ended with $1: $(<"$io_log")"
}

# end_ulps: both nodes have seen them go on.
end_ulps() {
	lab-barrier ulps-over
	kill "$stream" || fail "TCP has ended: $(<"$stream_log")"
	if [ "$NODE" = 2 ]; then
		end_io
		disconnect
	fi
	lab-barrier ulps-gone
	[ "$NODE" != 1 ] || stop_target
}
