"""Batched matrix transpose on tiles, with coalesced loads and stores: x (B x M x N) to y (B x N x M)."""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["transpose"]

T = TypeVar("T", bound=vk.Element)


def _groups(x: Any, TILE: int) -> tuple[int, int, int]:
    return vk.cdiv(x.shape[2], TILE), vk.cdiv(x.shape[1], TILE), x.shape[0]


@vk.kernel(groups=_groups, local=64)
def transpose(x: vk.In[T, "B M N"], y: vk.Out[T, "B N M"], TILE: vk.Const[int] = 32) -> None:
    """y = x with its last two axes swapped."""
    wg, b, i, j = vk.workgroup(), vk.group_id(2), vk.group_id(1) * TILE, vk.group_id(0) * TILE
    wg.store(y[b, j : j + TILE, i : i + TILE], wg.load(x[b, i : i + TILE, j : j + TILE]).T)
