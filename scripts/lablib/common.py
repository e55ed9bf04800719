# SPDX-License-Identifier: GPL-2.0
"""What every part of the lab shares: its error, its messages, its places.

Knows nothing of guests, kernels or links.
"""

import argparse
import os
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


class LabError(Exception):
    """Something the person has to know, as one line that says what to do."""


class Parser(argparse.ArgumentParser):
    """Options whose errors are a LabError: one line, no usage around it."""

    def error(self, message):
        raise LabError(f"{message} (--help lists the options)")


def say(text):
    """One line about what the lab is doing; the guests own standard output."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def cache_dir(*parts):
    """A directory below the lab's cache, created if need be."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(base, "ropcie", *parts)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot create the cache directory {path}: {error.strerror}") from error
    return path


def results_dir(given, kind, option="--out"):
    """A directory for results that can be written to: GIVEN, or a new one in build/KIND."""
    if given == "":
        raise LabError(f"{option} has no name")
    path = os.path.abspath(given or os.path.join(TOP, "build", kind, time.strftime("%Y%m%d-%H%M%S")))
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path):
            pass
    except OSError as error:
        raise LabError(f"cannot write to {path}: {error.strerror}; {option} names another place") from error
    return path
