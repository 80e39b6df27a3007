"""Arrays of the three memory spaces: strided views of flat storage, read and written for many invocations at once.

An access by an active invocation outside the array raises `BoundsError`, so nothing is read or written out of bounds. Every
class has the methods `load`, `store`, `lanes` (the flat positions of the active invocations, for atomics), `linear` (the same
memory as one dimension, with elements reinterpreted) and `reset`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vkjit.errors import BoundsError, InternalError, Loc
from vkjit.ir.types import Array, Scalar, Vector
from vkjit.runtime.device import contiguous_strides

from .batch import Batch
from .storage import Codec
from .values import Lanes, Mask

__all__ = ["GlobalArray", "LocalArray", "Memory", "SharedArray", "Site", "make_local", "make_shared"]


@dataclass(frozen=True, slots=True)
class Site:
    """The place in a program that accesses memory: what an error says about it."""

    batch: Batch
    loc: Loc


class Memory(ABC):
    """An array: `extents` and `strides` (in elements) as kernels see them; `extents` of a linear array is its size."""

    __slots__ = ("codec", "extents", "is_linear", "name", "strides")

    name: str
    codec: Codec
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    is_linear: bool

    @abstractmethod
    def load(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> Lanes:
        """The elements at `indices`; garbage outside the mask."""

    @abstractmethod
    def store(self, indices: Sequence[Lanes], value: Lanes, mask: Mask, site: Site) -> None:
        """Writes in lane order: of several invocations at one element, the last one stays."""

    @abstractmethod
    def lanes(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> tuple[Lanes, Lanes]:
        """Flat storage (a view) and the positions in it of the active invocations, in lane order."""

    @abstractmethod
    def linear(self, type: Array) -> Memory:
        """The same memory as one dimension of another element type."""

    def offset(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> Lanes:
        """Distance in elements from the first one, in bounds even where the mask is off."""
        total: Lanes | None = None
        for axis, (index, extent, stride) in enumerate(zip(indices, self.extents, self.strides, strict=True)):
            safe = self._guard(index, axis, extent, mask, site, indices)
            term = safe if stride == 1 else safe * np.int64(stride)
            total = term if total is None else total + term
        return np.zeros((1, 1), dtype=np.int64) if total is None else total

    def _guard(self, index: Lanes, axis: int, extent: int, mask: Mask, site: Site, indices: Sequence[Lanes]) -> Lanes:
        if index.dtype != np.int64:
            index = index.astype(np.int64)
        if index.size == 1 and 0 <= index.item() < extent:
            return index
        unsigned = index.view(np.uint64)  # a negative index is a very large one
        if unsigned.max() < extent:
            return index
        outside = unsigned >= np.uint64(extent)
        if mask is not None:
            outside = outside & mask
        if outside.any():
            raise self._error(outside, axis, site, indices)
        inside: Lanes = np.minimum(unsigned, np.uint64(extent - 1))
        return inside.view(np.int64)

    def _error(self, outside: Lanes, axis: int, site: Site, indices: Sequence[Lanes]) -> BoundsError:
        row, column = site.batch.active(None, outside)[0]
        found = tuple(site.batch.pick(index, row, column) for index in indices)
        name = self.name or "the array"
        if self.is_linear:
            message = f"offset {found[0]} is outside {name}, which holds {self.extents[0]} elements"
        else:
            shown = found[0] if len(found) == 1 else found
            message = f"index {shown} is outside {name}, shape {self.extents} (axis {axis})"
        where = site.batch.invocation(row, column)
        return BoundsError(message, kernel=site.batch.log.kernel, loc=site.loc, invocation=where)


def _scatter(cells: Lanes, position: Lanes, raw: Lanes, mask: Mask, vector: bool) -> None:
    """Writes `raw` (components last) at flat positions in lane order."""
    value_shape = raw.shape[:-1] if vector else raw.shape
    shape = np.broadcast_shapes(position.shape, value_shape)
    if mask is not None:
        shape = np.broadcast_shapes(shape, mask.shape)
        keep = np.broadcast_to(mask, shape)
        full = (*shape, raw.shape[-1]) if vector else shape
        cells[np.broadcast_to(position, shape)[keep]] = np.broadcast_to(raw, full)[keep]
        return
    cells[np.broadcast_to(position, shape)] = raw


class GlobalArray(Memory):
    """A view of a buffer: `cells` is flat storage (positions along its first axis), `first` the first element's
    position.

    A linear array may reach all of the buffer, at negative offsets too.
    """

    __slots__ = ("cells", "first")

    def __init__(
        self,
        cells: Lanes,
        first: int,
        codec: Codec,
        extents: tuple[int, ...],
        strides: tuple[int, ...],
        name: str = "",
        is_linear: bool = False,
    ) -> None:
        self.cells = cells
        self.first = first
        self.codec = codec
        self.extents = extents
        self.strides = strides
        self.name = name
        self.is_linear = is_linear

    def _position(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> Lanes:
        if not self.is_linear:
            offset = self.offset(indices, mask, site)
            return offset + np.int64(self.first) if self.first else offset
        (offset,) = indices
        if offset.dtype != np.int64:
            offset = offset.astype(np.int64)
        position = offset + np.int64(self.first) if self.first else offset
        return self._guard(position, 0, len(self.cells), mask, site, indices)

    def load(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> Lanes:
        position = self._position(indices, mask, site)
        return self.codec.decode(self.cells.take(position, axis=0))

    def store(self, indices: Sequence[Lanes], value: Lanes, mask: Mask, site: Site) -> None:
        position = self._position(indices, mask, site)
        _scatter(self.cells, position, self.codec.encode(value), mask, self.codec.size > 0)

    def lanes(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> tuple[Lanes, Lanes]:
        position = site.batch.full(self._position(indices, mask, site))
        return self.cells, position.reshape(-1) if mask is None else position[site.batch.full(mask)]

    def linear(self, type: Array) -> Memory:
        codec = Codec.of(type.element)
        cells, first = codec.reinterpret(self.cells, self.first, self.codec)
        return GlobalArray(cells, first, codec, (len(cells) - first,), (1,), self.name, is_linear=True)


class SharedArray(Memory):
    """One array per workgroup: `cells` has shape (G, elements[, components]); rows are padded to `_ROW_BYTES`."""

    __slots__ = ("cells",)

    def __init__(self, cells: Lanes, codec: Codec, extents: tuple[int, ...], name: str, is_linear: bool) -> None:
        self.cells = cells
        self.codec = codec
        self.extents = extents
        self.strides = contiguous_strides(extents)
        self.name = name
        self.is_linear = is_linear

    def load(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> Lanes:
        offset = self.offset(indices, mask, site)
        if offset.shape[0] == 1:  # the same in every workgroup
            return self.codec.decode(self.cells.take(offset[0], axis=1))
        return self.codec.decode(self._flat().take(offset + self._rows(), axis=0))

    def store(self, indices: Sequence[Lanes], value: Lanes, mask: Mask, site: Site) -> None:
        offset = self.offset(indices, mask, site)
        raw = self.codec.encode(value)
        _scatter(self._flat(), offset + self._rows(), raw, mask, self.codec.size > 0)

    def lanes(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> tuple[Lanes, Lanes]:
        position = site.batch.full(self.offset(indices, mask, site) + self._rows())
        return self._flat(), position.reshape(-1) if mask is None else position[site.batch.full(mask)]

    def linear(self, type: Array) -> Memory:
        codec = Codec.of(type.element)
        elements = int(np.prod(self.extents, dtype=np.int64)) * self.codec.itemsize // codec.itemsize
        units = (codec.size,) if codec.size else ()
        cells = self.cells.reshape(len(self.cells), -1).view(codec.storage).reshape(len(self.cells), -1, *units)
        return SharedArray(cells, codec, (elements,), self.name, is_linear=True)

    def _flat(self) -> Lanes:
        cells = self.cells
        flat: Lanes = cells.reshape(cells.shape[0] * cells.shape[1], *cells.shape[2:])  # a view: cells are contiguous
        return flat

    def _rows(self) -> Lanes:
        rows: Lanes = np.arange(len(self.cells), dtype=np.int64)[:, None] * np.int64(self.cells.shape[1])
        return rows


class LocalArray(Memory):
    """One array per invocation: `cells` has shape (elements, [components,] G, L), so that an index known to all is a
    slice."""

    __slots__ = ("cells",)

    def __init__(self, cells: Lanes, codec: Codec, extents: tuple[int, ...], name: str, is_linear: bool) -> None:
        self.cells = cells
        self.codec = codec
        self.extents = extents
        self.strides = contiguous_strides(extents)
        self.name = name
        self.is_linear = is_linear

    def load(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> Lanes:
        offset = self.offset(indices, mask, site)
        if offset.size == 1:
            raw = self.cells[offset.item()].copy()
            return self.codec.decode(np.moveaxis(raw, 0, -1) if self.codec.size else raw)
        rows, columns = self._grid()
        if self.codec.size:
            return self.codec.decode(self.cells[offset, :, rows, columns])
        return self.codec.decode(self.cells[offset, rows, columns])

    def store(self, indices: Sequence[Lanes], value: Lanes, mask: Mask, site: Site) -> None:
        offset = self.offset(indices, mask, site)
        raw = self.codec.encode(value)
        if self.codec.size:
            raw = np.moveaxis(raw, -1, 0)
        if offset.size == 1:
            np.copyto(self.cells[offset.item()], raw, where=True if mask is None else mask)
            return
        shape = self.cells.shape[-2:]
        keep = np.broadcast_to(np.ones((1, 1), dtype=np.bool_) if mask is None else mask, shape)
        rows, columns = np.nonzero(keep)
        places = np.broadcast_to(offset, shape)[keep]
        chosen = np.broadcast_to(raw, (*raw.shape[:-2], *shape))[..., rows, columns]
        if self.codec.size:
            self.cells[places, :, rows, columns] = chosen.T
        else:
            self.cells[places, rows, columns] = chosen

    def lanes(self, indices: Sequence[Lanes], mask: Mask, site: Site) -> tuple[Lanes, Lanes]:
        if self.codec.size:
            raise InternalError("atomics need a scalar element")
        count = np.int64(site.batch.lanes)
        own = np.arange(count, dtype=np.int64).reshape(self.cells.shape[-2:])
        position = site.batch.full(self.offset(indices, mask, site)) * count + own
        return self.cells.reshape(-1), position.reshape(-1) if mask is None else position[site.batch.full(mask)]

    def linear(self, type: Array) -> Memory:
        codec = Codec.of(type.element)
        elements = int(np.prod(self.extents, dtype=np.int64)) * self.codec.itemsize // codec.itemsize
        whole = elements * codec.itemsize == self.cells[..., 0, 0].nbytes
        if codec.storage.itemsize != self.codec.storage.itemsize or not whole:
            raise InternalError(f"a local array of {self.extents} can't be seen as {type}")
        units = (codec.size,) if codec.size else ()
        cells = self.cells.view(codec.storage).reshape(elements, *units, *self.cells.shape[-2:])
        return LocalArray(cells, codec, (elements,), self.name, is_linear=True)

    def _grid(self) -> tuple[Lanes, Lanes]:
        groups, size = self.cells.shape[-2:]
        return np.arange(groups)[:, None], np.arange(size)[None, :]


_ROW_BYTES = 96
"""A multiple of the size of every element type, so that a shared array can be seen as one of any other."""


def _static_shape(type: Array) -> tuple[int, ...]:
    if type.shape is None:
        raise InternalError(f"{type} needs a static shape")
    return type.shape


def make_shared(type: Array, batch: Batch, name: str) -> SharedArray:
    """A poisoned shared array for each workgroup of the batch."""
    shape, codec = _static_shape(type), Codec.of(type.element)
    elements = int(np.prod(shape, dtype=np.int64))
    per_row = -(-elements * codec.itemsize // _ROW_BYTES) * _ROW_BYTES // codec.itemsize
    units = (codec.size,) if codec.size else ()
    cells = np.full((batch.count, per_row, *units), codec.poison(), dtype=codec.storage)
    return SharedArray(cells, codec, shape, name, type.linear)


def make_local(type: Array, batch: Batch, name: str) -> LocalArray:
    """A poisoned array for each invocation of the batch."""
    shape, codec = _static_shape(type), Codec.of(type.element)
    elements = int(np.prod(shape, dtype=np.int64))
    components = (codec.size,) if codec.size else ()
    cells = np.full((elements, *components, batch.count, batch.size), codec.poison(), dtype=codec.storage)
    return LocalArray(cells, codec, shape, name, type.linear)


def element_of(type: Array) -> Scalar | Vector:
    """The element type of an array type."""
    return type.element
