"""`python -m tests.buggy`: check all buggy kernels and their twins with default settings and print the results.

Arguments are names of classes or kernels (default: all). `--only bad|good` skips the other half. The exit code is 1 if
a bug isn't found in time, its line isn't named, or a correct twin fails the check.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

import vkjit as vk
from tests.buggy.catalogue import ALL, every
from tests.buggy.pair import Pair, marked_lines

LIMIT = 20.0
"""Time limit of one search in seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one buggy kernel: found in time, line named, smallest input reached (None if it isn't known)."""

    found: bool
    named: bool
    minimal: bool | None
    seconds: float
    text: str


def search(pair: Pair, **settings: Any) -> Outcome:
    """Check the buggy kernel of a pair with default settings, except for what `settings` passes (devices, seed)."""
    start = time.perf_counter()
    try:
        vk.testing.check_kernel(pair.bad, pair.reference, **pair.inputs, **settings)
    except vk.testing.CheckFailure as failure:
        seconds = time.perf_counter() - start
        named = bool(set(marked_lines(pair.bad)) & {loc.line for loc in failure.lines})
        minimal = None if pair.minimal is None else dict(failure.dims) == dict(pair.minimal)
        return Outcome(seconds < LIMIT, named, minimal, seconds, str(failure))
    return Outcome(False, False, None, time.perf_counter() - start, "nothing was found")


def accused(pair: Pair, **settings: Any) -> str:
    """Return the failure that a check of the correct twin reports; empty if none."""
    inputs = {k: v for k, v in pair.inputs.items()}
    try:
        vk.testing.check_kernel(pair.good, pair.reference, **inputs, **settings)
    except vk.testing.CheckFailure as failure:
        return str(failure)
    return ""


def main() -> int:
    """Check the selected pairs; print a line for each and the totals."""
    parser = argparse.ArgumentParser(prog="python -m tests.buggy", description=__doc__)
    parser.add_argument("names", nargs="*", help="classes or kernels (default: all)")
    parser.add_argument("--only", choices=["bad", "good"], default=None)
    parser.add_argument("--verbose", action="store_true", help="prints what was found")
    given = parser.parse_args()
    chosen = [(c, p) for c, p in every() if not given.names or c in given.names or p.name in given.names]
    found = named = accusations = measured = minimal = 0
    slowest = 0.0
    for sort, pair in chosen:
        line = f"{sort:15} {pair.name:24}"
        if given.only != "good":
            outcome = search(pair)
            found, named = found + outcome.found, named + (outcome.found and outcome.named)
            slowest = max(slowest, outcome.seconds)
            measured += pair.minimal is not None
            minimal += outcome.minimal is True
            words = "found" if outcome.found else "MISSED"
            words += "" if outcome.named or not outcome.found else ", LINE NOT NAMED"
            words += ", not minimal" if outcome.minimal is False else ""
            line += f" {words} in {outcome.seconds:.1f} s"
            if given.verbose or not (outcome.found and outcome.named):
                line += f"\n{outcome.text}"
        if given.only != "bad":
            start = time.perf_counter()
            text = accused(pair)
            accusations += bool(text)
            line += f"; twin {'ACCUSED' if text else 'clean'} in {time.perf_counter() - start:.1f} s"
            line += f"\n{text}" if text else ""
        print(line, flush=True)
    total = len(chosen)
    print(f"{total} buggy kernels of {len({c for c, _ in chosen} & set(ALL))} classes")
    if given.only != "good":
        print(f"found within {LIMIT:g} s: {found}; line named: {named}; slowest {slowest:.1f} s")
        print(f"smallest input reached: {minimal} of {measured} whose smallest input is known")
    if given.only != "bad":
        print(f"twins accused: {accusations} of {total}")
    missed = given.only != "good" and (found < total or named < total)
    return 1 if missed or accusations else 0


if __name__ == "__main__":
    sys.exit(main())
