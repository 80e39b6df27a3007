"""The array API's statistical, searching and utility functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..tensor import creation, reductions, running
from ..tensor.copies import cat
from ..tensor.tensor import Tensor
from ..tensor.views import unsqueeze

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod",
    "std", "sum", "var",
]  # fmt: skip

Axes = int | Sequence[int] | None


def _summed_type(x: Tensor, dtype: Any) -> DType:
    """The standard's type of sums and products: at least the default integer of the same sign."""
    if dtype is not None:
        return dtype  # type: ignore[no-any-return]
    return x.dtype if x.dtype.is_float else dtypes.u64 if x.dtype.kind == "uint" else dtypes.i64


def _over(reduce: Any, x: Tensor, axis: Axes, keepdims: bool, **params: Any) -> Tensor:
    """A reduction of PyTorch's; where no axis is named, of each element alone (PyTorch's then takes all axes)."""
    if axis == ():
        return reduce(unsqueeze(x, -1), -1, **params)  # type: ignore[no-any-return]
    return reduce(x, axis, keepdim=keepdims, **params)  # type: ignore[no-any-return]


def sum(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over axes."""
    return _over(reductions.sum, x, axis, keepdims, dtype=_summed_type(x, dtype))


def prod(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over axes."""
    return _over(reductions.prod, x, axis, keepdims, dtype=_summed_type(x, dtype))


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean over axes."""
    return _over(reductions.mean, x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance over axes."""
    return _over(reductions.var, x, axis, keepdims, correction=correction)


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation over axes."""
    return _over(reductions.std, x, axis, keepdims, correction=correction)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The maximum over axes."""
    return _over(reductions.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The minimum over axes."""
    return _over(reductions.amin, x, axis, keepdims)


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether no element is 0."""
    return _over(reductions.all, x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether any element isn't 0."""
    return _over(reductions.any, x, axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the maximum lies."""
    return reductions.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the minimum lies."""
    return reductions.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements aren't 0."""
    return _over(reductions.sum, x != 0, axis, keepdims)


def _cumulative(run: Any, start: int, x: Tensor, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"running results of {x.ndim} axes need axis=")
        axis = 0
    result = run(x, axis, dtype=_summed_type(x, dtype))
    if not include_initial:
        return result  # type: ignore[no-any-return]
    axis %= x.ndim
    shape = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    first = creation.full(shape, start, dtype=result.dtype, device=x.device)
    return cat([first, result], axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Running sums along an axis."""
    return _cumulative(running.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Running products along an axis."""
    return _cumulative(running.cumprod, 1, x, axis, dtype, include_initial)
