"""Code generation for `if`, `break` and `continue`: branches on uniform conditions, masks on divergent ones.

1. A side of a divergent `if` is skipped by a branch if its mask is empty. Only cheap sides that have no effect under an
   empty mask are emitted without a branch (`_flat`).
2. After an `if` in which lanes may leave the iteration by `break` or `continue`, the rest of the region runs under the
   mask of the remaining lanes.
3. The first side of some divergent `if`s is emitted a second time, for the case that all lanes take it: that copy has no
   mask of its own. `mask_tests` detects the case by scalar comparisons.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import exits_of

from .context import Generator, dtype_of, lanes_of
from .mask_tests import all_lanes

__all__ = ["Cell", "LoopState", "branch", "leave_iteration", "region", "size_of"]

MAX_FLAT = 8
"""Maximum cost of the two sides of a divergent `if` that are both run without a branch."""
MAX_TWICE = 128
"""Maximum number of operations in an `if` that is emitted twice, with and without its mask."""

_FLAT_COSTS: dict[OpName, int] = {"load": 2, "store": 2, "div": 4, "sqrt": 4, "const": 0, "yield": 0, "report": 0}
_NEVER_FLAT: frozenset[OpName] = frozenset({
    "atomic", "atomic_cas", "atomic_load", "atomic_store", "barrier", "fence", "print", "for", "loop", "break",
    "continue", "unreachable", "return", "udiv_raw", "urem_raw", "sdiv_raw", "assume_uniform",
})  # fmt: skip

OnYield = Callable[[Sequence[Value]], None]


class Cell:
    """Stack variables for one IR value, one per component: vectors if `varying` (default: if the value is), else scalars.

    LLVM promotes them to registers.
    """

    __slots__ = ("kind", "pointers", "value", "varying")

    def __init__(self, g: Generator, value: Value, *, varying: bool | None = None) -> None:
        self.value = value
        self.varying = g.is_varying(value) if varying is None else varying
        self.kind = g.type(value.type, self.varying)
        self.pointers = [g.text.variable(self.kind) for _ in range(lanes_of(value.type))]

    def set(self, g: Generator, parts: Sequence[str]) -> None:
        for pointer, part in zip(self.pointers, parts, strict=True):
            g.text.store(self.kind, part, pointer)

    def set_from(self, g: Generator, source: Value) -> None:
        self.set(g, g.converted(source, self.varying))

    def blend_from(self, g: Generator, source: Value) -> None:
        """Set the active lanes; a scalar is set as a whole, since it is the same for all of them."""
        if g.mask is None or not self.varying:
            self.set_from(g, source)
            return
        old, new, mask = self.get(g), g.vectors(source), g.mask
        self.set(g, [g.select(mask, self.kind, n, o) for n, o in zip(new, old, strict=True)])

    def get(self, g: Generator) -> list[str]:
        return [g.text.load(self.kind, pointer) for pointer in self.pointers]

    def get_as(self, g: Generator, varying: bool) -> list[str]:
        """Return the components: as vectors if `varying`, else in the representation of the cell."""
        parts = self.get(g)
        shape = g.shapes.of_value(self.value)
        if not varying or self.varying or shape is None:
            return parts
        return [g.spread(part, dtype_of(self.value.type), shape.size) for part in parts]

    def define(self, g: Generator) -> None:
        g.define(self.value, self.get(g))


@dataclass(slots=True)
class LoopState:
    """A loop being emitted: cells of its loop-carried values and results, labels of its latch and its exit block.

    `going` is set for masked loops: a variable with the lanes of the next iteration. With `blended`, `continue` sets the
    loop-carried values of the active lanes only; the other lanes still need theirs.
    """

    carried: list[Cell]
    results: list[Cell]
    again: str
    leave: str
    going: str = ""
    blended: bool = False

    @property
    def masked(self) -> bool:
        return bool(self.going)


def size_of(op: Op, limit: int) -> int:
    """Return the number of operations in an operation's regions, nested ones included, at most `limit` + 1."""
    nested = (inner for body in op.regions for inner in body.walk())
    return sum(1 for _ in itertools.islice(nested, limit + 1))


def _leaves(op: Op) -> bool:
    """True if an `if` contains exits of the enclosing loop."""
    return any(True for inner in op.regions for _ in exits_of(inner))


