#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 1 cable blip asleep modules unbind unmapped
# lab: --nodes 2 -- 1 doorbells
# lab-long: --nodes 2 --smp 2 -- 1 processors
# lab-long: --nodes 2 --module-params 'ntb_hw_ivshmem:timeout_ms=60000' -- 1 pause
# lab-long: --nodes 2 --timeout 28800 -- 20
# lab-long: --nodes 2 --smp 2 --timeout 7200 -- 20 processors
# lab-long: --nodes 2 --timeout 14400 --module-params 'ntb_hw_ivshmem:timeout_ms=60000' -- 20 pause pause_ulps
# lab-long: --nodes 3 --timeout 28800 -- 20 cable bystanders
# lab-long: --nodes 2 --flat --timeout 7200 --module-params ropcie_ntb_if:direct_placement=1 -- 5 cable modules unbind
#
# faults.sh [TURNS [WAY...]]: a link or a device is lost under verified traffic, each
# way TURNS times, at either node. Each time rop_faults checks what programs see, and
# afterwards new queue pairs work without reloading anything. What is no loss, such as a
# short silence or frozen processes, is not seen at all. Many turns are done in four batches,
# in which memory must not grow. The ways:
#   cable       the cable is pulled
#   blip        the link is up again before anybody has looked at it
#   asleep      a device is suspended, as with its machine, and resumed
#   silence     a port falls silent, for longer than is forgiven, and for less
#   pause       a whole node stands still, for longer and for less; the emulated NTB is
#               more patient (timeout_ms), so that it is RoPCIe's heartbeat that decides
#   pause_ulps  the same under TCP and NVMe over Fabrics
#   bystanders  node 1 loses its port or its device, is silent, has bad doorbells, while
#               nodes 2 and 3 have traffic that nothing disturbs; wants --nodes 3
#   tcp, nvme   cable, asleep and silence under TCP and under NVMe over Fabrics; modules and
#               unbind under TCP (under NVMe over Fabrics: nvme-of-faults.sh); what comes
#               next under all, if more than once
#   modules     the upper modules of a node, those from any one on, or all of them, are
#               unloaded and loaded
#   unbind      a driver is unbound from its device and bound again
#   unmapped    link, device and modules, of programs whose queues are not mapped
#   freezer     all processes and the kernel threads that allow it are frozen; left out
#               where the kernel has no test of it (CONFIG_PM_DEBUG)
#   doorbells   they are lost, late, double, and rung for nothing
#   processors  processors come and go; wants --smp 2
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"
# shellcheck source=tests/guest/lib/link.sh
. "$(dirname "$0")/lib/link.sh"
# shellcheck source=tests/guest/lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"
# shellcheck source=tests/guest/lib/memory.sh
. "$(dirname "$0")/lib/memory.sh"

