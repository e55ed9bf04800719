#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
# lab: --nodes 1 --link loopback
# lab-quick: yes
# lab-kernels: all
#
# SEND and RECV through the kernel's verbs, byte for byte, both ways, with each
# way of polling: ropcie_ktest.ko at both ends, which are on two nodes, or the
# two ends of a loopback pair on one. Node 1 sends first. And a region that kernel code
# makes of a process's memory.
#
# A kernel that looks for data races (KCSAN) sees those of our modules: it is shown one.
set -euo pipefail

root=/sys/kernel/debug/ropcie_ktest
ways=(direct softirq workqueue)
failed=0

# between_nodes WAY: one test between node 1 and node 2.
between_nodes() {
	local role=send other=$((3 - NODE)) dir=$root/${RDMA_DEV:?}

	[ "$NODE" = 1 ] || role=recv
	cat "$dir/local" >"$LAB_OUT/ktest.$NODE"
	lab-barrier "ktest-address-$1"
	cat "$LAB_OUT/ktest.$other" >"$dir/remote"
	lab-barrier "ktest-connected-$1"
	echo $role >"$dir/run" 2>/dev/null
}

# between_ends: one test between the two devices of this node.
between_ends() {
	local one=$root/$RDMA_DEV two=$root/$RDMA_DEV2 receiver status=0
	local address1 address2

	address1=$(<"$one/local")
	address2=$(<"$two/local")
	echo "$address1" >"$two/remote"
	echo "$address2" >"$one/remote"
	echo recv >"$two/run" 2>/dev/null &
	receiver=$!
	echo send >"$one/run" 2>/dev/null || status=1
	wait "$receiver" || status=1
	return $status
}

run() {
	if [ -n "${RDMA_DEV2:-}" ]; then
		between_ends
	else
		between_nodes "$1"
	fi
}

# sees_race: the report is expected, and kept from the console.
sees_race() {
	local turn seen=1

	dmesg -C
	echo 2 >/proc/sys/kernel/printk
	for ((turn = 0; turn < 30 && seen; turn++)); do
		echo 300000 >"$root/race" &
		echo 300000 >"$root/race"
		wait
		[[ $(dmesg) != *'KCSAN: data-race in ktest_race_write'* ]] || seen=0
	done
	dmesg -C
	echo 8 >/proc/sys/kernel/printk
	return $seen
}

insmod "$MODDIR/ropcie_ktest/ropcie_ktest.ko"
if [ -e /sys/kernel/debug/kcsan ] && ! sees_race; then
	echo "KCSAN does not see a data race of a module"
	failed=1
fi
if ! echo "memory of a process" >"$root/${RDMA_DEV:?}/user"; then
	echo "a region that kernel code makes of a process's memory fails"
	failed=1
fi
for way in "${!ways[@]}"; do
	echo "$way" >/sys/module/ropcie_ktest/parameters/poll
	word=ok
	if ! run "${ways[way]}"; then
		word=FAILED
		failed=1
	fi
	for result in "$root"/*/result; do
		echo "$word: polled by ${ways[way]}: $(<"$result")"
	done
	lab-barrier "ktest-done-${ways[way]}"
done
rmmod ropcie_ktest
exit $failed
