# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests that send by TCP and compare what comes; sourced where fail, retry
# and $patience are.
tcp_net=${tcp_net:-10.77.0} # of the nodes' addresses
tcp_port=7777
tcp_bytes=$((16 << 20))

pattern() {
	seq "$(($1 * 10000000))" 999999999 | head -c $tcp_bytes || true
}

receive_from() {
	timeout $((patience * 5)) busybox nc -l -p $tcp_port >/tmp/received || fail "nothing came by TCP"
	cmp <(pattern "$1") /tmp/received || fail "TCP: other data than node$1 sent"
	rm /tmp/received
}

send_to() {
	retry "$patience" eval "exec 5<>/dev/tcp/$tcp_net.$1/$tcp_port" 2>/dev/null ||
		fail "cannot connect to node$1"
	pattern "$NODE" >&5 || fail "cannot send to node$1"
	exec 5>&-
}

# exchange_with NODE: both directions at once.
exchange_with() {
	local receiver

	receive_from "$1" &
	receiver=$!
	send_to "$1"
	wait "$receiver" || fail "TCP from node$1"
}
