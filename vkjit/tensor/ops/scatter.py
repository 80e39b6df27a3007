"""Writing at indices along one axis: scatter, scatter reductions, index_add, index_copy, index_fill and index_reduce.

Indices are integers. As in PyTorch, negative ones count from the end in `index_fill`, and are out of range in the other
functions. Results are new tensors. In formulas, [.., n, ..] stands for index n along that axis and any indices along
the others.

`src`, PyTorch's name, is the caller's argument: a scalar, or a tensor that may be larger than the index. The operations
get the values to write as `source`, a tensor of the index's shape.
"""

from __future__ import annotations

from typing import Any

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray, contiguous_strides
from vkjit.stdlib.index import gather_scatter as kernels

from ..dispatch import operation
from ..memory import allocate, fitted
from ..op_cache import cached
from ..tensor import Tensor
from . import creation
from .arithmetic import where
from .axis import are_deterministic_algorithms_enabled, scatter_assign_along, scatter_combine_along, three_axes
from .copies import copy_values
from .elementwise_launch import arithmetic_type, common_device
from .index_operands import at_least_1d, check_index, cropped, expand_index, wide_index
from .reduction_launch import MAXIMUM, MINIMUM, start_value
from .views import axis_of, narrow, reshape

__all__ = [
    "index_add", "index_copy", "index_fill", "index_reduce", "scatter", "scatter_add", "scatter_reduce",
]  # fmt: skip


def apply_scatter(x: Tensor, axis: int, index: Tensor, values: Tensor, write: Any, dtype: DType) -> Tensor:
    """Return a copy of x, converted to `dtype`, with values written at indices along an axis.

    `write(target, indices, values)` writes them. It is called with arrays viewed as (before, along, after), see
    `axis.three_axes`. Its target is the copy of x, cropped to the index's sizes along all axes but `axis`.
    """
    out = allocate(x.shape, dtype, common_device((x, index, values)))
    copy_values(x._array, out)
    view = cropped(Tensor(out), axis, index)._array
    if 0 in index.shape:
        return Tensor(out)
    target = three_axes(view, axis)
    write(target, three_axes(index._array, axis), three_axes(values._array, axis))
    if target.buffer is not out.buffer:  # no view with three axes exists, so a copy was written
        copy_values(DeviceArray(target.buffer, 0, target.dtype, view.shape, contiguous_strides(view.shape)), view)
    return Tensor(out)


def scatter_combined(x: Tensor, axis: int, index: Tensor, values: Tensor, from_end: bool, combine: Any) -> Tensor:
    """Return a copy of x with values combined into its elements at indices along an axis.

    `combine` is a device function that maps an element and a value to the new element. 16-bit floats are combined in
    f32. `from_end` is True if negative indices count from the end.
    """
    dtype = arithmetic_type(x.dtype)

    def write(target: DeviceArray, indices: DeviceArray, new_values: DeviceArray) -> None:
        scatter_combine_along(target, indices, new_values, from_end, combine, dtype)

    # 16-bit floats are combined in f32 memory; integers and bool in memory of their own type
    result_dtype = dtype if x.dtype.is_float else x.dtype
    return apply_scatter(x, axis, index, values, write, result_dtype).to(x.dtype)


def _fitted_source(x: Tensor, index: Tensor, src: Any, name: str) -> Tensor:
    """Return the values to write, `src`, in index's shape: a scalar is expanded, a larger tensor cropped.

    Raises DTypeError or ShapeError if `src` doesn't fit.
    """
    if not isinstance(src, Tensor):
        return creation.full(index.shape, src, dtype=x.dtype, device=x.device)
    source: Tensor = src
    if source.dtype is not x.dtype:
        raise DTypeError(f"{name}(): the source holds {source.dtype!r}, the tensor {x.dtype!r}: convert one of them")
    if source.ndim != index.ndim or any(i > s for i, s in zip(index.shape, source.shape, strict=True)):
        raise ShapeError(f"{name}(): index of shape {index.shape} is larger than the source's {source.shape}")
    for d in range(source.ndim):
        if source.shape[d] != index.shape[d]:
            source = narrow(source, d, 0, index.shape[d])
    return source


def run_scatter(name: str, run: Any, x: Tensor, dim: int, index: Tensor, src: Any, **params: Any) -> Tensor:
    """Check the operands of a scatter function `name`, and call the operation `run(x, source, dim=, index=, **params)`.

    0-d operands are passed as vectors, and `source` is `src` in the index's shape (see `_fitted_source`).
    """
    index = wide_index(index, name)
    if x.ndim == 0 or index.ndim == 0:
        vector_src = at_least_1d(src) if isinstance(src, Tensor) else src
        return reshape(run_scatter(name, run, at_least_1d(x), dim, at_least_1d(index), vector_src, **params), x.shape)
    axis = axis_of(dim, x.ndim, name)
    if index.numel() == 0 and index.ndim != x.ndim:  # PyTorch accepts an empty index of any rank
        return x.clone()
    check_index(x, axis, index, name)
    return run(x, _fitted_source(x, index, src, name), dim=axis, index=index, **params)  # type: ignore[no-any-return]


@operation("scatter_add")
def _scatter_add(x: Tensor, source: Tensor, *, dim: int, index: Tensor, from_end: bool) -> Tensor:
    return scatter_combined(x, dim, index, source, from_end, kernels.add)


@operation("scatter")
def _scatter(x: Tensor, source: Tensor, *, dim: int, index: Tensor, from_end: bool) -> Tensor:
    def write(target: DeviceArray, indices: DeviceArray, values: DeviceArray) -> None:
        scatter_assign_along(target, indices, values, from_end)

    return apply_scatter(x, dim, index, source, write, x.dtype)


def scatter_at(x: Tensor, dim: int, index: Tensor, src: Any, name: str, *, from_end: bool) -> Tensor:
    """Do the work of `scatter` for a function `name`, in which negative indices count from the end if `from_end`."""
    return run_scatter(name, _scatter, x, dim, index, src, from_end=from_end)


def scatter_add_at(x: Tensor, dim: int, index: Tensor, src: Any, name: str, *, from_end: bool) -> Tensor:
    """Do the work of `scatter_add` for a function `name`, in which negative indices count from the end if `from_end`."""
    return run_scatter(name, _scatter_add, x, dim, index, src, from_end=from_end)


