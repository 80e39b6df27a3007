"""Recording of the device calls of an operation, as steps that can be replayed with other buffers.

A `LaunchRecorder` observes the launches, fills, copies and allocations of this thread, which it passes on. Its steps
refer to buffers by number and don't keep them alive. Numbers go first to the buffers passed to the operation, then to
those that it allocated, in order. There are no steps if the operation did something that can't be replayed: uploads,
reads, or launches on other buffers.

The address of a number is that of the array passed to the operation, which may begin inside its buffer, or that of the
allocated buffer. The shifts of steps are bytes from there.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .observers import LaunchRequest, Observer
from .prepared_launch import REPORT, Grid, Hole, PreparedLaunch, prepare
from .threads import this_thread

if TYPE_CHECKING:
    from .device import Buffer, Device, DeviceArray

__all__ = ["LaunchRecorder", "RecordedCopy", "RecordedFill", "RecordedLaunch", "Step"]

_StepFactory = Callable[[int], "Step"]
"""Returns a step, given the total number of buffers: known only at the end, and needed to prepare a launch."""


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A recorded launch and its grid."""

    launch: PreparedLaunch
    groups: Grid

    @property
    def used(self) -> tuple[int, ...]:
        """The numbers of the buffers that it uses."""
        return self.launch.used

    def run(self, device: Device, buffers: Sequence[Buffer], addresses: tuple[int, ...]) -> None:
        """Launch with these buffers."""
        self.launch.run(device, buffers, addresses, self.groups)


@dataclass(frozen=True, slots=True)
class RecordedFill:
    """A recorded fill of `nbytes` bytes from `shift` bytes after the address of `number`."""

    number: int
    shift: int
    nbytes: int
    pattern: int

    @property
    def used(self) -> tuple[int, ...]:
        """The numbers of the buffers that it uses."""
        return (self.number,)

    def run(self, device: Device, buffers: Sequence[Buffer], addresses: tuple[int, ...]) -> None:
        """Fill the buffer, given the buffers and the addresses of all numbers."""
        target = buffers[self.number]
        device.fill(target, addresses[self.number] + self.shift - target.address, self.nbytes, self.pattern)


@dataclass(frozen=True, slots=True)
class RecordedCopy:
    """A recorded copy between two buffers."""

    source: int
    source_shift: int
    target: int
    target_shift: int
    nbytes: int

    @property
    def used(self) -> tuple[int, ...]:
        """The numbers of the buffers that it uses."""
        return self.source, self.target

    def run(self, device: Device, buffers: Sequence[Buffer], addresses: tuple[int, ...]) -> None:
        """Copy between the two buffers, given the buffers and the addresses of all numbers."""
        source, target = buffers[self.source], buffers[self.target]
        begin = addresses[self.source] + self.source_shift - source.address
        device.copy(source, begin, target, addresses[self.target] + self.target_shift - target.address, self.nbytes)


Step = RecordedLaunch | RecordedFill | RecordedCopy


class LaunchRecorder(Observer):
    """Records this thread's calls to a device between `start` and `stop`, for an operation on given arrays.

    `sizes` are the sizes in bytes of the allocated buffers. `pure` becomes False after a call that can't be replayed.
    """

    def __init__(self, device: Device, given: Sequence[DeviceArray]) -> None:
        self.device = device
        self.sizes: list[int] = []
        self.pure = True
        self._pending: list[_StepFactory | Step] = []
        self._known: dict[int, tuple[weakref.ref[Buffer], int, int]] = {}
        self._count = len(given)
        for number, array in enumerate(given):  # the first of several arrays in a buffer counts
            self._known.setdefault(id(array.buffer), (weakref.ref(array.buffer), number, array.address))
        self.thread = this_thread.token

    def start(self) -> bool:
        """Start recording. Return False, without effect, if an observer would add calls of its own to the operation."""
        if any(observer.calls_device for observer in self.device.observers_here()):
            return False
        self.device.add_observer(self)
        return True

    def stop(self) -> None:
        """Stop recording. May be called repeatedly, and after an interrupted `start`."""
        self.device.remove_observer(self)

    def steps(self) -> list[Step] | None:
        """Return the recorded steps; None if they can't be replayed."""
        count = self._count + len(self.sizes)
        return [step(count) if callable(step) else step for step in self._pending] if self.pure else None

    def number_of(self, buffer: Buffer) -> int | None:
        """Return the number of a live buffer; None if it was neither given nor allocated while recording."""
        place = self._place(buffer)
        return None if place is None else place[0]

    def _place(self, buffer: Buffer) -> tuple[int, int] | None:
        """Return the number of a buffer and the address that steps receive for that number."""
        known = self._known.get(id(buffer))
        return known[1:] if known is not None and known[0]() is buffer else None

    def launch(self, proceed: Callable[..., None], request: LaunchRequest) -> None:
        proceed(request)
        self._add(self._launch(request))

    def fill(self, proceed: Callable[..., None], buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        proceed(buffer, offset, nbytes, pattern)
        place = self._place(buffer)
        self._add(place and RecordedFill(place[0], buffer.address + offset - place[1], nbytes, pattern))

    def copy(
        self, proceed: Callable[..., None], source: Buffer, source_offset: int, target: Buffer, target_offset: int,
        nbytes: int,
    ) -> None:  # fmt: skip
        proceed(source, source_offset, target, target_offset, nbytes)
        a, b = self._place(source), self._place(target)
        shifts = source.address + source_offset, target.address + target_offset
        self._add(a and b and RecordedCopy(a[0], shifts[0] - a[1], b[0], shifts[1] - b[1], nbytes))

    def allocate(self, proceed: Callable[..., Buffer], nbytes: int) -> Buffer:
        buffer = proceed(nbytes)
        self._known[id(buffer)] = weakref.ref(buffer), self._count + len(self.sizes), buffer.address
        self.sizes.append(buffer.nbytes)
        return buffer

    def _impure(self, proceed: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Observe a method that a replayable operation may not call.

        Its results would depend on more than buffers, or it would wait.
        """
        self.pure = False
        return proceed(*args, **kwargs)

    write = read = synchronize = adopt = host_view = _impure

    def _add(self, step: _StepFactory | Step | None) -> None:
        """Append a step or its factory. None means that the call can't be replayed."""
        if step is None:
            self.pure = False
        else:
            self._pending.append(step)

    def _launch(self, request: LaunchRequest) -> _StepFactory | None:
        """Return the factory of the step for a launch; None if the launch can't be replayed."""
        kernel, groups, block, reads, writes, _ = request
        fields, used = kernel.artifact.fields, [self._place(buffer) for buffer in (*reads, *writes)]
        places = [place for place in used if place is not None]
        if len(places) < len(used) or any(f.role == "print" for f in fields):
            return None
        ranges = [(b.address, b.address + b.nbytes, *place) for b, place in zip((*reads, *writes), places, strict=True)]
        holes: list[Hole] = []
        for item in fields:
            if item.role == "report":
                holes.append(Hole(item.offset, REPORT))
            elif item.role == "address":
                (address,) = struct.unpack_from("<Q", block, item.offset)
                found = {(number, base) for low, high, number, base in ranges if low <= address < high}
                if len(found) != 1:  # in no buffer, or in several that cover the same memory
                    return None
                ((number, base),) = found
                holes.append(Hole(item.offset, number, address - base))
        numbers = [number for number, _ in places]
        used_numbers = tuple(numbers[: len(reads)]), tuple(numbers[len(reads) :])
        fixed = bytes(block)
        return lambda count: RecordedLaunch(prepare(kernel, fixed, holes, count, *used_numbers), groups)
