"""Measurement of tuning candidates within a time budget.

`tune` takes a `Problem` (candidates, and how to launch one on scratch memory) and returns a `Record`, which is written
to disk after each candidate. The first candidate is the default and is measured first. The others are checked against
its results before they are timed, or against those of the first one that works if the default fails. A candidate with
other results, or one that can't be compiled or launched, is never selected.
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
"""Approximate duration of one timing, which consists of several launches."""
TIMINGS = 3
"""Timings per candidate; the minimum counts, because other load only makes a timing longer."""
MAX_LAUNCHES = 1000
"""Maximum number of launches per timing."""
MAX_TIME_RATIO = 3.0
"""A candidate isn't timed again if its first launch takes this factor longer than the best one (and BATCH_SECONDS)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One variant to measure.

    `choice` is passed to `Problem.launch`. `text` identifies the choice in records, so it must be the same in every
    process. `cost` is the modeled cost in arbitrary units; candidates of infinite cost aren't measured.
    """

    choice: Any
    text: str
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class Problem:
    """A tuning problem: candidates for one computation, and functions to run them.

    `name` is for people; `key` identifies the problem in records. `launch(choice)` queues one launch that writes
    scratch memory, `results()` reads what it wrote, and `reset()` restores the scratch memory. `tolerance` bounds the
    difference of floats from the default's results, relative to the largest magnitude, to allow for reordered sums.
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
    """Measure candidates, in order of modeled cost, until all are done or `budget` seconds have passed and one works.

    Raises VkjitError if all of them fail. The record is written after each candidate, and candidates that are in a
    stored record already are skipped, so an interrupted run continues where it ended.
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
        if record.best is not None and time.perf_counter() > deadline:
            return record
        if candidate.cost == float("inf"):
            row = Row(candidate.text, None, "dropped", "the device can't run it, or its modeled cost is too high")
        else:
            if expected is None and record.best is not None:  # measured in an earlier run
                working = next(row.choice for row in record.rows if row.verdict == "ok")
                expected = _run_once(problem, next(c for c in order if c.text == working))
            row, results = _measured(problem, candidate, expected, record)
            expected = results if expected is None else expected
        record = record.with_row(row)
        storage.store(record)
    if record.best is None:
        raise VkjitError(f"all candidates of {problem.name} fail; the default: {record.rows[0].why}")
    record = dataclasses.replace(_with_confirmed_times(problem, record), complete=True)
    storage.store(record)
    return record


def _with_confirmed_times(problem: Problem, record: Record) -> Record:
    """Time the default and the fastest candidate again, alternately, and return the record with the shorter times.

    They were first timed at different moments, and other load may have slowed one of them. A record that is already
    complete is returned unchanged, and so is one whose default failed.
    """
    best, seconds = record.best, record.rows[0].seconds
    if record.complete or best is None or best == record.rows[0] or best.seconds is None or seconds is None:
        return record
    pair = [c for c in problem.candidates if c.text in (record.rows[0].choice, best.choice)]
    count = max(1, min(MAX_LAUNCHES, int(BATCH_SECONDS / best.seconds)))
    times = {candidate.text: float("inf") for candidate in pair}
    for _ in range(TIMINGS):
        for candidate in pair:
            times[candidate.text] = min(times[candidate.text], _seconds(problem, candidate, count))
    # the shorter of both timings for the rows of the pair; the others, and those without a timing, stay as they are
    rows = [dataclasses.replace(row, seconds=min(row.seconds, times.get(row.choice, row.seconds))) if row.seconds else row
            for row in record.rows]  # fmt: skip
    return dataclasses.replace(record, rows=tuple(rows))


def _stored_record(problem: Problem, device: str, driver: str) -> Record:
    """Return the stored record if it has the same default, only current candidates and one that works; else an empty one."""
    texts = {candidate.text for candidate in problem.candidates}
    stored = storage.load(problem.key, device, driver)
    usable = stored is not None and stored.best and stored.rows[0].choice == problem.candidates[0].text
    if stored is not None and usable and {row.choice for row in stored.rows} <= texts:
        return stored
    return Record(problem.name, problem.key, device, driver)


def _run_once(problem: Problem, candidate: Candidate) -> list[Any]:
    """Restore the scratch memory, launch a candidate once, and return its results."""
    problem.reset()
    problem.launch(candidate.choice)
    problem.device.synchronize()
    return problem.results()


def _measured(
    problem: Problem, candidate: Candidate, expected: list[Any] | None, record: Record
) -> tuple[Row, list[Any] | None]:
    """Run, check and time a candidate. Return its row and its results (None if they are wrong).

    `expected` are the results of the first candidate that works; None until one does. `record` holds the candidates
    measured so far.
    """
    best = record.best
    try:
        results = _run_once(problem, candidate)
        if expected is not None and not _agree(results, expected, problem.tolerance):
            return Row(candidate.text, None, "wrong", "other results than the first working candidate's"), None
        seconds = _timed(problem, candidate, best.seconds if best is not None else None)
    except VkjitError as error:
        return Row(candidate.text, None, "failed", str(error).split("\n")[0][:200]), None
    return Row(candidate.text, seconds, "ok"), results


def _timed(problem: Problem, candidate: Candidate, best: float | None) -> float:
    """Return the seconds per launch: the minimum of `TIMINGS` timings. `best` is the best candidate's time, if any."""
    once = _seconds(problem, candidate, 1)
    if best is not None and once > MAX_TIME_RATIO * max(best, BATCH_SECONDS):
        return once
    count = max(1, min(MAX_LAUNCHES, int(BATCH_SECONDS / once)))
    return min(_seconds(problem, candidate, count) for _ in range(TIMINGS))


def _seconds(problem: Problem, candidate: Candidate, count: int) -> float:
    """Return the average seconds per launch over `count` launches, including one wait."""
    start = time.perf_counter()
    for _ in range(count):
        problem.launch(candidate.choice)
    problem.device.synchronize()
    return max((time.perf_counter() - start) / count, 1e-9)


def _agree(found: list[Any], expected: list[Any], tolerance: float) -> bool:
    """Return True if all results agree: bitwise, or for floats within `tolerance` times the largest magnitude."""
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
