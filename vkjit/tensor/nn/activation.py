"""Activation functions composed of tensor operations. The basic ones, such as relu and gelu, are in `ops.elementwise`.

They take float tensors; `hardtanh`, `softsign`, `tanhshrink` and `threshold` also accept integers.
"""

from __future__ import annotations

from typing import Any

from vkjit.errors import ArgumentError, ShapeError
from vkjit.stdlib.elementwise import functions

from ..dispatch import operation
from ..op_cache import cached
from ..ops.arithmetic import clamp, where
from ..ops.elementwise import checked, elu, sigmoid, tanh
from ..ops.elementwise_launch import arithmetic_type, run_map
from ..ops.views import axis_of, narrow, reshape
from ..tensor import Tensor
from .common import check_float

__all__ = [
    "celu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "mish", "prelu", "relu6", "selu", "softshrink",
    "softsign", "tanhshrink", "threshold",
]  # fmt: skip

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
"""Constants of SELU (Klambauer et al., 2017)."""


@operation("hardtanh")
def _hardtanh(x: Tensor, *, low: float, high: float) -> Tensor:
    """Clamp the elements of x to [low, high]."""
    compute = arithmetic_type(x.dtype)
    return run_map(functions.clamp, (x, low, high), x.dtype, compute, first=compute)


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Clamp x to [min_val, max_val]; the gradient is 0 at the bounds."""
    if not min_val <= max_val:
        raise ArgumentError(f"hardtanh(): min_val={min_val} must not be above max_val={max_val}")
    if checked(x, "hardtanh").dtype.is_integer:
        return clamp(x, int(min_val), int(max_val))
    return _hardtanh(check_float(x, "hardtanh"), low=float(min_val), high=float(max_val))


def relu6(x: Tensor) -> Tensor:
    """Clamp x to [0, 6]."""
    return hardtanh(x, 0.0, 6.0)


def hardsigmoid(x: Any) -> Tensor:
    """Return (x + 3) / 6 clamped to [0, 1]."""
    return relu6(check_float(x, "hardsigmoid") + 3.0) / 6.0


def hardswish(x: Any) -> Tensor:
    """Return x * hardsigmoid(x)."""
    return x * hardsigmoid(x)  # type: ignore[no-any-return]


@operation("mish", replayable=True)
def mish(x: Tensor) -> Tensor:
    """Return x * tanh(softplus(x))."""
    compute = arithmetic_type(check_float(x, "mish").dtype)
    return run_map(functions.mish, (x,), x.dtype, compute, first=compute)


def selu(x: Any) -> Tensor:
    """Return 1.0507 * elu(x, alpha=1.6733), which preserves zero mean and unit variance (self-normalizing networks)."""
    return elu(check_float(x, "selu"), alpha=SELU_ALPHA) * SELU_SCALE


def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (exp(x / alpha) - 1)."""
    if alpha == 0:
        raise ArgumentError("celu(): alpha=0, expected another number")
    return elu(check_float(x, "celu") / alpha) * alpha


def softsign(x: Tensor) -> Tensor:
    """Return x / (1 + abs(x))."""
    return x / (checked(x, "softsign").abs() + 1.0)


def tanhshrink(x: Any) -> Tensor:
    """Return x - tanh(x)."""
    return x - tanh(checked(x, "tanhshrink"))  # type: ignore[no-any-return]


def hardshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """Return x where abs(x) > lambd, else 0."""
    return where(check_float(x, "hardshrink").abs() <= lambd, 0.0, x)  # not x > lambd: NaN propagates


def softshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """Return x - lambd where x > lambd, x + lambd where x < -lambd, else 0."""
    if lambd < 0:
        raise ArgumentError(f"softshrink(): lambd={lambd}, expected at least 0")
    inside = where(check_float(x, "softshrink") < -lambd, x + lambd, x * 0.0)  # x * 0.0 keeps NaN
    return where(x > lambd, x - lambd, inside)


def threshold(x: Any, threshold: float, value: float) -> Tensor:
    """Return x where x > threshold, else value; NaN propagates."""
    return where(checked(x, "threshold") <= threshold, float(value) if x.dtype.is_float else int(value), x)


@cached("glu()")
def glu(x: Any, dim: int = -1) -> Tensor:
    """Return the gated linear unit: a * sigmoid(b), where a and b are the halves of x along dim."""
    axis = axis_of(dim, check_float(x, "glu").ndim, "glu")
    half, odd = divmod(x.shape[axis], 2)
    if odd:
        raise ShapeError(f"glu() halves axis {dim} of {x.shape}: expected an even size")
    return narrow(x, axis, 0, half) * sigmoid(narrow(x, axis, half, half))


def prelu(x: Any, weight: Any) -> Tensor:
    """Return x where x > 0, else weight * x; weight has one element, or one per channel (axis 1) of x."""
    check_float(x, "prelu")
    check_float(weight, "prelu", "the weight")
    count = weight.numel()
    channels = x.shape[1] if x.ndim > 1 else 1
    if count not in (1, channels):
        raise ShapeError(
            f"prelu(): the weight has {count} elements, expected 1 or the {channels} channels of {x.shape}"
        )
    # in a shape that broadcasts to x, with several slopes along axis 1
    slopes = reshape(weight, (1, -1, *[1] * (x.ndim - 2)) if count > 1 else (1,) * x.ndim)
    return where(x > 0, x, slopes * x)
