"""Which replays of graphs wrote a buffer, so that autograd detects that values which it has saved are overwritten.

Replays of all graphs share one sequence of numbers. A replay stores its number in the graph's `Clock`, which is listed
for each buffer that the graph writes: a replay costs nothing per buffer.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .device import Buffer

__all__ = ["Clock", "forget", "last_replay", "watch", "writers"]

_numbers = itertools.count(1)

writers: dict[int, tuple[weakref.ref[Buffer], list[Clock]]] = {}
"""The clocks of the graphs that write a buffer, by the buffer's id; empty as long as there are no graphs."""


class Clock:
    """`last` is the number of a graph's last replay, 0 before the first; `valid` that of its last replay, or of the
    start or end of its capture if that came later.

    A value that autograd saved in the capture is intact unless a replay with a number above `valid` wrote it.
    """

    __slots__ = ("last", "valid")

    def __init__(self, last: int = 0) -> None:
        self.last = self.valid = last

    def mark_boundary(self) -> None:
        """Number the start or the end of the capture."""
        self.valid = next(_numbers)

    def advance(self) -> None:
        """Number a replay."""
        self.last = self.valid = next(_numbers)


def watch(clock: Clock, buffers: Iterable[Buffer]) -> None:
    """List the clock of a graph for buffers that it writes from now on."""
    for buffer in buffers:
        key = id(buffer)
        if key not in writers:
            writers[key] = weakref.ref(buffer, lambda _, key=key: writers.pop(key, None)), []  # type: ignore[misc]
        writers[key][1].append(clock)


def forget(clock: Clock, buffers: Iterable[Buffer]) -> None:
    """Keep the number of the last replay for buffers that the clock's graph doesn't write any more."""
    for buffer in buffers:
        clocks = writers[id(buffer)][1]
        clocks[clocks.index(clock)] = Clock(clock.last)


def last_replay(buffer: Buffer) -> int:
    """Return the number of the last replay that wrote a buffer, 0 if there is none. It never decreases."""
    found = writers.get(id(buffer))
    return 0 if found is None else max(clock.last for clock in found[1])
