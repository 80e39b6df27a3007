"""Operations that return views: the same memory with another shape, strides or offset.

Nothing is copied unless a function's docstring says so. Views are recorded by autograd, so gradients flow through them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkjit.errors import ArgumentError, ShapeError
from vkjit.runtime.device import DeviceArray, contiguous_strides

from ..dispatch import operation
from ..memory import allocate
from ..op_cache import cached
from ..tensor import Tensor, as_shape
from ..view_cache import cached_view
from . import broadcast, elementwise_launch

__all__ = [
    "broadcast_tensors", "broadcast_to", "chunk", "diagonal", "expand", "expand_as", "flatten", "flip", "mT",
    "moveaxis", "movedim", "narrow", "permute", "ravel", "reshape", "select", "split", "squeeze", "swapaxes", "swapdims", "t",
    "transpose", "unbind", "unflatten", "unsqueeze", "view", "view_as",
]  # fmt: skip

Shape = tuple[int, ...]
_MAX_PARTS = 1 << 20
"""Maximum number of views that one call makes: 1 GiB of Python objects."""


def axis_of(dim: int, rank: int, name: str) -> int:
    """Return the axis that `dim` denotes; negative values count from the end."""
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)):
        raise ArgumentError(f"{name}(): an axis is an int, found {dim!r}")
    if not -rank <= dim < rank:
        raise ShapeError(f"{name}(): axis {dim} of a tensor with {rank} axes: expected {-rank} to {rank - 1}")
    return int(dim) % rank


def strided(x: Tensor, shape: Shape, strides: Shape, offset: int = 0) -> Tensor:
    """Return a view of x's memory with the given layout, without recording it.

    `strides` and `offset`, the distance of the view's first element from x's, are in elements.
    """
    array = x._array
    start = array.offset + offset * array.dtype.itemsize
    return x.view_of(DeviceArray(array.buffer, start, array.dtype, shape, strides))


# -- shape


def _filled_shape(x: Tensor, sizes: Sequence[Any]) -> Shape:
    """Return the target shape of a reshape, with -1 replaced by the size it stands for.

    Raises ShapeError if the number of elements differs from x's.
    """
    flat = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else tuple(sizes)
    unknown = [i for i, s in enumerate(flat) if s == -1]
    # a second -1 isn't left out, so `as_shape` refuses it
    known = as_shape([s for i, s in enumerate(flat) if i not in unknown[:1]])
    if not unknown:
        shape = known
    else:
        known_size = math.prod(known)
        if known_size == 0 or x.numel() % known_size:
            raise ShapeError(f"can't reshape {x.shape} to {flat}: {x.numel()} elements don't fill -1")
        shape = (*known[: unknown[0]], x.numel() // known_size, *known[unknown[0] :])
    if math.prod(shape) != x.numel():
        raise ShapeError(f"can't reshape {x.shape} ({x.numel()} elements) to {shape} ({math.prod(shape)} elements)")
    return shape


def reshaped_strides(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Return the strides of a view with shape `target` of an array with this shape and strides; None if there is none.

    Walks both shapes from the left, and matches groups of the array's axes with groups of the target's axes that have
    as many elements. The array's axes in a group must be contiguous with each other. Axes of size 1 are skipped.
    """
    axes = [(e, s) for e, s in zip(shape, strides, strict=True) if e != 1]
    result = [1] * len(target)
    next_axis = 0  # in `axes`
    # indices of the target's axes that aren't in a group yet
    pending = [i for i, e in enumerate(target) if e != 1]
    while pending:
        if next_axis >= len(axes):
            return None
        extent, stride = axes[next_axis]
        next_axis += 1
        group = [pending.pop(0)]
        size = target[group[0]]
        while size != extent:  # extend the side with fewer elements until both have the same number
            if size < extent:
                if not pending:
                    return None
                group.append(pending.pop(0))
                size *= target[group[-1]]
                continue
            if next_axis >= len(axes) or axes[next_axis - 1][1] != axes[next_axis][0] * axes[next_axis][1]:
                return None
            extent *= axes[next_axis][0]
            stride = axes[next_axis][1]
            next_axis += 1
        for i in reversed(group):
            result[i] = stride
            stride *= target[i]
    return tuple(result)


