#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --provider rxe --link virtio -- 'two words'
#
# What scripts/lab promises to a script, checked from inside a guest. Runs with
# any provider and link:
#   scripts/lab --provider rxe --link virtio run tests/guest/lab_selftest.sh 'two words'
set -u

check() {
	"${@:2}" || {
		echo "not so: $1"
		exit 1
	}
}

shown() {
	[[ " $(ip addr show dev "$NETDEV") " == *" 10.77.0.$NODE/24 "* ]]
}

answers() {
	ping -q -c1 -W5 "10.77.0.$1" >/dev/null
}

throw_away() {
	touch "$(dirname "$0")/written-by-a-guest" && rm "$(dirname "$0")/written-by-a-guest"
}

check "NODE is 1..NODES" test "$NODE" -ge 1 -a "$NODE" -le "$NODES"
check "the argument arrives as one word" test "${1-}" = "two words"
check "SERVER is node 1" test "$SERVER" = 10.77.0.1
check "RDMA_DEV exists" test -d "/sys/class/infiniband/$RDMA_DEV"
check "verbs see RDMA_DEV" ibv_devinfo -d "$RDMA_DEV"
check "NETDEV exists" test -d "/sys/class/net/$NETDEV"
check "NETDEV has the node's address" shown
check "NETDEV takes more than an Ethernet frame" test "$(<"/sys/class/net/$NETDEV/mtu")" -gt 1500
check "the modules are built" test -d "$MODDIR"
check "stock modules can be loaded" modprobe brd
check "the host's files can be overwritten here" throw_away
for ((peer = 1; peer <= NODES; peer++)); do
	check "node$peer answers" answers "$peer"
done

# Each round's file is there for all after the barrier, none before.
for round in 1 2 3; do
	echo "$round" >"$LAB_OUT/selftest.$NODE.$round" || exit 1
	check "barrier $round" lab-barrier selftest
	for ((peer = 1; peer <= NODES; peer++)); do
		check "node$peer has come to round $round" test -s "$LAB_OUT/selftest.$peer.$round"
	done
done
lab-barrier 'no spaces' 2>/dev/null
check "a barrier's name is checked" test $? = 2
echo "lab self-test passed"
