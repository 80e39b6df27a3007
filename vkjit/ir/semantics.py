"""Semantics of elementwise operations as NumPy functions: the reference that constant folder and interpreter share.

The functions take NumPy arrays (or scalars) of the operation's type, and return an array of the result type. They raise
no errors for special values: integers wrap, integer division by zero gives 0, floats follow IEEE 754. Call them inside
`silence_warnings()`. `MEANING` maps each operation to its function. Functions without a docstring are named like the
operation, which the op table (`ops`) describes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import DType
from ._gen_op_names import OpName

__all__ = ["MEANING", "cast", "silence_warnings"]

Array = Any


def silence_warnings() -> np.errstate:
    """Return a context manager that silences NumPy's floating-point warnings. Call the functions in `MEANING` in it."""
    return np.errstate(all="ignore")


def _is_float(x: Array) -> bool:
    return bool(np.asarray(x).dtype.kind == "f")


def _guarded(x: Array, y: Array, function: Callable[[Array, Array], Array]) -> Array:
    """Apply an integer division or remainder `function`. The result is 0 where the divisor is 0."""
    one = np.asarray(y).dtype.type(1)
    by_zero = y == 0
    return np.where(by_zero, np.asarray(x).dtype.type(0), function(x, np.where(by_zero, one, y)))


def floordiv(x: Array, y: Array) -> Array:
    if _is_float(x):
        return np.floor_divide(x, y)
    return _guarded(x, y, np.floor_divide)


def floormod(x: Array, y: Array) -> Array:
    if _is_float(x):
        return np.remainder(x, y)
    return _guarded(x, y, np.remainder)


def _trunc_quotient(x: Array, y: Array) -> Array:
    """Divide integers, rounding toward zero. NumPy rounds down, so inexact negative quotients are incremented."""
    dtype = np.asarray(x).dtype
    quotient = np.floor_divide(x, y)
    remainder = x - quotient * y
    inexact_negative = (remainder != 0) & ((x < 0) != (y < 0))
    return np.asarray(quotient + inexact_negative.astype(dtype), dtype=dtype)


def truncdiv(x: Array, y: Array) -> Array:
    if _is_float(x):
        return np.trunc(x / y)
    return _guarded(x, y, _trunc_quotient)


def truncrem(x: Array, y: Array) -> Array:
    if _is_float(x):
        return np.fmod(x, y)
    return _guarded(x, y, np.fmod)


def _ordered_min(x: Array, y: Array) -> Array:
    """Return the minimum; NaN propagates, and -0 < +0."""
    if not _is_float(x):
        return np.minimum(x, y)
    lower = np.where(np.signbit(x), x, y)
    return np.where((x == 0) & (y == 0), lower, np.minimum(x, y))


def _ordered_max(x: Array, y: Array) -> Array:
    """Return the maximum; NaN propagates, and -0 < +0."""
    if not _is_float(x):
        return np.maximum(x, y)
    upper = np.where(np.signbit(x), y, x)
    return np.where((x == 0) & (y == 0), upper, np.maximum(x, y))


def _shift_amount(x: Array, y: Array) -> Array:
    """Return the shift amount y modulo the bit width of x, in the type of x."""
    width = np.asarray(x).dtype.itemsize * 8
    return np.asarray(y & np.asarray(y).dtype.type(width - 1)).astype(np.asarray(x).dtype)


def shl(x: Array, y: Array) -> Array:
    return np.left_shift(x, _shift_amount(x, y))


def shr(x: Array, y: Array) -> Array:
    """Shift right: arithmetic for signed types, logical for unsigned ones."""
    return np.right_shift(x, _shift_amount(x, y))


def bit_not(x: Array) -> Array:
    """Return the complement of an integer or bool."""
    return np.logical_not(x) if np.asarray(x).dtype.kind == "b" else np.invert(x)


def _wide(x: Array) -> Array:
    """Convert f16 and f32 to float64; return other types unchanged.

    NumPy's vectorized float32 functions differ between CPUs in the last bits. Functions that are computed in float64
    and then rounded have the same results on every CPU.
    """
    return x.astype(np.float64) if np.asarray(x).dtype in (np.float16, np.float32) else x


