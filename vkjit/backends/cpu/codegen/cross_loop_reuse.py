"""Reuse across loops: buffer a value that two loops over the same elements both compute, and compute it only once.

Such loops arise if two collectives evaluate the same lazy value::

    %s = for %rank, %n, 256 (%i, %a) {            %buffer = local (an element per iteration, up to 32)
      %e = exp(load %x, %i)                       %s = for %rank, %n, 256 (%i, %a) {
      continue (add %a, %e)                         %e = exp(load %x, %i)
    }                                     ->        if %iter < 32 { store %buffer, %iter, %e }
    for %rank, %m, 256 (%j) {                       continue (add %a, %e)
      %f = exp(load %x, %j)                       }
      store %y, %j, (div %f, %s)                  for %rank, %m, 256 (%j) {
      continue                                      %f = if %iter < 32 and %m == %n { load %buffer, %iter }
    }                                                    else { exp(load %x, %j) }
                                                    ...

The value depends only on the induction variable, on equal values from outside of the loops, and on arrays that nothing
writes during the launch. It is buffered if that is cheaper: functions are, sums and products aren't. The first loop has
always run when the second one starts. Iterations from the 32nd on compute the value again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect, OpName
from vkjit.ir.rewrite import clone_op, constant_of, exits_of
from vkjit.ir.types import Array, Scalar

__all__ = ["hold"]

_MAX_BUFFERED = 33
"""Size of the buffer: one more than the iterations that it holds, since a power of two would cause cache conflicts."""
_COST_THRESHOLD = 8
"""Minimum cost of a value that is buffered, to outweigh a store and a load."""
_COSTS: dict[OpName, int] = {"exp": 12, "exp2": 12, "div": 5, "sqrt": 6, "rsqrt": 6, "load": 0, "cast": 1, "const": 0}

Path = tuple[tuple[Value, int], ...]
"""The conditions of the `if`s around a loop, each with the number of the region that contains the loop."""


@dataclass(slots=True)
class _Numbers:
    """Value numbering: equal numbers for computations by the same operation from the same operands."""

    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    outside: dict[Value, int] = field(default_factory=dict)

    def of(self, *parts: object) -> int:
        return self.numbers.setdefault(parts, len(self.numbers))

    def of_op(self, op: Op, operands: list[int]) -> int:
        if op.name == "const":
            return self.of("const", str(op.result.type), repr(op.attrs["value"]))
        return self.of(op.name, tuple(sorted((name, str(value)) for name, value in op.attrs.items())), *operands)

    def of_outside(self, value: Value) -> int:
        """Return the number of a value from outside of the loop: by its operation, if that has no effects or regions."""
        if value not in self.outside:
            op = value.op
            simple = op is not None and not op.regions and len(op.results) == 1 and not OPS[op.name].convergent
            if op is not None and simple and OPS[op.name].effect == Effect.NONE:
                self.outside[value] = self.of_op(op, [self.of_outside(v) for v in op.operands])
            else:
                self.outside[value] = self.of(value)
        return self.outside[value]


@dataclass(slots=True)
class _Loop:
    """A loop, its position, and the numbers (`keys`) and costs of the values that each iteration computes."""

    op: Op
    path: Path
    keys: dict[Value, int] = field(default_factory=dict)
    costs: dict[Value, int] = field(default_factory=dict)

    @property
    def body(self) -> Region:
        return self.op.regions[0]


def hold(module: Module) -> Module:
    """Rewrite pairs of loops of a kernel that compute the same value."""
    kernel = module.kernel
    if kernel.attrs.get("sanitize") or not any(op.name in _COSTS and _COSTS[op.name] > 1 for op in kernel.body.walk()):
        return module
    numbers = _Numbers()
    loops = list(_loops(kernel.body, (), numbers))
    taken: set[Op] = set()
    for position, second in enumerate(loops):
        for first in loops[:position]:
            if first.op in taken or second.op in taken or not _goes_with(first, second, numbers):
                continue
            found = _shared_value(first, second)
            if found is not None:
                _rewrite(kernel.body, first, second, *found)
                taken |= {first.op, second.op}
    return module


def _loops(region: Region, path: Path, numbers: _Numbers) -> Iterator[_Loop]:
    """Yield the simple counted loops outside of other loops that compute anything reusable."""
    for op in region.ops:
        if op.name == "if":
            for side, inner in enumerate(op.regions):
                yield from _loops(inner, (*path, (op.operands[0], side)), numbers)
        elif op.name == "for" and _is_plain(op):
            loop = _Loop(op, path)
            _describe(loop, numbers)
            if loop.keys:
                yield loop


def _is_plain(op: Op) -> bool:
    step = constant_of(op.operands[2])
    low = op.operands[0].type
    plain = isinstance(step, int) and step > 0 and isinstance(low, Scalar) and low.dtype.is_signed
    return plain and len(list(exits_of(op.regions[0]))) == 1


def _describe(loop: _Loop, numbers: _Numbers) -> None:
    """Compute the keys and costs of the values that are computed at the top level of the loop body without effects."""
    own = set(loop.body.ops)
    for op in loop.body.ops:
        if len(op.results) != 1 or op.regions or not _is_repeatable(op):
            continue
        keys = [_key(loop, value, own, numbers) for value in op.operands]
        known_keys = [key for key in keys if key is not None]
        if len(known_keys) == len(keys):
            loop.keys[op.result] = numbers.of_op(op, known_keys)
            loop.costs[op.result] = _COSTS.get(op.name, 1) + sum(loop.costs.get(v, 0) for v in op.operands)


def _is_repeatable(op: Op) -> bool:
    """True if an operation has the same result whenever it runs, given the same operands."""
    if op.name != "load":
        return OPS[op.name].effect == Effect.NONE and not OPS[op.name].convergent
    array = op.operands[0].type
    return isinstance(array, Array) and array.access == "in" and array.restrict and array.space == "global"


def _key(loop: _Loop, value: Value, own: set[Op], numbers: _Numbers) -> int | None:
    """Return the number of an operand; None if it depends on loop-carried values or isn't repeatable."""
    if value is loop.body.args[0]:
        return numbers.of("counter")
    if value in loop.keys:
        return loop.keys[value]
    if value in loop.body.args or value.op in own:
        return None
    return numbers.of_outside(value)


