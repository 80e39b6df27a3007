"""The array API standard's manipulation, indexing, searching, sorting, set and linear algebra functions.

An axis of an n-dimensional tensor is an int from -n to n - 1; negative ones count from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import ArgumentError, DTypeError, ShapeError
from ..tensor.ops import (
    compaction,
    copies,
    gather,
    matmul as linalg,
    products,
    repetition,
    shapes,
    sorting,
    statistics,
    views,
)
from ..tensor.ops.cumulative import diff as _diff
from ..tensor.ops.reductions import sum as _sum
from ..tensor.tensor import Tensor

__all__ = [
    "argsort", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "diff", "expand_dims", "flip", "isin",
    "matmul", "matrix_transpose", "moveaxis", "nonzero", "permute_dims", "repeat", "reshape", "roll", "searchsorted",
    "sort", "squeeze", "stack", "take", "take_along_axis", "tensordot", "tile", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "unstack", "vecdot",
]  # fmt: skip

Axes = int | Sequence[int] | None


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Broadcast all tensors to their common shape."""
    return list(views.broadcast_tensors(*arrays))


def broadcast_shapes(*sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that all the given shapes broadcast to."""
    return shapes.broadcast_shapes(*sizes)


def broadcast_to(x: Tensor, /, shape: Any) -> Tensor:
    """Return a view of x that is broadcast to the shape."""
    return views.broadcast_to(x, shape)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Concatenate tensors along an axis; None flattens them first."""
    parts = list(arrays)
    if axis is None:
        parts, axis = [views.reshape(x, (x.numel(),)) for x in parts], 0
    return copies.cat(parts, axis)


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """Insert axes of size 1. `axis` holds their indices in the result."""
    axes = (axis,) if isinstance(axis, int) else axis
    rank = x.ndim + len(axes)
    if any(not -rank <= d < rank for d in axes):
        raise IndexError(f"expand_dims(): axis {axis} of a result with {rank} axes")
    for d in sorted(d % rank for d in axes):
        x = views.unsqueeze(x, d)
    return x


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """Remove the given axes. Raises ShapeError unless their size is 1."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if any(x.shape[d] != 1 for d in axes):
        raise ShapeError(f"squeeze(): axes {axes} of shape {x.shape}: expected sizes of 1")
    return views.squeeze(x, axes) if axes else x


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """Reverse the elements along axes (None: all)."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return views.flip(x, axes)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Move the axes `source` to the positions `destination`; the other axes keep their order."""
    return views.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Permute the axes: axis i of the result is axis `axes[i]` of x."""
    return views.permute(x, axes)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Swap the last two axes."""
    return views.mT(x)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along an axis (None: of the flattened tensor)."""
    return repetition.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return the elements of x in another shape, as a view if possible.

    `copy=True` always copies; `copy=False` raises an error if no view is possible.
    """
    if copy is False:
        return views.view(x, shape)
    result = views.reshape(x, shape)
    return result.clone() if copy and result.shares_memory_with(x) else result


def roll(x: Tensor, /, shift: Any, *, axis: Axes = None) -> Tensor:
    """Shift elements along axes by `shift` places; elements beyond the end reappear at the start.

    `axis=None` shifts the elements of x in row-major order.
    """
    if axis is None and not isinstance(shift, int):
        shift = shift[0]  # the flattened tensor has one axis
    if isinstance(shift, int) and isinstance(axis, tuple):
        shift = (shift,) * len(axis)  # the same for each axis
    return copies.roll(x, shift, axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis, which has the index `axis` in the result."""
    return copies.stack(list(arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Concatenate copies of x: `repetitions[i]` of them along axis i."""
    return repetition.tile(x, repetitions) if repetitions else x.clone()


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the slices of x along an axis, without that axis."""
    return views.unbind(x, axis)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the n-th differences of adjacent elements along an axis.

    `prepend` and `append` are first added at the ends of the axis.
    """
    return _diff(x, n, axis, prepend, append)


# -- indexing, searching and sorting


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the slices of x at the given indices of an axis; `axis` may be left out for vectors.

    Negative indices count from the end.
    """
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"take() of {x.ndim} axes needs axis=")
        axis = 0
    return gather.take(x, dim=views.axis_of(axis, x.ndim, "take"), index=indices, from_end=True)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Gather elements along an axis: each index selects an element in its own slice of x along that axis."""
    return gather.take_along_dim(x, indices, axis)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the indices of nonzero elements, one vector per axis."""
    if x.ndim == 0:
        raise ShapeError("nonzero() takes a tensor with at least one axis")
    return compaction.nonzero(x, as_tuple=True)  # type: ignore[no-any-return]


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return the index at which to insert each element of x2 into the sorted vector x1, to keep it sorted.

    `side` is "left" to insert before equal elements, or "right" to insert after them. `sorter` holds the indices that
    sort x1, if it isn't sorted.
    """
    return sorting.searchsorted(x1, x2, side=side, sorter=sorter)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return x sorted along an axis."""
    return sorting.sort(x, axis, descending, stable).values


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the indices that sort x along an axis."""
    return sorting.argsort(x, axis, descending, stable)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Return a bool tensor that is True where an element of x1 occurs in x2, or with `invert`, where it doesn't."""
    return sorting.isin(x1, x2, invert=invert)


# -- sets


class UniqueAll(NamedTuple):
    """The result of `unique_all`; `indices` are those of the first occurrences."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def unique_values(x: Tensor, /) -> Tensor:
    """Return the distinct elements; each NaN counts as distinct."""
    return statistics.unique(x)  # type: ignore[no-any-return]


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the distinct elements and how often each occurs."""
    return UniqueCounts(*statistics.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the distinct elements, and for each element of x its index among them."""
    return UniqueInverse(*statistics.unique(x, return_inverse=True))


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the distinct elements with the index of the first occurrence and the number of occurrences of each.

    Also return `inverse_indices`: for each element of x, its index among the distinct elements.
    """
    values, inverse, counts = statistics.unique(x, return_inverse=True, return_counts=True)
    order = sorting.argsort(views.reshape(x, (x.numel(),)), 0)
    from ..tensor.ops.cumulative import cumsum

    # where each group of equal elements begins in the sorted order; sorting is stable, so this is the first occurrence
    starts: Any = cumsum(counts, 0) - counts
    return UniqueAll(values, gather.index_select(order, 0, starts), inverse, counts)


# -- products


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the matrix product, with both operands promoted to their common type."""
    from ..tensor.promotion import result_type

    dtype = result_type(x1.dtype, x2.dtype)
    return linalg.matmul(x1.to(dtype), x2.to(dtype))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Contract x1 and x2, promoted to their common type, over pairs of axes.

    `axes` is a number n (the last n axes of x1 with the first n of x2), or a pair of sequences of axes.
    """
    from ..tensor.promotion import result_type

    dtype = result_type(x1.dtype, x2.dtype)
    return products.tensordot(x1.to(dtype), x2.to(dtype), axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Return the dot product along an axis, which is negative, that is, counted from the end."""
    if x1.dtype.kind == "bool":
        raise DTypeError("vecdot() has no meaning for bool: convert with astype()")
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ShapeError(
            f"vecdot(axis={axis}) of shapes {x1.shape} and {x2.shape}: expected an axis of both, from the end"
        )
    if x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(f"vecdot(): sizes {x1.shape[axis]} and {x2.shape[axis]} along axis {axis}")
    product = x1 * x2
    return _sum(
        product, axis, dtype=product.dtype
    )  # in the common type of x1 and x2; sums of integers are i64 by default
