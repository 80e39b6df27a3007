"""Tests of the benchmark command: rows are judged as their docstrings say, and every group can be listed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.framework import Absent, Row, Target, median_seconds, run_row
from tests.repo import checkout


def always(value: float) -> Callable[[], float]:
    return lambda: value


def missing() -> float:
    raise Absent("the package isn't installed")


@pytest.mark.parametrize(
    ("unit", "ours", "reference", "target", "status", "ratio"),
    [
        ("ms", 2.0, 4.0, Target(ratio=1.5), "ok", 2.0),
        ("ms", 4.0, 2.0, Target(ratio=1.5), "short", 0.5),
        ("GB/s", 4.0, 2.0, Target(ratio=1.5), "ok", 2.0),
        ("GB/s", 2.0, 4.0, Target(ratio=1.5), "short", 0.5),
        ("ms", 2.0, 4.0, Target(value=1.0, ratio=1.5), "short", 2.0),
        ("ms", 2.0, 4.0, Target(value=2.0), "ok", 2.0),
        ("GB/s", 2.0, 4.0, Target(value=2.5), "short", 0.5),
    ],
)
def test_a_row_is_judged_by_its_target(
    unit: str, ours: float, reference: float, target: Target, status: str, ratio: float
) -> None:
    result = run_row("group", Row("row", unit, always(ours), target, "other", always(reference)))
    assert (result.status, result.ratio) == (status, ratio)


def test_what_cannot_be_measured_is_absent_with_its_reason() -> None:
    result = run_row("group", Row("row", "ms", missing, Target(value=1.0)))
    assert (result.status, result.reason) == ("absent", "the package isn't installed")


def test_an_absent_reference_leaves_a_bound_on_the_figure_but_no_bound_on_the_ratio() -> None:
    by_value = run_row("group", Row("row", "ms", always(0.5), Target(value=1.0), "other", missing))
    by_ratio = run_row("group", Row("row", "ms", always(0.5), Target(ratio=1.0), "other", missing))
    assert (by_value.status, by_ratio.status) == ("ok", "absent")
    assert by_value.reason == by_ratio.reason == "other: the package isn't installed"


def test_both_sides_are_measured_in_turn_and_their_medians_taken() -> None:
    order: list[str] = []

    def side(name: str, values: Iterator[float]) -> Callable[[], float]:
        def measure() -> float:
            order.append(name)
            return next(values)

        return measure

    ours, theirs = side("ours", iter([1.0, 9.0, 2.0])), side("theirs", iter([4.0, 5.0, 90.0]))
    result = run_row("group", Row("row", "ms", ours, Target(ratio=1.0), "other", theirs))
    assert order == ["ours", "theirs"] * 3
    assert (result.ours, result.reference, result.ratio) == (2.0, 5.0, 2.5)


def test_a_note_stands_beside_the_status() -> None:
    result = run_row("group", Row("row", "ms", always(0.5), Target(value=1.0), note=lambda: "at launch 7"))
    assert (result.status, result.reason) == ("ok", "at launch 7")


def test_a_target_bounds_something() -> None:
    with pytest.raises(ValueError, match="a value, a ratio or both"):
        Target()
    with pytest.raises(ValueError, match="unknown unit"):
        Row("row", "parsecs", always(1.0), Target(value=1.0))


def test_timing_warms_up_and_takes_a_median() -> None:
    calls: list[int] = []
    assert median_seconds(lambda: calls.append(1), seconds=0.0, min_calls=5) >= 0.0
    assert len(calls) == 6


def _benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout.ROOT / "benchmarks" / "run.py"), *arguments]
    return subprocess.run(command, cwd=checkout.ROOT, capture_output=True, text=True, check=False)


def test_every_group_lists_rows_with_targets() -> None:
    done = _benchmarks("--list")
    assert done.returncode == 0, done.stderr
    listed = done.stdout.splitlines()
    groups = {path.stem for path in (checkout.ROOT / "benchmarks" / "groups").glob("*.py")}
    assert {line.split(":")[0] for line in listed} == groups
    assert all(line.endswith("]") and "=" in line.rsplit("[", 1)[1] for line in listed)


def test_an_unknown_group_is_named_with_those_that_exist() -> None:
    done = _benchmarks("nothing")
    assert done.returncode == 2
    assert "no group nothing; there are: " in done.stderr


@pytest.mark.slow
def test_a_measured_row_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    done = _benchmarks("compile", "--only", "import", "--json", str(file))
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    (result,) = report["results"]
    assert result["ours"] > 0 and result["status"] in {"ok", "short"}
    assert report["machine"]["versions"]["numpy"]
    assert ", 0 errors" in done.stdout.splitlines()[-1]
