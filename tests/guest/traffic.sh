#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- --quick
# lab: --nodes 1 --link loopback -- --quick
# lab: --nodes 1 --link loopback --smp 2 -- --quick
# lab-long: --nodes 1 --link loopback --module-params ropcie_ntb_if:hand_over=0 -- --quick
# lab-long: --nodes 2
# lab-quick: yes
# lab-kernels: all
#
# RC SEND/RECV with every byte verified. Arguments are given to rop_traffic;
# --quick leaves out most of the large messages.
set -euo pipefail

rop_sendrecv
rop_traffic "$@"

# Without doorbells all goes on, at a look of every 50 ms.
for state in /sys/kernel/debug/ropcie_ntb_if/*/state; do
	if [ "$NODES" -gt 1 ] && [ -e "$state" ] && ! grep -q '^doorbells_received [1-9]' "$state"; then
		echo "FAILED: no doorbell was heard"
		exit 1
	fi
done
