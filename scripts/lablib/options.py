# SPDX-License-Identifier: GPL-2.0
"""The lab's command line: parsing, defaults, and the rules between options.

Everything that can be refused before a guest boots is refused here.
"""

import argparse
import os
import re

from . import debug_kernel
from .common import TOP, LabError, Parser

MAX_NODES = 16

EPILOG = """\
Each node runs `bash SCRIPT ARG...` with NODE, NODES, SERVER, RDMA_DEV, NETDEV,
MODDIR and LAB_OUT set (RDMA_DEV2, NETDEV2 and NETNS2 too with --link loopback;
VIRTIO_NETDEV, with the address 10.78.0.$NODE, with --with-virtio).
The host's files are there, read-only below an overlay that is thrown away;
what is written to $LAB_OUT stays, in the directory that is printed at the end.
`lab-barrier NAME` returns when all nodes have called it.
`lab-reboot kill|crash|orderly` ends this node: QEMU is killed, the machine is reset, or
Linux reboots. It starts again, and SCRIPT from its beginning, with LAB_BOOT one higher
(it is 1 at first). `lab-pause SECONDS` stops this node's QEMU as it is, for so long: the
whole node is silent. `lab-kill-server` kills what lets nodes join the emulated NTB;
`lab-start-server` starts another, whose memory is new: those join it that start later.
"""


MAX_SMP = 64
MIN_MEM = 256  # MiB: less does not boot
MAX_FLAT_MEM = 2048  # MiB: more memory is not one range


