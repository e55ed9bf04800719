#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --no-setup -- idt amd
# lab-long: --nodes 2 --no-setup --timeout 14400 -- --suite
#
# ntb-zoo.sh [--suite] [FAMILY...]: RoPCIe on each family of NTB hardware that
# ntb_hw_ivshmem imitates (default: all): traffic and frames, a link that is lost
# under traffic, a peer whose modules come and go; with --suite other guest tests too.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"
# shellcheck source-path=SCRIPTDIR source=lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source-path=SCRIPTDIR source=lib/link.sh
. "$(dirname "$0")/lib/link.sh"

# Guest tests and their arguments that --suite runs.
suite=("traffic.sh --quick" errors.sh events.sh rdma-cm.sh netdev.sh "faults.sh 2")
peer=10.77.0.$((3 - NODE))
export RDMA_DEV=ropcie0 NETDEV=ropcie0

load_ropcie() {
	local module

	for module in ropcie_ntb_if ropcie_bus ropcie_device ropcie; do
		load $module
	done
	retry "$patience" test -e /sys/class/net/$NETDEV || fail "$family: no interface"
	ip link set dev $NETDEV up
	ip addr add "10.77.0.$NODE/24" dev $NETDEV
}

unload_ropcie() {
	local module

	for module in ropcie ropcie_device ropcie_bus ropcie_ntb_if; do
		unload $module
	done
}

has_gid() {
	(gid_index $RDMA_DEV) >/dev/null
}

reach_peer() {
	retry "$patience" ping -q -n -c1 -W1 "$peer" >/dev/null || fail "$family: $1: $peer does not answer"
	retry "$patience" has_gid || fail "$family: $1: no GID"
	meet "$family-$1"
}

# What the family is poor in, as clients and the info file see it.
check_poverty() {
	local dev want=

	dev=$(basename /sys/bus/ntb/devices/*)
	grep -q "^family $family," "$info" || fail "it is not $family: $(<"$info")"
	case $family in
	idt)
		want="scratchpads 0, message registers 4"
		[ "$(info_number 's/.*translations set for peers \([0-9]*\)/\1/p')" -gt 0 ] ||
			fail "$dev: the sender has not set a translation"
		;;
	amd) want="scratchpads 8, message registers 0" ;;
	intel*) want="scratchpads 16, message registers 0" ;;
	*) want="scratchpads 128, message registers 0" ;;
	esac
	grep -q "^$want" "$info" || fail "$dev of $family: $(<"$info")"
}

traffic() {
	rop_sendrecv
	pair 18515 ib_send_lat -x GID -s 64 -n 200
	pair 18515 ib_write_bw -x GID -s 65536 -n 50
	ping -q -n -c5 -i0.2 -s 20000 "$peer" >/dev/null || fail "$family: $1: large frames are lost"
	meet "$family-$1-traffic"
	pass "$family: traffic $1"
}

# Node 2's client goes and comes; on some hardware no link goes down with it.
reload_one() {
	if [ "$NODE" = 2 ]; then
		unload_ropcie
		meet "$family-gone"
		load_ropcie
	else
		meet "$family-gone"
	fi
	reach_peer reloaded
}

zoo() {
	local test

	family=$1
	hardware "family=$family"
	meet "$family-hardware"
	load_ropcie
	reach_peer up
	check_poverty
	rop_traffic --quick
	traffic first
	lose down 0.3 1
	traffic after-a-loss
	reload_one
	traffic after-a-reload
	if [ $long = 1 ]; then
		for test in "${suite[@]}"; do
			meet "$family-${test%% *}"
			# shellcheck disable=SC2086 # words of a command line
			bash "$(dirname "$0")"/$test || fail "$family: $test"
			pass "$family: $test"
			reach_peer "after-${test%% *}"
		done
	fi
	unload_ropcie
	unload ntb_hw_ivshmem
	meet "$family-done"
	pass "$family"
}

long=0
if [ "${1:-}" = --suite ]; then
	long=1
	shift
fi
[ $# != 0 ] || set -- intel1 intel3 amd switchtec idt epf
for module in ib_uverbs rdma_ucm ib_umad; do
	modprobe $module
done
for name; do
	zoo "$name"
done
