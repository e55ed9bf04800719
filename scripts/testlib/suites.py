# SPDX-License-Identifier: GPL-2.0
"""The suites of scripts/test, as data: name, when it is run, what to run.

A suite is a function that is given a Runner and returns a Result. It does not
stop at a failure, and prints nothing: that is main's.
"""

import functools
import glob
import os
import re
import time
from dataclasses import dataclass
from typing import Callable

from lablib import packages
from lablib.common import TOP, LabError

from . import guests, result
from .result import Result

BUILD = os.path.join(TOP, "build")
# The second series of kernels that the modules are built for and tested on.
OTHER_SERIES = "6.12"
_SCRIPTS = os.path.join(TOP, "scripts")
# Of sim-nightly: a part is a command, and goes on behind a seed that fails.
_NIGHTLY_SEEDS = 1000000
_NIGHTLY_PART = 10000
_NIGHTLY_FAILURES = 5


@dataclass(frozen=True)
class Suite:
    """One line of the table that scripts/test prints."""

    name: str
    run: Callable
    quick: bool = False
    long: bool = False  # only when it is named
    tests: Callable = None  # the guest tests that it has, if it is of those


def _setup(runner):
    groups = ["build", "lab", "lint"] + ([] if runner.quick else [f"kernel:{OTHER_SERIES}"])
    try:
        packages.ensure(*groups)
    except LabError as error:
        return Result(failed=1, failures=[str(error)])
    return Result(passed=1)


def _build(runner):
    status = runner.cmake("build", BUILD)
    return result.of_status("cmake --build", status)


def _ctest(runner):
    if not os.path.exists(os.path.join(BUILD, "bin", "ropcie_core_test")):
        runner.cmake("build-for-ctest", BUILD)
    return runner.ctest("ctest", BUILD)


def _sanitized(name, sanitizers, *definitions):
    def run(runner):
        build = os.path.join(BUILD, name)
        status = runner.cmake(f"{name}-build", build, f"-DROPCIE_SANITIZE={sanitizers}",
                              "-DROPCIE_MODULES=OFF", "-DROPCIE_WERROR=ON", *definitions)
        total = result.of_status(f"build with {sanitizers}", status)
        if status == 0:
            tests = runner.ctest(name, build)
            total.add(tests)
            total.failures += tests.failures
        return total

    return run


def nightly_part(runner, first, end):
    """One test: the simulation of the seeds from FIRST to END - 1."""
    failures = []
    while first < end and len(failures) < _NIGHTLY_FAILURES:
        status, text = runner.command(f"sim-{first}", [os.path.join(BUILD, "bin", "ropcie_sim"), "--seeds",
                                                       f"{first}:{end}"], 7200)
        if status == 0:
            break
        seed, why = result.of_seeds(text, status)
        failures.append(why)
        first = end if seed is None else seed + 1
    return Result(passed=int(not failures), failed=int(bool(failures)), failures=failures)


def _sim_nightly(runner):
    """Other seeds each day, on all processors."""
    status = runner.cmake("build-for-sim", BUILD)
    if status:
        return result.of_status("build of the simulation", status)
    first = int(time.time()) // 86400 * _NIGHTLY_SEEDS
    return _sum(runner.at_once([functools.partial(nightly_part, runner, at, at + _NIGHTLY_PART)
                                for at in range(first, first + _NIGHTLY_SEEDS, _NIGHTLY_PART)]))


def _mutation(runner):
    """Deliberate bugs: one that no test notices has failed."""
    status, text = runner.command("mutation", [os.path.join(_SCRIPTS, "mutate")], 6 * 3600)
    return result.of_total(text, status)


def _scripts(runner):
    """Python's tests of the scripts; those with guests are not among them."""
    total = Result()
    for name in ("lab", "testlib"):
        status, text = runner.command(
            f"scripts-{name}", ["python3", "-m", "unittest", "discover", "-v", "-s",
                                os.path.join(TOP, "tests", name)], 600)
        part = result.of_unittest(text, status)
        total.add(part)
        total.failures += part.failures
    return total


def _sum(parts):
    total = Result()
    for part in parts:
        total.add(part)
        total.failures += part.failures
    return total


def _boots(runner, cases):
    status, text = runner.command(f"lab-{cases}",
                                  ["python3", os.path.join(TOP, "tests", "lab", "boots.py"), "-v", cases], 1800)
    return result.of_unittest(text, status)


