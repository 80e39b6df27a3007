"""Two arrays side by side in one launch, for GPUs.

Enters: two arrays as lines, elements as unsigned integers of their size. Leaves: lines of the first one's elements, then the
second one's. An invocation takes four neighbours of the result.
"""

from __future__ import annotations

import math
from typing import TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray

__all__ = ["join", "joined", "joined_fours"]

T = TypeVar("T", bound=vk.Element)

GROUP = 256
"""Invocations of a workgroup."""


@vk.func
def joined_at(p, q, line, c):
    """Element c of a line of both."""
    first = p.shape[1]
    if c < first:
        value = p[line, c]
    else:
        value = q[line, c - first]
    return value


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0] * y.shape[1], 4 * GROUP), local=GROUP, debug=False)
def joined(p: vk.In[T, "A M"], q: vk.In[T, "A N"], y: vk.Out[T, "A L"]):
    """y[a] = p[a], then q[a]."""
    i, length = vk.global_id(0) * 4, y.shape[1]
    count = y.shape[0] * length
    for k in vk.unroll(4):
        if i + k < count:
            line, c = (i + k) // length, (i + k) % length
            y[line, c] = joined_at(p, q, line, c)


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0] * (y.shape[1] // 4), GROUP), local=GROUP, debug=False)
def joined_fours(p: vk.In[T, "A M"], q: vk.In[T, "A N"], y: vk.Out[T, "A L"]):
    """The same where the lines of both have whole fours."""
    i, fours = vk.global_id(0), y.shape[1] // 4
    if i < y.shape[0] * fours:
        line, four, first = i // fours, i % fours, p.shape[1] // 4
        if four < first:
            values = (p[line, 4 * four], p[line, 4 * four + 1], p[line, 4 * four + 2], p[line, 4 * four + 3])
        else:
            at = four - first
            values = (q[line, 4 * at], q[line, 4 * at + 1], q[line, 4 * at + 2], q[line, 4 * at + 3])
        for k in vk.unroll(4):
            y[line, 4 * four + k] = values[k]


def join(p: DeviceArray, q: DeviceArray, y: DeviceArray) -> None:
    """y[a] = p[a], then q[a]: arrays (a, elements) of one type that aren't empty; y lies in C order."""
    p, q, y = (DeviceArray(x.buffer, x.offset, _bits(x), x.shape, x.strides) for x in (p, q, y))
    whole = all(x.shape[1] % 4 == 0 and x.strides[1] == 1 for x in (p, q))
    (joined_fours if whole and math.prod(y.shape) >= 4 * GROUP else joined)(p, q, y)


def _bits(x: DeviceArray) -> vk.DType:
    return {1: vk.u8, 2: vk.u16, 4: vk.u32, 8: vk.u64}[x.dtype.itemsize]
