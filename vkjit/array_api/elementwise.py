"""The array API standard's elementwise functions.

Most are functions of `vkjit.tensor.ops` under the standard's names: `a` stands for its module `arithmetic` (functions
of several operands), `e` for its module `elementwise` (functions of one operand).
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import DTypeError
from ..tensor.ops import arithmetic as a, elementwise as e
from ..tensor.ops.broadcast import broadcast_shapes
from ..tensor.ops.elementwise import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    cos,
    cosh,
    exp,
    expm1,
    floor,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    positive,
    reciprocal,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from ..tensor.ops.special import logaddexp, signbit
from ..tensor.ops.views import expand
from ..tensor.tensor import Tensor

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
    "where",
]  # fmt: skip

abs = e.abs
round = e.round
negative = e.neg
bitwise_invert = e.bitwise_not

add = a.add
subtract = a.sub
multiply = a.mul
divide = a.true_divide
remainder = a.remainder
pow = a.pow
atan2 = a.atan2
hypot = a.hypot
copysign = a.copysign
maximum = a.maximum
minimum = a.minimum
equal = a.eq
not_equal = a.ne
less = a.lt
less_equal = a.le
greater = a.gt
greater_equal = a.ge
logical_and = a.logical_and
logical_or = a.logical_or
logical_xor = a.logical_xor
bitwise_and = a.bitwise_and
bitwise_or = a.bitwise_or
bitwise_xor = a.bitwise_xor
bitwise_left_shift = a.bitwise_left_shift
bitwise_right_shift = a.bitwise_right_shift


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """Return the quotient rounded down. As in the standard, an infinity divided by a finite number is infinite.

    PyTorch's result, which `arithmetic.floor_divide` gives, is NaN.
    """
    result = a.floor_divide(x1, x2)
    if not result.dtype.is_float:
        return result
    return a.where(x1.isinf(), a.true_divide(x1, x2), result) if isinstance(x1, Tensor) else result


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Return x limited to [min, max], in x's type. The bounds are scalars or tensors that broadcast with x, or None."""
    tensors = [b for b in (min, max) if isinstance(b, Tensor)]
    shape = broadcast_shapes(x.shape, *(t.shape for t in tensors))
    expanded = expand(x, shape)
    if min is None and max is None:
        return expanded.clone()
    result = a.clamp(expanded, min, max)
    return result if result.dtype is x.dtype else result.to(x.dtype)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Return the elements of x1 where the condition is true, else those of x2."""
    return a.where(condition, x1, x2)


def nextafter(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the next representable value after x1 towards x2. Raises DTypeError for types other than f32 and f64."""
    from ..stdlib.elementwise import special_functions
    from ..tensor.ops.elementwise_launch import run_map
    from ..tensor.promotion import result_type

    dtype = result_type(x1, x2)
    if dtype not in (dtypes.f32, dtypes.f64):
        raise DTypeError(f"nextafter() takes f32 or f64, found {dtype!r}")
    function = special_functions.nextafter_f32 if dtype is dtypes.f32 else special_functions.nextafter_f64
    return run_map(function, (x1, x2), dtype, dtype)


def sign(x: Any) -> Any:
    """Return -1, 0 or 1 by the sign of each element, and NaN for NaN."""
    signs = e.sign(x)
    return a.where(e.isnan(x), x, signs) if x.dtype.is_float else signs
