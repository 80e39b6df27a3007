"""Softmax and log-softmax.

16-bit floats are computed in f32. A row of only -inf yields NaN, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from vkjit.stdlib.rows import softmax as kernels, softmax_cpu_plan  # noqa: F401  registers variants for the device "cpu"

from ..dispatch import operation
from ..op_cache import whole
from ..ops.views import axis_of
from ..tensor import Tensor
from .common import allocate_like, check_float, dense, dense_view, outer_inner

__all__ = ["log_softmax", "softmax", "softmin"]


def _run(x: Tensor, axis: int, *, log: bool) -> Tensor:
    """Return softmax(x), or log_softmax(x) if `log`, along an axis."""
    y = allocate_like(x.shape, x.dtype, x)
    rows = outer_inner(x.shape, axis) if x.ndim else (1, 1, 1)
    kernels.softmax(dense_view(dense(x), *rows), dense_view(y._array, *rows), log=log)
    return y


@operation("softmax")
def _softmax(x: Tensor, *, axis: int) -> Tensor:
    return _run(x, axis, log=False)


@operation("log_softmax")
def _log_softmax(x: Tensor, *, axis: int) -> Tensor:
    return _run(x, axis, log=True)


def _gradient(g: Tensor, y: Tensor, axis: int, *, log: bool) -> Tensor:
    """Return the gradient of x, given the result y and its gradient g."""
    x_gradient = allocate_like(y.shape, y.dtype, y)
    rows = outer_inner(y.shape, axis) if y.ndim else (1, 1, 1)
    kernels.gradient(
        dense_view(dense(g), *rows), dense_view(dense(y), *rows), dense_view(x_gradient._array, *rows), log=log
    )
    return x_gradient


def softmax_gradient(g: Tensor, y: Tensor, *, axis: int, log: bool) -> Tensor:
    """Return the gradient of x, given the gradient g of y = softmax(x), or of y = log_softmax(x) if `log`.

    Autograd doesn't record the call.
    """
    return _gradient(g, y, axis, log=log)


def _prepared(x: Any, dim: int, dtype: Any, name: str) -> tuple[Tensor, int]:
    """Return x, converted to `dtype` if given, and the axis `dim` counted from the start."""
    if dtype is not None and isinstance(x, Tensor):
        x = x.to(dtype)
    return check_float(x, name), axis_of(dim, max(x.ndim, 1), name)


@whole("softmax")
def softmax(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Return exp(x) / sum(exp(x)) along an axis; `dtype` converts x first."""
    x, axis = _prepared(x, dim, dtype, "softmax")
    return _softmax(x, axis=axis)


@whole("log_softmax")
def log_softmax(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Return log(softmax(x)) along an axis, without overflow; `dtype` converts x first."""
    x, axis = _prepared(x, dim, dtype, "log_softmax")
    return _log_softmax(x, axis=axis)


def softmin(x: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Return softmax(-x)."""
    return softmax(-x, dim, dtype=dtype)
