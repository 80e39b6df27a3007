"""Reductions of tensors over arbitrary axes.

`dim` is an axis, several axes, or None for all; with `keepdim`, reduced axes keep the size 1. 16-bit floats accumulate
in f32, sums of integers and bool in i64. The order of additions depends only on shape and device, so results are
deterministic. `reduction_launch` chooses and launches the kernels.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray, contiguous_strides
from vkjit.stdlib.registry import device_class
from vkjit.stdlib.rows import moments
from vkjit.stdlib.rows.softmax import register_plan

from ..dispatch import operation
from ..memory import allocate
from ..op_cache import cached
from ..precision import computed_in_f32
from ..tensor import Tensor
from . import creation, reduction_launch
from .arithmetic import maximum, minimum, where
from .elementwise import checked
from .elementwise_launch import arithmetic_type, scalar_type
from .gather import gather
from .reduction_launch import Reducer, contiguous_rows, invocations_per_row, reduce_axes, search_axis
from .views import axis_of, reshape, unsqueeze

__all__ = [
    "all", "allclose", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "equal", "logsumexp", "max", "mean",
    "min", "norm", "prod", "std", "sum", "var", "var_mean",
]  # fmt: skip

Dims = int | Sequence[int] | None


class MinMax(NamedTuple):
    """Min/max values along an axis, and their indices."""

    values: Tensor
    indices: Tensor


def axes_of(x: Tensor, dim: Dims, name: str) -> tuple[int, ...]:
    """Return the axes that `dim` names, in ascending order; None and () mean all."""
    if dim is None:
        return tuple(range(x.ndim))
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if not dims:
        return tuple(range(x.ndim))
    rank = x.ndim or 1  # a 0-d tensor has axis 0 and -1 here, as in PyTorch
    axes = [axis_of(d, rank, name) for d in dims]
    if len(set(axes)) != len(axes):
        raise ArgumentError(f"{name}(dim={dim}): an axis is named twice")
    return tuple(sorted(axes)) if x.ndim else ()


def _reduced_shape(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """Return the shape of a reduction's result."""
    if keepdim:
        return tuple(1 if i in axes else e for i, e in enumerate(x.shape))
    return tuple(e for i, e in enumerate(x.shape) if i not in axes)


def _reduce(
    x: Tensor, axes: tuple[int, ...], keepdim: bool, reducer: Reducer, result: DType, accumulate: DType, empty: float
) -> Tensor:
    """Return x reduced over `axes`; parameters as for `reduce_axes`. `empty` is the result if x has no elements."""
    shape = _reduced_shape(x, axes, keepdim)
    if x.numel() == 0:
        return creation.full(shape, empty, dtype=result, device=x.device)
    out = reduce_axes(x._array, axes, reducer, result, accumulate)
    return Tensor(DeviceArray(out.buffer, out.offset, out.dtype, shape, contiguous_strides(shape)))


def _sum_type(x: Tensor, dtype: Any) -> DType:
    """Return the result type of sums and products: `dtype`, or x's type for floats, i64 for integers and bool."""
    if dtype is not None:
        return creation.as_dtype(dtype)
    return x.dtype if x.dtype.is_float else dtypes.i64


@operation("sum")
def _sum(x: Tensor, *, axes: tuple[int, ...], keepdim: bool, dtype: DType) -> Tensor:
    return _reduce(x, axes, keepdim, reduction_launch.SUM, dtype, arithmetic_type(dtype), 0)


