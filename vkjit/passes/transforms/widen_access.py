"""Vectorize memory accesses: merge loads or stores of contiguous elements into one access of up to 16 bytes.

Takes a kernel in normal form (see `ir.verify`), in which `lower_access` has made all accesses to global arrays linear,
after `cse`::

                                                 %w = linear %x : array<vec<f32, 4>, 1, in, linear>   (once)
    %a = load %x0, %o : f32                      %q = shr_raw %o, %two : i32
    %p = add %o, %one : i32                      %v = load %w, %q : vec<f32, 4>
    %b = load %x0, %p : f32               ->     %a = vec_extract %v {lane = 0} : f32
    ...                                          %b = vec_extract %v {lane = 1} : f32
    %d = load %x0, %r : f32                      ...

1. Offsets are contiguous if their linear forms (see `linear_forms`) differ only in their constants, and these are
   consecutive integers.
2. The first offset must be a known multiple of the number of elements in the group: each term of its linear form must
   be such a multiple.
3. The array and each of its rows must start at a multiple of 16 bytes. The kernel's attribute `aligned` guarantees
   that; a launch sets it only if it holds for all arrays, offsets of views included. Then strides between rows are
   multiples of 16 bytes, too, which rule 2 uses.
4. A group of loads is replaced by a wide load in the place of its first load. From the first to the last, nothing may
   write the array's alias class or exit.
5. A group of stores is replaced by a wide store in the place of its last store. From the first to the last, nothing
   else may access the array's alias class, order memory, report or exit. Only complete groups are merged, so that no
   bytes are written that the program doesn't store itself.
6. The wide element is a vector of 4 or 2 elements. With `as_integers`, it is a 64-bit integer, from which elements of
   any type are extracted by shifts. Drivers that load vectors lane by lane load such integers twice as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import LOOPS, exits_of, replace_uses
from vkjit.ir.types import Array, Scalar, Type, Vector

from ..analysis.alias import ALL, AliasClass, alias_class
from ..analysis.linear_forms import LinearForm, LinearForms

__all__ = ["WidenAccess"]

_BITS: dict[int, DType] = {16: dtypes.u16, 32: dtypes.u32}
"""The unsigned integer type with this number of bits."""
_MAX_BYTES = 16
"""The size of the widest access, and the alignment of arrays and rows (rule 3)."""
Key = tuple[Value, frozenset[tuple[Value, int]]]
"""(array, atoms): an array and the non-constant terms of an offset. Accesses with the same key may form a group."""
Open = dict[AliasClass, dict[Key, dict[int, Op]]]
"""Open accesses, with which later ones may still form a group, by alias class, key and constant part of the offset."""


@dataclass(frozen=True, slots=True)
class WidenAccess:
    """Merge contiguous accesses of `aligned` kernels; `as_integers` selects 64-bit integer elements (rule 6)."""

    as_integers: bool = False
    name: ClassVar[str] = "widen_access"

    def run(self, module: Module) -> Module:
        if module.kernel.attrs.get("aligned"):
            finder = _Finder(self.as_integers)
            finder.region(module.kernel.body)
            if finder.groups:
                _Rewriter(module.kernel, finder.groups, self.as_integers).run()
        return module


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of contiguous accesses in the order of their offsets.

    The wide access comes in the place of `place`, one of them (rules 4 and 5).
    """

    members: Sequence[Op]
    place: Op


