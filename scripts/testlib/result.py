# SPDX-License-Identifier: GPL-2.0
"""What a suite's tests came to, and how it is read from a suite's output.

Pure text in, counts out; knows nothing of processes or of the suites.
"""

import re
import xml.etree.ElementTree
from dataclasses import dataclass, field

_TOTAL = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
_REPLAY = re.compile(r"^replay: ropcie_sim --seed (\d+) ", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)


@dataclass
class Result:
    """Counts of tests, and a line for each that failed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = field(default_factory=list)

    def line(self):
        """The counts as every suite and scripts/test itself end."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"

    def add(self, other):
        """Adds another's counts; its failures stay its own."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def of_status(name, status, why=""):
    """One test: a command that ended with a status."""
    if status == 0:
        return Result(passed=1)
    return Result(failed=1, failures=[f"{name}: {why or f'exit status {status}'}"])


def of_total(text, status):
    """A suite that ends with a line of counts, and says FAILED for each failure."""
    lines = text.splitlines()
    total = next((match for match in map(_TOTAL.match, reversed(lines)) if match), None)
    failures = [line[len("FAILED "):] for line in lines if line.startswith("FAILED ")]
    if not total:
        return Result(failed=1, failures=[f"no line of counts; exit status {status}"])
    result = Result(*(int(number or 0) for number in total.groups()), failures)
    if status != 0 and not result.failed:
        result.failed = 1
        result.failures.append(f"exit status {status}")
    return result


def of_junit(path, status):
    """ctest's own report."""
    try:
        suite = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return Result(failed=1, failures=[f"ctest left no report; exit status {status}"])
    result = Result()
    for case in suite.iter("testcase"):
        state = case.get("status")
        if state == "run":
            result.passed += 1
        elif state in ("disabled", "notrun") and case.find("skipped") is not None:
            result.skipped += 1
        else:
            result.failed += 1
            result.failures.append(case.get("name"))
    if status != 0 and not result.failed:
        result.failed = 1
        result.failures.append(f"ctest's exit status {status}")
    if not result.passed and not result.failed:
        return Result(failed=1, failures=["ctest has found no test to run"])
    return result


def of_seeds(text, status):
    """Of a simulation that failed: the seed that did, or None, and what to say of it."""
    replay = _REPLAY.search(text)
    if not replay:
        return None, f"exit status {status}: {text.strip()[-200:]}"
    said = text[:replay.start()].strip().splitlines() or [f"exit status {status}"]
    return int(replay.group(1)), f"seed {replay.group(1)}: {said[0].removeprefix(f'seed {replay.group(1)}: ')}"


def of_unittest(text, status):
    """Python's unittest."""
    ran = _UNITTEST.search(text)
    if not ran:
        return Result(failed=1, failures=[f"unittest ran nothing; exit status {status}"])
    bad = re.findall(r"^(?:FAIL|ERROR): (.*)$", text, re.MULTILINE)
    skipped = re.search(r"skipped=(\d+)", text)
    skipped = int(skipped.group(1)) if skipped else 0
    failed = len(bad) or int(status != 0)
    return Result(max(int(ran.group(1)) - failed - skipped, 0), failed, skipped, bad)
