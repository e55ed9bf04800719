#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1
#
# "rdma link add": a device on somebody else's interface, for machines without an
# NTB. Server and client run on it, its GIDs follow the interface's addresses, and
# it goes when it is deleted, when its interface goes, and with the module.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

own=$RDMA_DEV
RDMA_DEV=lap0
unset RDMA_DEV2

refused() {
	! "$@" 2>"$LAB_OUT/refused" || fail "accepted: $*"
}

add() {
	rdma link add "$RDMA_DEV" type ropcie netdev lap || fail "rdma link add"
}

gone() {
	[ ! -e "/sys/class/infiniband/$RDMA_DEV" ]
}

expect_gone() {
	retry "$patience" gone || fail "the device stays after $1"
}

has_gid() {
	grep -qs "$1" "/sys/class/infiniband/$RDMA_DEV/ports/1/gids/"*
}

ip link add lap type veth peer name lap-peer
ip link set lap-peer up
add
ip link set lap up
ip address add 192.0.2.1/24 dev lap
rdma link show "$RDMA_DEV/1" | grep 'state ACTIVE.*netdev lap' || fail "rdma link show"
refused rdma link add lap1 type ropcie netdev lap # has one
refused rdma link add lap1 type ropcie netdev lo  # is no Ethernet
refused rdma link add "$own" type ropcie netdev lap
refused rdma link add lap1 type ropcie netdev "$NETDEV" # is RoPCIe's
ip link add link lap name lap.5 type vlan id 5
refused rdma link add lap1 type ropcie netdev lap.5
ip link del lap.5
refused rdma link delete "$own" # is the bus's
pass "a device is added once, on an Ethernet interface"

before=$(rdma_bytes "$RDMA_DEV")
pair 18515 ibv_rc_pingpong -g GID
pair 18515 ib_send_lat -n 200
pair 18515 ib_write_bw -s 65536 -n 100
pair 18515 ib_send_lat -c UD -n 200
rping -s -a 192.0.2.1 -v -C 10 >"$LAB_OUT/rping" &
server=$!
rdma_listens() {
	rdma res show cm_id | grep -q 'state LISTEN'
}
retry "$patience" rdma_listens || fail "rping does not listen"
timeout $((2 * patience)) rping -c -a 192.0.2.1 -v -C 10 >"$LAB_OUT/rping-client" || fail "rping"
wait $server
[ "$(rdma_bytes "$RDMA_DEV")" -gt $((before + 10000000)) ] ||
	fail "the data went somewhere else"
pass "programs run on it: ibv_rc_pingpong, perftest, rping"

ip address add 192.0.2.77/24 dev lap
retry "$patience" has_gid 'ffff:c000:024d' || fail "no GID for a new address"
ip address del 192.0.2.77/24 dev lap
retry "$patience" eval '! has_gid ffff:c000:024d' || fail "the GID of an old address stays"
ip link set lap address 02:00:00:00:00:05
pair 18515 ibv_rc_pingpong -g GID -n 100
ip link add link lap name above type vlan id 7
ip link set above address 02:00:00:00:00:06 up
ip address flush dev lap
ip address add 192.0.2.3/24 dev above
retry "$patience" has_gid 'ffff:c000:0203' || fail "no GID for a VLAN above"
pair 18515 ibv_rc_pingpong -g GID -n 100
pair 18515 ib_send_lat -c UD -n 100
ip link del above
ip address add 192.0.2.1/24 dev lap
retry "$patience" has_gid 'ffff:c000:0201' || fail "no GID for an address that is back"
pass "it follows its interface, and those above"

rdma dev set "$RDMA_DEV" name another
RDMA_DEV=another
pair 18515 ibv_rc_pingpong -g GID -n 100
pass "its name says nothing"

on_device "$RDMA_DEV" ibv_rc_pingpong -g GID >/dev/null 2>&1 &
server=$!
retry "$patience" listening 18515 || fail "ibv_rc_pingpong does not listen"
rdma link delete "$RDMA_DEV" || fail "rdma link delete"
expect_gone "rdma link delete"
kill $server
wait $server || true
expect_no_user_objects "rdma link delete"
pass "it goes when it is deleted, also under a program"

RDMA_DEV=lap0
add
ip link del lap
expect_gone "its interface"
ip netns add inner
ip link add lap type veth peer name lap-peer netns inner
add
ip netns del inner
expect_gone "the network namespace of its interface's peer"
pass "it goes with its interface"

ip link add lap type veth peer name lap-peer
for _ in $(seq 20); do
	add
	rdma link delete "$RDMA_DEV" || fail "rdma link delete"
done
add
rmmod ropcie || fail "the module does not unload"
expect_gone "its module"
ip link del lap
pass "it goes with its module"
