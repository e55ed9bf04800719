#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback --kernel-args "slub_debug=P page_poison=1 init_on_alloc=0" -- --rounds 40
# lab-long: --nodes 1 --link loopback --kernel-args "slub_debug=P page_poison=1 init_on_alloc=0" --timeout 7200 -- --rounds 2000
#
# Hostile processes (rop_fuzz); arguments are given to it. Memory that the kernel
# has not filled itself can be told from what comes back. Afterwards nothing of them
# is left, and the device works.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

# Processes that spoil their own memory crash, which is nobody's fault but theirs.
echo 0 >/proc/sys/debug/exception-trace
rop_fuzz --timeout "$patience" "$@" 2>"$LAB_OUT/fuzz" ||
	fail "rop_fuzz ended with status $?: $(tail -n 5 "$LAB_OUT/fuzz")"
expect_no_user_objects "hostile processes"
rop_sendrecv
pass "hostile processes"
