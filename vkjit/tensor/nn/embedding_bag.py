"""Embedding bags: look up rows of a table and reduce each bag (a run of indices) to one row by a sum, mean or maximum.

V is the number of rows of the table and D their width, B the number of bags, and M the number of indices in all bags.
`values` (M, D) are the rows of the table at these indices, one per index. The bags are consecutive: bag b has the
indices, and the rows of `values`, from boundary b to boundary b + 1, exclusive. The boundaries are an i64 tensor (B +
1,). The helper functions take them as `offsets`; the public `embedding_bag` takes PyTorch's offsets, the bag starts.

Nothing waits for the device. Invalid offsets raise an error at the next read from the device.
"""

from __future__ import annotations

from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.stdlib.index import embedding as kernels
from vkjit.stdlib.partial_sums import accumulator_type

from ..dispatch import operation
from ..ops import creation
from ..ops.arithmetic import where
from ..ops.copies import cat
from ..ops.elementwise_launch import common_device
from ..ops.gather import gather
from ..ops.sorting import searchsorted
from ..tensor import Tensor
from .common import allocate_like, check_parameter, dense, dense_view
from .embedding import _check_indices, _embedding, check_table, renormalize_

__all__ = ["bag_indices", "embedding_bag"]

_MODES = ("sum", "mean", "max")


@operation("bag_sum")
def bag_sum(values: Tensor, *, offsets: Tensor) -> Tensor:
    """Sum the rows of `values` in each bag: values (M, D), bag boundaries `offsets` (B + 1,) -> (B, D)."""
    y = allocate_like((offsets.shape[0] - 1, values.shape[1]), values.dtype, values)
    kernels.bag_sums(dense(values), dense(offsets), y._array)
    return y


def bag_indices(offsets: Any, count: int) -> Tensor:
    """Return the number of the bag that contains each row 0, 1, ..., count - 1 of `values`, as a tensor (count,).

    offsets: the bag boundaries (B + 1,).
    """
    rows = creation.arange(count, dtype=offsets.dtype, device=offsets.device)
    # the number of bags that end at or before the row
    return searchsorted(offsets[1:], rows, right=True)


def _argmax_rows(values: Tensor, indices: Tensor, offsets: Tensor, skipped: int) -> Tensor:
    """Return, for each bag and column, the number of the row of `values` that has the maximum, as (B, D).

    Of equal elements the first one counts. Rows that were looked up at the index `skipped` are left out. The result is
    -1 for a bag without other rows. indices: (M,); offsets: the bag boundaries (B + 1,).
    """
    y = allocate_like((offsets.shape[0] - 1, values.shape[1]), dtypes.i64, values)
    row_indices = dense_view(dense(indices), indices.numel())
    kernels.bag_argmax(dense(values.detach()), row_indices, dense(offsets), y._array, padding_index=skipped)
    return y


def _bag_boundaries(indices: Any, offsets: Any, include_last_offset: bool) -> Tensor:
    """Return the bag boundaries (B + 1,) after checking `offsets`, the starts of the bags.

    offsets is None if `indices` has two axes, one bag per row. With include_last_offset, offsets ends with the end of
    the last bag.
    """
    name = "embedding_bag"
    if indices.ndim == 2:
        if offsets is not None:
            raise ArgumentError(f"{name}(): indices with 2 axes are bags, one per row: leave out offsets")
        bags, width = indices.shape
        bounds: Any = creation.arange(bags + 1, dtype=dtypes.i64, device=indices.device)
        return bounds * width  # type: ignore[no-any-return]
    if indices.ndim != 1:
        raise ShapeError(
            f"{name}(): the indices have shape {indices.shape}, expected (bags, width), or one axis and offsets"
        )
    if offsets is None:
        raise ArgumentError(f"{name}(): indices with one axis need offsets, where each bag begins")
    if not isinstance(offsets, Tensor) or not offsets.dtype.is_integer:
        actual = repr(offsets.dtype) if isinstance(offsets, Tensor) else f"a {type(offsets).__name__}"
        raise DTypeError(f"{name}(): offsets are a tensor of integers, found {actual}")
    if offsets.ndim != 1 or (include_last_offset and not offsets.shape[0]):
        raise ShapeError(
            f"{name}(): offsets have one axis, with include_last_offset at least one element, found {offsets.shape}"
        )
    common_device((indices, offsets))
    starts = offsets.to(dtypes.i64)
    if include_last_offset:
        return starts
    end = creation.full((1,), indices.shape[0], dtype=dtypes.i64, device=indices.device)
    return cat([starts, end])


