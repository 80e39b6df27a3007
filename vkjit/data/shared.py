"""Batches on their way from a process to the one that asked: arrays in shared memory, the rest as it is.

Enters: a batch, a tree of tuples, lists and dictionaries. Leaves: a small description of it that a pipe takes at once, and from
that the batch again. Who unpacks a description, or drops it, gives the memory back.
"""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Packed", "drop", "pack", "unpack"]

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class _Place:
    """An array of the batch: where it lies in the block."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch whose arrays lie in a block of shared memory; no block where there are none."""

    tree: Any
    block: str


def pack(batch: Any) -> Packed:
    """The batch with its arrays in shared memory."""
    arrays: list[tuple[_Place, npt.NDArray[Any]]] = []
    tree = _outlined(batch, arrays)
    if not arrays:
        return Packed(tree, "")
    last = arrays[-1][0]
    memory = SharedMemory(create=True, size=max(1, last.offset + arrays[-1][1].nbytes))
    try:
        for place, values in arrays:
            _view(memory, place)[...] = values
        return Packed(tree, memory.name)
    finally:
        memory.close()


def _outlined(value: Any, arrays: list[tuple[_Place, npt.NDArray[Any]]]) -> Any:
    if isinstance(value, np.ndarray) and value.dtype != object:
        end = arrays[-1][0].offset + arrays[-1][1].nbytes if arrays else 0
        place = _Place(-(-end // _ALIGNMENT) * _ALIGNMENT, value.shape, value.dtype)
        arrays.append((place, value))
        return place
    if isinstance(value, (tuple, list)):
        return tuple(_outlined(v, arrays) for v in value)
    if isinstance(value, dict):
        return {key: _outlined(v, arrays) for key, v in value.items()}
    return value


def _view(memory: SharedMemory, place: _Place) -> npt.NDArray[Any]:
    view: npt.NDArray[Any] = np.ndarray(place.shape, place.dtype, memory.buf, place.offset)
    return view


def unpack(packed: Packed) -> Any:
    """The batch, in memory of this process."""
    if not packed.block:
        return packed.tree
    memory = SharedMemory(packed.block)
    try:
        return _filled(packed.tree, memory)
    finally:
        memory.close()
        memory.unlink()


def _filled(value: Any, memory: SharedMemory) -> Any:
    if isinstance(value, _Place):
        return _view(memory, value).copy()
    if isinstance(value, tuple):
        return tuple(_filled(v, memory) for v in value)
    if isinstance(value, dict):
        return {key: _filled(v, memory) for key, v in value.items()}
    return value


def drop(packed: Packed) -> None:
    """Gives the memory of a batch that nobody wants back."""
    if packed.block:
        memory = SharedMemory(packed.block)
        memory.close()
        memory.unlink()
