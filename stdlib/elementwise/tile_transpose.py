"""Batched matrix transpose in the tile language, with coalesced loads and stores: x (B, M, N) to y (B, N, M).

The tensor operations don't use it: they transpose by `transpose.try_transposing_copy`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["transpose"]

T = TypeVar("T", bound=vk.Element)


def _groups(x: Any, TILE: int) -> tuple[int, int, int]:
    """Return the grid: one workgroup per tile of x, with the columns of tiles along the grid's first axis."""
    return vk.cdiv(x.shape[2], TILE), vk.cdiv(x.shape[1], TILE), x.shape[0]


@vk.kernel(groups=_groups, local=64)
def transpose(x: vk.In[T, "B M N"], y: vk.Out[T, "B N M"], TILE: vk.Const[int] = 32) -> None:
    """y = x with its last two axes swapped; each workgroup transposes one tile of TILE x TILE elements."""
    wg, b, i, j = vk.workgroup(), vk.group_id(2), vk.group_id(1) * TILE, vk.group_id(0) * TILE
    wg.store(y[b, j : j + TILE, i : i + TILE], wg.load(x[b, i : i + TILE, j : j + TILE]).T)
