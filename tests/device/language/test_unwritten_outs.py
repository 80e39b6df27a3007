# mypy: disable-error-code="arg-type, assignment, misc, no-untyped-call, no-untyped-def, valid-type"
"""A launch doesn't allocate an Out that the kernel certainly reads before it writes to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

X = np.arange(1, 4, dtype=np.float32)


@vk.kernel(over="x")
def incremented(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], mode: vk.i32 = 0):
    y[vk.global_id(0)] += x[vk.global_id(0)]


@vk.kernel(over="x")
def under_condition(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], mode: vk.i32 = 0):
    i = vk.global_id(0)
    if x[i] > 1:
        y[i] = -y[i]


@vk.kernel(over="x")
def in_loop(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], mode: vk.i32 = 0):
    for k in range(len(x)):
        y[vk.global_id(0)] += x[k]


@vk.kernel(over="x")
def by_atomic(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], mode: vk.i32 = 0):
    vk.atomic.add(y, vk.global_id(0), x[vk.global_id(0)])


@pytest.mark.parametrize("kernel", [incremented, under_condition, in_loop, by_atomic], ids=lambda k: k.name)
def test_reads_before_writes_are_refused(device: Any, kernel: Any) -> None:
    with vk.use_device(device):
        for _ in range(3):
            with pytest.raises(vk.CompileError, match="y is read, and nothing was written to it before"):
                kernel(X)
            with pytest.raises(vk.CompileError, match=r"y\[i\] = 0; or declare y as vk.InOut"):
                kernel(vk.tensor(X))
        y = np.ones(3, np.float32)
        kernel(X, y)  # with values, it is right
        assert np.isfinite(y).all()


@vk.kernel(over="x")
def by_choice(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], mode: vk.i32 = 0):
    i = vk.global_id(0)
    if mode > 0:
        y[i] += x[i]
    else:
        y[i] = x[i]


@vk.kernel(over="x")
def exchanged(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], mode: vk.i32 = 0):
    vk.atomic.exchange(y, vk.global_id(0), x[vk.global_id(0)])


@vk.kernel(groups=1, local=1)
def prefix(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], mode: vk.i32 = 0):
    for i in range(len(x)):
        total = x[i]
        for k in range(i):
            total += y[k]
        y[i] = total


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(by_choice, [1, 2, 3]), (exchanged, [1, 2, 3]), (prefix, [1, 3, 7])],
    ids=lambda k: str(k)[:20],
)
def test_reads_that_may_follow_writes_are_allowed(device: Any, kernel: Any, expected: list[int]) -> None:
    with vk.use_device(device):
        assert kernel(X).tolist() == expected


@vk.kernel(over="o")
def smaller(x: vk.In[vk.f32, "N"], k: vk.In[vk.f32, "K"], o: vk.Out[vk.f32, "N-K"]) -> None:
    o[vk.global_id(0)] = x[0] + k[0]


@vk.kernel(over="o")
def smaller_twice(x: vk.In[vk.f32, "N"], k: vk.In[vk.f32, "K"], o: vk.Out[vk.f32, "N-K N-K"]) -> None:
    o[vk.global_id(1), vk.global_id(0)] = x[0] + k[0]


@pytest.mark.parametrize("kernel", [smaller, smaller_twice])
def test_results_of_negative_extents_are_refused(device: Any, kernel: Any) -> None:
    with vk.use_device(device):
        for _ in range(3):  # the last calls are cached
            assert np.all(kernel(np.ones(5, np.float32), np.ones(3, np.float32)) == 2)
            with pytest.raises(vk.ShapeError, match=r"would have the shape \(-2,.*expected no extent below 0"):
                kernel(np.ones(3, np.float32), np.ones(5, np.float32))
            x = vk.ones(5)
            assert kernel(x, x[:3]).shape[0] == 2
            with pytest.raises(vk.ShapeError, match="would have the shape"):
                kernel(x[:3], x)
