#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# A program that is killed in mid-transfer leaves nothing behind: no object in
# the kernel, and a device that works for the next program. The lab unloads the
# modules at the end.
# The argument is the number of turns.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

log=/tmp/rop_hog.log

running() {
	grep -q '^running' $log
}

start_hog() {
	rop_hog --qps 8 --peer-may-die >$log 2>&1 &
	hog=$!
	retry "$patience" running || fail "rop_hog does not run: $(<$log)"
	lab-barrier "running-${1//[ ,]/-}"
	sleep 0.5
}

# kill_hog NODES: of which each kills its own. With one node a hog is two
# processes; with several it may have ended because its peer was killed first.
kill_hog() {
	pkill -KILL -x rop_hog || [ "$1" -gt 1 ] ||
		fail "rop_hog was gone before it was killed: $(<$log)"
	wait "$hog" 2>/dev/null || true
}

# round NAME WHO...: the nodes WHO kill theirs, the others' must see it.
round() {
	local name=$1

	shift
	start_hog "$name"
	if [[ " $* " == *" $NODE "* ]]; then
		kill_hog $#
	else
		wait "$hog" || fail "rop_hog whose peer was killed: $(<$log)"
	fi
	expect_no_user_objects "$name"
	lab-barrier "gone-${name//[ ,]/-}"
	rop_sendrecv --rounds 1 >/dev/null
	pass "$name"
}

everybody=$(seq -s ' ' "$NODES")
for ((turn = 1; turn <= ${1:-1}; turn++)); do
	[ "$NODES" = 1 ] || round "node 2 killed, turn $turn" 2
	[ "$NODES" = 1 ] || round "node 1 killed, turn $turn" 1
	# shellcheck disable=SC2086
	round "all killed, turn $turn" $everybody
done
