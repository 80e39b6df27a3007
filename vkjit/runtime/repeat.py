"""What an operation asked of a device once, asked again for other arrays.

Enters: a `Witness` beside a call, which takes down what this thread asks of the device meanwhile; everything runs as usual.
Leaves: `Step`s that ask the same with other buffers in the places of the old ones. Holds: a step knows buffers by number alone,
and keeps none of them; where something was asked that can't be repeated so (uploads, reads, buffers that came from elsewhere),
there are no steps.

The numbers: first the buffers that the operation was given, then those that it allocated, in order.
"""

from __future__ import annotations

import operator
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .graph import shadowing

if TYPE_CHECKING:
    from .interface import Buffer, Device, DeviceArray, LoadedKernel

__all__ = ["Copying", "Filling", "Launching", "Step", "Witness"]

REPORT = -1
"""The number of the address of a report: it is the last word."""

_IMPURE = ("write", "read", "synchronize", "adopt", "host_view")
"""What no operation that is repeated may ask: its results hang on more than buffers, or it waits."""

Picker = Callable[[tuple[Any, ...]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Launching:
    """A launch. `packer` packs what `pick` takes from all addresses, then `shifted` (each a number and what is added to that
    address), then `pieces` of the argument block that stay, then the address of a report. `reads` and `writes` are numbers of
    buffers.
    """

    kernel: LoadedKernel
    groups: tuple[int, int, int]
    packer: struct.Struct
    pick: Picker
    shifted: tuple[tuple[int, int], ...]
    pieces: tuple[bytes, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def words(self, addresses: tuple[Any, ...], report: int = 0) -> tuple[Any, ...]:
        """What the packer packs."""
        if self.shifted:
            addresses += tuple([addresses[number] + shift for number, shift in self.shifted])
        return self.pick((*addresses, *self.pieces, report))

    def run(self, device: Device, buffers: Sequence[Buffer], addresses: tuple[int, ...]) -> None:
        """Launches with these buffers."""
        block = self.packer.pack(*self.words(addresses))
        reads, writes = [buffers[i] for i in self.reads], [buffers[i] for i in self.writes]
        device.launch(self.kernel, self.groups, block, reads, writes)


@dataclass(frozen=True, slots=True)
class Filling:
    """A fill of buffer `number`, from `shift` bytes after its address on."""

    number: int
    shift: int
    nbytes: int
    pattern: int

    def run(self, device: Device, buffers: Sequence[Buffer], addresses: tuple[int, ...]) -> None:
        """Fills that one of these buffers."""
        target = buffers[self.number]
        device.fill(target, addresses[self.number] + self.shift - target.address, self.nbytes, self.pattern)


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy from one buffer to another, each from so many bytes after its address on."""

    source: int
    source_shift: int
    target: int
    target_shift: int
    nbytes: int

    def run(self, device: Device, buffers: Sequence[Buffer], addresses: tuple[int, ...]) -> None:
        """Copies between these buffers."""
        source, target = buffers[self.source], buffers[self.target]
        begin = addresses[self.source] + self.source_shift - source.address
        device.copy(source, begin, target, addresses[self.target] + self.target_shift - target.address, self.nbytes)


Step = Launching | Filling | Copying


class Witness:
    """Takes down what this thread asks of a device between `start` and `stop`, for arrays that it is given.

    `allocated` are the buffers that it got meanwhile; `pure` is False once it asked something that can't be repeated.
    """

    def __init__(self, device: Device, given: Sequence[DeviceArray]) -> None:
        self.device = device
        self._given = list(given)
        self.allocated: list[Buffer] = []
        self.pure = True
        self._asked: list[tuple[Any, ...]] = []
        self._thread = threading.get_ident()
        self._shadows: list[str] = []

    def start(self) -> bool:
        """Begins, unless somebody else looks at the device's launches; whether it did."""
        with shadowing:
            if "launch" in vars(self.device):
                return False
            self.device.watch(1)
            for name in ("launch", "fill", "copy", "allocate", *_IMPURE):
                self._shadow(name)
        return True

    def stop(self) -> None:
        """Ends."""
        with shadowing:
            for name in self._shadows:
                delattr(self.device, name)
            self.device.watch(-1)
            self._shadows.clear()

    def steps(self) -> list[Step] | None:
        """What was asked, to be repeated; None where that can't be."""
        if not self.pure:
            return None
        places = self._places()
        makers: dict[str, Callable[..., Step | None]] = {
            "launch": self._launching,
            "fill": self._filling,
            "copy": self._copying,
        }
        made = [makers[name](places, *what) for name, *what in self._asked]
        steps = [step for step in made if step is not None]
        return steps if len(steps) == len(made) else None

    def _places(self) -> dict[int, tuple[int, int]]:
        """By buffer: its number, and the address that steps are told for that number. Of arrays in one buffer the first counts."""
        places: dict[int, tuple[int, int]] = {}
        for number, array in enumerate(self._given):
            places.setdefault(id(array.buffer), (number, array.address))
        for number, buffer in enumerate(self.allocated, len(self._given)):
            places.setdefault(id(buffer), (number, buffer.address))
        return places

    def _shadow(self, name: str) -> None:
        usual = getattr(self.device, name)

        def shadow(*args: Any, **kwargs: Any) -> Any:
            result = usual(*args, **kwargs)
            if threading.get_ident() == self._thread:
                self._note(name, args, kwargs, result)
            return result

        setattr(self.device, name, shadow)
        self._shadows.append(name)

    def _note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if name in _IMPURE or kwargs:
            self.pure = False
        elif name == "allocate":
            self.allocated.append(result)
        elif name == "launch":
            kernel, groups, block, reads, writes = args
            self._asked.append((name, kernel, groups, bytes(block), tuple(reads), tuple(writes)))
        else:
            self._asked.append((name, *args))

    def _filling(
        self, places: dict[int, tuple[int, int]], buffer: Buffer, offset: int, nbytes: int, pattern: int
    ) -> Step | None:
        if id(buffer) not in places:
            return None
        number, address = places[id(buffer)]
        return Filling(number, buffer.address + offset - address, nbytes, pattern)

    def _copying(
        self, places: dict[int, tuple[int, int]], source: Buffer, begin: int, target: Buffer, start: int, nbytes: int
    ) -> Step | None:
        if id(source) not in places or id(target) not in places:
            return None
        (a, a_address), (b, b_address) = places[id(source)], places[id(target)]
        return Copying(a, source.address + begin - a_address, b, target.address + start - b_address, nbytes)

    def _launching(
        self,
        places: dict[int, tuple[int, int]],
        kernel: LoadedKernel,
        groups: tuple[int, int, int],
        block: bytes,
        reads: tuple[Buffer, ...],
        writes: tuple[Buffer, ...],
    ) -> Step | None:
        fields = kernel.artifact.fields
        if any(id(buffer) not in places for buffer in (*reads, *writes)) or any(f.role == "print" for f in fields):
            return None
        holes: list[tuple[int, int, int]] = []
        for item in fields:
            if item.role == "report":
                holes.append((item.offset, REPORT, 0))
            elif item.role == "address":
                (address,) = struct.unpack_from("<Q", block, item.offset)
                found = [places[id(b)] for b in (*reads, *writes) if b.address <= address < b.address + b.nbytes]
                if len({number for number, _ in found}) != 1:  # of nobody, or of buffers over the same memory
                    return None
                holes.append((item.offset, found[0][0], address - found[0][1]))
        packer, pick, shifted, pieces = _cut(block, sorted(holes), len(self._given) + len(self.allocated))
        numbers = (tuple([places[id(b)][0] for b in used]) for used in (reads, writes))
        return Launching(kernel, groups, packer, pick, shifted, pieces, *numbers)


def _cut(
    block: bytes, holes: Sequence[tuple[int, int, int]], count: int
) -> tuple[struct.Struct, Picker, tuple[tuple[int, int], ...], tuple[bytes, ...]]:
    """How a block is put together again. `holes` are places of addresses: offset, a number below `count` or REPORT, and what is
    added to that address.
    """
    shifted = sorted({(number, shift) for _, number, shift in holes if shift})
    pieces: list[bytes] = []
    picked: list[int] = []
    text, position = "<", 0
    for offset, number, shift in (*holes, (len(block), REPORT, 0)):
        if offset > position:
            picked.append(count + len(shifted) + len(pieces))
            pieces.append(block[position:offset])
            text += f"{offset - position}s"
        if offset < len(block):
            picked.append(count + shifted.index((number, shift)) if shift else number)
            text += "Q"
        position = offset + 8
    return struct.Struct(text), _picker(picked), tuple(shifted), tuple(pieces)


def _picker(places: Sequence[int]) -> Picker:
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda words: tuple([words[place] for place in places])
