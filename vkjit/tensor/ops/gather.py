"""Reading at indices along one axis: gather, index_select, take_along_dim.

Indices are integers. As in PyTorch, negative ones count from the end in `take_along_dim`, and are out of range in
`gather` and `index_select`. Results are copies. In formulas, [.., n, ..] stands for index n along that axis and any
indices along the others.
"""

from __future__ import annotations

from vkjit.errors import DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.index import gather_scatter as kernels, gather_vec4 as vec4_kernels

from ..dispatch import operation
from ..memory import allocate
from ..op_cache import cached
from ..tensor import Tensor
from . import creation
from .axis import three_axes
from .broadcast import broadcast_shapes
from .elementwise_launch import common_device
from .index_operands import at_least_1d, check_index, cropped, flat_index, wide_index
from .views import axis_of, expand, narrow, reshape

__all__ = ["gather", "index_select", "take_along_dim"]


@operation("take")
def take(x: Tensor, *, dim: int, index: Tensor, from_end: bool) -> Tensor:
    """Return the slices of x along an axis that `index` selects: y[.., n, ..] = x[.., index[n], ..].

    `index` may have any number of axes; they take the place of the axis `dim` in the result. `from_end` is True if
    negative indices count from the end.
    """
    out = allocate((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]), x.dtype, x.device)
    common_device((x, index))
    if 0 not in out.shape:
        positions = flat_index(index)
        source = three_axes(x._array, dim)
        before, _, after = source.shape
        count = index.numel()
        if after == 1:
            flat = DeviceArray(source.buffer, source.offset, x.dtype, source.shape[:2], source.strides[:2])
            vec4_kernels.take_last(
                flat, positions, DeviceArray(out.buffer, 0, x.dtype, (before, count), (count, 1)), from_end
            )
        else:
            target = DeviceArray(out.buffer, 0, x.dtype, (before, count, after), (count * after, after, 1))
            vec4_kernels.take(source, positions, target, from_end)
    return Tensor(out)


@cached("index_select()")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return the slices of x along an axis that a vector of indices selects."""
    if index.ndim > 1:
        raise ShapeError(f"index_select() takes a vector of positions, found shape {index.shape}")
    if not index.dtype.is_integer:
        raise DTypeError(f"index_select() takes a tensor of integers as positions, found {index.dtype!r}")
    if x.ndim == 0:
        return reshape(index_select(at_least_1d(x), dim, index), ())
    return take(x, dim=axis_of(dim, x.ndim, "index_select"), index=at_least_1d(index), from_end=False)


@cached("gather()")
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Gather elements along an axis: y[.., n, ..] = x[.., index[.., n, ..], ..]. The result has index's shape."""
    del sparse_grad  # gradients are dense
    return gather_at(x, dim, index, "gather", from_end=False)


def gather_at(x: Tensor, dim: int, index: Tensor, name: str, *, from_end: bool) -> Tensor:
    """Do the work of `gather` for a function `name`, in which negative indices count from the end if `from_end`."""
    index = wide_index(index, name)
    if index.numel() == 0:
        return (
            creation.empty(index.shape, dtype=x.dtype, device=x.device)
            if not x.requires_grad
            else _empty_result(x, index)
        )
    if x.ndim == 0 or index.ndim == 0:
        return reshape(gather_at(at_least_1d(x), dim, at_least_1d(index), name, from_end=from_end), index.shape)
    axis = axis_of(dim, x.ndim, name)
    check_index(x, axis, index, name)
    return _gather(cropped(x, axis, index), dim=axis, index=index, from_end=from_end)


def _empty_result(x: Tensor, index: Tensor) -> Tensor:
    """Return an empty tensor of index's shape, made as a view of x so that autograd records that it depends on x."""
    return reshape(narrow(reshape(x, (x.numel(),)), 0, 0, 0), index.shape)


@operation("gather")
def _gather(x: Tensor, *, dim: int, index: Tensor, from_end: bool) -> Tensor:
    """Do the work of `gather` for an x that has the index's sizes along all axes but `dim`."""
    out = allocate(index.shape, x.dtype, common_device((x, index)))
    if 0 not in out.shape:
        views = [three_axes(array, dim) for array in (x._array, index._array, out)]
        if views[2].shape[2] == 1:  # along the last axis
            rows, where, result = map(_rows, views)
            vec4_kernels.gather_last(rows, where, result, from_end)
        else:
            kernels.gather(*views, from_end)
    return Tensor(out)


def _rows(array: DeviceArray) -> DeviceArray:
    """View (before, along, 1) as (before, along)."""
    return DeviceArray(array.buffer, array.offset, array.dtype, array.shape[:2], array.strides[:2])


@cached("take_along_dim()")
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Gather elements along an axis, like `gather`, but with x and `indices` broadcast along the other axes.

    Negative indices count from the end. Without `dim`, x and `indices` are flattened.
    """
    if dim is None:
        flat_x, flat_indices = reshape(x, (x.numel(),)), reshape(indices, (indices.numel(),))
        return gather_at(flat_x, 0, flat_indices, "take_along_dim", from_end=True)
    axis = axis_of(dim, x.ndim, "take_along_dim")
    shape = broadcast_shapes(
        (*x.shape[:axis], 1, *x.shape[axis + 1 :]), (*indices.shape[:axis], 1, *indices.shape[axis + 1 :])
    )
    broadcast_x = expand(x, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
    broadcast_indices = expand(indices, (*shape[:axis], indices.shape[axis], *shape[axis + 1 :]))
    return gather_at(broadcast_x, axis, broadcast_indices, "take_along_dim", from_end=True)
