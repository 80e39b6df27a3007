"""Code generation for the body of a workgroup: one loop over its vectors, or one such loop per barrier region.

One thread runs a whole workgroup, so a barrier itself needs no instruction: each barrier region is complete for all
vectors before the next one starts. See `barrier_regions` for the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import breaks_of
from vkjit.ir.types import Array

from .barrier_regions import BarrierRegions, Copies
from .context import Generator, dtype_of, lanes_of
from .control_flow import Cell, region
from .ids import begin_vector, used_axes
from .loops import trip_count
from .safepoints import look
from .subgroups import reduced_columns

__all__ = ["write_body"]

_ENDS: frozenset[OpName] = frozenset({"yield", "break", "continue", "return", "unreachable"})


def write_body(g: Generator, plan: BarrierRegions | None) -> None:
    """Emit the code of one workgroup, into the current block and new ones; `plan` is None for a kernel without barriers."""
    axes = used_axes(g)
    if plan is not None:
        g.has_barrier_regions = True
        _Writer(g, plan, axes).region(g.kernel.body)
        return
    allocations = [op for op in g.kernel.body.walk() if op.name in ("shared", "local")]
    for op in allocations:
        g.emit(op)
    _for_each_vector(g, axes, lambda: region(g, g.kernel.body))


def _for_each_vector(g: Generator, axes: set[int], write: Callable[[], object]) -> None:
    """Emit a loop over the vectors of the workgroup; `write` emits its body."""
    text = g.text
    count = g.geometry.count
    head, leave = text.new_label("vector"), text.new_label("vectors")
    number = text.variable("i64", "number") if count > 1 else ""
    if number:
        text.store("i64", "0", number)
        text.jump(head)
        text.label(head)
        g.vector_number = text.load("i64", number)
    else:
        g.vector_number = "0"
    with g.scope():
        begin_vector(g, axes)
        g.mask = _tail(g) if g.geometry.partial else None
        write()
        g.mask = None
    if number and text.open:
        following = text.op(f"add i64 {text.load('i64', number)}, 1")
        text.store("i64", following, number)
        text.branch(text.op(f"icmp ult i64 {following}, {count}"), head, leave)
        text.label(leave)
    elif number:
        text.label(leave)


def _tail(g: Generator) -> str:
    """Return the mask of the lanes that have an invocation, for a workgroup whose last vector is partial."""
    kind = "i32"
    first = g.text.op(f"trunc i64 {g.ids['first', 0]} to i32") if g.ids["first", 0] != "0" else "0"
    left = g.text.op(f"sub i32 {g.geometry.total}, {first}")
    return g.text.op(f"icmp ult <{g.width} x i32> {g.lane_numbers(kind)}, {g.splat(left, kind)}")


@dataclass(slots=True)
class _Spill:
    """Memory for a value in each vector of the workgroup: per component, an array of scalars or (if `varying`) vectors."""

    value: Value
    varying: bool
    kind: str
    rows: list[str]

    def _place(self, g: Generator, row: str, number: str) -> str:
        if number == "0":
            return row
        return g.text.op(f"getelementptr {self.kind}, ptr {row}, i64 {number}")

    def set_from(self, g: Generator, parts: Sequence[str]) -> None:
        for row, part in zip(self.rows, parts, strict=True):
            g.text.store(self.kind, part, self._place(g, row, g.vector_number))

    def get(self, g: Generator, number: str) -> list[str]:
        return [g.text.load(self.kind, self._place(g, row, number)) for row in self.rows]


@dataclass(slots=True)
class _Group:
    """A workgroup-level loop being emitted: cells of its lifted values, labels of its latch and its exit block."""

    op: Op
    cells: dict[Value, Cell]
    again: str
    leave: str


@dataclass(slots=True)
class _Writer:
    """Emitter of a kernel with barriers. In its methods, `run` is the list of operations of the current barrier region."""

    g: Generator
    plan: BarrierRegions
    axes: set[int]
    spills: dict[Value, _Spill] = field(default_factory=dict)
    loops: list[_Group] = field(default_factory=list)

    # -- workgroup-level regions

    def region(self, body: Region) -> bool:
        """Emit a workgroup-level region. Return False if its end isn't reached."""
        plan = self.plan
        run: list[Op] = []
        for op in body.ops:
            if op.name in _ENDS:
                self.phase(run, plan.copies(op, body))
                return self.end(op, body)
            if op in plan.group:
                self.phase(run, plan.initial(op))
                if not self.control(op):
                    return False
            elif op.name == "barrier":
                self.phase(run, [])
            elif op in plan.combined:
                self.combined(op, run)
            elif op in plan.columns:
                self.phase(run, [])
                self.columns(op)
            elif op in plan.absorbed:
                continue
            elif op.results and all(plan.is_lifted(r) for r in op.results):
                self.lifted(op, run)
            else:
                run.append(op)
        return True

    def lifted(self, op: Op, run: list[Op]) -> None:
        g = self.g
        if op.name != "assume_uniform" or self.plan.is_lifted(op.operands[0]):
            g.emit(op)
            return
        self.phase(run, [])
        g.define(op.result, self.fetch(op.operands[0]))

    def combined(self, op: Op, run: list[Op]) -> None:
        """Emit a reduction with the same result in all vectors (rule 4): once, for the first vector."""
        g = self.g
        if self.plan.writes(run):
            self.phase(run, [])
        parts, postponed = dict(g.parts), dict(g.postponed)
        with g.scope():
            g.vector_number = "0"
            begin_vector(g, self.axes)
            self.once(op.operands[0])
            g.emit(op)
            result = g.parts[op.result]
        g.parts, g.postponed = parts, postponed
        g.define(op.result, result)

    def columns(self, op: Op) -> None:
        """Emit a reduction for all vectors (rule 5), `plan.block` of them at a time."""
        g, text = self.g, self.g.text
        source, target, size = self.spill(op.operands[0]), self.spill(op.result), self.plan.block
        for first in range(0, g.geometry.count, size):
            vectors = [source.get(g, str(first + number))[0] for number in range(size)]
            reduced = reduced_columns(g, op, vectors)
            lanes = ", ".join(f"i32 {lane}" for lane in range(size))
            row = text.op(f"shufflevector {source.kind} {reduced}, {source.kind} poison, <{size} x i32> <{lanes}>")
            place = text.op(f"getelementptr {target.kind}, ptr {target.rows[0]}, i64 {first}")
            text.store(f"<{size} x {target.kind}>", row, place, ", align 4")

    def once(self, value: Value) -> None:
        """Emit a value that depends on the lane only, and its operands, for the first vector."""
        g = self.g
        if value in g.parts or value in g.postponed or value.op is None or isinstance(value.type, Array):
            return
        own = {r for inner in value.op.walk() for r in inner.results}
        for inner in value.op.walk():
            for operand in inner.operands:
                if operand not in own:
                    self.once(operand)
        body = Region()
        body.ops = [value.op]
        region(g, body)

    def end(self, op: Op, body: Region) -> bool:
        """Emit the terminator of a workgroup-level region: set the lifted targets, and branch if it is an exit of a loop.

        Returns False if the end of the region isn't reached.
        """
        if op.name in ("return", "unreachable"):
            return op.name == "return"
        targets = self.plan.targets(op, body)
        if op.name == "yield":
            return True
        loop = self.loops[-1]
        for target, source in zip(targets, op.operands, strict=True):
            if self.plan.is_lifted(target):
                loop.cells[target].set(self.g, self.g.scalars(source))
        self.g.text.jump(loop.again if op.name == "continue" else loop.leave)
        return False

    def fetch(self, value: Value) -> list[str]:
        """Return the scalars of a value that is uniform in the workgroup: if it isn't lifted, of lane 0 of vector 0."""
        g = self.g
        if self.plan.is_lifted(value):
            return g.scalars(value)
        spill = self.spill(value)
        parts = spill.get(g, "0")
        if not spill.varying:
            return parts
        return [g.text.op(f"extractelement {spill.kind} {part}, i64 0") for part in parts]

    # -- workgroup-level control flow

    def control(self, op: Op) -> bool:
        if op.name == "if":
            return self.branch(op)
        return self.loop(op)

    def branch(self, op: Op) -> bool:
        g, text = self.g, self.g.text
        (condition,) = self.fetch(op.operands[0])
        cells = {r: Cell(g, r) for r in op.results if self.plan.is_lifted(r)}
        sides, join = [text.new_label("then"), text.new_label("else")], text.new_label("join")
        text.branch(condition, sides[0], sides[1])
        alive = False
        for label, body in zip(sides, op.regions, strict=True):
            text.label(label)
            with g.scope():
                reached = self.region(body)
                if reached:
                    for result, source in zip(op.results, body.terminator.operands, strict=True):
                        if result in cells:
                            cells[result].set(g, g.scalars(source))
            text.jump(join)
            alive = alive or reached
        text.label(join)
        if not alive:
            text.do("unreachable")
            text.open = False
            return False
        for cell in cells.values():
            cell.define(g)
        return True

    def loop(self, op: Op) -> bool:
        g, text, plan = self.g, self.g.text, self.plan
        first = 3 if op.name == "for" else 0
        body = op.regions[0]
        arguments = body.args[1 if first else 0 :]
        cells = {v: Cell(g, v) for v in (*arguments, *op.results) if plan.is_lifted(v)}
        for argument, initial in zip(arguments, op.operands[first:], strict=True):
            if argument in cells:
                cells[argument].set(g, g.scalars(initial))
        head, again, done, leave = (text.new_label(h) for h in ("head", "again", "done", "leave"))
        counter = _OuterIterations(self, op) if first else None
        text.jump(head)
        text.label(head)
        if counter is not None:
            inside = text.new_label("body")
            text.branch(counter.goes_on(), inside, done)
            text.label(inside)
        self.loops.append(_Group(op, cells, again, leave))
        with g.scope():
            if counter is not None:
                counter.define()
            for argument in arguments:
                if argument in cells:
                    cells[argument].define(g)
            self.region(body)
        self.loops.pop()
        text.jump(again)
        text.label(again)
        look(g, g.geometry.count)
        if counter is not None:
            counter.advance()
        text.jump(head)
        if counter is not None:
            text.label(done)
            self.exhausted(op, arguments, cells)
            text.jump(leave)
        text.label(leave)
        for result in op.results:
            if result in cells:
                cells[result].define(g)
        return op.name == "for" or bool(breaks_of(op))

    def exhausted(self, op: Op, arguments: Sequence[Value], cells: dict[Value, Cell]) -> None:
        """Copy the loop-carried values to the results after the last iteration of a `for`."""
        copies: Copies = []
        for result, argument in zip(op.results, arguments, strict=True):
            if result in cells:
                cells[result].set(self.g, cells[argument].get(self.g))
            else:
                copies.append((result, argument))
                if argument in cells:
                    cells[argument].define(self.g)
        self.phase([], copies)

    # -- barrier regions

    def phase(self, run: list[Op], copies: Copies) -> None:
        """Emit a barrier region: a loop over the vectors with the operations of `run` and then the copies. Clear `run`."""
        if not run and not copies:
            return
        g, ops = self.g, list(run)
        run.clear()
        outside, postponed = dict(g.parts), dict(g.postponed)
        loops, g.loops = g.loops, []
        _for_each_vector(g, self.axes, lambda: self.vector(ops, copies))
        g.loops = loops
        g.parts, g.postponed = outside, postponed

    def vector(self, ops: list[Op], copies: Copies) -> None:
        g = self.g
        body = Region()
        body.ops = ops
        own = {r for op in ops for r in op.results}
        for op in ops:
            for inner in op.walk():
                for value in inner.operands:
                    self.bring(value, own)
        region(g, body)
        for _, source in copies:
            self.bring(source, own)
        copied = [g.converted(source, self.spill(target).varying) for target, source in copies]
        for value in own:
            if value in self.plan.crossing and not self.plan.is_recomputed(value):
                self.spill(value).set_from(g, g.converted(value, g.is_varying(value)))
        for (target, _), parts in zip(copies, copied, strict=True):
            self.spill(target).set_from(g, parts)

    def bring(self, value: Value, own: set[Value]) -> None:
        """Reload or recompute a value from another barrier region at the head of this one.

        `own` are the values defined by the operations of this barrier region.
        """
        g, plan = self.g, self.plan
        if value in g.parts or value in g.postponed or value in own or plan.is_lifted(value):
            return
        if value not in plan.crossing and value not in plan.stored and value not in plan.region_of:
            return  # defined in a nested region of this barrier region's operations
        if plan.is_recomputed(value) and value.op is not None:
            for operand in value.op.operands:
                self.bring(operand, own)
            g.emit(value.op)
            return
        g.define(value, self.spill(value).get(g, g.vector_number))

    def spill(self, value: Value) -> _Spill:
        found = self.spills.get(value)
        if found is None:
            g = self.g
            varying = g.is_varying(value)
            kind = g.type(value.type, varying)
            whole = f"[{g.geometry.count} x {kind}]"
            rows = [g.text.variable(whole, "spill", 64) for _ in range(lanes_of(value.type))]
            found = self.spills[value] = _Spill(value, varying, kind, rows)
        return found


