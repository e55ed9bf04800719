#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
# lab: --nodes 1 --link loopback
# lab-quick: yes
#
# Completion events and wake-ups. Arguments are given to rop_events.
set -euo pipefail

rop_events "$@"
