#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 2
# lab-long: --nodes 2 --timeout 3600 -- 20
#
# faults.sh [TURNS]: the link is lost under traffic, each way TURNS times: the
# cable is pulled, and a port falls silent, for longer than is forgiven. Each time
# rop_faults checks what programs see; afterwards new queue pairs work without
# reloading anything. A short silence is not seen at all.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

turns=${1:-20}
log=$LAB_OUT/faults.$NODE
cable=$(compgen -G '/sys/kernel/debug/ntb_hw_ivshmem/*/link') || fail "the link has no knob"

# cut WORD SECONDS
cut_for() {
	echo "$1" >"$cable"
	sleep "$2"
	echo up >"$cable"
}

# runs N: rop_faults is in its round N, with traffic.
runs() {
	[ "$(grep -c running "$log")" -ge "$1" ]
}

# lose WORD SECONDS: node 1 does it, in each round of rop_faults.
lose() {
	local turn test

	rop_faults --rounds "$turns" >"$log" 2>&1 &
	test=$!
	for ((turn = 1; turn <= (NODE == 1 ? turns : 0); turn++)); do
		retry $((2 * patience)) runs "$turn" || fail "no traffic in turn $turn: $(<"$log")"
		sleep "0.$((RANDOM % 5))"
		cut_for "$1" "$2"
	done
	wait "$test" || fail "a link that is $1: $(<"$log")"
	grep -v '^running' "$log"
	expect_no_user_objects "a link that is $1"
	lab-barrier "lost-$1"
	pass "a link that is $1 for $2 s, $turns times"
}

lose down 0.3
lose dead 7

# Traffic waits for a peer that is silent for less than the limit.
start_hog 4
lab-barrier short
for ((turn = 1; turn <= turns; turn++)); do
	[ "$NODE" != 1 ] || cut_for dead 1
	lab-barrier "short-$turn"
	expect_traffic "a silence of 1 s"
done
lab-barrier short-over
kill_hog || true # its peer may have been killed first
expect_no_user_objects "a short silence"
pass "a silence of 1 s, $turns times"
