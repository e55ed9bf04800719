# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests that unload modules and load them again; sourced after rdma.sh.
modules=(ntb_hw_ivshmem ropcie_ntb_if ropcie_bus ropcie_device ropcie)
hw_params=()
for param in port ports family flat; do
	hw_params+=("$param=$(<"/sys/module/ntb_hw_ivshmem/parameters/$param")")
done
if_params=("direct_placement=$(<"/sys/module/ropcie_ntb_if/parameters/direct_placement")")
mtu=$(<"/sys/class/net/$NETDEV/mtu")

# at_and_above MODULE: sets $chosen to it and those above it.
at_and_above() {
	local module

	chosen=()
	for module in "${modules[@]}"; do
		if [ "$module" = "$1" ] || [ ${#chosen[@]} -gt 0 ]; then
			chosen+=("$module")
		fi
	done
}

# unload_modules MODULE: this one and those above it.
unload_modules() {
	local index

	at_and_above "$1"
	for ((index = ${#chosen[@]} - 1; index >= 0; index--)); do
		timeout "$patience" rmmod "${chosen[index]}" || fail "rmmod ${chosen[index]}"
	done
}

# bring_up: the interface is there again, and as it was.
bring_up() {
	retry "$patience" ip link set dev "$NETDEV" mtu "$mtu" up 2>/dev/null ||
		fail "$NETDEV does not come back"
	ip addr add "10.77.0.$NODE/24" dev "$NETDEV" || fail "$NETDEV takes no address"
}

# load_modules MODULE: the same again.
load_modules() {
	local module params

	at_and_above "$1"
	for module in "${chosen[@]}"; do
		case $module in
		ntb_hw_ivshmem) params=("${hw_params[@]}") ;;
		ropcie_ntb_if) params=("${if_params[@]}") ;;
		*) params=() ;;
		esac
		insmod "$MODDIR"/*/"$module.ko" "${params[@]}" || fail "insmod $module"
	done
	bring_up
}

# reload_modules MODULE: both.
reload_modules() {
	unload_modules "$1"
	load_modules "$1"
}

# A driver of ours on each bus: BUS DRIVER.
drivers=("ropcie ropcie" "ntb ropcie_ntb_if" "pci ntb_hw_ivshmem")

# unbind_from BUS DRIVER: from its only device.
unbind_from() {
	local driver=/sys/bus/$1/drivers/$2

	bound=$(find "$driver" -type l -lname '*/devices/*' -printf '%f\n')
	[ -n "$bound" ] || fail "$driver has no device"
	# shellcheck disable=SC2016 # for the inner shell
	timeout "$patience" sh -c 'echo "$1" >"$2/unbind"' - "$bound" "$driver" ||
		fail "$2 does not go from $bound"
}

# bind_to BUS DRIVER: the same again.
bind_to() {
	echo "$bound" >"/sys/bus/$1/drivers/$2/bind" || fail "$2 does not take $bound"
	bring_up
}

# rebind BUS DRIVER: both.
rebind() {
	unbind_from "$@"
	bind_to "$@"
}
