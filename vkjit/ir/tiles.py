"""Verification of operations on tiles, beyond their signatures in the op table, and rules for the shapes of results.

`signature` calls `tile_errors`. The checks return lists of errors, empty for valid operations. All tiles of an
operation must have the same scope. The region of a `tile_map` or `tile_each` takes and yields single elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .core import Op
from .ops import OpName
from .types import INDEX, Array, Scalar, Tile

__all__ = ["MAX_RANK", "broadcast_shape", "permutation", "reduced_shape", "tile_errors"]

MAX_RANK = 4
"""The maximum number of axes of a tile."""


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the common shape to which the given shapes broadcast by NumPy's rules; None if they don't broadcast."""
    rank = max(map(len, shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def reduced_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return the shape of a reduction along `axis`: the shape without the axis, or (1,) if no axis remains."""
    return (*shape[:axis], *shape[axis + 1 :]) or (1,)


def tile_errors(op: Op) -> list[str]:
    """Return the errors of an operation on tiles."""
    tiles = [value.type for value in (*op.operands, *op.results) if isinstance(value.type, Tile)]
    if len({tile.scope for tile in tiles}) > 1:
        return ["tiles of a workgroup and of a subgroup don't go together"]
    for tile in tiles:
        if not 1 <= len(tile.shape) <= MAX_RANK or min(tile.shape) < 1 or tile.scope not in ("workgroup", "subgroup"):
            return [f"{tile}: expected 1 to {MAX_RANK} axes of at least one element, and a scope"]
    return _CHECKS[op.name](op)


def permutation(op: Op) -> tuple[int, ...]:
    """Return the attribute `axes` of a `tile_transpose` as a tuple of ints.

    The type of the attribute allows None for an axis, but only `tile_load` and `tile_store` use it.
    """
    return tuple(axis for axis in op.attrs["axes"] if axis is not None)


def _tile(op: Op, position: int = 0) -> Tile | None:
    """Return the type of the operand at `position` if it is a tile, else None."""
    operand_type = op.operands[position].type if position < len(op.operands) else None
    return operand_type if isinstance(operand_type, Tile) else None


def _region_errors(op: Op) -> list[str]:
    """Check a `tile_map` or `tile_each`."""
    tiles = [value.type for value in op.operands if isinstance(value.type, Tile)]
    if len(tiles) != len(op.operands):
        return ["the operands have to be tiles; the region sees everything else by itself"]
    # a `tile_map` has the shape of its result, a `tile_each` that of its first operand
    result = op.results[0].type if op.results else None
    shape: tuple[int, ...] = ()
    if isinstance(result, Tile):
        shape = result.shape
    elif tiles:
        shape = tiles[0].shape
    if broadcast_shape([shape, *(t.shape for t in tiles)]) != shape:
        return [f"the operands don't broadcast to {shape}"]
    expected = [INDEX] * len(shape) + [Scalar(t.dtype) for t in tiles]
    if [a.type for a in op.regions[0].args] != expected:
        return [f"the region's arguments are not ({', '.join(map(str, expected))})"]
    terminator = op.regions[0].ops[-1] if op.regions[0].ops else None
    yields = [v.type for v in terminator.operands] if terminator is not None else []
    expected_yield = [Scalar(result.dtype)] if isinstance(result, Tile) else []
    return [] if yields == expected_yield else [f"the region has to yield ({', '.join(map(str, expected_yield))})"]


def _access_errors(op: Op) -> list[str]:
    """Check a `tile_load` or `tile_store`."""
    array = op.operands[0].type
    if not isinstance(array, Array):
        return [f"operand 0 has type {array}, expected an array"]
    tile = op.attrs["type"] if op.name == "tile_load" else op.operands[-1].type
    axes = op.attrs["axes"]
    if not isinstance(tile, Tile) or tile.dtype is not array.dtype or not isinstance(array.element, Scalar):
        return [f"{tile} doesn't hold elements of {array}"]
    if len(axes) != array.rank or sorted(a for a in axes if a is not None) != list(range(len(tile.shape))):
        return [f"attribute axes is {axes}: expected each axis of {tile} once"]
    # the array, starts, lengths, and a padding value or tile
    if len(op.operands) != 2 + array.rank + len(tile.shape):
        return [f"expected {2 + array.rank + len(tile.shape)} operands, found {len(op.operands)}"]
    if any(v.type != INDEX for v in op.operands[1:-1]):
        return ["starts and lengths have to be of type index"]
    if op.name == "tile_store":
        return ["an `in` array can't be written"] if array.access == "in" else []
    return [] if op.operands[-1].type == Scalar(tile.dtype) else [f"{op.operands[-1].type} isn't an element of {tile}"]


def _axis_errors(op: Op) -> list[str]:
    """Check a `tile_reduce`, `tile_argument` or `tile_scan`."""
    tile, target = _tile(op), op.attrs["type"]
    if tile is None or not isinstance(target, Tile):
        return ["operand and result have to be tiles"]
    shape = tile.shape if op.name == "tile_scan" else reduced_shape(tile.shape, op.attrs["axis"])
    if op.name == "tile_argument":
        return [] if target.shape == shape and Scalar(target.dtype) == INDEX else [f"the result is {target}"]
    return [] if target == Tile(tile.dtype, shape, tile.scope) else [f"the result is {target}, expected shape {shape}"]


def _product_errors(op: Op) -> list[str]:
    """Check a `tile_mma`."""
    a, b, acc = _tile(op, 0), _tile(op, 1), _tile(op, 2)
    if a is None or b is None or acc is None or {len(t.shape) for t in (a, b, acc)} != {2}:
        return ["the operands of a product are tiles with two axes"]
    if (a.shape[0], b.shape[1], a.shape[1]) != (*acc.shape, b.shape[0]):
        return [f"{a}, {b} and {acc} don't go together"]
    return [] if op.attrs["type"] == acc else [f"the result is {op.attrs['type']}, expected {acc}"]


def _reshape_errors(op: Op) -> list[str]:
    """Check a `tile_reshape`."""
    tile, target = _tile(op), op.attrs["type"]
    fits = tile is not None and isinstance(target, Tile) and target.size == tile.size and target.dtype is tile.dtype
    return [] if fits else [f"can't reshape to {target}"]


def _transpose_errors(op: Op) -> list[str]:
    """Check a `tile_transpose`."""
    tile, target, axes = _tile(op), op.attrs["type"], permutation(op)
    if tile is None or sorted(axes) != list(range(len(tile.shape))):
        return [f"attribute axes is {op.attrs['axes']}: expected each axis once"]
    expected = Tile(tile.dtype, tuple(tile.shape[a] for a in axes), tile.scope)
    return [] if target == expected else [f"the result is {target}, expected {expected}"]


def _get_errors(op: Op) -> list[str]:
    """Check a `tile_get`."""
    tile = _tile(op)
    if tile is None or len(op.operands) != 1 + len(tile.shape) or any(v.type != INDEX for v in op.operands[1:]):
        return ["expected a tile and one index for each of its axes"]
    return [] if op.attrs["type"] == Scalar(tile.dtype) else [f"the result is {op.attrs['type']}"]


_CHECKS: dict[OpName, Callable[[Op], list[str]]] = {
    "tile_map": _region_errors,
    "tile_each": _region_errors,
    "tile_load": _access_errors,
    "tile_store": _access_errors,
    "tile_reduce": _axis_errors,
    "tile_argument": _axis_errors,
    "tile_scan": _axis_errors,
    "tile_mma": _product_errors,
    "tile_reshape": _reshape_errors,
    "tile_transpose": _transpose_errors,
    "tile_get": _get_errors,
}