def _goes_with(first: _Loop, second: _Loop, numbers: _Numbers) -> bool:
    """True if the first loop has always run before the second, and both have the same lower bound and step."""
    if second.path[: len(first.path)] != first.path:
        return False
    (low, _, step), (other, _, size) = first.op.operands[:3], second.op.operands[:3]
    return numbers.of_outside(low) == numbers.of_outside(other) and constant_of(step) == constant_of(size)


def _shared_value(first: _Loop, second: _Loop) -> tuple[Value, Value] | None:
    """Return the most expensive value that both loops compute, as (value in first, value in second), or None."""
    first_values = {key: value for value, key in first.keys.items()}
    shared = [v for v, key in second.keys.items() if key in first_values and isinstance(v.type, Scalar)]
    if not shared:
        return None
    best = max(shared, key=lambda v: second.costs[v])
    if second.costs[best] < _COST_THRESHOLD or not isinstance(best.type, Scalar) or best.type.dtype.kind == "bool":
        return None
    return first_values[second.keys[best]], best


def _rewrite(top: Region, first: _Loop, second: _Loop, computed: Value, reused: Value) -> None:
    kind = Array(computed.type, 1, space="local", shape=(_MAX_BUFFERED,), contiguous=True)  # type: ignore[arg-type]
    allocation = Op("local", [], [kind], {"type": kind}, None, first.op.loc)
    array = allocation.result
    top.ops.insert(0, allocation)
    after = first.body.ops.index(_definition(computed)) + 1
    first.body.ops[after:after] = _storing(first, array, computed)
    _fetching(second, first, array, reused)


def _definition(value: Value) -> Op:
    assert value.op is not None
    return value.op


def _iteration(b: Builder, loop: _Loop) -> tuple[Value, Value]:
    """Emit (number of the iteration, a boolean: true if the buffer has an element for it)."""
    low, step = loop.op.operands[0], constant_of(loop.op.operands[2])
    assert isinstance(low.type, Scalar)
    dtype = low.type.dtype
    unsigned = dtypes.u64 if dtype.bits == 64 else dtypes.u32
    distance = b.emit("bitcast", b.emit("sub", loop.body.args[0], low), type=Scalar(unsigned))
    number = b.emit("udiv_raw", distance, b.const(step, unsigned))
    return number, b.emit("lt", number, b.const(_MAX_BUFFERED - 1, unsigned))


def _storing(loop: _Loop, array: Value, given: Value) -> list[Op]:
    region = Region()
    b = Builder(region, loop.op.loc)
    number, early = _iteration(b, loop)
    with b.when(early):
        b.op("store", array, number, given)
    return region.ops


def _fetching(loop: _Loop, first: _Loop, array: Value, wanted: Value) -> None:
    """Replace the computation of `wanted` by an `if`: load it from the buffer, or compute it."""
    dependences = _slice(loop, wanted)
    region, reuse, recompute = Region(), Region(), Region()
    b = Builder(region, loop.op.loc)
    number, early = _iteration(b, loop)
    same = b.emit("eq", loop.op.operands[1], first.op.operands[1])
    with b.at(reuse):
        b.op("yield", b.emit("load", array, number))
    mapping: dict[Value, Value] = {}
    with b.at(recompute):
        recompute.ops = [clone_op(op, mapping) for op in dependences]
        b.op("yield", mapping[wanted])
    chosen = b.op("if", b.emit("and", early, same), types=[wanted.type], regions=[reuse, recompute]).result
    chosen.name = wanted.name
    place = loop.body.ops.index(_definition(wanted))
    loop.body.ops[place : place + 1] = region.ops
    for op in loop.body.walk():
        if op not in dependences:
            op.operands[:] = [chosen if v is wanted else v for v in op.operands]
    _drop_unused(loop.body, dependences)


def _slice(loop: _Loop, wanted: Value) -> list[Op]:
    """Return the operations of the loop body that a value depends on, in order."""
    values: set[Value] = {wanted}
    found: list[Op] = []
    for op in reversed(loop.body.ops):
        if any(r in values for r in op.results):
            found.append(op)
            values.update(op.operands)
    return found[::-1]


def _drop_unused(body: Region, ops: list[Op]) -> None:
    for op in reversed(ops):
        if op in body.ops and not any(r in inner.operands for inner in body.walk() for r in op.results):
            body.ops.remove(op)
