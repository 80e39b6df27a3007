"""Symbolic upper bounds of trip counts, which the host evaluates for a launch's arguments.

A `TripBound` is a small expression tree over constants, extents, integer scalar parameters and the grid. It is an upper
bound for all values of these; a loop that depends on anything else has none. Bounds are stored in artifacts as JSON.
The analysis computes intervals of values, whose ends are such trees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vkjit.dtypes import DType
from vkjit.ir.core import Function, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import Array, Scalar

__all__ = ["UNBOUNDED", "Intervals", "TripBound", "bound_from_json", "bound_to_json", "constant"]

UNBOUNDED = 1 << 62
"""The value of a bound that doesn't hold, as an intermediate value overflows its type or a divisor isn't positive."""

_MAX_LANES = 128
_MAX_INTERVAL_SIZE = 64  # nodes of an interval; larger ones are dropped
_MAX_DEPTH = 100  # recursion limit over operands


@dataclass(frozen=True, slots=True)
class TripBound:
    """A node of the tree: `kind`, with integer operands (`numbers`) and subtrees (`nodes`).

    Kinds with their numbers: "constant" (n); "extent" (argument, axis); "scalar" (argument); "groups" (axis). Kinds
    with two subtrees: "add", "sub", "mul", "min", "max", "floordiv", "ceildiv". "fit" (low, high) asserts that its
    subtree is in that range.
    """

    kind: str
    numbers: tuple[int, ...] = ()
    nodes: tuple[TripBound, ...] = ()

    def evaluate(
        self,
        extents: Mapping[int, Sequence[int]],
        scalars: Mapping[int, int],
        groups: tuple[int, int, int] = (1, 1, 1),
    ) -> int:
        """Evaluate the bound for one launch.

        `extents` and `scalars` map indices of the user's parameters to shapes and values; `groups` is the grid. Returns
        `UNBOUNDED` if the bound doesn't hold.
        """
        try:
            return self._value(extents, scalars, groups)
        except OverflowError:
            return UNBOUNDED

    def _value(
        self, extents: Mapping[int, Sequence[int]], scalars: Mapping[int, int], groups: tuple[int, int, int]
    ) -> int:
        if self.kind == "constant":
            return self.numbers[0]
        if self.kind == "extent":
            return int(extents[self.numbers[0]][self.numbers[1]])
        if self.kind == "scalar":
            return int(scalars[self.numbers[0]])
        if self.kind == "groups":
            return groups[self.numbers[0]]
        values = [node._value(extents, scalars, groups) for node in self.nodes]
        if self.kind == "fit":
            if not self.numbers[0] <= values[0] <= self.numbers[1]:
                raise OverflowError
            return values[0]
        return _COMPUTE[self.kind](*values)

    def depends_on(self, scalar: int) -> bool:
        """True if the bound depends on the scalar argument with index `scalar`."""
        return (self.kind == "scalar" and self.numbers[0] == scalar) or any(n.depends_on(scalar) for n in self.nodes)

    def size(self) -> int:
        """Return the number of nodes."""
        return 1 + sum(inner.size() for inner in self.nodes)

    def is_constant(self) -> bool:
        """True for a constant node."""
        return self.kind == "constant"


def _divided(x: int, y: int, up: bool) -> int:
    if y <= 0:
        raise OverflowError
    return -(-x // y) if up else x // y


_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "min": min,
    "max": max,
    "floordiv": lambda x, y: _divided(x, y, up=False),
    "ceildiv": lambda x, y: _divided(x, y, up=True),
}


def constant(number: int) -> TripBound:
    """Return a constant node."""
    return TripBound("constant", (number,))


def node(kind: str, x: TripBound, y: TripBound) -> TripBound:
    """Return an operation on two nodes, folding constants and neutral operands."""
    if x.is_constant() and y.is_constant():
        try:
            return constant(_COMPUTE[kind](x.numbers[0], y.numbers[0]))
        except OverflowError:
            pass
    if kind == "add" and x == constant(0):
        return y
    if kind in ("add", "sub") and y == constant(0):
        return x
    if kind in ("mul", "floordiv", "ceildiv") and y == constant(1):
        return x
    return TripBound(kind, nodes=(x, y))


def bound_to_json(bound: TripBound | None) -> Any:
    """Return the bound as JSON-compatible lists, for `bound_from_json`."""
    if bound is None:
        return None
    return [bound.kind, list(bound.numbers), [bound_to_json(inner) for inner in bound.nodes]]


def bound_from_json(data: Any) -> TripBound | None:
    """Return the bound that `bound_to_json` wrote. Raises ValueError for malformed data."""
    if data is None:
        return None
    kind, numbers, nodes = data
    arities = {"constant": (1, 0), "extent": (2, 0), "scalar": (1, 0), "groups": (1, 0), "fit": (2, 1)}
    if kind not in _COMPUTE and kind not in arities:
        raise ValueError(f"no trip bound is of kind {kind!r}")
    inner = tuple(bound for bound in map(bound_from_json, nodes) if bound is not None)
    if (len(numbers), len(inner)) != arities.get(kind, (0, 2)) or not all(type(n) is int for n in numbers):
        raise ValueError(f"malformed trip bound {data!r}")
    return TripBound(kind, tuple(numbers), inner)


@dataclass(frozen=True, slots=True)
class Interval:
    """A symbolic interval: lower <= value <= upper."""

    lower: TripBound
    upper: TripBound


class Intervals:
    """Symbolic interval analysis of one function. `fit` nodes guard each operation that could wrap around."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.local: Sequence[int] = function.attrs.get("local_size", (1, 1, 1))
        self.arguments: Sequence[int] = function.attrs.get("arg_index", range(len(function.params)))
        self.loops: dict[Region, Op] = {op.regions[0]: op for op in function.body.walk() if op.name == "for"}
        self.intervals: dict[Value, Interval | None] = {}
        self.depth = 0

    def trips(self, loop: Op) -> TripBound | None:
        """Return an upper bound of a `for`'s trip count, None if none is known."""
        if loop.name != "for":
            return None
        low, high, step = loop.operands[:3]
        stride = constant_of(step) if is_constant(step) else None
        if stride == 0:
            return constant(0)
        if stride is not None and stride < 0:
            low, high = high, low
        distance = self._distance(high, low)
        by = constant(abs(stride)) if stride is not None else self._lower(step)
        if distance is None or by is None:
            return None
        return node("max", constant(0), node("ceildiv", distance, by))

    def _lower(self, value: Value) -> TripBound | None:
        interval_of_value = self.interval(value)
        return None if interval_of_value is None else interval_of_value.lower

    def _distance(self, high: Value, low: Value) -> TripBound | None:
        """Return an upper bound of high - low; looks through high = low + x and high = min(low + x, y)."""
        op = high.op
        if op is not None and op.name == "add" and low in op.operands:
            other = self.interval(op.operands[1 - op.operands.index(low)])
            return None if other is None else other.upper
        if op is not None and op.name == "min":
            sides = [side for side in (self._distance(v, low) for v in op.operands) if side is not None]
            return None if not sides else sides[0] if len(sides) == 1 else node("min", *sides)
        upper, lower = self.interval(high), self.interval(low)
        return None if upper is None or lower is None else node("sub", upper.upper, lower.lower)

    def interval(self, value: Value) -> Interval | None:
        """Return the interval of an integer value, None if nothing is known."""
        if value not in self.intervals:
            self.intervals[value] = None
            self.depth += 1
            if self.depth < _MAX_DEPTH:
                self.intervals[value] = self._find(value)
            self.depth -= 1
        return self.intervals[value]

    def _find(self, value: Value) -> Interval | None:
        dtype = getattr(value.type, "dtype", None)
        if not isinstance(value.type, Scalar) or dtype is None or not dtype.is_integer:
            return None
        if isinstance(value.owner, Region):
            return self._argument(value, value.owner)
        op = value.owner
        if op.name == "const":
            exact = constant(int(op.attrs["value"]))
            return Interval(exact, exact)
        if op.name == "extent":
            return self._extent(op)
        id_interval = self._id(op)
        if id_interval is not None:
            return id_interval
        inner = [self.interval(v) for v in op.operands if isinstance(getattr(v.type, "dtype", None), DType)]
        result = _RULES[op.name](op, inner) if op.name in _RULES else None
        if result is None or result.lower.size() + result.upper.size() > _MAX_INTERVAL_SIZE:
            return None
        return _fit(result, dtype)

    def _argument(self, value: Value, owner: Region) -> Interval | None:
        if owner is self.function.body:
            exact = TripBound("scalar", (self.arguments[value.index],))
            return Interval(exact, exact)
        loop = self.loops.get(owner)
        if loop is None or value.index != 0 or not is_constant(loop.operands[2]):
            return None
        ends = [self.interval(v) for v in loop.operands[:2]]
        if ends[0] is None or ends[1] is None:
            return None
        one, step = constant(1), int(constant_of(loop.operands[2]))
        if step > 0:
            last = node("sub", ends[1].upper, one)
            if last.is_constant() and ends[0].lower == ends[0].upper and ends[0].lower.is_constant():
                first = ends[0].lower.numbers[0]
                last = constant(first + (last.numbers[0] - first) // step * step)
            return Interval(ends[0].lower, last)
        return Interval(node("add", ends[1].lower, one), ends[0].upper)

    def _extent(self, op: Op) -> Interval | None:
        array, axis = op.operands[0], op.attrs["axis"]
        if isinstance(array.type, Array) and array.type.shape is not None:
            exact = constant(array.type.shape[axis])
        elif array.owner is self.function.body:
            exact = TripBound("extent", (self.arguments[array.index], axis))
        else:
            return None
        return Interval(exact, exact)

    def _id(self, op: Op) -> Interval | None:
        axis = op.attrs.get("dim", 0)
        size, groups = constant(self.local[axis]), TripBound("groups", (axis,))
        whole = self.local[0] * self.local[1] * self.local[2]
        one = constant(1)
        ends: dict[OpName, tuple[TripBound, TripBound]] = {
            "local_size": (size, size),
            "num_groups": (groups, groups),
            "local_id": (constant(0), node("sub", size, one)),
            "group_id": (constant(0), node("sub", groups, one)),
            "global_id": (constant(0), node("sub", node("mul", groups, size), one)),
            "lane_id": (constant(0), constant(_MAX_LANES - 1)),
            "subgroup_size": (one, constant(_MAX_LANES)),
            "subgroup_id": (constant(0), constant(whole)),
            "num_subgroups": (one, constant(whole)),
        }
        return Interval(*ends[op.name]) if op.name in ends else None


def _fit(found: Interval, dtype: DType) -> Interval | None:
    """Restrict an interval to a type's range by `fit` nodes; return None if a constant end is out of range."""
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = low + (1 << dtype.bits) - 1
    ends = []
    for end in (found.lower, found.upper):
        if end.is_constant():
            if not low <= end.numbers[0] <= high:
                return None
            ends.append(end)
        else:
            ends.append(
                end if end.kind == "fit" and end.numbers == (low, high) else TripBound("fit", (low, high), (end,))
            )
    return Interval(*ends)


_Rule = Callable[[Op, "list[Interval | None]"], "Interval | None"]


def _monotone(kind: str) -> _Rule:
    def rule(_op: Op, xs: list[Interval | None]) -> Interval | None:
        x, y = xs
        if x is None or y is None:
            return None
        return Interval(node(kind, x.lower, y.lower), node(kind, x.upper, y.upper))

    return rule


def _difference(_op: Op, xs: list[Interval | None]) -> Interval | None:
    x, y = xs
    if x is None or y is None:
        return None
    return Interval(node("sub", x.lower, y.upper), node("sub", x.upper, y.lower))


def _product(_op: Op, xs: list[Interval | None]) -> Interval | None:
    x, y = xs
    if x is None or y is None:
        return None
    if _non_negative(x.lower) and _non_negative(y.lower):
        return Interval(node("mul", x.lower, y.lower), node("mul", x.upper, y.upper))
    corners = [node("mul", a, b) for a in (x.lower, x.upper) for b in (y.lower, y.upper)]
    return Interval(_fold("min", corners), _fold("max", corners))


def _non_negative(bound: TripBound) -> bool:
    """True if the node is non-negative in all launches."""
    if bound.kind == "constant":
        return bound.numbers[0] >= 0
    if bound.kind in ("add", "mul", "min", "floordiv", "ceildiv", "fit"):
        return all(map(_non_negative, bound.nodes))
    return bound.kind in ("extent", "groups") or (bound.kind == "max" and any(map(_non_negative, bound.nodes)))


def _fold(kind: str, nodes: Sequence[TripBound]) -> TripBound:
    distinct = list(dict.fromkeys(nodes))
    result = distinct[0]
    for other in distinct[1:]:
        result = node(kind, result, other)
    return result


def _quotient(op: Op, xs: list[Interval | None]) -> Interval | None:
    """Return the interval of a quotient by a positive divisor.

    For negative dividends, truncation may give one more than flooring, hence the upper end by ceiling division.
    """
    x, y = xs
    if x is None or y is None:
        return None
    lows = [node("floordiv", x.lower, y.lower), node("floordiv", x.lower, y.upper)]
    highs = [node("ceildiv", x.upper, y.lower), node("ceildiv", x.upper, y.upper)]
    if op.name in ("floordiv", "udiv_raw") or (x.lower.is_constant() and x.lower.numbers[0] >= 0):
        highs = [node("floordiv", x.upper, y.lower), node("floordiv", x.upper, y.upper)]
    return Interval(_fold("min", lows), _fold("max", highs))


def _remainder(_op: Op, xs: list[Interval | None]) -> Interval | None:
    """Return the interval of a floor modulo with a positive divisor."""
    y = xs[1]
    if y is None:
        return None
    if y.lower.is_constant() and y.upper.is_constant() and y.lower.numbers[0] > 0:
        return Interval(constant(0), constant(y.upper.numbers[0] - 1))
    positive = TripBound("fit", (1, UNBOUNDED), (y.lower,))
    return Interval(constant(0), node("sub", node("max", y.upper, positive), constant(1)))


def _mask(op: Op, _xs: list[Interval | None]) -> Interval | None:
    number = next((constant_of(v) for v in op.operands if is_constant(v)), None)
    return Interval(constant(0), constant(number)) if number is not None and number >= 0 else None


def _shift(op: Op, xs: list[Interval | None]) -> Interval | None:
    x = xs[0]
    if x is None or not is_constant(op.operands[1]):
        return None
    factor = constant(1 << int(constant_of(op.operands[1])))
    kind = "mul" if op.name == "shl_raw" else "floordiv"
    return Interval(node(kind, x.lower, factor), node(kind, x.upper, factor))


def _select_interval(_op: Op, xs: list[Interval | None]) -> Interval | None:
    x, y = xs[-2:]
    if x is None or y is None:
        return None
    return Interval(_fold("min", [x.lower, y.lower]), _fold("max", [x.upper, y.upper]))


def _same(_op: Op, xs: list[Interval | None]) -> Interval | None:
    return xs[0]


_RULES: dict[OpName, _Rule] = {
    "add": _monotone("add"),
    "sub": _difference,
    "mul": _product,
    "min": _monotone("min"),
    "max": _monotone("max"),
    "floordiv": _quotient,
    "truncdiv": _quotient,
    "udiv_raw": _quotient,
    "sdiv_raw": _quotient,
    "floormod": _remainder,
    "urem_raw": _remainder,
    "and": _mask,
    "shl_raw": _shift,
    "shr_raw": _shift,
    "select": _select_interval,
    "cast": _same,
    "assume_uniform": _same,
}