def region(g: Generator, body: Region, on_yield: OnYield | None = None) -> bool:
    """Emit a region, and pass the values that it yields to `on_yield`. Return False if no lane can reach its end.

    Otherwise `g.mask` is left as the mask of the lanes that reach the end; it may be empty if the region has exits.
    """
    ending, remaining = "", ""
    alive = True
    for position, op in enumerate(body.ops):
        if op.name in ("yield", "return"):
            if on_yield is not None:
                on_yield(op.operands)
            break
        if op.name in ("break", "continue"):
            leave_iteration(g, op)
            alive = False
            break
        if op.name != "if":
            if op.name == "unreachable":
                alive = False
                break
            g.emit(op)
            continue
        masks = _leaves(op) and isinstance(g.loops[-1], LoopState) and g.loops[-1].masked
        alive = branch(g, op, masks)
        if not alive:
            break
        if masks and position < len(body.ops) - 1:
            if not ending:
                ending, remaining = g.text.new_label("rest"), g.text.variable(g.mask_type)
            onward = g.text.new_label("on")
            g.text.store(g.mask_type, "zeroinitializer", remaining)
            g.text.branch(g.any(g.mask), onward, ending)
            g.text.label(onward)
    if not ending:
        return alive
    if alive:
        g.text.store(g.mask_type, g.mask_or_all(), remaining)
    g.text.jump(ending)
    g.text.label(ending)
    g.mask = g.text.load(g.mask_type, remaining)
    return alive


def leave_iteration(g: Generator, op: Op) -> None:
    """Emit `break` or `continue`: a branch, or in a masked loop the removal of the active lanes from the mask."""
    loop = g.loops[-1]
    assert isinstance(loop, LoopState)
    goes_on = op.name == "continue"
    for cell, source in zip(loop.carried if goes_on else loop.results, op.operands, strict=True):
        if loop.masked and (loop.blended or not goes_on):
            cell.blend_from(g, source)
        else:
            cell.set_from(g, source)
    if not loop.masked:
        g.text.jump(loop.again if goes_on else loop.leave)
        return
    if goes_on:
        known = g.text.load(g.mask_type, loop.going)
        g.text.store(g.mask_type, g.text.op(f"or {g.mask_type} {known}, {g.mask_or_all()}"), loop.going)
    g.mask = "zeroinitializer"


# -- if


def branch(g: Generator, op: Op, masks: bool) -> bool:
    """Emit an `if`; `masks` is True if lanes may leave a masked loop from inside. Return False if no lane reaches its end."""
    condition = op.operands[0]
    if g.shapes.is_uniform(condition):
        return _uniform(g, op, g.scalar(condition), masks)
    if not masks and not _leaves(op):
        if size_of(op, MAX_TWICE) <= MAX_TWICE:
            all_active = all_lanes(g, condition)
            if all_active is not None:
                _with_fast_path(g, op, all_active)
                return True
        if _flat_cost(g, op) <= MAX_FLAT:
            _flat(g, op)
            return True
        if g.mask is None and _reports(op.regions[1]) and size_of(op, MAX_TWICE) <= MAX_TWICE:
            _with_fast_path(g, op, g.all(g.vector(condition)))
            return True
    return _divergent(g, op, masks)


def _reports(body: Region) -> bool:
    return any(op.name == "report" for op in body.ops)


def _uniform(g: Generator, op: Op, condition: str, masks: bool) -> bool:
    text = g.text
    sides, join = [text.new_label("then"), text.new_label("else")], text.new_label("join")
    cells = [Cell(g, result) for result in op.results]
    end = text.variable(g.mask_type) if masks else ""
    entry = g.mask
    likely = None
    if _reports(op.regions[0]) != _reports(op.regions[1]):
        likely = _reports(op.regions[1])
    text.branch(condition, sides[0], sides[1], likely=likely)
    alive = False
    for label, body in zip(sides, op.regions, strict=True):
        text.label(label)
        g.mask = entry
        with g.scope():
            reached = region(g, body, lambda values: _store_all(g, cells, values))
        if masks and text.open:
            text.store(g.mask_type, g.mask_or_all() if reached else "zeroinitializer", end)
        text.jump(join)
        alive = alive or reached
    text.label(join)
    g.mask = text.load(g.mask_type, end) if masks else entry
    if not alive:
        if not masks:
            text.do("unreachable")
            text.open = False
        return False
    for cell in cells:
        cell.define(g)
    return True


def _store_all(g: Generator, cells: Sequence[Cell], values: Sequence[Value]) -> None:
    for cell, value in zip(cells, values, strict=True):
        cell.set_from(g, value)


def _yielded(body: Region) -> Sequence[Value] | None:
    return body.terminator.operands if body.terminator.name == "yield" else None


def _with_fast_path(g: Generator, op: Op, everywhere: str) -> None:
    """Emit an `if` twice: if the scalar `everywhere` is true, all lanes run the first region without a mask of its own."""
    text = g.text
    fast, slow, join = text.new_label("all"), text.new_label("some"), text.new_label("join")
    cells = [Cell(g, result) for result in op.results]
    text.branch(everywhere, fast, slow, likely=True)
    text.label(fast)
    with g.scope():
        region(g, op.regions[0], lambda values: _store_all(g, cells, values))
    text.jump(join)
    text.label(slow)
    with g.scope():
        if _flat_cost(g, op) <= MAX_FLAT:
            _flat(g, op)
        else:
            _divergent(g, op, False)
        for cell, result in zip(cells, op.results, strict=True):
            cell.set_from(g, result)
    text.jump(join)
    text.label(join)
    for cell in cells:
        cell.define(g)


