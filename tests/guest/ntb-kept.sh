#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --no-setup
#
# Where the sender translates (IDT), memory of a window is freed when the peer has let go
# of it, and kept when that stands still in the midst of what it does, and might go on.
# The emulated NTB has no other memory for the window then, so that this is also a
# window which can not be had: that is tried once in a second, however often the peer rings.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"
# shellcheck source-path=SCRIPTDIR source=lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

kept="may still write to its window: the [0-9]* KiB of memory behind it are not freed"
none="no inbound window of "

hears() {
	dmesg | grep -q "$1"
}

start() {
	# The peer that stands still is not the hardware's to notice.
	hardware family=idt timeout_ms=60000
	meet hardware
	# shellcheck disable=SC2119
	load_ropcie
	reach_peers "$1"
}

for module in ib_uverbs rdma_ucm ib_umad; do
	modprobe $module
done
dmesg -C
start "up"
[ "$NODE" != 1 ] || unload_ropcie
meet gone
! hears "$kept" || fail "node 2 has let go, and the memory is kept"
# shellcheck disable=SC2119
[ "$NODE" != 1 ] || load_ropcie
reach_peers "node 1 is back"
pass "memory that the peer has let go of"

meet pausing
if [ "$NODE" = 2 ]; then
	lab-pause 6 || fail "the lab does not pause"
else
	sleep 1
	SECONDS=0
	unload_ropcie
	hears "$kept" || fail "node 2 stands still, and the kernel log does not say that the memory is kept"
	[ "$SECONDS" -lt "$patience" ] || fail "unloading took $SECONDS s"
fi
meet unloaded
if [ "$NODE" = 1 ]; then
	dmesg -C
	# shellcheck disable=SC2119
	load_ropcie
	retry "$patience" hears "$none" || fail "a window that is not there is not missed"
	dmesg -C
	sleep 5
	tries=$(dmesg | grep -c "$none") || true
	! hears "suppressed" || fail "a window that is not there is tried without rest: $(dmesg)"
	[[ $tries -ge 1 && $tries -le 6 ]] || fail "a window that is not there is tried $tries times in 5 s"
fi
meet tried
unload_ropcie
meet out
# An earlier life's memory does not keep a later one away.
start "after all"
rop_traffic --quick
meet used
unload_ropcie
unload ntb_hw_ivshmem
pass "memory that the peer may still write to"
