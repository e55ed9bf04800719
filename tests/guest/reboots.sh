#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --timeout 1200 -- 1 kill
# lab-long: --nodes 2 --module-params ntb_hw_ivshmem:family=intel3 -- 1 orderly
# lab-long: --nodes 3 --timeout 28800 -- 20
# lab-long: --nodes 2 --module-params 'ropcie_ntb_if:heartbeat_limit_ms=240000 ntb_hw_ivshmem:timeout_ms=240000' --timeout 1200 -- 2 kill crash
# lab-alone: yes
#
# reboots.sh [TURNS [WAY...]]: the last node dies under traffic, TURNS times in each way: its
# QEMU is killed (kill), it is reset (crash), it reboots in good order (orderly; of the NTBs
# that leave that to RoPCIe too). Where nodes are very patient with each other, it is back
# before it is missed, and its new life ends what its old one had. Verbs, TCP and NVMe over
# Fabrics to it end as they should and in time; others do not notice; when it is back, all
# works without reloading anything on the others, and verbs do so soon after its drivers are
# loaded. Node 1 and the last node are NVMe target and host to each other: node 1's disk keeps
# its data, the other one is new in each life.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/link.sh
. "$(dirname "$0")/lib/link.sh"
# shellcheck source=tests/guest/lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"

