"""Sorting operations give new results for every repeated call with cached dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime.dispatch_cache import repeating

CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sort()": (lambda x: vk.sort(x, 1).values, lambda a: np.sort(a, 1)),
    "argsort()": (lambda x: vk.argsort(x, 1), lambda a: np.argsort(a, 1)),
    "topk()": (lambda x: vk.topk(x, 3, 1).indices, lambda a: np.argsort(-a, 1)[:, :3]),
    "kthvalue()": (lambda x: vk.kthvalue(x, 4, 1).values, lambda a: np.sort(a, 1)[:, 3]),
    "quantile()": (lambda x: vk.quantile(x, 0.25, 1), lambda a: np.quantile(a, 0.25, 1).astype(np.float32)),
    "median()": (lambda x: vk.median(x, 1).values, lambda a: np.sort(a, 1)[:, (a.shape[1] - 1) // 2]),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_repeated(device: Any, name: str) -> None:
    ours, expected = CALLS[name]
    rng = np.random.default_rng(3)
    device.dispatch_cache.clear()
    results = []
    for _ in range(6):
        values = rng.permutation(140).reshape(2, 70).astype(np.float32)
        results.append((ours(vk.tensor(values, device=device)), expected(values)))
    for found, wanted in results:  # no call overwrites an earlier result
        np.testing.assert_array_equal(found.numpy(), wanted)
    if device.caps.kind == "interpreter" or not repeating():
        return
    assert any(key[0] == name and way and not isinstance(way, int) for key, way in device.dispatch_cache.items())


@pytest.mark.parametrize(("dtype", "ignore"), [(np.float32, True), (np.float32, False), (np.int32, False)])
def test_medians(device: Any, dtype: Any, ignore: bool) -> None:
    values = np.random.default_rng(5).permutation(60).reshape(3, 20).astype(dtype)
    function = vk.nanmedian if ignore else vk.median
    expected = np.sort(values, 1)[:, 9]
    if dtype is np.float32:
        values[1, 4] = np.nan
        expected[1] = np.sort(values[1])[9] if ignore else np.nan
    x = vk.tensor(values, device=device)
    found = function(x, 1)
    np.testing.assert_array_equal(found.values.numpy(), expected)
    np.testing.assert_array_equal(np.take_along_axis(values, found.indices.numpy()[:, None], 1)[:, 0], expected)
    kept = function(x, 1, keepdim=True)
    assert kept.values.shape == (3, 1) and kept.indices.shape == (3, 1)
    whole = np.sort(values, None)
    wanted = np.nan if dtype is np.float32 and not ignore else whole[(58 if dtype is np.float32 else 59) // 2]
    np.testing.assert_array_equal(function(x).numpy(), wanted)


@pytest.mark.parametrize(("inverse", "counts"), [(False, False), (True, False), (False, True)])
def test_distinct_ones_with_what_is_asked_for(device: Any, inverse: bool, counts: bool) -> None:
    values = np.random.default_rng(6).integers(0, 9, 50)
    x = vk.tensor(values, device=device)
    found: Any = vk.unique(x, return_inverse=inverse, return_counts=counts)
    expected: Any = np.unique(values, return_inverse=inverse, return_counts=counts)  # type: ignore[call-overload]  # its flags are literals
    if not inverse and not counts:
        found, expected = (found,), (expected,)
    assert len(found) == len(expected)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.numpy(), other)
    runs = vk.unique_consecutive(vk.sort(x).values, return_counts=True)
    for mine, other in zip(runs, np.unique(values, return_counts=True), strict=True):
        np.testing.assert_array_equal(mine.numpy(), other)
