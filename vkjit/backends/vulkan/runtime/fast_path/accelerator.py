"""The machine code of launches that Vulkan queues record."""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any

from vkjit import dtypes
from vkjit.runtime.array import DeviceArray, layout_of
from vkjit.runtime.machine_code.abi import Layout, Plan, find_layout
from vkjit.runtime.machine_code.loader import MachineCode
from vkjit.runtime.machine_code.plan import make_plan
from vkjit.runtime.prepared_launch import CallPattern, Hole, PreparedLaunch, prepare

from .. import record
from ..memory.buffer import VulkanBuffer
from ..pipeline.pipeline import VulkanKernel
from ..queue.queue import Queue
from .queue_code import TABLE, QueueWord, launch_code

__all__ = ["QueueCode", "layout", "queue_code", "queue_plan"]

_NO_WAIT = (False,)
"""The arguments of a lock's `acquire`."""


@functools.cache
def layout() -> Layout | None:
    """Return the offsets of the objects that the code accesses, or None if they aren't recognized."""
    buffer = (
        "device", "queue", "readers", "read_epoch", "write_epoch", "last_use", "last_write", "address",
    )  # fmt: skip
    queue = ("lock", "command_handle", "epoch", "transferred", "bound", "serial", "recorded", "budget")
    return find_layout((VulkanBuffer, buffer), [(VulkanKernel, ("last_use", "user")), (Queue, queue)])


class QueueCode(MachineCode):
    """Machine code that records launches."""

    names = ("vkjit_launch", "vkjit_record_method", "vkjit_nothing", "vkjit_end")
    table = TABLE
    modules = (record.__name__, launch_code.__module__)
    recorder: Callable[[int], None] | None = None
    """Makes the driver calls of a record, given its address plus flags; None without machine code."""

    def layout(self) -> Layout | None:
        return layout()

    def text(self, layout: Layout) -> str:
        return launch_code(layout)

    def objects(self) -> dict[str, Any]:
        return {
            "Buffer": VulkanBuffer, "DeviceArray": DeviceArray, "False": False, "NO_WAIT": _NO_WAIT, "None": None,
            "Queue": Queue, "True": True,
        }  # fmt: skip

    def use(self, functions: dict[str, int]) -> None:
        self.recorder = self.method(functions["vkjit_record_method"])
        super().use(functions)

    def passes_test(self, functions: dict[str, int]) -> bool:
        """Make a call that doesn't match a plan and one that does, with stubs for the driver, and check all effects."""
        queue: Any = Queue.__new__(Queue)
        queue.lock, queue.command_handle, queue.epoch, queue.transferred = threading.RLock(), 0x1234, 1007, False
        queue.bound, queue.serial, queue.recorded, queue.budget = None, 1005, 2000, 3000
        queue.group = type("Group", (), {"epochs": itertools.count(1008)})
        kernel: Any = VulkanKernel.__new__(VulkanKernel)
        kernel.queue = kernel.user = kernel.last_use = None
        current: Any = functools.partial(next, itertools.repeat(queue))
        device: Any = object()
        buffers: list[Any] = [VulkanBuffer.__new__(VulkanBuffer) for _ in range(2)]
        arrays = []
        for number, buffer in enumerate(buffers):
            buffer.device, buffer.queue, buffer.readers, buffer.address = device, queue, None, 0x10000 * (number + 1)
            buffer.read_epoch, buffer.write_epoch, buffer.last_use, buffer.last_write = 0, 1007 * number, 0, 0
            arrays.append(DeviceArray.placed(buffer, 64, dtypes.f32, layout_of(dtypes.f32, (5,), (1,))))
        holes = (Hole(0, 0), Hole(8, 1, 4), Hole(16, 2, code="i"), Hole(20, 3, code="f"))
        launch = prepare(kernel, bytes(24), holes, 4, (0,), (1,))
        pattern = CallPattern((*arrays, 1, 1.5), (0, 1), (7, 8, 9), scalars=(2, 3))
        table = ctypes.create_string_buffer(record.TABLE.pack(*[functions["vkjit_nothing"]] * 4, 0, 0))
        memory = record.Record(record.BLOCK + len(launch.block))
        record.HEADER.pack_into(memory, 0, ctypes.addressof(table), 0, 0, len(launch.block))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        plan = queue_plan(launch, pattern, memory, address, queue, current, device)
        if plan is None:
            return False
        call = self.method(functions["vkjit_launch"], plan)
        refused, done = call(*arrays, 1.5, 1), call(*arrays, -3, 0.25)
        block = record.BLOCK
        first, second = buffers
        passed = (
            (refused, done, queue.recorded, queue.epoch, queue.bound) == (False, True, 2001, 1008, kernel)
            and record.groups(memory) == (7, 8, 9)
            and memory[record.COMMAND : record.COMMAND + 8] == (0x1234).to_bytes(8, "little")
            and memory[block:] == launch.packer.pack(0x10040, 0x20044, -3, 0.25)
            and (first.read_epoch, first.last_use, first.last_write) == (1008, 1005, 0)
            and (second.write_epoch, second.last_use, second.last_write) == (1008, 1005, 1005)
            and (kernel.user, kernel.last_use) == (queue, 1005)
            and queue.lock.acquire(blocking=False)
        )
        for buffer in buffers:
            buffer.queue = None  # nothing to release
        return passed


queue_code = QueueCode()


def queue_plan(
    launch: PreparedLaunch,
    pattern: CallPattern,
    memory: record.Record,
    address: int,
    queue: Queue,
    current: Any,
    device: Any,
) -> Plan | None:
    """Return the plan of a launch, or None if machine code can't run it.

    `memory` is the launch's record, at `address`. `current()` is the queue of the current stream; `queue` is one of
    them.
    """
    if layout() is None:
        return None
    methods, epochs = (queue.lock.acquire, queue.lock.release), queue.group.epochs
    words: dict[int, int] = {
        QueueWord.KERNEL: id(launch.kernel), QueueWord.CURRENT: id(current),
        QueueWord.LOCK: id(queue.lock), QueueWord.ACQUIRE: id(methods[0]), QueueWord.RELEASE: id(methods[1]),
        QueueWord.EPOCHS: id(epochs),
    }  # fmt: skip
    kept = (memory, methods, epochs, current, queue.lock)
    return make_plan(launch, pattern, device, VulkanBuffer, (address, record.BLOCK), words, kept)
