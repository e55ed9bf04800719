# SPDX-License-Identifier: GPL-2.0
"""Makes the lab's own kernels: Debian's linux-source with checkers on.

The result is kept in the lab's cache under a name made of the configuration
and the source's version, so a change of either builds a new one.
"""

import hashlib
import os
import shutil

from . import packages, procs
from .common import LabError, cache_dir, say

SERIES = "6.1"
NAMES = ("debug", "kcsan")


def fragments(name):
    """The files that say how the kernel of that name is configured."""
    here = os.path.dirname(os.path.realpath(__file__))
    return [os.path.join(here, file) for file in ("debug-kernel.config", f"debug-kernel-{name}.config")]


def asked(name):
    """The lines of these files."""
    lines = []
    for file in fragments(name):
        with open(file, encoding="ascii") as text:
            lines += text.readlines()
    return lines


def _key(name, version):
    return hashlib.sha256((version + "".join(asked(name))).encode()).hexdigest()[:12]


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


def _configure(name, tree, log):
    what = f"configuring the {name} kernel"

    def make(*targets):
        procs.step(["make", "-C", tree, *targets], log, what)

    make("allnoconfig")
    procs.step([os.path.join(tree, "scripts/kconfig/merge_config.sh"), "-m", "-O", tree,
                os.path.join(tree, ".config"), *fragments(name)], log, what)
    make("olddefconfig")
    with open(os.path.join(tree, ".config"), encoding="ascii") as got:
        missing = unmet(asked(name), got)
    if missing:
        raise LabError(f"linux-source-{SERIES} does not take {', '.join(missing)} of {' or '.join(fragments(name))}")


def _mark(dest, name):
    with open(os.path.join(dest, name), "w", encoding="ascii"):
        pass


def _build(name, dest, log):
    tree, root = os.path.join(dest, "tree"), os.path.join(dest, "root")
    tarball = f"/usr/src/linux-source-{SERIES}.tar.xz"
    if not os.path.exists(os.path.join(dest, ".configured")):
        shutil.rmtree(dest, ignore_errors=True)
        os.makedirs(tree)
        procs.step(["tar", "-xJf", tarball, "-C", tree, "--strip-components=1"], log,
                   f"unpacking linux-source-{SERIES}")
        _configure(name, tree, log)
        _mark(dest, ".configured")
    # A build that was interrupted goes on where it was.
    jobs = f"-j{os.cpu_count() or 1}"
    procs.step(["nice", "-n", "5", "make", "-C", tree, jobs, "bzImage", "modules"], log,
               f"compiling the {name} kernel")
    procs.step(["make", "-C", tree, f"INSTALL_MOD_PATH={root}", "modules_install"], log,
               f"installing the {name} kernel's modules")


def ensure(name):
    """(release, tree, root) of the kernel of that name; the caller holds the lock."""
    packages.ensure("kernel:debug")
    version = packages.version_of(f"linux-source-{SERIES}")
    dest = os.path.join(cache_dir("kernels"), f"{name}-{_key(name, version)}")
    tree = os.path.join(dest, "tree")
    if not os.path.exists(os.path.join(dest, ".complete")):
        say(f"building the {name} kernel, once: about 15 minutes on 2 CPUs")
        _build(name, dest, dest + ".log")
        _mark(dest, ".complete")
    with open(os.path.join(tree, "include/config/kernel.release"), encoding="ascii") as text:
        return text.read().strip(), tree, os.path.join(dest, "root")
