#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 3 --kernel-args "iomem=relaxed nopat" -- 1
# lab-long: --nodes 3 --kernel-args "iomem=relaxed nopat" --timeout 3600 -- 50
# lab: --nodes 3 --kernel-args "iomem=relaxed nopat" --module-params ntb_hw_ivshmem:family=idt -- 1
# lab-long: --nodes 3 --flat --mem 512 --kernel-args "iomem=relaxed nopat" --module-params ropcie_ntb_if:direct_placement=1 -- 1
#
# hostile.sh [TURNS [SEED]]: node 1 writes what it likes to the others (rop_hostile),
# TURNS times, while all have traffic with each other, but where it is looked whether their
# processors have rest. That of nodes 2 and 3 is right and goes on undisturbed, not a byte
# of theirs changes that node 1 has no right to (rop_guarded), their logs say who it is and
# what it did, not more often than they should. On an NTB that has message registers instead
# of scratchpads node 1 only tells the others what it likes of a handshake. Afterwards node 1
# comes back as a good peer, and the others take it, without reloading anything.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"

turns=${1:-3}
seed=${2:-1} # the same on all nodes
traffic=(rop_traffic --quick)
[ "$turns" -gt 1 ] || traffic=(rop_sendrecv) # which takes a moment
least_offences=10
storm_s=3 # at least, and
storm_bells=500
calm_s=5
flood_s=9 # longer than the kernel counts lines of a kind together
busy_most=50 # percent of a processor, beyond what it does at rest
state=$(compgen -G '/sys/kernel/debug/ropcie_ntb_if/*/state') || fail "no state in debugfs"
guarded_log=$LAB_OUT/guarded.$NODE
kernel_log=$LAB_OUT/kernel.$NODE # of this turn

# counter NAME: of this node's adapter.
counter() {
	sed -n "s/^$1 //p" "$state"
}

# more_than NAME NUMBER: it has become so.
more_than() {
	[ "$(counter "$1")" -gt "$2" ]
}

# victims COMMAND...: between nodes 2 and 3.
victims() {
	NODE=$((NODE - 1)) NODES=2 SERVER=10.77.0.2 "$@"
}

# Node 1 starts again, as after a reboot.
restart() {
	unload_modules ntb_hw_ivshmem
	load_modules ntb_hw_ivshmem
}

# With every other node.
good_traffic() {
	expect_reachable "the attack"
	lab-barrier "reached-$1"
	rop_sendrecv || fail "rop_sendrecv ended with status $? after the attack"
}

# Traffic of all nodes with node 1.
guarded_began() {
	grep -q '^running' "$guarded_log" || ended "$guarded"
}

start_guarded() {
	: >"$guarded_log"
	rop_guarded --qps 4 --seed "$1" --timeout "$patience" >"$guarded_log" 2>&1 &
	guarded=$!
	retry "$patience" guarded_began || true
	grep -q '^running' "$guarded_log" || fail "rop_guarded does not run: $(<"$guarded_log")"
}

# It looks what has become of its memory. Node 1 has a process for each of the others.
stop_guarded() {
	# shellcheck disable=SC2046 # several
	kill -TERM $(pgrep -P "$guarded" || echo "$guarded") || true
	wait "$guarded" || fail "rop_guarded: $(<"$guarded_log")"
	grep '^guarded' "$guarded_log"
}

# busy SECONDS: how much of a processor was in use meanwhile, in percent.
busy() {
	local begin end

	begin=$(</proc/uptime)
	sleep "$1"
	end=$(</proc/uptime)
	echo "$begin $end $(nproc)" | awk '{ print int(100 * ($5 - ($4 - $2) / ($3 - $1))) }'
}

# expect_limited TEXT: lines of a peer came ten times at most in each five seconds that
# begin with one (Linux's DEFAULT_RATELIMIT_BURST and _INTERVAL, of which a busy machine's
# stamps may show less), and so often once at least. Which lines began some is not known,
# but some choice must fit; the first one did, if the log has its beginning.
expect_limited() {
	dmesg | awk -v text="$1" '
		{ stamp = substr($0, 2) + 0 }
		NR == 1 { whole = stamp < 1 }
		$0 ~ text { at[++lines] = stamp; begins[lines] = lines <= (whole ? 1 : 11) }
		END {
			for (i = 1; i <= lines; i++) {
				if (!begins[i])
					continue
				last = i
				for (j = i + 1; j <= i + 10 && j <= lines; j++)
					if (at[j] - at[i] > 4)
						begins[j] = 1
			}
			exit lines < 10 || lines > last + 9
		}' || fail "too many lines in the log, or too few: $1"
}

