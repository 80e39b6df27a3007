"""Memory layouts of arrays in property tests: strides, reversed axes, gaps, offsets, and redzones around the elements.

A `Layout` describes a layout independently of the array's shape; `Layout.place` gives a `Placement`, the strides and
offset for one shape. `image` makes the bytes of a buffer with the array in it. Redzones before and after the array, and
gaps in it, have known contents, so that `stray_writes` detects writes outside the array.
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
    """A memory layout of an array; distances are in elements.

    `order`: the axes from the slowest to the fastest in memory (None: C order). `step`: stride of the fastest axis.
    `backwards`: axes with negative strides. `repeated`: axes of stride 0. `offset`: distance from the start of the
    buffer, without its redzone, to the array.

    For a field of an array of structs, `pitch` is the size of the struct: the stride of the last axis of the array of
    structs. `inner` is the number of trailing axes that belong to the field itself, such as the axis of a vector. These
    axes are contiguous.
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
        """Return the strides, the offset of the first element and the buffer's size for an array of this shape."""
        order = self.order if self.order is not None and len(self.order) == len(shape) else tuple(range(len(shape)))
        strides, stride = [0] * len(shape), self.step
        first_inner = len(shape) - self.inner
        for axis in reversed(order):  # from the fastest axis to the slowest
            if self.pitch and axis == first_inner - 1:  # the last axis of the array of structs
                stride = self.pitch * self.step
            if axis in self.repeated:
                continue
            strides[axis] = stride
            stride *= max(shape[axis], 1)
        first = REDZONE_ELEMENTS + self.offset
        is_empty = 0 in shape
        # reverse axes: the first element is the last one in memory, which an empty array doesn't have
        for axis in () if is_empty else self.backwards:
            if axis < len(shape) and strides[axis]:
                first += strides[axis] * max(shape[axis] - 1, 0)
                strides[axis] = -strides[axis]
        # the number of elements from the first to the last one in memory, gaps included
        span = 1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True) if n > 0)
        return Placement(tuple(strides), first, 2 * REDZONE_ELEMENTS + self.offset + (0 if is_empty else span))


C_ORDER = Layout()
"""Contiguous in C order, at the start of the buffer."""


def view_of(data: Bytes, placement: Placement, shape: tuple[int, ...], storage: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a view of the array's elements in `data`, the bytes of its buffer. `storage` is the type of an element."""
    elements = data.view(storage)
    strides = [s * storage.itemsize for s in placement.strides]
    return np.lib.stride_tricks.as_strided(elements[placement.first :], shape, strides)


def image(
    values: npt.NDArray[Any] | None, layout: Layout, shape: tuple[int, ...], storage: np.dtype[Any], poison: int
) -> Bytes:
    """Return the bytes of a buffer that contains the array, in the memory representation `storage`.

    `values` are the array's elements, with a single element along axes of stride 0; None fills the array with the byte
    `poison`.
    """
    placement = layout.place(shape)
    data = np.full(placement.count * storage.itemsize, REDZONE_BYTE, np.uint8)
    if 0 in shape:
        return data
    view = view_of(data, placement, shape, storage)
    distinct = tuple(slice(0, 1) if axis in layout.repeated else slice(None) for axis in range(len(shape)))
    if values is None:
        view[distinct] = np.frombuffer(bytes([poison]) * storage.itemsize, storage)[0]
    else:
        view[distinct] = values
    return data


def stray_writes(
    found: Bytes, before: Bytes, layout: Layout, shape: tuple[int, ...], storage: np.dtype[Any]
) -> list[int]:
    """Return where a buffer changed outside the array, as offsets in elements from the array's first element.

    `found` and `before` are the bytes of the buffer after and before the launch.
    """
    placement = layout.place(shape)
    changed = (found != before).reshape(-1, storage.itemsize).any(axis=1)  # a flag per element of the buffer
    if 0 not in shape:  # clear the flags of the array's own elements
        view_of(changed.view(np.uint8), placement, shape, np.dtype(np.uint8))[...] = 0
    return [int(p) - placement.first for p in np.flatnonzero(changed)]
