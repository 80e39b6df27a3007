"""Insert bounds checks for array accesses, and zero checks for integer divisors, that report and continue.

In kernels with the attribute `bounds`, each access to a strided array that isn't provably in range becomes ::

    %v = load %x, %i, %j      ->      %v = if all of %i, %j in range { yield load %x, %i, %j }
                                           else { report true, %i, %j, extents {site}; yield 0 }

In kernels with the attribute `debug`, or with the sanitizer's check `division`, integer divisions are preceded by a
report that fires if the divisor is 0. The pass takes the high form of the IR (see `ir.verify`).

An index is provably in range if constants bound it within a static shape, if it is the induction variable of a loop up
to the array's own extent, or if it is used inside an `if` whose condition compares it with that extent. Axes with the
same name (the kernel's attribute `dims`) have the same extent, which launches check.

1. If accesses that dominate this one made all of its comparisons already, they have reported a failure. The access is
   still guarded, but doesn't report again.
2. A small innermost loop without early exits is versioned. If the indices of its unconditional accesses are in range in
   the first and last iterations (see `loop_ranges`), a copy without these checks runs; otherwise the checked loop runs
   and reports the failing iterations. In a correct program all invocations run the unchecked copy, so vectors don't
   diverge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir import types
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.matrices import memory_rows
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import clone_op, constant_of, is_constant, replace_uses, resolve
from vkjit.ir.types import Array, Matrix

from ..analysis.loop_ranges import LIMIT, MAX_OPERATIONS, MAX_SANITIZED_OPERATIONS, EndpointIndices, may_be_versioned
from ..analysis.trip_bound import Intervals
from ..analysis.value_numbering import ValueNumbers
from ..analysis.value_ranges import INDEX_RANGE, Ranges

__all__ = ["Bounds"]

_ACCESSES: frozenset[OpName] = frozenset({"load", "store", "atomic", "atomic_cas", "atomic_load", "atomic_store"})
_MATRICES: frozenset[OpName] = frozenset({"mat_load", "mat_store"})
_PER_OPERATION_CHECKS = frozenset({"overflow", "nan"})
"""Sanitizer checks that add much code to each operation, so that a second copy of a loop costs too much."""
_DIVISIONS: frozenset[OpName] = frozenset({"floordiv", "floormod", "truncdiv", "truncrem"})

Comparison = tuple[object, object]
"""A key of a bounds comparison: (index, extent).

The index is a value or a constant. The extent is an int, the name of an axis, or (array, axis).
"""
Fact = tuple[str, Value, Value]
"""A fact about signed values that holds at an operation.

("lt", x, y) stands for x < y, and ("ge", x, y) for x >= y.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Insert bounds and divisor checks; do nothing in kernels without the attributes that ask for them.

    `share` enables rules 1 and 2; without it, each access is checked on its own, in place. In sanitized kernels, rule 1
    is off, as the sanitizer reports every failing access. Rule 2 is off with the sanitizer's checks `overflow` and
    `nan`, which would add much code to the copy of the loop. Sanitized kernels reach this pass with calls inlined, so
    there may be several accesses with the same source location; they share one report site.
    """

    name: ClassVar[str] = "bounds"
    share: bool = True

    def run(self, module: Module) -> Module:
        attrs = module.kernel.attrs
        sanitized = frozenset(attrs.get("sanitize", ()))
        check_bounds = bool(attrs.get("bounds"))
        check_divisors = bool(attrs.get("debug")) or "division" in sanitized
        share = self.share and not sanitized
        versioning = self.share and not sanitized & _PER_OPERATION_CHECKS
        if check_bounds or check_divisors:
            for function in module.all_functions():
                checker = _Checker(module, function, check_bounds, check_divisors, share, versioning, sanitized)
                checker.region(function.body, frozenset())
        return module


@dataclass(slots=True)
class _Checker:
    """The rewrite of one function.

    - `check_bounds` and `check_divisors` enable these checks, `share` enables rule 1 and `versioning` rule 2.
      `sanitized` are the names of the sanitizer's checks that the kernel asks for.
    - `reported` has the comparisons that dominate the current operation and report failures; `trail` lists them in the
      order of addition, so that those of a region can be removed at its end.
    - `hoisted_accesses` are the accesses whose checks were hoisted out of their loop. `guards` is the number of guarded
      accesses so far.
    - `names` maps array axes to their names, `first_axes` each name to the first axis with that name.
    - `sites` maps report sites to their numbers, `mapping` replaced values to their replacements.
    - `intervals` computes constant bounds of indices, `ranges` bounds that hold wherever an index is defined.
    """

    module: Module
    function: Function
    check_bounds: bool
    check_divisors: bool
    share: bool
    versioning: bool
    sanitized: frozenset[str] = frozenset()
    reported: set[Comparison] = field(default_factory=set)
    trail: list[Comparison] = field(default_factory=list)
    hoisted_accesses: set[Op] = field(default_factory=set)
    guards: int = 0
    sites: dict[ReportSite, int] = field(default_factory=dict)
    mapping: dict[Value, Value] = field(default_factory=dict)
    names: dict[tuple[Value, int], str] = field(default_factory=dict)
    first_axes: dict[str, tuple[Value, int]] = field(default_factory=dict)
    intervals: Intervals = field(init=False)
    ranges: Ranges = field(init=False)

    def __post_init__(self) -> None:
        """Collect the names of the kernel's array axes, and the first axis of each name."""
        self.intervals, self.ranges = Intervals(self.function), Ranges(self.function)
        for param, text in zip(self.function.params, self.function.attrs.get("dims", ()), strict=False):
            self.names.update({(param, axis): name for axis, name in enumerate(text.split()) if name != "_"})
        if self.versioning:  # of equal names, the dictionary keeps the last, so the items are reversed
            self.first_axes = {name: axis_key for axis_key, name in reversed(self.names.items())}

    def region(self, region: Region, facts: frozenset[Fact]) -> None:
        """Rewrite a region at whose start `facts` hold."""
        source, region.ops = region.ops, []
        mark = len(self.trail)
        builder = Builder(region)
        for op in source:
            op.operands[:] = [resolve(self.mapping, value) for value in op.operands]
            builder.loc = op.loc
            if self.check_bounds and op.name in _ACCESSES:
                self.access(op, builder, facts)
            elif self.check_bounds and op.name in _MATRICES:
                self.matrix(op, builder)
            elif self.check_bounds and self.versioning and self.may_version(op):
                self.version_loop(op, builder, facts)
            else:
                if self.check_divisors and op.name in _DIVISIONS:
                    self.division(op, builder)
                region.ops.append(op)
                self.regions_of(op, facts)
        while len(self.trail) > mark:
            self.reported.discard(self.trail.pop())

    def regions_of(self, op: Op, facts: frozenset[Fact]) -> None:
        """Rewrite the regions of an operation, with the facts that hold at their start."""
        if op.name == "if":
            self.region(op.regions[0], facts | _facts(op.operands[0]))
            self.region(op.regions[1], facts)
        elif op.name == "for":
            self.region(op.regions[0], facts | _loop_facts(op))
        else:
            for inner in op.regions:
                self.region(inner, facts)

    def may_version(self, op: Op) -> bool:
        """True if a loop may be versioned (rule 2).

        The sanitizer's check `races` adds much code to each access that it watches, so loops with such accesses aren't
        versioned.
        """
        if not may_be_versioned(op, self.ranges, MAX_SANITIZED_OPERATIONS if self.sanitized else MAX_OPERATIONS):
            return False
        if "races" not in self.sanitized:
            return True
        return not any(self.is_watched(inner) for inner in op.regions[0].walk())

    def is_watched(self, op: Op) -> bool:
        """True if the sanitizer's check `races` watches an operation, as it is an access that may race with others.

        Accesses to local arrays can't race, nor can accesses to input arrays that overlap no other array.
        """
        if op.name not in _ACCESSES:
            return op.name in _MATRICES
        array = op.operands[0].type
        assert isinstance(array, Array)
        never_written = array.access == "in" and not self.function.attrs.get("overlaps")
        return array.space != "local" and not (array.space == "global" and never_written)

    def version_loop(self, op: Op, builder: Builder, facts: frozenset[Fact]) -> None:
        """Version a loop (rule 2): emit an `if` on the hoisted checks, with the unchecked copy and the checked loop.

        If no check can be hoisted, keep the checked loop only.
        """
        copy = clone_op(op, {})  # before checks are inserted into the original
        replace_uses(copy.regions[0], self.mapping)
        guards_before = self.guards
        self.regions_of(op, facts)
        has_checks = self.guards > guards_before
        condition = self.hoist_checks(copy, builder, facts) if has_checks else None
        if condition is None:
            builder.region.ops.append(op)
            return
        self.regions_of(copy, facts)  # inserts the checks that aren't hoisted
        sides = [Region(), Region()]
        for side, loop in zip(sides, (copy, op), strict=True):
            side.ops.append(loop)
            with builder.at(side):
                builder.op("yield", *loop.results)
        versioned = builder.op("if", condition, types=[r.type for r in op.results], regions=sides)
        for old, new in zip(op.results, versioned.results, strict=True):
            new.name = old.name
            self.mapping[old] = new

    def hoist_checks(self, loop: Op, builder: Builder, facts: frozenset[Fact]) -> Value | None:
        """Emit the checks that can be hoisted out of a loop, and return their conjunction; None if there are none.

        The accesses whose checks are hoisted are added to `hoisted_accesses`.
        """
        inside = facts | _loop_facts(loop)
        before = Builder(Region(), loop.loc)
        ends = EndpointIndices(loop, before)
        hoisted_indices: list[_Hoisted] = []
        for op in loop.regions[0].ops:
            unproven = self.unproven_axes(op, inside) if op.name in _ACCESSES else []
            index_ends = [ends.of(op.operands[1 + axis]) for axis in unproven]
            # An access is guarded as a whole, so its checks are hoisted for all axes or for none.
            if not unproven or any(end_values is None for end_values in index_ends):
                continue
            self.hoisted_accesses.add(op)
            hoisted_indices += [
                _Hoisted(op.operands[0], axis, op.operands[1 + axis], end_values)
                for axis, end_values in zip(unproven, index_ends, strict=True)
                if end_values is not None
            ]
        if not hoisted_indices:
            return None
        checked = self.extreme_indices(hoisted_indices) if self.sanitized else hoisted_indices
        conditions = [self.comparison(end, index.array, index.axis, before) for index in checked for end in index.ends]
        # `ends.limits` are values that must be in range for the end values to be those of the loop (see `loop_ranges`).
        conditions += [_in_range(before, value, before.index(LIMIT)) for value in ends.limits]
        builder.region.ops += before.region.ops
        return _all(conditions, builder)

    def extreme_indices(self, indices: list[_Hoisted]) -> list[_Hoisted]:
        """Return the indices to check: of each group of indices that differ by constants, the smallest and the largest.

        If these two are in range, all of the group are. That doesn't hold if they differ by `LIMIT` or more, as indices
        in between might wrap around; then all indices of the group are returned.
        """
        value_numbers = ValueNumbers()
        # The members of a group, each as its constant, and its position in `indices`.
        groups: dict[object, list[tuple[int, int]]] = {}
        for number, hoisted in enumerate(indices):
            terms, constant = value_numbers.sum(hoisted.index)
            extent = self.comparison_key(hoisted.index, hoisted.array, hoisted.axis)[1]
            groups.setdefault((extent, terms), []).append((constant, number))
        kept: set[int] = set()
        for members in groups.values():
            (smallest, first), (largest, last) = min(members), max(members)
            no_wrap = largest - smallest < LIMIT
            kept |= {first, last} if no_wrap else {number for _, number in members}
        return [hoisted for number, hoisted in enumerate(indices) if number in kept]

    def division(self, op: Op, builder: Builder) -> None:
        """Before an integer division, emit a report that fires if the divisor is 0.

        Emit nothing if the divisor is a nonzero constant.
        """
        divisor = op.operands[1]
        dtype = getattr(divisor.type, "dtype", None)
        if not isinstance(divisor.type, types.Scalar) or dtype is None or not dtype.is_integer:
            return
        if is_constant(divisor) and constant_of(divisor) != 0:
            return
        zero = builder.emit("eq", divisor, builder.const(0, divisor.type))
        site = ReportSite("zero_division", op.loc, "integer division by zero: {0} divided by 0")
        builder.op("report", zero, op.operands[0], site=self.module.add_site(site))

    def access(self, op: Op, builder: Builder, facts: frozenset[Fact]) -> None:
        """Guard a load, store or atomic along the axes for which it isn't provably in range."""
        unproven = self.unproven_axes(op, facts) if op not in self.hoisted_accesses else []
        if not unproven:
            builder.region.ops.append(op)
            return
        array = op.operands[0]
        assert isinstance(array.type, Array)
        rank = array.type.rank
        indices = op.operands[1 : 1 + rank]
        compared = {self.comparison_key(indices[axis], array, axis) for axis in unproven}
        already_reported = self.share and compared <= self.reported
        self.trail += compared - self.reported
        self.reported |= compared
        extents = [_extent(builder, array, axis) for axis in range(rank)]
        condition = _all([self.comparison(indices[axis], array, axis, builder) for axis in unproven], builder)
        self.guards += 1
        self.guarded(op, builder, condition, [*indices, *extents], report=not already_reported)

    def matrix(self, op: Op, builder: Builder) -> None:
        """Guard a matrix load or store: check its first and last element, and the indices of the outer axes."""
        array = op.operands[0]
        kind = array.type
        assert isinstance(kind, Array)
        if kind.linear:
            builder.region.ops.append(op)
            return
        indices = op.operands[1 : 1 + kind.rank]
        sizes = [1] * (kind.rank - 2) + list(memory_rows(op))
        last_indices = [builder.emit("add", i, builder.index(size - 1)) for i, size in zip(indices, sizes, strict=True)]
        # (axis, index) of the first element, and of the last one where it differs.
        corner_indices = [*enumerate(indices), *((axis, i) for axis, i in enumerate(last_indices) if sizes[axis] > 1)]
        extents = [_extent(builder, array, axis) for axis in range(kind.rank)]
        condition = _all([_in_range(builder, index, extents[axis]) for axis, index in corner_indices], builder)
        self.guards += 1
        self.guarded(op, builder, condition, [*last_indices, *extents], report=True)

    def comparison(self, index: Value, array: Value, axis: int, builder: Builder) -> Value:
        """Emit the comparison of an index with its extent.

        Axes of one name use the extent of the first of them, so that CSE merges equal comparisons.
        """
        representative = self.first_axes.get(self.names.get((array, axis), ""), (array, axis))
        return _in_range(builder, index, _extent(builder, *representative))

    def unproven_axes(self, op: Op, facts: frozenset[Fact]) -> list[int]:
        """Return the axes along which an access isn't provably in range."""
        array = op.operands[0]
        if not isinstance(array.type, Array) or array.type.linear:
            return []
        indices = op.operands[1 : 1 + array.type.rank]
        return [axis for axis, index in enumerate(indices) if not self.in_range(index, array, axis, facts)]

    def comparison_key(self, index: Value, array: Value, axis: int) -> Comparison:
        """Return the key of the comparison of an index with the extent of an array's axis."""
        shape = array.type.shape if isinstance(array.type, Array) else None
        extent = shape[axis] if shape is not None else self.names.get((array, axis)) or (array, axis)
        return (constant_of(index) if is_constant(index) else index, extent)

    def in_range(self, index: Value, array: Value, axis: int, facts: frozenset[Fact]) -> bool:
        """True if an index along an axis of an array is provably in range, by constant bounds or by `facts`."""
        shape = array.type.shape if isinstance(array.type, Array) else None
        if shape is not None and self.within(index, shape[axis]):
            return True
        literal = self.names.get((array, axis), "")  # `dims` may have a constant size in place of a name
        if literal.isdecimal() and self.within(index, int(literal)):
            return True
        base, offset = _parts(index)
        if base is None:
            return False
        low, high = self.range_under(base, facts)

        def is_exact(number: int) -> bool:
            """True if base + `number` doesn't wrap around."""
            return INDEX_RANGE[0] <= low + number and high + number <= INDEX_RANGE[1]

        index_low = max([self.ranges.of(index)[0], *(n for n, at in self.lower_bounds(base, facts) if at == offset)])
        if index_low < 0 and not (is_exact(offset) and low + offset >= 0):
            return False
        # The index is base + offset. Each limit is a fact base + shift < y, which means that index < y + offset -
        # shift. Where the sums may wrap around, only a limit of the index itself is valid.
        limits = [(y, _parts(x)[1]) for fact, x, y in facts if fact == "lt" and _parts(x)[0] is base]
        return any(
            self.is_limit(y, array, axis, shape, offset - shift)
            for y, shift in limits
            if shift == offset or (is_exact(shift) and is_exact(offset))
        )

    def lower_bounds(self, base: Value, facts: frozenset[Fact]) -> list[tuple[int, int]]:
        """Return pairs (number, offset) for which the facts imply number <= base + offset, wrapped around."""
        bounds = []
        for fact, x, y in facts:
            smaller, larger = (x, y) if fact == "lt" else (y, x)
            large, offset = _parts(larger)
            if large is base:
                bounds.append((self.ranges.of(smaller)[0] + (fact == "lt"), offset))
        return bounds

    def range_under(self, base: Value, facts: frozenset[Fact]) -> tuple[int, int]:
        """Return the range of a value, from its operations and the facts."""
        low, high = self.ranges.of(base)
        # If base + offset wraps around for an offset > 0, base is large, so the bound holds, too. For offsets < 0 the
        # sum must not wrap around, by the bounds from the others.
        for number, offset in sorted(self.lower_bounds(base, facts), key=lambda bound: -bound[1]):
            if offset >= 0 or low + offset >= INDEX_RANGE[0]:
                low = max(low, number - offset)
        for fact, x, y in facts:
            smaller, larger = (x, y) if fact == "lt" else (y, x)
            small, offset = _parts(smaller)
            if small is base and offset <= 0:  # if the sum wraps around, base is small
                high = min(high, self.ranges.of(larger)[1] - (fact == "lt") - offset)
        return low, high

    def within(self, index: Value, extent: int) -> bool:
        """True if constant bounds of the index prove 0 <= index < extent."""
        bounds = self.intervals.interval(index)
        if bounds is None or not (bounds.lower.is_constant() and bounds.upper.is_constant()):
            return False
        return bounds.lower.numbers[0] >= 0 and bounds.upper.numbers[0] < extent

    def is_limit(self, limit: Value, array: Value, axis: int, shape: tuple[int, ...] | None, offset: int) -> bool:
        """True if limit + `offset` is provably at most the extent of an array's axis."""
        base, base_offset = _parts(limit)
        if abs(base_offset) > INDEX_RANGE[1] // 2:  # smaller ones can't wrap an extent below 0
            return False
        if base is None:
            return shape is not None and base_offset + offset <= shape[axis]
        op = base.op
        if op is None or op.name != "extent" or base_offset + offset > 0:
            return False
        other = (op.operands[0], op.attrs["axis"])
        name = self.names.get((array, axis))
        return other == (array, axis) or (name is not None and self.names.get(other) == name)

    def guarded(self, op: Op, builder: Builder, condition: Value, values: list[Value], *, report: bool) -> None:
        """Wrap an access in an `if` on `condition`; the other branch reports, and yields 0 for each result.

        `values` are the indices and extents for the report. Without `report`, the other branch only yields.
        """
        results = [r.type for r in op.results]
        taken, other = Region(), Region()
        taken.ops.append(op)
        with builder.at(taken):
            builder.op("yield", *op.results)
        with builder.at(other):
            if report:
                site = self.site(ReportSite("bounds", op.loc, self.message(op, len(values) // 2)))
                builder.op("report", builder.const(True, types.BOOL), *values, site=site)
            builder.op("yield", *(_zero_value(t, builder) for t in results))
        guard = builder.op("if", condition, types=results, regions=[taken, other])
        for old, new in zip(op.results, guard.results, strict=True):
            new.name = old.name
            self.mapping[old] = new

    def site(self, entry: ReportSite) -> int:
        """Return the number of a report site; under the sanitizer, equal sites share one."""
        if self.sanitized and entry in self.sites:
            return self.sites[entry]
        self.sites[entry] = number = self.module.add_site(entry)
        return number

    def message(self, op: Op, rank: int) -> str:
        """Return the message of the report for an access, with fields for `rank` indices and as many extents."""
        name = op.operands[0].name or "the array"
        if rank == 1:
            return f"index {{0}} is outside {name}, shape ({{1}},)"
        index, shape = (", ".join(f"{{{first + axis}}}" for axis in range(rank)) for first in (0, rank))
        return f"index ({index}) is outside {name}, shape ({shape})"


@dataclass(frozen=True, slots=True)
class _Hoisted:
    """An index along an array's axis whose check is hoisted.

    `ends` has its values in the loop's first and last iterations, or a single one if it is loop-invariant.
    """

    array: Value
    axis: int
    index: Value
    ends: tuple[Value, ...]


def _parts(value: Value) -> tuple[Value | None, int]:
    """Split a value into (base, number) with value = base + number modulo 2**64; base is None for constants.

    The base is found through additions and subtractions of constants.
    """
    total = 0
    while value.type == types.INDEX or is_constant(value):
        if is_constant(value):
            return None, total + int(constant_of(value))
        op = value.op
        if op is None or op.name not in ("add", "sub"):
            break
        x, y = op.operands
        if is_constant(y):
            value, constant = x, y
        elif op.name == "add" and is_constant(x):
            value, constant = y, x
        else:
            break
        number = int(constant_of(constant))
        total += -number if op.name == "sub" else number
    return value, total


def _zero_value(type: types.Type, builder: Builder) -> Value:
    """Emit a zero, or a matrix of zeros, to replace the result of an access that is out of range."""
    if isinstance(type, Matrix):
        return builder.emit("mat_fill", builder.const(_zero(type), type.dtype), type=type)
    return builder.const(_zero(type), type)


def _zero(type: types.Type) -> bool | int | float:
    dtype = getattr(type, "dtype", dtypes.i32)
    return False if dtype.kind == "bool" else 0.0 if dtype.is_float else 0


def _in_range(builder: Builder, index: Value, extent: Value) -> Value:
    """Emit 0 <= index < extent as a single unsigned comparison: unsigned, a negative index exceeds any extent."""
    unsigned = [builder.cast(value, dtypes.u64) for value in (index, extent)]
    return builder.emit("lt", *unsigned)


def _all(conditions: list[Value], builder: Builder) -> Value:
    """Emit the conjunction of conditions."""
    while len(conditions) > 1:
        conditions = [builder.emit("and", *conditions[:2]), *conditions[2:]]
    return conditions[0]


def _extent(builder: Builder, array: Value, axis: int) -> Value:
    """Return the extent of an array's axis, as a constant if the shape is static."""
    kind = array.type
    if isinstance(kind, Array) and kind.shape is not None:
        return builder.index(kind.shape[axis])
    return builder.emit("extent", array, axis=axis)


def _facts(condition: Value) -> frozenset[Fact]:
    """Return the facts about signed values that a true condition implies."""
    op = condition.op
    if op is None or not op.operands or getattr(op.operands[0].type, "dtype", dtypes.u32).kind == "uint":
        return frozenset()
    if op.name == "and":
        return _facts(op.operands[0]) | _facts(op.operands[1])
    x, y = op.operands[0], op.operands[-1]
    if op.name in ("lt", "gt"):
        return frozenset({("lt", x, y) if op.name == "lt" else ("lt", y, x)})
    if op.name in ("ge", "le"):
        return frozenset({("ge", x, y) if op.name == "ge" else ("ge", y, x)})
    return frozenset()


def _loop_facts(op: Op) -> frozenset[Fact]:
    """Return the facts about an ascending loop's induction variable: it is less than the end and at least the start."""
    low, high, step = op.operands[:3]
    if not is_constant(step) or constant_of(step) <= 0 or getattr(low.type, "dtype", dtypes.u32).kind == "uint":
        return frozenset()
    induction = op.regions[0].args[0]
    return frozenset({("lt", induction, high), ("ge", induction, low)})
