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

    @property
    def address(self) -> int:
        return self.buffer.address + self.start

    def changed(self) -> npt.NDArray[np.int64]:
        """The addresses of bytes that nobody may write, and that changed."""
        now = _contents(self.buffer, self.start, len(self.outside))
        return np.flatnonzero((now != self.before) & self.outside) + self.address


class Canaries:
    """The bytes outside of the arrays of one launch."""

    def __init__(self, stores: Mapping[int, tuple[str, Loc]], values: Sequence[Any]) -> None:
        """`stores`: by number of a written array its name, and a place that writes it."""
        self._stores = stores
        self._arrays: dict[int, DeviceArray] = {number: values[number] for number in stores}
        self._watched: list[_Watched] = []
        seen: set[tuple[int, int]] = set()
        for array in self._arrays.values():
            for start, end in _around(array):
                place = (array.buffer.address + start, array.buffer.address + end)
                outside = self._outside(*place)
                if outside.any() and place not in seen:
                    seen.add(place)
                    before = _contents(array.buffer, start, end - start)
                    self._watched.append(_Watched(array.buffer, start, outside, before))

    def _outside(self, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Which bytes between two addresses belong to no element of a written array."""
        result = np.ones(max(end - start, 0), dtype=np.bool_)
        for array in self._arrays.values():
            low, high = byte_range(array)
            if 0 in array.shape or low >= end or high <= start:
                continue
            own = np.zeros(high - low, dtype=np.bool_)
            item = array.dtype.storage.itemsize
            strides = (*(s * item for s in array.strides), 1)
            first = own[array.address - low :]
            np.lib.stride_tricks.as_strided(first, (*array.shape, item), strides, writeable=True)[...] = True
            begin, stop = max(low, start), min(high, end)
            result[begin - start : stop - start] &= ~own[begin - low : stop - low]
        return result

    def reports(self, kernel: str) -> list[SanitizerReport]:
        """One report for each array beside or between whose elements bytes changed, about the first of them."""
        changed = sorted({int(address) for watched in self._watched for address in watched.changed()})
        by_array: dict[int, list[int]] = {}
        for address in changed:
            by_array.setdefault(min(self._arrays, key=lambda n: abs(self._arrays[n].address - address)), []).append(
                address
            )
        found = []
        for number, addresses in by_array.items():
            name, loc = self._stores[number]
            distance = addresses[0] - self._arrays[number].address
            text = (
                f"{len(addresses)} bytes changed that belong to no element of a written array, the first one {distance} "
                f"bytes from the first element of {name}"
            )
            found.append(report_of("write_outside", loc, text, kernel, values=(len(addresses), distance)))
        return found


def _around(array: DeviceArray) -> list[tuple[int, int]]:
    """What to look at, in bytes of the buffer: before and behind a gapless array, all around and inside of others."""
    buffer = array.buffer
    low, high = (address - buffer.address for address in byte_range(array))
    if 0 in array.shape:
        return []
    before, behind = max(low - MARGIN, 0), min(high + MARGIN, buffer.nbytes)
    if high - low == math.prod(array.shape) * array.dtype.storage.itemsize:
        return [(before, low), (high, behind)]
    return [(before, behind)]


def _contents(buffer: Buffer, start: int, count: int) -> Bytes:
    data = np.empty(count, dtype=np.uint8)
    if count:
        buffer.device.read(buffer, start, data)
    return data
