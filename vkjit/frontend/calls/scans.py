"""Lowering of `vk.workgroup().scan` and `vk.subgroup().scan`: cumulative sums, maxima and so on across invocations.

A scan over a subgroup is an `sg_scan` operation. A scan over a workgroup also exchanges the results of its subgroups
through shared memory. Scans of tiles are in `tiles.reductions`.
"""

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
from ..values.scopes import REDUCTIONS, ScopeValue, emit, method
from .reductions import combine, emit_when, identity_element, max_subgroup_count, reduction_operand, scratch

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
    """Lower the method `scan`: dispatch by the kind of value (tile or one value per invocation) and of scope."""
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
    """Emit a scan over a workgroup: a scan over the lanes of each subgroup, then a scan over the subgroups.

    The first scan is the device's `sg_scan`, except for float sums and products, whose rounding depends on the order of
    combination: these use `_doubling_scan` with shuffles. The second scan is a `_doubling_scan` that exchanges the
    results of the subgroups' last lanes through shared memory. Float results therefore don't depend on the subgroup
    size.
    """
    b = ctx.builder
    array = scratch(ctx, node, value.type, max_subgroup_count(ctx))
    lane, subgroup, size = emit(ctx, "lane_id"), emit(ctx, "subgroup_id"), emit(ctx, "subgroup_size")
    if dtype_of_value(value).is_float and op in ("add", "mul"):
        result = _doubling_scan(
            ctx, op, value, size, lane, lambda partial, source: emit(ctx, "sg_shuffle", partial, source)
        )
    else:
        result = emit(ctx, "sg_scan", value, op=op, exclusive=False)
    is_last = b.emit("eq", lane, b.emit("sub", size, b.index(1)))

    def through_memory(partial: Value, source: Value) -> Value:
        """Return the partial result of the last lane of subgroup number `source`."""
        b.op("barrier")  # the loads of the previous exchange are done
        emit_when(ctx, is_last, lambda: b.op("store", array, subgroup, partial))
        b.op("barrier")
        return b.emit("load", array, source)

    result = _doubling_scan(ctx, op, result, emit(ctx, "num_subgroups"), subgroup, through_memory)
    if not exclusive:
        return result
    # Each invocation takes the inclusive result of its predecessor: the previous lane, or for lane 0 the last lane of
    # the previous subgroup. The predecessors of lane 0 and of subgroup 0 are clamped to 0; their values aren't used.
    from_lane = emit(ctx, "sg_shuffle", result, b.emit("max", b.emit("sub", lane, b.index(1)), b.index(0)))
    from_subgroup = through_memory(result, b.emit("max", b.emit("sub", subgroup, b.index(1)), b.index(0)))
    is_first_subgroup = b.emit("eq", subgroup, b.index(0))
    from_subgroup = b.emit("select", is_first_subgroup, _exclusive_start(ctx, op, value.type), from_subgroup)
    return b.emit("select", b.emit("eq", lane, b.index(0)), from_subgroup, from_lane)


def _doubling_scan(
    ctx: Context, op: OpName, value: Value, count: Value, own: Value, fetch: Callable[[Value, Value], Value]
) -> Value:
    """Emit an inclusive scan over `count` participants (the lanes of a subgroup, or the subgroups of a workgroup).

    `own` is the index of this participant, and `value` is its value. In the iteration with stride s, the participants
    form blocks of 2 s. Before it, the scan is complete within each half of a block. Each participant in the right half
    combines its result with that of the last participant in the left half. `fetch(partial, index)` emits the partial
    result of participant `index`; `partial` is the caller's own partial result, which others may fetch.
    """
    b = ctx.builder
    body = Region([types.INDEX, value.type], ["stride", "held"])
    with b.at(body):
        stride, partial = body.args
        leave, stay = Region(), Region()
        with b.at(leave):
            b.op("break", stride, partial)
        with b.at(stay):
            b.op("yield")
        b.op("if", b.emit("ge", stride, count), types=[], regions=[leave, stay])
        last_offset = b.emit("sub", stride, b.index(1))
        in_right_half = b.emit("ne", b.emit("and", own, stride), b.index(0))
        # stride + last_offset = 2 * stride - 1 is the bit mask of the index within a block.
        block_start = b.emit("sub", own, b.emit("and", own, b.emit("add", stride, last_offset)))
        left_value = fetch(partial, b.emit("select", in_right_half, b.emit("add", block_start, last_offset), own))
        combined = b.emit("select", in_right_half, combine(ctx, op, left_value, partial), partial)
        b.op("continue", b.emit("add", stride, stride), combined)
    return b.op("loop", b.index(1), value, types=[types.INDEX, value.type], regions=[body]).results[1]


def _exclusive_start(ctx: Context, op: OpName, type_: Type) -> Value:
    """Return an exclusive scan's result in the first invocation: the identity element, but 0.0 for float sums.

    The identity element of float sums is -0.0 (see `reductions.identity_element`).
    """
    assert isinstance(type_, Scalar | Vector)
    if op == "add" and isinstance(type_, Scalar):
        return ctx.builder.const(0.0 if type_.dtype.is_float else 0, type_)
    return identity_element(ctx, op, type_)
