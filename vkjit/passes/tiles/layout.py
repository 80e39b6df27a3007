"""Which invocation holds which elements of a tile.

Enters: shapes and the number of invocations. Leaves: a `Layout`, one `Axis` for each axis of a tile. The invocations of a
scope are numbered; some bits of that number, the `bits` from `shift` on, say where an invocation stands along an axis.
It holds groups of `group` neighbours there, each a whole round of invocations after the one before::

    position(slot, place) = (slot // group) * (2**bits * group) + place * group + slot % group

Axes use different bits. Invocations that differ only in bits which no axis uses hold the same elements; the one where all
those are 0 is the owner, which alone writes. Slots beyond the end of an axis hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

__all__ = ["Axis", "Layout", "blocks", "canonical", "ceil_log2", "squared", "staging"]


def ceil_log2(number: int) -> int:
    """The bits of a number of places."""
    return max(number - 1, 0).bit_length()


@dataclass(frozen=True, slots=True)
class Axis:
    """How one axis of `size` elements is spread; see the module's docstring."""

    size: int
    shift: int = 0
    bits: int = 0
    group: int = 1

    @property
    def round(self) -> int:
        """Elements that all invocations hold with one group each."""
        return self.group << self.bits

    @property
    def held(self) -> int:
        """Slots of each invocation."""
        return -(-self.size // self.round) * self.group

    @property
    def exact(self) -> bool:
        """Whether every slot holds an element."""
        return self.size % self.round == 0

    def offset(self, slot: int) -> int:
        """The part of a slot's position that doesn't depend on the invocation."""
        return slot // self.group * self.round + slot % self.group

    @property
    def used(self) -> int:
        """The bits of the invocation's number that count, as a mask."""
        return ((1 << self.bits) - 1) << self.shift

    def __str__(self) -> str:
        by = f" by {self.group}" if self.group > 1 else ""
        return f"{self.size} = {self.held} x {1 << self.bits}{by}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a tile, and the scope whose invocations hold it."""

    axes: tuple[Axis, ...]
    scope: str = "workgroup"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def held(self) -> int:
        """Slots of each invocation."""
        return math.prod(axis.held for axis in self.axes)

    @property
    def exact(self) -> bool:
        """Whether every slot holds an element."""
        return all(axis.exact for axis in self.axes)

    @property
    def used(self) -> int:
        """The bits of the invocation's number that count, as a mask."""
        return sum(axis.used for axis in self.axes)

    def slots(self) -> Iterator[tuple[int, ...]]:
        """The slots in their order: along the last axis first."""
        return product(*(range(axis.held) for axis in self.axes))

    def number(self, slot: tuple[int, ...]) -> int:
        """The place of a slot in that order."""
        found = 0
        for axis, one in zip(self.axes, slot, strict=True):
            found = found * axis.held + one
        return found

    def without(self, axis: int) -> Layout:
        """What is left of it when an axis goes."""
        left = (*self.axes[:axis], *self.axes[axis + 1 :])
        return replace(self, axes=left or (Axis(1),))

    def permuted(self, axes: tuple[int, ...]) -> Layout:
        """The axes in another order."""
        return replace(self, axes=tuple(self.axes[a] for a in axes))

    def operand(self, shape: tuple[int, ...]) -> Layout:
        """The layout of an operand of that shape that broadcasts to this one without moving anything."""
        own = self.axes[len(self.axes) - len(shape) :]
        return replace(self, axes=tuple(Axis(1) if s == 1 else a for s, a in zip(shape, own, strict=True)))

    def reshaped(self, shape: tuple[int, ...]) -> Layout | None:
        """The layout of the same elements with axes of size 1 added or left out; None for other shapes."""
        rest = [axis for axis in self.axes if axis.size != 1]
        if [axis.size for axis in rest] != [size for size in shape if size != 1]:
            return None
        following = iter(rest)
        return replace(self, axes=tuple(Axis(1) if size == 1 else next(following) for size in shape))

    def __str__(self) -> str:
        return ", ".join(map(str, self.axes))


def _grouped(size: int, bits: int, most: int) -> int:
    """How many neighbours an invocation holds: up to `most`, where every group is whole."""
    group = most
    while group > 1 and size % (group << bits):
        group //= 2
    return group


def canonical(shape: tuple[int, ...], bits: int, scope: str, vector: int = 1, lanes: int = 0) -> Layout:
    """The layout of a tile that nothing else decides, over 2**bits invocations.

    Matrices: half of the bits, the upper ones, go to rows, so that tiles with as many rows agree on who holds which; at
    least 2**lanes neighbours, which are one vector of a processor, stay in one row.
    """
    if len(shape) == 2:
        rows, columns = shape
        upper = min(ceil_log2(rows), bits // 2, max(bits - lanes, 0))
        lower = min(ceil_log2(columns), bits - upper)
        if rows > 1 and lower < bits - upper and columns == 1:
            upper = min(ceil_log2(rows), bits - lower)
        group = _grouped(columns, lower, vector)
        row = Axis(rows, bits - upper, upper)
        return Layout((row, Axis(columns, 0, lower, group)), scope)
    axes: list[Axis] = []
    shift = 0
    for number, size in enumerate(reversed(shape)):
        own = min(ceil_log2(size), bits - shift)
        axes.append(Axis(size, shift, own, _grouped(size, own, vector) if number == 0 else 1))
        shift += own
    return Layout(tuple(reversed(axes)), scope)


def squared(layout: Layout, vector: int) -> Layout:
    """The layout of a matrix with up to `vector` neighbours along its rows' axis in groups, too, where every group is whole."""
    rows, columns = layout.axes
    return replace(layout, axes=(replace(rows, group=_grouped(rows.size, rows.bits, vector)), columns))


def blocks(shape: tuple[int, ...], bits: int, scope: str, vector: int) -> Layout | None:
    """The layout of a matrix in squares of `vector` elements a side, one or several to an invocation; None for too few."""
    rows, columns = shape
    lower = min(bits // 2, ceil_log2(columns // vector))
    upper = min(bits - lower, ceil_log2(rows // vector))
    lower = bits - upper
    if rows % (vector << upper) or columns % (vector << lower):
        return None
    return Layout((Axis(rows, lower, upper, vector), Axis(columns, 0, lower, vector)), scope)


def staging(shape: tuple[int, ...], fastest: int, bits: int, scope: str, vector: int = 1) -> Layout:
    """The layout in which a tile is read from memory in which its axis `fastest` is contiguous."""
    axes = [Axis(size) for size in shape]
    shift = 0
    for number in (fastest, *(n for n in reversed(range(len(shape))) if n != fastest)):
        size = shape[number]
        group = vector if number == fastest and size % vector == 0 else 1
        own = min(ceil_log2(size // group), bits - shift)
        axes[number] = Axis(size, shift, own, _grouped(size, own, group))
        shift += own
    return Layout(tuple(axes), scope)
