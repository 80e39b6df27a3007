"""The rule of `--fast`: which cases of a test are kept, and that the cut leaves no file and no executor out."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests import selection
from tests.selection import cut, executor_of, kept, select


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (7, 1), (8, 2), (63, 2), (64, 3), (511, 3), (512, 4)])
def test_more_cases_are_kept_of_more(count: int, expected: int) -> None:
    assert kept(count) == expected


@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("count", [1, 2, 5, 12, 100])
def test_as_many_cases_as_said_are_kept_on_any_turn(count: int, turn: int) -> None:
    for executors in ([None] * count, ["a", "b", "c"] * count, [e for e in "abc" for _ in range(count)]):
        found = select(executors, turn)
        assert len(found) == kept(len(executors)) and found == sorted(found) and found[-1] < len(executors)


def test_cases_are_spread() -> None:
    assert select([None] * 12, 0) == select([None] * 12, 1) == [0, 6]
    assert select([None] * 90, 0) == [0, 30, 60]


def test_executors_take_turns() -> None:
    alone = ["a", "b", "c"]
    assert [select(alone, turn) for turn in range(4)] == [[0], [1], [2], [0]]
    in_a_row = [e for e in "abc" for _ in range(30)]
    for turn in range(3):
        assert {in_a_row[index] for index in select(in_a_row, turn)} == {"a", "b", "c"}


def item(nodeid: str, *, slow: bool = False, **params: Any) -> Any:
    return SimpleNamespace(
        nodeid=nodeid,
        path=nodeid.partition("::")[0],
        callspec=SimpleNamespace(params=params),
        get_closest_marker=lambda name: object() if slow and name == "slow" else None,
    )


def test_slow_tests_are_left_out_and_turns_are_counted_in_each_file() -> None:
    cases = [
        *(item(f"a.py::first[{e}]", vkjit_device=e) for e in "xyz"),
        item("a.py::long", slow=True),
        *(item(f"a.py::second[{e}]", vkjit_device=e) for e in "xyz"),
        *(item(f"b.py::first[{e}]", vkjit_device=e) for e in "xyz"),
    ]
    assert [case.nodeid for case in cut(cases)] == [
        "a.py::first[x]",
        "a.py::second[y]",
        "b.py::first[x]",
    ]


def test_no_file_no_test_and_no_executor_of_this_run_is_left_out(request: pytest.FixtureRequest) -> None:
    items = [item for item in request.session.items if item.get_closest_marker("slow") is None]
    chosen = cut(request.session.items)
    assert {item.path for item in chosen} == {item.path for item in items}
    assert {item.nodeid.partition("[")[0] for item in chosen} == {item.nodeid.partition("[")[0] for item in items}
    if len(items) > 1000:  # not of a few tests
        assert {executor_of(item) for item in chosen} == {executor_of(item) for item in items}
    assert chosen == cut(request.session.items)


def test_properties_draw_fewer_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_fast", False)
    assert selection.examples(100) == 100
    selection.set_fast(True)
    assert [selection.examples(count) for count in (3, 10, 100)] == [3, 5, 25]


def test_the_option_deselects_in_a_worker_and_says_how_much(request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "1", "--fast", "tests/unit/test_selection.py", "-k", "on_any_turn"]
    done = subprocess.run(command, cwd=request.config.rootpath, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fast: a few cases of every test" in done.stdout
    assert "fast: 2 of 20 tests were selected" in done.stdout and "2 passed" in done.stdout
