"""Factors of the next round of a loop, on their way into registers while this round's are multiplied.

Enters: a `for` with products whose attribute `prefetch` asks for it, each. Leaves: what a loop carries besides, and
how it is made::

    next = load(first slices)                 where the loop has a first round
    for k, next:
        put next into shared memory           after a barrier: others may still read the last round's
        ("early": next = load(slices at k + step), or at k in the last round)
        barrier
        ("late": the same here)
        multiply

1. What is loaded ahead are factors that are slices which nothing else reads, padded with zeros, of arrays that the kernel never
   writes; where they lie follows from the counter by operations that may run at any time. A factor that is no slice is put
   into shared memory when its product comes, if it isn't there.
2. The loop's step is a constant above 0, and nothing leaves it early.
3. Nothing is read for a round that there isn't: promises about slices hold in rounds alone. The last one reads its own slices
   again.
4. Between the products of two rounds others may have a product's memory: nothing of it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...ir.builder import Builder
from ...ir.core import Op, Region, Value
from ...ir.ops import OPS, Effect
from ...ir.rewrite import clone_op, constant_of, exits_of, is_constant
from ...ir.types import Scalar, Type, Vector
from ..memory import AliasClass, alias_class
from . import packing, products
from .access import load
from .fragments import Plan
from .held import Held, Staged, Workshop
from .matrices import Kept, Source
from .packing import Packed

__all__ = ["Ahead", "Piece", "asked_for", "begin", "fits", "overlaps"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One factor: where it is staged at first, how its part of an invocation is loaded, given the operands of a `tile_load`, and
    how that is put into shared memory.
    """

    load: Op
    place: Staged | Packed
    fetch: Callable[[Sequence[Value]], list[Value]]
    write: Callable[[Any, Sequence[Value]], None]


@dataclass(slots=True)
class Ahead:
    """The product of a loop, its factors, and the values that this round was given (`current`) and hands on (`following`)."""

    loop: Op
    product: Op
    numbers: list[int]
    pieces: list[Piece]
    fixed: list[Value]
    resolve: Callable[[Value], Value]
    body: frozenset[Op]
    counters: list[Value]
    counts: list[int] = field(default_factory=list)
    current: list[Value] = field(default_factory=list)
    following: list[Value] = field(default_factory=list)

    def enter(self, counter: Value, given: Sequence[Value]) -> None:
        """The body begins: its counter, and what its round was given."""
        self.counters.append(counter)
        self.current = list(given)

    def places(self, shop: Workshop, others: dict[int, Callable[[], Source]]) -> tuple[Source, Source]:
        """Writes what this round was given, loads what the next one gets; gives where the factors are. `others` puts those which
        aren't loaded ahead there, by their number.
        """
        own = [replace(piece.place, array=shop.again(piece.place.array)) for piece in self.pieces]
        for place in own:
            shop.access(place.array, "w")
        rest = iter(self.current)
        for place, piece, count in zip(own, self.pieces, self.counts, strict=True):
            piece.write(place, [next(rest) for _ in range(count)])
        places: dict[int, Source] = dict(zip(self.numbers, own, strict=True))
        places |= {number: put() for number, put in others.items()}
        early = not self.product.attrs["prefetch"].endswith("late")
        if early:
            self._load_next(shop)
        for source in places.values():
            if not isinstance(source, Kept):
                shop.access(source.array, "r")
        if not early:
            self._load_next(shop)
        return places[0], places[1]

    def _load_next(self, shop: Workshop) -> None:
        self.following = self._fetched(shop, self.later(shop, 1))

    def later(self, shop: Workshop, rounds: int) -> Value:
        """The counter some rounds after the one that is running, where there is such a round, else that of this round: it is known
        to be one, and nobody looks at what is loaded then. A test around loads would make what follows wait for them.
        """
        b, own = shop.builder, self.counters[-1]
        at = own
        for _ in range(rounds):
            at = b.emit("add", at, self.fixed[2])
        if not rounds:
            return at
        exists = b.emit("and", b.emit("lt", at, self.fixed[1]), b.emit("gt", at, own))  # a counter may have wrapped
        return b.emit("select", exists, at, own)

    def _fetched(self, shop: Workshop, counter: Value) -> list[Value]:
        """The factors' parts in the round of a counter."""
        mapping = dict.fromkeys(self.counters, counter)
        parts = [piece.fetch([self._cloned(shop, v, mapping) for v in piece.load.operands]) for piece in self.pieces]
        self.counts = [len(part) for part in parts]
        return [v for part in parts for v in part]

    def start(self, shop: Workshop) -> None:
        """Loads the factors' parts of the first round, zeros where there is none."""
        self.current = self.first(shop, self.fixed[0], lambda: self._fetched(shop, self.fixed[0]))

    def first(self, shop: Workshop, counter: Value, load: Callable[[], list[Value]]) -> list[Value]:
        """Values that are loaded in front of the loop for the round of a counter, zeros where there is no such round."""
        b, inside, outside = shop.builder, Region(), Region()
        with b.at(inside):
            values = load()
            b.op("yield", *values)
        with b.at(outside):
            b.op("yield", *[_zero(b, v.type) for v in values])
        test = b.emit("lt", counter, self.fixed[1])
        if counter is not self.fixed[0]:
            test = b.emit("and", test, b.emit("gt", counter, self.fixed[0]))
        return shop.choose(test, [v.type for v in values], inside, outside)

    def _cloned(self, shop: Workshop, value: Value, mapping: dict[Value, Value]) -> Value:
        """The value as it is in another round."""
        if value in mapping:
            return mapping[value]
        op = value.op
        if op is None or op not in self.body:
            return self.resolve(value)
        for operand in op.operands:
            if operand not in mapping:
                mapping[operand] = self._cloned(shop, operand, mapping)
        made = clone_op(op, mapping)
        shop.builder.region.ops.append(made)
        return mapping[value]


def _zero(builder: Builder, kind: Type) -> Value:
    assert isinstance(kind, Scalar | Vector)
    return builder.const(0.0 if kind.dtype.is_float else 0, kind)


def asked_for(loop: Op) -> list[Op]:
    """The products of a loop that ask for it."""
    return [op for op in loop.regions[0].ops if op.name == "tile_mma" and op.attrs.get("prefetch")]


def fits(loop: Op, product: Op, written: Collection[AliasClass], uses: dict[Value, list[Op]]) -> tuple[list[int], str]:
    """Which factors of a product in a loop can be loaded ahead, 0 being the left one; why none is."""
    body = loop.regions[0]
    step, exits = loop.operands[2], list(exits_of(body))
    if not is_constant(step) or constant_of(step) <= 0 or exits != [body.terminator]:
        return [], "the loop's step isn't a constant above 0, or it is left early"
    inside, found = frozenset(body.ops), []
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
        found.append(number)
    return found, "" if found else "no factor is a slice that is loaded in the loop"


def _movable(value: Value, inside: frozenset[Op], body: Region) -> bool:
    """Whether a value is known in another round, given the counter (rule 1)."""
    if value.op is None:
        return value not in body.args[1:]
    if value.op not in inside:
        return True
    row = OPS[value.op.name]
    if row.effect != Effect.NONE or not row.speculatable or row.convergent or value.op.regions:
        return False
    return all(_movable(v, inside, body) for v in value.op.operands)


def overlaps(product: Op, plan: Plan | None, numbers: Sequence[int]) -> bool:
    """Whether rounds are to overlap, and may: see `overlap`."""
    if plan is None or len(numbers) < 2 or not product.attrs["prefetch"].startswith("overlap"):
        return False
    return all(v.op is not None and packing.can_pack(v.op, plan) for v in product.operands[:2])


def begin(
    shop: Workshop, loop: Op, product: Op, numbers: Sequence[int], fixed: Sequence[Value], plan: Plan | None,
    packs: Sequence[bool] | None, resolve: Callable[[Value], Value],
) -> Ahead:  # fmt: skip
    """Loads the factors of the first round that are slices, before the loop; `packs`: in vectors, and which are turned."""
    factors = [product.operands[number] for number in numbers]
    loads = [v.op for v in factors if v.op is not None]
    pieces = []
    for number, op in enumerate(loads):
        label = op.operands[0].name or "tile"
        if packs is not None:
            pieces.append(_packed(shop, op, label, turn=packs[number]))
        else:
            pieces.append(_staged(shop, op, label, lines=plan is not None))
    body = loop.regions[0]
    ahead = Ahead(loop, product, list(numbers), pieces, list(fixed), resolve, frozenset(body.ops), [body.args[0]])
    ahead.start(shop)
    for piece in pieces:
        shop.release(piece.place.array)
    return ahead


def _packed(shop: Workshop, op: Op, label: str, *, turn: bool) -> Piece:
    place, spots = packing.reserve(shop, op, label, turn=turn)

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return packing.vectors(shop, op, operands, spots)

    return Piece(op, place, fetch, lambda where, values: packing.write(shop, where, spots, values))


def _staged(shop: Workshop, op: Op, label: str, *, lines: bool) -> Piece:
    place, layout = products.reserve(shop, op, label, lines=lines)

    def fetch(operands: Sequence[Value]) -> list[Value]:
        return list(load(shop, op, operands, layout).values)

    return Piece(op, place, fetch, lambda where, values: products.write(shop, where, Held(layout, tuple(values))))
