"""The main() of every example, on every executor; the examples check their own results."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.py"))
NEEDS = {"train_": "rich"}
SMALL: dict[str, dict[str, int]] = {"saxpy": {"n": 10_007}, "reduction": {"n": 100_000}, "mandelbrot": {"size": 72}}
"""Sizes that keep the reference interpreter fast; standalone runs use the examples' defaults."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_gives_right_results(device: Any, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sizes = SMALL.get(path.stem, {})
    assert set(sizes) <= set(inspect.signature(module.main).parameters)
    module.main(**sizes)
    assert capsys.readouterr().out.strip(), "an example says what it did"