@cached("sum()")
def sum(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the sum over axes; integers and bool are summed in i64 unless dtype is given."""
    return _sum(checked(x, "sum"), axes=axes_of(x, dim, "sum"), keepdim=keepdim, dtype=_sum_type(x, dtype))


@operation("mean")
def _mean(x: Tensor, *, axes: tuple[int, ...], keepdim: bool, dtype: DType) -> Tensor:
    return _reduce(x, axes, keepdim, reduction_launch.MEAN, dtype, arithmetic_type(dtype), math.nan)


@cached("mean()")
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the mean of floats over axes; NaN if there are no elements."""
    result = creation.as_dtype(dtype) if dtype is not None else checked(x, "mean").dtype
    if not result.is_float:
        raise DTypeError(f"mean() takes floats, found {result!r}: pass dtype=vk.f32")
    return _mean(x, axes=axes_of(x, dim, "mean"), keepdim=keepdim, dtype=result)


@operation("prod")
def _prod(x: Tensor, *, axes: tuple[int, ...], keepdim: bool, dtype: DType) -> Tensor:
    return _reduce(x, axes, keepdim, reduction_launch.PRODUCT, dtype, arithmetic_type(dtype), 1)


@cached("prod()")
def prod(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the product over axes; integers and bool are multiplied in i64 unless dtype is given."""
    return _prod(checked(x, "prod"), axes=axes_of(x, dim, "prod"), keepdim=keepdim, dtype=_sum_type(x, dtype))


def _check_not_empty(x: Tensor, axes: tuple[int, ...], name: str) -> None:
    """Raise ShapeError if one of the axes has size 0."""
    if any_empty(x, axes):
        raise ShapeError(f"{name}() over no elements has no value: shape {x.shape}, axes {axes}")


def any_empty(x: Tensor, axes: tuple[int, ...]) -> bool:
    """True if one of the axes has size 0."""
    return 0 in [x.shape[a] for a in axes]


@operation("amax")
def _amax(x: Tensor, *, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return _reduce(x, axes, keepdim, reduction_launch.MAXIMUM, x.dtype, arithmetic_type(x.dtype), 0)


@cached("amax()")
def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the maximum over axes; NaN propagates."""
    axes = axes_of(checked(x, "amax"), dim, "amax")
    _check_not_empty(x, axes, "amax")
    return _amax(x, axes=axes, keepdim=keepdim)


@operation("amin")
def _amin(x: Tensor, *, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return _reduce(x, axes, keepdim, reduction_launch.MINIMUM, x.dtype, arithmetic_type(x.dtype), 0)


@cached("amin()")
def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the minimum over axes; NaN propagates."""
    axes = axes_of(checked(x, "amin"), dim, "amin")
    _check_not_empty(x, axes, "amin")
    return _amin(x, axes=axes, keepdim=keepdim)


def _search(x: Tensor, dim: int | None, keepdim: bool, name: str) -> Tensor:
    """Return the indices of the maxima or minima, as the function `name` ("argmax" or "argmin") does."""
    greatest = name == "argmax"
    if dim is None or x.ndim == 0:
        flat = reshape(x, -1) if x.numel() else x
        _check_not_empty(x, tuple(range(x.ndim)), name)
        index = Tensor(search_axis(flat.detach()._array, 0, greatest=greatest))
        return reshape(index, (1,) * x.ndim) if keepdim else index
    axis = axis_of(dim, x.ndim, name)
    _check_not_empty(x, (axis,), name)
    if x.numel() == 0:
        return creation.empty(_reduced_shape(x, (axis,), keepdim), dtype=dtypes.i64, device=x.device)
    index = Tensor(search_axis(x._array, axis, greatest=greatest))
    return unsqueeze(index, axis) if keepdim else index


@cached("argmax()")
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index (i64) of the maximum, along an axis or in the flattened tensor.

    Of equal elements the first is returned; NaN counts as the greatest.
    """
    return _search(checked(x, "argmax"), dim, keepdim, "argmax")


@cached("argmin()")
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index (i64) of the minimum, along an axis or in the flattened tensor.

    Of equal elements the first is returned; NaN counts as the smallest.
    """
    return _search(checked(x, "argmin"), dim, keepdim, "argmin")


def _min_max(x: Tensor, dim: int, keepdim: bool, name: str) -> MinMax:
    """Return (values, indices) of the maxima or minima along an axis; `name` is "argmax" or "argmin"."""
    indices = _search(x, dim, True, name)  # with keepdim, as `gather` needs
    values = gather(x, dim, indices)
    if keepdim or x.ndim == 0:
        return MinMax(values, indices)
    shape = _reduced_shape(x, (axis_of(dim, x.ndim, name),), False)  # without keepdim
    return MinMax(reshape(values, shape), reshape(indices, shape))


@cached("max()")
def max(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Return the maximum of all elements; with an axis, (values, indices) along it.

    With a tensor as second argument, return the elementwise `maximum`.
    """
    if isinstance(dim, Tensor):
        return maximum(x, dim)
    return amax(x) if dim is None else _min_max(x, dim, keepdim, "argmax")


@cached("min()")
def min(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Return the minimum of all elements; with an axis, (values, indices) along it.

    With a tensor as second argument, return the elementwise `minimum`.
    """
    if isinstance(dim, Tensor):
        return minimum(x, dim)
    return amin(x) if dim is None else _min_max(x, dim, keepdim, "argmin")


@cached("any()")
def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return a bool tensor that is True where any element along the axes is nonzero."""
    return _reduce(
        checked(x, "any"), axes_of(x, dim, "any"), keepdim, reduction_launch.ANY, dtypes.boolean, dtypes.i32, 0
    )


@cached("all()")
def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return a bool tensor that is True where all elements along the axes are nonzero."""
    return _reduce(
        checked(x, "all"), axes_of(x, dim, "all"), keepdim, reduction_launch.ALL, dtypes.boolean, dtypes.i32, 1
    )


@cached("count_nonzero()")
def count_nonzero(x: Tensor, dim: Dims = None) -> Tensor:
    """Return the number of nonzero elements over axes (i64)."""
    return sum(x != 0, dim)


@operation("var")
def _var(x: Tensor, *, axes: tuple[int, ...], keepdim: bool, correction: float) -> Tensor:
    """Return the variance: by one kernel for contiguous rows, else in several steps."""
    count = math.prod(x.shape[a] for a in axes)
    if x.numel() == 0:
        return creation.full(_reduced_shape(x, axes, keepdim), math.nan, dtype=x.dtype, device=x.device)
    wide = arithmetic_type(x.dtype)
    if (rows := contiguous_rows(x._array, axes)) is not None:
        return _variance_of_rows(x, axes, keepdim, rows, builtins.max(count - correction, 0), wide, root=False)
    squares = _squared_deviations(x, axes, keepdim, wide, wide)
    return (squares / float(builtins.max(count - correction, 0))).to(x.dtype)  # type: ignore[no-any-return]


def _squared_deviations(x: Tensor, axes: tuple[int, ...], keepdim: bool, wide: DType, sums: DType) -> Any:
    """Return the sum of squared deviations from the mean over `axes`, corrected for the rounding error of the mean.

    Deviations are computed in the type `wide`; their squares are summed in the type `sums`.
    """
    deviations: Any = x.to(wide) - _mean(x, axes=axes, keepdim=True, dtype=wide)
    squares: Any = _reduce(deviations, axes, keepdim, reduction_launch.SUM_OF_SQUARES, sums, sums, 0)
    # the sum of the deviations, which would be 0 without the rounding of the mean
    error: Any = _reduce(deviations, axes, keepdim, reduction_launch.SUM, sums, sums, 0)
    corrected = squares - error * (error / float(math.prod(x.shape[a] for a in axes)))
    return where(corrected < 0, 0.0, corrected)


def _variance_of_rows(
    x: Tensor, axes: tuple[int, ...], keepdim: bool, rows: DeviceArray, divisor: float, sums: DType, *, root: bool
) -> Tensor:
    """Return the variance over `axes`, or its square root if `root`, with one workgroup per row.

    `rows` is the view of x that `contiguous_rows` returned; the sum of squares is divided by `divisor`. A workgroup
    reads its row twice, or keeps it in registers, and sums squares in the type `sums`.
    """
    wide = arithmetic_type(x.dtype)
    out = allocate(_reduced_shape(x, axes, keepdim), x.dtype, x.device)
    outputs = DeviceArray(out.buffer, 0, x.dtype, rows.shape[:2], contiguous_strides(rows.shape[:2]))
    options = (rows, outputs, float(divisor), wide, sums, root)
    # (vectors per invocation, invocations, elements per vector)
    tiling = register_plan(rows.shape[2]) if device_class(rows.device) == "gpu" else None
    # the kernel that keeps rows in registers takes vectors of 4 elements
    if tiling is not None and tiling[2] == 4 and tiling[1] <= 256:
        moments.variance_in_registers(scalar_type(sums))(*options, tiling[1], tiling[0])
    else:
        moments.variance(scalar_type(sums))(*options, invocations_per_row(rows))
    return Tensor(out)


def _correction(dim: Any, correction: float | None, unbiased: bool | None) -> tuple[Dims, float]:
    """Return (axes, correction) from the parameters of `var` and similar functions.

    In PyTorch's older signature, a bool in place of `dim`, or `unbiased`, selects a correction of 1 (True) or 0.
    """
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        return dim, 1 if unbiased else 0
    return dim, 1 if correction is None else correction


@cached("var()")
def var(
    x: Tensor, dim: Dims = None, *, correction: float | None = 1, unbiased: bool | None = None, keepdim: bool = False
) -> Tensor:
    """Return the variance over axes: the sum of squared deviations from the mean, divided by count - correction.

    `unbiased` is PyTorch's older name: True means a correction of 1, False of 0.
    """
    if not checked(x, "var").dtype.is_float:
        raise DTypeError(f"var() takes floats, found {x.dtype!r}: convert with .to(vk.f32)")
    dim, resolved = _correction(dim, correction, unbiased)
    return _var(x, axes=axes_of(x, dim, "var"), keepdim=keepdim, correction=resolved)


@operation("std")
def _std(x: Tensor, *, axes: tuple[int, ...], keepdim: bool, correction: float) -> Tensor:
    """Return the standard deviation.

    Squares are summed in f64 if the device supports it, so that the sum overflows only if the result does.
    """
    from .elementwise import sqrt

    count = math.prod(x.shape[a] for a in axes)
    if x.numel() == 0:
        return creation.full(_reduced_shape(x, axes, keepdim), math.nan, dtype=x.dtype, device=x.device)
    compute = arithmetic_type(x.dtype)
    sums = dtypes.f64 if "f64" in x.device.caps.dtypes else compute
    if (rows := contiguous_rows(x._array, axes)) is not None:
        return _variance_of_rows(x, axes, keepdim, rows, builtins.max(count - correction, 0), sums, root=True)
    squares = _squared_deviations(x, axes, keepdim, compute, sums)
    return sqrt(squares / float(builtins.max(count - correction, 0))).to(x.dtype)


@cached("std()")
def std(
    x: Tensor, dim: Dims = None, *, correction: float | None = 1, unbiased: bool | None = None, keepdim: bool = False
) -> Tensor:
    """Return the standard deviation over axes; see `var`."""
    if not checked(x, "std").dtype.is_float:
        raise DTypeError(f"std() takes floats, found {x.dtype!r}: convert with .to(vk.f32)")
    dim, resolved = _correction(dim, correction, unbiased)
    return _std(x, axes=axes_of(x, dim, "std"), keepdim=keepdim, correction=resolved)


@cached("var_mean()")
def var_mean(
    x: Tensor, dim: Dims = None, *, correction: float | None = 1, unbiased: bool | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean over axes."""
    dim, resolved = _correction(dim, correction, unbiased)
    return var(x, dim, correction=resolved, keepdim=keepdim), mean(x, dim, keepdim)


@operation("norm2")
def _norm2(x: Tensor, *, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return _reduce(x, axes, keepdim, reduction_launch.ROOT_OF_SQUARES, x.dtype, arithmetic_type(x.dtype), 0)


@cached("norm()")
@computed_in_f32
def norm(x: Tensor, p: float | str = 2.0, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the vector p-norm over axes; p may be inf, -inf, 0 (the number of nonzero elements), or "fro" (2)."""
    from .elementwise import abs

    if not checked(x, "norm").dtype.is_float:
        raise DTypeError(f"norm() takes floats, found {x.dtype!r}: convert with .to(vk.f32)")
    power = 2.0 if p == "fro" else p
    if isinstance(power, str):
        raise ArgumentError(f'norm(p=...) is a number or "fro", found {p!r}')
    if power == 2:
        return _norm2(x, axes=axes_of(x, dim, "norm"), keepdim=keepdim)
    magnitude: Any = abs(x)
    if power == 1:
        return sum(magnitude, dim, keepdim)
    if math.isinf(power):
        return amax(magnitude, dim, keepdim) if power > 0 else amin(magnitude, dim, keepdim)
    if power == 0:
        return sum(
            where(magnitude != 0, 1.0, magnitude), dim, keepdim
        )  # `size` as the other operand gives x a gradient of 0
    return sum(magnitude**power, dim, keepdim) ** (1 / power)


@operation("logsumexp")
def _logsumexp(x: Tensor, *, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Return log(sum(exp(x))): by one kernel for contiguous rows, else in several steps."""
    from .elementwise import exp, isinf, log

    if x.numel() == 0:
        return creation.full(_reduced_shape(x, axes, keepdim), -math.inf, dtype=x.dtype, device=x.device)
    if (rows := contiguous_rows(x._array, axes)) is not None:
        out = allocate(_reduced_shape(x, axes, keepdim), x.dtype, x.device)
        outputs = DeviceArray(out.buffer, 0, x.dtype, rows.shape[:2], contiguous_strides(rows.shape[:2]))
        moments.log_sum_exp(rows, outputs, arithmetic_type(x.dtype), invocations_per_row(rows))
        return Tensor(out)
    wide: Any = x.to(arithmetic_type(x.dtype))
    row_maximum = amax(wide, axes, True)
    offset = where(isinf(row_maximum), 0.0, row_maximum)  # inf - inf would be NaN
    total: Any = log(sum(exp(wide - offset), axes, True)) + offset
    return reshape(total, _reduced_shape(x, axes, keepdim)).to(x.dtype)


@cached("logsumexp()")
def logsumexp(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over axes, without overflow."""
    x = x if checked(x, "logsumexp").dtype.is_float else x.to(dtypes.f32)
    return _logsumexp(x, axes=axes_of(x, dim, "logsumexp"), keepdim=keepdim)


def allclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return True if all elements of a and b are close (see `isclose`); waits for the device."""
    from .arithmetic import isclose

    return bool(all(isclose(a, b, rtol, atol, equal_nan)).item())


def equal(a: Tensor, b: Tensor) -> bool:
    """Return True if a and b have the same shape and equal elements; waits for the device."""
    return a.shape == b.shape and bool(all(a == b).item())
