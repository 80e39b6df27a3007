"""Happens-before checker for Vulkan commands, independent of how the runtime orders them.

`tracing` records the calls between the runtime and the driver that record, submit and wait. It also records the memory
that each dispatch reads and writes: as told to the queue or, on the fast path, from the addresses that are pushed.
`unordered` finds the pairs of commands in a `Trace` that touch the same bytes, at least one of them writing, without an
order guaranteed by Vulkan.

The rules follow the specification's chapter on synchronization. A pipeline barrier orders all commands before it in a
queue's submission order against all after it. A semaphore orders everything submitted to its queue before the signal
against the waiting submission and all later ones on that queue. A fence that the host saw signaled orders its queue's
work so far against everything submitted later. Each of the runtime's queues counts as a separate hardware queue:
streams may share one, but the runtime must not rely on that.
"""

from __future__ import annotations

import struct
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vkjit.backends.vulkan.runtime import graph, loader
from vkjit.backends.vulkan.runtime.memory.buffer import Storage, VulkanBuffer
from vkjit.backends.vulkan.runtime.pipeline.pipeline import VulkanKernel
from vkjit.backends.vulkan.runtime.queue.queue import Queue
from vkjit.runtime.observers import LaunchFields

__all__ = ["Access", "Barrier", "Command", "Submit", "Trace", "barriers_that_matter", "tracing", "unordered"]

Clock = dict[tuple[int, bool], int]
"""By (queue, copies): number of the queue's commands ordered before; with `copies`, their copies are available too."""


@dataclass(frozen=True)
class Access:
    """A read or write of the bytes from `start` to `end` of a VkBuffer."""

    memory: int
    start: int
    end: int
    writes: bool

    def conflicts(self, other: Access) -> bool:
        same = self.memory == other.memory and self.start < other.end and other.start < self.end
        return same and (self.writes or other.writes)


@dataclass(frozen=True)
class Command:
    """A dispatch, copy or fill."""

    name: str
    accesses: tuple[Access, ...]

    def conflicts(self, other: Command) -> bool:
        return any(a.conflicts(b) for a in self.accesses for b in other.accesses)


@dataclass(frozen=True)
class Barrier:
    """A global memory barrier on one queue; `copies` is True if it also makes writes by copies and fills available."""

    copies: bool = True


@dataclass(frozen=True)
class Submit:
    """A submission: queue, commands and barriers, semaphores with their values, fence."""

    queue: int
    items: tuple[Command | Barrier, ...]
    waits: tuple[tuple[int, int], ...]
    signals: tuple[tuple[int, int], ...]
    fence: int


@dataclass
class Trace:
    """Submissions, and the fences (as numbers) that the host saw signaled, in the order of the host's calls."""

    events: list[Submit | int] = field(default_factory=list)
    short: int = 0
    """Number of launches on the fast path."""


def unordered(trace: Trace) -> list[tuple[Command, Command]]:
    """Return the pairs of conflicting commands that aren't ordered, including pairs on the same queue."""
    base: dict[int, Clock] = defaultdict(dict)
    counts: dict[int, int] = defaultdict(int)
    signals: dict[int, list[tuple[int, Clock]]] = defaultdict(list)
    fences: dict[int, Clock] = {}
    host: Clock = {}
    seen: dict[int, list[tuple[Command, int, int]]] = defaultdict(list)
    wrong = []
    for event in trace.events:
        if isinstance(event, int):
            _join(host, fences.get(event, {}))
            continue
        clock = base[event.queue]
        _join(clock, host)
        for semaphore, value in event.waits:
            _join(clock, next(at_signal for reached, at_signal in signals[semaphore] if reached >= value))
        for item in event.items:
            if isinstance(item, Barrier):
                for copies in (False, True)[: 1 + item.copies]:
                    clock[event.queue, copies] = counts[event.queue]
                continue
            wrong += [
                (earlier, item)
                for memory in {access.memory for access in item.accesses}
                for earlier, queue, place in seen[memory]
                if clock.get((queue, True), 0) <= place  # what copies wrote is never ordered before the rest is
                and clock.get((queue, _needs_copies(earlier, item)), 0) <= place
                and earlier.conflicts(item)
            ]
            for memory in {access.memory for access in item.accesses}:
                seen[memory].append((item, event.queue, counts[event.queue]))
            counts[event.queue] += 1
        whole = counts[event.queue]
        reached = {**clock, (event.queue, False): whole, (event.queue, True): whole}
        for semaphore, value in event.signals:
            signals[semaphore].append((value, reached))
        fences[event.fence] = reached
    return wrong


