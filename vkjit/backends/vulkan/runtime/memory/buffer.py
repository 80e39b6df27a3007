"""Buffers of a Vulkan device, and the storage that allocates them.

A buffer may be closed or garbage-collected at any time, on any thread; its memory is reused only when the device is
done with it, or by commands ordered after its former uses.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vkjit.errors import OutOfMemoryError
from vkjit.runtime import memory_ledger
from vkjit.runtime.device import Buffer
from vkjit.runtime.memory_ledger import holders

from ..queue.group import Awaited, Releasable, Use
from ..queue.queue import Queue
from .suballocator import Chunk, Memory, Pool

if TYPE_CHECKING:
    from ..device import VulkanDevice

__all__ = ["Storage", "VulkanBuffer"]

_REUSED_FROM = 256 << 10
"""Minimum size, in bytes, of buffers whose memory is reused while the device still uses it: smaller ones aren't worth a
dependency.
"""

_KEPT = 8
"""Maximum number of dropped buffers of one size that a queue keeps for the next allocations of that size."""
_KEPT_PART, _KEPT_PART_OF_SIZE = 64, 256
"""Fractions of the heap's limit that kept buffers may take: 1/64 in total, 1/256 per size."""

_new = object.__new__

_WAIT_BEFORE_GROWTH = 64 << 20
"""Minimum size, in bytes, of a pool that waits for buffers in flight before it takes more from the driver."""


class VulkanBuffer(Buffer):
    """Memory of a Vulkan device. The fields after `address` belong to the runtime.

    `handle` and `offset` locate it for copies. `queue` is the queue that owns it, None when the buffer is closed.
    `last_use` and `last_write` are serials of that queue's submissions; `read_epoch` and `write_epoch` are its barrier
    intervals. `readers` are the other queues that have read the buffer since, with the serials of their last such
    submissions (see `queue`).
    """

    __slots__ = (
        "address",
        "chunk",
        "device",
        "last_use",
        "last_write",
        "nbytes",
        "queue",
        "read_epoch",
        "readers",
        "write_epoch",
    )

    def __init__(self, device: VulkanDevice | None, queue: Queue, chunk: Chunk, nbytes: int) -> None:
        self.device = device  # type: ignore[assignment]  # None only for the runtime's staging memory
        self.queue: Queue | None = queue
        self.chunk = chunk
        self.nbytes = nbytes
        self.address = chunk.address
        self.last_use = self.last_write = 0
        self.read_epoch = self.write_epoch = 0
        self.readers: dict[Queue, int] | None = None

    @property
    def handle(self) -> Any:
        """The VkBuffer that contains this buffer."""
        return self.chunk.block.buffer

    @property
    def offset(self) -> int:
        """Offset in `handle`, in bytes."""
        return self.chunk.offset

    @property
    def bytes(self) -> npt.NDArray[np.uint8] | None:
        """The mapped bytes; None if the memory isn't mapped."""
        chunk = self.chunk
        block = chunk.block.bytes
        return None if block is None else block[chunk.offset : chunk.offset + chunk.nbytes]

    def close(self) -> None:
        """Release the memory. May be called repeatedly, on any thread."""
        try:
            queue, self.queue = self.queue, None  # in one step, so that no other thread closes it too
        except AttributeError:  # its constructor didn't finish
            return
        # late in interpreter shutdown this module's globals are None; the device is closed by then
        if queue is None or _REUSED_FROM is None:
            return
        if self.readers is None and self.device is not None:
            row = queue.kept.get(self.nbytes)
            if row is not None and len(row[0]) < row[1]:  # without the lock: list pop and append are atomic
                row[0].append((self.chunk, self.last_use, self.last_write, self.read_epoch, self.write_epoch))
                if queue.kept.get(self.nbytes) is not row:  # the queue dropped its row in between
                    queue.drop_kept(row[0])
                return
        item: Releasable = self.chunk
        if self.readers is not None:
            item = Awaited(self.chunk, list(self.readers.items()))
        elif self.nbytes >= _REUSED_FROM and self.last_use > queue.completed and not queue.is_external:
            item = _Recent(self, queue)
        queue.dropped.append((self.last_use, item))

    __del__ = close
    """Most buffers are released this way: the alias saves a call."""

    @staticmethod
    def again(device: VulkanDevice, queue: Queue, nbytes: int) -> VulkanBuffer | None:
        """Return a buffer in memory of this size that the queue kept, ordered after its former users.

        Returns None if the queue keeps none of this size, or if allocations are being traced.
        """
        row = queue.kept.get(nbytes)
        if row is None or not row[0] or memory_ledger.tracing:
            return None
        try:
            chunk, last_use, last_write, read_epoch, write_epoch = row[0].pop(0)
        except IndexError:  # another thread took it
            return None
        buffer = _new(VulkanBuffer)  # inlined constructor, to save a call
        buffer.device, buffer.queue, buffer.chunk, buffer.nbytes = device, queue, chunk, nbytes
        buffer.address, buffer.readers = chunk.address, None
        buffer.last_use, buffer.last_write = last_use, last_write
        buffer.read_epoch, buffer.write_epoch = read_epoch, write_epoch
        return buffer

    def is_idle(self) -> bool:
        """True if nothing on the device uses the buffer. Never waits."""
        if self.readers is None:
            return self.queue is None or self.queue.is_complete(self.last_use)
        return all(queue.is_complete(serial) for queue, serial in self.uses())

    def wait_idle(self) -> None:
        """Wait until nothing on the device uses the buffer."""
        for queue, serial in self.uses():
            queue.wait(serial)

    def wait_written(self) -> None:
        """Wait until everything that writes the buffer is complete."""
        if self.queue is not None:
            self.queue.wait(self.last_write)

    def uses(self) -> list[tuple[Queue, int]]:
        """Return the queues that use the buffer, with the serials that must complete before it is idle."""
        home = [] if self.queue is None else [(self.queue, self.last_use)]
        return home if self.readers is None else [*home, *self.readers.items()]


