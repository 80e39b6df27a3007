"""Bytes around written arrays, before and after a launch.

Enters: the arrays that a launch writes. Leaves: reports of bytes of their buffers that changed though they belong to no
element of a written array. Accesses of sanitized kernels are checked against the array's shape, so this is about what
checks can't see: faults of compilers and drivers. A buffer that its arrays fill has no such bytes and costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Loc
from .findings import SanitizerReport, report_of
from .runtime.interface import Buffer, DeviceArray

__all__ = ["Canaries"]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Watched:
    """A buffer with bytes that nobody may write: which ones (True), and what they all held before."""

    buffer: Buffer
    outside: npt.NDArray[np.bool_]
    before: Bytes
    members: list[tuple[int, DeviceArray]]


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
            buffer = members[0][1].buffer
            outside = np.ones(buffer.nbytes, dtype=np.bool_)
            for _, array in members:
                _elements(outside, array)[...] = False
            if outside.any():
                self._watched.append(_Watched(buffer, outside, _contents(buffer), members))

    def reports(self, kernel: str) -> list[SanitizerReport]:
        """One report for each buffer that was written outside, about the first byte."""
        found = []
        for watched in self._watched:
            changed = np.flatnonzero((_contents(watched.buffer) != watched.before) & watched.outside)
            if len(changed):
                first = int(changed[0])
                number, array = min(watched.members, key=lambda member: abs(member[1].offset - first))
                text = (
                    f"{len(changed)} bytes changed that belong to no element of a written array, the first one "
                    f"{first - array.offset} bytes from the first element of the array of argument {number}"
                )
                values = (len(changed), first - array.offset)
                found.append(report_of("write_outside", self._stores[number], text, kernel, values=values))
        return found


def _contents(buffer: Buffer) -> Bytes:
    data = np.empty(buffer.nbytes, dtype=np.uint8)
    buffer.device.read(buffer, 0, data)
    return data


def _elements(mask: npt.NDArray[np.bool_], array: DeviceArray) -> npt.NDArray[np.bool_]:
    """The bytes of an array's elements in a mask over its buffer."""
    item = array.dtype.storage.itemsize
    if 0 in array.shape:
        return mask[:0]
    strides = (*(s * item for s in array.strides), 1)
    return np.lib.stride_tricks.as_strided(mask[array.offset :], (*array.shape, item), strides, writeable=True)
