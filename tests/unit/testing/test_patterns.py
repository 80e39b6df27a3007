"""Tests of the descriptions of what wrong elements have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vkjit.testing.explain.patterns import pattern_of

CASES: list[tuple[Any, Any, str]] = [
    (257, [256], "the tail from 256 on: what is left after the last full 64"),
    (100, slice(64, 100), "the tail from 64 on: what is left after the last full 64"),
    (256, slice(64, 128), "64 to 127: one block of 64"),
    (256, slice(128, 256), "from 128 on: all but the first 2 blocks of 64"),
    (256, slice(7, 256, 64), "lane 7 of every block of 64"),
    (256, slice(63, 256, 64), "the last lane (63) of every block of 64"),
    (256, slice(0, 256, 3), "every 3rd one, from 0 on"),
    (256, [i for i in range(256) if i % 64 in (4, 5)], "lanes 4 to 5 of every block of 64"),
    (130, [0], "only the first one"),
    (30, [29], "only the last one"),
    (30, [7], "only the one at 7"),
    (30, slice(10, 20), "10 to 19"),
    (30, slice(0, 5), "up to 4"),
    (30, slice(0, 30), "all of them"),
    (1, [0], "the only one"),
    (30, [], ""),
    (30, [1, 4, 5, 29], ""),
    ((8, 8), (3, slice(None)), "rows: only 3"),
    ((8, 8), (slice(None), 7), "columns: the last one"),
    ((3, 70), (slice(None), slice(64, 70)), "columns: the tail from 64 on: what is left after the last full 64"),
    ((3, 5), (slice(1, 3), slice(2, 4)), "rows: from 1 on, columns: 2 to 3"),
    ((2, 3, 4), (slice(None), 1, slice(None)), "axis 1: only 1"),
    ((4, 4), (2, 3), "only the one at (2, 3)"),
]


@pytest.mark.parametrize(("shape", "wrong", "expected"), CASES, ids=[c[2][:40] or "none" for c in CASES])
def test_pattern(shape: Any, wrong: Any, expected: str) -> None:
    mask = np.zeros(shape, bool)
    mask[wrong] = True
    assert pattern_of(mask, (64,)) == expected


def test_wrong_elements_in_c_order() -> None:
    mask = np.zeros((5, 30), bool)
    mask.reshape(-1)[64:128] = True
    assert pattern_of(mask, (64,)) == "in C order, 64 to 127: one block of 64"
