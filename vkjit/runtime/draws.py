"""Random numbers of captured graphs: what entries draw, and new numbers for each replay.

A capture doesn't advance the streams of random numbers that its block draws from. It notes which entry uses the numbers
at which offset. A replay takes as many numbers as the block from each stream, and writes seeds and counters into the
entries. So replays draw what the block would have drawn at that time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ArgumentError

if TYPE_CHECKING:
    from .device import Device

__all__ = ["SCALARS", "Draw", "Draws", "Source"]

SCALARS = ("seed", "counter")
"""The parameters of kernels that draw random numbers: u64 scalars that `Draw.update` sets."""


class Source(Protocol):
    """A stream of random numbers, such as `vk.Generator`."""

    def take(self, count: int, device: Device | None = None) -> tuple[int, int]:
        """Reserve counter values; those of captured work on `device` are reserved in the capture."""

    def present(self) -> tuple[int, int]:
        """Return the seed and the counter outside of captures."""

    def seed_at(self, seed: int, counter: int) -> int:
        """Return the seed that is drawn at a counter value."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The numbers from `offset` on of a stream, which an entry uses.

    A launch has the scalars `SCALARS`; a fill writes the upper (`part` 1) or lower 32 bits of the seed at the counter.
    """

    entry: Any
    source: Source
    offset: int
    part: int | None

    def update(self, seed: int, counter: int) -> None:
        """Make the entry use the numbers at this counter value."""
        if self.part is not None:
            self.entry.pattern = self.source.seed_at(seed, counter) >> 32 * self.part & 0xFFFFFFFF
            return
        for number, name in enumerate(self.entry.kernel.artifact.info["parameters"]):
            if name in SCALARS:
                place = self.entry.scalar(number)
                self.entry.set_scalar(place, struct.pack("<Q", seed if name == "seed" else counter))


class Draws:
    """The draws of a capture, or of its graph. `taken` is how many numbers its block takes of each stream, `starts` at
    which offset the latest replay began in each stream, if it was captured itself.
    """

    def __init__(self) -> None:
        self.draws: list[Draw] = []
        self.taken: dict[Source, int] = {}
        self.starts: dict[Source, int] = {}
        self._base: dict[Source, tuple[int, int]] = {}
        self._position: dict[Source, int] = {}

    def add(self, entry: Any, source: Source, offset: int, part: int | None = None) -> None:
        """Note that an entry uses the numbers from `offset` on."""
        self.draws.append(Draw(entry, source, offset, part))

    def position(self, source: Source) -> int:
        """Return how many numbers of a stream the block has taken."""
        return self._position.get(source, 0)

    def take(self, source: Source, count: int) -> tuple[int, int]:
        """Reserve the next counter values of the block. Returns (seed, counter value), as if it ran now."""
        seed, counter = self.state(source)
        position = self._position[source] = self.position(source) + count
        self.taken[source] = max(self.taken.get(source, 0), position)
        return seed, counter

    def state(self, source: Source) -> tuple[int, int]:
        """Return the stream's state in the block."""
        if source not in self._base:
            self._base[source] = source.present()
        seed, counter = self._base[source]
        return seed, (counter + self.position(source)) % 2**64

    def set_state(self, source: Source, state: tuple[int, int]) -> None:
        """Return to a state that the block had before. Raises ArgumentError for others."""
        seed, counter = self._base.get(source) or source.present()
        position = (state[1] - counter) % 2**64
        if state[0] != seed or position > self.taken.get(source, 0):
            raise ArgumentError(
                "a stream of random numbers is seeded while it is captured, when nothing runs: replays continue the "
                "stream, so call manual_seed() or set_state() before the capture or before a replay"
            )
        self._base.setdefault(source, (seed, counter))
        self._position[source] = position

    def renew(self, device: Device, outer: Draws | None) -> None:
        """Take the numbers of the next replay, and make the entries use them. `outer`: of the capture that records it."""
        if outer is not None:
            self.starts = {source: outer.position(source) for source in self.taken}
        first = {source: source.take(count, device) for source, count in self.taken.items()}
        for draw in self.draws:
            seed, counter = first[draw.source]
            draw.update(seed, (counter + draw.offset) % 2**64)
