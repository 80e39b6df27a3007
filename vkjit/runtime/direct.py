"""The shortest way of a launch into a command buffer.

Enters: a kernel whose argument block the host alone fills, then, per launch, buffers, a grid and the numbers of the block.
Leaves: commands in the open submission of this thread's queue. Holds: what is recorded is what `Queue.dispatch` would record;
a launch that needs more than that (another queue's buffers, copies to wait for, a capture or a profile that watches, a device
that failed) is left to `Device.launch`, and nothing has happened.

Everything that stays the same lies prepared in a record (see `native`), and a launch fills the rest by one `pack_into`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from . import native

if TYPE_CHECKING:
    from .buffer import VulkanBuffer
    from .pipeline import VulkanKernel
    from .queue import Queue

__all__ = ["DirectRecorder", "Record"]

Record: TypeAlias = Callable[[Any, Any, int, int, int, Sequence[Any]], bool]
"""Records a launch: buffers read, buffers written, workgroups along x, y and z (at least one each, and within the device's
limits), the numbers of the block. False where that is left to `Device.launch`."""

_NATIVE_AFTER = 8
"""Submissions by this way after which the native recorder is compiled: short programs do without."""


class DirectRecorder:
    """What the kernels of a device share. `call` is the native recorder once there is one."""

    def __init__(self, queue: Queue, current: Any) -> None:
        """`current.queue` is the queue of the thread that asks."""
        self._queue = queue
        self._current = current
        self._submissions = 0
        self._ffi = queue.vulkan.ffi
        self.call: Callable[[int], None] | None = None
        self._table: Any = None

    def submitted(self) -> None:
        """Counts submissions, and has the native recorder compiled when that begins to be worth it."""
        self._submissions += 1
        if self._submissions == _NATIVE_AFTER and self._make_table():
            self.call = native.recorder()

    def prepare(self, kernel: VulkanKernel, block: str) -> Record:
        """How to record the kernel; `block` is the struct format of its argument block, without byte order."""
        size = kernel.artifact.block_size
        memory = bytearray(native.BLOCK + size)
        place = self._ffi.from_buffer(memory)
        self._make_table()
        fixed = (self._address(self._table), self._address(kernel.pipeline), self._address(kernel.layout), size, 0)
        native.RECORD.pack_into(memory, 0, *fixed)
        return _record(self, kernel, struct.Struct(native.VARYING + block), memory, place, self._current)

    def _make_table(self) -> bool:
        """Fills the table of the driver's functions; False where they aren't the driver's own, as in tests."""
        if self._table is None:
            self._table = self._ffi.new("char[]", native.TABLE.size)
        f, (stages, barrier) = self._queue.functions, self._queue.barriers[0]
        calls = (f.vkCmdBindPipeline, f.vkCmdPushConstants, f.vkCmdDispatch, f.vkCmdPipelineBarrier)
        if not all(isinstance(call, self._ffi.CData) for call in calls):
            return False
        addresses = map(self._address, (*calls, barrier))
        self._ffi.buffer(self._table)[:] = native.TABLE.pack(*addresses, stages)
        return True

    def _address(self, value: Any) -> int:
        return int(self._ffi.cast("uintptr_t", value))


def _record(  # noqa: C901  calls would cost more than what they do
    owner: DirectRecorder, kernel: VulkanKernel, packer: struct.Struct, memory: bytearray, place: Any, current: Any
) -> Record:
    """A function rather than an object: its names are the quickest that there are."""
    pack, varying, block, size = packer.pack_into, native.RECORD.size, place + native.BLOCK, kernel.artifact.block_size
    address = owner._address(place)
    pipeline, layout = kernel.pipeline, kernel.layout
    call = owner.call
    bind, barrier = native.BIND, native.BARRIER

    def record(  # noqa: C901  see above
        reads: Sequence[VulkanBuffer], writes: Sequence[VulkanBuffer], x: int, y: int, z: int, numbers: Sequence[Any]
    ) -> bool:
        nonlocal call
        queue: Queue = current.queue
        lock = queue.lock
        lock.acquire()
        try:
            command = queue.ticket or queue.open_ticket()
            if not command:
                return False
            epoch, flags = queue.epoch, 0
            for buffer in reads:
                if buffer.queue is not queue:
                    return False
                if buffer.write_epoch == epoch:
                    flags = barrier
            for buffer in writes:
                if buffer.queue is not queue or buffer.readers is not None:
                    return False
                if epoch in (buffer.write_epoch, buffer.read_epoch):
                    flags = barrier
            if flags:
                if queue.transferred:
                    return False
                epoch = next(queue.group.epochs)
            if queue.bound is not kernel:
                flags |= bind
            try:
                pack(memory, varying, command, flags, x, y, z, *numbers)
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            for buffer in reads:
                buffer.read_epoch = epoch
                buffer.last_use = serial
            for buffer in writes:
                buffer.write_epoch = epoch
                buffer.last_use = buffer.last_write = serial
            queue.epoch = epoch
            if call is None:
                queue.emit(flags, pipeline, layout, size, block, x, y, z)
                call = owner.call
            else:
                call(address)
            queue.bound = kernel
            kernel.last_use = serial
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.submit()
                owner.submitted()
        except BaseException:
            queue.distrust()
            raise
        finally:
            lock.release()
        return True

    return record
