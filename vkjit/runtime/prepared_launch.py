"""Prepared launches: the argument block is constant except for holes, which are filled from the values of a call.

The values of a call are the addresses of its arrays, or their whole descriptors if the launch serves all shapes,
followed by the scalars. The launch cache of kernels and the op cache prepare launches; devices convert them to
`Launcher`s, which run them for other arrays with little host work.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .array import DeviceArray
    from .device import Buffer, Device, LoadedKernel
    from .observers import Extents

__all__ = ["REPORT", "CallPattern", "Hole", "Launcher", "Picker", "PreparedLaunch", "ShapeRule", "picker", "prepare"]

REPORT = -1
"""The `number` of a `Hole` for the address of a report slot: the index of the last item in `PreparedLaunch.fields`."""

Picker = Callable[[Any], tuple[Any, ...]]
"""Returns some items of a sequence, in a fixed order."""

Grid = tuple[int, int, int]

Launcher = Callable[[Sequence[Any], tuple[Any, ...], Grid], bool]
"""Launches, given the buffers by number, the values, and the grid, which must be nonempty and within the device's
limits. Returns False and has no effect if the launch must take the slow path."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A field of the argument block that differs between launches.

    `number` is the index of a value, or REPORT. `shift` is added to the value. `code` is the struct code.
    """

    offset: int
    number: int
    shift: int = 0
    code: str = "Q"


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A dispatch with holes in its argument block. `reads` and `writes` are numbers of buffers.

    `block` is the argument block, with zeros in the `holes`. For the block of a call, one tuple is made of the call's
    values, a sum for each (index of a value, shift) in `shifted`, the constant `pieces` of the block between the holes,
    and the address of a report. `pick` selects its items in the order of the block, and `packer` packs them.
    """

    kernel: LoadedKernel
    block: bytes
    holes: tuple[Hole, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    packer: struct.Struct
    pick: Picker
    shifted: tuple[tuple[int, int], ...]
    pieces: tuple[bytes, ...]

    @property
    def used(self) -> tuple[int, ...]:
        """The numbers of the buffers that the launch uses."""
        return self.reads + self.writes

    def fields(self, values: tuple[Any, ...], report: int = 0) -> tuple[Any, ...]:
        """Return the arguments of the packer."""
        if self.shifted:
            values += tuple([values[number] + shift for number, shift in self.shifted])
        return self.pick((*values, *self.pieces, report))

    def run(
        self,
        device: Device,
        buffers: Sequence[Buffer],
        values: tuple[Any, ...],
        groups: Grid,
        extents: Extents | None = None,
    ) -> None:
        """Launch through `Device.launch`. Raises struct.error or OverflowError for a scalar that doesn't fit.

        `extents` is that of the `LaunchRequest`.
        """
        block = self.packer.pack(*self.fields(values))
        reads, writes = [buffers[i] for i in self.reads], [buffers[i] for i in self.writes]
        device.launch((self.kernel, groups, block, reads, writes, extents))


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """The dependence of a launch for all shapes on the shapes of its arrays: sizes that must be equal, and the grid.

    `equal` are pairs of (number of an array, axis). `sizes` are (number of an array, axis, required size). The grid
    covers the elements of array `over` with workgroups of size `local`; `over` is None for a fixed grid.
    """

    equal: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    sizes: tuple[tuple[int, int, int], ...]
    over: int | None
    local: Grid

    def matches(self, arrays: Sequence[DeviceArray]) -> bool:
        """Return True if the shapes of the arrays satisfy the rule."""
        for (array, axis), (other, other_axis) in self.equal:
            if arrays[array].shape[axis] != arrays[other].shape[other_axis]:
                return False
        return not self.sizes or all(arrays[array].shape[axis] == size for array, axis, size in self.sizes)


@dataclass(frozen=True, slots=True)
class CallPattern:
    """The conditions that machine code checks before it runs a prepared launch for a call."""

    example: tuple[Any, ...]
    """The arguments of such a call: tensors, arrays or buffers, scalars, constants."""
    places: tuple[int, ...]
    """For each buffer, by number, the index of its argument."""
    groups: Grid = (1, 1, 1)
    """The grid, unless there are `shapes`."""
    shapes: ShapeRule | None = None
    scalars: tuple[int, ...] = ()
    """The indices of the scalar arguments."""
    constants: tuple[int, ...] = ()
    """The indices of the arguments that must be the same objects as in `example`."""
    written: tuple[int, ...] = ()
    """The indices of the arguments whose version counter the launch increments."""
    checked: bool = True
    """True if arrays must have the example's specialization class, and, without `shapes`, its shape and strides."""
    names: tuple[tuple[dict[str, Any], str, Any], ...] = ()
    """Variables that the kernel captures: (dictionary, name, value). Each must still have that value."""
    cells: tuple[tuple[Any, Any], ...] = ()
    """The same for closure cells: (cell, value)."""
    blocks: list[Any] = field(default_factory=list)
    """The open `sanitized` blocks: none may be open."""
    missing: object = None
    """The value in `names` of a variable that doesn't exist."""


def prepare(
    kernel: LoadedKernel,
    block: bytes,
    holes: Sequence[Hole],
    count: int,
    reads: tuple[int, ...],
    writes: tuple[int, ...],
) -> PreparedLaunch:
    """Return a prepared launch with these holes in its argument block; `count` is the number of values."""
    ordered = sorted(holes, key=lambda hole: hole.offset)
    shifted = sorted({(hole.number, hole.shift) for hole in ordered if hole.shift})
    pieces: list[bytes] = []
    picked: list[int] = []  # indices into the tuple that `PreparedLaunch.fields` picks from
    text, position, cleared = "<", 0, bytearray(block)
    for hole in (*ordered, Hole(len(block), REPORT, code="")):  # the last one, of size 0, adds the piece at the end
        if hole.offset > position:
            picked.append(count + len(shifted) + len(pieces))
            pieces.append(bytes(block[position : hole.offset]))
            text += f"{hole.offset - position}s"
        size = struct.calcsize(f"<{hole.code}")
        if hole.code:
            picked.append(count + shifted.index((hole.number, hole.shift)) if hole.shift else hole.number)
            text += hole.code
            cleared[hole.offset : hole.offset + size] = bytes(size)
        position = hole.offset + size
    return PreparedLaunch(
        kernel, bytes(cleared), tuple(ordered), reads, writes,
        struct.Struct(text), picker(picked), tuple(shifted), tuple(pieces),
    )  # fmt: skip


def picker(places: Sequence[int]) -> Picker:
    """Return a function that selects the items at these indices.

    It returns a tuple for tuples. For other sequences and fewer than two indices, it returns a slice of the sequence.
    """
    if len(places) > 1:
        return operator.itemgetter(*places)
    first = places[0] if places else 0
    return operator.itemgetter(slice(first, (first + 1 or None) if places else 0))
