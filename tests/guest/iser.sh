#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --packages nfs-kernel-server,open-iscsi
#
# The stock kernel's iSCSI over RDMA: ib_isert exports a RAM disk of node 1,
# ib_iser of node 2 uses it through Debian's open-iscsi; fio writes, reads back
# and compares. The device's counters tell that the data went over it.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

iqn=iqn.2026-11.ropcie:ram
target=/sys/kernel/config/target
group=$target/iscsi/$iqn/tpgt_1
disk=$target/core/rd_mcp_0/ram
disk_mib=64

start_target() {
	modprobe ib_isert || fail "ib_isert does not load"
	mkdir -p $target/iscsi $disk "$group/lun/lun_0" "$group/np/$SERVER:3260"
	echo "rd_pages=$((disk_mib * 256))" >$disk/control
	echo 1 >$disk/enable
	ln -s $disk "$group/lun/lun_0/ram"
	echo 0 >"$group/attrib/authentication"
	echo 1 >"$group/attrib/generate_node_acls"
	echo 0 >"$group/attrib/demo_mode_write_protect"
	echo 1 >"$group/np/$SERVER:3260/iser" || fail "the target does not take iSER"
	echo 1 >"$group/enable"
}

stop_target() {
	echo 0 >"$group/enable"
	rm "$group/lun/lun_0/ram"
	rmdir "$group/np/$SERVER:3260" "$group/lun/lun_0" "$group" "$target/iscsi/$iqn" $target/iscsi
	rmdir $disk "${disk%/*}"
	retry 20 modprobe -r ib_isert iscsi_target_mod || fail "ib_isert does not unload"
}

disk_is_there() {
	[ -b /dev/sda ]
}

log_in() {
	mkdir -p /etc/iscsi /run/lock/iscsi /var/lib/iscsi
	echo "InitiatorName=iqn.2026-11.ropcie:node$NODE" >/etc/iscsi/initiatorname.iscsi
	modprobe ib_iser || fail "ib_iser does not load"
	modprobe sd_mod
	iscsid || fail "iscsid does not start"
	iscsiadm -m node -T $iqn -p "$SERVER" -I iser -o new || fail "no record"
	iscsiadm -m node -T $iqn -p "$SERVER" -I iser --login || fail "no login"
	retry 20 disk_is_there || fail "no disk appears"
}

log_out() {
	iscsiadm -m node -T $iqn -p "$SERVER" -I iser --logout || fail "no logout"
	iscsiadm -k 0 2>/dev/null || pkill iscsid
	retry 20 modprobe -r ib_iser || fail "ib_iser does not unload"
}

[ "$NODE" != 1 ] || start_target
lab-barrier target
if [ "$NODE" = 2 ]; then
	log_in
	before=$(rdma_bytes "$RDMA_DEV")
	disk_io /dev/sda --rw=randrw --bs=4k --iodepth=32 --size=16m
	disk_io /dev/sda --rw=write --bs=1m --iodepth=8 --size=${disk_mib}m
	[ $(($(rdma_bytes "$RDMA_DEV") - before)) -gt $((disk_mib << 20)) ] ||
		fail "the data did not come over $RDMA_DEV"
	log_out
fi
lab-barrier used
[ "$NODE" != 1 ] || stop_target
pass "the target and the host unload"
