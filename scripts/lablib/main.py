# SPDX-License-Identifier: GPL-2.0
"""scripts/lab from its options to its exit status.

Puts the parts together: packages, kernel, modules, link, nodes, verdict.
"""

import glob
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import cluster, initramfs, kernels, links, options, packages, procs, qemu, shell
from .common import TOP, LabError, say

LIB = os.path.dirname(os.path.realpath(__file__))


def _build(opts, kernel):
    """Builds the modules and user space that a run needs; the modules' place."""
    out = os.path.join(opts.build_dir, f"modules-{opts.kernel}")
    os.makedirs(out, exist_ok=True)
    needs_ropcie = opts.provider == "ropcie" or opts.link == "ntb"
    procs.step([os.path.join(TOP, "scripts", "build-modules"), "--kdir", kernel.kdir, "--out", out,
                *([] if needs_ropcie else ["--extra-only"])],
               out + ".log", f"building the modules for {kernel.release}")
    targets = []
    if opts.link == "ntb":
        targets.append("ropcie-ivshmem-server")
    if opts.provider == "ropcie":
        targets.append("ropcie_provider")
    if targets:
        with procs.locked(os.path.join(opts.build_dir, ".lab-lock")):
            _cmake(opts.build_dir, targets)
    return out


def _cmake(build_dir, targets):
    log = os.path.join(build_dir, "lab-cmake.log")
    # A configuration that failed leaves a cache, but no build files.
    if not any(os.path.exists(os.path.join(build_dir, name)) for name in ("Makefile", "build.ninja")):
        procs.step(["cmake", "-S", TOP, "-B", build_dir], log, "configuring user space",
                   f"see the reason, and remove {build_dir} if it is of another set-up")
    procs.step(["cmake", "--build", build_dir, "--target", *targets], log, "building user space")


def check_module_params(params, moddir, kernel_modules):
    """Refuses what insmod would take without a word: a module that is not there, or a parameter."""
    for module, setting in params:
        files = (glob.glob(os.path.join(moddir, "*", f"{module}.ko"))
                 or glob.glob(os.path.join(kernel_modules, "**", module.replace("_", "[-_]") + ".ko*"),
                              recursive=True))
        if not files:
            raise LabError(f"--module-params: there is no module {module}")
        known = subprocess.run(["modinfo", "-F", "parm", files[0]], capture_output=True, text=True, check=False)
        name = setting.partition("=")[0]
        if name not in (line.partition(":")[0] for line in known.stdout.splitlines()):
            raise LabError(f"--module-params: {module} has no parameter {name}")


def _environment(opts, kernel, moddir):
    """Text of the file that guest/init and guest/node source."""
    provider = os.path.join(opts.build_dir, "lib", "libropcie")
    size = shutil.get_terminal_size()
    private = {
        "LAB_LIB": LIB,
        "LAB_MODULES": kernel.modules,
        "LAB_BUILD": opts.build_dir,
        "LAB_CWD": os.getcwd(),
        "LAB_COMMAND": "script" if opts.command == "run" else "shell",
        "LAB_SCRIPT": opts.script or "",
        "LAB_SETUP": str(int(not opts.no_setup)),
        "LAB_LEAK_CHECK": str(int(opts.leak_check)),
        "LAB_PACKAGES": packages.for_guests(opts.packages) if opts.packages else "",
        "LAB_WITH_VIRTIO": str(int(opts.with_virtio)),
        "LAB_MODULE_PARAMS": " ".join(":".join(pair) for pair in opts.module_params),
        "LAB_TERMINAL": f"{size.lines} {size.columns}",
    }
    public = {
        "LAB_PATIENCE": "240" if kernel.debug else "60",
        "NODES": str(opts.nodes),
        "SERVER": "10.77.0.1",
        "MODDIR": moddir,
        "LAB_OUT": "/run/lab",
        "LAB_PROVIDER": opts.provider,
        "LAB_LINK": opts.link,
        "LAB_FLAT": str(int(opts.flat)),
    }
    if os.path.exists(provider + "-rdmav34.so"):
        public["IBV_DRIVERS"] = provider
    lines = [f"{name}={shlex.quote(value)}" for name, value in private.items()]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in public.items()]
    # An array, which busybox's shell in guest/init cannot read.
    lines.append("[ -z \"$BASH_VERSION\" ] || eval "
                 + shlex.quote(f"LAB_ARGS=({' '.join(map(shlex.quote, opts.args))})"))
    return "\n".join(lines) + "\n"


def _log_dir(opts):
    if opts.log_dir is None:
        return tempfile.mkdtemp(prefix="ropcie-lab-")
    if not opts.log_dir:
        raise LabError("--log-dir has no name")
    path = os.path.abspath(opts.log_dir)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot create {path}: {error.strerror}") from error
    return path


def _judge(opts, nodes, kernel, started):
    failures = nodes.verdict()
    if not failures:
        wire = f"{opts.provider} over {opts.link}"
        say(f"ok: {opts.nodes} node{'s' * (opts.nodes > 1)}, {kernel.release}, {wire}, "
            f"{time.monotonic() - started:.0f} s")
        return 0
    node, why = failures[0]
    more = f" (and {len(failures) - 1} more: see the logs)" if len(failures) > 1 else ""
    say(f"FAILED: node{node}: {why}{more}")
    return 1


def _run(opts, log_dir, run_dir):
    packages.ensure("build", "lab")
    kernel = kernels.find(opts.kernel)
    moddir = _build(opts, kernel)
    check_module_params(opts.module_params, moddir, kernel.modules)
    with open(os.path.join(log_dir, "env"), "w", encoding="utf-8") as env:
        env.write(_environment(opts, kernel, moddir))
    started = time.monotonic()
    image = initramfs.make(kernel)
    say(f"booting {opts.nodes} x {kernel.release}, {opts.provider} over {opts.link}")
    with links.make(opts, run_dir, os.path.join(log_dir, "link.log")) as link, \
            cluster.Cluster(opts, kernel, image, link, log_dir, qemu.host_tsc_khz()) as nodes:
        if opts.command == "shell":
            shell.attend(nodes)
        else:
            nodes.drive()
        return _judge(opts, nodes, kernel, started)


def _mention_logs(log_dir):
    """A directory that was made for nothing goes again."""
    if log_dir is None:
        return
    if os.listdir(log_dir):
        say(f"logs in {log_dir}")
    else:
        os.rmdir(log_dir)


def _interrupted(signum, _frame):
    raise KeyboardInterrupt(signum)


def main(argv):
    """Runs the lab; the exit status of the command."""
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGHUP, _interrupted)
    # What guests print may have no place in the locale of this terminal.
    sys.stdout.reconfigure(errors="replace")
    log_dir = None
    try:
        opts = options.parse(argv)
        log_dir = _log_dir(opts)
        with tempfile.TemporaryDirectory(prefix="ropcie-run-", dir="/tmp") as run_dir:
            return _run(opts, log_dir, run_dir)
    except LabError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:
        # Who reads the output has gone; so must not fail at exit once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        say(f"{error.filename or 'the system'}: {error.strerror or error}")
        return 2
    finally:
        _mention_logs(log_dir)
