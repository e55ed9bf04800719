# SPDX-License-Identifier: GPL-2.0
"""The bugs that scripts/mutate plants have their places in kernel/core."""

import os
import subprocess
import unittest

from support import TOP


class MutantsTest(unittest.TestCase):
    def test_each_has_its_place(self):
        done = subprocess.run([os.path.join(TOP, "scripts/mutate"), "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
