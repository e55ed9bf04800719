# SPDX-License-Identifier: GPL-2.0
"""Which kernel the guests boot, and the tree its modules are built against.

Owns the cache of kernels. Knows nothing of guests; how the lab's own kernels are
made is debug_kernel's.
"""

import os
import re
import shutil
from dataclasses import dataclass

from . import debug_kernel, packages, procs
from .common import LabError, cache_dir, say


@dataclass(frozen=True)
class Kernel:
    """One bootable kernel.

    release is what `uname -r` says in the guest, image the file QEMU loads,
    modules the directory that becomes /lib/modules/<release>, kdir the tree
    that external modules are built against.
    """

    release: str
    image: str
    modules: str
    kdir: str
    debug: bool = False


def _version_key(name):
    return [int(number) for number in re.findall(r"\d+", name)]


def installed_releases(series, root="/lib/modules"):
    """Releases of a series whose headers are installed, oldest first."""
    found = []
    for name in os.listdir(root) if os.path.isdir(root) else []:
        stock = re.fullmatch(re.escape(series) + r"\.[0-9][0-9.+a-z-]*?-amd64", name)
        special = re.search(r"-(rt|cloud)-", name)
        if stock and not special and os.path.exists(os.path.join(root, name, "build", "Makefile")):
            found.append(name)
    return sorted(found, key=_version_key)


def _unpacked(release):
    """The cached files of Debian's image for a release."""
    dest = os.path.join(cache_dir("kernels"), release)
    modules = os.path.join(dest, "lib", "modules", release)
    if not os.path.exists(os.path.join(dest, ".complete")):
        say(f"fetching Debian's kernel {release}")
        shutil.rmtree(dest, ignore_errors=True)
        version = packages.version_of(f"linux-headers-{release}")
        packages.unpack(f"linux-image-{release}", version, dest)
        procs.step(["depmod", "-b", dest, release], dest + ".log", f"depmod for {release}")
        os.unlink(dest + ".log")
        with open(os.path.join(dest, ".complete"), "w", encoding="ascii"):
            pass
    return os.path.join(dest, "boot", f"vmlinuz-{release}"), modules


def stock(series):
    """Debian's newest installed kernel of a series, fetched at first use."""
    packages.ensure(f"kernel:{series}")
    releases = installed_releases(series)
    if not releases:
        raise LabError(f"no linux-headers of a {series} kernel are installed: run scripts/setup kernel:{series}")
    release = releases[-1]
    with procs.locked(os.path.join(cache_dir("kernels"), ".lock")):
        image, modules = _unpacked(release)
    return Kernel(release, image, modules, f"/lib/modules/{release}/build")


def checked(name):
    """A kernel of the lab's own, with checkers, built at first use and kept."""
    with procs.locked(os.path.join(cache_dir("kernels"), f".lock-{name}")):
        release, tree, root = debug_kernel.ensure(name)
    return Kernel(release, os.path.join(tree, "arch/x86/boot/bzImage"),
                  os.path.join(root, "lib", "modules", release), tree, debug=True)


def find(name):
    """The kernel for the option --kernel."""
    return checked(name) if name in debug_kernel.NAMES else stock(name)