def barriers_that_matter(trace: Trace) -> Iterator[tuple[int, int]]:
    """Yield (event, item) of each barrier that alone separates two conflicting commands of its submission."""
    for number, event in enumerate(trace.events):
        if isinstance(event, int):
            continue
        places = [-1, *(i for i, item in enumerate(event.items) if isinstance(item, Barrier)), len(event.items)]
        for before, barrier, after in zip(places, places[1:], places[2:], strict=False):
            left = [item for item in event.items[before + 1 : barrier] if isinstance(item, Command)]
            right = [item for item in event.items[barrier + 1 : after] if isinstance(item, Command)]
            if any(a.conflicts(b) for a in left for b in right):
                yield number, barrier


def without(trace: Trace, place: tuple[int, int]) -> Trace:
    """Return the trace with one barrier removed."""
    number, index = place
    events = list(trace.events)
    event = events[number]
    assert isinstance(event, Submit) and isinstance(event.items[index], Barrier)
    items = event.items[:index] + event.items[index + 1 :]
    events[number] = Submit(event.queue, items, event.waits, event.signals, event.fence)
    return Trace(events)


def _needs_copies(earlier: Command, later: Command) -> bool:
    """True if the earlier command is a copy or fill whose writes must be available to the later one."""
    written = Command("written", tuple(access for access in earlier.accesses if access.writes))
    return earlier.name != "dispatch" and written.conflicts(later)


def _join(clock: Clock, other: Clock) -> None:
    for queue, count in other.items():
        clock[queue] = max(clock.get(queue, 0), count)


class _Recorder:
    """Handlers of the recorded Vulkan calls, by name."""

    def __init__(self, trace: Trace, ffi: Any) -> None:
        self.trace = trace
        self.ffi = ffi
        self.items: dict[int, list[Command | Barrier]] = {}
        self.queues: dict[int, int] = {}
        self.buffers: list[weakref.ref[VulkanBuffer]] = []
        self.short = 0
        self.dispatched: tuple[Access, ...] = ()
        self.handlers: dict[str, Callable[..., None]] = {
            "vkBeginCommandBuffer": self.begin,
            "vkCmdDispatch": self.dispatch,
            "vkCmdPipelineBarrier": self.barrier,
            "vkCmdCopyBuffer": self.copy,
            "vkCmdFillBuffer": self.fill,
            "vkQueueSubmit": self.submit,
        }

    def number(self, handle: Any) -> int:
        return int(self.ffi.cast("uintptr_t", handle))

    def note(self, reads: Any, writes: Any) -> None:
        """Set the accesses of the next dispatch."""
        accesses = [(buffer, False) for buffer in reads] + [(buffer, True) for buffer in writes]
        self.dispatched = tuple(
            Access(self.number(buffer.handle), buffer.offset, buffer.offset + buffer.nbytes, written)
            for buffer, written in accesses
        )

    def note_pushed(self, kernel: VulkanKernel, block: bytes) -> None:
        """Set the accesses of the next dispatch from the addresses in an argument block."""
        self.short += 1
        found: dict[int, VulkanBuffer] = {}
        for item in kernel.artifact.fields:
            if item.role == "address":
                (address,) = struct.unpack_from("<Q", block, item.offset)
                found[item.arg] = self.buffer_at(address)
        self.note(*([found[arg] for arg in args] for args in (kernel.artifact.reads, kernel.artifact.writes)))

    def buffer_at(self, address: int) -> VulkanBuffer:
        alive = [buffer for reference in self.buffers if (buffer := reference()) is not None and buffer.queue]
        (found,) = (b for b in alive if b.address <= address < b.address + b.nbytes)
        return found

    def begin(self, command: Any, _info: Any) -> None:
        self.items[self.number(command)] = []

    def dispatch(self, command: Any, *_: Any) -> None:
        self.items[self.number(command)].append(Command("dispatch", self.dispatched))

    def barrier(self, command: Any, *arguments: Any) -> None:
        barriers = arguments[4]
        transfer_write = 0x1000
        self.items[self.number(command)].append(Barrier(bool(barriers[0].srcAccessMask & transfer_write)))

    def copy(self, command: Any, source: Any, target: Any, count: int, regions: Any) -> None:
        accesses = []
        for region in regions[0:count]:
            start, end = region.srcOffset, region.srcOffset + region.size
            accesses.append(Access(self.number(source), start, end, False))
            start, end = region.dstOffset, region.dstOffset + region.size
            accesses.append(Access(self.number(target), start, end, True))
        self.items[self.number(command)].append(Command("copy", tuple(accesses)))

    def fill(self, command: Any, target: Any, offset: int, size: int, _pattern: int) -> None:
        access = Access(self.number(target), offset, offset + size, True)
        self.items[self.number(command)].append(Command("fill", (access,)))

    def submit(self, _queue: Any, count: int, infos: Any, fence: Any) -> None:
        for info in infos[0:count]:
            commands = [self.number(info.pCommandBuffers[i]) for i in range(info.commandBufferCount)]
            waits, signals = self._semaphores(info)
            items = tuple(item for command in commands for item in self.items[command])
            self.trace.events.append(Submit(self.queues[commands[0]], items, waits, signals, self.number(fence)))

    def _semaphores(self, info: Any) -> tuple[Any, Any]:
        if not info.pNext:
            return (), ()
        values = self.ffi.cast("VkTimelineSemaphoreSubmitInfo *", info.pNext)
        waits = [
            (self.number(info.pWaitSemaphores[i]), int(values.pWaitSemaphoreValues[i]))
            for i in range(info.waitSemaphoreCount)
        ]
        signals = [
            (self.number(info.pSignalSemaphores[i]), int(values.pSignalSemaphoreValues[i]))
            for i in range(info.signalSemaphoreCount)
        ]
        return tuple(waits), tuple(signals)


