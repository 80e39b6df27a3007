"""Capture of launches, copies and fills into graphs that can be replayed.

While a `Capture` is open, the calls of its thread are recorded as entries of a graph and nothing runs; other threads
aren't affected. Buffers that the captured work used or allocated live as long as the graph.

An open capture shadows the device's methods with its own, so that launches outside of captures have no overhead.
"""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ArgumentError, DeviceError
from .artifact import ArgField
from .handles import on_fork
from .observers import Extents, LaunchRequest

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
"""Methods that aren't allowed during a capture, when nothing runs, with descriptions of their use for errors."""


class _Shadowing:
    """The state of all captures and recorders, which shadow methods of devices.

    Hold `lock` to change a device's methods. Recorders (see `launch_recorder`) watch a single operation; captures wait
    until these have ended. `captured` has, by device, the thread whose calls are captured and a function that ends the
    shadowing.

    Use `with shadowing.lock`: `with` on the lock itself acquires it and enters the block in one step. A method of this
    class or of a condition could be interrupted after it has acquired the lock.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.captured: dict[Device, tuple[int, Callable[[], None]]] = {}
        self._changed = threading.Condition(self.lock)
        self._waiting = 0
        self._watched: dict[Device, tuple[int, Callable[[], None]]] = {}

    # Callers of the methods below hold the lock.

    def begin(self, device: Device, end: Callable[[], None]) -> bool:
        """Register this thread as watching an operation on a device; return True if registered.

        Not possible while launches of the device are shadowed, or while a capture waits. `end` removes the watcher's
        shadowing methods.
        """
        if self._waiting or "launch" in vars(device):
            return False
        self._watched[device] = threading.get_ident(), end
        return True

    def end(self, device: Device) -> None:
        """Unregister this thread as a watcher of the device, and wake waiting captures."""
        if device in self._watched and self._watched[device][0] == threading.get_ident():
            del self._watched[device]
        self._changed.notify_all()

    def settle(self, device: Device) -> None:
        """Wait until no other thread watches an operation on the device."""
        self._waiting += 1
        try:
            while device in self._watched and self._watched[device][0] != threading.get_ident():
                self._changed.wait()
        finally:
            self._waiting -= 1

    def forget(self) -> None:
        """Reset the state in a child of a fork, and end the captures and watchers of threads that don't exist there."""
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
    """Remove shadowing methods from the device, if there are any."""
    for name in names:
        vars(device).pop(name, None)


def is_capturing(device: Device) -> bool:
    """Return True if this thread's calls to the device are captured."""
    found = shadowing.captured.get(device)
    return found is not None and found[0] == threading.get_ident()


def check_waiting(device: Device) -> None:
    """Raise ArgumentError if this thread captures calls to the device, so that it can't wait for it."""
    if is_capturing(device):
        _refuse(_REFUSED["synchronize"])


def _refuse(what: str, *_: Any, **__: Any) -> None:
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
        device.launch(LaunchRequest(self.kernel, self.groups, self.block, self.reads, self.writes, self.extents))

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
        for entry in self.entries:
            entry.run(self.device)

    def close(self) -> None:
        """Release the entries and their buffers. The graph can't be replayed afterwards."""
        self.entries = []


class Capture:
    """Records this thread's calls to a device between `start` and `stop` as graph entries.

    `stop` may be called repeatedly, also if `start` failed.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.entries: list[Entry] = []
        self._thread = threading.get_ident()
        self._shadows: list[str] = []
        self._started = False

    def start(self) -> None:
        """Start the capture. Raises DeviceError if another capture of the device is open."""
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
        """End the capture. The device runs calls normally again."""
        with shadowing.lock:
            self._uncover()

    def _uncover(self) -> None:
        if self._started:
            uncover(self.device, self._shadows)
            self.device.watch(self, False)
            shadowing.captured.pop(self.device, None)
            self._started = False

    def _shadow(self, name: str, method: Callable[..., Any]) -> None:
        self._shadows.append(name)
        usual = getattr(self.device, name)
        thread = self._thread

        def shadow(*args: Any, **kwargs: Any) -> Any:
            return (method if threading.get_ident() == thread else usual)(*args, **kwargs)

        setattr(self.device, name, shadow)

    def _launch(self, request: LaunchRequest) -> None:
        kernel, groups, block, reads, writes, extents = request
        if min(groups) > 0:
            self.entries.append(Launch(kernel, groups, block, list(reads), list(writes), dict(extents or {})))

    def _copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        if nbytes:
            self.entries.append(Copy(source, source_offset, target, target_offset, nbytes))

    def _fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        if nbytes:
            self.entries.append(Fill(buffer, offset, nbytes, pattern))
