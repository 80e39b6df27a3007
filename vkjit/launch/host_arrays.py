"""NumPy arrays on their way to a device and back, or used where they lie by devices that work on host memory.

Enters: the NumPy arrays of one launch. Leaves: `DeviceArray`s over freshly filled buffers, and the copying back of those
that the kernel wrote. Arrays that overlap in memory, one of them written, share one buffer, so that the kernel sees the
overlap that the caller made.
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError
from ..runtime.device import Buffer, Device, DeviceArray, contiguous_strides
from ..runtime.self_overlap import elements_overlap

__all__ = ["Staged", "stage"]

NumpyArray = npt.NDArray[Any]


@dataclass(slots=True)
class _Span:
    """A stretch of host memory that travels as a whole: bytes [low, high) that hold `members`."""

    low: int
    high: int
    members: list[int]


@dataclass(slots=True)
class Staged:
    """What became of one NumPy argument. `spanned` arrays keep their strides; the others travel in C order; those in
    place don't travel."""

    host: NumpyArray
    array: DeviceArray
    spanned: bool
    span_low: int = 0
    in_place: bool = False


def _byte_bounds(array: NumpyArray) -> tuple[int, int]:
    """First and one past the last byte of the array's elements."""
    low = high = int(array.__array_interface__["data"][0])
    if array.size == 0:
        return low, low
    for extent, stride in zip(array.shape, array.strides, strict=True):
        reach = (extent - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high + array.itemsize


def element_type(array: NumpyArray, name: str) -> DType:
    """The dtype of a NumPy argument; ArgumentError with the parameter's name when there is none."""
    if type(array) is not np.ndarray and hasattr(array, "mask"):
        raise ArgumentError(
            f"argument {name} is a {type(array).__name__}, and kernels see no masks: pass {name}.data, {name}.filled(...), "
            f"or the mask as an array of its own"
        )
    try:
        return dtypes.from_numpy(array.dtype)
    except ArgumentError as error:
        raise type(error)(f"argument {name}: {error}") from None


def check_places(kernel: str, arrays: dict[str, NumpyArray | DeviceArray]) -> None:
    """ArgumentError where elements of one of the arrays, which the kernel writes, certainly lie in one place."""
    __tracebackhide__ = True
    for name, array in arrays.items():
        if isinstance(array, DeviceArray):
            refused = array.spec_class.overlapping
        else:
            refused = not array.flags.c_contiguous and elements_overlap(array.shape, array.strides, array.itemsize)
        if refused:
            raise ArgumentError(
                f"{kernel}(): argument {name} of shape {array.shape} is written, but its strides {array.strides} put several "
                f"elements in one place: pass a copy"
            )


def _keeps_strides(array: NumpyArray) -> bool:
    """Whether the array's own stretch of memory can travel as it is: not C order already, and not mostly gaps."""
    if array.size == 0 or array.flags.c_contiguous or any(s % array.itemsize for s in array.strides):
        return False
    low, high = _byte_bounds(array)
    return high - low <= 2 * array.nbytes


def _merge_spans(arrays: list[NumpyArray], written: list[bool]) -> list[_Span]:
    """Groups arrays whose bytes overlap where at least one of a group is written."""
    bounds = [_byte_bounds(a) for a in arrays]
    order = sorted((i for i in range(len(arrays)) if arrays[i].size), key=lambda i: bounds[i])
    groups: list[_Span] = []
    for i in order:
        low, high = bounds[i]
        if groups and low < groups[-1].high:
            groups[-1].high = max(groups[-1].high, high)
            groups[-1].members.append(i)
        else:
            groups.append(_Span(low, high, [i]))
    return [g for g in groups if len(g.members) > 1 and any(written[i] for i in g.members)]


def stage(device: Device, arrays: list[NumpyArray], written: list[bool], names: list[str]) -> list[Staged]:
    """Copies arrays to the device; outputs too, so that elements that the kernel doesn't write keep their values."""
    placed = _in_place(device, arrays, names)
    if placed is not None:
        return placed
    spans = _merge_spans(arrays, written) if len(arrays) > 1 and any(written) else []
    shared = {i: span for span in spans for i in span.members}
    for i, array in enumerate(arrays):
        if i in shared and any(s % array.itemsize for s in array.strides):
            raise ArgumentError(
                f"argument {names[i]} overlaps an array that the kernel writes, and its strides {array.strides} are no "
                f"multiples of its item size {array.itemsize}: pass a copy"
            )
    buffers: dict[int, Buffer] = {}
    staged = []
    for i, array in enumerate(arrays):
        dtype = element_type(array, names[i])
        span = shared.get(i)
        if span is None and _keeps_strides(array):
            low, high = _byte_bounds(array)
            span = shared[i] = _Span(low, high, [i])  # kept: buffers are found by the span's identity
        if span is None:
            staged.append(_stage_contiguous(device, array, dtype))
            continue
        buffer = buffers.get(id(span))
        if buffer is None:
            buffer = buffers[id(span)] = device.allocate(span.high - span.low)
            device.write(buffer, 0, _raw_bytes(span, [arrays[j] for j in span.members]))
        address = int(array.__array_interface__["data"][0])
        strides = tuple(s // array.itemsize for s in array.strides)
        view = DeviceArray(buffer, address - span.low, dtype, array.shape, strides)
        staged.append(Staged(array, view, spanned=True, span_low=span.low))
    return staged


def _in_place(device: Device, arrays: list[NumpyArray], names: list[str]) -> list[Staged] | None:
    """The arrays where they lie, if the device works on host memory and all of them are aligned to their elements."""
    placed = []
    for array, name in zip(arrays, names, strict=True):
        dtype, item = element_type(array, name), array.itemsize
        address = int(array.__array_interface__["data"][0])
        if address % item or any(s % item for s in array.strides):
            return None
        low, high = _byte_bounds(array)
        buffer = device.adopt(low, high - low, array)
        if buffer is None:
            return None
        strides = tuple(s // item for s in array.strides)
        view = DeviceArray(buffer, address - low, dtype, array.shape, strides)
        placed.append(Staged(array, view, spanned=True, span_low=low, in_place=True))
    return placed


def _stage_contiguous(device: Device, array: NumpyArray, dtype: DType) -> Staged:
    buffer = device.allocate(array.nbytes)
    if array.nbytes:
        device.write(buffer, 0, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    view = DeviceArray(buffer, 0, dtype, array.shape, contiguous_strides(array.shape))
    return Staged(array, view, spanned=False)


def _owner_bytes(span: _Span, member: NumpyArray) -> npt.NDArray[np.uint8] | None:
    """The span as a byte view of the array that owns `member`'s memory, where that array covers it."""
    root: Any = member
    while isinstance(root.base, np.ndarray):
        root = root.base
    low, high = _byte_bounds(root)
    if not root.flags.c_contiguous or low > span.low or high < span.high:
        return None
    return root.reshape(-1).view(np.uint8)[span.low - low : span.high - low]  # type: ignore[no-any-return]  # Any above


def _raw_bytes(span: _Span, members: list[NumpyArray]) -> npt.NDArray[np.uint8]:
    """The bytes of a span; gaps between elements that nobody's view covers are zero."""
    whole = _owner_bytes(span, members[0])
    if whole is not None:
        return whole
    data = np.zeros(span.high - span.low, dtype=np.uint8)
    for array in map(_once, members):
        _span_view(data, span.low, array)[...] = array
    return data


def _once(array: NumpyArray) -> NumpyArray:
    """The array with each element once: one step along axes of stride 0."""
    return array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]


def _span_view(data: npt.NDArray[np.uint8], low: int, array: NumpyArray) -> NumpyArray:
    """`array`'s elements inside the copy `data` of the span that begins at host address `low`."""
    offset = int(array.__array_interface__["data"][0]) - low
    view: NumpyArray = np.ndarray(array.shape, array.dtype, buffer=data.data, offset=offset, strides=array.strides)
    return view


def copy_back(device: Device, staged: list[Staged], written: list[bool]) -> None:
    """Copies what the kernel wrote into the caller's arrays; waits for the kernel."""
    spans: dict[int, npt.NDArray[np.uint8]] = {}
    for item, is_written in zip(staged, written, strict=True):
        if not is_written or item.host.size == 0:
            continue
        if item.in_place:
            device.synchronize()
            continue
        if not item.spanned:
            item.host[...] = fetch(item.array).view(item.host.dtype)  # bf16 is fetched as its bits
            continue
        buffer = item.array.buffer
        data = spans.get(id(buffer))
        if data is None:
            data = spans[id(buffer)] = np.empty(buffer.nbytes, dtype=np.uint8)
            device.read(buffer, 0, data)
        item.host[...] = _span_view(data, item.span_low, item.host)


def fetch(array: DeviceArray) -> NumpyArray:
    """A new NumPy array with the elements of a device array of any strides; waits for their writers."""
    item = array.dtype.storage.itemsize
    if 0 in array.shape:
        return np.empty(array.shape, array.dtype.storage)
    low = high = 0
    for extent, stride in zip(array.shape, array.strides, strict=True):
        reach = (extent - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    data = array.device.host_array((high - low + 1) * item)
    array.device.read(array.buffer, array.offset + low * item, data)
    view: NumpyArray = np.ndarray(
        array.shape,
        array.dtype.storage,
        buffer=data.data,
        offset=-low * item,
        strides=[s * item for s in array.strides],
    )
    return np.ascontiguousarray(view)


def to_host(array: DeviceArray) -> NumpyArray:
    """As `fetch`, for an array in C order that nobody else holds: memory of the host is handed over without a copy.

    bf16 comes as ml_dtypes' type where that package is loaded, else as its bits, uint16.
    """
    device, dtype = array.device, array.dtype.storage
    memory = device.host_view(array.buffer) if device.caps.kind == "llvm-cpu" else None
    if memory is None or 0 in array.shape:
        result = fetch(array)
    else:
        device.synchronize()
        count = math.prod(array.shape)
        result = memory[array.offset : array.offset + count * dtype.itemsize].view(dtype).reshape(array.shape)
    array.buffer.close()
    if array.dtype is dtypes.bf16 and "ml_dtypes" in sys.modules:
        result = result.view(sys.modules["ml_dtypes"].bfloat16)
    return result


def release(staged: list[Staged]) -> None:
    """Gives the buffers of a launch back at once instead of waiting for the garbage collector."""
    for buffer in {id(s.array.buffer): s.array.buffer for s in staged}.values():
        buffer.close()


def byte_range(array: DeviceArray) -> tuple[int, int]:
    """Device addresses [low, high) that the array's elements take."""
    item = array.dtype.itemsize
    low = high = 0
    for extent, stride in zip(array.shape, array.strides, strict=True):
        reach = (extent - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return array.address + low * item, array.address + (high + 1) * item


def overlapping(arrays: dict[int, DeviceArray]) -> tuple[tuple[int, int, bool], ...]:
    """The pairs of arrays (by number) whose stretches of memory meet, and whether they are one and the same view."""
    found = []
    for (i, a), (j, b) in itertools.combinations(arrays.items(), 2):
        (first, end), (other, other_end) = byte_range(a), byte_range(b)
        if 0 not in a.shape and 0 not in b.shape and first < other_end and other < end:
            same = (a.address, a.dtype, a.shape, a.strides) == (b.address, b.dtype, b.shape, b.strides)
            found.append((i, j, same))
    return tuple(found)


def overlaps(arrays: list[DeviceArray], written: list[bool]) -> bool:
    """Whether a written array shares bytes with another argument."""
    if not any(written) or len(arrays) < 2:
        return False
    ranges = [byte_range(a) if 0 not in a.shape else (0, 0) for a in arrays]
    for (i, a), (j, b) in itertools.combinations(enumerate(ranges), 2):
        if (written[i] or written[j]) and a[0] < b[1] and b[0] < a[1]:
            return True
    return False
