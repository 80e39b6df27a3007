"""Narrow 64-bit index arithmetic to 32 bits where the results are provably the same.

Takes a kernel whose offsets in linear arrays are i32, which `lower_access` computes by casts of 64-bit indices. The
computations that these casts depend on move to i32, and so do comparisons and loops whose values are in the range of
i32. The 64-bit operations that become unused are left to `dce`::

    for %zero, %n, %one (%k: index) {          for %zero_1, %n_1, %one_1 (%k_1: i32) {
      %a = mul %k, %m : index                    %c = mul %k_1, %m_1 : i32
      %b = add %a, %k : index            ->      %d = add %c, %k_1 : i32
      %o = cast %b : i32                         %v = load %x, %d : f32
      %v = load %x, %o : f32                     ...
      ...

1. The low 32 bits of sums, differences, products and bitwise operations depend only on the low 32 bits of the operands,
   so the cast to i32 moves from the result to the operands.
2. Operations that need all bits (comparisons, min, max, divisions) are narrowed if all operands and the result are in
   the range of i32 (see `value_ranges`).
3. A `for` is narrowed if its bounds, step and induction variable are in the range of i32.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import I32, INDEX, Scalar

from ..analysis.value_ranges import I32_RANGE, Ranges
from .algebraic_simplify import wrapped

__all__ = ["NarrowIndex"]

_LOW_BITS: frozenset[OpName] = frozenset({"add", "sub", "mul", "neg", "and", "or", "xor", "not", "select"})
"""The operations of rule 1."""
_ALL_BITS: frozenset[OpName] = frozenset({"min", "max", "floordiv", "floormod", "truncdiv", "truncrem", "shr_raw"})
"""The operations of rule 2, besides comparisons."""
_COMPARISONS: frozenset[OpName] = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@dataclass(frozen=True, slots=True)
class NarrowIndex:
    """Narrow index arithmetic to i32."""

    name: ClassVar[str] = "narrow_index"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            fits: set[Op] = set()
            Ranges(function, partial(_note, fits)).run()
            _Narrowing(function, fits).run()
        return module


def _note(fits: set[Op], ranges: Ranges, op: Op) -> None:
    """Add an operation to `fits` if it may be narrowed by rule 2 or 3; `Ranges` calls this for each operation."""
    if op.name == "for" and op.operands[0].type == INDEX:
        ranges_needed = [*(ranges.of(v) for v in op.operands[:3]), ranges.induction(op)]
    elif op.name in _COMPARISONS and op.operands[0].type == INDEX:
        ranges_needed = [ranges.of(v) for v in op.operands]
    elif op.name in _ALL_BITS and op.operands[0].type == INDEX:
        result_range = ranges.result(op)
        ranges_needed = [
            *(ranges.of(v) for v in op.operands),
            result_range if result_range is not None else ranges.of(op.result),
        ]
    else:
        return
    if all(I32_RANGE[0] <= low and high <= I32_RANGE[1] for low, high in ranges_needed):
        fits.add(op)


@dataclass(slots=True)
class _Narrowing:
    """The rewrite of one function.

    `fits` are the operations that may be narrowed by rules 2 and 3. `demanded` are the index values whose low half (an
    i32) is needed, and `low` maps the ones visited so far to their low halves. `replaced` maps values to their
    replacements.
    """

    function: Function
    fits: set[Op]
    demanded: set[Value] = field(default_factory=set)
    low: dict[Value, Value] = field(default_factory=dict)
    replaced: dict[Value, Value] = field(default_factory=dict)

    def run(self) -> None:
        self.demand(self.function.body)
        if self.demanded:
            self.region(self.function.body)

    # -- demand analysis, backward from uses to definitions

    def demand(self, region: Region) -> None:
        """Fill `demanded` for a region."""
        for op in reversed(region.ops):
            for inner in reversed(op.regions):
                self.demand(inner)
            if op.name == "cast" and op.operands[0].type == INDEX and op.result.type == I32:
                self.demanded.add(op.operands[0])
            elif op in self.fits and (op.name == "for" or op.name in _COMPARISONS):
                self.demanded.update(op.operands[: 3 if op.name == "for" else 2])
            elif self.is_narrowed(op):
                self.demanded.update(v for v in op.operands if v.type == INDEX)

    def is_narrowed(self, op: Op) -> bool:
        """True if the low half of an operation's result is computed from the low halves of its operands."""
        if len(op.results) != 1 or op.result not in self.demanded:
            return False
        return op.name in _LOW_BITS or (op.name in _ALL_BITS and op in self.fits)

    # -- rewriting, in program order

    def region(self, region: Region) -> None:
        """Narrow the operations of a region."""
        source, region.ops = region.ops, []
        builder = Builder(region)
        for argument in region.args:
            self.define(argument, builder)
        for op in source:
            builder.loc = op.loc
            self.operation(op, region, builder)

    def operation(self, op: Op, region: Region, builder: Builder) -> None:
        """Append an operation to `region`, narrowed if the rules allow it.

        If the low half of its result is demanded, append the operation that computes it, too.
        """
        if self.replaced:
            op.operands[:] = [self.replaced.get(v, v) for v in op.operands]
        if op.name == "cast" and op.operands[0].type == INDEX and op.result.type == I32:
            self.replaced[op.result] = self.low_half(op.operands[0])
            return
        if op in self.fits and op.name in _COMPARISONS:
            narrowed = builder.emit(op.name, *(self.low_half(v) for v in op.operands))
            narrowed.name = op.result.name
            self.replaced[op.result] = narrowed
            return
        if op in self.fits and op.name == "for":
            self.loop(op)
        region.ops.append(op)
        for inner in op.regions:
            self.region(inner)
        if self.is_narrowed(op):
            self.low[op.result] = builder.emit(
                op.name, *(self.low_half(v) if v.type == INDEX else v for v in op.operands)
            )
            return
        for result in op.results:
            self.define(result, builder)

    def loop(self, op: Op) -> None:
        """Narrow a `for` to an i32 induction variable (rule 3).

        A cast at the start of the body recreates the old induction variable.
        """
        body = op.regions[0]
        induction = body.args[0]
        op.operands[:3] = [self.low_half(v) for v in op.operands[:3]]
        body.args[0] = Value(I32, body, 0, induction.name)
        wide = Op("cast", [body.args[0]], [INDEX], {"type": INDEX}, None, op.loc)
        body.ops.insert(0, wide)
        self.replaced[induction] = wide.result
        self.low[wide.result] = body.args[0]

    def low_half(self, value: Value) -> Value:
        """Return the low half of a value in `demanded`."""
        return self.low[self.replaced.get(value, value)]

    def define(self, value: Value, builder: Builder) -> None:
        """If the low half of a value that is computed in 64 bits is demanded, emit it right after the definition."""
        if value not in self.demanded or value in self.low:
            return
        op = value.op
        if is_constant(value):
            self.low[value] = builder.const(wrapped(constant_of(value), I32.dtype), I32)
            return
        # The low half of a cast integer is a cast of the original.
        source = op.operands[0] if op is not None and op.name == "cast" else None
        if source is not None and isinstance(source.type, Scalar) and source.type.dtype.is_integer:
            self.low[value] = builder.cast(source, I32)
        else:
            self.low[value] = builder.cast(value, I32)
