"""The array API's functions of shapes, positions, sets and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import ArgumentError, DTypeError, ShapeError
from ..tensor import copies, indexing, linalg, products, shapes, sorting, statistics, views
from ..tensor.reductions import sum as _sum
from ..tensor.running import diff as _diff
from ..tensor.tensor import Tensor

__all__ = [
    "argsort", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "diff", "expand_dims", "flip", "isin",
    "matmul", "matrix_transpose", "moveaxis", "nonzero", "permute_dims", "repeat", "reshape", "roll", "searchsorted",
    "sort", "squeeze", "stack", "take", "take_along_axis", "tensordot", "tile", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "unstack", "vecdot",
]  # fmt: skip

Axes = int | Sequence[int] | None


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All stretched to their common shape."""
    return list(views.broadcast_tensors(*arrays))


def broadcast_shapes(*sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all these broadcast to."""
    return shapes.broadcast_shapes(*sizes)


def broadcast_to(x: Tensor, /, shape: Any) -> Tensor:
    """x stretched to the shape."""
    return views.broadcast_to(x, shape)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """One after the other along an axis; None: of the flattened tensors."""
    parts = list(arrays)
    if axis is None:
        parts, axis = [views.reshape(x, (x.numel(),)) for x in parts], 0
    return copies.cat(parts, axis)


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """New axes of size 1."""
    wanted = (axis,) if isinstance(axis, int) else axis
    rank = x.ndim + len(wanted)
    if any(not -rank <= d < rank for d in wanted):
        raise IndexError(f"expand_dims(): axis {axis} of a result with {rank} axes")
    for d in sorted(d % rank for d in wanted):
        x = views.unsqueeze(x, d)
    return x


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """Without axes of size 1."""
    wanted = (axis,) if isinstance(axis, int) else tuple(axis)
    if any(x.shape[d] != 1 for d in wanted):
        raise ShapeError(f"squeeze(): axes {wanted} of shape {x.shape}: expected sizes of 1")
    return views.squeeze(x, wanted) if wanted else x


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """Reversed along axes (None: all)."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return views.flip(x, axes)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places."""
    return views.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    return views.permute(x, axes)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return views.mT(x)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated."""
    return copies.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape."""
    if copy is False:
        return views.view(x, shape)
    made = views.reshape(x, shape)
    return made.clone() if copy and made.shares_memory_with(x) else made


def roll(x: Tensor, /, shift: Any, *, axis: Axes = None) -> Tensor:
    """Elements moved along axes."""
    if axis is None and not isinstance(shift, int):
        shift = shift[0]
    if isinstance(shift, int) and isinstance(axis, tuple):
        shift = (shift,) * len(axis)
    return copies.roll(x, shift, axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Side by side along a new axis."""
    return copies.stack(list(arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Side by side along each axis."""
    return copies.tile(x, repetitions) if repetitions else x.clone()


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis."""
    return views.unbind(x, axis)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours along an axis."""
    return _diff(x, n, axis, prepend, append)


# -- positions


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices along an axis at positions."""
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"take() of {x.ndim} axes needs axis=")
        axis = 0
    return indexing.index_select(x, axis, indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements at positions along an axis."""
    return indexing.take_along_dim(x, indices, axis)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Where elements aren't 0, one vector per axis."""
    if x.ndim == 0:
        raise ShapeError("nonzero() takes a tensor with at least one axis")
    return indexing.nonzero(x, as_tuple=True)  # type: ignore[no-any-return]


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """How many elements of the sorted x1 lie before each of x2."""
    return sorting.searchsorted(x1, x2, side=side, sorter=sorter)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """In order along an axis."""
    return sorting.sort(x, axis, descending, stable).values


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places of elements in their order along an axis."""
    return sorting.argsort(x, axis, descending, stable)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is in x2."""
    return sorting.isin(x1, x2, invert=invert)


# -- sets


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Tensor
    inverse_indices: Tensor


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements; each NaN is one."""
    return statistics.unique(x)  # type: ignore[no-any-return]


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements, and how often each occurs."""
    return UniqueCounts(*statistics.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements, and which of them each element is."""
    return UniqueInverse(*statistics.unique(x, return_inverse=True))


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements, where each occurs first, which of them each element is, how often each occurs."""
    values, inverse, counts = statistics.unique(x, return_inverse=True, return_counts=True)
    order = sorting.argsort(views.reshape(x, (x.numel(),)), 0)
    from ..tensor.running import cumsum

    starts: Any = cumsum(counts, 0) - counts
    return UniqueAll(values, indexing.index_select(order, 0, starts), inverse, counts)


# -- products


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product, in the common type."""
    from ..tensor.promotion import result_type

    dtype = result_type(x1.dtype, x2.dtype)
    return linalg.matmul(x1.to(dtype), x2.to(dtype))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Products summed over pairs of axes."""
    from ..tensor.promotion import result_type

    dtype = result_type(x1.dtype, x2.dtype)
    return products.tensordot(x1.to(dtype), x2.to(dtype), axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Products summed along an axis."""
    if x1.dtype.kind == "bool":
        raise DTypeError("vecdot() has no meaning for bool: convert with astype()")
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ShapeError(
            f"vecdot(axis={axis}) of shapes {x1.shape} and {x2.shape}: expected an axis of both, from the end"
        )
    if x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(f"vecdot(): sizes {x1.shape[axis]} and {x2.shape[axis]} along axis {axis}")
    product = x1 * x2
    return _sum(product, axis, dtype=product.dtype)
