"""Stride analysis: which values are equal in the lanes of a vector, and which change by a constant from lane to lane.

The result for each value of a kernel in primitive form is its shape: UNIFORM (equal in all lanes), a `Step` (the value
of lane 0 plus a constant times the lane) or VARYING. The analysis also finds the loops that some lanes may leave before
others.

1. The lanes run in lockstep, so a load at a uniform index of a global or shared array is uniform.
2. The equation of a `Step` holds modulo 2**bits of the integer type. An `exact` step holds without wrapping in all
   active lanes, so it also holds after a conversion to a wider type.
3. The results of a loop that lanes leave one by one are varying. A loop-carried value can still be uniform if all lanes
   that continue get it from the same `continue`.

The analysis assumes at first that all values are uniform, and repeats the body of a loop up to the fixed point. Shapes
only change towards VARYING, so this terminates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vkjit.dtypes import DType
from vkjit.ir.core import Function, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import LOOPS, exits_of
from vkjit.ir.types import Array, Scalar, Vector
from vkjit.passes.analysis.value_ranges import Ranges

__all__ = ["UNIFORM", "VARYING", "Shape", "Shapes", "Step", "constant_number"]

_LARGEST_STEP = 1 << 20
_UNIFORM_ALWAYS: frozenset[OpName] = frozenset({
    "const", "poison", "group_id", "num_groups", "local_size", "subgroup_id", "subgroup_size", "num_subgroups",
    "extent", "stride", "linear", "shared", "local", "assume_uniform", "sg_reduce", "sg_any", "sg_all", "sg_ballot",
    "sg_broadcast",
})  # fmt: skip
_VARYING_ALWAYS: frozenset[OpName] = frozenset({
    "atomic", "atomic_cas", "atomic_load", "sg_scan", "sg_shuffle", "sg_shuffle_xor", "sg_elect",
})  # fmt: skip


_QUOTIENTS: frozenset[OpName] = frozenset({"floordiv", "udiv_raw", "sdiv_raw", "shr_raw"})
_REMAINDERS: frozenset[OpName] = frozenset({"floormod", "urem_raw", "and"})


@dataclass(frozen=True, slots=True)
class Step:
    """Shape of a value that is `size * lane` plus the value of lane 0; uniform if `size` is 0.

    `exact` is True if that holds without wrapping in all active lanes.
    """

    size: int
    exact: bool = True


Shape = Step | None
UNIFORM = Step(0)
VARYING: Shape = None


def constant_number(value: Value) -> int | float | bool | None:
    """Return the value of a scalar constant, or None if `value` isn't one."""
    op = value.op
    return op.attrs["value"] if op is not None and op.name == "const" and isinstance(value.type, Scalar) else None


def _join(a: Shape, b: Shape) -> Shape:
    """Return the shape of a value that may have either shape."""
    if a is None or b is None or a.size != b.size:
        return VARYING
    return a if a.exact <= b.exact else b


def _integer(value: Value) -> DType | None:
    kind = value.type
    return kind.dtype if isinstance(kind, Scalar) and kind.dtype.is_integer else None


