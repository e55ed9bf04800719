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
	echo "transport=$transport,traddr=$traddr,trsvcid=$port,nqn=$nqn,nr_io_queues=2,reconnect_delay=1,ctrl_loss_tmo=60" \
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
