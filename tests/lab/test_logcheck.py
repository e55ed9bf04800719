# SPDX-License-Identifier: GPL-2.0
"""What the log checker calls a fault, and what it must let pass."""

import unittest

import support  # noqa: F401 (the path)

from lablib import logcheck

BAD = """\
[   12.345678] BUG: kernel NULL pointer dereference, address: 0000000000000008
[   12.345678] BUG: KASAN: use-after-free in foo+0x1/0x2 [ropcie]
[   12.345678] BUG: sleeping function called from invalid context at mm/slab.h:494
[   12.345678] BUG: scheduling while atomic: swapper/0/0/0x00000100
[   12.345678] kernel BUG at mm/slub.c:423!
[   12.345678] WARNING: CPU: 0 PID: 1 at kernel/workqueue.c:1 foo+0x1/0x2
[   12.345678] WARNING: possible circular locking dependency detected
[   12.345678] WARNING: possible recursive locking detected
[   12.345678] WARNING: inconsistent lock state
[   12.345678] WARNING: suspicious RCU usage
[   12.345678] Oops: 0000 [#1] PREEMPT SMP NOPTI
[   12.345678] UBSAN: array-index-out-of-bounds in kernel/core/ring.c:10:2
[   12.345678] INFO: task kworker/0:1:23 blocked for more than 120 seconds.
[   12.345678] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [bash:1]
[   12.345678] rcu: INFO: rcu_preempt self-detected stall on CPU
[   12.345678] general protection fault, probably for non-canonical address 0xdead
[   12.345678] ODEBUG: free active (active state 0) object type: timer_list
[   12.345678] refcount_t: underflow; use-after-free.
[   12.345678] list_del corruption. prev->next should be ffff, but was 0
[   12.345678] Kernel panic - not syncing: sysrq triggered crash
[   12.345678] Call Trace:
[   12.345678] DMA-API: ntb_hw_ivshmem 0000:00:04.0: device driver frees DMA memory
[   12.345678] Out of memory: Killed process 100 (ib_send_bw)
[   12.345678] [    T100] WARNING: CPU: 0 PID: 100 at foo.c:1 foo+0x1/0x2
[   12.345678][  T100] BUG: KASAN: slab-out-of-bounds in foo+0x1/0x2
[   12.345678] BUG: KCSAN: data-race in ropcie_poll_cq+0x1/0x2 [ropcie] / cpu_idle+0x1/0x2
"""

GOOD = """\
[   12.345678] BUG: KCSAN: data-race in tick_nohz_stop_tick / tick_sched_timer
[   12.345678] read to 0xffff888003a81d38 of 8 bytes by task 200 on cpu 1:
[   12.345678] ==================================================================
[   12.345678] ropcie 0: ropcie_poll_cq [ropcie] is not of it
[    0.000000] Linux version 6.1.0-56-amd64
[    0.000000] Kernel command line: console=ttyS0 quiet panic=-1
[    0.000000] software IO TLB: area num 2.
[    0.000000] kmemleak: Kernel memory leak detector initialized (mem pool available: 15000)
[   12.345678] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
[    0.000000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    0.000000] rcu: RCU debug extended QS entry/exit.
[    1.000000] ropcie: loading out-of-tree module taints kernel.
[    1.000000] systemd: no DEBUG here, and WARNINGS of nobody
[    1.000000] rdma_rxe: loaded
[    1.000000] eth0 speed is unknown, defaulting to 1000
"""


