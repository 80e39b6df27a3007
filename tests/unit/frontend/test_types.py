# mypy: disable-error-code="assignment, misc, type-arg, union-attr"
"""Tests of the typing rules: weak literals, type promotion, conversions, stores."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import pytest

import vkjit as vk
from tests.unit.frontend.harness import apply, lower, run, text
from vkjit.errors import ArgumentError, CompileError
from vkjit.frontend import DeviceFunction

T = TypeVar("T", bound=vk.Element)
LIMIT = 7
SCALE = np.float32(0.5)
PAIR = (3, 4)


def stored(expression: str, dtype: str = "float32", **arrays: np.ndarray) -> np.ndarray:
    """Run `y[i] = expression` with arrays a, b... of one shape; return y, of type `dtype`."""
    result = np.zeros(next(iter(arrays.values())).shape, dtype)
    run(made(expression, tuple(arrays)), *arrays.values(), result, over="y", local=(8, 1, 1))
    return result


def made(expression: str, names: tuple[str, ...]):
    """Make a kernel from text, registered with linecache as a notebook cell is."""
    import linecache

    source = f"def kernel({', '.join(names)}, y):\n    i = vk.global_id(0)\n    y[i] = {expression}\n"
    file = f"<cell {expression} {names}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict = {"vk": vk, "math": math, "np": np, "LIMIT": LIMIT, "SCALE": SCALE, "PAIR": PAIR}
    exec(compile(source, file, "exec"), scope)  # noqa: S102  (kernels from text)
    return scope["kernel"]


def value_type(expression: str, **arrays: np.ndarray) -> str:
    """Return the type of an expression as text."""
    ys = np.zeros(next(iter(arrays.values())).shape, np.float64)
    module = lower(made(f"vk.f64({expression})", tuple(arrays)), *arrays.values(), ys, over="y")
    casts = [op for op in module.kernel.body.walk() if op.name == "store"]
    value = casts[-1].operands[-1]
    return str(value.op.operands[0].type) if value.op.name == "cast" else "f64"


def column(dtype: str) -> np.ndarray:
    return np.array([1, 2, 3], dtype)


@pytest.mark.parametrize(
    ("left", "right", "combined"),
    [
        ("int8", "int32", "i32"),
        ("uint8", "int32", "i32"),
        ("int32", "float32", "f32"),
        ("int64", "float32", "f32"),
        ("float16", "float32", "f32"),
        ("float32", "float64", "f64"),
        ("int8", "int64", "i64"),
        ("uint32", "int64", "i64"),
        ("bool", "int32", "i32"),
        ("bool", "bool", "i32"),
        ("int16", "float16", "f16"),
    ],
)
def test_operands_take_their_common_type(left: str, right: str, combined: str) -> None:
    assert value_type("a[i] + b[i]", a=column(left), b=column(right)) == combined


@pytest.mark.parametrize(
    ("expression", "dtype", "expected"),
    [
        ("a[i] + 1", "uint8", "u8"),
        ("a[i] + 1", "float16", "f16"),
        ("a[i] * 0.5", "float16", "f16"),
        ("a[i] * 0.5", "int32", "f32"),
        ("a[i] * 0.5", "int64", "f32"),
        ("a[i] / 2", "int32", "f32"),
        ("a[i] / 2", "float64", "f64"),
        ("a[i] // 2", "int64", "i64"),
        ("i + a[i]", "int32", "index"),
        ("i * 0.5", "int32", "f32"),
        ("a[i] + LIMIT", "int16", "i16"),
        ("a[i] * SCALE", "float16", "f32"),
        ("1 << a[i]", "uint8", "u8"),
        ("a[i] << i", "int16", "i16"),
        ("a[i] ** 2", "float16", "f16"),
        ("True + a[i]", "int16", "i16"),
        ("-a[i]", "int8", "i8"),
        ("abs(a[i])", "int64", "i64"),
        ("min(a[i], 2)", "uint16", "u16"),
        ("vk.sqrt(a[i])", "int32", "f32"),
        ("vk.sqrt(a[i])", "float64", "f64"),
        ("math.exp(a[i])", "float16", "f16"),
        ("len(a)", "int8", "index"),
        ("float(a[i])", "int32", "f32"),
        ("int(a[i])", "float32", "i32"),
        ("np.int16(a[i])", "float32", "i16"),
        ("a.dtype(i)", "uint16", "u16"),
        ("vk.where(a[i] > 1, a[i], 0)", "int8", "i8"),
        ("(a[i] if a[i] > 1 else 0)", "int8", "i8"),
        ("vk.clamp(a[i], 0, 2)", "float16", "f16"),
        ("vk.bitcast(vk.u32, a[i])", "float32", "u32"),
        ("vk.popcount(a[i])", "uint64", "u64"),
        ("round(a[i])", "float32", "f32"),
        ("vk.floor(a[i])", "int32", "i32"),
        ("sum((a[i], 1, 2))", "int16", "i16"),
        ("divmod(a[i], 2)[1]", "int16", "i16"),
        ("vk.fma(a[i], 2, 1)", "float16", "f16"),
        ("PAIR[1] + a[i]", "int8", "i8"),
        ("vk.cdiv(a[i], 2)", "int32", "i32"),
    ],
)
def test_expression_types(expression: str, dtype: str, expected: str) -> None:
    assert value_type(expression, a=column(dtype)) == expected


@pytest.mark.parametrize(
    ("expression", "left", "right"),
    [
        ("a[i] + b[i]", "int32", "uint32"),
        ("a[i] + b[i]", "uint64", "int64"),
        ("a[i] & b[i]", "float32", "int32"),
        ("a[i] + 300", "uint8", "int8"),
        ("a[i] - 1000000", "float16", "int8"),
        ("a[i] << 32", "int32", "int32"),
        ("a[i] >> -1", "int32", "int32"),
        ("a[i] << b[i]", "int32", "float32"),
        ("a[b[i]]", "int32", "float32"),
        ("a[i, i]", "int32", "int32"),
        ("a[i] if b[i] else a[i] * 0.5", "int32", "int32"),
        ("a[i] ** -1", "int32", "int32"),
        ("vk.bitcast(vk.u64, a[i])", "int32", "int32"),
        ("vk.popcount(a[i])", "float32", "int32"),
        ("a + 1", "int32", "int32"),
        ("vk.f32(a[i], 2)", "int32", "int32"),
        ("a.nothing", "int32", "int32"),
        ("vk.exp(a[i], base=2)", "float32", "int32"),
        ("vk.where(a[i])", "float32", "int32"),
        ("(1, 'x')[a[i]]", "int32", "int32"),
        ("(1, 2)[2]", "int32", "int32"),
        ("5 // 0", "int32", "int32"),
        ("a[i] + 'x'", "int32", "int32"),
        ("1e39", "int32", "int32"),
    ],
)
def test_what_does_not_fit_is_an_error(expression: str, left: str, right: str) -> None:
    with pytest.raises(CompileError):
        stored(expression, "float32", a=column(left), b=column(right))


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("float64", "float32", True),
        ("float32", "float16", True),
        ("float32", "float64", True),
        ("int32", "int64", True),
        ("int32", "float32", True),
        ("bool", "int32", True),
        ("float32", "int32", False),
        ("int64", "int32", False),
        ("int32", "uint32", False),
        ("int32", "bool", False),
    ],
)
def test_stores(source: str, target: str, allowed: bool) -> None:
    if allowed:
        np.testing.assert_array_equal(stored("a[i]", target, a=column(source)), column(source).astype(target))
        return
    with pytest.raises(CompileError, match="silently"):
        stored("a[i]", target, a=column(source))


def test_an_index_is_stored_into_a_narrower_array() -> None:
    np.testing.assert_array_equal(stored("i + 254", "uint8", a=column("int8")), [254, 255, 0])


def counter_u32(a, b):
    n = 0
    while n < a:
        n += 1
    return n + b


def accumulator_f16(a, b):
    total = 0.0
    for _ in range(3):
        total += a
    return total * b


def counter_stays_i32(a, b):
    n = 0
    for _ in range(300):
        n += 1
    return n + b


def integer_counter_of_floats(a, b):
    k = 0
    total = 0.0
    for _ in range(4):
        total += a * k
        k += 1
    return total + k * b


def literal_in_branch(a, b):
    x = 0
    if a > 1:
        x = b
    return x


@pytest.mark.parametrize(
    ("function", "dtype", "expected"),
    [
        (counter_u32, "uint32", [2, 4, 6]),
        (counter_u32, "int64", [2, 4, 6]),
        (accumulator_f16, "float16", [3, 12, 27]),
        (counter_stays_i32, "uint8", [301, 302, 303]),
        (integer_counter_of_floats, "float32", [10, 20, 30]),
        (literal_in_branch, "uint8", [0, 2, 3]),
        (literal_in_branch, "float64", [0, 2, 3]),
    ],
)
def test_a_literal_takes_the_type_of_its_first_strong_join(function, dtype: str, expected: list[int]) -> None:
    result = apply(function, np.float64, column(dtype), column(dtype))
    np.testing.assert_array_equal(result, expected)


def test_conversions_saturate_and_wrap() -> None:
    x = np.array([300.7, -5.5, np.nan], np.float32)
    np.testing.assert_array_equal(stored("vk.u8(a[i])", "uint8", a=x), [255, 0, 0])
    np.testing.assert_array_equal(stored("vk.i32(a[i])", "int32", a=x), [300, -5, 0])
    np.testing.assert_array_equal(stored("vk.u32(-1)", "uint32", a=x), [2**32 - 1] * 3)
    np.testing.assert_array_equal(stored("vk.i8(a[i] != 0)", "int8", a=x), [1, 1, 1])


def generic(a: T, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = T(a + x[i] * 2)


def test_type_variables() -> None:
    y = np.zeros(3, np.int16)
    run(generic, np.int16(5), column("int16"), y, over="y")
    np.testing.assert_array_equal(y, [7, 9, 11])
    with pytest.raises(ArgumentError, match="T is"):
        lower(generic, np.int16(5), column("int16"), np.zeros(3, np.float32), over="y")


@DeviceFunction
def bounded(x: T, low: T, high: T) -> T:
    return max(low, min(x, high))


@DeviceFunction
def both(x: vk.f32, *, scale: vk.f32 = 2):
    if x > 1:
        return x * scale, True
    return 0, False


def calls(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    value, large = both(x[i])
    other, _ = both(x[i], scale=10)
    y[i] = bounded(value, 1, 5) + other + large


def test_device_functions_are_instantiated_per_signature() -> None:
    y = np.zeros(3, np.float32)
    run(calls, column("float32"), y, over="y")
    np.testing.assert_array_equal(y, [1, 4 + 20 + 1, 5 + 30 + 1])
    module = lower(calls, column("float32"), y, over="y")
    assert sorted(module.functions) == ["both", "both.2", "bounded"] or len(module.functions) == 2


def test_powers_are_exact_products() -> None:
    x = np.array([1.1, -2.3, 0.0], np.float32)
    np.testing.assert_array_equal(stored("a[i] ** 3", a=x), x * (x * x))
    np.testing.assert_array_equal(stored("a[i] ** 0", a=x), [1, 1, 1])
    assert "pow" not in text(made("a[i] ** 5", ("a",)), x, x, over="y")
    assert "pow" in text(made("a[i] ** 0.5", ("a",)), x, x, over="y")


def returns_what_a_loop_carries(a, b):
    n = 0
    while n < 9:
        n += a
        if n > b:
            return n
    return b


def test_returns_of_rounds_that_were_lowered_anew_do_not_count() -> None:
    result = apply(returns_what_a_loop_carries, np.float64, column("uint32"), column("uint32"))
    assert result.tolist() == [2, 4, 6]
