"""Launch of elementwise kernels, which apply a device function to each element of their operands ("map").

Operands are broadcast and coalesced (`broadcast`). The kernel is chosen by the operand pattern, a string with "t" for
each tensor and "s" for each scalar. For contiguous operands there are kernels that access several adjacent elements at
once. Nothing here waits for the device.

The parameter `compute` is the type to which operands are converted before the device function is applied. For three
operands, `first` may be another such type for the first operand (None: `compute`).
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
from vkjit.stdlib.elementwise import maps as kernels, vec4 as vec4_kernels
from vkjit.stdlib.registry import device_class

from ..memory import allocate
from ..tensor import Tensor
from . import creation
from .broadcast import broadcast_shapes, coalesce, expand, overlaps_itself

__all__ = ["arithmetic_type", "common_device", "copy_array", "fill_array", "refuse_overlap", "run_map", "write_map"]


def arithmetic_type(dtype: DType) -> DType:
    """Return the type in which kernels compute with `dtype`: f32 for 16-bit floats, i32 for bool, else `dtype`."""
    if dtype.bits == 16 and dtype.is_float:
        return dtypes.f32
    return dtypes.i32 if dtype.kind == "bool" else dtype


def common_device(operands: Sequence[Any]) -> Device:
    """Return the device of the tensors among the operands.

    Raises ArgumentError if they are on several devices, or there is no tensor.
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
    """Return a new tensor with the device function applied to each element of the operands.

    The operands are tensors and scalars. They are broadcast and converted (see `compute` and `first` in the module
    docstring). The function's results are converted to the type `result`.
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
    """Write the results of a device function, applied as in `run_map`, into target's memory.

    An operand that overlaps the target in memory is copied first, unless it has the target's layout.
    """
    common_device((target, *operands))
    refuse_overlap(target)
    shape = broadcast_shapes(target.shape, *(o.shape for o in operands if isinstance(o, Tensor)))
    if shape != target.shape:
        raise ArgumentError(f"a result of shape {shape} can't be written into a tensor of {target.shape}")
    safe = [_without_overlap(o, target._array) if isinstance(o, Tensor) else o for o in operands]
    _launch(function, safe, target._array, compute, first)


def refuse_overlap(target: Tensor) -> None:
    """Raise ArgumentError if elements of the tensor overlap in memory, so that writing one would change another."""
    if is_dense(target._array) or not overlaps_itself(target.shape, target.strides):
        return
    raise ArgumentError(
        f"a tensor that was expanded or cut into windows (shape {target.shape}, strides {target.strides}) holds elements "
        "in the same memory: call .clone() before it is written in place"
    )


def _without_overlap(operand: Tensor, target: DeviceArray) -> Tensor:
    """Return the operand, or a copy if it overlaps the target in memory with another offset, shape or strides."""
    array = operand._array
    # a 0-d target is safe: its only invocation reads the operands before it writes
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
    """Return the device function that returns its argument."""
    from vkjit.stdlib.elementwise import functions

    return functions.identity


def copy_array(source: DeviceArray, target: DeviceArray) -> None:
    """Copy the elements of `source`, broadcast and converted, into the target. The arrays must not overlap."""
    _launch(_identity(), (Tensor(source),), target, target.dtype, None)


def scalar_type(compute: DType) -> DType:
    """Return the type of scalar arguments of a kernel that computes in `compute`: f32, f64 or i64."""
    if compute.is_float:
        return dtypes.f64 if compute is dtypes.f64 else dtypes.f32
    return dtypes.i64


def scalar_for(compute: DType, value: Any) -> Any:
    """Convert a Python number to an argument of type `scalar_type(compute)`.

    Floats beyond the range of f32 become infinite unless `compute` is f64. An integer of u64 is passed as the i64 with
    the same bits. Raises DTypeError for an integer that `compute` can't hold.
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
"""Largest finite value of f32."""


