"""Vec4 copies of rows for GPUs: copies with the column order reversed, and triangles (tril, triu).

In both kernels rows are contiguous, their length is a multiple of four, and x and y have the same element type T.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..registry import device_class

__all__ = ["copy_reversed", "reverse_vec4", "supports_vec4", "triangle_vec4"]

T = TypeVar("T", bound=vk.Element)

GROUP = 256
"""Invocations per workgroup."""


@vk.kernel(groups=lambda y: (vk.cdiv(y.shape[1], 4 * GROUP), y.shape[0]), local=GROUP, debug=False)
def reverse_vec4(x: vk.In[T, "R C"], y: vk.Out[T, "R C"]):
    """y[r, c] = x[r, C - 1 - c], four elements per invocation."""
    vec4, row, count = vk.global_id(0), vk.global_id(1), y.shape[1] // 4
    if vec4 < count:
        source = count - 1 - vec4
        values = (x[row, 4 * source + 3], x[row, 4 * source + 2], x[row, 4 * source + 1], x[row, 4 * source])
        for k in vk.unroll(4):
            y[row, 4 * vec4 + k] = values[k]


@vk.kernel(groups=lambda y: (vk.cdiv(y.shape[2], 4 * GROUP), y.shape[1], y.shape[0]), local=GROUP, debug=False)
def triangle_vec4(x: vk.In[T, "G M N"], y: vk.Out[T, "G M N"], diagonal: vk.i64, UPPER: vk.Const[bool]):
    """Copy a triangle of each matrix of x to y, and set all other elements of y to 0: four elements per invocation.

    With UPPER, the triangle is the part on and above the diagonal, otherwise the part on and below it. `diagonal` is
    the column in which the diagonal starts in row 0; it may be negative.
    """
    j, i, g = vk.global_id(0) * 4, vk.global_id(1), vk.global_id(2)
    if j < y.shape[2]:
        first = vk.i64(j) - vk.i64(i) - diagonal  # column of the first of the four elements, relative to the diagonal
        values = (T(0), T(0), T(0), T(0))
        if (first + 3 >= 0) if UPPER else (first <= 0):  # skip the load if all four elements are 0
            values = (x[g, i, j], x[g, i, j + 1], x[g, i, j + 2], x[g, i, j + 3])
        for k in vk.unroll(4):
            kept = (first + k >= 0) if UPPER else (first + k <= 0)
            y[g, i, j + k] = vk.where(kept, values[k], T(0))


def supports_vec4(x: DeviceArray, y: DeviceArray) -> bool:
    """True if the vec4 kernels support a copy from x to y of the same shape, and its rows are long enough for them.

    The device must be a GPU, and elements must be larger than one byte. Along the last axis, the stride of x must be 1
    or -1 and that of y must be 1.
    """
    last = len(y.shape) - 1
    if device_class(y.device) != "gpu" or x.dtype is not y.dtype or y.dtype.itemsize == 1:
        return False
    length = y.shape[last]
    return abs(x.strides[last]) == 1 and y.strides[last] == 1 and length % 4 == 0 and length >= 2 * GROUP


def copy_reversed(x: DeviceArray, y: DeviceArray) -> bool:
    """Copy the matrix x, whose column stride is -1, to y; return False if `reverse_vec4` doesn't support the arrays."""
    if not supports_vec4(x, y) or x.strides[1] != -1:
        return False
    start = x.offset - (x.shape[1] - 1) * x.dtype.itemsize  # the last column of the first row has its lowest address
    reverse_vec4(DeviceArray(x.buffer, start, x.dtype, x.shape, (x.strides[0], 1)), y)
    return True
