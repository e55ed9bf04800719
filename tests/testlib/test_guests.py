# SPDX-License-Identifier: GPL-2.0
"""What a guest test's header means."""

import os
import re
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "scripts"))

from lablib.common import LabError  # noqa: E402 (the path comes first)
from testlib import guests  # noqa: E402


def tests_of(header):
    """The runs of a script demo.sh with this header."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "demo.sh")
        with open(path, "w", encoding="utf-8") as script:
            script.write("#!/bin/bash\n" + header + "set -eu\n# lab: --nodes 9\n")
        return guests.tests_of(path)


class Header(unittest.TestCase):
    def test_one_line_is_one_run(self):
        (test,) = tests_of("# lab: --nodes 2 --link ntb\n")
        self.assertEqual((test.name, test.options, test.args, test.quick),
                         ("demo", ("--nodes", "2", "--link", "ntb"), (), False))

    def test_several_lines_are_several_runs_and_the_first_is_quick(self):
        first, second = tests_of("# lab:\n# lab: --nodes 3\n# lab-quick: yes\n# lab-kernels: all\n")
        self.assertEqual((first.name, first.options, first.quick), ("demo.1", (), True))
        self.assertEqual((first.all_kernels, second.all_kernels), (True, False))
        self.assertEqual((second.name, second.options, second.quick), ("demo.2", ("--nodes", "3"), False))

    def test_long_runs_are_marked(self):
        first, second = tests_of("# lab:\n# lab-long: --timeout 9 -- 50\n")
        self.assertEqual((first.long, second.long), (False, True))
        self.assertEqual((second.name, second.args, second.timeout()), ("demo.2", ("50",), 9))

    def test_arguments_stand_behind_two_dashes(self):
        (test,) = tests_of("# lab: --smp 2 -- 'two words' x\n")
        self.assertEqual((test.options, test.args), (("--smp", "2"), ("two words", "x")))

    def test_without_a_line_it_is_an_error(self):
        with self.assertRaises(LabError):
            tests_of("# text\n")

    def test_command(self):
        command = guests.lab_command("6.1", "/logs", ("--nodes", "2"), "/demo.sh", "a")
        self.assertEqual(command[1:], ["--kernel", "6.1", "--log-dir", "/logs", "--nodes", "2", "run",
                                       "/demo.sh", "a"])

    def test_a_batch_has_the_same_options(self):
        one, two = tests_of("# lab: --nodes 2\n# lab: --nodes 3\n")
        (three,) = tests_of("# lab: --nodes 2 -- 'two words'\n")
        self.assertEqual(guests.batches([one, two, three]), [[one, three], [two]])
        self.assertEqual(guests.batch_list([three]), f"demo\t{three.script}\t'two words'\n")

    def test_a_test_alone_has_its_own_batch(self):
        first, second = tests_of("# lab: --nodes 2\n# lab-alone: yes\n# lab: --nodes 2\n")
        (third,) = tests_of("# lab: --nodes 2\n")
        self.assertEqual(guests.batches([first, second, third]), [[first], [second], [third]])

    def test_all_nodes_of_a_batch_have_to_say_ok(self):
        one, two = tests_of("# lab:\n# lab:\n")
        output = ("node1| batch: demo.1: ok in 3 s\nnode2| batch: demo.1: ok in 4 s\n"
                  "node1| batch: demo.2: ok in 1 s\nnode2| batch: demo.2: failed with status 1\n")
        self.assertEqual(guests.batch_passed([one, two], output), {"demo.1": 4})

    def test_a_batch_may_go_on_in_new_guests(self):
        self.assertTrue(guests.batch_moves("node1| batch: demo.1: ok in 3 s\n"
                                           "node2| batch: demo.2: in new guests, lockdep is off\n"))
        self.assertFalse(guests.batch_moves("node1| batch: demo.1: ok in 3 s\n"))

    def test_a_test_that_is_left_out_is_told_from_one_that_is_well(self):
        (one,) = tests_of("# lab:\n")
        output = "node1| batch: demo: left out\nnode2| batch: demo: left out\n"
        self.assertEqual(guests.batch_passed([one], output), {"demo": None})

    def test_on_families_runs_what_two_nodes_can_do_on_any_ntb(self):
        tests = tests_of("# lab: --nodes 2 --smp 2 -- 1\n# lab: --nodes 1 --link loopback\n# lab: --nodes 2 --no-setup\n"
                         "# lab: --nodes 3\n# lab-long: --nodes 2 --timeout 9000\n# lab-long: --nodes 2\n")
        found = guests.on_families(tests)
        self.assertEqual([test.name for test in found if test.name.endswith("-idt")], ["demo.1-idt", "demo.6-idt"])
        self.assertEqual(len(found), 2 * len(guests.FAMILIES))
        self.assertEqual((found[0].options, found[0].args),
                         (("--nodes", "2", "--smp", "2", "--module-params", "ntb_hw_ivshmem:family=intel1"), ("1",)))

    def test_on_families_leaves_out_placement_where_there_is_none(self):
        names = [test.name for test in guests.on_families(tests_of("# lab: --nodes 2 --flat\n"))]
        self.assertIn("demo-amd", names)
        self.assertNotIn("demo-epf", names)
        self.assertNotIn("demo-idt", names)

    def test_names_on_families_can_be_a_barriers(self):
        for test in guests.on_families(tests_of("# lab: --nodes 2\n")):
            self.assertRegex(f"batch-{test.name}", r"^[A-Za-z0-9._:-]+$")

    def test_the_families_are_those_of_the_driver(self):
        with open(os.path.join(TOP, "kernel/ntb_hw_ivshmem/family.c"), encoding="utf-8") as source:
            self.assertEqual(re.findall(r'\.name = "(\w+)"', source.read()), list(guests.FAMILIES))

    def test_patterns_stand_side_by_side(self):
        self.assertTrue(guests.matches("ntb-perf.1", "traffic.2,ntb-*"))
        self.assertTrue(guests.matches("traffic.2", "traffic.2,ntb-*"))
        self.assertFalse(guests.matches("traffic.1", "traffic.2,ntb-*"))

    def test_every_guest_test_of_the_project_says_how_it_is_run(self):
        self.assertTrue(guests.find())


if __name__ == "__main__":
    unittest.main()
