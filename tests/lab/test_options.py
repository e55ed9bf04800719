# SPDX-License-Identifier: GPL-2.0
"""The lab's command line: defaults, and refusals before anything boots."""

import os
import subprocess
import tempfile
import unittest

from support import LAB

from lablib import main, options
from lablib.common import LabError

SCRIPT = "/etc/passwd"


class Defaults(unittest.TestCase):
    def test_two_nodes_of_ropcie_over_ntb(self):
        opts = options.parse(["run", SCRIPT])
        self.assertEqual((opts.nodes, opts.provider, opts.link, opts.smp, opts.kernel),
                         (2, "ropcie", "ntb", 1, "6.1"))

    def test_icount_is_one_node_with_one_cpu(self):
        opts = options.parse(["--icount", "run", SCRIPT])
        self.assertEqual((opts.nodes, opts.smp, opts.link), (1, 1, "loopback"))
        opts = options.parse(["--icount", "--provider", "rxe", "run", SCRIPT])
        self.assertEqual(opts.link, "virtio")

    def test_debug_kernel_checks_leaks(self):
        self.assertTrue(options.parse(["--kernel", "debug", "run", SCRIPT]).leak_check)
        self.assertFalse(options.parse(["run", SCRIPT]).leak_check)

    def test_races_need_two_processors(self):
        self.assertEqual(options.parse(["--kernel", "kcsan", "run", SCRIPT]).smp, 2)
        self.assertEqual(options.parse(["--kernel", "kcsan", "--smp", "4", "run", SCRIPT]).smp, 4)

    def test_arguments_of_the_script_are_its_own(self):
        opts = options.parse(["run", SCRIPT, "--nodes", "x", "-h"])
        self.assertEqual(opts.args, ["--nodes", "x", "-h"])

    def test_module_params_may_be_repeated(self):
        opts = options.parse(["--module-params", "a:b=1 c:d=2", "--module-params", "a:e=x=y",
                              "run", SCRIPT])
        self.assertEqual(opts.module_params, [("a", "b=1"), ("c", "d=2"), ("a", "e=x=y")])


class ModuleParams(unittest.TestCase):
    def test_no_such_module(self):
        with tempfile.TemporaryDirectory() as empty, self.assertRaises(LabError) as caught:
            main.check_module_params([("nonesuch", "a=1")], empty, empty)
        self.assertEqual(str(caught.exception), "--module-params: there is no module nonesuch")

    def test_no_such_parameter(self):
        with tempfile.TemporaryDirectory() as top:
            os.mkdir(os.path.join(top, "ntb_if"))
            with open(os.path.join(top, "ntb_if", "bare.ko"), "wb"):
                pass
            with self.assertRaises(LabError) as caught:
                main.check_module_params([("bare", "a=1")], top, top)
        self.assertEqual(str(caught.exception), "--module-params: bare has no parameter a")


class Refusals(unittest.TestCase):
    def refused(self, *argv, why):
        with self.assertRaises(LabError) as caught:
            options.parse(list(argv))
        self.assertIn(why, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_one_line_each(self):
        self.refused("--bogus", "run", SCRIPT, why="--bogus")
        self.refused(why="run SCRIPT")
        self.refused("frob", why="frob")
        self.refused("run", why="SCRIPT")
        self.refused("run", "/no/such", why="/no/such: no such file")
        self.refused("run", "/bin/ls", why="/bin/ls: a program, not a shell script: call it from one")
        with tempfile.NamedTemporaryFile("w") as script:
            script.write("#!/usr/bin/python3\n")
            script.flush()
            self.refused("run", script.name, why=f"{script.name}: its first line is '#!/usr/bin/python3', "
                         "but the lab runs bash: call it from a shell script")
        self.refused("run", "/etc", why="/etc: not a file")
        self.refused("shell", SCRIPT, why="shell takes no SCRIPT")
        self.refused("--nodes", "0", "run", SCRIPT, why="--nodes")
        self.refused("--nodes", "99", "run", SCRIPT, why="at most")
        self.refused("--smp", "5000", "run", SCRIPT, why="--smp 5000")
        self.refused("--mem", "1", "run", SCRIPT, why="--mem 1")
        self.refused("--timeout", "soon", "run", SCRIPT, why="--timeout")
        self.refused("--kernel", "abc", "run", SCRIPT, why="abc")
        self.refused("--module-params", "x", "run", SCRIPT, why="MODULE:PARAMETER=VALUE")

    def test_combinations_that_cannot_be(self):
        self.refused("--icount", "--nodes", "2", "run", SCRIPT, why="--icount")
        self.refused("--icount", "--smp", "2", "run", SCRIPT, why="--icount")
        self.refused("--link", "virtio", "run", SCRIPT, why="ropcie")
        self.refused("--link", "loopback", "--with-virtio", "run", SCRIPT, why="--with-virtio")
        self.refused("--link", "loopback", "--flat", "run", SCRIPT, why="--flat goes with --link ntb")
        self.refused("--nodes", "1", "--flat", "run", SCRIPT, why="two nodes")
        self.refused("--provider", "rxe", "--flat", "run", SCRIPT, why="--flat is not for --provider rxe")
        for mem in ("768", "4096"):
            self.refused("--mem", mem, "--flat", "run", SCRIPT, why=f"--mem {mem} with --flat: give a power of two")
        self.refused("--provider", "rxe", "--link", "loopback", "run", SCRIPT, why="loopback")
        self.refused("--provider", "siw", "--nodes", "3", "run", SCRIPT, why="ntb_netdev")

    def test_command_exits_with_2_and_one_line(self):
        done = subprocess.run([LAB, "--nodes", "no", "run", SCRIPT], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
