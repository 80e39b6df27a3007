"""Softmax and normalization along rows, as tile kernels (see docs/tiles.md): a workgroup keeps a row in registers.

x and y are (R x C). SIZE, a power of two and at least C, is the padded row length (see `row_size`). Each element is
read once and written once. All arrays have the element type T. Sums are in the type ACC in the softmax kernels, and in
A, the type of eps, in the normalization kernels; their order is that of a tree reduction over the workgroup. w and b
are weight and bias. The gradients are in `tile_softmax_norm_backward`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["layer_norm", "log_softmax", "rms_norm", "row_size", "softmax"]

T = TypeVar("T", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)


def row_size(columns: int) -> int:
    """Return the smallest SIZE for rows of `columns` elements: the next power of two."""
    return 1 << max(columns - 1, 0).bit_length()


def _rows(x: Any) -> int:
    """Return the grid: one workgroup per row."""
    return int(x.shape[0])


@vk.kernel(groups=_rows, local=256)
def softmax(x: vk.In[T, "R C"], y: vk.Out[T, "R C"], SIZE: vk.Const[int], ACC: vk.Const[Any] = vk.f32) -> None:
    """y = exp(x) / sum(exp(x)) along each row; the row maximum is subtracted first, so exp doesn't overflow.

    SIZE is the padded row length, a power of two; ACC is the type of sums.
    """
    wg, r = vk.workgroup(), vk.group_id(0)
    row = ACC(wg.load(x[r, 0:SIZE], pad=-float("inf")))
    e = vk.exp(row - wg.max(row))
    wg.store(y[r, 0:SIZE], e * (1 / wg.sum(e)))


@vk.kernel(groups=_rows, local=256)
def log_softmax(x: vk.In[T, "R C"], y: vk.Out[T, "R C"], SIZE: vk.Const[int], ACC: vk.Const[Any] = vk.f32) -> None:
    """y = log(softmax(x)) along each row; the row maximum is subtracted first, so exp doesn't overflow.

    SIZE is the padded row length, a power of two; ACC is the type of sums.
    """
    wg, r = vk.workgroup(), vk.group_id(0)
    row = ACC(wg.load(x[r, 0:SIZE], pad=-float("inf")))
    row = row - wg.max(row)
    wg.store(y[r, 0:SIZE], row - vk.log(wg.sum(vk.exp(row))))


@vk.kernel(groups=_rows, local=256)
def layer_norm(
    x: vk.In[T, "R C"], w: vk.In[T, "C"], b: vk.In[T, "C"], y: vk.Out[T, "R C"], eps: A, SIZE: vk.Const[int]
) -> None:
    """y = (x - mean) / sqrt(variance + eps) * w + b along each row.

    SIZE is the padded row length, a power of two.
    """
    wg, r, n = vk.workgroup(), vk.group_id(0), A(x.shape[1])
    row = A(wg.load(x[r, 0:SIZE]))
    centered = vk.where(wg.arange(SIZE) < x.shape[1], row - wg.sum(row) / n, 0)  # 0 in the padding, not -mean
    scale = vk.rsqrt(wg.sum(centered * centered) / n + eps)
    wg.store(y[r, 0:SIZE], centered * scale * A(w[0:SIZE]) + A(b[0:SIZE]))


@vk.kernel(groups=_rows, local=256)
def rms_norm(x: vk.In[T, "R C"], w: vk.In[T, "C"], y: vk.Out[T, "R C"], eps: A, SIZE: vk.Const[int]) -> None:
    """y = x / sqrt(mean(x * x) + eps) * w along each row.

    SIZE is the padded row length, a power of two.
    """
    wg, r = vk.workgroup(), vk.group_id(0)
    row = A(wg.load(x[r, 0:SIZE]))
    scale = vk.rsqrt(wg.sum(row * row) / A(x.shape[1]) + eps)
    wg.store(y[r, 0:SIZE], row * scale * A(w[0:SIZE]))
