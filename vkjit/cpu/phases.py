"""What runs once per workgroup, and what runs for each vector of invocations between two barriers.

Enters: a kernel. Leaves: a `Plan`. Control flow around barriers is uniform in the workgroup and is written once;
operations between barriers form phases, loops over the vectors of the workgroup. Holds:

1. A lifted value is a scalar that is equal in the whole workgroup and computed once: constants, sizes, group ids and
   what follows from them, carried values of group-level loops included.
2. A value that is used in another phase than its own is stored for each vector, or computed again where that is cheap.
3. Group-level control takes what isn't lifted from the first lane of the first vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..ir.core import Function, Op, Region, Value
from ..ir.ops import OPS, Effect
from ..ir.rewrite import LOOPS, exits_of
from ..ir.types import Array
from .shapes import Shapes

__all__ = ["Plan", "plan_of"]

_PER_VECTOR = frozenset({"local_id", "global_id", "lane_id", "subgroup_id"})
_ALLOCATIONS = frozenset({"shared", "local", "linear"})
_ENDS = frozenset({"yield", "break", "continue", "return", "unreachable"})
_MOST_RECOMPUTED = 10

Copies = list[tuple[Value, Value]]
"""(what receives, what is given)."""


@dataclass(slots=True)
class Plan:
    """`group` holds the control flow that is written once per workgroup; `lifted`, `crossing`, `recomputed` and
    `fetched` the values of rules 1 to 3."""

    kernel: Function
    shapes: Shapes
    barriers: set[Op] = field(default_factory=set)
    group: set[Op] = field(default_factory=set)
    unlifted: set[Value] = field(default_factory=set)
    crossing: set[Value] = field(default_factory=set)
    fetched: set[Value] = field(default_factory=set)
    stored: set[Value] = field(default_factory=set)
    home: dict[Value, int] = field(default_factory=dict)
    costs: dict[Value, int] = field(default_factory=dict)
    phase: int = 0
    changed: bool = False

    def is_lifted(self, value: Value) -> bool:
        return value not in self.unlifted

    def is_recomputed(self, value: Value) -> bool:
        """Whether a value is cheap enough to be computed in each phase that uses it."""
        return value not in self.fetched and self.cost(value) <= _MOST_RECOMPUTED

    def cost(self, value: Value) -> int:
        """Operations to compute a value from lifted ones and ids; many where that isn't possible."""
        if self.is_lifted(value):
            return 0
        known = self.costs.get(value)
        if known is None:
            self.costs[value] = _MOST_RECOMPUTED + 1
            known = self.costs[value] = self._new_cost(value)
        return known

    def _new_cost(self, value: Value) -> int:
        op = value.op
        if op is None or op.regions or value in self.stored:
            return _MOST_RECOMPUTED + 1
        if op.name in _PER_VECTOR:
            return 1
        row = OPS[op.name]
        if row.effect != Effect.NONE or row.convergent or op.name == "assume_uniform" or not row.speculatable:
            return _MOST_RECOMPUTED + 1
        return min(1 + sum(self.cost(v) for v in op.operands), _MOST_RECOMPUTED + 1)

    # -- what is group-level

    def find_barriers(self, region: Region) -> bool:
        found = False
        for op in region.ops:
            inside = [self.find_barriers(inner) for inner in op.regions]
            if any(inside):
                self.barriers.add(op)
            found = found or any(inside) or op.name == "barrier"
        return found

    def is_group(self, op: Op) -> bool:
        """Whether control flow directly in a group-level region is group-level itself."""
        if not op.regions:
            return False
        return op in self.barriers or (op.name == "if" and any(True for r in op.regions for _ in exits_of(r)))

    # -- rule 1

    def lift(self) -> None:
        """Repeats walks until no more values turn out not to be lifted."""
        self.changed = True
        while self.changed:
            self.changed = False
            self._lift_region(self.kernel.body)

    def _drop(self, values: Sequence[Value]) -> None:
        for value in values:
            if value not in self.unlifted:
                self.unlifted.add(value)
                self.changed = True

    def _lift_region(self, region: Region) -> None:
        for op in region.ops:
            if self.is_group(op):
                self.group.add(op)
                self._lift_control(op)
            elif op.regions:
                self._drop([*op.results, *_inner_values(op)])
            elif not self._liftable(op):
                self._drop(op.results)

    def _liftable(self, op: Op) -> bool:
        if op.name in _ALLOCATIONS or op.name == "assume_uniform":
            return True
        if op.name in _PER_VECTOR or not all(self.shapes.is_uniform(r) for r in op.results):
            return False
        if not all(self.is_lifted(v) for v in op.operands):
            return False
        if op.name == "load":
            array = op.operands[0].type
            return isinstance(array, Array) and array.access == "in" and array.restrict and array.space == "global"
        row = OPS[op.name]
        return row.effect == Effect.NONE and not row.convergent

    def _lift_control(self, op: Op) -> None:
        for inner in op.regions:
            self._lift_region(inner)
        if op.name == "if":
            for place, result in enumerate(op.results):
                given = [r.terminator.operands[place] for r in op.regions if r.terminator.name == "yield"]
                self._settle(result, given)
            return
        first = 3 if op.name == "for" else 0
        body = op.regions[0]
        arguments = body.args[1 if first else 0 :]
        exits = list(exits_of(body))
        if first and not self.shapes.is_uniform(body.args[0]):
            self._drop([body.args[0]])
        for place, argument in enumerate(arguments):
            given = [e.operands[place] for e in exits if e.name == "continue"]
            self._settle(argument, [op.operands[first + place], *given])
        for place, result in enumerate(op.results):
            given = [e.operands[place] for e in exits if e.name == "break"]
            self._settle(result, [*given, *([arguments[place]] if first else [])])

    def _settle(self, value: Value, sources: Sequence[Value]) -> None:
        if not self.shapes.is_uniform(value) or not all(self.is_lifted(s) for s in sources):
            self._drop([value])

    # -- rule 2

    def place(self, region: Region) -> None:
        """Numbers the phases as they are written, and notes which values cross from one to another."""
        run: list[Op] = []
        for op in region.ops:
            if op.name in _ENDS:
                self.end_phase(run, [source for _, source in self.copies(op, region)])
            elif op in self.group:
                self.end_phase(run, self.entering(op))
                self._place_control(op)
            elif op.name == "barrier":
                self.end_phase(run, [])
            elif all(self.is_lifted(r) for r in op.results) and op.results:
                if op.name == "assume_uniform" and not self.is_lifted(op.operands[0]):
                    self.end_phase(run, [])
                    self._fetch(op.operands[:1])
            else:
                run.append(op)
                self.home.update(dict.fromkeys(op.results, self.phase))

    def end_phase(self, run: list[Op], sources: Sequence[Value]) -> None:
        for op in run:
            for inner in op.walk():
                self._use(inner.operands)
        self._use(sources)
        run.clear()
        self.phase += 1

    def _use(self, values: Sequence[Value]) -> None:
        for value in values:
            if self.home.get(value, self.phase) != self.phase:
                self.crossing.add(value)

    def _fetch(self, values: Sequence[Value]) -> None:
        for value in values:
            if not self.is_lifted(value):
                self.fetched.add(value)
                self.crossing.add(value)

    def _place_control(self, op: Op) -> None:
        self._fetch(op.operands[:1] if op.name == "if" else op.operands[:3] if op.name == "for" else [])
        self.stored.update(v for v in op.results if not self.is_lifted(v))
        for inner in op.regions:
            self.stored.update(v for v in inner.args if not self.is_lifted(v))
        for inner in op.regions:
            self.place(inner)

    def copies(self, end: Op, region: Region) -> Copies:
        """What the end of a group-level region gives to values that aren't lifted."""
        targets = self.targets(end, region)
        return [(t, s) for t, s in zip(targets, end.operands, strict=False) if not self.is_lifted(t)]

    def targets(self, end: Op, region: Region) -> Sequence[Value]:
        """What receives the operands of the end of a group-level region."""
        owner = self.owners().get(region)
        if end.name == "yield" and owner is not None:
            return owner.results
        if end.name not in ("break", "continue"):
            return []
        while owner is not None and owner.name not in LOOPS:
            owner = self.owners().get(self.parents()[owner])
        if owner is None:
            return []
        body = owner.regions[0]
        return owner.results if end.name == "break" else body.args[1 if owner.name == "for" else 0 :]

    def entering(self, op: Op) -> list[Value]:
        """What a group-level loop takes into carried values that aren't lifted."""
        return [source for _, source in self.initial(op)]

    def initial(self, op: Op) -> Copies:
        """The copies before a group-level loop."""
        if op.name not in LOOPS:
            return []
        first = 3 if op.name == "for" else 0
        arguments = op.regions[0].args[1 if first else 0 :]
        return [(a, s) for a, s in zip(arguments, op.operands[first:], strict=True) if not self.is_lifted(a)]

    _owners: dict[Region, Op] = field(default_factory=dict)
    _parents: dict[Op, Region] = field(default_factory=dict)

    def owners(self) -> dict[Region, Op]:
        """The group-level operation around each group-level region."""
        if not self._owners:
            self._note(self.kernel.body)
        return self._owners

    def parents(self) -> dict[Op, Region]:
        """The region around each group-level operation."""
        self.owners()
        return self._parents

    def _note(self, region: Region) -> None:
        for op in region.ops:
            if op in self.group:
                self._parents[op] = region
                for inner in op.regions:
                    self._owners[inner] = op
                    self._note(inner)


def _inner_values(op: Op) -> Iterator[Value]:
    for inner in op.regions:
        yield from inner.args
        for nested in inner.ops:
            yield from nested.results
            yield from _inner_values(nested)


def plan_of(kernel: Function, shapes: Shapes) -> Plan | None:
    """The plan of a kernel with barriers; None for one without."""
    plan = Plan(kernel, shapes)
    if not plan.find_barriers(kernel.body):
        return None
    plan.lift()
    plan.place(kernel.body)
    return plan
