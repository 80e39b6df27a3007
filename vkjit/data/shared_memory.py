"""Transfer of batches from worker processes to their parent: arrays in shared memory, everything else pickled.

A batch is a tree of tuples, lists and dictionaries. The worker copies all its arrays to one shared memory block and
sends the rest, a `PackedBatch`, through a pipe (see `worker_processes`). The worker owns its blocks: it creates them, and
reuses a block when the parent has given it back. The parent keeps the blocks open between batches. At the end both
unlink them, because either process may have been killed.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PackedBatch", "ParentBlocks", "WorkerBlocks"]

_ALIGNMENT = 64
"""Alignment of arrays within a block, in bytes: a cache line."""


@dataclass(frozen=True, slots=True)
class _Location:
    """The location of an array in a block; takes the array's place in `PackedBatch.tree`."""

    offset: int
    """In bytes."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch whose arrays have been moved to a shared memory block."""

    tree: Any
    """The batch, with a `_Location` in place of each array."""
    block: str
    """Name of the block; "" if the batch contains no arrays."""
    dropped: tuple[str, ...] = ()
    """Names of blocks that the worker has unlinked, so the parent closes them."""


class WorkerBlocks:
    """The shared memory blocks that a worker process owns; used in the worker."""

    def __init__(self) -> None:
        self._all: dict[str, SharedMemory] = {}
        self._free: list[str] = []

    def give_back(self, names: tuple[str, ...]) -> None:
        """Mark blocks as free for reuse."""
        self._free += names

    def pack(self, batch: Any) -> PackedBatch:
        """Copy the batch's arrays to a free or new block."""
        arrays: list[tuple[_Location, npt.NDArray[Any]]] = []
        tree = _replace_arrays(batch, arrays)
        if not arrays:
            return PackedBatch(tree, "")
        last, values = arrays[-1]
        memory, dropped = self._block(last.offset + values.nbytes)
        for location, values in arrays:
            _view(memory, location)[...] = values
        return PackedBatch(tree, memory.name, dropped)

    def _block(self, size: int) -> tuple[SharedMemory, tuple[str, ...]]:
        """Return a free or new block of at least `size` bytes, and the names of the blocks unlinked for it."""
        fitting = next((name for name in self._free if self._all[name].size >= size), None)
        if fitting is not None:
            self._free.remove(fitting)
            return self._all[fitting], ()
        dropped = tuple(self._free[:1])
        for name in dropped:  # a new block replaces a free one that is too small, so their number doesn't grow
            self._free.remove(name)
            _remove(self._all.pop(name))
        memory = SharedMemory(create=True, size=max(1, size))
        self._all[memory.name] = memory
        return memory, dropped

    def close(self) -> None:
        """Close and unlink all blocks."""
        for memory in self._all.values():
            _remove(memory)
        self._all.clear()
        self._free.clear()


class ParentBlocks:
    """The blocks of all worker processes, as opened by the parent; used in the parent."""

    def __init__(self) -> None:
        self._all: dict[str, SharedMemory] = {}

    def unpack(self, packed: PackedBatch) -> Any:
        """Return the batch, copied to memory of this process."""
        self.sync(packed)
        return _restore_arrays(packed.tree, self._all.get(packed.block))

    def sync(self, packed: PackedBatch) -> None:
        """Open the block of a batch if it isn't open, and close the blocks that the worker has unlinked."""
        for name in packed.dropped:
            if name in self._all:
                self._all.pop(name).close()
        if packed.block and packed.block not in self._all:
            self._all[packed.block] = SharedMemory(packed.block)

    def close(self) -> None:
        """Close and unlink all blocks, in case their owner was killed before it could unlink them."""
        for memory in self._all.values():
            _remove(memory)
        self._all.clear()


def _remove(memory: SharedMemory) -> None:
    """Close and unlink a block."""
    memory.close()
    with contextlib.suppress(FileNotFoundError):  # already unlinked by the other process
        memory.unlink()


def _replace_arrays(value: Any, arrays: list[tuple[_Location, npt.NDArray[Any]]]) -> Any:
    """Return the tree with a location in place of each array; append these locations and arrays to `arrays`."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        end = arrays[-1][0].offset + arrays[-1][1].nbytes if arrays else 0
        location = _Location(-(-end // _ALIGNMENT) * _ALIGNMENT, value.shape, value.dtype)
        arrays.append((location, value))
        return location
    if isinstance(value, (tuple, list)):
        return tuple(_replace_arrays(v, arrays) for v in value)
    if isinstance(value, dict):
        return {key: _replace_arrays(v, arrays) for key, v in value.items()}
    return value


def _view(memory: SharedMemory, location: _Location) -> npt.NDArray[Any]:
    """Return the array at a location of a block, without a copy."""
    view: npt.NDArray[Any] = np.ndarray(location.shape, location.dtype, memory.buf, location.offset)
    return view


def _restore_arrays(value: Any, memory: SharedMemory | None) -> Any:
    """Return the tree with a copy of the array in place of each location. Inverse of `_replace_arrays`."""
    if isinstance(value, _Location):
        assert memory is not None
        return _view(memory, value).copy()
    if isinstance(value, tuple):
        return tuple(_restore_arrays(v, memory) for v in value)
    if isinstance(value, dict):
        return {key: _restore_arrays(v, memory) for key, v in value.items()}
    return value
