#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 1
# lab-long: --nodes 3 --timeout 14400 -- 20
# lab-long: --nodes 2 --timeout 14400 -- 20
# lab-alone: yes
#
# server-killed.sh [TURNS]: the ivshmem server is killed under traffic. Nodes that have
# joined do not need it: verbs, TCP and NVMe over Fabrics go on, and a link that is lost
# and modules that are loaded again come back. Then there is another server, and all nodes
# start again, for the next of the TURNS.
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

kill_server() {
	lab-kill-server || fail "the server lives"
}

[ "$NODE" != 1 ] || start_target
lab-barrier target
start_strict_hog 4
if [ "$NODE" = 2 ]; then
	connect
	start_io 100000
fi
meet
[ "$NODE" -gt 2 ] || tcp_over 1 kill_server
meet
expect_traffic "the server's death"
if [ "$NODE" = 2 ]; then
	end_io
	disconnect
fi
meet
[ "$NODE" != 1 ] || stop_target
kill_hog || true # its peer may have been killed first
expect_no_user_objects "the server's death"
meet
rop_traffic --quick --timeout $((2 * patience)) || fail "rop_traffic ended with status $?"
[ "$NODE" -gt 2 ] || exchange_with $((3 - NODE))
pass "traffic without a server"

[ "$NODE" != "$NODES" ] || cut_for down 0.3
expect_reachable "a lost link"
meet
[ "$NODE" != "$NODES" ] || reload_modules ntb_hw_ivshmem
expect_reachable "a reload"
meet
rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $?"
pass "links come back without a server, turn $LAB_BOOT"

if [ "$LAB_BOOT" -lt "${1:-20}" ]; then
	meet
	[ "$NODE" != 1 ] || lab-start-server || fail "there is no other server"
	meet
	lab-reboot kill
fi
