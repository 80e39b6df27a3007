"""Software pipelining: load the operands of the next iteration into registers while this iteration's are multiplied.

Applies to each product (`tile_mma`) in a `for` whose attribute `prefetch` is "early" or "late", and to products with
"overlap" and "overlap late" that `software_pipeline` can't take. `lower` begins the prefetch before it lowers the
loop's body, and `matmul` uses the loaded values. The loop carries them from one iteration to the next::

    next = load(first slices)                 zeros if the loop has no iterations
    for k, next:
        barrier                               other invocations may still read the previous iteration's operands
        store next to shared memory
        ("early": next = load(slices at k + step), or at k in the last iteration)
        barrier
        ("late": the load comes here)
        multiply

1. An operand is prefetched if it is a slice (the result of a `tile_load`) without other uses, padded with zeros, of an
   array that the kernel never writes, and if the slice's position follows from the induction variable by speculatable
   operations. Operands that aren't slices loaded in the loop are staged in shared memory when their product runs,
   unless they are there already.
2. The loop's step must be a positive constant, and the loop must have no early exit.
3. Nothing is loaded for iterations that don't exist, as assumptions about slices (that they lie inside their array)
   hold only in iterations that run. The last iteration loads its own slices again.
4. After a product, its shared memory is released until the next iteration, and other tiles may use it. That is safe, as
   its content isn't read again.
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
    """One prefetched operand of a product.

    - `load` is the operand's `tile_load`, and `place` its location in shared memory.
    - `fetch(operands)` emits the loads of this invocation's share of a slice and returns the loaded values. `operands`
      are the operands that the `tile_load` has in the iteration to load for, in the lowered code.
    - `write(place, values)` emits the stores of these values to shared memory. It gets the location as an argument
      because an iteration may use other memory than `place` (see `LoweringContext.reacquire`).
    """

    load: Op
    place: Staged | Packed
    fetch: Callable[[Sequence[Value]], list[Value]]
    write: Callable[[Any, Sequence[Value]], None]


@dataclass(slots=True)
class Prefetch:
    """The prefetch of one product in a loop.

    - `operand_numbers` are the prefetched operands (0 for A, 1 for B), `operands` describes each of them.
    - `current` are the loaded values that an iteration receives as loop-carried values, `following` those that it
      passes on. `counts` has the number of loaded values of each operand.
    - `bounds` are the start, end and step of the loop, `body` the operations of its body.
    - `induction_variables` are the values that stand for the induction variable: first the one before the lowering,
      then the one after it.
    - `resolve` returns the value that stands for a value from outside of the loop in the lowered code.
    """

    loop: Op
    product: Op
    operand_numbers: list[int]
    operands: list[PrefetchedOperand]
    bounds: list[Value]
    resolve: Callable[[Value], Value]
    body: frozenset[Op]
    induction_variables: list[Value]
    counts: list[int] = field(default_factory=list)
    current: list[Value] = field(default_factory=list)
    following: list[Value] = field(default_factory=list)

    def begin_body(self, induction: Value, loaded: Sequence[Value]) -> None:
        """Take over the lowered body's arguments: its induction variable, and the loaded values that it receives."""
        self.induction_variables.append(induction)
        self.current = list(loaded)

    def stage_and_load_next(
        self, context: LoweringContext, others: dict[int, Callable[[], Source]]
    ) -> tuple[Source, Source]:
        """Store the values that this iteration received to shared memory, and load the values of the next iteration.
        Return the locations of operands A and B in this iteration.

        `others` has, by operand number, a function for each operand that isn't prefetched; the function stages it.
        """
        # The memory was released after the last product (rule 4).
        staged = [replace(piece.place, array=context.reacquire(piece.place.array)) for piece in self.operands]
        for place in staged:
            context.access(place.array, "w")
        remaining = iter(self.current)
        for place, piece, count in zip(staged, self.operands, self.counts, strict=True):
            piece.write(place, [next(remaining) for _ in range(count)])
        places: dict[int, Source] = dict(zip(self.operand_numbers, staged, strict=True))
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
        """Load the operands of the next iteration into `following`."""
        self.following = self._fetched(context, self.induction_variable_after(context, 1))

    def induction_variable_after(self, context: LoweringContext, iterations: int) -> Value:
        """Return the induction variable `iterations` later, or the current one if there is no such iteration.

        The last iteration then loads its own operands again, and the result isn't used. A branch around the loads
        instead would make the code after it wait for them.
        """
        b, current = context.builder, self.induction_variables[-1]
        _, end, step = self.bounds
        later = current
        for _ in range(iterations):
            later = b.emit("add", later, step)
        if not iterations:
            return later
        # The second test detects that the addition has wrapped around.
        exists = b.emit("and", b.emit("lt", later, end), b.emit("gt", later, current))
        return b.emit("select", exists, later, current)

    def _fetched(self, context: LoweringContext, induction: Value) -> list[Value]:
        """Load the operands of the iteration whose induction variable is `induction`."""
        mapping = dict.fromkeys(self.induction_variables, induction)
        values_by_operand = [
            piece.fetch([self._cloned(context, v, mapping) for v in piece.load.operands]) for piece in self.operands
        ]
        self.counts = [len(values) for values in values_by_operand]
        return [v for values in values_by_operand for v in values]

    def start(self, context: LoweringContext) -> None:
        """Load the operands of the first iteration before the loop; zeros if the loop has no iterations."""
        first = self.bounds[0]
        self.current = self.load_in_preheader(context, first, lambda: self._fetched(context, first))

    def load_in_preheader(
        self, context: LoweringContext, induction: Value, load: Callable[[], list[Value]]
    ) -> list[Value]:
        """Emit loads in the preheader for the iteration whose induction variable is `induction`, under the condition
        that it exists; return the values, zeros if it doesn't.
        """
        b, inside, outside = context.builder, Region(), Region()
        with b.at(inside):
            values = load()
            b.op("yield", *values)
        with b.at(outside):
            b.op("yield", *[_zero(b, v.type) for v in values])
        start, end, _ = self.bounds
        test = b.emit("lt", induction, end)
        if induction is not start:  # a sum, which may have wrapped around
            test = b.emit("and", test, b.emit("gt", induction, start))
        return context.choose(test, [v.type for v in values], inside, outside)

    def _cloned(self, context: LoweringContext, value: Value, mapping: dict[Value, Value]) -> Value:
        """Recompute a value of the loop's body for another iteration. For a value from outside of the loop, return the
        value that stands for it in the lowered code.

        `mapping` maps the induction variable and the values recomputed so far to their values in that iteration.
        """
        if value in mapping:
            return mapping[value]
        op = value.op
        if op is None or op not in self.body:
            return self.resolve(value)
        for operand in op.operands:
            if operand not in mapping:
                mapping[operand] = self._cloned(context, operand, mapping)
        clone = clone_op(op, mapping)  # maps the results of `op` to those of the clone, too
        context.builder.region.ops.append(clone)
        return mapping[value]


