"""Code generation for the loops `for` and `loop`: without masks as long as all lanes run the same iterations.

1. The trip count of a `for` is computed before the loop, without overflow at the limits of the type. A step of 0 gives
   no iterations.
2. A `for` with a divergent trip count runs without masks until the first lane has finished, then under masks. A lane that
   has finished keeps its loop-carried values, or has copied them to the results.
3. A loop with a divergent `break` or `continue` runs under masks. Lanes that `break` store their results; their
   loop-carried values are dead from then on.
4. Loops that may run for long contain safepoints (see `safepoints`).
"""

from __future__ import annotations

from vkjit.dtypes import DType
from vkjit.ir.core import Op
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import LOOPS, exits_of

from .context import Generator, Handler, dtype_of
from .control_flow import Cell, LoopState, region, size_of
from .llvm_text import intrinsic_suffix
from .safepoints import at_iteration, charge, in_blocks, is_crowded, look
from .stride_analysis import Step, constant_number

__all__ = ["HANDLERS", "trip_count"]

MAX_TWICE = 300
"""Maximum number of operations in a loop body that is emitted twice, with and without masks."""


def trip_count(g: Generator, op: Op, bounds: tuple[str, str, str], varying: bool) -> str:
    """Return the trip count of a `for` with these bounds (low, high, step): an unsigned integer of the bounds' width."""
    text = g.text
    low, high, step = bounds
    dtype = dtype_of(op.operands[0].type)
    kind, truth = g.type(dtype, varying), g.mask_type if varying else "i1"
    less, more = ("slt", "sgt") if dtype.is_signed else ("ult", "ugt")
    zero, one = g.number(0, dtype, varying), g.number(1, dtype, varying)
    number = constant_number(op.operands[2])

    def distance(first: str, last: str) -> str:
        return text.op(f"sub {kind} {text.op(f'sub {kind} {last}, {first}')}, {one}")

    def iterations(span: str, by: str) -> str:
        if number is not None and abs(int(number)) & (abs(int(number)) - 1) == 0:
            shift = g.number(abs(int(number)).bit_length() - 1, dtype, varying)
            return text.op(f"add {kind} {text.op(f'lshr {kind} {span}, {shift}')}, {one}")
        return text.op(f"add {kind} {text.op(f'udiv {kind} {span}, {by}')}, {one}")

    if number is not None:
        if number == 0:
            return zero
        up = number > 0
        runs = text.op(f"icmp {less if up else more} {kind} {low}, {high}")
        span = distance(low, high) if up else distance(high, low)
        counted = iterations(span, g.number(abs(int(number)), dtype, varying))
        return text.op(f"select {truth} {runs}, {kind} {counted}, {kind} {zero}")
    rising = text.op(f"icmp {more} {kind} {step}, {zero}")
    falling = text.op(f"icmp {less} {kind} {step}, {zero}") if dtype.is_signed else ""
    runs = text.op(f"and {truth} {rising}, {text.op(f'icmp {less} {kind} {low}, {high}')}")
    magnitude, span = step, distance(low, high)
    if falling:
        down = text.op(f"and {truth} {falling}, {text.op(f'icmp {more} {kind} {low}, {high}')}")
        span = text.op(f"select {truth} {falling}, {kind} {distance(high, low)}, {kind} {span}")
        magnitude = text.op(f"select {truth} {falling}, {kind} {text.op(f'sub {kind} {zero}, {step}')}, {kind} {step}")
        runs = text.op(f"or {truth} {runs}, {down}")
    safe = text.op(f"select {truth} {runs}, {kind} {magnitude}, {kind} {one}")
    return text.op(f"select {truth} {runs}, {kind} {iterations(span, safe)}, {kind} {zero}")


class _Counter:
    """The induction variable of a `for`, and the number of completed iterations."""

    def __init__(self, g: Generator, op: Op) -> None:
        self.op = op
        self.body = op.regions[0]
        self.variable = Cell(g, self.body.args[0])
        self.dtype: DType = dtype_of(op.operands[0].type)
        self.kind = g.type(self.dtype, False)
        self.trip_count = g.text.variable(self.kind)
        self.variable.set_from(g, op.operands[0])
        g.text.store(self.kind, "0", self.trip_count)

    def done(self, g: Generator) -> str:
        return g.text.load(self.kind, self.trip_count)

    def advance(self, g: Generator) -> None:
        (step,) = g.converted(self.op.operands[2], self.variable.varying)
        (now,) = self.variable.get(g)
        self.variable.set(g, [g.text.op(f"add {self.variable.kind} {now}, {step}")])
        g.text.store(self.kind, g.text.op(f"add {self.kind} {self.done(g)}, 1"), self.trip_count)


