"""Arrays as (before, along, after) around one axis, and writes at positions along it.

Enters: arrays, an axis, positions. Leaves: views of three axes; written memory. Writes have one order: of several to one
place the last one stays, and sums are the same every time, except that a GPU adds long lists to one line by atomics, in
any order, unless `use_deterministic_algorithms` is on.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..runtime.array import NARROW_LIMIT
from ..runtime.interface import DeviceArray
from ..runtime.ways import renew
from ..settings import switch
from ..stdlib import index as kernels
from ..stdlib.registry import CPU_LOOP, device_class
from . import creation
from .copies import copy_values
from .iterate import coalesce
from .views import reshaped_strides

__all__ = [
    "are_deterministic_algorithms_enabled",
    "combine_lines",
    "put_lines",
    "three_axes",
    "use_deterministic_algorithms",
]


class _Order:
    """Whether sums must have one order on every device."""

    def __init__(self) -> None:
        self.fixed = False


_order = _Order()


def use_deterministic_algorithms(mode: bool) -> None:
    """True: results are the same every time on every device, also where a GPU would add by atomics in any order (long
    lists of `scatter_add`, `index_add` and gradients of indexing).
    """
    _order.fixed = bool(mode)
    renew()


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms(True)` holds."""
    return _order.fixed


def three_axes(array: DeviceArray, axis: int) -> DeviceArray:
    """The array as (before, axis, after); a copy where its strides don't allow a view."""
    before, after = math.prod(array.shape[:axis]), math.prod(array.shape[axis + 1 :])
    along = array.shape[axis] if array.shape else 1
    shape = (before, along, after)
    strides = reshaped_strides(array.shape, array.strides, shape) if 0 not in array.shape else (0, 0, 0)
    if strides is None:
        copied = creation.allocate(array.shape, array.dtype, array.device)
        copy_values(array, copied)
        return three_axes(copied, axis)
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, strides)


def side_by_side(*arrays: DeviceArray) -> list[DeviceArray]:
    """Arrays (before, along, after), with the outer axes exchanged where more lines then lie side by side."""
    before, _, after = arrays[0].shape
    if after >= 32 or before <= after:
        return list(arrays)
    return [DeviceArray(a.buffer, a.offset, a.dtype, a.shape[::-1], a.strides[::-1]) for a in arrays]


def _grid(values: DeviceArray) -> DeviceArray:
    """One element per line of (before, along, after)."""
    a, b = values.shape[0], values.shape[2]
    return DeviceArray(values.buffer, values.offset, values.dtype, (a, b), (values.strides[0], values.strides[2]))


def _loop(device: Any) -> int:
    """How many elements one invocation writes in a launch."""
    if device.caps.kind == "llvm-cpu":
        return 1 << 20
    return CPU_LOOP if device_class(device) == "cpu" else 1 << 30


def _is_long(positions: DeviceArray) -> bool:
    """Whether lines are too long and too few for one invocation each, on a GPU."""
    before, count, after = positions.shape
    return device_class(positions.device) == "gpu" and count > 512 and before * after < 16384


def _counted(*arrays: DeviceArray) -> bool:
    """Whether kernels of these arrays, which number the elements of the first, can: strides of 0 make many of little memory."""
    return math.prod(arrays[0].shape) <= NARROW_LIMIT or not all(array.form.narrow for array in arrays)


def _check(positions: DeviceArray, y: DeviceArray) -> None:
    """Has positions out of range reported where kernels are checked: on processors, and with VKJIT_DEBUG=1."""
    if device_class(y.device) == "cpu" or switch("VKJIT_DEBUG"):
        kernels.check_positions(coalesce([positions])[0], y.shape[1])


def combine_lines(y: DeviceArray, positions: DeviceArray, values: DeviceArray, combine: Any, compute: DType) -> None:
    """y[a, positions[a, n, b], b] is combined with values[a, n, b], in order."""
    if 0 in positions.shape:
        return
    _check(positions, y)
    atomic = combine is kernels.add and y.dtype is values.dtype and _adds_atomically(y)
    if atomic and _is_long(positions) and _counted(positions, values, y):
        kernels.scatter_atomic(positions, values, y)
        return
    limit, count = _loop(y.device), positions.shape[1]
    if y.device.caps.kind == "llvm-cpu" and positions.shape[0] * positions.shape[2] == 1:
        kernels.scatter_line(_one_line(positions), _one_line(values), _one_line(y), combine, compute)
        return
    positions, values, y = side_by_side(positions, values, y)
    few = y.device.caps.kind == "llvm-cpu" and positions.shape[0] * positions.shape[2] < 8
    run = kernels.scatter_alone if few else kernels.scatter_add
    for start in range(0, count, limit):
        stop = min(start + limit, count)
        run(_grid(values), positions, values, y, start, stop, combine, compute)


def _one_line(array: DeviceArray) -> DeviceArray:
    """(1, along, 1) as a vector."""
    return DeviceArray(array.buffer, array.offset, array.dtype, array.shape[1:2], array.strides[1:2])


def _adds_atomically(y: DeviceArray) -> bool:
    whole = y.dtype in (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)
    return whole or (y.dtype is dtypes.f32 and not _order.fixed)


def put_lines(y: DeviceArray, positions: DeviceArray, values: DeviceArray) -> None:
    """y[a, positions[a, n, b], b] = values[a, n, b]; of several the last one stays."""
    if 0 in positions.shape:
        return
    _check(positions, y)
    limit, count = _loop(y.device), positions.shape[1]
    if _is_long(positions) and count < 2**31 and _counted(positions):
        shape = (positions.shape[0], y.shape[1], positions.shape[2])
        last = creation.allocate(shape, dtypes.i32, y.device)
        creation.write_value(last, -1)
        kernels.scatter_winners(positions, last)
        kernels.scatter_last(last, values, y)
        return
    positions, values, y = side_by_side(positions, values, y)
    for start in range(0, count, limit):
        kernels.scatter_put(_grid(values), positions, values, y, start, min(start + limit, count))
