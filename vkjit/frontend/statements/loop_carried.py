"""Loop-carried variables: their structure and types, their initial values, and their values at each exit of a loop.

Used by `loop_frames`, which lowers the body of a loop repeatedly until its types settle. `enter` builds the initial
values from the names bound before the loop; `leave` builds the operands of `continue` and `break`. `LoopFacts`
accumulates the type facts from all attempts.

Terms: the structure of a value is the value with a `Slot` in place of each run-time value (see `values.joins`). A weak
value is a literal, or computed only from literals and from loop-carried variables initialized from literals; it adapts
to the type of a strong value (see `values.conversions`).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from vkjit.dtypes import DType
from vkjit.errors import Loc
from vkjit.ir.core import Region, Value
from vkjit.ir.types import Array, Scalar, Type

from ..context import Context, Origin, Origins, Place
from ..kernel_values import (
    Binding,
    Conflict,
    KernelValue,
    Unbound,
    describe_type,
    describe_value,
    holds_lazy,
    is_literal,
    parts_of,
    same_constant,
    same_structure,
    with_parts,
)
from ..values.conversions import default_dtype, strict_join
from ..values.joins import (
    LAZY_ESCAPE_MESSAGE,
    JoinFailure,
    Slot,
    adapts,
    common_structure,
    has_runtime,
    rebuild,
    to_type,
)

__all__ = ["Carried", "Exit", "LoopFacts", "enter", "leave"]

Entry = Binding | Unbound | Conflict


@dataclass(frozen=True, slots=True)
class Exit:
    """One exit of a loop.

    - `names`: the entries of the local names at the exit.
    - `reason`: the error message for a name that is unbound at the exit and read after the loop.
    - `loc`: the exit's location.
    """

    names: dict[str, Entry]
    reason: str
    loc: Loc


@dataclass(slots=True)
class Carried:
    """One loop-carried variable.

    - `structure`: the value with a Slot in place of each run-time value and each literal.
    - `types`: the types of the slots.
    - `origins`: for each slot that is initialized from a literal and hasn't taken a strong type yet, the Origin that
      collects the strong types it is combined with; None for the other slots.
    - `initial`: the initial values of the slots.
    - `entry`: the name's entry in `Context.env` before the loop.
    - `bound_before`: True if the name has a value before the loop. If False, the initial values are poison, and the
      variable only passes the value that the body binds out of the loop.
    - `outer_origins`: for each slot, the origins of its initial value in enclosing loops; empty if that value is
      strong.
    - `unbound_at`: the kinds of exits (`loop_frames.BROKEN`, `ENDED`) at which the variable has no value.
    - `first_binding`: the binding at the first exit if `bound_before` is False, else None.
    """

    name: str
    structure: KernelValue
    types: list[Type]
    origins: list[Origin | None]
    initial: list[Value]
    entry: Entry
    bound_before: bool
    outer_origins: list[Origins] = field(default_factory=list)
    unbound_at: set[str] = field(default_factory=set)
    first_binding: Binding | None = None

    def start(self, ctx: Context, values: list[Value]) -> None:
        """Bind the name at the start of the body; `values` are the region's arguments for its slots."""
        if not self.bound_before:
            if isinstance(self.entry, Unbound | Conflict):
                ctx.env[self.name] = self.entry
            return
        for value, origin, outer in zip(values, self.origins, self.outer_origins, strict=True):
            if origin is not None:
                ctx.mark_weak(value, (origin, *outer))
        assert isinstance(self.entry, Binding)
        ctx.env[self.name] = Binding(rebuild(self.structure, values), self.entry.loc)

    def finish(self, ctx: Context, values: list[Value]) -> None:
        """Bind the name after the loop; `values` are the loop's results for its slots."""
        first_binding = self.entry if isinstance(self.entry, Binding) else self.first_binding
        bound_at = first_binding.loc if first_binding is not None else None
        # `outer_origins` is empty if the name isn't bound before the loop; then no slot is weak.
        for value, origin, outer in zip(values, self.origins, self.outer_origins, strict=False):
            if origin is not None:
                ctx.mark_weak(value, outer)
        ctx.bind(self.name, rebuild(self.structure, values), bound_at)


