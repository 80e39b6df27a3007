"""Gradients of softmax and normalization along rows, on tiles: a workgroup keeps a row in registers.

Matrices are (R x C), C <= SIZE, SIZE a power of two; g is the gradient of a result of `tile_softmax_norm`. The kernels compute
the gradient of the input. `norm_gradient` also stores the mean and 1 / standard deviation of each row, from which
`norm_parameter_gradients` computes the gradients of weight and bias: sums over all rows, one block of columns per workgroup.
Sums are in the type of eps, mean and scale (of softmax in ACC).
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
    """dx = the gradient of x from g, the gradient of y = softmax(x), or with LOG of y = log_softmax(x)."""
    wg, r = vk.workgroup(), vk.group_id(0)
    slope, row = ACC(wg.load(g[r, 0:SIZE])), ACC(wg.load(y[r, 0:SIZE]))
    if LOG:
        found = slope - vk.exp(row) * wg.sum(slope)
    else:
        found = row * (slope - wg.sum(slope * row))
    wg.store(dx[r, 0:SIZE], found)


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
    """dx = the gradient of x from g, the gradient of layer norm, or without CENTER of RMS norm; also each row's mean
    and scale.
    """
    wg, r, n = vk.workgroup(), vk.group_id(0), A(x.shape[1])
    slope, row = A(wg.load(g[r, 0:SIZE])) * A(w[0:SIZE]), A(wg.load(x[r, 0:SIZE]))
    middle, inside = wg.sum(row) / n if CENTER else A(0), wg.arange(SIZE) < x.shape[1]
    row = vk.where(inside, row - middle, 0)
    factor = 1 / vk.sqrt(wg.sum(row * row) / n + eps)
    row = row * factor
    rest = row * (wg.sum(slope * row) / n) + (wg.sum(slope) / n if CENTER else A(0))
    wg.store(dx[r, 0:SIZE], (slope - rest) * factor)
    if vk.local_id(0) == 0:
        mean[r], scale[r] = middle, factor


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
    """Gradients of weight and bias: the sums over all rows of g times the normalized x, and of g."""
    wg, j = vk.workgroup(), vk.group_id(0) * BC
    weight, bias = wg.zeros((BR, BC), A), wg.zeros((BR, BC), A)
    for i in range(0, x.shape[0], BR):
        slope, row = A(wg.load(g[i : i + BR, j : j + BC])), A(wg.load(x[i : i + BR, j : j + BC]))
        middle, factor = wg.load(mean[i : i + BR])[:, None], wg.load(scale[i : i + BR])[:, None]
        weight, bias = weight + slope * (row - middle) * factor, bias + slope
    wg.store(dw[j : j + BC], wg.sum(weight, axis=0))
    wg.store(db[j : j + BC], wg.sum(bias, axis=0))
