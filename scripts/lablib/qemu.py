# SPDX-License-Identifier: GPL-2.0
"""One guest as a QEMU process: its command line, its ports, its end.

Knows nothing of what the guest is for; the messages on the ports are
cluster's.
"""

import ctypes
import json
import mmap
import os
import re
import shutil
import signal
import socket
import time

from . import procs
from .common import LabError

QEMU = "qemu-system-x86_64"
# What a guest and the lab write to its directory; an earlier run's would mislead.
GUEST_FILES = ("console.log", "hang.log", "kmemleak", "setup.env")
PORTS = ("output", "control", "request")
MONITOR_ANSWERS = 5  # seconds


def kvm_works():
    """True where KVM can be used; the device node alone says nothing."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
            has_vm = re.search(r"^flags\s*:.*\b(vmx|svm)\b", info.read(), re.M)
    except OSError:
        return False
    return bool(has_vm) and os.access("/dev/kvm", os.R_OK | os.W_OK)


def host_tsc_khz(seconds=0.05):
    """The rate of the host's time stamp counter, which TCG gives its guests.

    Their own calibration can be far off on a busy host. 0 when it cannot be
    measured here: the guest then has to calibrate.
    """
    code = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx,32; or rax,rdx; ret
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return 0
    page.write(code)
    anchor = ctypes.c_char.from_buffer(page)
    rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(anchor))
    clock = time.CLOCK_MONOTONIC_RAW
    begin_ns, begin = time.clock_gettime_ns(clock), rdtsc()
    time.sleep(seconds)
    end_ns, end = time.clock_gettime_ns(clock), rdtsc()
    return round((end - begin) * 1_000_000 / (end_ns - begin_ns))


# Without string instructions that TCG emulates byte by byte. Without five-level
# paging: an interrupt while Linux 6.1 identifies the boot CPU finds the feature
# gone for a moment, and KASAN takes the kernel's own memory for none.
TCG_CPU = "max,erms=off,fsrm=off,la57=off"


def _machine_args(opts, kvm):
    if opts.icount:
        return ["-accel", "tcg", "-icount", "shift=0,sleep=off", "-cpu", TCG_CPU, "-smp", "1"]
    # With room for one CPU only, TCG would make guests' locked instructions
    # plain ones, and the kernel would patch its lock prefixes away.
    smp = ["-smp", f"{opts.smp},maxcpus={max(opts.smp, 2)}"]
    if kvm:
        return ["-accel", "kvm", "-cpu", "host", *smp]
    return ["-accel", "tcg,thread=multi", "-cpu", TCG_CPU, *smp]


def kernel_args(opts, kernel, node, kvm, tsc_khz, boot=1):
    """The guest kernel's command line."""
    words = ["console=ttyS0", "loglevel=8", "panic=-1", "mitigations=off", "nokaslr", "sysrq_always_enabled",
             f"lab.node={node}", f"lab.boot={boot}"]
    if opts.icount:
        tsc_khz = 1_000_000
    if not kvm:
        words.append("tsc=reliable")
        if tsc_khz:
            words.append(f"tsc_early_khz={tsc_khz}")
    if kernel.debug:
        # KASAN makes the ACPI interpreter take more than a minute. Without
        # ACPI there is one CPU only, so several get all of it but PCI's. Then
        # Linux moves the BARs: not to where the IO-APIC hides them.
        words.append("acpi=off" if opts.smp == 1 else "pci=noacpi reserve=0xfec00000,0x1000")
    if opts.leak_check:
        words.append("kmemleak=on")
    return " ".join(words + opts.kernel_args.split())