def _rounded(function: Callable[..., Array]) -> Callable[..., Array]:
    """Wrap a function so that it computes f16 and f32 in float64 and rounds the result to the type of its operands."""

    def meaning(*xs: Array) -> Array:
        result = function(*(_wide(np.asarray(x)) for x in xs))
        return np.asarray(result, dtype=np.asarray(xs[0]).dtype)

    return meaning


def _per_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Turn a function of a Python float into a function of arrays. Results are rounded to the array's type."""
    vectorized = np.vectorize(function, otypes=[np.float64])

    def meaning(x: Array) -> Array:
        x = np.asarray(x)
        if x.size == 0:
            return x.copy()
        return np.asarray(vectorized(x.astype(np.float64)), dtype=x.dtype)

    return meaning


def _popcount(x: Array) -> Array:
    if not hasattr(np, "bitwise_count"):
        return _count_set_bits(x)
    return np.bitwise_count(_unsigned(x)).astype(np.asarray(x).dtype)


def _unsigned(x: Array) -> Array:
    """Reinterpret signed integers as unsigned ones."""
    x = np.asarray(x)
    return x.view(np.dtype(f"u{x.dtype.itemsize}")) if x.dtype.kind == "i" else x


def _count_set_bits(x: Array) -> Array:
    """Count set bits, for versions of NumPy without `bitwise_count`."""
    u = _unsigned(np.asarray(x))
    total = np.zeros(u.shape, dtype=np.int64)
    for bit in range(u.dtype.itemsize * 8):
        total += ((u >> u.dtype.type(bit)) & u.dtype.type(1)).astype(np.int64)
    return total.astype(np.asarray(x).dtype)


def _clz(x: Array) -> Array:
    """Count leading zeros."""
    u = _unsigned(np.asarray(x))
    width = u.dtype.itemsize * 8
    result = np.full(u.shape, width, dtype=np.int64)
    for bit in range(width):  # the highest set bit is the last one to change the result
        result = np.where((u >> u.dtype.type(bit)) & u.dtype.type(1) != 0, width - 1 - bit, result)
    return result.astype(np.asarray(x).dtype)


def _ctz(x: Array) -> Array:
    """Count trailing zeros."""
    u = _unsigned(np.asarray(x))
    width = u.dtype.itemsize * 8
    result = np.full(u.shape, width, dtype=np.int64)
    for bit in reversed(range(width)):  # the lowest set bit is the last one to change the result
        result = np.where((u >> u.dtype.type(bit)) & u.dtype.type(1) != 0, bit, result)
    return result.astype(np.asarray(x).dtype)


def _float_pow(x: Array, y: Array) -> Array:
    return np.power(x, y)


