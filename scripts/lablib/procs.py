# SPDX-License-Identifier: GPL-2.0
"""Child processes that cannot outlive the lab, and steps with progress.

A child dies with the lab even when that is killed with -9: it asks the kernel
for a signal at its parent's death. Knows nothing of what it runs.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import time
from contextlib import contextmanager

from .common import LabError, say

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

# The shell leads a process group; at the lab's death, all of that is killed.
_GUARD = 'trap "kill -KILL 0" TERM; "$@" & wait $!'


def _die_with_parent(parent, signum):
    def hook():
        _LIBC.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return hook


def spawn(argv, death_signal=signal.SIGKILL, **kwargs):
    """Starts argv in a session of its own; it dies when the lab does."""
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=_die_with_parent(os.getpid(), death_signal), **kwargs)


def kill(process, grace=0):
    """Ends a child of spawn() and its process group, and reaps it; it has some seconds to end itself."""
    if grace:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def step(argv, log, what, remedy="", progress=30, cwd=None):
    """Runs argv to its end with its output in log, a line every `progress` s.

    Raises LabError with the last line of the log when it fails.
    """
    start = time.monotonic()
    with open(log, "wb") as out:
        child = spawn(["bash", "-c", _GUARD, "guard", *argv], signal.SIGTERM,
                      stdout=out, stderr=subprocess.STDOUT, cwd=cwd)
        try:
            while True:
                try:
                    status = child.wait(timeout=progress)
                    break
                except subprocess.TimeoutExpired:
                    say(f"{what}: {time.monotonic() - start:.0f} s ({last_line(log)[:90]})")
        finally:
            kill(child)
    if status != 0:
        hint = f"; {remedy}" if remedy else ""
        raise LabError(f"{what} failed: {last_line(log)} (whole log: {log}{hint})")


def _lines(path, end):
    """The lines with text in the last END bytes of a log."""
    with open(path, "rb") as log:
        log.seek(max(0, os.path.getsize(path) - end))
        lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    return [line for line in lines if line]


def last_line(path):
    """The last line of a log that has text, for a message."""
    return (_lines(path, 4096) or ["no output"])[-1]


def complaint(path):
    """What a test says of its failure, for a message: the cause comes first, so the first lines
    with FAILED; the last line if there are none."""
    said = [line for line in _lines(path, 256 * 1024) if line.startswith("FAILED")]
    return "; ".join(line[:200] for line in said[:3]) or last_line(path)


@contextmanager
def locked(path):
    """Holds an exclusive lock on a file: several labs share one cache."""
    with open(path, "w", encoding="ascii") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
