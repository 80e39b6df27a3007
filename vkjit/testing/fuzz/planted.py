"""Plants compiler bugs one at a time and counts the programs until each is found: a test of the fuzzer itself.

Enters: a Python file with a list `BUGS` of objects with `name`, `text` and `plant()`, which changes the compiler of the
process. Leaves: a line per bug, and how many were found.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from ...errors import ArgumentError
from ..console import say
from .crew import Crew
from .worker import Config, load_planted

__all__ = ["find_bug", "run_planted"]


def find_bug(
    path: str, name: str, *, seed: int, programs: int, devices: tuple[str, ...], jobs: int = 1, statements: int = 0
) -> tuple[int, dict[str, Any] | None]:
    """Programs run until the bug was found, and the answer that shows it (None: not found).

    Raises ArgumentError for a name that isn't in the list: workers would die of it, which looks like a finding.
    """
    from .command import requests

    known = [bug.name for bug in load_planted(path).BUGS]
    if name not in known:
        raise ArgumentError(f"{path} plants no {name!r}: choose one of {', '.join(known)}")
    crew = Crew(Config(devices, path, name, shrink_seconds=0.0), jobs)
    count = 0
    found: dict[str, Any] | None = None
    for answer in crew.run(requests(seed, programs, statements)):
        count += found is None
        if "stage" in answer and found is None:
            found = answer
            crew.stop()
    return count, found


def run_planted(path: str, part: str, options: argparse.Namespace) -> int:
    """All bugs of a list; status 0 where every one was found."""
    from .command import device_names

    bugs = [bug for bug in load_planted(path).BUGS if part in bug.name]
    devices = device_names(options.devices)
    missed = []
    for bug in bugs:
        start = time.monotonic()
        count, found = find_bug(
            path, bug.name, seed=options.seed, programs=options.programs, devices=devices, jobs=options.jobs
        )
        seconds = time.monotonic() - start
        if found is None:
            missed.append(bug.name)
            say(f"{bug.name:34} not found in {count} programs, {seconds:.0f} s")
        else:
            text = found["text"].splitlines()[0][:90]
            say(f"{bug.name:34} found after {count:4} programs, {seconds:.0f} s: {found['stage']}: {text}")
    say(f"{len(bugs) - len(missed)} of {len(bugs)} planted bugs found within {options.programs} programs")
    return 1 if missed else 0
