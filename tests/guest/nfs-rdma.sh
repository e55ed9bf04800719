#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --packages nfs-kernel-server,open-iscsi
#
# The stock kernel's NFS over RDMA, with Debian's nfs-utils: node 1 exports a
# memory file system, node 2 copies a tree of sources and a large file there and
# back and compares. The device's counters tell that the data went over it.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

export_dir=/srv/ropcie
tree=$(realpath "$(dirname "$0")/../../kernel")
large_mib=24

start_server() {
	mkdir -p $export_dir /var/lib/nfs/v4recovery
	mount -t tmpfs -o size=128m export $export_dir
	modprobe nfsd || fail "nfsd does not load"
	mount -t nfsd nfsd /proc/fs/nfsd
	# Nobody had it mounted before: no time of grace for them.
	echo 10 >/proc/fs/nfsd/nfsv4leasetime
	echo 1 >/proc/fs/nfsd/nfsv4gracetime 2>/dev/null || true
	touch /var/lib/nfs/etab /var/lib/nfs/rmtab /etc/exports
	exportfs -o rw,fsid=0,no_root_squash,no_subtree_check,insecure "*:$export_dir" ||
		fail "nothing is exported"
	rpc.mountd --no-nfs-version 3 || fail "rpc.mountd does not start"
	modprobe rpcrdma
	rpc.nfsd --no-nfs-version 3 --rdma=20049 4 || fail "nfsd does not start"
	grep -q 'rdma 20049' /proc/fs/nfsd/portlist || fail "nfsd does not listen on RDMA"
}

stop_server() {
	rpc.nfsd 0
	pkill rpc.mountd
	exportfs -ua
	umount /proc/fs/nfsd $export_dir
	retry 20 modprobe -r nfsd rpcrdma || fail "rpcrdma does not unload"
}

copy_and_compare() {
	cp -a "$tree" "/mnt/$1" || fail "the tree is not copied"
	sync -f /mnt
	echo 3 >/proc/sys/vm/drop_caches
	diff -r "$tree" "/mnt/$1" >/tmp/diff || fail "the tree has changed on its way"
	cp "$LAB_OUT/large" "/mnt/$1/large"
	sync -f /mnt
	echo 3 >/proc/sys/vm/drop_caches
	cp "/mnt/$1/large" /tmp/back
	cmp "$LAB_OUT/large" /tmp/back || fail "the large file has changed on its way"
}

[ "$NODE" != 1 ] || start_server
[ "$NODE" != 2 ] || head -c ${large_mib}M /dev/urandom >"$LAB_OUT/large"
lab-barrier server
if [ "$NODE" = 2 ]; then
	before=$(rdma_bytes "$RDMA_DEV")
	modprobe rpcrdma
	mount -t nfs -o "vers=4.2,proto=rdma,port=20049,sec=sys" "$SERVER:/" /mnt ||
		fail "it can not be mounted"
	grep -q 'proto=rdma' /proc/mounts || fail "it is not mounted over RDMA"
	copy_and_compare there
	# What comes back goes again.
	cp -a /mnt/there /tmp/there
	tree=/tmp/there
	copy_and_compare again
	rm -r /mnt/there /mnt/again
	umount /mnt || fail "it can not be unmounted"
	[ $(($(rdma_bytes "$RDMA_DEV") - before)) -gt $((4 * large_mib << 20)) ] ||
		fail "the data did not come over $RDMA_DEV"
	retry 20 modprobe -r nfsv4 nfs rpcrdma || fail "rpcrdma does not unload"
	pass "a tree of $(find "$tree" -type f | wc -l) files and $large_mib MiB, there and back"
fi
lab-barrier used
[ "$NODE" != 1 ] || stop_server
pass "server and client unload"
