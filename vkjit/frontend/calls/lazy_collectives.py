"""Collectives over lazy values (slices and expressions of slices): reductions, argmin and argmax, and `wg.store`.

`wg` stands for `vk.workgroup()`; `vk.subgroup()` has the same methods. The elements are distributed over the n
invocations of the scope (workgroup or subgroup): each invocation takes every n-th element. For a reduction, each
invocation combines its elements first; then the results of the invocations are combined.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit.ir import types
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array, Type

from ..context import Call, Context
from ..kernel_values import KernelValue, Lazy, describe_value, is_matrix, is_tile
from ..tiles.matrices import store_matrix
from ..tiles.shapes import atomic_of
from ..tiles.tiles import ATOMICS, store_tile
from ..values.conversions import as_stored, dtype_of_value, static_value, truth
from ..values.lazy import SliceTarget, check_sources, check_target, element_of, for_each_index, note_write
from ..values.scopes import ScopeValue, emit, invocations, method, rank_of
from .reductions import NO_INDEX, combine, identity_element, index_of_extremum, reduce_value, reduction_operand

__all__ = ["arg_reduction", "reduction"]


def _start_and_step(ctx: Context, scope: ScopeValue) -> tuple[Value, Value]:
    """Return the linear index of the invocation's first element, and the distance to its next one."""
    if scope.kind == "workgroup":
        return rank_of(ctx, "workgroup"), ctx.builder.index(invocations(ctx))
    return rank_of(ctx, "subgroup"), emit(ctx, "subgroup_size")


def reduction(ctx: Context, call: Call, scope: ScopeValue, op: OpName, lazy: Lazy) -> Value:
    """Reduce all elements of a lazy value with the operator `op`; every invocation gets the result."""
    check_sources(ctx, call.node, lazy)
    start, step = _start_and_step(ctx, scope)

    def operand(index: tuple[Value, ...]) -> Value:
        element = element_of(ctx, call.node, lazy, index)
        if op in ("and", "or"):  # `all` or `any`
            test = truth(ctx, call.node, element)
            assert isinstance(test, Value)
            return test
        return reduction_operand(ctx, call, op, element)

    identity = identity_element(ctx, op, _type_of(ctx, lazy, operand))
    (partial,) = for_each_index(
        ctx,
        lazy.shape,
        start,
        step,
        [identity],
        lambda at, _number, accumulators: [combine(ctx, op, accumulators[0], operand(at))],
    )
    return reduce_value(ctx, call.node, scope.kind, op, partial)


def _type_of(ctx: Context, lazy: Lazy, operand: Callable[[tuple[Value, ...]], Value]) -> Type:
    """Return the type of the values that `operand(index)` emits; the operations emitted to find it are discarded."""
    with ctx.builder.at(Region()):
        return operand(tuple(ctx.builder.emit("poison", type=types.INDEX) for _ in lazy.shape)).type


def arg_reduction(ctx: Context, call: Call, scope: ScopeValue, op: OpName, lazy: Lazy) -> Value:
    """Emit the linear index (in C order) of the first min (`op` is "min") or max ("max") of a lazy value.

    A NaN counts as the min and the max, as in NumPy. If there are no elements, the result is undefined.
    """
    check_sources(ctx, call.node, lazy)
    start, step = _start_and_step(ctx, scope)
    b = ctx.builder

    def operand(index: tuple[Value, ...]) -> Value:
        return reduction_operand(ctx, call, op, element_of(ctx, call.node, lazy, index))

    def better(at: tuple[Value, ...], linear: Value, best: list[Value]) -> list[Value]:
        """Return the better one of the element at index `at` and the best one so far, as [value, linear index]."""
        value = operand(at)
        is_better = b.emit("lt" if op == "min" else "gt", value, best[0])
        if dtype_of_value(value).is_float:  # a NaN is better than any number, and the first NaN is kept
            is_nan, was_nan = b.emit("isnan", value), b.emit("isnan", best[0])
            is_better = b.emit(
                "or", b.emit("and", is_better, b.emit("not", was_nan)), b.emit("and", is_nan, b.emit("not", was_nan))
            )
        # The first element always counts as better, even if it equals the initial value (such as infinity).
        is_better = b.emit("or", is_better, b.emit("eq", best[1], b.index(NO_INDEX)))
        return [b.emit("select", is_better, value, best[0]), b.emit("select", is_better, linear, best[1])]

    identity = identity_element(ctx, op, _type_of(ctx, lazy, operand))
    value, index = for_each_index(ctx, lazy.shape, start, step, [identity, b.index(NO_INDEX)], better)
    return index_of_extremum(ctx, call, scope.kind, op, value, index)


@method("store")
def _store(
    ctx: Context, call: Call, scope: ScopeValue, target: KernelValue, value: KernelValue, atomic: KernelValue
) -> KernelValue:
    """Lower `wg.store(y[i:j], value)`: store a lazy value, a scalar, a tile or a matrix to a slice.

    A lazy value or a scalar is stored here, element by element; `tiles` lowers stores of tiles and matrices.
    """
    if is_matrix(value) and scope.kind == "subgroup":
        store_matrix(ctx, call, target, value)
        return None
    if not isinstance(target, Lazy) or not isinstance(target.target, SliceTarget):
        raise ctx.error(call.node, f"store writes to a slice, found {describe_value(target)}", "wg.store(y[r, :], e)")
    slice_ = target.target
    kind = slice_.array.type
    assert isinstance(kind, Array)
    if kind.access == "in" and kind.space == "global":
        raise ctx.error(call.node, "this array is an input: it can't be written", "annotate it as vk.Out or vk.InOut")
    atomic_op = atomic_of(ctx, call, atomic, kind, ATOMICS)
    if is_tile(value):
        store_tile(ctx, call, scope, target, value, atomic_op)
        return None
    if atomic_op:
        raise ctx.error(call.node, "only tiles are stored atomically", "load it as a tile first: wg.load(x[i:i+SIZE])")
    if isinstance(value, Lazy):
        check_sources(ctx, call.node, value)
        check_target(ctx, call.node, value, slice_)
        _check_shapes(ctx, call, target, value)
    start, step = _start_and_step(ctx, scope)

    def body(at: tuple[Value, ...], _number: Value, carried: list[Value]) -> list[Value]:
        element = value.element(ctx, at) if isinstance(value, Lazy) else value
        stored = as_stored(ctx, call.node, element, kind.element)
        ctx.builder.op("store", slice_.array, *slice_.at(ctx, at), stored)
        return carried

    for_each_index(ctx, target.shape, start, step, [], body)
    note_write(ctx, slice_.array)
    return None


def _check_shapes(ctx: Context, call: Call, target: Lazy, value: Lazy) -> None:
    """Raise CompileError if the shapes of the target and the value are known to differ."""
    if len(target.shape) != len(value.shape):
        raise ctx.error(call.node, f"the target has {len(target.shape)} dimensions, the value {len(value.shape)}")
    for a, b in zip(target.shape, value.shape, strict=True):
        sizes = static_value(a), static_value(b)
        if None not in sizes and sizes[0] != sizes[1]:
            raise ctx.error(call.node, f"the target has {sizes[0]} elements, the value {sizes[1]}")
