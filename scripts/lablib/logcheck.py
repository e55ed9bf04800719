# SPDX-License-Identifier: GPL-2.0
"""Finds what a kernel log must not have.

Pure text in, findings out; knows nothing of nodes.
"""

import re

# A console line may carry a time stamp, and with PRINTK_CALLER a task.
_PREFIX = r"^(?:\[\s*\d+\.\d+\]\s*)?(?:\[\s*[TC]\d+\]\s*)?"

_BAD = re.compile("|".join((
    _PREFIX + r"(?:BUG(?!: KCSAN)|WARNING|Oops|KASAN|UBSAN)\b",
    r"\bBUG: (?!KCSAN)",
    r"kernel BUG at ",
    r"\bWARNING: (?:CPU|possible|inconsistent|suspicious|bad unlock|held lock|lock held|"
    r"nested lock|stack|kernel stack)",
    r"\bOops: ",
    r"\bKASAN: ",
    r"\bUBSAN: ",
    r"\bODEBUG: ",
    r"possible circular locking",
    r"possible recursive locking",
    r"inconsistent lock state",
    r"suspicious RCU",
    r"scheduling while atomic",
    r"sleeping function called from invalid context",
    r"blocked for more than \d+ seconds",
    r"soft lockup",
    r"hard LOCKUP",
    r"rcu: INFO: .*(?:stall|expedited)",
    r"rcu_\w+ (?:self-)?detected (?:expedited )?stall",
    r"general protection fault",
    r"unable to handle",
    r"refcount_t: ",
    r"list_(?:add|del) corruption",
    r"Kernel panic",
    r"Out of memory: ",
    r"page allocation failure",
    r"swiotlb buffer is full",
    r"unregister_netdevice: waiting for ",
    r"Call Trace:",
    r"DMA-API: (?!preallocated|debugging (?:enabled|disabled by))",
)))

_RACE = re.compile(r"\bBUG: KCSAN: ")
_RACE_ENDS = re.compile(r"={20}")
_INTERRUPT = re.compile(r"\basm_(?:sysvec_\w+|common_interrupt)\+")
# Functions whose races are the kernel's own, whoever has called them and what they race with.
_OTHERS_RACES = re.compile("|".join((
    r"\bpoll_schedule_timeout\b",  # poll(2) looks whether it was woken, in memory of its own
    r"\bschedule_hrtimeout_range_clock\b",  # usleep_range(): whether its timer has gone off
    r"\b__handle_mm_fault\b",  # a page table, before it takes its lock and looks again
    r"\binode_needs_update_time\b",  # a file's times, at a fault of a shared mapping
)))
_OURS = re.compile(r"\[(?:ropcie\w*|ntb_hw_ivshmem)\]")

_DEADLOCK = re.compile(r"possible circular locking")
_DEADLOCK_ENDS = re.compile(r"</TASK>")
# The two locks of deadlocks that are the kernel's own, whichever the provider; whose taking
# is reported depends on which of them was taken first before.
_OTHERS_DEADLOCKS = (
    # nvmet_rdma: the last subsystem leaves a port (rdma_destroy_id under nvmet_config_sem)
    # while a command that came before its connection was established is begun (by the
    # connection's event handler). Seen with Linux 6.1.
    ("nvmet_config_sem", "id_priv->handler_mutex"),
)

_STAMP = re.compile(r"^(?:\[\s*(?:\d+\.\d+|[TC]\d+)\]\s*)+")
_PLACE = re.compile(r"RIP: 0010:(\S+?)/")
_CALLER = re.compile(r"([\w.]+\+0x[0-9a-f]+)/0x")  # those with a "?" before them may be none
_PLACES = 10


def findings(text):
    """The lines of a kernel log that are reports of a fault, in order."""
    lines = _without_others_deadlocks(text.splitlines())
    return [line.strip() for number, line in enumerate(lines)
            if _BAD.search(line) or _RACE.search(line) and _is_ours(lines[number:])]


def _without_others_deadlocks(lines):
    kept = []
    report = []  # of a deadlock
    for line in lines:
        if report or _DEADLOCK.search(line):
            report.append(line)
            if _DEADLOCK_ENDS.search(line):
                kept += [] if _is_others_deadlock(report) else report
                report = []
        else:
            kept.append(line)
    return kept + report


def _is_others_deadlock(report):
    locks = [line for line in report if " at: " in line][:2]
    return not any(_OURS.search(line) for line in report) and any(
        len(locks) == len(order) and all(lock in line for lock, line in zip(order, locks))
        for pair in _OTHERS_DEADLOCKS for order in (pair, pair[::-1]))


def _is_ours(report):
    """Races of the rest of the kernel are others' to judge."""
    if _OTHERS_RACES.search(report[0]) and not _OURS.search(report[0]):
        return False
    interrupted = False
    for line in report:
        if _RACE_ENDS.search(line):
            return False
        # What an interrupt has stopped has no part in what it does.
        interrupted = _STAMP.sub("", line) != "" and (interrupted or bool(_INTERRUPT.search(line)))
        if _OURS.search(line) and not interrupted:
            return True
    return False


def first_fault(text):
    """The first fault that a kernel log tells of, and where, in a line; "" if there is none."""
    found = findings(text)
    if not found:
        return ""
    # A trace says less than what stands above it.
    first = next((line for line in found if "Call Trace:" not in line), found[0])
    where = _where([line.strip() for line in text.splitlines()], first)
    return f"kernel: {_STAMP.sub('', first)[:160]}" + (f" in {' < '.join(where)}" if where else "")


def _where(lines, finding):
    """The instruction and the callers of what is told from the line FINDING on."""
    names = []
    traced = "Call Trace:" in finding
    for line in lines[lines.index(finding) + 1:]:
        line = _STAMP.sub("", line)
        traced = traced or "Call Trace:" in line
        place = _PLACE.match(line) or traced and _CALLER.match(line)
        if place:
            names.append(place[1])
        if len(names) == _PLACES or "</TASK>" in line:
            break
    return names
