# SPDX-License-Identifier: GPL-2.0
"""Tests of the order in which suites are run."""

import os
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "scripts"))

from testlib.main import run_all  # noqa: E402 (the path comes first)
from testlib.result import of_status  # noqa: E402
from testlib.runner import Runner  # noqa: E402
from testlib.suites import Suite  # noqa: E402


class RunAll(unittest.TestCase):
    def setUp(self):
        logs = tempfile.TemporaryDirectory()
        self.addCleanup(logs.cleanup)
        self.logs = logs.name

    def runner(self, _, pattern):
        return Runner(self.logs, False, None, pattern, print)

    def suite(self, name, script):
        def run(runner):
            return of_status(name, runner.command(name, ["sh", "-c", script], 60)[0])

        return Suite(name, run)

    def run_all(self, *suites):
        return run_all([(suite, "*") for suite in suites], self.runner)

    def test_they_run_in_order_and_go_on_after_a_failure(self):
        mark = os.path.join(self.logs, "mark")
        rows = self.run_all(self.suite("first", f"touch {mark}; exit 1"), self.suite("second", f"test -e {mark}"))
        self.assertEqual([suite.name for suite, _, _ in rows], ["first", "second"])
        self.assertEqual([part.failed for _, part, _ in rows], [1, 0])

    def test_what_goes_wrong_in_a_suite_is_a_failure(self):
        def broken(_):
            raise OSError("no disk")

        rows = self.run_all(Suite("broken", broken))
        self.assertEqual([part.failures for _, part, _ in rows], [["OSError: no disk"]])


class List(unittest.TestCase):
    def test_it_shows_what_a_pattern_is(self):
        done = subprocess.run([os.path.join(TOP, "scripts/test"), "--list", "guests-zoo:errors.?-idt"],
                              capture_output=True, text=True, check=True)
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()],
                         ["guests-zoo", "guests-zoo:errors.1-idt"])


if __name__ == "__main__":
    unittest.main()