def _zero(builder: Builder, type: Type) -> Value:
    assert isinstance(type, Scalar | Vector)
    return builder.const(0.0 if type.dtype.is_float else 0, type)


def prefetching_products(loop: Op) -> list[Op]:
    """Return the products directly in a loop's body that have the attribute `prefetch`."""
    return [op for op in loop.regions[0].ops if op.name == "tile_mma" and op.attrs.get("prefetch")]


def prefetchable_operands(
    loop: Op, product: Op, written: Collection[AliasClass], uses: dict[Value, list[Op]]
) -> tuple[list[int], str]:
    """Return the numbers of a product's operands that can be prefetched (0 for A, 1 for B), and the reason if none can.

    If a slice is loaded in the loop but can't be prefetched, no operand is. `written` are the alias classes that the
    kernel writes, `uses` maps values to the operations that use them.
    """
    body = loop.regions[0]
    step, exits = loop.operands[2], list(exits_of(body))
    if not is_constant(step) or constant_of(step) <= 0 or exits != [body.terminator]:
        return [], "the loop's step isn't a positive constant, or the loop has an early exit"
    inside = frozenset(body.ops)
    numbers = []
    for number, value in enumerate(product.operands[:2]):
        source = value.op
        if source is None or source.name != "tile_load" or source not in inside:
            continue
        if len(uses.get(value, ())) != 1:
            return [], "a factor is a slice that has other uses, too"
        if alias_class(source.operands[0]) in written or constant_of(source.operands[-1]) != 0:
            return [], "a factor's array is written by the kernel, or padded with something else than 0"
        if not all(_movable(v, inside, body) for v in source.operands):
            return [], "the position of a factor's slice can't be computed from the induction variable alone"
        numbers.append(number)
    return numbers, "" if numbers else "no factor is a slice that is loaded in the loop"


