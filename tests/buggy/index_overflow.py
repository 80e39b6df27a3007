"""Index arithmetic in 32 or 16 bits that overflows on arrays with stride 0: huge shapes in little memory."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from tests.buggy.pair import pair

NARROW = {"R": (0, 2**31 - 1), "C": (1, 2**31 - 1)}
"""Extents that fit in 32 bits individually."""

BOTH = {"row": (0, "R-1"), "column": (0, "C-1")}


@vk.kernel(over="y")
def flat_pick(x: vk.In[vk.f32, "R C"], row: vk.In[vk.i32, "N"], column: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"]):
    n = vk.global_id(0)
    columns = vk.i32(x.shape[1])
    flat = row[n] * columns + column[n]  # bug: rows times columns may exceed 2^31
    y[n] = x[flat // columns, flat % columns]


@vk.kernel(over="y")
def flat_pick_good(
    x: vk.In[vk.f32, "R C"], row: vk.In[vk.i32, "N"], column: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"]
):
    n = vk.global_id(0)
    columns = vk.i64(x.shape[1])
    flat = vk.i64(row[n]) * columns + vk.i64(column[n])
    y[n] = x[flat // columns, flat % columns]


@vk.kernel(over="y")
def position(x: vk.In[vk.f32, "R C"], row: vk.In[vk.i32, "N"], column: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    n = vk.global_id(0)
    y[n] = vk.i64(row[n] * vk.i32(x.shape[1]) + column[n])  # bug: widened only after the product


@vk.kernel(over="y")
def position_good(x: vk.In[vk.f32, "R C"], row: vk.In[vk.i32, "N"], column: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    n = vk.global_id(0)
    y[n] = vk.i64(row[n]) * x.shape[1] + vk.i64(column[n])


def _positions(x: Any, row: Any, column: Any) -> Any:
    return row.astype(np.int64) * x.shape[1] + column


@vk.kernel(over="y")
def guarded_by_count(x: vk.In[vk.f32, "R C"], z: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    n = vk.global_id(0)
    count = vk.i32(x.shape[0]) * vk.i32(x.shape[1])  # bug: the number of elements may exceed 2^31
    y[n] = z[n] if vk.i32(n) < count else 0.0


@vk.kernel(over="y")
def guarded_by_count_good(x: vk.In[vk.f32, "R C"], z: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    n = vk.global_id(0)
    count = x.shape[0] * x.shape[1]
    y[n] = z[n] if n < count else 0.0


def _guarded(x: Any, z: Any) -> Any:
    return np.where(np.arange(len(z)) < x.shape[0] * x.shape[1], z, 0)


@vk.kernel(over="y")
def middle(x: vk.In[vk.f32, "N"], low: vk.In[vk.i32, "M"], high: vk.In[vk.i32, "M"], y: vk.Out[vk.f32, "M"]):
    m = vk.global_id(0)
    y[m] = x[(low[m] + high[m]) // 2]  # bug: the sum may exceed 2^31


@vk.kernel(over="y")
def middle_good(x: vk.In[vk.f32, "N"], low: vk.In[vk.i32, "M"], high: vk.In[vk.i32, "M"], y: vk.Out[vk.f32, "M"]):
    m = vk.global_id(0)
    y[m] = x[(vk.i64(low[m]) + vk.i64(high[m])) // 2]


@vk.kernel(over="y")
def short_index(x: vk.In[vk.f32, "N"], at: vk.In[vk.i32, "M"], y: vk.Out[vk.f32, "M"]):
    m = vk.global_id(0)
    y[m] = x[vk.i16(at[m])]  # bug: 16 bits hold at most 32767


@vk.kernel(over="y")
def short_index_good(x: vk.In[vk.f32, "N"], at: vk.In[vk.i32, "M"], y: vk.Out[vk.f32, "M"]):
    m = vk.global_id(0)
    y[m] = x[at[m]]


@vk.kernel(over="y")
def byte_offset(x: vk.In[vk.f32, "R C"], row: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"]):
    n = vk.global_id(0)
    offset = row[n] * vk.i32(x.shape[1]) * 4  # bug: byte offsets exceed 2^31 sooner than element offsets
    y[n] = x[offset // (4 * vk.i32(x.shape[1])), 0]


@vk.kernel(over="y")
def byte_offset_good(x: vk.In[vk.f32, "R C"], row: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"]):
    n = vk.global_id(0)
    offset = vk.i64(row[n]) * x.shape[1] * 4
    y[n] = x[offset // (4 * x.shape[1]), 0]


PAIRS = (
    pair(flat_pick, flat_pick_good, elements=BOTH, dims=NARROW),
    pair(position, position_good, _positions, elements=BOTH, dims=NARROW),
    pair(guarded_by_count, guarded_by_count_good, _guarded),
    pair(middle, middle_good, elements={"low": (0, "N-1"), "high": (0, "N-1")}),
    pair(short_index, short_index_good, elements={"at": (0, "N-1")}),
    pair(byte_offset, byte_offset_good, elements={"row": (0, "R-1")}, dims=NARROW),
)
