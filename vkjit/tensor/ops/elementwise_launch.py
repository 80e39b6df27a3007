"""Launch of elementwise kernels: broadcast and coalesce the operands, then choose the kernel by which of them are
scalars.

Nothing here waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError
from vkjit.launch.host_arrays import byte_range
from vkjit.runtime.device import Device, DeviceArray
from vkjit.stdlib.elementwise import maps as kernels, vec4 as fours
from vkjit.stdlib.registry import device_class

from ..memory import allocate
from ..tensor import Tensor
from . import creation
from .broadcast import broadcast_shapes, coalesce, expand, overlaps_itself

__all__ = ["arithmetic_type", "common_device", "copy_array", "fill_array", "refuse_overlap", "run_map", "write_map"]


def arithmetic_type(dtype: DType) -> DType:
    """Return the type that arithmetic on `dtype` is done in: f32 for 16-bit floats, i32 for bool, else `dtype` itself."""
    if dtype.bits == 16 and dtype.is_float:
        return dtypes.f32
    return dtypes.i32 if dtype.kind == "bool" else dtype


def common_device(operands: Sequence[Any]) -> Device:
    """Return the device of the tensors among the operands. Raises ArgumentError if they are on several, or there is
    none.
    """
    device: Device | None = None
    for operand in operands:
        if not isinstance(operand, Tensor):
            continue
        if device is not None and operand.device is not device:
            raise ArgumentError(
                f"the operands lie on {device.name} and {operand.device.name}: move one of them with .to(device=...)"
            )
        device = operand.device
    if device is None:
        raise ArgumentError("expected at least one tensor among the operands")
    return device


def run_map(
    function: Any, operands: Sequence[Any], result: DType, compute: DType, *, first: DType | None = None
) -> Tensor:
    """Return function(*operands) as a new tensor of type `result`, computed in `compute`; `first`, if given, is the
    type of the first operand in kernels with three operands.
    """
    arrays = [o._array for o in operands if isinstance(o, Tensor)]
    if not arrays:
        common_device(operands)  # raises
    shape, device, same_shape = arrays[0].shape, arrays[0].buffer.device, True
    for array in arrays:
        if array.buffer.device is not device:
            common_device(operands)  # raises
        same_shape = same_shape and array.shape == shape
    if not same_shape:
        shape = broadcast_shapes(*(a.shape for a in arrays))
    out = allocate(shape, result, device)
    _launch(function, operands, out, compute, first)
    return Tensor(out)


def write_map(
    function: Any, operands: Sequence[Any], target: Tensor, compute: DType, *, first: DType | None = None
) -> None:
    """Write function(*operands) into target's memory. Operands that overlap it other than element for element are
    copied first.
    """
    common_device((target, *operands))
    refuse_overlap(target)
    shape = broadcast_shapes(target.shape, *(o.shape for o in operands if isinstance(o, Tensor)))
    if shape != target.shape:
        raise ArgumentError(f"a result of shape {shape} can't be written into a tensor of {target.shape}")
    safe = [_without_overlap(o, target._array) if isinstance(o, Tensor) else o for o in operands]
    _launch(function, safe, target._array, compute, first)


def refuse_overlap(target: Tensor) -> None:
    """Raise ArgumentError for a tensor whose elements overlap in memory, since it can't be written element by element."""
    if is_dense(target._array) or not overlaps_itself(target.shape, target.strides):
        return
    raise ArgumentError(
        f"a tensor that was expanded or cut into windows (shape {target.shape}, strides {target.strides}) holds elements "
        "in the same memory: call .clone() before it is written in place"
    )


def _without_overlap(operand: Tensor, target: DeviceArray) -> Tensor:
    array = operand._array
    if array.buffer is not target.buffer or not target.shape or 0 in array.shape or 0 in target.shape:
        return operand
    if array.offset == target.offset and array.shape == target.shape and array.strides == target.strides:
        return operand
    low, high = byte_range(array)
    target_low, target_high = byte_range(target)
    if high <= target_low or target_high <= low:
        return operand
    return run_map(_identity(), (operand,), array.dtype, array.dtype)


def _identity() -> Any:
    from vkjit.stdlib.elementwise import functions

    return functions.identity


def copy_array(source: DeviceArray, target: DeviceArray) -> None:
    """Copy, convert and broadcast elements into target's memory. The two arrays must not overlap."""
    _launch(_identity(), (Tensor(source),), target, target.dtype, None)


def scalar_type(compute: DType) -> DType:
    """Return the type in which scalars are passed to a kernel that computes in `compute`: f32, f64 or i64."""
    if compute.is_float:
        return dtypes.f64 if compute is dtypes.f64 else dtypes.f32
    return dtypes.i64