@dataclass(slots=True)
class Shapes:
    """The analysis of one kernel.

    `id_steps` are the shapes of `local_id` along each axis, `unwrapped` the operations that can't overflow,
    `width` the number of lanes (0 if unknown). `found` maps values to shapes; values that it lacks are uniform.
    """

    kernel: Function
    id_steps: tuple[Shape, Shape, Shape]
    unwrapped: set[Op] = field(default_factory=set)
    width: int = 0
    found: dict[Value, Shape] = field(default_factory=dict)
    masked: set[Op] = field(default_factory=set)
    """Loops that some lanes may leave before others."""
    early: set[Op] = field(default_factory=set)
    """Loops among `masked` with a divergent `break` or `continue`."""
    changed: bool = False

    @staticmethod
    def of(kernel: Function, id_steps: tuple[Shape, Shape, Shape], width: int = 0) -> Shapes:
        """Analyze a kernel. With `width`, quotients and remainders of ids that are aligned to it get precise shapes."""
        shapes = Shapes(kernel, id_steps, _without_wrapping(kernel), width)
        shapes.region(kernel.body, False, None)
        return shapes

    def of_value(self, value: Value) -> Shape:
        return self.found.get(value, UNIFORM)

    def is_uniform(self, value: Value) -> bool:
        shape = self.of_value(value)
        return shape is not None and shape.size == 0

    def _learn(self, value: Value, shape: Shape) -> None:
        if self.of_value(value) != shape:
            self.found[value] = shape
            self.changed = True

    # -- walking

    def region(self, region: Region, divergent: bool, loop: Op | None) -> bool:
        """Analyze a region, which only part of the lanes runs if `divergent`, inside of the loop `loop`.

        Returns True if some lanes may leave the region before its end while others don't.
        """
        left = False
        for op in region.ops:
            may_leave = self.operation(op, divergent or left, loop)
            left = left or may_leave
        return left

    def operation(self, op: Op, divergent: bool, loop: Op | None) -> bool:
        if op.name == "if":
            return self.branch(op, divergent, loop)
        if op.name in LOOPS:
            self.loop(op)
            return False
        if op.name in ("break", "continue"):
            if divergent and loop is not None and loop not in self.early:
                self.early.add(loop)
                self.masked.add(loop)
                self.changed = True
            return divergent
        for result in op.results:
            self._learn(result, self.transfer(op))
        return False

    def branch(self, op: Op, divergent: bool, loop: Op | None) -> bool:
        differs = not self.is_uniform(op.operands[0])
        left = False
        for region in op.regions:
            may_leave = self.region(region, divergent or differs, loop)
            left = left or may_leave
        yields = [r.terminator.operands for r in op.regions if r.terminator.name == "yield"]
        for place, result in enumerate(op.results):
            values = [operands[place] for operands in yields]
            shape = self.of_value(values[0])
            for value in values[1:]:
                shape = _join(shape, self.of_value(value))
            if differs and any(v is not values[0] for v in values):
                shape = VARYING
            self._learn(result, shape)
        return left

    def loop(self, op: Op) -> None:
        first = 3 if op.name == "for" else 0
        body = op.regions[0]
        arguments = body.args[1:] if first else body.args
        for argument, initial in zip(arguments, op.operands[first:], strict=True):
            visited = argument in self.found
            start = self.of_value(initial)
            self._learn(argument, _join(self.of_value(argument), start) if visited else start)
            self.found.setdefault(argument, start)
        if first:
            if not all(self.is_uniform(v) for v in op.operands[:3]):
                self.masked.add(op)
            self._learn(body.args[0], self.induction(op))
        before = self.changed
        while True:
            self.changed = False
            self.region(body, False, op)
            self.carry(op, arguments)
            if not self.changed:
                break
            before = True
        self.changed = before

    def induction(self, op: Op) -> Shape:
        low, _, step = op.operands[:3]
        shape = self.of_value(low)
        if shape is None or not self.is_uniform(step):
            return VARYING
        if shape.size == 0:
            return UNIFORM
        number = constant_number(step)
        exact = shape.exact and shape.size > 0 and number is not None and number > 0
        return Step(shape.size, exact)

    def carry(self, op: Op, arguments: Sequence[Value]) -> None:
        masked = op in self.masked
        nexts = [e for e in exits_of(op.regions[0]) if e.name == "continue"]
        breaks = [e for e in exits_of(op.regions[0]) if e.name == "break"]
        for place, argument in enumerate(arguments):
            values = [e.operands[place] for e in nexts]
            shape = self.of_value(argument)
            for value in values:
                shape = _join(shape, self.of_value(value))
            if masked and any(v is not values[0] for v in values):
                shape = VARYING
            self._learn(argument, shape)
        for place, result in enumerate(op.results):
            sources = [e.operands[place] for e in breaks]
            if op.name == "for":
                sources.append(arguments[place])
            shape = VARYING if masked or not sources else self.of_value(sources[0])
            for value in sources[1:]:
                shape = _join(shape, self.of_value(value))
            self._learn(result, shape)

    # -- operations

    def transfer(self, op: Op) -> Shape:
        """Return the shape of an operation's result, from the shapes of its operands."""
        name = op.name
        if name in _UNIFORM_ALWAYS:
            return UNIFORM
        if name in _VARYING_ALWAYS:
            return VARYING
        if name in ("local_id", "global_id"):
            return self.id_steps[op.attrs["dim"]]
        if name == "lane_id":
            return Step(1)
        if name == "load":
            return self.load(op)
        if all(self.is_uniform(v) for v in op.operands if not isinstance(v.type, Array)):
            return UNIFORM
        if isinstance(op.result.type, Vector) or _integer(op.result) is None:
            return VARYING
        return self.stepped(op)

    def load(self, op: Op) -> Shape:
        array = op.operands[0].type
        private = isinstance(array, Array) and array.space == "local"
        return UNIFORM if not private and all(self.is_uniform(v) for v in op.operands[1:]) else VARYING

    def stepped(self, op: Op) -> Shape:
        """Return the shape of the result of integer arithmetic."""
        shapes = [self.of_value(v) for v in op.operands]
        if any(s is None for s in shapes):
            return VARYING
        if op.name in _QUOTIENTS or op.name in _REMAINDERS:
            return self.divided(op)
        steps = [s for s in shapes if s is not None]
        name, size = op.name, None
        if name in ("add", "sub"):
            size = steps[0].size + steps[1].size * (1 if name == "add" else -1)
        elif name == "neg":
            size = -steps[0].size
        elif name in ("mul", "shl_raw"):
            size = self.scaled(op, steps)
        elif name in ("cast", "bitcast"):
            return self.converted(op, steps[0])
        if size is None or abs(size) > _LARGEST_STEP:
            return VARYING
        return Step(size, size == 0 or (op in self.unwrapped and all(s.exact for s in steps)))

    def divided(self, op: Op) -> Shape:
        """Return the shape of a quotient or remainder: precise for an aligned id and a divisor that the width divides."""
        value, by = op.operands[0], constant_number(op.operands[1])
        if by is None or not self.is_aligned(value):
            return VARYING
        divisor = 1 << int(by) if op.name == "shr_raw" else int(by) + 1 if op.name == "and" else int(by)
        if divisor <= 0 or divisor % self.width or (op.name == "and" and divisor & (divisor - 1)):
            return VARYING
        return UNIFORM if op.name in _QUOTIENTS else Step(1)

    def is_aligned(self, value: Value) -> bool:
        """True if the value is a multiple of the width in lane 0 and increases by 1 from lane to lane."""
        op = value.op
        if op is None or self.width < 2 or self.of_value(value) != Step(1):
            return False
        if op.name == "local_id":
            return bool(op.attrs["dim"] == 0 and self.kernel.attrs["local_size"][0] % self.width == 0)
        if op.name == "cast" or op.name in _REMAINDERS:
            return self.is_aligned(op.operands[0])
        if op.name != "add":
            return False
        return any(self.is_aligned(a) and self._is_multiple(b) for a, b in (op.operands, reversed(op.operands)))

    def _is_multiple(self, value: Value) -> bool:
        """True if a value is uniform and a product with a constant multiple of the width."""
        op = value.op
        if op is None or op.name not in ("mul", "shl_raw") or not self.is_uniform(value):
            return False
        number = constant_number(op.operands[1])
        if number is None:
            return False
        return (1 << int(number) if op.name == "shl_raw" else int(number)) % self.width == 0

    @staticmethod
    def scaled(op: Op, steps: list[Step]) -> int | None:
        first, second = op.operands
        number = constant_number(second)
        if op.name == "shl_raw":
            return steps[0].size << int(number) if number is not None and 0 <= number < 20 else None
        if number is not None:
            return steps[0].size * int(number)
        number = constant_number(first)
        return steps[1].size * int(number) if number is not None else None

    def converted(self, op: Op, step: Step) -> Shape:
        source, target = _integer(op.operands[0]), _integer(op.result)
        if source is None or target is None or (target.bits > source.bits and not step.exact):
            return VARYING
        is_id = target.bits >= 32 and bool(self.kernel.attrs.get("narrow")) and _is_id(op.operands[0])
        return Step(step.size, step.exact and (is_id or op in self.unwrapped))


def _without_wrapping(kernel: Function) -> set[Op]:
    """Return the integer additions, subtractions, multiplications, negations and casts that can't overflow."""
    unwrapped: set[Op] = set()

    def visit(ranges: Ranges, op: Op) -> None:
        if op.name in ("add", "sub", "mul", "neg", "cast") and _integer(op.result) is not None:
            exact = ranges.result(op)
            dtype = _integer(op.result)
            if exact is not None and dtype is not None and _fits(exact, dtype):
                unwrapped.add(op)

    Ranges(kernel, visit).run()
    return unwrapped


def _fits(interval: tuple[int, int], dtype: DType) -> bool:
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return low <= interval[0] and interval[1] < low + (1 << dtype.bits)


def _is_id(value: Value) -> bool:
    """True if a value is an id, possibly converted, and so never negative."""
    op = value.op
    while op is not None and op.name == "cast":
        op = op.operands[0].op
    return op is not None and op.name in ("local_id", "global_id", "lane_id")
