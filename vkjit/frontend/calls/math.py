"""Lowering of elementwise math functions, of casts by `float`, `int`, `bool` and NumPy types, and of other builtins.

A function is registered under all Python objects that denote it, such as `vk.exp`, `math.exp` and `np.exp`. Calls with
literals alone are evaluated at compile time. NumPy functions that have no operation of their own are in
`numpy_functions`.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vkjit import dtypes, lang
from vkjit.dtypes import DType
from vkjit.ir.core import Value
from vkjit.ir.ops import KINDS, OPS, OpName, op_name
from vkjit.ir.types import Scalar, Vector

from ..context import Call, Context
from ..expressions import operators
from ..intrinsics import elementwise, intrinsic, lowers
from ..kernel_values import KernelValue, describe_value, is_array, is_literal, is_runtime, literal_text
from ..signature.annotations import dtype_of
from ..values.arrays import extent
from ..values.conversions import common_dtype, convert, dtype_of_value, fit, numeric, splat, truth, unify
from ..values.joins import choose
from ..values.mappings import items_of
from ..values.struct_arrays import first_array, is_struct_array
from .casts import cast_value

__all__ = ["extremum"]


def _float_dtype(dtype: DType) -> DType:
    """Return the type in which a float function computes: the operand's float type, or f32 for integers and bools."""
    return dtype if dtype.is_float else dtypes.f32


def _single_operand(ctx: Context, call: Call, name: str) -> KernelValue:
    """Return the only argument of a call. Raises CompileError if the call has more or none, or if it isn't numeric."""
    if len(call.args) != 1 or call.keywords:
        raise ctx.error(call.node, f"{name} takes one value, found {len(call.args) + len(call.keywords)}")
    return numeric(ctx, call.node, call.args[0])


def _fold(ctx: Context, call: Call, function: Callable[..., Any], *values: KernelValue) -> KernelValue:
    """Evaluate a function of literals at compile time. Raises CompileError if it isn't defined for them."""
    try:
        result = function(*values)
    except (ArithmeticError, ValueError) as error:
        operands = ", ".join(map(literal_text, values))
        raise ctx.error(
            call.node, f"{getattr(function, '__name__', 'the function')} of ({operands}): {error}", "change a constant"
        ) from None
    return result.item() if isinstance(result, np.generic) else result


def _python_function(name: OpName) -> Callable[..., Any]:
    """Return a function that evaluates an operation on Python numbers, by its NumPy definition in `ir.semantics`."""
    from vkjit.ir.semantics import MEANING, silence_warnings

    def compute(*values: float) -> float:
        if any(isinstance(v, int) and not -(2**63) <= v < 2**64 for v in values):
            raise OverflowError("the integers have more than 64 bits")
        with silence_warnings():
            return MEANING[name](*(np.asarray(v) for v in values)).item()  # type: ignore[no-any-return]

    compute.__name__ = name
    return compute


def _equivalent_objects(name: str, *others: str) -> list[Any]:
    """Return the functions of `lang`, `math` and NumPy called `name`, and those of `math` and NumPy called `others`."""
    objects = [getattr(lang, name)]
    for module, names in ((math, (name, *others)), (np, (name, *others))):
        objects += [getattr(module, n) for n in names if hasattr(module, n)]
    unique: list[Any] = []
    for object_ in objects:
        if not any(object_ is u for u in unique):
            unique.append(object_)
    return unique


# -- one operand
def _register_float(name: OpName, *others: str) -> None:
    """Register a function of one float operand; integers are converted to f32.

    `others` are further names that the function has in `math` or NumPy. `math.log` is left out, since it may take a
    base; `numpy_functions` registers it.
    """

    @intrinsic(*(object_ for object_ in _equivalent_objects(name, *others) if object_ is not math.log))
    @elementwise
    def lower(ctx: Context, call: Call) -> KernelValue:
        value = _single_operand(ctx, call, name)
        if is_literal(value):
            return _fold(ctx, call, _python_function(name), fit(ctx, call.node, value, dtypes.f64))
        assert isinstance(value, Value)
        dtype = _float_dtype(dtype_of_value(value))
        return ctx.builder.emit(name, convert(ctx, call.node, value, dtype))


