# SPDX-License-Identifier: GPL-2.0
"""What the guests boot from: initramfs, kernels, the debug configuration."""

import os
import shutil
import subprocess
import tempfile
import types
import unittest

import support  # noqa: F401 (the path)

from lablib import debug_kernel, initramfs, kernels, links, qemu

MODULES_DEP = """\
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/fs/netfs/netfs.ko:
kernel/net/9p/9pnet.ko:
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_ring.ko:
"""


class Initramfs(unittest.TestCase):
    def test_modules_come_after_what_they_need(self):
        order = initramfs.module_order(MODULES_DEP, ("9p", "9pnet_virtio", "builtin"))
        self.assertEqual([os.path.basename(path) for path in order],
                         ["9pnet.ko", "netfs.ko", "9p.ko", "virtio_ring.ko", "9pnet_virtio.ko"])

    @unittest.skipUnless(shutil.which("cpio"), "cpio is not installed")
    def test_cpio_reads_the_archive(self):
        archive = initramfs.cpio([("dir", 0o40755, b""), ("dir/odd", 0o100755, b"12345"),
                                  ("empty", 0o100644, b"")])
        with tempfile.TemporaryDirectory() as work:
            subprocess.run(["cpio", "-i", "--quiet"], input=archive, cwd=work, check=True)
            with open(os.path.join(work, "dir", "odd"), "rb") as got:
                self.assertEqual(got.read(), b"12345")
            self.assertTrue(os.access(os.path.join(work, "dir", "odd"), os.X_OK))


class Releases(unittest.TestCase):
    def test_newest_is_by_number_and_special_kernels_are_left_out(self):
        names = ("6.12.9+deb12-amd64", "6.12.117+deb12-amd64", "6.12.200+deb12-rt-amd64",
                 "6.12.300+deb12-cloud-amd64", "6.1.0-9-amd64", "6.1.0-56-amd64")
        with tempfile.TemporaryDirectory() as root:
            for name in names:
                os.makedirs(os.path.join(root, name, "build"))
                with open(os.path.join(root, name, "build", "Makefile"), "w", encoding="ascii"):
                    pass
            os.makedirs(os.path.join(root, "6.12.500+deb12-amd64"))  # no headers
            self.assertEqual(kernels.installed_releases("6.12", root)[-1], "6.12.117+deb12-amd64")
            self.assertEqual(kernels.installed_releases("6.1", root), ["6.1.0-9-amd64", "6.1.0-56-amd64"])
        self.assertEqual(kernels.installed_releases("6.1", "/no/such"), [])


class DebugConfiguration(unittest.TestCase):
    def test_what_the_source_did_not_take_is_named(self):
        asked = ["# comment", "CONFIG_A=y", "CONFIG_B=m", 'CONFIG_C="x"']
        self.assertEqual(debug_kernel.unmet(asked, ["CONFIG_A=y\n", "CONFIG_B=y\n"]),
                         ["CONFIG_B=m", 'CONFIG_C="x"'])

    def test_every_promised_checker_is_asked_for(self):
        asked = [line.strip() for line in debug_kernel.asked("debug")]
        for option in ("KASAN", "UBSAN", "PROVE_LOCKING", "PROVE_RCU", "DEBUG_ATOMIC_SLEEP",
                       "DEBUG_OBJECTS", "DEBUG_KMEMLEAK", "FAULT_INJECTION"):
            self.assertIn(f"CONFIG_{option}=y", asked)
        self.assertIn("CONFIG_KCSAN=y\n", debug_kernel.asked("kcsan"))


class Sizes(unittest.TestCase):
    def test_shared_memory_is_a_power_of_two_with_room_for_every_pair(self):
        for nodes in range(1, 17):
            mib = links.shared_mib(nodes)
            self.assertEqual(mib & (mib - 1), 0)
            self.assertGreaterEqual(mib, 16 * nodes * (nodes - 1))


class KernelArguments(unittest.TestCase):
    def words(self, debug=False, kvm=False, **changes):
        opts = types.SimpleNamespace(icount=False, smp=1, leak_check=debug, kernel_args="")
        vars(opts).update(changes)
        return qemu.kernel_args(opts, types.SimpleNamespace(debug=debug), 1, kvm, 2600000).split()

    def test_emulation_is_told_the_rate_of_its_counter(self):
        self.assertIn("tsc_early_khz=2600000", self.words())
        self.assertIn("tsc_early_khz=1000000", self.words(icount=True))
        self.assertNotIn("tsc=reliable", self.words(kvm=True))

    def test_debug_kernel_goes_without_acpi_as_far_as_it_can(self):
        self.assertIn("acpi=off", self.words(debug=True))
        self.assertIn("pci=noacpi", self.words(debug=True, smp=2))


if __name__ == "__main__":
    unittest.main()
