#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --flat --module-params ropcie_ntb_if:direct_placement=1
# lab-long: --nodes 3 --mem 512 --flat --module-params ropcie_ntb_if:direct_placement=1
# lab-kernels: all
#
# Payload of WRITEs and READs goes straight into the memory that it is for: every byte is
# right, and none lands after that memory, the right to it or its queue pair was taken
# away; nor when processes are killed.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

direct_bytes() {
	cat "/sys/class/infiniband/$RDMA_DEV/ports/1/hw_counters/tx_direct_bytes"
}

state=$(cat /sys/kernel/debug/ropcie_ntb_if/*/state)
[ "$(grep -c 'link up.*, direct$' <<<"$state")" = $((NODES - 1)) ] ||
	fail "the nodes do not reach each other's memory: $state"
meet

rop_place "$@" || fail "rop_place ended with status $?"
expect_no_user_objects rop_place
meet
if [ "$NODE" -le 2 ]; then
	[ "$NODE" = 2 ] || [ "$(direct_bytes)" -gt 0 ] || fail "nothing was placed"
fi
pass "payload was placed ($(direct_bytes) bytes from node $NODE)"
