"""Reductions and scans of tiles along an axis, or over all elements.

Enters: `wg.sum(t, axis=1)`, `wg.argmax(t)`, `wg.cumsum(t, axis=0)`. Leaves: `tile_reduce`, `tile_argument`, `tile_scan`; a
reduction over all elements ends in a scalar that every invocation has.
"""

from __future__ import annotations

from .. import dtypes
from ..ir.core import Value
from ..ir.tiles import reduced_shape
from ..ir.types import INDEX, Scalar, Tile
from .collectives import REDUCTIONS, ScopeValue, method
from .context import Call, Context
from .conversions import convert, static_value, truth
from .elementwise import is_tile
from .memory import one_of
from .tiles import built, tile_kind, tile_operand
from .values import KernelValue, describe_value

__all__ = ["axis_of", "reduce_tile", "scan_tile", "tile_argument"]


def axis_of(ctx: Context, call: Call, axis: KernelValue, rank: int) -> int:
    """The axis as a number from 0; CompileError where there is none such."""
    number = static_value(axis)
    if number is None or isinstance(number, bool | float) or not -rank <= number < rank:
        shown = describe_value(axis) if number is None else repr(number)
        raise ctx.error(call.node, f"axis is a number from {-rank} to {rank - 1} known at compile time, found {shown}")
    return int(number) % rank


def _prepared(ctx: Context, call: Call, op: str, tile: Value) -> Value:
    """The tile in a type that has the reduction."""
    kind = tile_kind(tile)
    if op in ("and", "or") and kind.dtype.kind != "bool" and call_is_vote(call):
        return built(ctx, [tile], kind.shape, kind.scope, lambda _at, items: _true(ctx, call, items[0]))
    if op in ("add", "mul", "min", "max") and kind.dtype.kind == "bool":
        to_i32 = dtypes.i32
        return built(ctx, [tile], kind.shape, kind.scope, lambda _at, items: convert(ctx, call.node, items[0], to_i32))
    if op in ("and", "or", "xor") and kind.dtype.is_float:
        raise ctx.error(call.node, f"{op} is for integers and bools, found a tile of {kind.dtype!r}")
    return tile


def call_is_vote(call: Call) -> bool:
    """Whether the call is `any` or `all`, which look at truth."""
    name = getattr(call.node.func, "attr", "")
    return name in ("any", "all")


def _true(ctx: Context, call: Call, element: Value) -> Value:
    found = truth(ctx, call.node, element)
    assert isinstance(found, Value)
    return found


def reduce_tile(
    ctx: Context, call: Call, scope: ScopeValue, op: str, tile: Value, axis: KernelValue, keepdims: KernelValue
) -> KernelValue:
    """The reduction along an axis, or over all elements."""
    made = _prepared(ctx, call, op, tile_operand(ctx, call.node, scope.kind, tile))
    rank = len(tile_kind(made).shape)
    if axis is not None:
        return _kept(ctx, call, _along(ctx, op, made, axis_of(ctx, call, axis, rank)), axis, rank, keepdims)
    for number in reversed(range(rank)):
        made = _along(ctx, op, made, number)
    if keepdims is True:
        return _reshaped(ctx, made, (1,) * rank)
    return ctx.builder.emit("tile_get", made, ctx.builder.index(0), type=Scalar(tile_kind(made).dtype))


def _along(ctx: Context, op: str, tile: Value, axis: int) -> Value:
    kind = tile_kind(tile)
    target = Tile(kind.dtype, reduced_shape(kind.shape, axis), kind.scope)
    return ctx.builder.emit("tile_reduce", tile, op=op, axis=axis, type=target)


def _kept(ctx: Context, call: Call, tile: Value, axis: KernelValue, rank: int, keepdims: KernelValue) -> KernelValue:
    """The result, with the axis of size 1 where it is to stay; a number where nothing else is left."""
    if not isinstance(keepdims, bool):
        raise ctx.error(call.node, "keepdims is True or False, known at compile time")
    kind = tile_kind(tile)
    if keepdims:
        if rank == 1:
            return tile
        number = axis_of(ctx, call, axis, rank)
        return _reshaped(ctx, tile, (*kind.shape[:number], 1, *kind.shape[number:]))
    if rank == 1:
        return ctx.builder.emit("tile_get", tile, ctx.builder.index(0), type=Scalar(kind.dtype))
    return tile


def _reshaped(ctx: Context, tile: Value, shape: tuple[int, ...]) -> Value:
    kind = tile_kind(tile)
    if kind.shape == shape:
        return tile
    return ctx.builder.emit("tile_reshape", tile, type=Tile(kind.dtype, shape, kind.scope))


def tile_argument(
    ctx: Context, call: Call, scope: ScopeValue, op: str, tile: Value, axis: KernelValue, keepdims: KernelValue
) -> KernelValue:
    """The least position of the extremum along an axis, or in C order of all elements."""
    made = _prepared(ctx, call, op, tile_operand(ctx, call.node, scope.kind, tile))
    kind = tile_kind(made)
    if axis is None:
        made, axis = _reshaped(ctx, made, (kind.size,)), 0
        kind = tile_kind(made)
    number = axis_of(ctx, call, axis, len(kind.shape))
    target = Tile(INDEX.dtype, reduced_shape(kind.shape, number), kind.scope)
    found = ctx.builder.emit("tile_argument", made, op=op, axis=number, type=target)
    return _kept(ctx, call, found, axis, len(kind.shape), keepdims)


def scan_tile(ctx: Context, call: Call, scope: ScopeValue, op: str, tile: Value, axis: KernelValue) -> KernelValue:
    """The combinations of all elements up to each one, along an axis."""
    made = _prepared(ctx, call, op, tile_operand(ctx, call.node, scope.kind, tile))
    kind = tile_kind(made)
    number = axis_of(ctx, call, -1 if axis is None else axis, len(kind.shape))
    return ctx.builder.emit("tile_scan", made, op=one_of(ctx, call, "op", op, REDUCTIONS), axis=number, type=kind)


@method("cumsum")
def _cumsum(ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, axis: KernelValue) -> KernelValue:
    if not (isinstance(value, Value) and is_tile(value)):
        hint = "hold it first: wg.load(x[0:SIZE]); one value per invocation is scanned by wg.scan"
        raise ctx.error(call.node, f"cumsum takes a tile, found {describe_value(value)}", hint)
    return scan_tile(ctx, call, scope, "add", value, axis)
