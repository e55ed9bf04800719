# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests that go on for long: memory does not grow. Sourced after rdma.sh. Figures
# are taken at rest, when no program has objects, so what is there belongs to nobody.
#
# Each figure moves a little with what ran last: the kernel keeps pages and objects ready,
# and others than RoPCIe have memory, too. But what is lost is never seen again, so the
# least of many is what counts.
memory_figures=(kmalloc vmalloc percpu kernel) # KiB
declare -A memory_seen=() # all that has been taken of each figure

# What a figure may grow by, in KiB, however long it all took: some times what it was seen to
# move by (kmalloc 130, kernel 300, the others nothing). In soak.sh the episode limits alone
# has 2000 of each object: the smallest thing that is lost with each is more than that after
# five turns.
declare -A memory_slack=([kmalloc]=512 [vmalloc]=256 [percpu]=256 [kernel]=2048)

# memory_settle: what is about to be freed is, and what is only kept ready is given back.
memory_settle() {
	local shrink

	sync
	echo 3 >/proc/sys/vm/drop_caches
	for shrink in /sys/kernel/slab/*/shrink; do
		# Caches that share objects are links to one.
		[ -L "${shrink%/shrink}" ] || echo 1 >"$shrink"
	done
}

# memory_take: adds one to memory_seen, and sets $memory_text.
#   kmalloc  objects of the general caches
#   vmalloc  what RoPCIe has of it
#   percpu   the kernel's chunks of it
#   kernel   all that no program has and no file: slabs, page tables, pages of drivers, ...
#            MemFree is without the pages that each processor keeps ready (count), which may
#            be tens of MiB.
memory_take() {
	local -A now=()
	local figure

	memory_settle
	now[kmalloc]=$(awk '$1 ~ /kmalloc/ { sum += $2 * $4 } END { printf "%.0f", sum / 1024 }' /proc/slabinfo)
	now[vmalloc]=$(awk '/\[ropcie/ { sum += $2 } END { printf "%.0f", sum / 1024 }' /proc/vmallocinfo)
	now[percpu]=$(awk '$1 == "Percpu:" { print $2 }' /proc/meminfo)
	now[kernel]=$(awk '$1 == "pages" && $2 == "free" { free += 4 * $3 } $1 == "count:" { free += 4 * $2 }
		{ of[$1] = $2 } END { print of["MemTotal:"] - free - of["Buffers:"] - of["Cached:"] - of["AnonPages:"] }' \
		/proc/zoneinfo /proc/meminfo)
	memory_text=
	for figure in "${memory_figures[@]}"; do
		memory_seen[$figure]+=" ${now[$figure]}"
		memory_text+=" $figure ${now[$figure]}"
	done
}

# memory_least FIGURE FIRST COUNT: of those that were taken.
memory_least() {
	local all

	read -ra all <<<"${memory_seen[$1]}"
	printf '%s\n' "${all[@]:$2:$3}" | sort -n | head -n 1
}

# memory_judge COUNT: the last COUNT that were taken are not more than the COUNT after the
# first COUNT, in which there was much for the first time. Sets $memory_text to what was
# compared; nothing is with less than three times COUNT.
memory_judge() {
	local all figure before after

	read -ra all <<<"${memory_seen[kernel]}"
	memory_text=
	[ ${#all[@]} -ge $((3 * $1)) ] || return 0
	for figure in "${memory_figures[@]}"; do
		before=$(memory_least "$figure" "$1" "$1")
		after=$(memory_least "$figure" $((${#all[@]} - $1)) "$1")
		memory_text+=" $figure $before $after"
		[ "$after" -le $((before + memory_slack[$figure])) ] ||
			fail "memory grows: $figure from $before to $after KiB:${memory_seen[$figure]}"
	done
}
