"""Reductions of one value per invocation over a workgroup or subgroup, and their operators.

Each subgroup reduces its values by an `sg_reduce` operation. For a workgroup, the results of the subgroups are
exchanged through shared memory and reduced in the same way. The order of combination is fixed: adjacent subgroups are
combined first, as if the subgroup were larger. `collectives`, `lazy_collectives` and `scans` use these functions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir import types
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array, Scalar, Type, Vector

from ..context import Call, Context
from ..kernel_values import KernelValue, describe_value
from ..values.conversions import convert, dtype_of_value, materialize, splat
from ..values.scopes import emit, invocations

__all__ = [
    "NO_INDEX",
    "combine",
    "emit_when",
    "identity_element",
    "index_of_extremum",
    "max_subgroup_count",
    "reduce_value",
    "reduction_operand",
    "scratch",
]

MIN_SUBGROUP_SIZE = 4
"""The minimum subgroup size of any device. It bounds the number of subgroups in a workgroup."""
MAX_SUBGROUP_SIZE = 128
"""The maximum subgroup size of any device, a multiple of all others."""
NO_INDEX = 2**63 - 1
"""The index that stands for "no element". It is the largest `index`, so every element's index is less."""


def combine(ctx: Context, op: OpName, a: Value, b: Value) -> Value:
    """Combine two values with a reduction operator, such as "add"."""
    return ctx.builder.emit(op, a, b)


def identity_element(ctx: Context, op: OpName, type_: Type) -> Value:
    """Return the identity element of a reduction operator for values of a type.

    For float sums it is -0.0, because adding 0.0 turns -0.0 into 0.0.
    """
    assert isinstance(type_, Scalar | Vector)
    dtype = type_.dtype
    scalar = ctx.builder.const(_identity_number(op, dtype), dtype)
    return splat(ctx, scalar, type_.size) if isinstance(type_, Vector) else scalar


def _identity_number(op: OpName, dtype: DType) -> bool | int | float:
    """Return the identity element of a reduction operator as a Python number."""
    if dtype.kind == "bool":
        return op == "and"
    if dtype.is_float:
        return {"add": -0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}[op]
    if dtype.kind == "uint":
        low, high = 0, 2**dtype.bits - 1
    else:
        low, high = -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    ones = -1 if dtype.is_signed else high  # all bits are set
    identities: dict[OpName, int] = {"add": 0, "mul": 1, "min": high, "max": low, "and": ones, "or": 0, "xor": 0}
    return identities[op]


def reduction_operand(ctx: Context, call: Call, op: OpName, value: KernelValue) -> Value:
    """Convert a value to a type that supports the reduction: bool to i32 for sums, products, min and max."""
    operand = materialize(ctx, call.node, value)
    dtype = dtype_of_value(operand)
    if op in ("add", "mul", "min", "max") and dtype.kind == "bool":
        return convert(ctx, call.node, operand, dtypes.i32)
    if op in ("and", "or", "xor") and dtype.is_float:
        raise ctx.error(call.node, f"{op} is for integers and bools, found {describe_value(operand)}")
    return operand


def reduce_value(ctx: Context, node: ast.AST, kind: str, op: OpName, value: Value, label: str = "") -> Value:
    """Reduce one value per invocation over a scope; every invocation gets the result.

    `kind` is the scope's kind, "workgroup" or "subgroup". `label` distinguishes the scratch arrays of several
    reductions at one node.
    """
    inner = emit(ctx, "sg_reduce", value, op=op)
    if kind == "subgroup":
        return inner
    # Each subgroup reduces the same values, so the result is workgroup-uniform; the uniformity analysis can't see that.
    return emit(ctx, "assume_uniform", _reduce_across_subgroups(ctx, node, op, inner, label))


def _reduce_across_subgroups(ctx: Context, node: ast.AST, op: OpName, value: Value, label: str) -> Value:
    """Reduce one value per subgroup over the workgroup, by repeated subgroup reductions through shared memory.

    The values, one per subgroup, are stored to an array. Each iteration of a loop replaces the elements by fewer ones,
    each the result of as many adjacent elements as a subgroup has lanes, until the elements fit into one subgroup. Then
    each subgroup reduces all of them, except a partial one.
    """
    max_count = max_subgroup_count(ctx)
    if max_count == 1:
        return value
    b = ctx.builder
    array = scratch(ctx, node, value.type, max_count, label)
    lane, subgroup, size = emit(ctx, "lane_id"), emit(ctx, "subgroup_id"), emit(ctx, "subgroup_size")
    count = emit(ctx, "num_subgroups")
    if ctx.loops or not ctx.is_kernel:
        # This code may run repeatedly: other invocations may still be reading the values of the previous run.
        b.op("barrier")
    emit_when(ctx, b.emit("eq", lane, b.index(0)), lambda: b.op("store", array, subgroup, value))
    b.op("barrier")
    body = Region([types.INDEX], ["left"])
    element_index = b.emit("add", b.emit("mul", subgroup, size), lane)
    with b.at(body):
        _reduce_iteration(ctx, op, array, element_index, body.args[0], (lane, subgroup, size))
    remaining = b.op("loop", count, types=[types.INDEX], regions=[body]).result
    result = emit(ctx, "sg_reduce", _element_or_identity(ctx, op, array, lane, remaining), op=op)
    if invocations(ctx) % MAX_SUBGROUP_SIZE == 0:
        return result
    # A partial subgroup has too few lanes for all elements: it takes the result of the first one.
    shared_result, own_result = Region(), Region()
    with b.at(shared_result):
        b.op("barrier")  # all elements have been read
        is_first = b.emit("and", b.emit("eq", lane, b.index(0)), b.emit("eq", subgroup, b.index(0)))
        emit_when(ctx, is_first, lambda: b.op("store", array, b.index(0), result))
        b.op("barrier")
        b.op("yield", b.emit("load", array, b.index(0)))
    with b.at(own_result):
        b.op("yield", result)
    is_partial = b.emit("ne", b.emit("floormod", b.index(invocations(ctx)), size), b.index(0))
    return b.op("if", is_partial, types=[value.type], regions=[shared_result, own_result]).result


