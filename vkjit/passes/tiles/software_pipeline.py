"""Multi-stage software pipelining of products on cooperative matrices.

Applies to a product in a `for` whose attribute `prefetch` is "overlap" or "overlap late". An iteration of the loop has
several K steps, each as long as the K dimension of the cooperative matrices (a "slice" in this module). Four stages
overlap: while the matrices of one slice are multiplied, those of the next slice are loaded from shared memory, the
operands of the next iteration are stored to shared memory, and those of the iteration after it are loaded from global
memory into registers, as 16-byte vectors. The loop carries the values in registers and matrices::

    shared memory = iteration 0, ahead = load(iteration 1), next = matrices of the first slice
    for k, ahead, next:
        for each slice:
            at the last slice of a part:  barrier; shared memory = ahead; ahead = load(...); barrier
            ("late": the load comes after the second barrier)
            current, next = next, matrices of the following slice
            multiply current

If the operands of one iteration need more shared memory than there is, one operand is staged in several parts along K,
one after the other, and the loads of the other operand are spread over these parts. Otherwise an iteration is a single
part.

`lower` begins the pipeline before it lowers the loop's body, and `matmul` calls `PipelinedProduct.multiply`. Rules 1 to
3 of `prefetch` hold. Unlike products in `prefetch`, a pipelined product keeps its shared memory for the whole loop.
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
"""The matrices of operands A and B for one slice."""


@dataclass(frozen=True, slots=True, eq=False)
class PipelinedOperand(PrefetchedOperand):
    """One operand of a pipelined product.

    `slots` are the positions of the vectors of one part that an invocation loads, and `shifts` has the offset of each
    part in rows and columns of vectors.
    """

    slots: tuple[VectorSlot, ...]
    shifts: tuple[tuple[int, int], ...]

    @property
    def whole(self) -> bool:
        """True if the operand is staged in one part."""
        return len(self.shifts) == 1


LoadRequests = list[tuple[PipelinedOperand, int, slice]]
"""Loads to emit: operands, each with the index of a part and the range of the invocation's vectors of that part."""


