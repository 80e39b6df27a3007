"""Sorting along an axis and operations based on it: top-k, median, quantiles, and binary search.

Sorting is stable and NaN counts as the greatest. Indices are i64. If gradients are needed, the sorted values are
gathered at the indices, and the gather is recorded. The kernels sort rows (L, N): x with the sorted axis last and all
other axes merged.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray, contiguous_strides
from vkjit.stdlib.elementwise import maps
from vkjit.stdlib.registry import device_class, forced_class
from vkjit.stdlib.scan_sort import merge_sort as kernels, radix_sort, radix_sort_ballot

from ..autograd.mode import modes
from ..dispatch import operation
from ..memory import allocate, as_int
from ..op_cache import cached
from ..precision import is_half
from ..promotion import result_type
from ..tensor import Tensor
from . import creation, elementwise_launch
from .arithmetic import lerp, where
from .elementwise_launch import arithmetic_type
from .gather import gather, index_select
from .reductions import MinMax
from .views import axis_of, movedim, narrow, reshape, select, squeeze, unsqueeze

__all__ = [
    "argsort", "bucketize", "isin", "kthvalue", "median", "msort", "nanmedian", "nanquantile", "quantile",
    "searchsorted", "sort", "topk",
]  # fmt: skip

BLOCK = 64
"""Number of elements per block in merge sort. Blocks are sorted by counting ranks, then merged."""
_MAX_TOP_K = 32
"""Maximum k of the top-k kernels; for larger k, `topk` sorts."""


class Order(NamedTuple):
    """Sorted values, and their indices in the original tensor along the sorted axis."""

    values: Tensor
    indices: Tensor


def _as_rows(x: Tensor, axis: int) -> DeviceArray:
    """Return x as contiguous rows (L, N) along an axis, copied if necessary."""
    moved = movedim(x.detach(), axis, -1).contiguous()._array
    shape = (math.prod(moved.shape[:-1]), moved.shape[-1])
    return DeviceArray(moved.buffer, moved.offset, moved.dtype, shape, contiguous_strides(shape))


def _row_indices(rows: DeviceArray) -> DeviceArray:
    """Return the indices 0, 1, 2, ... along each row."""
    count = rows.shape[1]
    if count >= 2**31:
        raise ShapeError(f"sorting takes lines of fewer than 2**31 elements, found {count}")
    numbers = allocate((count,), dtypes.i32, rows.device)
    maps.iota(numbers)
    return DeviceArray(numbers.buffer, 0, dtypes.i32, rows.shape, (0, 1))


def _allocate_like(array: DeviceArray) -> DeviceArray:
    """Allocate an array of the same shape and type."""
    return allocate(array.shape, array.dtype, array.device)


def _key(dtype: DType) -> Any:
    """Return the device function that maps elements to integers of the same order, by which kernels sort."""
    wide = dtype.bits == 64
    if dtype.is_float:
        return kernels.key_f64 if wide else kernels.key_f32
    if dtype.kind == "int":
        return kernels.key_i64 if wide else kernels.key_signed
    return kernels.key_u64 if wide else kernels.key_unsigned


def _bools_as_bytes(array: DeviceArray) -> DeviceArray:
    """View an array of bools as u8, for kernels that take numbers; return other arrays unchanged."""
    if array.dtype.kind != "bool":
        return array
    return DeviceArray(array.buffer, array.offset, dtypes.u8, array.shape, array.strides)


def _sorted_rows(rows: DeviceArray, descending: bool) -> tuple[DeviceArray, DeviceArray]:
    """Return the sorted values of rows (L, N) and their original indices (i32 or i64).

    Uses radix sort with subgroup ballots, radix sort, or merge sort, whichever suits the device and the row length.
    """
    if _sorts_by_ranks(rows):
        short = rows.shape[1] <= radix_sort_ballot.max_row_length(rows)
        ballot_sort = radix_sort_ballot.sort_short_rows if short else radix_sort_ballot.radix_sort
        return ballot_sort(rows, dtypes.i64, descending)
    options = (_key(rows.dtype), descending)
    if _sorts_by_digits(rows):
        values, indices = radix_sort.radix_sort(_bools_as_bytes(rows), options[0], _key_bits(rows.dtype), descending)
        # view the values as bools again if they were sorted as bytes
        return DeviceArray(values.buffer, values.offset, rows.dtype, values.shape, values.strides), indices
    positions, n = _row_indices(rows), rows.shape[1]
    values, indices = _allocate_like(rows), allocate(rows.shape, dtypes.i32, rows.device)
    kernels.rank_sort_blocks(_bools_as_bytes(rows), positions, _bools_as_bytes(values), indices, BLOCK, *options)
    # merge sorted runs of `run_length` elements into runs of twice that, back and forth between two buffers
    spare_values, spare_indices = _allocate_like(rows), _allocate_like(indices)
    run_length = BLOCK
    while run_length < n:
        kernels.merge_runs(
            _bools_as_bytes(values), indices, _bools_as_bytes(spare_values), spare_indices, run_length, *options
        )
        values, indices, spare_values, spare_indices = spare_values, spare_indices, values, indices
        run_length *= 2
    return values, indices


def _key_bits(dtype: DType) -> int:
    """Return the number of significant bits in the keys (see `_key`) of a type."""
    # keys of floats and signed integers use all 32 bits; bools are sorted as bytes
    if dtype.bits == 64:
        return 64
    return max(dtype.bits, 8) if dtype.kind in ("uint", "bool") else 32


def _sorts_by_ranks(rows: DeviceArray) -> bool:
    """True if rows are sorted by `radix_sort_ballot`: on GPUs whose subgroups support ballots."""
    device = rows.device
    # the kernels' i32 indices run past the end of a row, by less than a tile
    return (
        rows.shape[1] < 2**31 - 2**16
        and device_class(device) == "gpu"
        and radix_sort_ballot.supports_ballot_ranking(device)
    )


def _sorts_by_digits(rows: DeviceArray) -> bool:
    """True if rows are sorted by `radix_sort`: on the LLVM CPU device from 256 elements on, on GPUs above 16384."""
    n = rows.shape[1]
    if n >= 2**31:
        return False
    if rows.device.caps.kind == "llvm-cpu" and forced_class() is None:
        return n >= 256
    return device_class(rows.device) == "gpu" and n > 16384


def _from_rows(array: DeviceArray, x: Tensor, axis: int, size: int, dtype: DType) -> Tensor:
    """Return rows (L, size) as a tensor of x's shape, but with `size` elements along the axis, converted to `dtype`."""
    others = tuple(e for i, e in enumerate(x.shape) if i != axis)
    shape = (*others, size)
    result = Tensor(DeviceArray(array.buffer, array.offset, array.dtype, shape, contiguous_strides(shape))).to(dtype)
    return result if axis == len(others) else movedim(result, -1, axis).contiguous()


def _axis(x: Tensor, dim: int, name: str) -> int:
    return axis_of(dim, x.ndim, name)


@cached("sort()")
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Order:
    """Sort along an axis and return (values, indices); equal elements keep their order."""
    del stable  # sorting is always stable
    if x.ndim == 0:
        axis_of(dim, 1, "sort")
        return Order(x.clone(), creation.zeros((), dtype=dtypes.i64, device=x.device))
    axis = _axis(x, dim, "sort")
    if x.numel() == 0:
        return Order(x.clone(), creation.empty(x.shape, dtype=dtypes.i64, device=x.device))
    # as rows (L, N), sorted; `_from_rows` restores x's shape
    row_values, row_indices = _sorted_rows(_as_rows(x, axis), descending)
    indices = _from_rows(row_indices, x, axis, x.shape[axis], dtypes.i64)
    if x.requires_grad:  # sorting isn't recorded, so gather the values, which is
        return Order(gather(x, axis, indices), indices)
    return Order(_from_rows(row_values, x, axis, x.shape[axis], x.dtype), indices)


@cached("argsort()")
def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the indices that sort x along an axis."""
    return sort(x.detach(), dim, descending, stable).indices


def msort(x: Tensor) -> Tensor:
    """Return x sorted along axis 0."""
    return sort(x, 0).values


def _top_k_of_segments(
    rows: DeviceArray,
    original_indices: DeviceArray | None,
    k: int,
    largest: bool,
    invocations: int,
    per_invocation: int,
) -> tuple[DeviceArray, DeviceArray]:
    """Select the k largest elements of each segment of rows (L, N), or the k smallest unless `largest`.

    A segment has at most invocations * per_invocation elements and is searched by a workgroup of `invocations`. Returns
    values and indices, at most k per segment, concatenated along each row. The indices are i64 if there is a single
    segment, else i32. `original_indices` has the index of each element of `rows` along the sorted axis of the tensor;
    None means that this is its index in the row.
    """
    row_count, n = rows.shape
    length = min(n, invocations * per_invocation)
    full_segments, remainder = divmod(n, length)
    size = full_segments * k + min(remainder, k)
    values = allocate((row_count, size), rows.dtype, rows.device)
    indices = allocate((row_count, size), dtypes.i64 if n == length else dtypes.i32, rows.device)
    # without original indices the kernels don't read `positions`: any array of i32 will do, with an aligned offset
    positions = original_indices or DeviceArray(rows.buffer, rows.offset & ~3, dtypes.i32, rows.shape, (0, 0))
    # first all full segments, then the remainder; `first` is the index in the row of their first result
    for begin, count, width, first in (
        (0, full_segments, length, 0),
        (full_segments * length, 1, remainder, full_segments * k),
    ):
        if width:
            kept = min(width, k)
            sources = [_segments(a, begin, count, width) for a in (_bools_as_bytes(rows), positions)]
            targets = [_segments(a, first, count, kept) for a in (_bools_as_bytes(values), indices)]
            operands = (*sources, *targets, begin, original_indices is None)
            if rows.device.caps.kind == "llvm-cpu":
                bits = dtypes.u64 if rows.dtype.bits == 64 else dtypes.u32
                capacity = 8 if k <= 8 else _MAX_TOP_K  # of the kernel's local arrays, at least k
                kernels.top_k_per_invocation(*operands, _key(rows.dtype), bits, largest, capacity)
            else:
                kernels.top_k_per_workgroup(*operands, invocations, _key(rows.dtype), largest, per_invocation)
    return values, indices


def _segments(array: DeviceArray, begin: int, count: int, width: int) -> DeviceArray:
    """View `count` segments of `width` elements of rows (L, N), from element `begin` on, as (L, count, width)."""
    row, step = array.strides
    offset = array.offset + begin * step * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, (array.shape[0], count, width), (row, width * step, step))


def _top(rows: DeviceArray, k: int, largest: bool) -> tuple[DeviceArray, DeviceArray]:
    """Return the k largest values of rows (L, N), or the k smallest unless `largest`, sorted, and their i64 indices.

    Replaces each row by the k elements selected from each of its segments, until it is a single segment.
    """
    # on CPUs fewer invocations with longer loops; see `_top_k_of_segments`
    invocations, per_invocation = (256, 64) if device_class(rows.device) == "gpu" else (16, 512)
    if rows.shape[1] >= 2**31:
        raise ShapeError(f"topk() takes lines of fewer than 2**31 elements, found {rows.shape[1]}")
    values: DeviceArray = rows
    indices: DeviceArray | None = None
    while True:
        is_single_segment = values.shape[1] <= invocations * per_invocation
        values, indices = _top_k_of_segments(values, indices, k, largest, invocations, per_invocation)
        if is_single_segment:
            return values, indices


@cached("topk()")
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Order:
    """Return sorted (values, indices) of the k largest (or smallest) elements along an axis.

    Of equal elements the first ones are returned.
    """
    del sorted  # results are always sorted
    if x.ndim == 0:
        values, indices = topk(reshape(x, 1), k, 0, largest)
        return Order(reshape(values, ()), reshape(indices, ())) if k == 1 else Order(values, indices)
    axis = _axis(x, dim, "topk")
    if not 0 <= as_int(k, "topk(k=)") <= x.shape[axis]:
        raise ShapeError(f"topk({k}): axis {axis} has {x.shape[axis]} elements")
    if k == 0 or x.numel() == 0:  # the result is empty, too: `empty` as index gathers no elements
        shape = tuple(k if i == axis else e for i, e in enumerate(x.shape))
        empty = creation.empty(shape, dtype=dtypes.i64, device=x.device)
        return Order(gather(x, axis, empty), empty)
    if k > _MAX_TOP_K:
        order = sort(x, axis, largest)
        return Order(narrow(order.values, axis, 0, k), narrow(order.indices, axis, 0, k))
    top_values, top_indices = _top(_as_rows(x, axis), k, largest)
    indices = _from_rows(top_indices, x, axis, k, dtypes.i64)
    return Order(gather(x, axis, indices) if x.requires_grad else _from_rows(top_values, x, axis, k, x.dtype), indices)


@cached("kthvalue()")
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> MinMax:
    """Return the k-th smallest value (counting from 1) along an axis, and its index."""
    flat = reshape(x, 1) if x.ndim == 0 else x
    axis = _axis(flat, dim, "kthvalue")
    if not 1 <= as_int(k, "kthvalue(k=)") <= flat.shape[axis]:
        raise ShapeError(f"kthvalue({k}): axis {dim} has {flat.shape[axis]} elements")
    indices = narrow(argsort(flat, axis), axis, k - 1, 1).contiguous()
    return _value_at(flat, axis, indices, keepdim, x.ndim == 0)


def _value_at(x: Tensor, axis: int, indices: Tensor, keepdim: bool, scalar: bool) -> MinMax:
    """Return the elements of x at the indices, and the indices; they have size 1 along the axis.

    The axis is dropped unless `keepdim`. It is always dropped if `scalar`: then x is a 0-d tensor viewed as a vector.
    """
    values = gather(x, axis, indices)
    if keepdim and not scalar:
        return MinMax(values, indices)
    return MinMax(_as_non_view(squeeze(values, axis)), _as_non_view(squeeze(indices, axis)))


def _as_non_view(x: Tensor) -> Tensor:
    """Return a view as a tensor that isn't marked as a view, unless autograd tracks it.

    No other tensor may share its memory. The op cache (`op_cache.cached`) accepts only results that aren't views.
    """
    return x if modes.get().intercepts or x.requires_grad else Tensor(x._array)


def _median(x: Tensor, dim: int | None, keepdim: bool, ignores_nan: bool, name: str) -> Any:
    """Return the median for function `name`. If `ignores_nan`, NaNs are ignored, else the median is NaN if there are any."""
    flat = reshape(x, (x.numel(),)) if dim is None or x.ndim == 0 else x
    axis = 0 if dim is None else _axis(flat, dim, name)
    count = flat.shape[axis]
    if count == 0:
        if dim is None and x.dtype.is_float:
            return creation.full((), math.nan, dtype=x.dtype, device=x.device)
        raise ShapeError(f"{name}() over no elements has no value: shape {x.shape}")
    order = argsort(flat, axis)
    if flat.dtype.is_float:  # NaNs are sorted to the end; unless ignored, the first of them is the median
        nan_count: Any = (flat.detach() != flat.detach()).sum(axis, True)  # only NaN differs from itself
        if ignores_nan:
            rank = where(nan_count == count, 0, (count - nan_count - 1) // 2)
        else:
            rank = where(nan_count > 0, count - nan_count, (count - 1) // 2)
        indices = gather(order, axis, rank.to(dtypes.i64))
    else:
        indices = narrow(order, axis, (count - 1) // 2, 1).contiguous()
    result = _value_at(flat, axis, indices, keepdim, x.ndim == 0)
    return _shared(flat, reshape(result.values.detach(), ())) if dim is None else result


@operation("shared_value")
def _shared(x: Tensor, value: Tensor) -> Tensor:  # noqa: ARG001  # x receives the gradient
    """Return a copy of `value`, an element of x. The elements of x equal to it share its gradient equally."""
    return value.clone()


@cached("median()")
def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the median of all elements, or (values, indices) along an axis; NaN if an element is NaN.

    For an even number of elements it is the lower of the two middle ones.
    """
    return _median(x, dim, keepdim, False, "median")  # don't ignore NaN


def nanmedian(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the `median`, ignoring NaN."""
    return _median(x, dim, keepdim, True, "nanmedian")  # ignore NaN


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(
    x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignores_nan: bool, name: str
) -> Tensor:
    """Return the quantiles for function `name`. If `ignores_nan`, NaNs are ignored, else they propagate."""
    if not x.dtype.is_float or is_half(x.dtype):
        raise DTypeError(f"{name}() takes f32 or f64, found {x.dtype!r}")
    if interpolation not in _INTERPOLATIONS:
        raise ArgumentError(f"{name}(interpolation=...) is one of {_INTERPOLATIONS}, found {interpolation!r}")
    if isinstance(q, Tensor):
        if q.ndim > 1:
            raise ShapeError(f"{name}() takes a number or a vector of levels, found shape {q.shape}")
        if q.dtype is not x.dtype:
            raise DTypeError(f"{name}(): the levels are {q.dtype!r}, the elements {x.dtype!r}: convert one of them")
    elif not all(
        isinstance(n, (int, float, np.number)) and 0 <= float(n) <= 1 for n in np.reshape(np.array(q, object), -1)
    ):
        raise ArgumentError(f"{name}(q={q!r}): expected levels from 0 to 1")
    if isinstance(q, (int, float)):
        levels = creation.full((), float(q), dtype=x.dtype, device=x.device)
    else:
        levels = q if isinstance(q, Tensor) else creation.tensor(q, dtype=x.dtype, device=x.device)
    flat = reshape(x, (x.numel(),)) if dim is None else reshape(x, 1) if x.ndim == 0 else x
    axis = 0 if dim is None else _axis(flat, dim, name)
    ordered = movedim(sort(flat, axis).values, axis, -1)
    count = ordered.shape[-1]
    # `rank`: the quantile's fractional index among the sorted elements, of which NaNs are the last
    nan_count: Any = (ordered != ordered).sum(-1, True)  # only NaN differs from itself
    level_column = reshape(levels, (-1, *(1,) * ordered.ndim))  # broadcasts against all slices of x
    valid_count: Any = (count - nan_count) if ignores_nan else count
    last_index: Any = (
        valid_count - 1
        if not isinstance(valid_count, Tensor)
        else where(valid_count > 0, valid_count - 1, 0).to(x.dtype)
    )
    rank: Any = level_column * last_index
    if isinstance(q, Tensor):  # an index out of range for levels below 0, as for those above 1: `gather` reports both
        rank = where(level_column < 0, float(count), rank)
    if not ignores_nan:  # the last element is NaN if there is any
        rank = where(nan_count > 0, float(count - 1), rank)
    if interpolation in ("lower", "higher", "nearest"):
        rank = {"lower": rank.floor, "higher": rank.ceil, "nearest": rank.round}[interpolation]()
    # the elements on both sides of the rank, and the interpolation between them; the levels are the first axis
    low: Any = rank.floor()
    sorted_per_level = unsqueeze(ordered, 0).expand((level_column.shape[0], *ordered.shape))
    shape = (level_column.shape[0], *ordered.shape[:-1], 1)
    lower = gather(sorted_per_level, -1, low.to(dtypes.i64).expand(shape))
    upper = gather(sorted_per_level, -1, rank.ceil().to(dtypes.i64).expand(shape))
    weight = 0.5 if interpolation == "midpoint" else rank - low
    result: Any = lerp(lower, upper, weight)
    result = where(rank == low, lower, result)  # lerp of two infinities is NaN
    # drop the axis of size 1 that the reduced axis has become, or with `keepdim` move it back
    if dim is None:
        result = reshape(result, (level_column.shape[0], *((1,) * x.ndim if keepdim else ())))
    else:
        result = movedim(result, -1, axis + 1)
        result = result if keepdim and x.ndim else squeeze(result, axis + 1)
    return _as_non_view(select(result, 0, 0) if levels.ndim == 0 else result)


@cached("quantile()")
def quantile(
    x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Return the quantiles of all elements or along an axis, at the levels q between 0 and 1. NaN propagates.

    q is a number, or a vector or list, which adds a leading axis to the result. `interpolation` between adjacent
    elements is "linear", "lower", "higher", "midpoint" or "nearest". x is f32 or f64.
    """
    return _quantile(x, q, dim, keepdim, interpolation, False, "quantile")  # don't ignore NaN


@cached("nanquantile()")
def nanquantile(
    x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Return the `quantile`, ignoring NaN."""
    return _quantile(x, q, dim, keepdim, interpolation, True, "nanquantile")  # ignore NaN


# -- binary search


@operation("searchsorted")
def _search(bounds: Tensor, values: Tensor, *, right: bool, dtype: DType) -> Tensor:
    """Return the insertion indices, of type `dtype`, of values into the sorted rows of `bounds`; see `searchsorted`."""
    row_count = math.prod(bounds.shape[:-1])
    out = allocate(values.shape, dtype, elementwise_launch.common_device((bounds, values)))
    common = result_type(bounds.dtype, values.dtype)
    compute = dtypes.u8 if common.kind == "bool" else arithmetic_type(common)
    shape = (row_count, values.numel() // row_count if row_count else 0)
    if 0 in shape:
        return Tensor(out)
    b, v = bounds.contiguous()._array, values.contiguous()._array
    kernels.search_sorted(
        _bools_as_bytes(DeviceArray(b.buffer, b.offset, b.dtype, (row_count, b.shape[-1]), (b.shape[-1], 1))),
        _bools_as_bytes(DeviceArray(v.buffer, v.offset, v.dtype, shape, contiguous_strides(shape))),
        DeviceArray(out.buffer, 0, dtype, shape, contiguous_strides(shape)),
        right,
        compute,
        _key(compute),
        dtypes.i32 if b.shape[-1] < 2**31 else dtypes.i64,  # the type of the indices in the search
    )
    return Tensor(out)


@cached("searchsorted()")
def searchsorted(
    sorted_sequence: Tensor, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the insertion index of each value: the number of elements of a sorted sequence that are below the value.

    With right=True (side="right"), elements equal to the value count too. `sorted_sequence` is a vector, used for all
    values, or has a sequence along its last axis for each row of `values`. If the sequence isn't sorted, `sorter` has
    the indices that sort it.
    """
    if side is not None and side not in ("left", "right"):
        raise ArgumentError(f'searchsorted(side=...) is "left" or "right", found {side!r}')
    queries = values if isinstance(values, Tensor) else creation.tensor(values, device=sorted_sequence.device)
    if sorted_sequence.ndim != 1 and sorted_sequence.shape[:-1] != queries.shape[:-1]:
        raise ShapeError(
            f"searchsorted(): lists {sorted_sequence.shape} and values {queries.shape} differ before the last axis"
        )
    bounds = sorted_sequence if sorter is None else gather(sorted_sequence, -1, sorter)
    dtype = dtypes.i32 if out_int32 else dtypes.i64
    return _search(bounds.detach(), queries.detach(), right=right or side == "right", dtype=dtype)


def bucketize(x: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Return, for each value, the index of the bucket that contains it: `searchsorted(boundaries, x)`.

    `boundaries` is a sorted vector of the limits between buckets.
    """
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return a bool tensor that is True where an element occurs in `test_elements` (False if `invert`)."""
    del assume_unique  # has no effect
    device = elements.device if isinstance(elements, Tensor) else test_elements.device
    x, among = (t if isinstance(t, Tensor) else creation.tensor(t, device=device) for t in (elements, test_elements))
    if among.numel() == 0 or x.numel() == 0:
        return creation.full(x.shape, invert, dtype=dtypes.boolean, device=device)
    ordered = sort(reshape(among.detach(), (among.numel(),))).values
    position = searchsorted(ordered, x.detach())  # of the first test element that isn't below x
    clamped_position = where(position < ordered.shape[0], position, ordered.shape[0] - 1)
    matches: Any = (
        reshape(index_select(ordered, 0, reshape(clamped_position, (clamped_position.numel(),))), x.shape) == x.detach()
    )
    return matches.logical_not() if invert else matches  # type: ignore[no-any-return]
