"""Passes for `assume`: check assumptions in debug kernels, simplify with them, and remove them.

The operation `assume %c, values {site}` states that %c is true; the report at `site` shows the values if it isn't.

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

    - `ranges` has the ranges of the operands of each operation of `_DECIDABLE`.
    - `names` has the names of array axes, `loops` the loops of rule 3 by induction variable, and `replaced` the values
      that replace simplified ones.

    Two parameters of the methods state what holds at the current operation: `facts` has pairs of keys (x, y) with
    x <= y, and `multiples` maps the key of a value to a number that divides the value.
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
        """Return the facts that follow from an assumed condition. Add the divisors that it states to `multiples`."""
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
        """Record a `for` in `loops` if it has no partial last iteration (rule 3)."""
        first, end, step = op.operands[:3]
        if not is_constant(first) or not is_constant(step) or constant_of(step) <= 0:
            return
        size = int(constant_of(step))
        # A number that divides the end; 0 if none is known.
        end_multiple = int(constant_of(end)) if is_constant(end) else multiples.get(self.key(end), 0)
        if int(constant_of(first)) % size == 0 and end_multiple and end_multiple % size == 0:
            self.loops[op.regions[0].args[0]] = op

    # -- simplification
    def _ranges(self, op: Op) -> list[Interval]:
        """Return the ranges of the operands. The range of a constant operand is its exact value."""
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
        (x_min, x_max), (y_min, y_max) = self._ranges(op)
        if op.name in _TRUNCATING:
            return builder.emit(_TRUNCATING[op.name], x, y) if x_min >= 0 and y_min > 0 else None
        if op.name in ("gt", "ge"):  # x > y is decided as y < x
            (x_min, x_max), (y_min, y_max) = (y_min, y_max), (x_min, x_max)
        strict = op.name in ("lt", "gt")
        if x_max < y_min or (x_max == y_min and not strict):
            return builder.const(True, types.BOOL)
        if x_min > y_max or (x_min == y_max and strict):
            return builder.const(False, types.BOOL)
        return None

    def _selected_operand(self, op: Op, facts: frozenset[tuple[Key, Key]]) -> Value | None:
        """Return the operand that a min or max is known to select, by facts, ranges or rule 3; None if undecided."""
        (x_min, x_max), (y_min, y_max) = self._ranges(op)
        x, y = op.operands
        x_key, y_key = self.key(x), self.key(y)
        x_is_lower = x_max <= y_min or (x_key, y_key) in facts or self._within_iteration(x, y)
        y_is_lower = y_max <= x_min or (y_key, x_key) in facts or self._within_iteration(y, x)
        if not (x_is_lower or y_is_lower):
            return None
        lower, higher = (x, y) if x_is_lower else (y, x)
        return lower if op.name == "min" else higher

    def _within_iteration(self, x: Value, end: Value) -> bool:
        """True if x <= end by rule 3.

        That is so if x is i + c, where i is the induction variable of a loop in `loops`, the constant c is from 0 to
        the loop's step, and the loop's end equals `end`.
        """
        op = x.op
        if op is None or op.name != "add":
            return False
        induction, offset = op.operands if is_constant(op.operands[1]) else op.operands[::-1]
        loop = self.loops.get(induction)
        if loop is None or not is_constant(offset):
            return False
        return bool(0 <= constant_of(offset) <= constant_of(loop.operands[2])) and self.key(end) == self.key(
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
"""Maps floor operations to the cheaper truncating ones, which have equal results for non-negative operands."""
_DECIDABLE: frozenset[OpName] = frozenset({"lt", "le", "gt", "ge", "min", "max", "sub", *_TRUNCATING})
"""The operations that assumptions may simplify."""


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer
