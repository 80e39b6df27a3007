"""Range analysis of integer values.

`Ranges` walks a function once, in program order, and computes an interval for each integer value at its definition. For
each operation, it calls a function of its user (such as `narrow_index`) with the ranges that hold before the operation.
Conditions narrow the ranges inside the regions of an `if`, and after an `if` if control leaves one of its regions by an
exit. A result that may overflow has the full range of its type. Without a walk, `Ranges.of` computes ranges on demand,
which then hold wherever the value is defined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vkjit.ir.core import Function, Op, Region, Value
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.rewrite import constant_of
from vkjit.ir.types import Array, Scalar

__all__ = ["I32_RANGE", "INDEX_RANGE", "Interval", "Ranges"]

Interval = tuple[int, int]
"""(low, high), both inclusive."""

I32_RANGE: Interval = (-(1 << 31), (1 << 31) - 1)
INDEX_RANGE: Interval = (-(1 << 63), (1 << 63) - 1)
_LARGEST_GROUP = (1 << 16, 1 << 16, 1 << 16)
"""Bounds of the workgroup size, for device functions, whose callers' workgroup size isn't known."""
_MAX_GROUPS = (1 << 32) - 1
"""The largest number of workgroups along an axis that any device takes in a single dispatch."""
_MAX_DEPTH = 32
"""The number of nested operations that a range is computed through on demand."""
_INVERSE: dict[OpName, OpName] = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
"""The comparison that is true where another one is false."""


@dataclass(slots=True)
class Ranges:
    """The analysis of one function.

    `visit(ranges, op)` is called for each operation; `ranges.of` then returns the ranges that hold before it. `table`
    has the ranges at the current operation. `undo` has the entries that the enclosing regions have changed, each with
    its previous range, to be restored at their ends. `depth` is the current depth of recursion on demand.
    """

    function: Function
    visit: Callable[[Ranges, Op], None] = lambda _ranges, _op: None
    table: dict[Value, Interval] = field(default_factory=dict)
    undo: list[tuple[Value, Interval | None]] = field(default_factory=list)
    depth: int = 0

    def run(self) -> None:
        """Walk the whole function."""
        self.region(self.function.body)

    def of(self, value: Value) -> Interval:
        """Return the range of an integer value at the current operation."""
        interval = self.table.get(value)
        if interval is not None:
            return interval
        op = value.op
        if op is None or op.regions or len(op.results) != 1 or self.depth == _MAX_DEPTH:
            return _range_of_type(value)
        self.depth += 1
        self.define(op)
        self.depth -= 1
        return self.table[value]

    # -- walking

    def region(self, region: Region, condition: Value | None = None, truth: bool = True) -> None:
        """Walk a region in which `condition`, if given, has the value `truth`."""
        mark = len(self.undo)
        if condition is not None:
            self.assume(condition, truth)
        for op in region.ops:
            self.operation(op)
        while len(self.undo) > mark:
            value, before = self.undo.pop()
            if before is None:
                self.table.pop(value, None)
            else:
                self.table[value] = before

    def operation(self, op: Op) -> None:
        """Visit an operation, record the range of its result, and walk its regions."""
        self.visit(self, op)
        if op.name == "assume":
            self.assume(op.operands[0], truth=True)
        elif op.name == "if":
            condition = op.operands[0]
            for region, truth in zip(op.regions, (True, False), strict=True):
                self.region(region, condition, truth)
            yields = [region.terminator.name == "yield" for region in op.regions]
            if yields[0] != yields[1]:  # control continues only after one region
                self.assume(condition, yields[0])
        elif op.regions:
            if op.name == "for":
                self.table[op.regions[0].args[0]] = self.induction(op)
            for region in op.regions:
                self.region(region)
        elif len(op.results) == 1 and _is_integer(op.result):
            self.define(op)

    def define(self, op: Op) -> None:
        """Record the range of an operation's result: that of its type if it may overflow."""
        interval, widest = self.result(op), _range_of_type(op.result)
        self.table[op.result] = interval if interval is not None and _inside(interval, widest) else widest

    def induction(self, op: Op) -> Interval:
        """Return the range of a `for`'s induction variable."""
        low, high, step = (self.of(v) for v in op.operands[:3])
        if step[0] > 0:
            return low[0], max(low[0], high[1] - 1)
        if step[1] < 0:
            return min(low[1], high[0] + 1), low[1]
        # The sign of the step isn't known: both cases.
        return min(low[0], high[0] + 1), max(low[1], high[1] - 1)

    # -- facts

    def assume(self, condition: Value, truth: bool) -> None:
        """Narrow ranges by the fact that `condition` has the value `truth`, up to the end of the current region."""
        op = condition.op
        if op is None:
            return
        if op.name == "not":
            self.assume(op.operands[0], not truth)
        elif op.name == ("and" if truth else "or"):
            for part in op.operands:
                self.assume(part, truth)
        elif op.name in _INVERSE and _is_integer(op.operands[0]):
            x, y = op.operands
            self.compare(op.name if truth else _INVERSE[op.name], x, y)

    def compare(self, name: OpName, x: Value, y: Value) -> None:
        """Narrow the ranges of x and y by the fact that the comparison `name` of them holds."""
        (x_min, x_max), (y_min, y_max) = self.of(x), self.of(y)
        if name in ("gt", "ge"):
            self.compare("lt" if name == "gt" else "le", y, x)
        elif name in ("lt", "le"):
            gap = 1 if name == "lt" else 0  # y - x is at least this
            self.narrow(x, x_min, min(x_max, y_max - gap))
            self.narrow(y, max(y_min, x_min + gap), y_max)
        elif name == "eq":
            self.narrow(x, max(x_min, y_min), min(x_max, y_max))
            self.narrow(y, max(x_min, y_min), min(x_max, y_max))

    def narrow(self, value: Value, low: int, high: int) -> None:
        """Set the range of a value up to the end of the current region."""
        if low <= high:  # otherwise the code is unreachable
            self.undo.append((value, self.table.get(value)))
            self.table[value] = (low, high)

    # -- operations

    def result(self, op: Op) -> Interval | None:
        """Return the range that an operation's result has if nothing overflows, None if it isn't known."""
        if op.name == "const":
            value = int(op.attrs["value"])
            return value, value
        if op.name in ("extent", "stride"):
            return self.array_number(op)
        if op.name in _SUBGROUP_IDS:
            return _SUBGROUP_IDS[op.name]
        if op.name in _GRID_IDS:
            return self.grid_number(op)
        rule = _RULES.get(op.name)
        if rule is not None:
            return rule(*(self.of(v) for v in op.operands))
        if op.name == "cast" and _is_integer(op.operands[0]):
            return self.of(op.operands[0])
        if op.name == "select":
            return _hull(self.of(op.operands[1]), self.of(op.operands[2]))
        if op.name in ("shr", "shr_raw"):
            amount, widest = constant_of(op.operands[1]), _range_of_type(op.result)
            low, high = self.of(op.operands[0])
            is_known = amount is not None and low >= 0 and 0 <= amount < widest[1].bit_length()
            return (low >> amount, high >> amount) if is_known else (0, high) if low >= 0 else None
        return None

    def grid_number(self, op: Op) -> Interval:
        """Return the range of an id, or of a size of the workgroup or grid, along one axis."""
        attrs = self.function.attrs
        size = attrs.get("local_size", _LARGEST_GROUP)[op.attrs["dim"]]
        if op.name == "local_id":
            return 0, size - 1
        if op.name == "local_size":
            is_exact = size < 1 << 16  # otherwise it is the bound from `_LARGEST_GROUP`
            return size if is_exact else 0, size
        if attrs.get("cut") or "local_size" not in attrs:  # several dispatches, or perhaps a caller's
            return 0, INDEX_RANGE[1]
        return 0, {"num_groups": _MAX_GROUPS, "group_id": _MAX_GROUPS - 1}.get(op.name, _MAX_GROUPS * size - 1)

    def array_number(self, op: Op) -> Interval | None:
        """Return the range of an `extent` or `stride`; all fit in i32 in kernels with the attribute `narrow`."""
        array = op.operands[0].type
        narrow = isinstance(array, Array) and self.function.attrs.get("narrow")
        if op.name == "extent":
            return 0, (I32_RANGE if narrow else INDEX_RANGE)[1]
        return I32_RANGE if narrow else None


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer


def _range_of_type(value: Value) -> Interval:
    """Return the range of the type of an integer value."""
    assert isinstance(value.type, Scalar)
    bits, signed = value.type.dtype.bits, value.type.dtype.is_signed
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def _inside(a: Interval, b: Interval) -> bool:
    """True if interval a is part of b."""
    return b[0] <= a[0] and a[1] <= b[1]


def _hull(a: Interval, b: Interval) -> Interval:
    """Return the smallest interval that contains both intervals."""
    return min(a[0], b[0]), max(a[1], b[1])


def _mul(a: Interval, b: Interval) -> Interval:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _and(a: Interval, b: Interval) -> Interval | None:
    """Return the range of a bitwise and: it is at most each operand that is non-negative."""
    if a[0] < 0 and b[0] < 0:
        return None
    tops = [x[1] for x in (a, b) if x[0] >= 0]
    return 0, min(tops)


def _floordiv(a: Interval, b: Interval) -> Interval | None:
    """Return the range of a floor division by a divisor that isn't negative; division by 0 gives 0."""
    if b[0] < 0:
        return None
    quotients = [x // max(y, 1) for x in a for y in b]
    if b[0] == 0:
        quotients.append(0)
    return min(quotients), max(quotients)


def _floormod(_a: Interval, b: Interval) -> Interval | None:
    return (0, max(b[1] - 1, 0)) if b[0] >= 0 else None


def _remainder(a: Interval, b: Interval) -> Interval | None:
    """Return the range of a truncating remainder, for operands that aren't negative."""
    return (0, min(a[1], max(b[1] - 1, 0))) if a[0] >= 0 and b[0] >= 0 else None


def _quotient(a: Interval, b: Interval) -> Interval | None:
    """Return the range of a truncating division of a non-negative dividend, which is the floor division."""
    return _floordiv(a, b) if a[0] >= 0 else None


_RULES: dict[OpName, Callable[..., Interval | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _mul,
    "neg": lambda a: (-a[1], -a[0]),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "and": _and,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _quotient,
    "truncrem": _remainder,
    "udiv_raw": _quotient,
    "urem_raw": _remainder,
    "assume_uniform": lambda a: a,
}

_SUBGROUP_IDS: dict[OpName, Interval] = {
    "lane_id": (0, 127),
    "subgroup_size": (1, 128),
    "subgroup_id": (0, 1023),
    "num_subgroups": (1, 1024),
}
"""Ranges that hold for any device: at most 128 lanes, and at most 1024 subgroups in a workgroup."""
_GRID_IDS: frozenset[OpName] = frozenset({"local_id", "local_size", "group_id", "num_groups", "global_id"})

assert all(name in OPS for name in (*_RULES, *_SUBGROUP_IDS, *_GRID_IDS))
