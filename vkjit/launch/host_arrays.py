"""Staging of NumPy arguments: copies to a device and back, and in-place use on devices that work on host memory.

`stage` copies the NumPy arrays of a launch to new buffers, and `copy_back` copies the written ones back. Arrays that
overlap in memory share one buffer if any of them is written, so that the kernel sees the same aliasing as the caller.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError
from ..runtime.device import Buffer, Device, DeviceArray, contiguous_strides
from ..runtime.self_overlap import elements_overlap

if TYPE_CHECKING:
    from ..frontend import KernelSpec

__all__ = ["Staged", "stage"]

NumpyArray = npt.NDArray[Any]

MAX_PACKED_BYTES = 64 << 10
"""Maximum total size of arrays that are packed into one buffer, which is faster than a buffer and a copy for each."""

PACKED_ALIGNMENT = 256
"""Alignment of arrays in a packed buffer, in bytes: the same as that of separate buffers."""


@dataclass(slots=True)
class _Span:
    """A range of host memory [low, high) that is copied as a whole; `members` are the indices of the arrays in it."""

    low: int
    high: int
    members: list[int]


@dataclass(slots=True)
class Staged:
    """The NumPy arguments of a launch and their device arrays, which may share buffers.

    With `in_place`, nothing was copied. Otherwise arrays that were copied as part of a span keep the host's strides,
    and the others are in C order.
    """

    hosts: Sequence[NumpyArray]
    arrays: list[DeviceArray]
    written: Sequence[bool]
    in_place: bool = False


def _byte_bounds(array: NumpyArray) -> tuple[int, int]:
    """Return the address of the first byte of the array's elements, and that after the last."""
    low = high = int(array.__array_interface__["data"][0])
    if array.size == 0:
        return low, low
    for extent, stride in zip(array.shape, array.strides, strict=True):
        reach = (extent - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high + array.itemsize


def element_type(array: NumpyArray, name: str) -> DType:
    """Return the dtype of a NumPy argument. Raises ArgumentError with the parameter's name if there is none."""
    if type(array) is not np.ndarray and hasattr(array, "mask"):
        raise ArgumentError(
            f"argument {name} is a {type(array).__name__}, and kernels see no masks: pass {name}.data, {name}.filled(...), "
            f"or the mask as an array of its own"
        )
    try:
        return dtypes.from_numpy(array.dtype)
    except ArgumentError as error:
        raise type(error)(f"argument {name}: {error}") from None


def element_types(spec: KernelSpec, values: Sequence[Any]) -> tuple[dict[int, NumpyArray], dict[int, DType]]:
    """Return the NumPy arguments and the element types of all arrays, by parameter index; NumPy arrays come first.

    Raises ArgumentError for a NumPy array with an unsupported element type.
    """
    hosts: dict[int, NumpyArray] = {}
    found: dict[int, DType] = {}
    for i in spec.arrays:
        value = values[i]
        if isinstance(value, np.ndarray):
            hosts[i] = value
            known = _ELEMENTS.get(value.dtype) if type(value) is np.ndarray else None
            found[i] = known if known is not None else element_type(value, spec.params[i].name)
    if len(hosts) < len(values):
        found |= {i: value.dtype for i, value in enumerate(values) if isinstance(value, DeviceArray)}
    return hosts, found


_ELEMENTS = {dtype.storage: dtype for dtype in dtypes.ALL if dtype is not dtypes.bf16}
_c_order = functools.lru_cache(maxsize=4096)(contiguous_strides)


def check_places(
    kernel: str, spec: KernelSpec, writes: Collection[int], hosts: dict[int, NumpyArray], values: Sequence[Any]
) -> None:
    """Raise ArgumentError if elements of a written array are certain to overlap.

    `writes` has the written parameters.
    """
    __tracebackhide__ = True
    for i in spec.arrays:
        if i not in writes:
            continue
        array = hosts.get(i)
        if array is None:
            array, refused = values[i], values[i].spec_class.overlapping
        else:
            refused = not array.flags.c_contiguous and elements_overlap(array.shape, array.strides, array.itemsize)
        if refused:
            raise ArgumentError(
                f"{kernel}(): argument {spec.params[i].name} of shape {array.shape} is written, but its strides "
                f"{array.strides} put several elements in one place: pass a copy"
            )


def _keeps_strides(array: NumpyArray) -> bool:
    """Return True if the array is copied as its range of memory, with its strides.

    That is so if it isn't in C order and at most half of the range is gaps.
    """
    if array.size == 0 or array.flags.c_contiguous or any(s % array.itemsize for s in array.strides):
        return False
    low, high = _byte_bounds(array)
    return high - low <= 2 * array.nbytes


def _merge_spans(arrays: Sequence[NumpyArray], written: Sequence[bool]) -> list[_Span]:
    """Group arrays that overlap in memory. Groups in which no array is written are dropped."""
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


def _spans(arrays: Sequence[NumpyArray], written: Sequence[bool], names: Sequence[str]) -> list[_Span]:
    """Return the ranges of memory that are copied as a whole. Arrays outside of them are copied in C order.

    Raises ArgumentError for an array of a shared range whose strides aren't multiples of its item size.
    """
    spans = _merge_spans(arrays, written) if len(arrays) > 1 and any(written) else []
    shared = {i for span in spans for i in span.members}
    for i, array in enumerate(arrays):
        if i in shared:
            if any(s % array.itemsize for s in array.strides):
                raise ArgumentError(
                    f"argument {names[i]} overlaps an array that the kernel writes, and its strides {array.strides} are no "
                    f"multiples of its item size {array.itemsize}: pass a copy"
                )
        elif _keeps_strides(array):
            spans.append(_Span(*_byte_bounds(array), [i]))
    return spans


def _are_plain(arrays: Sequence[NumpyArray], written: Sequence[bool]) -> bool:
    """Return True if there are no `_spans`: all arrays are in C order, and no written array overlaps another."""
    ranges: list[tuple[int, int, bool]] = []
    for array, is_written in zip(arrays, written, strict=True):
        if not array.flags.c_contiguous:
            return False
        low = array.__array_interface__["data"][0]
        high = low + array.nbytes
        for other, other_high, other_written in ranges:
            if low < other_high and other < high and (is_written or other_written):
                return False
        ranges.append((low, high, is_written))
    return True


def stage(
    device: Device, spec: KernelSpec, hosts: dict[int, NumpyArray], dtypes: dict[int, DType], values: list[Any]
) -> Staged:
    """Copy NumPy arguments to the device, and replace them in `values` by device arrays.

    Outputs are copied too, so that elements that the kernel doesn't write keep their values. Raises ArgumentError for a
    written array that is read-only.
    """
    __tracebackhide__ = True
    written = []
    for i, array in hosts.items():
        param = spec.params[i]
        is_written = param.mode != "in"
        if is_written and not array.flags.writeable:
            raise ArgumentError(
                f"{spec.name}(): argument {param.name} is written but read-only: pass a copy, or "
                f"annotate the parameter as vk.In where the kernel doesn't write it"
            )
        written.append(is_written)
    arrays, types = list(hosts.values()), [dtypes[i] for i in hosts]
    placed = _in_place(device, arrays, types) if device.caps.kind == "llvm-cpu" else None
    staged = placed or _copied(device, arrays, types, written, [spec.params[i].name for i in hosts])
    for i, device_array in zip(hosts, staged, strict=True):
        values[i] = device_array
    return Staged(arrays, staged, written, in_place=placed is not None)


def _copied(
    device: Device, arrays: list[NumpyArray], dtypes: list[DType], written: list[bool], names: list[str]
) -> list[DeviceArray]:
    """Copy arrays to the device. Small arrays are packed into one buffer and copied at once."""
    spans = [] if _are_plain(arrays, written) else _spans(arrays, written, names)
    if not spans and sum([a.nbytes for a in arrays]) <= MAX_PACKED_BYTES:
        return _pack(device, arrays, dtypes, written)
    shared = {i: span for span in spans for i in span.members}
    buffers: dict[int, Buffer] = {}
    staged = []
    for i, (array, dtype) in enumerate(zip(arrays, dtypes, strict=True)):
        span = shared.get(i)
        if span is None:
            buffer = device.allocate(array.nbytes)
            if array.nbytes:
                device.write(buffer, 0, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            staged.append(DeviceArray(buffer, 0, dtype, array.shape, _c_order(array.shape)))
            continue
        shared_buffer = buffers.get(id(span))
        if shared_buffer is None:
            shared_buffer = buffers[id(span)] = device.allocate(span.high - span.low)
            device.write(shared_buffer, 0, _raw_bytes(span, [arrays[j] for j in span.members]))
        address = int(array.__array_interface__["data"][0])
        strides = tuple(s // array.itemsize for s in array.strides)
        staged.append(DeviceArray(shared_buffer, address - span.low, dtype, array.shape, strides))
    return staged


def _pack(
    device: Device, arrays: Sequence[NumpyArray], dtypes: Sequence[DType], written: Sequence[bool]
) -> list[DeviceArray]:
    """Copy arrays in C order into one buffer, the written ones after the others."""
    offsets, total = [0] * len(arrays), 0
    for behind in (False, True):
        for i, array in enumerate(arrays):
            if written[i] is behind:
                offsets[i] = total
                total += (array.nbytes + PACKED_ALIGNMENT - 1) & -PACKED_ALIGNMENT
    data = np.empty(total, np.uint8)
    for array, offset in zip(arrays, offsets, strict=True):
        np.ndarray(array.shape, array.dtype, data, offset)[...] = array
    buffer = device.allocate(total)
    device.write(buffer, 0, data)
    return [
        DeviceArray(buffer, offset, dtype, array.shape, _c_order(array.shape))
        for array, dtype, offset in zip(arrays, dtypes, offsets, strict=True)
    ]


def _in_place(device: Device, arrays: Sequence[NumpyArray], dtypes: Sequence[DType]) -> list[DeviceArray] | None:
    """Return device arrays over the host memory itself, without a copy.

    None if the device can't adopt it, or if an address or stride of an array isn't a multiple of its item size.
    """
    placed = []
    for array, dtype in zip(arrays, dtypes, strict=True):
        item = array.itemsize
        address = low = array.__array_interface__["data"][0]
        if array.flags.c_contiguous:
            high, strides = low + array.nbytes, _c_order(array.shape)
        elif any(s % item for s in array.strides):
            return None
        else:
            low, high = _byte_bounds(array)
            strides = tuple(s // item for s in array.strides)
        buffer = device.adopt(low, high - low, array) if address % item == 0 else None
        if buffer is None:
            return None
        placed.append(DeviceArray(buffer, address - low, dtype, array.shape, strides))
    return placed


def _owner_bytes(span: _Span, member: NumpyArray) -> npt.NDArray[np.uint8] | None:
    """Return the span as a byte view of the array that owns `member`'s memory; None if that array doesn't cover it."""
    root: Any = member
    while isinstance(root.base, np.ndarray):
        root = root.base
    low, high = _byte_bounds(root)
    if not root.flags.c_contiguous or low > span.low or high < span.high:
        return None
    return root.reshape(-1).view(np.uint8)[span.low - low : span.high - low]  # type: ignore[no-any-return]  # Any above


def _raw_bytes(span: _Span, members: list[NumpyArray]) -> npt.NDArray[np.uint8]:
    """Return the bytes of a span. Bytes that no member covers may be zero."""
    whole = _owner_bytes(span, members[0])
    if whole is not None:
        return whole
    data = np.zeros(span.high - span.low, dtype=np.uint8)
    for array in map(_once, members):
        _span_view(data, span.low, array)[...] = array
    return data


def _once(array: NumpyArray) -> NumpyArray:
    """Return a view that has each element once: broadcast axes (stride 0) are reduced to length 1."""
    return array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]


def _span_view(data: npt.NDArray[np.uint8], low: int, array: NumpyArray) -> NumpyArray:
    """Return the view of `array`'s elements in `data`, the copy of a span that begins at host address `low`."""
    offset = int(array.__array_interface__["data"][0]) - low
    view: NumpyArray = np.ndarray(array.shape, array.dtype, buffer=data.data, offset=offset, strides=array.strides)
    return view


def copy_back(device: Device, staged: Staged) -> None:
    """Copy written arrays back into the caller's arrays. Waits for the kernel."""
    by_buffer: dict[int, list[tuple[NumpyArray, DeviceArray]]] = {}
    for host, array, is_written in zip(staged.hosts, staged.arrays, staged.written, strict=True):
        if is_written and host.size:
            by_buffer.setdefault(id(array.buffer), []).append((host, array))
    if staged.in_place:
        if by_buffer:
            device.synchronize()
        return
    for members in by_buffer.values():
        _read_members(device, members)


def _read_members(device: Device, members: list[tuple[NumpyArray, DeviceArray]]) -> None:
    """Copy arrays of one buffer to the host, with one read of the range that they cover."""
    first, base = members[0][1].buffer, members[0][1].buffer.address
    low, high = first.nbytes, 0
    for host, array in members:
        if array.spec_class.contiguous:
            low, high = min(low, array.offset), max(high, array.offset + host.nbytes)
        else:
            start, end = byte_range(array)
            low, high = min(low, start - base), max(high, end - base)
    data = device.host_array(high - low) if high - low > MAX_PACKED_BYTES else np.empty(high - low, np.uint8)
    device.read(first, low, data)
    for host, array in members:
        strides = None if array.spec_class.contiguous else [s * host.itemsize for s in array.strides]
        host[...] = np.ndarray(host.shape, host.dtype, data.data, array.offset - low, strides)


def fetch(array: DeviceArray) -> NumpyArray:
    """Return a new NumPy array with the elements of a device array of any strides.

    Waits for the launches that write them.
    """
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
    """Implementation of `fetch` for an array in C order with no other users: host memory is returned without a copy.

    Closes the buffer. bf16 is returned as ml_dtypes' type if that package is loaded, else as its bits in uint16.
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


def release(device: Device, staged: Staged, waits: bool) -> None:
    """Close the buffers of a launch now instead of waiting for the garbage collector.

    With `waits`, wait for the launch first, so that its errors are raised here. Not needed if `copy_back` has waited.
    """
    if waits and True not in staged.written:
        device.synchronize()
    closed = None
    for array in staged.arrays:
        if array.buffer is not closed:
            closed = array.buffer
            closed.close()


def byte_range(array: DeviceArray) -> tuple[int, int]:
    """Return the range of device addresses [low, high) that the array's elements occupy."""
    item = array.dtype.itemsize
    low = high = 0
    for extent, stride in zip(array.shape, array.strides, strict=True):
        reach = (extent - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return array.address + low * item, array.address + (high + 1) * item


def overlapping(arrays: dict[int, DeviceArray]) -> tuple[tuple[int, int, bool], ...]:
    """Return the pairs of arrays whose memory ranges overlap: the two keys, and True if they are identical views."""
    found = []
    for (i, a), (j, b) in itertools.combinations(arrays.items(), 2):
        (first, end), (other, other_end) = byte_range(a), byte_range(b)
        if 0 not in a.shape and 0 not in b.shape and first < other_end and other < end:
            same = (a.address, a.dtype, a.shape, a.strides) == (b.address, b.dtype, b.shape, b.strides)
            found.append((i, j, same))
    return tuple(found)


def overlaps(arrays: Sequence[DeviceArray], written: Sequence[bool]) -> bool:
    """True if a written array shares bytes with another argument."""
    if len(arrays) < 2 or True not in written:
        return False
    ranges: list[tuple[int, int, bool]] = []
    for array, is_written in zip(arrays, written, strict=True):
        if 0 in array.shape:
            continue
        if array.spec_class.contiguous:
            low = array.descriptor[0]
            high = low + math.prod(array.shape) * array.dtype.storage.itemsize
        else:
            low, high = byte_range(array)
        for other, other_high, other_written in ranges:
            if (is_written or other_written) and low < other_high and other < high:
                return True
        ranges.append((low, high, is_written))
    return False
