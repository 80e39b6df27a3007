"""Elementwise operations beyond `elementwise` and `arithmetic`: special functions, fused forms, float predicates, gcd.

Operands are tensors and Python scalars, which broadcast. Results have the promoted type (`vkjit.tensor.promotion`).
"""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, DTypeError
from vkjit.stdlib.elementwise import functions, special_functions

from ..autograd.mode import modes
from ..dispatch import is_recording, operation
from ..op_cache import cached
from ..precision import computed_in_f32
from ..promotion import result_type
from ..tensor import Tensor
from . import creation
from .arithmetic import _binary, _pair, add, clamp, mul, pow, sub, true_divide, where
from .elementwise import _floats, _predicate, checked, float_type, sign
from .elementwise_launch import arithmetic_type, run_map

__all__ = [
    "addcdiv", "addcmul", "clamp_max", "clamp_min", "deg2rad", "erfinv", "fill", "float_power", "gcd", "heaviside",
    "isneginf", "isposinf", "isreal", "lcm", "ldexp", "logaddexp", "logaddexp2", "logit", "nan_to_num", "rad2deg",
    "rsub", "sgn", "signbit", "sinc",
]  # fmt: skip

Operand = Any

_logit = _floats("logit", functions.logit, "log(x / (1 - x))")
erfinv = _floats("erfinv", special_functions.erfinv, "the inverse error function, NaN outside [-1, 1]")
entr = _floats("entr", special_functions.entr, "-x log(x)")
ndtr = _floats("ndtr", special_functions.ndtr, "the standard normal CDF")
sinc = _floats("sinc", special_functions.sinc, "sin(pi x) / (pi x), 1 at 0")
logaddexp = _binary("logaddexp", special_functions.logaddexp, "log(exp(a) + exp(b)), without overflow", floats=True)
logaddexp2 = _binary("logaddexp2", special_functions.logaddexp2, "log2(2 ** a + 2 ** b), without overflow", floats=True)
xlog1py = _binary("xlog1py", special_functions.xlog1py, "a * log(1 + b), 0 where a is 0", floats=True)
heaviside = _binary("heaviside", special_functions.heaviside, "0 where a is below 0, b where it is 0, else 1")
isposinf = _predicate("isposinf", special_functions.is_inf_above, "x is inf")
isneginf = _predicate("isneginf", special_functions.is_inf_below, "x is -inf")


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """Return log(x / (1 - x)), elementwise; with `eps`, x is clamped to [eps, 1 - eps] first."""
    if eps is None:
        return _logit(x)
    return _logit(clamp(x if checked(x, "logit").dtype.is_float else x.to(dtypes.f32), eps, 1 - eps))


@operation("gcd")
def gcd(a: Operand, b: Operand) -> Tensor:
    """Return the greatest common divisor of integers, elementwise; it is never negative."""
    dtype = result_type(a, b)
    if not dtype.is_integer:
        raise DTypeError(f"gcd() takes integers, found {dtype!r}")
    return run_map(special_functions.gcd, (a, b), dtype, dtype)


