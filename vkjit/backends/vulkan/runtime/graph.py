"""Captured command sequence recorded as one Vulkan command buffer that is resubmitted at each replay.

A replay costs the host one submission. Barriers separate conflicting entries and end the command buffer. A command
buffer is freed only when the device is done with it. Each launch of a kernel that can report has its own report slot in
memory of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vkjit.errors import DeviceError, FeatureError
from vkjit.runtime.artifact import REPORT_WORDS, KernelArtifact
from vkjit.runtime.capture import Copy, DeviceGraph, Entry, Fill, Launch, is_capturing
from vkjit.runtime.streams import refuse

from .memory.buffer import VulkanBuffer
from .pipeline.pipeline import VulkanKernel
from .queue.queue import Queue
from .queue.submission import Prepared, memory_barriers

if TYPE_CHECKING:
    from .device import VulkanDevice

__all__ = ["QueueGraph"]

_SIMULTANEOUS_USE = 0x4
_SLOT_BYTES = 4 * REPORT_WORDS


class QueueGraph(DeviceGraph):
    """Graph that records its command buffer on first use (per queue), and again after its entries have changed."""

    device: VulkanDevice

    def __init__(self, device: VulkanDevice, entries: list[Entry]) -> None:
        printing = [e.kernel.artifact.name for e in entries if isinstance(e, Launch) and _prints(e)]
        if printing:
            raise FeatureError(
                f"kernel {printing[0]} prints, which replays can't show: take print() out, or capture without it"
            )
        super().__init__(device, entries)
        self._commands: dict[Queue, _Commands] = {}
        self._slots: VulkanBuffer | None = None

    def changed(self) -> None:
        commands, self._commands = self._commands, {}
        for queue, recorded in commands.items():
            queue.dropped.append((recorded.serial, recorded))

    def replay(self) -> None:
        if is_capturing(self.device):
            super().replay()  # entry by entry, into the outer capture
            return
        queue = self.device.stream.queue
        queue.group.enter()
        if self.device.stream.copies:
            launch = next((e for e in self.entries if isinstance(e, Launch)), None)
            if launch is not None:
                refuse(launch.kernel.artifact)
        if self.device.observers and self.device.observers_here():
            super().replay()  # entry by entry, so that observers see them
            return
        self.redraw()
        with queue.lock:
            queue.check()
            recorded = self._commands.get(queue)
            if recorded is None:
                recorded = self._commands[queue] = self._record(queue)
            if self._slots is not None:
                self.device.watch_reports(self._slots, recorded.owners)
            try:
                recorded.serial = queue.submit_with(recorded.prepared, recorded.reads, recorded.writes)
            finally:  # an interrupt may arrive after the submission was sent
                recorded.serial = serial = max(recorded.serial, queue.serial - 1)
                for kernel in recorded.kernels:
                    kernel.last_use = max(serial, kernel.last_use) if kernel.user is queue else serial
                    kernel.user = queue

    def __del__(self) -> None:
        if hasattr(self, "_commands"):
            self.changed()

    def close(self) -> None:
        self.changed()
        super().close()
        self._slots = None

    def _record(self, queue: Queue) -> _Commands:
        recorded = _Commands(queue.new_command(), self.entries)
        try:
            self._record_into(recorded, queue)
        except BaseException:
            recorded.release()
            raise
        return recorded

    def _record_into(self, recorded: _Commands, queue: Queue) -> None:
        """Record all entries."""
        command, owners = recorded.prepared.owner.value, recorded.owners
        begin = queue.vulkan.struct("VkCommandBufferBeginInfo", flags=_SIMULTANEOUS_USE)
        queue.vulkan.check(queue.functions.vkBeginCommandBuffer(command, begin), "vkBeginCommandBuffer")
        recorder = _Recorder(queue, command)
        for entry in self.entries:
            recorder.order(entry)
            if isinstance(entry, Launch):
                kernel = cast("VulkanKernel", entry.kernel)
                kernel.grid = entry.groups
                if kernel.report_offset >= 0:
                    owners.append(kernel.artifact)
                block = self._block(entry, kernel, len(owners) - 1)
                if kernel.artifact.indirect:
                    block = recorded.placed(self.device.argument_memory(len(block), queue), block)
                recorder.launch(kernel, entry.groups, block)
            elif isinstance(entry, Copy):
                recorder.copy(entry)
            else:
                recorder.fill(entry)
        recorder.barrier(2)
        queue.vulkan.check(queue.functions.vkEndCommandBuffer(command), "vkEndCommandBuffer")

    def _block(self, entry: Launch, kernel: VulkanKernel, slot: int) -> bytes:
        """Return the launch's argument block, with the address of its report slot filled in."""
        block = entry.block
        if kernel.report_offset >= 0:
            address = self._slot_buffer().address + slot * _SLOT_BYTES
            place = kernel.report_offset
            block = block[:place] + address.to_bytes(8, "little") + block[place + 8 :]
        return block

    def _slot_buffer(self) -> VulkanBuffer:
        if self._slots is None:
            count = sum(
                isinstance(e, Launch) and cast("VulkanKernel", e.kernel).report_offset >= 0 for e in self.entries
            )
            self._slots = self.device.report_memory(count * _SLOT_BYTES)
        return self._slots


