"""The launch fast path of a Vulkan device, which records into the open command buffer with little host work.

A `Launcher` records a prepared launch like `Queue.dispatch`. It returns False if the launch needs the slow path: it
uses buffers of another queue, a capture or a profile observes launches, or the device has failed. Machine code (see
`accelerator`) does the same for a whole call, including the checks of its arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from vkjit.runtime.machine_code.abi import Plan
from vkjit.runtime.prepared_launch import CallPattern, Grid, Launcher, PreparedLaunch, picker

from .. import record
from . import accelerator

if TYPE_CHECKING:
    from ..pipeline.pipeline import VulkanKernel
    from ..queue.queue import Queue

__all__ = ["FastPath"]

_COMPILE_AFTER = 8
"""Number of full submissions after which machine code is compiled, so that short programs don't pay for it."""


class FastPath:
    """The fast path of a device's launches. `current()` is the queue of the current stream."""

    def __init__(self, queue: Queue, current: Any, device: Any) -> None:
        self._queue = queue
        self._current = current
        self._device = device
        self._submissions = 0
        self._ffi = queue.vulkan.ffi
        self._table = self._make_table()
        accelerator.queue_code.load()

    def submitted(self) -> None:
        """Count a submission, and start compiling machine code after `_COMPILE_AFTER` of them."""
        self._submissions += 1
        if self._submissions == _COMPILE_AFTER:
            accelerator.queue_code.start()

    def launcher(self, kernel: VulkanKernel, launch: PreparedLaunch, claim: Callable[[], int] | None) -> Launcher:
        """Return the launch as a function of buffers and values. `claim` returns the address of a report slot."""
        memory, block, address = self._record(kernel, launch)
        is_native = self._is_native
        addresses = tuple(address | flags for flags in range(4))
        current = self._current
        pack = struct.Struct(record.VARIABLE + launch.packer.format[1:]).pack_into
        fields, pick, pieces = launch.fields if launch.shifted else None, launch.pick, launch.pieces
        pick_read = picker([number for number in launch.reads if number not in launch.writes])
        pick_written = picker(launch.writes)
        submitted = self.submitted

        def run(buffers: Sequence[Any], values: tuple[Any, ...], groups: Grid) -> bool:
            queue = current()
            lock = queue.lock
            if (
                lock._is_owned()
            ):  # a signal handler or finalizer interrupted this thread's command; the slow path says so
                return False
            try:
                lock.acquire()
                report = 0 if claim is None else claim()
                packed = pick((*values, *pieces, report)) if fields is None else fields(values, report)
                command = queue.command_handle or queue.open_command_handle()
                if not command:
                    return False
                queue.command_handle = 0  # until this is recorded, so that machine code doesn't record in between
                read, written = pick_read(buffers), pick_written(buffers)
                hazard = queue.hazard(read, written)
                if hazard is None:
                    return False
                try:
                    pack(memory, record.GRID_YZ, groups[1], groups[2], command, groups[0], *packed)
                except (struct.error, OverflowError):  # a scalar that doesn't fit; the slow path reports it
                    return False
                flags = 0 if queue.bound is kernel else record.BIND
                if hazard:
                    flags |= queue.begin_epoch()
                queue.note_use(read, written)
                call = accelerator.queue_code.recorder if is_native else None
                if call is None:
                    queue.emit(kernel, flags, groups, block)
                else:
                    call(addresses[flags])
                if flags & record.BIND:
                    queue.bound = kernel
                    kernel.last_use, kernel.user = queue.serial, queue
                recorded = queue.recorded = queue.recorded + 1
                queue.command_handle = command
                if recorded >= queue.budget:
                    queue.full()
                    submitted()
            except BaseException:
                try:
                    queue.mark_dirty()
                except KeyboardInterrupt:  # a second one
                    queue.mark_dirty()
                raise
            finally:
                lock.release()
            return True

        return run

    def plan(self, kernel: VulkanKernel, launch: PreparedLaunch, pattern: CallPattern) -> Plan | Literal[False] | None:
        """Return the launch as a plan for machine code; None if there is none yet, False if it can't run the launch."""
        if not accelerator.queue_code.is_ready():
            return None
        if not self._is_native:
            return False
        memory, _, address = self._record(kernel, launch)
        memory[record.BLOCK :] = launch.block
        return (
            accelerator.queue_plan(launch, pattern, memory, address, self._queue, self._current, self._device) or False
        )

    def _record(self, kernel: VulkanKernel, launch: PreparedLaunch) -> tuple[record.Record, Any, int]:
        """Return a record for a launch, a pointer to its argument block, and its address."""
        size = kernel.artifact.block_size
        memory = record.Record(record.BLOCK + size)
        place = self._ffi.from_buffer(memory)  # the bytearray is never resized, so it doesn't move
        fixed = (self._table, kernel.pipeline, kernel.layout)
        record.HEADER.pack_into(memory, 0, *map(self._address, fixed), size)
        address = self._address(place)
        kernel.records[address] = memory
        return memory, place + record.BLOCK, address

    def _make_table(self) -> Any:
        """Return the table of driver functions; zeros if they aren't native functions, as in tests."""
        table = self._ffi.new("char[]", record.TABLE.size)
        f, (stages, barrier) = self._queue.functions, self._queue.barriers[0]
        calls = (f.vkCmdBindPipeline, f.vkCmdPushConstants, f.vkCmdDispatch, f.vkCmdPipelineBarrier)
        self._is_native = all(isinstance(call, self._ffi.CData) for call in calls)
        if self._is_native:
            self._ffi.buffer(table)[:] = record.TABLE.pack(*map(self._address, (*calls, barrier)), stages)
        return table

    def _address(self, value: Any) -> int:
        return int(self._ffi.cast("uintptr_t", value))
