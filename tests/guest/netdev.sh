#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --smp 2
# lab-long: --nodes 3
# lab-kernels: all
#
# The Ethernet interface of a RoPCIe device: IPv4 and IPv6 with every size of
# frame, TCP with its data compared, MTU and its limits, statistics, carrier.
# Every node does it with every other.
set -euo pipefail
# shellcheck source=tests/guest/lib/base.sh
. "$(dirname "$0")/lib/base.sh"

dev=${NETDEV:?}
max_mtu=65518
modules=(ropcie_ntb_if ropcie_bus ropcie_device ropcie)

# shellcheck source=tests/guest/lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"

peers() {
	seq "$NODES" | grep -vx "$NODE"
}

stat() {
	cat "/sys/class/net/$dev/statistics/$1"
}

carrier() {
	[ "$(cat "/sys/class/net/$dev/carrier")" = "$1" ]
}

# answers ADDRESS BYTES: a frame of that many bytes of IP comes and goes whole.
answers() {
	ping -q -n -c1 -W2 -M 'do' -s "$(($2 - 28))" "$1" >/dev/null 2>&1
}

set_mtu() {
	ip link set dev "$dev" mtu "$1" 2>/dev/null
}

every_size() {
	local peer bytes

	for peer in $(peers); do
		for bytes in 28 60 128 257 1500 3999 4000 4096 4097 9000 32768 65517 $max_mtu; do
			retry "$patience" answers "10.77.0.$peer" "$bytes" ||
				fail "node$peer does not answer to $bytes bytes"
		done
	done
	pass "IPv4 packets up to $max_mtu bytes"
}

# The node itself is one of them.
all_answer_multicast() {
	local said

	said=$(ping -6 -n -c2 -W2 "ff02::1%$dev")
	[ "$(grep -o 'from fe80[^ ]*' <<<"$said" | sort -u | wc -l)" = "$NODES" ]
}

ipv6() {
	local peer address

	ip -6 addr replace "fd77::$NODE/64" dev "$dev" nodad
	lab-barrier netdev-ipv6
	for peer in $(peers); do
		retry "$patience" ping -6 -q -n -c1 -W2 -s 8000 "fd77::$peer" >/dev/null ||
			fail "fd77::$peer does not answer"
	done
	address=$(ip -6 -o addr show dev "$dev" scope link | grep -c fe80)
	[ "$address" = 1 ] || fail "$address link-local addresses"
	# Multicast: all nodes on the link, of which each peer answers.
	retry "$patience" all_answer_multicast || fail "not all $NODES nodes answer to ff02::1"
	pass "IPv6, unicast and multicast"
}

# Its frames have four bytes more, with the MTU of the interface below.
vlan() {
	local peer

	ip link add link "$dev" name vlan5 type vlan id 5 || fail "no VLAN"
	ip addr add "10.78.0.$NODE/24" dev vlan5
	ip link set dev vlan5 up
	lab-barrier netdev-vlan
	for peer in $(peers); do
		retry "$patience" answers "10.78.0.$peer" $max_mtu ||
			fail "node$peer does not answer to $max_mtu bytes over a VLAN"
	done
	lab-barrier netdev-vlan-done
	ip link del dev vlan5
	pass "packets of $max_mtu bytes over a VLAN"
}

# tcp MTU: from each node to the next one in the circle, in turn.
tcp() {
	local from to

	set_mtu "$1" || fail "the MTU $1 is refused"
	for from in $(seq "$NODES"); do
		to=$((from % NODES + 1))
		lab-barrier "netdev-tcp-$1-$from"
		if [ "$NODE" = "$from" ]; then send_to "$to"; fi
		if [ "$NODE" = "$to" ]; then receive_from "$from"; fi
	done
	lab-barrier "netdev-tcp-$1-done"
	pass "TCP with MTU $1: $tcp_bytes bytes, compared"
}

