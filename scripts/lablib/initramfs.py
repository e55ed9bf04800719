# SPDX-License-Identifier: GPL-2.0
"""The guests' initramfs: busybox, a few modules, and guest/init.

It only has to reach the host's root file system. Knows nothing of RDMA.
"""

import gzip
import hashlib
import lzma
import os
import stat

from .common import LabError, cache_dir

GUEST_DIR = os.path.join(os.path.dirname(os.path.realpath(__file__)), "guest")
BUSYBOX = "/bin/busybox"
NEEDED = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")


def module_order(modules_dep, names):
    """Paths of the modules and of all they need, each after what it needs.

    modules_dep is the text of modules.dep. A name that it does not have is
    built into the kernel, or is missed when the guest starts.
    """
    needs = {}
    for line in modules_dep.splitlines():
        path, _, deps = line.partition(":")
        needs[path] = deps.split()
    by_name = {os.path.basename(path).split(".ko")[0].replace("-", "_"): path for path in needs}
    order = []

    def visit(path):
        if path in order:
            return
        for dep in needs[path]:
            visit(dep)
        order.append(path)

    for name in names:
        if name in by_name:
            visit(by_name[name])
    return order


def cpio(entries):
    """A newc archive of (name, mode, data) entries."""
    out = bytearray()

    def add(name, mode, data, inode):
        raw = name.encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        out.extend(b"070701" + b"".join(b"%08X" % field for field in fields) + raw)
        out.extend(b"\0" * (-len(out) % 4))
        out.extend(data)
        out.extend(b"\0" * (-len(out) % 4))

    for inode, (name, mode, data) in enumerate(entries, 1):
        add(name, mode, data, inode)
    add("TRAILER!!!", 0, b"", 0)
    return bytes(out)


def _read(path):
    with open(path, "rb") as source:
        return source.read()


def _module_bytes(path):
    data = _read(path)
    return lzma.decompress(data) if path.endswith(".xz") else data


def _entries(kernel):
    yield from ((name, stat.S_IFDIR | 0o755, b"") for name in ("bin", "modules", "dev"))
    yield "bin/busybox", stat.S_IFREG | 0o755, _read(BUSYBOX)
    yield "init", stat.S_IFREG | 0o755, _read(os.path.join(GUEST_DIR, "init"))
    dep_file = os.path.join(kernel.modules, "modules.dep")
    order = module_order(_read(dep_file).decode(), NEEDED)
    names = []
    for path in order:
        names.append(os.path.basename(path).split(".ko")[0] + ".ko")
        yield ("modules/" + names[-1], stat.S_IFREG | 0o644,
               _module_bytes(os.path.join(kernel.modules, path)))
    yield "modules/order", stat.S_IFREG | 0o644, "".join(f"{name}\n" for name in names).encode()


def make(kernel):
    """The path of the kernel's initramfs, made when it is not in the cache."""
    if not os.path.exists(BUSYBOX):
        raise LabError(f"{BUSYBOX} is missing: run scripts/setup lab")
    archive = cpio(list(_entries(kernel)))
    key = hashlib.sha256(archive).hexdigest()[:12]
    path = os.path.join(cache_dir("initramfs"), f"{kernel.release}-{key}.gz")
    if not os.path.exists(path):
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "wb") as out:
            out.write(gzip.compress(archive, 1, mtime=0))
        os.replace(temporary, path)
    return path
