#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# The other way of the provider: queues that are not mapped. What the rest of the
# tests run with mapped queues goes over the uverbs commands here.
set -euo pipefail

export ROPCIE_MAPPED_QUEUES=0
here=$(dirname "$0")
bash "$here/errors.sh"
bash "$here/events.sh"
bash "$here/many-qps.sh"
bash "$here/traffic.sh" --quick
