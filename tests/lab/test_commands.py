# SPDX-License-Identifier: GPL-2.0
"""Tests of what commands say of arguments that they can not use, before they begin."""

import os
import subprocess
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


class BadArguments(unittest.TestCase):
    def expect(self, said, *command):
        done = subprocess.run([os.path.join(TOP, command[0]), *command[1:]], capture_output=True, text=True,
                              timeout=30, check=False)
        text = done.stdout + done.stderr
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(said, text)
        self.assertNotIn("Traceback", text)

    def test_a_place_that_cannot_be_written_to(self):
        for command in ("scripts/bench", "scripts/soak", "bench/nvme_of"):
            self.expect("--out names another place", command, "--out", "/proc/nothing")
        self.expect("--log-dir names another place", "scripts/test", "--log-dir", "/proc/nothing", "scripts")

    def test_places_without_a_name(self):
        for command in ("scripts/bench", "scripts/soak", "bench/nvme_of"):
            self.expect("--out has no name", command, "--out", "")
        self.expect("--log-dir has no name", "scripts/test", "--log-dir", "", "scripts")
        self.expect("--log-dir has no name", "scripts/lab", "--log-dir", "", "shell")

    def test_nothing_that_is_to_be_run(self):
        self.expect("nothing of that is to be run", "scripts/test", "--quick", "guests-long")

    def test_names_that_there_are_not(self):
        self.expect("no episode 'nonsense': traffic, ", "scripts/soak", "--only", "traffic,nonsense")
        self.expect("no episode '': traffic, ", "scripts/soak", "--only", ",")
        self.expect("neither a series", "scripts/bench", "--kernel", "nonsense")
        self.expect("no bug has 'nonsense'", "scripts/mutate", "--only", "nonsense")


if __name__ == "__main__":
    unittest.main()
