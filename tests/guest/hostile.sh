#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 3 --kernel-args "iomem=relaxed nopat" -- 1
# lab-long: --nodes 3 --kernel-args "iomem=relaxed nopat" --timeout 3600 -- 50
#
# hostile.sh [TURNS [SEED]]: node 1 writes what it likes to the others
# (rop_hostile), TURNS times, while all have traffic with each other. That of nodes 2
# and 3 is right all the while. Afterwards node 1 comes back as a good peer, and the
# others take it, without reloading anything.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"

turns=${1:-3}
seed=${2:-1} # the same on all nodes
state=$(compgen -G '/sys/kernel/debug/ropcie_ntb_if/*/state') || fail "no state in debugfs"

# offences: how often a peer broke the protocol.
offences() {
	sed -n 's/^protocol_errors:* *//p' "$state"
}

# offended_since NUMBER: more often than that.
offended_since() {
	[ "$(offences)" -gt "$1" ]
}

# victims COMMAND...: between nodes 2 and 3.
victims() {
	NODE=$((NODE - 1)) NODES=2 SERVER=10.77.0.2 "$@"
}

# Node 1 starts again, as after a reboot.
restart() {
	unload_modules ntb_hw_ivshmem
	load_modules ntb_hw_ivshmem
}

# With every other node.
good_traffic() {
	expect_reachable "the attack"
	lab-barrier "reached-$1"
	rop_sendrecv || fail "rop_sendrecv ended with status $? after the attack"
}

attack() {
	rop_hostile --seed "$((seed + $1))" >"$LAB_OUT/hostile" 2>&1 &
	hostile=$!
	retry "$patience" grep -q '^hostile' "$LAB_OUT/hostile" || fail "$(<"$LAB_OUT/hostile")"
	lab-barrier "attack-$1"
	lab-barrier "attacked-$1"
	kill "$hostile" || fail "rop_hostile has ended: $(<"$LAB_OUT/hostile")"
	wait "$hostile" || true
}

defend() {
	lab-barrier "attack-$1"
	victims rop_traffic --quick --seed "$((seed + $1))" ||
		fail "traffic of others ended with status $? under attack"
	victims rop_sendrecv || fail "rop_sendrecv of others ended with status $? under attack"
	# However slow the attacker's host is.
	retry "$patience" offended_since "$before" || fail "nobody noticed the attack"
	lab-barrier "attacked-$1"
}

for ((turn = 1; turn <= turns; turn++)); do
	before=$(offences)
	start_hog 4
	lab-barrier "hogs-$turn"
	if [ "$NODE" = 1 ]; then
		echo "seed $((seed + turn))"
		attack "$turn"
	else
		defend "$turn"
		pass "turn $turn: offended $(($(offences) - before)) times"
	fi
	kill_hog || true # it has lost its peer
	expect_no_user_objects "an attack"
	lab-barrier "peace-$turn"
	[ "$NODE" != 1 ] || restart
	good_traffic "$turn"
done
pass "traffic under attack"
