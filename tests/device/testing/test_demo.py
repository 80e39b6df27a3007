"""The demo's property test finds its bug in time, with the smallest image and at the right line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from vkjit.cli.demo import property as part
from vkjit.cli.demo.report import Report


def test_part_of_the_demo(device: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    part.run(report, argparse.Namespace(out=tmp_path))
    shown = capsys.readouterr().out
    assert not report.failed, shown
    assert "what is left after the last full 64" in shown
    assert "vk.testing.run(" in (tmp_path / "failure.py").read_text(encoding="utf-8")
