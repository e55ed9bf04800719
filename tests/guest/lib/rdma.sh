# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests that run RDMA programs in pairs, one on node 1 and one on
# node 2, or both on the only node; sourced. Other nodes only come to the
# barriers.
set -euo pipefail
# shellcheck source=tests/guest/lib/base.sh
. "$(dirname "${BASH_SOURCE[0]}")/base.sh"

pair_number=0
step=0
hog_log=$LAB_OUT/hog.$NODE
bystander_log=$LAB_OUT/bystander.$NODE

ended() {
	! kill -0 "$1" 2>/dev/null
}

# meet: the nodes do, at the next of their common steps.
meet() {
	step=$((step + 1))
	lab-barrier "step-$step"
}

# reachable NODE: the link is up, and that node answers.
reachable() {
	(gid_index "$RDMA_DEV") >/dev/null 2>&1 &&
		grep -q ACTIVE "/sys/class/infiniband/$RDMA_DEV/ports/1/state" 2>/dev/null &&
		ping -q -n -c1 -W1 "10.77.0.$1" >/dev/null
}

# expect_reachable WHEN: all other nodes.
expect_reachable() {
	local peer

	for ((peer = 1; peer <= NODES; peer++)); do
		[ "$peer" = "$NODE" ] || retry "$patience" reachable "$peer" ||
			fail "node$peer does not answer after $1"
	done
}

# direct_bytes: that went past the lanes.
direct_bytes() {
	cat "/sys/class/infiniband/$RDMA_DEV/ports/1/hw_counters/tx_direct_bytes"
}

has_placed() {
	[ "$(direct_bytes)" -gt 0 ]
}

# expect_placed: where payload may be placed past the lanes, some is.
expect_placed() {
	[ "$(<"/sys/module/ropcie_ntb_if/parameters/direct_placement")" = N ] ||
		retry "$patience" has_placed || fail "no payload was placed directly"
}

listening() {
	ss -Hltn "sport = :$1" | grep -q .
}

# gid_index DEVICE: of the first RoCE v2 GID that stands for an IPv4 address.
gid_index() {
	local port=/sys/class/infiniband/$1/ports/1 index

	for ((index = 0; index < 128; index++)); do
		grep -q '^0000:0000:0000:0000:0000:ffff:' "$port/gids/$index" 2>/dev/null ||
			continue
		grep -q 'RoCE v2' "$port/gid_attrs/types/$index" 2>/dev/null || continue
		echo "$index"
		return
	done
	fail "$1 has no RoCE v2 GID of an IPv4 address"
}

# pair PORT COMMAND...: COMMAND is a server when it is given no host, which
# then listens on PORT, and a client when it is. It is called with -d DEVICE,
# and a word GID in it becomes the index of the device's GID.
pair() {
	local port=$1 server status=0

	shift
	pair_number=$((pair_number + 1))
	if [ "$NODE" = 1 ]; then
		on_device "$RDMA_DEV" "$@" &
		server=$!
		retry "$patience" listening "$port" ||
			fail "$1 does not listen on port $port"
	fi
	lab-barrier "pair-$pair_number"
	if [ "$NODES" = 1 ]; then
		on_device "${RDMA_DEV2:-$RDMA_DEV}" "$@" 127.0.0.1 || status=$?
	elif [ "$NODE" = 2 ]; then
		on_device "$RDMA_DEV" "$@" "$SERVER" || status=$?
	fi
	[ $status = 0 ] || fail "client: $* ended with status $status"
	[ "$NODE" != 1 ] || wait "$server" || fail "server: $* ended with status $?"
	lab-barrier "pair-done-$pair_number"
}

# on_device DEVICE COMMAND ARG...
on_device() {
	local device=$1 program=$2 gid

	shift 2
	gid=$(gid_index "$device")
	case $program in
	# perftest gives up when the clock of a busy host seems to be uneven.
	ib_*) set -- -F "$@" ;;
	esac
	"$program" -d "$device" "${@/#GID/$gid}"
}

