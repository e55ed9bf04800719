# SPDX-License-Identifier: GPL-2.0
"""The suites of scripts/test that are more than one command."""

import os
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "scripts"))

from testlib import suites  # noqa: E402 (the path comes first)


class Simulation:
    """In the place of a Runner: seeds, some of which fail, and what was asked for."""

    def __init__(self, bad=(), built=0, says=True):
        self.bad = bad
        self.built = built
        self.says = says
        self.parts = []

    def cmake(self, _name, _build):
        return self.built

    def at_once(self, calls):
        return [call() for call in calls]

    def command(self, name, argv, _timeout):
        if argv[0].endswith("mutate"):
            return 1, "ring.c: a: SURVIVED\nFAILED ring.c: a: no test notices it\n4 passed, 1 failed\n"
        first, end = map(int, argv[-1].split(":"))
        self.parts.append((first, end))
        assert argv[-2] == "--seeds" and name == f"sim-{first}"
        seed = next((seed for seed in self.bad if first <= seed < end), None)
        if seed is None:
            return 0, "all hold\n"
        return 1, f"seed {seed}: why\nreplay: ropcie_sim --seed {seed} --trace\n" if self.says else ""


def suite(name):
    return next(one for one in suites.SUITES if one.name == name)


class LongSuites(unittest.TestCase):
    def test_they_are_run_only_when_named(self):
        for name in ("sim-nightly", "mutation", "guests-long"):
            self.assertTrue(suite(name).long and not suite(name).quick)

    def test_nightly_runs_a_million_seeds_once_each(self):
        runner = Simulation()
        part = suite("sim-nightly").run(runner)
        self.assertEqual((part.passed, part.failed), (len(runner.parts), 0))
        self.assertEqual(sum(end - first for first, end in runner.parts), 1000000)
        for (_, end), (first, _) in zip(runner.parts, runner.parts[1:]):
            self.assertEqual(end, first)

    def test_nightly_fails_where_a_seed_does(self):
        runner = Simulation()
        suite("sim-nightly").run(runner)
        bad = runner.parts[0][0] + 3
        part = suite("sim-nightly").run(Simulation(bad=(bad,)))
        self.assertEqual((part.passed, part.failed), (len(runner.parts) - 1, 1))
        self.assertEqual(part.failures, [f"seed {bad}: why"])

    def test_nightly_without_a_program_fails(self):
        part = suite("sim-nightly").run(Simulation(built=2))
        self.assertEqual((part.passed, part.failed), (0, 1))

    def test_part_goes_on_behind_a_seed_that_fails(self):
        runner = Simulation(bad=(12, 15))
        part = suites.nightly_part(runner, 10, 20)
        self.assertEqual((part.passed, part.failed), (0, 1))
        self.assertEqual(part.failures, ["seed 12: why", "seed 15: why"])
        self.assertEqual(runner.parts, [(10, 20), (13, 20), (16, 20)])

    def test_part_whose_last_seed_fails_has_an_end(self):
        runner = Simulation(bad=(19,))
        self.assertEqual(suites.nightly_part(runner, 10, 20).failed, 1)
        self.assertEqual(runner.parts, [(10, 20)])

    def test_part_in_which_all_fail_has_an_end(self):
        runner = Simulation(bad=range(1000))
        self.assertEqual(suites.nightly_part(runner, 0, 1000).failed, 1)
        self.assertLess(len(runner.parts), 10)

    def test_part_that_says_no_seed_fails_once(self):
        runner = Simulation(bad=(12,), says=False)
        self.assertEqual(len(suites.nightly_part(runner, 10, 20).failures), 1)
        self.assertEqual(len(runner.parts), 1)

    def test_bugs_that_survive_are_failures(self):
        part = suite("mutation").run(Simulation())
        self.assertEqual((part.passed, part.failed), (4, 1))
        self.assertEqual(part.failures, ["ring.c: a: no test notices it"])


if __name__ == "__main__":
    unittest.main()