for _name, _others in {
    "sqrt": (), "rsqrt": (), "exp": (), "exp2": (), "expm1": (), "log": (), "log2": (), "log10": (), "log1p": (),
    "sin": (), "cos": (), "tan": (), "asin": ("arcsin",), "acos": ("arccos",), "atan": ("arctan",), "sinh": (),
    "cosh": (), "tanh": (), "asinh": ("arcsinh",), "acosh": ("arccosh",), "atanh": ("arctanh",), "erf": (), "erfc": (),
    "isnan": (), "isinf": (), "isfinite": (),
}.items():  # fmt: skip
    _register_float(op_name(_name), *_others)


def _register_rounding(name: OpName, objects: list[Any]) -> None:
    """Register a rounding function; integers stay unchanged, floats stay floats."""

    @intrinsic(*objects)
    @elementwise
    def lower(ctx: Context, call: Call) -> KernelValue:
        if name == "round" and len(call.args) == 2:
            raise ctx.error(call.node, "round takes one value in a kernel", "scale: vk.round(x * 100) / 100")
        value = _single_operand(ctx, call, name)
        if is_literal(value):
            return value if isinstance(value, int) else _fold(ctx, call, _python_function(name), value)
        assert isinstance(value, Value)
        return ctx.builder.emit(name, value) if dtype_of_value(value).is_float else value


_register_rounding("floor", _equivalent_objects("floor"))
_register_rounding("ceil", _equivalent_objects("ceil"))
_register_rounding("trunc", _equivalent_objects("trunc", "fix"))
_register_rounding("round", [*_equivalent_objects("round", "rint"), builtins.round])


def _register_same_type(name: OpName, objects: list[Any], python: Callable[..., Any]) -> None:
    """Register a function of one operand whose result has the operand's type; `python` evaluates it for literals."""

    @intrinsic(*objects)
    @elementwise
    def lower(ctx: Context, call: Call) -> KernelValue:
        value = _single_operand(ctx, call, name)
        if is_literal(value):
            return _fold(ctx, call, python, value)
        assert isinstance(value, Value)
        dtype = dtype_of_value(value)
        if name in ("abs", "sign") and dtype.kind == "bool":
            value, dtype = convert(ctx, call.node, value, dtypes.i32), dtypes.i32
        if dtype.kind not in KINDS[OPS[name].of]:
            raise ctx.error(call.node, f"{name} is for integers, found {describe_value(value)}", "convert: vk.u32(x)")
        if name == "abs" and dtype.kind == "uint":
            return value
        result = ctx.builder.emit(name, value)
        ctx.mark_weak(result, ctx.origins(value))
        return result


_register_same_type("abs", [*_equivalent_objects("abs", "fabs", "absolute"), builtins.abs], abs)
_register_same_type("sign", _equivalent_objects("sign"), _python_function("sign"))
for _name in ("popcount", "clz", "ctz"):
    _register_same_type(op_name(_name), [getattr(lang, _name)], _python_function(op_name(_name)))


# -- two operands
def _register_binary(name: OpName, objects: list[Any], *, float_only: bool) -> None:
    """Register a function of two operands; with `float_only`, integers are converted to f32."""

    @intrinsic(*objects)
    @elementwise
    def lower(ctx: Context, call: Call) -> KernelValue:
        if len(call.args) != 2 or call.keywords:
            raise ctx.error(call.node, f"{name} takes two values, found {len(call.args) + len(call.keywords)}")
        a, b = (numeric(ctx, call.node, v) for v in call.args)
        if is_literal(a) and is_literal(b):
            literals = [fit(ctx, call.node, v, dtypes.f64) if float_only else v for v in (a, b)]
            return _fold(ctx, call, _python_function(name), *literals)
        dtype = common_dtype(ctx, call.node, a, b)
        if float_only:
            dtype = _float_dtype(dtype)
        elif dtype.kind == "bool":
            dtype = dtypes.i32
        return ctx.builder.emit(name, *unify(ctx, call.node, a, b, dtype))


_register_binary("atan2", _equivalent_objects("atan2", "arctan2"), float_only=True)
_register_binary("hypot", _equivalent_objects("hypot"), float_only=True)
_register_binary("copysign", _equivalent_objects("copysign"), float_only=True)
_register_binary("fmin", _equivalent_objects("fmin"), float_only=True)
_register_binary("fmax", _equivalent_objects("fmax"), float_only=True)
_register_binary("truncdiv", [lang.truncdiv], float_only=False)
_register_binary("truncrem", [lang.truncrem, math.fmod, np.fmod], float_only=False)


