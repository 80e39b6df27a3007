"""A command queue: one open command buffer, hazard tracking, in-order submission, completion.

Records dispatches, copies and fills with the buffers that they read and write. Submissions complete in the order of
their serials. A barrier is recorded only between conflicting commands. At the end of each submission, all writes are
visible to the host and to later submissions. Memory that is dropped while the device may use it is released only after
the submission that uses it is complete. All state changes are protected by a single lock per device. It isn't held
while waiting, except when the queue is full, and for reports of graphs that other threads keep replaying.

Each barrier covers all memory, so a buffer stores only the barrier intervals ("epochs") in which it was last read and
written: there is a conflict if such an interval is the current one. Epochs are numbered across all queues of a device.

Each buffer has an owner queue: the last writer, or the queue that allocated it. Other queues that use the buffer wait
for their dependencies on the device: reads for the last write; writes for all uses so far, after which the writing
queue becomes the owner. Buffers that are lent to another library are owned by an external queue: each use waits for
that queue, and makes it wait for the use.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkjit.errors import DeviceError, DeviceLostError, InternalError, OutOfMemoryError
from vkjit.runtime.handles import Handle
from vkjit.runtime.observers import LaunchFields

from ..loader import Functions, Vulkan
from ..record import BARRIER, BIND
from .completion import SentWork
from .group import NOW, QueueGroup
from .semaphores import create_timeline
from .submission import Prepared, Submission, memory_barriers, noted

if TYPE_CHECKING:
    from ..memory.buffer import VulkanBuffer
    from ..pipeline.pipeline import VulkanKernel

__all__ = ["BUDGET", "Queue"]

FIRST_BUDGET, BUDGET, LONG_BUDGET = 8, 256, 4096
"""Numbers of commands after which a submission is sent. FIRST_BUDGET applies after a wait, so that the device starts
early; it quadruples with each submission up to BUDGET. A submission takes the host as long as twenty launches, so those
of tiny kernels grow up to LONG_BUDGET: see `full`."""
_LOOK_AFTER = 8
"""A queue checks for completion of the previous submission after 1/8 of the number of that submission's commands."""
_LONG_NS = 8_000_000
"""Maximum time in nanoseconds for which an idle device is kept waiting for more commands."""

MAX_IN_FLIGHT = 16
_ONE_TIME = 0x1


