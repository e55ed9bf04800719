#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 2
# lab-long: --nodes 2 --timeout 1800 -- 20
#
# fork.sh [ROUNDS]: programs that fork with registered memory under verified traffic, as
# they are and with ibv_fork_init(). The children go, write, use the parent's objects, and
# outlive it.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

for safe in 0 1; do
	lab-barrier "safe-$safe"
	[ $safe = 0 ] || export RDMAV_FORK_SAFE=1
	rop_fork --rounds "${1:-20}" || fail "rop_fork ended with status $?, ibv_fork_init: $safe"
	expect_no_user_objects "rop_fork"
done
lab-barrier forked
rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
pass "forks under traffic"
