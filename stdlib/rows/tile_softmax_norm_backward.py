"""Gradients of the tile kernels in `tile_softmax_norm`: softmax and normalization along rows.

Matrices are (R x C). g is the gradient of the forward kernel's result y, and dx receives that of its input x. In
`softmax_gradient` and `norm_gradient`, a workgroup keeps a row in registers, padded to SIZE elements, a power of two
that is at least C. `norm_gradient` also stores the mean and `scale`, which is 1 / sqrt(variance + eps), of each row.
From these, `norm_parameter_gradients` computes the gradients of weight and bias. T is the element type of the other
arrays. Sums are in the type ACC for softmax, and in A, the type of eps, mean and scale, for normalization.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["norm_gradient", "norm_parameter_gradients", "softmax_gradient"]

T = TypeVar("T", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)


@vk.kernel(groups=lambda g: g.shape[0], local=256)
def softmax_gradient(
    g: vk.In[T, "R C"],
    y: vk.In[T, "R C"],
    dx: vk.Out[T, "R C"],
    SIZE: vk.Const[int],
    LOG: vk.Const[bool] = False,
    ACC: vk.Const[Any] = vk.f32,
) -> None:
    """dx = the gradient of x, where y = softmax(x), or with LOG y = log_softmax(x), and g is the gradient of y.

    SIZE is the padded row length, a power of two; ACC is the type of sums.
    """
    wg, r = vk.workgroup(), vk.group_id(0)
    slope, row = ACC(wg.load(g[r, 0:SIZE])), ACC(wg.load(y[r, 0:SIZE]))
    if LOG:
        result = slope - vk.exp(row) * wg.sum(slope)
    else:
        result = row * (slope - wg.sum(slope * row))
    wg.store(dx[r, 0:SIZE], result)


@vk.kernel(groups=lambda x: x.shape[0], local=256)
def norm_gradient(
    g: vk.In[T, "R C"],
    x: vk.In[T, "R C"],
    w: vk.In[T, "C"],
    dx: vk.Out[T, "R C"],
    mean: vk.Out[A, "R"],
    scale: vk.Out[A, "R"],
    eps: A,
    SIZE: vk.Const[int],
    CENTER: vk.Const[bool] = True,
) -> None:
    """dx = the gradient of x, the input of layer norm with weight w; without CENTER, of RMS norm.

    Also stores the mean (0 without CENTER) and the scale of each row. SIZE is the padded row length, a power of two.
    """
    wg, r, n = vk.workgroup(), vk.group_id(0), A(x.shape[1])
    slope, row = A(wg.load(g[r, 0:SIZE])) * A(w[0:SIZE]), A(wg.load(x[r, 0:SIZE]))
    center, inside = wg.sum(row) / n if CENTER else A(0), wg.arange(SIZE) < x.shape[1]
    row = vk.where(inside, row - center, 0)
    factor = 1 / vk.sqrt(wg.sum(row * row) / n + eps)
    row = row * factor
    projection = row * (wg.sum(slope * row) / n) + (wg.sum(slope) / n if CENTER else A(0))
    wg.store(dx[r, 0:SIZE], (slope - projection) * factor)
    if vk.local_id(0) == 0:
        mean[r], scale[r] = center, factor


@vk.kernel(groups=lambda x, BC: vk.cdiv(x.shape[1], BC), local=128)
def norm_parameter_gradients(
    g: vk.In[T, "R C"],
    x: vk.In[T, "R C"],
    mean: vk.In[A, "R"],
    scale: vk.In[A, "R"],
    dw: vk.Out[A, "C"],
    db: vk.Out[A, "C"],
    BR: vk.Const[int] = 32,
    BC: vk.Const[int] = 32,
) -> None:
    """Compute the gradients of weight and bias over all rows: dw = sum(g * (x - mean) * scale) and db = sum(g).

    A workgroup processes BC columns, in steps of BR rows.
    """
    wg, j = vk.workgroup(), vk.group_id(0) * BC
    weight, bias = wg.zeros((BR, BC), A), wg.zeros((BR, BC), A)
    for i in range(0, x.shape[0], BR):
        slope, row = A(wg.load(g[i : i + BR, j : j + BC])), A(wg.load(x[i : i + BR, j : j + BC]))
        center, factor = wg.load(mean[i : i + BR])[:, None], wg.load(scale[i : i + BR])[:, None]
        weight, bias = weight + slope * (row - center) * factor, bias + slope
    wg.store(dw[j : j + BC], wg.sum(weight, axis=0))
    wg.store(db[j : j + BC], wg.sum(bias, axis=0))
