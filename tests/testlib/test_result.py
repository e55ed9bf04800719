# SPDX-License-Identifier: GPL-2.0
"""How scripts/test counts: nothing that failed may look like a success."""

import os
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "scripts"))

from testlib import result  # noqa: E402 (the path comes first)

JUNIT = """<?xml version="1.0"?><testsuite tests="3">
<testcase name="good" status="run"/>
<testcase name="bad" status="fail"><failure message=""/></testcase>
<testcase name="left out" status="notrun"><skipped message="SKIP"/></testcase>
<testcase name="not there" status="notrun"/>
</testsuite>"""


class Counting(unittest.TestCase):
    def counts(self, part):
        return part.passed, part.failed, part.skipped

    def test_total_line_is_the_last_one_of_its_form(self):
        part = result.of_total("spdx: 1 passed, 0 failed\nFAILED x y\n3 passed, 1 failed\n", 1)
        self.assertEqual(self.counts(part), (3, 1, 0))
        self.assertEqual(part.failures, ["x y"])

    def test_total_line_with_skipped(self):
        self.assertEqual(self.counts(result.of_total("3 passed, 0 failed, 2 skipped", 0)), (3, 0, 2))

    def test_no_total_line_is_a_failure(self):
        self.assertEqual(result.of_total("all is well", 0).failed, 1)

    def test_bad_status_after_a_good_line_is_a_failure(self):
        self.assertEqual(result.of_total("3 passed, 0 failed", 1).failed, 1)

    def test_junit(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write(JUNIT)
            report.flush()
            part = result.of_junit(report.name, 8)
        self.assertEqual(self.counts(part), (1, 2, 1))
        self.assertEqual(part.failures, ["bad", "not there"])

    def test_junit_without_a_test_is_a_failure(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write("<testsuite/>")
            report.flush()
            self.assertEqual(result.of_junit(report.name, 0).failed, 1)

    def test_missing_junit_is_a_failure(self):
        self.assertEqual(result.of_junit("/nonexistent", 0).failed, 1)

    def test_unittest(self):
        text = "FAIL: test_a (x)\n\nRan 5 tests in 0.1s\n\nFAILED (failures=1, skipped=1)\n"
        part = result.of_unittest(text, 1)
        self.assertEqual(self.counts(part), (3, 1, 1))

    def test_unittest_that_crashed_is_a_failure(self):
        self.assertEqual(result.of_unittest("Traceback", 1).failed, 1)

    def test_seed_that_fails_is_told(self):
        said = "seed 7: a send completes twice\n12us node 1 qp 2: send 3 done\nreplay: ropcie_sim --seed 7 --trace\n"
        self.assertEqual(result.of_seeds(said, 1), (7, "seed 7: a send completes twice"))

    def test_seed_that_crashes_is_told(self):
        said = "x.c:3: invariant broken: y\nseed 8 does not end well\nreplay: ropcie_sim --seed 8 --trace\n"
        self.assertEqual(result.of_seeds(said, -6), (8, "seed 8: x.c:3: invariant broken: y"))

    def test_simulation_that_says_no_seed(self):
        self.assertEqual(result.of_seeds("no such file\n", 127), (None, "exit status 127: no such file"))

    def test_last_line_has_the_promised_form(self):
        self.assertEqual(result.Result(2, 1).line(), "2 passed, 1 failed")
        self.assertEqual(result.Result(2, 1, 3).line(), "2 passed, 1 failed, 3 skipped")


if __name__ == "__main__":
    unittest.main()
