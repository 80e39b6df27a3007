"""The array API standard's reductions and scans: its statistical and utility functions, and argmin and argmax.

For reductions, `axis` is an axis or a sequence of axes, None for all. With `keepdims`, reduced axes stay as axes of
size 1. Sums and products of integers are 64-bit integers, unless `dtype` gives another type for the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..tensor.ops import creation, cumulative, reductions
from ..tensor.ops.copies import cat
from ..tensor.ops.views import unsqueeze
from ..tensor.tensor import Tensor

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod",
    "std", "sum", "var",
]  # fmt: skip

Axes = int | Sequence[int] | None


def _sum_type(x: Tensor, dtype: Any) -> DType:
    """Return the type of sums and products: `dtype` if given, else a type chosen by that of x.

    Unsigned integers become u64, signed integers and bool become i64, and floats keep their type.
    """
    if dtype is not None:
        return dtype  # type: ignore[no-any-return]
    return x.dtype if x.dtype.is_float else dtypes.u64 if x.dtype.kind == "uint" else dtypes.i64


def _reduced(reduce: Any, x: Tensor, axis: Axes, keepdims: bool, **params: Any) -> Tensor:
    """Run a reduction of `tensor.ops`. For `axis=()`, reduce each element by itself; PyTorch would reduce all axes."""
    if axis == ():
        return reduce(unsqueeze(x, -1), -1, **params)  # type: ignore[no-any-return]
    return reduce(x, axis, keepdim=keepdims, **params)  # type: ignore[no-any-return]


def sum(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the sum over axes (None: all)."""
    return _reduced(reductions.sum, x, axis, keepdims, dtype=_sum_type(x, dtype))


def prod(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the product over axes (None: all)."""
    return _reduced(reductions.prod, x, axis, keepdims, dtype=_sum_type(x, dtype))


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean over axes (None: all)."""
    return _reduced(reductions.mean, x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance over axes (None: all): sum((x - mean)^2) / (number of elements - correction)."""
    return _reduced(reductions.var, x, axis, keepdims, correction=correction)


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation over axes (None: all), the square root of `var`."""
    return _reduced(reductions.std, x, axis, keepdims, correction=correction)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the maximum over axes (None: all)."""
    return _reduced(reductions.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the minimum over axes (None: all)."""
    return _reduced(reductions.amin, x, axis, keepdims)


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return True where all elements over the axes (None: all) are nonzero."""
    return _reduced(reductions.all, x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return True where any element over the axes (None: all) is nonzero."""
    return _reduced(reductions.any, x, axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the maximum along an axis (None: of the flattened tensor)."""
    return reductions.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the minimum along an axis (None: of the flattened tensor)."""
    return reductions.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the number of nonzero elements over axes (None: all)."""
    return _reduced(reductions.sum, x != 0, axis, keepdims)


def _cumulative(scan: Any, start: int, x: Tensor, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    """Run a scan of `tensor.ops`; `include_initial` prepends `start`. `axis` may be None for vectors."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative sums and products of tensors with {x.ndim} axes need axis=")
        axis = 0
    result = scan(x, axis, dtype=_sum_type(x, dtype))
    if not include_initial:
        return result  # type: ignore[no-any-return]
    axis %= x.ndim
    shape = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    first = creation.full(shape, start, dtype=result.dtype, device=x.device)
    return cat([first, result], axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Return the cumulative sum along an axis; `include_initial` prepends 0."""
    return _cumulative(cumulative.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Return the cumulative product along an axis; `include_initial` prepends 1."""
    return _cumulative(cumulative.cumprod, 1, x, axis, dtype, include_initial)