def _checked_weights(weights: Any, indices: Tensor, table: Tensor, mode: str) -> Any:
    """Return per_sample_weights, or None, after checking them. `table` is the embedding table."""
    if weights is not None and mode != "sum":
        raise ArgumentError(f'embedding_bag(): per_sample_weights go with mode="sum", found mode={mode!r}')
    return check_parameter(weights, table, indices.shape, "embedding_bag", "per_sample_weights")


def embedding_bag(
    indices: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Look up rows of the table weight (V, D) and reduce each bag of indices to its sum, mean or maximum.

    indices: (B, N), one bag per row; or (M,) with offsets (B,), the index at which each bag starts, beginning with 0.
    With include_last_offset, offsets is (B + 1,) and ends with M. per_sample_weights: factors for the rows, shaped like
    indices, for mode "sum" only. Indices equal to padding_idx are skipped. Empty bags yield zeros. In mode "max" the
    first of equal elements gets the gradient. The remaining options are those of `embedding`. Out-of-range indices and
    invalid offsets raise an error at the next read from the device.
    """
    _check_indices(indices, "embedding_bag")
    skipped = check_table("embedding_bag", weight, padding_idx, max_norm, sparse)
    if mode not in _MODES:
        raise ArgumentError(f"embedding_bag(mode=...) is one of {', '.join(_MODES)}, found {mode!r}")
    if mode == "max" and scale_grad_by_freq:
        raise ArgumentError('embedding_bag(): scale_grad_by_freq goes with mode="sum" and "mean"')
    common_device((indices, weight))
    factors = _checked_weights(per_sample_weights, indices, weight, mode)
    bounds = _bag_boundaries(indices, offsets, include_last_offset)
    flat = indices.reshape(-1)
    if max_norm is not None:
        renormalize_(weight, flat, float(max_norm), norm_type)
    options = {"by_frequency": True} if scale_grad_by_freq else {}
    values: Any = _embedding(weight, flat, skipped=skipped, **options)
    if mode == "max":
        return _max_per_bag(values, flat, bounds, skipped)
    is_counted: Any = None
    if skipped >= 0:  # skipped rows add 0 to the sums, and don't count in the means
        is_counted = (flat != skipped).unsqueeze(-1)
        values = where(is_counted, values, 0.0)
    if factors is not None:
        values = values * factors.reshape(-1, 1)
    sums: Any = bag_sum(values, offsets=bounds)
    return sums if mode == "sum" else sums / _bag_sizes(bounds, is_counted, weight)  # type: ignore[no-any-return]


def _max_per_bag(values: Any, flat: Tensor, bounds: Tensor, skipped: int) -> Tensor:
    """Return the maximum of each bag per column, as (B, D), with zeros for empty bags.

    values: the rows looked up at the indices `flat` (M,); bounds: the bag boundaries; skipped: the index to skip.
    """
    if not values.shape[0]:  # there is no row that gather() could read: all bags are empty, and their sums are zeros
        return bag_sum(values, offsets=bounds)
    rows: Any = _argmax_rows(values, flat, bounds, skipped)
    # for empty bags, whose row is -1, any row is gathered, and replaced by 0
    return where(rows < 0, 0.0, gather(values, 0, rows.clamp(min=0)))


def _bag_sizes(bounds: Any, is_counted: Any, table: Tensor) -> Tensor:
    """Return the divisors of the means: the number of indices per bag, at least 1, as (B, 1) in the table's dtype.

    bounds: the bag boundaries; is_counted: (M, 1), False for skipped indices, or None if none is skipped.
    """
    if is_counted is None:
        sizes = (bounds[1:] - bounds[:-1]).unsqueeze(-1)
    else:  # count by summing ones and zeros
        sizes = bag_sum(is_counted.to(accumulator_type(table.dtype)), offsets=bounds)
    return sizes.clamp(min=1).to(table.dtype)  # type: ignore[no-any-return]
