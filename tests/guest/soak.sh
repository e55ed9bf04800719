#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --timeout 7200 -- 60
#
# soak.sh [MINUTES [SEED [EPISODE...]]]: episodes of everything that two nodes do, in an
# order that the seed decides: all of them (or those that are named), shuffled, again and
# again. After each nothing is left behind, and new connections work; memory does not grow
# from the second time of all of them to the last (memory.sh). Of what it prints
# with "soak:" in front, scripts/soak makes its report; an episode alone, with the seed
# that it began with, is the same again.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"
# shellcheck source=tests/guest/lib/link.sh
. "$(dirname "$0")/lib/link.sh"
# shellcheck source=tests/guest/lib/cm.sh
. "$(dirname "$0")/lib/cm.sh"
# shellcheck source=tests/guest/lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"
# shellcheck source=tests/guest/lib/memory.sh
. "$(dirname "$0")/lib/memory.sh"

end=$((SECONDS + ${1:-60} * 60))
state=${2:-1}
# Some also run while rop_hog has the link busy; the others want it for themselves, or
# lose it.
calm=(traffic queue_pairs paging perftest connections tcp nvme)
kinds=("${calm[@]}" errors limits silence losses kills tcp_losses nvme_losses reload)
for kind in "${@:3}"; do
	[[ " ${kinds[*]} " == *" $kind "* ]] || fail "there is no episode $kind, but ${kinds[*]}"
