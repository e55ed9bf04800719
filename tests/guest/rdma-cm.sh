#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# librdmacm's programs, unmodified: connections over QP1 and MADs, datagrams,
# multicast, reject, and perftest with -R.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/cm.sh
. "$(dirname "$0")/lib/cm.sh"

between rping -s -v -V -C 20 -- rping -c -a "$SERVER" -v -V -C 20
between rping -s -S 32768 -V -C 10 -- rping -c -a "$SERVER" -S 32768 -V -C 10
between rdma_server -- rdma_client -s "$SERVER"
between rdma_xserver -c r -- rdma_xclient -s "$SERVER" -c r
between rdma_xserver -c x -- rdma_xclient -s "$SERVER" -c x
between ucmatose -c 4 -C 10 -- ucmatose -s "$SERVER" -c 4 -C 10
between udaddy -c 2 -C 10 -- udaddy -s "$SERVER" -c 2 -C 10
between mckey -b 10.77.0.1 -m 239.10.20.30 -C 10 -- mckey -b 10.77.0.2 -m 239.10.20.30 -s -C 10

between rstream -S 4096 -C 50 -- rstream -s "$SERVER" -S 4096 -C 50
between riostream -S 4096 -C 50 -- riostream -s "$SERVER" -S 4096 -C 50
between ib_send_lat -R -d "$RDMA_DEV" -n 100 -- ib_send_lat -R -d "$RDMA_DEV" -n 100 "$SERVER"
between ib_write_bw -R -d "$RDMA_DEV" -n 100 -- ib_write_bw -R -d "$RDMA_DEV" -n 100 "$SERVER"
connects 64
connects 1000
expect_no_user_objects "cmtime"