def _lab(runner):
    """Most of their time they wait."""
    return _sum(runner.at_once([functools.partial(_boots, runner, cases)
                                for cases in ("TwoGuests", "OneGuest", "GuestThatStops")]))


def _gate(runner):
    """Instructions of six figures, which no busy machine changes."""
    status, text = runner.command("gate", [os.path.join(_SCRIPTS, "bench"), "--gate", "--out",
                                           os.path.join(runner.log_dir, "gate.out")], 1800)
    return result.of_total(text, status)


def _lint(*checks):
    def run(runner):
        status, text = runner.command("-".join(("lint", *checks))[:40],
                                      [os.path.join(_SCRIPTS, "lint"), *checks], 2400)
        return result.of_total(text, status)

    return run


def _kdir(series):
    """The newest installed headers of a series; "" when there are none."""
    found = [path for path in glob.glob(f"/lib/modules/{series}.*/build")
             if os.path.exists(os.path.join(path, "Makefile"))]
    return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path)], default="")


def _modules(series):
    def run(runner):
        out = os.path.join(BUILD, f"modules-{series}")
        kdir = _kdir(series)
        if not kdir:
            return Result(failed=1, failures=[f"no headers of {series}: run scripts/setup kernel:{series}"])
        # Kept objects would keep their warnings to themselves.
        for path in glob.glob(os.path.join(out, "*", "*.o")):
            if not path.startswith(os.path.join(out, "extra")):
                os.unlink(path)
        status, text = runner.command(f"modules-{series}", [
            os.path.join(_SCRIPTS, "build-modules"), "--kdir", kdir, "--out", out], 1200)
        warnings = re.findall(r"^.*\bwarning: .*$|^WARNING: .*$", text, re.MULTILINE)
        total = result.of_status(f"modules for {series}", status)
        if warnings and not total.failed:
            total = Result(failed=1, failures=warnings[:5])
        return total

    return run


def _guest_suite(name, series, tests_of, **when):
    """Guest tests, which TESTS_OF makes of all that there are, on a series of kernels."""

    def tests():
        return tests_of(guests.find())

    def run(runner):
        # The programs that guests run, as they are now; the lab builds the rest.
        status = runner.cmake("build-for-guests", BUILD)
        if status:
            return result.of_status("build of the guests' programs", status)
        kernel = runner.kernel or series
        groups = guests.batches([test for test in tests()
                                 if runner.wants(test.name) and (test.quick or not runner.quick)])
        # A node alone keeps one processor busy: as many of those at a time as there are.
        alone = [group for group in groups if group[0].nodes() == 1]
        parts = runner.at_once([functools.partial(runner.guest_batch, group, kernel) for group in alone])
        parts += [runner.guest_batch(group, kernel) for group in groups if group not in alone]
        return _sum(parts)

    return Suite(name, run, tests=tests, **when)


def _short(tests):
    return [test for test in tests if not test.long]


def _for_all_kernels(tests):
    return [test for test in tests if test.all_kernels]


def _long(tests):
    return [test for test in tests if test.long]


SUITES = (
    Suite("setup", _setup, quick=True),
    Suite("build", _build, quick=True),
    Suite("ctest", _ctest, quick=True),
    Suite("scripts", _scripts, quick=True),
    Suite("lint", _lint("spdx", "checkpatch", "kernel-doc", "shell", "python", "format"), quick=True),
    Suite("sparse", _lint("modules")),
    Suite(f"modules-{OTHER_SERIES}", _modules(OTHER_SERIES)),
    Suite("asan", _sanitized("asan", "address;undefined")),
    Suite("tsan", _sanitized("tsan", "thread")),
    Suite("fuzz", _sanitized("fuzz", "fuzzer-no-link;address;undefined",
                             "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++")),
    Suite("lab", _lab),
    Suite("gate", _gate),
    _guest_suite("guests", "6.1", _short, quick=True),
    _guest_suite(f"guests-{OTHER_SERIES}", OTHER_SERIES, _for_all_kernels),
    _guest_suite("guests-long", "6.1", _long, long=True),
    _guest_suite("guests-zoo", "6.1", guests.on_families, long=True),
    Suite("tidy", _lint("tidy"), long=True),
    Suite("sim-nightly", _sim_nightly, long=True),
    Suite("mutation", _mutation, long=True),
)
