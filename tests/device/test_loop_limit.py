"""Loops of drivers that stop silently: right, or a LoopLimitError at the loop's line; never a wrong number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk


@vk.kernel(groups=1, local=8)
def sum_ones(x: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "8"]):
    acc = vk.f32(0)
    for i in range(x.shape[0]):  # the line that the error names
        acc += x[i]
    out[vk.local_id(0)] = acc


@vk.kernel(groups=1, local=8)
def branches(n: vk.i32, out: vk.Out[vk.i32, "8"]):
    """Neighbours take different loops: the driver counts the sum of both."""
    i = vk.local_id(0)
    count = vk.i32(0)
    if i % 2 == 0:
        for _ in range(n):
            count += 1
    else:
        while count < n:
            count += 1
    out[i] = count


@vk.kernel(groups=1, local=8)
def staggered(n: vk.i32, out: vk.Out[vk.i32, "8"]):
    """Two loops whose lengths add up to n in every invocation, differently in each."""
    i = vk.local_id(0)
    count = vk.i32(0)
    first = n * vk.i32(i) // 8
    for _ in range(first):
        count += 1
    for _ in range(n - first):
        count += 1
    out[i] = count


@vk.kernel(groups=1, local=8)
def nested(n: vk.i32, m: vk.i32, out: vk.Out[vk.i32, "8"]):
    count = vk.i32(0)
    for _ in range(n):
        for k in range(m):
            if k > m - 2 + vk.i32(vk.local_id(0)):
                break
            count += 1
    out[vk.local_id(0)] = count


def _right_or_error(call: Any, expected: Any) -> bool:
    """True for a right result, False for a LoopLimitError; a wrong number fails."""
    try:
        found = call()
    except vk.LoopLimitError as error:
        assert error.loc.file.endswith("test_loop_limit.py")
        return False
    np.testing.assert_array_equal(found, expected)
    return True


def test_sum_of_100000_ones(device: Any) -> None:
    ones = np.ones(100_000, np.float32)
    if _right_or_error(lambda: sum_ones(ones), np.full(8, 100_000)):
        return
    with pytest.raises(vk.LoopLimitError, match="stops loops silently") as caught:
        sum_ones(ones)
    line = caught.value.loc.line
    text = Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]
    assert "the line that the error names" in text


def test_short_loops_are_right_everywhere(device: Any) -> None:
    assert _right_or_error(lambda: sum_ones(np.ones(60_000, np.float32)), np.full(8, 60_000))
    assert _right_or_error(lambda: branches(20_000), np.full(8, 20_000))


@pytest.mark.parametrize("n", [33_000, 40_000, 65_000, 66_000, 131_000])
def test_divergent_lengths(device: Any, n: int) -> None:
    if device.caps.kind == "interpreter" and n > 40_000:
        pytest.skip("the interpreter has no cap and would take long")
    _right_or_error(lambda: branches(n), np.full(8, n))
    _right_or_error(lambda: staggered(n), np.full(8, n))


@pytest.mark.parametrize(("n", "m"), [(300, 100), (300, 218), (300, 400), (70_000, 1)])
def test_nested_loops_with_break(device: Any, n: int, m: int) -> None:
    if device.caps.kind == "interpreter" and n * m > 70_000:
        pytest.skip("the interpreter has no cap and would take long")
    lanes = np.arange(8)
    per_round = np.minimum(m, np.maximum(0, m - 1 + lanes))
    _right_or_error(lambda: nested(n, m), n * per_round)
