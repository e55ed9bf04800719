#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --no-setup
# lab-long: --nodes 3 --no-setup
#
# Linux's ntb_pingpong on the emulated NTB, for any number of nodes: doorbells
# go round under a mask that is set and cleared at every step.
# shellcheck source-path=SCRIPTDIR source=lib/ntb.sh
. "$(dirname "$0")/lib/ntb.sh"

rounds=100

reached() {
	[ "$(<"$count")" -ge $rounds ]
}

# pingpong NAME [PARAMETER-OF-THE-HARDWARE...]
pingpong() {
	local name=$1

	shift
	hardware "$@"
	meet "loaded-$name"
	load ntb_pingpong delay_ms=2
	count=$(echo $ntb_debugfs/ntb_pingpong/*/count)
	[ -e "$count" ] || fail "$name: ntb_pingpong did not take the port"
	retry "$patience" reached || fail "$name: $(<"$count") of $rounds doorbells came"
	meet "done-$name"
	unload ntb_pingpong
	pass "$name: $rounds doorbells with every neighbour"
}

pingpong scratchpads
pingpong messages spads=0 msgs=4
pingpong one-vector vectors=1 msgs=2
[ "$NODES" = 2 ] || exit 0
for family in intel1 intel3 amd switchtec idt epf; do
	pingpong $family family=$family
done
