#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --no-setup
# lab: --nodes 1 --smp 2 --no-setup
#
# Message queues without verbs: ropcie_mqtest.ko on ropcie_ntb_if.ko. With one
# node over a loopback pair, whose link is cut and mended as well; with more of
# them over the emulated NTB, as rich and as poor as hardware may be.
#   scripts/lab --no-setup [--nodes N] run tests/guest/mq.sh
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"

parameters=/sys/module/ropcie_mqtest/parameters
step=0

together() {
	step=$((step + 1))
	lab-barrier "mq-$step"
}

connected() {
	[ "$(<$parameters/peers)" = "$1" ]
}

# test NAME: with all peers, here and there.
test_all() {
	echo "$1" >$parameters/run || fail "$1: $(dmesg | grep ropcie_mqtest | tail -n 3)"
	pass "$1"
	together
}

# start PEERS [PARAMETER-OF-NTB_IF...]
start() {
	local expected=$1

	shift
	load ropcie_ntb_if "$@"
	load ropcie_mqtest
	retry "$patience" connected "$expected" ||
		fail "$(<$parameters/peers) of $expected peers"
	pass "connected"
	together
}

stop() {
	unload ropcie_mqtest
	dmesg | grep -E 'ropcie_mqtest: .*(pings|sent|taken)|link to'
	dmesg -C
	unload ropcie_ntb_if
	together
}

# refused PARAMETER-OF-NTB_IF...: it does not load, and the kernel log says why.
refused() {
	dmesg -C
	! insmod "$MODDIR"/*/ropcie_ntb_if.ko "$@" 2>/dev/null || fail "$* is accepted"
	hears "${1%%=*} is" || fail "$*: the kernel log does not say what is allowed"
}

# variant NAME [PARAMETER-OF-THE-HARDWARE...]
variant() {
	echo "$1:"
	shift
	hardware "$@"
	together
	start "$peer_count"
	test_all traffic
	test_all pings
	stop
}

cut_and_mend() {
	local link=$ntb_debugfs/ropcie_ntb_if/loopback0/link

	for _ in 1 2 3; do
		echo 0 >"$link"
		retry "$patience" connected 0 || fail "a cut link was not noticed"
		echo 1 >"$link"
		retry "$patience" connected 2 || fail "a mended link did not come back"
	done
	pass "cut and mended three times"

	# In mid-transfer: the test has to end, with an error unless it was done.
	(sleep 0.3; echo 0 >"$link") &
	echo traffic >$parameters/run 2>/dev/null
	wait
	retry 5 connected 0 || fail "the link was not cut"
	echo 1 >"$link"
	retry "$patience" connected 2 || fail "the link did not come back"
	pass "cut under traffic"
	test_all traffic
}

if [ "$NODES" = 1 ]; then
	for params in window_kib=128 window_kib=1536 window_kib=131072 lanes=1000 heartbeat_ms=0 loopback=17; do
		refused "$params"
	done
	pass "parameters out of range are refused"
	start 2 loopback=1
	test_all traffic
	test_all pings
	test_all churn
	cut_and_mend
	stop
	start 2 loopback=1 lanes=5 window_kib=2048 spin_us=200
	test_all traffic
	test_all pings
	stop
	exit
fi
variant "scratchpads" spads=32
variant "messages" spads=0 msgs=4
variant "one vector" spads=32 vectors=1
variant "a small window" spads=32 mw_size=$((192 << 10))
