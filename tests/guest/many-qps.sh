#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
# lab: --nodes 1 --link loopback
# lab-quick: yes
#
# 100 queue pairs at once. Arguments are given to rop_many_qps.
set -euo pipefail

rop_many_qps --qps 100 "$@"