limits() {
	local mtu errors peer

	for mtu in 67 $((max_mtu + 1)); do
		! set_mtu $mtu || fail "the MTU $mtu is taken"
	done
	! ip link set dev "$dev" address 02:00:00:00:00:01 2>/dev/null ||
		fail "the address, which the peers know, can be changed"
	lab-barrier netdev-limits
	# A frame that is longer than the receiver's MTU is dropped and counted.
	set_mtu $((NODE == 1 ? 1500 : 9000))
	errors=$(stat rx_errors)
	lab-barrier netdev-mtu-differs
	if [ "$NODE" != 1 ]; then
		answers 10.77.0.1 1500 || fail "node1 does not answer to 1500 bytes"
		! answers 10.77.0.1 9000 || fail "node1 takes more than its MTU"
	fi
	lab-barrier netdev-mtu-tried
	if [ "$NODE" = 1 ]; then
		[ "$(stat rx_errors)" -ge $((errors + NODES - 1)) ] || fail "rx_errors does not count"
	fi
	for peer in $(peers); do
		answers "10.77.0.$peer" 1500 || fail "node$peer does not answer after frames that were too long"
	done
	lab-barrier netdev-limits-done
	set_mtu $max_mtu
	pass "limits of the MTU, and frames beyond it"
}

statistics() {
	local packets bytes

	packets=$(stat tx_packets)
	bytes=$(stat tx_bytes)
	all_answered "statistics" "10.77.0.$((NODE % NODES + 1))" -c10 -i0.02 -s 1000
	[ "$(stat tx_packets)" -ge $((packets + 10)) ] || fail "tx_packets does not count"
	[ "$(stat tx_bytes)" -ge $((bytes + 10 * 1042)) ] || fail "tx_bytes does not count"
	[ "$(stat rx_packets)" -gt 0 ] || fail "rx_packets does not count"
	[ "$(stat rx_bytes)" -gt 0 ] || fail "rx_bytes does not count"
	[ "$(ethtool -i "$dev" | sed -n 's/^driver: //p')" = ropcie ] || fail "ethtool -i"
	ethtool "$dev" | grep -q 'Link detected: yes' || fail "ethtool shows no link"
	[ -d "/sys/class/infiniband/$RDMA_DEV/device/net/$dev" ] ||
		fail "$dev and $RDMA_DEV are not children of one device"
	lab-barrier netdev-statistics
	pass "statistics, ethtool, place in sysfs"
}

down_and_up() {
	lab-barrier netdev-down
	if [ "$NODE" = 1 ]; then
		ip link set dev "$dev" down
		ip link set dev "$dev" up
		ip -6 addr replace "fd77::$NODE/64" dev "$dev" nodad
	fi
	lab-barrier netdev-up
	for peer in $(peers); do
		retry "$patience" answers "10.77.0.$peer" 9000 || fail "node$peer does not answer after down and up"
	done
	lab-barrier netdev-up-done
	pass "down and up"
}

# The last node goes; on two nodes its peer then has nobody.
carrier_follows() {
	local left=$((NODES > 2)) module index

	carrier 1 || fail "no carrier"
	lab-barrier netdev-carrier
	if [ "$NODE" = "$NODES" ]; then
		for ((index = ${#modules[@]} - 1; index >= 0; index--)); do
			timeout "$patience" rmmod "${modules[index]}" || fail "rmmod ${modules[index]}"
		done
	fi
	lab-barrier netdev-gone
	if [ "$NODE" != "$NODES" ]; then
		retry "$patience" carrier $left || fail "the carrier is not $left when node$NODES is gone"
	fi
	lab-barrier netdev-noticed
	if [ "$NODE" = "$NODES" ]; then
		for module in "${modules[@]}"; do
			insmod "$MODDIR"/*/"$module.ko" || fail "insmod $module"
		done
		ip link set dev "$dev" up || fail "$dev did not come back"
		ip addr add "10.77.0.$NODE/24" dev "$dev"
	fi
	retry "$patience" carrier 1 || fail "the carrier does not return"
	lab-barrier netdev-back
	for peer in $(peers); do
		retry "$patience" answers "10.77.0.$peer" 1500 || fail "node$peer does not answer after its return"
	done
	lab-barrier netdev-answered
	pass "the carrier follows the peers"
}

set_mtu $max_mtu || fail "the MTU $max_mtu is refused"
lab-barrier netdev-start
every_size
ipv6
vlan
tcp 1500
in_order 1 2
tcp $max_mtu
limits
statistics
down_and_up
carrier_follows
