"""Strict kernels compared with NumPy bit for bit: a small version of `python -m tools.strict`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tools.strict import compare, operations
from tools.strict.operands import pairs, single
from tools.ulp import measure as ulp
from vkjit import dtypes


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda t: t.name)
def test_bits_are_those_of_numpy(device: Any, dtype: Any) -> None:
    if dtype is dtypes.bf16:
        pytest.importorskip("ml_dtypes", reason="bf16 is passed as an array of ml_dtypes")
    if not ulp.supports(device.caps, dtype):
        pytest.skip(f"{device.name} has no {dtype.name}")
    compared = list(compare.check(dtype, device.caps, 10_000, seed=3))
    wrong = [f"{group.name} {found.operation}: {found.example}" for group, found, right in compared if not right]
    assert not wrong, "\n".join(wrong)
    assert len(compared) >= 16


def test_every_promise_is_compared() -> None:
    """The comparison covers + - * / sqrt, comparisons, and conversions between all types."""
    names = {kind: set() for kind in ("float", "int", "bool")}  # type: dict[str, set[str]]
    for group in operations.GROUPS:
        for kind, found in names.items():
            if kind in group.kinds:
                found |= {name for name, _ in group.expected}
    targets = {f"to {t.name}" for t in dtypes.ALL}
    assert {"+", "-", "*", "/", "sqrt", "==", "!=", "<", "<=", ">", ">=", *targets} <= names["float"]
    assert {"+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", *targets} <= names["int"]
    assert targets <= names["bool"]


def test_operands_hold_the_hard_ones() -> None:
    first, second = pairs(dtypes.f32, 40_000, 0)
    assert len(first) == len(second) == 40_000
    assert np.isnan(first).any() and np.isinf(second).any()
    assert ((first == 0) & np.signbit(first) & (second == 0)).any()
    ones = np.abs(single(dtypes.f64, 40_000, 0))
    ones = ones[(ones > 1e-30) & (ones < 1e30)]
    near = ones.astype(np.float32)
    middle = np.abs(ones - near) * 2 == np.spacing(near)
    assert middle.sum() > 100


def test_one_wrong_bit_is_seen(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import vkjit as vk

    group = operations.GROUPS[0]
    name, expected = group.expected[3]
    assert name == "/"

    def off_by_one(x: Any, y: Any) -> Any:
        right = expected(x, y)
        right.view(np.uint32)[7] ^= 1
        return right

    damaged = replace(group, expected=(*group.expected[:3], (name, off_by_one), *group.expected[4:]))
    with vk.use_device("interpreter"):
        found = {d.operation: d.regular + d.subnormal for d in compare.compare(dtypes.f32, damaged, 1000)}
    assert found == {"+": 0, "-": 0, "*": 0, "/": 1, "min": 0, "max": 0}
    monkeypatch.setattr(compare, "GROUPS", (damaged,))
    assert compare.main(["--device", "interpreter", "--pairs", "1000", "--type", "f32"]) == 1
    assert "1 operations differ" in capsys.readouterr().out
