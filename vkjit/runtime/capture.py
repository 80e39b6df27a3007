"""Captured work: launches, copies and fills, noted instead of run, to be run again and again.

Enters: what one thread asks of a device while a `Capture` is open. Leaves: a `DeviceGraph`. Holds: nothing runs during a capture;
everything that it used or allocated lives as long as the graph; other threads aren't affected.

While a capture is open the device's methods are shadowed by methods of the capture, so that launches outside of captures
pay nothing for them.
"""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ArgumentError, DeviceError
from .artifact import ArgField
from .handles import on_fork

if TYPE_CHECKING:
    from .device import Buffer, Device, LoadedKernel

__all__ = [
    "Capture",
    "Copy",
    "DeviceGraph",
    "Entry",
    "Fill",
    "Launch",
    "Place",
    "check_waiting",
    "is_capturing",
    "note_extents",
    "shadowing",
    "uncover",
]

_REFUSED = {
    "write": "uploads",
    "read": "reads results",
    "synchronize": "waits for results",
    "adopt": "passes NumPy arrays",
    "host_view": "looks at results",
}
"""Methods that make no sense while nothing runs, and what the caller does who ends up there."""


class _Shadowing:
    """Whoever puts something before a device's methods, or takes it away, holds `lock`. Calls that are watched for a moment (see
    `repeat`) are waited for by all others that come. `captured`: by device the thread whose calls are noted, and what ends that.
    `extents`: by device what `note_extents` was told of the launch that comes next.

    `with` takes a lock and enters the block in one step only where the lock itself is named: a class's own method, or a
    condition's, can be interrupted when it has taken it already.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.captured: dict[Device, tuple[int, Callable[[], None]]] = {}
        self.extents: dict[Device, Extents] = {}
        self._changed = threading.Condition(self.lock)
        self._waiting = 0
        self._watched: dict[Device, tuple[int, Callable[[], None]]] = {}

    # The rest is called by who holds the lock.

    def begin(self, device: Device, end: Callable[[], None]) -> bool:
        """Notes that this thread watches a call on a device, unless somebody looks at the device's launches, or wants to;
        whether it did. `end` takes away what the watcher puts before the device's methods.
        """
        if self._waiting or "launch" in vars(device):
            return False
        self._watched[device] = threading.get_ident(), end
        return True

    def end(self, device: Device) -> None:
        """Notes that this thread's call isn't watched any more."""
        if device in self._watched and self._watched[device][0] == threading.get_ident():
            del self._watched[device]
        self._changed.notify_all()

    def settle(self, device: Device) -> None:
        """Waits until no other thread watches a call on the device."""
        self._waiting += 1
        try:
            while device in self._watched and self._watched[device][0] != threading.get_ident():
                self._changed.wait()
        finally:
            self._waiting -= 1

    def forget(self) -> None:
        """In a child of a fork, where the other threads are gone."""
        watched, here = [*self._watched.values(), *self.captured.values()], threading.get_ident()
        captured = {device: found for device, found in self.captured.items() if found[0] == here}
        self.__init__()  # type: ignore[misc]  # another thread of the parent may have held it
        self.captured = captured
        for thread, end in watched:
            if thread != here:
                end()


shadowing = _Shadowing()
on_fork(shadowing.forget)


def uncover(device: Device, names: Iterable[str]) -> None:
    """Takes away what was put before methods of the device, as far as it was."""
    for name in names:
        vars(device).pop(name, None)


def is_capturing(device: Device) -> bool:
    """Whether what this thread asks of the device is noted instead of run."""
    found = shadowing.captured.get(device)
    return found is not None and found[0] == threading.get_ident()


def note_extents(device: Device, arrays: Callable[[], Extents]) -> None:
    """Tells a capture which addresses belong to the arrays of the launch that this thread makes next: argument blocks say only
    where arrays begin. Call it where `shadowing.captured` isn't empty.
    """
    if is_capturing(device):
        shadowing.extents[device] = arrays()


def check_waiting(device: Device) -> None:
    """Raises ArgumentError where this thread may not wait for the device, as it captures what it asks of it."""
    if is_capturing(device):
        _refuse(_REFUSED["synchronize"])


def _refuse(what: str, *_: Any, **__: Any) -> None:
    raise ArgumentError(
        f"the program {what} while it is captured, when nothing runs: make tensors before the capture, "
        "and look at results after replay()"
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A place in an entry where a buffer comes in; `part` and `index` say which."""

    entry: Entry
    part: str
    index: int

    def move(self, buffer: Buffer, shift: int) -> None:
        """Puts another buffer there; `shift` is added to addresses."""
        self.entry.move(self.part, self.index, buffer, shift)


