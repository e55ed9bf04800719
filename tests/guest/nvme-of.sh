#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --smp 2
#
# The stock kernel's NVMe over Fabrics: nvmet-rdma exports a RAM disk of node 1,
# nvme-rdma of node 2 uses it; fio writes, reads back and compares. The device's
# counters tell that the data went over it.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"

[ "$NODE" != 1 ] || start_target
lab-barrier target
if [ "$NODE" = 2 ]; then
	connect
	queues=$(($(nproc) < 2 ? $(nproc) : 2))
	hears "creating $queues I/O queues" ||
		fail "the host has not made a queue for each of $queues processors"
	before=$(rdma_bytes "$RDMA_DEV")
	pass "connected: $(cat /sys/class/nvme/nvme0/address)"
	disk_io "$disk" --rw=randwrite --bs=4k --iodepth=32 --size=16m
	disk_io "$disk" --rw=randrw --bs=4k --iodepth=32 --numjobs=2 --size=8m --offset_increment=8m
	disk_io "$disk" --rw=write --bs=1m --iodepth=8 --size=${disk_mib}m
	# What fio wrote it also read back, so this is half of it at most.
	[ $(($(rdma_bytes "$RDMA_DEV") - before)) -gt $((disk_mib << 20)) ] ||
		fail "the data did not come over $RDMA_DEV"
	disconnect
	connect
	disk_io "$disk" --rw=randrw --bs=16k --iodepth=16 --size=16m
	disconnect
fi
lab-barrier used
[ "$NODE" != 1 ] || stop_target
pass "the target and the host unload"
