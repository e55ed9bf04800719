#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --no-setup -- 1
# lab-long: --nodes 2 --no-setup --timeout 3600 -- 50
#
# modules.sh [ROUNDS]: the modules come and go, ROUNDS times in every legal
# order (default 50; the nodes share them), with and without a loopback pair.
# Each illegal order is refused and leaves no trace. In the end the link works.
set -euo pipefail
# shellcheck source=tests/guest/lib/base.sh
. "$(dirname "$0")/lib/base.sh"

rounds=$(((${1:-50} + NODES - 1) / NODES))
modules=(ntb_hw_ivshmem ropcie_ntb_if ropcie_bus ropcie_device ropcie)
declare -A needs # module to those of $modules that must be there before it
orders=()

loaded() {
	[ -d "/sys/module/$1" ]
}

file_of() {
	echo "$MODDIR"/*/"$1.ko"
}

# load MODULE: its errors are the kernel's business.
load() {
	local params=()

	case $1 in
	ntb_hw_ivshmem) params=("${hw_params[@]}") ;;
	ropcie_ntb_if) params=("loopback=$loopback") ;;
	esac
	insmod "$(file_of "$1")" "${params[@]}" 2>/dev/null
}

devices() {
	find /sys/class/infiniband -name 'ropcie*' | wc -l
}

interfaces() {
	find /sys/class/net -name 'ropcie*' | wc -l
}

# shown N: that many RDMA devices and interfaces are there.
shown() {
	[ "$(devices)" = "$1" ] && [ "$(interfaces)" = "$1" ]
}

# legal MODULE LOADED...: is all that it needs there?
legal() {
	local need module=$1

	shift
	for need in ${needs[$module]}; do
		[[ " $* " == *" $need "* ]] || return 1
	done
}

# extend LOADED...: every legal order that starts like this.
extend() {
	local module

	if [ $# = ${#modules[@]} ]; then
		orders+=("$*")
		return
	fi
	for module in "${modules[@]}"; do
		[[ " $* " != *" $module "* ]] || continue
		if legal "$module" "$@"; then
			extend "$@" "$module"
		fi
	done
}

reverse() {
	local word text=

	for word in $1; do
		text="$word $text"
	done
	echo "$text"
}

unload_all() {
	local module

	for module in ropcie ropcie_device ropcie_bus ropcie_ntb_if ntb_hw_ivshmem; do
		! loaded "$module" || rmmod "$module" || fail "rmmod $module"
	done
}

# cycle LOAD-ORDER UNLOAD-ORDER
cycle() {
	local module

	for module in $1; do
		load "$module" || fail "$module does not load in the order $1"
	done
	retry "$patience" shown "$((1 + 2 * loopback))" ||
		fail "$(devices) devices, $(interfaces) interfaces after the order $1"
	for module in $2; do
		rmmod "$module" || fail "$module does not unload in the order $2"
	done
	shown 0 || fail "$(devices) devices, $(interfaces) interfaces after unloading in the order $2"
}

# Each module with each set of the others loaded that lacks something.
illegal_loads() {
	local module need other

	for module in "${modules[@]}"; do
		for need in ${needs[$module]}; do
			for other in ${needs[$module]}; do
				[ "$other" = "$need" ] || loaded "$other" || load "$other"
			done
			! load "$module" || fail "$module loads without $need"
			! loaded "$module" || fail "$module was refused without $need, and stayed"
			unload_all
		done
		if [ -n "${needs[$module]}" ]; then
			! load "$module" || fail "$module loads on its own"
		fi
	done
	pass "no module loads before what it needs"
}

load_all() {
	local module

	for module in ${orders[0]}; do
		load "$module" || fail "$module does not load"
	done
	retry "$patience" shown "$((1 + 2 * loopback))" || fail "no device"
}

illegal_unloads() {
	local module need

	load_all
	for module in "${modules[@]}"; do
		for need in ${needs[$module]}; do
			! rmmod "$need" 2>/dev/null || fail "$need unloads under $module"
		done
	done
	! rmmod ntb 2>/dev/null || fail "ntb unloads under its users"
	! load ropcie || fail "ropcie loads twice"
	shown "$((1 + 2 * loopback))" || fail "a refusal disturbed the devices"
	unload_all
	pass "no module unloads under what needs it"
}

# holds_device: ibv_asyncwatch has the device open and waits for its events.
holds_device() {
	find "/proc/$watcher/fd" -lname '/dev/infiniband/uverbs*' 2>/dev/null | grep -q .
}

# A program has a device open when MODULE goes, and neither waits for the other.
open_device() {
	local watcher

	load_all
	ibv_asyncwatch -d ropcie0 >/dev/null 2>&1 &
	watcher=$!
	retry "$patience" holds_device || fail "ibv_asyncwatch does not open ropcie0"
	timeout "$patience" rmmod "$1" || fail "$1 does not unload while a program has its device open"
	shown 0 || fail "ropcie0 is left without $1"
	unload_all
	kill -KILL "$watcher"
	wait "$watcher" 2>/dev/null || true
	pass "$1 goes while a program has a device open"
}

link_works() {
	local peer

	lab-barrier modules-unloaded
	load_all
	ip link set dev ropcie0 up
	ip addr add "10.77.0.$NODE/24" dev ropcie0
	for ((peer = 1; peer <= NODES; peer++)); do
		[ "$peer" = "$NODE" ] || retry "$patience" ping -q -c1 -W1 "10.77.0.$peer" >/dev/null ||
			fail "node$peer does not answer"
	done
	lab-barrier modules-reached
	pass "the link works"
	unload_all
}

hw_params=()
for param in port ports flat; do
	hw_params+=("$param=$(<"/sys/module/ntb_hw_ivshmem/parameters/$param")")
done
modprobe ib_uverbs
rmmod ntb_hw_ivshmem
for module in "${modules[@]}"; do
	[ -e "$(file_of "$module")" ] || fail "$module is not built"
	needs[$module]=
	for need in $(modinfo -F depends "$(file_of "$module")" | tr , ' '); do
		[[ " ${modules[*]} " != *" $need "* ]] || needs[$module]+="$need "
	done
done
[ -n "${needs[ropcie]}" ] || fail "the dependencies are not known"
extend
loopback=0
illegal_loads
loopback=1
illegal_unloads
loopback=0
open_device ntb_hw_ivshmem
open_device ropcie

count=0
for ((round = 0; round < rounds; round++)); do
	for ((index = 0; index < ${#orders[@]}; index++)); do
		# The unload orders go round against the load orders.
		back=$(((index + round) % ${#orders[@]}))
		loopback=$((count % 2))
		cycle "${orders[index]}" "$(reverse "${orders[back]}")"
		count=$((count + 1))
	done
done
loopback=0
pass "$count times loaded and unloaded, in ${#orders[@]} orders each way"
link_works