class _OuterIterations:
    """The induction variable of a workgroup-level `for`, and the number of completed iterations."""

    def __init__(self, writer: _Writer, op: Op) -> None:
        g = self.g = writer.g
        self.variable_value = op.regions[0].args[0]
        dtype = self.dtype = dtype_of(op.operands[0].type)
        self.kind = g.type(dtype, False)
        low, high, self.step = (writer.fetch(v)[0] for v in op.operands[:3])
        self.trips = trip_count(g, op, (low, high, self.step), False)
        self.variable, self.iterations = g.text.variable(self.kind), g.text.variable(self.kind)
        g.text.store(self.kind, low, self.variable)
        g.text.store(self.kind, "0", self.iterations)

    def goes_on(self) -> str:
        return self.g.text.op(f"icmp ult {self.kind} {self.g.text.load(self.kind, self.iterations)}, {self.trips}")

    def define(self) -> None:
        part = self.g.text.load(self.kind, self.variable)
        varying = self.g.is_varying(self.variable_value)
        self.g.define(self.variable_value, [self.g.splat(part, self.kind) if varying else part])

    def advance(self) -> None:
        text = self.g.text
        for variable, step in ((self.variable, self.step), (self.iterations, "1")):
            text.store(self.kind, text.op(f"add {self.kind} {text.load(self.kind, variable)}, {step}"), variable)
