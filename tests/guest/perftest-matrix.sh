#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab-long: --nodes 2 --timeout 3600
#
# All of perftest's programs that it packs for verbs, over each service that they
# know, with every set of the options that change what verbs are used. Node 1
# writes a table of them to perftest.md in the logs.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

table=$LAB_OUT/perftest.md

# sets_of OPTION...: every set of them, a line each; an option may be two words.
sets_of() {
	local bits word set

	for ((bits = 0; bits < 1 << $#; bits++)); do
		set=
		for ((word = 0; word < $#; word++)); do
			((bits >> word & 1)) && set+=" ${*:word + 1:1}"
		done
		echo "$set"
	done
}

# row PROGRAM SERVICE SIZE OPTION...: it with every set of the options.
row() {
	local program=$1 service=$2 size=$3 set sets=() shown=

	shift 3
	mapfile -t sets < <(sets_of "$@")
	for set in "${sets[@]}"; do
		# shellcheck disable=SC2086
		pair 18515 "$program" -c "$service" $size -n 100 $set
	done
	for set in "$@"; do
		shown+="\`$set\` "
	done
	[ "$NODE" != 1 ] || echo "| \`$program\` | $service | ${#sets[@]} | ${shown:-none} |" >>"$table"
	pass "$program -c $service: ${#sets[@]} sets of options"
}

[ "$NODE" != 1 ] || cat >"$table" <<'END'
| program | service | runs that ended well | every set of these options |
|---|---|---|---|
END

for service in RC UC UD XRC; do
	case $service in
	# The receives of XRC are always shared; those of UC never (IBTA 10.2.9.1).
	RC | UD) shared=(--use-srq) ;;
	*) shared=() ;;
	esac
	row ib_send_lat $service "-s 64" -e "-I 64" "${shared[@]}"
	# A stream of datagrams may overrun the receives that all queue pairs share,
	# and perftest waits for those that are lost.
	[ $service != UD ] || shared=()
	row ib_send_bw $service "-s 4096" -e "-q 8" -b "${shared[@]}"
	row ib_send_bw $service "-s 64" "-I 64" "-q 8" -b
done
for service in RC UC XRC; do
	row ib_write_lat $service "-s 64" "-I 64"
	row ib_write_bw $service "-s 65536" "-q 8" -b
	row ib_write_bw $service "-s 64" "-I 64" "-q 8" -b
done
for service in RC XRC; do
	row ib_read_lat $service "-s 64" -e
	row ib_read_bw $service "-s 65536" -e "-q 8" -b
	row ib_atomic_lat $service "" -e "-A CMP_AND_SWAP"
	row ib_atomic_bw $service "" -e "-A CMP_AND_SWAP" "-q 8" -b
done
[ "$NODE" != 1 ] || cat "$table"