class Guest:
    """A running guest. ports maps each of PORTS to a connected socket; so "shell", and
    "monitor", which is QEMU's own. boot counts its boots."""

    def __init__(self, node, opts, kernel, initramfs, link, log_dir, tsc_khz, boot=1):
        self.node = node
        self.boot = boot
        self.dir = os.path.join(log_dir, f"node{node}")
        self.console = os.path.join(self.dir, "console.log")
        self.qemu_log = os.path.join(self.dir, "qemu.log")
        self.ports = {}
        self._process = None
        self._ends_slowly = False
        self._unasked = None  # characters of the kernel log
        os.makedirs(self.dir, exist_ok=True)
        for name in GUEST_FILES:
            if os.path.exists(os.path.join(self.dir, name)):
                os.unlink(os.path.join(self.dir, name))
        if not shutil.which(QEMU):
            raise LabError(f"{QEMU} is missing: run scripts/setup lab")
        kvm = kvm_works() and not opts.icount
        link_args, descriptors = link.qemu(node)
        port_args, ends = self._make_ports()
        share = "local,security_model=none,multidevs=remap"
        argv = [
            QEMU, "-name", f"node{node}", "-nodefaults", "-no-user-config", "-no-reboot",
            "-display", "none", "-machine", "pc", "-m", str(opts.mem), *_machine_args(opts, kvm),
            "-kernel", kernel.image, "-initrd", initramfs,
            "-append", kernel_args(opts, kernel, node, kvm, tsc_khz, boot),
            "-chardev", f"file,id=console,path={_escape(self.console)}", "-serial", "chardev:console",
            "-virtfs", f"{share},path=/,mount_tag=host,readonly=on",
            "-virtfs", f"{share},path={_escape(log_dir)},mount_tag=lab",
            *port_args, *link_args, *self._profile_args(opts),
        ]
        with open(self.qemu_log, "wb") as log:
            self._process = procs.spawn(
                argv, stdout=log, stderr=log,
                pass_fds=[*descriptors, *(end.fileno() for end in ends)])
        for end in ends:
            end.close()

    def _make_ports(self):
        args, ends = ["-device", "virtio-serial-pci"], []
        # Port 0 is the console's, by virtio's rule.
        for number, name in enumerate(("shell", *PORTS)):
            ours, theirs = socket.socketpair()
            self.ports[name] = ours
            ends.append(theirs)
            args += ["-chardev", f"socket,id={name},fd={theirs.fileno()}"]
            kind = "virtconsole" if name == "shell" else "virtserialport"
            args += ["-device", f"{kind},chardev={name},name=lab.{name},nr={number}"]
        self.ports["monitor"], theirs = socket.socketpair()
        ends.append(theirs)
        args += ["-chardev", f"socket,id=monitor,fd={theirs.fileno()}", "-mon", "chardev=monitor,mode=control"]
        return args, ends

    def _profile_args(self, opts):
        self._ends_slowly = bool(opts.profile)
        if not opts.profile:
            return []
        out = os.path.join(self.dir, "profile")
        return ["-plugin", f"file={_escape(os.path.abspath(opts.profile))},out={_escape(out)}"]

    def alive(self):
        """False once QEMU has ended, for whatever reason."""
        return self._process.poll() is None

    def pause(self):
        """Stops QEMU as it is, with all its processors; the guest is not told."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        """Ends a pause."""
        self._process.send_signal(signal.SIGCONT)

    def _ask(self, monitor, command):
        """What QEMU's monitor says to one of its commands for people."""
        request = {"execute": "human-monitor-command", "arguments": {"command-line": command}}
        monitor.write(json.dumps(request) + "\n")
        monitor.flush()
        answer = {}
        for line in monitor:
            answer = json.loads(line)
            if "return" in answer or "error" in answer:  # else an event
                break
        said = str(answer.get("return", answer)).replace("\r", "")
        return f"{command}\n{said}\n"

    def _ask_all(self, monitor, log):
        monitor.readline()  # a greeting
        monitor.write('{"execute": "qmp_capabilities"}\n')
        monitor.flush()
        monitor.readline()
        devices = self._ask(monitor, "info virtio")
        log.write(devices)
        for path in re.findall(r"^(/\S+) \[", devices, re.M):
            log.write(self._ask(monitor, f"info virtio-queue-status {path} 0"))
        for command in ("info registers -a", "info lapic", "info pic", "sendkey alt-sysrq-w",
                        "sendkey alt-sysrq-l", "info registers -a"):
            log.write(self._ask(monitor, command))

    def examine(self):
        """Writes to hang.log what a guest does that hangs; it says on its console what waits, if it can."""
        self._unasked = len(self.kernel_log())
        self.ports["monitor"].settimeout(MONITOR_ANSWERS)
        with open(os.path.join(self.dir, "hang.log"), "w", encoding="utf-8") as log:
            try:
                # Its end may be an error, too: it writes what a QEMU that died has not read.
                with self.ports["monitor"].makefile("rw", encoding="utf-8", newline="\n") as monitor:
                    self._ask_all(monitor, log)
            except (OSError, ValueError) as error:
                log.write(f"no more: {error}\n")
        time.sleep(MONITOR_ANSWERS)  # the guest's

    def kill(self):
        """Ends QEMU and closes the ports."""
        if self._process:
            procs.kill(self._process, grace=30 if self._ends_slowly else 0)
        for port in self.ports.values():
            port.close()

    def kernel_log(self):
        """All that the guest's kernel has said so far, but what examine() asked it."""
        if not os.path.exists(self.console):
            return ""
        with open(self.console, encoding="utf-8", errors="replace") as log:
            return log.read()[:self._unasked]


def _escape(path):
    """A path inside a QEMU option, where a comma ends the value."""
    return path.replace(",", ",,")
