"""Operands as (before, along, after) around one axis, and scatter writes along it.

Writes are deterministic: of several writes to one element the last wins, and sums have a fixed order. One exception:
GPUs add long lists of f32 values into few slices with atomics, in any order, unless `use_deterministic_algorithms` is
on.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.runtime.array import NARROW_LIMIT
from vkjit.runtime.device import DeviceArray
from vkjit.runtime.dispatch_cache import renew
from vkjit.settings import boolean_setting
from vkjit.stdlib.index import gather_scatter as kernels
from vkjit.stdlib.registry import MAX_CPU_ITERATIONS, device_class

from ..memory import allocate, write_value
from .broadcast import coalesce
from .copies import copy_values
from .views import reshaped_strides

__all__ = [
    "are_deterministic_algorithms_enabled",
    "scatter_assign_along",
    "scatter_combine_along",
    "three_axes",
    "use_deterministic_algorithms",
]


class _Order:
    """The process-wide setting: `fixed` is True if sums must have a fixed order on every device."""

    def __init__(self) -> None:
        self.fixed = False


_order = _Order()


def use_deterministic_algorithms(mode: bool) -> None:
    """Set whether all operations must be deterministic on every device.

    With True, GPUs don't use atomic additions, whose order varies, for `scatter_add`, `index_add` and gradients of
    indexing with long index lists.
    """
    _order.fixed = bool(mode)
    renew()


def are_deterministic_algorithms_enabled() -> bool:
    """Return True if `use_deterministic_algorithms(True)` is in effect."""
    return _order.fixed


def three_axes(array: DeviceArray, axis: int) -> DeviceArray:
    """Return the array as (before, axis, after), a view where its strides allow one, else a copy."""
    before, after = math.prod(array.shape[:axis]), math.prod(array.shape[axis + 1 :])
    along = array.shape[axis] if array.shape else 1
    shape = (before, along, after)
    strides = reshaped_strides(array.shape, array.strides, shape) if 0 not in array.shape else (0, 0, 0)
    if strides is None:
        copied = allocate(array.shape, array.dtype, array.device)
        copy_values(array, copied)
        return three_axes(copied, axis)
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, strides)


def larger_axis_last(*arrays: DeviceArray) -> list[DeviceArray]:
    """Reverse the axes of (before, along, after) arrays where `before` is the larger of the outer axes and `after` is
    below 32.

    The last axis maps to adjacent invocations, so the larger axis belongs there.
    """
    before, _, after = arrays[0].shape
    if after >= 32 or before <= after:
        return list(arrays)
    return [DeviceArray(a.buffer, a.offset, a.dtype, a.shape[::-1], a.strides[::-1]) for a in arrays]


def _launch_grid(values: DeviceArray) -> DeviceArray:
    """Return a (before, after) view that sets the launch grid: one invocation per slice along the axis."""
    a, b = values.shape[0], values.shape[2]
    return DeviceArray(values.buffer, values.offset, values.dtype, (a, b), (values.strides[0], values.strides[2]))


def _elements_per_invocation(device: Any) -> int:
    """Return how many elements along the axis one invocation may process per launch."""
    if device.caps.kind == "llvm-cpu":
        return 1 << 20
    return MAX_CPU_ITERATIONS if device_class(device) == "cpu" else 1 << 30


def _is_long(positions: DeviceArray) -> bool:
    """True if, on a GPU, the slices are too long and too few for one invocation each."""
    before, count, after = positions.shape
    return device_class(positions.device) == "gpu" and count > 512 and before * after < 16384


def _can_number(*arrays: DeviceArray) -> bool:
    """True if a kernel can number the elements of the first array without 32-bit overflow.

    Kernels for narrow operands use 32-bit indices, but a broadcast array (stride 0) can be narrow and still have more
    than `NARROW_LIMIT` elements.
    """
    return math.prod(arrays[0].shape) <= NARROW_LIMIT or not all(array.spec_class.narrow for array in arrays)


def _check_bounds(positions: DeviceArray, y: DeviceArray) -> None:
    """Report indices out of range where kernels are checked: on CPUs, and with VKJIT_DEBUG=1."""
    if device_class(y.device) == "cpu" or boolean_setting("VKJIT_DEBUG"):
        kernels.check_indices(coalesce([positions])[0], y.shape[1])


def scatter_combine_along(
    y: DeviceArray, indices: DeviceArray, values: DeviceArray, combine: Any, compute: DType
) -> None:
    """Update y[a, indices[a, n, b], b] = combine(y[...], values[a, n, b]) for all n in order, computed in `compute`."""
    if 0 in indices.shape:
        return
    _check_bounds(indices, y)
    atomic = combine is kernels.add and y.dtype is values.dtype and _adds_atomically(y)
    if atomic and _is_long(indices) and _can_number(indices, values, y):
        kernels.scatter_atomic(indices, values, y)
        return
    limit, count = _elements_per_invocation(y.device), indices.shape[1]
    if y.device.caps.kind == "llvm-cpu" and indices.shape[0] * indices.shape[2] == 1:
        kernels.scatter_combine_vector(_as_vector(indices), _as_vector(values), _as_vector(y), combine, compute)
        return
    indices, values, y = larger_axis_last(indices, values, y)
    few = y.device.caps.kind == "llvm-cpu" and indices.shape[0] * indices.shape[2] < 8
    run = kernels.scatter_combine_serial if few else kernels.scatter_combine
    for start in range(0, count, limit):
        stop = min(start + limit, count)
        run(_launch_grid(values), indices, values, y, start, stop, combine, compute)


def _as_vector(array: DeviceArray) -> DeviceArray:
    """Return a (1, along, 1) array as a vector."""
    return DeviceArray(array.buffer, array.offset, array.dtype, array.shape[1:2], array.strides[1:2])


def _adds_atomically(y: DeviceArray) -> bool:
    is_integer = y.dtype in (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)
    return is_integer or (y.dtype is dtypes.f32 and not _order.fixed)


def scatter_assign_along(y: DeviceArray, indices: DeviceArray, values: DeviceArray) -> None:
    """Set y[a, indices[a, n, b], b] = values[a, n, b]; of several writes to one element the last wins."""
    if 0 in indices.shape:
        return
    _check_bounds(indices, y)
    limit, count = _elements_per_invocation(y.device), indices.shape[1]
    if _is_long(indices) and count < 2**31 and _can_number(indices):
        shape = (indices.shape[0], y.shape[1], indices.shape[2])
        last = allocate(shape, dtypes.i32, y.device)
        write_value(last, -1)
        kernels.scatter_last_writer(indices, last)
        kernels.assign_last_writer(last, values, y)
        return
    indices, values, y = larger_axis_last(indices, values, y)
    for start in range(0, count, limit):
        kernels.scatter_assign(_launch_grid(values), indices, values, y, start, min(start + limit, count))
