#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --no-setup
# lab-long: --nodes 3 --no-setup
#
# Every register of the emulated NTB through Linux's ntb_tool, for any number
# of nodes: link, scratchpads, doorbells and their masks, windows, messages.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"

windows=2
window_size=65536

each_peer() {
	local pidx

	for ((pidx = 0; pidx < peer_count; pidx++)); do
		"$@" "$pidx" "$(port_of_peer "$pidx")"
	done
}

# A value that only this pair can have written.
pair_value() {
	echo $((0xbe000000 + $1 * 256 + $2))
}

write_spad() {
	pair_value "$me" "$2" >"$tool/peer$1/spad$me"
}

check_spad() {
	expect "$tool/spad$2" "$(pair_value "$2" "$me")" "written by port $2"
	expect "$tool/peer$1/spad$me" "$(pair_value "$me" "$2")" "read over the link"
}

test_scratchpads() {
	each_peer write_spad
	meet spads-written
	each_peer check_spad
	echo 7 >"$tool/spad15"
	expect "$tool/spad15" 7
	[ ! -e "$tool/spad16" ] || fail "there are more than 16 scratchpads"
	meet spads-checked
	pass scratchpads
}

# The bits with which port $1 rings port $2, one for each pair.
pair_bit() {
	echo $((1 << ($2 + NODES * $1)))
}

ring() {
	echo "s $(pair_bit "$me" "$2")" >"$tool/peer_db" || fail "cannot ring port $2"
}

add_bit() {
	expected=$((expected | $(pair_bit "$2" "$me")))
}

interrupted_since() {
	[ "$(interrupts)" -gt "$1" ]
}

came_up_since() {
	[ "$(links_up)" -gt "$1" ]
}

test_doorbells() {
	local before

	expected=0
	each_peer add_bit
	echo "s $((-1))" >"$tool/db_mask"
	before=$(interrupts)
	meet db-masked
	each_peer ring
	each_peer ring
	meet db-rung
	expect "$tool/db" "$expected" "rung under the mask"
	[ "$(interrupts)" = "$before" ] || fail "masked doorbells interrupted"
	# Unmasking lets what is latched interrupt.
	echo "c $expected" >"$tool/db_mask"
	retry "$patience" interrupted_since "$before" ||
		fail "unmasking did not let the latched doorbells interrupt"
	echo "c $expected" >"$tool/db"
	expect "$tool/db" 0 "cleared"
	meet db-cleared

	timeout "$patience" bash -c "echo $expected >$tool/db_event" &
	sleep 0.5
	meet db-waiting
	each_peer ring
	wait $! || fail "doorbells $expected did not wake the waiter: $(<"$tool/db")"
	meet db-event
	echo "c $((-1))" >"$tool/db"
	expect "$tool/db" 0 "cleared"

	echo "s 8" >"$tool/db" || fail "cannot ring oneself"
	expect "$tool/db" 8 "set locally"
	echo "c 8" >"$tool/db"
	meet db-done
	pass doorbells
}

# A doorbell's fault ends with the next: the first event of "spurious" comes at once,
# the second would after ten minutes.
test_spoilt_doorbells() {
	expected=0
	each_peer add_bit
	echo "spurious 600000" >"${cable%link}doorbells"
	sleep 0.1
	echo "delay 10" >"${cable%link}doorbells"
	meet db-spoilt
	each_peer ring
	retry 5 same "$tool/db" "$expected" || fail "doorbells $(<"$tool/db"), not $expected, after 5 s: delayed by 10 ms"
	echo normal >"${cable%link}doorbells"
	meet db-late
	echo "c $((-1))" >"$tool/db"
	meet db-normal
	pass "late doorbells"
}

# The bits of two ports are all the one peer's; more ports share them out.
test_all_bits() {
	local bit want=0

	for ((bit = 0; bit < 64; bit++)); do
		[ "$NODES" = 2 ] || [ $((bit % NODES)) = "$me" ] || continue
		want=$((want | 1 << bit))
	done
	echo "s $((-1))" >"$tool/peer_db"
	meet all-rung
	expect "$tool/db" $want "all bits rung by all"
	meet all-checked
	echo "c $((-1))" >"$tool/db"
	meet all-cleared
	pass "doorbell bits reach whom they should"
}

pattern() {
	seq "$(($1 * 1000000 + $2 * 10000 + $3 * 1000))" 999999999 |
		head -c $window_size
}

allocate() {
	local k

	for ((k = 0; k < windows; k++)); do
		echo $window_size >"$tool/peer$1/mw_trans$k" ||
			fail "cannot allocate window $k for port $2"
	done
}

