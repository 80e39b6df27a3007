"""Embedding bags: look up rows of a table and reduce each bag (a run of indices) to one row by a sum, mean or maximum.

Nothing waits for the device; invalid offsets raise an error at the next read from the device.
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
from .embedding import _embedding, _indices, check_table, renormalize_

__all__ = ["bag_indices", "embedding_bag"]

_MODES = ("sum", "mean", "max")


@operation("bag_sum")
def bag_sum(values: Tensor, *, offsets: Tensor) -> Tensor:
    """Sum the rows of each bag: values (M, D) and bag boundaries `offsets` (B + 1) -> (B, D)."""
    y = allocate_like((offsets.shape[0] - 1, values.shape[1]), values.dtype, values)
    kernels.bag_sums(dense(values), dense(offsets), y._array)
    return y


def bag_indices(offsets: Any, count: int) -> Tensor:
    """Return, for each of `count` rows, the index of the bag that contains it; offsets: the bag boundaries (B + 1)."""
    rows = creation.arange(count, dtype=offsets.dtype, device=offsets.device)
    return searchsorted(offsets[1:], rows, right=True)


def _argmax_rows(values: Tensor, indices: Tensor, offsets: Tensor, skipped: int) -> Tensor:
    """Return, as (B, D), the row of each bag's first maximum per column, or -1 for a bag without indices other than
    `skipped`.
    """
    y = allocate_like((offsets.shape[0] - 1, values.shape[1]), dtypes.i64, values)
    row_indices = dense_view(dense(indices), indices.numel())
    kernels.bag_argmax(dense(values.detach()), row_indices, dense(offsets), y._array, padding_index=skipped)
    return y


def _offsets(indices: Any, offsets: Any, include_last_offset: bool) -> Tensor:
    """Return the i64 bag boundaries (B + 1): the start of each bag, then the end of the last."""
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


def _weights(weights: Any, indices: Tensor, table: Tensor, mode: str) -> Any:
    """Return per_sample_weights after checking them."""
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

    indices: (B, N), one bag per row; or (M,) with offsets (B,), the start of each bag, the first 0. With
    include_last_offset, offsets is (B + 1,) and ends with M. per_sample_weights: factors for the rows, shaped like
    indices, for mode "sum" only. Indices equal to padding_idx are skipped. Empty bags yield zeros. In mode "max" the
    first of equal elements gets the gradient. The remaining options are those of `embedding`. Out-of-range indices and
    invalid offsets raise an error at the next read from the device.
    """
    _indices(indices, "embedding_bag")
    skipped = check_table("embedding_bag", weight, padding_idx, max_norm, sparse)
    if mode not in _MODES:
        raise ArgumentError(f"embedding_bag(mode=...) is one of {', '.join(_MODES)}, found {mode!r}")
    if mode == "max" and scale_grad_by_freq:
        raise ArgumentError('embedding_bag(): scale_grad_by_freq goes with mode="sum" and "mean"')
    common_device((indices, weight))
    factors = _weights(per_sample_weights, indices, weight, mode)
    bounds, flat = _offsets(indices, offsets, include_last_offset), indices.reshape(-1)
    if max_norm is not None:
        renormalize_(weight, flat, float(max_norm), norm_type)
    options = {"by_frequency": True} if scale_grad_by_freq else {}
    values: Any = _embedding(weight, flat, skipped=skipped, **options)
    if mode == "max":
        return _largest(values, flat, bounds, skipped)
    counted: Any = None
    if skipped >= 0:
        counted = (flat != skipped).unsqueeze(-1)
        values = where(counted, values, 0.0)
    if factors is not None:
        values = values * factors.reshape(-1, 1)
    sums: Any = bag_sum(values, offsets=bounds)
    return sums if mode == "sum" else sums / _sizes(bounds, counted, weight)  # type: ignore[no-any-return]


def _largest(values: Any, flat: Tensor, bounds: Tensor, skipped: int) -> Tensor:
    """Return the maximum of each bag per column (B, D), and zeros for empty bags."""
    if not values.shape[0]:
        return bag_sum(values, offsets=bounds)  # no rows: zeros
    rows: Any = _argmax_rows(values, flat, bounds, skipped)
    return where(rows < 0, 0.0, gather(values, 0, rows.clamp(min=0)))


def _sizes(bounds: Any, counted: Any, table: Tensor) -> Tensor:
    """Return, as (B, 1), the number of indices per bag, at least 1. counted: (M, 1), False for indices to skip, or
    None.
    """
    sizes = (bounds[1:] - bounds[:-1]).unsqueeze(-1)
    if counted is not None:
        sizes = bag_sum(counted.to(accumulator_type(table.dtype)), offsets=bounds)
    return sizes.clamp(min=1).to(table.dtype)  # type: ignore[no-any-return]
