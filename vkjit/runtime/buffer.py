"""Buffers of a Vulkan device, and the storage that they come from.

Enters: sizes in bytes. Leaves: `VulkanBuffer`s. Holds: a buffer may be closed or collected at any time and on any
thread; its memory is used again only when the device is done with it.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import OutOfMemoryError
from . import ledger
from .interface import Buffer
from .ledger import holders
from .memory import Chunk, Memory, Pool
from .queue import Queue
from .queue_group import Awaited

if TYPE_CHECKING:
    from .device import VulkanDevice

__all__ = ["Storage", "VulkanBuffer"]

_WAIT_BEFORE_GROWTH = 64 << 20
"""A pool of at least this many bytes waits for buffers in flight rather than take more from the driver."""


class VulkanBuffer(Buffer):
    """Memory of a Vulkan device. The fields past `address` belong to the runtime.

    `handle` and `offset` locate it for copies. `queue` is the queue where it is at home, None once the buffer is closed;
    `last_use` and `last_write` are serials of that queue's submissions, `read_epoch` and `write_epoch` barrier intervals;
    `readers` are the other queues that read it since, with the serials of their last such submissions (see `queue`).
    """

    __slots__ = (
        "address",
        "chunk",
        "device",
        "handle",
        "last_use",
        "last_write",
        "nbytes",
        "offset",
        "queue",
        "read_epoch",
        "readers",
        "write_epoch",
    )

    def __init__(self, device: VulkanDevice | None, queue: Queue, chunk: Chunk, nbytes: int) -> None:
        self.device = device  # type: ignore[assignment]  # None only for the runtime's own staging memory
        self.queue: Queue | None = queue
        self.chunk = chunk
        self.nbytes = nbytes
        self.address = chunk.address
        self.handle = chunk.block.buffer
        self.offset = chunk.offset
        self.last_use = self.last_write = 0
        self.read_epoch = self.write_epoch = 0
        self.readers: dict[Queue, int] | None = None

    @property
    def bytes(self) -> npt.NDArray[np.uint8] | None:
        """The mapped bytes, or None."""
        return None if self.chunk.block.bytes is None else self.chunk.bytes

    def close(self) -> None:
        """Gives the memory back; any number of times, on any thread."""
        queue, self.queue = self.queue, None
        if queue is not None:
            item = self.chunk if self.readers is None else Awaited(self.chunk, list(self.readers.items()))
            queue.dropped.append((self.last_use, item))

    def is_idle(self) -> bool:
        """True when nothing on the device uses the buffer; never waits."""
        return all(queue.is_complete(serial) for queue, serial in self.uses())

    def wait_idle(self) -> None:
        """Waits until nothing on the device uses the buffer."""
        for queue, serial in self.uses():
            queue.wait(serial)

    def wait_written(self) -> None:
        """Waits until everything that writes the buffer is complete."""
        if self.queue is not None:
            self.queue.wait(self.last_write)

    def uses(self) -> list[tuple[Queue, int]]:
        """What has to be complete before nothing uses the buffer any more: queues with serials."""
        home = [] if self.queue is None else [(self.queue, self.last_use)]
        return home if self.readers is None else [*home, *self.readers.items()]

    def __del__(self) -> None:
        if getattr(self, "queue", None) is not None:
            self.close()


class HostView:
    """A buffer's mapped bytes for NumPy, which keeps this object, and so the buffer, alive."""

    def __init__(self, buffer: VulkanBuffer) -> None:
        self._buffer = buffer
        data = buffer.chunk.bytes[: buffer.nbytes]
        self.__array_interface__: dict[str, Any] = dict(data.__array_interface__)


class Storage:
    """Chunks of memory pools, waiting for the device or growing as needed."""

    def __init__(self, memory: Memory, queue: Queue) -> None:
        self.memory = memory
        self._queue = queue
        self._group = queue.group

    def buffer(self, device: VulkanDevice | None, pool: Pool, nbytes: int, home: Queue | None = None) -> VulkanBuffer:
        """A buffer of at least `nbytes` bytes in the pool, at home in a queue. Raises OutOfMemoryError."""
        with self._queue.lock:
            self._queue.check()
            chunk = self._chunk(device, pool, max(nbytes, 1))
        buffer = VulkanBuffer(device, home or self._queue, chunk, nbytes)
        if ledger.tracing and device is not None:
            ledger.note(buffer)
        return buffer

    def stats(self) -> dict[str, int]:
        """See `Memory.stats`; what was dropped and is done with doesn't count."""
        with self._queue.lock:
            self._group.poll()
            return self.memory.stats()

    def trim(self) -> None:
        """Gives every block that holds nothing back to the driver."""
        with self._queue.lock:
            self._group.poll()
            self.memory.trim()

    def _chunk(self, device: VulkanDevice | None, pool: Pool, nbytes: int) -> Chunk:
        for queue in self._group.queues:
            queue.reclaim()
        chunk = pool.find(nbytes)
        if chunk is None:
            self._group.poll()
            chunk = pool.find(nbytes)
        for queue in self._group.queues:
            while chunk is None and pool.reserved >= _WAIT_BEFORE_GROWTH and queue.deferred_bytes >= nbytes:
                oldest = queue.oldest_deferred()
                if oldest is None:
                    break
                queue.wait(oldest)
                chunk = pool.find(nbytes)
        return self._grown(device, pool, nbytes) if chunk is None else chunk

    def _grown(self, device: VulkanDevice | None, pool: Pool, nbytes: int) -> Chunk:
        try:
            pool.grow(nbytes)
        except OutOfMemoryError:
            self._group.wait_all()
            gc.collect()  # arrays in reference cycles
            self._group.poll()
            chunk = pool.find(nbytes)
            if chunk is not None:
                return chunk
            self.memory.trim()
            self._grow_or_explain(device, pool, nbytes)
        chunk = pool.find(nbytes)
        if chunk is None:
            raise OutOfMemoryError(f"no room for {nbytes} bytes of {pool.kind.name} memory")
        return chunk

    def _grow_or_explain(self, device: VulkanDevice | None, pool: Pool, nbytes: int) -> None:
        try:
            pool.grow(nbytes)
        except OutOfMemoryError as error:
            stats = self.memory.stats()
            raise OutOfMemoryError(
                f"no room for {nbytes} bytes of {pool.kind.name} memory: {stats['allocated']} bytes are in use in "
                f"{stats['count']} buffers, {stats['reserved']} are reserved; free arrays that are no longer needed "
                f"({error})\n{holders(device)}"
            ) from None
