# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests of the emulated NTB with Linux's own clients; sourced. They
# run with `scripts/lab --no-setup run`, which has loaded ntb_hw_ivshmem; each
# test loads it anew with the parameters that it wants.
set -u
# shellcheck source=tests/guest/lib/base.sh
. "$(dirname "${BASH_SOURCE[0]}")/base.sh"

me=$((NODE - 1))
peer_count=$((NODES - 1))
ntb_debugfs=/sys/kernel/debug

# meet NAME: all nodes do; a node that failed fails the others.
meet() {
	lab-barrier "$1" || fail "not all nodes came to $1"
}

# A module of this project, of the NTB modules built with it, or of the kernel.
load() {
	local name=$1 file

	shift
	for file in "$MODDIR"/*/"$name.ko"; do
		[ -e "$file" ] || continue
		insmod "$file" "$@" || fail "insmod $name $*"
		return
	done
	modprobe "$name" "$@" || fail "modprobe $name $*"
}

unload() {
	rmmod "$1" || fail "rmmod $1"
}

# hardware [PARAMETER...]: the driver, loaded anew. No client may be there.
hardware() {
	[ ! -d /sys/module/ntb_hw_ivshmem ] || unload ntb_hw_ivshmem
	load ntb_hw_ivshmem ports="$NODES" port="$me" "$@"
	info=$(echo $ntb_debugfs/ntb_hw_ivshmem/*/info)
	[ -e "$info" ] || fail "no NTB port came with ntb_hw_ivshmem $*"
	# shellcheck disable=SC2034 # for the tests
	cable=${info%info}link
}

# The number of the n-th other port, as ntb.h counts peers.
port_of_peer() {
	echo $(($1 < me ? $1 : $1 + 1))
}

# The index under which a port knows this one.
my_index_at() {
	echo $((me < $1 ? me : me - 1))
}

# Sets $tool to ntb_tool's directory and enables the link.
load_tool() {
	load ntb_tool
	tool=$(echo $ntb_debugfs/ntb_tool/*)
	[ -d "$tool" ] || fail "ntb_tool did not take the port"
	echo Y >"$tool/link" || fail "cannot enable the link"
}

# wait_link PIDX Y|N: until ntb_tool sees the link up or down.
wait_link() {
	timeout $patience bash -c "echo $2 >$tool/peer$1/link_event" ||
		fail "the link to peer $1 is not $2 after $patience s"
}

wait_links() {
	local pidx

	for ((pidx = 0; pidx < peer_count; pidx++)); do
		wait_link "$pidx" "$1"
	done
}

# A number out of the driver's info file: info_number 's/.../\1/p'
info_number() {
	sed -n "$1" "$info"
}

links_up() {
	info_number 's/^links up \([0-9]*\) times.*/\1/p'
}

# epoch_of PIDX: of this end of the link.
epoch_of() {
	info_number "s/^peer $1: .* epoch \([0-9]*\) (.*/\1/p"
}

# Interrupts that this port has had.
interrupts() {
	info_number 's/^interrupts \([0-9]*\),.*/\1/p'
}

# same FILE VALUE: a debugfs file reads as a number.
same() {
	[ $(($(<"$1"))) = $(($2)) ]
}

expect() {
	same "$1" "$2" || fail "$1 is $(<"$1"), not $2${3:+: $3}"
}

# load_ropcie [PARAMETER-OF-NTB_IF...]: all of RoPCIe, and its interface.
load_ropcie() {
	load ropcie_ntb_if "$@"
	load ropcie_bus
	load ropcie_device
	load ropcie
	export RDMA_DEV=ropcie0 NETDEV=ropcie0
	retry "$patience" test -e /sys/class/net/$NETDEV || fail "no interface"
	ip link set dev $NETDEV up
	ip addr add "10.77.0.$NODE/24" dev $NETDEV
}

unload_ropcie() {
	local module

	for module in ropcie ropcie_device ropcie_bus ropcie_ntb_if; do
		unload $module
	done
}

has_gid() {
	(gid_index $RDMA_DEV) >/dev/null
}

# reach_peers WHEN: all nodes reach each other. Wants rdma.sh.
reach_peers() {
	local node

	for ((node = 1; node <= NODES; node++)); do
		[ $node = "$NODE" ] || retry "$patience" ping -q -n -c1 -W1 "10.77.0.$node" >/dev/null ||
			fail "$1: node$node does not answer"
	done
	retry "$patience" has_gid || fail "$1: no GID"
	meet reached
}
