#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --no-setup -- idt
# lab-long: --nodes 2 --no-setup --timeout 3600
# lab-long: --nodes 3 --no-setup --timeout 3600 -- idt
#
# ntb-zoo.sh [FAMILY...]: each family of NTB hardware that ntb_hw_ivshmem imitates
# (default: all), as ntb_tool sees it, and RoPCIe on it: traffic and frames, doorbells, a
# link that is lost under traffic, a peer whose modules come and go. The other guest tests
# run on each with scripts/test guests-zoo.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"
# shellcheck source-path=SCRIPTDIR source=lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source-path=SCRIPTDIR source=lib/link.sh
. "$(dirname "$0")/lib/link.sh"

# Sets what the family is poor in: docs/ntb-emulation.md, "Families of hardware".
know_family() {
	number=$me spads=128 msgs=0 first_align=4096 size_align=4096
	mask_works=1 others_ring=1 again_rings=0 rung_first=1 rung_both=3
	case $family in
	intel1) bits=0x7fff vectors=4 ;;
	intel3) bits=0xffffffff vectors=33 ;;
	amd) bits=0x7fff vectors=15 ;;
	switchtec) bits=0xfffffff vectors=1 number=0 ;;
	idt) bits=0xffffffff vectors=1 size_align=$((1 << 20)) spads=0 msgs=4 others_ring=0 ;;
	epf)
		vectors=1 number=0 mask_works=0 again_rings=1
		# Only the lowest bit of two rings, and port 0's come one higher.
		if [ "$me" = 0 ]; then
			bits=0x3fff rung_both=1
		else
			bits=0xf rung_first=2 rung_both=2
		fi
		;;
	worst)
		vectors=1 number=0 mask_works=0 again_rings=1 spads=0 msgs=1 size_align=$((256 << 10))
		others_ring=2 # the only interrupt is of all that is pending
		if [ "$me" = 0 ]; then
			bits=0x3 rung_both=1
		else
			bits=0x7 rung_first=2 rung_both=2
		fi
		;;
	esac
	case $family in
	intel*) spads=16 first_align=$(info_number 's/.* windows per peer [0-9]* of \(0x[0-9a-f]*\) bytes/\1/p') ;;
	amd) spads=8 ;;
	esac
}

events() {
	info_number 's/^doorbell vectors [0-9]*, events \([0-9]*\)/\1/p'
}

events_are() {
	[ "$(events)" = "$1" ]
}

# expect_events NUMBER WHY: so many more than before.
expect_events() {
	before=$((before + $1))
	retry 5 events_are $before || fail "$family: $(events) doorbell events, not $before: $2"
	sleep 0.2
	events_are $before || fail "$family: $(events) doorbell events, not $before: $2"
	meet "$family-events"
}

ring() {
	echo "s $1" >"$tool/peer_db" || fail "$family: doorbells $1 can not be rung"
	meet "$family-rung"
}

# Bits, vectors, masks, and what the next bit does while one is pending.
check_doorbells() {
	expect "$tool/db_valid_mask" "$bits" "doorbell bits of $family"
	! echo "s $((bits + 1))" 2>/dev/null >"$tool/peer_db" || fail "$family: there are more doorbells than $bits"
	grep -q "^doorbell vectors $vectors," "$info" || fail "$family: $(<"$info")"
	[ "$vectors" -gt 1 ] || [ $mask_works = 0 ] || grep -q "^vectors 1," "$info" ||
		fail "$family: more than one interrupt: $(<"$info")"
	echo "s $bits" >"$tool/db_mask"
	echo "c $bits" >"$tool/db"
	before=$(events)
	meet "$family-masked"
	ring 1
	expect_events $((1 - mask_works)) "rung under the mask"
	expect "$tool/db" $rung_first "$family: rung under the mask"
	if [ $mask_works = 1 ]; then
		echo "c 2" >"$tool/db_mask"
		meet "$family-half-masked"
		ring 2
		expect_events $others_ring "another one rung while a masked one is pending"
		echo "c 2" >"$tool/db"
		meet "$family-half-cleared"
	fi
	echo "c $bits" >"$tool/db_mask"
	expect_events $mask_works "unmasked"
	ring 1
	expect_events $again_rings "rung while it is pending"
	ring 2
	expect_events $others_ring "another one rung while one is pending"
	echo "c $bits" >"$tool/db"
	expect "$tool/db" 0 "$family: cleared"
	meet "$family-cleared"
	ring 3
	expect "$tool/db" $rung_both "$family: two rung at once"
	echo "c $bits" >"$tool/db"
	meet "$family-doorbells"
}

# With more than two ports, a doorbell of IDT's is all ports'.
check_shared_doorbells() {
	echo "c $bits" >"$tool/db"
	meet "$family-cleared"
	[ "$NODE" != 1 ] || echo "s 0x20" >"$tool/peer_db"
	meet "$family-rung"
	[ "$NODE" = 1 ] || expect "$tool/db" 0x20 "$family: what port 0 rang"
	meet "$family-doorbells"
}

