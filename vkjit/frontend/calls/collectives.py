"""Collective methods of wg = `vk.workgroup()` and sg = `vk.subgroup()`: sizes, ranks, reductions, broadcast, shuffles.

A reduction takes one value per invocation (lowered in `reductions`), a lazy value (in `lazy_collectives`) or a tile (in
`tiles.reductions`). One value per invocation is reduced over each subgroup by `sg_*` operations, and over the subgroups
of a workgroup through shared memory. Scans are in `scans`.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.ir import types
from vkjit.ir.ops import OpName, op_name
from vkjit.ir.types import Scalar

from ..context import Call, Context
from ..kernel_values import KernelValue, Lazy, is_tile
from ..tiles.reductions import arg_reduce_tile, reduce_tile
from ..values.conversions import as_index, materialize, static_value, truth
from ..values.scopes import ScopeValue, emit, invocations, method, rank_of
from . import lazy_collectives
from .reductions import emit_when, index_of_extremum, reduce_value, reduction_operand, scratch

__all__: list[str] = []


# -- sizes and ranks
@method("size")
def _size(ctx: Context, _call: Call, scope: ScopeValue) -> KernelValue:
    return ctx.builder.index(invocations(ctx)) if scope.kind == "workgroup" else emit(ctx, "subgroup_size")


@method("rank")
def _rank(ctx: Context, _call: Call, scope: ScopeValue) -> KernelValue:
    return rank_of(ctx, scope.kind)


@method("id", "subgroup")
def _id(ctx: Context, _call: Call, _scope: ScopeValue) -> KernelValue:
    return emit(ctx, "subgroup_id")


@method("count", "subgroup")
def _count(ctx: Context, _call: Call, _scope: ScopeValue) -> KernelValue:
    return emit(ctx, "num_subgroups")


@method("barrier", "workgroup")
def _barrier(ctx: Context, _call: Call, _scope: ScopeValue) -> KernelValue:
    ctx.builder.op("barrier")
    return None


# -- reductions
def _reject_axis(ctx: Context, call: Call, axis: KernelValue, keepdims: KernelValue) -> None:
    """Raise CompileError if `axis` or `keepdims` is given for a value that isn't a tile."""
    if axis is not None or keepdims is not False:
        hint = "load it as a tile first: wg.load(x[i:i+BM, j:j+BN])"
        raise ctx.error(call.node, "axis and keepdims are for tiles, whose sizes are known at compile time", hint)


def _register_reduction(name: str, op: OpName) -> None:
    """Register the method `name`, such as "sum", as the reduction with the operator `op`, such as "add"."""

    @method(name)
    def lower(
        ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, axis: KernelValue, *, keepdims: KernelValue
    ) -> KernelValue:
        if is_tile(value):
            return reduce_tile(ctx, call, scope, op, value, axis, keepdims)
        _reject_axis(ctx, call, axis, keepdims)
        if isinstance(value, Lazy):
            return lazy_collectives.reduction(ctx, call, scope, op, value)
        return reduce_value(ctx, call.node, scope.kind, op, reduction_operand(ctx, call, op, value))


_REDUCTION_OPS: dict[str, OpName] = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}
for _name, _op in _REDUCTION_OPS.items():
    _register_reduction(_name, _op)


def _register_vote(name: str, op: OpName) -> None:
    """Register the method `name`, "any" or "all", as the reduction of truth values with the operator `op`."""

    @method(name)
    def lower(
        ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, axis: KernelValue, *, keepdims: KernelValue
    ) -> KernelValue:
        if is_tile(value):
            return reduce_tile(ctx, call, scope, op, value, axis, keepdims)
        _reject_axis(ctx, call, axis, keepdims)
        if isinstance(value, Lazy):
            return lazy_collectives.reduction(ctx, call, scope, op, value)
        test = truth(ctx, call.node, value)
        if isinstance(test, bool):
            return test
        if scope.kind == "subgroup":
            return emit(ctx, op_name(f"sg_{name}"), test)
        return reduce_value(ctx, call.node, scope.kind, op, test)


_register_vote("any", "or")
_register_vote("all", "and")


_ARG_REDUCTION_OPS: dict[str, OpName] = {"argmin": "min", "argmax": "max"}
for _name, _op in _ARG_REDUCTION_OPS.items():

    @method(_name)
    def _arg_reduction(
        ctx: Context,
        call: Call,
        scope: ScopeValue,
        value: KernelValue,
        axis: KernelValue,
        *,
        keepdims: KernelValue,
        _op: OpName = _op,  # binds the operator of this iteration
    ) -> KernelValue:
        """Lower `argmin` or `argmax`.

        If `value` is one value per invocation, the result is the lowest rank of an invocation that has the min or max.
        """
        if is_tile(value):
            return arg_reduce_tile(ctx, call, scope, _op, value, axis, keepdims)
        _reject_axis(ctx, call, axis, keepdims)
        if isinstance(value, Lazy):
            return lazy_collectives.arg_reduction(ctx, call, scope, _op, value)
        operand = reduction_operand(ctx, call, _op, value)
        return index_of_extremum(ctx, call, scope.kind, _op, operand, rank_of(ctx, scope.kind))


# -- broadcast
@method("broadcast")
def _broadcast(ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, rank: KernelValue) -> KernelValue:
    """Lower `wg.broadcast(value, rank)`: every invocation gets the value of the invocation with this rank."""
    operand, source = materialize(ctx, call.node, value), as_index(ctx, call.node, rank, "the rank")
    if scope.kind == "subgroup":
        return emit(ctx, "sg_broadcast", operand, source)
    b = ctx.builder
    array = scratch(ctx, call.node, operand.type, 1)
    if ctx.loops or not ctx.is_kernel:
        # This code may run repeatedly: other invocations may still be reading the value of the previous run.
        b.op("barrier")
    own = rank_of(ctx, "workgroup")
    emit_when(ctx, b.emit("eq", own, source), lambda: b.op("store", array, b.index(0), operand))
    b.op("barrier")
    return emit(ctx, "assume_uniform", b.emit("load", array, b.index(0)))


# -- subgroups only
@method("shuffle", "subgroup")
def _shuffle(ctx: Context, call: Call, _scope: ScopeValue, value: KernelValue, rank: KernelValue) -> KernelValue:
    return emit(ctx, "sg_shuffle", materialize(ctx, call.node, value), as_index(ctx, call.node, rank, "the rank"))


@method("shuffle_xor", "subgroup")
def _shuffle_xor(ctx: Context, call: Call, _scope: ScopeValue, value: KernelValue, mask: KernelValue) -> KernelValue:
    mask_number = static_value(mask)
    if mask_number is None or isinstance(mask_number, bool | float) or mask_number < 0:
        raise ctx.error(call.node, "the mask is an integer from 0 on, known at compile time", "shuffle takes any rank")
    return emit(ctx, "sg_shuffle_xor", materialize(ctx, call.node, value), mask=int(mask_number))


@method("ballot", "subgroup")
def _ballot(ctx: Context, call: Call, _scope: ScopeValue, value: KernelValue) -> KernelValue:
    test = truth(ctx, call.node, value)
    operand = ctx.builder.const(test, types.BOOL) if isinstance(test, bool) else test
    return emit(ctx, "sg_ballot", operand, type=Scalar(dtypes.u64))


@method("elect", "subgroup")
def _elect(ctx: Context, _call: Call, _scope: ScopeValue) -> KernelValue:
    return emit(ctx, "sg_elect", type=types.BOOL)
