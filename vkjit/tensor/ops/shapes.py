"""Shape operations beyond those in `views`: rank, splitting and stacking, windows, diagonals, and index grids.

Results are views where possible, else new tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, combinations as choose, combinations_with_replacement as choose_again
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError, shown

from ..argument_views import own_result
from ..dispatch import operation
from ..memory import allocate, as_int, check_fits
from ..promotion import promote_types
from ..tensor import Tensor, as_shape
from . import broadcast, creation
from .broadcast import broadcast_shapes as common_shape
from .compaction import nonzero
from .copies import cat, stack
from .gather import index_select
from .triangles import meshgrid, pad
from .views import (
    axis_of,
    check_part_count,
    diagonal,
    flip,
    movedim,
    narrow,
    reshape,
    split,
    strided,
    transpose,
    unsqueeze,
)

__all__ = [
    "argwhere", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "cartesian_prod",
    "column_stack", "combinations", "constant_pad_nd", "diag", "diag_embed", "diagflat", "diagonal_scatter", "dsplit",
    "dstack", "fliplr", "flipud", "hsplit", "reshape_as", "rot90", "select_scatter", "slice_scatter",
    "split_with_sizes", "sum_to_size", "tensor_split", "tril_indices", "triu_indices", "unfold", "unravel_index",
    "vsplit",
]  # fmt: skip


_MAX_COMBINED = 1 << 25
"""Maximum number of elements of `combinations`, whose indices Python computes one by one."""

# -- rank


def _each(name: str, tensors: tuple[Any, ...], add_axes: Any) -> Any:
    """Apply the function `add_axes` to each tensor, for the function `name`.

    `tensors` are the arguments of that function: several tensors, or one tensor or sequence. Returns a tensor for a
    single tensor, else a tuple.
    """
    flat = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if not all(isinstance(x, Tensor) for x in flat):
        raise ArgumentError(f"{name}() takes tensors")
    results = tuple(add_axes(x) for x in flat)
    return results[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else results


def _at_least_2(x: Tensor) -> Tensor:
    return reshape(x, (1, x.numel())) if x.ndim < 2 else x


def _at_least_3(x: Tensor) -> Tensor:
    return reshape(x, (1, x.numel(), 1)) if x.ndim < 2 else unsqueeze(x, 2) if x.ndim == 2 else x


def atleast_1d(*tensors: Any) -> Any:
    """Return tensors with at least one axis; 0-d tensors become vectors.

    The result is a tensor for a single tensor, a tuple for several or a list.
    """
    return _each("atleast_1d", tensors, lambda x: reshape(x, 1) if x.ndim == 0 else x)


def atleast_2d(*tensors: Any) -> Any:
    """Return tensors with at least two axes; vectors become rows."""
    return _each("atleast_2d", tensors, _at_least_2)


def atleast_3d(*tensors: Any) -> Any:
    """Return tensors with at least three axes: (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1)."""
    return _each("atleast_3d", tensors, _at_least_3)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the common broadcast shape. Raises ShapeError if there is none."""
    return common_shape(*(as_shape((s,)) for s in shapes))


def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """Return x in other's shape."""
    return reshape(x, other.shape)


def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    """Return x summed to the given shape, which must broadcast to x's shape.

    The sum is taken over the axes that broadcasting adds or stretches.
    """
    from .reductions import sum

    target = as_shape(size)
    if not target:
        return sum(x)
    missing = x.ndim - len(target)
    if missing < 0 or broadcast.broadcast_shapes(target, x.shape) != x.shape:
        raise ShapeError(f"sum_to_size(): a tensor of shape {target} doesn't broadcast to {x.shape}")
    axes = [*range(missing), *(i + missing for i, e in enumerate(target) if e == 1 and x.shape[i + missing] != 1)]
    return reshape(sum(x, axes, True), target) if target != x.shape else own_result(x)


# -- stacking and splitting


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate along axis 2, after `atleast_3d`."""
    return cat([_at_least_3(x) for x in tensors], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate along axis 1, with vectors as columns."""
    return cat([reshape(x, (x.numel(), 1)) if x.ndim < 2 else x for x in tensors], 1)


