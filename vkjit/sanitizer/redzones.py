"""The sanitizer's check "outside": compare the bytes around written arrays before and after a launch.

The redzones of a launch are the bytes near and between the elements of the written arrays, in the same buffers, that
belong to no element of a written array. A report tells how many redzone bytes the launch has changed.

Sanitized kernels already check the indices of each access against the array's shape. Redzones find errors that these
checks can't see: bugs in compilers and drivers. A buffer that its arrays fill completely has no redzone.
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
"""Maximum size of the redzone on either side of an array, in bytes."""


@dataclass(frozen=True, slots=True)
class _Redzone:
    """A byte range of a buffer that contains redzone bytes.

    It begins at the byte `start` of the buffer. `outside` is a mask of the redzone bytes in the range, and `before` has
    the range's contents before the launch.
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
    """The redzones of one launch, to be created before it."""

    def __init__(self, stores: Mapping[int, tuple[str, Loc]], values: Sequence[Any]) -> None:
        """Read the redzones' contents before the launch.

        `stores` maps the argument number of each written array to its name and the location of a store to it. `values`
        are the arguments of the launch.
        """
        self._stores = stores
        self._arrays: dict[int, DeviceArray] = {number: values[number] for number in stores}
        self._watched: list[_Redzone] = []
        seen: set[tuple[int, int]] = set()
        for array in self._arrays.values():
            for start, end in _redzone_ranges(array):
                address_range = (array.buffer.address + start, array.buffer.address + end)
                outside = self._outside(*address_range)
                if outside.any() and address_range not in seen:
                    seen.add(address_range)
                    before = _contents(array.buffer, start, end - start)
                    self._watched.append(_Redzone(array.buffer, start, outside, before))

    def _outside(self, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the bytes between two addresses that belong to no element of a written array."""
        result = np.ones(max(end - start, 0), dtype=np.bool_)
        for array in self._arrays.values():
            array_start, array_end = byte_range(array)  # addresses
            if 0 in array.shape or array_start >= end or array_end <= start:
                continue
            # mark the bytes of the array's elements in a mask of its whole range, through a view with its strides
            is_element = np.zeros(array_end - array_start, dtype=np.bool_)
            item = array.dtype.storage.itemsize
            strides = (*(s * item for s in array.strides), 1)
            from_first_element = is_element[array.address - array_start :]
            element_bytes = np.lib.stride_tricks.as_strided(
                from_first_element, (*array.shape, item), strides, writeable=True
            )
            element_bytes[...] = True
            # the part of the array's range between `start` and `end`
            begin, stop = max(array_start, start), min(array_end, end)
            result[begin - start : stop - start] &= ~is_element[begin - array_start : stop - array_start]
        return result

    def reports(self, kernel: str) -> list[SanitizerReport]:
        """Return the reports; to be called after the launch.

        Each changed byte is attributed to the array whose first element is nearest. There is one report per array, with
        the number of changed bytes and the offset of the first one from the array's first element.
        """
        changed = sorted({int(address) for watched in self._watched for address in watched.changed()})
        by_array: dict[int, list[int]] = {}
        for address in changed:
            nearest = min(self._arrays, key=lambda number: abs(self._arrays[number].address - address))
            by_array.setdefault(nearest, []).append(address)
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
    """Return the ranges of an array's buffer to check, as (start, end) in bytes.

    They are `REDZONE_BYTES` before and after the array. If there are gaps between its elements, the array's own range
    is included.
    """
    buffer = array.buffer
    low, high = (address - buffer.address for address in byte_range(array))
    if 0 in array.shape:
        return []
    start, end = max(low - REDZONE_BYTES, 0), min(high + REDZONE_BYTES, buffer.nbytes)
    if high - low == math.prod(array.shape) * array.dtype.storage.itemsize:  # no gaps
        return [(start, low), (high, end)]
    return [(start, end)]


def _contents(buffer: Buffer, start: int, count: int) -> Bytes:
    """Return `count` bytes of a buffer, from the byte `start` on."""
    data = np.empty(count, dtype=np.uint8)
    if count:
        buffer.device.read(buffer, start, data)
    return data
