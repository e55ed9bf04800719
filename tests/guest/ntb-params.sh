#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --no-setup
#
# What the emulated NTB refuses: parameters out of range, a port that another
# guest has, and a peer with another layout.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"

# refused MESSAGE PARAMETER...: no port comes, and the kernel log says why.
refused() {
	local message=$1

	shift
	dmesg -C
	load ntb_hw_ivshmem "$@"
	[ -z "$(ls /sys/bus/ntb/devices)" ] || fail "$* gave a port"
	hears "$message" || fail "$*: '$message' is not in the kernel log"
	unload ntb_hw_ivshmem
	pass "$* is refused"
}

never_up() {
	local end=$((SECONDS + 3))

	until [ "$SECONDS" -ge $end ]; do
		[ "$(links_up)" = 0 ] || fail "a link came up with $1"
		sleep 0.1
	done
}

[ ! -d /sys/module/ntb_hw_ivshmem ] || unload ntb_hw_ivshmem
for params in ports=1 ports=17 mw_count=0 mw_count=5 spads=129 msgs=5; do
	refused "out of range" $params
done
refused "does not exist" ports=2 port=2
refused "there is no family=" family=nonesuch
refused "joins 2 ports at most" family=amd ports=3
refused "no ivshmem-plain device in PCI slot $((17 - me))" ports="$NODES" port="$me" flat=1
refused "has no window that reaches all memory" ports="$NODES" port="$me" flat=1 family=epf
refused "mw_wrap=1 does not go with flat=1" ports="$NODES" port="$me" flat=1 mw_wrap=1
meet checked

# The ID that the server gave is the default, so that nobody needs port=.
load ntb_hw_ivshmem ports="$NODES"
meet defaults
load_tool
info=$(echo $ntb_debugfs/ntb_hw_ivshmem/*/info)
wait_links Y
meet defaults-up
unload ntb_tool
unload ntb_hw_ivshmem
pass "ports that nobody numbers find each other"
meet defaults-done

[ "$NODE" != 1 ] || hardware
meet first-is-there
if [ "$NODE" = 2 ]; then
	refused "belongs to the guest" ports="$NODES" port=0
fi
meet claimed
[ "$NODE" != 1 ] || unload ntb_hw_ivshmem

if [ "$NODE" = 2 ]; then hardware mw_count=1; else hardware mw_count=2; fi
load_tool
meet mismatch
[ "$NODES" -gt 2 ] || never_up "different mw_count="
retry 10 hears "has other ports=" || fail "the kernel log does not say that the layouts differ"
meet mismatch-done
unload ntb_tool
hardware mw_count=1
meet match
load_tool
wait_links Y
meet end
unload ntb_tool
unload ntb_hw_ivshmem
pass "layouts that differ never link, and do when they agree"
