"""Joins of values at control-flow merges: `if` statements, conditional expressions, and loop-carried variables.

Two values agree if they are the same compile-time value, have the same type, or one is a weak value (such as a literal)
that may take the other's type; tuples and structs agree item by item.

Values are joined in three steps. `merge` finds the structure of the result: the value with a `Slot` in place of each
part that is only known at run time. For each slot, it adds an entry to a `Plan`: the slot's type, and the two values
that the branches have for it. All names that are live after the statement share one plan, so its slots are numbered
across them. `emit_if` emits an `if` operation with one result per slot, in which each branch yields its values.
`rebuild` puts the results in place of the slots. `common_structure` finds the structure of any number of values, for
the exits of loops and the `return`s of device functions.

A name whose values disagree becomes a `Conflict`, and a name that only one branch binds becomes `Unbound`; the error is
raised when the name is read, not at the join.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.errors import Loc
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OPS
from vkjit.ir.types import Array, Matrix, Scalar, Tile, Type, Vector

from ..context import Context, Place
from ..kernel_values import (
    Binding,
    Conflict,
    KernelValue,
    Unbound,
    describe_value,
    holds_lazy,
    is_function,
    is_literal,
    parts_of,
    same_constant,
    same_structure,
    with_parts,
)
from .conversions import convert, default_dtype, fit, splat

__all__ = [
    "JoinFailure",
    "Slot",
    "adapts",
    "agreed_type",
    "choose",
    "common_structure",
    "emit_if",
    "has_runtime",
    "is_speculatable",
    "join_branches",
    "parts_in_slots",
    "rebuild",
    "to_type",
]

Names = dict[str, "Binding | Unbound | Conflict"]
"""The local names at a point of the function, as in `Context.env`."""

LAZY_ESCAPE_MESSAGE = "a lazy slice can't leave the branch or loop that it is made in"

FUNCTIONS_HINT = "functions can't be chosen at run time: call each in a branch of its own"

Joined = ast.If | ast.For | ast.While
"""Statements after which two control-flow paths merge: the branches of an `if`, or the exits of a loop with and without
a `break`.
"""


class JoinFailure(Exception):  # noqa: N818  (control flow, not an error)
    """Raised if two values can't be joined; callers turn it into an error or a `Conflict`."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Placeholder for a run-time value in a structure; `number` is the value's index in the list given to `rebuild`."""

    number: int
    type: Type


@dataclass(slots=True)
class Plan:
    """What an `if` operation yields at a join, for each slot of the joined values.

    - `types`: the slots' types, which are the types of the operation's results.
    - `first`, `second`: the values that the first and the second branch yield. They may still be literals, or weak
      values of another type; `to_type` converts them. If only one branch reaches the join, its values are in `first`,
      and `second` is unused.
    """

    types: list[Type] = field(default_factory=list)
    first: list[KernelValue] = field(default_factory=list)
    second: list[KernelValue] = field(default_factory=list)


def agreed_type(ctx: Context, a: KernelValue, b: KernelValue) -> Type:
    """Return the common type of two run-time values or literals at a join. Raises JoinFailure."""
    weak_a, weak_b = _is_weak(ctx, a), _is_weak(ctx, b)
    type_a, type_b = _type_of(a), _type_of(b)
    if type_a == type_b:
        return type_a
    if not (isinstance(type_a, Scalar) and isinstance(type_b, Scalar)):
        raise JoinFailure
    if weak_a and weak_b and "bool" not in (type_a.dtype.kind, type_b.dtype.kind):
        return Scalar(dtypes.f32)  # their types differ, so one is an integer and one a float
    if weak_a and adapts(a, type_a, type_b):
        return type_b
    if weak_b and adapts(b, type_b, type_a):
        return type_a
    raise JoinFailure


def _is_weak(ctx: Context, value: KernelValue) -> bool:
    """True for literals and weak run-time values."""
    return is_literal(value) or (isinstance(value, Value) and value in ctx.weak)


def _type_of(value: KernelValue) -> Type:
    """Return the IR type of a run-time value or literal. Raises JoinFailure for anything else, arrays included."""
    if isinstance(value, Value) and not isinstance(value.type, Array):
        return value.type
    if is_literal(value):
        return Scalar(default_dtype(value))
    raise JoinFailure


def adapts(value: KernelValue, weak: Scalar, strong: Scalar) -> bool:
    """True if a weak value of type `weak` may take the type `strong` of the value it is joined with."""
    if weak.dtype.kind == "bool" or strong.dtype.kind == "bool":
        return False
    if weak.dtype.is_float and not strong.dtype.is_float:
        return False
    return not (is_literal(value) and value < 0 and strong.dtype.kind == "uint")


def merge(ctx: Context, a: KernelValue, b: KernelValue, plan: Plan) -> KernelValue:
    """Return the common structure of two values, and append its slots to the plan.

    Raises JoinFailure if the values disagree.
    """
    if same_constant(a, b):
        return a
    if same_structure(a, b):
        pairs = zip(parts_of(a) or (), parts_of(b) or (), strict=True)
        return with_parts(a, [merge(ctx, x, y, plan) for x, y in pairs])
    type_ = agreed_type(ctx, a, b)
    plan.types.append(type_)
    plan.first.append(a)
    plan.second.append(b)
    return Slot(len(plan.types) - 1, type_)


def has_runtime(value: KernelValue) -> bool:
    """True if the value is or contains a run-time value other than an array."""
    parts = parts_of(value)
    if parts is not None:
        return any(map(has_runtime, parts))
    return isinstance(value, Value) and not isinstance(value.type, Array)


def common_structure(ctx: Context, values: list[KernelValue], types: list[Type]) -> KernelValue:
    """Return the common structure of several values, and append the types of its slots to `types`.

    Raises JoinFailure if the values disagree.
    """
    first = values[0]
    if not any(map(has_runtime, values)) and all(same_constant(first, v) for v in values):
        return first
    if parts_of(first) is not None:
        if not all(same_structure(first, v) for v in values):
            raise JoinFailure
        columns = zip(*(parts_of(v) or () for v in values), strict=True)
        return with_parts(first, [common_structure(ctx, list(items), types) for items in columns])
    # `agreed_type` takes values, since weak ones adapt: this is a value of the type agreed so far.
    representative: KernelValue = first
    agreed = agreed_type(ctx, first, first)
    for value in values[1:]:
        agreed = agreed_type(ctx, representative, value)
        representative = value if isinstance(value, Value) and value.type == agreed else representative
    types.append(agreed)
    return Slot(len(types) - 1, agreed)


def rebuild(structure: KernelValue, values: list[Value]) -> KernelValue:
    """Return the structure with values in place of its slots."""
    if isinstance(structure, Slot):
        return values[structure.number]
    parts = parts_of(structure)
    if parts is not None:
        return with_parts(structure, [rebuild(item, values) for item in parts])
    return structure


def parts_in_slots(structure: KernelValue, value: KernelValue) -> list[KernelValue]:
    """Return the parts of a value in the places of a structure's slots."""
    if isinstance(structure, Slot):
        return [value]
    pairs = zip(parts_of(structure) or (), parts_of(value) or (), strict=True)
    return [part for s, v in pairs for part in parts_in_slots(s, v)]