class HostView:
    """NumPy view of a buffer's mapped bytes. Arrays keep this object, and thus the buffer, alive.

    With `use`, they keep the device's memory mapped, too, also after the device is closed.
    """

    def __init__(self, buffer: VulkanBuffer, use: Use | None = None) -> None:
        self._buffer = buffer
        self._use = use
        self._data = data = buffer.chunk.bytes[: buffer.nbytes]
        self.__array_interface__: dict[str, Any] = dict(data.__array_interface__)


class _Recent:
    """A dropped chunk that the device still uses, with the serials and epochs that order its next user after earlier
    ones.
    """

    __slots__ = ("_spent", "chunk", "key", "last_use", "last_write", "nbytes", "read_epoch", "write_epoch")

    def __init__(self, buffer: VulkanBuffer, queue: Queue) -> None:
        self.chunk = buffer.chunk
        self.nbytes = buffer.chunk.nbytes
        self.last_use, self.last_write = buffer.last_use, buffer.last_write
        self.read_epoch, self.write_epoch = buffer.read_epoch, buffer.write_epoch
        self.key = queue, self.chunk.pool.rounded(self.nbytes)
        self._spent = False
        self.chunk.pool.recent.setdefault(self.key, {})[id(self)] = self

    def release(self) -> None:
        """Return the chunk to its pool unless a new buffer has taken it. Called under the lock."""
        if self._leave():
            self.chunk.release()

    def revive(self, device: VulkanDevice | None, nbytes: int) -> VulkanBuffer | None:
        """Return a new buffer in the chunk, ordered after its former users; None if it is taken. Call it under the
        lock.
        """
        if not self._leave():
            return None
        chunk = Chunk(self.chunk.pool, self.chunk.block, self.chunk.offset, nbytes)
        buffer = VulkanBuffer(device, self.key[0], chunk, nbytes)
        buffer.last_use, buffer.last_write = self.last_use, self.last_write
        buffer.read_epoch, buffer.write_epoch = self.read_epoch, self.write_epoch
        return buffer

    def _leave(self) -> bool:
        if self._spent:
            return False
        self._spent = True
        row = self.chunk.pool.recent.get(self.key)
        if row is not None:
            row.pop(id(self), None)
            if not row:
                self.chunk.pool.recent.pop(self.key, None)
        return True


