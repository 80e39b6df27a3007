"""Capture of launches, copies and fills into graphs that can be replayed.

While a `Capture` is open, the calls of its thread are recorded as entries of a graph and nothing runs; other threads
and other asyncio tasks aren't affected. Buffers that the captured work used or allocated live as long as the graph.
Host data that is uploaded while the capture is open is stored in the graph; each replay copies it again.

A capture is an observer of its device that passes nothing on.
"""

from __future__ import annotations

import itertools
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from ..errors import ArgumentError
from . import host_spans
from .artifact import ArgField
from .draws import Draws
from .handles import on_fork
from .observers import Extents, LaunchRequest, Observer
from .replays import Clock
from .threads import this_thread

if TYPE_CHECKING:
    from .array import DeviceArray
    from .device import Buffer, Device, LoadedKernel
    from .observers import Bytes

__all__ = [
    "Argument",
    "Capture",
    "CapturedVersion",
    "Copy",
    "DeviceGraph",
    "Entry",
    "Fill",
    "KeptVersion",
    "Launch",
    "Place",
    "capture_here",
    "check_waiting",
    "constant_buffer",
    "is_capturing",
    "open_captures",
    "refuse_host",
]

open_captures: set[Capture] = set()
"""All open captures, of any device and thread."""
_numbers = itertools.count()


def _forget() -> None:
    """Drop the captures of threads that don't exist in a child of a fork."""
    for capture in [*open_captures]:
        if capture.thread is not this_thread.token:
            open_captures.discard(capture)


on_fork(_forget)


def capture_here(device: Device | None = None) -> Capture | None:
    """Return the innermost open capture of this thread and asyncio task, of any device if none is given; else None."""
    if not open_captures:
        return None
    found = [c for c in [*open_captures] if c.is_here() and device in (None, c.device)]
    return max(found, key=lambda capture: capture.number, default=None)


def is_capturing(device: Device) -> bool:
    """Return True if calls to the device from this thread and asyncio task are captured."""
    return capture_here(device) is not None


def check_waiting(device: Device) -> None:
    """Raise ArgumentError if calls to the device are captured here: captured work doesn't run, so none can end."""
    if is_capturing(device):
        _refuse("waits for results")


def constant_buffer(device: Device, data: Bytes) -> Buffer:
    """Return a new buffer that holds the data, which nothing may write later.

    The upload runs at once and isn't recorded, even in a capture.
    """
    device_class: Any = type(device)  # observers replace the methods of the instance, not those of the class
    buffer: Buffer = device_class.allocate(device, data.nbytes)
    device_class.write(device, buffer, 0, data)
    return buffer


def _current_task() -> object:
    """Return the running asyncio task; None outside of tasks."""
    asyncio: Any = sys.modules.get("asyncio")
    loop = None if asyncio is None else getattr(asyncio, "_get_running_loop", lambda: None)()
    return None if loop is None else asyncio.current_task(loop)


def refuse_host(what: str) -> NoReturn:
    """Raise the ArgumentError for an operation that isn't allowed in a capture, with its name and the user's line.

    `what` is the predicate of the message, such as "reads results".
    """
    _refuse(what)


_OWN = f"{Path(__file__).resolve().parents[1]}{os.sep}", f"{Path(__file__).resolve().parents[2] / 'stdlib'}{os.sep}"
"""The folders of vkjit's sources."""
_WRAPPERS = frozenset({"run", "wrapped", "wrapper", "__call__", "_call", "call", "method", "__get__"})
"""Names of functions that wrap others, whose own names would tell the user nothing."""
_SHOWN = {"get_item": "x[...]", "set_item": "x[...] = value"}
"""How the message shows functions that users call through syntax."""


def _operation() -> str:
    """Return the operation that the program called, and its line: "item() in train.py, line 12, "."""
    frame: Any = sys._getframe(1)
    name, caller = "", None
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        if frame.f_code.co_name not in _WRAPPERS:
            name, caller = frame.f_code.co_name, frame
        frame = frame.f_back
    if frame is None or caller is None:
        return "the program "
    owner = caller.f_locals.get("self")
    kernel = getattr(owner, "name", None) if type(owner).__name__ in ("Kernel", "LaunchPlan") else None
    shown = type(owner).__name__ if name == "__init__" else kernel if isinstance(kernel, str) else name
    shown = _SHOWN.get(shown, f"{shown}()")
    return f"{shown} in {frame.f_code.co_filename}, line {frame.f_lineno}, "


