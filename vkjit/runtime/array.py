"""Device arrays: a buffer with an offset, an element type, a shape and strides.

A `DeviceArray` caches what every launch needs: its `spec_class`, which is part of the key of a specialization, and its
`descriptor`, the array's metadata as kernels receive it. Arrays with the same `spec_class` run the same code, whatever
their shapes.

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
"""Bytes of the widest access of one invocation."""

LAYOUT_ALIGNMENT = 64
"""Bytes that the address of an array is a multiple of, where nothing about its launches depends on the address."""

MAX_ELEMENTS = 2**63 - 1
NARROW_LIMIT = 2**31 - 1
_MAX_LAYOUTS = 1 << 16

_new = object.__new__


@dataclass(frozen=True, slots=True, eq=False)
class SpecClass:
    """What kernels are compiled for, of one array. There is one object for each combination, so that `is` compares.

    `contiguous`: C order, with strides of axes of length 1 ignored; `narrow`: places of elements fit 32 bits;
    `backward`: a stride is negative; `aligned`: the array, and each row along its last axis, begins at a multiple of
    `ROW_ALIGNMENT` bytes; `overlapping`: several elements certainly lie in one place, so that kernels may only read it.
    """

    dtype: DType
    rank: int
    contiguous: bool
    narrow: bool
    backward: bool
    overlapping: bool
    aligned: bool


class DeviceArray:
    """A strided view of a buffer: what a kernel gets for an array parameter. It isn't changed once it is made.

    `offset` is in bytes, `strides` in elements. `descriptor` holds the address, the shape and the strides, one after
    another. Arrays with the same `layout` have the same type, shape and strides and are aligned alike; None where the
    address is an odd one, or where another buffer may hold the same memory.
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
        """An array at the beginning of a buffer, of a layout that `layout_of` gave."""
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
        """An array at `offset` bytes in a buffer, of a layout that `layout_of` gave; faster than the constructor."""
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
        """An array of the same type, `shift` bytes after this one, of a layout that `layout_of` gave."""
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
        """Itself: launches ask all arguments alike."""
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
"""Forms at an address that isn't a multiple of `ROW_ALIGNMENT`, and at one that is; shape and strides together, and each; an
object that stands for all of this."""

_layouts: dict[tuple[DType, tuple[int, ...], tuple[int, ...]], _Layout] = {}
_spec_classes: dict[tuple[Any, ...], SpecClass] = {}
_fresh: dict[tuple[tuple[int, ...], DType], tuple[int, tuple[int, ...]]] = {}


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """C-order strides in elements."""
    strides: list[Any] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(int(extent), 1)
    return tuple(reversed(strides))


def fresh_layout(shape: tuple[int, ...], dtype: DType) -> tuple[int, tuple[int, ...]]:
    """Of an array in memory of its own, in C order: the bytes, a multiple of 4, and the strides; remembered."""
    found = _fresh.get((shape, dtype))
    if found is None:
        if len(_fresh) >= _MAX_LAYOUTS:
            _fresh.clear()
        size = math.prod(shape) * dtype.itemsize
        found = _fresh[shape, dtype] = ((size + 3) & ~3, contiguous_strides(shape))
    return found


def layout_of(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> _Layout:
    """What `DeviceArray.at` wants to know."""
    return _layouts.get((dtype, shape, strides)) or _layout(dtype, shape, strides)


def _layout(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> _Layout:
    """What follows from type, shape and strides; remembered."""
    if math.prod(max(extent, 1) for extent in shape) > MAX_ELEMENTS:
        raise ShapeError(f"an array of shape {shape}: expected at most 2^63 - 1 elements, axes of length 0 left out")
    contiguous = _is_contiguous(shape, strides)
    # kernels work out the strides of a contiguous array from its extents, whatever those of axes of length 1 are
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
