# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests that send by TCP and compare what comes; sourced where fail, retry
# and $patience are.
tcp_net=${tcp_net:-10.77.0} # of the nodes' addresses
tcp_port=7777
tcp_bytes=$((16 << 20))
stream_port=7778
stream_log=$LAB_OUT/stream.$NODE

# long_pattern NODE: 10 GB.
long_pattern() {
	seq "$(($1 * 10000000))" 999999999
}

pattern() {
	long_pattern "$1" | head -c $tcp_bytes || true
}

# netdev_has_more_than BYTES: it has received them.
netdev_has_more_than() {
	[ "$(<"/sys/class/net/$NETDEV/statistics/rx_bytes")" -gt "$1" ]
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

# tcp_counters: what this node's TCP has counted, a name and a number in each line.
tcp_counters() {
	awk '$1 != "TcpExt:" { next }
		!names { names = split($0, name); next }
		{ for (i = 2; i <= names; i++) print name[i], $i }' /proc/net/netstat
}

# reordered BEFORE: how often TCP has seen since that its segments came in another order.
reordered() {
	tcp_counters | paste -d' ' "$1" - | awk '$1 ~ /Reorder$/ { sum += $4 - $2 } END { print sum }'
}

# in_order FROM TO: frames of one node to another do not overtake each other, whichever
# processors drain the lane, and however often it is full; all nodes call it.
in_order() {
	local before=/run/tcp-counters i

	tcp_counters >"$before"
	for i in {1..8}; do
		if [ "$NODE" = "$1" ]; then send_to "$2"; fi
		if [ "$NODE" = "$2" ]; then receive_from "$1"; fi
		lab-barrier "in-order-$i"
	done
	[ "$(reordered "$before")" -lt 4 ] || {
		tcp_counters | diff "$before" - || true
		fail "frames were overtaken $(reordered "$before") times"
	}
	pass "frames come in order"
}

# exchange_with NODE: both directions at once.
exchange_with() {
	local receiver

	receive_from "$1" &
	receiver=$!
	send_to "$1"
	wait "$receiver" || fail "TCP from node$1"
}

# At 5 MB/s at most: others want the processor, too. It ends when nobody reads; a node
# that reboots may come to where no program can be started any more, which is no end.
slowly() {
	local status=0

	until [ $status = 1 ] || [ $status = 141 ]; do
		status=0
		head -c 262144 || status=$?
		sleep 0.05 || true
	done
}

# stream_with NODE: both directions of one connection, until it ends; what comes is
# compared as it comes. The node with the higher number listens.
stream_with() {
	if [ "$NODE" -gt "$1" ]; then
		long_pattern "$NODE" | slowly | busybox nc -l -p $stream_port | cmp - <(long_pattern "$1")
	else
		retry "$patience" eval "exec 5<>/dev/tcp/$tcp_net.$1/$stream_port" 2>/dev/null ||
			fail "cannot connect to node$1"
		long_pattern "$NODE" | slowly >&5 &
		cmp - <(long_pattern "$1") <&5
	fi
}

# start_stream NODE: of TCP, without an end; bytes come.
start_stream() {
	local before

	before=$(<"/sys/class/net/$NETDEV/statistics/rx_bytes")
	stream_with "$1" >"$stream_log" 2>&1 &
	stream=$!
	retry "$patience" netdev_has_more_than $((before + 262144)) || fail "no TCP from node$1: $(<"$stream_log")"
	! ended "$stream" || fail "TCP with node$1 has ended: $(<"$stream_log")"
}

# expect_reset WHEN SECONDS: it is, within that time, and what had come was right.
expect_reset() {
	retry "$2" ended "$stream" || fail "TCP is not reset $2 s after $1: $(<"$stream_log")"
	# The reader is told, or the writer: the other one sees an end only.
	retry 2 grep -q 'reset by peer' "$stream_log" || fail "TCP ends without a reset after $1: $(<"$stream_log")"
	! grep -q differ "$stream_log" || fail "TCP: other data than was sent: $(<"$stream_log")"
	pass "TCP is reset after $1"
}
