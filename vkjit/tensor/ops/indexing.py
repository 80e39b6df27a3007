"""Indexing: `x[...]` and `x[...] = value`.

An index consists of ints, slices (also with negative steps), None, `...`, integer tensors or sequences, and bool
masks. Ints, slices, None and `...` give views, anything else copies. Reading with a mask waits for its values, since
they decide the result's shape.

Where PyTorch and NumPy differ, this is PyTorch: a tensor of u8 is a mask, a list that contains sequences, tensors,
slices, None or `...` is a tuple, and an integer tensor without axes is like an int beside other index tensors.

`parse` turns an index into a `Plan`: a slice per axis, then index tensors along some of the remaining axes. Several
index tensors are reduced to one by merging the axes that they index.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.stdlib.elementwise import functions

from ..autograd.mode import modes
from ..dispatch import is_recording, operation, run_in_place
from ..memory import allocate
from ..op_cache import cached
from ..tensor import Tensor
from ..view_cache import cached_view, row_view
from . import creation, elementwise_launch
from .arithmetic import where
from .axis import scatter_assign_along, three_axes
from .broadcast import broadcast_shapes, overlaps_itself
from .compaction import nonzero
from .copies import copy_, copy_values, fill_values, write_into
from .gather import take
from .index_operands import expand_index, flat_index
from .views import _reshape, expand, flatten, permute, reshape, slice_view, unsqueeze

__all__ = ["get_item", "set_item"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A parsed index, to be applied in three steps.

    1. Each axis of the tensor is sliced: `starts`, `sizes` and `steps` have a number per axis.
    2. The result is reshaped to `shape`, which lacks the axes indexed by ints and has an axis of size 1 for each None.
    3. The index tensors and masks are applied. `advanced` has a pair (axis, tensor) for each; `axis` is the first axis
       of `shape` that the tensor indexes.
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]
    advanced: tuple[tuple[int, Tensor], ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The index tensors and masks."""
        return tuple(tensor for _, tensor in self.advanced)


def _items(index: Any) -> Any:
    """Return the items of an index: its own if it is a tuple, or a list that PyTorch takes for one, else the index."""
    if isinstance(index, tuple):
        return index
    parts = (list, tuple, range, Tensor, np.ndarray, slice, type(None), type(Ellipsis))
    is_tuple = isinstance(index, list) and len(index) < 32 and any(isinstance(item, parts) for item in index)
    return index if is_tuple else (index,)


def _as_index(item: Any, x: Tensor) -> Any:
    """Convert sequences, arrays and masks of u8 to tensors of integers or bool; return other items unchanged."""
    if isinstance(item, (list, tuple, range, np.ndarray)):
        values = np.asanyarray(item)
        if values.dtype == np.float64 and values.size == 0:  # NumPy's type for an empty list
            values = values.astype(np.int64)
        item = creation.upload(values, dtypes.from_numpy(values.dtype), x.device)
    if not isinstance(item, Tensor):
        return bool(item) if isinstance(item, np.bool_) else item
    if item.dtype.is_float:
        raise DTypeError(f"an index is of integers or bool, found a tensor of {item.dtype!r}")
    if item.dtype is dtypes.u8:
        warnings.warn(
            "an index of u8 is a mask, as in PyTorch: convert it with .to(vk.boolean), or with .to(vk.i64) if it holds positions",
            stacklevel=2,
        )
        return item.to(dtypes.boolean)
    return item


def _is_new_axis(item: Any) -> bool:
    """True for a bool, or a mask without axes: it masks a new axis of size 1."""
    return isinstance(item, bool) or (isinstance(item, Tensor) and item.dtype.kind == "bool" and not item.ndim)


def _axes_taken(item: Any) -> int:
    """Return how many axes of the tensor an item of the index applies to: 0 for None and bools, a mask's rank, else 1."""
    if item is None or isinstance(item, bool):
        return 0
    return item.ndim if isinstance(item, Tensor) and item.dtype.kind == "bool" else 1


