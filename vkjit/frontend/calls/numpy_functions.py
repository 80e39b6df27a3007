"""NumPy and Python functions that lower to operators or short formulas: `np.add`, `math.radians`, `any` and so on.

Elementwise functions that have an IR operation of their own, such as `np.exp`, are in `math`.
"""

from __future__ import annotations

import builtins
import functools
import math
from typing import Any, Literal

import numpy as np

from vkjit import dtypes
from vkjit.ir.core import Value
from vkjit.ir.ops import OpName

from ..context import Call, Context
from ..expressions import operators
from ..intrinsics import elementwise, intrinsic, intrinsic_of
from ..kernel_values import KernelValue, describe_value, is_array, is_literal
from ..values.conversions import dtype_of_value, fit, truth
from .casts import cast_value
from .math import extremum

__all__: list[str] = []


def _arguments(ctx: Context, call: Call, name: str, count: int) -> list[KernelValue]:
    """Return the arguments of a call. Raises CompileError unless there are `count` positional ones."""
    if len(call.args) != count or call.keywords:
        noun = ("no value", "one value", "two values", "three values")[count]
        raise ctx.error(call.node, f"{name} takes {noun}, found {len(call.args) + len(call.keywords)}")
    return call.args


def _register_operator(name: OpName | Literal["pos"], functions: list[Any], count: int) -> None:
    """Register functions that do the same as an operator, such as `np.add` as +.

    `name` is the operator's IR operation ("pos" is unary +), and `count` is its number of operands.
    """

    @intrinsic(*functions)
    @elementwise
    def lower(ctx: Context, call: Call) -> KernelValue:
        values = _arguments(ctx, call, functions[0].__name__, count)
        if count == 1 or name == "pos":  # "pos" is tested for the type checker: it is no OpName
            return operators.unary(ctx, call.node, name, values[0])
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            return operators.compare(ctx, call.node, name, *values)
        return operators.binary(ctx, call.node, name, *values)


_BINARY: dict[OpName | Literal["pos"], list[Any]] = {
    "add": [np.add], "sub": [np.subtract], "mul": [np.multiply], "div": [np.true_divide], "floordiv": [np.floor_divide],
    "floormod": [np.remainder], "and": [np.bitwise_and], "or": [np.bitwise_or], "xor": [np.bitwise_xor],
    "shl": [np.left_shift], "shr": [np.right_shift], "eq": [np.equal], "ne": [np.not_equal], "lt": [np.less],
    "le": [np.less_equal], "gt": [np.greater], "ge": [np.greater_equal],
}  # fmt: skip
_UNARY: dict[OpName | Literal["pos"], list[Any]] = {"neg": [np.negative], "pos": [np.positive], "not": [np.invert]}
for _table, _count in ((_BINARY, 2), (_UNARY, 1)):
    for _name, _functions in _table.items():
        _register_operator(_name, _functions, _count)


@intrinsic(np.logical_not)
def _logical_not(ctx: Context, call: Call) -> KernelValue:
    return operators.negate(ctx, call.node, _arguments(ctx, call, "logical_not", 1)[0])


def _register_logical(name: OpName, functions: list[Any]) -> None:
    """Register `and`, `or` or `xor` of two truth values, without short-circuiting."""

    @intrinsic(*functions)
    def lower(ctx: Context, call: Call) -> KernelValue:
        a, b = (truth(ctx, call.node, v) for v in _arguments(ctx, call, functions[0].__name__, 2))
        return operators.binary(ctx, call.node, name, a, b)


_register_logical("and", [np.logical_and])
_register_logical("or", [np.logical_or])
_register_logical("xor", [np.logical_xor])


def _register_any_or_all(name: OpName, function: Any) -> None:
    """Register `any` (`name` is "or") or `all` (`name` is "and") of the items of a tuple."""

    @intrinsic(function)
    def lower(ctx: Context, call: Call) -> KernelValue:
        value = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if not isinstance(value, tuple):
            hint = f"in a workgroup: vk.workgroup().{function.__name__}(condition)" if is_array(value) else ""
            raise ctx.error(call.node, f"{function.__name__} takes a tuple, found {describe_value(value)}", hint)
        truths: list[KernelValue] = [truth(ctx, call.node, item) for item in value]
        start: KernelValue = name == "and"  # for an empty tuple: all(()) is True, any(()) is False
        return functools.reduce(lambda a, b: operators.binary(ctx, call.node, name, a, b), truths, start)


