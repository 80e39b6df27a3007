"""Symbolic upper bounds of trip counts, which the host evaluates for a launch's arguments.

A `TripBound` is a small expression tree over constants, extents of array parameters, integer scalar parameters, and the
number of workgroups. It is an upper bound for all values of these; a trip count that depends on anything else has no
bound. `Intervals` finds the bounds: for each integer value, it computes an interval whose ends are such trees.

`loop_costs` sums up the bounds of all loops, so that launches below a driver's cap on iterations need no guard (see
`loop_guard`). Bounds are stored in compiled artifacts as JSON.
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
"""The result of evaluating a bound that doesn't hold for a launch, since an intermediate value overflows its type or a
divisor isn't positive.
"""

_MAX_LANES = 128
"""The largest subgroup of any device."""
_MAX_INTERVAL_SIZE = 64
"""The largest number of nodes of an interval; larger ones are dropped."""
_MAX_DEPTH = 100
"""The limit of recursion over operands."""


@dataclass(frozen=True, slots=True)
class TripBound:
    """A node of the expression tree: an operation `kind`, with integer operands (`numbers`) and subtrees (`nodes`).

    Leaves are "constant" (n), "extent" (argument, axis), "scalar" (argument) and "groups" (axis), with their numbers in
    parentheses; an argument is the index of a parameter of the launch, and "groups" the number of workgroups along an
    axis. "add", "sub", "mul", "min", "max", "floordiv" and "ceildiv" have two subtrees. "fit" (low, high) has one
    subtree, whose value it returns; if the value isn't in [low, high], the whole bound doesn't hold.
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

        `extents` and `scalars` map the index of a launch argument to the array's shape or the scalar's value; `groups`
        is the number of workgroups along each axis. Return `UNBOUNDED` if the bound doesn't hold.
        """
        try:
            return self._value(extents, scalars, groups)
        except OverflowError:
            return UNBOUNDED

    def _value(
        self, extents: Mapping[int, Sequence[int]], scalars: Mapping[int, int], groups: tuple[int, int, int]
    ) -> int:
        """Evaluate the node. Raises OverflowError if the bound doesn't hold."""
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
    """Return x / y rounded up or down. Raises OverflowError unless y is positive."""
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
    """Return a node with two subtrees, or a simpler tree if both are constants or one of them is a neutral constant."""
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
    # The number of `numbers` and of `nodes` by kind; the kinds in `_COMPUTE` have (0, 2).
    arities = {"constant": (1, 0), "extent": (2, 0), "scalar": (1, 0), "groups": (1, 0), "fit": (2, 1)}
    if kind not in _COMPUTE and kind not in arities:
        raise ValueError(f"no trip bound is of kind {kind!r}")
    inner = tuple(bound for bound in map(bound_from_json, nodes) if bound is not None)
    if (len(numbers), len(inner)) != arities.get(kind, (0, 2)) or not all(type(n) is int for n in numbers):
        raise ValueError(f"malformed trip bound {data!r}")
    return TripBound(kind, tuple(numbers), inner)


@dataclass(frozen=True, slots=True)
class Interval:
    """A symbolic interval of a value: lower <= value <= upper, for all arguments of a launch."""

    lower: TripBound
    upper: TripBound


