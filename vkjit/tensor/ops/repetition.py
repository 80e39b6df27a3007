"""Repetition of tensors, slices and elements: repeat, tile, repeat_interleave. Results are copies.

The decorator `op_cache.cached` caches calls of `repeat`: later calls with the same layouts replay the recorded launches.
"""

from __future__ import annotations

from typing import Any

from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.runtime.capture import is_capturing
from vkjit.stdlib.registry import device_class

from ..memory import as_int
from ..op_cache import cached
from ..tensor import Tensor
from . import creation
from .copies import stack
from .cumulative import cumsum
from .gather import index_select
from .sorting import searchsorted
from .views import axis_of, reshape, unsqueeze

__all__ = ["repeat", "repeat_interleave", "tile"]


@cached("repeat()")
def repeat(x: Tensor, *sizes: Any) -> Tensor:
    """Return a copy of x repeated along each axis: x.repeat(2, 3) or x.repeat((2, 3)).

    `sizes` (PyTorch's name) are the repeat counts, one per axis. If there are more counts than axes, leading axes are
    added to x.
    """
    counts = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if len(counts) < x.ndim:
        raise ShapeError(f"repeat{counts} of a tensor with {x.ndim} axes: give a count for each axis")
    # insert an axis of size 1 before each axis, expand it to the repeat count, and merge it with the axis
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    interleaved = reshape(x, tuple(n for e in shape for n in (1, e)))
    stretched = interleaved.expand(tuple(n for c, e in zip(counts, shape, strict=True) for n in (c, e)))
    return reshape(stretched, tuple(c * e for c, e in zip(counts, shape, strict=True))).clone()


def tile(x: Tensor, *counts: Any) -> Tensor:
    """Return x repeated as by `repeat`. If there are fewer counts than axes, they apply to the last axes."""
    flat = tuple(counts[0]) if len(counts) == 1 and isinstance(counts[0], (tuple, list)) else counts
    return repeat(x, (1,) * (x.ndim - len(flat)) + tuple(flat))


def repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Repeat each slice along the axis `dim`, or each element of the flattened tensor if `dim` is None.

    `repeats` is one count for all slices, or a vector with one count per slice. `output_size`, the sum of that vector,
    avoids reading it back from the device; it is checked on CPUs, and not in captures.
    """
    if dim is None:
        x, dim = reshape(x, (x.numel(),)), 0
    x = reshape(x, 1) if x.ndim == 0 else x
    axis = axis_of(dim, x.ndim, "repeat_interleave")
    if isinstance(repeats, Tensor):
        if not repeats.dtype.is_integer:
            raise DTypeError(f"repeat_interleave() takes counts as integers, found {repeats.dtype!r}")
        if repeats.numel() != 1:  # a tensor of one element is a count for all slices
            return _repeated_by_counts(x, axis, repeats, output_size)
        repeats = int(repeats.item())
    repeats = as_int(repeats, "repeat_interleave(repeats=)", 0)
    with_repeat_axis = unsqueeze(x, axis + 1)
    shape = (*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :])
    stretched = with_repeat_axis.expand(shape).clone()  # the result must not be a view
    return reshape(stretched, (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]))


def _repeated_by_counts(x: Tensor, axis: int, repeats: Tensor, output_size: int | None) -> Tensor:
    """Repeat slice i of an axis repeats[i] times.

    Slice n of the result is the first slice of x for which the cumulative sum of `repeats` exceeds n.
    """
    if repeats.ndim != 1 or repeats.shape[0] != x.shape[axis]:
        raise ShapeError(f"repeat_interleave(): {x.shape[axis]} slices, but repeats of shape {repeats.shape}")
    ends = cumsum(repeats, 0)  # slice i of x fills the slices of the result before ends[i]
    size = 0 if output_size is None else as_int(output_size, "repeat_interleave(output_size=)", 0)
    if repeats.numel() and (output_size is None or (device_class(x.device) == "cpu" and not is_capturing(x.device))):
        least, total = (int(v) for v in stack([repeats.min().to(ends.dtype), ends[-1]]).tolist())
        if least < 0:
            raise ArgumentError(f"repeat_interleave() takes counts of at least 0, found {least}")
        if output_size is not None and size != total:
            raise ArgumentError(f"repeat_interleave(): output_size={size}, but the counts add up to {total}")
        size = total
    indices = searchsorted(ends, creation.arange(size, device=x.device), right=True)
    return index_select(x, axis, indices)
