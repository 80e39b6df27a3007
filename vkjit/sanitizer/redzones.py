"""Redzone checks: compare the bytes around written arrays before and after a launch.

Reports bytes of the arrays' buffers that changed although they belong to no element of a written array. Sanitized
kernels check each access against the array's shape already, so this finds what those checks can't see: bugs in
compilers and drivers. A buffer that its arrays fill completely has no redzone and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import Loc
from ..launch.host_arrays import byte_range
from ..runtime.device import Buffer, DeviceArray
from ..runtime.sanitizer_reports import SanitizerReport, report_of

__all__ = ["Redzones"]

Bytes = npt.NDArray[np.uint8]


REDZONE_BYTES = 4096
"""Size of the redzone on either side of an array, in bytes."""


@dataclass(frozen=True, slots=True)
class _Redzone:
    """A byte range of a buffer that starts at `start`. `outside` is True for redzone bytes; `before` are the contents
    before the launch.
    """

    buffer: Buffer
    start: int
    outside: npt.NDArray[np.bool_]
    before: Bytes

    @property
    def address(self) -> int:
        return self.buffer.address + self.start

    def changed(self) -> npt.NDArray[np.int64]:
        """Return the addresses of redzone bytes that changed."""
        now = _contents(self.buffer, self.start, len(self.outside))
        return np.flatnonzero((now != self.before) & self.outside) + self.address


class Redzones:
    """The redzones of one launch's arrays."""

    def __init__(self, stores: Mapping[int, tuple[str, Loc]], values: Sequence[Any]) -> None:
        """`stores` maps the parameter number of each written array to its name and the location of a store to it."""
        self._stores = stores
        self._arrays: dict[int, DeviceArray] = {number: values[number] for number in stores}
        self._watched: list[_Redzone] = []
        seen: set[tuple[int, int]] = set()
        for array in self._arrays.values():
            for start, end in _redzone_ranges(array):
                place = (array.buffer.address + start, array.buffer.address + end)
                outside = self._outside(*place)
                if outside.any() and place not in seen:
                    seen.add(place)
                    before = _contents(array.buffer, start, end - start)
                    self._watched.append(_Redzone(array.buffer, start, outside, before))

    def _outside(self, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the bytes between two addresses that belong to no element of a written array."""
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
        """Return a report for each array with changed bytes around or between its elements; it names the first such
        byte.
        """
        changed = sorted({int(address) for watched in self._watched for address in watched.changed()})
        by_array: dict[int, list[int]] = {}
        for address in changed:
            by_array.setdefault(min(self._arrays, key=lambda n: abs(self._arrays[n].address - address)), []).append(
                address
            )
        result = []
        for number, addresses in by_array.items():
            name, loc = self._stores[number]
            distance = addresses[0] - self._arrays[number].address
            text = (
                f"{len(addresses)} bytes changed that belong to no element of a written array, the first one {distance} "
                f"bytes from the first element of {name}"
            )
            result.append(report_of("write_outside", loc, text, kernel, values=(len(addresses), distance)))
        return result


def _redzone_ranges(array: DeviceArray) -> list[tuple[int, int]]:
    """Return the ranges to check, in bytes of the buffer: before and after a dense array, the whole extent and its
    surroundings for others.
    """
    buffer = array.buffer
    low, high = (address - buffer.address for address in byte_range(array))
    if 0 in array.shape:
        return []
    before, behind = max(low - REDZONE_BYTES, 0), min(high + REDZONE_BYTES, buffer.nbytes)
    if high - low == math.prod(array.shape) * array.dtype.storage.itemsize:
        return [(before, low), (high, behind)]
    return [(before, behind)]


def _contents(buffer: Buffer, start: int, count: int) -> Bytes:
    data = np.empty(count, dtype=np.uint8)
    if count:
        buffer.device.read(buffer, start, data)
    return data
