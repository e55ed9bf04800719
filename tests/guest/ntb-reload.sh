#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --no-setup -- 3
# lab-long: --nodes 3 --no-setup
#
# The last node's driver goes and comes again: unloaded, killed without a
# word, stopped for longer than the heartbeat allows, and unloaded in the
# middle of traffic. Each time the link returns and works, and the links of
# the other nodes among themselves never notice.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"

rounds=${1:-5}
# Not less: a busy machine may leave a guest alone for a second.
fast="heartbeat_ms=50 timeout_ms=4000"
victim=$((NODES - 1))
round=0

is_victim() {
	[ "$me" = $victim ]
}

# Of the ends that the victim has no part in.
quiet_epochs() {
	local pidx

	for ((pidx = 0; pidx < peer_count; pidx++)); do
		[ "$(port_of_peer $pidx)" = $victim ] || epoch_of $pidx
	done
}

# More links have come up than before: one for a bystander, all for the victim.
came_again() {
	[ "$(links_up)" -gt "$ups" ]
}

# Both directions work: each end has written something new to the other.
exchange() {
	local pidx

	round=$((round + 1))
	for ((pidx = 0; pidx < peer_count; pidx++)); do
		echo $((round * 100 + me)) >"$tool/peer$pidx/spad$me"
	done
	meet "written-$round"
	for ((pidx = 0; pidx < peer_count; pidx++)); do
		expect "$tool/spad$(port_of_peer $pidx)" \
			$((round * 100 + $(port_of_peer $pidx))) "after $1"
	done
	meet "read-$round"
}

victim_unload() {
	unload ntb_tool
	unload ntb_hw_ivshmem
}

victim_reload() {
	# shellcheck disable=SC2086 # a list of words
	hardware $fast
	ups=0
	load_tool
}

# Its own words stay as they are: nobody is told.
victim_killed() {
	echo dead >"$cable"
	victim_unload
	victim_reload
}

victim_gone_and_back() {
	victim_unload
	meet "gone-$round"
	victim_reload
}

# As a guest that is stopped: it comes back as what it was.
victim_stopped() {
	ups=$(links_up)
	echo dead >"$cable"
	meet "gone-$round"
	echo up >"$cable"
}

# happens TIMES NAME ACTION: the others see the link to the victim go, and return.
happens() {
	local times=$1 name=$2 action=$3 epochs i downs=wait

	[ "$action" = victim_killed ] && downs=
	for ((i = 0; i < times; i++)); do
		epochs=$(quiet_epochs)
		ups=$(links_up)
		meet "start-$round"
		if is_victim; then
			"$action"
		elif [ -n "$downs" ]; then
			wait_link "$((victim < me ? victim : victim - 1))" N
			meet "gone-$round"
		fi
		retry "$patience" came_again || fail "no link after the driver was $name"
		wait_links Y
		exchange "the driver was $name"
		[ "$(quiet_epochs)" = "$epochs" ] || is_victim ||
			fail "a link that had no part in it went down"
	done
	pass "$times times $name"
}

# Doorbells fly while the driver goes, at any moment.
in_traffic() {
	local i count

	meet checked
	unload ntb_tool
	meet traffic
	load ntb_pingpong delay_ms=0
	for ((i = 0; i < 4 * rounds; i++)); do
		if is_victim; then
			sleep "0.$((RANDOM % 8))"
			unload ntb_hw_ivshmem
			# shellcheck disable=SC2086 # a list of words
			hardware $fast
		fi
	done
	meet traffic-settles
	count=$(<$ntb_debugfs/ntb_pingpong/*/count)
	retry "$patience" eval "[ \$(<$ntb_debugfs/ntb_pingpong/*/count) -gt $((count + 10)) ]" ||
		fail "no doorbells after $((4 * rounds)) unloads in mid-traffic"
	meet traffic-done
	unload ntb_pingpong
	pass "$((4 * rounds)) times unloaded in mid-traffic"
}

# shellcheck disable=SC2086 # a list of words
hardware $fast
load_tool
wait_links Y
meet up
exchange "the start"
happens "$rounds" unloaded victim_gone_and_back
happens "$rounds" killed victim_killed
happens 2 stopped victim_stopped
in_traffic
meet end
unload ntb_hw_ivshmem