_register_any_or_all("or", builtins.any)
_register_any_or_all("and", builtins.all)


@intrinsic(np.square)
@elementwise
def _square(ctx: Context, call: Call) -> KernelValue:
    (value,) = _arguments(ctx, call, "square", 1)
    return operators.binary(ctx, call.node, "mul", value, value)


@intrinsic(np.clip)
@elementwise
def _clip(ctx: Context, call: Call) -> KernelValue:
    value, low, high = _arguments(ctx, call, "clip", 3)
    return extremum(ctx, call, "min", extremum(ctx, call, "max", value, low), high)


def _register_scaled(functions: list[Any], factor: float) -> None:
    """Register functions that convert their argument to a float and multiply it by `factor`."""

    @intrinsic(*functions)
    @elementwise
    def lower(ctx: Context, call: Call) -> KernelValue:
        (value,) = _arguments(ctx, call, functions[0].__name__, 1)
        if is_literal(value):
            return fit(ctx, call.node, value, dtypes.f64) * factor
        return operators.binary(ctx, call.node, "mul", _as_float(ctx, call, value), factor)


def _as_float(ctx: Context, call: Call, value: KernelValue) -> KernelValue:
    """Convert a run-time integer or bool to f32; return any other value unchanged."""
    if isinstance(value, Value) and not is_array(value) and not dtype_of_value(value).is_float:
        return cast_value(ctx, call.node, value, dtypes.f32)
    return value


_register_scaled([math.radians, np.radians, np.deg2rad], math.pi / 180)
_register_scaled([math.degrees, np.degrees, np.rad2deg], 180 / math.pi)


@intrinsic(math.log)
@elementwise
def _log(ctx: Context, call: Call) -> KernelValue:
    """Lower `math.log(x)`, and `math.log(x, b)` as log(x) / log(b); for constant b = 2 or 10 as log2(x) or log10(x)."""
    natural = intrinsic_of(np.log)
    if len(call.args) != 2 or call.keywords:
        return natural(ctx, call)
    base = call.args[1]
    if is_literal(base) and base in (2, 10):
        return intrinsic_of(np.log2 if base == 2 else np.log10)(ctx, Call(call.node, call.args[:1], {}))
    numerator, denominator = (natural(ctx, Call(call.node, [value], {})) for value in call.args)
    return operators.binary(ctx, call.node, "div", numerator, denominator)


@intrinsic(math.prod)
def _prod(ctx: Context, call: Call) -> KernelValue:
    value = call.args[0] if len(call.args) == 1 and not call.keywords else None
    if not isinstance(value, tuple):
        raise ctx.error(call.node, f"prod takes a tuple, found {describe_value(value)}")
    items = value or (1,)
    return functools.reduce(lambda a, b: operators.binary(ctx, call.node, "mul", a, b), items)


def _register_compile_time(functions: list[Any]) -> None:
    """Register integer functions that are evaluated at compile time, and so take constant arguments only."""
    for function in functions:

        @intrinsic(function)
        def lower(ctx: Context, call: Call, function: Any = function) -> KernelValue:
            if call.keywords or not all(is_literal(v) for v in call.args):
                hint = "write the loop, or compute it before the launch"
                raise ctx.error(call.node, f"{function.__name__} takes numbers known at compile time in a kernel", hint)
            try:
                sizes = [v for v in call.args if isinstance(v, int)]
                if function in (math.factorial, math.comb, math.perm) and sizes and len(sizes) == len(call.args):
                    n, k = sizes[0], sizes[-1]
                    factors = min(k, n - k) if function is math.comb else k
                    if n > 0 and factors * n.bit_length() > operators.MAX_BITS:
                        raise ValueError(f"the result may have more than {operators.MAX_BITS} bits")
                result: KernelValue = function(*call.args)
            except (TypeError, ValueError, OverflowError) as error:
                raise ctx.error(call.node, f"{function.__name__}: {error}") from None
            return result


_register_compile_time([math.gcd, math.lcm, math.comb, math.perm, math.factorial, math.isqrt])