@dataclass(slots=True)
class LoopFacts:
    """Type facts found by lowering a loop's body, kept between attempts.

    - `strong`: the strong types that variables initialized from literals must have, by name and slot.
    - `conflicts`: names whose values have incompatible types.
    - `exported`: names that have no usable value before the loop but are bound at every exit. Their values are passed
      out of the loop. Each item is the structure, the types of its slots, and the binding at the first exit.
    - `changed`: True if the current attempt has added a fact.
    - `region`: for an iteration of an unrolled loop, the region that it is lowered into; else None.
    """

    strong: dict[str, list[Type | None]] = field(default_factory=dict)
    conflicts: dict[str, Conflict] = field(default_factory=dict)
    exported: dict[str, tuple[KernelValue, list[Type], Binding]] = field(default_factory=dict)
    changed: bool = False
    region: Region | None = None

    def conflict(self, name: str, conflict: Conflict) -> None:
        """Record that a name's values have incompatible types."""
        if name not in self.conflicts:
            self.conflicts[name] = conflict
            self.changed = True

    def strengthen(self, name: str, slots: int, number: int, type_: Type) -> None:
        """Record that slot `number` of a variable initialized from a literal must have the strong type `type_`.

        `slots` is the number of slots that the variable has.
        """
        types = self.strong.setdefault(name, [None] * slots)
        if types[number] is None:
            types[number] = type_
            self.changed = True

    def settle(self, ctx: Context, carried: list[Carried], exits: list[Exit]) -> None:
        """Update the facts after an attempt to lower the body. `exits` are the exits that the names must be bound at.

        A weak variable that the body combined with strong values, but never assigned one, takes a type from
        `_resolved_type`. A name that isn't loop-carried but is bound at all exits is exported.
        """
        # If the attempt has added a fact, the body is lowered again, and variables may meet other strong types then.
        if not self.changed:
            for variable in carried:
                self._resolve_weak_slots(variable)
        names = {c.name for c in carried}
        for name in _names_bound_everywhere(exits) - names - self.exported.keys():
            if name in ctx.env and isinstance(ctx.env[name], Binding) and name not in self.conflicts:
                continue  # the binding before the loop
            self._export(ctx, name, exits)

    def _resolve_weak_slots(self, variable: Carried) -> None:
        """Give a type to each weak slot that was combined with strong values, as `_resolved_type` says."""
        for number, origin in enumerate(variable.origins):
            type_ = _resolved_type(variable.types[number], origin.strong_types) if origin is not None else None
            if type_ is not None:
                self.strengthen(variable.name, len(variable.types), number, type_)

    def _export(self, ctx: Context, name: str, exits: list[Exit]) -> None:
        """Add a name that is bound at all exits to `exported`.

        Does nothing if its values disagree, or if they are the same compile-time value, which needn't be passed out.
        """
        bindings = [e for e in (exit_.names[name] for exit_ in exits) if isinstance(e, Binding)]
        if all(same_constant(b.value, bindings[0].value) for b in bindings) and not has_runtime(bindings[0].value):
            return
        try:
            types: list[Type] = []
            structure = common_structure(ctx, [b.value for b in bindings], types)
        except JoinFailure:
            return
        self.exported[name] = (structure, types, bindings[0])
        self.changed = True

    def after(self, ctx: Context, name: str, exits: list[Exit], node: ast.For | ast.While) -> Entry:
        """Return the entry, after the loop, of a name that isn't loop-carried.

        `exits` are the exits from which control can reach the code after the loop.
        """
        if name in self.conflicts:
            return self.conflicts[name]
        entries = [(exit_, exit_.names.get(name)) for exit_ in exits]
        bindings = [e for _, e in entries if isinstance(e, Binding)]
        if len(bindings) < len(entries) or not bindings:  # there is an exit without a binding, or no exit
            unusable = next((e for _, e in entries if isinstance(e, Unbound | Conflict)), None)
            if unusable is not None:
                return unusable
            unbound_exit = next((exit_ for exit_, e in entries if not isinstance(e, Binding)), None)
            if unbound_exit is not None:
                return Unbound(unbound_exit.reason, unbound_exit.loc)
            return Unbound("nothing binds it", ctx.loc(node))
        first = bindings[0]
        if holds_lazy(first.value):
            return Unbound(LAZY_ESCAPE_MESSAGE, first.loc)
        other = next((b for b in bindings if not same_constant(b.value, first.value)), None)
        if other is None:
            return first
        return Conflict(describe_value(first.value), first.loc, describe_value(other.value), other.loc)


