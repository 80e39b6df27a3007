"""Staging of NumPy arguments: copies to a device and back, and in-place use on devices that work on host memory.

`stage` copies the NumPy arrays of a launch to new buffers, and `copy_back` copies the written ones back. Arrays that
overlap in memory share one buffer if any of them is written, so that the kernel sees the same aliasing as the caller.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, KernelError, OutOfMemoryError
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
    """A range of host memory [low, high) with the arrays `members`, by index.

    With `is_whole`, the range is copied as it is, and its arrays keep their strides. Otherwise it has one array, which
    is copied in C order.
    """

    low: int
    high: int
    members: list[int]
    is_written: bool
    is_whole: bool = False


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


def _reach(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return the lowest and the highest offset of an element, in the unit of the strides. No extent may be 0."""
    low = high = 0
    for extent, stride in zip(shape, strides, strict=True):
        reach = (extent - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high


def _byte_bounds(array: NumpyArray) -> tuple[int, int]:
    """Return the address of the first byte of the array's elements, and that after the last; zeros without elements."""
    if not array.nbytes:
        return 0, 0
    address = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return address, address + array.nbytes
    low, high = _reach(array.shape, array.strides)
    return address + low, address + high + array.itemsize


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


def element_types(spec: KernelSpec, hosts: dict[int, NumpyArray]) -> dict[int, DType]:
    """Return the element types of NumPy arguments, by parameter index. Raises ArgumentError for unsupported types."""
    found: dict[int, DType] = {}
    for i, array in hosts.items():
        known = _ELEMENTS.get(array.dtype) if type(array) is np.ndarray else None
        found[i] = known if known is not None else element_type(array, spec.params[i].name)
    return found


_c_order = functools.lru_cache(maxsize=4096)(contiguous_strides)
_ELEMENTS = {dtype.storage: dtype for dtype in dtypes.ALL if dtype is not dtypes.bf16}


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


def _spans(arrays: Sequence[NumpyArray], written: Sequence[bool], names: Sequence[str]) -> list[_Span]:
    """Divide arrays into ranges of memory to copy; those with written arrays come last.

    Arrays that overlap share a range if any of them is written. An array alone keeps its strides if it isn't in C order
    and at most half of its range is gaps. Raises ArgumentError for an array of a shared range whose strides aren't
    multiples of its item size.
    """
    bounds = [_byte_bounds(array) for array in arrays]
    merged: list[_Span] = []
    for i in sorted(range(len(arrays)), key=bounds.__getitem__):
        low, high = bounds[i]
        if merged and low < merged[-1].high:
            span = merged[-1]
            span.high, span.is_written = max(span.high, high), span.is_written or written[i]
            span.members.append(i)
        else:
            merged.append(_Span(low, high, [i], written[i]))
    spans: list[_Span] = []
    for span in merged:
        if len(span.members) == 1 or span.is_written:
            spans.append(span)
        else:
            spans += [_Span(*bounds[i], [i], False) for i in span.members]
    for span in spans:
        is_shared = len(span.members) > 1
        for i in span.members:
            array = arrays[i]
            if array.flags.c_contiguous:
                span.is_whole = is_shared
            elif not any(s % array.itemsize for s in array.strides):
                span.is_whole = is_shared or span.high - span.low <= 2 * array.nbytes
            elif is_shared:
                raise ArgumentError(
                    f"argument {names[i]} overlaps an array that the kernel writes, and its strides {array.strides} are no "
                    f"multiples of its item size {array.itemsize}: pass a copy"
                )
    return sorted(spans, key=operator.attrgetter("is_written"))


def stage(
    device: Device, spec: KernelSpec, hosts: dict[int, NumpyArray], dtypes: dict[int, DType], values: list[Any]
) -> Staged:
    """Copy NumPy arguments to the device, and replace them in `values` by device arrays.

    Outputs are copied too, so that elements that the kernel doesn't write keep their values. Raises ArgumentError for a
    written array that is read-only.
    """
    __tracebackhide__ = True
    written, names = [], []
    for i, array in hosts.items():
        param = spec.params[i]
        is_written = param.mode != "in"
        if is_written and not array.flags.writeable:
            raise ArgumentError(
                f"{spec.name}(): argument {param.name} is written but read-only: pass a copy, or "
                f"annotate the parameter as vk.In where the kernel doesn't write it"
            )
        written.append(is_written)
        names.append(param.name)
    arrays, types = list(hosts.values()), [dtypes[i] for i in hosts]
    placed = _in_place(device, arrays, types) if device.caps.kind == "llvm-cpu" else None
    staged = placed or _copied(device, arrays, types, written, names)
    for i, device_array in zip(hosts, staged, strict=True):
        values[i] = device_array
    return Staged(arrays, staged, written, in_place=placed is not None)


def _copied(
    device: Device, arrays: list[NumpyArray], dtypes: list[DType], written: list[bool], names: list[str]
) -> list[DeviceArray]:
    """Copy arrays to the device. Small ranges are packed into one buffer and copied at once."""
    spans = _spans(arrays, written, names)
    contents, offsets, total = [], [], 0
    for span in spans:
        if span.is_whole:  # with the gaps between elements, which are memory of the same arrays
            memory = memoryview((ctypes.c_uint8 * (span.high - span.low)).from_address(span.low))
            content = np.frombuffer(memory, np.uint8)
        else:
            content = np.ascontiguousarray(arrays[span.members[0]]).reshape(-1).view(np.uint8)
        contents.append(content)
        offsets.append(total)
        total += (content.nbytes + PACKED_ALIGNMENT - 1) & -PACKED_ALIGNMENT
    if total <= MAX_PACKED_BYTES:
        data = np.empty(total, np.uint8)
        for content, offset in zip(contents, offsets, strict=True):
            data[offset : offset + content.nbytes] = content
        buffer = device.allocate(total)
        device.write(buffer, 0, data)
    staged: dict[int, DeviceArray] = {}
    for span, content, start in zip(spans, contents, offsets, strict=True):
        if total > MAX_PACKED_BYTES:
            buffer, start = device.allocate(content.nbytes), 0
            device.write(buffer, 0, content)
        for i in span.members:
            array, offset, strides = arrays[i], start, _c_order(arrays[i].shape)
            if span.is_whole:
                offset += array.__array_interface__["data"][0] - span.low
                strides = tuple(s // array.itemsize for s in array.strides)
            staged[i] = DeviceArray(buffer, offset, dtypes[i], array.shape, strides)
    return [staged[i] for i in range(len(arrays))]


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


def copy_back(device: Device, staged: Staged) -> None:
    """Copy written arrays back into the caller's arrays. Waits for the kernel.

    If the kernel reports an error, raises it after the copy: what it has written stays, as in tensors.
    """
    by_buffer: dict[int, list[tuple[NumpyArray, DeviceArray]]] = {}
    for host, array, is_written in zip(staged.hosts, staged.arrays, staged.written, strict=True):
        if is_written and host.size:
            by_buffer.setdefault(id(array.buffer), []).append((host, array))
    if staged.in_place:
        if by_buffer:
            device.synchronize()
        return
    report: KernelError | None = None
    for members in by_buffer.values():
        ranges = [byte_range(array) for _, array in members]
        low, high = min(ranges)[0], max([end for _, end in ranges])
        try:
            data = _read(device, members[0][1].buffer, low, high)
        except KernelError as error:
            report = error
            data = _read(device, members[0][1].buffer, low, high)
        for host, array in members:
            host[...] = _view(data, low, array, host.dtype)
    if report is not None:
        raise report


def _read(device: Device, buffer: Buffer, low: int, high: int) -> npt.NDArray[np.uint8]:
    """Return a copy of the device addresses [low, high) of a buffer. Waits for the launches that write them."""
    data = device.host_array(high - low) if high - low > MAX_PACKED_BYTES else np.empty(high - low, np.uint8)
    device.read(buffer, low - buffer.address, data)
    return data


def _view(data: npt.NDArray[np.uint8], low: int, array: DeviceArray, dtype: np.dtype[Any]) -> NumpyArray:
    """Return the elements of `array` in `data`, the copy of device memory from the address `low` on."""
    strides = [stride * dtype.itemsize for stride in array.strides]
    view: NumpyArray = np.ndarray(array.shape, dtype, data.data, array.descriptor[0] - low, strides)
    return view


def fetch(array: DeviceArray) -> NumpyArray:
    """Return a new NumPy array with the elements of a device array of any strides.

    Waits for the launches that write them.
    """
    if 0 in array.shape:
        return np.empty(array.shape, array.dtype.storage)
    low, high = byte_range(array)
    view = _view(_read(array.device, array.buffer, low, high), low, array, array.dtype.storage)
    try:
        return view if view.flags.c_contiguous else view.copy()
    except MemoryError as error:
        raise OutOfMemoryError(f"a copy on the host of an array of shape {array.shape}: {error}") from error


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
    """Return the range of device addresses [low, high) that the array's elements occupy; empty without elements."""
    address, item = array.descriptor[0], array.dtype.storage.itemsize
    if array.spec_class.contiguous:
        return address, address + math.prod(array.shape) * item
    low, high = _reach(array.shape, array.strides)
    return address + low * item, address + (high + 1) * item


def overlapping(arrays: Sequence[DeviceArray], written: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the pairs of arrays, by index, that share bytes, at least one of them written."""
    pairs: list[tuple[int, int]] = []
    ranges: list[tuple[int, int]] = []
    if True in written:
        for j, array in enumerate(arrays):
            low, high = byte_range(array)
            for i, (other, other_high) in enumerate(ranges):
                if (written[i] or written[j]) and max(low, other) < min(high, other_high):
                    pairs.append((i, j))
            ranges.append((low, high))
    return pairs
