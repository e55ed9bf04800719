#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --smp 2 -- 1 traffic
# lab-long: --nodes 2 --smp 2 --timeout 7200 -- 10
#
# dma.sh [TURNS [WAY...]]: large payloads go by a DMA engine (dma_dummy), which is slow, does not
# keep their order, fails, refuses or gets stuck, and leaves rubbish in the peer's memory
# until each copy is done; small ones by the processor meanwhile, in the same lanes. All
# that arrives is verified, so a record that is seen before its payload is there fails
# the test. The link, programs and modules go with copies under way.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"
# shellcheck source=tests/guest/lib/link.sh
. "$(dirname "$0")/lib/link.sh"

turns=${1:-1}
uses=0 # of the engine, at both nodes
fallbacks=0
ways=("${@:2}")
[ $# -ge 2 ] || ways=(traffic perftest kernel lent failing stuck unstoppable cut_off killed unload measured)
port=18515
dummy=/sys/kernel/debug/dma_dummy
threshold=/sys/module/ropcie_ntb_if/parameters/dma_threshold
log=$LAB_OUT/dma.$NODE

# Of the adapter behind the NTB.
state() {
	cat /sys/kernel/debug/ropcie_ntb_if/*/state
}

# counted NAME: of the device's counters.
counted() {
	cat "/sys/class/infiniband/$RDMA_DEV/ports/1/hw_counters/$1"
}

# knobs [NAME=VALUE...]: of the engine, the others are 0.
knobs() {
	local knob

	for knob in delay_us random_us unordered fail_every refuse_every stuck hard instant; do
		echo 0 >"$dummy/$knob"
	done
	for knob; do
		echo "${knob#*=}" >"$dummy/${knob%=*}"
	done
}

has_lost_more_than() {
	[ "$(counted link_losses)" -gt "$1" ]
}

# restart_link THRESHOLD: it comes up with it.
restart_link() {
	local losses

	losses=$(counted link_losses)
	echo "$1" >$threshold
	meet
	[ "$NODE" != 1 ] || cut_for down 0.3
	retry "$patience" has_lost_more_than "$losses" || fail "the link was not cut"
	expect_reachable "dma_threshold=$1"
	meet
}

given_up() {
	state | grep -q "DMA engine .*, given up"
}

# by_dma COMMAND...: COMMAND at both nodes, whose payload goes by the engine. Once more
# where a busy machine has let an engine stand still for so long that it was given up.
by_dma() {
	local before try

	for try in 1 2 3; do
		before=$(counted tx_dma_bytes)
		"$@" >"$log" 2>&1 || fail "$* ended with status $?: $(<"$log")"
		uses=$((uses + 1))
		! given_up || touch "$LAB_OUT/given-up.$uses"
		meet
		[ -e "$LAB_OUT/given-up.$uses" ] || break
		restart_link "$(<$threshold)"
	done
	[ ! -e "$LAB_OUT/given-up.$uses" ] || fail "$*: the engine was given up each of $try times"
	[ "$(counted tx_dma_bytes)" -gt "$before" ] || fail "$*, tried $try times: nothing went by DMA"
	pass "$* ($(($(counted tx_dma_bytes) - before)) bytes by DMA)"
}

# expect_idle WHEN
expect_idle() {
	retry "$patience" grep -qx 0 $dummy/pending || fail "$(<$dummy/pending) copies are left after $1"
}

# expect_engine STATE: as state says it of the peer.
expect_engine() {
	state | grep -qE "^peer .: DMA engine [^,]*, $1$" || fail "the engine is not '$1': $(state)"
}

copies_pend() {
	[ "$(<$dummy/pending)" -gt 0 ]
}

none() {
	[ "$(counted tx_dma_bytes)" = 0 ] || fail "DMA without an engine"
	! state | grep -q "DMA engine" || fail "an engine that is not there: $(state)"
	pass "no engine, no DMA"
}

traffic() {
	restart_link 4096
	expect_engine "from 4096 bytes"
	knobs delay_us=2000 random_us=3000
	by_dma rop_traffic --quick --timeout $((2 * patience))
	restart_link 1
	knobs delay_us=500 random_us=5000 unordered=1 hard=1
	by_dma rop_traffic --quick --timeout $((2 * patience))
	if [ "$turns" -gt 1 ]; then
		knobs delay_us=200
		by_dma rop_errors --timeout $((2 * patience))
	fi
	pass "verified traffic over a slow engine"
}

perftest() {
	local program before

	restart_link 4096
	knobs delay_us=200
	before=$(counted tx_dma_bytes)
	pair $port ib_write_bw -a -n 10
	pair $port ib_send_bw -a -n 10
	pair $port ib_read_bw -a -n 10
	pair $port ib_send_bw -b -s 100000 -n 30
	[ "$(counted tx_dma_bytes)" -gt "$before" ] || fail "perftest: nothing went by DMA"
	pass "perftest over a slow engine"
}

# Kernel consumers have memory that is never registered.
kernel() {
	restart_link 4096
	knobs delay_us=2000
	insmod "$MODDIR"/*/ropcie_ktest.ko || fail "insmod ropcie_ktest"
	cat "/sys/kernel/debug/ropcie_ktest/$RDMA_DEV/local" >"$LAB_OUT/ktest.$NODE"
	meet
	cat "$LAB_OUT/ktest.$((3 - NODE))" >"/sys/kernel/debug/ropcie_ktest/$RDMA_DEV/remote"
	meet
	by_dma kernel_traffic
	rmmod ropcie_ktest || fail "rmmod ropcie_ktest"
}

kernel_traffic() {
	local role=send

	[ "$NODE" = 1 ] || role=recv
	echo $role >"/sys/kernel/debug/ropcie_ktest/$RDMA_DEV/run"
}

# Memory that programs have got back is not copied any more.
lent() {
	local before

	restart_link 4096
	knobs delay_us=1000 random_us=20000 unordered=1
	before=$(counted tx_dma_bytes)
	rop_lend --timeout $((2 * patience)) >"$log" 2>&1 || fail "rop_lend ended with status $?: $(<"$log")"
	[ "$NODE" != 1 ] || [ "$(counted tx_dma_bytes)" -gt "$before" ] || fail "rop_lend: nothing went by DMA"
	pass "memory is given back when it is not copied any more"
}

# What the engine does not do, the processor does.
failing() {
	local how before

	restart_link 4096
	for how in "fail_every=3 delay_us=1000" "refuse_every=5 fail_every=4 unordered=1 random_us=4000"; do
		before=$(counted dma_fallbacks)
		# shellcheck disable=SC2086 # words
		knobs $how
		by_dma rop_traffic --quick --timeout $((2 * patience))
		[ "$(counted dma_fallbacks)" -gt "$before" ] || fail "$how: the processor copied nothing"
	done
	before=$(counted dma_fallbacks)
	knobs refuse_every=1
	meet
	rop_traffic --quick --timeout $((2 * patience)) >"$log" 2>&1 || fail "an engine that refuses all: $(<"$log")"
	[ "$(counted dma_fallbacks)" -gt "$before" ] || fail "refuse_every=1: the processor copied nothing"
	pass "an engine that fails and refuses"
}

# get_stuck NODE: traffic at both nodes, in whose midst NODE's engine gets stuck. Once more
# where a busy machine has let it stand still for so long that it was given up before.
# Sets fallbacks to what the processor had copied in its place until then.
get_stuck() {
	local try early

	for try in 1 2 3; do
		restart_link 4096
		expect_engine "from 4096 bytes"
		knobs delay_us=500
		uses=$((uses + 1))
		early=$LAB_OUT/given-up.$uses
		start_hog 4
		dmesg -C
		fallbacks=$(counted dma_fallbacks)
		meet
		if [ "$NODE" != "$1" ]; then
			: # it waits
		elif given_up; then
			touch "$early"
		else
			echo 1 >$dummy/stuck
		fi
		meet
		[ -e "$early" ] || break
		kill_hog || true # its peer may have been killed first
		meet
	done
	[ ! -e "$early" ] || fail "the engine was given up before it got stuck, each of $try times"
}

stuck() {
	local node

	for node in 1 2; do
		get_stuck $node
		[ "$NODE" != $node ] || retry "$patience" given_up || fail "a stuck engine is not given up: $(state)"
		meet
		expect_traffic "node$node's engine got stuck"
		meet
		kill_hog || true
		expect_no_user_objects "a stuck engine"
		[ "$NODE" != $node ] || [ "$(counted dma_fallbacks)" -gt "$fallbacks" ] ||
			fail "the processor did not copy what was stuck"
	done
	knobs
	restart_link 4096
	by_dma rop_traffic --quick
	pass "engines that got stuck"
}

# One whose copies can not be stopped (ioat) is used by who asks for it; what it
# holds ends when it goes on, and a link that is lost meanwhile waits for that.
unstoppable() {
	local node

	restart_link 0
	rmmod dma_dummy || fail "dma_dummy is in use"
	insmod "$MODDIR"/*/dma_dummy.ko terminates=0 || fail "insmod dma_dummy"
	restart_link -1
	! state | grep -q "DMA engine" || fail "used, although nobody asked for it: $(state)"
	for node in 1 2; do
		get_stuck $node
		if [ "$NODE" = $node ]; then
			retry "$patience" hears "is stuck and can not be stopped" || fail "nothing is said of a stuck engine: $(state)"
			given_up || fail "a stuck engine is not given up: $(state)"
			copies_pend || fail "copies that can not be stopped are gone"
			knobs
			expect_idle "the engine went on"
		fi
		meet
		expect_traffic "node$node's engine went on"
		meet
		kill_hog || true # its peer may have been killed first
		expect_no_user_objects "an engine that was stuck"
		meet
	done
	restart_link 4096
	by_dma rop_traffic --quick --timeout $((2 * patience))
	start_hog 4
	meet
	if [ "$NODE" = 1 ]; then
		dmesg -C
		echo 1 >$dummy/stuck
		retry "$patience" copies_pend || fail "nothing is copied"
		cut_for down 0.3
		retry "$patience" hears "is not done and can not be stopped: waiting" || fail "a lost link does not wait for the engine"
		copies_pend || fail "copies that can not be stopped are gone"
		knobs
	fi
	expect_idle "the engine went on"
	meet
	kill_hog || true
	expect_no_user_objects "a link that waited for an engine"
	expect_reachable "a link that waited for an engine"
	restart_link 4096
	by_dma rop_traffic --quick --timeout $((2 * patience))
	restart_link 0
	rmmod dma_dummy || fail "dma_dummy is in use"
	insmod "$MODDIR"/*/dma_dummy.ko || fail "insmod dma_dummy"
	pass "engines that can not be stopped"
}

# The link is lost with copies under way, also such as do not end.
cut_off() {
	restart_link 4096
	knobs delay_us=5000 random_us=20000
	meet
	lose down 0.3 3
	meet
	[ "$NODE" != 1 ] || knobs stuck=1
	lose down 0.3 2
	knobs
	expect_reachable "links that were cut"
	meet
	by_dma rop_traffic --quick
}

killed() {
	restart_link 4096
	# Slower, and queue pairs would end for want of an answer.
	knobs delay_us=500 random_us=4000
	start_hog 8
	meet
	retry "$patience" copies_pend || fail "nothing is copied"
	end_hog 1
	expect_no_user_objects "a death with copies under way"
	meet
	start_hog 8
	meet
	end_hog 1 2
	expect_no_user_objects "deaths with copies under way"
	pass "programs that are killed with copies under way"
}

# Under a program with copies under way, which may have ended when they are back.
reload() {
	start_hog 4
	meet
	if [ "$NODE" = "$1" ]; then
		retry "$patience" copies_pend || fail "nothing is copied: $(state) $(<"$hog_log")"
		unload_modules "$2"
		expect_idle "rmmod $2"
		load_modules "$2"
		stop_hog || true
	else
		wait "$hog" || fail "rop_hog whose peer has lost its modules: $(<"$hog_log")"
	fi
	meet
	expect_no_user_objects "rmmod $2"
	expect_reachable "rmmod $2"
	meet
}

unload() {
	local module

	restart_link 4096
	knobs delay_us=5000 random_us=20000
	for module in ropcie ropcie_ntb_if ntb_hw_ivshmem; do
		reload 1 $module
		reload 2 $module
		restart_link 4096
	done
	pass "modules that go with copies under way"
}

# With -1 it is found out whether the engine is of any use.
measured() {
	knobs delay_us=2000
	restart_link -1
	expect_engine "not used: the processor is faster"
	knobs instant=1
	# On a busy machine that may take more than one try.
	for try in 1 2 3 4 5; do
		restart_link -1
		state | grep -q ", measured$" || touch "$LAB_OUT/slower.$try"
		meet
		[ -e "$LAB_OUT/slower.$try" ] || break
	done
	expect_engine "from [0-9]+ bytes, measured"
	knobs
	by_dma rop_traffic --quick
	restart_link 0
	! state | grep -q "DMA engine" || fail "an engine with dma_threshold=0: $(state)"
	pass "thresholds that are measured"
}

insmod "$MODDIR"/*/dma_dummy.ko || fail "insmod dma_dummy"
none
for ((turn = 1; turn <= turns; turn++)); do
	for way in "${ways[@]}"; do
		meet
		$way
		expect_idle "$way"
	done
done
restart_link 0
rmmod dma_dummy || fail "dma_dummy is in use"
