"""Does index arithmetic in 32 bits where the results are provably the same.

Enters: a kernel whose offsets are i32 (see `lower_access`). Leaves: a kernel in which what offsets are made of is
computed in i32, and so are comparisons of, and loops over, values that fit. What remains unused is left to `dce`::

    for %zero, %n, %one (%k: index) {          for %zero_1, %n_1, %one_1 (%k_1: i32) {
      %a = mul %k, %m : index                    %c = mul %k_1, %m_1 : i32
      %b = add %a, %k : index            ->      %d = add %c, %k_1 : i32
      %o = cast %b : i32                         %v = load %x, %d : f32
      %v = load %x, %o : f32                     ...
      ...

1. The lower 32 bits of a sum, difference, product, and of bitwise operations follow from those of the operands:
   rounds of cast and operation change places.
2. Operations that need all bits (comparisons, min, max, divisions) are done in i32 where all operands and the result
   lie in its range (see `ranges`).
3. A `for` whose bounds, step and induction variable lie in the range of i32 counts in i32.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from ..ir.builder import Builder
from ..ir.core import Function, Module, Op, Region, Value
from ..ir.rewrite import constant_of, is_constant
from ..ir.types import I32, INDEX, Scalar
from .identities import wrapped
from .ranges import I32_RANGE, Ranges

__all__ = ["NarrowIndex"]

_LOW_BITS = frozenset({"add", "sub", "mul", "neg", "and", "or", "xor", "not", "select"})
_ALL_BITS = frozenset({"min", "max", "floordiv", "floormod", "truncdiv", "truncrem", "shr_raw"})
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@dataclass(frozen=True, slots=True)
class NarrowIndex:
    """See the module's docstring."""

    name: ClassVar[str] = "narrow_index"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            fits: set[Op] = set()
            Ranges(function, partial(_note, fits)).run()
            _Narrowing(function, fits).run()
        return module


def _note(fits: set[Op], ranges: Ranges, op: Op) -> None:
    """Adds an operation that may be done in i32 (rules 2 and 3)."""
    if op.name == "for" and op.operands[0].type == INDEX:
        numbers = [*(ranges.of(v) for v in op.operands[:3]), ranges.induction(op)]
    elif op.name in _COMPARISONS and op.operands[0].type == INDEX:
        numbers = [ranges.of(v) for v in op.operands]
    elif op.name in _ALL_BITS and op.operands[0].type == INDEX:
        made = ranges.result(op)
        numbers = [*(ranges.of(v) for v in op.operands), made if made is not None else ranges.of(op.result)]
    else:
        return
    if all(I32_RANGE[0] <= low and high <= I32_RANGE[1] for low, high in numbers):
        fits.add(op)


@dataclass(slots=True)
class _Narrowing:
    """One function. `wanted` holds index values whose lower half is needed, `low` that half once it is there."""

    function: Function
    fits: set[Op]
    wanted: set[Value] = field(default_factory=set)
    low: dict[Value, Value] = field(default_factory=dict)
    replaced: dict[Value, Value] = field(default_factory=dict)

    def run(self) -> None:
        self.want(self.function.body)
        if self.wanted:
            self.region(self.function.body)

    # -- what is needed, from the uses back to the definitions

    def want(self, region: Region) -> None:
        for op in reversed(region.ops):
            for inner in reversed(op.regions):
                self.want(inner)
            if op.name == "cast" and op.operands[0].type == INDEX and op.result.type == I32:
                self.wanted.add(op.operands[0])
            elif op in self.fits and (op.name == "for" or op.name in _COMPARISONS):
                self.wanted.update(op.operands[: 3 if op.name == "for" else 2])
            elif self.is_narrowed(op):
                self.wanted.update(v for v in op.operands if v.type == INDEX)

    def is_narrowed(self, op: Op) -> bool:
        if len(op.results) != 1 or op.result not in self.wanted:
            return False
        return op.name in _LOW_BITS or (op.name in _ALL_BITS and op in self.fits)

    # -- rewriting, in program order

    def region(self, region: Region) -> None:
        source, region.ops = region.ops, []
        builder = Builder(region)
        for argument in region.args:
            self.define(argument, builder)
        for op in source:
            builder.loc = op.loc
            self.operation(op, region, builder)

    def operation(self, op: Op, region: Region, builder: Builder) -> None:
        if self.replaced:
            op.operands[:] = [self.replaced.get(v, v) for v in op.operands]
        if op.name == "cast" and op.operands[0].type == INDEX and op.result.type == I32:
            self.replaced[op.result] = self.half(op.operands[0])
            return
        if op in self.fits and op.name in _COMPARISONS:
            made = builder.emit(op.name, *(self.half(v) for v in op.operands))
            made.name = op.result.name
            self.replaced[op.result] = made
            return
        if op in self.fits and op.name == "for":
            self.loop(op)
        region.ops.append(op)
        for inner in op.regions:
            self.region(inner)
        if self.is_narrowed(op):
            self.low[op.result] = builder.emit(op.name, *(self.half(v) if v.type == INDEX else v for v in op.operands))
            return
        for result in op.results:
            self.define(result, builder)

    def loop(self, op: Op) -> None:
        """Rule 3: the body gets an i32 argument, and its first operation makes the old one of it."""
        body = op.regions[0]
        counter = body.args[0]
        op.operands[:3] = [self.half(v) for v in op.operands[:3]]
        body.args[0] = Value(I32, body, 0, counter.name)
        wide = Op("cast", [body.args[0]], [INDEX], {"type": INDEX}, None, op.loc)
        body.ops.insert(0, wide)
        self.replaced[counter] = wide.result
        self.low[wide.result] = body.args[0]

    def half(self, value: Value) -> Value:
        """The lower half of a value that was wanted."""
        return self.low[self.replaced.get(value, value)]

    def define(self, value: Value, builder: Builder) -> None:
        """Makes the lower half of a value that is computed in 64 bits, right after it."""
        if value not in self.wanted or value in self.low:
            return
        op = value.op
        if is_constant(value):
            self.low[value] = builder.const(wrapped(constant_of(value), I32.dtype), I32)
            return
        source = op.operands[0] if op is not None and op.name == "cast" else None
        if source is not None and isinstance(source.type, Scalar) and source.type.dtype.is_integer:
            self.low[value] = builder.cast(source, I32)
        else:
            self.low[value] = builder.cast(value, I32)
