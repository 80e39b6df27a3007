"""Memory layouts of arrays: strides, reversed axes, gaps, offsets, and redzones around the elements.

A `Placement` gives strides and offsets in elements. Byte images of arrays include redzones of known bytes, so that
writes outside an array are detected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["C_ORDER", "REDZONE_BYTE", "REDZONE_ELEMENTS", "Layout", "Placement", "image", "stray_writes", "view_of"]

Bytes = npt.NDArray[np.uint8]

REDZONE_ELEMENTS = 64
"""Elements of redzone before and after an array."""

REDZONE_BYTE = 0xA5
"""The byte that fills redzones and gaps."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Location of an array's elements in a buffer of `count` elements, redzones included.

    `strides` and `first`, the offset of the first element, are in elements.
    """

    strides: tuple[int, ...]
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A memory layout of an array.

    `order`: the axes from the slowest to the fastest in memory (None: C order). `step`: stride of the fastest axis.
    `backwards`: axes with negative strides. `repeated`: axes of stride 0. `offset`: elements before the array in its
    buffer. `inner`: number of trailing axes that are contiguous, like a vector field in an array of structs; `pitch`:
    distance in elements between these, which is the size of the struct.
    """

    order: tuple[int, ...] | None = None
    step: int = 1
    backwards: tuple[int, ...] = ()
    repeated: tuple[int, ...] = ()
    offset: int = 0
    inner: int = 0
    pitch: int = 0

    def __str__(self) -> str:
        words = []
        if self.order is not None and self.order != tuple(range(len(self.order))):
            words.append(f"axes in memory order {self.order}")
        if self.step != 1:
            words.append(f"every {self.step}th element of a larger array" if self.step > 2 else "every other element")
        words += [f"axis {axis} reversed" for axis in self.backwards]
        words += [f"axis {axis} repeated (stride 0)" for axis in self.repeated]
        if self.offset:
            words.append(f"{self.offset} elements into its buffer")
        return ", ".join(words) or "C order"

    def place(self, shape: tuple[int, ...]) -> Placement:
        """Return strides and first element for a shape."""
        order = self.order if self.order is not None and len(self.order) == len(shape) else tuple(range(len(shape)))
        strides, reach = [0] * len(shape), self.step
        first_inner = len(shape) - self.inner
        for axis in reversed(order):
            if self.pitch and axis == first_inner - 1:
                reach = self.pitch * self.step
            if axis in self.repeated:
                continue
            strides[axis] = reach
            reach *= max(shape[axis], 1)
        first = REDZONE_ELEMENTS + self.offset
        for axis in () if 0 in shape else self.backwards:  # an empty array has no last element to start from
            if axis < len(shape) and strides[axis]:
                first += strides[axis] * max(shape[axis] - 1, 0)
                strides[axis] = -strides[axis]
        span = 1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True) if n > 0)
        return Placement(tuple(strides), first, 2 * REDZONE_ELEMENTS + self.offset + (0 if 0 in shape else span))


C_ORDER = Layout()


def view_of(data: Bytes, placement: Placement, shape: tuple[int, ...], storage: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a view of the array's elements in a byte image."""
    cells = data.view(storage)
    strides = [s * storage.itemsize for s in placement.strides]
    return np.lib.stride_tricks.as_strided(cells[placement.first :], shape, strides)


def image(
    values: npt.NDArray[Any] | None, layout: Layout, shape: tuple[int, ...], storage: np.dtype[Any], poison: int
) -> Bytes:
    """Return the bytes of a buffer that contains the array.

    `values` are stored once along axes of stride 0; None fills the array with the byte `poison`.
    """
    placement = layout.place(shape)
    data = np.full(placement.count * storage.itemsize, REDZONE_BYTE, np.uint8)
    if 0 in shape:
        return data
    view = view_of(data, placement, shape, storage)
    once = tuple(slice(0, 1) if axis in layout.repeated else slice(None) for axis in range(len(shape)))
    if values is None:
        view[once] = np.frombuffer(bytes([poison]) * storage.itemsize, storage)[0]
    else:
        view[once] = values
    return data


def stray_writes(
    found: Bytes, before: Bytes, layout: Layout, shape: tuple[int, ...], storage: np.dtype[Any]
) -> list[int]:
    """Return where the buffer changed outside the array, as offsets in elements from the array's first one."""
    placement = layout.place(shape)
    changed = (found != before).reshape(-1, storage.itemsize).any(axis=1)
    if 0 not in shape:
        view_of(changed.view(np.uint8), placement, shape, np.dtype(np.uint8))[...] = 0
    return [int(p) - placement.first for p in np.flatnonzero(changed)]
