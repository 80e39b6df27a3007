"""Mapping of scalar functions over the elements of lazy slices (`values.lazy`) and tiles (`tiles.tiles`).

Used for operators and for calls of elementwise functions.
"""

from __future__ import annotations

from collections.abc import Callable

from ..context import Context, Place
from ..kernel_values import KernelValue, Lazy, is_tile
from ..tiles.tiles import map_tiles
from ..values.lazy import map_lazy

__all__ = ["is_mapped", "map_elements"]


def is_mapped(value: KernelValue) -> bool:
    """True if the value is a tile or a lazy slice, over whose elements functions are mapped."""
    return isinstance(value, Lazy) or is_tile(value)


def map_elements(
    ctx: Context, node: Place, function: Callable[..., KernelValue], values: list[KernelValue]
) -> KernelValue:
    """Map `function(context, *elements)` over values of which at least one is a lazy slice or a tile.

    The result is a tile if an operand is a tile, else a lazy value.
    """
    if any(map(is_tile, values)):
        return map_tiles(ctx, node, function, values)
    return map_lazy(ctx, node, function, values)
