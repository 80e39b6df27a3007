"""Transfers between host and device, and copies and fills on the device, in order with launches.

An idle, mapped buffer is written directly, except from large pinned arrays, which the device fetches faster. A busy
buffer is written through staging memory and a recorded copy, so that nothing stalls; on unified memory, large arrays
are written directly after a wait instead. Reads wait for the launches that write the buffer.

Staging copies are pipelined: while one piece is in flight, several CPU threads prepare the next. Large uploads use a
copy-only queue, if there is one, and overlap with kernels. Pinned arrays need no staging: the device accesses them
directly.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vkjit.errors import ArgumentError, DeviceError
from vkjit.runtime.host_copy import copy_bytes, host_bytes

from ..queue.queue import Queue
from .block import MemoryBlock
from .buffer import HostView, Storage, VulkanBuffer
from .suballocator import Chunk

__all__ = ["Transfer"]

Bytes = npt.NDArray[np.uint8]

STAGED_PIECE = 16 << 20
"""Bytes per staging copy: each piece is in flight while the host prepares the next."""

PINNED_FROM = 256 << 10
"""Minimum size, in bytes, of pinned arrays that the device accesses directly: for smaller ones, another copy costs less
than finding out whether they are pinned.
"""

PINNED_RATHER_THAN_MAPPED = 1 << 20
"""The same, in bytes, for buffers that the host can write directly. Through a window into a GPU's memory, the host
takes twice as long as the device, but needs no submission.
"""

BESIDE_KERNELS = 4 << 20
"""Minimum size, in bytes, of uploads for which waiting for another queue is worthwhile."""

MAX_PINNED = 0.25
"""Maximum fraction of the host's memory that result arrays may pin."""

PIECES_IN_FLIGHT = 4
DIRECT_READ = 256
"""Maximum size, in bytes, of a read through an uncached mapping."""

STAGE_RATHER_THAN_WAIT = 64 << 10
"""Maximum size, in bytes, of a write that is staged if the buffer is busy, on unified memory."""


