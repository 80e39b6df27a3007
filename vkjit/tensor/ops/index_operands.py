"""Preparation of the index operands of gather, scatter and indexing operations: type, rank and shape.

Kernels take indices of i32 or i64.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.errors import DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray

from ..memory import allocate
from ..tensor import Tensor
from .copies import copy_values
from .views import expand, narrow, reshape

__all__ = ["at_least_1d", "check_index", "cropped", "expand_index", "flat_index", "wide_index"]


def flat_index(index: Tensor) -> DeviceArray:
    """Return the index flattened to a vector; types other than i64 and i32 are converted to i64."""
    flat = reshape(index, -1)._array
    if flat.dtype is dtypes.i64 or flat.dtype is dtypes.i32:
        return flat
    converted = allocate(flat.shape, dtypes.i64, flat.device)
    copy_values(flat, converted)
    return converted


def wide_index(index: Tensor, name: str) -> Tensor:
    """Return the index converted to i64, unless its type is i32 or i64 already.

    Raises DTypeError, naming the function `name`, if it isn't an integer tensor.
    """
    if not isinstance(index, Tensor) or not index.dtype.is_integer:
        actual = repr(index.dtype) if isinstance(index, Tensor) else type(index).__name__
        raise DTypeError(f"{name}() takes a tensor of integers as positions, found {actual}")
    return index if index.dtype in (dtypes.i64, dtypes.i32) else index.to(dtypes.i64)


def at_least_1d(x: Tensor) -> Tensor:
    """Return a 0-d tensor as a vector of one element; other tensors unchanged."""
    return reshape(x, 1) if x.ndim == 0 else x


def check_index(x: Tensor, axis: int, index: Tensor, name: str) -> None:
    """Check the shape of an index for gather and scatter along `axis`.

    Raises ShapeError unless the index has x's rank and is no larger than x along the other axes.
    """
    if index.ndim != x.ndim:
        raise ShapeError(f"{name}(): index has {index.ndim} axes, the tensor {x.ndim}: expected the same number")
    if any(i > e for d, (i, e) in enumerate(zip(index.shape, x.shape, strict=True)) if d != axis):
        raise ShapeError(
            f"{name}(): index of shape {index.shape} is larger than the tensor's {x.shape} off axis {axis}"
        )


def cropped(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """Return x cropped, as a view, to the sizes of the index along all axes except `axis`."""
    for d in range(x.ndim):
        if d != axis and x.shape[d] != index.shape[d]:
            x = narrow(x, d, 0, index.shape[d])
    return x


def expand_index(shape: tuple[int, ...], axis: int, index: Tensor) -> Tensor:
    """Return a vector of N indices along `axis`, expanded along all other axes of `shape`.

    The result has `shape` with N in place of shape[axis].
    """
    aligned = reshape(index, tuple(-1 if d == axis else 1 for d in range(len(shape))))
    return expand(aligned, (*shape[:axis], index.numel(), *shape[axis + 1 :]))
