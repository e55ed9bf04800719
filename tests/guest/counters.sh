#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# Counters of single queue pairs, with iproute2's rdma: bound by hand and to
# each type, while a program runs, after it was killed, and in the port's sum.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

link=$RDMA_DEV/1

# value NAME: from the text of `rdma statistic`, summed up.
value() {
	tr ' ' '\n' | awk -v name="$1" 'last == name { sum += $1 } { last = $1 } END { printf "%.0f\n", sum }'
}

port_value() {
	rdma statistic show link "$link" | value "$1"
}

qp_value() {
	rdma statistic qp show link "$link" | value "$1"
}

qp_counters() {
	rdma statistic qp show link "$link" | grep -c ' cntn ' || true
}

counts_on() {
	[ "$(qp_value tx_send_msgs)" -gt "$1" ]
}

no_qp_counters() {
	[ "$(qp_counters)" = 0 ]
}

# With `auto`, each process's queue pairs of a type count by themselves.
rdma statistic qp set link "$link" auto type on || fail "no counters for each type"
rdma statistic qp mode link "$link" | grep -q 'auto type' || fail "the mode is not shown"
lab-barrier auto
start_hog 1
retry "$patience" counts_on 0 || fail "no counter for the queue pairs of a program"
rdma statistic qp show link "$link" | grep -q 'qp-type RC' || fail "the counter is of no type"
lab-barrier auto-seen
kill_hog || true
retry "$patience" no_qp_counters || fail "$(qp_counters) counters are left of a program that was killed"
lab-barrier auto-killed
sent=$(port_value tx_send_bytes)
pair 18515 ib_send_bw -s 4096 -n 100
if [ "$NODE" = 2 ]; then
	[ "$(port_value tx_send_bytes)" = $((sent + 4096 * 100)) ] ||
		fail "the port has counted $(port_value tx_send_bytes) bytes, $sent before"
fi
retry "$patience" no_qp_counters || fail "$(qp_counters) counters are left of a program that ended"
rdma statistic qp set link "$link" auto off || fail "the mode can not be changed back"
pass "counters for each type of queue pair"

lab-barrier hog
start_hog 4
mapfile -t qpns < <(rdma res show qp link "$link" | sed -n "s/.* lqpn \([0-9]*\) .*pid $hog .*/\1/p")
[ ${#qpns[@]} -ge 4 ] || fail "rop_hog has ${#qpns[@]} queue pairs"

rdma statistic qp bind link "$link" lqpn "${qpns[0]}" || fail "a queue pair gets no counter"
rdma statistic qp show link "$link" | grep -q "LQPN: <${qpns[0]}>" || fail "its counter is not shown"
number=$(rdma statistic qp show link "$link" | sed -n 's/.* cntn \([0-9]*\) .*/\1/p')
rdma statistic qp bind link "$link" lqpn "${qpns[1]}" cntn "$number" || fail "two can not share a counter"
[ "$(qp_counters)" = 1 ] || fail "$(qp_counters) counters, where two queue pairs share one"
retry "$patience" counts_on 0 || fail "the counter stands still"
retry "$patience" counts_on "$(qp_value tx_send_msgs)" || fail "the counter stands still after a while"
! rdma statistic qp bind link "$link" lqpn "${qpns[1]}" 2>/dev/null || fail "a queue pair gets two counters"
! rdma statistic qp bind link "$link" lqpn 16777215 2>/dev/null || fail "a queue pair that is not there gets a counter"
! rdma statistic qp bind link "$link" lqpn "${qpns[2]}" cntn 77 2>/dev/null || fail "there is a counter 77"

before=$(port_value tx_send_msgs)
rdma statistic qp unbind link "$link" cntn "$number" lqpn "${qpns[0]}" || fail "unbind"
[ "$(qp_counters)" = 1 ] || fail "the other queue pair has lost its counter"
rdma statistic qp unbind link "$link" cntn "$number" || fail "unbind of all"
no_qp_counters || fail "a counter is left that nobody uses"
[ "$(port_value tx_send_msgs)" -ge "$before" ] || fail "the port has forgotten what the counter has counted"
pass "counters bound and unbound under a running program"

rdma statistic qp bind link "$link" lqpn "${qpns[3]}" || fail "a second time there is no counter"
lab-barrier kill
kill_hog || true
expect_no_user_objects "a kill of a program with a counter"
retry "$patience" no_qp_counters || fail "a counter is left of a program that was killed"
pass "a killed program leaves no counter"