@intrinsic(lang.pow, builtins.pow, math.pow, np.power)
@elementwise
def _pow(ctx: Context, call: Call) -> KernelValue:
    """Lower `pow(x, y)` like the operator `**`."""
    if len(call.args) != 2 or call.keywords:
        count = len(call.args) + len(call.keywords)
        hint = "the power modulo m: multiply in a loop and take `% m` at each step" if count == 3 else ""
        raise ctx.error(call.node, f"pow takes two values, found {count}", hint)
    return operators.binary(ctx, call.node, "pow", *call.args)


@intrinsic(builtins.divmod)
@elementwise
def _divmod(ctx: Context, call: Call) -> KernelValue:
    if len(call.args) != 2:
        raise ctx.error(call.node, f"divmod takes two values, found {len(call.args)}")
    return tuple(operators.binary(ctx, call.node, name, *call.args) for name in ("floordiv", "floormod"))


@lowers(lang.cdiv)
@elementwise
def _cdiv(ctx: Context, call: Call, x: KernelValue, y: KernelValue) -> KernelValue:
    """Lower `vk.cdiv(x, y)`: floor division, plus 1 if there is a remainder.

    The shorter `-(-x // y)` would wrap for unsigned types.
    """
    if is_literal(x) and is_literal(y):
        return _fold(ctx, call, lang.cdiv, x, y)
    node = call.node
    quotient = operators.binary(ctx, node, "floordiv", x, y)
    has_remainder = operators.compare(ctx, node, "ne", operators.binary(ctx, node, "floormod", x, y), 0)
    return operators.binary(ctx, node, "add", quotient, has_remainder)  # the bool is converted to 0 or 1


def _register_extremum(name: OpName, objects: list[Any]) -> None:
    """Register `min` or `max` of several values or of one tuple."""

    @intrinsic(*objects)
    @elementwise
    def lower(ctx: Context, call: Call) -> KernelValue:
        single = call.args[0] if len(call.args) == 1 else None
        values = list(single) if isinstance(single, tuple) else call.args
        min_count = 1 if isinstance(single, tuple) else 2
        if call.keywords or len(values) < min_count:
            hint = "for the elements of an array, loop over them" if is_array(single) else ""
            raise ctx.error(call.node, f"{name} takes two values or more, or a tuple", hint)
        return functools.reduce(lambda a, b: extremum(ctx, call, name, a, b), values)


def extremum(ctx: Context, call: Call, name: OpName, a: KernelValue, b: KernelValue) -> KernelValue:
    """Return the min or max (`name`) of two values; literals are compared at compile time."""
    numeric(ctx, call.node, a)
    numeric(ctx, call.node, b)
    if is_literal(a) and is_literal(b):
        return min(a, b) if name == "min" else max(a, b)
    dtype = common_dtype(ctx, call.node, a, b)
    result = ctx.builder.emit(name, *unify(ctx, call.node, a, b, dtypes.i32 if dtype.kind == "bool" else dtype))
    ctx.mark_weak(result, ctx.origins(a, b))
    return result


_register_extremum("min", [lang.min, builtins.min, np.minimum])
_register_extremum("max", [lang.max, builtins.max, np.maximum])


@lowers(lang.clamp)
@elementwise
def _clamp(ctx: Context, call: Call, x: KernelValue, low: KernelValue, high: KernelValue) -> KernelValue:
    return extremum(ctx, call, "min", extremum(ctx, call, "max", x, low), high)


@lowers(lang.fma)
@elementwise
def _fma(ctx: Context, call: Call, x: KernelValue, y: KernelValue, z: KernelValue) -> KernelValue:
    """Lower `vk.fma(x, y, z)` to a fused multiply-add in the common float type."""
    # This product only serves to find the common type of x and y, and to fold literals.
    product = operators.binary(ctx, call.node, "mul", x, y)
    if not isinstance(product, Value):
        return operators.binary(ctx, call.node, "add", product, z)
    dtype = _float_dtype(common_dtype(ctx, call.node, product, z))
    a, b = unify(ctx, call.node, x, y, dtype)
    b, c = unify(ctx, call.node, b, z, dtype)
    a, c = unify(ctx, call.node, a, c, dtype)  # if z alone is a vector, x is still a scalar
    return ctx.builder.emit("fma", a, b, c)


