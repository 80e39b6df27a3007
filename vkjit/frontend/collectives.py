"""Workgroup and subgroup collectives on one value per invocation.

Methods of `vk.workgroup()` and `vk.subgroup()` lower to `sg_*` operations. Workgroup collectives continue through
shared memory. The order of combination is fixed: adjacent subgroups are combined first, as if the subgroup were larger.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from .. import dtypes, lang
from ..dtypes import DType
from ..ir import types
from ..ir.core import Region, Value
from ..ir.types import Array, Scalar, Type, Vector
from ..lang.collectives import Subgroup, Workgroup
from .attributes import attributes
from .calls import lowers, lowers_method
from .context import Call, Context
from .conversions import as_index, convert, dtype_of_value, materialize, static_value, truth
from .elementwise import is_tile
from .memory import not_in_over
from .values import KernelValue, Lazy, Method, describe_value

__all__ = ["ScopeValue", "combine", "neutral", "reduce_value"]


@dataclass(frozen=True, slots=True)
class ScopeValue:
    """The result of `vk.workgroup()` (kind "workgroup") or `vk.subgroup()` (kind "subgroup")."""

    kind: str


MethodLowering = Callable[..., KernelValue]
METHODS: dict[tuple[str, str], MethodLowering] = {}
SMALLEST_SUBGROUP = 4
"""The minimum subgroup size of any device. It bounds the number of subgroups in a workgroup."""
REDUCTIONS = ("add", "mul", "min", "max", "and", "or", "xor")


def method(name: str, *kinds: str) -> Callable[[MethodLowering], MethodLowering]:
    """Register a method's lowering `(context, call, scope, *arguments)` for the scope kinds given (default: both)."""

    def register(function: MethodLowering) -> MethodLowering:
        for kind in kinds or ("workgroup", "subgroup"):
            owner = Workgroup if kind == "workgroup" else Subgroup
            METHODS[kind, name] = lowers_method(getattr(owner, name), function)
        return function

    return register


@lowers(lang.workgroup)
def _workgroup(ctx: Context, call: Call) -> KernelValue:
    not_in_over(ctx, call, "a collective")
    return ScopeValue("workgroup")


@lowers(lang.subgroup)
def _subgroup(ctx: Context, call: Call) -> KernelValue:
    not_in_over(ctx, call, "a collective")
    return ScopeValue("subgroup")


@attributes(lambda value: isinstance(value, ScopeValue))
def _attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    assert isinstance(base, ScopeValue)
    lower = METHODS.get((base.kind, node.attr))
    if lower is None:
        methods = ", ".join(sorted(name for kind, name in METHODS if kind == base.kind))
        raise ctx.error(node, f"a {base.kind} has no {node.attr}", f"it has {methods}")
    return Method(base, node.attr, lower)


def uses_lanes(ctx: Context) -> None:
    """Mark the kernel as dependent on subgroup lanes, so that it is emitted with a one-dimensional workgroup."""
    ctx.session.module.kernel.attrs["subgroups"] = True


def emit(ctx: Context, name: str, *operands: Value, **attrs: object) -> Value:
    """Emit a subgroup operation."""
    uses_lanes(ctx)
    return ctx.builder.emit(name, *operands, **attrs)


# -- sizes and ranks
def invocations(ctx: Context) -> int:
    """Return the number of invocations in a workgroup."""
    x, y, z = ctx.session.signature.local_size
    return x * y * z


def rank_of(ctx: Context, kind: str) -> Value:
    """Emit the linear id of the invocation within its scope."""
    lane = emit(ctx, "lane_id")
    if kind == "subgroup":
        return lane
    base = ctx.builder.emit("mul", emit(ctx, "subgroup_id"), emit(ctx, "subgroup_size"))
    return ctx.builder.emit("add", base, lane)


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
def combine(ctx: Context, op: str, a: Value, b: Value) -> Value:
    """Combine two values with a reduction operator."""
    return ctx.builder.emit(op, a, b)


def neutral(ctx: Context, op: str, type_: Type) -> Value:
    """Return the identity element of a reduction (-0.0 for float sums)."""
    assert isinstance(type_, Scalar | Vector)
    dtype = type_.dtype
    scalar = ctx.builder.const(_neutral_number(op, dtype), dtype)
    from .conversions import splat

    return splat(ctx, scalar, type_.size) if isinstance(type_, Vector) else scalar


