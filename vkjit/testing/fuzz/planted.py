"""Mutation testing of the fuzzer: plants compiler bugs one at a time and counts the programs until each is found.

The bugs come from a Python file with a list `BUGS` of objects with a `name`, a `text` that describes the bug, and a
method `plant()` that modifies the compiler in the current process. `command` runs this for the option `--planted`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from vkjit.errors import ArgumentError

from ..console import say
from .requests import device_names, requests
from .worker import Config, load_planted
from .worker_pool import WorkerPool

__all__ = ["find_bug", "run_planted"]


def find_bug(
    path: str, name: str, *, seed: int, programs: int, devices: tuple[str, ...], jobs: int = 1, statements: int = 0
) -> tuple[int, dict[str, Any] | None]:
    """Return the number of programs run until the bug was found, and the worker's answer with the finding.

    The answer is None if the bug wasn't found with `programs` programs. `path` is the file with the bugs, `name` the
    bug to plant. The other parameters are those of `requests` and of `WorkerPool`. Raises ArgumentError for an unknown
    bug. Without this check, the workers would fail at their start, which would look like a finding.
    """
    names = [bug.name for bug in load_planted(path).BUGS]
    if name not in names:
        raise ArgumentError(f"{path} plants no {name!r}: choose one of {', '.join(names)}")
    pool = WorkerPool(Config(devices, path, name, shrink_seconds=0.0), jobs)
    count = 0
    failure: dict[str, Any] | None = None
    for answer in pool.run(requests(seed, programs, statements)):
        count += failure is None  # answers of other workers may still come after the first finding; they don't count
        if "stage" in answer and failure is None:
            failure = answer
            pool.stop()
    return count, failure


def run_planted(path: str, part: str, options: argparse.Namespace) -> int:
    """Try to find each bug of the file at `path` whose name contains `part`.

    Prints a line per bug, and the number of bugs found. `options` are those of the command line. Returns the exit
    status: 0 if every bug was found, else 1.
    """
    bugs = [bug for bug in load_planted(path).BUGS if part in bug.name]
    devices = device_names(options.devices)
    missed = []
    for bug in bugs:
        start = time.monotonic()
        count, failure = find_bug(
            path, bug.name, seed=options.seed, programs=options.programs, devices=devices, jobs=options.jobs
        )
        seconds = time.monotonic() - start
        if failure is None:
            missed.append(bug.name)
            say(f"{bug.name:34} not found in {count} programs, {seconds:.0f} s")
        else:
            text = failure["text"].splitlines()[0][:90]
            say(f"{bug.name:34} found after {count:4} programs, {seconds:.0f} s: {failure['stage']}: {text}")
    say(f"{len(bugs) - len(missed)} of {len(bugs)} planted bugs found within {options.programs} programs")
    return 1 if missed else 0
