"""Lowering of `wg.scan` and `sg.scan`: `sg_scan` within a subgroup, and shared memory across subgroups."""

from __future__ import annotations

import ast
from collections.abc import Callable

from vkjit.ir import types
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName, op_name
from vkjit.ir.types import Scalar, Type, Vector

from ..context import Call, Context
from ..intrinsics import one_of
from ..kernel_values import KernelValue, is_tile
from ..tiles.reductions import scan_tile
from ..values.conversions import dtype_of_value
from ..values.scopes import REDUCTIONS, ScopeValue, emit, invocations, method
from .reductions import MIN_SUBGROUP_SIZE, combine, emit_when, identity_element, reduction_operand, scratch

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
    name = op_name(one_of(ctx, call, "op", op, REDUCTIONS))
    if not isinstance(exclusive, bool):
        raise ctx.error(call.node, "exclusive is True or False, known at compile time")
    if is_tile(value):
        if exclusive:
            raise ctx.error(call.node, "scans of tiles are inclusive", "take the element off again, as in s - t")
        return scan_tile(ctx, call, scope, name, value, axis)
    if axis is not None:
        raise ctx.error(call.node, "axis is for tiles, whose sizes are known at compile time")
    operand = reduction_operand(ctx, call, name, value)
    if scope.kind == "subgroup":
        return emit(ctx, "sg_scan", operand, op=name, exclusive=exclusive)
    return _scan_workgroup(ctx, call.node, name, operand, exclusive=exclusive)


def _scan_workgroup(ctx: Context, node: ast.AST, op: OpName, value: Value, *, exclusive: bool) -> Value:
    """Emit a workgroup scan over blocks of doubling size: the right half of each block takes in the last value of the
    left half.

    Within a subgroup it uses shuffles for float sums and products, whose result depends on the order, and the native
    scan otherwise. The last values of the subgroups are then exchanged through shared memory. The order of combination
    doesn't depend on the subgroup size.
    """
    b = ctx.builder
    array = scratch(ctx, node, value.type, max(1, -(-invocations(ctx) // MIN_SUBGROUP_SIZE)))
    lane, group, size = emit(ctx, "lane_id"), emit(ctx, "subgroup_id"), emit(ctx, "subgroup_size")
    if dtype_of_value(value).is_float and op in ("add", "mul"):
        result = _doubling(ctx, op, value, size, lane, lambda partial, source: emit(ctx, "sg_shuffle", partial, source))
    else:
        result = emit(ctx, "sg_scan", value, op=op, exclusive=False)
    is_last = b.emit("eq", lane, b.emit("sub", size, b.index(1)))

    def through_memory(partial: Value, source: Value) -> Value:
        b.op("barrier")
        emit_when(ctx, is_last, lambda: b.op("store", array, group, partial))
        b.op("barrier")
        return b.emit("load", array, source)

    result = _doubling(ctx, op, result, emit(ctx, "num_subgroups"), group, through_memory)
    if not exclusive:
        return result
    previous_lane = emit(ctx, "sg_shuffle", result, b.emit("max", b.emit("sub", lane, b.index(1)), b.index(0)))
    previous_subgroup = through_memory(result, b.emit("max", b.emit("sub", group, b.index(1)), b.index(0)))
    is_first_subgroup = b.emit("eq", group, b.index(0))
    previous_subgroup = b.emit("select", is_first_subgroup, _exclusive_start(ctx, op, value.type), previous_subgroup)
    return b.emit("select", b.emit("eq", lane, b.index(0)), previous_subgroup, previous_lane)


def _doubling(
    ctx: Context, op: OpName, value: Value, count: Value, own: Value, fetch: Callable[[Value, Value], Value]
) -> Value:
    """Scan over `count` participants, of which this one has index `own`.

    `fetch(partial, index)` returns the partial result of participant `index`, given this one's.
    """
    b = ctx.builder
    body = Region([types.INDEX, value.type], ["stride", "held"])
    with b.at(body):
        stride, partial = body.args
        go, stay = Region(), Region()
        with b.at(go):
            b.op("break", stride, partial)
        with b.at(stay):
            b.op("yield")
        b.op("if", b.emit("ge", stride, count), types=[], regions=[go, stay])
        low = b.emit("sub", stride, b.index(1))
        right = b.emit("ne", b.emit("and", own, stride), b.index(0))
        start = b.emit("sub", own, b.emit("and", own, b.emit("add", stride, low)))
        left_value = fetch(partial, b.emit("select", right, b.emit("add", start, low), own))
        taken = b.emit("select", right, combine(ctx, op, left_value, partial), partial)
        b.op("continue", b.emit("add", stride, stride), taken)
    return b.op("loop", b.index(1), value, types=[types.INDEX, value.type], regions=[body]).results[1]


def _exclusive_start(ctx: Context, op: OpName, type_: Type) -> Value:
    """Return an exclusive scan's result in the first invocation: the identity element, but 0 and not -0.0 for sums."""
    assert isinstance(type_, Scalar | Vector)
    if op == "add" and isinstance(type_, Scalar):
        return ctx.builder.const(0.0 if type_.dtype.is_float else 0, type_)
    return identity_element(ctx, op, type_)
