#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 1 --link loopback
# lab-alone: yes
#
# rdma-core's own tests as Debian ships them, but for those of other drivers; the
# device talks to itself. No test may fail, and so many have to be run: what is
# skipped is in docs/verbs.md, with the reason.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

least=${1:-142}
source=/usr/share/doc/rdma-core/tests
work=/tmp/pyverbs
log=$LAB_OUT/pyverbs.log

[ -d $source ] || fail "the package rdma-core has no $source"
# One of the tests registers memory in huge pages.
echo 20 >/proc/sys/vm/nr_hugepages
mkdir -p $work
cp -r $source $work
gunzip -f $work/tests/*.gz
rm -f $work/tests/test_mlx5* $work/tests/test_efa* $work/tests/test_cuda*
cd $work
python3 tests/run_tests.py --dev "$RDMA_DEV" -v >"$log" 2>&1 || {
	grep -v -e ' ok$' -e ' skipped ' "$log"
	fail "run_tests.py ended with status $?"
}
grep ' skipped ' "$log" | sed 's/^/skipped: /'
# Warnings tear the lines of single tests apart: the summary counts.
ran=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$log")
skipped=$(sed -n 's/^OK (.*skipped=\([0-9]*\).*/\1/p' "$log")
case $ran:$skipped in
:* | *:) fail "the summary is not understood" ;;
esac
ok=$((ran - skipped))
[ "$ok" -ge "$least" ] || fail "$ok of rdma-core's tests are ok, $skipped skipped"
pass "$ok of rdma-core's tests, $skipped skipped"
