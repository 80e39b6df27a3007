"""Nests of short loops against a driver's silent iteration cap; a loop's exit check also counts its inner loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk


@vk.kernel(groups=1, local=8, debug=False)
def nest(y: vk.Out[vk.i32, "8"], a: vk.i32, b: vk.i32, c: vk.i32, d: vk.i32):
    total = vk.i32(0)
    for _ in range(a):
        for _ in range(b):
            for _ in range(c):
                for _ in range(d):
                    total += 1
    y[vk.global_id(0)] = total


@pytest.mark.parametrize(
    "rounds", [(6000, 1, 1, 1), (6554, 1, 1, 1), (8192, 1, 1, 1), (20_000, 1, 1, 1), (3000, 1, 2, 1)], ids=str
)
def test_nests_are_right_or_refused(device: Any, rounds: tuple[int, int, int, int]) -> None:
    """An outer iteration counts 10 if each inner loop runs once: 1 + (1 + (1 + 2) + 1 + 1) + 1 + 2."""
    try:
        y = nest(*rounds)
    except vk.LoopLimitError:
        assert device.caps.loop_cap is not None
        assert rounds[0] * 10 > device.caps.loop_cap * 0.9
        return
    assert np.array_equal(np.asarray(y), np.full(8, np.prod(rounds)))
