#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback
#
# Limits that cgroups and RLIMIT_MEMLOCK set: of RDMA objects, and of memory, the
# queues' in the kernel too. A program that meets one fails by itself, and gives
# back what it has.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

group=/sys/fs/cgroup/small

in_group() (
	echo "$BASHPID" >$group/cgroup.procs
	exec "$@"
)

# python TEXT: with pyverbs, ctx being the device's context.
python() {
	python3 -c "
import os, resource, sys
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.qp import QP, QPInitAttr, QPCap
from pyverbs.pyverbs_error import PyverbsRDMAError
import pyverbs.enums as e
ctx = Context(name='$RDMA_DEV')
kept = []
def until(error, make, most):
    while len(kept) < most:
        try:
            kept.append(make())
        except PyverbsRDMAError as failure:
            assert failure.error_code == error, failure
            print('refused after', len(kept))
            return
    sys.exit(f'{most} were made, and none was refused')
$1"
}

mount -t cgroup2 cgroup /sys/fs/cgroup || fail "no cgroups"
echo '+rdma +memory' >/sys/fs/cgroup/cgroup.subtree_control || fail "no rdma and memory controllers"
mkdir $group
# The programs' own pages are not the group's: it would read them again and again
# when it has no more room.
python ""

echo "$RDMA_DEV hca_handle=1 hca_object=20" >$group/rdma.max
in_group bash -c "$(declare -f python); RDMA_DEV=$RDMA_DEV; python '
pd = PD(ctx)
until(11, lambda: PD(ctx), 100)
assert 10 < len(kept) < 20, len(kept)'" || fail "the limit of RDMA objects"
grep -q "$RDMA_DEV hca_handle=0 hca_object=0" $group/rdma.current ||
	fail "charged after the program has ended: $(<$group/rdma.current)"
echo "$RDMA_DEV hca_handle=max hca_object=max" >$group/rdma.max
pass "a limit of RDMA objects"

python '
resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
os.setuid(65534)
pd = PD(ctx)
until(12, lambda: MR(pd, 65536, e.IBV_ACCESS_LOCAL_WRITE), 100)
assert 8 < len(kept) <= 16, len(kept)
kept.clear()
until(12, lambda: MR(pd, 65536, e.IBV_ACCESS_LOCAL_WRITE), 100)
assert 8 < len(kept) <= 16, len(kept)' || fail "RLIMIT_MEMLOCK"
pass "RLIMIT_MEMLOCK"

# The queues of 4096 queue pairs are far more than that.
echo $((64 << 20)) >$group/memory.max
status=0
in_group bash -c "$(declare -f python); RDMA_DEV=$RDMA_DEV; python '
pd = PD(ctx)
cq = CQ(ctx, 10)
cap = QPCap(max_send_wr=1024, max_recv_wr=1024, max_send_sge=8, max_recv_sge=8)
until(12, lambda: QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap)), 4096)
assert len(kept) > 5, len(kept)'" || status=$?
[ $status = 0 ] || fail "the limit of memory: the program ended with status $status"
expect_no_user_objects "a program that ran out of memory"
pass "a limit of memory"

# Queues are files in memory, which may be of huge pages.
huge=/sys/kernel/mm/transparent_hugepage/shmem_enabled
if [ -e $huge ]; then
	echo always >$huge || fail "no huge pages"
	in_group bash -c "$(declare -f python); RDMA_DEV=$RDMA_DEV; python '
pd = PD(ctx)
cq = CQ(ctx, 10)
for i in range(200):
    kept.append(QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap())))'" ||
		fail "200 small queue pairs take more than 64 MiB"
	echo never >$huge
	pass "small queues where huge pages are asked for"
fi
ibv_devinfo -d "$RDMA_DEV" >/dev/null || fail "the device is of no use afterwards"
