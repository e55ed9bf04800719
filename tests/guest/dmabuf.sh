#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
# lab: --nodes 1 --link loopback
# lab-kernels: all
#
# Memory regions of another device's memory: buffers of the vgem driver.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

modprobe vgem || fail "this kernel has no vgem"
for ((round = 0; round < 3; round++)); do
	rop_dmabuf || fail "rop_dmabuf ended with status $?"
done
rmmod vgem || fail "a region is gone, and vgem is still in use"
expect_no_user_objects "rop_dmabuf"
pass "dma-buf"