@operation("reshape")
def _reshape(x: Tensor, *, shape: Shape) -> Tensor:
    """Do the work of `reshape` for a shape that has the same number of elements as x."""
    if x.numel() == 0 or x.is_contiguous():
        return strided(x, shape, contiguous_strides(shape))
    strides = reshaped_strides(x.shape, x.strides, shape)
    if strides is not None:
        return strided(x, shape, strides)
    copied = allocate(x.shape, x.dtype, x.device)
    elementwise_launch.copy_array(x._array, copied)
    return Tensor(DeviceArray(copied.buffer, copied.offset, copied.dtype, shape, contiguous_strides(shape)))


@cached_view
@cached("reshape()")
def reshape(x: Tensor, *shape: Any) -> Tensor:
    """Return x in another shape: a view if the strides allow it, else a copy.

    One size may be -1; it is computed from the others.
    """
    target = _filled_shape(x, shape)
    return x if target == x.shape else _reshape(x, shape=target)


@cached_view
def view(x: Tensor, *shape: Any) -> Tensor:
    """Return a view in another shape. Raises ShapeError if the strides don't allow it (see `reshape`)."""
    target = _filled_shape(x, shape)
    if x.numel() and not x.is_contiguous() and reshaped_strides(x.shape, x.strides, target) is None:
        raise ShapeError(
            f"a tensor of shape {x.shape} with strides {x.strides} has no view of shape {target}: use .reshape(), "
            "which copies"
        )
    return _reshape(x, shape=target)


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """Return a view in other's shape."""
    return view(x, other.shape)


def ravel(x: Tensor) -> Tensor:
    """Return x with all axes merged into one: a view if the strides allow it, else a copy."""
    return reshape(x, -1) if x.numel() else reshape(x, 0)


