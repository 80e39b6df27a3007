"""Indexing: `x[...]` and `x[...] = value`, and the named forms gather, scatter, index_select and their like.

An index consists of ints, slices (also with negative steps), None, `...`, integer tensors or lists, and bool masks.
Ints, slices, None and `...` give views, anything else copies. Reading with a mask waits for its values, since they
decide the result's shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.mode import state
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..runtime.interface import DeviceArray, contiguous_strides
from ..stdlib import compaction
from ..stdlib import index as kernels
from ..stdlib import index_fours as reading
from . import creation, maps
from .along import are_deterministic_algorithms_enabled, combine_lines, put_lines, three_axes
from .arithmetic import where
from .copies import contiguous, copy_, copy_values, fill_values
from .dispatch import is_recording, operation, run_in_place
from .iterate import broadcast_shapes, overlaps_itself
from .repeats import whole, written
from .tensor import Tensor
from .views import _reshape, axis_of, expand, flatten, narrow, permute, reshape, slice_view, unbind, unsqueeze

__all__ = [
    "gather", "get_item", "index_add", "index_select", "masked_select", "nonzero", "scatter", "scatter_add",
    "set_item", "take_along_dim",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """A parsed index: first a slice of each axis, then `shape`, with axes of ints dropped and axes for None inserted,
    then index tensors (and masks), each with the axis of `shape` that it indexes.
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]
    advanced: tuple[tuple[int, Tensor], ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The index tensors."""
        return tuple(tensor for _, tensor in self.advanced)


def _as_index(item: Any, x: Tensor) -> Any:
    """Convert lists and arrays to tensors of integers or bool; return other items unchanged."""
    if isinstance(item, (list, np.ndarray)):
        values = np.asarray(item)
        if values.dtype == np.float64 and values.size == 0:
            values = values.astype(np.int64)
        item = creation.upload(values, dtypes.from_numpy(values.dtype), x.device)
    if isinstance(item, Tensor) and item.dtype.is_float:
        raise DTypeError(f"an index is of integers or bool, found a tensor of {item.dtype!r}")
    return item


def _axes_taken(item: Any) -> int:
    if item is None:
        return 0
    return item.ndim if isinstance(item, Tensor) and item.dtype.kind == "bool" else 1


def parse(x: Tensor, index: Any) -> Plan:
    """Parse an index into a plan. Raises ArgumentError, ShapeError or IndexError if it doesn't fit the tensor."""
    items = [_as_index(i, x) for i in (index if isinstance(index, tuple) else (index,))]
    taken = sum(_axes_taken(i) for i in items if i is not Ellipsis)
    dots = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1 or taken > x.ndim:
        raise ArgumentError(
            f"the index takes {taken} axes{' and several ...' if len(dots) > 1 else ''}, the tensor of shape {x.shape} "
            f"has {x.ndim}"
        )
    fill = [slice(None)] * (x.ndim - taken)
    items = [*items[: dots[0]], *fill, *items[dots[0] + 1 :]] if dots else [*items, *fill]
    starts, sizes, steps, shape = [], [], [], []
    advanced: list[tuple[int, Tensor]] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        count = _axes_taken(item)
        if isinstance(item, Tensor):
            advanced.append((len(shape), item))
            _check_mask(item, x.shape[axis : axis + count])
        for extent in x.shape[axis : axis + count]:
            start, size, step, keep = _axis_slice(item, extent, axis)
            starts.append(start)
            sizes.append(size)
            steps.append(step)
            if keep:
                shape.append(size)
        axis += count
    return Plan(tuple(starts), tuple(sizes), tuple(steps), tuple(shape), tuple(advanced))


def _check_mask(item: Tensor, extents: tuple[int, ...]) -> None:
    if item.dtype.kind == "bool" and item.shape != extents:
        raise ShapeError(f"a mask of shape {item.shape} indexes axes of sizes {extents}: expected the same shape")


def _axis_slice(item: Any, extent: int, axis: int) -> tuple[int, int, int, bool]:
    """Return start, size and step along one axis, and True if the axis is kept."""
    if isinstance(item, Tensor):
        return 0, extent, 1, True
    if isinstance(item, slice):
        start, stop, step = item.indices(extent)
        return start, len(range(start, stop, step)), step, True
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        if not -extent <= item < extent:
            raise IndexError(f"index {item} is out of range for axis {axis} with {extent} elements")
        return int(item) % extent, 1, 1, False
    raise ArgumentError(
        "an index consists of ints, slices, None, ..., and tensors or lists of integers or bool; found "
        f"{type(item).__name__}"
    )


def _basic(x: Tensor, plan: Plan) -> Tensor:
    part = slice_view(x, starts=plan.starts, sizes=plan.sizes, steps=plan.steps)
    return part if part.shape == plan.shape else _reshape(part, shape=plan.shape)


def get_item(x: Tensor, index: Any) -> Tensor:
    """Return `x[index]`."""
    if index.__class__ is Tensor:
        return _get_elements(x, index)
    if index.__class__ is int and not state.special and not is_recording((x,)):
        array = x._array
        if 0 not in array.shape and array.shape and -array.shape[0] <= index < array.shape[0]:
            start = array.offset + index % array.shape[0] * array.strides[0] * array.dtype.itemsize
            return x.view_of(DeviceArray(array.buffer, start, array.dtype, array.shape[1:], array.strides[1:]))
    return _get_planned(x, parse(x, index))


def _get_planned(x: Tensor, plan: Plan) -> Tensor:
    part = _basic(x, plan)
    if not plan.advanced:
        return part
    part, axis, positions = _merged_axis(part, plan.advanced)
    return take(part, dim=axis, index=positions)


@whole("get_item")
def _get_elements(x: Tensor, index: Tensor) -> Tensor:
    """Return `x[index]` for a single index tensor."""
    return _get_planned(x, parse(x, index))


def _merged_axis(part: Tensor, advanced: Sequence[tuple[int, Tensor]]) -> tuple[Tensor, int, Tensor]:
    """Return the tensor with all indexed axes merged into one, that axis, and the indices along it."""
    indices: list[Tensor] = []
    axes: list[int] = []
    for axis, item in advanced:
        for offset, positions in enumerate(_index_tensors(item)):
            axes.append(axis + offset)
            indices.append(positions)
    if len(axes) == 1:
        return part, axes[0], indices[0]
    first = axes[0]
    if axes != list(range(first, first + len(axes))):  # as in PyTorch, the indexed axes then come first
        part = permute(part, [*axes, *(i for i in range(part.ndim) if i not in axes)])
        first = 0
    extents = part.shape[first : first + len(axes)]
    shape = broadcast_shapes(*(i.shape for i in indices))
    linear: Any = None
    for extent, positions in zip(extents, indices, strict=True):
        inside = _nonnegative_indices(positions, extent)
        linear = inside if linear is None else linear * extent + inside
    return flatten(part, first, first + len(axes) - 1), first, expand(linear, shape)


def _nonnegative_indices(positions: Tensor, extent: int) -> Any:
    """Return the indices into one of several indexed axes as nonnegative numbers.

    Those out of range become a large negative number, which stays out of range for the merged axis.
    """
    indices: Any = positions.to(dtypes.i64)
    wrapped = where(indices < 0, indices + extent, indices)
    return where((wrapped >= 0) & (wrapped < extent), wrapped, -(2**40))


def _index_tensors(item: Tensor) -> list[Tensor]:
    """Return an index tensor as a list of itself; for a mask, the indices along each of its axes, which the host waits
    for.
    """
    if item.dtype.kind != "bool":
        return [item]
    return list(nonzero(item, as_tuple=True))


# -- along one axis


@operation("take")
def take(x: Tensor, *, dim: int, index: Tensor) -> Tensor:
    """Replace the axis `dim` by the axes of `index`: y[.., n, ..] = x[.., index[n], ..]."""
    out = creation.allocate((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]), x.dtype, x.device)
    maps.common_device((x, index))
    if 0 not in out.shape:
        positions = _flat_index(index)
        source = three_axes(x._array, dim)
        before, _, after = source.shape
        count = index.numel()
        if after == 1:
            flat = DeviceArray(source.buffer, source.offset, x.dtype, source.shape[:2], source.strides[:2])
            reading.take_last(flat, positions, DeviceArray(out.buffer, 0, x.dtype, (before, count), (count, 1)))
        else:
            target = DeviceArray(out.buffer, 0, x.dtype, (before, count, after), (count * after, after, 1))
            reading.take(source, positions, target)
    return Tensor(out)


