"""Explicit conversions: calls of dtypes such as `vk.f32(x)`.

`vk.index` is a dtype, too. Without arguments, `vk.index()` is the index of the invocation's element in an `over=`
kernel.
"""

from __future__ import annotations

import ast

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Value

from ..context import Call, Context
from ..intrinsics import callable_values
from ..kernel_values import KernelValue, is_literal, is_matrix
from ..tiles.matrices import cast_matrix
from ..values.conversions import convert, dtype_of_value, fit, numeric

__all__ = ["cast_value"]


def _is_dtype(value: KernelValue) -> bool:
    return isinstance(value, DType)


@callable_values(_is_dtype)
def _cast(ctx: Context, call: Call, dtype: KernelValue) -> KernelValue:
    """Lower a call of a dtype, such as `vk.f32(x)` or `vk.index()`."""
    assert isinstance(dtype, DType)
    if dtype is dtypes.index and not call.args and not call.keywords:
        return _index_tuple(ctx, call)
    if len(call.args) != 1 or call.keywords:
        raise ctx.error(call.node, f"{dtype!r}(x) takes one value, found {len(call.args) + len(call.keywords)}")
    return cast_value(ctx, call.node, call.args[0], dtype)


def _index_tuple(ctx: Context, call: Call) -> KernelValue:
    """Return the index of the invocation's element, one item per axis. Raises CompileError without `over=`."""
    if ctx.index is None:
        raise ctx.error(
            call.node,
            "vk.index() is the index of an over= kernel",
            "in other kernels use vk.global_id(d); in device functions pass the index as arguments",
        )
    return ctx.index


def cast_value(ctx: Context, node: ast.AST, value: KernelValue, dtype: DType) -> Value:
    """Convert a value explicitly to `dtype`.

    Floats are truncated to integers and saturate, integers wrap, and conversion to bool is `x != 0`. The result is
    strong even if the value is weak.
    """
    if is_matrix(value):
        return cast_matrix(ctx, node, value, dtype)
    numeric(ctx, node, value, "a number to convert")
    if is_literal(value):
        return ctx.builder.const(_cast_literal(ctx, node, value, dtype), dtype)
    assert isinstance(value, Value)
    if dtype_of_value(value) is dtype and value not in ctx.weak:
        return value
    return _cast_to_strong(ctx, node, value, dtype)


def _cast_to_strong(ctx: Context, node: ast.AST, value: Value, dtype: DType) -> Value:
    """Convert a run-time value and return a new, strong one.

    A weak value that already has the type is cast nevertheless: the value itself is marked as weak in `Context.weak`.
    """
    converted = convert(ctx, node, value, dtype)
    return ctx.builder.emit("cast", converted, type=converted.type) if converted is value else converted


def _cast_literal(ctx: Context, node: ast.AST, value: float, dtype: DType) -> bool | int | float:
    """Convert a literal with the semantics of the `cast` operation. Raises CompileError for integers beyond f64."""
    from vkjit.ir.semantics import cast, silence_warnings

    if isinstance(value, int) and dtype.is_integer:  # not in f64, which is exact up to 2**53 only
        wrapped = int(value) & ((1 << dtype.bits) - 1)
        is_sign_bit_set = wrapped >> (dtype.bits - 1) != 0
        return wrapped - (1 << dtype.bits) if dtype.is_signed and is_sign_bit_set else wrapped
    with silence_warnings():
        converted = cast(np.float64(fit(ctx, node, value, dtypes.f64)), dtypes.f64, dtype)
    if dtype.kind == "bool":
        return bool(converted)
    return float(converted) if dtype.is_float else int(converted)
