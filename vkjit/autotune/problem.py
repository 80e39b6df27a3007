"""Measuring candidates: each is checked against the default's results before it is timed, within a budget of seconds.

Enters: a `Problem`: candidates, and how to launch one on scratch memory. Leaves: a `Record` of what was found, written
after each candidate. Holds: a candidate that gives another result than the default, fails to compile, or needs what the
device lacks is never chosen; the first candidate is the default and is always measured first.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import VkjitError
from ..runtime.interface import Device
from . import records
from .records import Record, Row

__all__ = ["Candidate", "Problem", "key_of_device", "tune"]

BATCH_SECONDS = 0.02
"""How long the launches of one timing take together, about."""
ROUNDS = 3
"""Timings of a candidate, of which the shortest counts."""
HOPELESS = 3.0
"""A long launch that takes so many times as long as the best candidate's isn't timed again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to do it: the choice, its words (equal for equal choices in every process), and what the cost model expects
    it to cost, in units of its own; infinite for what the device can't run.
    """

    choice: Any
    words: str
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class Problem:
    """`launch(choice)` queues one launch that writes scratch memory, `results()` reads what it wrote. `tolerance` bounds
    the relative difference of floats from the default's, for sums in another order. `reset()` puts scratch memory back to
    what a launch begins with.
    """

    name: str
    key: str
    device: Device
    candidates: Sequence[Candidate]
    launch: Callable[[Any], None]
    results: Callable[[], list[Any]]
    tolerance: float = 0.0
    reset: Callable[[], None] = lambda: None


def key_of_device(device: Device) -> tuple[str, str]:
    """What results hold for: the device's name, and its driver's name and version."""
    return device.name, device.caps.driver


def tune(problem: Problem, budget: float) -> Record:
    """Tries candidates, the promising ones first, until all are known or `budget` seconds are over; writes the record
    after each. What an earlier run has found isn't measured again.
    """
    device, driver = key_of_device(problem.device)
    record = _continued(problem, device, driver)
    deadline = time.perf_counter() + budget
    default, *others = problem.candidates
    expected: list[Any] | None = None
    order = [default, *sorted(others, key=lambda candidate: candidate.cost)]
    for candidate in order:
        if any(row.choice == candidate.words for row in record.rows):
            continue
        if record.rows and time.perf_counter() > deadline:
            return record
        if candidate.cost == float("inf"):
            row = Row(
                candidate.words, None, "dropped", "the device can't run it, or the cost model expects nothing of it"
            )
        else:
            if expected is None and candidate is not default:
                expected = _outcome(problem, default)
            row, found = _measured(problem, candidate, expected, record)
            if candidate is default:
                expected = found
        record = record.with_row(row)
        records.store(record)
    record = dataclasses.replace(_confirmed(problem, record), complete=True)
    records.store(record)
    return record


def _confirmed(problem: Problem, record: Record) -> Record:
    """The record with the default and the fastest candidate timed again, in turns: what else ran meanwhile may have slowed
    one of them. Nothing is timed where the record was complete.
    """
    best = record.best
    if record.complete or best is None or best == record.rows[0] or best.seconds is None:
        return record
    pair = [c for c in problem.candidates if c.words in (record.rows[0].choice, best.choice)]
    count = max(1, min(1000, int(BATCH_SECONDS / best.seconds)))
    found = {candidate.words: float("inf") for candidate in pair}
    for _ in range(ROUNDS):
        for candidate in pair:
            found[candidate.words] = min(found[candidate.words], _seconds(problem, candidate, count))
    rows = [dataclasses.replace(row, seconds=min(row.seconds, found.get(row.choice, row.seconds))) if row.seconds else row
            for row in record.rows]  # fmt: skip
    return dataclasses.replace(record, rows=tuple(rows))


def _continued(problem: Problem, device: str, driver: str) -> Record:
    """What is known already, if it begins with the same default and names nothing else than the candidates."""
    words = {candidate.words for candidate in problem.candidates}
    known = records.load(problem.key, device, driver)
    usable = known is not None and known.rows and known.rows[0].choice == problem.candidates[0].words
    if known is not None and usable and {row.choice for row in known.rows} <= words:
        return known
    return Record(problem.name, problem.key, device, driver)


def _outcome(problem: Problem, candidate: Candidate) -> list[Any]:
    problem.reset()
    problem.launch(candidate.choice)
    problem.device.synchronize()
    return problem.results()


def _measured(
    problem: Problem, candidate: Candidate, expected: list[Any] | None, record: Record
) -> tuple[Row, list[Any] | None]:
    """The candidate's row, and its results."""
    try:
        found = _outcome(problem, candidate)
    except VkjitError as error:
        return Row(candidate.words, None, "failed", str(error).split("\n")[0][:200]), None
    if expected is not None and not _agree(found, expected, problem.tolerance):
        return Row(candidate.words, None, "wrong", "other results than the default's"), None
    best = record.best
    seconds = _timed(problem, candidate, best.seconds if best is not None else None)
    return Row(candidate.words, seconds, "ok"), found


def _timed(problem: Problem, candidate: Candidate, best: float | None) -> float:
    """Seconds of a launch: the shortest of a few timings of several launches."""
    once = _seconds(problem, candidate, 1)
    if best is not None and once > HOPELESS * max(best, BATCH_SECONDS):
        return once
    count = max(1, min(1000, int(BATCH_SECONDS / once)))
    return min(_seconds(problem, candidate, count) for _ in range(ROUNDS))


def _seconds(problem: Problem, candidate: Candidate, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        problem.launch(candidate.choice)
    problem.device.synchronize()
    return max((time.perf_counter() - start) / count, 1e-9)


def _agree(found: list[Any], expected: list[Any], tolerance: float) -> bool:
    """Whether results are the same: bit for bit, or floats within the tolerance of the largest of them."""
    if len(found) != len(expected):
        return False
    for a, b in zip(found, expected, strict=True):
        x, y = np.asarray(a), np.asarray(b)
        if x.shape != y.shape or x.dtype != y.dtype:
            return False
        if x.dtype.kind != "f" or not tolerance:
            if x.tobytes() != y.tobytes():
                return False
            continue
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        finite = np.isfinite(wide_y)
        if not np.array_equal(wide_x[~finite], wide_y[~finite], equal_nan=True):
            return False
        scale = float(np.abs(wide_y[finite]).max(initial=0.0))
        if not (np.abs(wide_x[finite] - wide_y[finite]) <= tolerance * scale).all():
            return False
    return True
