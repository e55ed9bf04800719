# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests that lose the emulated NTB's link under traffic; sourced after
# rdma.sh.
faults_log=$LAB_OUT/faults.$NODE
# Nothing while the driver is not loaded, as some tests before another leave it.
cable=$(compgen -G '/sys/kernel/debug/ntb_hw_ivshmem/*/link') || true

# Module parameters in ms; $1: module, $2: parameter.
link_ms() {
	cat "/sys/module/$1/parameters/$2"
}

# silence_ms: after which a peer that says nothing is dead; whoever is less patient.
silence_ms() {
	local ours theirs

	ours=$(link_ms ropcie_ntb_if heartbeat_limit_ms)
	theirs=$(link_ms ntb_hw_ivshmem timeout_ms)
	echo $((ours < theirs ? ours : theirs))
}

# Nothing can be read there, and it has no end.
exec {never}<> <(:)

# cut_for WORD SECONDS: the cable is pulled (down), this port falls silent (dead), its link
# is up again before anybody looks (blip), its device sleeps (asleep), or this node does
# (pause). No program is loaded meanwhile, which takes a busy node longer.
cut_for() {
	if [ "$1" = pause ]; then
		lab-pause "$2" || fail "the lab does not pause"
		return
	fi
	if [ "$1" = asleep ]; then
		echo 1 >"/sys/kernel/debug/ropcie_ktest/$RDMA_DEV/sleep" || fail "the device does not sleep"
		read -rt "$2" -u "$never" || true
		echo 0 >"/sys/kernel/debug/ropcie_ktest/$RDMA_DEV/sleep" || fail "the device does not wake"
		return
	fi
	[ -n "$cable" ] || fail "the link has no knob"
	echo "$1" >"$cable"
	read -rt "$2" -u "$never" || true
	echo up >"$cable"
}

# await_round N PROCESS WHEN: rop_faults has begun N rounds with traffic, with all peers
# together. Its own limit of time says better what is missing.
runs() {
	[ "$(grep -c running "$faults_log")" -ge "$1" ] || ended "$2"
}

await_round() {
	retry $((3 * patience)) runs "$1" "$2" || true
	[ "$(grep -c running "$faults_log")" -ge "$1" ] ||
		fail "no traffic $3: $(<"$faults_log")"
}

# expect_noticed LEAST MOST TURNS [LATE]: each queue pair of rop_faults with each peer had its
# first error no sooner after its last success than LEAST ms, and no later than MOST ms
# and what a busy machine adds; the events came with the errors, or LATE ms later. What comes
# at once (0) comes before a heartbeat could tell, however slow the machine is.
expect_noticed() {
	local least most told count=0 slack=$((patience * 1000 / 24)) beats

	beats=$(($(silence_ms) - 2 * $(link_ms ropcie_ntb_if heartbeat_ms)))
	[ "$2" -gt 0 ] || [ $slack -lt $beats ] || slack=$((beats - 1))
	while read -r least most told; do
		[ "$least" -ge "$1" ] || fail "noticed $least ms after the last success: sooner than $1"
		[ "$most" -le $(($2 + slack)) ] ||
			fail "noticed $most ms after the last success: later than $2 and $slack"
		[ "$told" -le $((${4:-0} + slack)) ] || fail "an event came $told ms after the first error"
		count=$((count + 1))
	done < <(sed -n 's/^noticed after \([0-9]*\) to \([0-9]*\) ms, events \([0-9]*\) ms later$/\1 \2 \3/p' "$faults_log")
	[ "$count" -ge "$3" ] || fail "noticed $count times, not $3: $(<"$faults_log")"
	grep -vE '^(running|over)' "$faults_log"
}

# expect_silence_noticed TURNS: of a peer that says nothing any more. What it said last
# may have come two heartbeats before it stopped, and a busy machine's program sees a
# success a little late.
expect_silence_noticed() {
	local limit

	limit=$(silence_ms)
	expect_noticed $((limit - 2 * $(link_ms ropcie_ntb_if heartbeat_ms) - 4 * patience)) "$limit" "$1"
}

# expect_reason PATTERN: so the log says, since lose() began, why a link was lost.
expect_reason() {
	local said

	said=$(dmesg | sed -n "/link.sh: $mark\$/,\$p")
	grep -qE "lost: ($1)" <<<"$said" || fail "no link was lost for the reason '$1': $(grep 'link to' <<<"$said")"
}

