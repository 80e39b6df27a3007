"""Host memory for buffers, used again: fresh memory from the system costs a page fault for every four kilobytes.

Enters: sizes. Leaves: blocks of bytes, aligned to cache lines. Holds: a block goes back when nothing refers to it any
more, neither a buffer nor a NumPy array that views it; what is kept is bounded, the rest goes back to the system.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MemoryPool"]

ALIGNMENT = 64
_SMALLEST = 64 << 10
"""Bytes from which memory counts as `held`."""
_SMALL_BYTES = 1 << 20
"""Bytes of each smaller size that are kept, besides: the objects around them cost more than the memory."""
_SMALL_SIZES = 128


class MemoryPool:
    """Free blocks by size, up to `limit` bytes of them; `held` says how many there are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0
        self._free: dict[int, deque[npt.NDArray[np.uint8]]] = {}
        self._small: dict[int, deque[tuple[npt.NDArray[np.uint8], int]]] = {}
        self._new = deque[
            npt.NDArray[np.uint8]
        ]  # at the process's end modules lose their names before blocks come back
        self._lock = threading.RLock()  # memory may come back at any point of this thread, when garbage is collected

    def take(self, nbytes: int) -> tuple[npt.NDArray[np.uint8], int]:
        """An array of `nbytes` bytes that hold anything, and its address. Raises MemoryError."""
        if nbytes < _SMALLEST:
            free = self._small.get(nbytes)
            if free is None:
                self._keep_size(nbytes)
            else:
                with contextlib.suppress(IndexError):
                    return free.pop()
            return _with_address(_aligned(np.empty(nbytes + ALIGNMENT, dtype=np.uint8), nbytes))
        size = _rounded(nbytes)
        memory = self._kept(size)
        if memory is None:
            try:
                memory = _aligned(np.empty(size + ALIGNMENT, dtype=np.uint8), size)
            except MemoryError:
                self.trim()
                memory = _aligned(np.empty(size + ALIGNMENT, dtype=np.uint8), size)
        return _with_address(np.asarray(_Block(self, memory))[:nbytes])

    def _keep_size(self, nbytes: int) -> None:
        """Has memory of this small size kept from now on."""
        if len(self._small) >= _SMALL_SIZES:
            self._small.clear()
        self._small[nbytes] = deque(maxlen=max(1, min(64, _SMALL_BYTES // max(nbytes, 1))))

    def give_small(self, data: npt.NDArray[np.uint8], address: int) -> None:
        """Takes an array from `take` back to which nobody refers any more, neither by a view of it; keeps it if it is small.

        May be called at the process's end, when this module has lost its names.
        """
        free = self._small.get(len(data))
        if free is not None:
            free.append((data, address))  # drops the oldest where there are enough

    def _kept(self, size: int) -> npt.NDArray[np.uint8] | None:
        with self._lock:
            free = self._free.get(size)
            try:
                memory = free.pop() if free else None
            except IndexError:  # a signal's handler was faster
                return None
            if memory is not None:
                self.held -= size
            return memory

    def forget_lock(self) -> None:
        """In a child of a fork, where another thread of the parent may have held it."""
        self._lock = threading.RLock()

    def give(self, memory: npt.NDArray[np.uint8]) -> None:
        """Takes a block back."""
        size = len(memory)
        with self._lock:
            if self.held + size <= self._limit:
                self.held += size
                self._free.setdefault(size, self._new()).append(memory)

    def trim(self) -> None:
        """Gives all free blocks back to the system."""
        with self._lock:
            self._free.clear()
            self._small.clear()
            self.held = 0

    def clear(self) -> None:
        """As `trim`; none are kept from now on."""
        self._limit = 0
        self.trim()


class _Block:
    """What arrays over a block have as their base: with the last of them it goes, and the memory is free again."""

    __slots__ = ("__array_interface__", "_blocks", "_memory")

    def __init__(self, blocks: MemoryPool, memory: npt.NDArray[np.uint8]) -> None:
        self._blocks = blocks
        self._memory = memory
        self.__array_interface__: dict[str, Any] = memory.__array_interface__

    def __del__(self) -> None:
        self._blocks.give(self._memory)


def _with_address(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], int]:
    return data, int(data.__array_interface__["data"][0])


def _aligned(whole: npt.NDArray[np.uint8], nbytes: int) -> npt.NDArray[np.uint8]:
    start = -int(whole.ctypes.data) % ALIGNMENT
    return whole[start : start + nbytes]


def _rounded(nbytes: int) -> int:
    """Sizes in eight steps per power of two, so that blocks serve again."""
    step = 1 << max(0, nbytes.bit_length() - 4)
    return -(-nbytes // step) * step
