# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests that connect by librdmacm's programs, the server on node 1 and the
# client on node 2; sourced after rdma.sh.
server_log=$LAB_OUT/server.$NODE
cm_number=0

# listens PROGRAM: this one; the kernel's own targets may listen, too.
listens() {
	rdma res show cm_id | grep -q "state LISTEN .*comm ${1:0:15}\b"
}

# between SERVER -- CLIENT: the server on node 1, the client on node 2, which is
# started when the server listens. One that does not (mckey) has time to join. With
# $lasting the server does not end by itself.
between() {
	local server=() client status=0

	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	client=("$@")
	cm_number=$((cm_number + 1))
	if [ "$NODE" = 1 ]; then
		: >"$server_log"
		timeout $((2 * patience)) stdbuf -oL "${server[@]}" >"$server_log" 2>&1 &
		pid=$!
		if [ "${server[0]}" = mckey ]; then
			retry "$patience" grep -q "joined dgid" "$server_log" || fail "${server[*]} does not join"
		else
			retry "$patience" listens "${server[0]}" || fail "${server[*]} does not listen"
			sleep 1 # the kernel says so a moment before it does
		fi
	fi
	lab-barrier "cm-$cm_number"
	if [ "$NODE" = 2 ]; then
		timeout "$patience" "${client[@]}" >"$LAB_OUT/client" 2>&1 || status=$?
		[ $status = 0 ] || {
			cat "$LAB_OUT/client"
			fail "client: ${client[*]} ended with status $status"
		}
	fi
	if [ -n "${lasting:-}" ]; then
		lab-barrier "cm-served-$cm_number"
		[ "$NODE" != 1 ] || kill "$pid" || fail "server: ${server[*]} has ended: $(<"$server_log")"
		[ "$NODE" != 1 ] || wait "$pid" || true
	elif [ "$NODE" = 1 ]; then
		wait "$pid" || {
			status=$?
			cat "$server_log"
			fail "server: ${server[*]} ended with status $status"
		}
	fi
	lab-barrier "cm-done-$cm_number"
	pass "${client[*]}"
}

# connects COUNT: so many at once; cmtime's server does not end by itself.
connects() {
	cm_number=$((cm_number + 1))
	if [ "$NODE" = 1 ]; then
		cmtime -c "$1" >"$server_log" 2>&1 &
		pid=$!
		retry "$patience" listens cmtime || fail "cmtime does not listen: $(<"$server_log")"
	fi
	lab-barrier "connects-$cm_number"
	[ "$NODE" != 2 ] || timeout $((4 * patience)) cmtime -s "$SERVER" -c "$1" >"$LAB_OUT/client" 2>&1 ||
		fail "cmtime -c $1 ended with status $?: $(<"$LAB_OUT/client")"
	lab-barrier "connected-$cm_number"
	if [ "$NODE" = 1 ]; then
		kill "$pid" || fail "cmtime's server has ended: $(<"$server_log")"
		wait "$pid" || true
		! grep -iE 'event:|fail|error' "$server_log" || fail "cmtime's server"
	else
		# It ends with 0 whatever became of its connections.
		! grep -iE 'event:|fail|error' "$LAB_OUT/client" || fail "cmtime -c $1"
		sed -n 's/^connect  /cmtime: &/p' "$LAB_OUT/client"
	fi
	pass "cmtime -c $1"
}