def parse(x: Tensor, index: Any) -> Plan:
    """Parse an index of x into a plan. Raises ArgumentError, ShapeError or IndexError if it doesn't fit x."""
    items = [_as_index(i, x) for i in _items(index)]
    taken = sum(_axes_taken(i) for i in items if i is not Ellipsis)
    ellipses = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(ellipses) > 1 or taken > x.ndim:
        raise ArgumentError(
            f"the index takes {taken} axes{' and several ...' if len(ellipses) > 1 else ''}, the tensor of shape {x.shape} "
            f"has {x.ndim}"
        )
    # full slices for the axes that the index doesn't name, in place of `...` or at the end
    full_slices = [slice(None)] * (x.ndim - taken)
    items = [*items[: ellipses[0]], *full_slices, *items[ellipses[0] + 1 :]] if ellipses else [*items, *full_slices]
    starts, sizes, steps, shape = [], [], [], []
    advanced: list[tuple[int, Tensor]] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        if _is_new_axis(item):
            # True is the index 0 along the new axis, False none
            mask = item if isinstance(item, Tensor) else creation.zeros(int(item), dtype=dtypes.i64, device=x.device)
            advanced.append((len(shape), mask))
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
    """Raise ShapeError if an index tensor is a mask whose shape isn't that of the indexed axes."""
    if item.dtype.kind == "bool" and item.shape != extents:
        raise ShapeError(f"a mask of shape {item.shape} indexes axes of sizes {extents}: expected the same shape")


def _axis_slice(item: Any, extent: int, axis: int) -> tuple[int, int, int, bool]:
    """Return (start, size, step, keep) of the slice that an item of the index stands for along one axis.

    `keep` is False for an int, whose axis is dropped afterwards. For an index tensor the slice is the whole axis.
    """
    if isinstance(item, Tensor):
        return 0, extent, 1, True
    if isinstance(item, slice):
        try:
            start, stop, step = item.indices(extent)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"the slice {item} of axis {axis}: {error}") from None
        size = len(range(start, stop, step))
        # a larger step would do the same, but its product with the stride may exceed 64 bits
        return start, size, min(max(step, -extent - 1), extent + 1), True
    if isinstance(item, (int, np.integer)):
        if not -extent <= item < extent:
            raise IndexError(f"index {item} is out of range for axis {axis} with {extent} elements")
        return int(item) % extent, 1, 1, False
    raise ArgumentError(
        "an index consists of ints, slices, None, ..., and tensors or lists of integers or bool; found "
        f"{type(item).__name__}"
    )


def _basic(x: Tensor, plan: Plan) -> Tensor:
    """Return the view of x that the slices, ints and Nones of an index select."""
    part = slice_view(x, starts=plan.starts, sizes=plan.sizes, steps=plan.steps)
    return part if part.shape == plan.shape else _reshape(part, shape=plan.shape)


def get_item(x: Tensor, index: Any) -> Tensor:
    """Return `x[index]`."""
    if index.__class__ is int and not modes.get().intercepts and not is_recording((x,)):
        row = row_view(x, index)
        if row is not None:
            return row
    return _get_item(x, index) if index.__class__ is Tensor else _get_view(x, index)


@cached("get_item()")
def _get_item(x: Tensor, index: Any) -> Tensor:
    """Return `x[index]`, for any index."""
    return get_planned(x, parse(x, index))


_get_view = cached_view(_get_item)


def get_planned(x: Tensor, plan: Plan) -> Tensor:
    """Return `x[index]` for a parsed index."""
    part = _basic(x, plan)
    if not plan.advanced:
        return part
    part, first, count, positions = _index_of_axes(part, plan.advanced)
    merged, axis = flatten(part, first, first + count - 1) if count > 1 else part, first
    return take(merged, dim=axis, index=positions, from_end=True)


def _index_of_axes(part: Tensor, advanced: Sequence[tuple[int, Tensor]]) -> tuple[Tensor, int, int, Tensor]:
    """Make the axes that tensors index adjacent, and combine the index tensors to one for these axes, flattened.

    `part` is the result of the first two steps of a plan, `advanced` the plan's index tensors and masks. Returns (view
    of part, first indexed axis, number of indexed axes, index tensor).
    """
    indices: list[Tensor] = []
    axes: list[int] = []
    for axis, item in advanced:
        for offset, positions in enumerate(_index_tensors(item)):
            axes.append(axis + offset)
            indices.append(positions)
    if len(axes) == 1:
        return part, axes[0], 1, indices[0]
    # as in PyTorch, the indexed axes come first if others lie between them, except for indices without axes
    wide = [axis for axis, positions in zip(axes, indices, strict=True) if positions.ndim] or axes
    others = [axis for axis in range(part.ndim) if axis not in axes]
    is_apart = any(wide[0] < axis < wide[-1] for axis in others)
    first = 0 if is_apart else sum(axis < wide[0] for axis in others)
    order = [*others[:first], *axes, *others[first:]]
    if order != list(range(part.ndim)):
        part = permute(part, order)
    extents = part.shape[first : first + len(axes)]
    shape = broadcast_shapes(*(i.shape for i in indices))
    linear: Any = None  # the C-order index into the flattened axes
    for extent, positions in zip(extents, indices, strict=True):
        inside = _resolved_indices(positions, extent)
        linear = inside if linear is None else linear * extent + inside
    return part, first, len(axes), expand(linear, shape)