@dataclass(slots=True)
class Launch:
    """A launch: `block` is the packed argument block. `extents`: by parameter the addresses [low, high) of its array, where they
    are known.
    """

    kernel: LoadedKernel
    groups: tuple[int, int, int]
    block: bytes
    reads: list[Buffer]
    writes: list[Buffer]
    extents: Extents = field(default_factory=dict)

    def run(self, device: Device) -> None:
        if shadowing.captured:
            note_extents(device, self.extents.copy)
        device.launch(self.kernel, self.groups, self.block, self.reads, self.writes)

    def places(self, buffer: Buffer) -> list[Place]:
        """Where the buffer comes in."""
        found = [
            Place(self, "address", place.offset) for place in self._places("address") if self._is_in(place, buffer)
        ]
        found += [Place(self, "reads", i) for i, used in enumerate(self.reads) if used is buffer]
        return found + [Place(self, "writes", i) for i, used in enumerate(self.writes) if used is buffer]

    def ranges(self, buffer: Buffer) -> list[tuple[int, int]]:
        """The addresses [low, high) in the buffer that it may use."""
        end, extents = buffer.address + buffer.nbytes, self.extents
        used = (place for place in self._places("address") if self._is_in(place, buffer))
        return [extents.get(place.arg) or (self._address(place), end) for place in used]

    def move(self, part: str, index: int, buffer: Buffer, shift: int) -> None:
        """Puts another buffer into a place; addresses shift."""
        if part == "address":
            (address,) = struct.unpack_from("<Q", self.block, index)
            self._put(index, struct.pack("<Q", address + shift))
            number = next(place.arg for place in self._places("address") if place.offset == index)
            if number in self.extents:
                low, high = self.extents[number]
                self.extents[number] = low + shift, high + shift
        else:
            (self.reads if part == "reads" else self.writes)[index] = buffer

    def scalar(self, number: int) -> ArgField | None:
        """The field of scalar parameter `number`."""
        return next((f for f in self._places("scalar") if f.arg == number), None)

    def set_scalar(self, place: ArgField, data: bytes) -> None:
        """Replaces a scalar by its packed value."""
        self._put(place.offset, data)

    def _address(self, place: ArgField) -> int:
        return int(struct.unpack_from("<Q", self.block, place.offset)[0])

    def _is_in(self, place: ArgField, buffer: Buffer) -> bool:
        return buffer.address <= self._address(place) < buffer.address + max(buffer.nbytes, 1)

    def _places(self, role: str) -> Iterator[ArgField]:
        return (f for f in self.kernel.artifact.fields if f.role == role)

    def _put(self, offset: int, data: bytes) -> None:
        self.block = self.block[:offset] + data + self.block[offset + len(data) :]


@dataclass(slots=True)
class Copy:
    """A copy between two buffers."""

    source: Buffer
    source_offset: int
    target: Buffer
    target_offset: int
    nbytes: int

    @property
    def reads(self) -> list[Buffer]:
        return [self.source]

    @property
    def writes(self) -> list[Buffer]:
        return [self.target]

    def run(self, device: Device) -> None:
        device.copy(self.source, self.source_offset, self.target, self.target_offset, self.nbytes)

    def places(self, buffer: Buffer) -> list[Place]:
        """As `Launch.places`."""
        ends = (("source", self.source), ("target", self.target))
        return [Place(self, part, 0) for part, used in ends if used is buffer]

    def ranges(self, buffer: Buffer) -> list[tuple[int, int]]:
        """As `Launch.ranges`."""
        ends = ((self.source, self.source_offset), (self.target, self.target_offset))
        begins = [used.address + offset for used, offset in ends if used is buffer]
        return [(begin, begin + self.nbytes) for begin in begins]

    def move(self, part: str, index: int, buffer: Buffer, shift: int) -> None:
        """As `Launch.move`."""
        del index
        if part == "source":
            self.source_offset += self.source.address + shift - buffer.address
            self.source = buffer
        else:
            self.target_offset += self.target.address + shift - buffer.address
            self.target = buffer


