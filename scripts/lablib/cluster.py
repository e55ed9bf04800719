# SPDX-License-Identifier: GPL-2.0
"""One run: boots the nodes, drives them through their phases, judges them.

Owns the messages between the lab and guest/node, the time limits, and what
counts as a failure. How a guest or a link is started is qemu's and links'.
"""

import contextlib
import os
import selectors
import shutil
import sys
import time
from enum import IntEnum
from functools import partial

from . import logcheck
from .barrier import Barriers
from .common import say
from .procs import complaint, last_line
from .qemu import Guest

# What the others of a failed node still get, to end in good order.
GRACE = 15
CONSOLE_LOOK = 1.0
# Of booting, setting up and unloading, for one node on the stock kernel.
PHASE_LIMIT = 60


class Phase(IntEnum):
    """How far a node has come; each ends with a message from the guest."""

    BOOT = 0
    SETUP = 1
    READY = 2
    RUN = 3
    EXITED = 4
    FINISH = 5
    DONE = 6


_NAMES = {Phase.BOOT: "boot", Phase.SETUP: "set itself up", Phase.RUN: "end its script",
          Phase.FINISH: "unload its modules"}


class Lines:
    """Cuts a byte stream into text lines."""

    def __init__(self):
        self._rest = b""

    def feed(self, data):
        """The lines that data completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    def flush(self):
        """What is left without an end of line."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


class Member:
    """A guest and how far it has come."""

    def __init__(self, guest):
        self.guest = guest
        self.node = guest.node
        self.phase = Phase.BOOT
        self.since = time.monotonic()
        self.dead = False
        self.looked_at = 0
        self.output = Lines()
        self.lines = {"control": Lines(), "request": Lines()}
        self.reboots = None  # how it ends to start again: "kill", or "itself"
        self.stuck = False  # whether the guest before this one did not boot
        self.paused = None  # until when, and the token of who asked for it
        self.log = open(os.path.join(guest.dir, "output.log"), "wb")

    def advance(self, phase):
        """Enters a phase; its time limit starts."""
        self.phase, self.since = phase, time.monotonic()

    def send(self, port, text):
        """A line to the guest; it may be gone."""
        try:
            self.guest.ports[port].sendall(text.encode() + b"\n")
        except OSError:
            pass

    def last_words(self):
        """The end of the guest's kernel log."""
        console = self.guest.console
        return last_line(console)[:120] if os.path.exists(console) else ""

    def close(self):
        """Ends the guest."""
        self.guest.kill()
        self.log.close()


