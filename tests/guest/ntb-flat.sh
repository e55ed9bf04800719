#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --no-setup --flat
# lab-long: --nodes 3 --no-setup --flat --mem 512
#
# Flat windows of the emulated NTB: each node writes to pages of each other
# node that these have mapped for DMA, to all of them and to nothing beside them;
# a closed window is seen as such at the other end; and all that again after either
# side's driver has gone and come, and on each family of hardware that can have it.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"

each_peer() {
	local pidx

	for ((pidx = 0; pidx < peer_count; pidx++)); do
		"$@" "$pidx" "$(port_of_peer "$pidx")"
	done
}

# What each node tells the others of its memory.
targets_file() {
	echo "$LAB_OUT/flat-$1-to-$2"
}

all_up() {
	[ $(($(<"$flat/links"))) = $(((1 << peer_count) - 1)) ]
}

# seen PIDX "STATE in"|"STATE out": what info says of the windows of a peer.
seen() {
	grep -q "^peer $1: .*flat.* $2\b" "$info"
}

# On the hardware, until its links are up.
load_client() {
	load ntb_flattest
	flat=$(echo $ntb_debugfs/ntb_flattest/*)
	[ -e "$flat/links" ] || fail "ntb_flattest did not take the port"
	retry "$patience" all_up || fail "links $(<"$flat/links") only"
}

open_window() {
	echo 1 >"$flat/peer$1/open" || fail "the flat window of port $2 does not open: $(dmesg | tail -n 2)"
	cat "$flat/peer$1/targets" >"$(targets_file "$me" "$2")"
}

close_window() {
	echo 0 >"$flat/peer$1/open" || fail "the flat window of port $2 does not close"
}

is_seen() {
	local state=$1

	seen "$2" "$state in" || fail "the window that port $3 writes to is not $state: $(grep ^peer "$info")"
	seen "$2" "$state out" || fail "the window to port $3 is not $state: $(grep ^peer "$info")"
}

# A value that only this pair has in this round.
seed() {
	echo $((round * 1000 + $1 * 100 + $2 * 10))
}

write_targets() {
	local address length n=0

	while read -r address length; do
		echo "$address" >"$flat/peer$1/address"
		echo "$length" >"$flat/peer$1/length"
		echo $(($(seed "$me" "$2") + n)) >"$flat/peer$1/write" ||
			fail "cannot write $length bytes to $address of port $2"
		n=$((n + 1))
	done <"$(targets_file "$2" "$me")"
	[ $n -gt 1 ] || fail "port $2 has named $n places in its memory"
	echo 1 >"$flat/peer$1/ring" || fail "cannot ring port $2"
}

check_targets() {
	seed "$2" "$me" >"$flat/peer$1/check" ||
		fail "port $2 did not write what it should: $(dmesg | grep 'target' | tail -n 2)"
}

# Every node to every other.
exchange() {
	round=$((round + 1))
	each_peer open_window
	meet "open-$round"
	each_peer is_seen open
	each_peer write_targets
	each_peer check_targets
	meet "checked-$round"
	each_peer close_window
	meet "closed-$round"
	each_peer is_seen closed
	meet "over-$round"
	pass "$1"
}

# One node's client and driver go and come; the others see the link go.
reload() {
	local pidx

	each_peer open_window
	meet "reload-$1"
	if [ "$NODE" = "$1" ]; then
		unload ntb_flattest
		meet "gone-$1"
		hardware flat=1 mw_count=2
		load_client
	else
		pidx=$(($1 - 1 < me ? $1 - 1 : $1 - 2))
		retry "$patience" eval "[ \$((\$(<$flat/links) >> $pidx & 1)) = 0 ]" ||
			fail "the client of node $1 went, and its link is still up"
		seen $pidx "closed out" || fail "node $1 went, and its window is open"
		meet "gone-$1"
		retry "$patience" all_up || fail "node $1 has not come back"
	fi
	meet "back-$1"
	exchange "node $1 unloaded and loaded again"
}

on_family() {
	meet "unload-$1"
	unload ntb_flattest
	hardware flat=1 family="$1"
	meet "family-$1"
	load_client
	exchange "family=$1"
}

# A port without flat windows reaches no memory, and does not link with one that has them.
without() {
	meet without
	unload ntb_flattest
	if [ "$NODE" = 1 ]; then
		hardware flat=1
	else
		hardware
		load ntb_flattest
		[ -z "$(ls $ntb_debugfs/ntb_flattest)" ] || fail "memory was mapped without flat=1"
		unload ntb_flattest
	fi
	load_tool
	meet without-up
	retry 10 hears "has other ports=.*flat=" || fail "the kernel log does not say that flat= differs"
	[ "$(links_up)" = 0 ] || fail "a link came up with other flat="
	meet without-seen
	unload ntb_tool
	pass "with flat=1 at one end there is no link"
}

round=0
hardware flat=1 mw_count=2
meet up
load_client
exchange "each of $NODES nodes wrote to the others' memory"
exchange "and once more"
reload 1
reload "$NODES"
if [ "$NODES" = 2 ]; then
	for family in intel1 amd switchtec idt; do
		on_family $family
	done
	without
else
	unload ntb_flattest
fi
meet end
unload ntb_hw_ivshmem
