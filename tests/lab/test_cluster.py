# SPDX-License-Identifier: GPL-2.0
"""A run's course and verdict, with sockets in the place of guests."""

import contextlib
import io
import os
import socket
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import support  # noqa: F401 (the path)

from lablib import cluster, qemu


class FakeGuest:
    """Behaves as a script of messages says; no QEMU."""

    behaviour = None

    def __init__(self, node, _opts, _kernel, _initramfs, _link, log_dir, _tsc_khz, boot=1):
        self.node = node
        self.boot = boot
        self.dir = os.path.join(log_dir, f"node{node}")
        os.makedirs(self.dir)
        self.console = os.path.join(self.dir, "console.log")
        self.qemu_log = os.path.join(self.dir, "qemu.log")
        for path in (self.console, self.qemu_log):
            with open(path, "w", encoding="ascii"):
                pass
        self.ports, self.ends = {}, {}
        for name in (*qemu.PORTS, "shell"):
            self.ports[name], self.ends[name] = socket.socketpair()
        self.dead = threading.Event()
        self.examined = False
        self.pauses = []  # when it was stopped and went on, in turn
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def _live(self):
        with contextlib.suppress(OSError):
            type(self).behaviour(self)

    def tell(self, port, text):
        self.ends[port].sendall(text.encode())

    def hear(self, port):
        return self.ends[port].recv(4096).decode()

    def print_kernel(self, text):
        with open(self.console, "a", encoding="ascii") as console:
            console.write(text + "\n")

    def die(self):
        for end in self.ends.values():
            end.close()
        self.dead.set()

    def start(self):
        """Boots and gets the word to run the script."""
        self.tell("control", "booted\nready\n")
        self.hear("control")

    def finish(self, status=0, *last):
        """Ends the script and then the guest, in good order."""
        self.tell("control", f"exit {status}\n")
        self.hear("control")
        for line in (*last, "done"):
            self.tell("control", line + "\n")
        self.die()

    def alive(self):
        return not self.dead.is_set()

    def pause(self):
        self.pauses.append(time.monotonic())

    def resume(self):
        self.pauses.append(time.monotonic())

    def examine(self):
        self.examined = True

    def kill(self):
        self.dead.set()
        for end in (*self.ports.values(), *self.ends.values()):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.thread.join(5)

    def kernel_log(self):
        with open(self.console, encoding="ascii") as console:
            return console.read()