def _launch(function: Any, operands: Sequence[Any], out: DeviceArray, compute: DType, first: DType | None) -> None:
    """Choose and launch the kernel that writes function(*operands) to `out`; other parameters as for `run_map`."""
    count = math.prod(out.shape)
    if count == 0:
        return None
    arrays = _flattened([o._array for o in operands if isinstance(o, Tensor)], out, count)
    target = arrays.pop()  # `out`, flattened like the operands
    operand_types = tuple(map(type, operands))
    pattern = _PATTERNS.get(operand_types) or _PATTERNS.setdefault(
        operand_types, "".join("t" if isinstance(o, Tensor) else "s" for o in operands)
    )
    values: list[Any] = arrays  # the arrays of the tensors, with the scalars at their positions
    if "s" in pattern:
        values = [
            arrays.pop(0) if letter == "t" else scalar_for(first if first and i == 0 else compute, operands[i])
            for i, letter in enumerate(pattern)
        ]
    kernel = _KERNELS.get(pattern)
    if kernel is None:  # no kernel for this pattern: turn the first scalar into a tensor
        position = pattern.index("s")
        with_tensor = list(operands)
        dtype = first if first and position == 0 else compute
        with_tensor[position] = creation.full((), operands[position], dtype=dtype, device=out.device)
        return _launch(function, with_tensor, out, compute, first)
    if count >= MIN_WIDE_ELEMENTS and len(target.shape) == 1:
        if pattern in vec4_kernels.KERNELS and _try_vec4(pattern, function, values, target, first or compute, compute):
            return None
        if pattern in _WIDE_PATTERNS and _try_64bit_words(function, values, target, compute):
            return None
    if pattern == "tt" and len(target.shape) == 2 and _try_vec4_rows(function, values, target, compute):
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
"""Kernels by operand pattern. For a pattern with a scalar, the entry is a function that returns the kernel for the
scalar's type.
"""


_PATTERNS: dict[tuple[type, ...], str] = {}
"""Cache of operand patterns by the Python types of the operands."""

_WIDE_PATTERNS = frozenset({"t", "tt", "ts"})
"""Operand patterns for which there is a kernel that accesses 64-bit words."""

MIN_WIDE_ELEMENTS = 2048
"""Minimum number of elements for reading and writing contiguous arrays in 64-bit words or vec4 groups."""


def _try_64bit_words(function: Any, values: list[Any], target: DeviceArray, compute: DType) -> bool:
    """Try to process contiguous arrays of 2- or 4-byte types in 64-bit words; return True if that was possible.

    `values` are the operands: arrays, and scalars converted by `scalar_for`. All arrays must have the same element size
    and be aligned to 8 bytes. The elements after the last whole word are processed one by one.
    """
    if target.device.caps.kind == "llvm-cpu":  # invocations are vectorized there already
        return False
    size = target.dtype.itemsize
    if size not in (2, 4):
        return False
    arrays: list[DeviceArray] = []
    for array in (*values, target):
        if isinstance(array, DeviceArray):  # not a scalar
            if array.dtype.itemsize != size or array.strides != (1,) or array.offset % 8:
                return False
            arrays.append(array)
    per_word = 8 // size
    words = target.shape[0] // per_word
    types = [a.dtype for a in arrays]
    if len(values) == len(arrays):  # `arrays` includes the target, so one of the values is a scalar
        kernel = kernels.map2_right_packed(scalar_type(compute), *types)
        kernel(_as_words(arrays[0], words), values[1], _as_words(target, words), function, compute)
    else:
        kernel = kernels.map2_packed(*types) if len(arrays) == 3 else kernels.map1_packed(*types)
        kernel(*[_as_words(a, words) for a in arrays], function, compute)
    remaining = target.shape[0] - words * per_word
    if remaining:
        tails = [_tail(v, remaining) if isinstance(v, DeviceArray) else v for v in values]
        element_kernel = _KERNELS["tt" if len(arrays) == 3 else "t" if len(values) == 1 else "ts"]
        element_kernel = element_kernel(scalar_type(compute)) if len(values) == len(arrays) else element_kernel
        element_kernel(*tails, _tail(target, remaining), function, compute)
    return True


