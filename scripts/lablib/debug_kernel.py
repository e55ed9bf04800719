# SPDX-License-Identifier: GPL-2.0
"""Makes the debug kernel: Debian's linux-source with every checker on.

The result is kept in the lab's cache under a name made of the configuration
and the source's version, so a change of either builds a new one.
"""

import hashlib
import os
import shutil

from . import packages, procs
from .common import LabError, cache_dir, say

SERIES = "6.1"
FRAGMENT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "debug-kernel.config")


def _key(version):
    with open(FRAGMENT, "rb") as fragment:
        return hashlib.sha256(version.encode() + fragment.read()).hexdigest()[:12]


def unmet(fragment_lines, config_lines):
    """Options of the fragment that the configuration does not have as asked.

    A kernel without one of its checkers would pass tests that it should not.
    """
    have = {line.strip() for line in config_lines}
    wanted = {}
    for line in fragment_lines:
        line = line.strip()
        if line.startswith("CONFIG_"):
            wanted[line.split("=", 1)[0]] = line
    return sorted(line for line in wanted.values() if line not in have)


def _configure(tree, log):
    def make(*targets):
        procs.step(["make", "-C", tree, *targets], log, "configuring the debug kernel")

    make("allnoconfig")
    procs.step([os.path.join(tree, "scripts/kconfig/merge_config.sh"), "-m", "-O", tree,
                os.path.join(tree, ".config"), FRAGMENT], log, "configuring the debug kernel")
    make("olddefconfig")
    with open(FRAGMENT, encoding="ascii") as asked, \
            open(os.path.join(tree, ".config"), encoding="ascii") as got:
        missing = unmet(asked, got)
    if missing:
        raise LabError(f"linux-source-{SERIES} does not take {', '.join(missing)} of {FRAGMENT}")


def _mark(dest, name):
    with open(os.path.join(dest, name), "w", encoding="ascii"):
        pass


def _build(dest, log):
    tree, root = os.path.join(dest, "tree"), os.path.join(dest, "root")
    tarball = f"/usr/src/linux-source-{SERIES}.tar.xz"
    if not os.path.exists(os.path.join(dest, ".configured")):
        shutil.rmtree(dest, ignore_errors=True)
        os.makedirs(tree)
        procs.step(["tar", "-xJf", tarball, "-C", tree, "--strip-components=1"], log,
                   f"unpacking linux-source-{SERIES}")
        _configure(tree, log)
        _mark(dest, ".configured")
    # A build that was interrupted goes on where it was.
    jobs = f"-j{os.cpu_count() or 1}"
    procs.step(["nice", "-n", "5", "make", "-C", tree, jobs, "bzImage", "modules"], log,
               "compiling the debug kernel")
    procs.step(["make", "-C", tree, f"INSTALL_MOD_PATH={root}", "modules_install"], log,
               "installing the debug kernel's modules")


def ensure():
    """(release, tree, root) of the debug kernel; the caller holds the lock."""
    packages.ensure("kernel:debug")
    version = packages.version_of(f"linux-source-{SERIES}")
    dest = os.path.join(cache_dir("kernels"), f"debug-{_key(version)}")
    tree = os.path.join(dest, "tree")
    if not os.path.exists(os.path.join(dest, ".complete")):
        say("building the debug kernel, once: about 15 minutes on 2 CPUs")
        _build(dest, dest + ".log")
        _mark(dest, ".complete")
    with open(os.path.join(tree, "include/config/kernel.release"), encoding="ascii") as text:
        return text.read().strip(), tree, os.path.join(dest, "root")
