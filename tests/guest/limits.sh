#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback
# lab-long: --nodes 1 --link loopback --timeout 3600 -- --rounds 1000000
#
# Limits that the device promises. Arguments are given to rop_limits; --rounds
# 1000000 is the long form of making and destroying objects.
set -euo pipefail

rop_limits "$@"