def _flat_index(index: Tensor) -> DeviceArray:
    flat = reshape(index, -1)._array
    if flat.dtype is dtypes.i64 or flat.dtype is dtypes.i32:
        return flat
    converted = creation.allocate(flat.shape, dtypes.i64, flat.device)
    copy_values(flat, converted)
    return converted


@whole("index_select")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return the slices of x along an axis that a vector of indices selects."""
    if index.ndim > 1:
        raise ShapeError(f"index_select() takes a vector of positions, found shape {index.shape}")
    if x.ndim == 0:
        return reshape(take(lifted(x), dim=axis_of(dim, 1, "index_select"), index=lifted(index)), ())
    return take(x, dim=axis_of(dim, x.ndim, "index_select"), index=lifted(index))


def _wide_index(index: Tensor, name: str) -> Tensor:
    """Return the index as i64 or i32. Raises DTypeError if it isn't an integer tensor."""
    if not isinstance(index, Tensor) or not index.dtype.is_integer:
        actual = repr(index.dtype) if isinstance(index, Tensor) else type(index).__name__
        raise DTypeError(f"{name}() takes a tensor of integers as positions, found {actual}")
    return index if index.dtype in (dtypes.i64, dtypes.i32) else index.to(dtypes.i64)


def lifted(x: Tensor) -> Tensor:
    """Return a 0-d tensor as a vector of one element; other tensors unchanged."""
    return reshape(x, 1) if x.ndim == 0 else x