def to_type(ctx: Context, node: Place, value: KernelValue, type_: Type) -> Value:
    """Convert a value that agrees with `type_` to an IR value of that type."""
    if is_literal(value):
        assert isinstance(type_, Scalar)
        return ctx.builder.const(fit(ctx, node, value, type_.dtype), type_)
    assert isinstance(value, Value)
    if value.type == type_:
        return value
    assert isinstance(type_, Scalar | Vector)
    return convert(ctx, node, value, type_.dtype)


def emit_if(ctx: Context, node: Place, condition: Value, regions: list[Region], plan: Plan) -> list[Value]:
    """Emit an `if` whose two regions yield the plan's values; return its results, one for each slot."""
    for region, values in zip(regions, (plan.first, plan.second), strict=True):
        with ctx.builder.at(region):
            ctx.builder.op("yield", *[to_type(ctx, node, v, t) for v, t in zip(values, plan.types, strict=True)])
    op = ctx.builder.op("if", condition, types=plan.types, regions=regions)
    for result, a, b in zip(op.results, plan.first, plan.second, strict=True):
        ctx.mark_weak(result, ctx.origins(a, b))
    return op.results


def is_speculatable(region: Region) -> bool:
    """True if all operations in the region may be executed speculatively."""
    return all(OPS[op.name].speculatable for op in region.walk())


def choose(
    ctx: Context,
    node: Place,
    condition: Value,
    first: Callable[[], KernelValue],
    second: Callable[[], KernelValue],
) -> KernelValue:
    """Lower the choice between two expressions: the value of `first` if the condition is true, else that of `second`.

    Each of the two functions lowers an expression into the current region. Emits `select` if all their operations may
    be executed speculatively, else an `if` that evaluates only one of the expressions.
    """
    regions, values = [Region(), Region()], []
    for region, evaluate in zip(regions, (first, second), strict=True):
        with ctx.builder.at(region):
            values.append(evaluate())
    plan = Plan()
    try:
        structure = merge(ctx, values[0], values[1], plan)
    except JoinFailure:
        raise ctx.error(
            node,
            f"the two values don't agree: {describe_value(values[0])} and {describe_value(values[1])}",
            FUNCTIONS_HINT if any(map(is_function, values)) else "convert one of them, as in vk.f32(x)",
        ) from None
    # `select` takes scalars and vectors only.
    if not all(map(is_speculatable, regions)) or any(isinstance(type_, Matrix | Tile) for type_ in plan.types):
        return rebuild(structure, emit_if(ctx, node, condition, regions, plan))
    ctx.builder.region.ops += [*regions[0].ops, *regions[1].ops]
    results = []
    for a, b, type_ in zip(plan.first, plan.second, plan.types, strict=True):
        operands = to_type(ctx, node, a, type_), to_type(ctx, node, b, type_)
        results.append(ctx.builder.emit("select", _lanewise_condition(ctx, condition, type_), *operands))
        ctx.mark_weak(results[-1], ctx.origins(a, b))
    return rebuild(structure, results)


