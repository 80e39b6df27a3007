"""Iterables of `for` loops: ranges, unrolled ranges, tuples, grid strides; and the builtins that make them.

The bounds of a range are evaluated once and converted to their common type, `i32` if all are literals.
"""

from __future__ import annotations

import ast
import builtins

from vkjit import dtypes, lang
from vkjit.dtypes import DType
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.types import Scalar, Type

from ..calls.ids import dimension
from ..context import Call, Context, checked_tuple
from ..intrinsics import intrinsic, lowers
from ..kernel_values import (
    GridStride,
    KernelValue,
    Range,
    Unrolled,
    describe_value,
    is_array,
    is_literal,
    is_scalar,
    literal_text,
)
from ..values.arrays import array_type
from ..values.conversions import as_index, common_dtype, convert, dtype_of_value, static_value
from ..values.mappings import items_of

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
    """Lower `vk.unroll(x)` for a tuple or range x, and `vk.unroll(...)` with the arguments of `range`."""
    if len(call.args) == 1 and isinstance(call.args[0], tuple):
        return Unrolled(call.args[0])
    bounds = call.args[0] if len(call.args) == 1 and isinstance(call.args[0], Range) else _make_range(ctx, call)
    items = _static_range(bounds)
    if items is None:
        raise ctx.error(
            call.node,
            "the bounds of vk.unroll must be known at compile time",
            "use range(), or make the bound a vk.Const[int] parameter",
        )
    copies = trip_count(items)
    if copies > UNROLL_LIMIT:
        count = literal_text(copies)
        raise ctx.error(call.node, f"{count} copies of the body are too many (up to {UNROLL_LIMIT})", "use range()")
    return Unrolled(tuple(items))


@lowers(lang.grid_stride)
def _grid_stride(ctx: Context, call: Call, stop: KernelValue, dim: KernelValue) -> KernelValue:
    return GridStride(stop, dimension(ctx, call, dim))


@intrinsic(builtins.enumerate)
def _enumerate(ctx: Context, call: Call) -> KernelValue:
    if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], tuple):
        raise ctx.error(call.node, "enumerate takes a tuple", "for an array: for i in range(len(x))")
    return checked_tuple(ctx, call.node, tuple(enumerate(call.args[0])))


@intrinsic(builtins.zip)
def _zip(ctx: Context, call: Call) -> KernelValue:
    tuples = [a for a in call.args if isinstance(a, tuple)]
    if len(tuples) != len(call.args) or call.keywords:
        raise ctx.error(call.node, "zip takes tuples", "for arrays: for i in range(len(x))")
    return checked_tuple(ctx, call.node, tuple(zip(*tuples, strict=False)))


@intrinsic(builtins.reversed)
def _reversed(ctx: Context, call: Call) -> KernelValue:
    value = call.args[0] if len(call.args) == 1 else None
    if isinstance(value, tuple):
        return tuple(reversed(value))
    if isinstance(value, Unrolled):
        return Unrolled(tuple(reversed(value.items)))
    raise ctx.error(call.node, "reversed takes a tuple or vk.unroll(...)", "for a range: range(n - 1, -1, -1)")


def iterable_of(ctx: Context, node: ast.expr, value: KernelValue) -> Range | Unrolled:
    """Convert the iterable of a `for` to a Range (lowered to a loop) or an Unrolled (the body is emitted per item)."""
    if isinstance(value, Range | Unrolled):
        return value
    items = items_of(ctx, node, value)
    if items is not None:
        return Unrolled(items)
    if isinstance(value, GridStride):
        b, dim = ctx.builder, value.dim
        step = b.emit("mul", b.emit("num_groups", dim=dim), b.emit("local_size", dim=dim))
        return Range(b.emit("global_id", dim=dim), as_index(ctx, node, value.stop), step)
    hint = "range, vk.unroll, vk.grid_stride, a tuple"
    if is_array(value):
        name = ast.unparse(node) if isinstance(node, ast.Name) else "x"
        rank = array_type(value).rank
        # A hint for more than six dimensions ends after the sixth loop.
        loops = [f"for {i} in range({name}.shape[{d}])" for d, i in zip(range(rank), "ijklmn", strict=False)]
        hint = f"loop over its indices: {': '.join(loops) if rank > 1 else f'for i in range(len({name}))'}"
    raise ctx.error(node, f"a loop can't run over {describe_value(value)}", hint)


def range_bounds(ctx: Context, node: ast.AST, bounds: Range) -> tuple[Value, Value, Value]:
    """Return start, stop and step of a range, converted to their common type."""
    values = [bounds.start, bounds.stop, bounds.step]
    dtype = _range_dtype(ctx, node, [v for v in values if isinstance(v, Value)])
    if dtype.kind == "uint" and (static_value(bounds.step) or 0) < 0:
        raise ctx.error(node, f"a range of {dtype!r} can't count down", "convert a bound: vk.i32(n)")
    low, high, step = (convert(ctx, node, v, dtype) for v in values)
    return low, high, step


def _range_dtype(ctx: Context, node: ast.AST, values: list[Value]) -> DType:
    """Return the common type of those bounds of a range that are run-time values; i32 if there are none.

    The other bounds are literals, which are converted to this type.
    """
    if not values:
        return dtypes.i32
    dtype = dtype_of_value(values[0])
    for value in values[1:]:
        # `common_dtype` takes two values: a poison value stands for those before, since only its type matters.
        previous = ctx.builder.emit("poison", type=Scalar(dtype))
        dtype = common_dtype(ctx, node, previous, value)
    return dtype


def static_trip_count(bounds: Range) -> int | None:
    """Return the trip count if it is a compile-time constant, else None."""
    items = _static_range(bounds)
    return trip_count(items) if items is not None else None


def trip_count(items: range) -> int:
    """Return the length of a range, also if it is larger than Python's `len` can return."""
    return max(0, -((items.start - items.stop) // items.step))


def _static_range(bounds: Range) -> range | None:
    """Return the Python range with the same bounds, or None if they aren't all compile-time constants."""
    numbers = [static_value(v) for v in (bounds.start, bounds.stop, bounds.step)]
    if any(n is None for n in numbers):
        return None
    return range(*(int(n) for n in numbers if n is not None))  # none is None; the test is for the type checker


def emit_for(
    ctx: Context, low: Value, high: Value, step: Value, initial: list[Value], carried_types: list[Type], region: Region
) -> Op:
    """Emit a `for` operation over the range from `low` to `high` (exclusive) with body `region`.

    `initial` are the initial values of the loop-carried variables, `carried_types` their types.
    """
    return ctx.builder.op("for", low, high, step, *initial, types=carried_types, regions=[region])
