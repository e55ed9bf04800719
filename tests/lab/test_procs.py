# SPDX-License-Identifier: GPL-2.0
"""Nothing that the lab starts outlives it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import TOP

from lablib import procs
from lablib.common import LabError

LAUNCHER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from lablib import procs
if sys.argv[2] == "spawn":
    print(procs.spawn(["sleep", "1000"]).pid, flush=True)
    time.sleep(1000)
procs.step(["bash", "-c", "sleep 1000 & echo $! >" + sys.argv[3] + "; wait"], sys.argv[3] + ".log", "x")
"""


def gone(pid, patience=10):
    """True once the process has ended (a zombie has)."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def appears(path, patience=10):
    """The number in a file once it is there."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if os.path.exists(path) and os.path.getsize(path):
            with open(path, encoding="ascii") as text:
                return int(text.read())
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


class Orphans(unittest.TestCase):
    def launch(self, *args):
        return subprocess.Popen([sys.executable, "-B", "-c", LAUNCHER, os.path.join(TOP, "scripts"), *args],
                                stdout=subprocess.PIPE, text=True)

    def test_killed_lab_takes_its_guests_along(self):
        with self.launch("spawn") as launcher:
            child = int(launcher.stdout.readline())
            launcher.send_signal(signal.SIGKILL)
            self.assertTrue(gone(child))

    def test_killed_lab_takes_a_build_and_its_children_along(self):
        with tempfile.TemporaryDirectory() as work, self.launch("step", os.path.join(work, "pid")) as launcher:
            child = appears(os.path.join(work, "pid"))
            launcher.send_signal(signal.SIGKILL)
            self.assertTrue(gone(child))


class Steps(unittest.TestCase):
    def test_failure_tells_the_last_line_and_the_log(self):
        with tempfile.TemporaryDirectory() as work:
            log = os.path.join(work, "log")
            with self.assertRaises(LabError) as caught:
                procs.step(["bash", "-c", "echo first; echo the reason; exit 3"], log, "trying", "do this")
        self.assertEqual(str(caught.exception),
                         f"trying failed: the reason (whole log: {log}; do this)")

    def test_complaint_begins_with_the_cause(self):
        with tempfile.TemporaryDirectory() as work:
            log = os.path.join(work, "log")
            with open(log, "w", encoding="ascii") as text:
                text.write("ok: a\n")
            self.assertEqual(procs.complaint(log), "ok: a")
            with open(log, "a", encoding="ascii") as text:
                text.write("FAILED: rop_x: a byte\nFAILED: rop_x ended with 1\n" + "more\n" * 1000)
            self.assertEqual(procs.complaint(log), "FAILED: rop_x: a byte; FAILED: rop_x ended with 1")

    def test_arguments_are_kept_apart(self):
        with tempfile.TemporaryDirectory() as work:
            log = os.path.join(work, "log")
            procs.step(["printf", "%s;", "a b", "c'd"], log, "printing")
            with open(log, encoding="ascii") as text:
                self.assertEqual(text.read(), "a b;c'd;")


if __name__ == "__main__":
    unittest.main()
