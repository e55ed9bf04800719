# SPDX-License-Identifier: GPL-2.0
"""Debian packages: installing what is missing, unpacking without installing.

The machine's own boot set-up and services are never touched: kernels, and what
only guests are to have, are unpacked into the lab's cache.
"""

import glob
import hashlib
import os
import shutil
import subprocess
import sys

from . import procs
from .common import TOP, LabError, cache_dir


def ensure(*groups):
    """Installs what is missing of the groups of scripts/setup."""
    # Not procs.spawn(): sudo may ask for a password, and nobody may kill dpkg.
    status = subprocess.run([os.path.join(TOP, "scripts", "setup"), *groups],
                            stdout=sys.stderr, check=False).returncode
    if status != 0:
        raise LabError(f"scripts/setup {' '.join(groups)} failed (see above)")


def version_of(package):
    """The installed version of a package, or "" when there is none."""
    query = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package],
                           capture_output=True, text=True, check=False)
    return query.stdout.strip() if query.returncode == 0 else ""


def unpack(package, version, dest):
    """Downloads package=version and unpacks its files into dest."""
    name = f"{package}={version}" if version else package
    debs = _unpack(["download", name], name, dest)
    if debs != 1:
        raise LabError(f"apt-get downloaded {debs} packages for {name} instead of one")


def for_guests(names):
    """Unpacks packages, and what they need that this machine lacks; the root of their files, or ""."""
    cache = cache_dir("packages")
    group = "+".join(sorted(names))
    # What has to come with them is a matter of what is installed.
    with open("/var/lib/dpkg/status", "rb") as status:
        dest = os.path.join(cache, f"{group}@{hashlib.sha256(status.read()).hexdigest()[:12]}")
    root = os.path.join(dest, "root")
    with procs.locked(os.path.join(cache, ".lock")):
        if not os.path.exists(os.path.join(dest, ".complete")):
            for old in glob.glob(os.path.join(cache, glob.escape(group) + "@*")):
                shutil.rmtree(old, ignore_errors=True)
            os.makedirs(root)
            _unpack(["--download-only", "--no-install-recommends", "-y", "install", *names],
                    " ".join(names), root)
            with open(os.path.join(dest, ".complete"), "w", encoding="ascii"):
                pass
    # Guests see what this machine has installed.
    return root if os.listdir(root) else ""


def _unpack(command, what, dest):
    """Lets apt-get download into a directory and unpacks all that comes; how many."""
    work = dest + ".download"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.join(work, "partial"))
    log = os.path.join(work, "log")
    options = ["-o", f"Dir::Cache::archives={os.path.abspath(work)}", "-o", "Debug::NoLocking=1"]
    if os.geteuid() == 0:
        # apt would complain that its own user cannot write here.
        options += ["-o", "APT::Sandbox::User=root"]
    procs.step(["apt-get", "-q", *options, *command], log, f"downloading {what}",
               "run 'apt-get update' and try again", cwd=work)
    debs = [entry for entry in os.listdir(work) if entry.endswith(".deb")]
    for deb in debs:
        procs.step(["dpkg-deb", "-x", os.path.join(work, deb), dest], log, f"unpacking {what}")
    shutil.rmtree(work)
    return len(debs)