@cached_view
@cached("flatten()")
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge the axes from start_dim to end_dim (inclusive) into one."""
    if x.ndim == 0:
        return reshape(x, 1)
    first, last = axis_of(start_dim, x.ndim, "flatten"), axis_of(end_dim, x.ndim, "flatten")
    if first > last:
        raise ShapeError(f"flatten(): start_dim {start_dim} comes after end_dim {end_dim}")
    merged = math.prod(x.shape[first : last + 1])
    return reshape(x, (*x.shape[:first], merged, *x.shape[last + 1 :]))


@cached_view
@cached("unflatten()")
def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Split an axis into several; one size may be -1."""
    axis = axis_of(dim, x.ndim, "unflatten")
    known_product = -math.prod(sizes)  # the product of the other sizes, if one is -1
    filled = [x.shape[axis] // known_product if s == -1 and known_product > 0 else s for s in sizes]
    if math.prod(filled) != x.shape[axis]:
        raise ShapeError(f"unflatten(): axis {dim} has {x.shape[axis]} elements, which doesn't give {tuple(sizes)}")
    return reshape(x, (*x.shape[:axis], *filled, *x.shape[axis + 1 :]))


@cached_view
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """Insert an axis of size 1, which becomes axis `dim` of the result."""
    axis = axis_of(dim, x.ndim + 1, "unsqueeze")
    return _reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


@cached_view
def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Remove all axes of size 1, or only those in `dim`; axes in `dim` of another size are kept."""
    if dim is None:
        chosen = set(range(x.ndim))
    else:
        dims = (dim,) if isinstance(dim, (int, np.integer)) else tuple(dim)
        # `x.ndim or 1`, here and below: as in PyTorch, a 0-d tensor counts as having one axis
        chosen = {axis_of(d, x.ndim or 1, "squeeze") for d in dims}
    return _reshape(x, shape=tuple(e for i, e in enumerate(x.shape) if e != 1 or i not in chosen))


# -- axis order


@operation("permute")
def _permute(x: Tensor, *, order: Shape) -> Tensor:
    return strided(x, tuple(x.shape[i] for i in order), tuple(x.strides[i] for i in order))


def _listed(axes: tuple[Any, ...], dims: Any) -> tuple[Any, ...]:
    """Return the axes that a caller gave as separate arguments, as one sequence, or by the keyword `dims`."""
    if dims is not None:
        axes = (dims,) if isinstance(dims, (tuple, list)) else ((dims,),)
    return tuple(axes[0]) if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes


@cached_view
def permute(x: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """Reorder the axes: `permute(x, 2, 0, 1)`."""
    flat = _listed(axes, dims)
    order = tuple(axis_of(d, x.ndim, "permute") for d in flat)
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"permute({flat}) of a tensor with {x.ndim} axes: name each axis once")
    return _permute(x, order=order)


@cached_view
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swap two axes."""
    order = list(range(x.ndim))
    a, b = axis_of(dim0, x.ndim or 1, "transpose"), axis_of(dim1, x.ndim or 1, "transpose")
    if x.ndim == 0:
        return x
    order[a], order[b] = order[b], order[a]
    return _permute(x, order=tuple(order))


swapaxes = swapdims = transpose


@cached_view
def t(x: Tensor) -> Tensor:
    """Transpose a matrix; vectors and 0-d tensors are returned as they are."""
    if x.ndim > 2:
        raise ShapeError(f"t() takes a matrix, found shape {x.shape}: use .mT or transpose()")
    return x if x.ndim < 2 else transpose(x, 0, 1)


@cached_view
def mT(x: Tensor) -> Tensor:
    """Swap the last two axes."""
    if x.ndim < 2:
        raise ShapeError(f"mT needs at least 2 axes, found shape {x.shape}")
    return transpose(x, -2, -1)


@cached_view
def movedim(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Move axis source[i] to position destination[i] for all i; the other axes keep their order."""
    sources = [axis_of(d, x.ndim, "movedim") for d in ((source,) if isinstance(source, int) else source)]
    targets = [axis_of(d, x.ndim, "movedim") for d in ((destination,) if isinstance(destination, int) else destination)]
    if len(sources) != len(targets) or len(set(sources)) != len(sources) or len(set(targets)) != len(targets):
        raise ShapeError(f"movedim({source}, {destination}): expected as many destinations as sources, each axis once")
    remaining = iter([i for i in range(x.ndim) if i not in sources])
    source_at = dict(zip(targets, sources, strict=True))  # source axis by its position in the result
    return permute(x, [source_at[i] if i in source_at else next(remaining) for i in range(x.ndim)])


moveaxis = movedim


# -- broadcasting


@operation("expand")
def _expand(x: Tensor, *, shape: Shape) -> Tensor:
    return x.view_of(broadcast.expand(x._array, shape))


@cached_view
def expand(x: Tensor, *shape: Any) -> Tensor:
    """Expand axes of size 1 and add leading axes, without copying; -1 keeps a size."""
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    missing = len(sizes) - x.ndim
    if missing < 0:
        raise ShapeError(f"a tensor of shape {x.shape} can't be expanded to {sizes}: that has fewer axes")
    filled = [x.shape[i - missing] if s == -1 and i >= missing else s for i, s in enumerate(sizes)]
    # a list of one size is wrapped, since `as_shape` takes a single item to be the whole shape if it is a sequence
    target = as_shape(filled if len(filled) != 1 else [filled])
    return x if target == x.shape else _expand(x, shape=target)


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return x broadcast to the given shape, as a view."""
    return expand(x, tuple(shape))


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """Return x broadcast to other's shape, as a view."""
    return expand(x, other.shape)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Expand all tensors to their common broadcast shape."""
    shape = broadcast.broadcast_shapes(*(x.shape for x in tensors))
    return tuple(expand(x, shape) for x in tensors)


# -- parts


@operation("slice")
def slice_view(x: Tensor, *, starts: Shape, sizes: Shape, steps: Shape) -> Tensor:
    """Return a view of a part of x: sizes[i] elements along each axis i, from starts[i] in steps of steps[i]."""
    # the offset of the first element; an empty view has none, and `starts` may lie past the end
    offset = sum(start * stride for start, stride in zip(starts, x.strides, strict=True)) if 0 not in sizes else 0
    return strided(x, sizes, tuple(step * stride for step, stride in zip(steps, x.strides, strict=True)), offset)


def _part(x: Tensor, axis: int, start: int, size: int, step: int = 1) -> Tensor:
    """Return a view of `size` elements along one axis, from `start` in steps of `step`."""
    starts, sizes, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], sizes[axis], steps[axis] = start, size, step
    return slice_view(x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


@cached_view
def narrow(x: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """Return `length` elements from `start` along an axis."""
    axis = axis_of(dim, x.ndim, "narrow")
    start = int(start.item()) if isinstance(start, Tensor) else start
    extent = x.shape[axis]
    first = start + extent if start < 0 else start
    if not 0 <= first <= extent or not 0 <= length <= extent - first:
        raise ShapeError(f"narrow({dim}, {start}, {length}): axis {dim} has {extent} elements")
    return _part(x, axis, first, length)


@cached_view
def select(x: Tensor, dim: int, index: int) -> Tensor:
    """Return the slice at one index of an axis, without that axis."""
    axis = axis_of(dim, x.ndim, "select")
    if not -x.shape[axis] <= index < x.shape[axis]:
        raise ArgumentError(f"index {index} is out of range for axis {dim} with {x.shape[axis]} elements")
    part = _part(x, axis, index % x.shape[axis], 1)
    return _reshape(part, shape=(*x.shape[:axis], *x.shape[axis + 1 :]))


@cached("flip()")
def flip(x: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """Reverse the elements along axes; a copy, as in PyTorch (`x[::-1]` is a view with negative strides)."""
    return flip_view(x, *axes, dims=dims).clone()


def flip_view(x: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """Reverse the elements along axes, as a view (unlike `flip`)."""
    flat = _listed(axes, dims)
    named = [axis_of(dim, x.ndim or 1, "flip") for dim in flat]
    if len(set(named)) < len(named):
        raise ArgumentError(f"flip() takes each axis once, found {flat}")
    for axis in named if x.ndim else ():
        x = _part(x, axis, max(x.shape[axis] - 1, 0), x.shape[axis], -1)
    return x


def check_part_count(count: int, name: str) -> None:
    """Raise ArgumentError if the function `name` would make more views than memory has room for."""
    if count > _MAX_PARTS:
        raise ArgumentError(
            f"{name}() makes at most {_MAX_PARTS} tensors, found {count}: take larger parts, or use .numpy()"
        )


@cached_view
def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return the slices along an axis, without that axis."""
    axis = axis_of(dim, x.ndim, "unbind")
    check_part_count(x.shape[axis], "unbind")
    return tuple(select(x, axis, i) for i in range(x.shape[axis]))


@cached_view
def split(x: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Split an axis into parts of one size (the last part may be smaller), or into parts of the sizes in a list."""
    axis = axis_of(dim, x.ndim, "split")
    extent = x.shape[axis]
    if isinstance(split_size_or_sections, (int, np.integer)):
        size = int(split_size_or_sections)
        if size <= 0:
            raise ArgumentError(f"split() takes a size of at least 1, found {size}")
        check_part_count(-(-extent // size), "split")
        sections = [min(size, extent - start) for start in range(0, extent, size)] or [0]
    else:
        sections = [int(s) for s in split_size_or_sections]
        if sum(sections) != extent or any(s < 0 for s in sections):
            raise ShapeError(f"split({sections}): the sizes sum to {sum(sections)}, axis {dim} has {extent} elements")
    offsets = np.cumsum([0, *sections])  # of the parts, and at last the end of the axis, which `zip` drops
    return tuple(_part(x, axis, int(start), size) for start, size in zip(offsets, sections, strict=False))


@cached_view
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Split an axis into at most `chunks` equal parts (the last may be smaller).

    An axis of size 0 yields exactly `chunks` empty parts.
    """
    if chunks < 1:
        raise ArgumentError(f"chunk() takes at least 1 part, found {chunks}")
    extent = x.shape[axis_of(dim, x.ndim, "chunk")]
    check_part_count(min(chunks, extent or chunks), "chunk")
    return split(x, -(-extent // chunks) if extent else [0] * chunks, dim)


@operation("diagonal")
def _diagonal(x: Tensor, *, offset: int) -> Tensor:
    """Return a diagonal of the last two axes, as the last axis; see `diagonal`."""
    rows, columns = x.shape[-2:]
    row, column = max(-offset, 0), max(offset, 0)  # indices of the diagonal's first element
    size = max(0, min(rows - row, columns - column))
    start = row * x.strides[-2] + column * x.strides[-1] if size else 0
    return strided(x, (*x.shape[:-2], size), (*x.strides[:-2], x.strides[-2] + x.strides[-1]), start)


@cached_view
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return the diagonal of the matrices along two axes, as the last axis.

    offset > 0 selects a diagonal above the main one, offset < 0 one below.
    """
    first, second = axis_of(dim1, x.ndim, "diagonal"), axis_of(dim2, x.ndim, "diagonal")
    if first == second:
        raise ShapeError(f"diagonal(): dim1 and dim2 are the same axis {dim1}")
    return _diagonal(movedim(x, (first, second), (-2, -1)), offset=offset)
