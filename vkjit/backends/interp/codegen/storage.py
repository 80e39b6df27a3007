"""The representation of elements in memory, and the conversion of NumPy arrays and buffers to arrays of a kernel.

NumPy arrays may have any strides, including 0 and negative ones. All accesses go through flat storage. The stored type differs
from that of values for bool (one byte; any byte but 0 is true) and bf16 (two bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.ir.types import Scalar, Vector

from .values import POISON_BYTE, Lanes

__all__ = ["Codec", "flatten"]

_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Codec:
    """One element in memory: `size` components (0 for a scalar) of `storage`, which carries `dtype`."""

    dtype: DType
    size: int
    storage: np.dtype[Any]

    @classmethod
    def of(cls, element: Scalar | Vector) -> Codec:
        """The layout of an element type; vectors are packed."""
        storage = _BYTE if element.dtype is dtypes.boolean else element.dtype.storage
        return cls(element.dtype, element.size if isinstance(element, Vector) else 0, storage)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.storage.itemsize) * max(self.size, 1)

    def decode(self, raw: Lanes) -> Lanes:
        """Storage (g, l[, components]) as a value."""
        if self.dtype is dtypes.boolean:
            raw = raw != 0
        elif self.dtype is dtypes.bf16:
            raw = (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return np.moveaxis(raw, -1, 0) if self.size else raw

    def encode(self, value: Lanes) -> Lanes:
        """A value as storage (g, l[, components])."""
        if self.dtype is dtypes.boolean:
            value = value.view(np.uint8)
        elif self.dtype is dtypes.bf16:
            value = (np.ascontiguousarray(value).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return np.moveaxis(value, 0, -1) if self.size else value

    def poison(self) -> Any:
        """What fresh memory holds: NaN, or the poison byte repeated."""
        if self.dtype is dtypes.bf16:
            return np.uint16(0x7FC0)
        if self.dtype.is_float:
            return self.storage.type(np.nan)
        return np.frombuffer(bytes([POISON_BYTE]) * self.storage.itemsize, dtype=self.storage)[0]

    def cells(self, data: npt.NDArray[np.uint8], byte: int) -> tuple[Lanes, int]:
        """Flat storage over bytes, cut so that byte `byte` begins an element, and that element's position."""
        skipped = byte % self.itemsize
        usable = max(len(data) - skipped, 0) // self.itemsize * self.itemsize
        flat = data[skipped : skipped + usable].view(self.storage)
        return flat.reshape(-1, self.size) if self.size else flat, byte // self.itemsize

    def reinterpret(self, cells: Lanes, first: int, source: Codec) -> tuple[Lanes, int]:
        """Flat storage of another layout as this one, with the same first byte."""
        if (source.storage, source.size) == (self.storage, self.size):
            return cells, first
        return self.cells(cells.reshape(-1).view(np.uint8), first * source.itemsize)


def _wanted(array: npt.NDArray[Any], codec: Codec, name: str) -> npt.NDArray[Any]:
    """The array with its storage type, or DTypeError."""
    found = array.dtype
    if codec.dtype is dtypes.bf16 and found.name in ("bfloat16", "uint16"):
        return array.view(np.uint16)
    if found == codec.dtype.storage:
        return array.view(codec.storage)
    raise DTypeError(f"{name}: expected an array of {codec.dtype.name}, found {found.name}")


def flatten(
    array: npt.NDArray[Any], codec: Codec, rank: int | None, name: str
) -> tuple[Lanes, int, tuple[int, ...], tuple[int, ...]]:
    """Flat storage over all memory that an array spans, the first element's position, extents and strides in elements.

    Arrays of vectors have one dimension more, the last and packed one. Raises DTypeError, ShapeError, and ArgumentError
    for strides that aren't whole elements.
    """
    array = _wanted(array, codec, name)
    item = codec.itemsize
    if codec.size:
        packed = array.ndim > 0 and (array.size == 0 or array.strides[-1] == codec.storage.itemsize)
        if not packed or array.shape[-1] != codec.size:
            raise ShapeError(f"{name}: expected a packed last dimension of {codec.size}, found shape {array.shape}")
        extents, steps = array.shape[:-1], array.strides[:-1]
    else:
        extents, steps = array.shape, array.strides
    if rank is not None and len(extents) != rank:
        raise ShapeError(f"{name}: expected {rank} dimensions, found shape {extents}")
    if any(step % item for step, extent in zip(steps, extents, strict=True) if extent > 1):
        raise ArgumentError(f"{name}: strides of {steps} bytes aren't whole elements of {item} bytes; pass a copy")
    if 0 in extents:
        empty = np.zeros((0, codec.size) if codec.size else 0, dtype=codec.storage)
        return empty, 0, extents, tuple(step // item for step in steps)
    low = sum(step * (extent - 1) for step, extent in zip(steps, extents, strict=True) if step < 0)
    high = sum(step * (extent - 1) for step, extent in zip(steps, extents, strict=True) if step > 0)
    transposed: tuple[Any, ...] = (*(slice(None, None, -1 if step < 0 else 1) for step in steps), ...)
    corner = array[transposed]
    units = (high - low) // item + 1
    shape, strides = ((units, codec.size), (item, codec.storage.itemsize)) if codec.size else ((units,), (item,))
    flat = np.lib.stride_tricks.as_strided(corner, shape, strides, writeable=array.flags.writeable)
    return flat, -low // item, extents, tuple(step // item for step in steps)
