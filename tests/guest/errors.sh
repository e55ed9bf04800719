#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
# lab: --nodes 1 --link loopback
# lab-quick: yes
# lab-kernels: all
#
# What must be refused or complete in error. Arguments are given to rop_errors;
# with --tolerate wrong answers are only printed.
set -euo pipefail

rop_errors "$@"
