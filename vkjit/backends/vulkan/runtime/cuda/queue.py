"""What CUDA does with memory that it was lent, as one more queue of the device.

Enters: a stream of CUDA, asked for anew each time. Leaves: submissions of Vulkan queues that run after what CUDA had been
asked for, and streams of CUDA that go on after those. Holds: it records nothing itself; its serials are values of a
timeline semaphore that CUDA sets, and `NOW` stands for the value that is set when somebody asks; memory dropped here is
released when the stream has got past the point where that was noticed.
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
    """The queue that stands for CUDA. `stream` tells the handle of the stream that the other library works in now.

    Of `Queue` it has what others ask a buffer's home for; recording into it is an error of ours.
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

    # What Vulkan's queues ask it for.

    def signalled(self, serial: int) -> int:
        """The value at which what was asked of CUDA is done; for `NOW`, all that its stream has been given."""
        if serial < NOW:
            return serial
        with self._cuda.current(self._context):
            self._cuda.signal(self._signal, self._value + 1, self.stream())
        self._value += 1
        return self._value

    def is_complete(self, serial: int) -> bool:
        """As in `Queue`; whether CUDA is done with what it has been given by now isn't known without asking."""
        if serial > self.completed:
            self.poll()
        return serial <= self.completed

    def lends(self, buffer: VulkanBuffer) -> bool:
        return self.loans[id(buffer)] > 0

    def follow(self, other: Queue, value: int) -> None:
        """Has CUDA's stream go on only when the other queue's timeline is at the value."""
        semaphore, before = self._followed.get(other) or (self._imported(other.timeline), 0)
        self._followed[other] = semaphore, max(value, before)
        with self._cuda.current(self._context):
            self._cuda.wait(semaphore, value, self.stream())

    def follow_again(self) -> None:
        """As `follow`, for all that any stream followed before: another one may be at work now."""
        for queue, (_, value) in list(self._followed.items()):
            if not queue.is_complete(value):
                self.follow(queue, value)

    # What the device asks all of its queues for.

    @property
    def newest(self) -> int:
        return self._value

    def flush(self) -> None:
        """Nothing waits here to be sent."""

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
        """Waits until CUDA is done with it."""
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
        """Waits for the memory that was dropped here; CUDA's own work is its users' to wait for."""
        self.reclaim()
        if self._waiting:
            self.wait(self._waiting[-1][0])

    def close(self) -> None:
        """Ends the imports; waits for CUDA, whose streams may have to signal them."""
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
