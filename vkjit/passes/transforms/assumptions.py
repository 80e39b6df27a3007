"""Passes for `assume`: check assumptions in debug kernels, simplify with them, and remove them.

The operation `assume %c, values {site}` states that %c is true; the values are shown if it isn't.

`CheckAssumptions` takes the high form of the IR (see `ir.verify`). In kernels with the attribute `debug` or under the
sanitizer, it replaces each `assume` by a report that fires where %c is false. The interpreter checks assumptions by
itself.

`UseAssumptions` takes the normal form with device functions inlined. It simplifies operations whose result follows from
assumptions::

    assume n < 64                     i < n, -1 < m, ...     ->   true or false, by value ranges
    assume a <= b                     min(a, b)              ->   a
    assume n >= 0                     n // 8, n % 8          ->   truncating division, which needs no correction
    assume n % 16 == 0                for k in range(0, n, 16): min(k + 16, n) - k   ->   16

1. An assumption holds from the `assume` to the end of its region, nested regions included.
2. Two values are equal if they are computed by the same operations from equal values. Array axes have names (the
   kernel's attribute `dims`), and extents of axes with the same name are equal, which launches check.
3. A loop whose bounds are multiples of its step has no partial last iteration: k + step never exceeds the end.

`DropAssumptions` removes all `assume` operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vkjit.ir import types
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect, OpName
from vkjit.ir.rewrite import constant_of, is_constant, replace_uses, resolve
from vkjit.ir.types import Scalar

from ..analysis.value_ranges import Interval, Ranges

__all__ = ["CheckAssumptions", "DropAssumptions", "UseAssumptions"]

Key = object
"""A hashable key of a value; equal keys mean equal values (rule 2)."""


@dataclass(frozen=True, slots=True)
class CheckAssumptions:
    """Replace assumptions by reports in debug and sanitized kernels; do nothing in others."""

    name: ClassVar[str] = "check_assumptions"

    def run(self, module: Module) -> Module:
        if module.kernel.attrs.get("debug") or module.kernel.attrs.get("sanitize"):
            for function in module.all_functions():
                _report(function.body)
        return module


def _report(region: Region) -> None:
    """Replace the assumptions in a region by reports."""
    source, region.ops = region.ops, []
    for op in source:
        for inner in op.regions:
            _report(inner)
        if op.name != "assume":
            region.ops.append(op)
            continue
        builder = Builder(region, op.loc)
        builder.op("report", builder.emit("not", op.operands[0]), *op.operands[1:], site=op.attrs["site"])


@dataclass(frozen=True, slots=True)
class DropAssumptions:
    """Remove all assumptions."""

    name: ClassVar[str] = "drop_assumptions"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _drop(function.body)
        return module


def _drop(region: Region) -> None:
    """Remove the assumptions of a region."""
    region.ops[:] = [op for op in region.ops if op.name != "assume"]
    for op in region.ops:
        for inner in op.regions:
            _drop(inner)


@dataclass(frozen=True, slots=True)
class UseAssumptions:
    """Simplify comparisons, min/max, differences and divisions in the scope of assumptions."""

    name: ClassVar[str] = "use_assumptions"

    def run(self, module: Module) -> Module:
        kernel = module.kernel
        if any(op.name == "assume" for op in kernel.body.walk()):
            simplifier = _Simplifier(kernel)
            simplifier.run()
        return module


@dataclass(slots=True)
class _Simplifier:
    """The rewrite of one kernel.

    `ranges` has the ranges of the operands of each operation of `_DECIDABLE`, `names` the names of array axes, `loops`
    the loops of rule 3 by induction variable, and `replaced` the values that replace simplified ones. Methods pass on
    what holds at the current operation: `facts`, pairs of keys (x, y) with x <= y, and `multiples`, which maps the key
    of a value to a number that divides it.
    """

    kernel: Function
    ranges: dict[Op, tuple[Interval, ...]] = field(default_factory=dict)
    names: dict[tuple[Value, int], str] = field(default_factory=dict)
    replaced: dict[Value, Value] = field(default_factory=dict)
    loops: dict[Value, Op] = field(default_factory=dict)

    def run(self) -> None:
        for param, text in zip(self.kernel.params, self.kernel.attrs.get("dims", ()), strict=False):
            self.names.update({(param, axis): name for axis, name in enumerate(text.split()) if name != "_"})
        Ranges(self.kernel, self._note).run()
        self.region(self.kernel.body, frozenset(), {})
        replace_uses(self.kernel.body, self.replaced)

    def _note(self, ranges: Ranges, op: Op) -> None:
        """Record the ranges of an operation's operands; `Ranges` calls this for each operation."""
        if op.name in _DECIDABLE and len(op.operands) == 2 and all(map(_is_integer, op.operands)):
            self.ranges[op] = tuple(ranges.of(v) for v in op.operands)

    def region(self, region: Region, facts: frozenset[tuple[Key, Key]], multiples: dict[Key, int]) -> None:
        """Simplify the operations of a region, at whose start `facts` and `multiples` hold."""
        source, region.ops = region.ops, []
        multiples = dict(multiples)
        for op in source:
            op.operands[:] = [resolve(self.replaced, v) for v in op.operands]
            if op.name == "assume":
                facts |= self._learn(op.operands[0], multiples)
            elif op.name == "for":
                self._whole_iterations(op, multiples)
            for inner in op.regions:
                self.region(inner, facts, multiples)
            replacement = self._decide(op, facts, Builder(region, op.loc))
            if replacement is None:
                region.ops.append(op)
            else:
                self.replaced[op.result] = replacement

    # -- facts
    def key(self, value: Value, depth: int = 6) -> Key:
        """Return the key of a value (rule 2), looking through at most `depth` operations."""
        value = resolve(self.replaced, value)
        op = value.op
        if is_constant(value):
            return "const", constant_of(value)
        if op is None or depth == 0:
            return value
        if op.name == "extent":
            axis_key = (op.operands[0], op.attrs["axis"])
            return "extent", self.names.get(axis_key, axis_key)
        if op.name == "cast" and _is_integer(op.operands[0]) and _is_integer(value):
            return "cast", str(value.type), self.key(op.operands[0], depth - 1)
        info = OPS[op.name]
        if info.effect != Effect.NONE or not info.speculatable or info.convergent or op.regions or not op.results:
            return value
        if op.operands or "dim" in op.attrs:
            attrs = tuple(sorted((name, repr(attr)) for name, attr in op.attrs.items()))  # lanes, axes, ...
            return op.name, str(value.type), attrs, *(self.key(v, depth - 1) for v in op.operands)
        return value

    def _learn(self, condition: Value, multiples: dict[Key, int]) -> frozenset[tuple[Key, Key]]:
        """Return the facts that follow from an assumed condition, and add divisors that it states to `multiples`."""
        op = condition.op
        if op is None or len(op.operands) != 2:
            return frozenset()
        x, y = op.operands
        if op.name == "and":
            return self._learn(x, multiples) | self._learn(y, multiples)
        if not _is_integer(x):
            return frozenset()
        if op.name in ("lt", "le"):
            return frozenset({(self.key(x), self.key(y))})
        if op.name in ("gt", "ge"):
            return frozenset({(self.key(y), self.key(x))})
        if op.name != "eq":
            return frozenset()
        inner = x.op
        if is_constant(y) and constant_of(y) == 0 and inner is not None and inner.name in ("floormod", "truncrem"):
            if is_constant(inner.operands[1]) and constant_of(inner.operands[1]) > 0:
                multiples[self.key(inner.operands[0])] = int(constant_of(inner.operands[1]))
            return frozenset()
        return frozenset({(self.key(x), self.key(y)), (self.key(y), self.key(x))})

    def _whole_iterations(self, op: Op, multiples: dict[Key, int]) -> None:
        """Record a `for` without a partial last iteration (rule 3) under its induction variable."""
        first, end, step = op.operands[:3]
        if not is_constant(first) or not is_constant(step) or constant_of(step) <= 0:
            return
        size = int(constant_of(step))
        end_multiple = int(constant_of(end)) if is_constant(end) else multiples.get(self.key(end), 0)
        if int(constant_of(first)) % size == 0 and end_multiple and end_multiple % size == 0:
            self.loops[op.regions[0].args[0]] = op

    # -- simplification
    def _ranges(self, op: Op) -> list[Interval]:
        """Return the ranges of the operands; those that were simplified to constants have the exact range."""
        pairs = zip(op.operands, self.ranges[op], strict=True)
        return [(constant_of(v), constant_of(v)) if is_constant(v) else interval for v, interval in pairs]

    def _decide(self, op: Op, facts: frozenset[tuple[Key, Key]], builder: Builder) -> Value | None:
        """Return a simpler value that replaces the result of an operation, None if there is none."""
        if op.name not in _DECIDABLE or len(op.operands) != 2 or not all(map(_is_integer, op.operands)):
            return None
        x, y = op.operands
        if op.name in ("min", "max"):
            return self._selected_operand(op, facts)
        if op.name == "sub":
            return self._difference(x, y, builder)
        (x0, x1), (y0, y1) = self._ranges(op)
        if op.name in _TRUNCATING:
            return builder.emit(_TRUNCATING[op.name], x, y) if x0 >= 0 and y0 > 0 else None
        if op.name in ("gt", "ge"):
            (x0, x1), (y0, y1) = (y0, y1), (x0, x1)
        strict = op.name in ("lt", "gt")
        if x1 < y0 or (x1 == y0 and not strict):
            return builder.const(True, types.BOOL)
        if x0 > y1 or (x0 == y1 and strict):
            return builder.const(False, types.BOOL)
        return None

    def _selected_operand(self, op: Op, facts: frozenset[tuple[Key, Key]]) -> Value | None:
        """Return the operand that a min or max is known to select, by facts, ranges or rule 3; None if undecided."""
        (x0, x1), (y0, y1) = self._ranges(op)
        x, y = op.operands
        first, second = self.key(x), self.key(y)
        less = x1 <= y0 or (first, second) in facts or self._within_iteration(x, y)
        more = y1 <= x0 or (second, first) in facts or self._within_iteration(y, x)
        if not (less or more):
            return None
        return (x if less else y) if op.name == "min" else (y if less else x)

    def _within_iteration(self, x: Value, end: Value) -> bool:
        """True if x <= end by rule 3: x is the induction variable of a recorded loop that ends at `end`, plus at most
        the loop's step.
        """
        op = x.op
        if op is None or op.name != "add":
            return False
        induction, offset = op.operands if is_constant(op.operands[1]) else op.operands[::-1]
        loop = self.loops.get(induction)
        if loop is None or not is_constant(offset):
            return False
        return bool(constant_of(offset) <= constant_of(loop.operands[2])) and self.key(end) == self.key(
            loop.operands[1]
        )

    def _difference(self, x: Value, y: Value, builder: Builder) -> Value | None:
        """Fold (y + c) - y to c."""
        op = x.op
        if op is None or op.name != "add":
            return None
        base, offset = op.operands if is_constant(op.operands[1]) else op.operands[::-1]
        return builder.const(constant_of(offset), x.type) if base is y and is_constant(offset) else None


_TRUNCATING: dict[OpName, OpName] = {"floordiv": "truncdiv", "floormod": "truncrem"}
"""Floor operations, and the cheaper ones that are equal for non-negative operands."""
_DECIDABLE: frozenset[OpName] = frozenset({"lt", "le", "gt", "ge", "min", "max", "sub", *_TRUNCATING})
"""The operations that assumptions may simplify."""


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer
