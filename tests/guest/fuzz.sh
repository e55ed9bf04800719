#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback --kernel-args "slub_debug=PZ page_poison=1 init_on_alloc=0" -- --rounds 23
# lab-long: --nodes 1 --link loopback --kernel-args "slub_debug=PZ page_poison=1 init_on_alloc=0" --timeout 7200 -- --rounds 2000
#
# Hostile processes (rop_fuzz), between two ends that hand records over and between two
# that send them through lanes; arguments are given to it, and a seed unless they have
# one. Memory that the kernel has not filled itself can be told from what comes back: its
# arguments have slabs and pages filled when they are freed, and not again (Debian: zeroed)
# when they are allocated. Afterwards nothing of them is left, and the device works.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

loses_tasks
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

# fuzz WHAT OPTION...
fuzz() {
	local what=$1

	shift
	IBV_DRIVERS=/${IBV_DRIVERS##*/} chroot $root \
		/ld-linux-x86-64.so.2 --library-path / /rop_fuzz \
		--timeout "$patience" "$@" 2>$root/log </dev/null ||
		fail "rop_fuzz ended with status $? under $what: $(tail -n 5 $root/log)"
	expect_no_user_objects "$what"
	rop_sendrecv >/dev/null || fail "rop_sendrecv ended with status $? after $what"
	pass "$what"
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
rmmod vgem || fail "the processes are gone, and vgem is still in use"
