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
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"

# windows STATE: those that show memory, of this node and of the others to it, are like that.
windows() {
	local shown

	shown=$(grep -o "flat [a-z]* in, [a-z]* out" /sys/kernel/debug/ntb_hw_ivshmem/*/info | sort -u)
	[ "${shown#*:}" = "flat $1 in, $1 out" ] || fail "windows are not $1: $shown"
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

# Who does not have direct_placement=1 is not shown anybody's memory.
windows open
meet
if [ "$NODE" = 1 ]; then
	unload_modules ropcie_ntb_if
	if_params=()
	load_modules ropcie_ntb_if
	expect_reachable "a reload without direct_placement=1"
	windows closed
fi
meet
rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
meet
if [ "$NODE" = 1 ]; then
	if_params=(direct_placement=1)
	reload_modules ropcie_ntb_if
fi
meet # or the link before that would do
expect_reachable "a reload with direct_placement=1"
windows open
pass "windows are open only where both sides want it"