def _positive(text):
    if not re.fullmatch(r"[1-9][0-9]{0,6}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def kernel_series(text):
    """The kernel that --kernel names."""
    if text not in debug_kernel.NAMES and not re.fullmatch(r"[0-9]+\.[0-9]+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is neither a series such as 6.12 nor debug or kcsan")
    return text


def _module_params(text):
    params = []
    for word in text.split():
        match = re.fullmatch(r"([A-Za-z0-9_]+):([A-Za-z0-9_]+=\S+)", word)
        if not match:
            raise argparse.ArgumentTypeError(f"'{word}' is not MODULE:PARAMETER=VALUE")
        params.append(match.groups())
    return params


def _package_names(text):
    names = text.split(",")
    for name in names:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", name):
            raise argparse.ArgumentTypeError(f"'{name}' is not the name of a package")
    return names


def _parser():
    parser = Parser(
        prog="scripts/lab",
        usage="%(prog)s [OPTION...] run SCRIPT [ARG...]\n       %(prog)s [OPTION...] shell",
        description="Runs a script in N QEMU guests that an emulated NTB joins.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--nodes", type=_positive, metavar="N", help="guests (default 2)")
    add("--kernel", type=kernel_series, default="6.1", metavar="SERIES|debug|kcsan",
        help="Debian's newest kernel of a series (default 6.1), or one with checkers")
    add("--provider", choices=("ropcie", "rxe", "siw"), default="ropcie")
    add("--link", choices=("ntb", "virtio", "loopback"),
        help="what joins the nodes (default ntb; with --icount loopback or virtio)")
    add("--with-virtio", action="store_true",
        help="join the nodes with virtio-net besides, for comparisons in one run")
    add("--flat", action="store_true",
        help="give each NTB port a window to all memory of each other guest")
    add("--smp", type=_positive, metavar="N", help="CPUs of each guest (default 1, kcsan 2)")
    add("--mem", type=_positive, metavar="MIB", help="memory of each guest in MiB")
    add("--icount", action="store_true",
        help="one node whose clock counts instructions")
    add("--profile", metavar="PLUGIN",
        help="a plugin of QEMU's that writes to NODE/profile in the logs (bench/profile)")
    add("--timeout", type=_positive, default=600, metavar="S",
        help="seconds that SCRIPT may take (default 600)")
    add("--no-setup", action="store_true",
        help="load the NTB hardware module only; SCRIPT does the rest")
    add("--module-params", type=_module_params, action="append", metavar="WORDS",
        help="module parameters, as 'MODULE:PARAMETER=VALUE ...'")
    add("--leak-check", action="store_true",
        help="scan with kmemleak at the end (always done on the debug kernel)")
    add("--packages", type=_package_names, default=[], metavar="NAME,...",
        help="Debian packages that only the guests have")
    add("--kernel-args", default="", metavar="WORDS", help="added to the kernel's command line")
    add("--log-dir", metavar="DIR", help="where to keep the logs (default: a new one in /tmp)")
    add("--build-dir", default=os.path.join(TOP, "build"), metavar="DIR",
        help="CMake's build directory (default: build)")
    add("command", nargs="?", metavar="run|shell")
    add("script", nargs="?", metavar="SCRIPT")
    add("args", nargs=argparse.REMAINDER, metavar="ARG", default=[])
    return parser


def _settle_topology(opts):
    if opts.icount:
        if (opts.nodes or 1) != 1:
            raise LabError("--icount means one node: leave --nodes out")
        if (opts.smp or 1) != 1:
            raise LabError("--icount means one CPU: leave --smp out")
        opts.nodes = 1
        if opts.link is None:
            opts.link = "loopback" if opts.provider == "ropcie" else "virtio"
    opts.link = opts.link or "ntb"
    opts.nodes = opts.nodes or 2
    opts.smp = opts.smp or (2 if opts.kernel == "kcsan" else 1)
    if opts.smp > MAX_SMP:
        raise LabError(f"--smp {opts.smp} is more CPUs than a guest can have ({MAX_SMP})")
    if opts.nodes > MAX_NODES:
        raise LabError(f"--nodes {opts.nodes}: at most {MAX_NODES}")
    if opts.provider == "ropcie" and opts.link == "virtio":
        raise LabError("--provider ropcie needs --link ntb or --link loopback")
    if opts.with_virtio and opts.link != "ntb":
        raise LabError("--with-virtio goes with --link ntb")
    if opts.flat and (opts.link != "ntb" or opts.nodes == 1):
        raise LabError("--flat goes with --link ntb and two nodes or more")
    if opts.flat and opts.provider != "ropcie":
        raise LabError(f"--flat is not for --provider {opts.provider}: ntb_transport would want to allocate the flat window")
    if opts.provider != "ropcie" and opts.link == "loopback":
        raise LabError(f"--link loopback is RoPCIe's own: {opts.provider} uses virtio with --nodes 1")
    if opts.provider != "ropcie" and opts.link == "ntb" and opts.nodes > 2:
        raise LabError(f"Linux's ntb_netdev joins two nodes: {opts.provider} on more needs --link virtio")


def _check_shell_script(path):
    """Is it for bash, as which it will be run?"""
    with open(path, "rb") as script:
        head = script.read(4096)
    if b"\0" in head:
        raise LabError(f"{path}: a program, not a shell script: call it from one")
    first = head.split(b"\n", 1)[0].decode(errors="replace")
    if first.startswith("#!") and not re.search(r"\b(ba|da|)sh\b", first):
        raise LabError(f"{path}: its first line is '{first}', but the lab runs bash: call it from a shell script")


def _settle_script(opts):
    if opts.command is None:
        raise LabError("say 'run SCRIPT' or 'shell' (--help lists the options)")
    if opts.command not in ("run", "shell"):
        raise LabError(f"say 'run SCRIPT' or 'shell', not '{opts.command}' (--help lists the options)")
    if opts.command == "shell":
        if opts.script is not None:
            raise LabError("shell takes no SCRIPT: use run")
        return
    if opts.script is None:
        raise LabError("run needs a SCRIPT")
    opts.script = os.path.abspath(opts.script)
    if not os.path.exists(opts.script):
        raise LabError(f"{opts.script}: no such file")
    if not os.path.isfile(opts.script):
        raise LabError(f"{opts.script}: not a file")
    if not os.access(opts.script, os.R_OK):
        raise LabError(f"{opts.script}: cannot be read")
    _check_shell_script(opts.script)


def parse(argv):
    """The options of one run, complete and consistent; else LabError."""
    opts = _parser().parse_args(argv)
    _settle_script(opts)
    _settle_topology(opts)
    opts.module_params = [pair for words in opts.module_params or [] for pair in words]
    checked = opts.kernel in debug_kernel.NAMES
    opts.leak_check = opts.leak_check or checked
    opts.mem = opts.mem or (2048 if checked else 1024)
    if opts.mem < MIN_MEM:
        raise LabError(f"--mem {opts.mem} is too little for a guest: at least {MIN_MEM} MiB")
    if opts.flat and (opts.mem > MAX_FLAT_MEM or opts.mem & (opts.mem - 1)):
        raise LabError(f"--mem {opts.mem} with --flat: give a power of two, {MAX_FLAT_MEM} at most")
    opts.build_dir = os.path.abspath(opts.build_dir)
    return opts
