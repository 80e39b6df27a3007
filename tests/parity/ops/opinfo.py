#!/usr/bin/env python3
"""Run PyTorch's OpInfo samples: `python tests/parity/ops/opinfo.py [--op NAME] [--device cpu] [--jobs N]`.

Runs the samples of PyTorch's own tests for the operations of `ops.txt` (or those given by --op), in float32, float16,
int64 and bool. Prints passed, failed and skipped samples per operation with reasons. A run over all operations on the
device `cpu` also updates the table of docs/operations.md. The exit code is 1 if 1 % or more fail.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.parity.ops.reasons import REASONS  # noqa: E402  # after the change of sys.path

NAMES = ROOT / "tests" / "parity" / "ops" / "ops.txt"
DOCUMENT = ROOT / "docs" / "operations.md"
MARKS = ("<!-- parity: begin -->", "<!-- parity: end -->")
SECONDS = 120
"""Time limit of one sample."""


@dataclass
class Outcome:
    """Sample counts of one operation, with the reasons for failures and skips."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    skips: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def names() -> list[str]:
    """Return the operations of ops.txt."""
    lines = NAMES.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


class _TooLong(Exception):
    pass


def _alarm(_number: int, _frame: Any) -> None:
    raise _TooLong(f"longer than {SECONDS} s")


def _samples(op: Any, dtype: Any) -> list[Any]:
    import torch

    wants = dtype.is_floating_point and op.supports_autograd
    torch.manual_seed(0)
    return list(op.sample_inputs("cpu", dtype, requires_grad=wants))


def run_operation(name: str, device: str, limit: int | None = None) -> Outcome:
    """Run the samples of one operation, at most `limit` per variant and type."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    import vkjit as vk
    from tests.parity.ops.opinfo_compare import run_sample

    torch.set_num_threads(1)
    opened = vk.device(device)
    outcome = Outcome(name)
    failures: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    begun = time.perf_counter()
    signal.signal(signal.SIGALRM, _alarm)
    for op in (o for o in op_db if o.name == name):
        for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
            if not op.supports_dtype(dtype, "cpu"):
                continue
            wants = dtype.is_floating_point and op.supports_autograd
            for sample in _samples(op, dtype)[:limit]:
                signal.alarm(SECONDS)
                try:
                    reason = run_sample(op, sample, opened, gradients=wants)
                except Exception as error:  # noqa: BLE001  any error is a failure of the sample
                    text = " ".join(str(error).split())
                    kind = "" if type(error).__name__ == "Mismatch" else f"{type(error).__name__}: "
                    variant = f"{op.variant_test_name} " if op.variant_test_name else ""
                    failures[f"{variant}{str(dtype)[6:]}: {kind}{text}"[:200]] += 1
                    if os.environ.get("OPINFO_TRACE"):
                        raise
                    continue
                finally:
                    signal.alarm(0)
                if reason is None:
                    outcome.passed += 1
                else:
                    skips[reason] += 1
    outcome.failed, outcome.skipped = sum(failures.values()), sum(skips.values())
    outcome.failures, outcome.skips = dict(failures.most_common()), dict(skips.most_common())
    outcome.seconds = round(time.perf_counter() - begun, 1)
    return outcome


def _task(item: tuple[str, str, int | None]) -> Outcome:
    return run_operation(*item)


def show(outcome: Outcome) -> None:
    """Print an operation's result and the reasons for its failures."""
    print(
        f"{outcome.name:44} passed {outcome.passed:5} failed {outcome.failed:4} skipped {outcome.skipped:4} "
        f"({outcome.seconds:.0f} s)",
        flush=True,
    )
    for reason, count in list(outcome.failures.items())[:8]:
        print(f"    {count:4} x {reason}", flush=True)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of docs/operations.md."""
    passed, failed, skipped = (sum(getattr(o, k) for o in outcomes) for k in ("passed", "failed", "skipped"))
    share = 100 * failed / max(passed + failed, 1)
    summary = f"{len(outcomes)} operations, {passed + failed} samples compared: {passed} passed, {failed} failed "
    summary += f"({share:.2f} %), {skipped} skipped."
    lines = [summary, "", "| operation | passed | failed | skipped | reasons |", "| --- | ---: | ---: | ---: | --- |"]
    for o in outcomes:
        why = [REASONS[o.name]] if o.failed and o.name in REASONS else []
        reasons = [*why, *(f"{n} x {_cell(r)}" for r, n in o.failures.items())] + [
            f"skipped: {n} x {_cell(r)}" for r, n in o.skips.items()
        ]
        lines.append(f"| `{o.name}` | {o.passed} | {o.failed} | {o.skipped} | {'; '.join(reasons)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def write_document(outcomes: Sequence[Outcome]) -> None:
    """Replace the table in docs/operations.md."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    DOCUMENT.write_text(f"{before}{MARKS[0]}\n{table(outcomes)}\n{MARKS[1]}{after}", encoding="utf-8")


def _kept(path: Path) -> dict[str, Outcome]:
    """Load the outcomes of an earlier run."""
    if not path.is_file():
        return {}
    return {row["name"]: Outcome(**row) for row in json.loads(path.read_text(encoding="utf-8"))}


def _outcomes(items: list[tuple[str, str, int | None]], jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes in order as they become available."""
    if jobs == 1:
        yield from map(_task, items)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=40) as pool:
        yield from pool.imap(_task, items)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--op", action="append", help="only this operation (several times for several)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=int, help="at most so many samples per variant and type")
    parser.add_argument("--json", type=Path, help="keep the outcomes there, after each operation")
    parser.add_argument("--resume", action="store_true", help="leave out operations that --json's file has already")
    options = parser.parse_args(arguments)
    known = _kept(options.json) if options.resume and options.json else {}
    chosen = [name for name in options.op or names() if name not in known]
    for outcome in _outcomes([(name, options.device, options.limit) for name in chosen], options.jobs):
        show(outcome)
        known[outcome.name] = outcome
        if options.json:
            options.json.write_text(json.dumps([asdict(o) for o in known.values()], indent=1), encoding="utf-8")
    outcomes = sorted(known.values(), key=lambda o: o.name)
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print(f"{len(outcomes)} operations: {passed} passed, {failed} failed, {sum(o.skipped for o in outcomes)} skipped")
    if not options.op and options.limit is None and options.device == "cpu":
        write_document(outcomes)
    return int(failed >= 0.01 * max(passed + failed, 1))


if __name__ == "__main__":
    sys.exit(main())
