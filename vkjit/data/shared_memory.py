"""Transfer of batches between processes: arrays in shared memory, everything else pickled.

A batch is a tree of tuples, lists and dictionaries; only a small description of it goes through a pipe. The worker owns
the shared memory blocks and reuses those given back. The parent keeps them open, and may unlink them all after the
worker has exited.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OpenBlocks", "OwnBlocks", "Packed"]

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class _Location:
    """The location of an array in a block."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch whose arrays are in a shared memory block; `block` is "" if there are none."""

    tree: Any
    block: str
    dropped: tuple[str, ...] = ()
    """Blocks no longer in use."""


class OwnBlocks:
    """The shared memory blocks owned by a worker process."""

    def __init__(self) -> None:
        self._all: dict[str, SharedMemory] = {}
        self._free: list[str] = []

    def give_back(self, names: tuple[str, ...]) -> None:
        """Mark blocks as free for reuse."""
        self._free += names

    def pack(self, batch: Any) -> Packed:
        """Copy the batch's arrays to a free or new block."""
        arrays: list[tuple[_Location, npt.NDArray[Any]]] = []
        tree = _replace_arrays(batch, arrays)
        if not arrays:
            return Packed(tree, "")
        last, values = arrays[-1]
        memory, dropped = self._block(last.offset + values.nbytes)
        for place, values in arrays:
            _view(memory, place)[...] = values
        return Packed(tree, memory.name, dropped)

    def _block(self, size: int) -> tuple[SharedMemory, tuple[str, ...]]:
        """Return a block of at least `size` bytes, and the blocks it replaces."""
        fitting = next((name for name in self._free if self._all[name].size >= size), None)
        if fitting is not None:
            self._free.remove(fitting)
            return self._all[fitting], ()
        dropped = tuple(self._free[:1])
        for name in dropped:  # replace a block, so there are never more than batches in flight
            self._free.remove(name)
            _remove(self._all.pop(name))
        memory = SharedMemory(create=True, size=max(1, size))
        self._all[memory.name] = memory
        return memory, dropped

    def close(self) -> None:
        """Free all blocks."""
        for memory in self._all.values():
            _remove(memory)
        self._all.clear()
        self._free.clear()


class OpenBlocks:
    """The worker processes' blocks opened by the parent."""

    def __init__(self) -> None:
        self._all: dict[str, SharedMemory] = {}

    def unpack(self, packed: Packed) -> Any:
        """Return the batch, copied to memory of this process."""
        self.sync(packed)
        return _restore_arrays(packed.tree, self._all.get(packed.block))

    def sync(self, packed: Packed) -> None:
        """Open the block of a batch, and close those no longer in use."""
        for name in packed.dropped:
            if name in self._all:
                self._all.pop(name).close()
        if packed.block and packed.block not in self._all:
            self._all[packed.block] = SharedMemory(packed.block)

    def close(self) -> None:
        """Close and unlink all blocks; their owner may have ended before it could."""
        for memory in self._all.values():
            _remove(memory)
        self._all.clear()


def _remove(memory: SharedMemory) -> None:
    memory.close()
    with contextlib.suppress(FileNotFoundError):  # already unlinked by the other side
        memory.unlink()


def _replace_arrays(value: Any, arrays: list[tuple[_Location, npt.NDArray[Any]]]) -> Any:
    if isinstance(value, np.ndarray) and value.dtype != object:
        end = arrays[-1][0].offset + arrays[-1][1].nbytes if arrays else 0
        place = _Location(-(-end // _ALIGNMENT) * _ALIGNMENT, value.shape, value.dtype)
        arrays.append((place, value))
        return place
    if isinstance(value, (tuple, list)):
        return tuple(_replace_arrays(v, arrays) for v in value)
    if isinstance(value, dict):
        return {key: _replace_arrays(v, arrays) for key, v in value.items()}
    return value


def _view(memory: SharedMemory, place: _Location) -> npt.NDArray[Any]:
    view: npt.NDArray[Any] = np.ndarray(place.shape, place.dtype, memory.buf, place.offset)
    return view


def _restore_arrays(value: Any, memory: SharedMemory | None) -> Any:
    if isinstance(value, _Location):
        assert memory is not None
        return _view(memory, value).copy()
    if isinstance(value, tuple):
        return tuple(_restore_arrays(v, memory) for v in value)
    if isinstance(value, dict):
        return {key: _restore_arrays(v, memory) for key, v in value.items()}
    return value
