#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback --packages dmsetup
#
# On-demand memory that never comes: a file on a block device that is suspended.
# Programs end, queue pairs and devices go, and the module says that it is used
# until the block device answers.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

disk=odp-stuck
driver=/sys/bus/ropcie/drivers/ropcie
tracing=/sys/kernel/tracing

suspended() {
	dmsetup suspend --nolockfs --noflush "$disk"
}

is_used() {
	[ "$(<"/sys/module/ropcie/refcnt")" != 0 ]
}

# Timers of queue pairs that have fired since.
timers() {
	grep -c 'hrtimer_expire_entry:.*function=ropcie_qp_timer' $tracing/trace || true
}

# A queue pair whose memory does not come is looked at when the other end asks for it,
# which is told to wait for 41 ms, and not again and again.
expect_few_timers() {
	local before after

	before=$(timers)
	sleep 1
	after=$(timers)
	[ $((after - before)) -le 200 ] || fail "$((after - before)) timers fired in a second while memory does not come"
}

# The program ends while its memory does not come.
run_stuck() {
	# Nothing of it is in the page cache.
	echo 1 >/proc/sys/vm/drop_caches
	suspended
	: >"$LAB_OUT/odp-stuck"
	rop_odp --stuck "/dev/mapper/$disk" >"$LAB_OUT/odp-stuck" &
	# With the program, and later without it.
	retry "$patience" grep -q "^stuck" "$LAB_OUT/odp-stuck" || fail "rop_odp --stuck gets nowhere"
	retry "$patience" is_used || fail "no work is under way"
	! rmmod ropcie 2>/dev/null || fail "ropcie unloads under its own work"
	expect_few_timers
	retry "$patience" ended "$!" || fail "rop_odp --stuck does not end"
	wait "$!" || fail "rop_odp --stuck ended with status $?"
	is_used || fail "memory came that does not"
	expect_no_user_objects "memory that does not come"
}

there() {
	compgen -G '/sys/class/infiniband/ropcie*' >/dev/null
}

[ -e $tracing/trace ] || mount -t tracefs none $tracing
echo 1 >$tracing/events/timer/hrtimer_expire_entry/enable
dmsetup --noudevsync create "$disk" --table "0 8192 zero"
dmsetup --noudevsync mknodes
run_stuck
dmsetup resume "$disk"
pass "queue pairs do not wait for memory"

# The same with devices that go.
run_stuck
for device in "$driver"/ropcie*; do
	# shellcheck disable=SC2016 # for the inner shell
	timeout "$patience" sh -c 'echo "$1" >"$2/unbind"' - "${device##*/}" "$driver" ||
		fail "${device##*/} does not go while memory does not come"
done
! there || fail "devices are left: $(ls /sys/class/infiniband)"
dmsetup resume "$disk"
# Before its functions have other addresses.
[ "$(timers)" -gt 0 ] || fail "the kernel has counted no timer"
retry "$patience" rmmod ropcie 2>/dev/null ||
	fail "ropcie does not unload after the memory came"
insmod "$MODDIR/driver/ropcie.ko"
retry "$patience" there || fail "no device"
dmsetup --noudevsync remove "$disk"
echo 0 >$tracing/events/timer/hrtimer_expire_entry/enable
pass "devices and modules go"
