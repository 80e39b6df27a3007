"""Submissions in flight, their completion, and the deferred release of memory: the base class of queues.

Submissions are identified by serials and complete in the order of these. Dropped memory is released only after the last
submission that uses it is complete. The lock isn't held while waiting, with the exceptions listed in `queue`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import Any

from vkjit.errors import DeviceLostError, InternalError, OutOfMemoryError
from vkjit.runtime.handles import Handle
from vkjit.runtime.threads import this_thread

from ..loader import Functions, Vulkan
from .device_lost import under_way
from .group import QueueGroup, Releasable, Use
from .semaphores import with_semaphores
from .submission import Submission, noted

__all__ = ["SentWork"]

_TRANSIENT, _RESETTABLE = 0x1, 0x2
WAIT_SLICE_NS = 100_000_000
"""Maximum duration of a single wait in the driver, so that Ctrl-C is handled."""
MAX_WAIT_AT_EXIT_NS = 60_000_000_000
"""Maximum wait for one submission at interpreter exit."""


class SentWork:
    """The submissions of a queue.

    `serial` is that of the open submission, `completed` the last known to be complete.
    """

    __slots__ = (
        "__weakref__",
        "_all",
        "_deferred",
        "_family",
        "_free",
        "_in_flight",
        "_next_budget",
        "_open",
        "_pool",
        "_spin_ns",
        "_timeline",
        "_waits",
        "command_handle",
        "completed",
        "deferred_bytes",
        "device",
        "dropped",
        "functions",
        "group",
        "handle",
        "kept",
        "lock",
        "recorded",
        "serial",
        "vulkan",
    )  # fmt: skip

    def __init__(
        self,
        group: QueueGroup,
        vulkan: Vulkan,
        functions: Functions,
        device: Any,
        family: int,
        handle: Any,
        spin_ns: int,
    ) -> None:
        self.start_as_owner(group, vulkan, functions, device)
        self.serial = 1
        self._deferred: dict[int, list[Releasable]] = {}
        self._spin_ns = spin_ns
        self._open: Submission | None = None
        self.recorded = 0  # number of commands in the open submission
        self.command_handle = 0  # the open command buffer as a number, for the fast path
        self._next_budget = 0  # commands in the next submission; 0 after a wait
        self._in_flight: deque[Submission] = deque()
        self._free: list[Submission] = []
        self._all: list[Submission] = []
        self._timeline: Handle | None = None
        self._waits: dict[Any, int] = {}  # by queue, the timeline value that the next submission waits for
        self.handle = handle
        self._family = family
        self._pool = self._create_pool(_RESETTABLE)

    def start_as_owner(self, group: QueueGroup, vulkan: Vulkan, functions: Functions, device: Any) -> None:
        """Initialize the attributes that buffers need of their owner queue; also used by queues of other libraries."""
        self.group, self.vulkan, self.functions, self.device = group, vulkan, functions, device
        self.lock = group.lock
        self.completed = 0
        self.dropped: deque[tuple[int, Releasable]] = deque()  # finalizers append to it, without the lock
        self.kept: dict[int, tuple[list[tuple[Any, int, int, int, int]], int]] = {}
        """By size in bytes, dropped memory that is kept for the next buffer of that size (chunk, and the buffer's last
        uses), and the maximum number of such chunks."""
        self.deferred_bytes = 0

    def submit(self) -> None:
        """Send the open submission, if there is one, to the device."""
        raise NotImplementedError

    def start_small(self) -> None:
        """Make the next submissions small, so that the device starts early. Called before a wait."""
        raise NotImplementedError

    @property
    def timeline(self) -> Any:
        """The timeline semaphore, whose value is the serial of the last complete submission; see `Queue.signalled`."""
        if self._timeline is None:
            raise InternalError("a queue's timeline was asked for before it signalled")
        return self._timeline.value

    @property
    def newest(self) -> int:
        """The serial of the newest nonempty submission: the open one, or the last that was sent."""
        to_do = self._open is not None and (self.recorded or self._waits)
        return self.serial if to_do else self.serial - 1

    def _send(self, submission: Submission, info: Any) -> None:
        """Submit. If the driver is out of memory, wait for all work in flight and try once more."""
        call, fence = self.functions.vkQueueSubmit, submission.fence.value
        if self._waits or self._timeline:
            waits = [(queue.timeline, value) for queue, value in self._waits.items()]
            signals = [] if self._timeline is None else [(self._timeline.value, self.serial)]
            info = with_semaphores(self.vulkan, info, waits, signals)
        try:
            self._check(noted(submission.sent, call, self.handle, 1, info, fence), "vkQueueSubmit")
        except OutOfMemoryError:
            self._drain()
            submission.sent.clear()
            self._check(noted(submission.sent, call, self.handle, 1, info, fence), "vkQueueSubmit")

    def poll(self) -> None:
        """Update `completed` without waiting."""
        with self.lock:
            while self._in_flight:
                result = self.functions.vkGetFenceStatus(self.device, self._in_flight[0].fence.value)
                if result != 0:
                    self._check(result, "vkGetFenceStatus")
                    break
                self._retire()

    def is_complete(self, serial: int) -> bool:
        """Return True if the submission has completed. Queries the device if necessary, but never waits."""
        if serial > self.completed:
            self.poll()
        return serial <= self.completed

    def wait(self, serial: int) -> None:
        """Wait until submission `serial` is complete; submit it first if it is open."""
        if serial <= self.completed:
            return
        with self.lock:
            self.check()
            if serial >= self.serial:
                self.submit()
                serial = self.serial - 1
            submission = next((s for s in self._in_flight if s.serial == serial), None)
            if submission is None:
                return
            submission.waiters += 1
            self.start_small()
            use = Use(self.group, this_thread.token)
        with use:
            try:
                self._await(submission)
            finally:
                with self.lock:
                    submission.waiters -= 1
                    if submission.done and not submission.waiters:
                        self._recycle(submission)
        self._retire_through(serial)

    def wait_all(self) -> None:
        """Submit and wait for everything recorded so far."""
        with self.lock:
            self.start_small()
            newest = self.newest
            earlier = [submission.serial for submission in self._in_flight] if self.group.exiting else ()
        for serial in (*earlier, newest):  # at exit one by one, for the limit holds for each
            self.wait(serial)

    def _await(self, submission: Submission) -> None:
        status, fence = self.functions.vkGetFenceStatus, submission.fence.value
        deadline = time.perf_counter_ns() + self._spin_ns
        while time.perf_counter_ns() < deadline:
            result = status(self.device, fence)
            if result <= 0:
                self._check(result, "vkGetFenceStatus")
                return
        wait, timeout = self.functions.vkWaitForFences, 2  # VK_TIMEOUT
        while not submission.done:
            self.check()
            result = wait(self.device, 1, submission.fences, 1, WAIT_SLICE_NS)
            if result != timeout:
                self._check(result, "vkWaitForFences")
                return
            if self.group.exiting and time.perf_counter_ns() - deadline > MAX_WAIT_AT_EXIT_NS:
                raise self.group.give_up()

    def _drain(self) -> None:
        """Wait for all work in flight, so that the driver can free its memory."""
        for earlier in list(self._in_flight):
            self._await(earlier)
        self._retire_through(self.serial - 1)

    def _retire_through(self, serial: int) -> None:
        with self.lock:
            while self._in_flight and self._in_flight[0].serial <= serial:
                self._retire()

    def _retire(self) -> None:
        submission = self._in_flight[0]  # removed last, so that after an interruption the next poll does the rest
        self.completed = submission.serial
        row = self._deferred.get(submission.serial)
        while row:
            item = row.pop()
            self.deferred_bytes -= item.nbytes
            item.release()
        self._deferred.pop(submission.serial, None)
        self._in_flight.popleft()
        submission.done = True
        if not submission.waiters:
            self._recycle(submission)

    def _recycle(self, submission: Submission) -> None:
        submission.done = False
        result = self.functions.vkResetFences(self.device, 1, submission.fences)
        if result >= 0:
            self._free.append(submission)
            return
        with contextlib.suppress(OutOfMemoryError):  # the submission just isn't used again
            self._check(result, "vkResetFences")

    def reclaim(self) -> None:
        """Release dropped memory that is no longer used; defer the rest until its submission is complete."""
        if not self.dropped:
            return
        with self.lock:
            completed, dropped, deferred = self.completed, self.dropped, self._deferred
            while dropped:
                serial, item = dropped.popleft()
                if serial <= completed:
                    item.release()
                    continue
                row = deferred.get(serial)
                if row is None:
                    row = deferred[serial] = []
                row.append(item)
                self.deferred_bytes += item.nbytes

    def let_go(self, nbytes: int) -> None:
        """Drop the memory kept for buffers of this size. Call it under the lock."""
        self.drop_kept(self.kept.pop(nbytes)[0])

    def drop_kept(self, row: list[tuple[Any, int, int, int, int]]) -> None:
        """Drop the memory in a list of kept chunks. Other threads may add to and take from the list meanwhile."""
        while row:
            try:
                chunk, last_use, *_ = row.pop()
            except IndexError:  # another thread took it
                return
            self.dropped.append((last_use, chunk))

    def oldest_deferred(self) -> int | None:
        """Return the lowest serial whose completion releases memory; None if nothing is deferred."""
        return min(self._deferred, default=None)

    def check(self) -> None:
        """As `QueueGroup.check`."""
        if self.group.failure is not None or self.group.exiting:
            self.group.check()

    def close(self) -> None:
        """Destroy fences, command pools and the timeline. The device must be idle or lost."""
        for submission in self._all:
            submission.close()
        self._pool.close()
        if self._timeline is not None:
            self._timeline.close()
        self._in_flight.clear()
        self._free.clear()
        self._all.clear()
        self._deferred.clear()
        self._open, self.command_handle = None, 0
        self.kept, self.dropped = {}, deque(maxlen=0)  # what they hold is destroyed with the device

    def _check(self, result: int, call: str) -> None:
        if result >= 0:
            return
        try:
            self.vulkan.check(result, call)
        except DeviceLostError as error:
            why = "the driver gave the device up (a fault in a kernel or a time limit); its contents are gone"
            self.group.fail(DeviceLostError(f"{error}: {why}{under_way(self)}"))
            raise self.group.failed() from None

    def _create_pool(self, flags: int) -> Handle:
        vulkan, functions, device = self.vulkan, self.functions, self.device
        info = vulkan.struct("VkCommandPoolCreateInfo", flags=flags, queueFamilyIndex=self._family)
        out = vulkan.ffi.new("VkCommandPool *")
        vulkan.check(functions.vkCreateCommandPool(device, info, vulkan.null, out), "vkCreateCommandPool")
        destroy = functions.vkDestroyCommandPool
        return Handle("command pool", out[0], lambda handle: destroy(device, handle, vulkan.null))

    def _create(self) -> Submission:
        """Create a submission and add it to the free ones.

        Each has its own command pool: drivers reset a pool faster than a command buffer, and keep its memory.
        """
        vulkan, functions, device = self.vulkan, self.functions, self.device
        pool = self._create_pool(_TRANSIENT)
        try:
            info = vulkan.struct("VkCommandBufferAllocateInfo", commandPool=pool.value, commandBufferCount=1)
            commands = vulkan.ffi.new("VkCommandBuffer[1]")
            self._check(functions.vkAllocateCommandBuffers(device, info, commands), "vkAllocateCommandBuffers")
            fence, fresh = vulkan.ffi.new("VkFence *"), vulkan.struct("VkFenceCreateInfo")
            self._check(functions.vkCreateFence(device, fresh, vulkan.null, fence), "vkCreateFence")
        except BaseException:
            pool.close()
            raise
        destroy = functions.vkDestroyFence
        owner = Handle("fence", fence[0], lambda handle: destroy(device, handle, vulkan.null))
        submission = Submission(vulkan, pool, commands[0], owner)
        self._all.append(submission)
        self._free.append(submission)
        return submission