def _resolved_type(type_: Type, strong_types: list[DType]) -> Type | None:
    """Return the type for a weak variable of default type `type_` that was combined with values of `strong_types`.

    Only types of the same kind (float or integer) as the default type count. The result is the first of them that
    doesn't promote to the default type, such as i64 for an i32. If there is none, but one of them differs from the
    default type, such as i16, the result is the default type. None means that the variable stays weak.
    """
    assert isinstance(type_, Scalar)
    same_kind = [t for t in strong_types if t.is_float == type_.dtype.is_float and t.kind != "bool"]
    required = next((t for t in same_kind if strict_join(type_.dtype, t) is not type_.dtype), None)
    if required is not None:
        return Scalar(required)
    return type_ if any(t is not type_.dtype for t in same_kind) else None


def _names_bound_everywhere(exits: list[Exit]) -> set[str]:
    """Return the names that have a value at each exit."""
    if not exits:
        return set()
    return set.intersection(*({n for n, e in exit_.names.items() if isinstance(e, Binding)} for exit_ in exits))


def enter(ctx: Context, name: str, facts: LoopFacts, node: ast.AST) -> Carried | None:
    """Return the loop-carried variable for a name, with its initial values, or None if the name isn't carried.

    `facts` are the facts found by previous attempts to lower the loop.
    """
    entry: Entry = ctx.env.get(name) or Unbound("it isn't bound before the loop", ctx.loc(node))
    # A name whose value before the loop conflicts with those in the body counts as unbound before the loop.
    if name in facts.exported and (not isinstance(entry, Binding) or name in facts.conflicts):
        structure, types, first = facts.exported[name]
        poison = [ctx.builder.emit("poison", type=t) for t in types]
        no_origins: list[Origin | None] = [None] * len(types)
        unusable: Entry = facts.conflicts.get(name, entry) if isinstance(entry, Binding) else entry
        return Carried(name, structure, types, no_origins, poison, unusable, bound_before=False, first_binding=first)
    if not isinstance(entry, Binding) or name in facts.conflicts:
        return None
    carried = Carried(name, None, [], [], [], entry, bound_before=True)  # `_add_slots` fills the lists
    carried.structure = _add_slots(ctx, node, entry.value, carried, facts.strong.get(name, []))
    return carried


def _add_slots(
    ctx: Context, node: Place, value: KernelValue, carried: Carried, strong: list[Type | None]
) -> KernelValue:
    """Return the structure of a variable's value before the loop, and add its slots to `carried`.

    Literals get slots, too, since the body may change them. `strong` has the strong type that the facts prescribe for
    each slot, or None; it is empty if they prescribe none.
    """
    types = carried.types
    parts = parts_of(value)
    if parts is not None:
        return with_parts(value, [_add_slots(ctx, node, item, carried, strong) for item in parts])
    is_weak = is_literal(value) or (isinstance(value, Value) and value in ctx.weak)
    if not is_weak and not has_runtime(value):
        return value
    strong_type = strong[len(types)] if len(types) < len(strong) else None
    if is_weak and strong_type is not None:
        type_, is_weak = strong_type, False
    else:
        type_ = value.type if isinstance(value, Value) else Scalar(default_dtype(value))  # type: ignore[arg-type]
    types.append(type_)
    can_change = is_weak and isinstance(type_, Scalar) and type_.dtype.kind != "bool"
    carried.origins.append(Origin() if can_change else None)
    carried.outer_origins.append((ctx.origins(value) or ()) if isinstance(value, Value) else ())
    carried.initial.append(to_type(ctx, node, value, type_))
    return Slot(len(types) - 1, type_)


