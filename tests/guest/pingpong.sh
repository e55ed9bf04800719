#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# rdma-core's RC example, polling and with events, small and large messages.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

port=18515
pair $port ibv_rc_pingpong -g GID
pair $port ibv_rc_pingpong -g GID -e
# Completions have time stamps on mapped queues.
case $RDMA_DEV:${ROPCIE_MAPPED_QUEUES:-1} in
ropcie*:1) pair $port ibv_rc_pingpong -g GID -t ;;
esac
pair $port ibv_rc_pingpong -g GID -c -s 1 -n 200
pair $port ibv_rc_pingpong -g GID -c -s 1048576 -n 100
pass "ibv_rc_pingpong"
