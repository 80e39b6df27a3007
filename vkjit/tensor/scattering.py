"""Further scatter operations: scatter and index reductions, index copy and fill, masked and flat-index writes.

Indices are integers, negative ones count from the end. Results are new tensors.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import ArgumentError, DTypeError, ShapeError
from ..stdlib import index as kernels
from . import creation, indexing
from .arithmetic import where
from .dispatch import operation
from .indexing import _lines, along, combined, lifted, places_of, scatter, scatter_add
from .indexing import take as take_along
from .iterate import broadcast_shapes
from .tensor import Tensor
from .views import axis_of, expand, narrow, reshape

__all__ = [
    "index_copy", "index_fill", "index_put", "index_reduce", "masked_scatter", "put", "scatter_reduce", "take",
]  # fmt: skip


# -- scatter reductions


_COMBINATIONS = {"prod": kernels.multiply, "amax": kernels.greater, "amin": kernels.smaller}


@operation("scatter_combine")
def _combine(x: Tensor, src: Tensor, *, dim: int, index: Tensor, reduce: str) -> Tensor:
    return combined(x, dim, index, src, _COMBINATIONS[reduce])


def _neutral(x: Tensor, reduce: str) -> Any:
    from .reducing import MAXIMUM, MINIMUM, start_value

    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    value = start_value(MAXIMUM if reduce == "amax" else MINIMUM, x.dtype)
    return bool(value) if x.dtype.kind == "bool" else value


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return a copy of x with src[.., n, ..] reduced into [.., index[.., n, ..], ..].

    reduce is "sum", "prod", "mean", "amax" or "amin". include_self=False excludes x's own values where something is
    written.
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ArgumentError(f'scatter_reduce(reduce=...) is "sum", "prod", "mean", "amax" or "amin", found {reduce!r}')
    base = x if include_self else scatter(x, dim, index, _neutral(x, reduce))
    if reduce == "sum":
        return scatter_add(base, dim, index, src)
    if reduce != "mean":
        return along("scatter_reduce", _combine, base, dim, index, src, reduce=reduce)
    total: Any = scatter_add(_wide(base), dim, index, _wide(src))
    ones = creation.ones_like(x, dtype=total.dtype)
    start = ones if include_self else scatter(ones, dim, index, 0)
    count: Any = scatter_add(start, dim, index, creation.ones(index.shape, dtype=total.dtype, device=x.device))
    count = where(count < 1, 1, count)
    return (total / count if x.dtype.is_float else total // count).to(x.dtype)  # type: ignore[no-any-return]


def _wide(x: Tensor) -> Tensor:
    from .maps import arithmetic_type

    return x.to(arithmetic_type(x.dtype)) if x.dtype.is_float else x


_REDUCTIONS = {"prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}


def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return a copy of x with the slices of source reduced into the slices given by an index vector.

    reduce is "prod", "mean", "amax" or "amin". include_self=False excludes x's own values where something is written.
    """
    if reduce not in _REDUCTIONS:
        raise ArgumentError(f'index_reduce(reduce=...) is "prod", "mean", "amax" or "amin", found {reduce!r}')
    if x.ndim == 0:
        wide = index_reduce(lifted(x), dim, index, lifted(source), reduce, include_self=include_self)
        return reshape(wide, ())
    axis = axis_of(dim, x.ndim, "index_reduce")
    return scatter_reduce(x, axis, _lines(x.shape, axis, lifted(index)), source, reduce, include_self=include_self)


# -- along one axis


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Return a copy of x with the slices given by an index vector replaced by those of source."""
    if x.ndim == 0:
        return reshape(index_copy(lifted(x), dim, index, lifted(source)), ())
    axis = axis_of(dim, x.ndim, "index_copy")
    return scatter(x, axis, _lines(x.shape, axis, lifted(index)), lifted(source))


def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Return a copy of x with the slices given by an index vector filled with a scalar or a 0-d tensor."""
    if x.ndim == 0:
        return reshape(index_fill(lifted(x), dim, index, value), ())
    axis = axis_of(dim, x.ndim, "index_fill")
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(f"index_fill() takes a number or a 0-d tensor, found shape {value.shape}")
    shape = tuple(x.shape[axis] if i == axis else 1 for i in range(x.ndim))
    nowhere = creation.zeros(x.shape[axis], dtype=dtypes.boolean, device=x.device)
    chosen = scatter(nowhere, 0, lifted(index), True)
    return where(reshape(chosen, shape), value, x).to(x.dtype)


# -- several axes


def index_put(x: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Return a copy of x with `values` written (or added) at x[indices], a tuple of index tensors and masks."""
    index = tuple(indices)
    if not accumulate:
        value = values.to(x.dtype) if isinstance(values, Tensor) else values
        return indexing.put(x, value, plan=indexing.parse(x, index))
    plan = indexing.parse(x, index)
    flat_indices = creation.arange(x.numel(), device=x.device)
    flat = reshape(indexing.get_planned(reshape(flat_indices, x.shape), plan), -1)
    shape = indexing.get_planned(x.detach(), plan).shape
    source = (
        expand(values, shape)
        if isinstance(values, Tensor)
        else creation.full(shape, values, dtype=x.dtype, device=x.device)
    )
    return _at_flat(x, flat, source, add=True)


def _at_flat(x: Tensor, positions: Tensor, source: Tensor, *, add: bool) -> Tensor:
    """Return a copy of x with values written or added at flat (C-order) indices."""
    if positions.numel() == 0:
        return x.clone()
    line, values = reshape(x, (x.numel(),)), reshape(source, (source.numel(),))
    flat = reshape(positions, (positions.numel(),))
    return reshape((scatter_add if add else scatter)(line, 0, flat, values), x.shape)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Return a copy of x with source's elements written (or added) at flat (C-order) indices."""
    if source.dtype is not x.dtype or source.numel() != index.numel():
        raise ShapeError(
            f"put() takes as many values of {x.dtype!r} as positions, found {source.dtype!r} {source.shape}"
        )
    return _at_flat(x, index, source, add=accumulate)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Return x's elements at flat (C-order) indices, in index's shape."""
    return take_along(reshape(x, (x.numel(),)), dim=0, index=index)


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Return a copy of x with source's elements, in order, where the broadcast mask is True; waits for the device."""
    if source.dtype is not x.dtype or mask.dtype.kind != "bool":
        raise DTypeError(
            f"masked_scatter() takes a mask of bool and a source of {x.dtype!r}, found {mask.dtype!r} and {source.dtype!r}"
        )
    shape = broadcast_shapes(x.shape, mask.shape)
    wide, flags = expand(x, shape), expand(mask, shape)
    positions = places_of(flags)
    count = positions.shape[0]
    if source.numel() < count:
        raise ShapeError(f"masked_scatter(): the mask names {count} elements, the source has {source.numel()}")
    values = narrow(reshape(source, (source.numel(),)), 0, 0, count)
    return _at_flat(wide, positions, values, add=False)