# The log names node 1 and what it did, and nobody else.
expect_accused() {
	local said="(it sent a malformed record|it claims to have consumed what was not sent)"

	said="\(peer 0\) broke the protocol: $said, its link starts again"
	dmesg | sed -n "/hostile.sh: turn $turn\$/,\$p" >"$kernel_log"
	grep -qE "$mac $said" "$kernel_log" || fail "the log does not say that $mac broke the protocol, and how"
	! grep 'broke the protocol' "$kernel_log" | grep -vE "$said" || fail "the log says that otherwise"
	! grep -E '\(peer 1\) lost|peer 1 refused' "$kernel_log" || fail "the link of nodes 2 and 3"
	expect_limited '\\(peer 0\\)|peer 0 refused'
	grep -q 'port 0 has other ' "$kernel_log" || fail "the log does not say that port 0 is of another kind"
	! grep -q 'port 2 has other ' "$kernel_log" || fail "the log says that port 2 is of another kind"
}

# It looks where answers to node 1 are.
sees_answers() {
	grep -q '^sees what is public' "$LAB_OUT/hostile"
}

# attack NAME STAGE: until the others have had enough.
attack() {
	: >"$LAB_OUT/hostile"
	rop_hostile --stage "$2" --seed "$((seed + turn))" --timeout "$patience" >"$LAB_OUT/hostile" 2>&1 &
	hostile=$!
	retry "$patience" grep -q '^hostile' "$LAB_OUT/hostile" || fail "$(<"$LAB_OUT/hostile")"
	cat "$LAB_OUT/hostile"
	lab-barrier "$1-$turn"
	lab-barrier "$1-over-$turn"
	[ "$1" != any ] || retry "$patience" sees_answers || fail "rop_hostile has not seen what it may: $(<"$LAB_OUT/hostile")"
	kill "$hostile" || fail "rop_hostile has ended: $(<"$LAB_OUT/hostile")"
	wait "$hostile" || true
}

# begin STAGE: the kernel's log tells when.
begin() {
	echo "hostile.sh: $1" >/dev/kmsg
	lab-barrier "$1-$turn"
}

# last SECONDS: until so many since $began.
last() {
	while [ $((SECONDS - began)) -lt "$1" ]; do
		sleep 0.1
	done
}

# Doorbells without end or reason do no harm, to nobody's link.
weather_storm() {
	local bells losses errors began

	begin storm
	began=$SECONDS
	bells=$(counter doorbells_received) losses=$(counter link_losses)
	errors=$(counter protocol_errors)
	victims rop_sendrecv --rounds 1 || fail "rop_sendrecv of others ended with status $? in a storm"
	last $storm_s
	retry "$patience" more_than doorbells_received $((bells + storm_bells)) || fail "there was no storm"
	expect_bystander "a storm of doorbells"
	pass "storm: $(($(counter doorbells_received) - bells)) doorbells"
	[ "$(counter link_losses)" = "$losses" ] || fail "doorbells end links"
	[ "$(counter protocol_errors)" = "$errors" ] || fail "doorbells are protocol errors"
	lab-barrier "storm-over-$turn"
}

defend() {
	local before

	before=$(counter protocol_errors)
	begin any
	victims "${traffic[@]}" --seed "$((seed + turn))" ||
		fail "traffic of others ended with status $? under attack"
	# However slow the attacker's host is.
	retry "$patience" more_than protocol_errors $((before + least_offences)) ||
		fail "the attack was not noticed often"
	expect_bystander "an attack"
	lab-barrier "any-over-$turn"
	end_bystander
	pass "turn $turn: offended $(($(counter protocol_errors) - before)) times"
}

# Has the kernel kept lines to itself since this turn began?
log_is_limited() {
	dmesg | sed -n "/hostile.sh: turn $turn\$/,\$p" | grep -q 'callbacks suppressed'
}

