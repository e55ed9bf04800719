#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 1
# lab-long: --nodes 2 --timeout 3600 -- 20
# lab-long: --nodes 2 --flat --module-params ropcie_ntb_if:direct_placement=1 -- 2
#
# unload.sh [TURNS]: the driver goes under programs that poll, that post and that
# wait for events, and under one in each call of its life, TURNS times each. It
# does not wait for them, calls fail with EIO, sleepers are woken, they can be killed,
# and when it is back all works again. What their data and their peers come to:
# faults.sh modules.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"

turns=${1:-20}
port=18515
number=0

# start PROGRAM OPTION...: of perftest, with traffic.
start() {
	local before

	before=$(rdma_bytes "$RDMA_DEV")
	if [ "$NODE" = 1 ]; then
		"$@" -F -d "$RDMA_DEV" -p "$port" >"$LAB_OUT/program" 2>&1 &
		program=$!
		retry "$patience" listening "$port" || fail "$* does not listen: $(<"$LAB_OUT/program")"
		lab-barrier "listens-$number"
	else
		lab-barrier "listens-$number"
		"$@" -F -d "$RDMA_DEV" -p "$port" "$SERVER" >"$LAB_OUT/program" 2>&1 &
		program=$!
	fi
	retry "$patience" has_more_bytes_than "$before" ||
		fail "$* does not run: $(<"$LAB_OUT/program")"
	[ "$1" != ib_write_bw ] || [ "$NODE" = 1 ] || expect_placed
}

gone() {
	[ ! -e "/sys/class/infiniband/$RDMA_DEV" ]
}

reload() {
	unload_modules ropcie
	gone || fail "the device is left under $*"
	load_modules ropcie
}

# unload NODE PROGRAM OPTION...
unload() {
	local who=$1

	shift
	number=$((number + 1))
	start "$@"
	lab-barrier "runs-$number"
	[ "$NODE" != "$who" ] || reload "$@"
	lab-barrier "reloaded-$number"
	# It may have ended, and it may wait for its peer over TCP.
	kill -KILL "$program" 2>/dev/null || true
	wait "$program" 2>/dev/null || true
	expect_no_user_objects "$*"
	expect_reachable "$*"
	lab-barrier "works-$number"
	rop_sendrecv >/dev/null || fail "rop_sendrecv ended with status $? after $*"
}

# unload_stages NODE: under a program in each call; each is told by EIO, ends by itself,
# and keeps nobody from unloading.
unload_stages() {
	local stage

	number=$((number + 1))
	if [ "$NODE" = "$1" ]; then
		start_stages
		reload "programs at each stage"
		for stage in "${stages[@]}"; do
			retry "$patience" ended "${staged[$stage]}" || fail "$stage does not end when the device goes"
			wait "${staged[$stage]}" || fail "at $stage: $(<"$LAB_OUT/stage.$stage.$NODE")"
		done
	fi
	lab-barrier "stages-$number"
	expect_no_user_objects "programs at each stage"
	expect_reachable "programs at each stage"
	lab-barrier "stages-work-$number"
	rop_sendrecv >/dev/null || fail "rop_sendrecv ended with status $? after programs at each stage"
}

for ((turn = 1; turn <= turns; turn++)); do
	unload_stages $((turn % 2 + 1))
	one=$((turn % 2 + 1)) other=$(((turn + 1) % 2 + 1))
	unload $one ib_send_bw -D 100 # polls
	unload $other ib_send_bw -e -n 1000000 # waits for events
	unload $one ib_read_lat -D 100
	unload $other ib_write_bw -D 100 --post_list=32 # posts
done
pass "the driver goes and comes under four programs and at each stage of one, $turns times"