def _resolved_indices(positions: Tensor, extent: int) -> Any:
    """Return indices along an axis of size `extent` as i64, with negative ones resolved from the end of the axis.

    The axis is to be merged with others. An index out of range becomes `_OUT_OF_RANGE`.
    """
    indices: Any = positions.to(dtypes.i64)
    wrapped = where(indices < 0, indices + extent, indices)
    return where((wrapped >= 0) & (wrapped < extent), wrapped, _OUT_OF_RANGE)


_OUT_OF_RANGE = -(2**40)
"""Stands for an index out of range, before the indices along several axes are combined to one.

It is so far below 0 that the combined index is out of range, too, whatever the other indices are.
"""


def _index_tensors(item: Tensor) -> list[Tensor]:
    """Return the index tensors for an index tensor or mask, one per indexed axis.

    An index tensor is returned itself. For a mask they are the indices of its true elements, for which the host waits.
    """
    if item.dtype.kind != "bool":
        return [item]
    return list(nonzero(item, as_tuple=True))


# -- assignment


def _assign(target: Tensor, value: Any, plan: Plan) -> None:
    """Write a value (a tensor that broadcasts, or a scalar) to the elements of `target` that the plan selects."""
    part = _basic(target, plan)
    if not plan.advanced:
        if isinstance(value, Tensor):
            write_into(part, _without_leading_ones(value, part.shape))
        else:
            fill_values(part, value)
        return
    if len(plan.advanced) == 1 and plan.advanced[0][1].dtype.kind == "bool" and _is_single(value):
        _assign_masked(part, value, *plan.advanced[0])
        return
    part, axis, count, positions = _index_of_axes(part, plan.advanced)
    merged = flatten(part, axis, axis + count - 1) if count > 1 else part
    # broadcast the value to the shape of target[index], then merge the axes of the index into one
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
    index = expand_index(merged.shape, axis, Tensor(flat_index(positions)))
    scatter_assign_along(
        three_axes(merged._array, axis), three_axes(index._array, axis), three_axes(values._array, axis), from_end=True
    )
    if merged._array.buffer is not part._array.buffer:  # no view has the axes flattened, so a copy was written
        copy_values(reshape(merged, part.shape)._array, part._array)


def _is_single(value: Any) -> bool:
    """True for a scalar and a tensor of one element."""
    return not isinstance(value, Tensor) or value.numel() == 1


def _assign_masked(part: Tensor, value: Any, axis: int, mask: Tensor) -> None:
    """Write a single value to `part` where a mask, which indexes the axes from `axis` on, is true.

    Unlike `_index_tensors`, this doesn't read the mask on the host.
    """
    wide_mask = reshape(mask, (*mask.shape, *(1,) * (part.ndim - axis - mask.ndim)))
    scalar = reshape(value, ()) if isinstance(value, Tensor) else value
    compute = part.dtype if part.dtype.kind == "bool" else elementwise_launch.arithmetic_type(part.dtype)
    elementwise_launch.write_map(functions.select, (wide_mask, scalar, part), part, compute, first=dtypes.boolean)


def _without_leading_ones(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the value without leading axes of size 1 in excess of the rank of `shape`, the shape to write to."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    return value


def set_item(target: Tensor, index: Any, value: Any) -> None:
    """Assign `target[index] = value`, converted to the target's type; recorded like other in-place operations."""
    plan = parse(target, index)
    if isinstance(value, (list, np.ndarray, np.generic)):
        value = creation.tensor(np.asanyarray(value), dtype=target.dtype, device=target.device)
    if overlaps_itself(target.shape, target.strides):
        _assign_overlapping(target, plan, value)
        return
    run_in_place("set_item", lambda t, v, *, plan: _assign(t, v, plan), target, (value,), {"plan": plan})


def _assign_overlapping(target: Tensor, plan: Plan, value: Any) -> None:
    """Assign into a tensor whose elements overlap in memory, through the view that the index selects.

    The write also changes elements that the index doesn't select, so it is recorded as a write to that view rather than
    as `set_item`. Raises ArgumentError if the index contains tensors.
    """
    part = _basic(target, plan)
    if plan.advanced:
        elementwise_launch.refuse_overlap(target)
    copy_(part, _without_leading_ones(value, part.shape) if isinstance(value, Tensor) else value)


@operation("put")
def put(x: Tensor, value: Any, *, plan: Plan) -> Tensor:
    """Return a copy of x with `value` written to the elements that the plan selects."""
    out = allocate(x.shape, x.dtype, x.device)
    copy_values(x._array, out)
    result = Tensor(out)
    _assign(result, value, plan)
    return result