class Course(unittest.TestCase):
    def run_nodes(self, behaviour, nodes=2, timeout=600, provider="ropcie", link=None):
        """(failures, what was printed) of a run of fake guests."""
        guest = type("Guest", (FakeGuest,), {"behaviour": behaviour})
        opts = types.SimpleNamespace(nodes=nodes, timeout=timeout, command="run",
                                     provider=provider)
        kernel = types.SimpleNamespace(debug=False)
        out = io.StringIO()
        with tempfile.TemporaryDirectory() as log_dir, \
                mock.patch.object(cluster, "Guest", guest), \
                mock.patch.object(cluster, "GRACE", 0.5), \
                mock.patch.object(cluster, "CONSOLE_LOOK", 0.1), \
                mock.patch.object(cluster, "say"), contextlib.redirect_stdout(out):
            with cluster.Cluster(opts, kernel, None, link, log_dir, 0) as run:
                run.drive()
                return run.verdict(), out.getvalue()

    def meet(self, guest):
        """The answer at a barrier."""
        guest.tell("request", f"tok{guest.boot} barrier together\n")
        return guest.hear("request")

    def test_good_run_streams_with_a_prefix(self):
        def behaviour(guest):
            guest.start()
            guest.tell("output", f"I am {guest.node}\nno newline")
            guest.finish()

        failures, printed = self.run_nodes(behaviour)
        self.assertEqual(failures, [])
        self.assertIn("node1| I am 1\n", printed)
        self.assertIn("node2| I am 2\n", printed)
        self.assertIn("node1| no newline\n", printed)

    def test_nodes_start_together_and_end_together(self):
        events = []

        def behaviour(guest):
            if guest.node == 2:
                guest.dead.wait(0.3)
            events.append("ready")
            guest.start()
            events.append("run")
            if guest.node == 1:
                guest.dead.wait(0.3)
            events.append("exit")
            guest.tell("control", "exit 0\n")
            guest.hear("control")
            events.append("finish")
            guest.tell("control", "done\n")
            guest.die()

        failures, _ = self.run_nodes(behaviour)
        self.assertEqual(failures, [])
        self.assertEqual(events[:2], ["ready"] * 2)
        self.assertEqual(events[-2:], ["finish"] * 2)

    def test_status_of_a_script_fails_the_run(self):
        def behaviour(guest):
            guest.start()
            guest.finish(7 if guest.node == 2 else 0)

        self.assertEqual(self.run_nodes(behaviour)[0], [(2, "the script exited with 7 (no output)")])

    def test_failed_set_up_ends_the_run_at_once(self):
        def behaviour(guest):
            if guest.node == 1:
                guest.tell("control", "booted\nfail set-up: no device\n")
            guest.dead.wait(30)

        self.assertEqual(self.run_nodes(behaviour)[0], [(1, "set-up: no device")])

    def test_crash_is_told_by_the_kernel_log(self):
        def behaviour(guest):
            guest.start()
            if guest.node == 1:
                guest.print_kernel("[    9.0] Kernel panic - not syncing: sysrq")
                guest.die()
            else:
                guest.dead.wait(30)

        self.assertEqual(self.run_nodes(behaviour)[0],
                         [(1, "kernel: Kernel panic - not syncing: sysrq")])

    def test_guest_that_vanishes_fails_those_at_the_barrier(self):
        heard = []

        def behaviour(guest):
            guest.start()
            if guest.node == 1:
                guest.die()
                return
            guest.tell("request", "tok barrier together\n")
            heard.append(guest.hear("request"))
            guest.finish(1)

        failures, _ = self.run_nodes(behaviour)
        self.assertEqual(failures[0][0], 1)
        self.assertIn("ended by itself", failures[0][1])
        self.assertEqual(heard, ["tok fail node1 has died\n"])

    def test_barrier_over_the_ports(self):
        heard = []

        def behaviour(guest):
            guest.start()
            guest.tell("request", f"tok{guest.node} barrier together\n")
            heard.append(guest.hear("request"))
            guest.finish()

        self.assertEqual(self.run_nodes(behaviour, nodes=3)[0], [])
        self.assertEqual(sorted(heard), ["tok1 ok\n", "tok2 ok\n", "tok3 ok\n"])

    def test_killed_and_reset_nodes_start_again_among_the_others(self):
        for how in ("kill", "crash", "orderly"):
            heard, boots = [], []

            def behaviour(guest):
                guest.start()
                if guest.node == 2:
                    boots.append(guest.boot)
                if guest.boot == 1:
                    self.meet(guest)
                if guest.node == 2 and guest.boot == 1:
                    guest.tell("output", "last words")
                    guest.tell("request", f"tok reboot {how}\n")
                    guest.hear("request")
                    if how == "kill":
                        guest.dead.wait(30)
                    guest.die()
                    return
                heard.append(self.meet(guest))
                guest.finish()

            failures, printed = self.run_nodes(behaviour, nodes=3)
            self.assertEqual(failures, [])
            self.assertEqual(boots, [1, 2])
            self.assertEqual(sorted(heard), ["tok1 ok\n", "tok1 ok\n", "tok2 ok\n"])
            self.assertIn("node2| last words\n", printed)

    def test_node_that_does_not_reboot_fails_the_run(self):
        def behaviour(guest):
            guest.start()
            guest.tell("request", "tok reboot crash\n")
            guest.dead.wait(30)

        with mock.patch.object(cluster, "PHASE_LIMIT", 0.2):
            failures, _ = self.run_nodes(behaviour, nodes=1)
        self.assertIn("did not boot within", failures[0][1])

    def test_guest_that_does_not_boot_is_booted_once_more(self):
        for hangs in (1, 2):
            boots, examined = [], []

            def behaviour(guest):
                boots.append(guest.boot)
                guest.print_kernel("[    0.7] smp: Bringing up secondary CPUs ...")
                if len(boots) <= hangs:
                    guest.dead.wait(30)
                    examined.append(guest.examined)
                    return
                guest.start()
                guest.finish()

            with mock.patch.object(cluster, "PHASE_LIMIT", 1):
                failures, _ = self.run_nodes(behaviour, nodes=1)
            self.assertEqual(boots, [1, 1])
            self.assertEqual(examined, [True] * hangs)
            self.assertEqual([why for _, why in failures], [] if hangs == 1 else [
                "did not boot within 2 s ([    0.7] smp: Bringing up secondary CPUs ...)"])

    def test_report_of_a_guest_that_does_not_boot_fails_the_run(self):
        boots = []

        def behaviour(guest):
            boots.append(guest.boot)
            if len(boots) == 1:
                guest.print_kernel("[    0.7] WARNING: CPU: 0 PID: 1 at foo.c:1")
                guest.dead.wait(30)
                return
            guest.start()
            guest.finish()

        # Nobody looks at another provider's log before the end.
        with mock.patch.object(cluster, "PHASE_LIMIT", 1):
            failures, _ = self.run_nodes(behaviour, nodes=1, provider="rxe")
        self.assertEqual(len(boots), 2)
        self.assertEqual(failures, [(1, "kernel: WARNING: CPU: 0 PID: 1 at foo.c:1")])

    def test_warning_before_a_reboot_fails_the_run(self):
        def behaviour(guest):
            guest.start()
            if guest.node == 2 and guest.boot == 1:
                guest.print_kernel("[    9.0] WARNING: CPU: 0 PID: 1 at foo.c:1")
                guest.tell("request", "tok reboot kill\n")
                guest.dead.wait(30)
                return
            guest.finish()

        self.assertEqual(self.run_nodes(behaviour)[0],
                         [(2, "kernel: WARNING: CPU: 0 PID: 1 at foo.c:1")])

    def test_server_is_killed_and_another_one_started_if_the_link_can(self):
        for word, refusal in (("kill-server", "this link has no server"), ("start-server", "no server was killed")):
            for can, answer in ((True, "tok ok\n"), (False, f"tok fail {refusal}\n")):
                heard = []

                def behaviour(guest):
                    guest.start()
                    guest.tell("request", f"tok {word}\n")
                    heard.append(guest.hear("request"))
                    guest.finish()

                link = mock.Mock(**{word.replace("-", "_"): mock.Mock(return_value=can)})
                self.assertEqual(self.run_nodes(behaviour, nodes=1, link=link)[0], [])
                self.assertEqual(heard, [answer])

    def test_pause_is_as_long_as_asked_for_and_answered_behind_it(self):
        seen = []

        def behaviour(guest):
            guest.start()
            if guest.node == 1:
                guest.tell("request", "tok pause 0.35\n")
                answer = guest.hear("request")
                seen.append((answer, list(guest.pauses), time.monotonic()))
            guest.finish()

        self.assertEqual(self.run_nodes(behaviour)[0], [])
        answer, (stopped, went_on), heard = seen[0]
        self.assertEqual(answer, "tok ok\n")
        self.assertGreaterEqual(went_on - stopped, 0.35)
        self.assertLess(went_on - stopped, 0.5)
        self.assertLessEqual(went_on, heard)

    def test_unknown_request_is_refused(self):
        heard = []

        def behaviour(guest):
            guest.start()
            guest.tell("request", "tok fly away\n")
            heard.append(guest.hear("request"))
            guest.finish()

        self.assertEqual(self.run_nodes(behaviour, nodes=1)[0], [])
        self.assertEqual(heard, ["tok fail the lab does not know 'fly'\n"])

    def test_hanging_script_is_cut_off(self):
        def behaviour(guest):
            guest.start()
            guest.dead.wait(30)

        failures, _ = self.run_nodes(behaviour, nodes=1, timeout=1)
        self.assertEqual(failures, [(1, "did not end its script within 1 s")])

    def test_others_of_a_failed_node_are_cut_off(self):
        def behaviour(guest):
            guest.start()
            if guest.node == 1:
                guest.finish(3)
            guest.dead.wait(30)

        self.assertEqual(self.run_nodes(behaviour)[0][0], (1, "the script exited with 3 (no output)"))

    def test_warning_fails_a_run_whose_scripts_passed(self):
        def behaviour(guest):
            guest.start()
            if guest.node == 2:
                guest.print_kernel("[    9.0] WARNING: CPU: 0 PID: 1 at foo.c:1")
            guest.finish()

        self.assertEqual(self.run_nodes(behaviour)[0],
                         [(2, "kernel: WARNING: CPU: 0 PID: 1 at foo.c:1")])

    def test_warning_of_another_provider_waits_for_the_end(self):
        def behaviour(guest):
            guest.start()
            if guest.node == 2:
                guest.print_kernel("[    9.0] WARNING: CPU: 0 PID: 1 at foo.c:1")
            guest.dead.wait(2)
            if guest.alive():
                guest.tell("output", f"{guest.node} goes on\n")
                guest.finish()

        for provider, goes_on in (("rxe", True), ("ropcie", False)):
            failures, printed = self.run_nodes(behaviour, provider=provider)
            self.assertEqual(failures, [(2, "kernel: WARNING: CPU: 0 PID: 1 at foo.c:1")])
            self.assertEqual("node2| 2 goes on" in printed, goes_on)

    def test_stuck_modules_and_leaks_fail_the_run(self):
        def behaviour(guest):
            guest.start()
            guest.finish(0, "stuck still in use: ropcie" if guest.node == 1 else "leaks 2")

        failures, _ = self.run_nodes(behaviour)
        reasons = dict(failures)
        self.assertEqual(reasons[1], "modules do not unload: still in use: ropcie")
        self.assertIn("kmemleak reports 2 leaks", reasons[2])


if __name__ == "__main__":
    unittest.main()
