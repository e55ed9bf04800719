# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every guest test has; sourced.
# shellcheck disable=SC2034 # used where it is sourced
patience=${LAB_PATIENCE:-60} # seconds; more on slow kernels

fail() {
	echo "FAILED: $*"
	exit 1
}

pass() {
	echo "ok: $*"
}

# left_out WHY: the whole test, on each node; scripts/test counts it as skipped.
left_out() {
	echo "left out: $*"
	touch "$LAB_OUT/left-out.$NODE"
	exit 0
}

# retry SECONDS COMMAND...: until it is true.
retry() {
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

# all_answered NAME ADDRESS PING-ARGUMENT...: but perhaps the last ones, for which ping waits
# only as long as two others took: as many as were under way at once ("pipe").
all_answered() {
	local name=$1 said sent answers last under_way

	shift
	said=$(ping -n "$@") || fail "$name: ping $*: $said"
	sent=$(sed -n 's/^\([0-9]*\) packets transmitted.*/\1/p' <<<"$said")
	answers=$(sed -n 's/.* icmp_seq=\([0-9]*\) .*/\1/p' <<<"$said" | sort -nu)
	last=$(tail -n 1 <<<"$answers")
	under_way=$(sed -n 's/.*, pipe \([0-9]*\)$/\1/p' <<<"$said")
	# Those before the last answer all have one.
	if [ "${sent:-0}" = 0 ] || [ "$(wc -l <<<"$answers")" != "$last" ] ||
		[ "$last" -lt $((sent - ${under_way:-1})) ]; then
		fail "$name: ping $*: $said"
	fi
}

# linux_loses WORD: what no leak is here; see the lab's count-leaks.
linux_loses() {
	echo "$1" >>/run/linux-loses
}

# hears PATTERN: a line of the kernel log has it.
hears() {
	grep -q "$1" <<<"$(dmesg)"
}