# expect_rest SECONDS: no traffic, but an attack goes on. KCSAN stops whoever uses memory, and
# says nothing of processors.
expect_rest() {
	used=$(busy "$1")
	[ ! -e /sys/kernel/debug/kcsan ] || return 0
	[ "$used" -lt $((control + busy_most)) ] ||
		fail "$used percent of the processor are used, $control at rest: $(ps -eo cputimes,stat,comm --sort=-cputimes | head)"
}

# Whatever stands in indices and words, nobody looks at it all the time.
keep_calm() {
	begin calm
	expect_rest $calm_s
	pass "no traffic: $used percent busy ($control at rest)"
	lab-barrier "calm-over-$turn"
}

# Who was cut off gets no more than its part.
withstand_flood() {
	local before

	before=$(counter protocol_errors)
	begin flood
	expect_rest $flood_s
	victims rop_sendrecv --rounds 1 || fail "rop_sendrecv of others ended with status $? in a flood"
	retry "$patience" more_than protocol_errors $((before + least_offences)) || fail "nobody noticed the flood: $(<"$state")"
	retry "$patience" log_is_limited || fail "the log has never been too long"
	pass "flood: offended $(($(counter protocol_errors) - before)) times, $used percent busy ($control at rest)"
	lab-barrier "flood-over-$turn"
}

has_told() {
	grep -q '^told many words' "$LAB_OUT/hostile" || ended "$hostile"
}

# tell_words: any messages, until the others have had enough.
tell_words() {
	: >"$LAB_OUT/hostile"
	rop_hostile --stage words --seed "$((seed + turn))" --timeout "$patience" >"$LAB_OUT/hostile" 2>&1 &
	hostile=$!
	lab-barrier "words-$turn"
	retry $((3 * patience)) has_told || true # it may have ended
	grep -q '^told many words' "$LAB_OUT/hostile" || fail "no words: $(<"$LAB_OUT/hostile")"
	lab-barrier "told-$turn"
	lab-barrier "heard-$turn"
	lab-barrier "words-over-$turn"
	kill "$hostile" || fail "rop_hostile has ended: $(<"$LAB_OUT/hostile")"
	wait "$hostile" || true
}

hear_words() {
	victims start_bystander
	lab-barrier "words-$turn"
	victims "${traffic[@]}" --seed "$((seed + turn))" || fail "traffic of others ended with status $? under any words"
	lab-barrier "told-$turn"
	expect_bystander "any words"
	lab-barrier "heard-$turn"
	end_bystander
	dmesg | sed -n "/hostile.sh: turn $turn\$/,\$p" >"$kernel_log"
	grep -q 'peer 0 refused' "$kernel_log" || fail "no word of a handshake was heard"
	! grep -E '\(peer 1\) lost|peer 1 refused' "$kernel_log" || fail "the link of nodes 2 and 3"
	expect_rest $calm_s
	pass "any words: $used percent busy ($control at rest)"
	lab-barrier "words-over-$turn"
}

words() {
	if [ "$NODE" = 1 ]; then
		tell_words
	else
		hear_words
	fi
}

everything() {
	if [ "$NODE" = 1 ]; then
		attack storm storm
	else
		victims start_bystander
		weather_storm
	fi
	start_guarded "$((seed + turn))"
	lab-barrier "guarded-$turn"
	if [ "$NODE" = 1 ]; then
		attack any any
		stop_guarded
		attack calm any
		attack flood flood
	else
		defend
		stop_guarded
		keep_calm
		withstand_flood
		expect_accused
	fi
}

for ((turn = 1; turn <= turns; turn++)); do
	echo "hostile.sh: turn $turn" >/dev/kmsg
	mac=$(sed -n 's/^peer 0: link up, \([0-9a-f:]*\) .*/\1/p' "$state")
	[ "$NODE" = 1 ] || control=$(busy 1)
	lab-barrier "rested-$turn"
	if [ "$(</sys/module/ntb_hw_ivshmem/parameters/family)" = idt ]; then
		words
	else
		everything
	fi
	expect_no_user_objects "an attack"
	lab-barrier "peace-$turn"
	[ "$NODE" != 1 ] || restart
	good_traffic "$turn"
done
pass "traffic under attack"
