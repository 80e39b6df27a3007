"""Lowering of `vk.atomic.*` to `atomic`, `atomic_cas`, `atomic_load` and `atomic_store`."""

from __future__ import annotations

import ast
from typing import Any

from vkjit.dtypes import DType
from vkjit.ir.core import Value
from vkjit.ir.types import Scalar, Vector
from vkjit.lang import atomic

from ..context import Call, Context
from ..intrinsics import lowers, one_of
from ..kernel_values import KernelValue, describe_value, is_array
from ..values.arrays import array_type, indices
from ..values.conversions import as_stored
from ..values.lazy import note_write

__all__: list[str] = []

ORDERS: tuple[Any, ...] = ("relaxed", "acquire", "release", "acq_rel")
"""The memory orders that `order=` accepts."""


def _operands(ctx: Context, call: Call, array: KernelValue, index: KernelValue) -> tuple[Value, list[Value], DType]:
    """Check the array and the index of an atomic operation; return the array, its indices and its element type."""
    if not is_array(array):
        raise ctx.error(call.node, f"expected an array first, found {describe_value(array)}", "vk.atomic.add(x, i, v)")
    kind = array_type(array)
    if isinstance(kind.element, Vector):
        raise ctx.error(call.node, "vectors have no atomic operations", "use an array of scalars")
    if kind.space == "local":
        raise ctx.error(call.node, "a local array is seen by one invocation only", "use `+=` and the like")
    at = indices(ctx, call.node, array, list(index) if isinstance(index, tuple) else [index])
    return array, at, kind.dtype


def _record_write(ctx: Context, call: Call, array: Value) -> None:
    """Record a store to the array. Raises CompileError for an input array."""
    if array_type(array).access == "in" and array_type(array).space == "global":
        raise ctx.error(call.node, "this array is an input: it can't be written", "annotate it as vk.InOut")
    note_write(ctx, array)


def _order_and_scope(ctx: Context, call: Call, order: KernelValue, scope: KernelValue) -> dict[str, Any]:
    """Check the arguments `order` (memory order) and `scope` (memory scope), and return them as IR attributes."""
    return {
        "order": one_of(ctx, call, "order", order, ORDERS),
        "scope": one_of(ctx, call, "scope", scope, ("workgroup", "device")),
    }


def _modify(name: str) -> Any:
    """Return the lowering of a read-modify-write operation, such as "add". The operation returns the old value."""

    def lower(
        ctx: Context,
        call: Call,
        array: KernelValue,
        index: KernelValue,
        value: KernelValue,
        *,
        order: KernelValue,
        scope: KernelValue,
    ) -> KernelValue:
        memory, at, dtype = _operands(ctx, call, array, index)
        _record_write(ctx, call, memory)
        if dtype.kind == "bool" or (dtype.is_float and name in ("and", "or", "xor")):
            hint = "keep flags in vk.u32" if dtype.kind == "bool" else "floats have add, sub, min, max, exchange, cas"
            raise ctx.error(call.node, f"atomic {name} isn't defined for {dtype!r}", hint)
        operand = as_stored(ctx, _argument_node(call, 2), value, Scalar(dtype))
        return ctx.builder.emit("atomic", memory, *at, operand, op=name, **_order_and_scope(ctx, call, order, scope))

    return lower


for _name in ("add", "sub", "min", "max", "and_", "or_", "xor", "exchange"):
    lowers(getattr(atomic, _name))(_modify(_name.rstrip("_")))


def _argument_node(call: Call, position: int) -> ast.expr:
    """Return the node of a positional argument (0 is the array, 1 the index), for error locations.

    If the argument is passed by keyword, this is the node of the call.
    """
    return call.node.args[position] if len(call.node.args) > position else call.node


@lowers(atomic.cas)
def _cas(
    ctx: Context,
    call: Call,
    array: KernelValue,
    index: KernelValue,
    expected: KernelValue,
    value: KernelValue,
    *,
    order: KernelValue,
    scope: KernelValue,
) -> KernelValue:
    """Lower `vk.atomic.cas`: store `value` if the element equals `expected`; return the old value."""
    memory, at, dtype = _operands(ctx, call, array, index)
    _record_write(ctx, call, memory)
    old = as_stored(ctx, _argument_node(call, 2), expected, Scalar(dtype))
    new = as_stored(ctx, _argument_node(call, 3), value, Scalar(dtype))
    return ctx.builder.emit("atomic_cas", memory, *at, old, new, **_order_and_scope(ctx, call, order, scope))


@lowers(atomic.load)
def _load(
    ctx: Context, call: Call, array: KernelValue, index: KernelValue, *, order: KernelValue, scope: KernelValue
) -> KernelValue:
    memory, at, _ = _operands(ctx, call, array, index)
    return ctx.builder.emit("atomic_load", memory, *at, **_order_and_scope(ctx, call, order, scope))


@lowers(atomic.store)
def _store(
    ctx: Context,
    call: Call,
    array: KernelValue,
    index: KernelValue,
    value: KernelValue,
    *,
    order: KernelValue,
    scope: KernelValue,
) -> KernelValue:
    memory, at, dtype = _operands(ctx, call, array, index)
    _record_write(ctx, call, memory)
    operand = as_stored(ctx, _argument_node(call, 2), value, Scalar(dtype))
    ctx.builder.op("atomic_store", memory, *at, operand, **_order_and_scope(ctx, call, order, scope))
    return None