def _start(g: Generator, op: Op) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of the loop-carried values, with their initial values, and the cells of the results."""
    first = 3 if op.name == "for" else 0
    arguments = op.regions[0].args[1 if first else 0 :]
    carried = [Cell(g, argument) for argument in arguments]
    for cell, initial in zip(carried, op.operands[first:], strict=True):
        cell.set_from(g, initial)
    return carried, [Cell(g, result) for result in op.results]


def _body(g: Generator, op: Op, state: LoopState, counter: _Counter | None) -> None:
    """Emit the loop body, with a branch to `state.again` at its end."""
    g.loops.append(state)
    with g.scope():
        if counter is not None:
            counter.variable.define(g)
        for cell in state.carried:
            cell.define(g)
        region(g, op.regions[0])
    g.loops.pop()
    g.text.jump(state.again)


def _finish(g: Generator, state: LoopState) -> None:
    for cell in state.results:
        cell.define(g)


def _scalar_bounds(g: Generator, op: Op) -> tuple[str, str, str]:
    low, high, step = (g.scalar(v) for v in op.operands[:3])
    return low, high, step


def _for(g: Generator, op: Op) -> None:
    if op not in g.shapes.masked:
        _counted(g, op)
    elif op in g.shapes.early:
        _early_for(g, op)
    else:
        _uneven(g, op)


def _counted(g: Generator, op: Op) -> None:
    """Emit a `for` in which all lanes run the same iterations."""
    carried, results = _start(g, op)
    counter = _Counter(g, op)
    trips = trip_count(g, op, _scalar_bounds(g, op), False)
    labels = _Labels(g)
    state = LoopState(carried, results, labels.again, labels.leave)
    _iterations(g, op, state, counter, trips, labels)
    for cell, source in zip(results, carried, strict=True):
        cell.set(g, source.get_as(g, cell.varying))
    g.text.jump(labels.leave)
    g.text.label(labels.leave)
    _finish(g, state)


class _Labels:
    def __init__(self, g: Generator) -> None:
        self.head, self.body, self.again, self.done, self.leave = (
            g.text.new_label(hint) for hint in ("head", "body", "again", "done", "leave")
        )


def _iterations(g: Generator, op: Op, state: LoopState, counter: _Counter, trips: str, labels: _Labels) -> None:
    """Emit `trips` iterations under the mask of the enclosing code; the block after the last one stays open."""
    text, entry = g.text, g.mask
    nested = _has_loops(op)
    if is_crowded(g, state):
        test = at_iteration(g, counter.kind, trips, lambda: counter.done(g))
    else:
        test = in_blocks(g, counter.kind, trips, lambda: counter.done(g), nested)
    text.jump(labels.head)
    text.label(labels.head)
    test(labels.head, labels.body, labels.done)
    text.label(labels.body)
    _body(g, op, state, counter)
    text.label(labels.again)
    g.mask = entry
    counter.advance(g)
    text.jump(labels.head)
    text.label(labels.done)
    if not nested:
        charge(g, counter.kind, trips)


def _has_loops(op: Op) -> bool:
    return any(inner.name in LOOPS for region in op.regions for inner in region.walk())


def _common_trips(g: Generator, op: Op, trips: list[str]) -> str:
    """Return a number of iterations that all lanes run: the trip count of the last lane, or the minimum over the lanes.

    For the minimum, the vector of trip counts is appended to `trips`.
    """
    low, high, step = op.operands[:3]
    shape, number = g.shapes.of_value(low), constant_number(step)
    if isinstance(shape, Step) and shape.exact and shape.size > 0 and number is not None and number > 0:
        if g.shapes.is_uniform(high):
            kind = g.type(low.type, False)
            last = g.text.op(f"add {kind} {g.scalar(low)}, {shape.size * (g.width - 1)}")
            return trip_count(g, op, (last, g.scalar(high), g.scalar(step)), False)
    trips.append(_lane_trips(g, op))
    kind = g.type(low.type, True)
    counted = trips[0] if g.mask is None else g.select(g.mask, kind, trips[0], g.splat("-1", g.type(low.type, False)))
    name = f"llvm.vector.reduce.umin.{intrinsic_suffix(kind)}"
    return g.text.call(g.type(low.type, False), name, f"{kind} {counted}")


def _lane_trips(g: Generator, op: Op) -> str:
    low, high, step = (g.vector(v) for v in op.operands[:3])
    return trip_count(g, op, (low, high, step), True)


def _uneven(g: Generator, op: Op) -> None:
    """Emit a `for` with a divergent trip count: iterations of all lanes first, then masked ones for the remaining lanes."""
    carried, results = _start(g, op)
    counter = _Counter(g, op)
    entry, labels = g.mask, _Labels(g)
    trips: list[str] = []
    if size_of(op, MAX_TWICE) <= MAX_TWICE:
        state = LoopState(carried, results, labels.again, labels.leave)
        _iterations(g, op, state, counter, _common_trips(g, op, trips), labels)
    breaks = any(e.name == "break" for e in exits_of(op.regions[0]))
    keeps_carried = not breaks and all(c.varying for c in carried)
    lanes = trips[0] if trips else _lane_trips(g, op)
    masked = _Labels(g)
    blended = keeps_carried or _many_continues(op)
    state = LoopState(carried, results, masked.again, masked.leave, g.text.variable(g.mask_type), blended)
    _masked_iterations(g, op, state, counter, lanes, masked, through=not keeps_carried)
    if keeps_carried:
        for cell, source in zip(results, carried, strict=True):
            cell.set(g, source.get_as(g, cell.varying))
    g.text.jump(labels.leave)
    g.text.label(labels.leave)
    g.mask = entry
    _finish(g, state)


def _masked_iterations(
    g: Generator, op: Op, state: LoopState, counter: _Counter, trips: str, labels: _Labels, *, through: bool
) -> None:
    """Emit iterations until no lane is active; `trips` is a vector.

    With `through`, lanes that have completed their iterations copy their loop-carried values to the results.
    """
    text, entry = g.text, g.mask
    kind = g.type(counter.dtype, True)
    text.store(g.mask_type, g.mask_or_all(), state.going)
    text.jump(labels.head)
    text.label(labels.head)
    active = text.load(g.mask_type, state.going)
    with g.scope():
        more = text.op(f"icmp ugt {kind} {trips}, {g.splat(counter.done(g), counter.kind)}")
        g.mask = g.both(active, more)
        if through and state.results:
            _finish_lanes(g, state, g.both(active, g.negated(more, True)))
        text.branch(g.any(g.mask), labels.body, labels.done)
    text.label(labels.body)
    text.store(g.mask_type, "zeroinitializer", state.going)
    _body(g, op, state, counter)
    text.label(labels.again)
    g.mask = entry
    look(g)
    counter.advance(g)
    text.jump(labels.head)
    text.label(labels.done)


def _finish_lanes(g: Generator, state: LoopState, mask: str) -> None:
    """Copy the loop-carried values to the results in the lanes of `mask`, which have completed their iterations."""
    for cell, source in zip(state.results, state.carried, strict=True):
        new, old = source.get_as(g, cell.varying), cell.get(g)
        cell.set(g, [g.select(mask, cell.kind, n, o) if cell.varying else n for n, o in zip(new, old, strict=True)])


def _early_for(g: Generator, op: Op) -> None:
    carried, results = _start(g, op)
    counter = _Counter(g, op)
    entry, labels = g.mask, _Labels(g)
    state = LoopState(carried, results, labels.again, labels.leave, g.text.variable(g.mask_type), _many_continues(op))
    _masked_iterations(g, op, state, counter, _lane_trips(g, op), labels, through=True)
    g.text.jump(labels.leave)
    g.text.label(labels.leave)
    g.mask = entry
    _finish(g, state)


def _many_continues(op: Op) -> bool:
    return sum(e.name == "continue" for e in exits_of(op.regions[0])) > 1


def _loop(g: Generator, op: Op) -> None:
    """Emit a `loop`: it runs until all lanes have left by `break`."""
    text, entry = g.text, g.mask
    carried, results = _start(g, op)
    labels = _Labels(g)
    masked = op in g.shapes.masked
    going = text.variable(g.mask_type) if masked else ""
    state = LoopState(carried, results, labels.again, labels.leave, going, masked and _many_continues(op))
    if masked:
        text.store(g.mask_type, g.mask_or_all(), going)
    text.jump(labels.body)
    text.label(labels.body)
    if masked:
        g.mask = text.load(g.mask_type, going)
        text.store(g.mask_type, "zeroinitializer", going)
    _body(g, op, state, None)
    text.label(labels.again)
    look(g)
    if masked:
        text.branch(g.any(text.load(g.mask_type, going)), labels.body, labels.leave)
    else:
        text.jump(labels.body)
    text.label(labels.leave)
    g.mask = entry
    if not any(e.name == "break" for e in exits_of(op.regions[0])):
        return
    _finish(g, state)


HANDLERS: dict[OpName, Handler] = {"for": _for, "loop": _loop}