turns=${1:-20}
ways=("${@:2}")
[ $# -ge 2 ] || ways=(cable blip asleep silence tcp nvme modules unbind unmapped freezer doorbells)

cable() {
	lose down 0.3 "$turns"
	expect_placed
}

blip() {
	lose blip 0 "$turns" 1
	lose blip 0 "$turns" 2
}

# with_ktest COMMAND...: with what lets a device sleep.
with_ktest() {
	insmod "$MODDIR"/*/ropcie_ktest.ko || fail "insmod ropcie_ktest"
	meet
	"$@"
	rmmod ropcie_ktest || fail "rmmod ropcie_ktest"
}

asleep() {
	with_ktest lose asleep 0.3 "$turns" 1
	with_ktest lose asleep 0.3 "$turns" 2
}

silence() {
	lose dead 7 "$turns"
	be_silent dead 1 "$turns"
}

# links_up: how often those of the emulated NTB came up.
links_up() {
	sed -n 's/^links up \([0-9]*\) times.*/\1/p' "${cable%link}info"
}

# expect_patient_ntb COMMAND...: nothing of it is a loss to the NTB.
expect_patient_ntb() {
	local ups

	[ "$(link_ms ntb_hw_ivshmem timeout_ms)" -ge 30000 ] ||
		fail "the NTB is too impatient: --module-params ntb_hw_ivshmem:timeout_ms=60000"
	ups=$(links_up)
	"$@"
	[ "$(links_up)" = "$ups" ] || fail "the NTB has taken its link down"
}

pause_each() {
	lose pause 7 "$turns" 1
	lose pause 7 "$turns" 2
	be_silent pause 2 "$turns" 1
	be_silent pause 2 "$turns" 2
}

pause() {
	expect_patient_ntb pause_each
}

pause_ulps_each() {
	local turn who

	for ((turn = 1; turn <= turns; turn++)); do
		who=$((turn % 2 + 1))
		unseen tcp_over $who cut_for pause 2
		meet
		unseen nvme_over $who cut_for pause 2
		tcp_over $who cut_for pause 7
		meet
		nvme_over $who cut_for pause 7
	done
	pass "TCP and NVMe over Fabrics with a node that stands still, $turns times"
}

pause_ulps() {
	expect_patient_ntb pause_ulps_each
}

# among_others COMMAND...: between nodes 2 and 3.
among_others() {
	NODE=$((NODE - 1)) NODES=2 SERVER=10.77.0.2 "$@"
}

# stood_by WHAT: nodes 2 and 3 have not noticed it.
stood_by() {
	meet
	[ "$NODE" = 1 ] || expect_bystander "$1"
}

bystanders() {
	local turn how driver

	[ "$NODES" = 3 ] || fail "nobody stands by: use --nodes 3"
	[ "$NODE" = 1 ] || among_others start_bystander
	meet
	for ((turn = 1; turn <= turns; turn++)); do
		lose down 0.3 1
		stood_by "the loss of another"
		lose pause 7 1
		stood_by "the pause of another"
		lose dead 7 1
		stood_by "the silence of another"
		be_silent dead 1 1
		stood_by "a short silence of another"
		for how in "lose 1" "delay 20" double "spurious 1"; do
			# shellcheck disable=SC2086 # two words
			[ "$NODE" != 1 ] || spoil $how
			meet
			rop_sendrecv --rounds 5 >"$faults_log" 2>&1 || fail "node 1's doorbells: $how: $(<"$faults_log")"
			[ "$NODE" != 1 ] || unspoil "$how"
			expect_no_user_objects "node 1's doorbells: $how"
			stood_by "another's doorbells: $how"
		done
		for driver in "${drivers[@]}"; do
			# shellcheck disable=SC2086 # two words
			lose_device 1 unbind_from bind_to $driver
			stood_by "the loss of another's device: $driver"
		done
		lose_device 1 unload_modules load_modules ntb_hw_ivshmem
		stood_by "the loss of another's modules"
	done
	meet
	[ "$NODE" = 1 ] || end_bystander
	expect_no_user_objects "bystanders"
	pass "nodes 2 and 3 did not notice what became of node 1, $turns times"
}

tcp() {
	local turn who module driver

	for ((turn = 1; turn <= turns; turn++)); do
		who=$((turn % 2 + 1))
		tcp_over $who cut_for down 0.3
		meet
		with_ktest tcp_over $who cut_for asleep 0.3
		meet
		tcp_over $who cut_for dead 7
		meet
		unseen tcp_over $who cut_for dead 1
		meet
		for module in ropcie ntb_hw_ivshmem; do
			tcp_over $who reload_modules $module
			meet
		done
		for driver in "${drivers[@]}"; do
			# shellcheck disable=SC2086 # two words
			tcp_over $who rebind $driver
			meet
		done
	done
	pass "TCP over lost links and devices, and a short silence, $turns times"
}

nvme() {
	local turn who

	for ((turn = 1; turn <= turns; turn++)); do
		who=$((turn % 2 + 1))
		nvme_over $who cut_for down 0.3
		with_ktest nvme_over $who cut_for asleep 0.3
		nvme_over $who cut_for dead 7
		unseen nvme_over $who cut_for dead 1
	done
	pass "NVMe over Fabrics over lost links, and a short silence, $turns times"
}

# over COUNT PROCESS: as many pairs of rop_faults on this node have done all they can
# without the device.
over() {
	[ "$(grep -c '^over' "$faults_log")" -ge "$1" ] || ended "$2"
}

# lose_device NODE TAKE GIVE ARG...: that node's device is taken under traffic, by the
# command TAKE ARG..., and given back under programs that still have the old one.
lose_device() {
	local who=$1 take=$2 give=$3 role=(--peer-may-die --device-returns) pairs=1 test

	shift 3
	[ "$NODES" = 2 ] || role+=(--port-stays)
	[ "$NODE" != 1 ] || pairs=$((NODES - 1))
	[ "$NODE" != "$who" ] || role=(--loses-device --device-returns)
	: >"$faults_log"
	rop_faults --rounds 1 "${role[@]}" --timeout $((2 * patience)) >"$faults_log" 2>&1 &
	test=$!
	await_round $pairs "$test" "before $take $*"
	expect_placed
	meet
	if [ "$NODE" = "$who" ]; then
		sleep "0.$((RANDOM % 5))"
		"$take" "$@"
		retry $((3 * patience)) over $pairs "$test" || true # it says better what is missing
		"$give" "$@"
	fi
	wait "$test" || fail "$take $* at node$who: $(<"$faults_log")"
	expect_no_user_objects "$take $*"
	meet
	expect_reachable "$take $*"
	expect_noticed 0 0 $pairs
	meet
	rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $? after $take $*"
}

modules() {
	local turn

	for ((turn = 1; turn <= turns; turn++)); do
		lose_device 1 unload_modules load_modules ropcie
		lose_device 2 unload_modules load_modules ropcie
		lose_device $((turn % 2 + 1)) unload_modules load_modules "${modules[(turn + batch) % ${#modules[@]}]}"
		lose_device $((turn % 2 + 1)) unload_modules load_modules ntb_hw_ivshmem
	done
	pass "modules that go and come under traffic, $turns times"
}

unbind() {
	local turn driver

	for ((turn = 1; turn <= turns; turn++)); do
		for driver in "${drivers[@]}"; do
			# shellcheck disable=SC2086 # two words
			lose_device $((turn % 2 + 1)) unbind_from bind_to $driver
		done
	done
	pass "drivers that go and come under traffic, $turns times"
}

unmapped() {
	local -x ROPCIE_MAPPED_QUEUES=0
	local turn

	lose down 0.3 "$turns"
	for ((turn = 1; turn <= turns; turn++)); do
		lose_device 1 unload_modules load_modules ropcie
		lose_device 2 unbind_from bind_to ropcie ropcie
	done
	pass "link, device and modules lost by programs whose queues are not mapped, $turns times"
}

# A test of the kernel's own: it freezes, waits and thaws.
freeze() {
	echo freezer >/sys/power/pm_test || fail "pm_test has no freezer"
	echo 1 >/sys/module/suspend/parameters/pm_test_delay
	echo freeze >/sys/power/state || fail "the kernel does not freeze"
	echo none >/sys/power/pm_test
}

# unseen_by_ulps NODE COMMAND...: TCP and NVMe over Fabrics do not notice that it runs it.
unseen_by_ulps() {
	[ "$turns" != 1 ] || return 0
	meet
	unseen tcp_over "$@"
	meet
	unseen nvme_over "$@"
	meet
}

freezer() {
	local turn

	[ -e /sys/power/pm_test ] || {
		echo "left out: this kernel has no test of its freezer"
		return
	}
	start_strict_hog 4
	meet
	for ((turn = 1; turn <= turns; turn++)); do
		[ "$NODE" != $((turn % 2 + 1)) ] || freeze
		meet
		expect_traffic "the freezer"
		unseen_by_ulps $((turn % 2 + 1)) freeze
	done
	meet
	kill_hog || true # its peer may have been killed first
	expect_no_user_objects "the freezer"
	meet
	rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $? after the freezer"
	pass "all processes frozen for 1 s, $turns times"
}

# How many doorbells of this node have been spoilt.
spoilt() {
	sed -n 's/^doorbells spoilt //p' "${cable%link}info"
}

# spoil WORD...: this node's doorbells.
spoil() {
	spoilt_before=$(spoilt)
	echo "$*" >"${cable%link}doorbells" || fail "doorbells cannot be spoilt so: $*"
}

# unspoil WORD...: they are good again; some were spoilt so.
unspoil() {
	echo normal >"${cable%link}doorbells" || fail "doorbells stay as they are"
	[ "$(spoilt)" -gt "$spoilt_before" ] || fail "no doorbell was spoilt: $*"
}

# expect_prompt HOW: in the ping-pong of rop_events a round did not take longer, on the
# average, than lost doorbells may cost, 50 ms for each of its two messages, and what a busy
# machine adds.
expect_prompt() {
	local us

	us=$(sed -n 's/^ping-pong: .*, \([0-9]*\)[.0-9]* us each$/\1/p' "$faults_log")
	[ "$NODE" = 1 ] || return 0
	[ "$us" -le $((2 * 50000 + 1000 * patience)) ] || fail "doorbells: $1: a round of two messages takes $us us"
}

doorbells() {
	local turn how hows=("lose 3" "spurious 1")

	[ "$turns" = 1 ] || hows+=("lose 1" "delay 20" double)
	for ((turn = 1; turn <= turns; turn++)); do
		for how in "${hows[@]}"; do
			# shellcheck disable=SC2086 # two words
			spoil $how
			rop_traffic --quick --seed "$turn" --timeout $((2 * patience)) >"$faults_log" 2>&1 ||
				fail "traffic, doorbells: $how: $(<"$faults_log")"
			# It sleeps for every message.
			rop_events --rounds 20 --timeout $((2 * patience)) >"$faults_log" 2>&1 ||
				fail "events, doorbells: $how: $(<"$faults_log")"
			expect_prompt "$how"
			exchange_with $((3 - NODE))
			[ "$turns" = 1 ] || unseen nvme_over 1 sleep 5
			start_strict_hog 4
			meet
			expect_traffic "doorbells: $how"
			sleep 1
			expect_traffic "doorbells: $how"
			meet
			kill_hog || true # its peer may have been killed first
			unspoil "$how"
			expect_no_user_objects "doorbells: $how"
			pass "doorbells: $how"
			meet
		done
	done
	pass "verbs, TCP and, more than once, NVMe over Fabrics with bad doorbells, $turns times"
}

# switch_processors: until $over is there.
switch_processors() {
	local cpu

	while [ ! -e "$over" ]; do
		for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do
			echo 0 >"$cpu" || fail "$cpu stays"
			sleep "0.$((RANDOM % 5))"
			echo 1 >"$cpu" || fail "$cpu does not come back"
		done
	done
}

# with_processors_switching COMMAND...
with_processors_switching() {
	local over=/tmp/processors.over switching

	rm -f "$over"
	switch_processors &
	switching=$!
	"$@"
	touch "$over"
	wait "$switching" || fail "processors cannot come and go"
}

verified_traffic() {
	rop_traffic --quick --seed "$1" --tcp-port 18700 --timeout $((2 * patience)) >"$faults_log" 2>&1 ||
		fail "traffic while processors come and go: $(<"$faults_log")"
}

processors() {
	local turn

	[ "$(nproc)" -gt 1 ] || fail "one processor cannot go: use --smp 2"
	start_strict_hog 4
	for ((turn = 1; turn <= turns; turn++)); do
		with_processors_switching verified_traffic "$turn"
		expect_traffic "processors came and went"
		unseen_by_ulps $((turn % 2 + 1)) with_processors_switching sleep 3
	done
	meet
	kill_hog || true # its peer may have been killed first
	expect_no_user_objects "processors that came and went"
	pass "processors come and go under traffic, $turns times"
}

# Many turns are done in batches of all ways, so that memory can be seen to grow.
batches=1
[ "$turns" -lt 20 ] || batches=4
turns=$(((turns + batches - 1) / batches))
for ((batch = 1; batch <= batches; batch++)); do
	for way in "${ways[@]}"; do
		meet
		"$way"
		meet
		[ $batches = 1 ] || memory_take
	done
done
if [ $batches != 1 ]; then
	memory_judge ${#ways[@]}
	pass "memory does not grow:$memory_text"
fi
