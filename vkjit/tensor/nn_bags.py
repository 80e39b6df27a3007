"""Bags: runs of rows of a table, each reduced to one.

Enters: indices, a table, where each bag begins. Leaves: a row per bag: its sum, mean or largest elements. Nothing waits for the
device: offsets that aren't right are reported at the next read.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import ArgumentError, DTypeError, ShapeError
from ..stdlib import embedding as kernels
from ..stdlib.partial import accumulator
from . import creation
from .arithmetic import where
from .copies import cat
from .dispatch import operation
from .indexing import gather
from .maps import common_device
from .nn_common import dense, float_tensor, result, shaped
from .nn_embedding import _embedding, _indices, renormalised_, table_of
from .sorting import searchsorted
from .tensor import Tensor

__all__ = ["bag_numbers", "embedding_bag"]

_MODES = ("sum", "mean", "max")


@operation("bag_sum")
def bag_sum(values: Tensor, *, offsets: Tensor) -> Tensor:
    """(M, D) and offsets (B + 1) -> (B, D): the sum of each bag."""
    y = result((offsets.shape[0] - 1, values.shape[1]), values.dtype, values)
    kernels.bag_sums(dense(values), dense(offsets), y._array)
    return y


def bag_numbers(offsets: Any, count: int) -> Tensor:
    """The bag that each of `count` rows is in."""
    places = creation.arange(count, dtype=offsets.dtype, device=offsets.device)
    return searchsorted(offsets[1:], places, right=True)


def _places(values: Tensor, indices: Tensor, offsets: Tensor, skipped: int) -> Tensor:
    """(B, D): the row of each bag's first largest element, -1 where it has none."""
    y = result((offsets.shape[0] - 1, values.shape[1]), dtypes.i64, values)
    where_ = shaped(dense(indices), indices.numel())
    kernels.bag_places(dense(values.detach()), where_, dense(offsets), y._array, skipped=skipped)
    return y


def _offsets(indices: Any, offsets: Any, include_last_offset: bool) -> Tensor:
    """Where each bag begins, and where the last one ends, as i64."""
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
        found = repr(offsets.dtype) if isinstance(offsets, Tensor) else f"a {type(offsets).__name__}"
        raise DTypeError(f"{name}(): offsets are a tensor of integers, found {found}")
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
    if weights is not None and mode != "sum":
        raise ArgumentError(f'embedding_bag(): per_sample_weights go with mode="sum", found mode={mode!r}')
    return float_tensor(weights, table, indices.shape, "embedding_bag", "per_sample_weights")


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
    """A row per bag: the sum, the mean or the largest elements of the rows of the table weight (V, D) that its indices name.

    indices: (B, N), a bag per row; or (M,) with offsets (B,), where each bag begins, from 0 on; with include_last_offset (B + 1,),
    the last one M. per_sample_weights: factors of the rows, in indices' shape, for mode "sum". Indices equal to padding_idx count
    nothing. Bags without indices give zeros. Of equal elements the first gets the gradient. The other options are those of
    `embedding`. An index out of range, and wrong offsets, are reported at the next read.
    """
    _indices(indices, "embedding_bag")
    skipped = table_of("embedding_bag", weight, padding_idx, max_norm, sparse)
    if mode not in _MODES:
        raise ArgumentError(f"embedding_bag(mode=...) is one of {', '.join(_MODES)}, found {mode!r}")
    if mode == "max" and scale_grad_by_freq:
        raise ArgumentError('embedding_bag(): scale_grad_by_freq goes with mode="sum" and "mean"')
    common_device((indices, weight))
    factors = _weights(per_sample_weights, indices, weight, mode)
    bounds, flat = _offsets(indices, offsets, include_last_offset), indices.reshape(-1)
    if max_norm is not None:
        renormalised_(weight, flat, float(max_norm), norm_type)
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
    if not values.shape[0]:
        return bag_sum(values, offsets=bounds)  # zeros
    places: Any = _places(values, flat, bounds, skipped)
    return where(places < 0, 0.0, gather(values, 0, places.clamp(min=0)))


def _sizes(bounds: Any, counted: Any, table: Tensor) -> Tensor:
    """(B, 1): how many indices of each bag count, at least 1."""
    sizes = (bounds[1:] - bounds[:-1]).unsqueeze(-1)
    if counted is not None:
        sizes = bag_sum(counted.to(accumulator(table.dtype)), offsets=bounds)
    return sizes.clamp(min=1).to(table.dtype)  # type: ignore[no-any-return]