def max_subgroup_count(ctx: Context) -> int:
    """Return the maximum number of subgroups in a workgroup on any device."""
    return max(1, -(-invocations(ctx) // MIN_SUBGROUP_SIZE))


def _reduce_iteration(
    ctx: Context, op: OpName, array: Value, element_index: Value, remaining: Value, ids: tuple[Value, Value, Value]
) -> None:
    """Emit one iteration of the loop in `_reduce_across_subgroups`.

    The loop ends if the `remaining` values in `array` fit into one subgroup. Otherwise each subgroup reduces the `size`
    elements from index `subgroup * size` on, and stores the result to element `subgroup`. `ids` are the lane id, the
    subgroup id and the subgroup size; `element_index` is `subgroup * size + lane`.
    """
    b = ctx.builder
    lane, subgroup, size = ids
    leave, stay = Region(), Region()
    with b.at(leave):
        b.op("break", remaining)
    with b.at(stay):
        b.op("yield")
    b.op("if", b.emit("le", remaining, size), types=[], regions=[leave, stay])
    part = emit(ctx, "sg_reduce", _element_or_identity(ctx, op, array, element_index, remaining), op=op)
    b.op("barrier")  # all elements have been read, so that they can be overwritten
    rounded_up = b.emit("sub", b.emit("add", remaining, size), b.index(1))
    next_count = b.emit("floordiv", rounded_up, size)
    writes = b.emit("and", b.emit("eq", lane, b.index(0)), b.emit("lt", subgroup, next_count))
    emit_when(ctx, writes, lambda: b.op("store", array, subgroup, part))
    b.op("barrier")
    b.op("continue", next_count)


def _element_or_identity(ctx: Context, op: OpName, array: Value, index: Value, count: Value) -> Value:
    """Emit the element of `array` at `index`, or the identity element of `op` if `index` is at least `count`."""
    b = ctx.builder
    inside, outside = Region(), Region()
    with b.at(inside):
        b.op("yield", b.emit("load", array, index))
    with b.at(outside):
        b.op("yield", identity_element(ctx, op, array.type.element))  # type: ignore[attr-defined]
    result = array.type.element  # type: ignore[attr-defined]
    return b.op("if", b.emit("lt", index, count), types=[result], regions=[inside, outside]).result


def index_of_extremum(ctx: Context, call: Call, kind: str, op: OpName, value: Value, index: Value) -> Value:
    """Emit the index that belongs to the min or max (`op`) of one value per invocation.

    Each invocation contributes a `value` and its `index`. If several have the min or max, the result is the smallest of
    their indices. `kind` is the scope's kind, "workgroup" or "subgroup".
    """
    best = reduce_value(ctx, call.node, kind, op, value, "value")
    b = ctx.builder
    same = b.emit("eq", value, best)
    if dtype_of_value(value).is_float:  # NaN is the min and the max if there is one, but isn't equal to itself
        same = b.emit("or", same, b.emit("and", b.emit("isnan", value), b.emit("isnan", best)))
    candidate = b.emit("select", same, index, b.index(NO_INDEX))
    return reduce_value(ctx, call.node, kind, "min", candidate, "position")


def scratch(ctx: Context, node: ast.AST, element: Type, size: int, label: str = "") -> Value:
    """Return a one-dimensional shared array of `size` elements; the array belongs to the syntax node and the label."""
    assert isinstance(element, Scalar | Vector)
    return ctx.entry_array(node, Array(element, 1, space="shared", shape=(size,), contiguous=True), label)


def emit_when(ctx: Context, condition: Value, then: Callable[[], object]) -> None:
    """Emit an `if` without results, in which `then` emits the code for a true condition."""
    regions = [Region(), Region()]
    with ctx.builder.at(regions[0]):
        then()
        ctx.builder.op("yield")
    with ctx.builder.at(regions[1]):
        ctx.builder.op("yield")
    ctx.builder.op("if", condition, types=[], regions=regions)
