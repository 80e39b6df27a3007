"""Kernels with a mistake each, and a correct twin beside it.

`PAIRS` has for each: the class of the mistake, both kernels, the reference (None: found without one), settings of the
check, a piece of the line that is to be named, and the sizes of the smallest failing input where they are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

import vkjit as vk

__all__ = ["PAIRS", "Pair"]

T = TypeVar("T", bound=vk.Element)
L = 32


@dataclass(frozen=True)
class Pair:
    """One row."""

    sort: str
    bad: Any
    good: Any
    reference: Callable[..., Any] | None
    line: str
    minimal: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)


# -- out of bounds


@vk.kernel(over="y")
def successor(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i + 1]


@vk.kernel(over="y")
def successor_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x.get(i + 1, pad=0)


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def unguarded(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 2.0 * x.get(i, pad=0)


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def unguarded_good(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        y[i] = 2.0 * x[i]


# -- wrong tail


@vk.kernel(groups=lambda x: x.shape[0] // L, local=L)
def no_tail(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 2.0 * x[i]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def tiled_sum(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    partial = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    acc = vk.i32(0)
    for tile in range(x.shape[1] // L):
        acc += x[row, tile * L + lane]
    partial[lane] = acc
    vk.barrier()
    if lane == 0:
        total = vk.i32(0)
        for k in range(L):
            total += partial[k]
        y[row] = total


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def tiled_sum_good(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    partial = vk.shared(vk.i32, L)
    lane, row = vk.local_id(0), vk.group_id(0)
    acc = vk.i32(0)
    for tile in range(vk.cdiv(x.shape[1], L)):
        acc += x.get(row, tile * L + lane, pad=0)
    partial[lane] = acc
    vk.barrier()
    if lane == 0:
        total = vk.i32(0)
        for k in range(L):
            total += partial[k]
        y[row] = total


@vk.kernel(over="y")
def only_hundred(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] if i < 100 else 0.0


@vk.kernel(over="y")
def copied(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]


# -- wrong identity, NaN


@vk.kernel(over="y")
def max_from_zero(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    best = vk.f32(0)
    for k in range(x.shape[1]):
        best = vk.max(best, x[vk.global_id(0), k])
    y[vk.global_id(0)] = best


@vk.kernel(over="y")
def max_from_first(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    best = x[vk.global_id(0), 0]
    for k in range(x.shape[1]):
        best = vk.max(best, x[vk.global_id(0), k])
    y[vk.global_id(0)] = best


@vk.kernel(over="y")
def relu_loses_nan(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] if x[i] > 0.0 else 0.0


@vk.kernel(over="y")
def relu_keeps_nan(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.max(x[i], 0.0)


# -- wrong stride, wrong index


@vk.kernel(over="y")
def transpose_swapped(x: vk.In[T, "M N"], y: vk.Out[T, "N M"]):
    i, j = vk.index()
    y[i, j] = x.get(i, j, pad=0)


@vk.kernel(over="y")
def transpose_good(x: vk.In[T, "M N"], y: vk.Out[T, "N M"]):
    i, j = vk.index()
    y[i, j] = x[j, i]


# -- uninitialised, unwritten


@vk.kernel(over="y")
def adds_to_out(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] += x[i]


@vk.kernel(over="y")
def writes_positive(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if x[i] > 0.0:
        y[i] = x[i]


@vk.kernel(over="y")
def writes_all(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 0.0
    if x[i] > 0.0:
        y[i] = x[i]


# -- races


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def last_one_stays(x: vk.In[vk.i32, "N"], place: vk.InOut[vk.i32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0] and x[i] > 0:
        place[0] = vk.i32(i)


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def largest_stays(x: vk.In[vk.i32, "N"], place: vk.InOut[vk.i32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0] and x[i] > 0:
        vk.atomic.max(place, 0, vk.i32(i))


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def counts_without_atomics(x: vk.In[vk.i32, "N"], count: vk.InOut[vk.i32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0] and x[i] > 0:
        count[0] += 1


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], L), local=L)
def counts_with_atomics(x: vk.In[vk.i32, "N"], count: vk.InOut[vk.i32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0] and x[i] > 0:
        vk.atomic.add(count, 0, 1)


# -- wrong arithmetic


@vk.kernel(over="y")
def narrow_mean(a: vk.In[vk.u8, "N"], b: vk.In[vk.u8, "N"], y: vk.Out[vk.u8, "N"]):
    i = vk.global_id(0)
    y[i] = (a[i] + b[i]) // vk.u8(2)


@vk.kernel(over="y")
def wide_mean(a: vk.In[vk.u8, "N"], b: vk.In[vk.u8, "N"], y: vk.Out[vk.u8, "N"]):
    i = vk.global_id(0)
    y[i] = vk.u8((vk.i32(a[i]) + vk.i32(b[i])) // 2)


@vk.kernel(over="y")
def asserts(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    assert x[i] != 3
    y[i] = x[i]


@vk.kernel(over="y")
def copied_integers(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]


def _mean(a: Any, b: Any) -> Any:
    return ((a.astype(int) + b) // 2).astype(np.uint8)


_ROWS: dict[str, Any] = {"dims": {"C": (1, None)}}

PAIRS = (
    Pair("bounds", successor, successor_good, None, "x[i + 1]", {"N": 1}),
    Pair("bounds", unguarded, unguarded_good, None, "y[i] =", {"N": 1}),
    Pair("tail", no_tail, unguarded_good, None, "y[i] =", {"N": 1}),
    Pair("tail", tiled_sum, tiled_sum_good, lambda x: x.sum(axis=1, dtype=np.int32), "y[row] =", {"R": 1, "C": 1}),
    Pair("tail", only_hundred, copied, lambda x: x, "y[i] =", {"N": 101}),
    Pair("identity", max_from_zero, max_from_first, lambda x: x.max(axis=1), "y[", {"R": 1, "C": 1}, _ROWS),
    Pair("nan", relu_loses_nan, relu_keeps_nan, lambda x: np.maximum(x, 0), "y[i] =", {"N": 1}, {"special": "nan"}),
    Pair(
        "stride", transpose_swapped, transpose_good, lambda x: x.T, "y[i, j] =", settings={"dtypes": [vk.f32, vk.i16]}
    ),
    Pair("uninitialised", adds_to_out, copied, None, "y[i] +=", {"N": 1}),
    Pair("unwritten", writes_positive, writes_all, None, "y[i] =", {"N": 1}),
    Pair("race", last_one_stays, largest_stays, None, "place[0] ="),
    Pair(
        "race",
        counts_without_atomics,
        counts_with_atomics,
        lambda x, count: count + (x > 0).sum(),
        "count[0] +=",
        {"N": 2},
    ),
    Pair("overflow", narrow_mean, wide_mean, _mean, "y[i] =", {"N": 1}),
    Pair("assertion", asserts, copied_integers, None, "assert x[i]", {"N": 1}),
)
"""The list."""
