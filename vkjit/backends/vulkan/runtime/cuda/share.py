"""Share a Vulkan device's memory with CUDA: the same bytes under an address of each API, without a copy.

Lends buffers to CUDA, and copies, on the GPU, between buffers and memory that CUDA allocated itself. Each memory block
is imported once. A loan keeps its buffer alive. Vulkan and CUDA use lent memory in the order of the calls, as seen from
the current CUDA stream (see `queue`). Memory that is still lent when the device closes stays valid in CUDA.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from vkjit.errors import DeviceError

from ..memory.block import MemoryBlock
from ..queue.group import NOW
from .driver import driver
from .queue import CudaQueue

if TYPE_CHECKING:
    from ..device import VulkanDevice
    from ..memory.buffer import VulkanBuffer

__all__ = ["CudaShare", "Loan"]


class _Mapping:
    """A memory block imported into CUDA. It is unmapped when the block is closed and no loan of it is left."""

    def __init__(self, share: CudaShare, block: MemoryBlock) -> None:
        descriptor, self.size = block.file_descriptor()
        self._share = share
        with share.cuda.current(share.context):
            self._memory, self.address = share.cuda.import_memory(descriptor, self.size)
        self.lent = 0
        self._ended = False
        block.before_close.append(self._end)

    def _end(self) -> None:
        self._ended = True
        self._share.forget(self)
        self.settle()

    def settle(self) -> None:
        """Unmap the block if it is closed and no loan is left."""
        if not self._ended or self.lent:
            return
        with contextlib.suppress(DeviceError), self._share.cuda.current(self._share.context):
            self._share.cuda.free_memory(self._memory, self.address)


class Loan:
    """A buffer lent to CUDA, at `address` in CUDA. The memory stays lent until this object is collected."""

    def __init__(self, share: CudaShare, buffer: VulkanBuffer, mapping: _Mapping, address: int) -> None:
        self.buffer = buffer
        self.address = address
        mapping.lent += 1
        share.queue.loans[id(buffer)] += 1
        weakref.finalize(self, _returned, share, buffer, mapping).atexit = False


def _returned(share: CudaShare, buffer: VulkanBuffer, mapping: _Mapping) -> None:
    share.queue.loans[id(buffer)] -= 1
    if not share.queue.loans[id(buffer)]:
        del share.queue.loans[id(buffer)]
        share.lent.pop(id(buffer), None)
    mapping.lent -= 1
    mapping.settle()


class CudaShare:
    """Shares the memory of one Vulkan device with CUDA. Raises FeatureError if CUDA or the driver doesn't support it.

    `use_stream` sets the stream of the other library; until then, work is ordered on a stream of the share's own.
    """

    def __init__(self, device: VulkanDevice) -> None:
        self.cuda = driver()
        self.ordinal = self.cuda.ordinal_of(bytes.fromhex(device.info.uuid))
        self.context = self.cuda.retain(self.ordinal)
        self._device = device
        self._mappings: dict[int, _Mapping] = {}
        self.lent: dict[int, VulkanBuffer] = {}
        with self.cuda.current(self.context):
            self._own_stream = self.cuda.open_stream()
        parts = device._group, device._vulkan, device._functions, device._handle.value
        self.queue = CudaQueue(*parts, self.cuda, self.context, lambda: self._own_stream)

    def use_stream(self, stream: Callable[[], int]) -> None:
        """Set the function that returns the current CUDA stream."""
        self.queue.stream = stream

    def lend(self, buffer: VulkanBuffer) -> Loan:
        """Lend a buffer to CUDA. The current stream waits for all uses of the buffer so far."""
        with self._device._group.lock:
            self._device._group.check()
            mapping, address = self._place(buffer)
            self._move(buffer)
            self.lent[id(buffer)] = buffer
            return Loan(self, buffer, mapping, address)

    def find(self, address: int, nbytes: int) -> tuple[VulkanBuffer, int] | None:
        """Return the lent buffer that contains this range of CUDA addresses, and the offset in it; None if no lent
        buffer does.
        """
        for buffer in list(self.lent.values()):
            mapping = self._mappings.get(buffer.chunk.block.number)
            if buffer.queue is None or mapping is None:
                continue
            start = mapping.address + buffer.offset
            if start <= address and address + nbytes <= start + buffer.nbytes:
                return buffer, address - start
        return None

    def take(self, address: int, buffer: VulkanBuffer, nbytes: int) -> None:
        """Copy CUDA memory to the start of a buffer, on the GPU, after the work submitted to the CUDA stream so far."""
        with self._device._group.lock:
            self._device._group.check()
            _, target = self._place(buffer)
            self._move(buffer)
            with self.cuda.current(self.context):
                self.cuda.copy(target, address, nbytes, self.queue.stream())
            buffer.last_use = buffer.last_write = self.queue.signalled(NOW)

    def give(self, buffer: VulkanBuffer, offset: int, address: int, nbytes: int) -> None:
        """Copy from a buffer to CUDA memory, on the GPU. The CUDA stream waits for all uses of the buffer so far."""
        with self._device._group.lock:
            self._device._group.check()
            _, source = self._place(buffer)
            self._move(buffer)
            with self.cuda.current(self.context):
                self.cuda.copy(address, source + offset, nbytes, self.queue.stream())
            if not self.queue.lends(buffer):
                buffer.last_use = buffer.last_write = self.queue.signalled(NOW)

    def forget(self, mapping: _Mapping) -> None:
        """Drop the mapping of a block that is being closed."""
        self._mappings = {number: known for number, known in self._mappings.items() if known is not mapping}

    def close(self) -> None:
        """Release CUDA. The queue and the blocks are closed already."""
        with contextlib.suppress(DeviceError):
            with self.cuda.current(self.context):
                self.cuda.close_stream(self._own_stream)
            self.cuda.release(self.ordinal)

    def _place(self, buffer: VulkanBuffer) -> tuple[_Mapping, int]:
        """Return the mapping of the buffer's block, and the buffer's address in CUDA."""
        block = buffer.chunk.block
        mapping = self._mappings.get(block.number)
        if mapping is None:
            mapping = self._mappings[block.number] = _Mapping(self, block)
        return mapping, mapping.address + buffer.offset

    def _move(self, buffer: VulkanBuffer) -> None:
        """Make CUDA's queue the buffer's owner, ordered after all uses so far."""
        if buffer.queue is self.queue:
            self.queue.follow_again()
        else:
            for queue, serial in buffer.uses():
                if not queue.is_complete(serial):
                    self.queue.follow(queue, queue.signalled(serial))
        buffer.queue, buffer.readers = self.queue, None
        buffer.read_epoch = buffer.write_epoch = 0
        buffer.last_use = buffer.last_write = NOW