@dataclass(slots=True)
class PipelinedProduct(Prefetch):
    """The pipeline of one product in a loop.

    `plan` is the product's partition into matrices, and `parts` the number of parts in which one operand is staged, one
    after the other. If `late`, loads from global memory follow the second barrier of a part. `waiting` has, for each
    operand, the vectors in registers that will be stored to shared memory next.
    """

    plan: Plan = field(kw_only=True)
    parts: int = field(kw_only=True)
    late: bool = field(kw_only=True)
    waiting: dict[PipelinedOperand, list[Value]] = field(default_factory=dict)

    @property
    def sides(self) -> list[PipelinedOperand]:
        """Operands A and B."""
        return [piece for piece in self.operands if isinstance(piece, PipelinedOperand)]

    @property
    def slices(self) -> int:
        """The number of slices along K in an iteration."""
        return int(self.product.operands[0].type.shape[1]) // self.plan.shape.k  # type: ignore[attr-defined]

    def finish(self, context: LoweringContext) -> None:
        """Release the shared memory after the loop."""
        for side in self.sides:
            context.release(side.place.array)

    def start(self, context: LoweringContext) -> None:
        """Emit the prologue: stage the operands of the first iteration, load vectors of the following iterations into
        registers, and load the matrices of the first slice.
        """
        first, all_vectors = self.bounds[0], slice(None)
        loaded = self._load_ahead(context, first, 0, [(side, 0, all_vectors) for side in self.sides])
        for side in self.sides:
            context.access(side.place.array, "w")
        for side in self.sides:
            side.write(side.place, loaded[side])
        for side in self.sides:
            context.access(side.place.array, "r")
        self.waiting = {side: [] for side in self.sides}
        self._load(context, first, -1)  # as at the end of a part before the first one
        left, right = self._slice(context, 0)
        self.current = [*self._carried(), *left, *right]

    def _carried(self) -> list[Value]:
        """Return the vectors in registers of both operands, to be loop-carried, and record each operand's count."""
        self.counts = [len(self.waiting[side]) for side in self.sides]
        return [v for side in self.sides for v in self.waiting[side]]

    def multiply(self, context: LoweringContext, sums: Fragments) -> Fragments:
        """Emit the product of an iteration, interleaved with the loads and stores of the following iterations.

        `sums` are the accumulators. Return the new ones.
        """
        values = iter(self.current)
        self.waiting = {side: [next(values) for _ in range(n)] for side, n in zip(self.sides, self.counts, strict=True)}
        left = [next(values) for _ in range(self.plan.rows)]
        right = list(values)
        slices_per_part = self.slices // self.parts
        for number in range(self.slices):
            part, within = divmod(number, slices_per_part)
            if within == slices_per_part - 1:
                self._advance(context, part)
            following = self._slice(context, number + 1)
            sums = mma_matmul.add_products(context, sums, left, right)
            left, right = following
        self.following = [*self._carried(), *left, *right]
        return sums

    def _advance(self, context: LoweringContext, part: int) -> None:
        """At the end of a part, store the vectors of the next part to shared memory, and load those of a later part.

        An operand that is staged whole is only stored at the end of an iteration's last part.
        """
        last = part == self.parts - 1
        changed = [side for side in self.sides if last or not side.whole]
        for side in changed:
            context.access(side.place.array, "w")
        for side in changed:
            side.write(side.place, self.waiting[side])
            self.waiting[side] = []
        if not self.late:
            self._load(context, self.induction_variables[-1], part)
        for side in changed:
            context.access(side.place.array, "r")
        if self.late:
            self._load(context, self.induction_variables[-1], part)

    def _load(self, context: LoweringContext, induction: Value, part: int) -> None:
        """Load vectors into registers at the end of a part; part -1 is the prologue.

        For an operand staged in parts, these are the vectors of the part after the next one. For an operand staged
        whole, they are one of `parts` equal portions of its vectors for a later iteration.
        """
        requests: dict[int, LoadRequests] = {}
        for side in self.sides:
            # Load part `part_to_load` of the operand for the iteration that comes `iterations` after the current one.
            if side.whole:
                # The last part of an iteration stores the operand of the next iteration. So from then on, and up to the
                # end of the next iteration's last but one part, the operand of the iteration after that is loaded.
                iterations, portion = divmod(part + 1, self.parts)
                iterations += 1
                part_to_load = 0
                size = -(-len(side.slots) // self.parts)  # of a portion, rounded up
                chunk = slice(portion * size, (portion + 1) * size)
            else:
                # The part after this one is stored to shared memory now, so the one after that is loaded.
                iterations, part_to_load = divmod(part + 2, self.parts)
                chunk = slice(None)
            requests.setdefault(iterations, []).append((side, part_to_load, chunk))
        for iterations, batch in requests.items():
            for side, values in self._load_ahead(context, induction, iterations, batch).items():
                self.waiting[side] += values

    def _load_ahead(
        self, context: LoweringContext, induction: Value, iterations: int, requests: LoadRequests
    ) -> dict[PipelinedOperand, list[Value]]:
        """Load vectors for the iteration that comes `iterations` after the one whose induction variable is `induction`.

        In the prologue, where `induction` is the loop's start, the load is conditional, as the iteration may not exist.
        """

        def load(later: Value) -> list[list[Value]]:
            """Load the requested vectors for the iteration whose induction variable is `later`."""
            mapping = dict.fromkeys(self.induction_variables, later)
            return [
                shared_operands.vectors(
                    context, side.load, [self._cloned(context, v, mapping) for v in side.load.operands], side.slots[chunk],
                    side.shifts[part],
                )
                for side, part, chunk in requests
            ]  # fmt: skip

        sides = [side for side, _, _ in requests]
        if induction is not self.bounds[0]:
            return dict(zip(sides, load(self.induction_variable_after(context, iterations)), strict=True))
        counts: list[int] = []
        later = induction
        for _ in range(iterations):
            later = context.builder.emit("add", later, self.bounds[2])

        def flat() -> list[Value]:
            loaded = load(later)
            counts.extend(map(len, loaded))
            return [v for batch in loaded for v in batch]

        values = iter(self.load_in_preheader(context, later, flat))
        return {side: [next(values) for _ in range(count)] for side, count in zip(sides, counts, strict=True)}

    def _slice(self, context: LoweringContext, number: int) -> Slice:
        """Return the matrices of slice `number` of an iteration; the number after the last one stands for the first
        slice of the next iteration.

        No barrier is needed before the reads, only after them: a barrier followed the stores, in this iteration or the
        previous one.
        """
        slices_per_part = self.slices // self.parts
        places = []
        for side in self.sides:
            assert isinstance(side.place, Packed)
            context.pending.add((alias_class(side.place.array), "r"))
            slices_in_memory = self.slices if side.whole else slices_per_part
            places.append((side.place, number % slices_in_memory * self.plan.shape.k))
        return mma_matmul.load_slice(context, self.plan, *places)


def begin(
    context: LoweringContext, loop: Op, product: Op, numbers: Sequence[int], bounds: Sequence[Value], plan: Plan,
    _transposed: Sequence[bool] | None, resolve: Callable[[Value], Value],
) -> PipelinedProduct:  # fmt: skip
    """Begin the pipeline of a product: emit its prologue before the loop.

    This replaces `prefetch.begin` for products for which `prefetch.is_pipelined` holds, and has the same parameters.
    Both operands are prefetched, and none is transposed, so `_transposed` isn't needed.
    """
    loads = [v.op for v in product.operands[:2] if v.op is not None]
    parts = _parts(context, plan, loads)
    sides: list[PrefetchedOperand] = []
    for operand_number, (op, count) in enumerate(zip(loads, parts, strict=True)):
        sides.append(_side(context, op, 1 - operand_number, count))
    body = loop.regions[0]
    pipeline = PipelinedProduct(
        loop, product, list(numbers), sides, list(bounds), resolve, frozenset(body.ops), [body.args[0]], plan=plan,
        parts=max(parts), late=product.attrs["prefetch"] == "overlap late",
    )  # fmt: skip
    context.notes.append(f"{product.loc}: rounds overlap{_parts_note(loads, parts)}")
    pipeline.start(context)
    return pipeline


def _parts_note(loads: Sequence[Op], parts: Sequence[int]) -> str:
    """Return the text of a note about operands that are staged in parts."""
    texts = [f", {op.operands[0].name} is staged in {n} parts" for op, n in zip(loads, parts, strict=True) if n > 1]
    return "".join(texts)


def _side(context: LoweringContext, op: Op, inner: int, parts: int) -> PipelinedOperand:
    """Return an operand that is staged in `parts` parts along K.

    `op` is its `tile_load`, and `inner` the axis of the operand that is K.
    """
    label = op.operands[0].name or "tile"
    shape = list(tile_of(op.result).shape)  # of one part
    shape[inner] //= parts
    place, slots = shared_operands.reserve(context, op, label, (shape[0], shape[1]))
    elements_per_vector = shared_operands.VECTOR_BYTES // tile_of(op.result).dtype.itemsize
    if place.along == inner:
        shifts = tuple((0, part * shape[inner] // elements_per_vector) for part in range(parts))
    else:
        shifts = tuple((part * shape[inner], 0) for part in range(parts))

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return shared_operands.vectors(context, op, operands, slots)

    return PipelinedOperand(
        op,
        place,
        fetch,
        lambda memory, values: shared_operands.write(context, memory, slots, values),
        tuple(slots),
        shifts,
    )


def _parts(context: LoweringContext, plan: Plan, loads: Sequence[Op]) -> tuple[int, int]:
    """Return the numbers of parts into which operands A and B are divided along K.

    These are the smallest numbers for which the operands fit into half of the shared memory, so that two workgroups can
    share a core. If the operands never fit into half, these are the smallest numbers for which they fit at all. At most
    one operand is divided: B, or A if only A's rows in shared memory run across K, as the parts of such an operand
    consist of whole rows.
    """
    # K is axis 1 of A (operand 0) and axis 0 of B (operand 1).
    runs_across_k = [op.attrs["axes"][-1] == operand_number for operand_number, op in enumerate(loads)]
    divided_operand = 0 if runs_across_k[0] and not runs_across_k[1] else 1
    depth = tile_of(loads[0].result).shape[1]
    min_depth = max(plan.shape.k, shared_operands.VECTOR_BYTES // plan.operand_dtype.itemsize)
    free_bytes = context.options.shared_bytes - context.used_bytes()
    for limit in (context.options.shared_bytes // 2, free_bytes):
        count = 1
        while depth % (count * min_depth) == 0:
            parts = (count, 1) if divided_operand == 0 else (1, count)
            bytes_needed = 0
            for operand_number, (op, part_count) in enumerate(zip(loads, parts, strict=True)):
                shape = list(tile_of(op.result).shape)
                shape[1 - operand_number] //= part_count
                bytes_needed += shared_operands.bytes_of(op, (shape[0], shape[1]))
            if bytes_needed <= min(limit, free_bytes):
                return parts
            count *= 2
    return 1, 1
