"""Queue that represents CUDA's use of lent memory, so that Vulkan queues can synchronize with it as with each other.

Vulkan submissions wait for earlier CUDA work, and CUDA streams wait for earlier Vulkan submissions. The CUDA stream is
queried anew for each operation. The queue records no commands itself. Its serials are values of a timeline semaphore
that CUDA signals; the serial `NOW` stands for the value signaled when someone asks for it. Memory dropped here is
released after the stream has passed the point at which `reclaim` noticed it.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkjit.errors import DeviceError

from ..loader import Functions, Vulkan
from ..queue.completion import WAIT_SLICE_NS
from ..queue.group import NOW, QueueGroup, Releasable
from ..queue.queue import Queue
from ..queue.semaphores import create_timeline, semaphore_descriptor, timeline_value
from .driver import CudaDriver

if TYPE_CHECKING:
    from ..memory.buffer import VulkanBuffer

__all__ = ["CudaQueue"]


class CudaQueue(Queue):
    """The queue that represents CUDA. `stream` returns the handle of the stream that the other library currently uses.

    It implements only what is needed of a buffer's owner queue; commands must not be recorded into it.
    """

    is_external = True

    def __init__(
        self, group: QueueGroup, vulkan: Vulkan, functions: Functions, device: Any, cuda: CudaDriver, context: int,
        stream: Callable[[], int],
    ) -> None:  # fmt: skip
        self.start_as_owner(group, vulkan, functions, device)
        self.stream = stream
        self.loans: Counter[int] = Counter()
        self._cuda, self._context = cuda, context
        self._value = 0
        self._waiting: deque[tuple[int, Releasable]] = deque()
        self._timeline = create_timeline(vulkan, functions, device, True)
        self._signal = self._imported(self._timeline.value)
        self._followed: dict[Queue, tuple[int, int]] = {}
        group.queues.append(self)

    # Called by the Vulkan queues.

    def signalled(self, serial: int) -> int:
        """Return the timeline value at which the work up to `serial` is done.

        For `NOW`, signal a new value after all work submitted to the stream so far, and return that.
        """
        if serial < NOW:
            return serial
        with self._cuda.current(self._context):
            self._cuda.signal(self._signal, self._value + 1, self.stream())
        self._value += 1
        return self._value

    def is_complete(self, serial: int) -> bool:
        """As in `Queue`. Always False for `NOW`: CUDA's progress is known only up to the last value signaled."""
        if serial > self.completed:
            self.poll()
        return serial <= self.completed

    def lends(self, buffer: VulkanBuffer) -> bool:
        return self.loans[id(buffer)] > 0

    def follow(self, other: Queue, value: int) -> None:
        """Make the CUDA stream wait until the other queue's timeline reaches the value."""
        semaphore, before = self._followed.get(other) or (self._imported(other.timeline), 0)
        self._followed[other] = semaphore, max(value, before)
        with self._cuda.current(self._context):
            self._cuda.wait(semaphore, value, self.stream())

    def follow_again(self) -> None:
        """Repeat each incomplete wait of `follow` on the current stream, which may not be the one that waited before."""
        for queue, (_, value) in list(self._followed.items()):
            if not queue.is_complete(value):
                self.follow(queue, value)

    # Called by the device on all of its queues.

    @property
    def newest(self) -> int:
        return self._value

    def flush(self) -> None:
        """Do nothing: no commands are pending here."""

    def poll(self) -> None:
        with self.lock:
            if self.group.failure is None:
                value = timeline_value(self.vulkan, self.functions, self.device, self.timeline)
                self.completed = max(self.completed, value)
            while self._waiting and self._waiting[0][0] <= self.completed:
                _, item = self._waiting.popleft()
                self.deferred_bytes -= item.nbytes
                item.release()

    def reclaim(self) -> None:
        with self.lock:
            taken = [self.dropped.popleft() for _ in range(len(self.dropped))]
            late = self._value
            if any(serial >= NOW for serial, _ in taken):
                late = self.signalled(NOW)
            for serial, item in taken:
                self._waiting.append((late if serial >= NOW else serial, item))
                self.deferred_bytes += item.nbytes
            if taken:
                self._waiting = deque(sorted(self._waiting, key=lambda row: row[0]))
                self.poll()

    def oldest_deferred(self) -> int | None:
        return self._waiting[0][0] if self._waiting else None

    def wait(self, serial: int) -> None:
        """Wait until CUDA is done with the work up to `serial`."""
        if serial <= self.completed:
            return
        with self.lock:
            value = self.signalled(serial)
        vulkan, call, timeout = self.vulkan, self.functions.vkWaitSemaphores, 2  # VK_TIMEOUT
        handle = self.timeline
        info = vulkan.struct(
            "VkSemaphoreWaitInfo", sType=_WAIT_INFO, semaphoreCount=1, pSemaphores=vulkan.array("VkSemaphore", [handle]),
            pValues=vulkan.array("uint64_t", [value]),
        )  # fmt: skip
        while True:
            self.group.check()
            result = call(self.device, info, WAIT_SLICE_NS)
            if result != timeout:
                self._check(result, "vkWaitSemaphores")
                break
        self.poll()

    def wait_all(self) -> None:
        """Wait for the memory dropped here. Waiting for CUDA's own work is left to its users."""
        self.reclaim()
        if self._waiting:
            self.wait(self._waiting[-1][0])

    def close(self) -> None:
        """Destroy the imported semaphores. Waits for CUDA first, because its streams may still have to signal them."""
        with contextlib.suppress(DeviceError), self._cuda.current(self._context):
            self._cuda.synchronize()
            for semaphore in (self._signal, *(semaphore for semaphore, _ in self._followed.values())):
                self._cuda.destroy_timeline(semaphore)
        self._followed.clear()
        self._waiting.clear()
        if self._timeline is not None:
            self._timeline.close()

    def _imported(self, semaphore: Any) -> int:
        descriptor = semaphore_descriptor(self.vulkan, self.functions, self.device, semaphore)
        with self._cuda.current(self._context):
            return self._cuda.import_timeline(descriptor)


_WAIT_INFO = 1000207004  # VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO
