"""Caching allocator of host memory for buffers. New memory from the system costs a page fault per four kilobytes.

Blocks are aligned to cache lines. A block is reused when nothing refers to it any more, neither a buffer nor a NumPy
view of it. The amount kept is bounded; the rest returns to the system.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MemoryPool"]

ALIGNMENT = 64
_SMALLEST = 64 << 10
"""Minimum size, in bytes, of blocks that count in `held`."""
_SMALL_BYTES = 1 << 20
"""Maximum bytes kept of each smaller size, in addition: their Python objects cost more than the memory."""
_SMALL_SIZES = 128


class MemoryPool:
    """Free blocks by size, up to `limit` bytes in total. `held` is the current number of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0
        self._free: dict[int, deque[npt.NDArray[np.uint8]]] = {}
        self.small: dict[int, deque[tuple[npt.NDArray[np.uint8], int]]] = {}
        """Free memory below `_SMALLEST` bytes, with its address, by size. Nothing else refers to it, not even a view."""
        self._new = deque[npt.NDArray[np.uint8]]  # at process exit this module's globals go before the blocks come back
        self._lock = threading.RLock()  # garbage collection may return memory at any point of this thread

    def take(self, nbytes: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Return an uninitialized array of `nbytes` bytes and its address. Raises MemoryError."""
        if nbytes < _SMALLEST:
            if nbytes not in self.small:
                self._keep_size(nbytes)
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
        """Keep freed memory of this small size from now on."""
        if len(self.small) >= _SMALL_SIZES:
            self.small.clear()
        self.small[nbytes] = deque(maxlen=max(1, min(64, _SMALL_BYTES // max(nbytes, 1))))

    def _kept(self, size: int) -> npt.NDArray[np.uint8] | None:
        with self._lock:
            free = self._free.get(size)
            try:
                memory = free.pop() if free else None
            except IndexError:  # a signal handler took the last one
                return None
            if memory is not None:
                self.held -= size
            return memory

    def forget_lock(self) -> None:
        """Replace the lock in a forked child, since another thread of the parent may have held it."""
        self._lock = threading.RLock()

    def give(self, memory: npt.NDArray[np.uint8]) -> None:
        """Take back a block."""
        size = len(memory)
        with self._lock:
            if self.held + size <= self._limit:
                self.held += size
                self._free.setdefault(size, self._new()).append(memory)

    def trim(self) -> None:
        """Return all free blocks to the system."""
        with self._lock:
            self._free.clear()
            self.small.clear()
            self.held = 0

    def clear(self) -> None:
        """Like `trim`, and keep no blocks from now on."""
        self._limit = 0
        self.trim()


class _Block:
    """Base object of the arrays over a block. When the last of them is gone, the block returns to the pool."""

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
    """Round up to one of eight sizes per power of two, so that blocks can be reused."""
    step = 1 << max(0, nbytes.bit_length() - 4)
    return -(-nbytes // step) * step