@lowers(lang.where, np.where)
@elementwise
def _where(ctx: Context, call: Call, condition: KernelValue, x: KernelValue, y: KernelValue) -> KernelValue:
    """Lower `vk.where(condition, x, y)`: x where the condition is true, else y. Both x and y are evaluated."""
    numeric(ctx, call.node, condition)
    numeric(ctx, call.node, x)
    numeric(ctx, call.node, y)
    if isinstance(condition, Value) and isinstance(condition.type, Vector):
        return _where_lanes(ctx, call, convert(ctx, call.node, condition, dtypes.boolean), x, y)
    test = truth(ctx, call.node, condition)
    if isinstance(test, bool):
        return x if test else y
    if is_literal(x) and is_literal(y):
        return choose(ctx, call.node, test, lambda: x, lambda: y)
    a, b = unify(ctx, call.node, x, y)
    if isinstance(a.type, Vector):
        test = splat(ctx, test, a.type.size)
    return ctx.builder.emit("select", test, a, b)


def _where_lanes(ctx: Context, call: Call, test: Value, x: KernelValue, y: KernelValue) -> Value:
    """Select lane by lane between x and y by a vector of bools."""
    assert isinstance(test.type, Vector)
    size = test.type.size
    chosen = []
    for value in unify(ctx, call.node, x, y):
        if isinstance(value.type, Vector) and value.type.size != size:
            raise ctx.error(call.node, f"a condition of {size} lanes can't choose from {describe_value(value)}")
        chosen.append(value if isinstance(value.type, Vector) else splat(ctx, value, size))
    return ctx.builder.emit("select", test, *chosen)


@lowers(lang.sigmoid)
@elementwise
def _sigmoid(ctx: Context, call: Call, x: KernelValue) -> KernelValue:
    """Lower `vk.sigmoid(x)` to 1 / (1 + e) for x >= 0 and e / (1 + e) for negative x, with e = exp(-|x|).

    This neither overflows nor cancels.
    """
    numeric(ctx, call.node, x)
    if is_literal(x):
        e = math.exp(-abs(fit(ctx, call.node, x, dtypes.f64)))
        return (1.0 if x >= 0 else e) / (1.0 + e)
    assert isinstance(x, Value)
    value = convert(ctx, call.node, x, _float_dtype(dtype_of_value(x)))
    b = ctx.builder
    exponential = b.emit("exp", b.emit("neg", b.emit("abs", value)))
    denominator = operators.binary(ctx, call.node, "add", exponential, 1.0)
    if_nonnegative = operators.binary(ctx, call.node, "div", 1.0, denominator)
    if_negative = operators.binary(ctx, call.node, "div", exponential, denominator)
    is_nonnegative = operators.compare(ctx, call.node, "ge", value, 0.0)
    assert isinstance(if_nonnegative, Value)
    assert isinstance(if_negative, Value)
    assert isinstance(is_nonnegative, Value)
    return b.emit("select", is_nonnegative, if_nonnegative, if_negative)


@lowers(lang.relu)
@elementwise
def _relu(ctx: Context, call: Call, x: KernelValue) -> KernelValue:
    return extremum(ctx, call, "max", x, 0)


# -- Python's builtins
@intrinsic(builtins.len)
def _len(ctx: Context, call: Call) -> KernelValue:
    """Lower `len` of an array (its first extent), a tuple, a vector or a string."""
    value = call.args[0] if len(call.args) == 1 and not call.keywords else None
    items = items_of(ctx, call.node, value)
    if items is not None:
        return len(items)
    if is_array(value) or is_struct_array(value):
        return extent(ctx, first_array(value), 0)
    if isinstance(value, str):
        return len(value)
    if is_runtime(value) and isinstance(value.type, Vector):
        return value.type.size
    raise ctx.error(call.node, f"len takes an array, a tuple or a vector, found {describe_value(value)}")