class Queue(SentWork):
    """A queue that records and submits commands. `epoch` is the number of the current barrier interval.

    `bound` is the kernel whose pipeline is bound. `transferred` is True if a copy or fill was recorded since the last
    barrier. `budget` is the number of recorded commands at which `full` is called. `is_external` is True for queues
    that represent another library.
    """

    is_external = False

    __slots__ = (
        "_begin_info", "_begun", "_bind", "_copy_region", "_dispatch", "_external_waits", "_pipeline_barrier", "_planned", "_push",
        "_ready", "_sent", "_timeline_start", "_waited", "barriers", "bound", "budget", "epoch", "kind", "transferred",
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
        super().__init__(group, vulkan, functions, device, family, handle, spin_ns)
        self.budget = FIRST_BUDGET
        self.kind: object = None  # equal for queues that may take each other's place
        self._planned, self._sent, self._begun = 0, 0, 0
        self.bound: VulkanKernel | None = None
        self.epoch = next(group.epochs)
        self.transferred = False
        self._timeline_start = 0
        self._waited: dict[Queue, int] = {}
        self._external_waits: set[Queue] = set()
        self._ready: Submission | None = None
        self._begin_info = vulkan.struct("VkCommandBufferBeginInfo", flags=_ONE_TIME)
        self.barriers = memory_barriers(vulkan)
        self._copy_region = vulkan.ffi.new("VkBufferCopy *")
        group.queues.append(self)
        f = functions
        self._bind, self._push, self._dispatch = f.vkCmdBindPipeline, f.vkCmdPushConstants, f.vkCmdDispatch
        self._pipeline_barrier = f.vkCmdPipelineBarrier

    # Recording. These methods take the lock, which protects the open command buffer.

    def dispatch(self, request: LaunchFields) -> None:
        """Record a dispatch; the argument block is the push constant data."""
        kernel: VulkanKernel
        kernel, groups, block, reads, writes, _ = request  # type: ignore[assignment]  # `Device.launch` checks
        if self.group.failure is not None:
            raise self.group.failed()
        with self.lock:
            command = self._order(reads, writes).command  # type: ignore[arg-type]  # checks that they are ours
            if kernel is not self.bound:
                self.bound = None  # set only after the call, which may be interrupted
                self._bind(command, 1, kernel.pipeline)
                self.bound = kernel
            if block:
                self._push(command, kernel.layout, 0x20, 0, len(block), block)
            kernel.last_use, kernel.user, kernel.grid = self.serial, self, groups  # before the call, for interruptions
            self._dispatch(command, *groups)
            self._count()

    def copy(self, source: VulkanBuffer, source_offset: int, target: VulkanBuffer, target_offset: int, n: int) -> None:
        """Record a copy of `n` bytes (at least one). The ranges must not overlap."""
        with self.lock:
            self.check()
            submission = self._order((source,), (target,))
            region = self._copy_region
            region.srcOffset, region.dstOffset = source.offset + source_offset, target.offset + target_offset
            region.size = n
            self.transferred = True  # before the call, for interruptions
            self.functions.vkCmdCopyBuffer(submission.command, source.handle, target.handle, 1, region)
            self._count()

    def fill(self, target: VulkanBuffer, offset: int, nbytes: int, pattern: int) -> None:
        """Record a fill with a repeated u32. `offset` and `nbytes` are multiples of 4."""
        with self.lock:
            self.check()
            command = self._order((), (target,)).command
            self.transferred = True  # before the call, for interruptions
            self.functions.vkCmdFillBuffer(command, target.handle, target.offset + offset, nbytes, pattern)
            self._count()

    def record(self, function: Any, *arguments: Any, barrier: bool = True) -> None:
        """Record any other command, after a full barrier unless it needs none.

        `function` is a vkCmd function; `arguments` are its arguments after the command buffer.
        """
        with self.lock:
            self.check()
            submission = self._open or self._begin()
            if barrier:
                self._barrier(submission)
            function(submission.command, *arguments)
            self.recorded += 1

    def _order(self, reads: Sequence[VulkanBuffer], writes: Sequence[VulkanBuffer]) -> Submission:
        """Record a barrier if the buffers conflict with commands since the last one, and note their use.

        Returns the open submission. Raises the device's failure.
        """
        self.check()
        self.command_handle = 0  # machine code mustn't record before the command is complete
        submission = self._open or self._begin()
        hazard = self.hazard(reads, writes)
        if hazard is None:
            return self._order_across(reads, writes)
        if hazard:
            self._barrier(submission)
        self.note_use(reads, writes)
        return submission

    def hazard(self, reads: Sequence[VulkanBuffer], writes: Sequence[VulkanBuffer]) -> bool | None:
        """Return True if a command since the last barrier must complete before one that uses these buffers.

        None if other queues have to be considered.
        """
        epoch, found = self.epoch, False
        for buffer in reads:
            if buffer.queue is not self:
                return None
            if buffer.write_epoch == epoch:
                found = True
        for buffer in writes:
            if buffer.queue is not self or buffer.readers is not None:
                return None
            if epoch in (buffer.write_epoch, buffer.read_epoch):
                found = True
        return found

    def note_use(self, reads: Sequence[VulkanBuffer], writes: Sequence[VulkanBuffer]) -> None:
        """Note that a command of the open submission uses these buffers."""
        epoch, serial = self.epoch, self.serial
        for buffer in reads:
            buffer.read_epoch, buffer.last_use = epoch, serial
        for buffer in writes:
            buffer.write_epoch, buffer.last_use, buffer.last_write = epoch, serial, serial

    def _order_across(self, reads: Sequence[VulkanBuffer], writes: Sequence[VulkanBuffer]) -> Submission:
        """Implementation of `_order` for buffers that other queues have used."""
        for buffer in (*reads, *writes):
            home = buffer.queue
            if not home or home.group is not self.group:
                raise _foreign(buffer)
        own: list[VulkanBuffer] = []
        guests: list[VulkanBuffer] = []
        lent = {b.queue for b in (*reads, *writes) if b.queue is not None and b.queue.is_external and b.queue.lends(b)}
        for lender in lent:
            self._borrow(lender)
        writes = [b for b in writes if b.queue not in lent]
        for buffer in writes:
            self._move_here(buffer)
        for buffer in reads:
            home = buffer.queue
            if home is self or home is None:
                own.append(buffer)
                continue
            if home in lent:
                continue
            if buffer.readers is None and home.is_complete(buffer.last_use):
                self._move_here(buffer, idle=True)  # unused, so take ownership to make later uses cheaper
                own.append(buffer)
                continue
            self.wait_for(home, buffer.last_write)
            guests.append(buffer)
        submission = self._order(own, writes)
        for buffer in guests:
            buffer.readers = {**(buffer.readers or {}), self: self.serial}
        if lent:
            self.budget = 0  # the other library waits for this submission, so send it at once
        return submission

    def is_at_rest(self) -> bool:
        """Return True if the queue has nothing to do. Call it under the lock."""
        self.poll()
        to_do = self._open is not None and (self.recorded or self._waits)
        return not (to_do or self._in_flight)

    def lends(self, buffer: VulkanBuffer) -> bool:
        """Return True if another library may be using a buffer of this queue, which must be external."""
        return False

    def follow(self, other: Queue, value: int) -> None:
        """Make an external queue wait until the timeline of `other` has reached the value."""
        raise InternalError("a queue of the device was asked to follow another: it waits by itself")

    def _borrow(self, lender: Queue) -> None:
        """Order the open submission after all work of an external queue, and later work of that queue after it."""
        if self._timeline is None:
            self.signalled(0)
        self.wait_for(lender, NOW)
        self._external_waits.add(lender)

    def _move_here(self, buffer: VulkanBuffer, idle: bool = False) -> None:
        """Make this queue the owner of the buffer, ordered after all uses in other queues.

        With `idle`, these are complete. The open submission waits for the other uses. From now on the buffer counts as
        used by that submission, even if after an interruption nothing is recorded. Earlier reads by this queue count as
        reads since the last barrier.
        """
        home, readers = buffer.queue, buffer.readers or {}
        if home is self and not readers:
            return
        if home is not None and home is not self:
            self.wait_for(home, buffer.last_use)
        for queue, number in readers.items():
            if queue is not self:
                self.wait_for(queue, number)
        serial = 0 if idle else (self._open or self._begin()).serial
        if home is not self:  # no calls from here on, so that interruptions can't leave a partial update
            buffer.write_epoch, buffer.last_use, buffer.last_write = 0, serial, serial
        buffer.read_epoch = self.epoch if self in readers else 0 if home is not self else buffer.read_epoch
        buffer.queue, buffer.readers = self, None

    def wait_for(self, other: Queue, serial: int) -> None:
        """Order all later commands after submission `serial` of another queue. The wait is on the device."""
        with self.lock:
            self.check()
            if other is self or other.is_complete(serial) or self._waited.get(other, 0) >= serial:
                return
            value = other.signalled(serial)
            if self.recorded and self._open is not None:
                self.submit()
            self._waits[other] = max(value, self._waits.get(other, 0))
            self._waited[other] = value
            if self._open is None:
                self._begin()  # waits for this queue must include the other's submission

    def signalled(self, serial: int) -> int:
        """Return the timeline value that signals completion of submission `serial`, which is sent if it is open.

        The first call creates the timeline.
        """
        if self._timeline is None:
            self.submit()
            self._timeline = create_timeline(self.vulkan, self.functions, self.device, self.group.exports)
            self._timeline_start = self.serial
            self._begin()  # an empty submission, the first to signal, after all earlier ones
            self.submit()
        elif serial >= self.serial:
            self.submit()
        return max(serial, self._timeline_start)

    def _barrier(self, submission: Submission) -> None:
        null = self.vulkan.null
        stages, barrier = self.barriers[self.transferred]
        self._pipeline_barrier(submission.command, stages, stages, 0, 1, barrier, 0, null, 0, null)
        self.epoch = next(self.group.epochs)
        self.transferred = False

    def _count(self) -> None:
        self.recorded += 1
        if self.recorded >= self.budget:
            self.full()

    def full(self) -> None:
        """Called when `budget` commands are recorded: send them, or raise the budget after checking the device's load.

        The check comes after 1/8 as many commands as in the previous submission. If all earlier work is complete by
        then, the device is mostly idle. It loses little by starting later, and the host saves submissions: the budget
        grows, and the next check comes at four times as many commands, as launches may slow down. Otherwise the device
        is busy, and the planned budget applies.
        """
        if self._planned and self.budget:
            self.poll()
            if self._in_flight:
                self.budget, self._planned = self._planned, 0
            else:
                self.budget = min(self._long_budget(), 4 * max(self.recorded, BUDGET))
            if self.recorded < self.budget:
                return
        self.submit()
        if self._ready is not None and len(self._in_flight) < MAX_IN_FLIGHT:
            self.open_command_handle()  # here, as this launch is slow anyway; the next one finds it open

    def _long_budget(self) -> int:
        """Return the number of commands recorded within `_LONG_NS` at the current rate, at most `LONG_BUDGET`."""
        took = time.perf_counter_ns() - self._begun
        return min(LONG_BUDGET, self.recorded * _LONG_NS // max(took, 1))

    def _make_room(self) -> None:
        """Wait for the oldest submission if `MAX_IN_FLIGHT` are in flight."""
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            self.poll()
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            self.wait(self._in_flight[0].serial)

    def _unused(self) -> Submission:
        """Return a submission that isn't in flight. It stays in the list of free ones."""
        self._make_room()
        if not self._free:
            self.poll()
        return self._free[-1] if self._free else self._create()

    def _reset(self, submission: Submission) -> int:
        """Begin recording the submission's command buffer, and return the VkResult."""
        f = self.functions
        result: int = f.vkResetCommandPool(self.device, submission.pool.value, 0)
        return result if result < 0 else int(f.vkBeginCommandBuffer(submission.command, self._begin_info))

    def _prepare(self) -> None:
        """Begin a free submission's command buffer in advance, right after a submission, to save time in launches."""
        if self._ready is None and self._free and self._reset(self._free[-1]) >= 0:
            self._ready = self._free.pop()

    def _begin(self) -> Submission:
        if self.group.idle:
            self.group.activate(self)
        budget = self._next_budget or FIRST_BUDGET  # read first: `_make_room` may wait, which resets it
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            self._make_room()
        submission = self._ready
        if submission is None:
            submission = self._free[-1] if self._free else self._unused()
            result = self._reset(submission)
            if result < 0:
                try:
                    self._check(result, "vkBeginCommandBuffer")
                except OutOfMemoryError:
                    self._drain()
                    self._check(self._reset(submission), "vkBeginCommandBuffer")
            self._free.remove(submission)
        submission.begin(self.serial)
        self._open, self._ready = submission, None
        self.bound = None
        self.recorded = 0
        self._plan(budget)
        return submission

    def _plan(self, budget: int) -> None:
        """Set the number of commands after which `full` sends the open submission or checks the device's load."""
        self.budget, self._planned = budget, 0
        if budget >= BUDGET:  # check the load first
            self.budget, self._planned = min(max(self._sent // _LOOK_AFTER, FIRST_BUDGET), budget), budget
            self._begun = time.perf_counter_ns()
        self._next_budget = min(4 * budget, BUDGET)

    def start_small(self) -> None:
        """Make the next submissions small, and the open one too if it is empty."""
        self._next_budget = 0
        if self._open is not None and not self.recorded:
            self._plan(FIRST_BUDGET)

    # The fast path; see `fast_path`. Call these under the lock.

    def open_command_handle(self) -> int:
        """Return the open command buffer as a number, for the fast path; 0 if launches must take the slow path."""
        if self.group.failure is not None or self.group.observed or self.group.exiting:
            return 0
        self.command_handle = (self._open or self._begin()).number
        return self.command_handle

    def order(self) -> None:
        """Record a barrier if a submission is open."""
        if self._open is not None:
            self._barrier(self._open)

    def begin_epoch(self) -> int:
        """Begin a new barrier interval after a hazard.

        Return `BARRIER` if the launch record must issue the barrier, else 0.
        """
        if self.transferred:
            self.order()
            return 0
        self.epoch = next(self.group.epochs)
        return BARRIER

    def emit(self, kernel: VulkanKernel, flags: int, groups: tuple[int, int, int], block: Any) -> None:
        """Make the driver calls of a launch record, like machine code. `block` is a pointer to its argument block."""
        if self._open is None:
            raise InternalError("a launch was recorded without an open submission")
        command, null = self._open.command, self.vulkan.null
        if flags & BIND:
            self._bind(command, 1, kernel.pipeline)
        if flags & BARRIER:
            stages, barrier = self.barriers[0]
            self._pipeline_barrier(command, stages, stages, 0, 1, barrier, 0, null, 0, null)
        size = kernel.artifact.block_size
        if size:
            self._push(command, kernel.layout, 0x20, 0, size, block)
        self._dispatch(command, *groups)

    def mark_dirty(self) -> None:
        """After an interruption of recording, order later commands after everything that may have been recorded.

        Acquires the lock if the caller doesn't hold it. The caller releases it afterwards.
        """
        taken = False
        while not taken:
            with contextlib.suppress(KeyboardInterrupt):  # a second one; the caller raises the first
                # private, but the standard library's conditions use it too
                taken = self.lock._is_owned() or self.lock.acquire()
        self.bound = None
        self.recorded += 1  # the command may have been recorded
        if self.group.failure is None:
            self.transferred = True
            self.order()

    # Submission and completion.

    def submit(self) -> None:
        """Send the open submission, if there is one, to the device."""
        with self.lock:
            if self._open is not None:
                self._submit(self._open, self._open.info)

    def flush(self) -> None:
        """Send the open submission unless it is empty."""
        with self.lock:
            if self.newest == self.serial:
                self.submit()

    def submit_with(self, prepared: Prepared, reads: Sequence[VulkanBuffer], writes: Sequence[VulkanBuffer]) -> int:
        """Send the open submission, if there is one, followed by a prerecorded command buffer; return the serial.

        The command buffer must end with the barrier of submissions. `reads` and `writes` are all buffers that it uses.
        Call it under the lock.
        """
        if self._open is None and self._are_here(reads, writes):
            submission, serial = self._unused(), self.serial
            self._free.pop()
            submission.begin(serial)
            self.note_use(reads, writes)
            self.epoch = next(self.group.epochs)
            self._depart(submission, prepared.alone)
            return serial
        submission = self._order(reads, writes)
        prepared.both[0] = submission.command
        self._submit(submission, prepared.after)
        return submission.serial

    def _are_here(self, reads: Sequence[VulkanBuffer], writes: Sequence[VulkanBuffer]) -> bool:
        """Return True if this queue owns all buffers and no other queue has read the written ones."""
        return all(b.queue is self for b in reads) and all(b.queue is self and b.readers is None for b in writes)

    def new_command(self) -> Prepared:
        """Allocate a command buffer for `submit_with`."""
        vulkan, functions, device, pool = self.vulkan, self.functions, self.device, self._pool.value
        info = vulkan.struct("VkCommandBufferAllocateInfo", commandPool=pool, commandBufferCount=1)
        own = vulkan.ffi.new("VkCommandBuffer[1]")
        self._check(functions.vkAllocateCommandBuffers(device, info, own), "vkAllocateCommandBuffers")
        free = functions.vkFreeCommandBuffers
        owner = Handle("command buffer", own[0], lambda _: free(device, pool, 1, own))
        both = vulkan.array("VkCommandBuffer", [vulkan.null, own[0]])
        after = vulkan.struct("VkSubmitInfo", commandBufferCount=2, pCommandBuffers=both)
        alone = vulkan.struct("VkSubmitInfo", commandBufferCount=1, pCommandBuffers=own)
        return Prepared(owner, alone, after, both)

    def _submit(self, submission: Submission, info: Any) -> None:
        self.check()
        self.command_handle = 0
        null, (stages, barrier) = self.vulkan.null, self.barriers[2]
        command = submission.command
        self._pipeline_barrier(command, self.barriers[1][0], stages, 0, 1, barrier, 0, null, 0, null)
        self.epoch = next(self.group.epochs)
        self.transferred = False
        self._sent = self.recorded
        self._depart(submission, info, ends=True)

    def _depart(self, submission: Submission, info: Any, ends: bool = False) -> None:
        """Send a submission, and update completion. With `ends`, end its command buffer first."""
        self.check()
        try:
            self._go(submission, info, ends)
        except DeviceError:
            if self.group.failure is None:
                self._go_on(submission, info, ends)
            raise
        except BaseException:  # an interruption: complete the submission, then raise
            self._go_on(submission, info, ends)
            raise
        self.poll()
        self._prepare()

    def _go_on(self, submission: Submission, info: Any, ends: bool) -> None:
        """Continue `_go` after an interruption or error.

        If that fails too, the recorded work is lost, and the device is marked as lost.
        """
        try:
            self._go(submission, info, ends)
        except BaseException as error:
            if self.group.failure is None:
                why = f"what was launched couldn't be sent to the device ({error or type(error).__name__}) and is lost"
                self.group.fail(DeviceLostError(f"{why}: open the device again"))
            raise

    def _go(self, submission: Submission, info: Any, ends: bool) -> None:
        """Send a submission. Resumable: if it was interrupted, another call does the remaining steps."""
        try:
            if ends:
                call = self.functions.vkEndCommandBuffer
                self._check(noted(submission.ended, call, submission.command), "vkEndCommandBuffer")
            self._send(submission, info)
        except OutOfMemoryError as error:
            # Continuing without these launches would make results silently wrong.
            why = f"launches that were recorded are lost, and so is this device: {error}"
            self.group.fail(OutOfMemoryError(why))
            raise self.group.failed() from None
        if not self._in_flight or self._in_flight[-1] is not submission:
            self._in_flight.append(submission)
        if ends:
            self._open, self.command_handle = None, 0
        self.serial = submission.serial + 1
        self._waits.clear()  # only now: until it is sent, a submission with waits isn't empty
        while self._external_waits:
            lender = next(iter(self._external_waits))
            lender.follow(self, submission.serial)
            self._external_waits.discard(lender)


def _foreign(buffer: VulkanBuffer) -> DeviceError:
    if buffer.queue is None:
        return DeviceError("a buffer was used after it was closed")
    return DeviceError("a buffer of another device was given to this one: copy it over first")
