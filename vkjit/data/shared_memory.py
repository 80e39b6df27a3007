"""Transfer of batches from worker processes to their parent: arrays in shared memory, everything else pickled.

A batch is a tree of tuples, lists and dictionaries. The worker copies all its arrays to one shared memory block and
sends the rest, a `PackedBatch`, through a pipe (see `worker_processes`). Arrays that contain pointers are pickled, too,
and all arrays are if there is no room for a block. The worker owns its blocks: it creates them, and
reuses a block when the parent has given it back. The parent keeps the blocks open between batches. At the end both
unlink them, because either process may have been killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PackedBatch", "ParentBlocks", "WorkerBlocks"]

_ALIGNMENT = 64
"""Alignment of arrays within a block, in bytes: a cache line."""
_PLAIN_KINDS = "biufcmMSUV"
"""Kinds of NumPy types whose elements are self-contained bytes; structs may still contain objects (`hasobject`)."""
_BLOCK_FILES = Path("/dev/shm")  # the system's folder, not a temporary file
"""The folder in which Linux shows shared memory blocks as files."""


@dataclass(frozen=True, slots=True)
class _Location:
    """The location of an array in a block; takes the array's place in the tree of a `PackedBatch`."""

    offset: int
    """In bytes."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch whose arrays have been moved to a shared memory block."""

    tree: bytes
    """The pickled batch, with a `_Location` in place of each array in the block."""
    block: str
    """Name of the block; "" if there is none."""
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
        """Copy the batch's arrays to a free or new block. Raises an error of any type if the rest can't be pickled."""
        arrays: list[tuple[_Location, npt.NDArray[Any]]] = []
        tree = _pickled(_replace_arrays(batch, arrays))
        if not arrays:
            return PackedBatch(tree, "")
        last, values = arrays[-1]
        memory, dropped = self._block(last.offset + values.nbytes)
        if memory is None:
            return PackedBatch(_pickled(batch), "", dropped)
        for location, values in arrays:
            _view(memory, location)[...] = values
        return PackedBatch(tree, memory.name, dropped)

    def _block(self, size: int) -> tuple[SharedMemory | None, tuple[str, ...]]:
        """Return a free or new block of at least `size` bytes, and the names of the blocks unlinked for it.

        The block is None if there is no room for it.
        """
        fitting = next((name for name in self._free if self._all[name].size >= size), None)
        if fitting is not None:
            self._free.remove(fitting)
            return self._all[fitting], ()
        dropped = tuple(self._free[:1])
        for name in dropped:  # a new block replaces a free one that is too small, so their number doesn't grow
            self._free.remove(name)
            _remove(self._all.pop(name))
        memory = _created(max(1, size))
        if memory is not None:
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
        """Return the batch, copied to memory of this process. Raises an error of any type if it can't be unpickled."""
        self.sync(packed)
        return _restore_arrays(pickle.loads(packed.tree), self._all.get(packed.block))  # noqa: S301  # from our process

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


def _created(size: int) -> SharedMemory | None:
    """Create a block; None if there is no room for it.

    Linux reserves no memory for a new block, and kills the process that first writes to a page for which there is none.
    So all pages are allocated here.
    """
    try:
        memory = SharedMemory(create=True, size=size)
    except OSError:
        return None
    try:
        if hasattr(os, "posix_fallocate") and (file := _BLOCK_FILES / memory.name).exists():
            with file.open("r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, size)
    except OSError:
        _remove(memory)
        return None
    return memory


def _remove(memory: SharedMemory) -> None:
    """Close and unlink a block."""
    memory.close()
    with contextlib.suppress(FileNotFoundError):  # already unlinked by the other process
        memory.unlink()


def _pickled(value: Any) -> bytes:
    return bytes(ForkingPickler.dumps(value))


def _is_plain(value: Any) -> bool:
    """True for an array that a copy of its elements' bytes reproduces: no pointers, no mask or unit of a subclass."""
    return type(value) in (np.ndarray, np.memmap) and value.dtype.kind in _PLAIN_KINDS and not value.dtype.hasobject


def _replace_arrays(value: Any, arrays: list[tuple[_Location, npt.NDArray[Any]]]) -> Any:
    """Return the tree with a location in place of each plain array; append these locations and arrays to `arrays`."""
    if _is_plain(value):
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
