# SPDX-License-Identifier: GPL-2.0
"""scripts/test from its options to its last line and exit status."""

import argparse
import signal
import sys
import time

from lablib.common import LabError, Parser, results_dir
from lablib.options import kernel_series

from .guests import find, matches
from .result import Result
from .runner import Runner
from .suites import SUITES

EPILOG = """\
A SUITE is a name that --list shows; guests:NAME is one guest test (a pattern
such as ntb-* may stand for NAME; guests:NAME,NAME are several, which share
guests where they can). guests-zoo are those of two nodes on each family of NTB
hardware: guests-zoo:*-idt, guests-zoo:errors.1-*. Without any: all but those that --list marks as long, or
with --quick those that it marks as quick. It goes on after a failure, and ends with a table and a line of
counts; exit status 0 only if nothing failed.
"""


def _parse(argv):
    parser = Parser(prog="scripts/test", epilog=EPILOG, allow_abbrev=False,
                    description="Installs, builds and runs everything that CI runs.",
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="what takes under 5 minutes")
    parser.add_argument("--list", action="store_true", help="show the suites and guest tests, or what SUITE... are")
    parser.add_argument("--kernel", type=kernel_series, metavar="SERIES|debug|kcsan",
                        help="kernel of the guests (default: each suite's)")
    parser.add_argument("--log-dir", metavar="DIR", help="where to keep the logs (default: in build/test-logs)")
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    opts = parser.parse_args(argv)
    by_name = {suite.name: suite for suite in SUITES}
    for word in opts.suites:
        name, colon, pattern = word.partition(":")
        if name not in by_name:
            raise LabError(f"unknown suite '{name}' (--list shows them)")
        tests = by_name[name].tests() if by_name[name].tests else []
        for one in pattern.split(",") if colon else ():
            if not any(matches(test.name, one) for test in tests):
                raise LabError(f"'{name}:{one}' is no test (--list shows them)")
    return opts


def _chosen(opts):
    """Pairs of a suite and the pattern for its guest tests."""
    if opts.suites:
        by_name = {suite.name: suite for suite in SUITES}
        words = [word.partition(":") for word in opts.suites]
        return [(by_name[name], pattern or "*") for name, _, pattern in words]
    return [(suite, "*") for suite in SUITES if not suite.long and (suite.quick or not opts.quick)]


def _mark(item):
    return " (quick)" if item.quick else " (long)" if item.long else ""


def _list(opts):
    if opts.suites:
        for suite, pattern in _chosen(opts):
            print(f"{suite.name}{_mark(suite)}")
            for test in suite.tests() if suite.tests else []:
                if any(matches(test.name, one) for one in pattern.split(",")):
                    print(f"  {suite.name}:{test.name}{_mark(test)}")
        return
    for suite in SUITES:
        print(f"{suite.name}{_mark(suite)}")
        if suite.name == "guests":
            for test in find():
                print(f"  {suite.name}{'-long' if test.long else ''}:{test.name}{_mark(test)}")


def _say(text):
    print(text, flush=True)


def _run(suite, runner):
    """A suite's result; what goes wrong in the suite itself is a failure too."""
    try:
        return suite.run(runner)
    except (LabError, OSError) as error:
        return Result(failed=1, failures=[f"{type(error).__name__}: {error}"])


def _timed(suite, runner):
    """A row of the table."""
    began = time.monotonic()
    part = _run(suite, runner)
    _say(f"{suite.name}: {part.line()}")
    return suite, part, time.monotonic() - began


def run_all(chosen, runner_of):
    """Rows of the table; of pairs of a suite and a pattern, RUNNER_OF makes runners."""
    rows = []
    for suite, pattern in chosen:
        runner = runner_of(suite, pattern)
        _say(f"{suite.name}: started")
        rows.append(_timed(suite, runner))
    return rows


def _table(rows):
    _say(f"\n{'suite':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for suite, part, seconds in rows:
        _say(f"{suite.name:<14}{part.passed:>8}{part.failed:>8}{part.skipped:>9}{seconds:>9.0f}")
    for suite, part, _ in rows:
        for failure in part.failures:
            _say(f"FAILED {suite.name}: {failure}")


def main(argv):
    """Runs the suites; the exit status of the command."""
    try:
        opts = _parse(argv)
        if opts.list:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            _list(opts)
            return 0
        log_dir = results_dir(opts.log_dir, "test-logs", "--log-dir")
    except LabError as error:
        _say(f"test: {error}")
        return 2
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda *_: sys.exit(130))

    def runner_of(suite, pattern):
        return Runner(log_dir, opts.quick, opts.kernel, pattern, _say)

    try:
        rows = run_all(_chosen(opts), runner_of)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    total = Result()
    for _, part, _ in rows:
        total.add(part)
    _table(rows)
    _say(f"logs in {log_dir}")
    if not total.passed + total.failed + total.skipped:
        _say("test: nothing of that is to be run (--list shows what is quick)")
    _say(total.line())
    return 0 if total.passed + total.skipped and not total.failed else 1
