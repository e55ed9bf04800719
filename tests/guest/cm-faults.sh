#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 1
# lab-long: --nodes 2 --timeout 7200 -- 20
#
# cm-faults.sh [TURNS]: connections of librdmacm that do not come about, or end: nobody
# listens, nobody is there, a process dies, the link or the device goes under open ids.
# Programs are told, and the next connection works.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"
# shellcheck source=tests/guest/lib/cm.sh
. "$(dirname "$0")/lib/cm.sh"
# shellcheck source=tests/guest/lib/link.sh
. "$(dirname "$0")/lib/link.sh"

client_log=$LAB_OUT/client
over=/tmp/cm-faults.over

# refused EVENT COMMAND...: it fails, and says why.
refused() {
	local event=$1

	shift
	! timeout $((2 * patience)) "$@" >"$client_log" 2>&1 || fail "$* succeeds"
	grep -q "$event" "$client_log" || fail "$* does not tell of $event: $(<"$client_log")"
	pass "$*: $event"
}

# serve: rping on node 1, for any number of clients.
serve() {
	rping -s -a "$SERVER" -P -v >"$server_log" 2>&1 &
	serving=$!
	retry "$patience" listens rping || fail "rping does not listen"
	sleep 0.5
}

# endless: a client of it on node 2, with traffic.
endless() {
	local before

	before=$(rdma_bytes "$RDMA_DEV")
	rping -c -a "$SERVER" -C 1000000 >"$client_log" 2>&1 &
	running=$!
	retry "$patience" has_more_bytes_than "$before" || fail "rping does not run: $(<"$client_log")"
}

# serve_always: rping, which gives up when a client does at the wrong moment.
serve_always() {
	while [ ! -e $over ]; do
		rping -s -a "$SERVER" -P >/dev/null 2>&1 || true
	done
}

# requests: for connections, that came here.
requests() {
	cat "/sys/class/infiniband/$RDMA_DEV/ports/1/cm_rx_msgs/req"
}

# Clients die while they connect, each later in its course. The next one does.
die_connecting() {
	local count serving before began length us

	rm -f $over
	if [ "$NODE" = 1 ]; then
		serve_always &
		serving=$!
		retry "$patience" listens rping || fail "rping does not listen"
	fi
	before=$(requests)
	meet
	if [ "$NODE" = 2 ]; then
		began=${EPOCHREALTIME/./}
		timeout "$patience" rping -c -a "$SERVER" -C 1 >/dev/null 2>&1 || fail "no client connects"
		length=$((${EPOCHREALTIME/./} - began))
	fi
	for ((count = 0; count < (NODE == 2 ? 20 : 0); count++)); do
		rping -c -a "$SERVER" -C 1000000 >/dev/null 2>&1 &
		us=$((length * count / 20))
		sleep "$((us / 1000000)).$(printf %06d $((us % 1000000)))"
		kill -KILL $! 2>/dev/null || true # nobody may have listened
		wait $! 2>/dev/null || true
	done
	meet
	if [ "$NODE" = 1 ]; then
		[ "$(requests)" -gt $((before + 1)) ] || fail "no client came so far as to connect"
		touch $over
		until ended $serving; do
			pkill -KILL -x rping || true # it may have given up
			sleep 0.1
		done
	fi
	expect_no_user_objects "clients that die while they connect"
	meet
	between rping -s -V -C 10 -- rping -c -a "$SERVER" -V -C 10
	pass "clients die while they connect"
}

link_has_changed() {
	[ "$(link_counters)" != "$before" ]
}

# lost_all: no queue pair of rping is in RTS any more.
lost_all() {
	! grep -q "type RC state RTS .*comm rping" <<<"$(rdma res show qp)"
}

one_turn() {
	if [ "$NODE" = 2 ]; then
		refused RDMA_CM_EVENT_REJECTED ucmatose -s "$SERVER" -p 9999
		refused RDMA_CM_EVENT_ADDR_ERROR ucmatose -s 10.77.0.99
	fi

	# A client dies; the server has the next one.
	[ "$NODE" != 1 ] || serve
	meet
	[ "$NODE" != 2 ] || endless
	meet
	if [ "$NODE" = 2 ]; then
		kill -KILL "$running"
		wait "$running" 2>/dev/null || true
		timeout "$patience" rping -c -a "$SERVER" -C 10 || fail "the next client ended with status $?"
	fi
	meet
	pass "a client dies"

	# The server dies; its client is told.
	[ "$NODE" != 2 ] || endless
	meet
	if [ "$NODE" = 1 ]; then
		kill -KILL "$serving"
		wait "$serving" 2>/dev/null || true
	else
		retry $((2 * patience)) ended "$running" || fail "rping does not notice that its server has died"
		wait "$running" 2>/dev/null || true
		# RDMA_CM_EVENT_DISCONNECTED, before its own work requests could tell: that
		# nobody answers them is status 12, RETRY_EXC_ERR.
		grep -q "DISCONNECT EVENT" "$client_log" || fail "no RDMA_CM_EVENT_DISCONNECTED: $(<"$client_log")"
		! grep -qE "status:? 12\b" "$client_log" || fail "RDMA_CM_EVENT_DISCONNECTED comes too late: $(<"$client_log")"
	fi
	meet
	expect_no_user_objects "a server that died"
	pass "a server dies"

	# The link goes and comes.
	[ "$NODE" != 1 ] || serve
	meet
	[ "$NODE" != 2 ] || endless
	meet
	# Receives that are flushed are nothing to rping, which may wait for ever then.
	! lost_all || fail "no queue pair of rping is in RTS: $(rdma res show qp)"
	before=$(link_counters)
	meet
	[ "$NODE" != 1 ] || cut_for down 0.3
	retry "$patience" lost_all || fail "a queue pair of rping goes on: $(rdma res show qp)"
	retry "$patience" link_has_changed || fail "the link was not lost: $before"
	meet
	kill -KILL "$([ "$NODE" = 1 ] && echo "$serving" || echo "$running")" 2>/dev/null || true
	wait
	expect_no_user_objects "a link that was lost"
	meet
	expect_reachable "a link that was lost"
	meet
	between rping -s -V -C 10 -- rping -c -a "$SERVER" -V -C 10
	pass "the link goes and comes"

	# The device goes at the client, then at the server.
	for who in 2 1; do
		[ "$NODE" != 1 ] || serve
		meet
		[ "$NODE" != 2 ] || endless
		meet
		if [ "$NODE" = "$who" ]; then
			unload_modules ropcie # under open ids
			load_modules ropcie
			# The client may also end because its work requests do.
			log=$([ "$NODE" = 1 ] && echo "$server_log" || echo "$client_log")
			retry "$patience" grep -qiE "device removal|client disconnect" "$log" ||
				fail "rping was not told: $(<"$log")"
		elif [ "$NODE" = 2 ]; then
			retry $((2 * patience)) ended "$running" || fail "rping does not notice that its server's device is gone"
		else
			retry $((2 * patience)) grep -qiE "disconnect event|cq completion failed" "$server_log" ||
				fail "rping does not notice that its client's device is gone: $(<"$server_log")"
		fi
		kill -KILL "$([ "$NODE" = 1 ] && echo "$serving" || echo "$running")" 2>/dev/null || true
		wait
		expect_no_user_objects "a device that went"
		meet
		expect_reachable "a device that went"
		meet
		between rping -s -V -C 10 -- rping -c -a "$SERVER" -V -C 10
		pass "the device of node $who goes"
	done
}

for ((turn = 1; turn <= ${1:-1}; turn++)); do
	die_connecting
	one_turn
done
