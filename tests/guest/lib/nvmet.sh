# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For guest tests of NVMe over Fabrics: a RAM disk of node 1 behind the stock
# kernel's nvmet-rdma, and nvme-rdma; or nvmet-tcp and nvme-tcp. Sourced after rdma.sh.
transport=rdma
traddr=$SERVER
nqn=nqn.2026-11.ropcie:ram
port=4420
target=/sys/kernel/config/nvmet
disk_mib=64
ctrl_loss_tmo=60 # s; a host tries once a second
io_log=$LAB_OUT/fio.$NODE

# open_port, close_port: the target listens, or not any more.
open_port() {
	ln -s $target/subsystems/$nqn $target/ports/1/subsystems/$nqn ||
		fail "the target does not listen"
}

close_port() {
	rm $target/ports/1/subsystems/$nqn
}

start_target() {
	modprobe nvmet-$transport || fail "nvmet-$transport does not load"
	modprobe brd rd_nr=1 rd_size=$((disk_mib * 1024)) || fail "brd does not load"
	mkdir -p $target/subsystems/$nqn/namespaces/1
	echo 1 >$target/subsystems/$nqn/attr_allow_any_host
	echo /dev/ram0 >$target/subsystems/$nqn/namespaces/1/device_path
	echo 1 >$target/subsystems/$nqn/namespaces/1/enable
	mkdir $target/ports/1
	echo $transport >$target/ports/1/addr_trtype
	echo ipv4 >$target/ports/1/addr_adrfam
	echo "$traddr" >$target/ports/1/addr_traddr
	echo $port >$target/ports/1/addr_trsvcid
	open_port
}

stop_target() {
	close_port
	rmdir $target/ports/1
	echo 0 >$target/subsystems/$nqn/namespaces/1/enable
	rmdir $target/subsystems/$nqn/namespaces/1 $target/subsystems/$nqn
	modprobe -r nvmet-$transport brd
}

namespace_is_there() {
	compgen -G '/dev/nvme*n1' >/dev/null
}

# connect: $disk is the host's device for the target's disk then.
connect() {
	modprobe nvme-$transport || fail "nvme-$transport does not load"
	echo "transport=$transport,traddr=$traddr,trsvcid=$port,nqn=$nqn,nr_io_queues=2,reconnect_delay=1,ctrl_loss_tmo=$ctrl_loss_tmo" \
		>/dev/nvme-fabrics || fail "nvme-$transport does not connect"
	retry "$patience" namespace_is_there || fail "no namespace appears"
	# The number is the next one while somebody has the last one still open.
	# shellcheck disable=SC2034 # for the tests
	disk=$(compgen -G '/dev/nvme*n1')
}

delete_controller() {
	echo 1 | tee /sys/class/nvme/nvme*/delete_controller >/dev/null
}

disconnect() {
	delete_controller
	modprobe -r nvme-$transport
}

# For IO to a disk that goes: it ends at its first byte then, and what fio reads beyond an
# end is an error to it only where it waits for each request; else it verifies old memory.
# shellcheck disable=SC2034 # for the tests
until_gone=(--ioengine=psync --numjobs=16 --size=1m --offset_increment=1m)

# start_io SECONDS [FIO-OPTION...]: on $disk; every byte is verified.
start_io() {
	fio --name=io --filename="$disk" --allow_file_create=0 --direct=1 --ioengine=libaio \
		--rw=randrw --bs=4k --iodepth=32 --numjobs=2 --size=8m --offset_increment=8m --verify=crc32c \
		--verify_fatal=1 --time_based --runtime="$1" --minimal "${@:2}" >"$io_log" 2>&1 &
	io=$!
	sleep 2
	kill -0 "$io" || fail "fio ended before its time: $(<"$io_log")"
}

# What the host has read and written; with more than one path to a disk each has its own.
disk_requests() {
	awk '{ sum += $1 + $5 } END { print sum }' /sys/block/nvme*/stat
}

disk_has_done_more_than() {
	[ "$(disk_requests)" -gt "$1" ]
}

# end_io: before its time; all that it has read was right, and nothing has failed.
end_io() {
	kill -INT "$io" || fail "fio has ended: $(<"$io_log")"
	wait "$io" || true
	! grep -E 'verify: |verify failed|io_u error|err=' "$io_log" || fail "fio has met an error: $(<"$io_log")"
}

# expect_end WHAT GOOD: fio waits for the kernel's last answer, which is GOOD (1) or
# an error (0).
expect_end() {
	local status=0

	timeout $((2 * patience)) tail --pid="$io" -f /dev/null || fail "fio hangs after $1"
	wait "$io" || status=$?
	grep -qE 'verify: |verify failed' "$io_log" && fail "wrong data after $1: $(<"$io_log")"
	[ "$2" = $((status == 0 ? 1 : 0)) ] ||
		fail "fio ended with status $status after $1: $(<"$io_log")"
	pass "$1: fio ended with status $status"
}

no_controller() {
	! ls /sys/class/nvme/nvme* >/dev/null 2>&1
}
