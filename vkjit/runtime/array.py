"""Device arrays: a buffer with an offset, an element type, a shape and strides.

A `DeviceArray` caches what every launch needs: its `spec_class`, which is part of the key of a specialization, and its
`descriptor`, the array's metadata as kernels receive it. Arrays with the same `spec_class` run the same code,
regardless of their shapes.

Most arrays have the shape and strides of an earlier one, so values derived from these are cached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import DType
from ..errors import ShapeError
from .self_overlap import elements_overlap

if TYPE_CHECKING:
    from .device import Buffer, Device

__all__ = ["ROW_ALIGNMENT", "DeviceArray", "SpecClass", "contiguous_strides", "fresh_layout", "layout_of"]

ROW_ALIGNMENT = 16
"""Bytes of the widest memory access of one invocation."""

LAYOUT_ALIGNMENT = 64
"""Alignment in bytes of arrays with a `layout`: nothing about their launches depends on the address."""

MAX_ELEMENTS = 2**63 - 1
NARROW_LIMIT = 2**31 - 1
_MAX_LAYOUTS = 1 << 14
"""Maximum number of layouts that are kept; programs whose shapes always differ would fill the memory with them."""

_new = object.__new__


@dataclass(frozen=True, slots=True, eq=False)
class SpecClass:
    """Specialization class: the properties of an array that kernels are compiled for.

    Instances are unique, so `is` compares them. `contiguous`: C order, ignoring strides of axes of length 1. `narrow`:
    element offsets fit 32 bits. `backward`: a stride is negative. `aligned`: the array, and each row along its last
    axis, begins at a multiple of `ROW_ALIGNMENT` bytes. `overlapping`: elements are certain to share memory, so that
    kernels may only read the array.
    """

    dtype: DType
    rank: int
    contiguous: bool
    narrow: bool
    backward: bool
    overlapping: bool
    aligned: bool


class DeviceArray:
    """An immutable strided view of a buffer: the argument of an array parameter.

    `offset` is in bytes, `strides` in elements. `descriptor` holds the address, the shape and the strides, in this
    order. Arrays with the same `layout` object have the same type, shape, strides and alignment; None if the address
    isn't a multiple of `LAYOUT_ALIGNMENT`, or if other buffers may cover the same memory.
    """

    __slots__ = ("buffer", "descriptor", "dtype", "layout", "offset", "shape", "spec_class", "strides")

    def __init__(
        self, buffer: Buffer, offset: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.buffer = buffer
        self.offset = offset
        self.dtype = dtype
        layout = _layouts.get((dtype, shape, strides))
        if layout is None:
            layout = _layout(dtype, shape, strides)
        address = buffer.address + offset
        if address % LAYOUT_ALIGNMENT or buffer.shared:
            self.spec_class: SpecClass = layout[0] if address % ROW_ALIGNMENT else layout[1]
            self.layout: object | None = None
        else:
            self.spec_class, self.layout = layout[1], layout[5]
        self.descriptor: tuple[int, ...] = (address, *layout[2])
        self.shape, self.strides = layout[3], layout[4]  # mostly the same objects for equal shapes

    @classmethod
    def at(cls, buffer: Buffer, dtype: DType, layout: _Layout) -> DeviceArray:
        """Return an array at the beginning of a buffer, with a layout from `layout_of`."""
        address = buffer.address
        if address % LAYOUT_ALIGNMENT:
            return cls(buffer, 0, dtype, layout[3], layout[4])
        made = cls.__new__(cls)
        made.buffer, made.offset, made.dtype = buffer, 0, dtype
        _, made.spec_class, tail, made.shape, made.strides, made.layout = layout
        made.descriptor = (address, *tail)
        return made

    @classmethod
    def placed(cls, buffer: Buffer, offset: int, dtype: DType, layout: _Layout) -> DeviceArray:
        """Return an array at `offset` bytes in a buffer, with a layout from `layout_of`. Faster than `__init__`."""
        address = buffer.address + offset
        made = cls.__new__(cls)
        made.buffer, made.offset, made.dtype = buffer, offset, dtype
        unaligned, made.spec_class, tail, made.shape, made.strides, made.layout = layout
        if address % LAYOUT_ALIGNMENT or buffer.shared:
            made.layout = None
            if address % ROW_ALIGNMENT:
                made.spec_class = unaligned
        made.descriptor = (address, *tail)
        return made

    def shifted(self, shift: int, layout: _Layout) -> DeviceArray:
        """Return an array of the same type that begins `shift` bytes after this one, with a layout from `layout_of`."""
        made = _new(DeviceArray)
        made.buffer, made.offset, made.dtype = self.buffer, self.offset + shift, self.dtype
        address = self.descriptor[0] + shift
        unaligned, made.spec_class, tail, made.shape, made.strides, made.layout = layout
        if self.layout is None or shift % LAYOUT_ALIGNMENT:
            if address % LAYOUT_ALIGNMENT or self.buffer.shared:
                made.layout = None
            if address % ROW_ALIGNMENT:
                made.spec_class = unaligned
        made.descriptor = (address, *tail)
        return made

    @property
    def device(self) -> Device:
        return self.buffer.device

    @property
    def address(self) -> int:
        return self.descriptor[0]

    @property
    def __vkjit_array__(self) -> DeviceArray:
        """The array itself: launches read this attribute of tensors and arrays alike."""
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceArray):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"DeviceArray({self.buffer!r}, {self.offset}, {self.dtype!r}, {self.shape}, {self.strides})"

    def _key(self) -> tuple[Any, ...]:
        return self.buffer, self.offset, self.dtype, self.shape, self.strides


_Layout = tuple[SpecClass, SpecClass, tuple[int, ...], tuple[int, ...], tuple[int, ...], object]
"""The specialization classes at addresses that aren't multiples of `ROW_ALIGNMENT`, and at those that are; shape and
strides concatenated; shape; strides; a unique object that identifies the layout."""

_layouts: dict[tuple[DType, tuple[int, ...], tuple[int, ...]], _Layout] = {}
_spec_classes: dict[tuple[Any, ...], SpecClass] = {}
_fresh: dict[tuple[tuple[int, ...], DType], tuple[int, tuple[int, ...]]] = {}


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return C-order strides in elements."""
    strides: list[Any] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(int(extent), 1)
    return tuple(reversed(strides))


