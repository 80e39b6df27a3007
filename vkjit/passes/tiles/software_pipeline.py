"""Multi-stage software pipelining of products on cooperative matrices.

While one slice of the operands is multiplied, the next slice is loaded into matrices, the vectors of the next iteration
are stored to shared memory, and those of the iteration after it are loaded into registers. Applies to a `for` with a
product whose attribute `prefetch` is "overlap" or "overlap late"; the loop carries further values::

    shared memory = iteration 0, ahead = load(iteration 1), next = matrices of the first slice
    for k, ahead, next:
        for each slice:
            at the last one of a part:  barrier; shared memory = ahead; ahead = load(...); barrier
            ("late": the load comes after the second barrier)
            current, next = next, matrices of the following slice
            multiply current

The K extent of an iteration may need more shared memory than there is. Then one operand is staged in `parts`, one after
the other, and the loads of the other operand are spread over them. Rules 1 to 3 of `prefetch` hold; the product owns
its shared memory for the whole loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vkjit.ir.core import Op, Value

from ..analysis.alias import alias_class
from . import mma_matmul, shared_operands
from .assign_layouts import tile_of
from .mma_fragments import Fragments, Plan
from .prefetch import Prefetch, PrefetchedOperand
from .shared_operands import Packed, VectorSlot
from .tile_state import LoweringContext

__all__ = ["PipelinedProduct", "begin"]

Slice = tuple[list[Value], list[Value]]
"""Matrices of operands A and B."""


@dataclass(frozen=True, slots=True, eq=False)
class PipelinedOperand(PrefetchedOperand):
    """One operand. `spots` are the vectors that are in shared memory at a time, `shifts` the offsets of its parts in
    rows and columns of vectors.
    """

    spots: tuple[VectorSlot, ...]
    shifts: tuple[tuple[int, int], ...]

    @property
    def whole(self) -> bool:
        """True if the operand is staged in one part."""
        return len(self.shifts) == 1


LoadRequests = list[tuple[PipelinedOperand, int, slice]]
"""What to load: operands, the index of a part, and the range of its vectors."""


@dataclass(slots=True)
class PipelinedProduct(Prefetch):
    """A pipelined product.

    `parts`: the number of parts in which one operand is staged, one after the other. `waiting`: for each operand, the
    vectors in registers that will be stored to shared memory next.
    """

    plan: Plan = field(kw_only=True)
    parts: int = field(kw_only=True)
    late: bool = field(kw_only=True)
    waiting: dict[PipelinedOperand, list[Value]] = field(default_factory=dict)

    @property
    def sides(self) -> list[PipelinedOperand]:
        return [piece for piece in self.pieces if isinstance(piece, PipelinedOperand)]

    @property
    def slices(self) -> int:
        """The number of slices along K in an iteration."""
        return int(self.product.operands[0].type.shape[1]) // self.plan.shape.k  # type: ignore[attr-defined]

    def finish(self, context: LoweringContext) -> None:
        """Release the shared memory after the loop."""
        for side in self.sides:
            context.release(side.place.array)

    def start(self, context: LoweringContext) -> None:
        """Emit the prologue: stage the first iteration, load vectors of the following ones and the matrices of the
        first slice.
        """
        first, every = self.bounds[0], slice(None)
        begun = self._load_ahead(context, first, 0, [(side, 0, every) for side in self.sides])
        for side in self.sides:
            context.access(side.place.array, "w")
        for side in self.sides:
            side.write(side.place, begun[side])
        for side in self.sides:
            context.access(side.place.array, "r")
        self.waiting = {side: [] for side in self.sides}
        self._load(context, first, -1)
        left, right = self._slice(context, 0)
        self.current = [*self._carried(), *left, *right]

    def _carried(self) -> list[Value]:
        """Return the loaded vectors in order, and record how many each operand has."""
        self.counts = [len(self.waiting[side]) for side in self.sides]
        return [v for side in self.sides for v in self.waiting[side]]

    def multiply(self, context: LoweringContext, sums: Fragments) -> Fragments:
        """Emit the product of an iteration, interleaved with the loads and stores of the following ones."""
        values = iter(self.current)
        self.waiting = {side: [next(values) for _ in range(n)] for side, n in zip(self.sides, self.counts, strict=True)}
        left = [next(values) for _ in range(self.plan.rows)]
        right = list(values)
        each = self.slices // self.parts
        for number in range(self.slices):
            part, within = divmod(number, each)
            if within == each - 1:
                self._advance(context, part)
            following = self._slice(context, number + 1)
            sums = mma_matmul.add_products(context, sums, left, right)
            left, right = following
        self.following = [*self._carried(), *left, *right]
        return sums

    def _advance(self, context: LoweringContext, part: int) -> None:
        """Store the vectors that follow a part to shared memory, and start loading the vectors after those."""
        last = part == self.parts - 1
        changed = [side for side in self.sides if last or not side.whole]
        for side in changed:
            context.access(side.place.array, "w")
        for side in changed:
            side.write(side.place, self.waiting[side])
            self.waiting[side] = []
        if not self.late:
            self._load(context, self.counters[-1], part)
        for side in changed:
            context.access(side.place.array, "r")
        if self.late:
            self._load(context, self.counters[-1], part)

    def _load(self, context: LoweringContext, counter: Value, part: int) -> None:
        """Load vectors into registers after a part; -1 stands for the part before the loop's first.

        For an operand staged in parts, these are the vectors of the part after the next one. For an operand staged
        whole, they are a portion of its vectors for a later iteration.
        """
        requests: dict[int, LoadRequests] = {}
        for side in self.sides:
            iterations, which = divmod(part + 2, self.parts)
            chunk = slice(None)
            if side.whole:
                iterations, number = divmod(part + 1, self.parts)
                iterations, which = iterations + 1, 0
                size = -(-len(side.spots) // self.parts)
                chunk = slice(number * size, (number + 1) * size)
            requests.setdefault(iterations, []).append((side, which, chunk))
        for iterations, batch in requests.items():
            for side, values in self._load_ahead(context, counter, iterations, batch).items():
                self.waiting[side] += values

    def _load_ahead(
        self, context: LoweringContext, counter: Value, iterations: int, requests: LoadRequests
    ) -> dict[PipelinedOperand, list[Value]]:
        """Load vectors of the operands for the iteration that comes `iterations` after the one of `counter`."""

        def load(at: Value) -> list[list[Value]]:
            mapping = dict.fromkeys(self.counters, at)
            return [
                shared_operands.vectors(
                    context, side.load, [self._cloned(context, v, mapping) for v in side.load.operands], side.spots[chunk],
                    side.shifts[which],
                )
                for side, which, chunk in requests
            ]  # fmt: skip

        sides = [side for side, _, _ in requests]
        if counter is not self.bounds[0]:
            return dict(zip(sides, load(self.induction_variable_after(context, iterations)), strict=True))
        counts: list[int] = []
        at = counter
        for _ in range(iterations):
            at = context.builder.emit("add", at, self.bounds[2])

        def flat() -> list[Value]:
            loaded = load(at)
            counts.extend(map(len, loaded))
            return [v for batch in loaded for v in batch]

        values = iter(self.load_in_preheader(context, at, flat))
        return {side: [next(values) for _ in range(count)] for side, count in zip(sides, counts, strict=True)}

    def _slice(self, context: LoweringContext, number: int) -> Slice:
        """Return the matrices of a slice; the number after the last is the first slice of the next iteration. They are
        read from memory that was written before a barrier, in this iteration or the previous one.
        """
        each = self.slices // self.parts
        places = []
        for side in self.sides:
            assert isinstance(side.place, Packed)
            context.pending.add((alias_class(side.place.array), "r"))
            places.append((side.place, number % (self.slices if side.whole else each) * self.plan.shape.k))
        return mma_matmul.load_slice(context, self.plan, *places)


def begin(
    context: LoweringContext, loop: Op, product: Op, numbers: Sequence[int], fixed: Sequence[Value], plan: Plan,
    _packs: Sequence[bool] | None, resolve: Callable[[Value], Value],
) -> PipelinedProduct:  # fmt: skip
    """Emit the pipeline's prologue before the loop. Both operands must divide into whole vectors."""
    loads = [v.op for v in product.operands[:2] if v.op is not None]
    parts = _parts(context, plan, loads)
    sides: list[PrefetchedOperand] = []
    for inner, (op, count) in enumerate(zip(loads, parts, strict=True)):
        sides.append(_side(context, op, 1 - inner, count))
    body = loop.regions[0]
    pipeline = PipelinedProduct(
        loop, product, list(numbers), sides, list(fixed), resolve, frozenset(body.ops), [body.args[0]], plan=plan, parts=max(parts),
        late=product.attrs["prefetch"] == "overlap late",
    )  # fmt: skip
    context.notes.append(f"{product.loc}: rounds overlap{_parts_note(loads, parts)}")
    pipeline.start(context)
    return pipeline


def _parts_note(loads: Sequence[Op], parts: Sequence[int]) -> str:
    """Return the text of a note about operands that are staged in parts."""
    cut = [f", {op.operands[0].name} is staged in {n} parts" for op, n in zip(loads, parts, strict=True) if n > 1]
    return "".join(cut)


def _side(context: LoweringContext, op: Op, inner: int, parts: int) -> PipelinedOperand:
    label, shape = op.operands[0].name or "tile", list(tile_of(op.result).shape)
    shape[inner] //= parts
    place, spots = shared_operands.reserve(context, op, label, (shape[0], shape[1]))
    each = shared_operands.VECTOR_BYTES // tile_of(op.result).dtype.itemsize
    if place.along == inner:
        shifts = tuple((0, part * shape[inner] // each) for part in range(parts))
    else:
        shifts = tuple((part * shape[inner], 0) for part in range(parts))

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return shared_operands.vectors(context, op, operands, spots)

    return PipelinedOperand(
        op,
        place,
        fetch,
        lambda where, values: shared_operands.write(context, where, spots, values),
        tuple(spots),
        shifts,
    )


def _parts(context: LoweringContext, plan: Plan, loads: Sequence[Op]) -> tuple[int, int]:
    """Return the numbers of parts into which operands A and B are divided along K: as few as leave room for two
    workgroups, else for one.

    At most one operand is divided, preferably one whose rows in shared memory run across K, as its parts consist of
    whole rows.
    """
    across = [op.attrs["axes"][-1] == number for number, op in enumerate(loads)]
    cut = 0 if across[0] and not across[1] else 1
    depth = tile_of(loads[0].result).shape[1]
    each = max(plan.shape.k, shared_operands.VECTOR_BYTES // plan.operand_dtype.itemsize)
    room = context.options.shared_bytes - context.used_bytes()
    for limit in (context.options.shared_bytes // 2, room):
        count = 1
        while depth % (count * each) == 0:
            parts = (count, 1) if cut == 0 else (1, count)
            bytes_needed = 0
            for inner, (op, number) in enumerate(zip(loads, parts, strict=True)):
                shape = list(tile_of(op.result).shape)
                shape[1 - inner] //= number
                bytes_needed += shared_operands.bytes_of(op, (shape[0], shape[1]))
            if bytes_needed <= min(limit, room):
                return parts
            count *= 2
    return 1, 1
