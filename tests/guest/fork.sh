#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 2
# lab-long: --nodes 2 --timeout 1800 -- 20
#
# fork.sh [ROUNDS]: programs that fork with registered memory under verified traffic, as
# they are and with ibv_fork_init(). The children go, write, use the parent's objects, and
# outlive it. With more than two ROUNDS, TCP and NVMe over Fabrics go on beside them.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"
# shellcheck source=tests/guest/lib/ulps.sh
. "$(dirname "$0")/lib/ulps.sh"

rounds=${1:-20}
[ "$rounds" -le 2 ] || start_ulps
for safe in 0 1; do
	lab-barrier "safe-$safe"
	[ $safe = 0 ] || export RDMAV_FORK_SAFE=1
	rop_fork --rounds "$rounds" || fail "rop_fork ended with status $?, ibv_fork_init: $safe"
	expect_no_user_objects "rop_fork"
	[ "$rounds" -le 2 ] || expect_ulps "rop_fork"
done
[ "$rounds" -le 2 ] || end_ulps
lab-barrier forked
rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
pass "forks under traffic"
