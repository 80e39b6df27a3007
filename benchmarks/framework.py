"""Shared benchmark infrastructure: rows, targets, timing and evaluation.

A benchmark group is a list of `Row`s with functions that measure one figure each. `run_row` turns a row into a `Result`
with status "ok", "short" (target missed) or "absent" (can't be measured on this machine). A row is "ok" only if its
figure was measured in this run and meets its target.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Absent", "Result", "Row", "Target", "median_seconds", "run_row"]

LOWER_IS_BETTER = frozenset({"s", "ms", "us", "ns", "B", "KiB", "MiB", "times"})
HIGHER_IS_BETTER = frozenset({"GB/s", "GFLOP/s", "TFLOP/s", "1/s"})


class Absent(Exception):  # noqa: N818  signals a missing prerequisite, not an error
    """Raised by a measurement that can't run on this machine; the message names what is missing."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a row: a bound on its figure, a bound on its ratio to the reference, or both.

    `value` is an upper bound for times and sizes and a lower bound for rates; `ratio` is a lower bound.
    """

    value: float | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        if self.value is None and self.ratio is None:
            raise ValueError("a target needs a value, a ratio or both")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a benchmark table.

    `ours` and `reference` measure the same figure in `unit`; each call is a new measurement. `target` may be a function
    if it depends on the device. `note` says more about the last measurement, for people.
    """

    name: str
    unit: str
    ours: Callable[[], float]
    target: Target | Callable[[], Target]
    reference_name: str = ""
    reference: Callable[[], float] | None = None
    rounds: int = 3
    note: Callable[[], str] | None = None

    def bar(self) -> Target:
        """Return the target for the current device."""
        return self.target() if callable(self.target) else self.target

    def __post_init__(self) -> None:
        if self.unit not in LOWER_IS_BETTER | HIGHER_IS_BETTER:
            raise ValueError(f"unknown unit {self.unit!r}; known: {sorted(LOWER_IS_BETTER | HIGHER_IS_BETTER)}")


@dataclass(frozen=True, slots=True)
class Result:
    """The measurements of a row. `ratio` is above 1 if vkjit is better than the reference, in any unit."""

    group: str
    name: str
    unit: str
    target: Target
    reference_name: str
    status: str
    ours: float | None = None
    reference: float | None = None
    ratio: float | None = None
    reason: str = ""


def median_seconds(
    function: Callable[[], object], *, seconds: float = 0.5, min_calls: int = 5, max_calls: int = 1000
) -> float:
    """Return the median time of a call, from about `seconds` seconds of calls after one warm-up call."""
    function()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < min_calls or (time.perf_counter() < end and len(times) < max_calls):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def run_row(group: str, row: Row) -> Result:
    """Measure a row and return its result.

    vkjit and the reference alternate, so that changes in machine speed affect both; the medians are compared.
    """
    target = row.bar()
    absent_result = Result(group, row.name, row.unit, target, row.reference_name, "absent")
    ours: list[float] = []
    references: list[float] = []
    reference, reason = row.reference, ""
    for _ in range(row.rounds):
        try:
            ours.append(row.ours())
        except Absent as error:
            return replace(absent_result, reason=str(error))
        if reference is not None:
            try:
                references.append(reference())
            except Absent as error:
                reference, reason = None, f"{row.reference_name}: {error}"
    our_median = statistics.median(ours)
    reason = "; ".join(filter(None, (reason, row.note() if row.note is not None else "")))
    if not references:
        return replace(absent_result, ours=our_median, reason=reason, status=_judge(target, row.unit, our_median, None))
    reference_median = statistics.median(references)
    ratio = reference_median / our_median if row.unit in LOWER_IS_BETTER else our_median / reference_median
    return replace(
        absent_result,
        ours=our_median,
        reference=reference_median,
        ratio=ratio,
        status=_judge(target, row.unit, our_median, ratio),
        reason=reason,
    )


def _judge(target: Target, unit: str, value: float, ratio: float | None) -> str:
    if target.ratio is not None and ratio is None:
        return "absent"
    good = target.ratio is None or ratio is None or ratio >= target.ratio
    if target.value is not None:
        good &= value <= target.value if unit in LOWER_IS_BETTER else value >= target.value
    return "ok" if good else "short"
