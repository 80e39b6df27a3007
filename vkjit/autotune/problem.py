"""Measurement of candidates within a time budget; each is checked against the default's results before it is timed.

`tune` takes a `Problem` (candidates, and how to launch one on scratch memory) and returns a `Record`, which is written
after each candidate. The first candidate is the default and is always measured first. A candidate whose results differ
from the default's, that fails to compile, or that the device doesn't support is never selected.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import VkjitError
from ..runtime.device import Device
from . import storage
from .storage import Record, Row

__all__ = ["Candidate", "Problem", "key_of_device", "tune"]

BATCH_SECONDS = 0.02
"""Approximate total duration of the launches of one timing."""
TIMINGS = 3
"""Timings per candidate; the minimum counts."""
MAX_TIME_RATIO = 3.0
"""A long first launch that exceeds the best candidate's time by this factor isn't timed again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate: the choice, its text (equal for equal choices in every process), and its modeled cost in arbitrary
    units; infinite if the device doesn't support it.
    """

    choice: Any
    text: str
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class Problem:
    """A tuning problem.

    `launch(choice)` queues one launch that writes scratch memory, `results()` reads the results, `reset()` restores the
    scratch memory. `tolerance` bounds the relative difference of floats from the default's results, to allow for
    reordered sums.
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
    """Return the key of a device in records: its name, and its driver's name and version."""
    return device.name, device.caps.driver


def tune(problem: Problem, budget: float) -> Record:
    """Measure candidates in order of modeled cost until all are done or `budget` seconds have passed. The record is
    written after each; candidates measured in an earlier run are skipped.
    """
    device, driver = key_of_device(problem.device)
    record = _stored_record(problem, device, driver)
    deadline = time.perf_counter() + budget
    default, *others = problem.candidates
    expected: list[Any] | None = None
    order = [default, *sorted(others, key=lambda candidate: candidate.cost)]
    for candidate in order:
        if any(row.choice == candidate.text for row in record.rows):
            continue
        if record.rows and time.perf_counter() > deadline:
            return record
        if candidate.cost == float("inf"):
            row = Row(
                candidate.text, None, "dropped", "the device can't run it, or the cost model expects nothing of it"
            )
        else:
            if expected is None and candidate is not default:
                expected = _run_once(problem, default)
            row, results = _measured(problem, candidate, expected, record)
            if candidate is default:
                expected = results
        record = record.with_row(row)
        storage.store(record)
    record = dataclasses.replace(_with_confirmed_times(problem, record), complete=True)
    storage.store(record)
    return record


def _with_confirmed_times(problem: Problem, record: Record) -> Record:
    """Return the record with the default and the fastest candidate timed again, alternately, because other load may
    have slowed one of them. A complete record is returned unchanged.
    """
    best = record.best
    if record.complete or best is None or best == record.rows[0] or best.seconds is None:
        return record
    pair = [c for c in problem.candidates if c.text in (record.rows[0].choice, best.choice)]
    count = max(1, min(1000, int(BATCH_SECONDS / best.seconds)))
    times = {candidate.text: float("inf") for candidate in pair}
    for _ in range(TIMINGS):
        for candidate in pair:
            times[candidate.text] = min(times[candidate.text], _seconds(problem, candidate, count))
    rows = [dataclasses.replace(row, seconds=min(row.seconds, times.get(row.choice, row.seconds))) if row.seconds else row
            for row in record.rows]  # fmt: skip
    return dataclasses.replace(record, rows=tuple(rows))


def _stored_record(problem: Problem, device: str, driver: str) -> Record:
    """Return the stored record if it has the same default and only current candidates, else an empty one."""
    texts = {candidate.text for candidate in problem.candidates}
    stored = storage.load(problem.key, device, driver)
    usable = stored is not None and stored.rows and stored.rows[0].choice == problem.candidates[0].text
    if stored is not None and usable and {row.choice for row in stored.rows} <= texts:
        return stored
    return Record(problem.name, problem.key, device, driver)


def _run_once(problem: Problem, candidate: Candidate) -> list[Any]:
    problem.reset()
    problem.launch(candidate.choice)
    problem.device.synchronize()
    return problem.results()


def _measured(
    problem: Problem, candidate: Candidate, expected: list[Any] | None, record: Record
) -> tuple[Row, list[Any] | None]:
    """Return the candidate's row and its results."""
    try:
        results = _run_once(problem, candidate)
    except VkjitError as error:
        return Row(candidate.text, None, "failed", str(error).split("\n")[0][:200]), None
    if expected is not None and not _agree(results, expected, problem.tolerance):
        return Row(candidate.text, None, "wrong", "other results than the default's"), None
    best = record.best
    seconds = _timed(problem, candidate, best.seconds if best is not None else None)
    return Row(candidate.text, seconds, "ok"), results


def _timed(problem: Problem, candidate: Candidate, best: float | None) -> float:
    """Return the seconds per launch: the minimum of a few timings of several launches."""
    once = _seconds(problem, candidate, 1)
    if best is not None and once > MAX_TIME_RATIO * max(best, BATCH_SECONDS):
        return once
    count = max(1, min(1000, int(BATCH_SECONDS / once)))
    return min(_seconds(problem, candidate, count) for _ in range(TIMINGS))


def _seconds(problem: Problem, candidate: Candidate, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        problem.launch(candidate.choice)
    problem.device.synchronize()
    return max((time.perf_counter() - start) / count, 1e-9)


def _agree(found: list[Any], expected: list[Any], tolerance: float) -> bool:
    """True if the results are equal: bitwise, or for floats within the tolerance relative to the largest magnitude."""
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
