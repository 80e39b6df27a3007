"""Copies: type and device conversion, contiguous copies, writes into another tensor, concatenation and rotation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vkjit import dtypes
from vkjit.backends.selection import device as open_device
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, ShapeError
from vkjit.runtime.device import Device, DeviceArray
from vkjit.stdlib.elementwise import functions
from vkjit.stdlib.elementwise.transpose import try_transposing_copy
from vkjit.stdlib.registry import device_class
from vkjit.stdlib.rows.cat import cat_pair
from vkjit.stdlib.rows.copy_vec4 import copy_reversed

from ..argument_views import own_result
from ..dispatch import operation, run_in_place
from ..memory import allocate, fitted
from ..op_cache import cached
from ..promotion import promote_types, result_type
from ..tensor import Tensor
from . import broadcast, creation, elementwise_launch
from .views import axis_of, narrow, reshape, reshaped_strides, unsqueeze

__all__ = [
    "cat", "clone", "concat", "concatenate", "contiguous", "copy_", "fill_", "hstack", "roll",
    "stack", "to", "vstack", "zero_",
]  # fmt: skip


_UNSIGNED = {1: dtypes.u8, 2: dtypes.u16, 4: dtypes.u32, 8: dtypes.u64}
"""Unsigned integer types by size in bytes."""
_MIN_TILED_COPY = 4096
"""Minimum number of elements for the special kernels of `_try_special_copy`."""
_MAX_PAIR_ELEMENTS = 4096
"""Maximum elements of a result that software devices concatenate in one launch."""
_MIN_KERNEL_BYTES = 256 << 10
"""Minimum size in bytes for copying contiguous memory with a kernel rather than the device's copy command.

This applies to discrete GPUs, whose copy engines are as fast as the bus but slower than the memory, and to the LLVM CPU
device, where a kernel runs on several threads.
"""


def copy_values(source: DeviceArray, target: DeviceArray) -> None:
    """Copy all elements of `source` into `target`, converting and broadcasting them.

    If both are contiguous and have the same type and shape, the bytes are copied as they are.
    """
    count = math.prod(target.shape)
    if count == 0:
        return
    same_layout = source.dtype is target.dtype and source.shape == target.shape
    if same_layout and elementwise_launch.is_dense(source) and elementwise_launch.is_dense(target):
        nbytes = count * target.dtype.itemsize
        by_kernel = nbytes >= _MIN_KERNEL_BYTES and target.device.caps.kind in ("discrete", "llvm-cpu")
        if not by_kernel or source.buffer is target.buffer:
            target.device.copy(source.buffer, source.offset, target.buffer, target.offset, nbytes)
            return
        source, target = _bits(source, count), _bits(target, count)
    if count < _MIN_TILED_COPY or not _try_special_copy(source, target):
        elementwise_launch.copy_array(source, target)


def _bits(array: DeviceArray, count: int) -> DeviceArray:
    """View `count` contiguous elements as unsigned integers of the same size, so that a copy preserves all bits."""
    return DeviceArray(array.buffer, array.offset, _UNSIGNED[array.dtype.itemsize], (count,), (1,))


def _try_special_copy(source: DeviceArray, target: DeviceArray) -> bool:
    """Copy with the transposing kernel or the kernel that reverses rows, if the layouts suit one of them.

    The transposing kernel is for a source and a target whose contiguous axes differ. Returns True if a kernel was
    launched.
    """
    if source.shape != target.shape:
        return False
    source, target = broadcast.coalesce([source, target])
    shape, last_axis = source.shape, len(source.shape) - 1
    if last_axis == 1 and copy_reversed(source, target):
        return True
    # a transposing copy: the target is contiguous along the last axis only, the source along another one
    if (
        last_axis not in (1, 2)
        or target.strides[last_axis] != 1
        or 1 in (source.strides[last_axis], *target.strides[:last_axis])
    ):
        return False
    # the source's contiguous axes; matrices with a side below 16 fill less than half of the kernel's tiles of 32 x 32
    contiguous_axes = [axis for axis in range(last_axis) if source.strides[axis] == 1]
    if not contiguous_axes or min(shape[contiguous_axes[0]], shape[last_axis]) < 16:
        return False
    outer = [axis for axis in range(last_axis) if axis != contiguous_axes[0]]

    def as_matrices(array: DeviceArray) -> DeviceArray:
        """View the array as (outer, axis that is contiguous in source, axis that is contiguous in target)."""
        axes = [(array.shape[a], array.strides[a]) for a in (*outer, contiguous_axes[0], last_axis)]
        # with an outer axis of size 1 if there is none
        extents, strides = zip(*([(1, 0)] * (3 - len(axes)) + axes), strict=True)
        return DeviceArray(array.buffer, array.offset, array.dtype, extents, strides)

    return try_transposing_copy(as_matrices(source), as_matrices(target))


@operation("clone", replayable=True)
def clone(x: Tensor) -> Tensor:
    """Return a contiguous copy."""
    out = allocate(x.shape, x.dtype, x.device)
    copy_values(x._array, out)
    return Tensor(out)


@cached("contiguous()")
def contiguous(x: Tensor) -> Tensor:
    """Return x itself if it is contiguous, else a contiguous copy."""
    return own_result(x) if x.is_contiguous() else clone(x)


@operation("cast", replayable=True)
def _cast(x: Tensor, *, dtype: DType) -> Tensor:
    out = allocate(x.shape, dtype, x.device)
    copy_values(x._array, out)
    return Tensor(out)


@operation("move")
def _move(x: Tensor, *, device: Device) -> Tensor:
    """Return a copy on another device, transferred through host memory."""
    return creation.upload(x._fetch(), x.dtype, device)


@cached("to()")
def to(
    x: Tensor, *targets: Any, dtype: Any = None, device: Any = None, copy: bool = False, non_blocking: bool = False
) -> Tensor:
    """Convert to another type and device: `x.to(vk.f16)`, `x.to("cpu")`, `x.to(dtype=..., device=...)`.

    `x.to(other)` takes type and device from a tensor. Returns x itself if nothing changes, unless `copy=True`.
    `non_blocking` is ignored. Float to integer conversion truncates and saturates at the type's limits.
    """
    del non_blocking
    flags = [t for t in targets if isinstance(t, bool)]  # PyTorch's order: non_blocking, copy
    copy = flags[1] if len(flags) > 1 else copy
    for target in (t for t in targets if not isinstance(t, bool)):
        if isinstance(target, Tensor):
            dtype, device = target.dtype, target.device
        elif isinstance(target, (Device, str)) and not _names_dtype(target):
            device = target
        else:
            dtype = target
    element = x.dtype if dtype is None else creation.as_dtype(dtype)
    target_device = x.device if device is None else open_device(device)
    result = x  # each conversion that is needed replaces it
    if element is not x.dtype:
        result = _cast(result, dtype=element)
    if target_device is not x.device:
        result = _move(result, device=target_device)
    if result is not x:
        return result
    return clone(x) if copy else own_result(x)


def _names_dtype(target: Any) -> bool:
    """True if a string is the name of an element type, not of a device."""
    return isinstance(target, str) and target in dtypes.by_name


# -- into another tensor


def copy_(target: Tensor, source: Any) -> Tensor:
    """Copy `source` into `target`, converted to target's type. It is a scalar, or a tensor that is broadcast."""
    if not isinstance(source, Tensor):
        return fill_(target, source)
    if source.device is not target.device:
        source = to(source, device=target.device)
    return run_in_place("copy", write_into, target, (source,), {})


def write_into(target: Tensor, source: Tensor) -> None:
    """Copy `source` into target's memory as `copy_` does, but without recording it."""
    elementwise_launch.write_map(functions.identity, (source,), target, target.dtype)


