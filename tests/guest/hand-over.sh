#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback --smp 2
# lab-long: --nodes 1 --link loopback --smp 2 --timeout 3600 -- 20
#
# What this node sends to itself goes past the lanes, or, with hand_over=0, through them;
# whether it is one or the other, and while it changes all the time, nothing is lost,
# torn or out of order, also of queue pairs whose neighbours are reset and destroyed.
# The argument is the number of turns.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

turns=${1:-1}
param=/sys/module/ropcie_ntb_if/parameters/hand_over
few=100 # records; all that is run here sends many times more

# total COUNTER: of all adapters.
total() {
	cat /sys/kernel/debug/ropcie_ntb_if/*/state |
		awk -v name="$1" '$1 == name { sum += $2 } END { printf "%.0f\n", sum }'
}

# seq_naks: answers to records that came out of order, or after one that was lost.
seq_naks() {
	cat /sys/class/infiniband/*/ports/1/hw_counters/tx_seq_naks |
		awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# measure COMMAND...: sets $handed and $others, records that it sent past the lanes and
# through them.
measure() {
	local all naks log=$LAB_OUT/hand-over.log

	handed=$(total handed_records) all=$(total tx_records) naks=$(seq_naks)
	"$@" >"$log" 2>&1 || fail "$* with hand_over=$(<$param): $(tail -n 5 "$log")"
	handed=$(($(total handed_records) - handed))
	others=$(($(total tx_records) - all - handed))
	naks=$(($(seq_naks) - naks))
	[ $naks = 0 ] || fail "$*: $naks records came out of order"
	pass "$* ($handed records handed over, $others others)"
}

# churn ROUNDS [OPTION...]
churn() {
	measure rop_churn --qps 12 --timeout "$patience" --rounds "$@"
}

# As fast as it can.
toggle() {
	while :; do
		echo 0
		echo 1
	done >$param
}

toggler=
restore() {
	[ -z "$toggler" ] || kill "$toggler" || true
	echo 1 >$param
}
trap restore EXIT

[ "$(<$param)" = Y ] || fail "hand_over is $(<$param) at first"
churn $((5 * turns))
[ "$handed" -gt $few ] || fail "only $handed records were handed over"
churn $((2 * turns)) --device2 "$RDMA_DEV"
[ "$handed" -gt $few ] || fail "only $handed records from a device to itself were handed over"
measure rop_errors --timeout "$patience"
[ "$handed" -gt $few ] || fail "only $handed records were handed over"

echo 0 >$param
churn $((2 * turns))
[ "$handed" = 0 ] || fail "$handed records were handed over with hand_over=0"
[ "$others" -gt $few ] || fail "only $others records were sent with hand_over=0"

toggle &
toggler=$!
for run in "churn $((5 * turns))" "churn $((2 * turns)) --device2 $RDMA_DEV" \
	"measure rop_traffic --quick --timeout $patience" \
	"measure rop_many_qps --qps 20 --timeout $patience"; do
	$run
	[ "$handed" -gt $few ] || fail "only $handed records were handed over while hand_over changes"
	[ "$others" -gt $few ] || fail "only $others were not while hand_over changes"
done
expect_no_user_objects "all of it"
