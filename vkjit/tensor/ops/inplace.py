"""In-place operations with kernels of their own: `x.add_(y)`, `x.relu_()`, `x += y`.

Each writes its result into the first operand, increments that tensor's version and returns it. If autograd is
recording, the write is recorded as the operation without the underscore (`dispatch.run_in_place`). `inplace_copies` has
the in-place operations that need no kernel of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkjit import lang
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError
from vkjit.stdlib.elementwise import functions

from ..dispatch import run_in_place
from ..memory import fitted
from ..promotion import category, result_type
from ..tensor import Tensor
from .arithmetic import operand
from .elementwise import round
from .elementwise_launch import arithmetic_type, write_map
from .inplace_copies import in_place_by_copy

__all__ = ["METHODS"]


def _checked_type(target: Tensor, operands: tuple[Any, ...], name: str) -> DType:
    """Return the type in which the in-place operation `name` computes.

    Raises DTypeError if the promoted type of target and operands has a higher category than the target's type. The
    categories are bool < integer < float.
    """
    dtype = result_type(target, *operands)
    if category(dtype) > category(target.dtype):
        raise DTypeError(
            f"{name}() would make {dtype!r}, which a tensor of {target.dtype!r} can't hold: convert it first"
        )
    return arithmetic_type(dtype)


def _unary(name: str, function: Any) -> Callable[[Tensor], Tensor]:
    """Make the in-place method for the unary operation `name`, which applies a device function to float tensors."""

    def write(target: Tensor) -> None:
        write_map(function, (target,), target, arithmetic_type(target.dtype))

    def method(self: Tensor) -> Tensor:
        if not self.dtype.is_float:
            raise DTypeError(f"{name}_() changes float tensors, this one holds {self.dtype!r}")
        return run_in_place(name, write, self, (), {})

    method.__doc__ = f"In-place version of `{name}`."
    return method


def _binary(name: str, function: Any) -> Callable[[Tensor, Any], Tensor]:
    """Make the in-place method for the binary operation `name`, which applies a device function."""

    def write(target: Tensor, other: Any) -> None:
        write_map(function, (target, other), target, _checked_type(target, (other,), f"{name}_"))

    def method(self: Tensor, other: Any) -> Tensor:
        return run_in_place(name, write, self, (operand(other, f"{name}_"),), {})

    method.__doc__ = f"In-place version of `{name}`."
    return method


def _with_alpha(name: str, plain: Any, scaled: Any) -> Callable[..., Tensor]:
    """Make the in-place method for the operation `name`, "add" or "sub".

    It applies the device function plain(x, other) if alpha is 1, else scaled(x, other, alpha).
    """

    def write(target: Tensor, other: Any, *, alpha: float = 1) -> None:
        compute = _checked_type(target, (other, alpha), f"{name}_")
        if alpha == 1:
            write_map(plain, (target, other), target, compute)
        else:
            write_map(scaled, (target, other, alpha), target, compute, first=compute)

    def method(self: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
        return run_in_place(name, write, self, (operand(other, f"{name}_"),), {"alpha": alpha})

    method.__doc__ = f"In-place version of `{name}`."
    return method


# in-place division by rounding mode
_ROUNDED: dict[str, Callable[..., Tensor]] = {
    "floor": _binary("floor_divide", functions.floordiv),
    "trunc": _binary("trunc_divide", functions.truncdiv),
}


def _write_quotient(target: Tensor, other: Any) -> None:
    if not target.dtype.is_float:
        raise DTypeError(f"div_() makes floats, which a tensor of {target.dtype!r} can't hold: use floor_divide_")
    write_map(functions.div, (target, other), target, _checked_type(target, (other,), "div_"))


def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """In-place version of `div`."""
    if rounding_mode is not None:
        if not isinstance(rounding_mode, str) or rounding_mode not in _ROUNDED:
            raise ArgumentError(f'div_(rounding_mode=...) is None, "floor" or "trunc", found {rounding_mode!r}')
        return _ROUNDED[rounding_mode](self, other)
    return run_in_place("true_divide", _write_quotient, self, (operand(other, "div_"),), {})


def _write_power(target: Tensor, exponent: Any) -> None:
    write_map(functions.power, (target, exponent), target, _checked_type(target, (exponent,), "pow_"))


def pow_(self: Tensor, exponent: Any) -> Tensor:
    """In-place version of `pow`."""
    return run_in_place("pow", _write_power, self, (operand(exponent, "pow_"),), {})


def _write_clamp(target: Tensor, low: Any, high: Any) -> None:
    compute = _checked_type(target, (low, high), "clamp_")
    write_map(functions.clamp, (target, low, high), target, compute, first=compute)


_clamp_low = _binary("clamp_low", lang.max)
_clamp_high = _binary("clamp_high", lang.min)


def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """In-place version of `clamp`."""
    if min is not None and max is not None:
        return run_in_place("clamp", _write_clamp, self, (operand(min, "clamp_"), operand(max, "clamp_")), {})
    if min is not None:
        return _clamp_low(self, min)
    return self if max is None else _clamp_high(self, max)


def _write_lerp(target: Tensor, end: Tensor, weight: Any) -> None:
    compute = _checked_type(target, (end, weight), "lerp_")
    write_map(functions.lerp, (target, end, weight), target, compute, first=compute)


def lerp_(self: Tensor, end: Tensor, weight: Any) -> Tensor:
    """In-place version of `lerp`."""
    return run_in_place("lerp", _write_lerp, self, (end, weight), {})


def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """In-place version of `masked_fill`."""
    from vkjit import dtypes

    def write(target: Tensor, mask: Tensor, value: Any) -> None:
        compute = target.dtype if target.dtype.kind == "bool" else arithmetic_type(target.dtype)
        write_map(functions.select, (mask, value, target), target, compute, first=dtypes.boolean)

    value = operand(value, "masked_fill_")
    if not isinstance(value, Tensor):
        value = fitted(value, self.dtype)
    return run_in_place("masked_fill", write, self, (mask, value), {})


_round = _unary("round", lang.round)


def round_(self: Tensor, *, decimals: int = 0) -> Tensor:
    """In-place version of `round`."""
    return (
        _round(self)
        if decimals.__class__ is int and not decimals
        else in_place_by_copy("round", round)(self, decimals=decimals)
    )


_UNARY = {
    "abs": lang.abs,
    "ceil": lang.ceil,
    "cos": lang.cos,
    "exp": lang.exp,
    "floor": lang.floor,
    "log": lang.log,
    "neg": functions.neg,
    "reciprocal": functions.reciprocal,
    "relu": functions.relu,
    "rsqrt": lang.rsqrt,
    "sigmoid": lang.sigmoid,
    "sin": lang.sin,
    "sqrt": lang.sqrt,
    "square": functions.square,
    "tanh": lang.tanh,
    "trunc": lang.trunc,
}
"""Device functions of the unary in-place operations, by the operation's name."""

METHODS: dict[str, Callable[..., Tensor]] = {
    **{f"{name}_": _unary(name, function) for name, function in _UNARY.items()},
    "add_": _with_alpha("add", functions.add, functions.mul_add),
    "sub_": _with_alpha("sub", functions.sub, functions.mul_sub),
    "mul_": _binary("mul", functions.mul),
    "div_": div_,
    "floor_divide_": _binary("floor_divide", functions.floordiv),
    "remainder_": _binary("remainder", functions.remainder),
    "pow_": pow_,
    "clamp_": clamp_,
    "lerp_": lerp_,
    "masked_fill_": masked_fill_,
    "round_": round_,
}
"""In-place methods by name, which `methods.install` adds to `Tensor`."""
