"""`python -m tests.stdlib_properties`: test the properties of the standard library and, with --mutate, score them.

Arguments: names of kernels (`rows.softmax.statistics` or `statistics`); none means all. --mutate mutates each kernel
in every way that `vkjit.testing.mutate` knows, one at a time, and prints the mutants that no property detects.
--sample N judges N mutants drawn from all kernels, the same ones for the same --seed. --results FILE stores verdicts,
and a later run continues from there; --again judges those that survived once more. --part K/N: every Nth kernel,
starting at K. The exit code is 1 if the score is below 90 % or a property fails. Mutants are judged in a process of
their own, so a mutant that crashes it counts as detected.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import vkjit as vk
from tests.stdlib_properties.breaking import Bench, Verdict
from tests.stdlib_properties.coverage import all_kernels
from tests.stdlib_properties.results import MISSED, Mutant, Results, in_order, report
from tests.stdlib_properties.suite import ALL_KERNELS, ALL_OPERATIONS
from tests.stdlib_properties.survey import Known, survey
from vkjit.testing.execution.time_limited import Clock, time_limited

ENOUGH = 0.9
MAX_CRASHES = 200


def _judge_all(known: dict[str, Known], given: argparse.Namespace, clock: Clock) -> None:
    """Judge mutants that have no verdict yet."""
    results, benches = Results(given.results), dict[str, Bench]()
    order = _order(known, given)
    start, count = time.monotonic(), 0
    for mutant in order:
        if results.of(mutant) is not None:
            continue
        if given.seconds and time.monotonic() - start > given.seconds:
            print(f"time is over: {count} mutants judged", flush=True)
            return
        results.begin(mutant)
        if mutant.name not in benches:
            item = known[mutant.name]
            benches[mutant.name] = Bench(item.kernel, item.direct, item.places, clock)
        results.add(mutant, benches[mutant.name].verdict(mutant.edit))
        count += 1
        if count % 50 == 0:
            gc.collect()
            print(f"{count} mutants in {time.monotonic() - start:.0f} s", flush=True)


def _order(known: dict[str, Known], given: argparse.Namespace) -> list[Mutant]:
    order = in_order({n: k.kernel for n, k in known.items()}, given.seed)
    return [m for m in order if _is_wanted(m.name, sorted(known), given)][: given.sample]


def _is_wanted(name: str, names: list[str], given: argparse.Namespace) -> bool:
    part, parts = map(int, given.part.split("/"))
    chosen = not given.names or bool({name, name.rpartition(".")[2]} & set(given.names))
    return chosen and names.index(name) % parts == part


def _supervised(given: argparse.Namespace) -> int:
    """Judge mutants in a child process; a mutant that crashes it counts as killed, and a new child resumes."""
    if given.again:
        Results(given.results).drop(MISSED)
    for _ in range(MAX_CRASHES):
        arguments = [a for a in sys.argv[1:] if a != "--again"]
        command = [
            sys.executable,
            "-m",
            "tests.stdlib_properties",
            *arguments,
            "--child",
            "--results",
            str(given.results),
        ]
        code = subprocess.run(command, check=False).returncode
        if code >= 0:
            break
        Results(given.results).crashed(Verdict("killed", f"the process ended with signal {-code}", 0.0))
    if code != 0:
        return code
    known = survey(_kept(given.results))
    results = Results(given.results)
    judged = [(m, v) for m in _order(known, given) if (v := results.of(m)) is not None]
    text, score = report(judged)
    print(text)
    return 0 if score >= ENOUGH else 1


def _kept(results: Path) -> Path:
    return results.with_name(results.name + ".survey")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stdlib_properties", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mutate", action="store_true")
    parser.add_argument("--sample", type=int, default=None, metavar="N", help="that many mutants (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--part", default="0/1", metavar="K/N")
    parser.add_argument("--results", type=Path, default=None, metavar="FILE", help="verdicts, taken over and added to")
    parser.add_argument("--again", action="store_true", help="judges anew what was missed")
    parser.add_argument("--seconds", type=float, default=None, help="no new mutant after that time")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run the command."""
    given = _arguments()
    if given.mutate and not given.child:
        if given.results is not None:
            return _supervised(given)
        with tempfile.TemporaryDirectory() as folder:
            given.results = Path(folder) / "results.jsonl"
            return _supervised(given)
    with time_limited(1e9) as clock:
        start = time.monotonic()
        known = survey(_kept(given.results) if given.child else None)
        count, missing = len(ALL_KERNELS) + len(ALL_OPERATIONS), sorted(all_kernels() - set(known))
        print(
            f"{count} properties hold ({time.monotonic() - start:.0f} s); they launch {len(known)} kernels; not launched "
            f"here: {missing}",
            flush=True,
        )
        if given.child:
            assert vk.device().caps.kind == "interpreter"
            _judge_all(known, given, clock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