def _lanewise_condition(ctx: Context, condition: Value, type_: Type) -> Value:
    """Return the condition for a `select` of values of type `type_`; for vectors it is repeated in each lane."""
    return splat(ctx, condition, type_.size) if isinstance(type_, Vector) else condition


def join_branches(
    ctx: Context,
    node: Joined,
    condition: Value,
    regions: list[Region],
    names: list[Names],
    exited: list[bool],
) -> bool:
    """Emit the `if` operation for two lowered branches, and bind the names that are live after it.

    For each branch, `regions` has its operations without the final `yield`, `names` the names at its end, and `exited`
    is True if control never reaches its end. Returns True if this holds for both branches.
    """
    live = ctx.scope.after.get(node, frozenset())
    if all(exited):
        ctx.builder.op("if", condition, types=[], regions=regions)
        ctx.builder.op("unreachable")
        return True
    if any(exited):
        _join_with_exit(ctx, node, condition, regions, names[exited.index(False)], exited, live)
        return False
    plan = Plan()
    structures: Names = {}
    for name in sorted(live & (names[0].keys() | names[1].keys())):
        structures[name] = _join_names(ctx, node, names[0].get(name), names[1].get(name), plan)
    results = emit_if(ctx, node, condition, regions, plan)
    _rebind(ctx, structures, results)
    return False


def _rebind(ctx: Context, structures: Names, results: list[Value]) -> None:
    """Bind each name to its structure, with the results of the `if` in the slots; Unbound and Conflict are kept."""
    for name, entry in structures.items():
        ctx.env[name] = Binding(rebuild(entry.value, results), entry.loc) if isinstance(entry, Binding) else entry


def _join_names(
    ctx: Context,
    node: Joined,
    a: Binding | Unbound | Conflict | None,
    b: Binding | Unbound | Conflict | None,
    plan: Plan,
) -> Binding | Unbound | Conflict:
    """Join the entries `a` and `b` that a name has at the ends of the two branches; None if it has no entry.

    The result is a Conflict, an Unbound, or a Binding whose value is a structure; the structure's slots are appended to
    the plan.
    """
    if a is b and a is not None:
        return a
    if isinstance(a, Conflict) or isinstance(b, Conflict):
        return a if isinstance(a, Conflict) else b  # type: ignore[return-value]
    if not (isinstance(a, Binding) and isinstance(b, Binding)):
        # Keep an entry that already says where the name is left unbound.
        for entry in (a, b):
            if isinstance(entry, Unbound) and entry.loc:
                return entry
        when = "when the condition is false" if isinstance(a, Binding) else "when the condition is true"
        return Unbound(f"it has no value {when}", _condition_loc(ctx, node))
    slot_count = len(plan.types)
    try:
        return Binding(merge(ctx, a.value, b.value, plan), a.loc)
    except JoinFailure:
        del plan.types[slot_count:], plan.first[slot_count:], plan.second[slot_count:]
        return Conflict(describe_value(a.value), a.loc, describe_value(b.value), b.loc)


def _condition_loc(ctx: Context, node: Joined) -> Loc:
    return ctx.loc(node.iter if isinstance(node, ast.For) else node.test)


def _join_with_exit(
    ctx: Context,
    node: Joined,
    condition: Value,
    regions: list[Region],
    names: Names,
    exited: list[bool],
    live: frozenset[str],
) -> None:
    """Emit an `if` in which one branch returns or leaves the loop, and bind the names in `live` after it.

    The branch that reaches the join yields the values of the names that are bound in it; `names` are the names at its
    end.
    """
    plan = Plan()
    structures: Names = {}
    for name in sorted(live & names.keys()):
        entry = names[name]
        if isinstance(entry, Binding) and entry is not ctx.env.get(name):  # bound in the branch
            entry = (
                Unbound(LAZY_ESCAPE_MESSAGE, entry.loc)
                if holds_lazy(entry.value)
                else Binding(_to_slots(entry.value, plan), entry.loc)
            )
        structures[name] = entry
    region = regions[exited.index(False)]
    with ctx.builder.at(region):
        ctx.builder.op("yield", *[to_type(ctx, node, v, t) for v, t in zip(plan.first, plan.types, strict=True)])
    op: Op = ctx.builder.op("if", condition, types=plan.types, regions=regions)
    for result, value in zip(op.results, plan.first, strict=True):
        ctx.mark_weak(result, ctx.origins(value))
    _rebind(ctx, structures, op.results)


def _to_slots(value: KernelValue, plan: Plan) -> KernelValue:
    """Return the structure of a value from the only branch that reaches the join, and append its slots to the plan."""
    parts = parts_of(value)
    if parts is not None:
        return with_parts(value, [_to_slots(item, plan) for item in parts])
    if isinstance(value, Value) and not isinstance(value.type, Array):
        plan.types.append(value.type)
        plan.first.append(value)
        return Slot(len(plan.types) - 1, value.type)
    return value