# rdma_bytes DEVICE: that its verbs have sent and received.
rdma_bytes() {
	local counters=/sys/class/infiniband/$1/ports/1/hw_counters

	cat "$counters"/{tx,rx}_{send,write,read}_bytes |
		awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

has_more_bytes_than() {
	[ "$(rdma_bytes "$RDMA_DEV")" -gt "$1" ]
}

# hog_says LINE BEFORE: each of its sides on this node has, since there were so many of such
# lines; or it has ended instead.
hog_says() {
	[ "$(grep -c "^$1" "$hog_log")" -ge $(($2 + hog_sides)) ] || ended "$hog"
}

# start_hog QPS [OPTION...]: a program with traffic, which has begun; its peer may die.
start_hog() {
	start_strict_hog "$@" --peer-may-die
}

# start_strict_hog QPS [OPTION...]: one that also ends at an event of its queues.
start_strict_hog() {
	: >"$hog_log"
	rop_hog --qps "$@" --timeout $((2 * patience)) >"$hog_log" 2>&1 &
	hog=$!
	hog_sides=$((NODES == 1 ? 2 : NODE == 1 ? NODES - 1 : 1))
	retry "$patience" hog_says running 0 || fail "rop_hog does not run: $(<"$hog_log")"
	! ended "$hog" || fail "rop_hog has ended: $(<"$hog_log")"
}

# stop_hog: kills it, whatever it has seen; true if it lived until now. The bystander lives on.
stop_hog() {
	local status=0 hogs

	hogs=$(pgrep -x rop_hog | grep -vx "${bystander:-none}") || status=$?
	# shellcheck disable=SC2086 # several; one may end with another
	kill -KILL $hogs 2>/dev/null || true
	wait "$hog" 2>/dev/null || true
	return $status
}

# kill_hog: the same; it has failed in nothing, but that its peer was gone first.
kill_hog() {
	local status=0

	stop_hog || status=$?
	! grep '^FAILED' "$hog_log" | grep -v 'the peer is gone$' || fail "the traffic of rop_hog"
	return $status
}

# end_hog WHO...: the nodes WHO kill theirs, the others' must see it.
end_hog() {
	if [[ " $* " == *" $NODE "* ]]; then
		# Where several are killed, it may have ended for its peer's death.
		kill_hog || [ $# -gt 1 ] || fail "rop_hog was gone before it was killed: $(<"$hog_log")"
	else
		wait "$hog" || fail "rop_hog whose peer was killed: $(<"$hog_log")"
	fi
}

# expect_traffic WHEN: of the program that start_hog has started, on each of its queue pairs
# and in both directions.
expect_traffic() {
	local before

	before=$(grep -c '^all go on' "$hog_log") || true
	# shellcheck disable=SC2046 # several
	kill -USR1 "$hog" $(pgrep -P "$hog") || fail "the traffic has ended before $1: $(<"$hog_log")"
	retry "$patience" hog_says 'all go on' "$before" ||
		fail "some of the traffic stands still after $1: $(<"$hog_log")"
	! ended "$hog" || fail "the traffic ended with $1: $(<"$hog_log")"
}

# start_bystander: a program with traffic between two nodes that nothing is to disturb: it
# ends at the first error or event of a queue. It has what others leave of the processor.
start_bystander() {
	local hog hog_sides hog_log=$bystander_log

	start_strict_hog 2 --tcp-port 18900
	renice -n 19 -p "$hog" >/dev/null
	bystander=$hog spared=$hog
}

# expect_bystander WHEN [MOST]: it goes on, and has not stood still for MOST ms (4000: less
# than a peer may be silent) since it was asked before. All the others have ended.
expect_bystander() {
	local hog=$bystander hog_sides=1 hog_log=$bystander_log silent

	expect_traffic "$1"
	silent=$(sed -n 's/^all go on; silent for \([0-9]*\) ms at most$/\1/p' "$hog_log" | tail -n 1)
	echo "a bystander was silent for $silent ms at most"
	[ "$silent" -lt "${2:-4000}" ] || fail "others stood still for $silent ms with $1"
}

# end_bystander: all nodes have seen it alive.
end_bystander() {
	kill -KILL "$bystander" || true # its peer may have been killed first
	wait "$bystander" 2>/dev/null || true
	bystander='' spared=''
}

# Calls of a program's life, in its order, and those in which it sleeps: rop_stage.
stages=(open pd mr odp mw dm xrc srq ah cq qp init rtr rts post poll event wait async)

# at_stage STAGE: its program is there, or has ended instead.
at_stage() {
	grep -qx "at $1" "$LAB_OUT/stage.$1.$NODE" || ended "${staged[$1]}"
}

# start_stages: a program at each of them. Some never sleep: they share with a bystander what
# others leave of the processor.
start_stages() {
	local stage

	declare -gA staged=()
	for stage in "${stages[@]}"; do
		: >"$LAB_OUT/stage.$stage.$NODE"
		NODE=1 NODES=1 nice -n 19 rop_stage --stage "$stage" >"$LAB_OUT/stage.$stage.$NODE" 2>&1 &
		staged[$stage]=$!
	done
	for stage in "${stages[@]}"; do
		retry "$patience" at_stage "$stage" || fail "rop_stage does not come to $stage"
		! ended "${staged[$stage]}" || fail "rop_stage at $stage: $(<"$LAB_OUT/stage.$stage.$NODE")"
	done
}

# Objects that a process holds, of any device, but $spared, or that have outlived theirs,
# which have no pid; the kernel's own have a name in brackets. Windows, address handles, XRC
# domains and device memory are not shown, but keep a context or a PD.
user_objects() {
	local kind

	for kind in qp cq mr pd srq cm_id ctx; do
		{ rdma res show $kind 2>/dev/null || echo "rdma has failed"; } |
			sed "/ pid ${spared:-none} /d; / comm \[/d; s/^/$kind: /"
	done
}

no_user_objects() {
	[ -z "$(user_objects)" ]
}

expect_no_user_objects() {
	retry "$patience" no_user_objects || fail "left behind after $1:"$'\n'"$(user_objects)"
}

# disk_io DISK FIO-OPTION...: every byte is verified.
disk_io() {
	local disk=$1 status=0

	shift
	timeout $((2 * patience)) fio --name=io --filename="$disk" --allow_file_create=0 --direct=1 --ioengine=libaio \
		--verify=crc32c --verify_fatal=1 --group_reporting --minimal "$@" \
		>"$LAB_OUT/fio" 2>&1 || status=$?
	[ $status = 0 ] || {
		cat "$LAB_OUT/fio"
		fail "fio $* ended with status $status"
	}
	pass "fio $*"
}
