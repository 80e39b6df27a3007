"""Functions of single elements, applied to values that are spread: lazy slices and tiles.

Enters: a function and its operands. Leaves: a tile if one operand is a tile, else a lazy value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from ..ir.core import Value
from ..ir.types import Tile
from .context import Context, Place
from .lazy import map_lazy
from .values import KernelValue, Lazy

__all__ = ["is_spread", "map_elements"]


def is_tile(value: KernelValue) -> TypeGuard[Value]:
    """Whether the value is a tile."""
    return isinstance(value, Value) and isinstance(value.type, Tile)


def is_spread(value: KernelValue) -> bool:
    """Whether the value has elements to which functions apply one by one."""
    return isinstance(value, Lazy) or is_tile(value)


def map_elements(
    ctx: Context, node: Place, function: Callable[..., KernelValue], values: list[KernelValue]
) -> KernelValue:
    """The function (context, elements...) of values, some of them spread."""
    if any(map(is_tile, values)):
        from .tiles import map_tiles

        return map_tiles(ctx, node, function, values)
    return map_lazy(ctx, node, function, values)
