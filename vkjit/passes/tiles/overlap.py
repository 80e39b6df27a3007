"""Products of a loop on matrices whose rounds overlap: while one slice of the factors is multiplied, the next one is on its way
into matrices, the next round's vectors are written to shared memory, and those of the round after are on their way into registers.

Enters: a `for` with a product whose attribute `prefetch` is "overlap" or "overlap late". Leaves: what the loop carries besides::

    shared memory = round 0, ahead = load(round 1), next = matrices of the first slice
    for k, ahead, next:
        for each slice:
            after the last one of a part:  barrier; shared memory = ahead; ahead = load(...); barrier
            ("late": the load comes after the second barrier)
            current, next = next, matrices of the following slice
            multiply current

The depth of a round may be more than shared memory has room for: then one factor is there in `parts`, one after the other, and
the loads of the other one are spread over them. Rules 1 to 3 of `prefetch` hold;
shared memory is the product's own for as long as the loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...ir.core import Op, Value
from ..memory import alias_class
from . import matrices, packing
from .fragments import Fragments, Plan
from .held import Workshop
from .packing import Packed, Spot
from .prefetch import Ahead, Piece

__all__ = ["Overlapped", "begin"]

Slice = tuple[list[Value], list[Value]]
"""Matrices of the left factor and of the right one."""


@dataclass(frozen=True, slots=True, eq=False)
class Side(Piece):
    """One factor: `spots` are those of what is in shared memory at a time, `shifts` where its parts begin: lines and columns."""

    spots: tuple[Spot, ...]
    shifts: tuple[tuple[int, int], ...]

    @property
    def whole(self) -> bool:
        return len(self.shifts) == 1


Wanted = list[tuple[Side, int, slice]]
"""What is loaded: parts of factors, and which of their vectors."""


@dataclass(slots=True)
class Overlapped(Ahead):
    """As `Ahead`; `parts` of one factor are in shared memory one after the other."""

    plan: Plan = field(kw_only=True)
    parts: int = field(kw_only=True)
    late: bool = field(kw_only=True)
    waiting: dict[Side, list[Value]] = field(default_factory=dict)

    @property
    def sides(self) -> list[Side]:
        return [piece for piece in self.pieces if isinstance(piece, Side)]

    @property
    def slices(self) -> int:
        """Of a round."""
        return int(self.product.operands[0].type.shape[1]) // self.plan.shape.k  # type: ignore[attr-defined]

    def finish(self, shop: Workshop) -> None:
        """The loop is over: gives its memory back."""
        for side in self.sides:
            shop.release(side.place.array)

    def start(self, shop: Workshop) -> None:
        """Before the loop: the first round in shared memory, vectors of the following ones and the first slice ahead."""
        first, every = self.fixed[0], slice(None)
        begun = self._ahead(shop, first, 0, [(side, 0, every) for side in self.sides])
        for side in self.sides:
            shop.access(side.place.array, "w")
        for side in self.sides:
            side.write(side.place, begun[side])
        for side in self.sides:
            shop.access(side.place.array, "r")
        self.waiting = {side: [] for side in self.sides}
        self._load(shop, first, -1)
        left, right = self._slice(shop, 0)
        self.current = [*self._carried(), *left, *right]

    def _carried(self) -> list[Value]:
        self.counts = [len(self.waiting[side]) for side in self.sides]
        return [v for side in self.sides for v in self.waiting[side]]

    def multiply(self, shop: Workshop, sums: Fragments) -> Fragments:
        """The product of a round, with all that happens meanwhile."""
        rest = iter(self.current)
        self.waiting = {side: [next(rest) for _ in range(n)] for side, n in zip(self.sides, self.counts, strict=True)}
        left = [next(rest) for _ in range(self.plan.rows)]
        right = list(rest)
        each = self.slices // self.parts
        for number in range(self.slices):
            part, within = divmod(number, each)
            if within == each - 1:
                self._turn(shop, part)
            following = self._slice(shop, number + 1)
            sums = matrices.add_products(shop, sums, left, right)
            left, right = following
        self.following = [*self._carried(), *left, *right]
        return sums

    def _turn(self, shop: Workshop, part: int) -> None:
        """Shared memory gets what comes after a part; what comes after that begins to be loaded."""
        last = part == self.parts - 1
        changed = [side for side in self.sides if last or not side.whole]
        for side in changed:
            shop.access(side.place.array, "w")
        for side in changed:
            side.write(side.place, self.waiting[side])
            self.waiting[side] = []
        if not self.late:
            self._load(shop, self.counters[-1], part)
        for side in changed:
            shop.access(side.place.array, "r")
        if self.late:
            self._load(shop, self.counters[-1], part)

    def _load(self, shop: Workshop, counter: Value, part: int) -> None:
        """What can be loaded once a part is done with, -1 being the one before the loop's first: of a factor in parts the next
        one but one, of the other one a portion of its next vectors.
        """
        wanted: dict[int, Wanted] = {}
        for side in self.sides:
            rounds, which = divmod(part + 2, self.parts)
            chunk = slice(None)
            if side.whole:
                rounds, number = divmod(part + 1, self.parts)
                rounds, which = rounds + 1, 0
                size = -(-len(side.spots) // self.parts)
                chunk = slice(number * size, (number + 1) * size)
            wanted.setdefault(rounds, []).append((side, which, chunk))
        for rounds, some in wanted.items():
            for side, values in self._ahead(shop, counter, rounds, some).items():
                self.waiting[side] += values

    def _ahead(self, shop: Workshop, counter: Value, rounds: int, wanted: Wanted) -> dict[Side, list[Value]]:
        """Vectors of the factors some rounds after the one of a counter."""

        def load(at: Value) -> list[list[Value]]:
            mapping = dict.fromkeys(self.counters, at)
            return [
                packing.vectors(
                    shop, side.load, [self._cloned(shop, v, mapping) for v in side.load.operands], side.spots[chunk],
                    side.shifts[which],
                )
                for side, which, chunk in wanted
            ]  # fmt: skip

        sides = [side for side, _, _ in wanted]
        if counter is not self.fixed[0]:
            return dict(zip(sides, load(self.later(shop, rounds)), strict=True))
        counts: list[int] = []
        at = counter
        for _ in range(rounds):
            at = shop.builder.emit("add", at, self.fixed[2])

        def flat() -> list[Value]:
            found = load(at)
            counts.extend(map(len, found))
            return [v for some in found for v in some]

        rest = iter(self.first(shop, at, flat))
        return {side: [next(rest) for _ in range(count)] for side, count in zip(sides, counts, strict=True)}

    def _slice(self, shop: Workshop, number: int) -> Slice:
        """The matrices of a slice; the first one of the following round has the number after the last. What they read was
        written before a barrier, in this round or in the one before.
        """
        each = self.slices // self.parts
        places = []
        for side in self.sides:
            assert isinstance(side.place, Packed)
            shop.pending.add((alias_class(side.place.array), "r"))
            places.append((side.place, number % (self.slices if side.whole else each) * self.plan.shape.k))
        return matrices.slice_of(shop, self.plan, *places)


def begin(
    shop: Workshop, loop: Op, product: Op, numbers: Sequence[int], fixed: Sequence[Value], plan: Plan,
    _packs: Sequence[bool] | None, resolve: Callable[[Value], Value],
) -> Overlapped:  # fmt: skip
    """Loads what comes first, before the loop. Both factors are cut into whole vectors."""
    loads = [v.op for v in product.operands[:2] if v.op is not None]
    parts = _parts(shop, plan, loads)
    sides: list[Piece] = []
    for inner, (op, count) in enumerate(zip(loads, parts, strict=True)):
        sides.append(_side(shop, op, 1 - inner, count))
    body = loop.regions[0]
    made = Overlapped(
        loop, product, list(numbers), sides, list(fixed), resolve, frozenset(body.ops), [body.args[0]], plan=plan, parts=max(parts),
        late=product.attrs["prefetch"] == "overlap late",
    )  # fmt: skip
    shop.notes.append(f"{product.loc}: rounds overlap{_told(loads, parts)}")
    made.start(shop)
    return made


def _told(loads: Sequence[Op], parts: Sequence[int]) -> str:
    cut = [f", {op.operands[0].name} is staged in {n} parts" for op, n in zip(loads, parts, strict=True) if n > 1]
    return "".join(cut)


def _side(shop: Workshop, op: Op, inner: int, parts: int) -> Side:
    label, shape = op.operands[0].name or "tile", list(op.attrs["type"].shape)
    shape[inner] //= parts
    place, spots = packing.reserve(shop, op, label, (shape[0], shape[1]))
    each = packing.VECTOR_BYTES // op.attrs["type"].dtype.itemsize
    if place.along == inner:
        shifts = tuple((0, part * shape[inner] // each) for part in range(parts))
    else:
        shifts = tuple((part * shape[inner], 0) for part in range(parts))

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return packing.vectors(shop, op, operands, spots)

    return Side(op, place, fetch, lambda where, values: packing.write(shop, where, spots, values), tuple(spots), shifts)


def _parts(shop: Workshop, plan: Plan, loads: Sequence[Op]) -> tuple[int, int]:
    """Into how many parts the factors are cut: as few as leave room for two workgroups, else for one. Rather a factor whose
    lines lie across the depth, since its parts are still whole lines.
    """
    across = [op.attrs["axes"][-1] == number for number, op in enumerate(loads)]
    cut = 0 if across[0] and not across[1] else 1
    depth = loads[0].attrs["type"].shape[1]
    each = max(plan.shape.k, packing.VECTOR_BYTES // plan.factor.itemsize)
    room = shop.options.shared_bytes - shop.used_bytes()
    for most in (shop.options.shared_bytes // 2, room):
        count = 1
        while depth % (count * each) == 0:
            parts = (count, 1) if cut == 0 else (1, count)
            needed = 0
            for inner, (op, number) in enumerate(zip(loads, parts, strict=True)):
                shape = list(op.attrs["type"].shape)
                shape[1 - inner] //= number
                needed += packing.bytes_of(op, (shape[0], shape[1]))
            if needed <= min(most, room):
                return parts
            count *= 2
    return 1, 1
