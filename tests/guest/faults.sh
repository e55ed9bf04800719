#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 -- 2
# lab-long: --nodes 2 --timeout 3600 -- 20
#
# faults.sh [TURNS]: the link is lost under traffic, each way TURNS times: the
# cable is pulled, and a port falls silent, for longer than is forgiven. Each time
# rop_faults checks what programs see; afterwards new queue pairs work without
# reloading anything. A short silence is not seen at all.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/link.sh
. "$(dirname "$0")/lib/link.sh"

turns=${1:-20}

lose down 0.3 "$turns"
lose dead 7 "$turns"
be_silent 1 "$turns"