ways=("${@:2}")
[ $# -ge 2 ] || ways=(kill crash orderly)
count=$((${1:-20} * ${#ways[@]}))
victim=$NODES
ctrl_loss_tmo=3

is_victim() {
	[ "$NODE" = "$victim" ]
}

# with_victim COMMAND...: between it and node 1.
with_victim() {
	NODE=$((NODE == 1 ? 1 : 2)) NODES=2 "$@"
}

port_is_down() {
	grep -q DOWN "/sys/class/infiniband/$RDMA_DEV/ports/1/state"
}

# The data stay on node 1, and are there after the reboot.
use_disk() {
	connect
	[ "$LAB_BOOT" = 1 ] || disk_io "$disk" --rw=read --bs=64k --iodepth=8 --size=8m
	disk_io "$disk" --rw=write --bs=64k --iodepth=8 --size=8m
}

# serve_disk NUMBER: the victim does, in each of its lives, and node 1 can use it.
serve_disk() {
	! is_victim || traddr=10.77.0.$victim start_target
	lab-barrier "serves-$1"
	if [ "$NODE" = 1 ]; then
		traddr=10.77.0.$victim connect
		disk_io "$disk" --rw=write --bs=64k --iodepth=8 --size=16m
	fi
}

# answer_first_verbs: of the victim's next life, whenever that comes.
answer_first_verbs() {
	NODE=1 NODES=2 rop_sendrecv --rounds 1 --tcp-port 19000 --timeout $((4 * patience)) >"$faults_log.first" 2>&1 &
	answerer=$!
}

# since_load: ms since the victim's NTB has its driver, without which there is no link.
since_load() {
	local loaded

	loaded=$(dmesg | sed -n 's/^\[ *\([0-9.]*\)\] ntb_hw_ivshmem [^ ]* port .*/\1/p')
	[ -n "$loaded" ] || fail "the kernel log does not say when the NTB had its driver" >&2
	awk -v loaded="$loaded" '{ printf "%.0f\n", ($1 - loaded) * 1000 }' /proc/uptime
}

# do_first_verbs: the victim's, with each other node, as soon as its script runs. What a
# user waits for is not that a node answers, but that queue pairs connect and carry messages.
do_first_verbs() {
	local peer began took

	began=$(since_load)
	for ((peer = 1; peer < victim; peer++)); do
		SERVER=10.77.0.$peer NODE=2 NODES=2 rop_sendrecv --rounds 1 --tcp-port 19000 --timeout "$patience" \
			>"$faults_log.first" 2>&1 || fail "the first verbs with node$peer: $(<"$faults_log.first")"
	done
	took=$(since_load)
	echo "first verbs from $began to $took ms after the NTB had its driver"
	[ "$took" -le $((patience * 1000 / 5)) ] || fail "node$victim's first verbs end $took ms after its NTB has its driver"
}

# What the survivors have among themselves goes on.
others_go_on() {
	expect_traffic "$1"
	NODES=2 rop_traffic --quick --tcp-port 18800 --timeout $((2 * patience)) >"$faults_log.others" 2>&1 ||
		fail "traffic of others after $1: $(<"$faults_log.others")"
	exchange_with $((3 - NODE))
	expect_traffic "$1"
}

# is_patient: a node that dies is back before it is missed.
is_patient() {
	[ "$(silence_ms)" -ge 120000 ]
}

# expect_death_noticed: of a node that had no time to say so: by its silence, or by its next
# life.
expect_death_noticed() {
	if is_patient; then
		expect_noticed 0 $(($(silence_ms) / 2)) 1
	else
		expect_silence_noticed 1
	fi
}

# die NUMBER: the node's way to its next life.
die() {
	local way=${ways[($1 - 1) % ${#ways[@]}]} others=()

	[ "$NODES" = 2 ] || is_victim || NODES=2 start_hog 4 --tcp-port 18700
	if is_victim; then
		use_disk
		disk_io "$disk" --rw=randrw --bs=4k --iodepth=16 --offset=16m --size=8m --rate_iops=200 --time_based \
			--runtime=600 >/dev/null &
	fi
	[ "$NODE" != 1 ] || start_io 600 "${until_gone[@]}" --rate_iops=6
	lab-barrier "busy-$1"
	if is_victim || [ "$NODE" = 1 ]; then
		start_stream $((NODE == 1 ? victim : 1))
		[ "$NODES" = 2 ] || others=(--port-stays)
		: >"$faults_log"
		with_victim rop_faults --rounds 1 --peer-may-die "${others[@]}" --timeout $((2 * patience)) >"$faults_log" 2>&1 &
		test=$!
		await_round 1 "$test" "before $way"
	fi
	is_victim || answer_first_verbs
	lab-barrier "dies-$1"
	died=$SECONDS
	if is_victim; then
		sleep "0.$((RANDOM % 10))"
		lab-reboot "$way"
	fi
	if [ "$NODE" = 1 ]; then
		wait "$test" || fail "a peer that ends by $way: $(<"$faults_log")"
		case $way in
		orderly) expect_noticed 0 0 1 ;;
		*) expect_death_noticed ;;
		esac
		pass "node$victim ends by $way"
		if ! is_patient; then # the next life may be here already
			! ended "$stream" || fail "TCP does not wait for node$victim: $(<"$stream_log")"
			[ "$NODES" -gt 2 ] || retry "$patience" port_is_down || fail "the port is up without a peer"
		fi
	fi
	[ "$NODES" = 2 ] || others_go_on "$way"
	if [ "$NODE" = 1 ]; then
		expect_end "its target's end by $way" 0
		retry "$patience" no_controller || fail "the controller stays without its target"
		echo "IO ended within $((SECONDS - died)) s"
	fi
}

# come_back NUMBER: all works as before.
come_back() {
	! is_victim || do_first_verbs
	is_victim || wait "$answerer" || fail "node$victim's first verbs: $(<"$faults_log.first")"
	lab-barrier "back-$1"
	expect_reachable "the return of node$victim"
	# Each retransmission of TCP's is at most as late again as the peer was away.
	[ "$NODE" != 1 ] || expect_reset "the return of node$victim" $((SECONDS - died + patience / 12))
	[ "$NODES" = 2 ] || is_victim || expect_traffic "the return of node$victim"
	lab-barrier "reached-$1"
	[ "$NODES" = 2 ] || is_victim || kill_hog || true # its peer may have been killed first
	expect_no_user_objects "the death of node$victim"
	lab-barrier "clean-$1"
	rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
	if is_victim || [ "$NODE" = 1 ]; then
		exchange_with $((NODE == 1 ? victim : 1))
	fi
	lab-barrier "well-$1"
	serve_disk "$1"
	pass "node$victim is back, $1 of $count times"
}

if [ "$LAB_BOOT" = 1 ]; then
	[ "$NODE" != 1 ] || start_target
	lab-barrier target
	serve_disk 0
else
	come_back $((LAB_BOOT - 1))
fi
for ((number = LAB_BOOT; number <= count; number++)); do
	die "$number"
	come_back "$number"
done
! is_victim || use_disk
if is_victim || [ "$NODE" = 1 ]; then
	disconnect
fi
lab-barrier over
if is_victim || [ "$NODE" = 1 ]; then
	stop_target
fi
