"""Tests that the fuzzer finds planted bugs and that it reports a process that dies without ending the run.

All are run by `python -m vkjit.testing.fuzz --planted tests/faults/planted_bugs.py`; a few of them here, without
devices.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.planted_bugs import BUGS
from vkjit.errors import ArgumentError
from vkjit.passes.workarounds.hide_starts import HideStarts
from vkjit.passes.workarounds.keep_results import KeepLoopResults
from vkjit.passes.workarounds.limit_nesting import LimitNesting
from vkjit.testing.fuzz import Checker, generate, parse_program
from vkjit.testing.fuzz.command import coverage_text, main
from vkjit.testing.fuzz.planted import find_bug
from vkjit.testing.fuzz.sources import HEAD, SOURCES, check_source, generate_source

LIST = str(Path(__file__).with_name("planted_bugs.py"))


def test_the_list() -> None:
    assert len(BUGS) == 36
    assert len({bug.name for bug in BUGS}) == 36
    assert all(bug.text for bug in BUGS)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("remainder_of_c", 3),
        ("lossy_cast_chain", 3),
        ("cse_across_stores", 3),
        ("sroa_mixes_rows", 8),
        ("products_never_wrap", 3),
        ("last_invocation_left_out", 1),
        ("tuples_compared_by_identity", 3),
    ],
)
def test_planted_bugs_are_found(name: str, seed: int) -> None:
    """With seeds under which a few programs are enough; other bugs, and other seeds, may take hundreds."""
    count, found = find_bug(LIST, name, seed=seed, programs=400, devices=())
    assert found is not None, f"{name} not found in {count} programs"
    assert found["program"].startswith(HEAD) or parse_program(found["program"])


@pytest.mark.parametrize("kind", ["deep_returns", "IR"])
def test_deep_nesting_is_found(device: Any, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Without the workaround, programs show what the driver does with deep branches."""
    if "shallow_nesting" not in device.caps.quirks:
        pytest.skip("the driver supports deep branches")
    monkeypatch.setattr(LimitNesting, "run", lambda _, module: module)
    if kind == "IR":
        finding = Checker([device]).check(generate(1_000_191))
    else:
        texts = (generate_source(seed) for seed in range(SOURCES, SOURCES + 100))
        deep = [text for text in texts if text.splitlines()[0].endswith(kind)]
        finding = next(filter(None, (check_source(text, [device], Counter()) for text in deep)), None)
    assert finding is not None and device.name in finding.stage


@pytest.mark.parametrize("workaround", [HideStarts, KeepLoopResults])
def test_faults_of_loops_are_found(device: Any, monkeypatch: pytest.MonkeyPatch, workaround: Any) -> None:
    """Without a workaround, programs in Python show what the driver does with loops."""
    if "recomputed_results" not in device.caps.quirks:
        pytest.skip("the driver runs these loops correctly")
    monkeypatch.setattr(workaround, "run", lambda _, module: module)
    texts = (generate_source(seed) for seed in range(SOURCES, SOURCES + 200))
    programs = [text for text in texts if text.splitlines()[0].endswith("loops")]
    finding = next(filter(None, (check_source(text, [device], Counter()) for text in programs)), None)
    assert finding is not None and device.name in finding.stage


def test_an_unknown_bug_is_told_and_not_found() -> None:
    with pytest.raises(ArgumentError, match="plants no 'nothing': choose one of float_plus_zero"):
        find_bug(LIST, "nothing", seed=1, programs=1, devices=())


def test_a_process_that_dies_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "dying.py"
    path.write_text(
        textwrap.dedent(
            """
            import os
            from dataclasses import dataclass

            from vkjit.passes.transforms import licm

            @dataclass
            class Bug:
                name: str

                def plant(self):
                    licm.LICM.run = lambda self, module: os.abort()

            BUGS = [Bug("dying")]
            """
        ),
        encoding="utf-8",
    )
    count, found = find_bug(str(path), "dying", seed=1, programs=40, devices=())
    assert found is not None
    assert found["stage"] == "crash"
    assert "SIGABRT" in found["text"]
    assert count < 40


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status = main(["--programs", "6", "--devices", "none", "--jobs", "1", "--keep", str(tmp_path)])
    text = capfd.readouterr().out
    assert status == 0, text
    assert "6 programs" in text
    assert "coverage" in text


def test_a_kept_program_runs_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "7"]) == 0
    path = tmp_path / "program.ir"
    path.write_text(capfd.readouterr().out, encoding="utf-8")
    assert main(["--replay", str(path), "--devices", "none", "--keep", str(tmp_path)]) == 0
    capfd.readouterr()


def test_what_is_missing_is_named() -> None:
    text = coverage_text(Counter(["add", "sub"]))
    assert "without mul" in text
    assert "without add" not in text
