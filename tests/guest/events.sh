#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
# lab: --nodes 1 --link loopback
# lab-quick: yes
#
# Completion events and wake-ups, with mapped queues and without. Arguments are given
# to rop_events.
set -euo pipefail

rop_events "$@"
ROPCIE_MAPPED_QUEUES=0 rop_events --rounds 100 "$@"