fill() {
	local k out

	for ((k = 0; k < windows; k++)); do
		out=$(($1 * windows + k))
		echo "0:$window_size" >"$tool/peer$1/peer_mw_trans$out" ||
			fail "cannot map window $out"
		pattern "$me" "$2" $k | dd bs=4096 iflag=fullblock status=none \
			of="$tool/peer$1/peer_mw$out" || fail "cannot write window $out"
	done
}

compare() {
	local k

	for ((k = 0; k < windows; k++)); do
		cmp <(pattern "$2" "$me" $k) "$tool/peer$1/mw$k" ||
			fail "window $k from port $2 has other data than it wrote"
	done
}

is_zero() {
	local k

	for ((k = 0; k < windows; k++)); do
		cmp -n $window_size /dev/zero "$tool/peer$1/mw$k" ||
			fail "a new buffer for window $k of port $2 is not zero"
	done
}

release() {
	local k

	for ((k = 0; k < windows; k++)); do
		echo 0 >"$tool/peer$1/mw_trans$k"
		echo 0:0 >"$tool/peer$1/peer_mw_trans$(($1 * windows + k))"
	done
}

test_windows() {
	each_peer allocate
	each_peer is_zero
	meet mw-allocated
	each_peer fill
	meet mw-filled
	each_peer compare
	meet mw-compared
	each_peer release
	meet mw-released
	each_peer allocate
	each_peer is_zero
	each_peer release
	meet mw-done
	pass "windows: $windows for each peer"
}

test_link() {
	local ups

	ups=$(links_up)
	meet link-up
	if [ "$NODE" = 1 ]; then
		echo N >"$tool/link"
		wait_links N
		meet link-down
		echo Y >"$tool/link"
	else
		wait_link 0 N
		meet link-down
	fi
	wait_links Y
	retry "$patience" came_up_since "$ups" || fail "the link did not return"
	meet link-again

	if [ "$NODE" = 1 ]; then
		echo down >"$cable"
		wait_links N
		meet cable-pulled
		echo up >"$cable"
	else
		wait_link 0 N
		meet cable-pulled
	fi
	wait_links Y
	meet cable-back
	pass "link down and up, by the client and by the cable"
}

send_message() {
	pair_value "$me" "$2" >"$tool/peer$1/msg0"
}

# One message of each peer, in the order in which the registers show them.
test_messages() {
	local i text want seen=0 inbits outbits first

	inbits=$(($(<"$tool/msg_inbits")))
	first=$((inbits & -inbits))
	outbits=$(($(<"$tool/msg_outbits")))
	expect "$tool/msg_sts" 0 "no message yet"
	meet msg-start
	each_peer send_message
	meet msg-sent
	# A full register refuses, and says so.
	each_peer send_message
	[ $(($(<"$tool/msg_sts") & outbits)) != 0 ] ||
		fail "a message over an unread one was not refused"
	echo "c $outbits" >"$tool/msg_sts"
	meet msg-refused
	for ((i = 0; i < peer_count; i++)); do
		[ $(($(<"$tool/msg_sts") & inbits)) = $first ] ||
			fail "status $(<"$tool/msg_sts") with $((peer_count - i)) messages"
		text=$(<"$tool/msg0")
		want=$(pair_value "$(port_of_peer "${text#*<-}")" "$me")
		[ $((${text%<-*})) = "$want" ] || fail "message $text, not $want"
		seen=$((seen | 1 << ${text#*<-}))
		echo "c $first" >"$tool/msg_sts"
	done
	expect "$tool/msg_sts" 0 "all read"
	[ $seen = $(((1 << peer_count) - 1)) ] || fail "messages of peers $seen only"
	meet msg-read
	each_peer send_message
	timeout "$patience" bash -c "echo $first >$tool/msg_event" ||
		fail "no message after the registers were emptied"
	meet msg-done
	pass messages
}

hardware mw_count=$windows
load_tool
wait_links Y
expect "$tool/port" "$me"
meet up
test_scratchpads
test_doorbells
test_spoilt_doorbells
test_all_bits
test_windows
test_link
test_scratchpads
unload ntb_tool

hardware spads=0 msgs=4 vectors=1 mw_size=1048576
meet poor
load_tool
wait_links Y
meet poor-up
[ ! -e "$tool/spad0" ] || fail "spads=0 left scratchpads"
windows=1
test_messages
test_doorbells
test_windows
meet end
unload ntb_tool
unload ntb_hw_ivshmem