def _movable(value: Value, inside: frozenset[Op], body: Region) -> bool:
    """True if a value of the loop's body can be computed for another iteration from its induction variable (rule 1).

    `inside` are the operations of `body`.
    """
    if (
        value.op is None
    ):  # a region's argument: the induction variable, `args[0]`, can be replaced, carried values can't
        return value not in body.args[1:]
    if value.op not in inside:
        return True
    info = OPS[value.op.name]
    if info.effect != Effect.NONE or not info.speculatable or info.convergent or value.op.regions:
        return False
    return all(_movable(v, inside, body) for v in value.op.operands)


def is_pipelined(product: Op, plan: Plan | None, numbers: Sequence[int]) -> bool:
    """True if a product's `prefetch` asks for multi-stage pipelining (see `software_pipeline`) and it is possible.

    `plan` is the product's plan if it runs on matrices, `numbers` are the operands that can be prefetched.
    """
    if plan is None or len(numbers) < 2 or not product.attrs["prefetch"].startswith("overlap"):
        return False
    return all(v.op is not None and shared_operands.can_pack(v.op, plan) for v in product.operands[:2])


def begin(
    context: LoweringContext, loop: Op, product: Op, operand_numbers: Sequence[int], bounds: Sequence[Value], plan: Plan | None,
    transposed: Sequence[bool] | None, resolve: Callable[[Value], Value],
) -> Prefetch:  # fmt: skip
    """Begin the prefetch of a product: load the operands of the first iteration before the loop.

    `operand_numbers` are the prefetched operands (0 for A, 1 for B), and `bounds` the start, end and step of the loop.
    `plan` is the product's plan if it runs on matrices. `transposed` is None if the operands are staged as single
    elements; if they are staged as 16-byte vectors, it has True for each operand that is transposed while it is staged.
    `resolve` is the field of `Prefetch`.
    """
    operands = [product.operands[number] for number in operand_numbers]
    loads = [v.op for v in operands if v.op is not None]
    pieces = []
    for position, op in enumerate(loads):
        label = op.operands[0].name or "tile"
        if transposed is not None:
            pieces.append(_packed(context, op, label, transpose=transposed[position]))
        else:
            pieces.append(_staged(context, op, label, pad_rows=plan is not None))
    body = loop.regions[0]
    prefetch = Prefetch(
        loop, product, list(operand_numbers), pieces, list(bounds), resolve, frozenset(body.ops), [body.args[0]]
    )
    prefetch.start(context)
    for piece in pieces:  # nothing is stored before an iteration, which reacquires the memory
        context.release(piece.place.array)
    return prefetch


def _packed(context: LoweringContext, op: Op, label: str, *, transpose: bool) -> PrefetchedOperand:
    """Return an operand that is staged as 16-byte vectors, transposed if `transpose`; `op` is its `tile_load`."""
    place, slots = shared_operands.reserve(context, op, label, transpose=transpose)

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return shared_operands.vectors(context, op, operands, slots)

    return PrefetchedOperand(
        op, place, fetch, lambda memory, values: shared_operands.write(context, memory, slots, values)
    )


def _staged(context: LoweringContext, op: Op, label: str, *, pad_rows: bool) -> PrefetchedOperand:
    """Return an operand that is staged as single elements, with rows padded for matrices if `pad_rows`."""
    place, layout = fma_matmul.reserve(context, op, label, pad_rows=pad_rows)

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return list(load(context, op, operands, layout).values)

    return PrefetchedOperand(
        op, place, fetch, lambda memory, values: fma_matmul.write(context, memory, Held(layout, tuple(values)))
    )
