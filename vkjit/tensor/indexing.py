"""Indexing: `x[...]` and `x[...] = value`, and the named forms gather, scatter and index_select.

Enters: ints, slices (steps may be negative), None, `...`, integer tensors or lists, masks of bool. Leaves: views where
only ints, slices, None and `...` are used, else copies. A mask that reads needs its values on the host, and waits for
them.
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
    """An index taken apart: first a slice along each axis, then the shape with ints dropped and Nones put in, then
    tensors of indices (and masks), each with the axis of that shape that it indexes.
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]
    advanced: tuple[tuple[int, Tensor], ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of indices."""
        return tuple(tensor for _, tensor in self.advanced)


def _as_index(item: Any, x: Tensor) -> Any:
    """Lists and arrays as tensors of integers or bool, other items as they are."""
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
    """The plan of an index; ArgumentError where it doesn't fit the tensor."""
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
            start, size, step, keep = _along(item, extent, axis)
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


def _along(item: Any, extent: int, axis: int) -> tuple[int, int, int, bool]:
    """Start, size and step along one axis, and whether the axis stays."""
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
    """`x[index]`."""
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
    part, axis, positions = _one_axis(part, plan.advanced)
    return take(part, dim=axis, index=positions)


@whole("get_item")
def _get_elements(x: Tensor, index: Tensor) -> Tensor:
    """`x[index]` of a tensor alone."""
    return _get_planned(x, parse(x, index))


def _one_axis(part: Tensor, advanced: Sequence[tuple[int, Tensor]]) -> tuple[Tensor, int, Tensor]:
    """The tensor with all indexed axes merged into one, that axis, and the positions along it."""
    indices: list[Tensor] = []
    axes: list[int] = []
    for axis, item in advanced:
        for offset, positions in enumerate(_positions(item)):
            axes.append(axis + offset)
            indices.append(positions)
    if len(axes) == 1:
        return part, axes[0], indices[0]
    first = axes[0]
    if axes != list(range(first, first + len(axes))):  # PyTorch puts the result's axes in front then
        part = permute(part, [*axes, *(i for i in range(part.ndim) if i not in axes)])
        first = 0
    extents = part.shape[first : first + len(axes)]
    shape = broadcast_shapes(*(i.shape for i in indices))
    linear: Any = None
    for extent, positions in zip(extents, indices, strict=True):
        inside = _checked_positions(positions, extent)
        linear = inside if linear is None else linear * extent + inside
    return flatten(part, first, first + len(axes) - 1), first, expand(linear, shape)


def _checked_positions(positions: Tensor, extent: int) -> Any:
    """Positions of one of several indexed axes as numbers of at least 0; far outside all axes where out of range."""
    wide: Any = positions.to(dtypes.i64)
    wrapped = where(wide < 0, wide + extent, wide)
    return where((wrapped >= 0) & (wrapped < extent), wrapped, -(2**40))


def _positions(item: Tensor) -> list[Tensor]:
    """An index tensor itself; of a mask the positions along each of its axes, for which the host waits."""
    if item.dtype.kind != "bool":
        return [item]
    return list(nonzero(item, as_tuple=True))


# -- along one axis


@operation("take")
def take(x: Tensor, *, dim: int, index: Tensor) -> Tensor:
    """The axis `dim` replaced by the axes of `index`: y[.., n, ..] = x[.., index[n], ..]."""
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
    """The slices of x along an axis that a vector of positions names."""
    if index.ndim > 1:
        raise ShapeError(f"index_select() takes a vector of positions, found shape {index.shape}")
    if x.ndim == 0:
        return reshape(take(lifted(x), dim=axis_of(dim, 1, "index_select"), index=lifted(index)), ())
    return take(x, dim=axis_of(dim, x.ndim, "index_select"), index=lifted(index))


def _wide_index(index: Tensor, name: str) -> Tensor:
    """Positions of i64 or i32, others converted."""
    if not isinstance(index, Tensor) or not index.dtype.is_integer:
        found = repr(index.dtype) if isinstance(index, Tensor) else type(index).__name__
        raise DTypeError(f"{name}() takes a tensor of integers as positions, found {found}")
    return index if index.dtype in (dtypes.i64, dtypes.i32) else index.to(dtypes.i64)


def lifted(x: Tensor) -> Tensor:
    """A 0-d tensor as a vector of one element."""
    return reshape(x, 1) if x.ndim == 0 else x


def _check_along(x: Tensor, axis: int, index: Tensor, name: str) -> None:
    if index.ndim != x.ndim:
        raise ShapeError(f"{name}(): index has {index.ndim} axes, the tensor {x.ndim}: expected the same number")
    if any(i > e for d, (i, e) in enumerate(zip(index.shape, x.shape, strict=True)) if d != axis):
        raise ShapeError(
            f"{name}(): index of shape {index.shape} is larger than the tensor's {x.shape} off axis {axis}"
        )


def _cropped(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """x as large as the index along all axes but one."""
    for d in range(x.ndim):
        if d != axis and x.shape[d] != index.shape[d]:
            x = narrow(x, d, 0, index.shape[d])
    return x


@whole("gather")
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """y[.., n, ..] = x[.., index[.., n, ..], ..] along an axis; the result has index's shape."""
    del sparse_grad  # gradients are dense
    index = _wide_index(index, "gather")
    if index.numel() == 0:
        return (
            creation.empty(index.shape, dtype=x.dtype, device=x.device) if not x.requires_grad else _nothing(x, index)
        )
    if x.ndim == 0 or index.ndim == 0:
        return reshape(gather(lifted(x), dim, lifted(index)), index.shape)
    axis = axis_of(dim, x.ndim, "gather")
    _check_along(x, axis, index, "gather")
    return _gather(_cropped(x, axis, index), dim=axis, index=index)


def _nothing(x: Tensor, index: Tensor) -> Tensor:
    """An empty result that still depends on x."""
    return reshape(narrow(reshape(x, (x.numel(),)), 0, 0, 0), index.shape)


@operation("gather")
def _gather(x: Tensor, *, dim: int, index: Tensor) -> Tensor:
    out = creation.allocate(index.shape, x.dtype, maps.common_device((x, index)))
    if 0 not in out.shape:
        parts = [three_axes(array, dim) for array in (x._array, index._array, out)]
        if parts[2].shape[2] == 1:  # along the last axis: neighbours along it side by side
            reading.gather_last(*(_rows(part) for part in parts))
        else:
            kernels.gather(*parts)
    return Tensor(out)


def _rows(array: DeviceArray) -> DeviceArray:
    """(before, along, 1) as (before, along)."""
    return DeviceArray(array.buffer, array.offset, array.dtype, array.shape[:2], array.strides[:2])


@whole("take_along_dim")
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, with x and indices broadcast along the other axes; without an axis both are flattened."""
    if dim is None:
        return gather(reshape(x, (x.numel(),)), 0, reshape(indices, (indices.numel(),)))
    axis = axis_of(dim, x.ndim, "take_along_dim")
    shape = broadcast_shapes(
        (*x.shape[:axis], 1, *x.shape[axis + 1 :]), (*indices.shape[:axis], 1, *indices.shape[axis + 1 :])
    )
    wide = expand(x, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
    return gather(wide, axis, expand(indices, (*shape[:axis], indices.shape[axis], *shape[axis + 1 :])))


def scattered(x: Tensor, axis: int, index: Tensor, values: Tensor, write: Any, dtype: DType) -> Tensor:
    """A copy of x in `dtype`, brought to (before, along, after) and changed by `write(lines, positions, values)`."""
    out = creation.allocate(x.shape, dtype, maps.common_device((x, index, values)))
    copy_values(x._array, out)
    view = _cropped(Tensor(out), axis, index)._array
    if 0 in index.shape or 0 in view.shape:
        return Tensor(out)
    lines = three_axes(view, axis)
    write(lines, three_axes(index._array, axis), three_axes(values._array, axis))
    if lines.buffer is not out.buffer:  # strides that three axes can't hold: done in a copy
        copy_values(DeviceArray(lines.buffer, 0, lines.dtype, view.shape, contiguous_strides(view.shape)), view)
    return Tensor(out)


def combined(x: Tensor, axis: int, index: Tensor, values: Tensor, combine: Any) -> Tensor:
    """A copy of x combined with values at positions, in order; sums of 16-bit floats are kept in f32."""
    dtype = maps.arithmetic_type(x.dtype)

    def write(lines: DeviceArray, positions: DeviceArray, source: DeviceArray) -> None:
        combine_lines(lines, positions, source, combine, dtype)

    wide = dtype if x.dtype.is_float else x.dtype
    return scattered(x, axis, index, values, write, wide).to(x.dtype)


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
    """A writing operation: its operands checked, 0-d ones as vectors, the source as large as the index."""
    index = _wide_index(index, name)
    if x.ndim == 0 or index.ndim == 0:
        source = lifted(src) if isinstance(src, Tensor) else src
        return reshape(along(name, run, lifted(x), dim, lifted(index), source, **params), x.shape)
    axis = axis_of(dim, x.ndim, name)
    if index.numel() == 0 and index.ndim != x.ndim:  # PyTorch lets empty positions of any rank pass
        return x.clone()
    _check_along(x, axis, index, name)
    return run(x, _source(x, index, src, name), dim=axis, index=index, **params)  # type: ignore[no-any-return]


@whole("scatter_add", also=are_deterministic_algorithms_enabled)
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """x with src[.., n, ..] added at [.., index[.., n, ..], ..]; the order of additions is fixed, unless a GPU adds long
    lists by atomics (see `use_deterministic_algorithms`).
    """
    return along("scatter_add", _scatter_add, x, dim, index, src)


@whole("scatter")
def scatter(
    x: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """x with src[.., n, ..] (or a number) written at [.., index[.., n, ..], ..]; of several the last one stays. With
    reduce="add" or "multiply" combined with what is there.
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

    wide = source if isinstance(source, Tensor) else creation.full(index.shape, source, dtype=x.dtype, device=x.device)
    return scatter_reduce(x, dim, index, wide, names[reduce])


def _lines(shape: tuple[int, ...], axis: int, index: Tensor) -> Tensor:
    """A vector of positions stretched to a tensor of that shape, along an axis."""
    column = reshape(index, tuple(-1 if d == axis else 1 for d in range(len(shape))))
    return expand(column, (*shape[:axis], index.numel(), *shape[axis + 1 :]))


@whole("index_add", also=are_deterministic_algorithms_enabled)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """x with alpha times the slices of source added to those that a vector of positions names."""
    scaled: Any = source if alpha == 1 else source * alpha
    if x.ndim == 0:
        return reshape(index_add(lifted(x), dim, index, lifted(scaled)), ())
    axis = axis_of(dim, x.ndim, "index_add")
    return scatter_add(x, axis, _lines(x.shape, axis, lifted(index)), lifted(scaled))


# -- written


def _assign(target: Tensor, value: Any, plan: Plan) -> None:
    """Writes a value (a tensor or a number) where the index points."""
    part = _basic(target, plan)
    if not plan.advanced:
        if isinstance(value, Tensor):
            from .copies import _write

            _write(part, _fitting(value, part.shape))
        else:
            fill_values(part, value)
        return
    if len(plan.advanced) == 1 and plan.advanced[0][1].dtype.kind == "bool" and _is_single(value):
        _assign_masked(part, value, *plan.advanced[0])
        return
    merged, axis, positions = _one_axis(part, plan.advanced)
    if merged._array.buffer is not target._array.buffer:
        raise ArgumentError(
            "this assignment through several index tensors needs a copy of the tensor: assign with scatter()"
        )
    shape = (*merged.shape[:axis], *positions.shape, *merged.shape[axis + 1 :])
    single = value if isinstance(value, Tensor) else creation.full((), value, dtype=target.dtype, device=target.device)
    wide = expand(_fitting(single.to(target.dtype), shape), shape)
    values = flatten(wide, axis, axis + positions.ndim - 1) if positions.ndim else unsqueeze(wide, axis)
    lines = _lines(merged.shape, axis, Tensor(_flat_index(positions)))
    put_lines(three_axes(merged._array, axis), three_axes(lines._array, axis), three_axes(values._array, axis))


def _is_single(value: Any) -> bool:
    return not isinstance(value, Tensor) or value.numel() == 1


def _assign_masked(part: Tensor, value: Any, axis: int, mask: Tensor) -> None:
    wide = reshape(mask, (*mask.shape, *(1,) * (part.ndim - axis - mask.ndim)))
    single = reshape(value, ()) if isinstance(value, Tensor) else value
    compute = part.dtype if part.dtype.kind == "bool" else maps.arithmetic_type(part.dtype)
    maps.write_map(_select(), (wide, single, part), part, compute, first=dtypes.boolean)


def _select() -> Any:
    from ..stdlib import functions

    return functions.select


def _fitting(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The value without leading axes of size 1 that the target lacks."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    return value


def set_item(target: Tensor, index: Any, value: Any) -> None:
    """`target[index] = value`, converted to the target's type; recorded like any other operation."""
    plan = parse(target, index)
    if isinstance(value, (list, np.ndarray, np.generic)):
        value = creation.tensor(np.asarray(value), dtype=target.dtype, device=target.device)
    if overlaps_itself(target.shape, target.strides):
        _set_apart(target, plan, value)
        return
    run_in_place("set_item", lambda t, v, *, plan: _assign(t, v, plan), target, (value,), {"plan": plan})


def _set_apart(target: Tensor, plan: Plan, value: Any) -> None:
    """Writes into a tensor with several elements in one place: what else changes with the part isn't part of the index."""
    part = _basic(target, plan)
    if plan.advanced:
        maps.refuse_overlap(target)
    copy_(part, _fitting(value, part.shape) if isinstance(value, Tensor) else value)


@operation("put")
def put(x: Tensor, value: Any, *, plan: Plan) -> Tensor:
    """A copy of x with `value` written where the plan of an index points."""
    out = creation.allocate(x.shape, x.dtype, x.device)
    copy_values(x._array, out)
    result = Tensor(out)
    _assign(result, value, plan)
    return result


def get_planned(x: Tensor, plan: Plan) -> Tensor:
    """`x[index]` for an index taken apart already."""
    part = _basic(x, plan)
    if not plan.advanced:
        return part
    part, axis, positions = _one_axis(part, plan.advanced)
    return take(part, dim=axis, index=positions)


# -- what depends on values: the host waits for their number


@operation("compact")
def compact(x: Tensor, *, flags: Tensor) -> Tensor:
    """The elements of a vector where flags are set; waits for their number."""
    dense = contiguous(flags)
    starts, count = _starts(dense)
    out = Tensor(creation.allocate((count,), x.dtype, x.device))
    if count:
        written(_write_values, out, (dense, contiguous(x), starts), {})
    return out


def _write_values(out: Tensor, flags: Tensor, x: Tensor, starts: Tensor) -> None:
    compaction.write_values(flags._array, x._array, starts._array, out._array)


def _write_places(out: Tensor, flags: Tensor, starts: Tensor) -> None:
    compaction.write_places(flags._array, starts._array, out._array)


@whole("starts_of_segments")
def _segments(flags: Tensor) -> Tensor:
    return Tensor(compaction.starts_of_segments(flags._array))


def _starts(flags: Tensor) -> tuple[Tensor, int]:
    """Where the segments of a vector begin among its elements that aren't 0, and how many these are: waits for that."""
    if not flags.shape[0]:
        return flags, 0
    starts = _segments(flags.detach())
    array = starts._array
    end = array.offset + (array.shape[0] - 1) * array.dtype.itemsize
    return starts, int(Tensor(DeviceArray(array.buffer, end, array.dtype, (), ())).item())


def _flat(x: Tensor) -> Tensor:
    return reshape(x, (x.numel(),))


def places_of(flags: Tensor) -> Tensor:
    """Where elements aren't 0, as positions in C order (i64); waits for their number."""
    dense = contiguous(_flat(flags.detach()))
    starts, count = _starts(dense)
    out = Tensor(creation.allocate((count,), dtypes.i64, flags.device))
    if count:
        written(_write_places, out, (dense, starts), {})
    return out


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """Positions of the elements that aren't 0, one row each (as_tuple: one vector per axis); waits for their number."""
    linear: Any = places_of(x)
    shape = x.shape if x.ndim or not as_tuple else (1,)
    if len(shape) == 1:
        return (linear,) if as_tuple else unsqueeze(linear, 1)
    found = creation.empty((linear.shape[0], len(shape)), dtype=dtypes.i64, device=x.device)
    if found.numel():
        inner, extents = (
            creation.upload(np.array(sizes, np.int64), dtypes.i64, x.device)._array
            for sizes in ([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], shape)
        )
        compaction.coordinates(linear._array, inner, extents, found._array, x.numel() < 2**32)
    return unbind(found, 1) if as_tuple else found


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask (broadcast) is true, as a vector; waits for their number."""
    if mask.dtype.kind != "bool":
        raise DTypeError(f"masked_select() takes a mask of bool, found {mask.dtype!r}: compare first, as in x > 0")
    shape = broadcast_shapes(x.shape, mask.shape)
    return compact(_flat(expand(x, shape)), flags=_flat(expand(mask, shape)))