@cached("scatter_add()", setting=are_deterministic_algorithms_enabled)
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Return a copy of x with src[.., n, ..] added at [.., index[.., n, ..], ..].

    The order of additions is fixed, except that GPUs may add long index lists with atomics (see
    `use_deterministic_algorithms`).
    """
    return scatter_add_at(x, dim, index, src, "scatter_add", from_end=False)


@cached("scatter()")
def scatter(
    x: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """Return a copy of x with src[.., n, ..], or the scalar `value`, written at [.., index[.., n, ..], ..].

    Of several writes to one element the last wins. With `reduce`, "add" or "multiply", values are combined with x's
    elements instead.
    """
    source = src if value is None else value
    if source is None:
        raise ArgumentError("scatter() needs src= or value=")
    if reduce is None:
        return scatter_at(x, dim, index, source, "scatter", from_end=False)
    reductions = {"add": "sum", "multiply": "prod"}
    if reduce not in reductions:
        raise ArgumentError(f'scatter(reduce=...) is "add" or "multiply", found {reduce!r}')
    source_tensor = (
        source if isinstance(source, Tensor) else creation.full(index.shape, source, dtype=x.dtype, device=x.device)
    )
    return scatter_reduce(x, dim, index, source_tensor, reductions[reduce])


# -- reductions


_COMBINATIONS = {"prod": kernels.multiply, "amax": kernels.maximum, "amin": kernels.minimum}
"""Device functions for `scatter_combined`, by the name of the reduction."""


@operation("scatter_combine")
def _combine(x: Tensor, source: Tensor, *, dim: int, index: Tensor, reduce: str) -> Tensor:
    return scatter_combined(x, dim, index, source, False, _COMBINATIONS[reduce])


def _neutral(x: Tensor, reduce: str) -> Any:
    """Return the identity of a reduction in x's type."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    value = start_value(MAXIMUM if reduce == "amax" else MINIMUM, x.dtype)
    return bool(value) if x.dtype.kind == "bool" else value


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return a copy of x with each src[.., n, ..] combined into the element at [.., index[.., n, ..], ..].

    `reduce` is "sum", "prod", "mean", "amax" or "amin". With include_self=False, only values of src enter the elements
    that are written, not x's own.
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ArgumentError(f'scatter_reduce(reduce=...) is "sum", "prod", "mean", "amax" or "amin", found {reduce!r}')
    base = x if include_self else scatter(x, dim, index, _neutral(x, reduce))
    if reduce == "sum":
        return scatter_add(base, dim, index, src)
    if reduce != "mean":
        return run_scatter("scatter_reduce", _combine, base, dim, index, src, reduce=reduce)
    total: Any = scatter_add(_wide(base), dim, index, _wide(src))
    # the number of values in each total, including x's own element or not
    ones = creation.ones_like(x, dtype=total.dtype)
    start = ones if include_self else scatter(ones, dim, index, 0)
    count: Any = scatter_add(start, dim, index, creation.ones(index.shape, dtype=total.dtype, device=x.device))
    count = where(count < 1, 1, count)  # no division by 0
    return (total / count if x.dtype.is_float else total // count).to(x.dtype)  # type: ignore[no-any-return]


def _wide(x: Tensor) -> Tensor:
    """Convert 16-bit floats to f32."""
    return x.to(arithmetic_type(x.dtype)) if x.dtype.is_float else x


# -- functions that write whole slices: slice n of source goes to slice index[n], for a vector `index`


@cached("index_add()", setting=are_deterministic_algorithms_enabled)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Return a copy of x with alpha * slice n of source added to slice index[n]; `index` is a vector."""
    scaled: Any = source if alpha == 1 else source * alpha
    if x.ndim == 0:
        return reshape(index_add(at_least_1d(x), dim, index, at_least_1d(scaled)), ())
    axis = axis_of(dim, x.ndim, "index_add")
    return scatter_add(x, axis, expand_index(x.shape, axis, at_least_1d(index)), at_least_1d(scaled))


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Return a copy of x with slice index[n] replaced by slice n of source; `index` is a vector."""
    if x.ndim == 0:
        return reshape(index_copy(at_least_1d(x), dim, index, at_least_1d(source)), ())
    axis = axis_of(dim, x.ndim, "index_copy")
    return scatter(x, axis, expand_index(x.shape, axis, at_least_1d(index)), at_least_1d(source))


def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Return a copy of x with slice index[n] filled with `value`, a scalar or a 0-d tensor.

    `index` is a vector; negative indices count from the end.
    """
    if x.ndim == 0:
        return reshape(index_fill(at_least_1d(x), dim, index, value), ())
    axis = axis_of(dim, x.ndim, "index_fill")
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(f"index_fill() takes a number or a 0-d tensor, found shape {value.shape}")
    if not isinstance(value, Tensor):
        value = fitted(value, x.dtype)
    shape = tuple(x.shape[axis] if i == axis else 1 for i in range(x.ndim))
    falses = creation.zeros(x.shape[axis], dtype=dtypes.boolean, device=x.device)
    # for each slice, True if it is to be filled
    is_chosen = scatter_at(falses, 0, at_least_1d(index), True, "index_fill", from_end=True)
    return where(reshape(is_chosen, shape), value, x).to(x.dtype)


_REDUCTIONS = frozenset({"prod", "mean", "amax", "amin"})
"""The reductions of `index_reduce`."""


def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return a copy of x with slice n of source combined into slice index[n]; `index` is a vector.

    `reduce` is "prod", "mean", "amax" or "amin"; `include_self` as for `scatter_reduce`.
    """
    if reduce not in _REDUCTIONS:
        raise ArgumentError(f'index_reduce(reduce=...) is "prod", "mean", "amax" or "amin", found {reduce!r}')
    if x.ndim == 0:
        result = index_reduce(at_least_1d(x), dim, index, at_least_1d(source), reduce, include_self=include_self)
        return reshape(result, ())
    axis = axis_of(dim, x.ndim, "index_reduce")
    return scatter_reduce(
        x, axis, expand_index(x.shape, axis, at_least_1d(index)), source, reduce, include_self=include_self
    )
