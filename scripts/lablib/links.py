# SPDX-License-Identifier: GPL-2.0
"""What joins the guests: the emulated NTB, virtio-net, each other's memory, or nothing.

A link is a context: it may start a server, and it gives each node its QEMU
arguments and the descriptors that these name.
"""

import contextlib
import os
import re
import selectors
import socket
import subprocess
import time

from . import procs
from .common import LabError

VECTORS = 4
_SECTION_MIB = 16
_SERVER_PATIENCE = 20


def shared_mib(nodes):
    """Memory of the emulated NTB: a section per ordered pair, a power of two."""
    mib = 64
    while mib < _SECTION_MIB * (nodes * (nodes - 1) + 1):
        mib *= 2
    return mib


class NoLink:
    """Nothing outside the guest: RoPCIe's loopback pair."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def qemu(self, _node):
        """(arguments, descriptors) for one node."""
        return [], []

    def kill_server(self):
        """Kills the process that lets nodes join, if there is one; was there?"""
        return False

    def start_server(self):
        """Starts another one, which those join that start later; had it been killed?"""
        return False


class Ntb(NoLink):
    """An ivshmem server that this link starts and ends."""

    def __init__(self, server, nodes, run_dir, log):
        self._server = server
        self._size = shared_mib(nodes) << 20
        self._socket = os.path.join(run_dir, "ivshmem.sock")
        self._shm = os.path.join("/dev/shm", f"ropcie-lab-{os.getpid()}")
        self._log = log
        self._child = None

    def __enter__(self):
        if not os.access(self._server, os.X_OK):
            raise LabError(f"{self._server} is missing: run cmake --build build")
        with open(self._log, "wb"):
            pass
        self._start()
        return self

    def _start(self):
        with open(self._log, "ab") as log:
            self._child = procs.spawn(
                [self._server, "--socket", self._socket, "--size", str(self._size),
                 "--vectors", str(VECTORS), "--shm", self._shm],
                stdout=subprocess.PIPE, stderr=log)
        try:
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise

    def _wait_ready(self):
        """The server says that it listens; its memory then needs no name."""
        end = time.monotonic() + _SERVER_PATIENCE
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"listening on" not in said:
                if not selector.select(max(0, end - time.monotonic())):
                    raise LabError(f"the ivshmem server does not listen after {_SERVER_PATIENCE} s")
                data = os.read(self._child.stdout.fileno(), 4096)
                if not data:
                    raise LabError(f"the ivshmem server ended: {procs.last_line(self._log)}")
                said += data
        if os.path.exists(self._shm):
            os.unlink(self._shm)

    def __exit__(self, *exc):
        if self._child:
            procs.kill(self._child)
            self._child.stdout.close()
        for path in (self._socket, self._shm):
            if os.path.exists(path):
                os.unlink(path)

    def qemu(self, _node):
        return ["-chardev", f"socket,path={self._socket},id=ivs",
                "-device", f"ivshmem-doorbell,vectors={VECTORS},chardev=ivs"], []

    def kill_server(self):
        procs.kill(self._child)
        return True

    def start_server(self):
        if self._child.poll() is None:
            return False
        self.__exit__()
        self._start()
        return True


class Virtio(NoLink):
    """virtio-net: a chain of hubs, one in each QEMU, joined by socket pairs."""

    def __init__(self, nodes):
        self._nodes = nodes
        self._ends = {}

    def __enter__(self):
        for left in range(1, self._nodes):
            # A QEMU process is one end of a pair, never both.
            self._ends[left, "right"], self._ends[left + 1, "left"] = socket.socketpair()
        return self

    def __exit__(self, *exc):
        for end in self._ends.values():
            end.close()

    def qemu(self, node):
        args = ["-netdev", "hubport,id=nic,hubid=0",
                "-device", f"virtio-net-pci,netdev=nic,mac=52:54:00:77:00:{node:02x},romfile="]
        descriptors = []
        for side in ("left", "right"):
            if (node, side) in self._ends:
                fd = self._ends[node, side].fileno()
                descriptors.append(fd)
                args += ["-netdev", f"stream,id={side},server=off,addr.type=fd,addr.str={fd}",
                         "-netdev", f"hubport,id=hub-{side},hubid=0,netdev={side}"]
        return args, descriptors


def _available_mib():
    """Memory that this machine can give without swapping."""
    with open("/proc/meminfo", encoding="ascii") as info:
        return int(re.search(r"^MemAvailable:\s*(\d+) kB", info.read(), re.M).group(1)) >> 10


class Memory(NoLink):
    """Each guest's memory as a device of every other guest, for flat windows.

    The files have no names: nothing is left behind, however the lab ends.
    """

    # The PCI slot of the first node's memory; the driver knows it, too.
    SLOT = 16

    def __init__(self, nodes, mib):
        self._nodes = nodes
        self._mib = mib
        self._files = []

    def __enter__(self):
        available = _available_mib()
        if self._nodes * self._mib > available:
            raise LabError(f"--flat takes all memory of the {self._nodes} guests, {self._nodes * self._mib} MiB, "
                           f"from this machine, which has {available} MiB left: use a smaller --mem")
        try:
            for node in range(1, self._nodes + 1):
                self._files.append(os.memfd_create(f"ropcie-lab-node{node}"))
                os.ftruncate(self._files[-1], self._mib << 20)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        for file in self._files:
            os.close(file)
        self._files = []

    def qemu(self, node):
        args = ["-machine", "memory-backend=ram"]
        for owner, file in enumerate(self._files, 1):
            name = "ram" if owner == node else f"ram{owner}"
            args += ["-object", f"memory-backend-file,id={name},mem-path=/dev/fd/{file},size={self._mib}M,share=on"]
            if owner != node:
                args += ["-device", f"ivshmem-plain,memdev={name},addr={self.SLOT + owner - 1:x}"]
        return args, self._files


class Both(NoLink):
    """Several links at once."""

    def __init__(self, *links):
        self._links = links
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for link in self._links:
                stack.enter_context(link)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc):
        self._stack.close()

    def qemu(self, node):
        args, descriptors = [], []
        for link in self._links:
            more_args, more_descriptors = link.qemu(node)
            args += more_args
            descriptors += more_descriptors
        return args, descriptors

    def kill_server(self):
        return any([link.kill_server() for link in self._links])

    def start_server(self):
        return any([link.start_server() for link in self._links])


def make(opts, run_dir, log):
    """The link of a run's options."""
    if opts.link == "ntb":
        server = os.path.join(opts.build_dir, "bin", "ropcie-ivshmem-server")
        ntb = Ntb(server, opts.nodes, run_dir, log)
        more = [Virtio(opts.nodes)] if opts.with_virtio else []
        more += [Memory(opts.nodes, opts.mem)] if opts.flat else []
        return Both(ntb, *more) if more else ntb
    if opts.link == "virtio":
        return Virtio(opts.nodes)
    return NoLink()