class _Commands:
    """A recorded command buffer and the objects it uses. `serial` is its last submission.

    `owners` lists the artifacts of launches that can report, by slot. `reads` includes indirect argument blocks. These
    belong to this recording alone, because an earlier recording may still be running with other arguments.
    """

    nbytes = 0

    def __init__(self, prepared: Prepared, entries: list[Entry]) -> None:
        self.prepared = prepared
        self.owners: list[KernelArtifact] = []
        self.serial = 0
        self.reads = _unique(b for e in entries for b in e.reads)
        self.writes = _unique(b for e in entries for b in e.writes)
        self.kernels = _unique(e.kernel for e in entries if isinstance(e, Launch))

    def placed(self, memory: VulkanBuffer, block: bytes) -> bytes:
        """Copy an argument block to `memory` and return the 8 bytes of its address."""
        memory.chunk.bytes[: len(block)] = np.frombuffer(block, dtype=np.uint8)
        self.reads.append(memory)  # so that submissions track its use
        return memory.address.to_bytes(8, "little")

    def release(self) -> None:
        self.prepared.owner.close()


class _Recorder:
    """Records entries into one command buffer, with barriers between conflicting entries."""

    def __init__(self, queue: Queue, command: Any) -> None:
        self._queue = queue
        self._command = command
        self._f = queue.functions
        self._barriers = memory_barriers(queue.vulkan)
        self._read: set[int] = set()
        self._written: set[int] = set()
        self._transferred = False
        self._bound: VulkanKernel | None = None

    def order(self, entry: Entry) -> None:
        reads, writes = {id(b) for b in entry.reads}, {id(b) for b in entry.writes}
        for buffer in (*entry.reads, *entry.writes):
            home = getattr(buffer, "queue", None)
            if not home or home.group is not self._queue.group:
                raise DeviceError("a captured buffer was closed, or belongs to another device")
        if self._written & (reads | writes) or self._read & writes:
            self.barrier(int(self._transferred))
        self._read |= reads
        self._written |= writes

    def barrier(self, kind: int) -> None:
        stages, barrier = self._barriers[kind]
        null = self._queue.vulkan.null
        self._f.vkCmdPipelineBarrier(self._command, stages, stages, 0, 1, barrier, 0, null, 0, null)
        self._read, self._written, self._transferred = set(), set(), False

    def launch(self, kernel: VulkanKernel, groups: tuple[int, int, int], block: bytes) -> None:
        if kernel is not self._bound:
            self._f.vkCmdBindPipeline(self._command, 1, kernel.pipeline)
            self._bound = kernel
        if block:
            self._f.vkCmdPushConstants(self._command, kernel.layout, 0x20, 0, len(block), block)
        self._f.vkCmdDispatch(self._command, *groups)

    def copy(self, entry: Copy) -> None:
        source, target = cast("VulkanBuffer", entry.source), cast("VulkanBuffer", entry.target)
        region = self._queue.vulkan.ffi.new("VkBufferCopy *")
        region.srcOffset, region.dstOffset = source.offset + entry.source_offset, target.offset + entry.target_offset
        region.size = entry.nbytes
        self._f.vkCmdCopyBuffer(self._command, source.handle, target.handle, 1, region)
        self._transferred = True

    def fill(self, entry: Fill) -> None:
        target = cast("VulkanBuffer", entry.target)
        offset = target.offset + entry.offset
        self._f.vkCmdFillBuffer(self._command, target.handle, offset, entry.nbytes, entry.pattern)
        self._transferred = True


def _prints(entry: Launch) -> bool:
    return cast("VulkanKernel", entry.kernel).print_offset >= 0


def _unique(items: Iterable[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())
