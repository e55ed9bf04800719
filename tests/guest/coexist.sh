#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2
#
# A RoPCIe device beside others: rxe on its Ethernet interface, a second RoPCIe
# device on the same host, network namespaces (shared and exclusive), addresses
# that come and go and an interface that goes down while connections live.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

gids=/sys/class/infiniband/$RDMA_DEV/ports/1/gids

# begin NAME: traffic, which has to go on until `end`.
begin() {
	start_hog 1
	lab-barrier "hog-$1"
}

# end WHAT: it has gone on all the while.
end() {
	expect_traffic "$1"
	lab-barrier "checked-${1//[ ,]/-}"
	kill_hog || true # its peer may have been killed first
	expect_no_user_objects "$1"
	lab-barrier "stopped-${1//[ ,]/-}"
	pass "$1"
}

# has_gid A.B.C.D
has_gid() {
	local bytes

	IFS=. read -ra bytes <<<"$1"
	grep -qF "$(printf 'ffff:%02x%02x:%02x%02x' "${bytes[@]}")" "$gids"/* 2>/dev/null
}

has_no_gid() {
	! has_gid "$1"
}

port_is() {
	grep -q "$1" "/sys/class/infiniband/$RDMA_DEV/ports/1/state"
}

second_is_gone() {
	[ ! -e /sys/class/infiniband/second ]
}

# told EVENT: a program that waits for the device's events has heard of it.
told() {
	grep -q "event_type $1 " /tmp/watch.log
}

in_namespace() {
	ip netns exec blue "$@"
}

listening_in_namespace() {
	in_namespace ss -Hltn "sport = :18515" | grep -q .
}

# The other provider's packets are frames of the interface.
begin rxe
modprobe rdma_rxe || fail "rdma_rxe does not load"
rdma link add rxe0 type rxe netdev "$NETDEV" || fail "rxe takes no $NETDEV"
# The connection manager takes devices of one GUID for one.
[ "$(cat /sys/class/infiniband/{rxe0,"$RDMA_DEV"}/node_guid | sort -u | wc -l)" = 2 ] ||
	fail "rxe0 and $RDMA_DEV have one GUID: $(cat /sys/class/infiniband/"$RDMA_DEV"/node_guid)"
RDMA_DEV=rxe0 pair 18515 ib_send_bw -s 4096 -n 100
RDMA_DEV=rxe0 pair 18515 ib_write_lat -n 50
rdma link delete rxe0
modprobe -r rdma_rxe
end "rxe on $NETDEV"

begin second
ip link add other type dummy
ip addr add 10.99.0.1/24 dev other
ip link set dev other up
rdma link add second type ropcie netdev other || fail "no second device"
ib_send_bw -d second -x "$(gid_index second)" -n 300 >/tmp/server.log 2>&1 &
server=$!
retry "$patience" listening 18515 || fail "no server on the second device: $(</tmp/server.log)"
ib_send_bw -d second -x "$(gid_index second)" -n 300 127.0.0.1 >/tmp/client.log 2>&1 ||
	fail "traffic on the second device: $(</tmp/client.log)"
wait "$server" || fail "the second device's server: $(</tmp/server.log)"
# It goes under its own traffic: the device alone, then with its interface.
for way in "rdma link delete second" "ip link del other"; do
	ib_send_bw -F -d second -x "$(gid_index second)" -D 100 >/tmp/server.log 2>&1 &
	server=$!
	retry "$patience" listening 18515 || fail "no server on the second device: $(</tmp/server.log)"
	before=$(rdma_bytes second)
	ib_send_bw -F -d second -x "$(gid_index second)" -D 100 127.0.0.1 >/tmp/client.log 2>&1 &
	client=$!
	RDMA_DEV=second retry "$patience" has_more_bytes_than "$before" || fail "no traffic on the second device: $(</tmp/client.log)"
	$way || fail "$way"
	retry "$patience" second_is_gone || fail "the second device stays after $way"
	kill -KILL $server $client 2>/dev/null || true # they may have ended
	wait $server $client 2>/dev/null || true
	[ ! -e /sys/class/net/other ] ||
		rdma link add second type ropcie netdev other || fail "the second device does not come back"
done
end "a second RoPCIe device, and its end"

begin addresses
for turn in 1 2 3; do
	ip addr add "10.88.$turn.$NODE/24" dev "$NETDEV"
	retry "$patience" has_gid "10.88.$turn.$NODE" || fail "10.88.$turn.$NODE has no GID"
	lab-barrier "address-$turn"
	ping -q -c1 -W5 "10.88.$turn.$((3 - NODE))" >/dev/null || fail "10.88.$turn.$((3 - NODE)) does not answer"
	lab-barrier "pinged-$turn"
	ip addr del "10.88.$turn.$NODE/24" dev "$NETDEV"
	retry "$patience" has_no_gid "10.88.$turn.$NODE" || fail "the GID of 10.88.$turn.$NODE stays"
done
end "addresses that come and go"

# Connections that are there are not of the interface, and go on.
begin down
if [ "$NODE" = 1 ]; then
	stdbuf -oL ibv_asyncwatch -d "$RDMA_DEV" >/tmp/watch.log 2>&1 &
	watch=$!
	retry "$patience" grep -q "async event FD" /tmp/watch.log || fail "ibv_asyncwatch: $(</tmp/watch.log)"
	ip addr del "10.77.0.$NODE/24" dev "$NETDEV"
	retry "$patience" has_no_gid "10.77.0.$NODE" || fail "the GID of an address that is gone stays"
	retry "$patience" told IBV_EVENT_GID_CHANGE || fail "no IBV_EVENT_GID_CHANGE: $(</tmp/watch.log)"
	expect_traffic "an address that is gone"
	ip addr add "10.77.0.$NODE/24" dev "$NETDEV"
	retry "$patience" has_gid "10.77.0.$NODE" || fail "the GID does not come back"
	ip link set dev "$NETDEV" down
	retry "$patience" port_is DOWN || fail "the port of an interface that is down is $(cat "/sys/class/infiniband/$RDMA_DEV/ports/1/state")"
	retry "$patience" told IBV_EVENT_PORT_ERR || fail "no IBV_EVENT_PORT_ERR: $(</tmp/watch.log)"
	expect_traffic "an interface that is down"
	ip link set dev "$NETDEV" up
	retry "$patience" port_is ACTIVE || fail "the port does not come back"
	retry "$patience" told IBV_EVENT_PORT_ACTIVE || fail "no IBV_EVENT_PORT_ACTIVE: $(</tmp/watch.log)"
	kill "$watch" || fail "ibv_asyncwatch has ended: $(</tmp/watch.log)"
	wait "$watch" || true
fi
end "an interface that goes down and up"
pair 18515 ib_send_lat -n 200

# Shared: the device is everybody's, its interface and its GIDs are the namespace's.
address=10.77.0.$NODE/24
ip netns add blue
ip link set dev "$NETDEV" netns blue
in_namespace ip link set dev lo up
in_namespace ip link set dev "$NETDEV" up
in_namespace ip addr add "$address" dev "$NETDEV"
retry "$patience" has_gid "10.77.0.$NODE" || fail "the GID did not follow into the namespace"
lab-barrier shared
if [ "$NODE" = 1 ]; then
	in_namespace ib_send_lat -F -d "$RDMA_DEV" -x "$(gid_index "$RDMA_DEV")" -n 200 >/tmp/shared.log 2>&1 &
	server=$!
	retry "$patience" listening_in_namespace || fail "no server in the namespace"
fi
lab-barrier shared-server
[ "$NODE" != 2 ] ||
	in_namespace ib_send_lat -F -d "$RDMA_DEV" -x "$(gid_index "$RDMA_DEV")" -n 200 "$SERVER" ||
	fail "no traffic in a namespace"
[ "$NODE" != 1 ] || wait "$server" || fail "the namespace's server: $(</tmp/shared.log)"
ip netns del blue
retry "$patience" test -e "/sys/class/net/$NETDEV" || fail "the interface did not come back"
ip link set dev "$NETDEV" up
ip addr add "$address" dev "$NETDEV"
retry "$patience" has_gid "10.77.0.$NODE" || fail "the GID did not come back"
lab-barrier back
pair 18515 ib_send_lat -n 200
pass "a network namespace that shares the device"

# Exclusive: the device is in one namespace, with its interface.
rdma system set netns exclusive || fail "the namespaces can not be made exclusive"
ip netns add blue
ip link set dev "$NETDEV" netns blue
rdma dev set "$RDMA_DEV" netns blue || fail "the device can not be moved"
! rdma dev show "$RDMA_DEV" 2>/dev/null | grep -q . || fail "the device is still outside"
in_namespace rdma dev show "$RDMA_DEV" | grep -q "$RDMA_DEV" || fail "the device is not inside"
in_namespace ip link set dev lo up
in_namespace ip link set dev "$NETDEV" up
in_namespace ip addr add "$address" dev "$NETDEV"
lab-barrier exclusive
! ibv_devinfo -d "$RDMA_DEV" >/dev/null 2>&1 || fail "the device can be used from outside"
in_namespace ibv_devinfo -d "$RDMA_DEV" >/dev/null || fail "the device can not be opened inside"
in_namespace rop_sendrecv --rounds 3 || fail "the device can not be used inside"
lab-barrier used
ip netns del blue
device_is_back() {
	rdma dev show "$RDMA_DEV" 2>/dev/null | grep -q "$RDMA_DEV" && [ -e "/sys/class/net/$NETDEV" ]
}
retry "$patience" device_is_back || fail "the device did not come back"
rdma system set netns shared
ip link set dev "$NETDEV" up
ip addr add "$address" dev "$NETDEV"
retry "$patience" has_gid "10.77.0.$NODE" || fail "the GID did not come back"
lab-barrier again
pair 18515 ib_send_lat -n 200
pass "a network namespace that has the device to itself"
