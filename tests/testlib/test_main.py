# SPDX-License-Identifier: GPL-2.0
"""Tests of the order in which suites are run."""

import os
import sys
import tempfile
import time
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

    def runner(self, suite, pattern):
        return Runner(self.logs, False, None, pattern, print, suite.idle)

    def suite(self, name, script, idle=False):
        def run(runner):
            status, self.output[name] = runner.command(name, ["sh", "-c", script], 60)
            return of_status(name, status)

        return Suite(name, run, idle=idle)

    def run_all(self, *suites):
        self.output = {}
        return run_all([(suite, "*") for suite in suites], self.runner)

    def test_an_idle_one_runs_beside_those_behind_it(self):
        mark = os.path.join(self.logs, "mark")
        rows = self.run_all(self.suite("idle", f"until [ -e {mark} ]; do sleep 0.1; done; nice", idle=True),
                            self.suite("other", f"touch {mark}; nice"))
        self.assertEqual([suite.name for suite, _, _ in rows], ["other", "idle"])
        self.assertEqual([part.failed for _, part, _ in rows], [0, 0])
        self.assertEqual(self.output["idle"], "19\n")

    def test_a_failure_of_an_idle_one_counts(self):
        rows = self.run_all(self.suite("idle", "exit 1", idle=True))
        self.assertEqual([part.failed for _, part, _ in rows], [1])

    def test_an_interrupt_ends_an_idle_one(self):
        def interrupted(_):
            time.sleep(0.3)
            raise KeyboardInterrupt

        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            self.run_all(self.suite("idle", "sleep 60", idle=True), Suite("other", interrupted))
        self.assertLess(time.monotonic() - begin, 30)


if __name__ == "__main__":
    unittest.main()