@dataclass(slots=True)
class _Finder:
    """The search for groups of accesses.

    `loads` and `stores` have the accesses that are open at the current operation. An operation that conflicts with rule
    4 or 5 closes them: groups among them are chosen, and later accesses can't join them.
    """

    as_integers: bool
    forms: LinearForms = field(default_factory=LinearForms)
    loads: Open = field(default_factory=dict)
    stores: Open = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)

    def region(self, region: Region) -> set[AliasClass]:
        """Process a region and return the alias classes that it accesses; `ALL` stands for every class."""
        outer_loads, outer_stores = self.loads, self.stores
        self.loads, self.stores = {}, {}
        saved_zeros = None
        if any(op.name == "assume" for op in region.ops):
            saved_zeros = dict(self.forms.zeros)  # assumptions hold until the end of their region
        accessed: set[AliasClass] = set()
        for op in region.ops:
            self.learn(op)
            if not op.regions:
                accessed |= self.access(op)
                continue
            inside: set[AliasClass] = set().union(*map(self.region, op.regions))
            exits = op.name not in LOOPS and any(True for inner in op.regions for _ in exits_of(inner))
            self.close_classes(inside, everything=exits)
            accessed |= inside
        self.close_classes(set(), everything=True)
        self.loads, self.stores = outer_loads, outer_stores
        if saved_zeros is not None:
            self.forms.zeros = saved_zeros
        return accessed

    def learn(self, op: Op) -> None:
        """Update the linear forms for an operation, with the alignment of rows (rule 3) for extents and strides."""
        self.forms.note(op)
        if op.name == "assume":
            self.forms.assume(op)
        if op.name not in ("extent", "stride"):
            return
        array, axis = op.operands[0].type, op.attrs["axis"]
        assert isinstance(array, Array)
        # The length of a row of a contiguous array, and the strides between rows, are multiples of `_MAX_BYTES` bytes.
        if op.name == "extent":
            is_multiple = axis == array.rank - 1 and array.contiguous
        else:
            is_multiple = axis < array.rank - 1
        item = _item_bytes(array)
        if is_multiple and array.rank > 1 and item:
            # `zeros` has the number of known trailing zeros, the logarithm of a power of two that divides a value.
            self.forms.zeros[op.result] = (_MAX_BYTES // item).bit_length() - 1

    def access(self, op: Op) -> set[AliasClass]:
        """Update the open accesses for an operation.

        Close those that can't form a group with accesses after the operation, and add the operation's own access.
        Return the alias classes that the operation accesses.
        """
        effect = OPS[op.name].effect
        if effect in (Effect.SYNC, Effect.REPORT, Effect.READ_WRITE) or op.name == "call":
            self.close_classes(set(), everything=True)
            return {ALL}
        if effect not in (Effect.READ, Effect.WRITE):
            return set()
        memory = alias_class(op.operands[0])
        key, constant = self.key(op)
        if effect == Effect.READ:  # moving a store past it would change what it reads; loads don't conflict
            self.close(self.stores, memory)
            table = self.loads.setdefault(memory, {})
        else:
            # Stores with the same key stay open: they write other elements, except for one at the same offset, which
            # `add` closes. Stores with other keys might write the same element.
            self.close(self.loads, memory)
            self.close(self.stores, memory, but=key)
            table = self.stores.setdefault(memory, {})
        if key is not None:
            self.add(table, key, constant, op)
        return {memory}

    def key(self, op: Op) -> tuple[Key | None, int]:
        """Return the key of an access and the constant part of its offset; (None, 0) if it can't be widened."""
        base = op.operands[0]
        view = base.op
        if op.name not in ("load", "store") or view is None or view.name != "linear" or view.operands[0].op is not None:
            return None, 0
        if not _lanes(base, self.as_integers):
            return None, 0
        form = self.forms.of(op.operands[1])
        return (base, form.atoms), form.constant

    def add(self, table: dict[Key, dict[int, Op]], key: Key, constant: int, op: Op) -> None:
        """Add an access to the open accesses in `table`."""
        open_accesses = table.setdefault(key, {})
        if constant in open_accesses:  # the same element again: close the open accesses
            self.choose(key, open_accesses)
            open_accesses.clear()
        open_accesses[constant] = op

    def close_classes(self, classes: set[AliasClass], *, everything: bool) -> None:
        """Close the open accesses of `classes`, or all of them if `everything` or if `classes` has `ALL`."""
        for table in (self.loads, self.stores):
            for memory in list(table) if everything or ALL in classes else classes:
                self.close(table, memory)

    def close(self, table: Open, memory: AliasClass, but: Key | None = None) -> None:
        """Close the open accesses of an alias class in `table` (`loads` or `stores`), except those with the key `but`.

        Closed accesses are removed from the table, after groups among them were chosen.
        """
        for key, open_accesses in table.pop(memory, {}).items():
            if key == but:  # at most one key: put its accesses back
                table[memory] = {key: open_accesses}
            else:
                self.choose(key, open_accesses)

    def choose(self, key: Key, accesses: dict[int, Op]) -> None:
        """Form groups of accesses with the same key, the widest groups first (rules 1 and 2).

        `accesses` maps the constant parts of the offsets to the accesses, in program order. Accesses that join a group
        are removed.
        """
        base, atoms = key
        zeros = self.forms.atoms_trailing_zeros(LinearForm(0, atoms))
        order = {op: number for number, op in enumerate(accesses.values())}
        for lanes in _lanes(base, self.as_integers):
            if 1 << zeros < lanes:  # the terms of the offset aren't known to be multiples of `lanes` (rule 2)
                continue
            for start in sorted(constant for constant in accesses if constant % lanes == 0):
                offsets = range(start, start + lanes)
                if all(offset in accesses for offset in offsets):
                    members = [accesses.pop(offset) for offset in offsets]
                    # The wide access replaces the last store, or the first load (rules 4 and 5).
                    choose_place = max if members[0].name == "store" else min
                    self.groups.append(_Group(members, choose_place(members, key=order.__getitem__)))


def _item_bytes(array: Array) -> int:
    """Return the element size in bytes if elements are scalars of 2, 4 or 8 bytes, else 0."""
    size = array.dtype.itemsize
    return size if isinstance(array.element, Scalar) and size in (2, 4, 8) else 0


def _lanes(base: Value, as_integers: bool) -> tuple[int, ...]:
    """Return the numbers of elements that one access to an array may cover, largest first."""
    array = base.type
    assert isinstance(array, Array)
    item = _item_bytes(array)
    if array.space != "global" or not item or array.dtype is dtypes.bf16:
        return ()
    if as_integers:
        return (8 // item,) if item < 8 else ()
    return tuple(lanes for lanes in (4, 2) if lanes * item <= _MAX_BYTES)


@dataclass(slots=True)
class _Rewriter:
    """The replacement of groups by wide accesses.

    `views` caches the linear views with wide elements, by the narrow view and the number of elements. `replaced` maps
    the results of narrow loads to parts of wide ones.
    """

    kernel: Function
    groups: Sequence[_Group]
    as_integers: bool
    views: dict[tuple[Value, int], Value] = field(default_factory=dict)
    replaced: dict[Value, Value] = field(default_factory=dict)

    def run(self) -> None:
        groups = {group.place: group for group in self.groups}
        members = {op for group in self.groups for op in group.members}
        self.region(self.kernel.body, groups, members)
        self.kernel.body.ops[:0] = [view.op for view in self.views.values() if view.op is not None]
        replace_uses(self.kernel.body, self.replaced)

    def region(self, region: Region, groups: dict[Op, _Group], members: set[Op]) -> None:
        """Replace the accesses of groups in a region; `groups` has each group by its `place`."""
        source, region.ops = region.ops, []
        for op in source:
            if op in groups:
                self.build(groups[op], Builder(region, op.loc))
            elif op not in members:
                region.ops.append(op)
                for inner in op.regions:
                    self.region(inner, groups, members)

    def build(self, group: _Group, builder: Builder) -> None:
        """Emit the wide access of a group."""
        lanes = len(group.members)
        base = group.place.operands[0]
        # Compute the offset of the first element from that of `place`: others may be defined only later.
        lane = next(n for n, op in enumerate(group.members) if op is group.place)
        first = group.place.operands[1]
        if lane:
            first = builder.emit("sub", first, builder.const(lane, first.type))
        wide_offset = builder.emit("shr_raw", first, builder.const(lanes.bit_length() - 1, first.type))
        view = self.view(base, lanes)
        if group.place.name == "load":
            whole = builder.emit("load", view, wide_offset)
            for number, op in enumerate(group.members):
                part = self.part(whole, number, op.result.type, builder)
                part.name = op.result.name
                self.replaced[op.result] = part
        else:
            values = [op.operands[-1] for op in group.members]
            builder.op("store", view, wide_offset, self.whole(values, view, builder))

    def view(self, base: Value, lanes: int) -> Value:
        """Return the view of an array with wide elements of `lanes` narrow ones, given its narrow view `base`."""
        if (base, lanes) not in self.views:
            old = base.type
            assert isinstance(old, Array)
            element = Scalar(dtypes.u64) if self.as_integers else Vector(old.dtype, lanes)
            type = Array(element, 1, old.space, old.access, restrict=old.restrict, linear=True)
            assert base.op is not None
            source = base.op.operands[0]
            wide_view = Builder(Region(), self.kernel.loc).emit("linear", source, type=type)
            wide_view.name = base.name
            self.views[base, lanes] = wide_view
        return self.views[base, lanes]

    def part(self, whole: Value, lane: int, type: Type, builder: Builder) -> Value:
        """Emit the extraction of one element from a wide value."""
        if not self.as_integers:
            return builder.emit("vec_extract", whole, lane=lane, type=type)
        assert isinstance(type, Scalar)
        bits = type.dtype.bits
        if lane:
            whole = builder.emit("shr_raw", whole, builder.const(lane * bits, whole.type))
        narrow = Scalar(_BITS[bits])
        low = builder.emit("cast", whole, type=narrow)
        return low if type == narrow else builder.emit("bitcast", low, type=type)

    def whole(self, values: Sequence[Value], view: Value, builder: Builder) -> Value:
        """Emit the wide value that is stored, from its elements."""
        assert isinstance(view.type, Array)
        element = view.type.element
        if not self.as_integers:
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
