"""Elementwise operations with two or three operands: arithmetic, comparison, logic, selection.

Operands are tensors and Python scalars, which broadcast. Results have the type that `vkjit.tensor.promotion` determines
("the promoted type"), those of comparisons are bool. The kernels apply a device function from
`vkjit.stdlib.elementwise.functions` to each element (`elementwise_launch.run_map`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from vkjit import dtypes, lang
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.ir import semantics
from vkjit.stdlib.elementwise import functions

from ..dispatch import operation
from ..memory import fitted
from ..op_cache import cached
from ..promotion import category, result_type
from ..tensor import Tensor
from . import creation
from .elementwise import abs as absolute, float_type
from .elementwise_launch import arithmetic_type, run_map

__all__ = [
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "clamp",
    "clip", "copysign", "div", "eq", "floor_divide", "fmax", "fmin", "fmod", "ge", "gt", "hypot", "isclose", "le",
    "lerp", "logical_and", "logical_or", "logical_xor", "lt", "masked_fill", "maximum", "minimum", "mul", "ne", "pow",
    "remainder", "sub", "true_divide", "where", "xlogy",
]  # fmt: skip

Operand = Any
Binary = Callable[[Operand, Operand], Tensor]


def operand(value: Any, name: str) -> Any:
    """Return an operand of the function `name`, with a NumPy scalar converted to a Python scalar.

    Raises ArgumentError if it is neither a tensor nor a scalar.
    """
    if isinstance(value, np.generic):  # first: np.float64 is a float too
        return value.item()
    if isinstance(value, (Tensor, bool, int, float)):
        return value
    raise ArgumentError(
        f"{name}: an operand is a {type(value).__name__}, expected a tensor or a number: convert it with vk.tensor(...)"
    )


def _pair(a: Any, b: Any, name: str) -> tuple[Any, Any, DType]:
    """Return two operands, checked, and their promoted type."""
    a, b = operand(a, name), operand(b, name)
    return a, b, result_type(a, b)


def _refuse_bool(dtype: DType, name: str) -> DType:
    """Return `dtype`. Raises DTypeError if it is bool."""
    if dtype.kind == "bool":
        raise DTypeError(f"{name} has no meaning for bool: use ^ or logical_xor, or convert with .to(vk.i32)")
    return dtype


@operation("add", replayable=True)
def add(a: Operand, b: Operand, *, alpha: float = 1) -> Tensor:
    """Return a + alpha * b."""
    a, b, dtype = _pair(a, b, "add")
    if alpha != 1:
        if isinstance(alpha, float) and not dtype.is_float:
            raise DTypeError(f"alpha={alpha} needs float operands, found {dtype!r}")
        compute = arithmetic_type(dtype)
        return run_map(functions.mul_add, (a, b, alpha), dtype, compute, first=compute)
    return run_map(functions.add, (a, b), dtype, arithmetic_type(dtype))


@operation("sub", replayable=True)
def sub(a: Operand, b: Operand, *, alpha: float = 1) -> Tensor:
    """Return a - alpha * b."""
    a, b, dtype = _pair(a, b, "sub")
    _refuse_bool(dtype, "subtraction")
    if alpha != 1:
        compute = arithmetic_type(dtype)
        return run_map(functions.mul_sub, (a, b, alpha), dtype, compute, first=compute)
    return run_map(functions.sub, (a, b), dtype, arithmetic_type(dtype))


@operation("mul", replayable=True)
def mul(a: Operand, b: Operand) -> Tensor:
    """Return a * b; for bool, the logical and."""
    a, b, dtype = _pair(a, b, "mul")
    return run_map(functions.mul, (a, b), dtype, arithmetic_type(dtype))


@operation("true_divide", replayable=True)
def true_divide(a: Operand, b: Operand) -> Tensor:
    """Return a / b; integers give f32."""
    a, b, dtype = _pair(a, b, "div")
    result = float_type(dtype)
    return run_map(functions.div, (a, b), result, arithmetic_type(result))


def div(a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """Return a / b.

    `rounding_mode` is None for true division, "floor" to round down, or "trunc" to round towards zero. With rounding,
    integer division by 0 gives 0.
    """
    if rounding_mode is None:
        return true_divide(a, b)
    if rounding_mode == "floor":
        return floor_divide(a, b)
    if rounding_mode == "trunc":
        return trunc_divide(a, b)
    raise ArgumentError(f'div(rounding_mode=...) is None, "floor" or "trunc", found {rounding_mode!r}')


def _binary(name: str, function: Any, meaning: str, *, floats: bool = False) -> Binary:
    """Make the binary operation `name`, which applies `function` to each pair of elements.

    The result has the promoted type; if `floats` is set, it has f32 in place of integers and bool. `meaning` completes
    the operation's docstring "Return ..., elementwise."
    """

    def forward(a: Operand, b: Operand) -> Tensor:
        a, b, dtype = _pair(a, b, name)
        result = float_type(dtype) if floats else dtype
        return run_map(function, (a, b), result, arithmetic_type(result))

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"Return {meaning}, elementwise."
    return operation(name, replayable=True)(forward)


floor_divide = _binary("floor_divide", functions.floordiv, "the quotient rounded down (0 for integers divided by 0)")
trunc_divide = _binary("trunc_divide", functions.truncdiv, "the quotient rounded towards zero")
remainder = _binary("remainder", functions.remainder, "the remainder with the sign of b (Python's %)")
fmod = _binary("fmod", functions.fmod, "the remainder with the sign of a (C's fmod)")
maximum = _binary("maximum", lang.max, "the maximum (NaN if either is NaN)")
minimum = _binary("minimum", lang.min, "the minimum (NaN if either is NaN)")
_fmax = _binary("fmax", lang.fmax, "the maximum, ignoring NaN")
_fmin = _binary("fmin", lang.fmin, "the minimum, ignoring NaN")
atan2 = _binary("atan2", lang.atan2, "the angle of the point (b, a) in radians", floats=True)
hypot = _binary("hypot", lang.hypot, "sqrt(a * a + b * b), without overflow", floats=True)
copysign = _binary("copysign", lang.copysign, "the magnitude of a with the sign of b", floats=True)
xlogy = _binary("xlogy", functions.xlogy, "a * log(b), 0 where a is 0 unless b is NaN", floats=True)


def fmax(a: Operand, b: Operand) -> Tensor:
    """Return the elementwise maximum; where one operand is NaN, the other one."""
    return _fmax(a, b) if result_type(a, b).is_float else maximum(a, b)


def fmin(a: Operand, b: Operand) -> Tensor:
    """Return the elementwise minimum; where one operand is NaN, the other one."""
    return _fmin(a, b) if result_type(a, b).is_float else minimum(a, b)


@operation("pow", replayable=True)
def pow(a: Operand, b: Operand) -> Tensor:
    """Return a ** b.

    The scalar exponents 1, 2, 3, 0.5, -0.5 and -1 become multiplications, roots and reciprocals. A negative scalar
    exponent for an integer result raises DTypeError.
    """
    a, b, dtype = _pair(a, b, "pow")
    if not dtype.is_float and not isinstance(b, Tensor) and b < 0:
        raise DTypeError(f"integers have no power of {b}: convert with .to(vk.f32)")
    if isinstance(b, Tensor) or not isinstance(a, Tensor):
        return run_map(functions.power, (a, b), dtype, arithmetic_type(dtype))
    special = _SPECIAL_POWERS.get(float(b))
    # integers have no roots and reciprocals
    if special is None or (not dtype.is_float and special in (lang.sqrt, functions.reciprocal, lang.rsqrt)):
        return run_map(functions.power, (a, b), dtype, arithmetic_type(dtype))
    return run_map(special, (a,), dtype, arithmetic_type(dtype))


_SPECIAL_POWERS: dict[float, Any] = {
    1.0: functions.identity,
    2.0: functions.square,
    3.0: functions.cube,
    0.5: lang.sqrt,
    -0.5: lang.rsqrt,
    -1.0: functions.reciprocal,
}
"""Device functions that replace `functions.power` for scalar exponents."""


# -- comparison and logic


_PYTHON_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge
}  # fmt: skip


def _is_out_of_range(dtype: DType, a: Any, b: Any) -> bool:
    """True if the scalar among a and b is an integer outside the range of `dtype`."""
    scalar = b if isinstance(a, Tensor) else a
    limits = np.iinfo(dtype.numpy)
    return isinstance(scalar, int) and not limits.min <= scalar <= limits.max


def _comparison(name: str, function: Any, sign: str) -> Binary:
    """Make the comparison `name`; `sign` is its Python operator, for the docstring."""

    def forward(a: Operand, b: Operand) -> Tensor:
        a, b, dtype = _pair(a, b, name)
        if dtype.is_integer and not (isinstance(a, Tensor) and isinstance(b, Tensor)) and _is_out_of_range(dtype, a, b):
            tensor = a if isinstance(a, Tensor) else b
            # every value of the type compares to the scalar as 0 does, so 0 takes the tensor's place
            left, right = (0, b) if isinstance(a, Tensor) else (a, 0)
            truth = _PYTHON_COMPARISONS[name](left, right)
            return creation.full(tensor.shape, truth, dtype=dtypes.boolean, device=tensor.device)
        compute = arithmetic_type(dtype)
        if dtype.is_float and compute is not dtype:
            a, b = _rounded(a, dtype), _rounded(b, dtype)
        return run_map(function, (a, b), dtypes.boolean, compute)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = (
        f"Return a {sign} b, elementwise, as bool; a scalar outside the type's range is compared by its value."
    )
    return operation(name, replayable=True)(forward)


def _rounded(value: Operand, dtype: DType) -> Operand:
    """Return an operand rounded to a 16-bit float type, so that `vk.full((2,), 0.1, dtype=vk.f16) == 0.1` is true."""
    if isinstance(value, Tensor):
        return value if value.dtype is dtype else value.to(dtype)
    if isinstance(value, int) and value.bit_length() > 128:
        return value  # beyond every float type, NumPy's f64 possibly too
    with np.errstate(over="ignore"):
        return float(semantics.cast(np.float64(value), dtypes.f64, dtype))


eq = _comparison("eq", functions.eq, "==")
ne = _comparison("ne", functions.ne, "!=")
lt = _comparison("lt", functions.lt, "<")
le = _comparison("le", functions.le, "<=")
gt = _comparison("gt", functions.gt, ">")
ge = _comparison("ge", functions.ge, ">=")


def _logic(name: str, function: Any, meaning: str) -> Binary:
    """Make the logical operation `name`; `meaning` completes its docstring "Return ..., elementwise, ..."."""

    def forward(a: Operand, b: Operand) -> Tensor:
        a, b, _ = _pair(a, b, name)
        return run_map(function, (a, b), dtypes.boolean, dtypes.boolean)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"Return {meaning}, elementwise, as bool; nonzero numbers count as true."
    return operation(name, replayable=True)(forward)


logical_and = _logic("logical_and", functions.bitwise_and, "a and b")
logical_or = _logic("logical_or", functions.bitwise_or, "a or b")
logical_xor = _logic("logical_xor", functions.bitwise_xor, "a xor b")


def _as_bits(value: Any, dtype: DType) -> Any:
    """Return the number of an integer type that has the same bits as an int from -2^(n-1) to 2^n - 1, for n bits."""
    if not isinstance(value, int) or not -(1 << dtype.bits - 1) <= value < 1 << dtype.bits:
        return value
    return int(np.asarray(value & (1 << dtype.bits) - 1, f"u{dtype.bits // 8}").astype(dtype.numpy))


def _bits(name: str, function: Any, sign: str) -> Binary:
    """Make the bitwise operation `name` on integers and bool; `sign` is its Python operator, for the docstring."""

    def forward(a: Operand, b: Operand) -> Tensor:
        a, b, dtype = _pair(a, b, name)
        if dtype.is_float:
            raise DTypeError(f"a {sign} b takes integers or bool, found {dtype!r}")
        if dtype.is_integer and not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            a, b = _as_bits(a, dtype), _as_bits(b, dtype)
        return run_map(function, (a, b), dtype, dtype)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"Return a {sign} b, bitwise; a scalar may be any pattern of the type's bits, as in u8 & ~3."
    return operation(name, replayable=True)(forward)


bitwise_and = _bits("bitwise_and", functions.bitwise_and, "&")
bitwise_or = _bits("bitwise_or", functions.bitwise_or, "|")
bitwise_xor = _bits("bitwise_xor", functions.bitwise_xor, "^")


def _shift(name: str, kernel: str, sign: str) -> Binary:
    """Make the bit shift `name`; `sign` is its Python operator, for the docstring.

    `kernel` is the prefix of the device functions: for integers of 32 bits, `functions.lshift32` is applied.
    """
    by_bits = {bits: getattr(functions, f"{kernel}{bits}") for bits in (8, 16, 32, 64)}

    def forward(a: Operand, b: Operand) -> Tensor:
        a, b, dtype = _pair(a, b, name)
        if not dtype.is_integer:
            raise DTypeError(f"a {sign} b takes integers, found {dtype!r}")
        return run_map(by_bits[dtype.bits], (a, b), dtype, dtype)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = (
        f"Return a {sign} b, bitwise; a negative b, or b >= the bit width, shifts out all bits, as in PyTorch."
    )
    return operation(name, replayable=True)(forward)


bitwise_left_shift = _shift("bitwise_left_shift", "lshift", "<<")
bitwise_right_shift = _shift("bitwise_right_shift", "rshift", ">>")


def isclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Return a bool tensor that is True where abs(a - b) <= atol + rtol * abs(b), elementwise.

    Equal infinities are close, and so are two NaNs if `equal_nan` is set.
    """
    a, b = (x.to(dtypes.f32) if x.dtype.kind == "bool" else x for x in (a, b))
    difference = absolute(sub(a, b))
    limit = add(mul(absolute(b), rtol), atol)
    # an infinite limit (b is infinite) would make everything close
    close = logical_or(logical_and(le(difference, limit), lt(limit, float("inf"))), eq(a, b))
    return logical_or(close, logical_and(ne(a, a), ne(b, b))) if equal_nan else close