class Intervals:
    """Symbolic interval analysis of one function.

    If an operation could wrap around, the ends of its interval are "fit" nodes, so that the bound doesn't hold for
    launches in which the operation does wrap around. `local` is the workgroup size, and `arguments` has the index of
    the launch argument of each parameter. `loops` maps the bodies of `for`s to the loops, `intervals` has the results
    so far (None if nothing is known), and `depth` is the current depth of recursion.
    """

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
        # A step that isn't constant is bounded from below; if this bound isn't positive, "ceildiv" doesn't hold.
        step_size = constant(abs(stride)) if stride is not None else self._lower(step)
        if distance is None or step_size is None:
            return None
        return node("max", constant(0), node("ceildiv", distance, step_size))

    def _lower(self, value: Value) -> TripBound | None:
        """Return a lower bound of a value, None if none is known."""
        interval_of_value = self.interval(value)
        return None if interval_of_value is None else interval_of_value.lower

    def _distance(self, high: Value, low: Value) -> TripBound | None:
        """Return an upper bound of high - low, None if none is known.

        For high = low + x, return the upper bound of x, which is tighter than the difference of the intervals' ends.
        For high = min(a, b), return the smaller one of the bounds of a - low and b - low.
        """
        op = high.op
        if op is not None and op.name == "add" and low in op.operands:
            other = self.interval(op.operands[1 - op.operands.index(low)])
            return None if other is None else other.upper
        if op is not None and op.name == "min":
            sides = [side for side in (self._distance(v, low) for v in op.operands) if side is not None]
            if len(sides) == 2:
                return node("min", *sides)
            return sides[0] if sides else None  # each side alone is an upper bound of the minimum
        high_interval, low_interval = self.interval(high), self.interval(low)
        if high_interval is None or low_interval is None:
            return None
        return node("sub", high_interval.upper, low_interval.lower)

    def interval(self, value: Value) -> Interval | None:
        """Return the interval of an integer value, None if nothing is known."""
        if value not in self.intervals:
            self.intervals[value] = None  # also stops the recursion if a value depends on itself
            self.depth += 1
            if self.depth < _MAX_DEPTH:
                self.intervals[value] = self._find(value)
            self.depth -= 1
        return self.intervals[value]

    def _find(self, value: Value) -> Interval | None:
        """Compute the interval of a value from its definition."""
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
        """Return the interval of an argument of the region `owner`: a scalar parameter, or an induction variable."""
        if owner is self.function.body:
            exact = TripBound("scalar", (self.arguments[value.index],))
            return Interval(exact, exact)
        loop = self.loops.get(owner)
        if loop is None or value.index != 0 or not is_constant(loop.operands[2]):
            return None
        start, end = (self.interval(v) for v in loop.operands[:2])
        if start is None or end is None:
            return None
        one, step = constant(1), int(constant_of(loop.operands[2]))
        if step > 0:
            last = node("sub", end.upper, one)
            # With constant start and end, the last value is the largest start + n * step below the end.
            if last.is_constant() and start.lower == start.upper and start.lower.is_constant():
                first = start.lower.numbers[0]
                last = constant(first + (last.numbers[0] - first) // step * step)
            return Interval(start.lower, last)
        return Interval(node("add", end.lower, one), start.upper)

    def _extent(self, op: Op) -> Interval | None:
        """Return the interval of an array's extent: its exact value as a tree."""
        array, axis = op.operands[0], op.attrs["axis"]
        if isinstance(array.type, Array) and array.type.shape is not None:
            exact = constant(array.type.shape[axis])
        elif array.owner is self.function.body:
            exact = TripBound("extent", (self.arguments[array.index], axis))
        else:
            return None
        return Interval(exact, exact)

    def _id(self, op: Op) -> Interval | None:
        """Return the interval of an id, or of a size of the workgroup or grid; None for other operations."""
        axis = op.attrs.get("dim", 0)
        size, groups = constant(self.local[axis]), TripBound("groups", (axis,))
        invocations = self.local[0] * self.local[1] * self.local[2]
        one = constant(1)
        ends: dict[OpName, tuple[TripBound, TripBound]] = {
            "local_size": (size, size),
            "num_groups": (groups, groups),
            "local_id": (constant(0), node("sub", size, one)),
            "group_id": (constant(0), node("sub", groups, one)),
            "global_id": (constant(0), node("sub", node("mul", groups, size), one)),
            "lane_id": (constant(0), constant(_MAX_LANES - 1)),
            "subgroup_size": (one, constant(_MAX_LANES)),
            "subgroup_id": (constant(0), constant(invocations)),  # a subgroup has at least one invocation
            "num_subgroups": (one, constant(invocations)),
        }
        return Interval(*ends[op.name]) if op.name in ends else None


def _fit(interval: Interval, dtype: DType) -> Interval | None:
    """Wrap the ends of an interval in "fit" nodes, which require them to be in a type's range.

    Constant ends are tested now instead; return None if one isn't in the range.
    """
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = low + (1 << dtype.bits) - 1
    ends = []
    for end in (interval.lower, interval.upper):
        if end.is_constant():
            if not low <= end.numbers[0] <= high:
                return None
            ends.append(end)
        elif end.kind == "fit" and end.numbers == (low, high):  # it has this node already
            ends.append(end)
        else:
            ends.append(TripBound("fit", (low, high), (end,)))
    return Interval(*ends)


_Rule = Callable[[Op, "list[Interval | None]"], "Interval | None"]
"""rule(op, intervals of the operands) returns the interval of the result, None if nothing is known."""


def _monotone(kind: str) -> _Rule:
    """Return the rule of an operation that is increasing in both operands."""

    def rule(_op: Op, xs: list[Interval | None]) -> Interval | None:
        x, y = xs
        if x is None or y is None:
            return None
        return Interval(node(kind, x.lower, y.lower), node(kind, x.upper, y.upper))

    return rule


def _difference(_op: Op, xs: list[Interval | None]) -> Interval | None:
    """Return the interval of x - y."""
    x, y = xs
    if x is None or y is None:
        return None
    return Interval(node("sub", x.lower, y.upper), node("sub", x.upper, y.lower))


def _product(_op: Op, xs: list[Interval | None]) -> Interval | None:
    """Return the interval of x * y, from the products of lower and of upper ends if both operands are non-negative,
    else from the minimum and maximum of all products of ends.
    """
    x, y = xs
    if x is None or y is None:
        return None
    if _non_negative(x.lower) and _non_negative(y.lower):
        return Interval(node("mul", x.lower, y.lower), node("mul", x.upper, y.upper))
    corners = [node("mul", a, b) for a in (x.lower, x.upper) for b in (y.lower, y.upper)]
    return Interval(_fold("min", corners), _fold("max", corners))


def _non_negative(bound: TripBound) -> bool:
    """True if a tree is known to be non-negative in all launches."""
    if bound.kind == "constant":
        return bound.numbers[0] >= 0
    if bound.kind in ("add", "mul", "min", "floordiv", "ceildiv", "fit"):
        return all(map(_non_negative, bound.nodes))
    return bound.kind in ("extent", "groups") or (bound.kind == "max" and any(map(_non_negative, bound.nodes)))


def _fold(kind: str, nodes: Sequence[TripBound]) -> TripBound:
    """Return the minimum or maximum (`kind`) of several trees."""
    distinct = list(dict.fromkeys(nodes))
    result = distinct[0]
    for other in distinct[1:]:
        result = node(kind, result, other)
    return result


def _quotient(op: Op, xs: list[Interval | None]) -> Interval | None:
    """Return the interval of a quotient.

    It doesn't hold (see `UNBOUNDED`) in launches where the divisor isn't positive. As truncation rounds negative
    quotients up, the upper end uses ceiling division, unless the operation is a floor division or the dividend isn't
    negative.
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
    """Return the interval of a floor modulo.

    It doesn't hold (see `UNBOUNDED`) in launches where the divisor isn't positive.
    """
    y = xs[1]
    if y is None:
        return None
    if y.lower.is_constant() and y.upper.is_constant() and y.lower.numbers[0] > 0:
        return Interval(constant(0), constant(y.upper.numbers[0] - 1))
    # The maximum is `y.upper`; its other operand only makes the bound fail for divisors that may not be positive.
    positive = TripBound("fit", (1, UNBOUNDED), (y.lower,))
    return Interval(constant(0), node("sub", node("max", y.upper, positive), constant(1)))


def _mask(op: Op, _xs: list[Interval | None]) -> Interval | None:
    """Return the interval of x & mask with a non-negative constant mask."""
    number = next((constant_of(v) for v in op.operands if is_constant(v)), None)
    return Interval(constant(0), constant(number)) if number is not None and number >= 0 else None


def _shift(op: Op, xs: list[Interval | None]) -> Interval | None:
    """Return the interval of a shift by a constant, as a product or floor division by a power of two."""
    x = xs[0]
    if x is None or not is_constant(op.operands[1]):
        return None
    factor = constant(1 << int(constant_of(op.operands[1])))
    kind = "mul" if op.name == "shl_raw" else "floordiv"
    return Interval(node(kind, x.lower, factor), node(kind, x.upper, factor))


def _select_interval(_op: Op, xs: list[Interval | None]) -> Interval | None:
    """Return the interval of a `select`: the hull of both values' intervals."""
    x, y = xs[-2:]  # without the condition
    if x is None or y is None:
        return None
    return Interval(_fold("min", [x.lower, y.lower]), _fold("max", [x.upper, y.upper]))


def _same(_op: Op, xs: list[Interval | None]) -> Interval | None:
    """Return the operand's interval, for operations that keep its value. For casts, `_fit` ensures that they do."""
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