class Storage:
    """Allocates buffers from memory pools; waits for the device or grows the pools as needed.

    `reuses`: large buffers may take memory that the device still uses if their next use follows in the same queue, so
    nobody waits. Not for memory that the host writes directly: the host would have to wait.
    """

    def __init__(self, memory: Memory, queue: Queue, *, reuses: bool = False) -> None:
        self.memory = memory
        self._queue = queue
        self._group = queue.group
        self._reuses = reuses
        self._keeps = memory.budget.limit(memory.main.kind.heap) // _KEPT_PART if reuses else 0
        self._growth = max(_WAIT_BEFORE_GROWTH, memory.budget.limit(memory.main.kind.heap) // 4 if reuses else 0)

    def buffer(self, device: VulkanDevice | None, pool: Pool, nbytes: int, home: Queue | None = None) -> VulkanBuffer:
        """Return a buffer of `nbytes` bytes in the pool, owned by queue `home`. Raises OutOfMemoryError."""
        home, made = home or self._queue, _new(VulkanBuffer)
        with self._queue.lock:
            self._queue.check()
            for queue in self._group.queues:
                if queue.dropped:
                    queue.reclaim()
            if device is not None and self._keeps:
                self._keep(home, nbytes)
            chunk = pool.find(max(nbytes, 1))
            buffer = None
            if chunk is None and device is not None and nbytes >= _REUSED_FROM and self._reuses:
                buffer = self._revived(device, pool, nbytes, home)
            if buffer is None:
                if chunk is None:
                    chunk = self._chunk(device, pool, max(nbytes, 1))
                # inlined constructor: in a call, Ctrl-C could arrive before the chunk has an owner
                made.device, made.queue, made.chunk, made.nbytes = device, home, chunk, nbytes  # type: ignore[assignment]
                made.address, made.readers = chunk.address, None
                made.last_use = made.last_write = made.read_epoch = made.write_epoch = 0
                buffer = made
        if memory_ledger.tracing and device is not None:
            memory_ledger.note(buffer)
        return buffer

    def _keep(self, queue: Queue, nbytes: int) -> None:
        """Make the queue keep dropped buffers of this size from now on. Call it under the lock."""
        room = min(_KEPT, self._keeps * _KEPT_PART // _KEPT_PART_OF_SIZE // max(nbytes, 1))
        if nbytes in queue.kept or not room:
            return
        while queue.kept and sum(size * row[1] for size, row in queue.kept.items()) + room * nbytes > self._keeps:
            queue.let_go(next(iter(queue.kept)))
        queue.kept[nbytes] = ([], room)

    def let_go(self) -> None:
        """Release the memory that queues keep. Call it under the lock."""
        for queue in (*self._group.queues, *self._group.idle):
            while queue.kept:
                queue.let_go(next(iter(queue.kept)))

    def stats(self) -> dict[str, int]:
        """Return `Memory.stats`. Dropped memory that the device is done with isn't counted."""
        with self._queue.lock:
            self.let_go()
            self._group.poll()
            return self.memory.stats()

    def trim(self) -> None:
        """Return all empty blocks to the driver."""
        with self._queue.lock:
            self.let_go()
            self._group.poll()
            self.memory.trim()

    def _revived(self, device: VulkanDevice, pool: Pool, nbytes: int, home: Queue) -> VulkanBuffer | None:
        """Return a buffer in the memory of this (rounded) size that queue `home` dropped last; None if there is none."""
        row = pool.recent.get((home, pool.rounded(nbytes)))
        while row:
            _, recent = row.popitem()
            buffer: VulkanBuffer | None = recent.revive(device, nbytes)
            if buffer is not None:
                return buffer
        return None

    def _chunk(self, device: VulkanDevice | None, pool: Pool, nbytes: int) -> Chunk:
        self.let_go()
        self._group.poll()
        chunk = pool.find(nbytes)
        for queue in self._group.queues:
            while chunk is None and pool.reserved >= self._growth and queue.deferred_bytes >= nbytes:
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