def split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Split an axis into parts of the given sizes."""
    return split(x, list(split_sizes), dim)


def tensor_split(x: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Split an axis into a number of parts, or at the given indices.

    If the parts can't be equal, the first ones are larger by 1.
    """
    axis = axis_of(dim, x.ndim, "tensor_split")
    extent = x.shape[axis]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, (int, np.integer)):
        parts = int(indices_or_sections)
        if parts < 1:
            raise ArgumentError(f"tensor_split() takes at least 1 part, found {parts}")
        check_part_count(parts, "tensor_split")
        small, larger = divmod(extent, parts)
        sizes = [small + 1] * larger + [small] * (parts - larger)
        return split(x, sizes, axis)
    starts = [0, *(int(i) for i in indices_or_sections)]
    bounds = [slice(a, b).indices(extent)[:2] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return tuple(narrow(x, axis, a, max(b - a, 0)) for a, b in bounds)


def _split_along(name: str, x: Tensor, sections: Any, axis: int, min_rank: int) -> tuple[Tensor, ...]:
    """Split an axis into `sections` equal parts, or at a list of indices; x must have at least `min_rank` axes."""
    if x.ndim < min_rank:
        raise ShapeError(f"{name}() takes a tensor with at least {min_rank} axes, found shape {x.shape}")
    if isinstance(sections, int) and (sections < 1 or x.shape[axis] % sections):
        raise ShapeError(f"{name}({sections}): the {x.shape[axis]} elements of axis {axis} don't divide by it")
    return tensor_split(x, sections, axis)


def hsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Split along axis 1 (axis 0 for vectors), into equal parts or at indices."""
    return _split_along("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1, 1)


def vsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Split along axis 0, into equal parts or at indices."""
    return _split_along("vsplit", x, indices_or_sections, 0, 2)


def dsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Split along axis 2, into equal parts or at indices."""
    return _split_along("dsplit", x, indices_or_sections, 2, 3)


# -- reordering


def fliplr(x: Tensor) -> Tensor:
    """Reverse axis 1."""
    if x.ndim < 2:
        raise ShapeError(f"fliplr() takes a tensor with at least 2 axes, found shape {x.shape}")
    return flip(x, 1)


def flipud(x: Tensor) -> Tensor:
    """Reverse axis 0."""
    return flip(x, 0)


def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate by k times 90 degrees in the plane of two axes, from the first towards the second."""
    if len(dims) != 2 or x.ndim < 2:
        raise ShapeError(f"rot90() turns the plane of two axes, found dims {tuple(dims)} of shape {x.shape}")
    a, b = (axis_of(d, x.ndim, "rot90") for d in dims)
    if a == b:
        raise ShapeError(f"rot90(): dims {tuple(dims)} name one axis twice")
    turns = as_int(k, "rot90(k=)") % 4
    if turns == 0:
        return x.clone()
    if turns == 2:
        return flip(x, a, b)
    return transpose(flip(x, b), a, b) if turns == 1 else flip(transpose(x, a, b), b)


# -- windows


@operation("windows")
def _windows(x: Tensor, *, dim: int, size: int, step: int) -> Tensor:
    """Return the view of `unfold`, for checked parameters."""
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return strided(x, shape, strides)


def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Return a view of all windows of `size` elements along an axis, with starts `step` apart.

    In the result, the axis has one index per window, and a new last axis has the elements of each window.
    """
    if x.ndim == 0:
        return narrow(reshape(x, 1), 0, 0, size)
    axis = axis_of(dimension, x.ndim, "unfold")
    if not 0 <= size <= x.shape[axis] or step < 1:
        raise ShapeError(
            f"unfold(): windows of {size} in steps of {step} along axis {axis} with {x.shape[axis]} elements"
        )
    # a larger step would do the same, but its product with the stride may exceed 64 bits
    return _windows(x, dim=axis, size=int(size), step=min(int(step), x.shape[axis] + 1))


# -- diagonals


def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return matrices with the elements of x's last axis on a diagonal and zeros elsewhere.

    `dim1` and `dim2` are the axes of the matrices in the result; `offset` as for `diagonal`.
    """
    if x.ndim == 0:
        raise ShapeError("diag_embed() takes a tensor with at least 1 axis")
    size = x.shape[-1] + abs(offset)
    a, b = axis_of(dim1, x.ndim + 1, "diag_embed"), axis_of(dim2, x.ndim + 1, "diag_embed")
    if a == b:
        raise ShapeError(f"diag_embed(): dim1 and dim2 are the same axis {dim1}")
    zeros = creation.zeros((*x.shape[:-1], size, size), dtype=x.dtype, device=x.device)
    return movedim(diagonal_scatter(zeros, x, offset, -2, -1), (-2, -1), (a, b))


def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return a matrix with a vector on its diagonal, or a copy of a matrix's diagonal."""
    if x.ndim == 1:
        return diag_embed(x, diagonal)
    if x.ndim != 2:
        raise ShapeError(f"diag() takes a vector or a matrix, found shape {x.shape}")
    return _diagonal(x, diagonal).clone()


def _diagonal(x: Tensor, offset: int) -> Tensor:
    """Return `diagonal(x, offset)`, for `diag`, whose parameter `diagonal` hides that function."""
    return diagonal(x, offset)


def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """Return a matrix with x's flattened elements on a diagonal."""
    return diag_embed(reshape(x, (x.numel(),)), offset)


# -- replacing parts


@operation("replace_part")
def replace_part(x: Tensor, src: Tensor, *, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> Tensor:
    """Return a copy of x with src written to a strided part of it.

    `shape`, `strides` and `start` (the offset of the first element) describe the part in elements, as if x were
    contiguous.
    """
    from .copies import copy_values

    out = allocate(x.shape, x.dtype, x.device)
    copy_values(x._array, out)
    if src.numel():
        copy_values(src._array, strided(Tensor(out), shape, strides, start)._array)
    return Tensor(out)


def _replaced(name: str, x: Tensor, src: Tensor, take: Any) -> Tensor:
    """Return a copy of x with a part replaced by src, for the function `name`.

    `take(t)` returns that part of a tensor t of x's shape as a view.
    """
    from vkjit.runtime.device import DeviceArray, contiguous_strides

    # x's buffer as if x were contiguous: only the layout of the part is used, nothing is read
    plain = Tensor(DeviceArray(x._array.buffer, 0, x.dtype, x.shape, contiguous_strides(x.shape)))
    part = take(plain)
    if src.shape != part.shape:
        raise ShapeError(f"{name}() replaces a part of shape {part.shape}, the source has shape {src.shape}")
    start = part._array.offset // x.dtype.itemsize
    return replace_part(x, src, shape=part.shape, strides=part.strides, start=start)


def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy of x with a diagonal replaced by src."""
    return _replaced("diagonal_scatter", x, src, lambda c: diagonal(c, offset, dim1, dim2))


def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Return a copy of x with the slice at one index of an axis replaced by src."""
    return _replaced("select_scatter", x, src, lambda c: c.select(dim, index))


def slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """Return a copy of x with the elements start:end:step of an axis replaced by src."""
    axis = axis_of(dim, x.ndim, "slice_scatter")
    index = (slice(None),) * axis + (slice(start, end, step),)
    return _replaced("slice_scatter", x, src, lambda c: c[index])


# -- grids and indices


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return the Cartesian product of vectors, one combination per row."""
    for x in tensors:
        if x.ndim != 1:
            raise ShapeError(f"cartesian_prod() takes vectors, found shape {x.shape}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(g, (g.numel(),)) for g in meshgrid(*tensors)], 1)


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all combinations of r elements of a vector, in order, one per row."""
    if x.ndim != 1:
        raise ShapeError(f"combinations() takes a vector, found shape {x.shape}")
    if as_int(r, "combinations(r=)", 0) == 0:
        return creation.empty(0, dtype=x.dtype, device=x.device)
    if not with_replacement and r > x.numel():
        return creation.empty(0, r, dtype=x.dtype, device=x.device)
    total = x.numel() + (r - 1 if with_replacement else 0)
    # those of more than 40 elements out of at least twice as many are more than 2**40
    rows = math.comb(total, r) if min(r, total - r) <= 40 else 1 << 40
    if rows * r > _MAX_COMBINED:
        raise ArgumentError(
            f"combinations() of {x.numel()} elements, {shown(r)} at a time, has more than {_MAX_COMBINED} elements: take fewer"
        )
    pick = choose_again if with_replacement else choose
    choices = np.fromiter(chain.from_iterable(pick(range(x.numel()), r)), np.int64, rows * r)
    return reshape(index_select(x, 0, creation.upload(choices, dtypes.i64, x.device)), (rows, r))


def block_diag(*tensors: Tensor) -> Tensor:
    """Return a block-diagonal matrix of the given matrices; vectors count as rows."""
    if not tensors:
        raise ArgumentError("block_diag() takes at least one tensor, found none")
    blocks = [_at_least_2(x) for x in tensors]
    dtype = blocks[0].dtype
    for block in blocks[1:]:
        dtype = promote_types(dtype, block.dtype)
    width = builtin_sum(b.shape[1] for b in blocks)
    rows, left = [], 0
    for block in blocks:
        rows.append(constant_pad_nd(block.to(dtype), (left, width - left - block.shape[1]), 0))
        left += block.shape[1]
    return cat(rows, 0)


builtin_sum = sum  # for `block_diag`; in other functions of this module, `sum` is the reduction of tensors


def _triangle_indices(name: str, row: int, col: int, offset: int, dtype: Any, device: Any) -> Tensor:
    """Return the indices (2, n) of one triangle, in C order, for `tril_indices` or `triu_indices` (`name`)."""
    rows, columns = as_int(row, f"{name}(row=)", 0), as_int(col, f"{name}(col=)", 0)
    last = max(
        -rows, min(columns, as_int(offset, f"{name}(offset=)"))
    )  # beyond that all or none of the elements are meant
    lower = name == "tril_indices"

    def below(count: int) -> int:
        """Return the number of elements in the first `count` rows of 1, 2, ... elements, at most `columns` each."""
        full = max(count - columns, 0)
        return max(count - full, 0) * (count - full + 1) // 2 + full * columns

    in_lower = below(rows + last + lower - 1) - below(last + lower - 1)
    out = creation.empty(2, in_lower if lower else rows * columns - in_lower, dtype=dtype, device=device)
    if not out.numel():
        return out
    bounds = np.clip(np.arange(rows) + (last + lower), 0, columns)  # of each row: the end of its lower part
    starts, counts = (0, bounds) if lower else (bounds, columns - bounds)
    skipped = np.cumsum(counts) - counts - starts
    indices = np.stack([np.repeat(np.arange(rows), counts), np.arange(out.shape[1]) - np.repeat(skipped, counts)])
    check_fits(indices.max(), out.dtype)
    return creation.upload(indices, out.dtype, device)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = dtypes.i64, device: Any = None) -> Tensor:
    """Return row and column indices (2, n) of the elements on and below a diagonal of a row by col matrix.

    `offset` is the offset of that diagonal above the main one (negative: below).
    """
    return _triangle_indices("tril_indices", row, col, offset, dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = dtypes.i64, device: Any = None) -> Tensor:
    """Return row and column indices (2, n) of the elements on and above a diagonal of a row by col matrix.

    `offset` is the offset of that diagonal above the main one (negative: below).
    """
    return _triangle_indices("triu_indices", row, col, offset, dtype, device)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Convert flat (C-order) indices of a tensor with the given shape to one index tensor per axis."""
    sizes = as_shape((shape,)) if isinstance(shape, int) else as_shape(shape)
    if indices.dtype.is_float or indices.dtype.kind == "bool":
        raise ArgumentError(f"unravel_index() takes integers, found {indices.dtype!r}")
    indices, results = indices.to(dtypes.i64), []
    for axis, size in enumerate(sizes):
        inner = math.prod(sizes[axis + 1 :])  # 0 if a later axis is empty; then there are no valid indices
        results.append((indices // inner) % size if inner else indices)
    return tuple(results)


def argwhere(x: Tensor) -> Tensor:
    """Return the indices of nonzero elements, one row each; waits for the device."""
    return nonzero(x)  # type: ignore[no-any-return]


def constant_pad_nd(x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """Pad the last axes of x with a constant: `vk.pad` in mode "constant"."""
    return _pad(x, pad, value=value)


_pad = pad  # for `constant_pad_nd`, whose parameter `pad` hides the function
