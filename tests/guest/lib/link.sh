# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests that lose the emulated NTB's link under traffic; sourced after
# rdma.sh.
faults_log=$LAB_OUT/faults.$NODE
# Nothing while the driver is not loaded, as some tests before another leave it.
cable=$(compgen -G '/sys/kernel/debug/ntb_hw_ivshmem/*/link') || true

# cut_for WORD SECONDS: the cable is pulled (down), or this port falls silent (dead).
cut_for() {
	[ -n "$cable" ] || fail "the link has no knob"
	echo "$1" >"$cable"
	sleep "$2"
	echo up >"$cable"
}

# runs N: rop_faults is in its round N, with traffic.
runs() {
	[ "$(grep -c running "$faults_log")" -ge "$1" ]
}

# expect_noticed MS: rop_faults has seen its last success and its first error no further
# apart than that, and what a busy machine adds; with each peer.
expect_noticed() {
	local ms

	ms=$(sed -n 's/.*noticed within \([0-9]*\) ms.*/\1/p' "$faults_log" | sort -n | tail -n 1)
	[ "$ms" -le $(($1 + patience * 1000 / 12)) ] || fail "noticed after $ms ms, not $1"
	grep -v '^running' "$faults_log"
}

# lose WORD SECONDS TURNS [NODE]: node NODE (1) does it, in each round of rop_faults,
# for longer than is forgiven.
lose() {
	local turn test

	rop_faults --rounds "$3" --timeout $((2 * patience)) >"$faults_log" 2>&1 &
	test=$!
	for ((turn = 1; turn <= (NODE == ${4:-1} ? $3 : 0); turn++)); do
		retry $((2 * patience)) runs "$turn" || fail "no traffic in turn $turn: $(<"$faults_log")"
		sleep "0.$((RANDOM % 5))"
		cut_for "$1" "$2"
	done
	wait "$test" || fail "a link that is $1: $(<"$faults_log")"
	expect_noticed 0
	expect_no_user_objects "a link that is $1"
	lab-barrier "lost-$1"
	pass "a link that is $1 for $2 s, $3 times"
}

# be_silent SECONDS TURNS [NODE]: node NODE (1) is, for less than the limit, and traffic
# waits for it.
be_silent() {
	local turn

	start_hog 4
	lab-barrier short
	for ((turn = 1; turn <= $2; turn++)); do
		[ "$NODE" != "${3:-1}" ] || cut_for dead "$1"
		lab-barrier "short-$turn"
		expect_traffic "a silence of $1 s"
	done
	lab-barrier short-over
	kill_hog || true # its peer may have been killed first
	expect_no_user_objects "a short silence"
	pass "a silence of $1 s, $2 times"
}

# tcp_over_loss WORD SECONDS NODE: node NODE does it once, under TCP in both directions,
# whose connections outlive it. Wants tcp.sh.
tcp_over_loss() {
	local peer=$((3 - NODE)) receiver

	receive_from "$peer" &
	receiver=$!
	if [ "$NODE" = "$3" ]; then
		(sleep 1 && cut_for "$1" "$2") &
	fi
	send_to "$peer"
	wait "$receiver" || fail "TCP from node$peer over a link that was $1 for $2 s"
	wait
	expect_reachable "a link that was $1"
}

# nvme_over_loss WORD SECONDS NODE: the same under NVMe over Fabrics, whose host connects
# again, and its IO goes on. Wants nvmet.sh.
nvme_over_loss() {
	local before io

	[ "$NODE" != 1 ] || start_target
	lab-barrier target
	if [ "$NODE" = 2 ]; then
		connect
		before=$(rdma_bytes "$RDMA_DEV")
		disk_io "$disk" --rw=randrw --bs=4k --iodepth=32 --size=8m --time_based --runtime=$((${2%.*} + 10)) &
		io=$!
		retry "$patience" has_more_bytes_than $((before + (4 << 20))) || fail "fio does nothing"
	fi
	lab-barrier busy
	[ "$NODE" != "$3" ] || cut_for "$1" "$2"
	if [ "$NODE" = 2 ]; then
		wait "$io" || fail "fio over a link that was $1 for $2 s"
		disconnect
	fi
	lab-barrier used
	[ "$NODE" != 1 ] || stop_target
}
