"""Barrier regions: split a kernel into code that runs once per workgroup and loops over the vectors of the workgroup.

Control flow around barriers is uniform in the workgroup. It is workgroup-level: emitted once for all vectors. The
operations between barriers form barrier regions: each is emitted as a loop over the vectors.

1. A lifted value is a scalar that is uniform in the workgroup and computed once: constants, sizes, group ids and values
   computed from these, including loop-carried values of workgroup-level loops.
2. A value that is used in another barrier region than its own is spilled for each vector, or recomputed if that is
   cheap.
3. If a condition or bound of workgroup-level control flow, or the operand of `assume_uniform`, isn't lifted, it is read
   from lane 0 of vector 0.
4. A subgroup reduction of a value that depends on the lane only, such as of the first elements of a shared array, has
   the same result in all vectors: it is lifted, and computed for vector 0.
5. Any other `sg_reduce` ends the barrier region if the reductions of several vectors can be computed together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vkjit.ir.core import Function, Op, Region, Value
from vkjit.ir.ops import OPS, Effect, OpName
from vkjit.ir.rewrite import LOOPS, exits_of, use_counts
from vkjit.ir.types import Array, Scalar

from .stride_analysis import Shapes

__all__ = ["BarrierRegions", "plan_of"]

_PER_VECTOR: frozenset[OpName] = frozenset({"local_id", "global_id", "lane_id", "subgroup_id"})
_ALLOCATIONS: frozenset[OpName] = frozenset({"shared", "local", "linear"})
_ENDS: frozenset[OpName] = frozenset({"yield", "break", "continue", "return", "unreachable"})
_MAX_RECOMPUTED = 10
_REDUCTIONS: frozenset[OpName] = frozenset({"sg_reduce", "sg_any", "sg_all"})
_WRITES = frozenset({Effect.WRITE, Effect.READ_WRITE})

Copies = list[tuple[Value, Value]]
"""Pairs (target, source) of values: loop-carried values and results, with the operands of a terminator or loop."""


@dataclass(slots=True)
class BarrierRegions:
    """The plan of a kernel with barriers.

    `group` is the workgroup-level control flow, `barriers` the control flow around barriers (or interchanged loops).
    `unlifted` are the values that aren't lifted, `crossing` those that are used in another barrier region than their own
    (`region_of`, numbered in the order of emission). `fetched` values (rule 3, and operands of rule 5) and `stored`
    ones (unlifted results and loop-carried values of workgroup-level control flow) are always spilled.
    """

    kernel: Function
    shapes: Shapes
    block: int = 0
    """Number of vectors that are reduced together by rule 5 (`Geometry.block`); 0 disables rules 4 and 5."""
    barriers: set[Op] = field(default_factory=set)
    group: set[Op] = field(default_factory=set)
    unlifted: set[Value] = field(default_factory=set)
    crossing: set[Value] = field(default_factory=set)
    fetched: set[Value] = field(default_factory=set)
    stored: set[Value] = field(default_factory=set)
    region_of: dict[Value, int] = field(default_factory=dict)
    costs: dict[Value, int] = field(default_factory=dict)
    combined: set[Op] = field(default_factory=set)
    """Reductions of rule 4."""
    absorbed: set[Op] = field(default_factory=set)
    """Operations that only the reductions in `combined` use, directly or indirectly."""
    columns: set[Op] = field(default_factory=set)
    """Reductions of rule 5."""
    region: int = 0
    changed: bool = False

    def is_lifted(self, value: Value) -> bool:
        return value not in self.unlifted

    def is_recomputed(self, value: Value) -> bool:
        """True if a value is cheap enough to be recomputed in each barrier region that uses it."""
        return value not in self.fetched and self.cost(value) <= _MAX_RECOMPUTED

    def cost(self, value: Value) -> int:
        """Return the number of operations that compute a value from lifted values and ids.

        More than `_MAX_RECOMPUTED` if that isn't possible.
        """
        if self.is_lifted(value):
            return 0
        known = self.costs.get(value)
        if known is None:
            self.costs[value] = _MAX_RECOMPUTED + 1
            known = self.costs[value] = self._new_cost(value)
        return known

    def _new_cost(self, value: Value) -> int:
        op = value.op
        if op is None or op.regions or value in self.stored:
            return _MAX_RECOMPUTED + 1
        if op.name in _PER_VECTOR:
            return 1
        row = OPS[op.name]
        if row.effect != Effect.NONE or row.convergent or op.name == "assume_uniform" or not row.speculatable:
            return _MAX_RECOMPUTED + 1
        return min(1 + sum(self.cost(v) for v in op.operands), _MAX_RECOMPUTED + 1)

    # -- workgroup-level control flow

    def find_barriers(self, region: Region) -> bool:
        has_barrier = False
        for op in region.ops:
            inside = [self.find_barriers(inner) for inner in op.regions]
            if any(inside) or "rounds" in op.attrs:
                self.barriers.add(op)
            has_barrier = has_barrier or op in self.barriers or op.name == "barrier"
        return has_barrier

    def is_group(self, op: Op) -> bool:
        """True if an operation directly in a workgroup-level region is workgroup-level control flow itself."""
        if not op.regions:
            return False
        return op in self.barriers or (op.name == "if" and any(True for r in op.regions for _ in exits_of(r)))

    # -- rule 1

    def lift(self) -> None:
        """Assume that all values are lifted, and repeat walks that find those that can't be, up to the fixed point."""
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
        for position, op in enumerate(region.ops):
            if self.is_group(op):
                self.group.add(op)
                self._lift_control(op)
            elif op.regions:
                self._drop([*op.results, *_inner_values(op)])
            elif op.name in _REDUCTIONS:
                self._lift_joining(op, region, position)
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

    # -- rule 4

    def _lift_joining(self, op: Op, region: Region, position: int) -> None:
        if self.block and self.same_in_vectors(op.operands[0], _read_before(region, position)):
            self.combined.add(op)
            return
        self.combined.discard(op)
        self._drop(op.results)
        source = op.operands[0]
        if self.block > 1 and op.name == "sg_reduce" and self.shapes.of_value(source) is None:
            if isinstance(source.type, Scalar) and source.type.dtype.bits >= 32 and source.type.dtype.kind != "bool":
                self.columns.add(op)

    def same_in_vectors(self, value: Value, readers: set[Op]) -> bool:
        """True if a value depends on the lane only, and so is the same in all vectors.

        That includes loads from shared arrays if they are among the operations `readers` or nested in one of them.
        """
        if self.is_lifted(value):
            return True
        return value.op is not None and self._same_op(value.op, readers, set())

    def _same_op(self, op: Op, readers: set[Op], inner: set[Value]) -> bool:
        if op.name == "lane_id":
            return True
        row = OPS[op.name]
        if op.name == "load":
            array = op.operands[0].type
            if not isinstance(array, Array) or array.space != "shared" or not (op in readers or inner):
                return False
        elif op.name == "if":
            if not (op in readers or inner) or op in self.group:
                return False
            inner = inner | {r for nested in op.walk() for r in nested.results}
            if not all(self._same_op(nested, readers, inner) for body in op.regions for nested in body.ops):
                return False
        elif op.name not in ("report", "yield") and (row.effect != Effect.NONE or row.convergent or op.regions):
            return False
        if op.name in _PER_VECTOR or op.name == "assume_uniform":
            return False
        return all(v in inner or isinstance(v.type, Array) or self.same_in_vectors(v, readers) for v in op.operands)

    def absorb(self, region: Region, uses: Counter[Value] | None = None) -> None:
        """Find the operations that only lifted reductions use: they are emitted together with the reduction."""
        counts = use_counts(self.kernel.body) if uses is None else uses
        combined_uses: Counter[Value] = Counter()
        for op in reversed(region.ops):
            for body in op.regions if op in self.group else ():
                self.absorb(body, counts)
            absorbs = op in self.combined
            if not absorbs and op.results and not self.is_lifted(op.results[0]) and op not in self.group:
                pure = op.name in ("if", "load") or OPS[op.name].effect == Effect.NONE
                absorbs = pure and all(combined_uses[r] == counts[r] > 0 for r in op.results)
                if absorbs:
                    self.absorbed.add(op)
            if absorbs:
                combined_uses.update(v for nested in op.walk() for v in nested.operands)

    def writes(self, run: Sequence[Op]) -> bool:
        """True if one of the operations writes memory."""
        return any(OPS[inner.name].effect in _WRITES for op in run for inner in op.walk())

    def _lift_control(self, op: Op) -> None:
        for inner in op.regions:
            self._lift_region(inner)
        if op.name == "if":
            for place, result in enumerate(op.results):
                sources = [r.terminator.operands[place] for r in op.regions if r.terminator.name == "yield"]
                self._settle(result, sources)
            return
        first = 3 if op.name == "for" else 0
        body = op.regions[0]
        arguments = body.args[1 if first else 0 :]
        exits = list(exits_of(body))
        if first and not self.shapes.is_uniform(body.args[0]):
            self._drop([body.args[0]])
        for place, argument in enumerate(arguments):
            sources = [e.operands[place] for e in exits if e.name == "continue"]
            self._settle(argument, [op.operands[first + place], *sources])
        for place, result in enumerate(op.results):
            sources = [e.operands[place] for e in exits if e.name == "break"]
            self._settle(result, [*sources, *([arguments[place]] if first else [])])

    def _settle(self, value: Value, sources: Sequence[Value]) -> None:
        if not self.shapes.is_uniform(value) or not all(self.is_lifted(s) for s in sources):
            self._drop([value])

    # -- rule 2

    def place(self, region: Region) -> None:
        """Number the barrier regions in the order of emission, and find the values that cross between them."""
        run: list[Op] = []
        for op in region.ops:
            if op.name in _ENDS:
                self.end_region(run, [source for _, source in self.copies(op, region)])
            elif op in self.group:
                self.end_region(run, self.entering(op))
                self._place_control(op)
            elif op.name == "barrier":
                self.end_region(run, [])
            elif op in self.combined:
                if self.writes(run):
                    self.end_region(run, [])
            elif op in self.absorbed:
                continue
            elif op in self.columns:
                self.end_region(run, op.operands)
                self._fetch(op.operands)
                self.region_of[op.result] = self.region
                self.end_region(run, [])
            elif all(self.is_lifted(r) for r in op.results) and op.results:
                if op.name == "assume_uniform" and not self.is_lifted(op.operands[0]):
                    self.end_region(run, [])
                    self._fetch(op.operands[:1])
            else:
                run.append(op)
                self.region_of.update(dict.fromkeys(op.results, self.region))

    def end_region(self, run: list[Op], sources: Sequence[Value]) -> None:
        for op in run:
            for inner in op.walk():
                self._use(inner.operands)
        self._use(sources)
        run.clear()
        self.region += 1

    def _use(self, values: Sequence[Value]) -> None:
        for value in values:
            if self.region_of.get(value, self.region) != self.region:
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
        """Return the copies to unlifted targets at the terminator of a workgroup-level region."""
        targets = self.targets(end, region)
        return [(t, s) for t, s in zip(targets, end.operands, strict=False) if not self.is_lifted(t)]

    def targets(self, end: Op, region: Region) -> Sequence[Value]:
        """Return the values that receive the operands of the terminator of a workgroup-level region."""
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
        """Return the initial values of the unlifted loop-carried values of a workgroup-level loop."""
        return [source for _, source in self.initial(op)]

    def initial(self, op: Op) -> Copies:
        """Return the copies to unlifted loop-carried values before a workgroup-level loop; none for an `if`."""
        if op.name not in LOOPS:
            return []
        first = 3 if op.name == "for" else 0
        arguments = op.regions[0].args[1 if first else 0 :]
        return [(a, s) for a, s in zip(arguments, op.operands[first:], strict=True) if not self.is_lifted(a)]

    _owners: dict[Region, Op] = field(default_factory=dict)
    _parents: dict[Op, Region] = field(default_factory=dict)

    def owners(self) -> dict[Region, Op]:
        """Return the workgroup-level operation that contains each nested workgroup-level region."""
        if not self._owners:
            self._note(self.kernel.body)
        return self._owners

    def parents(self) -> dict[Op, Region]:
        """Return the region that contains each workgroup-level operation."""
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


def _read_before(region: Region, position: int) -> set[Op]:
    """Return the operations before a position, back to the last write, synchronization or loop.

    A load among them would give the same value at the position.
    """
    found: set[Op] = set()
    for op in reversed(region.ops[:position]):
        effects = {OPS[inner.name].effect for inner in op.walk()}
        if effects & (_WRITES | {Effect.SYNC}) or any(inner.name in LOOPS for inner in op.walk()):
            break
        found.add(op)
    return found


def plan_of(kernel: Function, shapes: Shapes, block: int = 0) -> BarrierRegions | None:
    """Return the plan of a kernel with barriers, None for one without; `block` is as in `BarrierRegions`."""
    plan = BarrierRegions(kernel, shapes, block)
    if not plan.find_barriers(kernel.body):
        return None
    plan.lift()
    plan.absorb(kernel.body)
    plan.place(kernel.body)
    return plan
