"""What an operation asked of a device once, asked again for other arrays.

Enters: a `LaunchRecorder` beside a call, which takes down what this thread asks of the device meanwhile; everything runs as usual.
Leaves: `Step`s that ask the same with other buffers in the places of the old ones. Holds: a step knows buffers by number alone,
and keeps none of them; where something was asked that can't be repeated so (uploads, reads, buffers that came from elsewhere),
there are no steps.

The numbers: first the buffers that the operation was given, then those that it allocated, in order.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .capture import shadowing, uncover
from .prepared_launch import REPORT, Grid, Hole, PreparedLaunch, prepare

if TYPE_CHECKING:
    from .device import Buffer, Device, DeviceArray, LoadedKernel

__all__ = ["LaunchRecorder", "RecordedCopy", "RecordedFill", "RecordedLaunch", "Step"]

_IMPURE = ("write", "read", "synchronize", "adopt", "host_view")
"""What no operation that is repeated may ask: its results hang on more than buffers, or it waits."""

_Asked = Callable[[int], "Step"]
"""Makes a step, told how many buffers there were in all."""


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A launch and its grid."""

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
    """A fill of buffer `number`, from `shift` bytes after its address on."""

    number: int
    shift: int
    nbytes: int
    pattern: int

    @property
    def used(self) -> tuple[int, ...]:
        """The numbers of the buffers that it uses."""
        return (self.number,)

    def run(self, device: Device, buffers: Sequence[Buffer], addresses: tuple[int, ...]) -> None:
        """Fills that one of these buffers."""
        target = buffers[self.number]
        device.fill(target, addresses[self.number] + self.shift - target.address, self.nbytes, self.pattern)


@dataclass(frozen=True, slots=True)
class RecordedCopy:
    """A copy from one buffer to another, each from so many bytes after its address on."""

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
        """Copies between these buffers."""
        source, target = buffers[self.source], buffers[self.target]
        begin = addresses[self.source] + self.source_shift - source.address
        device.copy(source, begin, target, addresses[self.target] + self.target_shift - target.address, self.nbytes)


Step = RecordedLaunch | RecordedFill | RecordedCopy


class LaunchRecorder:
    """Takes down what this thread asks of a device between `start` and `stop`, for arrays that it is given.

    `sizes` are the bytes of the buffers that it got meanwhile; `pure` is False once it asked something that can't be repeated. It
    keeps no buffer, so that the call takes no more memory for being watched.
    """

    def __init__(self, device: Device, given: Sequence[DeviceArray]) -> None:
        self.device = device
        self.sizes: list[int] = []
        self.pure = True
        self._asked: list[_Asked] = []
        self._known: dict[int, tuple[weakref.ref[Buffer], int, int]] = {}
        self._count = len(given)
        for number, array in enumerate(given):  # of arrays in one buffer the first counts
            self._known.setdefault(id(array.buffer), (weakref.ref(array.buffer), number, array.address))
        self._thread = threading.get_ident()
        self._shadows: list[str] = []
        self._started = True  # from before it is, so that an interrupted start is ended, too

    def start(self) -> bool:
        """Begins, unless somebody else looks at the device's launches, or waits to; whether it did."""
        with shadowing.lock:
            self._started = shadowing.begin(self.device, self._uncover)
            if not self._started:
                return False
            self.device.watch(self, True)
            for name in ("launch", "fill", "copy", "allocate", *_IMPURE):
                self._shadow(name)
        return True

    def stop(self) -> None:
        """Ends. May be called again, and whatever became of `start`."""
        with shadowing.lock:
            if self._started:
                self._uncover()
                shadowing.end(self.device)
                self._started = False

    def steps(self) -> list[Step] | None:
        """What was asked, to be repeated; None where that can't be."""
        return [asked(self._count + len(self.sizes)) for asked in self._asked] if self.pure else None

    def number_of(self, buffer: Buffer) -> int | None:
        """The number of a buffer that lives; None for one that came from elsewhere."""
        place = self._place(buffer)
        return None if place is None else place[0]

    def _place(self, buffer: Buffer) -> tuple[int, int] | None:
        """The number of a buffer, and the address that steps are told for that number."""
        known = self._known.get(id(buffer))
        return known[1:] if known is not None and known[0]() is buffer else None

    def _uncover(self) -> None:
        uncover(self.device, self._shadows)
        self.device.watch(self, False)

    def _shadow(self, name: str) -> None:
        self._shadows.append(name)
        usual = getattr(self.device, name)

        def shadow(*args: Any, **kwargs: Any) -> Any:
            result = usual(*args, **kwargs)
            if self.pure and threading.get_ident() == self._thread:
                self._note(name, args, kwargs, result)
            return result

        setattr(self.device, name, shadow)

    def _note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if name in _IMPURE or kwargs:
            self.pure = False
        elif name == "allocate":
            self._known[id(result)] = weakref.ref(result), self._count + len(self.sizes), result.address
            self.sizes.append(result.nbytes)
        else:
            asked = getattr(self, f"_{name}")(*args)
            if asked is None:
                self.pure = False
            else:
                self._asked.append(asked)

    def _fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> _Asked | None:
        place = self._place(buffer)
        if place is None:
            return None
        step = RecordedFill(place[0], buffer.address + offset - place[1], nbytes, pattern)
        return lambda _: step

    def _copy(self, source: Buffer, begin: int, target: Buffer, start: int, nbytes: int) -> _Asked | None:
        a, b = self._place(source), self._place(target)
        if a is None or b is None:
            return None
        step = RecordedCopy(a[0], source.address + begin - a[1], b[0], target.address + start - b[1], nbytes)
        return lambda _: step

    def _launch(
        self,
        kernel: LoadedKernel,
        groups: tuple[int, int, int],
        block: bytes,
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
    ) -> _Asked | None:
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
                if len(found) != 1:  # of nobody, or of buffers over the same memory
                    return None
                ((number, base),) = found
                holes.append(Hole(item.offset, number, address - base))
        numbers = [number for number, _ in places]
        ends = tuple(numbers[: len(reads)]), tuple(numbers[len(reads) :])
        fixed = bytes(block)
        return lambda count: RecordedLaunch(prepare(kernel, fixed, holes, count, *ends), groups)
