# SPDX-License-Identifier: GPL-2.0
"""Runs the commands of suites: their logs, their time limits, their results.

Knows nothing of what the suites are.
"""

import concurrent.futures
import os
import subprocess
import time

from lablib import debug_kernel, procs
from lablib.common import TOP

from . import guests, result
from .result import Result

_SLOWNESS = 4  # of the debug kernels
_TIMED_OUT = 124
_WATCH_PERIOD = 2  # seconds


class Runner:
    """What a suite runs its commands with.

    quick: run what takes little time only; kernel: guests' kernel instead of
    the suite's own, or None; pattern: names of the guest tests to run.
    """

    def __init__(self, log_dir, quick, kernel, pattern, report):
        self.log_dir = log_dir
        self.quick = quick
        self.kernel = kernel
        self._pattern = pattern
        self._report = report
        self._children = set()

    def wants(self, name):
        """Is a guest test among those that were asked for?"""
        return guests.matches(name, self._pattern)

    def command(self, name, argv, timeout, watch=None):
        """Runs argv with its output in NAME.log; its exit status and output.

        watch: called with the output so far, now and then and at the end.
        """
        log = os.path.join(self.log_dir, name + ".log")
        end = time.monotonic() + timeout
        status = None
        with open(log, "wb") as out:
            child = procs.spawn(argv, stdout=out, stderr=subprocess.STDOUT, cwd=TOP)
            self._children.add(child)
            try:
                while status is None:
                    try:
                        status = child.wait(timeout=min(max(end - time.monotonic(), 0), _WATCH_PERIOD))
                    except subprocess.TimeoutExpired:
                        if time.monotonic() >= end:
                            out.write(f"\ntimed out after {timeout} s\n".encode())
                            status = _TIMED_OUT
                        elif watch:
                            watch(_read(log))
            finally:
                self._children.discard(child)
                procs.kill(child, grace=10)  # the lab takes its files away
        output = _read(log)
        if watch:
            watch(output)
        return status, output

    def at_once(self, calls):
        """What these calls return, made by as many threads as there are processors."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            futures = [pool.submit(call) for call in calls]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.kill()
                raise

    def kill(self):
        """Ends the commands that are running."""
        for child in list(self._children):
            procs.kill(child)

    def cmake(self, name, build, *definitions):
        """Configures and builds; the exit status."""
        status, _ = self.command(name + "-configure", ["cmake", "-S", TOP, "-B", build, *definitions], 300)
        if status == 0:
            status, _ = self.command(name, [*_fixed_layout(), "cmake", "--build", build,
                                            f"-j{os.cpu_count()}"], 2400)
        return status

    def ctest(self, name, build):
        """All tests of a build; without those labelled slow when quick."""
        report = os.path.join(self.log_dir, name + ".xml")
        slow = ["--label-exclude", "^slow$"] if self.quick else []
        status, _ = self.command(name, [*_fixed_layout(), "ctest", "--test-dir", build, "--output-on-failure",
                                        f"-j{os.cpu_count()}", "--output-junit", report, *slow], 2400)
        return result.of_junit(report, status)

    def guest_batch(self, tests, kernel):
        """Tests with the same options in the same guests, to save the boots.

        A batch ends with the first test that fails, and that counts; what is
        left of it goes on in new guests.
        """
        logs = os.path.join(self.log_dir, f"batch-{tests[0].name}-{kernel}")
        names = logs + ".list"
        with open(names, "w", encoding="utf-8") as text:
            text.write(guests.batch_list(tests))
        limit = max(600, tests[0].timeout()) * (_SLOWNESS if kernel in debug_kernel.NAMES else 1)
        options = (*tests[0].options, "--timeout", str(limit * len(tests)))
        script = os.path.join(TOP, "scripts", "testlib", "batch")
        command = guests.lab_command(kernel, logs, options, script, names, str(limit))
        passed = {}

        def report(output):
            for name, seconds in guests.batch_passed(tests, output).items():
                if name not in passed:
                    passed[name] = seconds
                    self._report(f"  {name}: " + ("left out" if seconds is None else f"ok ({seconds} s)"))

        status, output = self.command(os.path.basename(logs), command, limit * len(tests) + 600, report)
        skipped = sum(seconds is None for seconds in passed.values())
        total = Result(passed=len(passed) - skipped, skipped=skipped)
        rest = [test for test in tests if test.name not in passed]
        if status != 0 or (rest and not guests.batch_moves(output)):
            why = _lab_verdict(output) or f"exit status {status}"
            name = rest.pop(0).name if rest else f"the batch of {tests[0].name}"
            self._report(f"  {name}: {why}")
            total.failed += 1
            total.failures.append(f"{name} on {kernel}: {why}")
        if rest:
            part = self.guest_batch(rest, kernel)
            total.add(part)
            total.failures += part.failures
        return total


def _read(path):
    with open(path, encoding="utf-8", errors="replace") as text:
        return text.read()


def _lab_verdict(output):
    """The line in which the lab says how it ended; "" if it did not."""
    said = [line for line in output.splitlines() if line.startswith("lab: ")]
    return next((line for line in said if "FAILED" in line), said[-1] if said else "")


def _fixed_layout():
    """ThreadSanitizer of older compilers needs addresses that are not random.

    Where that may not be switched off, it is left as it is.
    """
    prefix = ["setarch", "--addr-no-randomize"]
    try:
        works = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        works = False
    return prefix if works else []
