"""Operations whose result's size depends on values: nonzero, masked_select, stream compaction.

A first kernel counts the nonzero elements before each segment of a vector; the result's elements for the segment start
at that index. The host waits for the total, allocates the result, and launches a second kernel that writes it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import DTypeError
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.index import compaction as kernels

from ..dispatch import operation
from ..memory import allocate
from ..op_cache import cached, replay_write
from ..tensor import Tensor
from . import creation
from .broadcast import broadcast_shapes
from .copies import contiguous
from .views import expand, reshape, unbind, unsqueeze

__all__ = ["masked_select", "nonzero"]


@operation("compact")
def compact(x: Tensor, *, flags: Tensor) -> Tensor:
    """Return the elements of the vector x for which `flags`, a vector of the same size, is nonzero.

    The host waits for their count.
    """
    dense = contiguous(flags)
    starts, count = _segment_starts(dense)
    out = Tensor(allocate((count,), x.dtype, x.device))
    if count:
        replay_write(_write_values, out, (dense, contiguous(x), starts), {})
    return out


def _write_values(out: Tensor, flags: Tensor, x: Tensor, starts: Tensor) -> None:
    kernels.write_values(flags._array, x._array, starts._array, out._array)


def _write_indices(out: Tensor, flags: Tensor, starts: Tensor) -> None:
    kernels.write_indices(flags._array, starts._array, out._array)


@cached("segment_offsets()")
def _segments(flags: Tensor) -> Tensor:
    """Return a vector with the number of nonzero elements before each segment of `flags`, followed by the total."""
    return Tensor(kernels.segment_offsets(flags._array))


def _segment_starts(flags: Tensor) -> tuple[Tensor, int]:
    """Return the result of `_segments` and the total in it, for which the host waits.

    The kernels (`vkjit.stdlib.index.compaction`) determine the length of the segments.
    """
    if not flags.shape[0]:
        return flags, 0  # the callers don't use the first item then
    starts = _segments(flags.detach())
    array = starts._array
    total_offset = array.offset + (array.shape[0] - 1) * array.dtype.itemsize  # the total is the last element
    return starts, int(Tensor(DeviceArray(array.buffer, total_offset, array.dtype, (), ())).item())


def _flat(x: Tensor) -> Tensor:
    return reshape(x, (x.numel(),))


def nonzero_indices(flags: Tensor) -> Tensor:
    """Return the C-order indices of nonzero elements (i64); the host waits for their count."""
    dense = contiguous(_flat(flags.detach()))
    starts, count = _segment_starts(dense)
    out = Tensor(allocate((count,), dtypes.i64, flags.device))
    if count:
        replay_write(_write_indices, out, (dense, starts), {})
    return out


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """Return the indices of nonzero elements (i64); the host waits for their count.

    The result is a matrix with a row per element; with `as_tuple`, a tuple with a vector per axis.
    """
    linear: Any = nonzero_indices(x)
    shape = x.shape if x.ndim or not as_tuple else (1,)  # as in PyTorch, a tuple for a 0-d tensor has one vector
    if len(shape) == 1:
        return (linear,) if as_tuple else unsqueeze(linear, 1)
    indices = creation.empty((linear.shape[0], len(shape)), dtype=dtypes.i64, device=x.device)
    if indices.numel():
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]  # in C order, in elements
        stride_array, extent_array = (
            creation.upload(np.array(sizes, np.int64), dtypes.i64, x.device)._array for sizes in (strides, shape)
        )
        fits_32_bits = x.numel() < 2**32  # then 32-bit divisions suffice
        kernels.unravel(linear._array, stride_array, extent_array, indices._array, fits_32_bits)
    return unbind(indices, 1) if as_tuple else indices


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """Return the elements where the mask (broadcast against x) is true, as a vector; the host waits for their count."""
    if mask.dtype.kind != "bool":
        raise DTypeError(f"masked_select() takes a mask of bool, found {mask.dtype!r}: compare first, as in x > 0")
    shape = broadcast_shapes(x.shape, mask.shape)
    return compact(_flat(expand(x, shape)), flags=_flat(expand(mask, shape)))
