"""The demo's property test finds its bug, however long that takes, with the smallest image and at the right line."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vkjit.cli.demo import property as part
from vkjit.cli.demo.report import Report


def test_part_of_the_demo(
    device: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # each reading of the clock is an hour later: a busy machine, on which no check may fail
    monkeypatch.setattr(part, "time", SimpleNamespace(perf_counter=itertools.count(0.0, 3600.0).__next__))
    report = Report()
    part.run(report, argparse.Namespace(out=tmp_path))
    shown = capsys.readouterr().out
    assert not report.failed, shown
    assert "in 3600.0 s" in shown
    assert "what is left after the last full 64" in shown
    assert "vk.testing.run(" in (tmp_path / "failure.py").read_text(encoding="utf-8")
