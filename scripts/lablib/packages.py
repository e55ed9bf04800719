# SPDX-License-Identifier: GPL-2.0
"""Debian packages: installing what is missing, unpacking without installing.

The machine's own boot set-up is never touched: kernels are unpacked into the
lab's cache.
"""

import os
import shutil
import subprocess
import sys

from . import procs
from .common import TOP, LabError


def ensure(*groups):
    """Installs what is missing of the groups of scripts/setup."""
    child = procs.spawn([os.path.join(TOP, "scripts", "setup"), *groups], stdout=sys.stderr)
    try:
        status = child.wait()
    finally:
        procs.kill(child)
    if status != 0:
        raise LabError(f"scripts/setup {' '.join(groups)} failed (see above)")


def version_of(package):
    """The installed version of a package, or "" when there is none."""
    query = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package],
                           capture_output=True, text=True, check=False)
    return query.stdout.strip() if query.returncode == 0 else ""


def unpack(package, version, dest):
    """Downloads package=version and unpacks its files into dest."""
    work = dest + ".download"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    log = os.path.join(work, "log")
    name = f"{package}={version}" if version else package
    # As root, apt would complain that its own user cannot write here.
    sandbox = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
    procs.step(["apt-get", "-q", *sandbox, "download", name], log, f"downloading {name}",
               "run 'apt-get update' and try again", cwd=work)
    debs = [entry for entry in os.listdir(work) if entry.endswith(".deb")]
    if len(debs) != 1:
        raise LabError(f"apt-get downloaded {len(debs)} packages for {name} instead of one")
    procs.step(["dpkg-deb", "-x", os.path.join(work, debs[0]), dest], log, f"unpacking {name}")
    shutil.rmtree(work)
