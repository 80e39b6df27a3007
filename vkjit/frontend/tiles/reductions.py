"""Reductions and scans of tiles along an axis or over all elements.

Examples, with wg = `vk.workgroup()` and a tile t: `wg.sum(t, axis=1)`, `wg.argmax(t)`, `wg.cumsum(t)`. They lower to
the operations `tile_reduce`, `tile_argument` (argmin and argmax) and `tile_scan`. A reduction over all elements yields
a scalar that every invocation has. The callers are in `calls.collectives` and `calls.scans`; `tiles` describes tiles.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.ir.core import Value
from vkjit.ir.ops import OpName
from vkjit.ir.tiles import reduced_shape
from vkjit.ir.types import INDEX, Scalar, Tile

from ..context import Call, Context
from ..intrinsics import one_of
from ..kernel_values import KernelValue, describe_value, is_tile
from ..values.conversions import convert, static_value, truth
from ..values.scopes import REDUCTIONS, ScopeValue, method
from .tiles import build_tile, reshaped, tile_kind, tile_operand

__all__ = ["arg_reduce_tile", "axis_of", "reduce_tile", "scan_tile"]


def axis_of(ctx: Context, call: Call, axis: KernelValue, rank: int) -> int:
    """Return the axis as a nonnegative integer. Raises CompileError if it is out of range."""
    axis_number = static_value(axis)
    if axis_number is None or isinstance(axis_number, bool | float) or not -rank <= axis_number < rank:
        shown = describe_value(axis) if axis_number is None else repr(axis_number)
        raise ctx.error(call.node, f"axis is a number from {-rank} to {rank - 1} known at compile time, found {shown}")
    return int(axis_number) % rank


def _prepared(ctx: Context, call: Call, op: OpName, tile: Value) -> Value:
    """Convert the tile to a type that supports the operator `op`.

    For `any` and `all`, the elements become truth values. Bools become i32 for sums, products, min and max.
    """
    kind = tile_kind(tile)
    if op in ("and", "or") and kind.dtype.kind != "bool" and call_is_vote(call):
        return build_tile(ctx, [tile], kind.shape, kind.scope, lambda _at, items: _element_truth(ctx, call, items[0]))
    if op in ("add", "mul", "min", "max") and kind.dtype.kind == "bool":
        return build_tile(
            ctx, [tile], kind.shape, kind.scope, lambda _at, items: convert(ctx, call.node, items[0], dtypes.i32)
        )
    if op in ("and", "or", "xor") and kind.dtype.is_float:
        raise ctx.error(call.node, f"{op} is for integers and bools, found a tile of {kind.dtype!r}")
    return tile


def call_is_vote(call: Call) -> bool:
    """True if the call is `any` or `all`, which reduce truth values.

    The operator doesn't tell: "or" and "and" are also the bitwise operators of scans of integers.
    """
    name = getattr(call.node.func, "attr", "")
    return name in ("any", "all")


def _element_truth(ctx: Context, call: Call, element: Value) -> Value:
    """Return the truth value of a tile's element."""
    test = truth(ctx, call.node, element)
    assert isinstance(test, Value)
    return test


def reduce_tile(
    ctx: Context, call: Call, scope: ScopeValue, op: OpName, tile: Value, axis: KernelValue, keepdims: KernelValue
) -> KernelValue:
    """Reduce a tile with the operator `op` along an axis, or over all elements if `axis` is None."""
    reduced = _prepared(ctx, call, op, tile_operand(ctx, call.node, scope.kind, tile))
    rank = len(tile_kind(reduced).shape)
    if axis is not None:
        reduced = _reduce_axis(ctx, op, reduced, axis_of(ctx, call, axis, rank))
        return _apply_keepdims(ctx, call, reduced, axis, rank, keepdims)
    for axis_number in reversed(range(rank)):
        reduced = _reduce_axis(ctx, op, reduced, axis_number)
    if keepdims is True:
        return reshaped(ctx, reduced, (1,) * rank)
    # All axes are reduced: the tile has one element.
    return ctx.builder.emit("tile_get", reduced, ctx.builder.index(0), type=Scalar(tile_kind(reduced).dtype))


def _reduce_axis(ctx: Context, op: OpName, tile: Value, axis: int) -> Value:
    """Emit the reduction along one axis, to a tile without it (of shape (1,) if no axis remains)."""
    kind = tile_kind(tile)
    target = Tile(kind.dtype, reduced_shape(kind.shape, axis), kind.scope)
    return ctx.builder.emit("tile_reduce", tile, op=op, axis=axis, type=target)


def _apply_keepdims(
    ctx: Context, call: Call, tile: Value, axis: KernelValue, rank: int, keepdims: KernelValue
) -> KernelValue:
    """Apply `keepdims` to the result of a reduction along `axis` of a tile with `rank` axes.

    The reduced axis is kept with size 1 if `keepdims` is True. If no axis remains, the result is a scalar.
    """
    if not isinstance(keepdims, bool):
        raise ctx.error(call.node, "keepdims is True or False, known at compile time")
    kind = tile_kind(tile)
    if keepdims:
        if rank == 1:
            return tile  # of shape (1,)
        axis_number = axis_of(ctx, call, axis, rank)
        return reshaped(ctx, tile, (*kind.shape[:axis_number], 1, *kind.shape[axis_number:]))
    if rank == 1:
        return ctx.builder.emit("tile_get", tile, ctx.builder.index(0), type=Scalar(kind.dtype))
    return tile


def arg_reduce_tile(
    ctx: Context, call: Call, scope: ScopeValue, op: OpName, tile: Value, axis: KernelValue, keepdims: KernelValue
) -> KernelValue:
    """Emit the index of the first min (`op` is "min") or max ("max") along an axis.

    If `axis` is None, this is the C-order index of the first min or max of all elements.
    """
    operand = _prepared(ctx, call, op, tile_operand(ctx, call.node, scope.kind, tile))
    kind = tile_kind(operand)
    if axis is None:
        # Flatten the tile, so that the index along its only axis is the C-order index.
        operand = reshaped(ctx, operand, (kind.size,))
        axis = 0
        kind = tile_kind(operand)
    axis_number = axis_of(ctx, call, axis, len(kind.shape))
    target = Tile(INDEX.dtype, reduced_shape(kind.shape, axis_number), kind.scope)
    indices = ctx.builder.emit("tile_argument", operand, op=op, axis=axis_number, type=target)
    return _apply_keepdims(ctx, call, indices, axis, len(kind.shape), keepdims)


def scan_tile(ctx: Context, call: Call, scope: ScopeValue, op: OpName, tile: Value, axis: KernelValue) -> KernelValue:
    """Emit an inclusive scan of a tile with the operator `op` along an axis, by default the last one."""
    operand = _prepared(ctx, call, op, tile_operand(ctx, call.node, scope.kind, tile))
    kind = tile_kind(operand)
    axis_number = axis_of(ctx, call, -1 if axis is None else axis, len(kind.shape))
    return ctx.builder.emit(
        "tile_scan", operand, op=one_of(ctx, call, "op", op, REDUCTIONS), axis=axis_number, type=kind
    )


@method("cumsum")
def _cumsum(ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, axis: KernelValue) -> KernelValue:
    if not (isinstance(value, Value) and is_tile(value)):
        hint = "load it as a tile first: wg.load(x[0:SIZE]); one value per invocation is scanned by wg.scan"
        raise ctx.error(call.node, f"cumsum takes a tile, found {describe_value(value)}", hint)
    return scan_tile(ctx, call, scope, "add", value, axis)