done
[ $# -le 2 ] || kinds=("${@:3}")
over=$LAB_OUT/soak.over # node 1 says so
log=$LAB_OUT/soak.$NODE
peer=$((3 - NODE))
tcp_bytes=$((64 << 20))
deck=()
declare -A counts

# draw COUNT: sets $drawn to one of 0 to COUNT - 1. All nodes draw the same, so it is not
# called where only one of them comes along, nor in a subshell.
draw() {
	state=$(((state * 1103515245 + 12345) & 0x7fffffff))
	drawn=$(((state >> 16) % $1))
}

# draw_node: sets $who.
draw_node() {
	draw 2
	who=$((1 + drawn))
}

# draw_loss: sets $how and $long, of which rop_faults and TCP have to see the loss.
draw_loss() {
	draw 10
	if [ "$drawn" -lt 6 ]; then
		how=down long=0.$((1 + drawn))
	else
		how=dead long=$((1 + drawn)) # the limit is 5 s
	fi
}

# run COMMAND...: it ends well.
run() {
	"$@" >"$log" 2>&1 || fail "$* ended with status $?: $(<"$log")"
}

# counter PATTERN: those of the device's counters, summed up.
counter() {
	rdma statistic show link "$RDMA_DEV/1" | grep -oE "\b$1 [0-9]+" |
		awk '{ sum += $2 } END { printf "%.0f\n", sum }'
}

# objects: of the device, those of the kernel's too, but completion queues that Linux keeps
# until the device goes, for the next who wants one (ib_cq_pool_put()). Of these there is
# one of a kind for each processor: two kinds are in use here.
objects() {
	local unused

	unused=$(rdma res show cq | grep "^dev $RDMA_DEV " | grep -c ' users 0 .* comm \[ib_core\]' || true)
	[ "$unused" -le $((2 * $(nproc))) ] || echo "$unused completion queues in the pool"
	rdma res show "$RDMA_DEV" | sed 's/^[0-9]*: //' | awk -v unused="$unused" '
		{ for (i = 1; i < NF; i++) if ($i == "cq") $(i + 1) -= unused; print }'
}

has_first_objects() {
	[ "$(objects)" = "$first_objects" ]
}

# count WHAT NUMBER: for the report.
count() {
	counts[$1]=$((counts[$1] + $2))
}

# count_device FACTOR: 1 at the end of a time, -1 at its start.
count_device() {
	count bytes $(($1 * $(counter 'tx_[a-z]+_bytes')))
	count losses $(($1 * $(counter link_losses)))
}

traffic() {
	draw 32768
	run rop_traffic --quick --seed "$drawn" --timeout $((2 * patience))
}

queue_pairs() {
	local qps

	draw 200
	qps=$((1 + drawn))
	draw 32768
	run rop_many_qps --qps $qps --seed "$drawn" --timeout $((2 * patience))
}

# WRITE, READ and atomics to memory that comes and goes.
paging() {
	run rop_odp --quick --timeout $((2 * patience))
}

perftest() {
	local programs=(
		"ib_send_bw" "ib_send_bw -e" "ib_send_bw -c XRC" "ib_send_bw -q 8 -b"
		"ib_send_lat" "ib_send_lat -e" "ib_send_lat -c XRC"
		"ib_write_bw" "ib_write_bw -c UC" "ib_write_bw -q 8 -b" "ib_write_lat" "ib_write_lat -c UC"
		"ib_read_bw" "ib_read_bw -e" "ib_read_bw -q 8 -b" "ib_read_lat" "ib_read_lat -c XRC"
		"ib_atomic_bw" "ib_atomic_bw -A CMP_AND_SWAP -q 8" "ib_atomic_lat -e"
	)
	local program size

	for _ in 1 2 3 4; do
		draw ${#programs[@]}
		program=${programs[drawn]}
		draw 17
		size="-s $((1 << drawn))"
		[ "${program#ib_atomic}" = "$program" ] || size=
		# shellcheck disable=SC2086
		(pair 18515 $program $size -n 100) >"$log" 2>&1 || fail "$(<"$log")"
	done
}

connections() {
	draw 400
	count connects $((1 + drawn))
	connects $((1 + drawn))
	draw 16
	count connects $((1 + drawn))
	between ucmatose -c $((1 + drawn)) -C 10 -- ucmatose -s "$SERVER" -c $((1 + drawn)) -C 10
	draw 32768
	count connects 1
	between rping -s -S $((64 + drawn)) -V -C 20 -- rping -c -a "$SERVER" -S $((64 + drawn)) -V -C 20
	count connects 1
	between rstream -S 65536 -C 50 -- rstream -s "$SERVER" -S 65536 -C 50
}

tcp() {
	exchange_with "$peer"
}

# disk_options: sets $options, of fio.
disk_options() {
	local sets=("--rw=randwrite --bs=4k --iodepth=32 --size=8m" "--rw=write --bs=1m --iodepth=8 --size=64m"
		"--rw=randrw --bs=16k --iodepth=16 --size=16m"
		"--rw=randrw --bs=4k --iodepth=16 --numjobs=2 --size=8m --offset_increment=8m")

	draw ${#sets[@]}
	read -ra options <<<"${sets[drawn]}"
}

nvme() {
	local options

	disk_options
	[ "$NODE" != 1 ] || start_target
	lab-barrier target
	if [ "$NODE" = 2 ]; then
		connect
		disk_io "$disk" "${options[@]}"
		disconnect
	fi
	lab-barrier used
	[ "$NODE" != 1 ] || stop_target
}

errors() {
	run rop_errors
}

limits() {
	draw 1000
	# With itself: it is about one device.
	NODE=1 NODES=1 run rop_limits --rounds $((200 + drawn))
}

silence() {
	draw_node
	draw 10
	be_silent dead 1.$drawn 3 "$who"
}

losses() {
	local turns

	draw_node
	draw_loss
	draw 3
	turns=$((1 + drawn))
	lose "$how" "$long" "$turns" "$who"
}

kills() {
	local qps victims=("1" "2" "1 2")

	draw 16
	qps=$((1 + drawn))
	draw ${#victims[@]}
	start_hog $qps
	lab-barrier kill
	sleep "0.$((RANDOM % 10))"
	# shellcheck disable=SC2086
	end_hog ${victims[drawn]}
	[[ ${victims[drawn]} != *$NODE* ]] || count kills 1
}

tcp_losses() {
	draw_node
	draw_loss
	tcp_over "$who" cut_for "$how" "$long"
}

nvme_losses() {
	draw_node
	draw_loss
	nvme_over "$who" cut_for "$how" "$long"
}

# RoPCIe keeps a name for completions for as many queue pairs as there have been at once, until
# it is unloaded (struct ropcie_wc_name). There are as many of them from the start as `limits`
# asks for, or memory would depend on which node had its modules loaded again before.
make_names() {
	NODE=1 NODES=1 run rop_many_qps --qps 1200 --timeout $((2 * patience))
}

# The upper modules of a node go under traffic, and come back.
reload() {
	local first

	draw_node
	draw ${#modules[@]}
	first=${modules[drawn]}
	start_hog 4
	lab-barrier reload
	if [ "$NODE" = "$who" ]; then
		count_device 1
		unload_modules "$first"
		stop_hog || true
		count kills 1
		load_modules "$first"
		count_device -1
	else
		wait "$hog" || fail "rop_hog whose peer has lost its modules: $(<"$hog_log")"
	fi
	expect_reachable "node$who has loaded $first and those above"
	[ "$NODE" != "$who" ] || make_names
}

# draw_episode: sets $kind, and $busy if rop_hog has to run, too.
draw_episode() {
	[ ${#deck[@]} -gt 0 ] || deck=("${kinds[@]}")
	draw ${#deck[@]}
	kind=${deck[drawn]}
	unset "deck[drawn]"
	deck=("${deck[@]}")
	draw 3
	busy=$((drawn == 0))
	[[ " ${calm[*]} " == *" $kind "* ]] || busy=0
}

episode() {
	local kind busy began=$SECONDS seed=$state what text=

	draw_episode
	counts=([bytes]=0 [losses]=0 [kills]=0 [connects]=0)
	echo "soak: $kind begins with seed $seed$([ "$busy" = 0 ] || echo ", the link is busy")"
	count_device -1
	lab-barrier begun
	if [ "$busy" = 1 ]; then
		draw_node
		start_hog 2 --tcp-port 18700
		renice -n 19 -p "$hog" >/dev/null # or the one processor is busy with nothing else
		lab-barrier busy
	fi
	"$kind"
	lab-barrier ended
	if [ "$busy" = 1 ]; then
		end_hog "$who"
		[ "$NODE" != "$who" ] || count kills 1
	fi
	expect_no_user_objects "$kind"
	lab-barrier clean
	run rop_sendrecv --rounds 1 --timeout $((2 * patience))
	expect_no_user_objects "new connections after $kind"
	retry "$patience" has_first_objects || fail "after $kind there are $(objects), before all: $first_objects"
	count_device 1
	memory_take
	for what in "${!counts[@]}"; do
		text+=" $what ${counts[$what]}"
	done
	echo "soak: $kind ended:$text seconds $((SECONDS - began))$memory_text"
}

[ "$NODE" != 1 ] || rm -f "$over"
first_objects=$(objects)
make_names
lab-barrier soak
while :; do
	[ "$NODE" != 1 ] || [ "$SECONDS" -lt "$end" ] || touch "$over"
	lab-barrier next
	[ ! -e "$over" ] || break
	episode
done
memory_judge ${#kinds[@]}
# In less time, or on a slow kernel, not everything has been done three times.
[ -n "$memory_text" ] || [ "${1:-60}" -lt 60 ] || [ "$patience" -gt 60 ] || fail "memory is not judged"
echo "soak: memory:${memory_text:- not judged}"
pass "a soak of ${1:-60} minutes, seed ${2:-1}"
