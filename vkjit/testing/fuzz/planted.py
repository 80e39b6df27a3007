"""Mutation testing of the fuzzer: plants compiler bugs one at a time and counts the programs until each is found.

The bugs come from a Python file with a list `BUGS` of objects with `name`, `text` and `plant()`, which modifies the
compiler of the current process. Prints a line per bug and the number found.
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
    """Return the number of programs run until the bug was found, and the answer that shows it (None: not found).

    Raises ArgumentError for an unknown bug: workers would die of it, which would look like a finding.
    """
    names = [bug.name for bug in load_planted(path).BUGS]
    if name not in names:
        raise ArgumentError(f"{path} plants no {name!r}: choose one of {', '.join(names)}")
    crew = WorkerPool(Config(devices, path, name, shrink_seconds=0.0), jobs)
    count = 0
    failure: dict[str, Any] | None = None
    for answer in crew.run(requests(seed, programs, statements)):
        count += failure is None
        if "stage" in answer and failure is None:
            failure = answer
            crew.stop()
    return count, failure


def run_planted(path: str, part: str, options: argparse.Namespace) -> int:
    """Run all bugs of a list. Returns 0 if every one was found."""
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
