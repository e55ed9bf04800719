#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --timeout 28800 -- 20
#
# nvme-of-faults.sh [TURNS]: NVMe over Fabrics whose connection goes away under IO:
# deleted by the host, closed by the target, and lost with the target's RDMA device, which
# comes back, or with the host's: RoPCIe's modules or all of them are unloaded, or a driver
# is unbound.
# IO ends with an error, or goes on when the ULP has reconnected; nothing waits
# for ever, and the data are right afterwards.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"

io_s=$((patience / 6)) # longer than it takes to lose something

reconnecting() {
	grep -q connecting /sys/class/nvme/nvme*/state
}

# The host has seen it, and fio waits.
expect_reconnecting() {
	if [ "$NODE" = 2 ]; then
		retry "$patience" reconnecting || fail "the host does not see $1"
		kill -0 "$io" || fail "fio ended before $1: $(<"$io_log")"
	fi
	lab-barrier "${1//[^a-z]/-}"
}

# lose_device TAKE GIVE ARG...: the target's, then the host's, by the command TAKE ARG...;
# it is given back.
lose_device() {
	local take=$1 give=$2

	shift 2
	lab-barrier lose
	[ "$NODE" != 2 ] || start_io "$io_s"
	lab-barrier busy
	if [ "$NODE" = 1 ]; then
		"$take" "$@"
		close_port
	fi
	expect_reconnecting "the loss of the target's device ($*)"
	if [ "$NODE" = 1 ]; then
		"$give" "$@"
		open_port
	fi
	lab-barrier back
	if [ "$NODE" = 2 ]; then
		expect_end "the loss of the target's device ($*)" 1
		disk_io "$disk" --rw=write --bs=64k --iodepth=8 --size=16m

		start_io "$io_s" "${until_gone[@]}"
		"$take" "$@"
		expect_end "the loss of the host's device ($*)" 0
		retry "$patience" no_controller || fail "the controller stays without its device"
		"$give" "$@"
		expect_reachable "the loss of the host's device"
		connect
		disk_io "$disk" --rw=write --bs=64k --iodepth=8 --size=16m
	fi
	lab-barrier works
}

one_turn() {
	local driver

	[ "$NODE" != 1 ] || start_target
	lab-barrier target

	if [ "$NODE" = 2 ]; then
		connect
		start_io "$io_s" "${until_gone[@]}"
		delete_controller
		expect_end "the host's disconnect" 0
		retry "$patience" no_controller || fail "the controller stays"
		connect
		disk_io "$disk" --rw=write --bs=64k --iodepth=8 --size=16m
	fi

	lab-barrier close
	[ "$NODE" != 2 ] || start_io "$io_s"
	lab-barrier under-io
	[ "$NODE" != 1 ] || close_port
	expect_reconnecting "the target's disconnect"
	[ "$NODE" != 1 ] || open_port
	lab-barrier reopened
	if [ "$NODE" = 2 ]; then
		expect_end "the target's disconnect" 1
		disk_io "$disk" --rw=write --bs=64k --iodepth=8 --size=16m
	fi

	lose_device unload_modules load_modules ropcie
	lose_device unload_modules load_modules ntb_hw_ivshmem
	for driver in "${drivers[@]}"; do
		# shellcheck disable=SC2086 # two words
		lose_device unbind_from bind_to $driver
	done
	[ "$NODE" != 2 ] || disconnect
	lab-barrier used
	[ "$NODE" != 1 ] || stop_target
	pass "the target and the host lose their devices"
}

for ((turn = 1; turn <= ${1:-1}; turn++)); do
	one_turn
done