def lcm(a: Any, b: Any) -> Tensor:
    """Return the least common multiple of integers, elementwise; 0 if either is 0."""
    common = gcd(a, b)  # 0 only if both are 0
    product: Any = mul(a // where(common == 0, 1, common), b)
    return product.abs() if product.dtype.kind == "int" else product  # type: ignore[no-any-return]


def signbit(x: Tensor) -> Tensor:
    """Return a bool tensor that is True where the sign bit is set, including -0, elementwise."""
    if not checked(x, "signbit").dtype.is_float:
        return x < 0 if x.dtype.kind == "int" else creation.zeros(x.shape, dtype=dtypes.boolean, device=x.device)
    return _sign_bit(x)


_sign_bit = _predicate("signbit", special_functions.sign_bit, "the sign bit is set")


def isreal(x: Tensor) -> Tensor:
    """Return True everywhere: there are no complex types."""
    return creation.ones(checked(x, "isreal").shape, dtype=dtypes.boolean, device=x.device)


def sgn(x: Tensor) -> Tensor:
    """Alias of `sign`: there are no complex types."""
    return sign(x)


def rsub(x: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """Return other - alpha * x."""
    return sub(other, x, alpha=alpha)


@cached("addcmul()")
def addcmul(x: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """Return x + value * tensor1 * tensor2."""
    operands = (x, tensor1, tensor2)
    # one kernel if all operands are tensors of one type (not bool), and nothing is to be converted or recorded
    type_names = {o.dtype.name if isinstance(o, Tensor) else "" for o in operands}
    same_type = len(type_names) == 1 and not type_names & {"", "bool"}
    if value == 1 and same_type and modes.get().autocast is None and not is_recording(operands):
        compute = arithmetic_type(x.dtype)
        return run_map(functions.mul_add, operands, x.dtype, compute, first=compute)
    return _addcmul(*operands, value=value)


@computed_in_f32
def _addcmul(x: Any, tensor1: Any, tensor2: Any, *, value: float) -> Tensor:
    return add(x, mul(tensor1, tensor2), alpha=value)


@cached("addcdiv()")
@computed_in_f32
def addcdiv(x: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """Return x + value * tensor1 / tensor2. Raises DTypeError for integers."""
    if not result_type(x, tensor1, tensor2).is_float:
        raise DTypeError("addcdiv() takes floats: convert with .to(vk.f32)")
    return add(x, true_divide(tensor1, tensor2), alpha=value)


def clamp_min(x: Tensor, min: Operand) -> Tensor:
    """Return x limited to at least `min`."""
    return clamp(x, min=min)


def clamp_max(x: Tensor, max: Operand) -> Tensor:
    """Return x limited to at most `max`."""
    return clamp(x, max=max)


@computed_in_f32
def deg2rad(x: Any) -> Tensor:
    """Convert degrees to radians."""
    return x * (math.pi / 180)  # type: ignore[no-any-return]


@computed_in_f32
def rad2deg(x: Any) -> Tensor:
    """Convert radians to degrees."""
    return x * (180 / math.pi)  # type: ignore[no-any-return]


def float_power(x: Operand, exponent: Operand) -> Tensor:
    """Return x ** exponent, computed in f64."""

    def double(value: Any) -> Any:
        return value.to(dtypes.f64) if isinstance(value, Tensor) else float(value)

    return pow(double(x), double(exponent))


@operation("ldexp", replayable=True)
def ldexp(x: Operand, other: Operand) -> Tensor:
    """Return x * 2 ** other as floats, elementwise, also where 2 ** other is out of range."""
    x, other, dtype = _pair(x, other, "ldexp")
    result = float_type(dtype)
    compute = arithmetic_type(result)
    scale = special_functions.ldexp_f64 if compute is dtypes.f64 else special_functions.ldexp_f32
    return run_map(scale, (x, other), result, compute)


def fill(x: Tensor, value: Any) -> Tensor:
    """Return a tensor of x's shape and type filled with `value`. A 0-d tensor as `value` receives a gradient."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise ArgumentError(f"fill() takes a number or a 0-d tensor, found shape {value.shape}")
        # x only determines the shape; the product with 1 doesn't change the values
        return mul(where(creation.ones_like(x, dtype=dtypes.boolean), value.to(x.dtype), x.detach()), 1)
    return where(creation.ones_like(x, dtype=dtypes.boolean), value, x)


# largest finite value of each float type
_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}


def nan_to_num(x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Return x with NaN replaced by `nan`, inf by `posinf`, and -inf by `neginf`.

    The defaults are 0, and the largest and the lowest finite value of the type.
    """
    if not checked(x, "nan_to_num").dtype.is_float:
        return x.clone()
    largest = _LARGEST[x.dtype.name]
    result = where(x != x, 0.0 if nan is None else nan, x)
    result = where(isposinf(x), largest if posinf is None else posinf, result)
    return where(isneginf(x), -largest if neginf is None else neginf, result)
