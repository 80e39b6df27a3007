"""Bytes between host and device.

Enters: buffers and NumPy byte arrays. Leaves: copies, in order with launches. Holds: an idle buffer that is mapped is
written directly; a busy one gets its bytes through staging memory and a recorded copy, so that nothing stalls, or,
where the memory is unified and the array large, after a wait; reading waits for the launches that write the buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError, DeviceError
from .buffer import Storage, VulkanBuffer
from .queue import Queue

__all__ = ["Transfer"]

Bytes = npt.NDArray[np.uint8]

STAGED_PIECE = 8 << 20
"""Bytes per staging copy: each piece is on its way while the host prepares the next."""

PIECES_IN_FLIGHT = 4
DIRECT_READ = 256
"""The largest read through an uncached mapping."""

STAGE_RATHER_THAN_WAIT = 64 << 10
"""On unified memory, the largest write that is staged when the buffer is busy."""


class Transfer:
    """Writes, reads, copies and fills on the queue that `current` tells."""

    def __init__(self, current: Callable[[], Queue], storage: Storage, unified: bool) -> None:
        self._current = current
        self._storage = storage
        self._unified = unified

    def write(self, buffer: VulkanBuffer, offset: int, data: Bytes) -> None:
        """Copies host bytes into the buffer, after the launches already made."""
        nbytes = int(data.nbytes)
        _check_range(buffer, offset, nbytes, "write")
        if not nbytes:
            return
        mapped = buffer.bytes
        if mapped is not None:
            if buffer.is_idle():
                mapped[offset : offset + nbytes] = data
                return
            if self._unified and nbytes > STAGE_RATHER_THAN_WAIT:
                buffer.wait_idle()
                mapped[offset : offset + nbytes] = data
                return
        self._staged_write(buffer, offset, data)

    def read(self, buffer: VulkanBuffer, offset: int, out: Bytes) -> None:
        """Copies from the buffer to the host, after the launches that write it."""
        nbytes = int(out.nbytes)
        _check_range(buffer, offset, nbytes, "read")
        if not nbytes:
            return
        mapped = buffer.bytes
        if mapped is not None and (buffer.chunk.pool.kind.cached or nbytes <= DIRECT_READ):
            buffer.wait_written()
            out[:] = mapped[offset : offset + nbytes]
            return
        self._staged_read(buffer, offset, out)

    def copy(self, source: VulkanBuffer, source_offset: int, target: VulkanBuffer, target_offset: int, n: int) -> None:
        """Copies on the device, in order with launches; overlapping ranges go through temporary memory."""
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
        """Fills with a repeated u32, in order with launches."""
        _check_range(buffer, offset, nbytes, "fill")
        if offset % 4 or nbytes % 4:
            raise ArgumentError(f"fill of {nbytes} bytes at offset {offset}: expected multiples of 4")
        if not 0 <= pattern < 1 << 32:
            raise ArgumentError(f"fill with {pattern}: expected a number of 32 bits without sign")
        if nbytes:
            self._current().fill(buffer, offset, nbytes, pattern)

    def _staged_write(self, buffer: VulkanBuffer, offset: int, data: Bytes) -> None:
        pool, queue = self._storage.memory.upload, self._current()
        for start in range(0, int(data.nbytes), STAGED_PIECE):
            piece = data[start : start + STAGED_PIECE]
            staging = self._storage.buffer(None, pool, piece.nbytes, queue)
            staging.chunk.bytes[: piece.nbytes] = piece
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
        piece[:] = staging.chunk.bytes[: piece.nbytes]
        staging.close()


def _check_range(buffer: VulkanBuffer, offset: int, nbytes: int, what: str) -> None:
    if buffer.queue is None:
        raise DeviceError("a buffer was used after it was closed")
    if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise ArgumentError(f"{what} {nbytes} bytes at offset {offset}: the buffer has {buffer.nbytes} bytes")