def _neutral_number(op: str, dtype: DType) -> bool | int | float:
    if dtype.kind == "bool":
        return op == "and"
    if dtype.is_float:
        return {"add": -0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}[op]
    low, high = (
        (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    )
    ones = -1 if dtype.is_signed else high
    identities: dict[str, int] = {"add": 0, "mul": 1, "min": high, "max": low, "and": ones, "or": 0, "xor": 0}
    return identities[op]


def prepared(ctx: Context, call: Call, op: str, value: KernelValue) -> Value:
    """Convert a value to a type that supports the reduction: bool to i32 for arithmetic."""
    operand = materialize(ctx, call.node, value)
    dtype = dtype_of_value(operand)
    if op in ("add", "mul", "min", "max") and dtype.kind == "bool":
        return convert(ctx, call.node, operand, dtypes.i32)
    if op in ("and", "or", "xor") and dtype.is_float:
        raise ctx.error(call.node, f"{op} is for integers and bools, found {describe_value(operand)}")
    return operand


def reduce_value(ctx: Context, node: ast.AST, kind: str, op: str, value: Value, label: str = "") -> Value:
    """Reduce one value per invocation; every invocation gets the result.

    `label` distinguishes the scratch arrays of several reductions at one node.
    """
    inner = emit(ctx, "sg_reduce", value, op=op)
    if kind == "subgroup":
        return inner
    # Each subgroup reduces the same values, so the result is workgroup-uniform; the uniformity analysis can't see that.
    return emit(ctx, "assume_uniform", _across(ctx, node, op, inner, label))


def _across(ctx: Context, node: ast.AST, op: str, value: Value, label: str) -> Value:
    """Reduce one value per subgroup over the workgroup, by repeated subgroup reductions through shared memory."""
    max_subgroups = max(1, -(-invocations(ctx) // SMALLEST_SUBGROUP))
    if max_subgroups == 1:
        return value
    b = ctx.builder
    array = scratch(ctx, node, value.type, max_subgroups, label)
    lane, group, size = emit(ctx, "lane_id"), emit(ctx, "subgroup_id"), emit(ctx, "subgroup_size")
    count = emit(ctx, "num_subgroups")
    if ctx.loops or not ctx.is_kernel:
        b.op("barrier")
    when(ctx, b.emit("eq", lane, b.index(0)), lambda: b.op("store", array, group, value))
    b.op("barrier")
    body = Region([types.INDEX], ["left"])
    element_index = b.emit("add", b.emit("mul", group, size), lane)
    with b.at(body):
        _reduce_iteration(ctx, op, array, element_index, body.args[0], (lane, group, size))
    remaining = b.op("loop", count, types=[types.INDEX], regions=[body]).result
    return emit(ctx, "sg_reduce", _element_or_neutral(ctx, op, array, lane, remaining), op=op)


def _reduce_iteration(
    ctx: Context, op: str, array: Value, element_index: Value, remaining: Value, ids: tuple[Value, Value, Value]
) -> None:
    """Emit one iteration: break if the `remaining` values fit into one subgroup, else each subgroup reduces its share
    to one.
    """
    b = ctx.builder
    lane, group, size = ids
    go, stay = Region(), Region()
    with b.at(go):
        b.op("break", remaining)
    with b.at(stay):
        b.op("yield")
    b.op("if", b.emit("le", remaining, size), types=[], regions=[go, stay])
    part = emit(ctx, "sg_reduce", _element_or_neutral(ctx, op, array, element_index, remaining), op=op)
    b.op("barrier")
    above = b.emit("sub", b.emit("add", remaining, size), b.index(1))
    fewer = b.emit("floordiv", above, size)
    writes = b.emit("and", b.emit("eq", lane, b.index(0)), b.emit("lt", group, fewer))
    when(ctx, writes, lambda: b.op("store", array, group, part))
    b.op("barrier")
    b.op("continue", fewer)


def _element_or_neutral(ctx: Context, op: str, array: Value, index: Value, count: Value) -> Value:
    b = ctx.builder
    inside, outside = Region(), Region()
    with b.at(inside):
        b.op("yield", b.emit("load", array, index))
    with b.at(outside):
        b.op("yield", neutral(ctx, op, array.type.element))  # type: ignore[attr-defined]
    result = array.type.element  # type: ignore[attr-defined]
    return b.op("if", b.emit("lt", index, count), types=[result], regions=[inside, outside]).result


def scratch(ctx: Context, node: ast.AST, element: Type, size: int, label: str = "") -> Value:
    """Return the shared scratch array of this program point."""
    assert isinstance(element, Scalar | Vector)
    return ctx.entry(node, Array(element, 1, space="shared", shape=(size,), contiguous=True), label)


def when(ctx: Context, condition: Value, then: Callable[[], object]) -> None:
    """Emit an `if` without results."""
    regions = [Region(), Region()]
    with ctx.builder.at(regions[0]):
        then()
        ctx.builder.op("yield")
    with ctx.builder.at(regions[1]):
        ctx.builder.op("yield")
    ctx.builder.op("if", condition, types=[], regions=regions)


def lazy_collectives() -> ModuleType:
    """Return the module of collectives over lazy values (imported here because it depends on this module)."""
    from . import lazy_collectives as module

    return module


def tiles_reduce() -> ModuleType:
    """Return the module of collectives over tiles (imported here because it depends on this module)."""
    from . import tiles_reduce as module

    return module


def _no_axis(ctx: Context, call: Call, axis: KernelValue, keepdims: KernelValue) -> None:
    """Raise CompileError if `axis` or `keepdims` is given for a value without axes."""
    if axis is not None or keepdims is not False:
        hint = "hold it first: wg.load(x[i:i+BM, j:j+BN])"
        raise ctx.error(call.node, "axis and keepdims are for tiles, whose sizes are known at compile time", hint)


def _reduction(name: str, op: str) -> None:
    @method(name)
    def lower(
        ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, axis: KernelValue, *, keepdims: KernelValue
    ) -> KernelValue:
        if is_tile(value):
            return tiles_reduce().reduce_tile(ctx, call, scope, op, value, axis, keepdims)
        _no_axis(ctx, call, axis, keepdims)
        if isinstance(value, Lazy):
            return lazy_collectives().reduction(ctx, call, scope, op, value)
        return reduce_value(ctx, call.node, scope.kind, op, prepared(ctx, call, op, value))


for _name, _op in {"sum": "add", "prod": "mul", "min": "min", "max": "max"}.items():
    _reduction(_name, _op)


def _vote(name: str, op: str) -> None:
    @method(name)
    def lower(
        ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, axis: KernelValue, *, keepdims: KernelValue
    ) -> KernelValue:
        if is_tile(value):
            return tiles_reduce().reduce_tile(ctx, call, scope, op, value, axis, keepdims)
        _no_axis(ctx, call, axis, keepdims)
        if isinstance(value, Lazy):
            return lazy_collectives().reduction(ctx, call, scope, op, value)
        test = truth(ctx, call.node, value)
        if isinstance(test, bool):
            return test
        if scope.kind == "subgroup":
            return emit(ctx, f"sg_{name}", test)
        return reduce_value(ctx, call.node, scope.kind, op, test)


_vote("any", "or")
_vote("all", "and")


def position_of(ctx: Context, call: Call, kind: str, op: str, value: Value, own: Value) -> Value:
    """Return the minimum of the indices `own` at which `value` equals the min/max over the scope."""
    best = reduce_value(ctx, call.node, kind, op, value, "value")
    b = ctx.builder
    same = b.emit("eq", value, best)
    if dtype_of_value(value).is_float:
        same = b.emit("or", same, b.emit("and", b.emit("isnan", value), b.emit("isnan", best)))
    candidate = b.emit("select", same, own, b.index(2**63 - 1))
    return reduce_value(ctx, call.node, kind, "min", candidate, "position")


for _name, _op in {"argmin": "min", "argmax": "max"}.items():

    @method(_name)
    def _arg(
        ctx: Context,
        call: Call,
        scope: ScopeValue,
        value: KernelValue,
        axis: KernelValue,
        *,
        keepdims: KernelValue,
        _op: str = _op,
    ) -> KernelValue:
        if is_tile(value):
            return tiles_reduce().tile_argument(ctx, call, scope, _op, value, axis, keepdims)
        _no_axis(ctx, call, axis, keepdims)
        if isinstance(value, Lazy):
            return lazy_collectives().argument_reduction(ctx, call, scope, _op, value)
        operand = prepared(ctx, call, _op, value)
        return position_of(ctx, call, scope.kind, _op, operand, rank_of(ctx, scope.kind))


# -- broadcast
@method("broadcast")
def _broadcast(ctx: Context, call: Call, scope: ScopeValue, value: KernelValue, rank: KernelValue) -> KernelValue:
    operand, source = materialize(ctx, call.node, value), as_index(ctx, call.node, rank, "the rank")
    if scope.kind == "subgroup":
        return emit(ctx, "sg_broadcast", operand, source)
    b = ctx.builder
    array = scratch(ctx, call.node, operand.type, 1)
    if ctx.loops or not ctx.is_kernel:
        b.op("barrier")
    own = rank_of(ctx, "workgroup")
    when(ctx, b.emit("eq", own, source), lambda: b.op("store", array, b.index(0), operand))
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
