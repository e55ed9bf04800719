# SPDX-License-Identifier: GPL-2.0
"""Tests of what runs the suites' commands."""

import functools
import os
import sys
import tempfile
import time
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "scripts"))

from testlib.runner import Runner  # noqa: E402 (the path comes first)


class AtOnce(unittest.TestCase):
    def setUp(self):
        logs = tempfile.TemporaryDirectory()
        self.addCleanup(logs.cleanup)
        self.runner = Runner(logs.name, quick=False, kernel=None, pattern="*", report=print)

    def test_results_come_in_the_order_of_the_calls(self):
        def call(number):
            shell = ["sh", "-c", f"sleep 0.{number}; echo {number}"]
            return functools.partial(self.runner.command, str(number), shell, 10)

        calls = [call(number) for number in (3, 1, 2)]
        self.assertEqual([output for _, output in self.runner.at_once(calls)], ["3\n", "1\n", "2\n"])

    def test_one_that_raises_ends_the_others(self):
        def fails():
            time.sleep(0.3)
            raise KeyboardInterrupt

        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            self.runner.at_once([fails, functools.partial(self.runner.command, "long", ["sleep", "60"], 60)])
        self.assertLess(time.monotonic() - begin, 30)


if __name__ == "__main__":
    unittest.main()
