"""Softmax and log-softmax along an axis.

16-bit floats are computed in f32. If all elements along the axis are -inf, the result is NaN, as in PyTorch.

The kernels work along the middle of three axes, so arrays are passed to them with the shape (outer, size, inner), in
which outer and inner are the products of the sizes before and after the axis (`outer_inner`).
"""

from __future__ import annotations

from typing import Any

from vkjit.stdlib.rows import softmax as kernels, softmax_cpu_plan  # noqa: F401  # registers CPU variants when imported

from ..dispatch import operation
from ..op_cache import cached
from ..ops.views import axis_of
from ..tensor import Tensor
from .common import allocate_like, check_float, dense, dense_view, outer_inner

__all__ = ["log_softmax", "softmax", "softmin"]


def _softmax_along(x: Tensor, axis: int, *, log: bool) -> Tensor:
    """Return softmax(x), or log_softmax(x) if `log`, along an axis."""
    y = allocate_like(x.shape, x.dtype, x)
    sizes = outer_inner(x.shape, axis) if x.ndim else (1, 1, 1)  # a 0-d tensor is an axis of one element
    kernels.softmax(dense_view(dense(x), *sizes), dense_view(y._array, *sizes), log=log)
    return y


@operation("softmax")
def _softmax(x: Tensor, *, axis: int) -> Tensor:
    return _softmax_along(x, axis, log=False)


@operation("log_softmax")
def _log_softmax(x: Tensor, *, axis: int) -> Tensor:
    return _softmax_along(x, axis, log=True)


def softmax_gradient(g: Tensor, y: Tensor, *, axis: int, log: bool) -> Tensor:
    """Return the gradient of x, given the gradient g of y = softmax(x), or of y = log_softmax(x) if `log`.

    Called by the gradient rules of both operations. Autograd doesn't record the call.
    """
    x_gradient = allocate_like(y.shape, y.dtype, y)
    sizes = outer_inner(y.shape, axis) if y.ndim else (1, 1, 1)
    kernels.gradient(
        dense_view(dense(g), *sizes), dense_view(dense(y), *sizes), dense_view(x_gradient._array, *sizes), log=log
    )
    return x_gradient


def _checked(x: Any, dim: int, dtype: Any, name: str) -> tuple[Tensor, int]:
    """Return x, converted to `dtype` if given, and `dim` as a nonnegative axis, after checking both.

    `name` (the function) is for error messages. A 0-d tensor counts as one axis.
    """
    if dtype is not None and isinstance(x, Tensor):
        x = x.to(dtype)
    return check_float(x, name), axis_of(dim, max(x.ndim, 1), name)


@cached("softmax()")
def softmax(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Return exp(x) / sum(exp(x)) along an axis. If `dtype` is given, x is converted to it first."""
    x, axis = _checked(x, dim, dtype, "softmax")
    return _softmax(x, axis=axis)


@cached("log_softmax()")
def log_softmax(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Return log(softmax(x)) along an axis, without overflow. If `dtype` is given, x is converted to it first."""
    x, axis = _checked(x, dim, dtype, "log_softmax")
    return _log_softmax(x, axis=axis)


def softmin(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Return softmax(-x) along an axis. If `dtype` is given, -x is converted to it first."""
    return softmax(-x, dim, dtype=dtype)
