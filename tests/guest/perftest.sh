#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# The device as rdma-core's tools show it, and perftest's SEND programs with
# their defaults: polling and with events, one way and both ways.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

port=18515
ibv_devices | grep -qw "$RDMA_DEV" || fail "ibv_devices does not show $RDMA_DEV"
ibv_devinfo -v -d "$RDMA_DEV" >"$LAB_OUT/devinfo.$NODE" ||
	fail "ibv_devinfo -v ended with status $?"
grep -q 'state:.*PORT_ACTIVE' "$LAB_OUT/devinfo.$NODE" || fail "the port is not active"
pass "ibv_devices, ibv_devinfo -v"

pair $port ib_send_lat -n 200
pair $port ib_send_lat -e -n 200
pair $port ib_send_lat -a -n 20
pair $port ib_send_bw -n 200
pair $port ib_send_bw -e -n 200
pair $port ib_send_bw -b -n 100
pair $port ib_send_bw -a -n 30
pass "ib_send_lat, ib_send_bw"

# Where messages come slowly, nobody spins for them.
if [ "$patience" -le 60 ]; then
	grep -q '^spins_paid [1-9]' /sys/kernel/debug/ropcie_ntb_if/*/state ||
		fail "nobody has spun: $(cat /sys/kernel/debug/ropcie_ntb_if/*/state)"
	pass "messages are spun for"
fi
