"""Softmax kernels for the device "cpu" (LLVM): one subgroup, which is compiled to SIMD vectors, processes each row.

`softmax_cpu_plan` launches them. Arrays have shape (lines, length): `lines` contiguous rows of `length` elements. SIZE
is the number of lanes of the subgroup. T and U are the element types of the inputs, R that of the result, and ACC is
the type of all arithmetic and sums. LOG selects log-softmax. A NaN makes its whole row NaN: the maximum ignores it, the
sum doesn't. `debug=False` omits the bounds checks that devices on the CPU make by default.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import vkjit as vk

__all__ = ["MAX_ELEMENTS_PER_INVOCATION", "elements_per_invocation", "gradient_per_subgroup", "softmax_per_subgroup"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

MAX_ELEMENTS_PER_INVOCATION = 1024
"""Maximum number of elements of a row that an invocation keeps in local memory: 64 KiB for 16 lanes of f32."""


@vk.func
def larger(x, y):
    """Return the larger of two values; if x is NaN, return y."""
    return vk.where(x > y, x, y)


@vk.kernel(groups=lambda x: x.shape[0], local=lambda SIZE: SIZE, debug=False)
def softmax_per_subgroup(
    x: vk.In[T, "lines length"],
    y: vk.Out[R, "lines length"],
    ACC: vk.Const[Any],
    SIZE: vk.Const[int],
    ITEMS: vk.Const[int],
    LOG: vk.Const[bool],
):
    """y = the softmax of each row, or with LOG its logarithm.

    Each invocation keeps at most ITEMS elements of a row in local memory, so rows have at most SIZE * ITEMS elements.
    ACC and SIZE are described in the module docstring.
    """
    sg, line = vk.subgroup(), vk.group_id(0)
    lane, length = vk.i32(vk.local_id(0)), vk.i32(x.shape[1])
    row_values = vk.local(ACC, ITEMS)
    # four independent maxima keep the CPU's execution units busy
    m0, m1, m2, m3 = ACC(-math.inf), ACC(-math.inf), ACC(-math.inf), ACC(-math.inf)
    whole = length // (4 * SIZE)
    for k in range(whole):
        j = k * (4 * SIZE) + lane
        m0 = larger(ACC(x[line, j]), m0)
        m1 = larger(ACC(x[line, j + SIZE]), m1)
        m2 = larger(ACC(x[line, j + 2 * SIZE]), m2)
        m3 = larger(ACC(x[line, j + 3 * SIZE]), m3)
    for j in range(whole * (4 * SIZE) + lane, length, SIZE):
        m0 = larger(ACC(x[line, j]), m0)
    top = sg.max(larger(larger(m0, m1), larger(m2, m3)))
    total = ACC(0)
    for k in range(vk.cdiv(length, SIZE)):
        j = k * SIZE + lane
        value = ACC(0)
        if j < length:
            value = ACC(x[line, j]) - top
            power = vk.exp(value)
            total += power
            if not LOG:
                value = power
        row_values[k] = value
    total = sg.sum(total)
    normalizer = vk.log(total) if LOG else 1 / total  # subtracted with LOG, otherwise multiplied
    for k in range(vk.cdiv(length, SIZE)):
        j = k * SIZE + lane
        if j < length:
            y[line, j] = R(row_values[k] - normalizer if LOG else row_values[k] * normalizer)


@vk.kernel(groups=lambda g: g.shape[0], local=lambda SIZE: SIZE, debug=False)
def gradient_per_subgroup(
    g: vk.In[T, "lines length"],
    y: vk.In[U, "lines length"],
    z: vk.Out[R, "lines length"],
    ACC: vk.Const[Any],
    SIZE: vk.Const[int],
    LOG: vk.Const[bool],
):
    """z = the gradient of x: (g - sum(g * y)) * y, or with LOG g - exp(y) * sum(g), where g is the gradient of y.

    ACC is the type of sums, SIZE the number of lanes of the subgroup that processes a row.
    """
    sg, line = vk.subgroup(), vk.group_id(0)
    lane, length = vk.i32(vk.local_id(0)), vk.i32(g.shape[1])
    total = ACC(0)
    for j in range(lane, length, SIZE):
        if LOG:
            total += ACC(g[line, j])
        else:
            total += ACC(g[line, j]) * ACC(y[line, j])
    total = sg.sum(total)
    for j in range(lane, length, SIZE):
        if LOG:
            z[line, j] = R(ACC(g[line, j]) - vk.exp(ACC(y[line, j])) * total)
        else:
            z[line, j] = R((ACC(g[line, j]) - total) * ACC(y[line, j]))


def elements_per_invocation(length: int, size: int) -> int:
    """Return ITEMS, the number of elements that each of the `size` lanes keeps of a row of `length` elements.

    ITEMS is a power of two, so that few specializations of the kernel serve all row lengths.
    """
    return max(4, 1 << (vk.cdiv(length, size) - 1).bit_length())
