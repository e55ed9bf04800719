# SPDX-License-Identifier: GPL-2.0
"""What QEMU is told of the guests' memory that other guests see, and the server's lives."""

import os
import re
import stat
import tempfile
import unittest
from unittest import mock

import support  # noqa: F401 (the path)

from lablib import links
from lablib.common import LabError


class Memory(unittest.TestCase):
    def shown(self, args):
        """Of a node's QEMU: its own memory's file, and the files of the others by PCI slot."""
        files = {}
        for name, file, size in re.findall(r"memory-backend-file,id=(\w+),mem-path=/dev/fd/(\d+),size=(\w+),share=on",
                                           " ".join(args)):
            self.assertEqual(size, "256M")
            files[name] = int(file)
        slots = {int(slot, 16): files.pop(name)
                 for name, slot in re.findall(r"ivshmem-plain,memdev=(\w+),addr=(\w+)", " ".join(args))}
        self.assertEqual(list(files), ["ram"])
        return files["ram"], slots

    def test_each_node_has_the_others_memory_in_their_slots(self):
        with links.Memory(3, 256) as memory:
            nodes = [memory.qemu(node) for node in (1, 2, 3)]
            shown = [self.shown(args) for args, _ in nodes]
            own = [ram for ram, _ in shown]
            self.assertEqual(len(set(own)), 3)
            self.assertEqual([slots for _, slots in shown],
                             [{17: own[1], 18: own[2]}, {16: own[0], 18: own[2]}, {16: own[0], 17: own[1]}])
            for args, descriptors in nodes:
                self.assertIn("memory-backend=ram", args)
                self.assertEqual(sorted(descriptors), sorted(own))
            self.assertEqual([os.fstat(file).st_size for file in own], [256 << 20] * 3)
        for file in own:
            self.assertRaises(OSError, os.fstat, file)

    def test_a_guest_that_starts_again_has_the_same_memory(self):
        with links.Memory(2, 256) as memory:
            self.assertEqual(memory.qemu(1), memory.qemu(1))

    def test_memory_that_this_machine_has_not(self):
        with mock.patch.object(links, "_available_mib", return_value=1500), \
                self.assertRaises(LabError) as caught:
            links.Memory(2, 1024).__enter__()
        self.assertIn("2048 MiB, from this machine, which has 1500 MiB left", str(caught.exception))


class Server(unittest.TestCase):
    def test_it_is_killed_and_another_one_started(self):
        with tempfile.TemporaryDirectory() as scratch:
            server = os.path.join(scratch, "server")
            with open(server, "w", encoding="utf-8") as script:
                script.write('#!/bin/sh\necho life >&2; [ ! -e "$2" ] || exit 1\n: >"$2"; echo listening on "$2"; exec sleep 60\n')
            os.chmod(server, stat.S_IRWXU)
            log = os.path.join(scratch, "log")
            with links.Both(links.Ntb(server, 2, scratch, log)) as link:
                self.assertFalse(link.start_server())
                self.assertTrue(link.kill_server())
                self.assertTrue(link.start_server())
                self.assertFalse(link.start_server())
            with open(log, encoding="utf-8") as text:
                self.assertEqual(text.read(), "life\n" * 2)
            self.assertEqual(sorted(os.listdir(scratch)), ["log", "server"])

    def test_no_link_has_no_server(self):
        self.assertFalse(links.NoLink().start_server())


if __name__ == "__main__":
    unittest.main()
