#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback --kernel-args "slub_debug=PZ page_poison=1 init_on_alloc=0" -- --rounds 23
# lab-long: --nodes 1 --link loopback --kernel-args "slub_debug=PZ page_poison=1 init_on_alloc=0" --timeout 7200 -- --rounds 2000
#
# Hostile processes (rop_fuzz), between two ends that hand records over and between two
# that send them through lanes; arguments are given to it, and a seed unless they have
# one; at last the device goes and comes meanwhile. Memory that the kernel has not filled
# itself can be told from what comes back: its arguments have slabs and pages filled when they
# are freed, and not again (Debian: zeroed) when they are allocated. Afterwards nothing of them
# is left, and the device works.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

linux_loses tasks # contexts are refused
# Processes that spoil their own memory crash, which is nobody's fault but theirs.
echo 0 >/proc/sys/debug/exception-trace

# That such memory is found where it is given away, and that RoPCIe gives none away.
insmod "$MODDIR"/*/uverbs_leak.ko || fail "insmod uverbs_leak"
rop_leak --timeout "$patience" || fail "rop_leak ended with status $?"
hand_over=/sys/module/ropcie_ntb_if/parameters/hand_over
echo N >$hand_over
rop_leak --quick --timeout "$patience" || fail "rop_leak ended with status $? through lanes"
echo Y >$hand_over
pass "what the kernel gives is clean"
rmmod uverbs_leak || fail "uverbs_leak is in use"

modprobe vgem || fail "this kernel has no vgem"

# A process that may not allocate can not close a file on the host for good (9p: the
# Tclunk of its fid), nor could anybody open one then: the fuzzer sees none. Its root is
# in memory, with all that it needs.
root=/dev/shm/fuzz
mkdir -p $root/{dev,proc,sys}
for dir in dev proc sys; do
	mount --bind /$dir $root/$dir || fail "no /$dir for the fuzzer"
done
program=$(command -v rop_fuzz)
ldd "$program" | grep -o '/[^ ]*' | xargs -I'{}' cp '{}' $root
cp "$program" "$IBV_DRIVERS-rdmav34.so" $root

# fuzz_only WHAT OPTION...
fuzz_only() {
	local what=$1

	shift
	IBV_DRIVERS=/${IBV_DRIVERS##*/} chroot $root \
		/ld-linux-x86-64.so.2 --library-path / /rop_fuzz \
		--timeout "$patience" "$@" 2>$root/log </dev/null ||
		fail "rop_fuzz ended with status $? under $what: $(tail -n 5 $root/log)"
}

# expect_clean WHAT: nothing is left of it, and the device works.
expect_clean() {
	expect_no_user_objects "$1"
	rop_sendrecv >/dev/null || fail "rop_sendrecv ended with status $? after $1"
	pass "$1"
}

# fuzz WHAT OPTION...: both.
fuzz() {
	fuzz_only "$@"
	expect_clean "$1"
}

[[ " $* " == *" --seed "* ]] || set -- "$@" --seed $((RANDOM + 1))
echo "rop_fuzz $*"
fuzz "hostile processes" "$@"
echo N >$hand_over
fuzz "hostile processes, through lanes" "$@"

# Where the kernel can, what it asks for in their name is refused now and then.
for fault in failslab fail_page_alloc fail_usercopy; do
	knobs=/sys/kernel/debug/$fault
	[ -d "$knobs" ] || continue
	echo Y >"$knobs/task-filter"
	echo 0 >"$knobs/verbose"
	echo 100000000 >"$knobs/times"
	echo 2 >"$knobs/probability"
	for knob in ignore-gfp-wait ignore-gfp-highmem cache-filter; do
		[ ! -e "$knobs/$knob" ] || echo N >"$knobs/$knob"
	done
	fuzz "$fault" "$@"
	echo 0 >"$knobs/probability"
	[ "$(<"$knobs/times")" -lt 100000000 ] || fail "$fault: nothing was refused"
done

# The same while their device goes and comes.
device=$(basename "$(readlink -f "/sys/class/infiniband/$RDMA_DEV/device")")
driver=/sys/bus/ropcie/drivers/ropcie
over=/tmp/fuzz.over
mtu=$(<"/sys/class/net/$NETDEV/mtu")

# go_and_come: the device does, until $over is there.
go_and_come() {
	local times=0

	while [ ! -e $over ]; do
		# shellcheck disable=SC2016 # for the inner shell
		timeout "$patience" sh -c 'echo "$1" >"$2/unbind"' - "$device" $driver || fail "the driver does not leave $device"
		sleep "0.$((RANDOM % 5))"
		echo "$device" >$driver/bind || fail "the driver does not take $device"
		sleep "0.$((RANDOM % 10))"
		times=$((times + 1))
	done
	echo "$times" >$over
}

# The interface that came last is as the first one was.
back() {
	ip link set dev "$NETDEV" mtu "$mtu" up && ip addr replace 10.77.0.1/24 dev "$NETDEV" && reachable 2
}

rm -f $over
go_and_come &
going=$!
fuzz_only "a device that goes" "$@" --loses-device
touch $over
wait $going || fail "the device does not go and come"
retry "$patience" back 2>/dev/null || fail "$RDMA_DEV does not come back"
expect_clean "a device that went $(<$over) times"
rmmod vgem || fail "the processes are gone, and vgem is still in use"