@contextmanager
def tracing() -> Iterator[Trace]:
    """Record what devices opened inside the block submit to the driver."""
    trace = Trace()
    recorder = _Recorder(trace, loader.load().ffi)
    wrapped: list[tuple[loader.Functions, str]] = []
    look_up, order, made = loader.Functions.__getattr__, graph._Recorder.order, Storage.buffer
    dispatch, emit, create, new_command = Queue.dispatch, Queue.emit, Queue._create, Queue.new_command
    again = VulkanBuffer.again

    def traced_look_up(self: loader.Functions, name: str) -> Any:
        pointer = look_up(self, name)
        handler = recorder.handlers.get(name)

        def call(*arguments: Any) -> Any:
            result = pointer(*arguments)
            if handler is not None and not result:
                handler(*arguments)
            if name == "vkGetFenceStatus" and result == 0:
                trace.events.append(recorder.number(arguments[1]))
            if name == "vkWaitForFences" and result == 0:
                trace.events.append(recorder.number(arguments[2][0]))
            return result

        if handler is None and name not in ("vkGetFenceStatus", "vkWaitForFences"):
            return pointer
        setattr(self, name, call)
        wrapped.append((self, name))
        return call

    def traced_dispatch(self: Queue, request: LaunchFields) -> None:
        _, _, _, reads, writes, _ = request
        recorder.note(reads, writes)
        dispatch(self, request)

    def traced_emit(self: Queue, kernel: Any, flags: int, groups: Any, block: Any) -> None:
        recorder.note_pushed(kernel, bytes(self.vulkan.ffi.buffer(block, kernel.artifact.block_size)))
        emit(self, kernel, flags, groups, block)

    def traced_create(self: Queue) -> Any:
        submission = create(self)
        recorder.queues[recorder.number(submission.command)] = id(self)
        return submission

    def traced_new_command(self: Queue) -> Any:
        prepared = new_command(self)
        recorder.queues[recorder.number(prepared.owner.value)] = id(self)
        return prepared

    def traced_buffer(self: Storage, *rest: Any) -> VulkanBuffer:
        buffer = made(self, *rest)
        recorder.buffers.append(weakref.ref(buffer))
        return buffer

    def traced_again(*arguments: Any) -> Any:
        found = again(*arguments)
        if found is not None:  # reused from the pool
            recorder.buffers.append(weakref.ref(found))
        return found

    def traced_order(self: Any, entry: Any) -> None:
        recorder.note(entry.reads, entry.writes)
        order(self, entry)

    replaced: list[tuple[Any, str, Any, Any]] = [
        (loader.Functions, "__getattr__", traced_look_up, look_up),
        (Queue, "dispatch", traced_dispatch, dispatch),
        (Queue, "emit", traced_emit, emit),
        (Queue, "_create", traced_create, create),
        (Queue, "new_command", traced_new_command, new_command),
        (Storage, "buffer", traced_buffer, made),
        (VulkanBuffer, "again", staticmethod(traced_again), staticmethod(again)),
        (graph._Recorder, "order", traced_order, order),
    ]
    for owner, name, function, _ in replaced:
        setattr(owner, name, function)
    try:
        yield trace
    finally:
        trace.short = recorder.short
        for owner, name, _, original in replaced:
            setattr(owner, name, original)
        for functions, name in wrapped:
            delattr(functions, name)
