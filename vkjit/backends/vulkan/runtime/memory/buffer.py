"""Buffers of a Vulkan device, and the storage that they come from.

Enters: sizes in bytes. Leaves: `VulkanBuffer`s. Holds: a buffer may be closed or collected at any time and on any
thread; its memory is used again only when the device is done with it.
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

from ..queue.group import Awaited, Releasable
from ..queue.queue import Queue
from .suballocator import Chunk, Memory, Pool

if TYPE_CHECKING:
    from ..device import VulkanDevice

__all__ = ["Storage", "VulkanBuffer"]

_REUSED_FROM = 256 << 10
"""The smallest buffer whose memory is used again while the device still works on it: less isn't worth a dependence."""

_KEPT = 8
"""Dropped buffers of one size that a queue keeps for the next ones of that size."""
_KEPT_PART, _KEPT_PART_OF_SIZE = 64, 256
"""The part of the heap that they may take together, and those of one size (1/64, 1/256)."""

_new = object.__new__

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
        "last_use",
        "last_write",
        "nbytes",
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
        self.last_use = self.last_write = 0
        self.read_epoch = self.write_epoch = 0
        self.readers: dict[Queue, int] | None = None

    @property
    def handle(self) -> Any:
        """The VkBuffer that it is a part of."""
        return self.chunk.block.buffer

    @property
    def offset(self) -> int:
        """Where in that it begins, in bytes."""
        return self.chunk.offset

    @property
    def bytes(self) -> npt.NDArray[np.uint8] | None:
        """The mapped bytes, or None."""
        chunk = self.chunk
        block = chunk.block.bytes
        return None if block is None else block[chunk.offset : chunk.offset + chunk.nbytes]

    def close(self) -> None:
        """Gives the memory back; any number of times, on any thread."""
        try:
            queue, self.queue = self.queue, None  # in one step: nobody else gets it, too
        except AttributeError:  # it was never made whole
            return
        # late in the interpreter's exit this module is empty; the device has closed by then
        if queue is None or _REUSED_FROM is None:
            return
        if self.readers is None and self.device is not None:
            row = queue.kept.get(self.nbytes)
            if row is not None and len(row[0]) < row[1]:  # without the lock: it is taken from and added to in one step
                row[0].append((self.chunk, self.last_use, self.last_write, self.read_epoch, self.write_epoch))
                if queue.kept.get(self.nbytes) is not row:  # the queue let go of its row in between
                    queue.drop_kept(row[0])
                return
        item: Releasable = self.chunk
        if self.readers is not None:
            item = Awaited(self.chunk, list(self.readers.items()))
        elif self.nbytes >= _REUSED_FROM and self.last_use > queue.completed and not queue.is_external:
            item = _Recent(self, queue)
        queue.dropped.append((self.last_use, item))

    __del__ = close
    """Most buffers end so: there is no call in between."""

    @staticmethod
    def again(device: VulkanDevice, queue: Queue, nbytes: int) -> VulkanBuffer | None:
        """A buffer of memory that the queue kept, ordered after its former users; None where it has none of that size, and
        where it is to be noted who allocates.
        """
        row = queue.kept.get(nbytes)
        if row is None or not row[0] or memory_ledger.tracing:
            return None
        try:
            chunk, last_use, last_write, read_epoch, write_epoch = row[0].pop(0)
        except IndexError:  # another thread took it
            return None
        buffer = _new(VulkanBuffer)  # as the constructor does, which would be another call
        buffer.device, buffer.queue, buffer.chunk, buffer.nbytes = device, queue, chunk, nbytes
        buffer.address, buffer.readers = chunk.address, None
        buffer.last_use, buffer.last_write = last_use, last_write
        buffer.read_epoch, buffer.write_epoch = read_epoch, write_epoch
        return buffer

    def is_idle(self) -> bool:
        """True when nothing on the device uses the buffer; never waits."""
        if self.readers is None:
            return self.queue is None or self.queue.is_complete(self.last_use)
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


class HostView:
    """A buffer's mapped bytes for NumPy, which keeps this object, and so the buffer, alive."""

    def __init__(self, buffer: VulkanBuffer) -> None:
        self._buffer = buffer
        self._data = data = buffer.chunk.bytes[: buffer.nbytes]
        self.__array_interface__: dict[str, Any] = dict(data.__array_interface__)


class _Recent:
    """A chunk that is dropped but still in use, with what orders its next user after the last ones in the same queue."""

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
        """Returns the chunk to its pool, unless a new buffer has it already. Called under the lock."""
        if self._leave():
            self.chunk.release()

    def revive(self, device: VulkanDevice | None, nbytes: int) -> VulkanBuffer | None:
        """A new buffer of the chunk, ordered after its former users; None when it is gone. Call it under the lock."""
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
    """Chunks of memory pools, waiting for the device or growing as needed.

    `reuses`: large buffers may be made of memory that the device still works on, when its next user comes after it in the
    same queue: then nobody waits. Not where the host writes into buffers itself, and would have to wait instead.
    """

    def __init__(self, memory: Memory, queue: Queue, *, reuses: bool = False) -> None:
        self.memory = memory
        self._queue = queue
        self._group = queue.group
        self._reuses = reuses
        self._keeps = memory.budget.limit(memory.main.kind.heap) // _KEPT_PART if reuses else 0
        self._growth = max(_WAIT_BEFORE_GROWTH, memory.budget.limit(memory.main.kind.heap) // 4 if reuses else 0)

    def buffer(self, device: VulkanDevice | None, pool: Pool, nbytes: int, home: Queue | None = None) -> VulkanBuffer:
        """A buffer of at least `nbytes` bytes in the pool, at home in a queue. Raises OutOfMemoryError."""
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
                # as the constructor does, without a call in which Ctrl-C could come before the chunk has an owner
                made.device, made.queue, made.chunk, made.nbytes = device, home, chunk, nbytes  # type: ignore[assignment]
                made.address, made.readers = chunk.address, None
                made.last_use = made.last_write = made.read_epoch = made.write_epoch = 0
                buffer = made
        if memory_ledger.tracing and device is not None:
            memory_ledger.note(buffer)
        return buffer

    def _keep(self, queue: Queue, nbytes: int) -> None:
        """Has the queue keep dropped buffers of this size from now on. Call it under the lock."""
        room = min(_KEPT, self._keeps * _KEPT_PART // _KEPT_PART_OF_SIZE // max(nbytes, 1))
        if nbytes in queue.kept or not room:
            return
        while queue.kept and sum(size * row[1] for size, row in queue.kept.items()) + room * nbytes > self._keeps:
            queue.let_go(next(iter(queue.kept)))
        queue.kept[nbytes] = ([], room)

    def let_go(self) -> None:
        """Releases what queues keep. Call it under the lock."""
        for queue in self._group.queues:
            while queue.kept:
                queue.let_go(next(iter(queue.kept)))

    def stats(self) -> dict[str, int]:
        """See `Memory.stats`; what was dropped and is done with doesn't count."""
        with self._queue.lock:
            self.let_go()
            self._group.poll()
            return self.memory.stats()

    def trim(self) -> None:
        """Gives every block that holds nothing back to the driver."""
        with self._queue.lock:
            self.let_go()
            self._group.poll()
            self.memory.trim()

    def _revived(self, device: VulkanDevice, pool: Pool, nbytes: int, home: Queue) -> VulkanBuffer | None:
        """A buffer of the memory that was dropped last in its queue and has this size."""
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
