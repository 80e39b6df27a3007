"""Iterables of `for` loops: ranges, unrolled ranges, tuples, grid strides; and the builtins that make them.

The bounds of a range are evaluated once and converted to their common type, `i32` if all are literals.
"""

from __future__ import annotations

import ast
import builtins

from vkjit import lang
from vkjit.dtypes import DType
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.types import Scalar, Type

from ..calls.ids import dimension
from ..context import Call, Context
from ..intrinsics import intrinsic, lowers
from ..kernel_values import GridStride, KernelValue, Range, Unrolled, describe_value, is_array, is_literal, is_scalar
from ..values.arrays import array_type
from ..values.conversions import as_index, common_dtype, convert, default_dtype, dtype_of_value, static_value

__all__ = ["emit_for", "iterable_of", "range_bounds", "static_trip_count"]

UNROLL_LIMIT = 4096
"""The maximum number of iterations of an unrolled loop."""


@intrinsic(builtins.range)
def _range(ctx: Context, call: Call) -> KernelValue:
    return _make_range(ctx, call)


def _make_range(ctx: Context, call: Call) -> Range:
    """Return the Range for the arguments of `range` or `vk.unroll`: stop; start and stop; or start, stop and step."""
    if call.keywords or not 1 <= len(call.args) <= 3:
        raise ctx.error(call.node, f"range takes 1 to 3 values, found {len(call.args) + len(call.keywords)}")
    for value in call.args:
        integer = is_literal(value) and not isinstance(value, bool | float)
        if not integer and not (is_scalar(value) and dtype_of_value(value).is_integer):
            raise ctx.error(call.node, f"range takes integers, found {describe_value(value)}", "convert: vk.i32(x)")
    start, stop, *step_arguments = call.args if len(call.args) > 1 else [0, *call.args]
    step = step_arguments[0] if step_arguments else 1
    if static_value(step) == 0:
        raise ctx.error(call.node, "the step of a range must not be 0", "leave it out to count by 1, or write -1")
    return Range(start, stop, step)


@intrinsic(lang.unroll)
def _unroll(ctx: Context, call: Call) -> KernelValue:
    """Lower `vk.unroll` of a tuple, of a range, or with the arguments of a range."""
    if len(call.args) == 1 and isinstance(call.args[0], tuple):
        return Unrolled(call.args[0])
    bounds = call.args[0] if len(call.args) == 1 and isinstance(call.args[0], Range) else _make_range(ctx, call)
    numbers = [static_value(v) for v in (bounds.start, bounds.stop, bounds.step)]
    if any(n is None for n in numbers):
        raise ctx.error(
            call.node,
            "the bounds of vk.unroll must be known at compile time",
            "use range(), or make the bound a vk.Const[int] parameter",
        )
    items = range(*(int(n) for n in numbers if n is not None))
    if len(items) > UNROLL_LIMIT:
        raise ctx.error(
            call.node, f"{len(items)} copies of the body are too many (up to {UNROLL_LIMIT})", "use range()"
        )
    return Unrolled(tuple(items))


@lowers(lang.grid_stride)
def _grid_stride(ctx: Context, call: Call, stop: KernelValue, dim: KernelValue) -> KernelValue:
    return GridStride(stop, dimension(ctx, call, dim))


@intrinsic(builtins.enumerate)
def _enumerate(ctx: Context, call: Call) -> KernelValue:
    if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], tuple):
        raise ctx.error(call.node, "enumerate takes a tuple", "for an array: for i in range(len(x))")
    return tuple(enumerate(call.args[0]))


@intrinsic(builtins.zip)
def _zip(ctx: Context, call: Call) -> KernelValue:
    tuples = [a for a in call.args if isinstance(a, tuple)]
    if len(tuples) != len(call.args) or call.keywords:
        raise ctx.error(call.node, "zip takes tuples", "for arrays: for i in range(len(x))")
    return tuple(zip(*tuples, strict=False))


@intrinsic(builtins.reversed)
def _reversed(ctx: Context, call: Call) -> KernelValue:
    value = call.args[0] if len(call.args) == 1 else None
    if isinstance(value, tuple):
        return tuple(reversed(value))
    if isinstance(value, Unrolled):
        return Unrolled(tuple(reversed(value.items)))
    raise ctx.error(call.node, "reversed takes a tuple or vk.unroll(...)", "for a range: range(n - 1, -1, -1)")


def iterable_of(ctx: Context, node: ast.expr, value: KernelValue) -> Range | Unrolled:
    """Convert the iterable of a `for` loop to a Range (lowered to a loop) or an Unrolled (lowered item by item)."""
    if isinstance(value, Range | Unrolled):
        return value
    if isinstance(value, tuple):
        return Unrolled(value)
    if isinstance(value, GridStride):
        b, dim = ctx.builder, value.dim
        step = b.emit("mul", b.emit("num_groups", dim=dim), b.emit("local_size", dim=dim))
        return Range(b.emit("global_id", dim=dim), as_index(ctx, node, value.stop), step)
    hint = "range, vk.unroll, vk.grid_stride, a tuple"
    if is_array(value):
        name = ast.unparse(node) if isinstance(node, ast.Name) else "x"
        rank = array_type(value).rank
        loops = [f"for {'ijklmn'[d]} in range({name}.shape[{d}])" for d in range(min(rank, 6))]
        hint = f"loop over its indices: {': '.join(loops) if rank > 1 else f'for i in range(len({name}))'}"
    raise ctx.error(node, f"a loop can't run over {describe_value(value)}", hint)


def range_bounds(ctx: Context, node: ast.AST, bounds: Range) -> tuple[Value, Value, Value]:
    """Return start, stop and step in their common type."""
    values = [bounds.start, bounds.stop, bounds.step]
    dtype: DType | None = None
    strong = [v for v in values if isinstance(v, Value)]
    for value in strong:
        dtype = dtype_of_value(value) if dtype is None else common_dtype(ctx, node, _placeholder(ctx, dtype), value)
    if dtype is None:
        dtype = default_dtype(int(bounds.stop))  # type: ignore[call-overload]
    if dtype.kind == "uint" and (static_value(bounds.step) or 0) < 0:
        raise ctx.error(node, f"a range of {dtype!r} can't count down", "convert a bound: vk.i32(n)")
    low, high, step = (convert(ctx, node, v, dtype) for v in values)
    return low, high, step


def _placeholder(ctx: Context, dtype: DType) -> Value:
    """Return a placeholder value of a dtype, of which only the type matters."""
    return ctx.builder.emit("poison", type=Scalar(dtype))


def static_trip_count(bounds: Range) -> int | None:
    """Return the trip count if it is a compile-time constant, else None."""
    numbers = [static_value(v) for v in (bounds.start, bounds.stop, bounds.step)]
    if any(n is None for n in numbers):
        return None
    return len(range(*(int(n) for n in numbers if n is not None)))


def emit_for(
    ctx: Context, low: Value, high: Value, step: Value, initial: list[Value], carried: list[Type], region: Region
) -> Op:
    """Emit a `for` operation over the range from `low` to `high` (exclusive) with body `region`.

    `initial` are the initial values of the loop-carried variables, `carried` their types.
    """
    return ctx.builder.op("for", low, high, step, *initial, types=carried, regions=[region])
