#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# perftest's RDMA WRITE, READ and atomic programs: latency and bandwidth, all
# sizes, one way and both ways, with events where they have them.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

port=18515
pair $port ib_write_lat -a -n 10
pair $port ib_write_bw -a -n 20
pass "ib_write_lat, ib_write_bw"
pair $port ib_read_lat -e -n 100
pair $port ib_read_lat -a -n 10
pair $port ib_read_bw -a -n 20
pass "ib_read_lat, ib_read_bw"
pair $port ib_atomic_lat -A FETCH_AND_ADD -n 200
pair $port ib_atomic_lat -A CMP_AND_SWAP -e -n 100
pair $port ib_atomic_bw -A CMP_AND_SWAP -b -n 200
pass "ib_atomic_lat, ib_atomic_bw"
