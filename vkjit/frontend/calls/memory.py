"""Lowering of `vk.shared`, `vk.local`, `vk.barrier` and `vk.fence`."""

from __future__ import annotations

import math

from vkjit import lang
from vkjit.dtypes import DType
from vkjit.ir.types import Array, Scalar, Vector
from vkjit.lang.packed import PackedFloat
from vkjit.lang.structs import StructType
from vkjit.lang.vectors import VectorType

from ..context import Call, Context
from ..intrinsics import lowers, not_in_over, one_of
from ..kernel_values import KernelValue, describe_value, literal_text
from ..signature.annotations import dtype_of
from ..values.conversions import static_value
from ..values.struct_arrays import allocate

__all__: list[str] = []

MAX_ELEMENTS = 1 << 20
"""The maximum number of elements of a shared or local array. Devices have kilobytes of such memory."""


def _static_shape(ctx: Context, call: Call, shape: KernelValue) -> tuple[int, ...]:
    """Return a compile-time shape given as a number or a tuple."""
    items = shape if isinstance(shape, tuple) else (shape,)
    sizes: list[int] = []
    for item in items:
        number = static_value(item)
        if number is None or isinstance(number, bool | float):
            hint = "make the size a vk.Const[int] parameter or a constant of the module"
            raise ctx.error(call.node, f"the shape must be known at compile time, found {describe_value(item)}", hint)
        if number < 1:
            hint = "where there may be none, allocate one and don't use it"
            raise ctx.error(call.node, f"each dimension needs one element or more, found {number}", hint)
        sizes.append(int(number))
    count = math.prod(sizes)
    if count > MAX_ELEMENTS:
        text = literal_text(count)
        raise ctx.error(
            call.node, f"{text} elements are too many for memory of an invocation or a workgroup (up to {MAX_ELEMENTS})"
        )
    return tuple(sizes)


def _element(ctx: Context, call: Call, dtype: KernelValue) -> Scalar | Vector:
    """Return the IR type of the elements for a dtype or a vector type."""
    if isinstance(dtype, VectorType):
        return Vector(dtype.element, dtype.size)
    element_type: DType | None = dtype_of(dtype)
    if element_type is None:
        raise ctx.error(call.node, f"expected a dtype, found {describe_value(dtype)}", "write e.g. vk.f32")
    return Scalar(element_type)


def _allocate(ctx: Context, call: Call, space: str, dtype: KernelValue, shape: KernelValue) -> KernelValue:
    """Return the array that a call allocates; `space` is "shared" or "local"."""
    sizes = _static_shape(ctx, call, shape)
    if isinstance(dtype, StructType | PackedFloat):
        return allocate(ctx, call, space, dtype, sizes)
    element = _element(ctx, call, dtype)
    return ctx.entry_array(call.node, Array(element, len(sizes), space=space, shape=sizes, contiguous=True))


@lowers(lang.shared)
def _shared(ctx: Context, call: Call, dtype: KernelValue, shape: KernelValue) -> KernelValue:
    not_in_over(ctx, call, "shared memory")
    return _allocate(ctx, call, "shared", dtype, shape)


@lowers(lang.local)
def _local(ctx: Context, call: Call, dtype: KernelValue, shape: KernelValue) -> KernelValue:
    return _allocate(ctx, call, "local", dtype, shape)


@lowers(lang.barrier)
def _barrier(ctx: Context, call: Call) -> KernelValue:
    not_in_over(ctx, call, "a barrier")
    ctx.builder.op("barrier")
    return None


@lowers(lang.fence)
def _fence(ctx: Context, call: Call, scope: KernelValue) -> KernelValue:
    ctx.builder.op("fence", scope=one_of(ctx, call, "scope", scope, ("workgroup", "device")))
    return None