def _check_along(x: Tensor, axis: int, index: Tensor, name: str) -> None:
    if index.ndim != x.ndim:
        raise ShapeError(f"{name}(): index has {index.ndim} axes, the tensor {x.ndim}: expected the same number")
    if any(i > e for d, (i, e) in enumerate(zip(index.shape, x.shape, strict=True)) if d != axis):
        raise ShapeError(
            f"{name}(): index of shape {index.shape} is larger than the tensor's {x.shape} off axis {axis}"
        )


def _cropped(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """Return the part of x whose sizes are those of the index along all axes but one."""
    for d in range(x.ndim):
        if d != axis and x.shape[d] != index.shape[d]:
            x = narrow(x, d, 0, index.shape[d])
    return x


@whole("gather")
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Gather elements along an axis: y[.., n, ..] = x[.., index[.., n, ..], ..]. The result has index's shape."""
    del sparse_grad  # gradients are dense
    index = _wide_index(index, "gather")
    if index.numel() == 0:
        return (
            creation.empty(index.shape, dtype=x.dtype, device=x.device)
            if not x.requires_grad
            else _empty_result(x, index)
        )
    if x.ndim == 0 or index.ndim == 0:
        return reshape(gather(lifted(x), dim, lifted(index)), index.shape)
    axis = axis_of(dim, x.ndim, "gather")
    _check_along(x, axis, index, "gather")
    return _gather(_cropped(x, axis, index), dim=axis, index=index)


def _empty_result(x: Tensor, index: Tensor) -> Tensor:
    """Return an empty result that is still connected to x on the tape."""
    return reshape(narrow(reshape(x, (x.numel(),)), 0, 0, 0), index.shape)


@operation("gather")
def _gather(x: Tensor, *, dim: int, index: Tensor) -> Tensor:
    out = creation.allocate(index.shape, x.dtype, maps.common_device((x, index)))
    if 0 not in out.shape:
        views = [three_axes(array, dim) for array in (x._array, index._array, out)]
        if views[2].shape[2] == 1:  # along the last axis
            reading.gather_last(*(_rows(part) for part in views))
        else:
            kernels.gather(*views)
    return Tensor(out)


def _rows(array: DeviceArray) -> DeviceArray:
    """Return (before, along, 1) as (before, along)."""
    return DeviceArray(array.buffer, array.offset, array.dtype, array.shape[:2], array.strides[:2])


@whole("take_along_dim")
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Gather as `gather` does, with x and indices broadcast along the other axes. Without `dim` both are flattened."""
    if dim is None:
        return gather(reshape(x, (x.numel(),)), 0, reshape(indices, (indices.numel(),)))
    axis = axis_of(dim, x.ndim, "take_along_dim")
    shape = broadcast_shapes(
        (*x.shape[:axis], 1, *x.shape[axis + 1 :]), (*indices.shape[:axis], 1, *indices.shape[axis + 1 :])
    )
    broadcast_x = expand(x, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
    return gather(broadcast_x, axis, expand(indices, (*shape[:axis], indices.shape[axis], *shape[axis + 1 :])))


def scattered(x: Tensor, axis: int, index: Tensor, values: Tensor, write: Any, dtype: DType) -> Tensor:
    """Return a copy of x in `dtype` that `write(target, indices, values)` has changed, all three as (before, along,
    after).
    """
    out = creation.allocate(x.shape, dtype, maps.common_device((x, index, values)))
    copy_values(x._array, out)
    view = _cropped(Tensor(out), axis, index)._array
    if 0 in index.shape or 0 in view.shape:
        return Tensor(out)
    target = three_axes(view, axis)
    write(target, three_axes(index._array, axis), three_axes(values._array, axis))
    if target.buffer is not out.buffer:  # no view with three axes exists, so a copy was written
        copy_values(DeviceArray(target.buffer, 0, target.dtype, view.shape, contiguous_strides(view.shape)), view)
    return Tensor(out)


def combined(x: Tensor, axis: int, index: Tensor, values: Tensor, combine: Any) -> Tensor:
    """Return a copy of x combined with values at indices, in order; sums of 16-bit floats accumulate in f32."""
    dtype = maps.arithmetic_type(x.dtype)

    def write(lines: DeviceArray, positions: DeviceArray, source: DeviceArray) -> None:
        combine_lines(lines, positions, source, combine, dtype)

    result_dtype = dtype if x.dtype.is_float else x.dtype
    return scattered(x, axis, index, values, write, result_dtype).to(x.dtype)


def _source(x: Tensor, index: Tensor, source: Any, name: str) -> Tensor:
    if not isinstance(source, Tensor):
        return creation.full(index.shape, source, dtype=x.dtype, device=x.device)
    src: Tensor = source
    if src.dtype is not x.dtype:
        raise DTypeError(f"{name}(): the source holds {src.dtype!r}, the tensor {x.dtype!r}: convert one of them")
    if src.ndim != index.ndim or any(i > s for i, s in zip(index.shape, src.shape, strict=True)):
        raise ShapeError(f"{name}(): index of shape {index.shape} is larger than the source's {src.shape}")
    for d in range(src.ndim):
        if src.shape[d] != index.shape[d]:
            src = narrow(src, d, 0, index.shape[d])
    return src


@operation("scatter_add")
def _scatter_add(x: Tensor, src: Tensor, *, dim: int, index: Tensor) -> Tensor:
    return combined(x, dim, index, src, kernels.add)


@operation("scatter")
def _scatter(x: Tensor, src: Tensor, *, dim: int, index: Tensor) -> Tensor:
    return scattered(x, dim, index, src, put_lines, x.dtype)


def along(name: str, run: Any, x: Tensor, dim: int, index: Tensor, src: Any, **params: Any) -> Tensor:
    """Run a scatter operation with checked operands: 0-d ones become vectors, and the source is cropped to the index's
    shape.
    """
    index = _wide_index(index, name)
    if x.ndim == 0 or index.ndim == 0:
        source = lifted(src) if isinstance(src, Tensor) else src
        return reshape(along(name, run, lifted(x), dim, lifted(index), source, **params), x.shape)
    axis = axis_of(dim, x.ndim, name)
    if index.numel() == 0 and index.ndim != x.ndim:  # PyTorch accepts an empty index of any rank
        return x.clone()
    _check_along(x, axis, index, name)
    return run(x, _source(x, index, src, name), dim=axis, index=index, **params)  # type: ignore[no-any-return]


@whole("scatter_add", also=are_deterministic_algorithms_enabled)
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Return x with src[.., n, ..] added at [.., index[.., n, ..], ..].

    The order of additions is fixed, except that GPUs may add long index lists with atomics (see
    `use_deterministic_algorithms`).
    """
    return along("scatter_add", _scatter_add, x, dim, index, src)


@whole("scatter")
def scatter(
    x: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """Return x with src[.., n, ..] (or the scalar `value`) written at [.., index[.., n, ..], ..].

    Of several writes to one element the last wins. `reduce="add"` or `"multiply"` combines with x's elements instead.
    """
    source = src if value is None else value
    if source is None:
        raise ArgumentError("scatter() needs src= or value=")
    if reduce is None:
        return along("scatter", _scatter, x, dim, index, source)
    names = {"add": "sum", "multiply": "prod"}
    if reduce not in names:
        raise ArgumentError(f'scatter(reduce=...) is "add" or "multiply", found {reduce!r}')
    from .scattering import scatter_reduce

    source_tensor = (
        source if isinstance(source, Tensor) else creation.full(index.shape, source, dtype=x.dtype, device=x.device)
    )
    return scatter_reduce(x, dim, index, source_tensor, names[reduce])


def _lines(shape: tuple[int, ...], axis: int, index: Tensor) -> Tensor:
    """Expand a vector of indices along an axis to that shape, with the vector's size along the axis."""
    column = reshape(index, tuple(-1 if d == axis else 1 for d in range(len(shape))))
    return expand(column, (*shape[:axis], index.numel(), *shape[axis + 1 :]))


@whole("index_add", also=are_deterministic_algorithms_enabled)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Return x with alpha times each slice of source added to the slice that the vector `index` selects."""
    scaled: Any = source if alpha == 1 else source * alpha
    if x.ndim == 0:
        return reshape(index_add(lifted(x), dim, index, lifted(scaled)), ())
    axis = axis_of(dim, x.ndim, "index_add")
    return scatter_add(x, axis, _lines(x.shape, axis, lifted(index)), lifted(scaled))


# -- assignment


def _assign(target: Tensor, value: Any, plan: Plan) -> None:
    """Write a value (a tensor or a scalar) to the elements that the index selects."""
    part = _basic(target, plan)
    if not plan.advanced:
        if isinstance(value, Tensor):
            from .copies import _write

            _write(part, _without_leading_ones(value, part.shape))
        else:
            fill_values(part, value)
        return
    if len(plan.advanced) == 1 and plan.advanced[0][1].dtype.kind == "bool" and _is_single(value):
        _assign_masked(part, value, *plan.advanced[0])
        return
    merged, axis, positions = _merged_axis(part, plan.advanced)
    if merged._array.buffer is not target._array.buffer:
        raise ArgumentError(
            "this assignment through several index tensors needs a copy of the tensor: assign with scatter()"
        )
    shape = (*merged.shape[:axis], *positions.shape, *merged.shape[axis + 1 :])
    value_tensor = (
        value if isinstance(value, Tensor) else creation.full((), value, dtype=target.dtype, device=target.device)
    )
    broadcast_value = expand(_without_leading_ones(value_tensor.to(target.dtype), shape), shape)
    values = (
        flatten(broadcast_value, axis, axis + positions.ndim - 1)
        if positions.ndim
        else unsqueeze(broadcast_value, axis)
    )
    index = _lines(merged.shape, axis, Tensor(_flat_index(positions)))
    put_lines(three_axes(merged._array, axis), three_axes(index._array, axis), three_axes(values._array, axis))


def _is_single(value: Any) -> bool:
    return not isinstance(value, Tensor) or value.numel() == 1


def _assign_masked(part: Tensor, value: Any, axis: int, mask: Tensor) -> None:
    wide_mask = reshape(mask, (*mask.shape, *(1,) * (part.ndim - axis - mask.ndim)))
    scalar = reshape(value, ()) if isinstance(value, Tensor) else value
    compute = part.dtype if part.dtype.kind == "bool" else maps.arithmetic_type(part.dtype)
    maps.write_map(_select(), (wide_mask, scalar, part), part, compute, first=dtypes.boolean)


def _select() -> Any:
    from ..stdlib import functions

    return functions.select


def _without_leading_ones(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the value without leading axes of size 1 that the target lacks."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    return value


def set_item(target: Tensor, index: Any, value: Any) -> None:
    """Assign `target[index] = value`, converted to the target's type; recorded like other in-place operations."""
    plan = parse(target, index)
    if isinstance(value, (list, np.ndarray, np.generic)):
        value = creation.tensor(np.asarray(value), dtype=target.dtype, device=target.device)
    if overlaps_itself(target.shape, target.strides):
        _assign_overlapping(target, plan, value)
        return
    run_in_place("set_item", lambda t, v, *, plan: _assign(t, v, plan), target, (value,), {"plan": plan})


def _assign_overlapping(target: Tensor, plan: Plan, value: Any) -> None:
    """Assign into a tensor whose elements overlap in memory, through the view that the index selects.

    The write changes elements that the index doesn't select, so it is recorded as a write to the view. Raises
    ArgumentError for index tensors.
    """
    part = _basic(target, plan)
    if plan.advanced:
        maps.refuse_overlap(target)
    copy_(part, _without_leading_ones(value, part.shape) if isinstance(value, Tensor) else value)


@operation("put")
def put(x: Tensor, value: Any, *, plan: Plan) -> Tensor:
    """Return a copy of x with `value` written to the elements that the plan selects."""
    out = creation.allocate(x.shape, x.dtype, x.device)
    copy_values(x._array, out)
    result = Tensor(out)
    _assign(result, value, plan)
    return result


def get_planned(x: Tensor, plan: Plan) -> Tensor:
    """Return `x[index]` for a parsed index."""
    part = _basic(x, plan)
    if not plan.advanced:
        return part
    part, axis, positions = _merged_axis(part, plan.advanced)
    return take(part, dim=axis, index=positions)


# -- results whose size depends on values: the host waits for it


@operation("compact")
def compact(x: Tensor, *, flags: Tensor) -> Tensor:
    """Return the elements of a vector whose flags are set; the host waits for their count."""
    dense = contiguous(flags)
    starts, count = _segment_starts(dense)
    out = Tensor(creation.allocate((count,), x.dtype, x.device))
    if count:
        written(_write_values, out, (dense, contiguous(x), starts), {})
    return out


def _write_values(out: Tensor, flags: Tensor, x: Tensor, starts: Tensor) -> None:
    compaction.write_values(flags._array, x._array, starts._array, out._array)


def _write_indices(out: Tensor, flags: Tensor, starts: Tensor) -> None:
    compaction.write_places(flags._array, starts._array, out._array)


@whole("starts_of_segments")
def _segments(flags: Tensor) -> Tensor:
    return Tensor(compaction.starts_of_segments(flags._array))


def _segment_starts(flags: Tensor) -> tuple[Tensor, int]:
    """Return how many nonzero elements precede each segment of a vector, and their total, which the host waits for."""
    if not flags.shape[0]:
        return flags, 0
    starts = _segments(flags.detach())
    array = starts._array
    end = array.offset + (array.shape[0] - 1) * array.dtype.itemsize
    return starts, int(Tensor(DeviceArray(array.buffer, end, array.dtype, (), ())).item())


def _flat(x: Tensor) -> Tensor:
    return reshape(x, (x.numel(),))


def places_of(flags: Tensor) -> Tensor:
    """Return the C-order indices of nonzero elements (i64); the host waits for their count."""
    dense = contiguous(_flat(flags.detach()))
    starts, count = _segment_starts(dense)
    out = Tensor(creation.allocate((count,), dtypes.i64, flags.device))
    if count:
        written(_write_indices, out, (dense, starts), {})
    return out


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """Return the indices of nonzero elements, one row each (`as_tuple`: one vector per axis); the host waits for their
    count.
    """
    linear: Any = places_of(x)
    shape = x.shape if x.ndim or not as_tuple else (1,)
    if len(shape) == 1:
        return (linear,) if as_tuple else unsqueeze(linear, 1)
    indices = creation.empty((linear.shape[0], len(shape)), dtype=dtypes.i64, device=x.device)
    if indices.numel():
        inner, extents = (
            creation.upload(np.array(sizes, np.int64), dtypes.i64, x.device)._array
            for sizes in ([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], shape)
        )
        compaction.coordinates(linear._array, inner, extents, indices._array, x.numel() < 2**32)
    return unbind(indices, 1) if as_tuple else indices


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """Return the elements where the mask (broadcast against x) is true, as a vector; the host waits for their count."""
    if mask.dtype.kind != "bool":
        raise DTypeError(f"masked_select() takes a mask of bool, found {mask.dtype!r}: compare first, as in x > 0")
    shape = broadcast_shapes(x.shape, mask.shape)
    return compact(_flat(expand(x, shape)), flags=_flat(expand(mask, shape)))
