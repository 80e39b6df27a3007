"""Capture of launches, copies and fills into graphs that can be replayed.

While a `Capture` is open, the calls of its thread are recorded as entries of a graph and nothing runs; other threads
aren't affected. Buffers that the captured work used or allocated live as long as the graph.

A capture is an observer of its device that passes nothing on.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from ..errors import ArgumentError
from . import host_spans
from .artifact import ArgField
from .handles import on_fork
from .observers import Extents, LaunchRequest, Observer

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
    "open_captures",
]

open_captures: set[Capture] = set()
"""All open captures, of any device and thread."""


def _forget() -> None:
    """Drop the captures of threads that don't exist in a child of a fork."""
    for capture in [*open_captures]:
        if capture.thread != threading.get_ident():
            open_captures.discard(capture)


on_fork(_forget)


def is_capturing(device: Device) -> bool:
    """Return True if this thread's calls to the device are captured."""
    here = threading.get_ident()
    return any(capture.device is device and capture.thread == here for capture in [*open_captures])


def check_waiting(device: Device) -> None:
    """Raise ArgumentError if this thread captures calls to the device, so that it can't wait for it."""
    if is_capturing(device):
        _refuse("waits for results")


def _refuse(what: str) -> NoReturn:
    raise ArgumentError(
        f"the program {what} while it is captured, when nothing runs: make tensors before the capture, "
        "and look at results after replay()"
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A reference to a buffer in an entry, identified by `part` and `index`."""

    entry: Entry
    part: str
    index: int

    def move(self, buffer: Buffer, shift: int) -> None:
        """Replace the buffer by another one; `shift` is added to addresses."""
        self.entry.move(self.part, self.index, buffer, shift)


@dataclass(slots=True)
class Launch:
    """A captured launch. `block` is the packed argument block. `extents` has the known address ranges [low, high) of
    arrays, by parameter index.
    """

    kernel: LoadedKernel
    groups: tuple[int, int, int]
    block: bytes
    reads: list[Buffer]
    writes: list[Buffer]
    extents: Extents = field(default_factory=dict)

    def run(self, device: Device) -> None:
        device.launch((self.kernel, self.groups, self.block, self.reads, self.writes, self.extents))

    def places(self, buffer: Buffer) -> list[Place]:
        """Return the references to the buffer."""
        found = [
            Place(self, "address", place.offset) for place in self._places("address") if self._is_in(place, buffer)
        ]
        found += [Place(self, "reads", i) for i, used in enumerate(self.reads) if used is buffer]
        return found + [Place(self, "writes", i) for i, used in enumerate(self.writes) if used is buffer]

    def ranges(self, buffer: Buffer) -> list[tuple[int, int]]:
        """Return the address ranges [low, high) in the buffer that the entry may access."""
        end, extents = buffer.address + buffer.nbytes, self.extents
        used = (place for place in self._places("address") if self._is_in(place, buffer))
        return [extents.get(place.arg) or (self._address(place), end) for place in used]

    def move(self, part: str, index: int, buffer: Buffer, shift: int) -> None:
        """Replace a reference by another buffer; `shift` is added to addresses."""
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
        """Return the field of the scalar parameter with index `number`; None if there is none."""
        return next((f for f in self._places("scalar") if f.arg == number), None)

    def set_scalar(self, place: ArgField, data: bytes) -> None:
        """Replace the packed value of a scalar."""
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
    """A captured copy between two buffers; offsets in bytes."""

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
    """A captured fill with a repeated u32 pattern."""

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


class DeviceGraph:
    """A graph of captured work that is replayed entry by entry. Call `changed()` after changing entries."""

    def __init__(self, device: Device, entries: list[Entry]) -> None:
        self.device = device
        self.entries = entries

    def changed(self) -> None:
        """Discard state derived from the entries. Call it after changing them."""

    def replay(self) -> None:
        """Run all entries once, in order with other launches, without waiting."""
        try:
            for entry in self.entries:
                entry.run(self.device)
        finally:
            for listener in list(host_spans.listeners):
                listener.replayed()

    def close(self) -> None:
        """Release the entries and their buffers. The graph can't be replayed afterwards."""
        self.entries = []


class Capture(Observer):
    """Records this thread's calls to a device between `start` and `stop` as graph entries.

    Captures nest: what the inner one records doesn't run, so the outer one doesn't see it. It does see the inner graph's
    replays. `stop` may be called repeatedly, also if `start` failed.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.entries: list[Entry] = []
        self.thread: int = threading.get_ident()

    def start(self) -> None:
        """Start the capture."""
        open_captures.add(self)
        self.device.add_observer(self)

    def stop(self) -> None:
        """End the capture. The device runs calls normally again."""
        self.device.remove_observer(self)
        open_captures.discard(self)

    def launch(self, proceed: Callable[..., None], request: LaunchRequest) -> None:
        del proceed
        kernel, groups, block, reads, writes, extents = request
        if min(groups) > 0:
            self.entries.append(Launch(kernel, groups, block, list(reads), list(writes), dict(extents or {})))

    def copy(
        self, proceed: Callable[..., None], source: Buffer, source_offset: int, target: Buffer, target_offset: int,
        nbytes: int,
    ) -> None:  # fmt: skip
        del proceed
        if nbytes:
            self.entries.append(Copy(source, source_offset, target, target_offset, nbytes))

    def fill(self, proceed: Callable[..., None], buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        del proceed
        if nbytes:
            self.entries.append(Fill(buffer, offset, nbytes, pattern))

    def write(self, *_: Any, **__: Any) -> None:
        _refuse("uploads")

    def read(self, *_: Any, **__: Any) -> None:
        _refuse("reads results")

    def synchronize(self, *_: Any) -> None:
        _refuse("waits for results")

    def adopt(self, *_: Any, **__: Any) -> None:
        _refuse("passes NumPy arrays")

    def host_view(self, *_: Any, **__: Any) -> None:
        _refuse("looks at results")
