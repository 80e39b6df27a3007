"""Layer and RMS norm kernels that process each row with one invocation or one workgroup, forward and backward.

`norm` launches them. Matrices have shape (lines, length): `lines` rows of `length` elements, each normalized by its own
mean and variance, with weight and bias of shape (length,). With STORED the forward kernels also store `mean`, and
`scale`, which is 1 / sqrt(variance + epsilon), for each row; the gradient kernels need both. In the kernels with one
workgroup per row, SIZE invocations keep the row in registers, ITEMS elements each, and read it once. WEIGHT and BIAS
are true if there is a weight or bias; otherwise the array is a placeholder. CENTER is true if the mean is subtracted
(layer norm), false for RMS norm.

Element types: T is that of x, or of the output's gradient g, U that of x in the gradient kernels, W and B those of
weight and bias, R that of the result. Statistics and sums have type A, f32 or f64.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

from .norm_chunks import BLOCK, LOCAL

__all__ = ["gradient_per_invocation", "gradient_per_workgroup", "norm_per_invocation", "norm_per_workgroup"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
W = TypeVar("W", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], LOCAL), local=LOCAL, debug=False)
def norm_per_invocation(
    x: vk.In[T, "lines length"],
    weight: vk.In[W, "C"],
    bias: vk.In[B, "D"],
    y: vk.Out[R, "lines length"],
    mean: vk.Out[A, "S"],
    scale: vk.Out[A, "S"],
    epsilon: A,
    WEIGHT: vk.Const[bool],
    BIAS: vk.Const[bool],
    CENTER: vk.Const[bool],
    STORED: vk.Const[bool],
):
    """Compute y = (x - mean) * scale * weight + bias, one invocation per row.

    The constants are described in the module docstring.
    """
    line = vk.i32(vk.global_id(0))
    if line >= x.shape[0]:
        return
    length = vk.i32(x.shape[1])
    center, total = A(0), A(0)
    if CENTER:
        for b in range(vk.cdiv(length, BLOCK)):
            part = A(0)
            for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, length)):
                part += A(x[line, j])
            total += part
        center = total / A(length)
    total = A(0)
    for b in range(vk.cdiv(length, BLOCK)):
        part = A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, length)):
            distance = A(x[line, j]) - center
            part += distance * distance
        total += part
    factor = 1 / vk.sqrt(total / A(length) + epsilon)
    for j in range(length):
        value = (A(x[line, j]) - center) * factor
        if WEIGHT:
            value *= A(weight[j])
        if BIAS:
            value += A(bias[j])
        y[line, j] = R(value)
    if STORED:
        mean[line] = center
        scale[line] = factor


@vk.kernel(groups=lambda x: x.shape[0], local=lambda SIZE: SIZE, debug=False)
def norm_per_workgroup(
    x: vk.In[T, "lines length"],
    weight: vk.In[W, "C"],
    bias: vk.In[B, "D"],
    y: vk.Out[R, "lines length"],
    mean: vk.Out[A, "S"],
    scale: vk.Out[A, "S"],
    epsilon: A,
    WEIGHT: vk.Const[bool],
    BIAS: vk.Const[bool],
    CENTER: vk.Const[bool],
    STORED: vk.Const[bool],
    ITEMS: vk.Const[int],
    SIZE: vk.Const[int],
):
    """Variant of `norm_per_invocation` with one workgroup per row.

    The parameters are described in the module docstring.
    """
    wg, invocation, line = vk.workgroup(), vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0))
    length = vk.i32(x.shape[1])
    row_values, total = (), A(0)
    for i in vk.unroll(ITEMS):
        value = A(0)
        if invocation + i * SIZE < length:
            value = A(x[line, invocation + i * SIZE])
        row_values = row_values + (value,)
        total += value
    center = A(0)
    if CENTER:
        center = wg.sum(total) / A(length)
    total = A(0)
    for i in vk.unroll(ITEMS):
        distance = vk.where(invocation + i * SIZE < length, row_values[i] - center, 0)
        total += distance * distance
    factor = 1 / vk.sqrt(wg.sum(total) / A(length) + epsilon)
    for i in vk.unroll(ITEMS):
        j = invocation + i * SIZE
        if j < length:
            value = (row_values[i] - center) * factor
            if WEIGHT:
                value *= A(weight[j])
            if BIAS:
                value += A(bias[j])
            y[line, j] = R(value)
    if STORED and invocation == 0:
        mean[line] = center
        scale[line] = factor


@vk.kernel(groups=lambda g: vk.cdiv(g.shape[0], LOCAL), local=LOCAL, debug=False)
def gradient_per_invocation(
    g: vk.In[T, "lines length"],
    x: vk.In[U, "lines length"],
    mean: vk.In[A, "lines"],
    scale: vk.In[A, "lines"],
    weight: vk.In[W, "C"],
    y: vk.Out[R, "lines length"],
    WEIGHT: vk.Const[bool],
    CENTER: vk.Const[bool],
):
    """Compute y, the gradient of x, from g, the gradient of the forward kernel's output: one invocation per row.

    WEIGHT and CENTER are described in the module docstring.
    """
    line = vk.i32(vk.global_id(0))
    if line >= g.shape[0]:
        return
    length = vk.i32(g.shape[1])
    center, factor = A(0), scale[line]
    if CENTER:
        center = mean[line]
    total, product = A(0), A(0)
    for b in range(vk.cdiv(length, BLOCK)):
        part, part_product = A(0), A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, length)):
            slope = A(g[line, j])
            if WEIGHT:
                slope *= A(weight[j])
            part += slope
            part_product += slope * (A(x[line, j]) - center)
        total += part
        product += part_product
    offset, rate = total / A(length), product * factor / A(length)
    for j in range(length):
        slope = A(g[line, j])
        if WEIGHT:
            slope *= A(weight[j])
        if CENTER:
            slope -= offset
        y[line, j] = R(factor * (slope - (A(x[line, j]) - center) * factor * rate))


@vk.kernel(groups=lambda g: g.shape[0], local=lambda SIZE: SIZE, debug=False)
def gradient_per_workgroup(
    g: vk.In[T, "lines length"],
    x: vk.In[U, "lines length"],
    mean: vk.In[A, "lines"],
    scale: vk.In[A, "lines"],
    weight: vk.In[W, "C"],
    y: vk.Out[R, "lines length"],
    WEIGHT: vk.Const[bool],
    CENTER: vk.Const[bool],
    ITEMS: vk.Const[int],
    SIZE: vk.Const[int],
):
    """Variant of `gradient_per_invocation` with one workgroup per row.

    The parameters are described in the module docstring.
    """
    wg, invocation, line = vk.workgroup(), vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0))
    length = vk.i32(g.shape[1])
    center, factor = A(0), scale[line]
    if CENTER:
        center = mean[line]
    slopes, values, total, product = (), (), A(0), A(0)
    for i in vk.unroll(ITEMS):
        j = invocation + i * SIZE
        slope, value = A(0), A(0)
        if j < length:
            slope, value = A(g[line, j]), (A(x[line, j]) - center) * factor
            if WEIGHT:
                slope *= A(weight[j])
        slopes, values = slopes + (slope,), values + (value,)
        total += slope
        product += slope * value
    rate, offset = wg.sum(product) / A(length), A(0)
    if CENTER:
        offset = wg.sum(total) / A(length)
    for i in vk.unroll(ITEMS):
        j = invocation + i * SIZE
        if j < length:
            y[line, j] = R(factor * (slopes[i] - offset - values[i] * rate))
