#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
# lab-long: --nodes 2 --timeout 7200 -- 50
#
# A program that is killed in mid-transfer, or anywhere between its start and its end,
# leaves nothing behind: no object in the kernel, and a device that works for the next
# program; its peer is told in time, and another program's verified traffic goes on
# (bystander), with more than one turn TCP and NVMe over Fabrics, too. The lab unloads the
# modules at the end. The argument is the number of turns.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"
# shellcheck source=tests/guest/lib/ulps.sh
. "$(dirname "$0")/lib/ulps.sh"

undisturbed() {
	[ -z "${bystander:-}" ] || expect_bystander "$1" $((patience * 200)) # those that die want the processor, too
	[ -z "${io_goes_on:-}" ] || expect_ulps "$1"
}

# round NAME QPS WHO...: the nodes WHO kill theirs, the others' must see it.
round() {
	local name=$1

	start_hog "$2"
	shift 2
	lab-barrier "running-${name//[ ,]/-}"
	sleep 0.5
	end_hog "$@"
	[[ " $* " == *" $NODE "* ]] || grep -q '^nobody answered' "$hog_log" ||
		fail "$name: the end of the peer is no silence: $(<"$hog_log")"
	expect_no_user_objects "$name"
	undisturbed "$name"
	[ -n "${bystander:-}" ] || cat "$hog_log"
	lab-barrier "gone-${name//[ ,]/-}"
	rop_sendrecv --rounds 1 >/dev/null
	pass "$name"
}

# stages COUNT: a program that connects, transfers and ends is killed COUNT times, each
# time later in its course.
stages() {
	local stage began length program us status killed=0

	rop_many_qps --qps 60 >/dev/null || fail "rop_many_qps ended with status $?"
	lab-barrier whole
	began=${EPOCHREALTIME/./}
	rop_many_qps --qps 60 >/dev/null || fail "rop_many_qps ended with status $?"
	length=$((${EPOCHREALTIME/./} - began))
	for ((stage = 1; stage <= $1; stage++)); do
		lab-barrier stage
		rop_many_qps --qps 60 --timeout "$patience" >"$hog_log" 2>&1 &
		program=$!
		if [ "$NODE" = $((stage % NODES + 1)) ]; then
			us=$((length * stage / ($1 + 1)))
			sleep "$((us / 1000000)).$(printf %06d $((us % 1000000)))"
			kill -KILL "$program" 2>/dev/null || true # it may have ended
		fi
		# Its peer fails, too, unless it was past its last byte.
		status=0
		wait "$program" 2>/dev/null || status=$?
		[ $status != 137 ] || killed=$((killed + 1))
		! grep -E 'wrong|out of order|overwritten|unknown|completions after' "$hog_log" ||
			fail "what came before a death at stage $stage of $1, or did not after it"
		expect_no_user_objects "a death at stage $stage of $1"
		undisturbed "a death at stage $stage of $1"
	done
	echo $killed >"$LAB_OUT/killed.$NODE"
	lab-barrier staged
	awk '{ killed += $1 } END { exit !killed }' "$LAB_OUT"/killed.* || fail "nothing was killed in its course"
	rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
	pass "killed at $1 stages of its course, $killed times here"
}

# in_calls: a program in each call of its life is killed there.
in_calls() {
	start_stages
	pkill -KILL -x rop_stage
	for stage in "${stages[@]}"; do
		wait "${staged[$stage]}" 2>/dev/null && fail "rop_stage at $stage ended before it was killed"
	done
	expect_no_user_objects "deaths in each call"
	undisturbed "deaths in each call"
	lab-barrier in-calls
	rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
	pass "killed in each of ${#stages[@]} calls"
}

everybody=$(seq -s ' ' "$NODES")
turns=${1:-1}
for ((turn = 1; turn <= (NODES > 1 ? turns : 0); turn++)); do
	round "node 2 killed, turn $turn" 8 2
	# A queue pair alone, whose time nobody stretches.
	round "node 1 killed, turn $turn" 1 1
done
# From here on with a bystander; with one node it would be two processes.
[ "$NODES" = 1 ] || [ "$NODE" -gt 2 ] || NODES=2 start_bystander
lab-barrier bystander
if [ "$NODES" = 2 ] && [ "$turns" -gt 1 ]; then
	start_ulps
	io_goes_on=yes
fi
for ((turn = 1; turn <= turns; turn++)); do
	# shellcheck disable=SC2086
	round "all killed, turn $turn" 8 $everybody
	in_calls
done
stages $((4 * turns - 2))
undisturbed "all of that"
lab-barrier over
[ -z "${io_goes_on:-}" ] || end_ulps
[ -z "${bystander:-}" ] || end_bystander