@dataclass(slots=True)
class Fill:
    """A fill with a repeated u32."""

    target: Buffer
    offset: int
    nbytes: int
    pattern: int
    reads: list[Buffer] = field(default_factory=list)

    @property
    def writes(self) -> list[Buffer]:
        return [self.target]

    def run(self, device: Device) -> None:
        device.fill(self.target, self.offset, self.nbytes, self.pattern)

    def places(self, buffer: Buffer) -> list[Place]:
        """As `Launch.places`."""
        return [Place(self, "target", 0)] if self.target is buffer else []

    def ranges(self, buffer: Buffer) -> list[tuple[int, int]]:
        """As `Launch.ranges`."""
        begin = self.target.address + self.offset
        return [(begin, begin + self.nbytes)] if self.target is buffer else []

    def move(self, part: str, index: int, buffer: Buffer, shift: int) -> None:
        """As `Launch.move`."""
        del part, index
        self.offset += self.target.address + shift - buffer.address
        self.target = buffer


Entry: TypeAlias = "Launch | Copy | Fill"
Extents: TypeAlias = dict[int, tuple[int, int]]


class DeviceGraph:
    """Captured work of a device that runs it step by step. `changed()` must be called after entries were changed."""

    def __init__(self, device: Device, entries: list[Entry]) -> None:
        self.device = device
        self.entries = entries

    def changed(self) -> None:
        """Notes that entries are no longer what they were."""

    def replay(self) -> None:
        """Runs everything once, in order with other launches. The host doesn't wait."""
        for entry in self.entries:
            entry.run(self.device)

    def close(self) -> None:
        """Lets go of everything; replaying is an error afterwards."""
        self.entries = []


class Capture:
    """Takes down what this thread asks of a device between `start` and `stop`.

    Raises DeviceError when another capture of the device is open. `stop` may be called again, and whatever became of `start`.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.entries: list[Entry] = []
        self._thread = threading.get_ident()
        self._shadows: list[str] = []
        self._started = False

    def start(self) -> None:
        """Begins to note."""
        with shadowing.lock:
            shadowing.settle(self.device)
            if "launch" in vars(self.device):
                raise DeviceError(f"{self.device.name} is being captured already: captures of a device can't overlap")
            self._started = True
            self.device.watch(self, True)
            for name, method in (("launch", self._launch), ("copy", self._copy), ("fill", self._fill)):
                self._shadow(name, method)
            for name, what in _REFUSED.items():
                self._shadow(name, functools.partial(_refuse, what))
            shadowing.captured[self.device] = self._thread, self._uncover

    def stop(self) -> None:
        """Ends noting; the device runs what it is asked again."""
        with shadowing.lock:
            self._uncover()

    def _uncover(self) -> None:
        if self._started:
            uncover(self.device, self._shadows)
            self.device.watch(self, False)
            shadowing.captured.pop(self.device, None)
            shadowing.extents.pop(self.device, None)  # of a launch that was interrupted
            self._started = False

    def _shadow(self, name: str, method: Callable[..., Any]) -> None:
        self._shadows.append(name)
        usual = getattr(self.device, name)
        thread = self._thread

        def shadow(*args: Any, **kwargs: Any) -> Any:
            return (method if threading.get_ident() == thread else usual)(*args, **kwargs)

        setattr(self.device, name, shadow)

    def _launch(
        self,
        kernel: LoadedKernel,
        groups: tuple[int, int, int],
        block: bytes,
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
    ) -> None:
        extents = shadowing.extents.pop(self.device, {})
        if min(groups) > 0:
            self.entries.append(Launch(kernel, groups, block, list(reads), list(writes), extents))

    def _copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        if nbytes:
            self.entries.append(Copy(source, source_offset, target, target_offset, nbytes))

    def _fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        if nbytes:
            self.entries.append(Fill(buffer, offset, nbytes, pattern))