@intrinsic(builtins.sum)
def _sum(ctx: Context, call: Call) -> KernelValue:
    """Lower `sum(t)` and `sum(t, start)` of a tuple."""
    value = call.args[0] if len(call.args) in (1, 2) and len(call.args) + len(call.keywords) <= 2 else None
    if call.keywords.keys() - {"start"}:
        raise ctx.error(call.node, f"sum has no parameter {next(iter(call.keywords.keys() - {'start'}))}")
    if not isinstance(value, tuple):
        hint = "loop: `for i in range(len(x)): total += x[i]`" if is_array(value) else ""
        raise ctx.error(call.node, f"sum takes a tuple, found {describe_value(value)}", hint)
    start = call.args[1] if len(call.args) == 2 else call.keywords.get("start", 0)
    # A start of 0 needn't be added.
    items = [*value] if is_literal(start) and start == 0 and value else [start, *value]
    return functools.reduce(lambda a, b: operators.binary(ctx, call.node, "add", a, b), items)


@intrinsic(builtins.float)
@elementwise
def _float(ctx: Context, call: Call) -> KernelValue:
    """Lower `float(x)`: a float keeps its type, anything else becomes f32; `float("inf")` is a literal."""
    if len(call.args) == 1 and isinstance(call.args[0], str):
        return _fold(ctx, call, float, call.args[0])
    value = _single_operand(ctx, call, "float")
    if is_literal(value):
        return fit(ctx, call.node, value, dtypes.f64)
    assert isinstance(value, Value)
    return cast_value(ctx, call.node, value, _float_dtype(dtype_of_value(value)))


@intrinsic(builtins.int)
@elementwise
def _int(ctx: Context, call: Call) -> KernelValue:
    """Lower `int(x)`: an integer keeps its type, anything else becomes i32."""
    value = _single_operand(ctx, call, "int")
    if is_literal(value):
        return _fold(ctx, call, int, value)
    assert isinstance(value, Value)
    dtype = dtype_of_value(value)
    return value if dtype.is_integer else cast_value(ctx, call.node, value, dtypes.i32)


@intrinsic(builtins.bool)
@elementwise
def _bool(ctx: Context, call: Call) -> KernelValue:
    if len(call.args) == 1 and not (is_runtime(call.args[0]) and isinstance(call.args[0].type, Vector)):
        return truth(ctx, call.node, call.args[0])
    return cast_value(ctx, call.node, _single_operand(ctx, call, "bool"), dtypes.boolean)


def _register_numpy_casts() -> None:
    """Register `np.float32(x)` and the other NumPy scalar types as conversions."""
    for dtype in dtypes.ALL:
        if dtype.name in ("bf16", "bool"):
            continue

        @intrinsic(dtype.numpy.type)
        @elementwise
        def lower(ctx: Context, call: Call, dtype: DType = dtype) -> KernelValue:
            return cast_value(ctx, call.node, _single_operand(ctx, call, dtype.name), dtype)


_register_numpy_casts()


@lowers(lang.bitcast)
@elementwise
def _bitcast(ctx: Context, call: Call, dtype: KernelValue, value: KernelValue) -> KernelValue:
    """Lower `vk.bitcast(dtype, x)`: reinterpret the bits of a value of the same width, lane by lane for vectors."""
    target = dtype_of(dtype)
    if target is None:
        raise ctx.error(call.node, f"expected a dtype first, found {describe_value(dtype)}", "vk.bitcast(vk.u32, x)")
    numeric(ctx, call.node, value)
    if is_literal(value):
        raise ctx.error(call.node, "a literal has no bits of its own", f"give it a type: vk.f32({literal_text(value)})")
    assert isinstance(value, Value)
    source = dtype_of_value(value)
    if source.bits != target.bits or "bool" in (source.kind, target.kind):
        raise ctx.error(call.node, f"{source!r} and {target!r} have different widths")
    result_type = Vector(target, value.type.size) if isinstance(value.type, Vector) else Scalar(target)
    return ctx.builder.emit("bitcast", value, type=result_type)


@lowers(lang.assume_uniform)
def _assume_uniform(ctx: Context, call: Call, value: KernelValue) -> KernelValue:
    numeric(ctx, call.node, value)
    return ctx.builder.emit("assume_uniform", value) if isinstance(value, Value) else value
