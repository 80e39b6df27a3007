"""Concatenation of two matrices along their rows (cat) in one launch, for GPUs.

Elements are copied as unsigned integers of their size, where the device supports them; an invocation copies four.
"""

from __future__ import annotations

import math
from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

__all__ = ["cat_elements", "cat_pair", "cat_vec4"]

T = TypeVar("T", bound=vk.Element)

GROUP = 256
"""Invocations of a workgroup."""


@vk.func
def cat_element_at(p, q, i, length):
    """Load element i of the flattened result, whose rows have `length` elements."""
    first, line, c = p.shape[1], i // length, i % length
    if c < first:
        value = p[line, c]
    else:
        value = q[line, c - first]
    return value


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * GROUP), local=GROUP, debug=False)
def cat_elements(p: vk.In[T, "A M"], q: vk.In[T, "A N"], y: vk.Out[T, "L"]):
    """y = p[0], q[0], p[1], q[1]... An invocation copies four elements, GROUP apart, so that accesses are coalesced."""
    i, count, length = vk.group_id(0) * (4 * GROUP) + vk.local_id(0), y.shape[0], p.shape[1] + q.shape[1]
    if i + 3 * GROUP < count:
        values = ()
        for k in vk.unroll(4):
            values = values + (cat_element_at(p, q, i + k * GROUP, length),)
        for k in vk.unroll(4):
            y[i + k * GROUP] = values[k]
    else:
        for k in range(4):
            if i + k * GROUP < count:
                y[i + k * GROUP] = cat_element_at(p, q, i + k * GROUP, length)


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0] * (y.shape[1] // 4), GROUP), local=GROUP, debug=False)
def cat_vec4(p: vk.In[T, "A M"], q: vk.In[T, "A N"], y: vk.Out[T, "A L"]):
    """y[a] = p[a], then q[a], for rows whose lengths are multiples of four; a vec4 per invocation."""
    i, vectors = vk.global_id(0), y.shape[1] // 4
    if i < y.shape[0] * vectors:
        line, vec4, first = i // vectors, i % vectors, p.shape[1] // 4
        if vec4 < first:
            values = (p[line, 4 * vec4], p[line, 4 * vec4 + 1], p[line, 4 * vec4 + 2], p[line, 4 * vec4 + 3])
        else:
            at = vec4 - first
            values = (q[line, 4 * at], q[line, 4 * at + 1], q[line, 4 * at + 2], q[line, 4 * at + 3])
        for k in vk.unroll(4):
            y[line, 4 * vec4 + k] = values[k]


def cat_pair(p: DeviceArray, q: DeviceArray, y: DeviceArray) -> None:
    """y[a] = p[a], then q[a]: nonempty matrices of one type; y is in C order."""
    p, q, y = (DeviceArray(x.buffer, x.offset, _bits(x), x.shape, x.strides) for x in (p, q, y))
    whole = all(x.shape[1] % 4 == 0 and x.strides[1] == 1 for x in (p, q))
    if whole and math.prod(y.shape) >= 4 * GROUP:
        cat_vec4(p, q, y)
    else:
        cat_elements(p, q, DeviceArray(y.buffer, y.offset, y.dtype, (math.prod(y.shape),), (1,)))


def _bits(x: DeviceArray) -> vk.DType:
    if x.dtype.kind == "bool" and "int8" not in x.device.caps.features:  # without byte access
        return x.dtype
    return {1: vk.u8, 2: vk.u16, 4: vk.u32, 8: vk.u64}[x.dtype.itemsize]
