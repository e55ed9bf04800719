#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --no-setup
# lab-long: --nodes 3 --no-setup
#
# Linux's ntb_perf on the emulated NTB: its set-up by scratchpads and by
# messages, with the translation set by either side, and a transfer to each peer in turn.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"

order=26

ready() {
	[ "$(grep -c 'Link status: up' "$dir/info")" = $peer_count ] &&
		[ "$(grep -c 'In buffer xlat' "$dir/info")" = $peer_count ] &&
		! grep -q 'Out buffer xlat 0x0\+\[p\]' "$dir/info"
}

# perf NAME [PARAMETER-OF-THE-HARDWARE...]
perf() {
	local name=$1 node pidx result

	shift
	# It numbers windows by port, from 0 to NODES - 1.
	hardware mw_wrap=1 "$@"
	meet "loaded-$name"
	# It allocates the whole window and hangs when that fails.
	load ntb_perf max_mw_size=2097152 total_order=$order
	dir=$(echo $ntb_debugfs/ntb_perf/*)
	[ -d "$dir" ] || fail "$name: ntb_perf did not take the port"
	if ! retry "$patience" ready; then
		cat "$dir/info"
		fail "$name: ntb_perf did not set its windows up"
	fi
	meet "ready-$name"
	for ((node = 1; node <= NODES; node++)); do
		for ((pidx = 0; pidx < peer_count && node == NODE; pidx++)); do
			timeout "$patience" bash -c "echo $pidx >$dir/run" ||
				fail "$name: the test with peer $pidx did not end"
			result=$(grep copied "$dir/run") || fail "$name: $(<"$dir/run")"
			[[ $result == *"copied $((1 << order)) bytes"* ]] ||
				fail "$name: $result"
			pass "$name, peer $pidx: $result"
		done
		meet "run-$name-$node"
	done
	unload ntb_perf
	meet "unloaded-$name"
}

# When scratchpad commands of two peers come at once, it serves but one of them.
[ "$NODES" -gt 2 ] || perf scratchpads
perf messages spads=0 msgs=3
# With more nodes it takes a window for one peer that leads to another.
[ "$NODES" -gt 2 ] || perf idt family=idt
unload ntb_hw_ivshmem
