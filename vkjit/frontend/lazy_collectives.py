"""Collectives over lazy values: each invocation combines every n-th element, then the scope combines the results.

Enters: `wg.sum(row)`, `wg.store(y[r, :], e)`. Leaves: loops over the elements, and the scope's collectives.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir import types
from ..ir.core import Region, Value
from ..ir.types import Array, Type
from .collectives import ScopeValue, combine, invocations, method, neutral, position_of, prepared, rank_of, reduce_value
from .context import Call, Context
from .conversions import as_stored, dtype_of_value, static_value, truth
from .elementwise import is_tile
from .lazy import SliceTarget, check_sources, check_target, each_position, element_of, note_write
from .matrices import store_matrix
from .tiles import ATOMICS, store_tile
from .tiles_shape import atomic_of
from .values import KernelValue, Lazy, describe_value, is_matrix

__all__ = ["argument_reduction", "reduction"]


def _steps(ctx: Context, scope: ScopeValue) -> tuple[Value, Value]:
    """Where the invocation begins, and how far the next of its elements is."""
    if scope.kind == "workgroup":
        return rank_of(ctx, "workgroup"), ctx.builder.index(invocations(ctx))
    ctx.session.module.kernel.attrs["subgroups"] = True
    return rank_of(ctx, "subgroup"), ctx.builder.emit("subgroup_size")


def reduction(ctx: Context, call: Call, scope: ScopeValue, op: str, lazy: Lazy) -> Value:
    """The reduction of all elements, in every invocation."""
    check_sources(ctx, call.node, lazy)
    start, step = _steps(ctx, scope)

    def operand(position: tuple[Value, ...]) -> Value:
        element = element_of(ctx, call.node, lazy, position)
        if op in ("and", "or"):
            test = truth(ctx, call.node, element)
            assert isinstance(test, Value)
            return test
        return prepared(ctx, call, op, element)

    first = neutral(ctx, op, _type_of(ctx, lazy, operand))
    (mine,) = each_position(
        ctx, lazy.shape, start, step, [first], lambda at, _number, held: [combine(ctx, op, held[0], operand(at))]
    )
    return reduce_value(ctx, call.node, scope.kind, op, mine)


def _type_of(ctx: Context, lazy: Lazy, operand: Callable[[tuple[Value, ...]], Value]) -> Type:
    """The type that the elements are reduced in."""
    with ctx.builder.at(Region()):
        return operand(tuple(ctx.builder.emit("poison", type=types.INDEX) for _ in lazy.shape)).type


def argument_reduction(ctx: Context, call: Call, scope: ScopeValue, op: str, lazy: Lazy) -> Value:
    """The least position (in C order) of the extremum; the number of elements must not be 0."""
    check_sources(ctx, call.node, lazy)
    start, step = _steps(ctx, scope)
    b = ctx.builder

    def operand(position: tuple[Value, ...]) -> Value:
        return prepared(ctx, call, op, element_of(ctx, call.node, lazy, position))

    def better(at: tuple[Value, ...], number: Value, held: list[Value]) -> list[Value]:
        value = operand(at)
        found = b.emit("lt" if op == "min" else "gt", value, held[0])
        if dtype_of_value(value).is_float:
            is_nan, was_nan = b.emit("isnan", value), b.emit("isnan", held[0])
            found = b.emit(
                "or", b.emit("and", found, b.emit("not", was_nan)), b.emit("and", is_nan, b.emit("not", was_nan))
            )
        found = b.emit("or", found, b.emit("eq", held[1], b.index(_NOWHERE)))
        return [b.emit("select", found, value, held[0]), b.emit("select", found, number, held[1])]

    first = neutral(ctx, op, _type_of(ctx, lazy, operand))
    value, position = each_position(ctx, lazy.shape, start, step, [first, b.index(_NOWHERE)], better)
    return position_of(ctx, call, scope.kind, op, value, position)


_NOWHERE = 2**63 - 1


@method("store")
def _store(
    ctx: Context, call: Call, scope: ScopeValue, target: KernelValue, value: KernelValue, atomic: KernelValue
) -> KernelValue:
    """Each invocation stores every n-th element."""
    if is_matrix(value) and scope.kind == "subgroup":
        store_matrix(ctx, call, target, value)
        return None
    if not isinstance(target, Lazy) or not isinstance(target.target, SliceTarget):
        raise ctx.error(call.node, f"store writes to a slice, found {describe_value(target)}", "wg.store(y[r, :], e)")
    place = target.target
    kind = place.array.type
    assert isinstance(kind, Array)
    if kind.access == "in" and kind.space == "global":
        raise ctx.error(call.node, "this array is an input: it can't be written", "annotate it as vk.Out or vk.InOut")
    how = atomic_of(ctx, call, atomic, kind, ATOMICS)
    if is_tile(value):
        store_tile(ctx, call, scope, target, value, how)
        return None
    if how:
        raise ctx.error(call.node, "only tiles are stored atomically", "hold it first: wg.load(x[i:i+SIZE])")
    if isinstance(value, Lazy):
        check_sources(ctx, call.node, value)
        check_target(ctx, call.node, value, place)
        _check_shapes(ctx, call, target, value)
    start, step = _steps(ctx, scope)

    def body(at: tuple[Value, ...], _number: Value, held: list[Value]) -> list[Value]:
        element = value.element(ctx, at) if isinstance(value, Lazy) else value
        stored = as_stored(ctx, call.node, element, kind.element)
        ctx.builder.op("store", place.array, *place.at(ctx, at), stored)
        return held

    each_position(ctx, target.shape, start, step, [], body)
    note_write(ctx, place.array)
    return None


def _check_shapes(ctx: Context, call: Call, target: Lazy, value: Lazy) -> None:
    if len(target.shape) != len(value.shape):
        raise ctx.error(call.node, f"the target has {len(target.shape)} dimensions, the value {len(value.shape)}")
    for a, b in zip(target.shape, value.shape, strict=True):
        known = static_value(a), static_value(b)
        if None not in known and known[0] != known[1]:
            raise ctx.error(call.node, f"the target has {known[0]} elements, the value {known[1]}")
