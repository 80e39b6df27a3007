"""The training part of the demo, shortened, on every executor; and its text plot of a curve."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vkjit.cli.demo import training
from vkjit.cli.demo.report import Report

SHORT = training.Budget(channels=2, batch=64, epochs=1, min_accuracy=0.2)


def test_the_training_part_reports_and_draws(
    device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn isn't installed: there are no digits")
    monkeypatch.setattr(training, "FULL", SHORT)
    monkeypatch.setattr(training, "SMALL", SHORT)
    report = Report()
    training.run(report, argparse.Namespace(out=tmp_path))
    text = capsys.readouterr().out
    assert not report.failed
    assert "22 steps in" in text
    assert "ok     test accuracy: " in text
    assert (tmp_path / "loss.png").exists() == ("wrote loss.png" in text)


def test_a_check_below_the_bar_fails(
    device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn isn't installed: there are no digits")
    too_much = training.Budget(channels=1, batch=128, epochs=1, min_accuracy=1.0)
    monkeypatch.setattr(training, "FULL", too_much)
    monkeypatch.setattr(training, "SMALL", too_much)
    report = Report()
    training.run(report, argparse.Namespace(out=tmp_path))
    assert report.failed
    assert "FAILED test accuracy" in capsys.readouterr().out


def test_a_curve_is_drawn_in_text() -> None:
    assert training.sparkline(np.exp(np.arange(8.0))) == "▁▂▃▄▅▆▇█"
    assert training.sparkline(np.full(5, 0.5)) == "▁" * 5
    assert len(training.sparkline(np.linspace(1, 2, 500))) == 60
