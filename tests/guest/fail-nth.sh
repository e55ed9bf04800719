#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback
# lab-alone: yes
#
# Every call of the control path, with each allocation and each copy between the process
# and the kernel failing in turn: rop_failnth, with queues that the process maps and with
# those in the kernel. Another program's traffic goes on, and nothing is left behind;
# kmemleak looks at the end. Left out where the kernel has no fault injection, as all but
# the debug kernel.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

# A context has a completion channel or not; all else is to be gone.
objects_of_program() {
	local kind

	for kind in qp cq mr pd srq cm_id; do
		rdma res show $kind 2>/dev/null | sed -n "/ pid $1 /s/^/$kind: /p"
	done
}

over() {
	grep -qx "done" "$LAB_OUT/fail-nth" || ended "$program"
}

linux_loses tasks # contexts are refused
[ -e /proc/self/fail-nth ] || left_out "this kernel has no fault injection"
for fault in failslab fail_page_alloc fail_usercopy; do
	[ -d "/sys/kernel/debug/$fault" ] || fail "this kernel has no $fault"
	# Each would be a trace in the log, as a fault of ours is.
	echo 0 >"/sys/kernel/debug/$fault/verbose"
done
# All that may sleep, too, and single pages.
echo N >/sys/kernel/debug/failslab/ignore-gfp-wait
echo N >/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait
echo N >/sys/kernel/debug/fail_page_alloc/ignore-gfp-highmem
echo 0 >/sys/kernel/debug/fail_page_alloc/min-order

modprobe vgem || fail "this kernel has no vgem"
# Each queue pair has counters of its own, which are allocated when it is connected.
rdma statistic qp set link "$RDMA_DEV/1" auto type,pid on || fail "no counters for queue pairs"
mkfifo /tmp/go
for mapped in 1 0; do
	start_strict_hog 2
	# shellcheck disable=SC2046 # several
	renice -n 19 "$hog" $(pgrep -P "$hog") >/dev/null
	ROPCIE_MAPPED_QUEUES=$mapped rop_failnth </tmp/go >"$LAB_OUT/fail-nth" 2>&1 &
	program=$!
	exec 6>/tmp/go
	retry 2000 over || fail "no end: $(<"$LAB_OUT/fail-nth")"
	expect_traffic "failures of others' calls"
	if grep -qx "done" "$LAB_OUT/fail-nth"; then
		# The one that the program itself has open.
		left=$(objects_of_program "$program" | grep -v '^pd: ') || true
		# A queue pair that is not mapped has a region for inline data, which libropcie
		# keeps where it did not hear that the queue pair is gone.
		lost=$(awk '/^lost with the answer: [0-9]+ QP / { n += $5 } END { print n + 0 }' "$LAB_OUT/fail-nth")
		[ $mapped = 1 ] || [ "$(grep -c '^mr: ' <<<"$left")" != "$lost" ] ||
			left=$(grep -v '^mr: ' <<<"$left") || true
		[ -z "$left" ] || fail "left behind:"$'\n'"$left"
		[ "$(objects_of_program "$program" | grep -c '^pd: ')" = 1 ] || fail "PDs are left: $(objects_of_program "$program")"
	fi
	exec 6>&-
	wait "$program" || fail "rop_failnth, mapped queues $mapped: $(<"$LAB_OUT/fail-nth")"
	kill_hog || fail "rop_hog was disturbed: $(<"$hog_log")"
	expect_no_user_objects "rop_failnth"
	cat "$LAB_OUT/fail-nth"
done
rdma statistic qp set link "$RDMA_DEV/1" auto off || fail "the counters of queue pairs stay"
rmmod vgem || fail "vgem is still in use"
rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
pass "each failure is told or mended, and nothing is left"
