#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# librdmacm's programs, unmodified: connections over QP1 and MADs, datagrams,
# multicast, reject, and perftest with -R.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

server_log=$LAB_OUT/server.$NODE
number=0

# listens PROGRAM: this one; the kernel's own targets may listen, too.
listens() {
	rdma res show cm_id | grep -q "state LISTEN .*comm ${1:0:15}\b"
}

# between SERVER -- CLIENT: the server on node 1, the client on node 2, which is
# started when the server listens. One that does not (mckey) has time to join.
between() {
	local server=() client status=0

	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	client=("$@")
	number=$((number + 1))
	if [ "$NODE" = 1 ]; then
		timeout $((2 * patience)) "${server[@]}" >"$server_log" 2>&1 &
		pid=$!
		if [ "${server[0]}" = mckey ]; then
			sleep 3
		else
			retry "$patience" listens "${server[0]}" || fail "${server[*]} does not listen"
		fi
	fi
	lab-barrier "cm-$number"
	if [ "$NODE" = 2 ]; then
		timeout "$patience" "${client[@]}" >"$LAB_OUT/client" 2>&1 || status=$?
		[ $status = 0 ] || {
			cat "$LAB_OUT/client"
			fail "client: ${client[*]} ended with status $status"
		}
	fi
	if [ "$NODE" = 1 ]; then
		wait "$pid" || {
			status=$?
			cat "$server_log"
			fail "server: ${server[*]} ended with status $status"
		}
	fi
	lab-barrier "cm-done-$number"
	pass "${client[*]}"
}

# connects COUNT: so many at once; cmtime's server does not end by itself.
connects() {
	number=$((number + 1))
	if [ "$NODE" = 1 ]; then
		cmtime -c "$1" >"$server_log" 2>&1 &
		pid=$!
		retry "$patience" listens cmtime || fail "cmtime does not listen: $(<"$server_log")"
	fi
	lab-barrier "connects-$number"
	[ "$NODE" != 2 ] || timeout $((4 * patience)) cmtime -s "$SERVER" -c "$1" >"$LAB_OUT/client" 2>&1 ||
		fail "cmtime -c $1 ended with status $?: $(<"$LAB_OUT/client")"
	lab-barrier "connected-$number"
	if [ "$NODE" = 1 ]; then
		kill "$pid" || fail "cmtime's server has ended: $(<"$server_log")"
		wait "$pid" || true
		! grep -iE 'event:|fail|error' "$server_log" || fail "cmtime's server"
	else
		# It ends with 0 whatever became of its connections.
		! grep -iE 'event:|fail|error' "$LAB_OUT/client" || fail "cmtime -c $1"
		sed -n 's/^connect  /cmtime: &/p' "$LAB_OUT/client"
	fi
	expect_no_user_objects "cmtime"
	pass "cmtime -c $1"
}

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