def _int_pow(x: Array, y: Array) -> Array:
    """Compute an integer power by squaring, wrapping around.

    For a negative exponent, the result is the exact power truncated to an integer: 0 except for the bases 1 and -1.
    """
    result = np.ones_like(x)
    base, exponent = np.array(x), np.array(y)
    negative = exponent < 0
    exponent = np.where(negative, -exponent, exponent)
    odd = (np.array(y) & np.asarray(y).dtype.type(1)) != 0
    for _ in range(np.asarray(y).dtype.itemsize * 8):  # one iteration per bit of the exponent, lowest first
        result = np.where(exponent & exponent.dtype.type(1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> exponent.dtype.type(1)
    one = np.asarray(x).dtype.type(1)
    inverse = np.where(x == one, one, np.asarray(x).dtype.type(0))  # the result for negative exponents
    if np.asarray(x).dtype.kind == "i":
        minus_one = np.asarray(x).dtype.type(-1)
        inverse = np.where(x == minus_one, np.where(odd, minus_one, one), inverse)
    return np.where(negative, inverse, result)


def power(x: Array, y: Array) -> Array:
    return _rounded(_float_pow)(x, y) if _is_float(x) else _int_pow(x, y)


def _saturate(x: Array, target: np.dtype[Any]) -> Array:
    """Convert floats to integers: truncate, saturate at the limits of the type, NaN gives 0."""
    info = np.iinfo(target)
    wide = np.trunc(x.astype(np.float64))
    below = wide < float(info.min)
    above = wide >= float(info.max) + 1.0  # for 64 bits, both float(info.max) and this sum are rounded to info.max + 1
    nan = np.isnan(wide)
    in_range = np.where(below | above | nan, 0.0, wide)  # NumPy's conversion of other values is undefined
    result = in_range.astype(target)
    result = np.where(above, target.type(info.max), np.where(below, target.type(info.min), result))
    return np.where(nan, target.type(0), result)


def to_bf16(x: Array) -> Array:
    """Round numbers to the nearest bf16 (ties to even); the result is a float32 array."""
    x = _to_odd_f32(np.asarray(x))
    bits = x.view(np.uint32)
    # add just under half a bf16 ULP, or exactly half to an odd value, and clear the lower half
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    rounded = np.where(np.isnan(x), np.uint32(0x7FC00000), rounded).astype(np.uint32)  # all NaNs become the default one
    return rounded.view(np.float32)


def _to_odd_f32(x: Array) -> Array:
    """Convert to float32, inexact values to the neighbor with an odd last bit, so that rounding again is correct."""
    result = np.asarray(x, dtype=np.float32)
    if np.can_cast(x.dtype, np.float32):
        return result
    exact = result.astype(x.dtype) if x.dtype.kind == "f" else _saturate(result, x.dtype)
    is_larger = np.where(x >= 0, exact > x, exact < x)  # in magnitude
    odd = (result.view(np.uint32) - is_larger.astype(np.uint32)) | np.uint32(1)
    return np.where((exact == x) | np.isnan(result), result, odd.view(np.float32))


def cast(x: Array, source: DType, target: DType) -> Array:
    """Convert values between dtypes by the rules of the language.

    Floats saturate when converted to integers, integers wrap around, and the conversion to bool is `!= 0`.
    """
    x = np.asarray(x)
    if target.kind == "bool":
        return x != 0
    if source.is_float and not target.is_float:
        return _saturate(x, target.numpy)
    return to_bf16(x) if target.name == "bf16" else x.astype(target.numpy)


_erf = _per_element(math.erf)
_erfc = _per_element(math.erfc)

MEANING: dict[OpName, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncrem": truncrem,
    "neg": np.negative,
    "abs": np.absolute,
    "sign": np.sign,
    "min": _ordered_min,
    "max": _ordered_max,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "pow": power,
    "fma": lambda x, y, z: x * y + z,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": bit_not,
    "shl": shl,
    "shr": shr,
    "popcount": _popcount,
    "clz": _clz,
    "ctz": _ctz,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "select": np.where,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "sqrt": np.sqrt,
    "rsqrt": _rounded(lambda x: 1.0 / np.sqrt(x)),
    "exp": _rounded(np.exp),
    "exp2": _rounded(np.exp2),
    "expm1": _rounded(np.expm1),
    "log": _rounded(np.log),
    "log2": _rounded(np.log2),
    "log10": _rounded(np.log10),
    "log1p": _rounded(np.log1p),
    "sin": _rounded(np.sin),
    "cos": _rounded(np.cos),
    "tan": _rounded(np.tan),
    "asin": _rounded(np.arcsin),
    "acos": _rounded(np.arccos),
    "atan": _rounded(np.arctan),
    "sinh": _rounded(np.sinh),
    "cosh": _rounded(np.cosh),
    "tanh": _rounded(np.tanh),
    "asinh": _rounded(np.arcsinh),
    "acosh": _rounded(np.arccosh),
    "atanh": _rounded(np.arctanh),
    "erf": _erf,
    "erfc": _erfc,
    "atan2": _rounded(np.arctan2),
    "hypot": _rounded(np.hypot),
    "copysign": np.copysign,
}
"""Maps the name of an operation to its NumPy function. `cast` and `bitcast` need the types and are separate."""
