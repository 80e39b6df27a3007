"""Joins loads, and stores, of neighbouring elements into one access of up to 16 bytes.

Enters: a kernel in normal form whose global arrays are linear, cleaned by `cse`. Leaves: the same form::

                                                 %w = linear %x : array<vec<f32, 4>, 1, in, linear>   (once)
    %a = load %x0, %o : f32                      %q = shr_raw %o, %two : i32
    %p = add %o, %one : i32                      %v = load %w, %q : vec<f32, 4>
    %b = load %x0, %p : f32               ->     %a = vec_extract %v {lane = 0} : f32
    ...                                          %b = vec_extract %v {lane = 1} : f32
    %d = load %x0, %r : f32                      ...

1. Offsets are neighbours where their forms (see `linear_forms`) differ by 1 in their constants alone.
2. The first offset is a multiple of the number of elements: its constant is, and so are all its other terms.
3. The array begins at a multiple of 16 bytes, and so does each of its rows: the kernel's attribute `aligned` promises
   that, and a launch gives it only where it holds for all arrays, offsets of views included. Then the stride between
   rows is a multiple too, which rule 2 draws on.
4. Loads take the place of the first of them: nothing between them writes their alias class, and nothing leaves.
5. Stores take the place of the last of them: nothing between them touches their alias class otherwise, orders memory,
   reports, or leaves. Only whole groups are stored, never bytes that the program doesn't store itself.
6. With `words`, the wide element is an integer of 64 bits that is shifted apart: drivers that load lane by lane do
   that twice as fast, whatever the lanes are. Else it is a vector of 4 or 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from .. import dtypes
from ..dtypes import DType
from ..ir.builder import Builder
from ..ir.core import Function, Module, Op, Region, Value
from ..ir.ops import OPS, Effect
from ..ir.rewrite import LOOPS, exits_of, replace_uses
from ..ir.types import Array, Scalar, Type, Vector
from .linear_forms import Form, LinearForms
from .memory import ALL, AliasClass, alias_class

__all__ = ["WidenAccess"]

_BITS: dict[int, DType] = {16: dtypes.u16, 32: dtypes.u32}
_MOST_BYTES = 16
Key = tuple[Value, frozenset[tuple[Value, int]]]
"""An array, and the terms of an offset that aren't constant."""
Open = dict[AliasClass, dict[Key, dict[int, Op]]]
"""Accesses that may still get neighbours, by alias class, key and constant part of the offset."""


@dataclass(frozen=True, slots=True)
class WidenAccess:
    """`words`: see rule 6. Does nothing for kernels that aren't `aligned` (rule 3)."""

    words: bool = False
    name: ClassVar[str] = "widen_access"

    def run(self, module: Module) -> Module:
        if module.kernel.attrs.get("aligned"):
            finder = _Finder(self.words)
            finder.region(module.kernel.body)
            if finder.groups:
                _Rewriter(module.kernel, finder.groups, self.words).run()
        return module


@dataclass(frozen=True, slots=True)
class _Group:
    """Accesses of neighbours, in the order of their offsets, and the one whose place they take."""

    members: Sequence[Op]
    place: Op


