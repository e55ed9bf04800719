#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --no-setup -- worst
# lab-long: --nodes 2 --no-setup --timeout 3600
#
# ntb-small.sh [FAMILY...]: windows as small as RoPCIe can use, and smaller: then there is
# no device, and the kernel log says why. Verified messages that are many times as long as
# the window, and TCP, whose frames keep their order though the lane is full at each moment,
# on each family of hardware (default: all, and that without oddities); when they are not
# named also READ, atomics and many queue pairs, and larger windows of less than 1 MiB.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"
# shellcheck source-path=SCRIPTDIR source=lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source-path=SCRIPTDIR source=lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"

# small_hardware FAMILY BYTES [PARAMETER...]: the name none stands for no family.
small_hardware() {
	local params=(mw_size="$2" "${@:3}")

	[ "$1" = none ] || params+=(family="$1")
	hardware "${params[@]}"
	meet hardware
}

# refuses FAMILY BYTES: no device with such windows. Sets $least, in KiB.
refuses() {
	small_hardware "$1" "$2"
	dmesg -C
	load ropcie_ntb_if
	least=$(dmesg | sed -n "s/.* has $(($2 >> 10)) KiB, RoPCIe needs \([0-9]*\): enlarge .*/\1/p")
	[ -n "$least" ] || fail "$1: a window of $2 bytes: the kernel log does not say what is needed"
	! compgen -G /sys/kernel/debug/ropcie_ntb_if/*/state >/dev/null ||
		fail "$1: a device with a window of $2 bytes"
	unload ropcie_ntb_if
	meet refused
}

# works FAMILY BYTES [PARAMETER-OF-NTB_IF...]
works() {
	local kib=$(($2 >> 10)) what="windows of $(($2 >> 10)) KiB of $1 ${*:3}"

	small_hardware "$1" "$2"
	load_ropcie "${@:3}"
	reach_peers "$what"
	grep -q "link up,.* window in $kib KiB out $kib KiB" /sys/kernel/debug/ropcie_ntb_if/*/state ||
		fail "$what: $(cat /sys/kernel/debug/ropcie_ntb_if/*/state)"
	rop_traffic --quick
	if [ $long = 1 ]; then
		rop_many_qps --qps 200
		rop_odp --quick
		pair 18515 ib_read_bw -x GID -s $((4 << 20)) -n 20 -q 4 >/dev/null
		pair 18515 ib_write_bw -x GID -s $((4 << 20)) -n 20 -q 4 -b >/dev/null
		pair 18515 ib_atomic_bw -x GID -n 200 -q 16 -b >/dev/null
	fi
	all_answered "$what" "10.77.0.$((NODE % NODES + 1))" -c5 -i0.2 -s 60000
	ip link set dev "$NETDEV" mtu 1500
	in_order 1 2
	meet used
	unload_ropcie
	meet unloaded
	pass "$what"
}

long=0
[ $# != 0 ] || {
	long=1
	set -- none intel1 intel3 amd switchtec idt epf worst
}
for module in ib_uverbs rdma_ucm ib_umad; do
	modprobe $module
done
for family; do
	case $family in
	intel*)
		# As large as a BAR may be.
		refuses "$family" $((128 << 10))
		works "$family" $((256 << 10))
		;;
	*)
		refuses "$family" 4096
		refuses "$family" $(((least << 10) - 4096))
		works "$family" $((least << 10))
		;;
	esac
done
if [ $long = 1 ]; then
	for kib in 192 272 512 1020; do
		works none $((kib << 10))
		works none $((kib << 10)) lanes=2
	done
fi
unload ntb_hw_ivshmem
