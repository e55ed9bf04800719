#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --no-setup
#
# Linux's ntb_transport and ntb_netdev on the emulated NTB, two nodes: ping,
# and a TCP transfer in both directions whose data is compared.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"

tcp_net=10.78.0
# shellcheck source-path=SCRIPTDIR source=lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"

other=$((3 - NODE))

[ "$NODES" = 2 ] || fail "ntb_transport joins two nodes, not $NODES"

netdevs() {
	ls /sys/class/net
}

transfer() {
	local node

	for node in 1 2; do
		meet "$1-from-$node"
		if [ "$NODE" = $node ]; then send_to $other; else receive_from $other; fi
	done
	meet "$1-done"
	pass "$1: $tcp_bytes bytes each way, compared"
}

# Echoes that the kernel has sent and knows no answer to.
unanswered() {
	nstat -asz IcmpOutEchos IcmpInEchoReps |
		awk '/OutEchos/ { n += $2 } /InEchoReps/ { n -= $2 } END { print n }'
}

answered_but() {
	[ "$(unanswered)" -le "$1" ]
}

# every_answer_comes NAME ADDRESS PING-ARGUMENT...: the kernel counts them. ping misses some:
# ntb_netdev has 128 KiB for each frame, of which a socket of ping's takes no two.
every_answer_comes() {
	local name=$1 before said

	shift
	before=$(unanswered)
	said=$(ping -n -q "$@") || fail "$name: ping $*: $said"
	retry "$patience" answered_but "$before" ||
		fail "$name: ping $*: $said; $(($(unanswered) - before)) never came"
}

# netdev NAME [PARAMETER-OF-THE-HARDWARE...]
netdev() {
	local name=$1 before dev

	shift
	hardware "$@"
	meet "loaded-$name"
	before=$(netdevs)
	# It leaks the buffers of queues that no client has taken.
	load ntb_transport max_num_clients=1
	load ntb_netdev
	dev=$(netdevs | grep -vxF "$before") || fail "$name: no interface came"
	ip addr add "$tcp_net.$NODE/24" dev "$dev"
	ip link set "$dev" up
	retry "$patience" ping -q -c1 -W1 "$tcp_net.$other" >/dev/null ||
		fail "$name: node $other does not answer"
	every_answer_comes "$name" "$tcp_net.$other" -i0.05 -c50
	every_answer_comes "$name" "$tcp_net.$other" -i0.05 -c20 -s60000
	meet "ping-$name"
	pass "$name: ping"
	transfer "$name"
	unload ntb_netdev
	unload ntb_transport
	meet "unloaded-$name"
}

netdev one-window vectors=1
netdev two-windows mw_count=2
# ntb_netdev sends nothing unless ten of its 64 KiB frames fit.
netdev small-window mw_size=1048576
netdev epf family=epf
unload ntb_hw_ivshmem
