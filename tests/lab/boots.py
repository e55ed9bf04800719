# SPDX-License-Identifier: GPL-2.0
"""scripts/lab with real guests: its exit status for each way a run can end.

Takes minutes without KVM, so `unittest discover` leaves it out:
  python3 tests/lab/boots.py [TwoGuests|OneGuest|GuestThatStops]
"""

import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from support import LAB, TOP

OPTIONS = ["--provider", "rxe", "--link", "virtio"]


def processes_of(word):
    """Command lines of running processes that have a word."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as text:
                line = text.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line and "qemu-system" in line:
            found.append(line)
    return found


class Lab(unittest.TestCase):
    """A run of scripts/lab and its logs."""

    def setUp(self):
        work = tempfile.TemporaryDirectory(prefix="ropcie-lab-test-")
        self.addCleanup(work.cleanup)
        self.work = work.name
        self.logs = os.path.join(self.work, "logs")

    def script(self, text):
        path = os.path.join(self.work, "script.sh")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def lab(self, *argv):
        done = subprocess.run([LAB, "--log-dir", self.logs, *OPTIONS, *argv], cwd="/",
                              capture_output=True, text=True, timeout=400, check=False)
        self.assertEqual(processes_of(self.logs), [])
        return done

    def fails(self, done, reason):
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("lab: FAILED")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], reason)


class TwoGuests(Lab):
    def test_self_test_of_two_nodes(self):
        done = self.lab("run", os.path.join(TOP, "tests/guest/lab_selftest.sh"), "two words")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for node in (1, 2):
            self.assertIn(f"node{node}| lab self-test passed", done.stdout)
            with open(os.path.join(self.logs, f"node{node}", "output.log"), encoding="utf-8") as log:
                self.assertIn("lab self-test passed", log.read())

    def test_status_of_one_node(self):
        self.fails(self.lab("run", self.script("[ $NODE = 1 ] || { echo why; exit 9; }")),
                   r"node2: the script exited with 9 \(why\)")

    def test_panic_of_a_node_while_the_other_waits(self):
        done = self.lab("run", self.script(
            "if [ $NODE = 1 ]; then echo c >/proc/sysrq-trigger; else lab-barrier x; fi"))
        self.fails(done, "node1: kernel: .*")
        self.assertIn("node2| lab-barrier x: node1 has died", done.stdout)

    def test_killed_lab_leaves_no_guest(self):
        with subprocess.Popen([LAB, "--log-dir", self.logs, *OPTIONS, "run", self.script("sleep 1000")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as lab:
            end = time.monotonic() + 60
            while len(processes_of(self.logs)) < 2 and time.monotonic() < end:
                time.sleep(0.1)
            self.assertEqual(len(processes_of(self.logs)), 2)
            lab.send_signal(signal.SIGKILL)
        time.sleep(1)
        self.assertEqual(processes_of(self.logs), [])


class OneGuest(Lab):
    def test_server_that_is_not_there_cannot_be_killed(self):
        done = self.lab("--nodes", "1", "run", self.script("lab-kill-server; [ $? = 1 ] && lab-reboot soon; [ $? = 2 ]"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("lab-kill-server: this link has no server", done.stdout)
        self.assertIn("usage: lab-reboot kill|crash|orderly", done.stdout)

    def test_hang(self):
        self.fails(self.lab("--nodes", "1", "--timeout", "3", "run", self.script("sleep 1000")),
                   "node1: did not end its script within 3 s")

    def test_guest_that_never_boots(self):
        done = self.lab("--nodes", "1", "--kernel-args", "rdinit=/nothing panic=0", "run",
                        self.script("true"))
        self.fails(done, "node1: ")

    def test_what_a_guest_does_that_hangs(self):
        # Its first program waits for ever.
        done = self.lab("--nodes", "1", "--kernel-args", "rdinit=/bin/busybox -- sleep 9999", "run", self.script("true"))
        self.fails(done, "node1: did not boot within")
        node = os.path.join(self.logs, "node1")
        with open(os.path.join(node, "hang.log"), encoding="utf-8") as log:
            told = log.read()
        for word in ("[virtio-9p]", "used_idx", "RIP="):
            self.assertIn(word, told)
        with open(os.path.join(node, "console.log"), encoding="utf-8") as log:
            self.assertIn("Show Blocked State", log.read())

    def test_shell_takes_commands_from_a_pipe(self):
        done = subprocess.run([LAB, "--log-dir", self.logs, "--nodes", "1", *OPTIONS, "shell"], cwd="/",
                              input="echo sum=$((40 + 2))\nexit\n", capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(re.search("sum=42", done.stdout), done.stdout)


class GuestThatStops(Lab):
    def test_node_that_dies_on_purpose_in_each_way(self):
        done = self.lab("--nodes", "1", "run", self.script(
            "echo life $LAB_BOOT; set -- kill crash orderly; shift $((LAB_BOOT - 1))\n"
            "[ $# = 0 ] || lab-reboot $1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(re.findall("life [0-9]", done.stdout), [f"life {boot}" for boot in (1, 2, 3, 4)])

    def test_pause_stops_all_of_a_guest_but_its_clocks(self):
        done = self.lab("--nodes", "1", "run", self.script(
            "us() { read -r up _ </proc/uptime; echo $((10#${up/./} * 10000)); }\n"
            "busy() { while :; do date +%s%N; done >/tmp/beats; }\n"
            "busy & before=$(us); lab-pause 3; passed=$(($(us) - before)); kill $!\n"
            "[ $passed -ge 3000000 ] || { echo $passed us of the clock; exit 1; }\n"
            "awk '$1 - last > gap { gap = $1 - last } { last = $1 } NR == 1 { gap = 0 } END { exit gap < 2.9e9 }' /tmp/beats\n"
            "[ $? = 0 ] || { echo it went on; exit 1; }\n"
            "lab-pause soon; [ $? = 2 ]"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
