#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- --quick
# lab: --nodes 1 --link loopback -- --quick
# lab-long: --nodes 2 --timeout 7200
# lab-long: --nodes 1 --link loopback --timeout 3600
# lab-long: --nodes 2 --flat --module-params ropcie_ntb_if:direct_placement=1 -- --quick
#
# What keys protect, case by case. Arguments are given to rop_keys; with --tolerate
# wrong answers are only printed, with --sample N a sample of --quick is taken again.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

# Without it there is no dma-buf to register.
modprobe vgem || fail "this kernel has no vgem"
rop_keys --timeout "$patience" "$@" || fail "rop_keys ended with status $?"
ROPCIE_MAPPED_QUEUES=0 rop_keys --timeout "$patience" --quick "$@" ||
	fail "rop_keys without mapped queues ended with status $?"
rmmod vgem || fail "all regions are gone, and vgem is still in use"
expect_no_user_objects "keys"
pass "keys"
