"""Arrays viewed as (before, along, after) around one axis, and writes at indices along that axis (scatter).

The axes before and after `along` are merged into one each, so that kernels for one axis of any array have three
dimensions. `scatter`, `indexing`, `gather` and `cumulative` use these views.

Writes are deterministic: of several writes to one element the last wins, and sums have a fixed order. One exception:
GPUs add many f32 values into few slices with atomics, in any order, unless `use_deterministic_algorithms` is on.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError
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
    """The process-wide setting of `use_deterministic_algorithms`: if `fixed`, all additions have a fixed order."""

    def __init__(self) -> None:
        self.fixed = False


_order = _Order()


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:  # noqa: ARG001  # PyTorch's
    """Set whether all operations must be deterministic on every device (False by default).

    If they must be, GPUs don't use atomic additions, whose order varies, for `scatter_add`, `index_add` and the gradients
    of indexing with long index lists. All operations have a deterministic form, so `warn_only` has no effect. Raises
    ArgumentError if `mode` is no bool.
    """
    if not isinstance(mode, bool):
        raise ArgumentError(f"use_deterministic_algorithms(): mode is {mode!r}, expected True or False")
    _order.fixed = mode
    renew()  # cached dispatches may depend on the setting


def are_deterministic_algorithms_enabled() -> bool:
    """Return True if `use_deterministic_algorithms(True)` is in effect."""
    return _order.fixed


def three_axes(array: DeviceArray, axis: int) -> DeviceArray:
    """Return the array as (before, along, after): a view if its strides allow one, else a copy."""
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
    """Reverse the axes of (before, along, after) arrays if `after` is below 32 and `before` is larger.

    The last axis maps to adjacent invocations, so it should be the larger one. All arrays are reversed, or none.
    """
    before, _, after = arrays[0].shape
    if after >= 32 or before <= after:
        return list(arrays)
    return [DeviceArray(a.buffer, a.offset, a.dtype, a.shape[::-1], a.strides[::-1]) for a in arrays]


def _launch_grid(values: DeviceArray) -> DeviceArray:
    """Return a (before, after) view of the values, whose shape gives the launch grid: one invocation per slice."""
    a, b = values.shape[0], values.shape[2]
    return DeviceArray(values.buffer, values.offset, values.dtype, (a, b), (values.strides[0], values.strides[2]))


def _elements_per_invocation(device: Any) -> int:
    """Return the maximum number of elements along the axis that one invocation processes per launch.

    It is limited since some drivers silently stop long loops (see `MAX_CPU_ITERATIONS`).
    """
    # only the drivers of other devices of class "cpu" need a low limit
    if device.caps.kind == "llvm-cpu":
        return 1 << 20
    return MAX_CPU_ITERATIONS if device_class(device) == "cpu" else 1 << 30


def _is_long(positions: DeviceArray) -> bool:
    """True if the device is a GPU, and the indices (before, along, after) form few but long slices along the axis.

    One invocation per slice would then leave most of the GPU idle.
    """
    before, count, after = positions.shape
    slices = before * after
    return device_class(positions.device) == "gpu" and count > 512 and slices < 16384


def _can_number(*arrays: DeviceArray) -> bool:
    """True if a kernel with one invocation per element of the first array can number them without overflow.

    Kernels use 32-bit indices if all operands are narrow (their offsets and extents fit 32 bits), else 64-bit indices.
    A broadcast array (stride 0) can be narrow and still have more than `NARROW_LIMIT` elements.
    """
    return math.prod(arrays[0].shape) <= NARROW_LIMIT or not all(array.spec_class.narrow for array in arrays)


def _check_bounds(positions: DeviceArray, y: DeviceArray, from_end: bool) -> None:
    """Launch a kernel that reports indices out of range for axis 1 of y, on CPUs and with VKJIT_DEBUG=1."""
    if device_class(y.device) == "cpu" or boolean_setting("VKJIT_DEBUG"):
        kernels.check_indices(coalesce([positions])[0], y.shape[1], from_end)


def scatter_combine_along(
    y: DeviceArray, indices: DeviceArray, values: DeviceArray, from_end: bool, combine: Any, compute: DType
) -> None:
    """Combine values into y: y[a, indices[a, n, b], b] = combine(y[a, indices[a, n, b], b], values[a, n, b]).

    The values of a slice are combined in the order of n, except where GPUs add with atomics. `combine` is a device
    function of two elements, computed in the type `compute`. `from_end` is True if negative indices count from the end.
    """
    if 0 in indices.shape:
        return
    _check_bounds(indices, y, from_end)
    if not y.shape[1]:
        return
    atomic = combine is kernels.add and y.dtype is values.dtype and _adds_atomically(y)
    if atomic and _is_long(indices) and _can_number(indices, values, y):
        kernels.scatter_atomic(indices, values, y, from_end)
        return
    limit, count = _elements_per_invocation(y.device), indices.shape[1]
    if y.device.caps.kind == "llvm-cpu" and indices.shape[0] * indices.shape[2] == 1:
        vectors = (_as_vector(array) for array in (indices, values, y))
        kernels.scatter_combine_vector(*vectors, from_end, combine, compute)
        return
    indices, values, y = larger_axis_last(indices, values, y)
    # too few slices to fill the lanes of a vector: use the kernel that compiles to scalar code
    has_few_slices = y.device.caps.kind == "llvm-cpu" and indices.shape[0] * indices.shape[2] < 8
    run = kernels.scatter_combine_serial if has_few_slices else kernels.scatter_combine
    for start in range(0, count, limit):
        stop = min(start + limit, count)
        run(_launch_grid(values), indices, values, y, start, stop, from_end, combine, compute)


def _as_vector(array: DeviceArray) -> DeviceArray:
    """Return a (1, along, 1) array as a vector."""
    return DeviceArray(array.buffer, array.offset, array.dtype, array.shape[1:2], array.strides[1:2])


def _adds_atomically(y: DeviceArray) -> bool:
    """True if values may be added to y by atomics, in any order.

    Sums of integers don't depend on the order. Sums of f32 do, so they are excluded if deterministic algorithms are
    required.
    """
    is_integer = y.dtype in (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)
    return is_integer or (y.dtype is dtypes.f32 and not _order.fixed)


def scatter_assign_along(y: DeviceArray, indices: DeviceArray, values: DeviceArray, from_end: bool) -> None:
    """Set y[a, indices[a, n, b], b] = values[a, n, b]; of several writes to one element the last wins.

    `from_end` is True if negative indices count from the end.
    """
    if 0 in indices.shape:
        return
    _check_bounds(indices, y, from_end)
    if not y.shape[1]:
        return
    limit, count = _elements_per_invocation(y.device), indices.shape[1]
    if _is_long(indices) and count < 2**31 and _can_number(indices):
        # one invocation per index: first find the last write to each element of y, then write only that; `last` has
        # the number n of that write, or -1
        shape = (indices.shape[0], y.shape[1], indices.shape[2])
        last = allocate(shape, dtypes.i32, y.device)
        write_value(last, -1)
        kernels.scatter_last_writer(indices, last, from_end)
        kernels.assign_last_writer(last, values, y)
        return
    indices, values, y = larger_axis_last(indices, values, y)
    for start in range(0, count, limit):
        stop = min(start + limit, count)
        kernels.scatter_assign(_launch_grid(values), indices, values, y, start, stop, from_end)
