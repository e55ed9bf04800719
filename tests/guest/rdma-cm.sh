#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# librdmacm's programs, unmodified: connections over QP1 and MADs, datagrams,
# multicast, IPv6, both types of GIDs, and perftest with -R.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/cm.sh
. "$(dirname "$0")/lib/cm.sh"

# default_gids TYPE: of connections that librdmacm makes from now on.
default_gids() {
	local dir=/sys/kernel/config/rdma_cm/$RDMA_DEV

	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	mkdir -p "$dir"
	echo "$1" >"$dir/ports/1/default_roce_mode"
	rmdir "$dir"
}

server6=fd77::1
ip -6 addr replace "fd77::$NODE/64" dev "$NETDEV" nodad
lab-barrier ipv6

between rping -s -v -V -C 20 -- rping -c -a "$SERVER" -v -V -C 20
between rping -s -S 32768 -V -C 10 -- rping -c -a "$SERVER" -S 32768 -V -C 10
between rping -s -a :: -V -C 10 -- rping -c -a $server6 -V -C 10
lasting=1 between rping -s -P -V -- rping -c -a "$SERVER" -V -C 10
between rdma_server -- rdma_client -s "$SERVER"
between rdma_xserver -c r -- rdma_xclient -s "$SERVER" -c r
between rdma_xserver -c x -- rdma_xclient -s "$SERVER" -c x
between ucmatose -c 4 -C 10 -- ucmatose -s "$SERVER" -c 4 -C 10
between ucmatose -m -C 10 -- ucmatose -m -s "$SERVER" -C 10
between ucmatose -f ipv6 -b $server6 -C 10 -- ucmatose -f ipv6 -s $server6 -C 10
between udaddy -c 2 -C 10 -- udaddy -s "$SERVER" -c 2 -C 10
between mckey -b 10.77.0.1 -m 239.10.20.30 -C 10 -- mckey -b 10.77.0.2 -m 239.10.20.30 -s -C 10

between rstream -S 4096 -C 50 -- rstream -s "$SERVER" -S 4096 -C 50
between riostream -S 4096 -C 50 -- riostream -s "$SERVER" -S 4096 -C 50
# Not udpong: librdmacm's datagram sockets make addresses without a GID, which no
# RoCE device takes.
[ "$NODE" = 1 ] || head -c 3000000 /dev/urandom >"$LAB_OUT/file"
lasting=1 between rcopy -- rcopy "$LAB_OUT/file" "$SERVER:/tmp/copied"
[ "$NODE" != 1 ] || cmp "$LAB_OUT/file" /tmp/copied || fail "rcopy: other bytes than were sent"

default_gids "IB/RoCE v1"
lab-barrier version-1
between rping -s -v -V -C 20 -- rping -c -a "$SERVER" -v -V -C 20
default_gids "RoCE v2"
lab-barrier version-2

# perftest's server is not ready for the second connection at once: slow_connect.cc.
slow=$(dirname "$(command -v rop_traffic)")/../lib/slow_connect.so
for program in ib_{send,atomic}_lat ib_{write,read}_bw; do
	between "$program" -R -F -d "$RDMA_DEV" -n 100 -- \
		env LD_PRELOAD="$slow" \
		"$program" -R -F -d "$RDMA_DEV" -n 100 "$SERVER"
done
connects 64
connects 1000
expect_no_user_objects "cmtime"