def _refuse(what: str) -> NoReturn:
    raise ArgumentError(
        f"{_operation()}{what} while it is captured, when nothing runs: do it before the capture, "
        "or look at results after replay()"
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A reference to a buffer in an entry.

    `part` says where it is: "address", "reads" or "writes" of a launch, "source" or "target" of a copy, "target" of a
    fill. `index` is the byte offset in the argument block for "address", the index in the list for "reads" and "writes".
    """

    entry: Entry
    part: str
    index: int

    def move(self, buffer: Buffer, shift: int) -> None:
        """Make it refer to another buffer; `shift` is the new address of the argument minus the old one."""
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
        """Make a reference refer to another buffer; `shift` is the new address of the argument minus the old one."""
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
        if part == "source":  # the accessed address moves by `shift`; offsets count from the new buffer's address
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
    """A graph of captured work that is replayed entry by entry. Call `changed()` after changing entries.

    `draws` says which entries use random numbers: each replay gives them new ones.
    """

    def __init__(self, device: Device, entries: list[Entry]) -> None:
        self.device = device
        self.entries = entries
        self.draws = Draws()

    def changed(self) -> None:
        """Discard state derived from the entries. Call it after changing them. Subclasses that have some override it."""

    def redraw(self) -> None:
        """Draw the random numbers of the next replay."""
        if self.draws.taken:
            outer = capture_here(self.device)
            self.draws.renew(self.device, None if outer is None else outer.draws)
            self.changed()

    def replay(self) -> None:
        """Run all entries once, in order with other launches, without waiting.

        If the replay is itself captured, the outer capture records a copy of each entry.
        """
        outer = capture_here(self.device)
        begin = 0 if outer is None else len(outer.entries)
        self.redraw()
        try:
            for entry in self.entries:
                entry.run(self.device)
        finally:
            for listener in list(host_spans.listeners):
                listener.replayed()
        if outer is not None:
            # the outer graph renews the random numbers of the copies, from where this replay began in the stream
            copy_of = dict(zip(map(id, self.entries), outer.entries[begin:], strict=True))
            for draw in self.draws.draws:
                outer.draws.add(
                    copy_of[id(draw.entry)], draw.source, self.draws.starts[draw.source] + draw.offset, draw.part
                )

    def close(self) -> None:
        """Release the entries and their buffers. The graph can't be replayed afterwards."""
        self.entries, self.draws = [], Draws()


class Argument:
    """A named argument of a graph. `array` is the array that it is bound to now.

    `viewed` is True if the block made views of it. `memory` is the version counter of the bound tensor (its
    `memory_key`), None for other arrays. `captured` is the counter's value at the end of the capture. `replayed` is the
    value, at the last replay, of the counter of the tensor bound then. Autograd compares these to detect that a saved
    argument was overwritten.
    """

    def __init__(self, array: DeviceArray) -> None:
        self.array = array
        self.viewed = False
        self.memory: Any = None
        self.captured = self.replayed = 0

    def note_replay(self) -> None:
        """Store the version that a replay uses."""
        self.replayed = getattr(self.memory, "value", 0)


class CapturedVersion(NamedTuple):
    """The version of a tensor that autograd saved in `capture`: `value` is that of its version counter then."""

    value: int
    capture: Capture


KeptVersion: TypeAlias = int | CapturedVersion
"""The version of a tensor whose values autograd keeps."""


class Capture(Observer):
    """Records calls to a device of one thread and asyncio task between `start` and `stop` as graph entries.

    Captures nest: what the inner one records doesn't run, so the outer one doesn't see it. It does see the inner graph's
    replays. `arguments` are the graph's named arguments. `clock` numbers the start and the end of the capture and the
    replays of its graph (see `replays`). `stop` may be called repeatedly, also if `start` failed.
    """

    def __init__(self, device: Device, arguments: Sequence[Argument] = (), clock: Clock | None = None) -> None:
        self.device = device
        self.arguments = arguments
        self.clock = clock or Clock()
        self.entries: list[Entry] = []
        self.draws = Draws()
        self.number = next(_numbers)
        self.thread = this_thread.token
        self._task = _current_task()

    def is_here(self) -> bool:
        """As in `Observer`: tasks that run in the thread meanwhile, also those that the block starts, aren't captured."""
        return self.thread is this_thread.token and _current_task() is self._task

    def start(self) -> None:
        """Start the capture."""
        self.clock.mark_boundary()
        open_captures.add(self)
        self.device.add_observer(self)

    def stop(self) -> None:
        """End the capture. The device runs calls normally again."""
        self.device.remove_observer(self)
        open_captures.discard(self)
        self.clock.mark_boundary()
        for argument in self.arguments:
            argument.note_replay()
            argument.captured = argument.replayed

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

    def write(self, proceed: Callable[..., None], buffer: Buffer, offset: int, data: Bytes) -> None:
        """Record a copy from a new buffer with the data. Its upload isn't observed, since it happens now."""
        del proceed
        if data.nbytes:
            constant = constant_buffer(self.device, data)
            self.entries.append(Copy(constant, 0, buffer, offset, data.nbytes))

    def read(self, *_: Any, **__: Any) -> None:
        _refuse("reads results")

    def synchronize(self, *_: Any) -> None:
        _refuse("waits for results")

    def adopt(self, *_: Any, **__: Any) -> None:
        _refuse("passes NumPy arrays")

    def host_view(self, *_: Any, **__: Any) -> None:
        _refuse("looks at results")
