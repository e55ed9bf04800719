#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2
#
# The unreliable services: perftest over UC and UD, rdma-core's UC and UD
# examples.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

port=18515
pair $port ibv_uc_pingpong -g GID
pair $port ibv_uc_pingpong -g GID -e -s 65536 -n 50
pair $port ibv_ud_pingpong -g GID
pair $port ibv_ud_pingpong -g GID -e -s 1 -n 100
pass "ibv_uc_pingpong, ibv_ud_pingpong"
pair $port ib_send_lat -c UC -n 200
pair $port ib_send_lat -c UC -e -n 200
pair $port ib_send_bw -c UC -s 1048576 -n 20
pair $port ib_write_lat -c UC -n 200
pair $port ib_write_bw -c UC -s 65536 -n 50
pass "ib_send_lat, ib_send_bw, ib_write_lat, ib_write_bw over UC"
pair $port ib_send_lat -c UD -n 200
pair $port ib_send_lat -c UD -e -n 200
pair $port ib_send_lat -c UD -a -n 20
pair $port ib_send_bw -c UD -n 100
pass "ib_send_lat, ib_send_bw over UD"
