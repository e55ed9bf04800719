#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# Shared receive queues under other people's programs: rdma-core's example with
# 16 queue pairs, and perftest. And queues of completions and receives that are resized in
# use, mapped by the process and not.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

# Resizing without end, with a debug kernel's checks, leaves little to the rest.
rounds=$((patience > 60 ? 5 : 100))
for mapped in 1 0; do
	ROPCIE_MAPPED_QUEUES=$mapped rop_resize --rounds $rounds --timeout "$patience" || fail "rop_resize ended with status $?, mapped queues: $mapped"
done
pass "queues that are resized in use"
pair 18515 ibv_srq_pingpong -g GID -n 500 -q 16 -e -s 100000 -r 300
pass "ibv_srq_pingpong"
pair 18515 ib_send_lat --use-srq
pair 18515 ib_send_bw --use-srq -q 8 -n 200
pair 18515 ib_send_bw --use-srq -b -n 200
pass "ib_send_lat, ib_send_bw"
