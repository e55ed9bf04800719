#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
# lab: --nodes 1 --link loopback
# lab-kernels: all
#
# On-demand paging. Arguments are given to rop_odp. perftest's programs bring their
# buffers in, too.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

rop_odp "$@" || fail "rop_odp ended with status $?"
ROPCIE_MAPPED_QUEUES=0 rop_odp --quick "$@" ||
	fail "rop_odp without mapped queues ended with status $?"
if [ "$NODES" = 2 ]; then
	for program in ib_send_bw ib_read_bw; do
		pair 18515 $program -s 1048576 -n 20 --odp
	done
fi
expect_no_user_objects "on-demand paging"
pass "on-demand paging"
