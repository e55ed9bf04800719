#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback
# lab: --nodes 2
#
# One process and the objects of another (rop_strangers), which are on one node, or with
# two nodes on one each. Arguments are given to it;
# with --tolerate wrong answers are only printed.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

# The stranger is another user; rdma-core's udev rules let everybody in.
chmod 0666 /dev/infiniband/uverbs*
rop_strangers --timeout "$patience" "$@" || fail "rop_strangers ended with status $?"
ROPCIE_MAPPED_QUEUES=0 rop_strangers --timeout "$patience" "$@" ||
	fail "rop_strangers without mapped queues ended with status $?"
expect_no_user_objects "strangers"
rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
pass "strangers"