def _flat_cost(g: Generator, op: Op) -> int:
    """Return the cost of running both sides in full; more than `MAX_FLAT` if they can't run under an empty mask."""
    total = 0
    for body in op.regions:
        for inner in body.ops:
            if inner.name in _NEVER_FLAT or inner.name.startswith("sg_"):
                return MAX_FLAT + 1
            if inner.name in ("load", "store") and not _flat_access(g, inner):
                return MAX_FLAT + 1
            total += _flat_cost(g, inner) if inner.name == "if" else _FLAT_COSTS.get(inner.name, 1)
            if inner.name == "if" and g.shapes.is_uniform(inner.operands[0]):
                return MAX_FLAT + 1
    return total


def _flat_access(g: Generator, op: Op) -> bool:
    """True if an access may run under an empty mask: of consecutive elements, or of a local array at a uniform index."""
    shape = g.shapes.of_value(op.operands[1])
    local = g.array(op.operands[0]).space == "local"
    return (shape is not None and shape.size == 1) or (local and g.shapes.is_uniform(op.operands[1]))


def _flat(g: Generator, op: Op) -> None:
    """Emit both sides under their masks without branches, apart from those that `report` emits itself."""
    condition = g.vector(op.operands[0])
    entry = g.mask
    yielded: list[list[list[str]]] = []
    for number, body in enumerate(op.regions):
        if len(body.ops) > 1:
            g.mask = g.both(entry, condition if number == 0 else g.negated(condition, True))
        gathered: list[list[str]] = []

        def take(values: Sequence[Value], into: list[list[str]] = gathered) -> None:
            into += [g.converted(v, g.is_varying(r)) for v, r in zip(values, op.results, strict=True)]

        region(g, body, take)
        yielded.append(gathered)
        g.mask = entry
    _merge(g, op, condition, yielded[0], yielded[1])


def _merge(g: Generator, op: Op, condition: str, yes: list[list[str]], no: list[list[str]]) -> None:
    """Define the results by selects between the values of both sides."""
    for place, result in enumerate(op.results):
        if not g.is_varying(result):
            g.define(result, yes[place])
            continue
        kind = g.type(result.type, True)
        pairs = zip(yes[place], no[place], strict=True)
        g.define(result, [a if a == b else g.select(condition, kind, a, b) for a, b in pairs])


def _divergent(g: Generator, op: Op, masks: bool) -> bool:
    """Emit each side under its mask, skipped by a branch if no lane takes it. Return False if no lane reaches the end."""
    text, entry = g.text, g.mask
    condition = g.vector(op.operands[0])
    end = ""
    if masks:
        end = text.variable(g.mask_type)
        text.store(g.mask_type, "zeroinitializer", end)
    cells: list[list[Cell]] = []
    alive = []
    for number, body in enumerate(op.regions):
        side = condition if number == 0 else g.negated(condition, True)
        alive.append(_side(g, body, g.both(entry, side), cells, op, end))
        g.mask = entry
    if masks:
        g.mask = text.load(g.mask_type, end)
    if not any(alive):
        return False
    for place, result in enumerate(op.results):
        _join(g, result, place, condition, cells, op, alive)
    return True


def _side(g: Generator, body: Region, mask: str, cells: list[list[Cell]], op: Op, end: str) -> bool:
    """Emit one side of a divergent `if`, and append the cells of the values that it yields to `cells`.

    Adds the lanes that reach the end to the variable `end`, if there is one. Returns False if no lane can reach it.
    """
    text = g.text
    own = [Cell(g, result) for result in op.results] if _yielded(body) else []
    cells.append(own)
    if len(body.ops) == 1 and body.ops[0].name == "yield":
        _store_all(g, own, body.ops[0].operands)
        if end:
            _add_lanes(g, end, mask)
        return True
    inside, after = text.new_label("side"), text.new_label("after")
    text.branch(g.any(mask), inside, after)
    text.label(inside)
    g.mask = mask
    with g.scope():
        reached = region(g, body, lambda values: _store_all(g, own, values))
    if end and reached:
        _add_lanes(g, end, g.mask_or_all())
    text.jump(after)
    text.label(after)
    return reached


def _add_lanes(g: Generator, variable: str, mask: str) -> None:
    lanes = g.text.load(g.mask_type, variable)
    g.text.store(g.mask_type, g.text.op(f"or {g.mask_type} {lanes}, {mask}"), variable)


def _join(
    g: Generator, result: Value, place: int, condition: str, cells: list[list[Cell]], op: Op, alive: list[bool]
) -> None:
    """Define a result: a select, or the value of one side if no lane reaches the end of the other."""
    if alive[0] and alive[1] and not g.is_varying(result):
        yields = _yielded(op.regions[0]) or ()
        g.define(result, g.scalars(yields[place]))  # both sides yield the same value
        return
    if not (alive[0] and alive[1]):
        cells[0 if alive[0] else 1][place].define(g)
        return
    kind = g.type(result.type, True)
    pairs = zip(cells[0][place].get(g), cells[1][place].get(g), strict=True)
    g.define(result, [g.select(condition, kind, a, b) for a, b in pairs])
