"""A Vulkan device's memory in CUDA: the same bytes under an address of each, without a copy.

Enters: buffers of the device, addresses of CUDA. Leaves: CUDA's addresses of lent buffers; copies, on the GPU, of what CUDA
allocated itself. Holds: a block is imported once; a loan keeps its buffer alive; what is lent is used by either side in the
order of the calls, seen from the stream that CUDA's user works in (see `queue`); memory that is still lent when the
device closes stays valid in CUDA.
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
    """A block in CUDA. It is unmapped when the block is gone and nothing of it is lent."""

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
        """Unmaps where that is due."""
        if not self._ended or self.lent:
            return
        with contextlib.suppress(DeviceError), self._share.cuda.current(self._share.context):
            self._share.cuda.free_memory(self._memory, self.address)


class Loan:
    """A buffer that CUDA's user has: its `address` there. The memory is lent until this object is gone."""

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
    """One device in CUDA. Raises FeatureError where CUDA or the driver can't share with it.

    `stream` may be set to what tells the stream that the other library works in; until then it is one of our own.
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
        """Sets what tells the stream of CUDA that is at work."""
        self.queue.stream = stream

    def lend(self, buffer: VulkanBuffer) -> Loan:
        """Gives a buffer to CUDA's user: its stream goes on after everything that uses the buffer so far."""
        with self._device._group.lock:
            self._device._group.check()
            mapping, address = self._place(buffer)
            self._move(buffer)
            self.lent[id(buffer)] = buffer
            return Loan(self, buffer, mapping, address)

    def find(self, address: int, nbytes: int) -> tuple[VulkanBuffer, int] | None:
        """The lent buffer around this stretch of CUDA's addresses, and the offset in it; None for memory of CUDA's own."""
        for buffer in list(self.lent.values()):
            mapping = self._mappings.get(buffer.chunk.block.number)
            if buffer.queue is None or mapping is None:
                continue
            start = mapping.address + buffer.offset
            if start <= address and address + nbytes <= start + buffer.nbytes:
                return buffer, address - start
        return None

    def take(self, address: int, buffer: VulkanBuffer, nbytes: int) -> None:
        """Copies memory of CUDA to the start of a buffer, on the GPU, after what CUDA's stream has been given so far."""
        with self._device._group.lock:
            self._device._group.check()
            _, target = self._place(buffer)
            self._move(buffer)
            with self.cuda.current(self.context):
                self.cuda.copy(target, address, nbytes, self.queue.stream())
            buffer.last_use = buffer.last_write = self.queue.signalled(NOW)

    def give(self, buffer: VulkanBuffer, offset: int, address: int, nbytes: int) -> None:
        """Copies from a buffer to memory of CUDA, on the GPU; CUDA's stream goes on after what writes the buffer so far."""
        with self._device._group.lock:
            self._device._group.check()
            _, source = self._place(buffer)
            self._move(buffer)
            with self.cuda.current(self.context):
                self.cuda.copy(address, source + offset, nbytes, self.queue.stream())
            if not self.queue.lends(buffer):
                buffer.last_use = buffer.last_write = self.queue.signalled(NOW)

    def forget(self, mapping: _Mapping) -> None:
        """Called for a block that is going."""
        self._mappings = {number: known for number, known in self._mappings.items() if known is not mapping}

    def close(self) -> None:
        """Lets go of CUDA; the queue and the blocks are closed already."""
        with contextlib.suppress(DeviceError):
            with self.cuda.current(self.context):
                self.cuda.close_stream(self._own_stream)
            self.cuda.release(self.ordinal)

    def _place(self, buffer: VulkanBuffer) -> tuple[_Mapping, int]:
        """The mapping of the buffer's block, and CUDA's address of the buffer."""
        block = buffer.chunk.block
        mapping = self._mappings.get(block.number)
        if mapping is None:
            mapping = self._mappings[block.number] = _Mapping(self, block)
        return mapping, mapping.address + buffer.offset

    def _move(self, buffer: VulkanBuffer) -> None:
        """Makes CUDA's queue the buffer's home, after all uses so far."""
        if buffer.queue is self.queue:
            self.queue.follow_again()
        else:
            for queue, serial in buffer.uses():
                if not queue.is_complete(serial):
                    self.queue.follow(queue, queue.signalled(serial))
        buffer.queue, buffer.readers = self.queue, None
        buffer.read_epoch = buffer.write_epoch = 0
        buffer.last_use = buffer.last_write = NOW
