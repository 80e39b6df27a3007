"""Concatenation of two matrices along their second axis in one launch, for `cat` of two tensors on GPUs.

Each row of the result is a row of the first matrix followed by the row of the second with the same index. Elements are
copied as unsigned integers of their size, the type T of the kernels, so that all element types of one size share a
kernel. Each invocation copies four elements.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import flattened, index_type

__all__ = ["cat_elements", "cat_pair", "cat_vec4"]

T = TypeVar("T", bound=vk.Element)

GROUP = 256
"""Invocations per workgroup."""


@vk.func
def cat_element_at(p, q, i, length):
    """Load element i of the flattened result, whose rows of `length` elements are a row of p and then a row of q."""
    p_length, row, column = p.shape[1], i // length, i % length
    if column < p_length:
        value = p[row, column]
    else:
        value = q[row, column - p_length]
    return value


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * GROUP), local=GROUP, debug=False)
def cat_elements(p: vk.In[T, "A M"], q: vk.In[T, "A N"], y: vk.Out[T, "L"], INDEX: vk.Const[Any]):
    """Store the rows p[0], q[0], p[1], q[1], ... one after another to the flat array y.

    Each invocation copies four elements that are GROUP apart, so that adjacent invocations access adjacent elements.
    INDEX is a type for indices into y: CPUs divide vectors of i32 several times as fast as of i64.
    """
    i, count = INDEX(vk.group_id(0) * (4 * GROUP) + vk.local_id(0)), INDEX(y.shape[0])
    length = INDEX(p.shape[1] + q.shape[1])
    if i + 3 * GROUP < count:  # issue all loads before the stores
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
    """Store each row p[a], followed by q[a], to y[a]: one vec4 per invocation.

    The row lengths of p and q are multiples of four.
    """
    i, vectors = vk.global_id(0), y.shape[1] // 4
    if i < y.shape[0] * vectors:
        row, vec4, p_vectors = i // vectors, i % vectors, p.shape[1] // 4
        if vec4 < p_vectors:
            values = (p[row, 4 * vec4], p[row, 4 * vec4 + 1], p[row, 4 * vec4 + 2], p[row, 4 * vec4 + 3])
        else:
            source = vec4 - p_vectors
            values = (q[row, 4 * source], q[row, 4 * source + 1], q[row, 4 * source + 2], q[row, 4 * source + 3])
        for k in vk.unroll(4):
            y[row, 4 * vec4 + k] = values[k]


def cat_pair(p: DeviceArray, q: DeviceArray, y: DeviceArray) -> None:
    """Store the concatenation of the matrices p and q along their second axis to y.

    The matrices have the same element type and aren't empty, and y is in C order.
    """
    p, q, y = (DeviceArray(x.buffer, x.offset, _copy_type(x), x.shape, x.strides) for x in (p, q, y))
    use_vec4 = all(x.shape[1] % 4 == 0 and x.strides[1] == 1 for x in (p, q))
    if use_vec4 and math.prod(y.shape) >= 4 * GROUP:
        cat_vec4(p, q, y)
    else:
        flat = flattened(y)
        cat_elements(p, q, flat, index_type(flat))


def _copy_type(x: DeviceArray) -> vk.DType:
    """Return the type as which the elements of x are copied: the unsigned integer of their size.

    On devices that can't load single bytes, elements of type bool are copied as bool.
    """
    if x.dtype.kind == "bool" and "int8" not in x.device.caps.features:
        return x.dtype
    return {1: vk.u8, 2: vk.u16, 4: vk.u32, 8: vk.u64}[x.dtype.itemsize]