class Transfer:
    """Writes, reads, copies and fills on the queue that `current` returns."""

    def __init__(
        self,
        current: Callable[[], Queue],
        storage: Storage,
        unified: bool,
        copying: Callable[[], Queue | None] = lambda: None,
    ) -> None:
        """`copying` returns the copy-only queue; None if there is none."""
        self._current = current
        self._storage = storage
        self._unified = unified
        self._copying = copying
        self._most_pinned = int(_host_bytes() * MAX_PINNED)

    def host_array(self, nbytes: int) -> Bytes:
        """Return a host byte array, pinned if it is large enough and there is room for it."""
        buffer = self._pinned_buffer(nbytes) if nbytes >= PINNED_FROM else None
        return host_bytes(nbytes) if buffer is None else np.asarray(HostView(buffer))

    def _pinned_buffer(self, nbytes: int) -> VulkanBuffer | None:
        """Return pinned memory; None if there is none, if the limit is reached, or if the system can't pin more."""
        try:
            with self._current().lock:
                self._current().check()
                pool = self._storage.memory.open_pinned()
            if pool is None or pool.allocated + nbytes > self._most_pinned:
                return None
            return self._storage.buffer(None, pool, nbytes)
        except DeviceError:
            return None

    def write(self, buffer: VulkanBuffer, offset: int, data: Bytes) -> None:
        """Copy host bytes to the buffer, after the launches already made."""
        nbytes = data.nbytes
        if buffer.queue is None or offset < 0 or offset + nbytes > buffer.nbytes:
            raise _out_of_range(buffer, offset, nbytes, "write")
        if not nbytes:
            return
        mapped = buffer.bytes
        fetched = nbytes >= PINNED_RATHER_THAN_MAPPED and self._place(data) is not None
        if mapped is not None and not fetched:
            if buffer.is_idle():
                copy_bytes(mapped[offset : offset + nbytes], data)
                return
            if self._unified and nbytes > STAGE_RATHER_THAN_WAIT:
                buffer.wait_idle()
                copy_bytes(mapped[offset : offset + nbytes], data)
                return
        queue = (self._copying() if nbytes >= BESIDE_KERNELS else None) or self._current()
        pinned = self._pinned(data, queue)
        if pinned is None:
            self._staged_write(queue, buffer, offset, data)
            return
        queue.copy(pinned, 0, buffer, offset, nbytes)
        pinned.wait_idle()

    def read(self, buffer: VulkanBuffer, offset: int, out: Bytes) -> None:
        """Copy from the buffer to the host, after the launches that write it."""
        nbytes = out.nbytes
        if buffer.queue is None or offset < 0 or offset + nbytes > buffer.nbytes:
            raise _out_of_range(buffer, offset, nbytes, "read")
        if not nbytes:
            return
        mapped = buffer.bytes
        if mapped is not None and (buffer.chunk.pool.kind.cached or nbytes <= DIRECT_READ):
            buffer.wait_written()
            copy_bytes(out, mapped[offset : offset + nbytes])
            return
        pinned = self._pinned(out, self._current())
        if pinned is None:
            self._staged_read(buffer, offset, out)
            return
        self._current().copy(buffer, offset, pinned, 0, nbytes)
        pinned.wait_idle()

    def copy(self, source: VulkanBuffer, source_offset: int, target: VulkanBuffer, target_offset: int, n: int) -> None:
        """Copy on the device, in order with launches. Overlapping ranges go through temporary memory."""
        _check_range(source, source_offset, n, "copy from")
        _check_range(target, target_offset, n, "copy to")
        if not n:
            return
        if source is target and abs(source_offset - target_offset) < n:
            if source_offset == target_offset:
                return
            queue = self._current()
            between = self._storage.buffer(None, source.chunk.pool, n, queue)
            queue.copy(source, source_offset, between, 0, n)
            queue.copy(between, 0, target, target_offset, n)
            between.close()
            return
        self._current().copy(source, source_offset, target, target_offset, n)

    def fill(self, buffer: VulkanBuffer, offset: int, nbytes: int, pattern: int) -> None:
        """Fill with a repeated u32, in order with launches."""
        _check_range(buffer, offset, nbytes, "fill")
        if offset % 4 or nbytes % 4:
            raise ArgumentError(f"fill of {nbytes} bytes at offset {offset}: expected multiples of 4")
        if not 0 <= pattern < 1 << 32:
            raise ArgumentError(f"fill with {pattern}: expected a number of 32 bits without sign")
        if nbytes:
            self._current().fill(buffer, offset, nbytes, pattern)

    def _pinned(self, array: Bytes, queue: Queue) -> VulkanBuffer | None:
        """Return a pinned array as a buffer for one copy; None for other arrays. The caller must wait for the copy."""
        pool, place, nbytes = self._storage.memory.pinned, self._place(array), int(array.nbytes)
        return None if pool is None or place is None else _Borrowed(None, queue, Chunk(pool, *place, nbytes), nbytes)

    def _place(self, array: Bytes) -> tuple[MemoryBlock, int] | None:
        """Return the block of a pinned array and the offset in it; None for other arrays."""
        pool, nbytes = self._storage.memory.pinned, int(array.nbytes)
        if pool is None or nbytes < PINNED_FROM or not array.flags.c_contiguous:
            return None
        return pool.around(array.ctypes.data, nbytes)

    def _staged_write(self, queue: Queue, buffer: VulkanBuffer, offset: int, data: Bytes) -> None:
        pool = self._storage.memory.upload
        for start in range(0, int(data.nbytes), STAGED_PIECE):
            piece = data[start : start + STAGED_PIECE]
            staging = self._storage.buffer(None, pool, piece.nbytes, queue)
            copy_bytes(staging.chunk.bytes[: piece.nbytes], piece)
            queue.copy(staging, 0, buffer, offset + start, piece.nbytes)
            staging.close()
            if piece.nbytes == STAGED_PIECE:
                queue.submit()

    def _staged_read(self, buffer: VulkanBuffer, offset: int, out: Bytes) -> None:
        pool, queue = self._storage.memory.download, self._current()
        waiting: deque[tuple[VulkanBuffer, Bytes]] = deque()
        for start in range(0, int(out.nbytes), STAGED_PIECE):
            piece = out[start : start + STAGED_PIECE]
            staging = self._storage.buffer(None, pool, piece.nbytes, queue)
            queue.copy(buffer, offset + start, staging, 0, piece.nbytes)
            queue.submit()
            waiting.append((staging, piece))
            if len(waiting) == PIECES_IN_FLIGHT:
                self._finish_read(*waiting.popleft())
        while waiting:
            self._finish_read(*waiting.popleft())

    def _finish_read(self, staging: VulkanBuffer, piece: Bytes) -> None:
        staging.wait_written()
        copy_bytes(piece, staging.chunk.bytes[: piece.nbytes])
        staging.close()


class _Borrowed(VulkanBuffer):
    """Buffer over memory that it doesn't own."""

    __slots__ = ()

    def close(self) -> None:
        self.queue = None

    __del__ = close


def _host_bytes() -> int:
    """Return the size of the host's memory in bytes; 8 GiB if the system doesn't report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not Linux or macOS
        return 8 << 30


def _check_range(buffer: VulkanBuffer, offset: int, nbytes: int, what: str) -> None:
    if buffer.queue is None or offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise _out_of_range(buffer, offset, nbytes, what)


def _out_of_range(buffer: VulkanBuffer, offset: int, nbytes: int, what: str) -> Exception:
    if buffer.queue is None:
        return DeviceError("a buffer was used after it was closed")
    return ArgumentError(f"{what} {nbytes} bytes at offset {offset}: the buffer has {buffer.nbytes} bytes")
