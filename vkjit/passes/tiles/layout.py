"""Distributed layouts: which invocation holds which elements of a tile, in which register.

A `Layout` has one `Axis` for each axis of the tile. The invocations of a scope (workgroup or subgroup) are numbered.
Along an axis, the invocation's coordinate is made of `bits` bits of its number, from bit `shift` up. The axis is
divided into groups of `group` contiguous elements, which go to the invocations in turn, by increasing coordinate. A
cycle is 2**bits groups, one for each coordinate; after a cycle, the invocations with coordinate 0 get the next group.
An invocation keeps its elements in slots, which are registers. Its slot `slot` along the axis holds the element with
the index::

    index(slot, coordinate) = (slot // group) * (2**bits * group) + coordinate * group + slot % group

Axes use different bits of the number. Invocations that differ only in bits that no axis uses hold replicas of the same
elements. Of such invocations, the one where all these bits are 0 is the owner; only the owner writes the elements.
Slots past the end of an axis hold undefined values.

Parameters of the functions: `bits` is the base-2 logarithm of the number of invocations that a tile is distributed
over, `vector` the largest size of a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

__all__ = ["Axis", "Layout", "blocked", "ceil_log2", "default_layout", "grouped_rows", "staging"]


def ceil_log2(number: int) -> int:
    """Return the base-2 logarithm rounded up: the number of bits that the indices of `number` items need."""
    return max(number - 1, 0).bit_length()


@dataclass(frozen=True, slots=True)
class Axis:
    """The distribution of one tile axis of `size` elements over invocations.

    The invocation's coordinate is made of `bits` bits of its number from bit `shift` up. `group` is the number of
    contiguous elements that an invocation holds in each cycle (see the module's formula).
    """

    size: int
    shift: int = 0
    bits: int = 0
    group: int = 1

    @property
    def cycle(self) -> int:
        """The number of elements in one cycle, in which each invocation gets one group."""
        return self.group << self.bits

    @property
    def slots_per_invocation(self) -> int:
        """The number of slots of each invocation along the axis."""
        return -(-self.size // self.cycle) * self.group

    @property
    def exact(self) -> bool:
        """True if every slot holds an element, as cycles divide the axis evenly."""
        return self.size % self.cycle == 0

    def offset(self, slot: int) -> int:
        """Return the part of a slot's element index that doesn't depend on the invocation."""
        return slot // self.group * self.cycle + slot % self.group

    @property
    def used_mask(self) -> int:
        """Mask of the bits of the invocation's number that the axis uses."""
        return ((1 << self.bits) - 1) << self.shift

    def __str__(self) -> str:
        by = f" by {self.group}" if self.group > 1 else ""
        return f"{self.size} = {self.slots_per_invocation} x {1 << self.bits}{by}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The distribution of a tile's axes over the invocations of a scope."""

    axes: tuple[Axis, ...]
    scope: str = "workgroup"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def slots_per_invocation(self) -> int:
        """The number of slots of each invocation."""
        return math.prod(axis.slots_per_invocation for axis in self.axes)

    @property
    def exact(self) -> bool:
        """True if every slot holds an element."""
        return all(axis.exact for axis in self.axes)

    @property
    def used_mask(self) -> int:
        """Mask of the bits of the invocation's number that some axis uses."""
        return sum(axis.used_mask for axis in self.axes)

    def slots(self) -> Iterator[tuple[int, ...]]:
        """Iterate over the slots in C order, the last axis fastest."""
        return product(*(range(axis.slots_per_invocation) for axis in self.axes))

    def number(self, slot: tuple[int, ...]) -> int:
        """Return the number of a slot in the order of `slots`. `slot` has its number along each axis."""
        result = 0
        for axis, axis_slot in zip(self.axes, slot, strict=True):
            result = result * axis.slots_per_invocation + axis_slot
        return result

    def without(self, axis: int) -> Layout:
        """Return the layout without one axis, as after a reduction. If no axis remains, it gets an axis of size 1."""
        left = (*self.axes[:axis], *self.axes[axis + 1 :])
        return replace(self, axes=left or (Axis(1),))

    def permuted(self, axes: tuple[int, ...]) -> Layout:
        """Return the layout with its axes permuted: axis i of the result is axis `axes[i]` of this layout."""
        return replace(self, axes=tuple(self.axes[a] for a in axes))

    def operand(self, shape: tuple[int, ...]) -> Layout:
        """Return the layout that an operand of an elementwise operation needs if the result has this layout.

        With it, an invocation holds the operands of each of its slots. `shape` is the operand's shape, which must
        broadcast to the result's.
        """
        own = self.axes[len(self.axes) - len(shape) :]
        return replace(self, axes=tuple(Axis(1) if s == 1 else a for s, a in zip(shape, own, strict=True)))

    def reshaped(self, shape: tuple[int, ...]) -> Layout | None:
        """Return the layout after a reshape that only adds or removes axes of size 1; None for other shapes."""
        kept = [axis for axis in self.axes if axis.size != 1]
        if [axis.size for axis in kept] != [size for size in shape if size != 1]:
            return None
        remaining = iter(kept)
        return replace(self, axes=tuple(Axis(1) if size == 1 else next(remaining) for size in shape))

    def __str__(self) -> str:
        return ", ".join(map(str, self.axes))


def _group_size(size: int, bits: int, largest: int) -> int:
    """Return the largest of `largest`, `largest` / 2, ... for which groups of that size, in cycles of 2**bits groups,
    divide `size` evenly; 1 if there is none.
    """
    group = largest
    while group > 1 and size % (group << bits):
        group //= 2
    return group


def default_layout(shape: tuple[int, ...], bits: int, scope: str, vector: int = 1, lane_bits: int = 0) -> Layout:
    """Return the default layout of a tile, over 2**bits invocations.

    For two axes, up to half of the bits, the upper ones, go to the row axis. As a rule, their number doesn't depend on
    the number of columns, so tiles with the same number of rows distribute their rows in the same way. At least
    2**lane_bits consecutive invocations, which form one vector on CPUs, lie along a row. For other numbers of axes, the
    last axis gets as many bits as it can use, then the axis before it, and so on.
    """
    if len(shape) == 2:
        rows, columns = shape
        row_bits = min(ceil_log2(rows), bits // 2, max(bits - lane_bits, 0))
        column_bits = min(ceil_log2(columns), bits - row_bits)
        if rows > 1 and column_bits < bits - row_bits and columns == 1:  # a single column leaves all bits to the rows
            row_bits = min(ceil_log2(rows), bits - column_bits)
        group = _group_size(columns, column_bits, vector)
        row = Axis(rows, bits - row_bits, row_bits)
        return Layout((row, Axis(columns, 0, column_bits, group)), scope)
    axes: list[Axis] = []
    shift = 0
    for number, size in enumerate(reversed(shape)):
        axis_bits = min(ceil_log2(size), bits - shift)
        axes.append(Axis(size, shift, axis_bits, _group_size(size, axis_bits, vector) if number == 0 else 1))
        shift += axis_bits
    return Layout(tuple(reversed(axes)), scope)


def grouped_rows(layout: Layout, vector: int) -> Layout:
    """Return a matrix layout with its row axis changed to groups of up to `vector` rows that divide the rows evenly.

    Each invocation then holds blocks of contiguous rows and columns, instead of contiguous columns only.
    """
    rows, columns = layout.axes
    return replace(layout, axes=(replace(rows, group=_group_size(rows.size, rows.bits, vector)), columns))


def blocked(shape: tuple[int, ...], bits: int, scope: str, vector: int) -> Layout | None:
    """Return the layout of a matrix in blocks of `vector` x `vector` elements, which are distributed evenly over
    2**bits invocations; None if the matrix can't be divided that way.
    """
    rows, columns = shape
    column_bits = min(bits // 2, ceil_log2(columns // vector))
    row_bits = min(bits - column_bits, ceil_log2(rows // vector))
    column_bits = bits - row_bits  # the columns get the bits that the rows can't use, too
    if rows % (vector << row_bits) or columns % (vector << column_bits):
        return None
    return Layout((Axis(rows, column_bits, row_bits, vector), Axis(columns, 0, column_bits, vector)), scope)


def staging(shape: tuple[int, ...], fastest: int, bits: int, scope: str, vector: int = 1) -> Layout:
    """Return the layout for loading a tile whose axis `fastest` is contiguous in memory, with coalesced accesses."""
    axes = [Axis(size) for size in shape]
    shift = 0
    for number in (fastest, *(n for n in reversed(range(len(shape))) if n != fastest)):
        size = shape[number]
        group = vector if number == fastest and size % vector == 0 else 1  # wide accesses only along `fastest`
        axis_bits = min(ceil_log2(size // group), bits - shift)
        axes[number] = Axis(size, shift, axis_bits, _group_size(size, axis_bits, group))
        shift += axis_bits
    return Layout(tuple(axes), scope)