def scalar_for(compute: DType, value: Any) -> Any:
    """Convert a Python number to a kernel argument: a float, with overflow to infinity unless `compute` is f64, or an
    int with the bits of an i64.

    Raises DTypeError for an integer that `compute` can't hold.
    """
    if compute.is_float:
        number = float(value)
        if compute is dtypes.f64 or -F32_LARGEST <= number <= F32_LARGEST or number != number:
            return number
        return math.copysign(math.inf, number)
    if isinstance(value, float) and not math.isfinite(value):
        raise DTypeError(f"the number {value} is out of range for {compute!r}, which holds whole numbers")
    number = int(value)
    if compute.kind == "bool":
        return int(number != 0)
    limits = np.iinfo(compute.numpy)
    if not limits.min <= number <= limits.max:
        raise DTypeError(f"the number {number} is out of range for {compute!r} ({limits.min} to {limits.max})")
    return number if number < 2**63 else number - 2**64


F32_LARGEST = 3.4028234663852886e38


def _launch(function: Any, operands: Sequence[Any], out: DeviceArray, compute: DType, first: DType | None) -> None:
    count = math.prod(out.shape)
    if count == 0:
        return None
    arrays = _flattened([o._array for o in operands if isinstance(o, Tensor)], out, count)
    target = arrays.pop()
    kinds = tuple(map(type, operands))
    pattern = _PATTERNS.get(kinds) or _PATTERNS.setdefault(
        kinds, "".join("t" if isinstance(o, Tensor) else "s" for o in operands)
    )
    values: list[Any] = arrays
    if "s" in pattern:
        values = [
            arrays.pop(0) if kind == "t" else scalar_for(first if first and i == 0 else compute, operands[i])
            for i, kind in enumerate(pattern)
        ]
    kernel = _KERNELS.get(pattern)
    if kernel is None:  # no kernel for this pattern: turn the first scalar into a tensor
        position = pattern.index("s")
        lifted = list(operands)
        dtype = first if first and position == 0 else compute
        lifted[position] = creation.full((), operands[position], dtype=dtype, device=out.device)
        return _launch(function, lifted, out, compute, first)
    if count >= MIN_WIDE_ELEMENTS and len(target.shape) == 1:
        if pattern in fours.KERNELS and _in_vec4(pattern, function, values, target, first or compute, compute):
            return None
        if pattern in _WIDE_PATTERNS and _widen(function, values, target, compute):
            return None
    if pattern == "tt" and len(target.shape) == 2 and _rows_in_vec4(function, values, target, compute):
        return None
    if "s" in pattern:
        kernel = kernel(scalar_type(compute))
    if len(pattern) == 3:
        kernel(*values, target, function, first or compute, compute)
    else:
        kernel(*values, target, function, compute)
    return None


_KERNELS: dict[str, Any] = {
    "t": kernels.map1,
    "tt": kernels.map2,
    "ts": kernels.map2_right,
    "st": kernels.map2_left,
    "ttt": kernels.map3,
    "tts": kernels.map3_right,
    "tst": kernels.map3_middle,
    "tss": kernels.map3_outer,
}
"""Kernels by operand pattern: t for a tensor, s for a scalar. With a scalar, the entry makes the kernel for the
scalar's type.
"""


_PATTERNS: dict[tuple[type, ...], str] = {}
"""Cache: operand types to their pattern."""

_WIDE_PATTERNS = frozenset({"t", "tt", "ts"})

MIN_WIDE_ELEMENTS = 2048
"""Minimum number of elements for reading and writing contiguous arrays in 64-bit words or vec4 groups."""


def _widen(function: Any, values: list[Any], target: DeviceArray, compute: DType) -> bool:
    """Process contiguous arrays of 2- or 4-byte types in 64-bit words, the last few elements one by one, if sizes and
    offsets allow it. Returns True if it did.
    """
    if target.device.caps.kind == "llvm-cpu":  # invocations are vectorized there already
        return False
    size = target.dtype.itemsize
    if size not in (2, 4):
        return False
    arrays: list[DeviceArray] = []
    for array in (*values, target):
        if isinstance(array, DeviceArray):
            if array.dtype.itemsize != size or array.strides != (1,) or array.offset % 8:
                return False
            arrays.append(array)
    lanes = 8 // size
    words = target.shape[0] // lanes
    types = [a.dtype for a in arrays]
    if len(values) == len(arrays):  # one of the values is a scalar
        kernel = kernels.map2_right_packed(scalar_type(compute), *types)
        kernel(_as_words(arrays[0], words), values[1], _as_words(target, words), function, compute)
    else:
        kernel = kernels.map2_packed(*types) if len(arrays) == 3 else kernels.map1_packed(*types)
        kernel(*[_as_words(a, words) for a in arrays], function, compute)
    remaining = target.shape[0] - words * lanes
    if remaining:
        ends = [_tail(v, remaining) if isinstance(v, DeviceArray) else v for v in values]
        narrow = _KERNELS["tt" if len(arrays) == 3 else "t" if len(values) == 1 else "ts"]
        narrow = narrow(scalar_type(compute)) if len(values) == len(arrays) else narrow
        narrow(*ends, _tail(target, remaining), function, compute)
    return True


