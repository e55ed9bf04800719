#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 1
# lab-long: --nodes 3 -- 1
# lab-long: --nodes 2 --timeout 3600 -- 20
# lab-alone: yes
#
# server-killed.sh [TURNS]: the ivshmem server is killed under traffic. Nodes that have
# joined do not need it: their traffic goes on, and links that are lost and modules that
# are loaded again, TURNS times, come back.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"
# shellcheck source=tests/guest/lib/link.sh
. "$(dirname "$0")/lib/link.sh"
# shellcheck source=tests/guest/lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"

[ "$NODE" != 1 ] || start_target
lab-barrier target
start_hog 4
if [ "$NODE" = 2 ]; then
	connect
	disk_io "$disk" --rw=randrw --bs=4k --iodepth=16 --size=8m --time_based --runtime=10 &
	io=$!
fi
meet
[ "$NODE" != 1 ] || lab-kill-server || fail "the server lives"
meet
expect_traffic "the server's death"
if [ "$NODE" = 2 ]; then
	wait "$io" || fail "fio after the server's death"
	disconnect
fi
meet
[ "$NODE" != 1 ] || stop_target
kill_hog || true # its peer may have been killed first
expect_no_user_objects "the server's death"
meet
rop_traffic --quick --timeout $((2 * patience)) || fail "rop_traffic ended with status $?"
if [ "$NODE" -le 2 ]; then
	exchange_with $((3 - NODE))
fi
pass "traffic without a server"

for ((turn = 1; turn <= ${1:-20}; turn++)); do
	[ "$NODE" != "$NODES" ] || cut_for down 0.3
	expect_reachable "a lost link"
	meet
	if [ "$NODE" = "$NODES" ]; then
		unload_modules ntb_hw_ivshmem
		load_modules ntb_hw_ivshmem
	fi
	expect_reachable "a reload"
	meet
	rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
done
pass "links come back without a server"
