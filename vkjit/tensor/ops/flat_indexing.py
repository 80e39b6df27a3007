"""Reading and writing elements of the flattened tensor: put, take, index_put, masked_scatter.

A flat index counts elements in C order; negative ones count from the end. `index_put` and `masked_scatter` compute flat
indices from index tensors and masks. Results are new tensors.
"""

from __future__ import annotations

from typing import Any

from vkjit.errors import ArgumentError, DTypeError, ShapeError

from ..tensor import Tensor
from . import creation, gather, indexing
from .broadcast import broadcast_shapes
from .compaction import nonzero_indices
from .scatter import scatter_add_at, scatter_at
from .views import expand, narrow, reshape

__all__ = ["index_put", "masked_scatter", "put", "take"]


def index_put(x: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Return a copy of x with `values` written at x[indices], or added to these elements if `accumulate`.

    `indices` is a tuple of index tensors and masks.
    """
    if not isinstance(indices, (tuple, list)):
        raise ArgumentError(f"index_put() takes a tuple of index tensors and masks, found a {type(indices).__name__}")
    index = tuple(indices)
    if not accumulate:
        value = values.to(x.dtype) if isinstance(values, Tensor) else values
        return indexing.put(x, value, plan=indexing.parse(x, index))
    plan = indexing.parse(x, index)
    # the flat indices of the elements that the index selects: those found at the index in a tensor of all flat indices.
    # They are looked up plus 1, since indices out of range find 0
    flat_indices: Any = creation.arange(1, x.numel() + 1, device=x.device)
    flat = reshape(indexing.get_planned(reshape(flat_indices, x.shape), plan) - 1, -1)
    shape = indexing.get_planned(x.detach(), plan).shape
    source = (
        expand(values, shape)
        if isinstance(values, Tensor)
        else creation.full(shape, values, dtype=x.dtype, device=x.device)
    )
    return _write_flat(x, flat, source, add=True, from_end=False)


def _write_flat(x: Tensor, positions: Tensor, source: Tensor, *, add: bool, from_end: bool) -> Tensor:
    """Return a copy of x with source's elements written at the flat indices `positions`, or added there if `add`.

    `from_end` is True if negative indices count from the end.
    """
    if positions.numel() == 0:
        return x.clone()
    flat_x, values = reshape(x, (x.numel(),)), reshape(source, (source.numel(),))
    flat_positions = reshape(positions, (positions.numel(),))
    write = scatter_add_at if add else scatter_at
    return reshape(write(flat_x, 0, flat_positions, values, "put", from_end=from_end), x.shape)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Return a copy of x with source's elements written at flat indices, or added to these elements if `accumulate`."""
    if source.dtype is not x.dtype or source.numel() != index.numel():
        raise ShapeError(
            f"put() takes as many values of {x.dtype!r} as positions, found {source.dtype!r} {source.shape}"
        )
    return _write_flat(x, index, source, add=accumulate, from_end=True)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Return x's elements at flat indices, in the shape of `index`."""
    return gather.take(reshape(x, (x.numel(),)), dim=0, index=index, from_end=True)


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Return a copy of x with the elements where the mask is True replaced by source's elements, in C order.

    The mask broadcasts. Waits for the device.
    """
    if source.dtype is not x.dtype or mask.dtype.kind != "bool":
        raise DTypeError(
            f"masked_scatter() takes a mask of bool and a source of {x.dtype!r}, found {mask.dtype!r} and {source.dtype!r}"
        )
    shape = broadcast_shapes(x.shape, mask.shape)
    broadcast_x, flags = expand(x, shape), expand(mask, shape)
    positions = nonzero_indices(flags)
    count = positions.shape[0]
    if source.numel() < count:
        raise ShapeError(f"masked_scatter(): the mask names {count} elements, the source has {source.numel()}")
    values = narrow(reshape(source, (source.numel(),)), 0, 0, count)
    return _write_flat(broadcast_x, positions, values, add=False, from_end=False)