class Findings(unittest.TestCase):
    def test_every_kind_of_report_is_found(self):
        for line in BAD.splitlines():
            with self.subTest(line=line):
                self.assertEqual(logcheck.findings(line), [line])

    def test_a_clean_boot_has_none(self):
        self.assertEqual(logcheck.findings(GOOD), [])

    def test_a_race_is_ours_wherever_the_report_names_us(self):
        report = ("BUG: KCSAN: data-race in __list_add_valid / __list_add_valid\n"
                  "write to 0xffff888003a81d38 of 8 bytes by task 200 on cpu 1:\n"
                  " __list_add_valid+0x1/0x2\n ropcie_qp_schedule+0x1/0x2 [ropcie]\n")
        self.assertEqual(logcheck.findings(report), [report.splitlines()[0]])

    def test_a_race_in_the_kernels_own_memory_is_not_ours_though_we_called(self):
        report = ("BUG: KCSAN: data-race in poll_schedule_timeout.constprop.0 / pollwake\n"
                  " pollwake+0xac/0xf0\n cq_notify+0xe6/0x100 [ropcie]\n")
        self.assertEqual(logcheck.findings(report), [])
        fault = report.replace("poll_schedule_timeout.constprop.0 / pollwake", "__handle_mm_fault / do_set_pte")
        self.assertEqual(logcheck.findings(fault), [])
        times = report.replace("poll_schedule_timeout.constprop.0 / pollwake",
                               "generic_update_time / inode_needs_update_time")
        self.assertEqual(logcheck.findings(times), [])
        timer = report.replace("poll_schedule_timeout.constprop.0 / pollwake",
                               "hrtimer_wakeup / schedule_hrtimeout_range_clock")
        self.assertEqual(logcheck.findings(timer), [])
        self.assertEqual(len(logcheck.findings(report.replace("poll_schedule_timeout", "cq_notify"))), 1)
        # Its other side is ours.
        self.assertEqual(len(logcheck.findings(report.replace("/ pollwake", "/ cq_notify [ropcie]"))), 1)

    INTERRUPTED = """\
[ 1.0] BUG: KCSAN: data-race in tick_nohz_idle_got_tick / tick_sched_do_timer
[ 1.0]
[ 1.0] write to 0xffff88807dd1e38c of 1 bytes by interrupt on cpu 1:
[ 1.0]  tick_sched_do_timer+0xbf/0x130
[ 1.0]  asm_sysvec_apic_timer_interrupt+0x1b/0x20
[ 1.0]  ropcie_rx_request+0x2c/0x70 [ropcie]
[ 1.0]
[ 1.0] read to 0xffff88807dd1e38c of 1 bytes by task 0 on cpu 1:
[ 1.0]  do_idle+0x2a/0x240
"""

    def test_who_was_interrupted_takes_no_part(self):
        self.assertEqual(logcheck.findings(self.INTERRUPTED), [])
        ours = self.INTERRUPTED.replace("tick_sched_do_timer+0xbf/0x130", "on_doorbell+0xbf/0x130 [ntb_hw_ivshmem]")
        self.assertEqual(len(logcheck.findings(ours)), 1)
        other = self.INTERRUPTED.replace("do_idle+0x2a/0x240", "qp_run+0x2a/0x240 [ropcie]")
        self.assertEqual(len(logcheck.findings(other)), 1)

    DEADLOCK = """\
[ 1.0] WARNING: possible circular locking dependency detected
[ 1.0] kworker/0:1/464 is trying to acquire lock:
[ 1.0] ffffffffa04ab950 (nvmet_config_sem){++++}-{3:3}, at: nvmet_find_get_subsys+0x1/0x2 [nvmet]
[ 1.0] but task is already holding lock:
[ 1.0] ffff88800861c420 (&id_priv->handler_mutex){+.+.}-{3:3}, at: cma_ib_handler+0xab/0x7f0
[ 1.0] Call Trace:
[ 1.0]  nvmet_rdma_cm_handler+0x705/0x2ff0 [nvmet_rdma]
[ 1.0]  </TASK>
"""

    def test_a_deadlock_of_others_is_let_pass(self):
        self.assertEqual(logcheck.findings(GOOD + self.DEADLOCK), [])
        lines = self.DEADLOCK.splitlines()
        lines[2], lines[4] = lines[4], lines[2]
        self.assertEqual(logcheck.findings("\n".join(lines)), [])
        self.assertEqual(len(logcheck.findings(self.DEADLOCK + BAD)), len(BAD.splitlines()))

    def test_a_deadlock_with_us_in_it_is_ours(self):
        for ours in (self.DEADLOCK.replace("[nvmet_rdma]", "[ropcie]"),
                     self.DEADLOCK.replace("nvmet_config_sem", "device->unregistration_lock"),
                     self.DEADLOCK.replace("</TASK>", "")):
            self.assertEqual(len(logcheck.findings(ours)), 2)

    def test_order_is_kept(self):
        self.assertEqual(len(logcheck.findings(GOOD + BAD + GOOD)), len(BAD.splitlines()))


OOPS = """\
[   12.3] traps: PANIC: double fault, error_code: 0x0
[   12.3] Oops: double fault: 0000 [#1] PREEMPT SMP NOPTI
[   12.3] CPU: 0 UID: 0 PID: 100 Comm: ping Not tainted
[   12.3] RIP: 0010:foo+0x1/0x20 [ropcie]
[   12.3] Code: 00 00
[   12.3] Call Trace:
[   12.3]  <IRQ>
[   12.3]  ? guess+0x1/0x2
[   12.3]  bar+0x3/0x4 [ropcie]
[   12.3]  do_syscall_64+0x5/0x6
[   12.3]  </TASK>
[   12.3] later+0x5/0x6
"""


class FirstFault(unittest.TestCase):
    def test_a_clean_boot_has_none(self):
        self.assertEqual(logcheck.first_fault(GOOD), "")

    def test_a_trace_alone_is_the_last_choice(self):
        lines = ["[    1.0] Call Trace:", "[    1.1] BUG: KASAN: use-after-free in foo"]
        self.assertEqual(logcheck.first_fault("\n".join(lines)), "kernel: BUG: KASAN: use-after-free in foo")
        self.assertEqual(logcheck.first_fault(lines[0]), "kernel: Call Trace:")

    def test_it_says_where(self):
        self.assertEqual(logcheck.first_fault(GOOD + OOPS),
                         "kernel: Oops: double fault: 0000 [#1] PREEMPT SMP NOPTI"
                         " in foo+0x1 < bar+0x3 < do_syscall_64+0x5")

    def test_a_report_without_registers_has_its_trace_and_no_later_one(self):
        report = ("[ 1.0][  T100] BUG: KASAN: use-after-free in foo+0x1/0x2\n"
                  "[ 1.0][  T100] Call Trace:\n[ 1.0][  T100]  <TASK>\n"
                  "[ 1.0][  T100]  dump_stack_lvl+0x1/0x2\n[ 1.0][  T100]  </TASK>\n")
        self.assertEqual(logcheck.first_fault(report + OOPS),
                         "kernel: BUG: KASAN: use-after-free in foo+0x1/0x2 in dump_stack_lvl+0x1")


if __name__ == "__main__":
    unittest.main()
