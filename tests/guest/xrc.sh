#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# Extended reliable connections under other people's programs: rdma-core's
# example, whose server has shared receive queues of its own for each client, and
# perftest.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

pair 18515 ibv_xsrq_pingpong -g GID -n 500
pair 18515 ibv_xsrq_pingpong -g GID -n 200 -s 100000 -e
pass "ibv_xsrq_pingpong"
pair 18515 ib_send_lat -c XRC
pair 18515 ib_send_bw -c XRC -q 4 -s 65536 -n 100 -e
pair 18515 ib_write_bw -c XRC -b -s 1048576 -n 20
pair 18515 ib_write_lat -c XRC -n 200
pair 18515 ib_read_bw -c XRC -s 65536 -n 100
pair 18515 ib_atomic_lat -c XRC -n 200
pass "perftest over XRC"