def _try_vec4(
    pattern: str, function: Any, values: list[Any], target: DeviceArray, first: DType, compute: DType
) -> bool:
    """Try to process contiguous arrays on a GPU in groups of adjacent elements; return True if that was possible.

    `values` are the operands: arrays, and scalars converted by `scalar_for`. A group has up to 16 bytes. The elements
    after the last whole group are processed one by one.
    """
    if not _prefers_vec4(target.device):
        return False
    arrays = [value for value in (*values, target) if isinstance(value, DeviceArray)]
    # elements of one or two bytes are accessed in 32-bit words, which must be aligned
    if any(array.strides != (1,) or array.offset % 4 for array in arrays):
        return False
    types = [array.dtype for array in arrays]
    size = vec4_kernels.elements_per_invocation(*types)
    count = target.shape[0] // size
    # made for the scalar's type, if there is one, and the types of the arrays
    kernel = vec4_kernels.KERNELS[pattern](*([scalar_type(compute)] if "s" in pattern else []), *types, size)
    views = [_groups(value, count, size) if isinstance(value, DeviceArray) else value for value in (*values, target)]
    compute_types = (compute,) if len(pattern) < 3 else (first, compute)
    kernel(*views, count, function, *compute_types)
    remaining = target.shape[0] - size * count
    if remaining:
        tails = [_tail(v, remaining) if isinstance(v, DeviceArray) else v for v in values]
        element_kernel = _KERNELS[pattern]
        element_kernel = element_kernel(scalar_type(compute)) if "s" in pattern else element_kernel
        element_kernel(*tails, _tail(target, remaining), function, *compute_types)
    return True


def _try_vec4_rows(function: Any, values: list[DeviceArray], target: DeviceArray, compute: DType) -> bool:
    """Try to process matrices on a GPU in groups of four adjacent elements of a row; return True if that was possible.

    An operand may be a single row that is broadcast to all rows.
    """
    count, remainder = divmod(target.shape[1], 4)  # groups per row
    # a workgroup has GROUP invocations; rows with fewer groups than half of them would leave most invocations idle
    if remainder or count < vec4_kernels.GROUP // 2 or not _prefers_vec4(target.device):
        return False
    arrays = (*values, target)
    if any(a.strides[1] != 1 or vec4_kernels.is_packed(a.dtype) for a in arrays):
        return False
    vec4_kernels.map2_rows_vec4(*[a.dtype for a in arrays])(*arrays, count, function, compute)
    return True


def fill_array(target: DeviceArray, kind: DType, value: Any) -> None:
    """Write a scalar of type `kind` (see `scalar_type`) to all elements of a coalesced array."""
    if (
        target.strides == (1,)
        and target.shape[0] >= MIN_WIDE_ELEMENTS
        and _prefers_vec4(target.device)
        and not target.offset % 4
    ):
        size = vec4_kernels.elements_per_invocation(target.dtype)
        count = target.shape[0] // size
        vec4_kernels.fill_vec(kind, target.dtype, size)(value, _groups(target, count, size), count)
        if target.shape[0] % size == 0:
            return
        target = _tail(target, target.shape[0] % size)
    kernels.fill(kind)(value, target)


def _prefers_vec4(device: Device) -> bool:
    """True for GPUs, except those on which vector accesses don't pay (quirk "scalar_loads")."""
    return device_class(device) == "gpu" and "scalar_loads" not in device.caps.quirks


def _groups(array: DeviceArray, count: int, size: int) -> DeviceArray:
    """View the first `count` groups of `size` elements of a vector; one- and two-byte elements become 32-bit words."""
    dtype = dtypes.u32 if vec4_kernels.is_packed(array.dtype) else array.dtype
    return DeviceArray(
        array.buffer, array.offset, dtype, (count * size // vec4_kernels.elements_per_word(array.dtype),), (1,)
    )


def _as_words(array: DeviceArray, count: int) -> DeviceArray:
    """View the start of a contiguous array as `count` 64-bit words."""
    return DeviceArray(array.buffer, array.offset, dtypes.u64, (count,), (1,))


def _tail(array: DeviceArray, count: int) -> DeviceArray:
    """View the last `count` elements of a contiguous array."""
    offset = array.offset + (array.shape[0] - count) * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, (count,), (1,))


def _flattened(inputs: list[DeviceArray], out: DeviceArray, count: int) -> list[DeviceArray]:
    """Return views of the inputs, broadcast to out's shape, followed by a view of `out`.

    All views have the same shape, with as few axes as possible. `count` is the number of elements of `out`.
    """
    arrays = [*inputs, out]
    shape = out.shape
    for array in arrays:
        spec: Any = array.spec_class
        if not spec.contiguous or array.shape != shape:
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