class Cluster:
    """The nodes of one run, as a context that leaves nothing behind."""

    def __init__(self, opts, kernel, initramfs, link, log_dir, tsc_khz):
        self._opts = opts
        self._start = (kernel, initramfs, link, log_dir, tsc_khz)
        self.members = []
        self.failures = []
        self._selector = selectors.PollSelector()
        self._barriers = Barriers(range(1, opts.nodes + 1), self._answer)
        self.rebooted = lambda member: None  # called with a node's new guest
        # A checked kernel is many times slower.
        slow = (4 if kernel.debug else 1) * (1 + opts.nodes / 2)
        self._limits = {Phase.BOOT: PHASE_LIMIT * slow, Phase.SETUP: PHASE_LIMIT * slow,
                        Phase.RUN: opts.timeout if opts.command == "run" else None,
                        Phase.FINISH: PHASE_LIMIT * slow}
        self._cut_off = None
        self._began = None

    def __enter__(self):
        try:
            for node in range(1, self._opts.nodes + 1):
                self.members.append(self._boot(node))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        for member in self.members:
            member.close()
        self._selector.close()

    def _boot(self, node, boot=1):
        """Starts a node's guest for the first time, or again."""
        member = Member(Guest(node, self._opts, *self._start, boot=boot))
        for name in ("output", *member.lines):
            self.attach(member.guest.ports[name], partial(self._read, member, name))
        return member

    def _reboot(self, member):
        """Starts a node again whose guest has to end, or has; its logs are kept aside."""
        self._drain()
        for name in ("output", *member.lines, "shell"):
            with contextlib.suppress(KeyError):  # it has ended by itself, or is not there
                self.detach(member.guest.ports[name])
        _show(member.node, member.output.flush())
        member.close()
        told = logcheck.first_fault(member.guest.kernel_log())
        if told:
            self.fail(member, told)
        self._barriers.restart(member.node)
        boot = member.guest.boot
        stuck = not member.reboots
        aside = f"{member.guest.dir}.{'stuck' if stuck else 'boot'}{boot}"
        shutil.rmtree(aside, ignore_errors=True)  # an earlier run's
        os.rename(member.guest.dir, aside)
        self.members[member.node - 1] = self._boot(member.node, boot if stuck else boot + 1)
        self.members[member.node - 1].stuck = stuck
        self.rebooted(self.members[member.node - 1])

    def attach(self, source, callback):
        """Has drive() call callback when source (a file or socket) can be read."""
        self._selector.register(source, selectors.EVENT_READ, callback)

    def detach(self, source):
        """Undoes attach()."""
        self._selector.unregister(source)

    def fail(self, member, why):
        """Notes a failure; the other nodes get a short time to end."""
        if not any(node == member.node for node, _ in self.failures):
            self.failures.append((member.node, why))
        if self._cut_off is None:
            running = all(other.phase >= Phase.RUN for other in self.members)
            self._cut_off = time.monotonic() + (GRACE if running else 0)

    def drive(self, until=Phase.DONE, stop=lambda: False):
        """Serves the nodes until all have reached a phase, or the run is lost."""
        while not stop() and not all(m.dead or m.phase >= until for m in self.members):
            for key, _ in self._selector.select(self._until_next_look()):
                key.data()
            for member in self.members:
                self._watch(member)
            self._step_together()
            if self._cut_off is not None and time.monotonic() > self._cut_off:
                return

    def _until_next_look(self):
        """Seconds; a pause ends when it should."""
        ends = [member.paused[0] - time.monotonic() for member in self.members if member.paused]
        return max(0, min([0.2, *ends]))

    def _step_together(self):
        """The two points where nodes wait for each other."""
        alive = [member for member in self.members if not member.dead]
        ready = [member for member in alive if member.phase == Phase.READY]
        if self._began is None and len(ready) == len(self.members):
            say(f"running on {len(ready)} node{'s' * (len(ready) > 1)}")
            self._began = time.monotonic()
        if self._began is not None and ready:
            for member in ready:
                member.advance(Phase.RUN)
                member.send("control", "go")
        elif alive and all(m.phase >= Phase.EXITED for m in alive):
            for member in alive:
                if member.phase == Phase.EXITED:
                    member.advance(Phase.FINISH)
                    member.send("control", "finish")

    def _read(self, member, name):
        try:
            data = member.guest.ports[name].recv(65536)
        except OSError:
            data = b""
        if not data:
            self.detach(member.guest.ports[name])
        elif name == "output":
            member.log.write(data)
            member.log.flush()
            _show(member.node, member.output.feed(data))
        else:
            for line in member.lines[name].feed(data):
                (self._on_control if name == "control" else self._on_request)(member, line)

    def _on_request(self, member, line):
        """What a script asks for, with a token that its answer has to carry."""
        token, _, request = line.partition(" ")
        word, _, rest = request.partition(" ")
        if word == "barrier":
            self._barriers.arrive(member.node, token, rest)
        elif word == "reboot":
            member.reboots = rest
            member.advance(Phase.BOOT)
            self._answer(member.node, token, "ok")
        elif word == "pause":
            member.guest.pause()
            member.paused = time.monotonic() + float(rest), token
        elif word == "kill-server":
            killed = self._start[2].kill_server()
            self._answer(member.node, token, "ok" if killed else "fail this link has no server")
        elif word == "start-server":
            started = self._start[2].start_server()
            self._answer(member.node, token, "ok" if started else "fail no server was killed")
        else:
            self._answer(member.node, token, f"fail the lab does not know '{word}'")

    def _answer(self, node, token, text):
        self.members[node - 1].send("request", f"{token} {text}")

    def _on_control(self, member, line):
        word, _, rest = line.partition(" ")
        if word == "booted":
            member.advance(Phase.SETUP)
        elif word == "ready":
            member.advance(Phase.READY)
        elif word == "exit":
            self._on_exit(member, rest)
        elif word == "fail":
            self.fail(member, rest)
        elif word == "stuck":
            self.fail(member, f"modules do not unload: {rest}")
        elif word == "leaks" and rest != "0":
            self.fail(member, f"kmemleak reports {rest} leaks (node{member.node}/kmemleak)")
        elif word == "done":
            member.advance(Phase.DONE)

    def _on_exit(self, member, status):
        _show(member.node, member.output.flush())
        member.advance(Phase.EXITED)
        self._barriers.leave(member.node, f"has ended with status {status}")
        if status != "0":
            self.fail(member, f"the script exited with {status} ({complaint(member.log.name)})")

    def _watch(self, member):
        if member.dead:
            return
        if member.reboots == "kill" or member.reboots and not member.guest.alive():
            self._reboot(member)
            return
        if not member.guest.alive():
            member.dead = True
            self._drain()
            _show(member.node, member.output.flush())
            self._barriers.leave(member.node, "has died")
            if member.phase != Phase.DONE:
                self.fail(member, self._why_dead(member))
            return
        now = time.monotonic()
        if member.paused and now >= member.paused[0]:
            token, member.paused = member.paused[1], None
            member.guest.resume()
            self._answer(member.node, token, "ok")
        limit = self._limits.get(member.phase)
        # A node that starts again has no more time for it than the others.
        since = self._began if member.phase == Phase.RUN else member.since
        if limit and now - since > limit:
            why = f"did not {_NAMES[member.phase]} within {limit:.0f} s"
            if member.phase == Phase.BOOT:
                why += f" ({member.last_words()})"
                member.guest.examine()
                if self._began is None and not member.stuck:
                    # Seen once: nothing of RoPCIe is in that guest yet.
                    say(f"node{member.node} {why}: boots again")
                    self._reboot(member)
                    return
            barrier = self._barriers.name_for(member.node)
            self._barriers.leave(member.node, "hangs")
            self.fail(member, why + (f": it waits at lab-barrier {barrier}" if barrier else ""))
            self._cut_off = now
        elif self._opts.provider == "ropcie" and now - member.looked_at > CONSOLE_LOOK:
            # What ails another provider is told at the end: it is there for
            # comparison, and goes as far as it can.
            member.looked_at = now
            told = logcheck.first_fault(member.guest.kernel_log())
            if told:
                self.fail(member, told)

    def _drain(self):
        """What a guest said before it went, which may still be on its way."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                key.data()

    def _why_dead(self, member):
        told = logcheck.first_fault(member.guest.kernel_log())
        if told:
            return told
        if os.path.getsize(member.guest.qemu_log):
            return f"QEMU ended: {last_line(member.guest.qemu_log)}"
        return f"the guest ended by itself ({member.last_words()})"

    def verdict(self):
        """(node, reason) of each failed node; a kernel's report comes first."""
        reports = []
        for member in self.members:
            told = logcheck.first_fault(member.guest.kernel_log())
            if told:
                reports.append((member.node, told))
        named = {node for node, _ in reports}
        return reports + [failure for failure in self.failures if failure[0] not in named]


def _show(node, lines):
    for line in lines:
        print(f"node{node}| {line}", flush=True)
    sys.stdout.flush()
