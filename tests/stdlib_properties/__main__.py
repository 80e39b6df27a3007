"""`python -m tests.stdlib_properties`: the properties of the standard library, and with --mutate their mutation score.

Arguments: names of kernels (`softmax.statistics` or `statistics`); none means all. --mutate breaks each kernel in every way
that `vkjit.testing.mutate` knows, one at a time, and prints what no property notices. --part K/N: every Nth kernel, from K
on. The exit code is 1 where the score is below 90 %, or a property fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from tests.stdlib_properties.breaking import score_of
from tests.stdlib_properties.catalogue import KERNELS, OPERATIONS, KernelProperty
from tests.stdlib_properties.coverage import all_kernels, launched
from tests.stdlib_properties.operations import check_operation
from vkjit.testing.checks import first_finding

ENOUGH = 0.9


def plan() -> dict[str, tuple[Any, list[Any]]]:
    """For each kernel that is launched: itself and the properties that launch it, the quickest first."""
    found: dict[str, tuple[Any, list[Any]]] = {}
    for item in (*KERNELS, *OPERATIONS):
        start = time.perf_counter()
        with launched() as seen:
            if isinstance(item, KernelProperty):
                wrong = first_finding(
                    item.kernel, item.reference, devices="interpreter", max_examples=12, seed=1, **item.inputs
                )
                if wrong is not None:
                    raise SystemExit(f"{item.label} fails: {wrong}")
                seen = {k: item.kernel for k in list(seen)[:1]}
            else:
                check_operation(item)  # type: ignore[arg-type]  # the other kind
        seconds = time.perf_counter() - start
        for name, kernel in seen.items():
            found.setdefault(name, (kernel, []))[1].append((seconds, len(found), item))
    return {n: (k, [i for _, _, i in sorted(items, key=lambda t: t[:2])]) for n, (k, items) in found.items()}


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.stdlib_properties", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mutate", action="store_true")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--every", type=int, default=1, help="a sample: every so many mutants of a kernel")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    known = plan()
    missing = sorted(all_kernels() - set(known))
    print(
        f"{len(KERNELS) + len(OPERATIONS)} properties hold; they launch {len(known)} kernels; not launched here: {missing}"
    )
    if not given.mutate:
        return 0
    killed = mutants = same = 0
    for number, (name, (kernel, properties)) in enumerate(sorted(known.items())):
        if number % parts != part or (given.names and not {name, name.partition(".")[2]} & set(given.names)):
            continue
        result = score_of(kernel, properties, every=given.every)
        killed, mutants, same = (
            killed + result.count("killed"),
            mutants + result.mutants,
            same + result.count("equivalent"),
        )
        print(result, flush=True)
    score = killed / max(mutants, 1)
    print(f"mutation score: {killed} of {mutants} ({score:.1%}); {same} mutants mean the same")
    return 0 if score >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