def exchange_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return strides for other libraries, with C-order strides along axes where strides don't matter.

    These are axes of one element, and all axes of an array without elements.
    """
    contiguous = contiguous_strides(shape)
    pairs = zip(shape, strides, contiguous, strict=True)
    return contiguous if 0 in shape else tuple(c if extent == 1 else s for extent, s, c in pairs)


def fresh_layout(shape: tuple[int, ...], dtype: DType) -> tuple[int, tuple[int, ...]]:
    """Return the bytes, rounded up to a multiple of 4, and the strides of a new array in C order. Cached."""
    found = _fresh.get((shape, dtype))
    if found is None:
        if len(_fresh) >= _MAX_LAYOUTS:
            _fresh.clear()
        size = math.prod(shape) * dtype.itemsize
        found = _fresh[shape, dtype] = ((size + 3) & ~3, contiguous_strides(shape))
    return found


def layout_of(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> _Layout:
    """Return the layout for `DeviceArray.at`, `placed` and `shifted`. Cached."""
    return _layouts.get((dtype, shape, strides)) or _layout(dtype, shape, strides)


def _layout(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> _Layout:
    """Compute and cache a layout. Raises ShapeError for more than `MAX_ELEMENTS` elements."""
    if math.prod(max(extent, 1) for extent in shape) > MAX_ELEMENTS:
        raise ShapeError(f"an array of shape {shape}: expected at most 2^63 - 1 elements, axes of length 0 left out")
    contiguous = _is_contiguous(shape, strides)
    # kernels compute the strides of contiguous arrays from the extents, also for axes of length 1
    steps = strides[:-1] if not contiguous else shape[-1:] if len(shape) > 1 else ()
    rows = not any(step * dtype.itemsize % ROW_ALIGNMENT for step in steps)
    overlapping = not contiguous and elements_overlap(shape, strides, 1)
    backward = any(stride < 0 for stride in strides)
    known = (dtype, len(shape), contiguous, _is_narrow(shape, strides), backward, overlapping)
    layout = (_spec_class(*known, False), _spec_class(*known, rows), (*shape, *strides), shape, strides, object())
    if len(_layouts) >= _MAX_LAYOUTS:
        _layouts.clear()
    _layouts[dtype, shape, strides] = layout
    return layout


def _spec_class(*key: Any) -> SpecClass:
    return _spec_classes.setdefault(key, SpecClass(*key))


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return 0 in shape
        step *= extent
    return True


def _is_narrow(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    reach = sum((e - 1) * abs(s) for e, s in zip(shape, strides, strict=True) if e > 0)
    return reach <= NARROW_LIMIT and all(e <= NARROW_LIMIT for e in shape)