@dataclass(slots=True)
class _Finder:
    """Finds the groups. `loads` and `stores` hold what is open at the current place."""

    words: bool
    forms: LinearForms = field(default_factory=LinearForms)
    loads: Open = field(default_factory=dict)
    stores: Open = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)

    def region(self, region: Region) -> set[AliasClass]:
        """Goes through a region; gives the classes that it touches, `ALL` for everything."""
        around, known = (self.loads, self.stores), None
        self.loads, self.stores = {}, {}
        if any(op.name == "assume" for op in region.ops):
            known = dict(self.forms.zeros)  # promises hold to the end of their region
        touched: set[AliasClass] = set()
        for op in region.ops:
            self.learn(op)
            if not op.regions:
                touched |= self.access(op)
                continue
            inside: set[AliasClass] = set().union(*map(self.region, op.regions))
            exits = op.name not in LOOPS and any(True for inner in op.regions for _ in exits_of(inner))
            self.touch(inside, everything=exits)
            touched |= inside
        self.touch(set(), everything=True)
        self.loads, self.stores = around
        if known is not None:
            self.forms.zeros = known
        return touched

    def learn(self, op: Op) -> None:
        """Forms; and what rule 3 says of strides."""
        self.forms.note(op)
        if op.name == "assume":
            self.forms.assume(op)
        if op.name not in ("extent", "stride"):
            return
        array, axis = op.operands[0].type, op.attrs["axis"]
        assert isinstance(array, Array)
        rows = axis == array.rank - 1 and array.contiguous if op.name == "extent" else axis < array.rank - 1
        item = _item_bytes(array)
        if rows and array.rank > 1 and item:
            self.forms.zeros[op.result] = (_MOST_BYTES // item).bit_length() - 1

    def access(self, op: Op) -> set[AliasClass]:
        """Adds an access to what is open, closes what can't go on past an operation; gives the classes it touches."""
        effect = OPS[op.name].effect
        if effect in (Effect.SYNC, Effect.REPORT, Effect.READ_WRITE) or op.name == "call":
            self.touch(set(), everything=True)
            return {ALL}
        if effect not in (Effect.READ, Effect.WRITE):
            return set()
        memory = alias_class(op.operands[0])
        key, constant = self.key(op)
        if effect == Effect.READ:
            self.close(self.stores, memory)
            table = self.loads.setdefault(memory, {})
        else:
            self.close(self.loads, memory)
            self.close(self.stores, memory, but=key)
            table = self.stores.setdefault(memory, {})
        if key is not None:
            self.add(table, key, constant, op)
        return {memory}

    def key(self, op: Op) -> tuple[Key | None, int]:
        base = op.operands[0]
        view = base.op
        if op.name not in ("load", "store") or view is None or view.name != "linear" or view.operands[0].op is not None:
            return None, 0
        if not _lanes(base, self.words):
            return None, 0
        form = self.forms.of(op.operands[1])
        return (base, form.atoms), form.constant

    def add(self, table: dict[Key, dict[int, Op]], key: Key, constant: int, op: Op) -> None:
        found = table.setdefault(key, {})
        if constant in found:  # stored again, or loaded again: what is open ends here
            self.choose(key, found)
            found.clear()
        found[constant] = op

    def touch(self, classes: set[AliasClass], *, everything: bool) -> None:
        """An operation touches these classes, in whatever way."""
        for table in (self.loads, self.stores):
            for memory in list(table) if everything or ALL in classes else classes:
                self.close(table, memory)

    def close(self, table: Open, memory: AliasClass, but: Key | None = None) -> None:
        """Closes what is open for a class, except for one key."""
        for key, found in table.pop(memory, {}).items():
            if key == but:
                table[memory] = {key: found}
            else:
                self.choose(key, found)

    def choose(self, key: Key, found: dict[int, Op]) -> None:
        """Cuts what stands at constant offsets into aligned groups, the wide ones first (rules 1 and 2)."""
        base, atoms = key
        zeros = self.forms.atoms_zeros(Form(0, atoms))
        order = {op: number for number, op in enumerate(found.values())}
        for lanes in _lanes(base, self.words):
            if 1 << zeros < lanes:
                continue
            for start in sorted(constant for constant in found if constant % lanes == 0):
                places = range(start, start + lanes)
                if all(place in found for place in places):
                    members = [found.pop(place) for place in places]
                    place = (max if members[0].name == "store" else min)(members, key=order.__getitem__)
                    self.groups.append(_Group(members, place))


def _item_bytes(array: Array) -> int:
    """Bytes of an element of 2, 4 or 8, else 0."""
    found = array.dtype.itemsize
    return found if isinstance(array.element, Scalar) and found in (2, 4, 8) else 0


def _lanes(base: Value, words: bool) -> tuple[int, ...]:
    """How many elements of an array may be joined, the most first."""
    array = base.type
    assert isinstance(array, Array)
    item = _item_bytes(array)
    if array.space != "global" or not item or array.dtype is dtypes.bf16:
        return ()
    if words:
        return (8 // item,) if item < 8 else ()
    return tuple(lanes for lanes in (4, 2) if lanes * item <= _MOST_BYTES)


@dataclass(slots=True)
class _Rewriter:
    """Puts wide accesses in place of the groups. `views`: the wide arrays made so far, by array and lanes."""

    kernel: Function
    groups: Sequence[_Group]
    words: bool
    views: dict[tuple[Value, int], Value] = field(default_factory=dict)
    replaced: dict[Value, Value] = field(default_factory=dict)

    def run(self) -> None:
        groups = {group.place: group for group in self.groups}
        members = {op for group in self.groups for op in group.members}
        self.region(self.kernel.body, groups, members)
        self.kernel.body.ops[:0] = [view.op for view in self.views.values() if view.op is not None]
        replace_uses(self.kernel.body, self.replaced)

    def region(self, region: Region, groups: dict[Op, _Group], members: set[Op]) -> None:
        source, region.ops = region.ops, []
        for op in source:
            if op in groups:
                self.build(groups[op], Builder(region, op.loc))
            elif op not in members:
                region.ops.append(op)
                for inner in op.regions:
                    self.region(inner, groups, members)

    def build(self, group: _Group, builder: Builder) -> None:
        lanes = len(group.members)
        base = group.place.operands[0]
        lane = next(n for n, op in enumerate(group.members) if op is group.place)
        first = group.place.operands[1]
        if lane:
            first = builder.emit("sub", first, builder.const(lane, first.type))
        place = builder.emit("shr_raw", first, builder.const(lanes.bit_length() - 1, first.type))
        view = self.view(base, lanes)
        if group.place.name == "load":
            whole = builder.emit("load", view, place)
            for number, op in enumerate(group.members):
                part = self.part(whole, number, op.result.type, builder)
                part.name = op.result.name
                self.replaced[op.result] = part
        else:
            values = [op.operands[-1] for op in group.members]
            builder.op("store", view, place, self.whole(values, view, builder))

    def view(self, base: Value, lanes: int) -> Value:
        if (base, lanes) not in self.views:
            old = base.type
            assert isinstance(old, Array)
            element = Scalar(dtypes.u64) if self.words else Vector(old.dtype, lanes)
            type = Array(element, 1, old.space, old.access, restrict=old.restrict, linear=True)
            assert base.op is not None
            source = base.op.operands[0]
            made = Builder(Region(), self.kernel.loc).emit("linear", source, type=type)
            made.name = base.name
            self.views[base, lanes] = made
        return self.views[base, lanes]

    def part(self, whole: Value, lane: int, type: Type, builder: Builder) -> Value:
        """One element of what was loaded."""
        if not self.words:
            return builder.emit("vec_extract", whole, lane=lane, type=type)
        assert isinstance(type, Scalar)
        bits = type.dtype.bits
        if lane:
            whole = builder.emit("shr_raw", whole, builder.const(lane * bits, whole.type))
        narrow = Scalar(_BITS[bits])
        low = builder.emit("cast", whole, type=narrow)
        return low if type == narrow else builder.emit("bitcast", low, type=type)

    def whole(self, values: Sequence[Value], view: Value, builder: Builder) -> Value:
        """What is stored."""
        assert isinstance(view.type, Array)
        element = view.type.element
        if not self.words:
            return builder.emit("vec_make", *values, type=element)
        total: Value | None = None
        for lane, value in enumerate(values):
            assert isinstance(value.type, Scalar)
            bits = value.type.dtype.bits
            narrow = Scalar(_BITS[bits])
            word = value if value.type == narrow else builder.emit("bitcast", value, type=narrow)
            part = builder.emit("cast", word, type=element)
            if lane:
                part = builder.emit("shl_raw", part, builder.const(lane * bits, element))
            total = part if total is None else builder.emit("or", total, part)
        assert total is not None
        return total
