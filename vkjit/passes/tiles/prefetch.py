"""Software pipelining: load the operands of the next iteration into registers while this iteration's are multiplied.

Applies to each product in a `for` whose attribute `prefetch` asks for it; the loop carries the loaded values::

    next = load(first slices)                 if the loop has a first iteration
    for k, next:
        store next to shared memory           after a barrier: other invocations may still read the last iteration's
        ("early": next = load(slices at k + step), or at k in the last iteration)
        barrier
        ("late": the load comes here)
        multiply

1. Operands are prefetched if they are slices without other uses, padded with zeros, of arrays that the kernel never
   writes, and if their position follows from the induction variable by speculatable operations. Other operands are
   staged in shared memory when their product runs, unless they are there already.
2. The loop's step is a positive constant, and the loop has no early exit.
3. Nothing is loaded for iterations that don't exist, as assumptions about slices hold only inside of iterations. The last
   iteration loads its own slices again.
4. Between the products of two iterations, other tiles may use a product's shared memory: none of its content is read
   again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import clone_op, constant_of, exits_of, is_constant
from vkjit.ir.types import Scalar, Type, Vector

from ..analysis.alias import AliasClass, alias_class
from . import fma_matmul, shared_operands
from .memory import load
from .mma_fragments import Plan
from .mma_matmul import KeptInMatrices, Source
from .shared_operands import Packed
from .tile_state import Held, LoweringContext, Staged

__all__ = ["Prefetch", "PrefetchedOperand", "begin", "is_pipelined", "prefetchable_operands", "prefetching_products"]


@dataclass(frozen=True, slots=True)
class PrefetchedOperand:
    """One prefetched operand: its `tile_load`, where it is first staged, how an invocation loads its share (`fetch`,
    given the operands of a `tile_load`), and how it stores that share to shared memory (`write`).
    """

    load: Op
    place: Staged | Packed
    fetch: Callable[[Sequence[Value]], list[Value]]
    write: Callable[[Any, Sequence[Value]], None]


@dataclass(slots=True)
class Prefetch:
    """The prefetch of one product in a loop: its operands, and the loop-carried values that the iteration receives
    (`current`) and passes on (`following`).

    `bounds` are the bounds and the step of the loop.
    """

    loop: Op
    product: Op
    operand_numbers: list[int]
    pieces: list[PrefetchedOperand]
    bounds: list[Value]
    resolve: Callable[[Value], Value]
    body: frozenset[Op]
    counters: list[Value]
    counts: list[int] = field(default_factory=list)
    current: list[Value] = field(default_factory=list)
    following: list[Value] = field(default_factory=list)

    def begin_body(self, counter: Value, given: Sequence[Value]) -> None:
        """Begin the body, given its induction variable and the values that the iteration receives."""
        self.counters.append(counter)
        self.current = list(given)

    def stage_and_load_next(
        self, context: LoweringContext, others: dict[int, Callable[[], Source]]
    ) -> tuple[Source, Source]:
        """Store the received values to shared memory and load those of the next iteration. Returns the locations of
        both operands.

        `others` stages the operands that aren't prefetched, by their number.
        """
        own = [replace(piece.place, array=context.reacquire(piece.place.array)) for piece in self.pieces]
        for place in own:
            context.access(place.array, "w")
        remaining = iter(self.current)
        for place, piece, count in zip(own, self.pieces, self.counts, strict=True):
            piece.write(place, [next(remaining) for _ in range(count)])
        places: dict[int, Source] = dict(zip(self.operand_numbers, own, strict=True))
        places |= {number: put() for number, put in others.items()}
        early = not self.product.attrs["prefetch"].endswith("late")
        if early:
            self._load_next(context)
        for source in places.values():
            if not isinstance(source, KeptInMatrices):
                context.access(source.array, "r")
        if not early:
            self._load_next(context)
        return places[0], places[1]

    def _load_next(self, context: LoweringContext) -> None:
        self.following = self._fetched(context, self.induction_variable_after(context, 1))

    def induction_variable_after(self, context: LoweringContext, rounds: int) -> Value:
        """Return the induction variable `rounds` iterations later, or that of this iteration if the later one doesn't
        exist.

        The last iteration then loads its own operands again, and the result isn't used. A branch around the loads
        instead would make the code after it wait for them.
        """
        b, own = context.builder, self.counters[-1]
        at = own
        for _ in range(rounds):
            at = b.emit("add", at, self.bounds[2])
        if not rounds:
            return at
        exists = b.emit("and", b.emit("lt", at, self.bounds[1]), b.emit("gt", at, own))  # the addition may have wrapped
        return b.emit("select", exists, at, own)

    def _fetched(self, context: LoweringContext, counter: Value) -> list[Value]:
        """Load the operands of the iteration whose induction variable is `counter`."""
        mapping = dict.fromkeys(self.counters, counter)
        parts = [piece.fetch([self._cloned(context, v, mapping) for v in piece.load.operands]) for piece in self.pieces]
        self.counts = [len(part) for part in parts]
        return [v for part in parts for v in part]

    def start(self, context: LoweringContext) -> None:
        """Load the operands of the first iteration; zeros if there is none."""
        self.current = self.load_in_preheader(context, self.bounds[0], lambda: self._fetched(context, self.bounds[0]))

    def load_in_preheader(
        self, context: LoweringContext, counter: Value, load: Callable[[], list[Value]]
    ) -> list[Value]:
        """Emit loads in the preheader for the iteration whose induction variable is `counter`; zeros if it doesn't
        exist.
        """
        b, inside, outside = context.builder, Region(), Region()
        with b.at(inside):
            values = load()
            b.op("yield", *values)
        with b.at(outside):
            b.op("yield", *[_zero(b, v.type) for v in values])
        test = b.emit("lt", counter, self.bounds[1])
        if counter is not self.bounds[0]:
            test = b.emit("and", test, b.emit("gt", counter, self.bounds[0]))
        return context.choose(test, [v.type for v in values], inside, outside)

    def _cloned(self, context: LoweringContext, value: Value, mapping: dict[Value, Value]) -> Value:
        """Recompute a value for another iteration. `mapping` has its induction variable and the values recomputed so
        far.
        """
        if value in mapping:
            return mapping[value]
        op = value.op
        if op is None or op not in self.body:
            return self.resolve(value)
        for operand in op.operands:
            if operand not in mapping:
                mapping[operand] = self._cloned(context, operand, mapping)
        clone = clone_op(op, mapping)
        context.builder.region.ops.append(clone)
        return mapping[value]


def _zero(builder: Builder, kind: Type) -> Value:
    assert isinstance(kind, Scalar | Vector)
    return builder.const(0.0 if kind.dtype.is_float else 0, kind)


def prefetching_products(loop: Op) -> list[Op]:
    """Return the products of a loop that ask for prefetching."""
    return [op for op in loop.regions[0].ops if op.name == "tile_mma" and op.attrs.get("prefetch")]


def prefetchable_operands(
    loop: Op, product: Op, written: Collection[AliasClass], uses: dict[Value, list[Op]]
) -> tuple[list[int], str]:
    """Return which operands of a product in a loop can be prefetched (0 for A, 1 for B) and, if none can, the reason."""
    body = loop.regions[0]
    step, exits = loop.operands[2], list(exits_of(body))
    if not is_constant(step) or constant_of(step) <= 0 or exits != [body.terminator]:
        return [], "the loop's step isn't a constant above 0, or it is left early"
    inside, numbers = frozenset(body.ops), []
    for number, value in enumerate(product.operands[:2]):
        source = value.op
        if source is None or source.name != "tile_load" or source not in inside:
            continue
        if len(uses.get(value, ())) != 1:
            return [], "a factor isn't a slice that this product alone reads"
        if alias_class(source.operands[0]) in written or constant_of(source.operands[-1]) != 0:
            return [], "a factor's array is written by the kernel, or padded with something else than 0"
        if not all(_movable(v, inside, body) for v in source.operands):
            return [], "where a factor lies doesn't follow from the loop's counter alone"
        numbers.append(number)
    return numbers, "" if numbers else "no factor is a slice that is loaded in the loop"


def _movable(value: Value, inside: frozenset[Op], body: Region) -> bool:
    """True if a value can be computed for another iteration from the induction variable (rule 1)."""
    if value.op is None:
        return value not in body.args[1:]
    if value.op not in inside:
        return True
    row = OPS[value.op.name]
    if row.effect != Effect.NONE or not row.speculatable or row.convergent or value.op.regions:
        return False
    return all(_movable(v, inside, body) for v in value.op.operands)


def is_pipelined(product: Op, plan: Plan | None, numbers: Sequence[int]) -> bool:
    """True if a product asks for multi-stage pipelining and allows it: see `software_pipeline`."""
    if plan is None or len(numbers) < 2 or not product.attrs["prefetch"].startswith("overlap"):
        return False
    return all(v.op is not None and shared_operands.can_pack(v.op, plan) for v in product.operands[:2])


def begin(
    context: LoweringContext, loop: Op, product: Op, numbers: Sequence[int], fixed: Sequence[Value], plan: Plan | None,
    transposed: Sequence[bool] | None, resolve: Callable[[Value], Value],
) -> Prefetch:  # fmt: skip
    """Load the operands of the first iteration before the loop.

    `transposed` is None if the operands are staged as elements; if they are staged as vectors, it tells which of them are
    transposed.
    """
    factors = [product.operands[number] for number in numbers]
    loads = [v.op for v in factors if v.op is not None]
    pieces = []
    for number, op in enumerate(loads):
        label = op.operands[0].name or "tile"
        if transposed is not None:
            pieces.append(_packed(context, op, label, turn=transposed[number]))
        else:
            pieces.append(_staged(context, op, label, lines=plan is not None))
    body = loop.regions[0]
    ahead = Prefetch(loop, product, list(numbers), pieces, list(fixed), resolve, frozenset(body.ops), [body.args[0]])
    ahead.start(context)
    for piece in pieces:
        context.release(piece.place.array)
    return ahead


def _packed(context: LoweringContext, op: Op, label: str, *, turn: bool) -> PrefetchedOperand:
    place, spots = shared_operands.reserve(context, op, label, transpose=turn)

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return shared_operands.vectors(context, op, operands, spots)

    return PrefetchedOperand(
        op, place, fetch, lambda where, values: shared_operands.write(context, where, spots, values)
    )


def _staged(context: LoweringContext, op: Op, label: str, *, lines: bool) -> PrefetchedOperand:
    place, layout = fma_matmul.reserve(context, op, label, pad_rows=lines)

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return list(load(context, op, operands, layout).values)

    return PrefetchedOperand(
        op, place, fetch, lambda where, values: fma_matmul.write(context, where, Held(layout, tuple(values)))
    )
