"""Scans over a subgroup or a workgroup.

Enters: `wg.scan(x, "add")`. Leaves: `sg_scan`, and shared memory beyond a subgroup.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..ir import types
from ..ir.core import Region, Value
from ..ir.types import Scalar, Type, Vector
from .collectives import (
    REDUCTIONS,
    SMALLEST_SUBGROUP,
    ScopeValue,
    combine,
    emit,
    invocations,
    method,
    neutral,
    prepared,
    scratch,
    tiles_reduce,
    when,
)
from .context import Call, Context
from .conversions import dtype_of_value
from .elementwise import is_tile
from .memory import one_of
from .values import KernelValue

__all__: list[str] = []


@method("scan")
def _scan(
    ctx: Context,
    call: Call,
    scope: ScopeValue,
    value: KernelValue,
    op: KernelValue,
    *,
    exclusive: KernelValue,
    axis: KernelValue,
) -> KernelValue:
    name = one_of(ctx, call, "op", op, REDUCTIONS)
    if not isinstance(exclusive, bool):
        raise ctx.error(call.node, "exclusive is True or False, known at compile time")
    if is_tile(value):
        if exclusive:
            raise ctx.error(call.node, "scans of tiles are inclusive", "take the element off again, as in s - t")
        return tiles_reduce().scan_tile(ctx, call, scope, name, value, axis)
    if axis is not None:
        raise ctx.error(call.node, "axis is for tiles, whose sizes are known at compile time")
    made = prepared(ctx, call, name, value)
    if scope.kind == "subgroup":
        return emit(ctx, "sg_scan", made, op=name, exclusive=exclusive)
    return _scan_workgroup(ctx, call.node, name, made, exclusive=exclusive)


def _scan_workgroup(ctx: Context, node: ast.AST, op: str, value: Value, *, exclusive: bool) -> Value:
    """Blocks of doubling size: the right half of each takes in the last value of the left half.

    Within a subgroup the exchange is by shuffles (where the order shows: sums and products of floats) or a native
    scan, then the last values of the subgroups go through shared memory. The order doesn't depend on the subgroup's
    size.
    """
    b = ctx.builder
    array = scratch(ctx, node, value.type, max(1, -(-invocations(ctx) // SMALLEST_SUBGROUP)))
    lane, group, size = emit(ctx, "lane_id"), emit(ctx, "subgroup_id"), emit(ctx, "subgroup_size")
    if dtype_of_value(value).is_float and op in ("add", "mul"):
        result = _doubling(ctx, op, value, size, lane, lambda held, source: emit(ctx, "sg_shuffle", held, source))
    else:
        result = emit(ctx, "sg_scan", value, op=op, exclusive=False)
    is_last = b.emit("eq", lane, b.emit("sub", size, b.index(1)))

    def through_memory(held: Value, source: Value) -> Value:
        b.op("barrier")
        when(ctx, is_last, lambda: b.op("store", array, group, held))
        b.op("barrier")
        return b.emit("load", array, source)

    result = _doubling(ctx, op, result, emit(ctx, "num_subgroups"), group, through_memory)
    if not exclusive:
        return result
    before = emit(ctx, "sg_shuffle", result, b.emit("max", b.emit("sub", lane, b.index(1)), b.index(0)))
    other = through_memory(result, b.emit("max", b.emit("sub", group, b.index(1)), b.index(0)))
    first = b.emit("eq", group, b.index(0))
    other = b.emit("select", first, _empty(ctx, op, value.type), other)
    return b.emit("select", b.emit("eq", lane, b.index(0)), other, before)


def _doubling(
    ctx: Context, op: str, value: Value, count: Value, own: Value, fetch: Callable[[Value, Value], Value]
) -> Value:
    """Scans over `count` holders, of which this is number `own`: `fetch(held, number)` is what that holder has."""
    b = ctx.builder
    body = Region([types.INDEX, value.type], ["stride", "held"])
    with b.at(body):
        stride, held = body.args
        go, stay = Region(), Region()
        with b.at(go):
            b.op("break", stride, held)
        with b.at(stay):
            b.op("yield")
        b.op("if", b.emit("ge", stride, count), types=[], regions=[go, stay])
        low = b.emit("sub", stride, b.index(1))
        right = b.emit("ne", b.emit("and", own, stride), b.index(0))
        start = b.emit("sub", own, b.emit("and", own, b.emit("add", stride, low)))
        other = fetch(held, b.emit("select", right, b.emit("add", start, low), own))
        taken = b.emit("select", right, combine(ctx, op, other, held), held)
        b.op("continue", b.emit("add", stride, stride), taken)
    return b.op("loop", b.index(1), value, types=[types.INDEX, value.type], regions=[body]).results[1]


def _empty(ctx: Context, op: str, type_: Type) -> Value:
    """What an exclusive scan gives the first invocation: 0 for sums."""
    assert isinstance(type_, Scalar | Vector)
    if op == "add" and isinstance(type_, Scalar):
        return ctx.builder.const(0.0 if type_.dtype.is_float else 0, type_)
    return neutral(ctx, op, type_)
