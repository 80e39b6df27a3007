"""Tile kernels of the `tiles` benchmark group that the standard library doesn't have."""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["add", "copy", "partial_sums", "transpose"]

T = TypeVar("T", bound=vk.Element)


def parts(x: Any, SPAN: int) -> int:
    """Return the number of workgroups for the segments of a vector."""
    return int(vk.cdiv(x.shape[0], SPAN))


def blocks(x: Any, SPAN: int) -> tuple[int, int]:
    """Return the grid for the blocks of a matrix."""
    return vk.cdiv(x.shape[1], SPAN), vk.cdiv(x.shape[0], SPAN)


@vk.kernel(groups=parts, local=256)
def add(x: vk.In[T, "N"], y: vk.In[T, "N"], z: vk.Out[T, "N"], SPAN: vk.Const[int] = 4096) -> None:
    """z = x + y."""
    wg, i = vk.workgroup(), vk.group_id(0) * SPAN
    wg.store(z[i : i + SPAN], wg.load(x[i : i + SPAN]) + wg.load(y[i : i + SPAN]))


@vk.kernel(groups=parts, local=256)
def copy(x: vk.In[T, "N"], y: vk.Out[T, "N"], SPAN: vk.Const[int] = 4096) -> None:
    """y = x."""
    wg, i = vk.workgroup(), vk.group_id(0) * SPAN
    wg.store(y[i : i + SPAN], wg.load(x[i : i + SPAN]))


@vk.kernel(groups=parts, local=256)
def partial_sums(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "G"], SPAN: vk.Const[int] = 16384) -> None:
    """y[g] = sum of segment g."""
    wg, g = vk.workgroup(), vk.group_id(0)
    i = g * SPAN
    wg.store(y[g : g + 1], wg.sum(wg.load(x[i : i + SPAN]), axis=0, keepdims=True))


@vk.kernel(groups=blocks, local=256)
def transpose(x: vk.In[T, "M N"], y: vk.Out[T, "N M"], SPAN: vk.Const[int] = 64) -> None:
    """y = x.T."""
    wg, i, j = vk.workgroup(), vk.group_id(1) * SPAN, vk.group_id(0) * SPAN
    wg.store(y[j : j + SPAN, i : i + SPAN], wg.load(x[i : i + SPAN, j : j + SPAN]).T)
