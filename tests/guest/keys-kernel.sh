#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback
# lab-long: --nodes 1 --link loopback -- 1
# lab-long: --nodes 1 --link loopback --module-params ropcie_ntb_if:hand_over=0
# lab-kernels: all
#
# What keys of fast registrations protect, case by case: ropcie_ktest.ko between the two
# ends of a loopback pair, and from a device to itself; and messages that take the key
# away that they are sent with. Arguments: of all combinations of rights, domain and
# bounds one of so many (10), and the seed that says which (0: any).
set -euo pipefail

root=/sys/kernel/debug/ropcie_ktest
failed=0

# keys FROM TO: all cases, with requests from one device to the other.
keys() {
	local word=ok

	echo "$2" >"$root/$1/keys" 2>/dev/null || word=FAILED
	echo "$word: keys from $1 to $2: $(<"$root/$1/result")"
	[ $word = ok ] || failed=1
}

# own MESSAGES
own() {
	local word=ok

	echo "$1" >"$root/$RDMA_DEV/own" 2>/dev/null || word=FAILED
	echo "$word: own keys taken away: $(<"$root/$RDMA_DEV/result")"
	[ $word = ok ] || failed=1
}

insmod "$MODDIR/ropcie_ktest/ropcie_ktest.ko" cross_every="${1:-10}" seed="${2:-0}"
keys "${RDMA_DEV:?}" "${RDMA_DEV2:?}"
keys "$RDMA_DEV" "$RDMA_DEV"
own 400
rmmod ropcie_ktest
exit $failed
