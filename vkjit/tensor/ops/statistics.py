"""Counts, distances, unique values, and reductions that ignore NaN.

Functions that return unique values wait for the device to know their number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.stdlib.index import bincount as counting

from ..memory import as_int
from ..op_cache import cached
from ..precision import computed_in_f32
from ..tensor import Tensor
from . import creation
from .arithmetic import where
from .compaction import compact
from .copies import contiguous
from .cumulative import cumsum
from .gather import index_select
from .reductions import Dims, _correction, amax, amin, mean, norm, std, sum
from .scatter import scatter_add
from .sorting import sort
from .views import axis_of, expand, movedim, narrow, reshape, unsqueeze

__all__ = [
    "aminmax", "bincount", "cdist", "dist", "histc", "nanmean", "nansum", "std_mean", "unique", "unique_consecutive",
]  # fmt: skip


@cached("aminmax()")
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the minimum and the maximum, of all elements or along an axis."""
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


@cached("std_mean()")
def std_mean(
    x: Tensor, dim: Dims = None, *, correction: float | None = 1, unbiased: bool | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean over axes."""
    dim, correction = _correction(dim, correction, unbiased)
    unbiased = None  # has become `correction`
    return std(x, dim, correction=correction, unbiased=unbiased, keepdim=keepdim), mean(x, dim, keepdim)


@cached("nansum()")
def nansum(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the sum over axes, ignoring NaN."""
    return sum(where(x != x, 0, x) if x.dtype.is_float else x, dim, keepdim, dtype=dtype)


@computed_in_f32
def nanmean(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the mean over axes, ignoring NaN."""
    if not x.dtype.is_float:
        raise DTypeError(f"nanmean() takes floats, found {x.dtype!r}: convert with .to(vk.f32)")
    count: Any = sum((x == x).to(x.dtype), dim, keepdim)
    result: Any = nansum(x, dim, keepdim) / count
    return result if dtype is None else result.to(creation.as_dtype(dtype))  # type: ignore[no-any-return]


@computed_in_f32
def dist(a: Any, b: Any, p: float = 2) -> Tensor:
    """Return the p-norm of a - b."""
    return norm(a - b, p)


@computed_in_f32
def cdist(a: Any, b: Any, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """Return the p-norm distances between rows: (..., m, d) and (..., n, d) to (..., m, n)."""
    del compute_mode  # distances are always computed from differences
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist() takes rows of one length, found shapes {a.shape} and {b.shape}")
    if p < 0:
        raise ArgumentError(f"cdist(p={p}): expected at least 0")
    return norm(unsqueeze(a, -2) - unsqueeze(b, -3), p, -1)


# -- counts


@cached("ends()")
def _min_max(x: Tensor) -> Tensor:
    """Return the minimum and the maximum of a vector of integers as a vector of two."""
    return Tensor(counting.min_max(contiguous(x)._array))


@cached("bincount()")
def _bincount(x: Tensor, size: int) -> Tensor:
    """Return how often each integer from 0 to size - 1 occurs in a vector, as i64.

    No element of the vector may be outside that range.
    """
    return Tensor(counting.bincount(contiguous(x)._array, size)).to(dtypes.i64)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Return how often each non-negative integer occurs in a vector.

    With `weights`, which has a weight per element, the weights of the equal elements are summed instead. The result has
    an element for each integer from 0 to the largest, but at least `minlength` elements. Waits for the device.
    """
    if x.ndim != 1 or not x.dtype.is_integer:
        raise ArgumentError(f"bincount() takes a vector of integers of at least 0, found {x.dtype!r} {x.shape}")
    detached = x.detach()
    # the smallest and the largest element; (0, -1) makes `size` 0 for an empty vector, unless `minlength` is larger
    low, high = (int(v) for v in _min_max(detached).tolist()) if x.numel() else (0, -1)
    if low < 0:
        raise ArgumentError(f"bincount() takes integers of at least 0, found {low}")
    size = max(high + 1, as_int(minlength, "bincount(minlength=)", 0))
    if not x.numel():  # i64 even with weights, as in PyTorch
        return creation.zeros(size, dtype=dtypes.i64, device=x.device)
    if weights is None and counting.supports_bincount(detached._array, size):
        return _bincount(detached, size)
    dtype = dtypes.i64 if weights is None else weights.dtype if weights.dtype.is_float else dtypes.f64
    if weights is None:
        values = expand(creation.ones((), dtype=dtypes.i64, device=x.device), x.shape)
    else:
        values = weights.detach().to(dtype)
    bins = creation.zeros(size, dtype=dtype, device=x.device)
    return scatter_add(bins, 0, x.to(dtypes.i64), values)


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Return the number of elements, in x's dtype, in each of `bins` equal parts of the range [min, max].

    If both bounds are 0, the range of the elements is used. Elements outside the range are not counted.
    """
    if bins < 1:
        raise ArgumentError(f"histc() takes at least 1 bin, found {bins}")
    flat: Any = reshape(x.detach(), (x.numel(),))
    low, high = float(min), float(max)
    if low == high == 0 and x.numel():
        low, high = float(amin(flat).item()), float(amax(flat).item())
    if low == high:  # as in PyTorch
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ArgumentError(f"histc(): the range [{low}, {high}] isn't finite or is empty")
    wide = flat.to(dtypes.f64 if x.dtype is dtypes.f64 or x.dtype.is_integer else dtypes.f32)
    inside = (wide >= low) & (wide <= high)
    bin_index = ((wide - low) / (high - low) * float(bins)).floor().clamp(0, bins - 1)
    # elements outside the range add 0 to the first bin
    index = where(inside, bin_index, 0.0).to(dtypes.i64)
    counts = scatter_add(creation.zeros(bins, dtype=dtypes.i64, device=x.device), 0, index, inside.to(dtypes.i64))
    return counts.to(x.dtype)


# -- unique values


def _present_results(results: tuple[Tensor | None, ...]) -> Any:
    """Return a tuple of the results that aren't None; if only one isn't, that result itself."""
    present = tuple(r for r in results if r is not None)
    return present[0] if len(present) == 1 else present


def _firsts(values: Any) -> Tensor:
    """Return a bool vector that is True for the first of each run of equal elements in a vector."""
    count = values.shape[0]
    is_first = creation.ones(min(count, 1), dtype=dtypes.boolean, device=values.device)
    from .copies import cat

    pairs = max(count - 1, 0)  # number of pairs of adjacent elements
    return cat([is_first, narrow(values, 0, min(1, count), pairs) != narrow(values, 0, 0, pairs)])


def _unique_with_indices(
    values: Tensor, firsts: Tensor, with_inverse: bool, with_counts: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return (unique values, inverse, counts) of a vector whose equal elements are adjacent.

    `firsts` is True for the first of equal elements. The inverse has the index of each element's unique value. The
    counts are computed only if `with_counts`, else zeros. If neither `with_inverse` nor `with_counts` is set, the
    inverse and the counts are None.
    """
    distinct = compact(values, flags=firsts)
    if not with_inverse and not with_counts:
        return distinct, None, None
    inverse: Any = cumsum(firsts, 0) - 1
    ones = creation.ones(values.shape, dtype=dtypes.i64, device=values.device)
    counts = creation.zeros(distinct.shape, dtype=dtypes.i64, device=values.device)
    if with_counts and values.numel():
        counts = scatter_add(counts, 0, inverse, ones)
    return distinct, inverse, counts


def unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the sorted unique elements, or with `dim` the unique slices; waits for the device.

    `return_inverse` adds a result with the index of each element's unique value, `return_counts` one with the number of
    occurrences of each value. Unique slices are determined on the host.
    """
    del sorted  # results are always sorted
    if dim is not None:
        return _unique_slices(x, axis_of(dim, x.ndim, "unique"), return_inverse, return_counts)
    flat = reshape(x.detach(), (x.numel(),))
    values, order = sort(flat)
    distinct, run_indices, counts = _unique_with_indices(values, _firsts(values), return_inverse, return_counts)
    inverse = None
    if run_indices is not None and return_inverse:
        # `order` is a permutation: adding to zeros moves the index of each sorted element to where the element was in x
        zeros = creation.zeros(flat.shape, dtype=dtypes.i64, device=x.device)
        inverse = reshape(scatter_add(zeros, 0, order, run_indices), x.shape) if x.numel() else reshape(zeros, x.shape)
    return _present_results((distinct, inverse, counts if return_counts else None))


def _unique_slices(x: Tensor, axis: int, return_inverse: bool, return_counts: bool) -> Any:
    """Return the unique slices along an axis for `unique`, determined with NumPy."""
    slices = movedim(x.detach(), axis, 0)
    slice_rows = reshape(slices, (slices.shape[0], math.prod(slices.shape[1:]))).numpy()
    if slice_rows.shape[1] == 0 or slice_rows.shape[0] == 0:
        firsts = inverse = counts = np.zeros(0, np.int64)
    else:
        _, firsts, inverse, counts = np.unique(
            slice_rows, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
    index = creation.upload(firsts.astype(np.int64), dtypes.i64, x.device)
    return _present_results(
        (
            index_select(x.detach(), axis, index),
            creation.upload(inverse.reshape(-1).astype(np.int64), dtypes.i64, x.device) if return_inverse else None,
            creation.upload(counts.astype(np.int64), dtypes.i64, x.device) if return_counts else None,
        )
    )


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the first element of each run of equal elements; with `dim`, the first of equal adjacent slices.

    `return_inverse` adds a result with the index of each element's run, `return_counts` one with the length of each
    run. Waits for the device.
    """
    flat: Any = reshape(x.detach(), (x.numel(),)) if dim is None else movedim(x.detach(), dim, 0)
    if flat.ndim == 1:
        firsts = _firsts(flat)
    else:
        rows = reshape(flat, (flat.shape[0], math.prod(flat.shape[1:])))
        pairs = max(rows.shape[0] - 1, 0)
        differs = (narrow(rows, 0, min(1, rows.shape[0]), pairs) != narrow(rows, 0, 0, pairs)).any(1)
        from .copies import cat

        firsts = cat([creation.ones(min(rows.shape[0], 1), dtype=dtypes.boolean, device=x.device), differs])
    # the "unique values" of the positions are the positions at which the runs start
    positions = creation.arange(flat.shape[0], device=x.device)
    starts, run_indices, counts = _unique_with_indices(positions, firsts, return_inverse, return_counts)
    axis = 0 if dim is None else axis_of(dim, x.ndim, "unique_consecutive")
    source = flat if dim is None else x.detach()
    inverse = None
    if run_indices is not None and return_inverse:
        inverse = reshape(run_indices, x.shape if dim is None else (x.shape[axis],))
    return _present_results((index_select(source, axis, starts), inverse, counts if return_counts else None))
