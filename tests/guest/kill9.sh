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

# round NAME WHO...: the nodes WHO kill theirs, the others' must see it.
round() {
	local name=$1

	shift
	start_hog 8
	lab-barrier "running-${name//[ ,]/-}"
	sleep 0.5
	end_hog "$@"
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