# Whose link_enable() does what. Ends with all links up.
check_link() {
	local pidx

	if [ "$family" = amd ]; then
		wait_link 0 Y # nobody has enabled it
		! echo Y 2>/dev/null >"$tool/link" || [ "$NODE" = 1 ] || fail "port 1 of amd enabled the link"
	elif [ "$family" = epf ] || [ "$family" = worst ]; then
		[ "$NODE" = 1 ] || echo Y 2>/dev/null >"$tool/link" || [ "$family" = worst ] ||
			fail "port 1 of $family answers with an error"
		meet "$family-enabled"
		sleep 0.5
		[ "$(<"$tool/peer0/link")" = N ] || fail "port 1 of $family enabled the link"
		meet "$family-not-up"
		[ "$NODE" != 1 ] || echo Y >"$tool/link"
	else
		for ((pidx = 0; pidx < peer_count; pidx++)); do
			[ "$(<"$tool/peer$pidx/link")" = N ] || fail "$family: a link is up that nobody has enabled"
		done
		meet "$family-not-up"
		echo Y >"$tool/link"
	fi
	wait_links Y
	meet "$family-links"
}

# Windows: what they are aligned to, and who says where one leads.
check_windows() {
	local window=$tool/peer0/mw_trans0 out=$tool/peer0/peer_mw_trans0

	grep -q "^Alignment  *.*$(printf '0x0*%x' "$first_align")\$" "$window" ||
		fail "$family: $(<"$window"), not aligned to $first_align"
	grep -q "^Size Alignment .*$(printf '0x0*%x' $size_align)\$" "$window" ||
		fail "$family: $(<"$window"), sizes not aligned to $size_align"
	# Those without whole windows have no translation by the sender: the address says nothing.
	if [ "$size_align" != 4096 ]; then
		! echo 0x1000:$size_align 2>/dev/null >"$out" || fail "$family: a window leads anywhere"
	else
		echo 0x1000:4096 >"$out" || fail "$family: there is a translation by the sender"
		echo 0:0 >"$out"
	fi
}

# What the family is poor in, as a client sees it.
check_poverty() {
	grep -q "^family $family," "$info" || fail "it is not $family: $(<"$info")"
	know_family
	grep -q "^scratchpads $spads, message registers $msgs\$" "$info" || fail "$family: $(<"$info")"
	load ntb_tool
	tool=$(echo $ntb_debugfs/ntb_tool/*)
	[ -d "$tool" ] || fail "ntb_tool did not take the port"
	meet "$family-tool"
	expect "$tool/port" $number "port of $family"
	check_link
	if [ "$NODES" = 2 ]; then
		check_doorbells
	else
		check_shared_doorbells
	fi
	check_windows
	meet "$family-poor"
	unload ntb_tool
	meet "$family-known"
	pass "$family: as poor as it should be"
}

# A doorbell wakes each side for each ping; the timer behind a lost one would, too.
check_bells() {
	local before

	before=$(events)
	all_answered "$family" "10.77.0.$((NODE % NODES + 1))" -c20 -i0.1
	[ $(($(events) - before)) -ge 10 ] ||
		fail "$family: $(($(events) - before)) doorbell events with 20 pings"
	meet "$family-bells"
}

traffic() {
	rop_sendrecv
	pair 18515 ib_send_lat -x GID -s 64 -n 200
	pair 18515 ib_write_bw -x GID -s 65536 -n 50
	all_answered "$family: $1" "10.77.0.$((NODE % NODES + 1))" -c5 -i0.2 -s 20000
	meet "$family-$1-traffic"
	pass "$family: traffic $1"
}

# Node 2's client goes and comes; on some hardware no link goes down with it.
reload_one() {
	if [ "$NODE" = 2 ]; then
		unload_ropcie
		meet "$family-gone"
		# shellcheck disable=SC2119
		load_ropcie
	else
		meet "$family-gone"
	fi
	reach_peers "$family: reloaded"
}

zoo() {
	family=$1
	hardware "family=$family"
	meet "$family-hardware"
	check_poverty
	# shellcheck disable=SC2119
	load_ropcie
	reach_peers "$family: up"
	[ "$size_align" = 4096 ] ||
		[ "$(info_number 's/.*translations set for peers \([0-9]*\)/\1/p')" -ge "$peer_count" ] ||
		fail "$family: the sender has not set each translation: $(<"$info")"
	check_bells
	rop_traffic --quick
	traffic first
	lose down 0.3 1
	check_bells
	traffic after-a-loss
	reload_one
	traffic after-a-reload
	unload_ropcie
	unload ntb_hw_ivshmem
	meet "$family-done"
	pass "$family"
}

[ $# != 0 ] || set -- intel1 intel3 amd switchtec idt epf worst
for module in ib_uverbs rdma_ucm ib_umad; do
	modprobe $module
done
for name; do
	zoo "$name"
done
