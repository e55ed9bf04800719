# SPDX-License-Identifier: GPL-2.0
"""Guest tests: which there are, by what their files say of themselves.

A guest test is a file tests/guest/*.sh. Lines at its start tell how it is run:

  # lab: LAB-OPTION... [-- ARG...]    one run of it; several lines, several runs
  # lab-long: the same                one in the suite guests-long only
  # lab-quick: yes                    the first of them is part of --quick
  # lab-kernels: all                  the first of them runs on the other kernels too
  # lab-alone: yes                    its guests run nothing else: it reboots them, or is long
"""

import fnmatch
import glob
import os
import re
import shlex
from dataclasses import dataclass, replace

from lablib.common import TOP, LabError

# Of hardware that the emulated NTB imitates (docs/ntb-emulation.md).
FAMILIES = ("intel1", "intel3", "amd", "switchtec", "idt", "epf", "worst")
# No windows that show all memory, or (idt) none that the node whose memory it is can close.
_WITHOUT_PLACEMENT = ("idt", "epf", "worst")
_LINE = re.compile(r"^# lab(-quick|-kernels|-long|-alone)?: *(.*)$")


@dataclass(frozen=True)
class GuestTest:
    """One run of a script in the lab."""

    name: str
    script: str
    options: tuple
    args: tuple = ()
    quick: bool = False
    all_kernels: bool = False
    long: bool = False
    alone: bool = False

    def _number(self, option, default):
        words = list(self.options)
        return int(words[words.index(option) + 1]) if option in words else default

    def nodes(self):
        """How many guests it has."""
        return self._number("--nodes", 2)

    def timeout(self):
        """Seconds that it asks for, or 0."""
        return self._number("--timeout", 0)


def lab_command(kernel, log_dir, options, *script):
    """A command line of scripts/lab."""
    return [os.path.join(TOP, "scripts", "lab"), "--kernel", kernel, "--log-dir", log_dir,
            *options, "run", *script]


def _header(path):
    with open(path, encoding="utf-8") as text:
        for line in text:
            if not line.startswith("#"):
                return
            match = _LINE.match(line.rstrip("\n"))
            if match:
                yield match.group(1), match.group(2)


def tests_of(path):
    """The runs that a file asks for."""
    stem = os.path.splitext(os.path.basename(path))[0]
    runs, quick, all_kernels, alone = [], False, False, False  # runs: long, options, arguments
    for what, text in _header(path):
        if what == "-quick":
            quick = text == "yes"
        elif what == "-kernels":
            all_kernels = text == "all"
        elif what == "-alone":
            alone = text == "yes"
        else:
            words = shlex.split(text)
            cut = words.index("--") if "--" in words else len(words)
            runs.append((what == "-long", tuple(words[:cut]), tuple(words[cut + 1:])))
    if not runs:
        raise LabError(f"{path} has no '# lab:' line")
    numbered = len(runs) > 1
    return [GuestTest(f"{stem}.{number}" if numbered else stem, path, options, args,
                      quick and number == 1, all_kernels and number == 1, long, alone)
            for number, (long, options, args) in enumerate(runs, 1)]


def matches(name, pattern):
    """Is a test among those that patterns, with commas between them, stand for?"""
    return any(fnmatch.fnmatchcase(name, one) for one in pattern.split(","))


def find():
    """All runs of all guest tests."""
    paths = sorted(glob.glob(os.path.join(TOP, "tests", "guest", "*.sh")))
    return [test for path in paths for test in tests_of(path)]


def _on_ntb(test):
    """Has it two nodes with RoPCIe that the lab's NTB joins?

    Not those that load the NTB's driver as they want it, nor what takes hours.
    """
    return (test.nodes() == 2 and not {"--no-setup", "--link", "--provider"} & set(test.options)
            and not (test.long and test.timeout()))


def on_families(tests):
    """The tests that two nodes can do on any NTB, on each family: NAME-FAMILY."""
    return [replace(test, name=f"{test.name}-{family}", long=True,
                    options=(*test.options, "--module-params", f"ntb_hw_ivshmem:family={family}"))
            for family in FAMILIES for test in tests
            if _on_ntb(test) and not ("--flat" in test.options and family in _WITHOUT_PLACEMENT)]


def batches(tests):
    """Groups the tests that can share guests: those with the same options, unless alone."""
    groups = {}
    for test in tests:
        groups.setdefault((test.options, test.name if test.alone else None), []).append(test)
    return list(groups.values())


def batch_list(tests):
    """Text of the file that testlib/batch reads."""
    return "".join("\t".join((test.name, test.script, shlex.join(test.args))) + "\n" for test in tests)


def batch_passed(tests, output):
    """Those of a batch that all nodes said to be well: name to seconds, or None where it was left out."""
    said = {}
    for node, name, seconds in re.findall(r"^(node\d+)\| batch: (\S+): (?:ok in (\d+) s|left out)$", output,
                                          re.MULTILINE):
        said.setdefault(name, {})[node] = int(seconds) if seconds else None
    well = {test.name: list(said[test.name].values()) for test in tests
            if len(said.get(test.name, ())) == test.nodes()}
    return {name: None if None in times else max(times) for name, times in well.items()}


def batch_moves(output):
    """Is what is left of a batch to be run in new guests, although nothing has failed?"""
    return re.search(r"^node\d+\| batch: \S+: in new guests, ", output, re.MULTILINE) is not None