def _in_vec4(pattern: str, function: Any, values: list[Any], target: DeviceArray, first: DType, compute: DType) -> bool:
    """Process contiguous arrays on GPUs in groups of adjacent elements (up to 16 bytes), the last few one by one.
    Returns True if it did.
    """
    if not _prefers_vec4(target.device):
        return False
    arrays = [value for value in (*values, target) if isinstance(value, DeviceArray)]
    if any(array.strides != (1,) or array.offset % 4 for array in arrays):
        return False
    types = [array.dtype for array in arrays]
    size = fours.elements_per_invocation(*types)
    count = target.shape[0] // size
    kernel = fours.KERNELS[pattern](*([scalar_type(compute)] if "s" in pattern else []), *types, size)
    views = [_groups(value, count, size) if isinstance(value, DeviceArray) else value for value in (*values, target)]
    computed = (compute,) if len(pattern) < 3 else (first, compute)
    kernel(*views, count, function, *computed)
    remaining = target.shape[0] - size * count
    if remaining:
        ends = [_tail(v, remaining) if isinstance(v, DeviceArray) else v for v in values]
        narrow = _KERNELS[pattern]
        narrow = narrow(scalar_type(compute)) if "s" in pattern else narrow
        narrow(*ends, _tail(target, remaining), function, *computed)
    return True


def _rows_in_vec4(function: Any, values: list[DeviceArray], target: DeviceArray, compute: DType) -> bool:
    """Process rows of matrices on GPUs in groups of four adjacent elements; an operand may be one row broadcast to all.
    Returns True if it did.
    """
    count, remainder = divmod(target.shape[1], 4)
    if remainder or count < fours.GROUP // 2 or not _prefers_vec4(target.device):
        return False
    arrays = (*values, target)
    if any(a.strides[1] != 1 or fours.is_packed(a.dtype) for a in arrays):
        return False
    fours.map2_rows_vec4(*[a.dtype for a in arrays])(*arrays, count, function, compute)
    return True


def fill_array(target: DeviceArray, kind: DType, value: Any) -> None:
    """Write a scalar of type `kind` to all elements of a coalesced array."""
    if (
        target.strides == (1,)
        and target.shape[0] >= MIN_WIDE_ELEMENTS
        and _prefers_vec4(target.device)
        and not target.offset % 4
    ):
        size = fours.elements_per_invocation(target.dtype)
        count = target.shape[0] // size
        fours.fill_vec(kind, target.dtype, size)(value, _groups(target, count, size), count)
        if target.shape[0] % size == 0:
            return
        target = _tail(target, target.shape[0] % size)
    kernels.fill(kind)(value, target)


def _prefers_vec4(device: Device) -> bool:
    return device_class(device) == "gpu" and "scalar_loads" not in device.caps.quirks


def _groups(array: DeviceArray, count: int, size: int) -> DeviceArray:
    """View the first `count` groups of `size` elements of an array; one- and two-byte elements become 32-bit words."""
    dtype = dtypes.u32 if fours.is_packed(array.dtype) else array.dtype
    return DeviceArray(array.buffer, array.offset, dtype, (count * size // fours.elements_per_word(array.dtype),), (1,))


def _as_words(array: DeviceArray, count: int) -> DeviceArray:
    return DeviceArray(array.buffer, array.offset, dtypes.u64, (count,), (1,))


def _tail(array: DeviceArray, count: int) -> DeviceArray:
    """View the last `count` elements of a contiguous array."""
    offset = array.offset + (array.shape[0] - count) * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, (count,), (1,))


def _flattened(inputs: list[DeviceArray], out: DeviceArray, count: int) -> list[DeviceArray]:
    """Return the inputs, then `out`, as views of one shape of the lowest possible rank."""
    arrays = [*inputs, out]
    shape = out.shape
    for array in arrays:
        form: Any = array.spec_class
        if not form.contiguous or array.shape != shape:
            break
    else:
        if len(shape) == 1:
            return arrays
        return [DeviceArray(a.buffer, a.offset, a.dtype, (count,), (1,)) for a in arrays]
    return coalesce([expand(a, shape) for a in arrays])


def is_dense(array: DeviceArray) -> bool:
    """True if a nonempty array is contiguous in C order."""
    step = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides)):  # noqa: B905  # for speed; the lengths are equal
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True