def fill_(target: Tensor, value: Any) -> Tensor:
    """Set all elements to a scalar or to the value of a 0-d tensor."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise ShapeError(f"fill_() takes a number or a 0-d tensor, found shape {value.shape}")
        return copy_(target, value)
    if value is None or isinstance(value, (str, list, tuple)) or getattr(value, "ndim", False):
        raise ArgumentError(
            f"a tensor is filled with a number or a tensor, found {type(value).__name__}: use vk.tensor(...)"
        )
    return run_in_place("fill", fill_values, target, (value,), {})


def fill_values(target: Tensor, value: Any) -> None:
    """Write a scalar to all elements of a tensor with any strides; not recorded."""
    array = target._array
    if 0 in array.shape:
        return
    [flat] = elementwise_launch._flattened([], array, math.prod(array.shape))
    compute = elementwise_launch.arithmetic_type(array.dtype)
    scalar = fitted(value, array.dtype)
    elementwise_launch.fill_array(
        flat, elementwise_launch.scalar_type(compute), elementwise_launch.scalar_for(compute, scalar)
    )


def zero_(target: Tensor) -> Tensor:
    """Set all elements to 0."""
    return fill_(target, 0)


# -- concatenation and rotation


@operation("cat")
def _cat(*tensors: Tensor, dim: int) -> Tensor:
    """Concatenate tensors that agree along all axes but `dim`, in their promoted type."""
    first = tensors[0]
    dtype = first.dtype
    for x in tensors[1:]:
        dtype = promote_types(dtype, x.dtype)
    extent = sum(x.shape[dim] for x in tensors)
    shape = (*first.shape[:dim], extent, *first.shape[dim + 1 :])
    out = Tensor(allocate(shape, dtype, elementwise_launch.common_device(tensors)))
    if _try_cat_pair([x._array for x in tensors], out._array, dim):
        return out
    start = 0
    for x in tensors:
        copy_values(x._array, narrow(out, dim, start, x.shape[dim])._array)
        start += x.shape[dim]
    return out


def _try_cat_pair(parts: Sequence[DeviceArray], out: DeviceArray, dim: int) -> bool:
    """Concatenate the arrays `parts` along an axis in one launch, if possible. Returns True if that was done.

    It is possible on GPUs, and elsewhere for small arrays, for two arrays of the result's type whose strides allow a
    view as a matrix, with the axes before `dim` merged into rows and the other axes into columns.
    """
    if len(parts) != 2 or any(x.dtype is not out.dtype for x in parts):
        return False
    if device_class(out.device) != "gpu" and math.prod(out.shape) > _MAX_PAIR_ELEMENTS:
        return False  # two copies of long rows take less time than one kernel that chooses per element
    matrices: list[DeviceArray] = []
    for x in (*parts, out):
        shape = (math.prod(x.shape[:dim]), math.prod(x.shape[dim:]))
        strides = reshaped_strides(x.shape, x.strides, shape) if 0 not in shape else None
        if strides is None:
            return False
        matrices.append(DeviceArray(x.buffer, x.offset, x.dtype, shape, strides))
    cat_pair(*matrices)
    return True


@cached("cat()")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Concatenate tensors along an existing axis; their sizes along the other axes must agree.

    Tensors of shape (0,) are skipped, but take part in type promotion.
    """
    tensor_list = _parts(tensors, "cat")
    parts = [x for x in tensor_list if x.shape != (0,)] or tensor_list[:1]  # as PyTorch does
    if len(parts) < len(tensor_list):
        parts[0] = parts[0].to(result_type(*tensor_list))
    axis = axis_of(dim, parts[0].ndim, "cat")
    for x in parts[1:]:
        if x.ndim != parts[0].ndim or any(
            a != b for i, (a, b) in enumerate(zip(x.shape, parts[0].shape, strict=True)) if i != axis
        ):
            raise ShapeError(
                f"cat() along axis {dim}: shapes {parts[0].shape} and {x.shape} differ along another axis or in rank"
            )
    return _cat(*parts, dim=axis)


def _parts(tensors: Any, name: str) -> list[Tensor]:
    """Return the tensors as a list. Raises ArgumentError if there is none, or if an item isn't a tensor."""
    parts = list(tensors)
    if not parts or not all(isinstance(x, Tensor) for x in parts):
        raise ArgumentError(f"{name}() takes a sequence of at least one tensor")
    return parts


concat = concatenate = cat


@cached("stack()")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors of the same shape along a new axis."""
    parts = _parts(tensors, "stack")
    for x in parts[1:]:
        if x.shape != parts[0].shape:
            raise ShapeError(f"stack() takes tensors of one shape, found {parts[0].shape} and {x.shape}")
    axis = axis_of(dim, parts[0].ndim + 1, "stack")
    return _cat(*(unsqueeze(x, axis) for x in parts), dim=axis)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate along axis 1; vectors are concatenated along axis 0."""
    parts = [reshape(x, 1) if x.ndim == 0 else x for x in _parts(tensors, "hstack")]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate along axis 0; vectors count as rows."""
    return cat([reshape(x, (1, -1)) if x.ndim < 2 else x for x in _parts(tensors, "vstack")], 0)


@cached("roll()")
def roll(x: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Shift elements cyclically along axes, axis dims[i] by shifts[i]; with dims=None, in the flattened tensor.

    Always copies.
    """
    if dims is None:
        return reshape(roll(reshape(x, -1), shifts, 0), x.shape)
    shift_list = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(shift_list) != len(axes):
        raise ArgumentError(f"roll() takes as many shifts as axes, found {len(shift_list)} and {len(axes)}")
    copied = False
    for shift, dim in zip(shift_list, axes, strict=True):
        axis = axis_of(dim, x.ndim, "roll")
        extent = x.shape[axis]
        start = -shift % extent if extent else 0  # index of the element that becomes the first
        if start:
            x = cat([narrow(x, axis, start, extent - start), narrow(x, axis, 0, start)], axis)
            copied = True
    return x if copied else x.clone()
