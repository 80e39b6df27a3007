"""What every group of benchmarks uses: rows, targets, timing, and the judgement of a row.

Enters: functions that measure one figure each. Leaves: a `Result` per row, with status "ok", "short" or "absent". A row
is "ok" only when its figure was measured here and now and meets its target.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Absent", "Result", "Row", "Target", "median_seconds", "run_row"]

LOWER_IS_BETTER = frozenset({"s", "ms", "us", "ns", "B", "KiB", "MiB", "times"})
HIGHER_IS_BETTER = frozenset({"GB/s", "GFLOP/s", "TFLOP/s", "1/s"})


class Absent(Exception):  # noqa: N818  it says what is missing, not that something went wrong
    """Raised by a measurement that can't be made here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a row has to reach: a bound on its own figure, a bound on its ratio to the reference, or both.

    The bound on the figure is an upper one for times and sizes, a lower one for rates; `ratio` is a lower bound.
    """

    value: float | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        if self.value is None and self.ratio is None:
            raise ValueError("a target needs a value, a ratio or both")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. `ours` and `reference` measure one figure in `unit`; each call is a new measurement. `target` may be a
    function, where it depends on the device."""

    name: str
    unit: str
    ours: Callable[[], float]
    target: Target | Callable[[], Target]
    reference_name: str = ""
    reference: Callable[[], float] | None = None
    rounds: int = 3

    def bar(self) -> Target:
        """The target, on this device."""
        return self.target() if callable(self.target) else self.target

    def __post_init__(self) -> None:
        if self.unit not in LOWER_IS_BETTER | HIGHER_IS_BETTER:
            raise ValueError(f"unknown unit {self.unit!r}; known: {sorted(LOWER_IS_BETTER | HIGHER_IS_BETTER)}")


@dataclass(frozen=True, slots=True)
class Result:
    """A row with what was measured. `ratio` is above 1 where vkjit does better than the reference, in any unit."""

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


def median_seconds(function: Callable[[], object], *, seconds: float = 0.5, least: int = 5, most: int = 1000) -> float:
    """The median time of one call, after one call to warm up, over about `seconds` seconds of calls."""
    function()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or (time.perf_counter() < end and len(times) < most):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def run_row(group: str, row: Row) -> Result:
    """Measures a row: both sides in turn, so that a machine that slows down slows both, and the median of each."""
    target = row.bar()
    blank = Result(group, row.name, row.unit, target, row.reference_name, "absent")
    ours: list[float] = []
    theirs: list[float] = []
    reference, reason = row.reference, ""
    for _ in range(row.rounds):
        try:
            ours.append(row.ours())
        except Absent as error:
            return replace(blank, reason=str(error))
        if reference is not None:
            try:
                theirs.append(reference())
            except Absent as error:
                reference, reason = None, f"{row.reference_name}: {error}"
    mine = statistics.median(ours)
    if not theirs:
        return replace(blank, ours=mine, reason=reason, status=_judge(target, row.unit, mine, None))
    other = statistics.median(theirs)
    ratio = other / mine if row.unit in LOWER_IS_BETTER else mine / other
    return replace(blank, ours=mine, reference=other, ratio=ratio, status=_judge(target, row.unit, mine, ratio))


def _judge(target: Target, unit: str, value: float, ratio: float | None) -> str:
    if target.ratio is not None and ratio is None:
        return "absent"
    good = target.ratio is None or ratio is None or ratio >= target.ratio
    if target.value is not None:
        good &= value <= target.value if unit in LOWER_IS_BETTER else value >= target.value
    return "ok" if good else "short"
