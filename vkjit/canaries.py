"""Bytes around written arrays, before and after a launch.

Enters: the arrays that a launch writes. Leaves: reports of bytes of their buffers that changed though they belong to no
element of a written array. Accesses of sanitized kernels are checked against the array's shape, so this is about what
checks can't see: faults of compilers and drivers. A buffer that its arrays fill has no such bytes and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Loc
from .findings import SanitizerReport, report_of
from .runtime.interface import Buffer, DeviceArray
from .staging import byte_range

__all__ = ["Canaries"]

Bytes = npt.NDArray[np.uint8]


MARGIN = 4096
"""Bytes on either side of the arrays that are looked at."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A stretch of a buffer from byte `start` on: which bytes nobody may write (True), and what they held before."""

    buffer: Buffer
    start: int
    outside: npt.NDArray[np.bool_]
    before: Bytes
    members: list[tuple[int, DeviceArray]]

    def now(self) -> Bytes:
        return _contents(self.buffer, self.start, len(self.outside))


class Canaries:
    """The bytes outside of the arrays of one launch."""

    def __init__(self, stores: Mapping[int, Loc], values: Sequence[Any]) -> None:
        """`stores`: by number of a written array, a place that writes it."""
        self._stores = stores
        self._watched: list[_Watched] = []
        buffers: dict[int, list[tuple[int, DeviceArray]]] = {}
        for number in stores:
            buffers.setdefault(id(values[number].buffer), []).append((number, values[number]))
        for members in buffers.values():
            for start, end in _stretches(members):
                outside = np.ones(end - start, dtype=np.bool_)
                for _, array in members:
                    _take_out(outside, start, array)
                if outside.any():
                    buffer = members[0][1].buffer
                    before = _contents(buffer, start, end - start)
                    self._watched.append(_Watched(buffer, start, outside, before, members))

    def reports(self, kernel: str) -> list[SanitizerReport]:
        """One report for each stretch of memory that was written outside, about the first byte."""
        found = []
        for watched in self._watched:
            changed = np.flatnonzero((watched.now() != watched.before) & watched.outside)
            if len(changed):
                first = watched.start + int(changed[0])
                number, array = min(watched.members, key=lambda member: abs(member[1].offset - first))
                text = (
                    f"{len(changed)} bytes changed that belong to no element of a written array, the first one "
                    f"{first - array.offset} bytes from the first element of the array of argument {number}"
                )
                values = (len(changed), first - array.offset)
                found.append(report_of("write_outside", self._stores[number], text, kernel, values=values))
        return found


def _stretches(members: list[tuple[int, DeviceArray]]) -> list[tuple[int, int]]:
    """What to look at: the bytes before and behind a gapless array, all around and inside of others."""
    buffer = members[0][1].buffer
    ranges = [(low - buffer.address, high - buffer.address) for low, high in (byte_range(a) for _, a in members)]
    low, high = max(min(r[0] for r in ranges) - MARGIN, 0), min(max(r[1] for r in ranges) + MARGIN, buffer.nbytes)
    if len(members) == 1 and ranges[0][1] - ranges[0][0] == _bytes_of(members[0][1]):
        return [(low, ranges[0][0]), (ranges[0][1], high)]
    return [(low, high)]


def _bytes_of(array: DeviceArray) -> int:
    return math.prod(array.shape) * array.dtype.storage.itemsize


def _contents(buffer: Buffer, start: int, count: int) -> Bytes:
    data = np.empty(count, dtype=np.uint8)
    if count:
        buffer.device.read(buffer, start, data)
    return data


def _take_out(outside: npt.NDArray[np.bool_], start: int, array: DeviceArray) -> None:
    """Marks the bytes of an array's elements as its own; a stretch holds all of them or none."""
    first, item = array.offset - start, array.dtype.storage.itemsize
    if 0 in array.shape or not 0 <= first < len(outside):
        return
    strides = (*(s * item for s in array.strides), 1)
    np.lib.stride_tricks.as_strided(outside[first:], (*array.shape, item), strides, writeable=True)[...] = False
