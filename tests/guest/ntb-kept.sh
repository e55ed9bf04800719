#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --no-setup
# lab-alone: yes
#
# Where the sender translates (IDT), memory of a window is freed when the peer has let go
# of it, and kept when that stands still in the midst of what it does, and might go on.
# The emulated NTB has no other memory for the window then, so that this is also a
# window which can not be had: that is said once, and tried once in a second, however
# often the peer rings.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"
# shellcheck source-path=SCRIPTDIR source=lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

kept="may still write to its window: the [0-9]* KiB of memory behind it are not freed"
none="no inbound window of "
tracing=/sys/kernel/tracing

is_silent() {
	! ping -q -n -c1 -W0.5 10.77.0.2 >/dev/null
}

# watch FUNCTION: its calls are counted from now on.
watch() {
	[ -e $tracing/trace ] || mount -t tracefs none $tracing
	echo "p:call $1" >$tracing/kprobe_events || fail "this kernel has no kprobe events"
	echo >$tracing/trace
	echo 1 >$tracing/events/kprobes/call/enable
}

calls() {
	grep -c ' call: ' $tracing/trace || true
}

unwatch() {
	echo 0 >$tracing/events/kprobes/call/enable
	echo >$tracing/kprobe_events
}

start() {
	# The peer that stands still is not the hardware's to notice.
	hardware family=idt timeout_ms=600000
	meet hardware
	load_ropcie "${@:2}"
	reach_peers "$1"
}

for module in ib_uverbs rdma_ucm ib_umad; do
	modprobe $module
done
dmesg -C
# A goodbye is repeated for five heartbeats.
start "up" heartbeat_ms=1000 heartbeat_limit_ms=60000
[ "$NODE" != 1 ] || unload_ropcie
meet gone
! hears "$kept" || fail "node 2 has let go, and the memory is kept"
[ "$NODE" != 1 ] || load_ropcie heartbeat_ms=1000 heartbeat_limit_ms=60000
reach_peers "node 1 is back"
pass "memory that the peer has let go of"

# The goodbye finds a message register full, and is said again.
meet short
if [ "$NODE" = 2 ]; then
	lab-pause 5 || fail "the lab does not pause"
else
	retry "$patience" is_silent || fail "node 2 does not stand still"
	watch ropcie_ntb_publish
	unload_ropcie
	said=$(calls)
	unwatch
	! hears "$kept" || fail "node 2 stood still for a moment, and the memory is kept"
	# Besides heartbeats.
	[ "$said" -ge 10 ] || fail "node 2 stood still, and the goodbye is said $said times"
fi
meet short-over
[ "$NODE" != 2 ] || unload_ropcie
meet both-gone
load_ropcie
reach_peers "up again"
pass "memory that the peer lets go of late: the goodbye was said ${said:-0} times"

meet pausing
if [ "$NODE" = 2 ]; then
	# Longer, and the kernel takes it for a lockup of its own.
	lab-pause 15 || fail "the lab does not pause"
else
	retry "$patience" is_silent || fail "node 2 does not stand still"
	unload_ropcie
	hears "$kept" || fail "node 2 stands still, and the kernel log does not say that the memory is kept"
fi
meet unloaded
if [ "$NODE" = 1 ]; then
	dmesg -C
	load ropcie_ntb_if
	watch ropcie_ntb_open
	for module in ropcie_bus ropcie_device ropcie; do
		load $module
	done
	retry "$patience" hears "$none" || fail "a window that is not there is not missed"
	SECONDS=0
	before=$(calls)
	sleep 5
	count=$(($(calls) - before))
	[[ $count -ge 2 && $count -le $((SECONDS + 2)) ]] ||
		fail "a window that is not there is tried $count times in $SECONDS s"
	[ "$(grep -c "$none" <<<"$(dmesg)")" = 1 ] || fail "more than once, the log says: $none"
	unwatch
fi
meet tried
unload_ropcie
meet out
if [ -d /sys/kernel/debug/dma-api ]; then
	echo "left out: to this kernel, memory that is kept when the NTB's driver goes is a fault"
else
	# An earlier life's memory does not keep a later one away.
	start "after all"
	rop_traffic --quick
	meet used
	unload_ropcie
	unload ntb_hw_ivshmem
fi
pass "memory that the peer may still write to"
