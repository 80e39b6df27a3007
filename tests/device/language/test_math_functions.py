"""Accuracy of mathematical functions on each executor: documented bounds, special values as in IEEE 754 and C.

A small version of `python -m tools.ulp` with the same hard arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tools.ulp import measure
from vkjit.ir.ops import OPS
from vkjit.passes.lowering.lower_math import MATH_RULES
from vkjit.testing.compare.exact import exact, judge


def test_every_function_is_measured() -> None:
    assert set(MATH_RULES) <= set(measure.FUNCTIONS)


def test_bounds_that_everybody_relies_on() -> None:
    assert all((OPS[name].ulp or 0) <= 4 for name in ("sin", "cos", "exp", "log", "tanh", "pow"))


@pytest.mark.parametrize("dtype", measure.TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("name", measure.FUNCTIONS)
def test_errors_are_within_their_bounds(device: Any, name: str, dtype: Any) -> None:
    if not measure.supports(device.caps, dtype):
        pytest.skip(f"{device.name} has no {dtype.name}")
    found = measure.measure(name, dtype, 2000, seed=1)
    assert found.fits, "\n".join(found.wrong)
    assert found.samples > 1000
    assert 0 < found.worst <= found.bound


def test_judge_sees_what_is_wrong() -> None:
    x = np.array([0.5, 1.0, np.nan, -1.0, np.inf], np.float32)
    with np.errstate(all="ignore"):
        right = exact("log", [x]).astype(np.float32)
    assert len(judge("log", [x], right, 2.0).wrong) == 0
    for i, value in enumerate((np.nextafter(right[0], np.float32(0), dtype=np.float32) * 1.001, -0.0, 0.0, 1.0, 0.0)):
        damaged = right.copy()
        damaged[i] = value
        assert judge("log", [x], damaged, 2.0).wrong.tolist() == [i]


def test_the_command_fails_where_a_bound_is_exceeded(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command = ["--device", "interpreter", "--samples", "1000", "--function", "tan", "--type", "f32"]
    assert measure.main(command) == 0
    monkeypatch.setattr(measure, "bound_of", lambda name: 0.4)
    assert measure.main(command) == 1
    assert "1 exceed their bounds" in capsys.readouterr().out