# lose WORD SECONDS TURNS [NODE]: node NODE (1) does it, in each round of rop_faults,
# for longer than is forgiven. With more than two nodes it has to be node 1, which alone
# loses its port; the others keep each other.
lose() {
	local turn test pairs=1 times=2 others=() mark=$RANDOM$RANDOM hardware="the hardware's link went down"

	[ "$NODES" = 2 ] || [ "$NODE" = "${4:-1}" ] || others=(--port-stays)
	# While it stands still all time counts as spent by the one thread that was running, which
	# then waits until others have had as much, as rop_faults polls: the one with the news, say.
	# Where more than one of them runs that is longer than it stood still.
	[ "$1" != pause ] || times=10
	[ "$NODE" != 1 ] || pairs=$((NODES - 1))
	: >"$faults_log"
	echo "link.sh: $mark" >/dev/kmsg
	rop_faults --rounds "$3" "${others[@]}" --timeout $((times * patience)) >"$faults_log" 2>&1 &
	test=$!
	for ((turn = 1; turn <= (NODE == ${4:-1} ? $3 : 0); turn++)); do
		await_round $((turn * pairs)) "$test" "in turn $turn"
		sleep "0.$((RANDOM % 5))"
		cut_for "$1" "$2"
	done
	wait "$test" || fail "a link lost for $2 s ($1): $(<"$faults_log")"
	case $1 in
	pause)
		# It goes on where it was, with what had come meanwhile, and hears that it was
		# given up.
		if [ "$NODE" = "${4:-1}" ]; then
			expect_noticed 0 $(($2 * 2000)) $(($3 * pairs)) $(($2 * 2000))
		else
			expect_silence_noticed $(($3 * pairs))
			# The NTB's driver may listen to heartbeats of its own, as impatiently.
			expect_reason "no heartbeat|$hardware"
		fi
		;;
	down)
		expect_noticed 0 0 $(($3 * pairs))
		# The other end may see words that are clear, or even new, before it hears of the
		# hardware.
		if [ "$NODE" = "${4:-1}" ]; then
			expect_reason "$hardware"
		else
			expect_reason "$hardware|the other end has (left|begun another)"
		fi
		;;
	*) expect_noticed 0 0 $(($3 * pairs)) ;; # a port that is dead does its work until it is given up
	esac
	expect_no_user_objects "a link lost for $2 s ($1)"
	lab-barrier "lost-$1"
	pass "a link lost for $2 s ($1), $3 times"
}

# What this node's verbs know of their links.
link_counters() {
	grep . "/sys/class/infiniband/$RDMA_DEV/ports/1/hw_counters/"{link_ups,link_losses,protocol_errors}
}

# be_silent WORD SECONDS TURNS [NODE]: node NODE (1) is, for less than the limit (dead or
# pause). Traffic waits for it, and nobody notices.
be_silent() {
	local turn before

	before=$(link_counters)
	start_strict_hog 4
	lab-barrier short
	for ((turn = 1; turn <= $3; turn++)); do
		[ "$NODE" != "${4:-1}" ] || cut_for "$1" "$2"
		lab-barrier "short-$turn"
		expect_traffic "a silence of $2 s"
	done
	[ "$(link_counters)" = "$before" ] || fail "a silence of $2 s was noticed: $before"$'\n'"$(link_counters)"
	lab-barrier short-over
	kill_hog || true # its peer may have been killed first
	expect_no_user_objects "a short silence"
	pass "a silence of $2 s ($1), $3 times"
}

# The receiver has its end, or more than BYTES.
goes_on() {
	ended "$1" || netdev_has_more_than "$2"
}

# tcp_over NODE COMMAND...: node NODE runs it once, in the midst of TCP in both
# directions, whose connections outlive it: its next retransmission is at most as late
# again as the loss was long. Wants tcp.sh.
tcp_over() {
	local peer=$((3 - NODE)) who=$1 receiver sender before began

	shift
	before=$(<"/sys/class/net/$NETDEV/statistics/rx_bytes")
	receive_from "$peer" &
	receiver=$!
	send_to "$peer" &
	sender=$!
	if [ "$NODE" = "$who" ]; then
		retry "$patience" netdev_has_more_than $((before + tcp_bytes / 16)) || fail "no TCP from node$peer"
		! ended "$receiver" || fail "TCP from node$peer was over before $*"
		began=$SECONDS
		"$@"
		expect_reachable "$*"
		before=$(<"/sys/class/net/$NETDEV/statistics/rx_bytes")
		retry $((SECONDS - began + patience / 12)) goes_on "$receiver" $((before + 65536)) ||
			fail "TCP from node$peer stands still after $*"
	fi
	wait "$sender" || fail "TCP to node$peer over $*"
	wait "$receiver" || fail "TCP from node$peer over $*"
	expect_reachable "$*"
}

# The disk's user has its end, or has done more than so many requests.
disk_goes_on() {
	ended "$1" || disk_has_done_more_than "$2"
}

# nvme_over NODE COMMAND...: the same under NVMe over Fabrics, whose host connects
# again if it has to, and its IO goes on. Wants nvmet.sh.
nvme_over() {
	local before who=$1 io

	shift
	[ "$NODE" != 1 ] || start_target
	lab-barrier target
	if [ "$NODE" = 2 ]; then
		connect
		before=$(disk_requests)
		disk_io "$disk" --rw=randrw --bs=4k --iodepth=32 --size=8m --time_based --runtime=$((patience * 17 / 60)) &
		io=$!
		retry "$patience" disk_has_done_more_than $((before + 1000)) || fail "fio does nothing"
	fi
	lab-barrier busy
	[ "$NODE" != "$who" ] || "$@"
	lab-barrier disturbed
	if [ "$NODE" = 2 ]; then
		! ended "$io" || fail "fio was over before $* was"
		before=$(disk_requests)
		retry $((patience / 4)) disk_goes_on "$io" $((before + 10)) || fail "NVMe over Fabrics stands still after $*"
		wait "$io" || fail "fio over $*"
		disconnect
	fi
	lab-barrier used
	[ "$NODE" != 1 ] || stop_target
}

# What this node knows of the loss of links: verbs, the interface, NVMe over Fabrics.
losses_seen() {
	link_counters
	cat "/sys/class/net/$NETDEV/carrier_changes"
	dmesg | grep -cE 'nvme.*(recovery|[Rr]econnect|timeout)' || true
}

# unseen COMMAND...: nobody notices any loss meanwhile.
unseen() {
	local before

	dmesg -C # or it forgets what is counted here
	before=$(losses_seen)
	"$@"
	[ "$(losses_seen)" = "$before" ] || fail "$* was noticed: $before"$'\n'"$(losses_seen)"
}
