#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# The stock kernel's NVMe over Fabrics: nvmet-rdma exports a RAM disk of node 1,
# nvme-rdma of node 2 uses it; fio writes, reads back and compares. The device's
# counters tell that the data went over it.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

nqn=nqn.2026-11.ropcie:ram
port=4420
target=/sys/kernel/config/nvmet
disk_mib=64

start_target() {
	modprobe nvmet-rdma || fail "nvmet-rdma does not load"
	modprobe brd rd_nr=1 rd_size=$((disk_mib * 1024)) || fail "brd does not load"
	mkdir -p $target/subsystems/$nqn/namespaces/1
	echo 1 >$target/subsystems/$nqn/attr_allow_any_host
	echo /dev/ram0 >$target/subsystems/$nqn/namespaces/1/device_path
	echo 1 >$target/subsystems/$nqn/namespaces/1/enable
	mkdir $target/ports/1
	echo rdma >$target/ports/1/addr_trtype
	echo ipv4 >$target/ports/1/addr_adrfam
	echo "$SERVER" >$target/ports/1/addr_traddr
	echo $port >$target/ports/1/addr_trsvcid
	ln -s $target/subsystems/$nqn $target/ports/1/subsystems/$nqn ||
		fail "the target does not listen"
}

stop_target() {
	rm $target/ports/1/subsystems/$nqn
	rmdir $target/ports/1
	echo 0 >$target/subsystems/$nqn/namespaces/1/enable
	rmdir $target/subsystems/$nqn/namespaces/1 $target/subsystems/$nqn
	modprobe -r nvmet-rdma brd
}

namespace_is_there() {
	[ -b /dev/nvme0n1 ]
}

connect() {
	modprobe nvme-rdma || fail "nvme-rdma does not load"
	echo "transport=rdma,traddr=$SERVER,trsvcid=$port,nqn=$nqn,nr_io_queues=2" \
		>/dev/nvme-fabrics || fail "nvme-rdma does not connect"
	retry 20 namespace_is_there || fail "no namespace appears"
}

disconnect() {
	echo 1 >/sys/class/nvme/nvme0/delete_controller
	modprobe -r nvme-rdma
}

io() {
	local status=0

	timeout 120 fio --name=io --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio \
		--verify=crc32c --verify_fatal=1 --group_reporting --minimal "$@" \
		>"$LAB_OUT/fio" 2>&1 || status=$?
	[ $status = 0 ] || {
		cat "$LAB_OUT/fio"
		fail "fio $* ended with status $status"
	}
	pass "fio $*"
}

[ "$NODE" != 1 ] || start_target
lab-barrier target
if [ "$NODE" = 2 ]; then
	connect
	before=$(rdma_bytes "$RDMA_DEV")
	pass "connected: $(cat /sys/class/nvme/nvme0/address)"
	io --rw=randwrite --bs=4k --iodepth=32 --size=16m
	io --rw=randrw --bs=4k --iodepth=32 --numjobs=2 --size=8m --offset_increment=8m
	io --rw=write --bs=1m --iodepth=8 --size=${disk_mib}m
	# What fio wrote it also read back, so this is half of it at most.
	[ $(($(rdma_bytes "$RDMA_DEV") - before)) -gt $((disk_mib << 20)) ] ||
		fail "the data did not come over $RDMA_DEV"
	disconnect
	connect
	io --rw=randrw --bs=16k --iodepth=16 --size=16m
	disconnect
fi
lab-barrier used
[ "$NODE" != 1 ] || stop_target
pass "the target and the host unload"