# -- three operands


def _choice_type(dtype: DType) -> DType:
    """Return the type in which `where` reads and writes values: `arithmetic_type`, but bool stays bool."""
    return dtype if dtype.kind == "bool" else arithmetic_type(dtype)


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@overload
def where(condition: Tensor, x: Operand, y: Operand) -> Tensor: ...


def where(condition: Tensor, x: Operand | None = None, y: Operand | None = None) -> Any:
    """Return x where the condition is true, else y. Raises DTypeError if the condition isn't a bool tensor.

    Without x and y, return `nonzero(condition, as_tuple=True)`.
    """
    if x is None and y is None:
        from .compaction import nonzero

        return nonzero(condition, as_tuple=True)
    return _where(condition, x, y)  # which explains a None


@operation("where", replayable=True)
def _where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    if not isinstance(condition, Tensor) or condition.dtype.kind != "bool":
        actual = repr(condition.dtype) if isinstance(condition, Tensor) else type(condition).__name__
        raise DTypeError(f"where() takes a condition of bool, found {actual}: compare first, as in x > 0")
    x, y, dtype = _pair(x, y, "where")
    return run_map(functions.select, (condition, x, y), dtype, _choice_type(dtype), first=dtypes.boolean)


@cached("masked_fill()")
def masked_fill(x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Return x with elements where the mask is true replaced by `value`, a scalar or a 0-d tensor.

    Raises DTypeError if x's type can't hold the value.
    """
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(f"masked_fill() takes a number or a 0-d tensor, found shape {value.shape}")
    if category(result_type(x, value)) > category(x.dtype) and x.dtype.kind != "bool":
        raise DTypeError(f"masked_fill(): a tensor of {x.dtype!r} can't hold {value!r}")
    return where(mask, value if isinstance(value, Tensor) else fitted(value, x.dtype), x)


@cached("clamp()")
def clamp(x: Tensor, min: Operand = None, max: Operand = None) -> Tensor:
    """Return x limited to the range [min, max]; None means no bound. NaN stays NaN."""
    bounds = [operand(b, "clamp") for b in (min, max) if b is not None]
    if len(bounds) == 2:
        return clamp_both(x, *bounds)
    if not bounds:
        raise ArgumentError("clamp() needs min= or max=")
    return clamp_low(x, bounds[0]) if max is None else clamp_high(x, bounds[0])


@operation("clamp", replayable=True)
def clamp_both(x: Tensor, low: Operand, high: Operand) -> Tensor:
    """Return x limited to [low, high]."""
    dtype = result_type(x, low, high)
    compute = arithmetic_type(dtype)
    return run_map(functions.clamp, (x, low, high), dtype, compute, first=compute)


clamp_low = _binary("clamp_low", lang.max, "a limited to at least b")
clamp_high = _binary("clamp_high", lang.min, "a limited to at most b")
clip = clamp


@operation("lerp", replayable=True)
def lerp(start: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """Return start + weight * (end - start)."""
    dtype = result_type(start, end, operand(weight, "lerp"))
    if not dtype.is_float:
        raise DTypeError(f"lerp() takes float tensors, found {start.dtype!r} and {end.dtype!r}")
    compute = arithmetic_type(dtype)
    return run_map(functions.lerp, (start, end, weight), dtype, compute, first=compute)
