# SPDX-License-Identifier: GPL-2.0
"""`scripts/lab shell`: the nodes' consoles on one terminal.

Owns the terminal while it is open. Ctrl-] and a digit goes to that node,
Ctrl-] q ends the lab. Typed text goes to one node at a time.
"""

import os
import sys
import termios
import tty
from contextlib import contextmanager
from functools import partial

from .cluster import Phase
from .common import say

ESCAPE = 0x1D


class Keys:
    """Splits what is typed into text for a node and commands to the lab."""

    def __init__(self, nodes):
        self._nodes = nodes
        self._escaped = False
        self.node = 1
        self.quit = False

    def feed(self, data):
        """[(node, bytes)] to send; changes node and quit on commands."""
        out = []
        for byte in data:
            if self._escaped:
                self._escaped = False
                self._command(byte, out)
            elif byte == ESCAPE:
                self._escaped = True
            else:
                out.append((self.node, bytes([byte])))
        return out

    def _command(self, byte, out):
        if byte in (ord("q"), ord("Q")):
            self.quit = True
        elif byte == ESCAPE:
            out.append((self.node, bytes([ESCAPE])))
        elif ord("1") <= byte < ord("1") + min(self._nodes, 9):
            self.node = byte - ord("0")


@contextmanager
def _raw_terminal(fd):
    if not os.isatty(fd):
        yield
        return
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class _Terminal:
    """Carries bytes between the terminal and the node that has it."""

    def __init__(self, nodes):
        self._nodes = nodes
        self._input = sys.stdin.fileno()
        self.keys = Keys(len(nodes.members))
        self._silent = {member.node for member in nodes.members}
        for member in nodes.members:
            self._attach(member)
        nodes.rebooted = self._attach

    def _attach(self, member):
        self._nodes.attach(member.guest.ports["shell"], partial(self._printed, member))

    def _printed(self, member):
        try:
            data = member.guest.ports["shell"].recv(65536)
        except OSError:
            data = b""
        if not data:
            self._nodes.detach(member.guest.ports["shell"])
            return
        if member.node == self.keys.node:
            os.write(1, data)
        # A console drops what comes before its shell has opened it.
        if self._silent == {member.node}:
            self._nodes.attach(self._input, self._typed)
        self._silent.discard(member.node)

    def _typed(self):
        data = os.read(self._input, 4096)
        if not data:
            self._nodes.detach(self._input)
            # The end of a piped input ends the shells, as it would at home.
            for member in self._nodes.members:
                _send(member, b"\x04")
        before = self.keys.node
        for node, text in self.keys.feed(data):
            _send(self._nodes.members[node - 1], text)
        if self.keys.node != before:
            os.write(1, f"\r\n[node{self.keys.node}]\r\n".encode())


def _send(member, text):
    try:
        member.guest.ports["shell"].sendall(text)
    except OSError:
        pass


def attend(nodes):
    """Serves the terminal until every shell has ended or the person quits."""
    nodes.drive(until=Phase.RUN)
    if nodes.failures:
        return
    say("Ctrl-] and a digit goes to that node, Ctrl-] q ends the lab; now on node1")
    with _raw_terminal(sys.stdin.fileno()):
        terminal = _Terminal(nodes)
        nodes.drive(stop=lambda: terminal.keys.quit)