def leave(ctx: Context, carried: Carried, facts: LoopFacts, exit_kind: str | None) -> list[Value]:
    """Return the operands of a `break` or `continue` operation for one loop-carried variable.

    `exit_kind` is the kind of exit (`loop_frames.BROKEN` or `ENDED`), or None for a `continue` that isn't recorded as
    an exit (see `loop_frames.emit_exit`). If the current value doesn't fit the variable, a conflict is recorded in
    `facts`, and the operands are poison.
    """
    entry = ctx.env.get(carried.name)
    if not isinstance(entry, Binding):
        if carried.bound_before and isinstance(entry, Conflict):
            facts.conflict(carried.name, entry)
        elif exit_kind is not None:
            carried.unbound_at.add(exit_kind)
        return [ctx.builder.emit("poison", type=t) for t in carried.types]
    values: list[Value] = []
    if not _fill(ctx, carried, carried.structure, entry.value, facts, values):
        initial_binding = carried.entry if isinstance(carried.entry, Binding) else carried.first_binding or entry
        conflict = Conflict(
            _describe_initial(carried, initial_binding), initial_binding.loc, describe_value(entry.value), entry.loc
        )
        facts.conflict(carried.name, conflict)
        return [ctx.builder.emit("poison", type=t) for t in carried.types]
    return values


def _describe_initial(carried: Carried, initial_binding: Binding) -> str:
    """Describe a variable's initial value for messages: by its type if that is settled, else by the value itself."""
    if len(carried.types) == 1 and isinstance(carried.structure, Slot) and carried.origins[0] is None:
        return describe_type(carried.types[0])
    return describe_value(initial_binding.value)


def _fill(
    ctx: Context, carried: Carried, structure: KernelValue, value: KernelValue, facts: LoopFacts, out: list[Value]
) -> bool:
    """Append to `out`, for each slot of `structure`, the item of `value` in its place, converted to the slot's type.

    Returns False if the value doesn't have this structure, or if an item doesn't fit its slot. An item that changes the
    type of a weak slot adds a fact; the operand is poison then, since the body will be lowered again.
    """
    parts = parts_of(structure)
    if parts is not None:
        if not same_structure(structure, value):
            return False
        return all(_fill(ctx, carried, s, v, facts, out) for s, v in zip(parts, parts_of(value) or (), strict=True))
    if not isinstance(structure, Slot):
        return same_constant(structure, value)
    number = structure.number
    type_ = carried.types[number]
    value_type = _type_of_value(value)
    if value_type is None:
        return False
    if carried.origins[number] is not None and _changes(ctx, value, value_type, type_):
        facts.strengthen(carried.name, len(carried.types), number, value_type)
        out.append(ctx.builder.emit("poison", type=type_))
        return True
    if value_type != type_ and not _adapts(ctx, value, value_type, type_):
        return False
    out.append(to_type(ctx, ctx.builder.loc, value, type_))
    return True


def _type_of_value(value: KernelValue) -> Type | None:
    """Return the IR type of a literal or run-time value; None for arrays and other compile-time values."""
    if is_literal(value):
        return Scalar(default_dtype(value))
    return value.type if isinstance(value, Value) and not isinstance(value.type, Array) else None


def _changes(ctx: Context, value: KernelValue, value_type: Type, type_: Type) -> bool:
    """True if a value of type `value_type` changes a weak slot of type `type_`.

    A strong number always does, a weak one if it is a float and the slot is an integer.
    """
    if not isinstance(value_type, Scalar) or value_type.dtype.kind == "bool":
        return False
    if isinstance(value, Value) and value not in ctx.weak:
        return True
    return value_type.dtype.is_float and isinstance(type_, Scalar) and not type_.dtype.is_float


def _adapts(ctx: Context, value: KernelValue, value_type: Type, type_: Type) -> bool:
    """True if the value, of type `value_type`, is weak and may take the type `type_`."""
    weak = is_literal(value) or (isinstance(value, Value) and value in ctx.weak)
    return weak and isinstance(value_type, Scalar) and isinstance(type_, Scalar) and adapts(value, value_type, type_)
