"""Cases of the table of semantics: division, powers, shifts, conversions, min/max, rounding, functions."""

# mypy: disable-error-code="valid-type, index, misc"
# ruff: noqa: B007
from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

import vkjit as vk
from tests.semantics.table import ALL, BOOL, FLOATS, INDEX, INTEGERS, NUMBERS, SIGNED, Raised, Refused, Table
from tests.semantics.values import array_type, few, in_f32, quietly, several, two
from tools.strict import operations
from tools.ulp import measure
from vkjit.dtypes import DType
from vkjit.ir import semantics
from vkjit.testing.compare.exact import exact

T = TypeVar("T", bound=vk.Element)
TABLE = Table()
case, not_for = TABLE.case, TABLE.not_for


# -- // and %
@vk.kernel(over="y")
def floors(
    x: vk.In[T, "N"],
    z: vk.In[T, "N"],
    y: vk.Out[T, "N"],
    rest: vk.Out[T, "N"],
    by_three: vk.Out[T, "N"],
    rest_of_seven: vk.Out[T, "N"],
):
    i = vk.global_id(0)
    y[i] = x[i] // z[i]
    rest[i] = x[i] % z[i]
    by_three[i] = x[i] // 3
    rest_of_seven[i] = x[i] % 7


def expected_floors(x: Any, z: Any) -> Any:
    kind = x.dtype.type
    divide, modulo = in_f32(semantics.floordiv), in_f32(semantics.floormod)
    return divide(x, z), modulo(x, z), divide(x, np.full_like(x, kind(3))), modulo(x, np.full_like(x, kind(7)))


case("`//` and `%`", "by a value and by a constant: floor division as in Python", NUMBERS, floors, two, expected_floors)


@vk.kernel(over="y")
def floors_by_minus(x: vk.In[T, "N"], y: vk.Out[T, "N"], rest: vk.Out[T, "N"], c: vk.Out[T, "N"], d: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] // -5
    rest[i] = x[i] % -5
    c[i] = vk.truncdiv(x[i], -5)
    d[i] = vk.truncrem(x[i], -5)


case("`//` and `%`", "by a negative constant, and `truncdiv`, `truncrem` as in C", SIGNED, floors_by_minus,
     lambda t: (few(t, 7, -7, 5, -5, 0, 100, -128, 4, -4),),
     lambda x: (x // -5, x % -5, -(np.abs(x.astype(np.int64)) // 5 * np.sign(x)).astype(x.dtype),
                np.fmod(x, x.dtype.type(-5))))  # fmt: skip


@vk.kernel(over="y")
def floors_of_bools(x: vk.In[T, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] // True + x[i] % 2


case("`//` and `%`", "bools are converted to i32", BOOL, floors_of_bools, several, lambda x: x.astype(np.int32) * 2)


@vk.kernel(over="y")
def floors_of_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"], rest: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = (i - 4) // 3
    rest[i] = (i - 4) % 3


case("`//` and `%`", "`index` gives `index`", INDEX, floors_of_index, lambda t: (np.zeros(9, np.int32),),
     lambda x: ((np.arange(9) - 4) // 3, (np.arange(9) - 4) % 3))  # fmt: skip


# -- division by zero
@vk.kernel(over="y", debug=False)
def by_zero(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"], rest: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] // z[i]
    rest[i] = x[i] % z[i]


@vk.kernel(over="y", debug=True)
def by_zero_in_debug(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] // z[i]


@vk.kernel(over="y", strict=True)
def float_by_zero(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] / z[i]


def zeros(dtype: DType) -> tuple[Any, Any]:
    x = two(dtype)[0]
    return x, np.zeros(len(x), array_type(dtype))


case("division by zero", "integers give 0", INTEGERS, by_zero, zeros, lambda x, z: (z, z))
case("division by zero", "`debug=True` raises KernelZeroDivisionError", INTEGERS, by_zero_in_debug, zeros,
     Raised(vk.KernelZeroDivisionError, ("integer division by zero",)))  # fmt: skip
case("division by zero", "floats follow IEEE 754", FLOATS, float_by_zero, zeros, quietly(lambda x, z: x / z))
not_for("division by zero", BOOL, "bools are converted to i32")


@vk.kernel(over="y", debug=False)
def index_by_zero(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = (i + 5) // x[i]


case("division by zero", "`index` gives 0", INDEX, index_by_zero, lambda t: (np.zeros(3, np.int32),),
     lambda x: np.zeros(3, np.int64))  # fmt: skip


# -- true division
@vk.kernel(over="y", strict=True)
def true_division(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] / z[i]


case("`/` on ints", "both operands are converted to f32", (*BOOL, *INTEGERS), true_division, two,
     quietly(lambda x, z: x.astype(np.float32) / z.astype(np.float32)))  # fmt: skip
case("`/` on ints", "floats keep their type", FLOATS, float_by_zero, two, quietly(lambda x, z: x / z))


@vk.kernel(over="y", strict=True)
def true_division_of_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = i / len(x)


case("`/` on ints", "`index` gives f32", INDEX, true_division_of_index, lambda t: (np.zeros(7, np.int32),),
     lambda x: np.arange(7, dtype=np.float32) / np.float32(7))  # fmt: skip


# -- powers
@vk.kernel(over="y", strict=True)
def powers(x: vk.In[T, "N"], second: vk.Out[T, "N"], third: vk.Out[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    second[i] = x[i] ** 2
    third[i] = x[i] ** 3
    y[i] = x[i] ** 0


case("`**`", "`x ** 2` and `x ** 3` are multiplications", NUMBERS, powers, several,
     quietly(lambda x: (x * x, x * x * x, np.full_like(x, x.dtype.type(1)))))  # fmt: skip


@vk.kernel(over="y")
def power_of_values(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] ** z[i]


case("`**`", "integers with run-time exponents wrap; negative exponents give 0 (except for 1 and -1)", INTEGERS, power_of_values,
     two, quietly(semantics.power))  # fmt: skip
case("`**`", "floats; negative bases with fractional exponents give NaN",
     FLOATS, power_of_values, lambda t: (few(t, 2, 3, -8, -2, 0, 1.5, 9), few(t, 0.5, 3, 0.3333, 3, 0, -2, 0.5)),
     in_f32(lambda x, z: np.power(x.astype(np.float64), z.astype(np.float64)).astype(x.dtype)), ulp=4.5)  # fmt: skip


def negative_power(dtype: DType) -> Any:
    @vk.kernel(over="y")
    def kernel(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        y[i] = x[i] ** -2

    return kernel


case(
    "`**`",
    "an integer with a negative constant exponent is rejected",
    INTEGERS,
    negative_power,
    several,
    Refused(("to the power -2 is no integer", "convert the base")),
)


@vk.kernel(over="y")
def power_of_bools(x: vk.In[T, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] ** 2


case("`**`", "bools are converted to i32", BOOL, power_of_bools, several, lambda x: x.astype(np.int32))


@vk.kernel(over="y")
def power_of_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = (i + 2_000_000) ** 3


case("`**`", "`index` gives `index`", INDEX, power_of_index, lambda t: (np.zeros(3, np.int32),),
     quietly(lambda x: (np.arange(3) + 2_000_000) ** 3))  # fmt: skip


# -- shifts
@vk.kernel(over="y")
def shifts(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"], right: vk.Out[T, "N"], by_index: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] << z[i]
    right[i] = x[i] >> z[i]
    by_index[i] = x[i] << (i - i + 3)


def expected_shifts(x: Any, z: Any) -> Any:
    amount = (z & z.dtype.type(8 * x.dtype.itemsize - 1)).astype(x.dtype)
    return np.left_shift(x, amount), np.right_shift(x, amount), np.left_shift(x, x.dtype.type(3))


case("shifts", "any amount, modulo the width; `x << index` has the type of x", INTEGERS, shifts, two, expected_shifts)


def too_far(dtype: DType) -> Any:
    amount = dtype.bits

    @vk.kernel(over="y")
    def kernel(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        y[i] = x[i] << amount

    return kernel


case("shifts", "a constant amount equal to the width is rejected", INTEGERS, too_far, several,
     Refused(("expected 0 to",)))  # fmt: skip
case(
    "shifts", "floats and bools are rejected", (*BOOL, *FLOATS), too_far, several, Refused(("shifts are for integers",))
)


@vk.kernel(over="y")
def shifts_of_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = i << 40 | i >> 1


case("shifts", "`index` is 64 bits wide", INDEX, shifts_of_index, lambda t: (np.zeros(5, np.int32),),
     lambda x: np.arange(5) << 40 | np.arange(5) >> 1)  # fmt: skip


# -- float to int
@vk.kernel(over="y")
def from_f64(x: vk.In[vk.f64, "N"], y: vk.Out[T, "N"], like: vk.In[T, "M"]):
    i = vk.global_id(0)
    y[i] = T(x[i])


def halves(dtype: DType) -> tuple[Any, Any, Any]:
    x = np.concatenate([two(vk.f64)[0], np.array([2.5, -2.5, 300.7, -300.7, 1e10, -1e10, 1e30, 0.99, -0.99, 127.9])])
    return x, np.zeros(len(x), array_type(dtype)), np.zeros(1, array_type(dtype))


def expected_from_f64(x: Any, y: Any, like: Any) -> None:
    dtype = next(t for t in ALL if array_type(t) == y.dtype)
    y[:] = operations.expected_conversion(x, dtype)


case("float to int", "f64 to every integer type: truncated, saturated, NaN gives 0", INTEGERS, from_f64, halves,
     expected_from_f64)  # fmt: skip
case("float to int", "f64 to bool is `!= 0`", BOOL, from_f64, halves, expected_from_f64)


@vk.kernel(over="y")
def to_integers(x: vk.In[T, "N"], y: vk.Out[vk.i32, "N"], z: vk.Out[vk.u8, "N"], w: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.i32(x[i])
    z[i] = vk.u8(x[i])
    w[i] = int(x[i])


case("float to int", "every float type to i32 and u8", FLOATS, to_integers, several,
     quietly(lambda x: tuple(operations.expected_conversion(x, t) for t in (vk.i32, vk.u8, vk.i32))))  # fmt: skip


@vk.kernel(over="y")
def to_index(x: vk.In[vk.f64, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = vk.index(x[i])


case("float to int", "f64 to `index`", INDEX, to_index, lambda t: (halves(vk.i64)[0],),
     quietly(lambda x: operations.expected_conversion(x, vk.i64)))  # fmt: skip


# -- min and max
@vk.kernel(over="y")
def extremes(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"], most: vk.Out[T, "N"], clamped: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = min(x[i], z[i])
    most[i] = max(x[i], z[i])
    clamped[i] = vk.clamp(x[i], 1, 5)


def expected_extremes(x: Any, z: Any) -> Any:
    least, most = semantics.MEANING["min"], semantics.MEANING["max"]
    one, five = np.full_like(x, x.dtype.type(1)), np.full_like(x, x.dtype.type(5))
    return least(x, z), most(x, z), least(most(x, one), five)


case("min, max", "propagate NaN, -0 < +0", NUMBERS, extremes, two, quietly(
    lambda x, z: tuple(in_f32(lambda a, b, k=k: expected_extremes(a, b)[k])(x, z) for k in range(3))))  # fmt: skip


@vk.kernel(over="y")
def ignoring(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"], most: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = vk.fmin(x[i], z[i]) + 1
    most[i] = vk.fmax(x[i], z[i]) + 1


case("min, max", "`vk.fmin` and `vk.fmax` ignore NaN", FLOATS, ignoring, two,
     quietly(lambda x, z: (in_f32(np.fmin)(x, z) + x.dtype.type(1), in_f32(np.fmax)(x, z) + x.dtype.type(1))))  # fmt: skip


@vk.kernel(over="y")
def extremes_of_bools(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = min(x[i], z[i]) + 2 * max(x[i], z[i])


case("min, max", "bools are converted to i32", BOOL, extremes_of_bools, two,
     lambda x, z: (x & z).astype(np.int32) + 2 * (x | z).astype(np.int32))  # fmt: skip


@vk.kernel(over="y")
def extremes_of_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = min(i, 3) + max(i, x[i])


case("min, max", "`index` with i32 gives `index`", INDEX, extremes_of_index, lambda t: (few(vk.i32, 5, -1, 7, 2, 0),),
     lambda x: np.minimum(np.arange(5), 3) + np.maximum(np.arange(5), x))  # fmt: skip


# -- rounding
@vk.kernel(over="y")
def rounds(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = round(x[i])


case("round", "half to even", FLOATS, rounds,
     lambda t: (np.concatenate([few(t, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.5), two(t)[0]]),), in_f32(np.rint))  # fmt: skip


@vk.kernel(over="x")
def wholes(
    x: vk.In[T, "N"], down: vk.Out[T, "N"], up: vk.Out[T, "N"], inwards: vk.Out[T, "N"], nearest: vk.Out[T, "N"]
):
    i = vk.global_id(0)
    down[i] = vk.floor(x[i])
    up[i] = vk.ceil(x[i])
    inwards[i] = vk.trunc(x[i])
    nearest[i] = vk.round(x[i])


def with_fractions(dtype: DType) -> tuple[Any]:
    """Return powers of two plus 0, 1/4, 1/2 and 3/4, and their negatives."""
    largest = 15 if dtype is vk.f16 else 56
    sizes = [2.0**power + part for power in range(-2, largest) for part in (0.0, 0.25, 0.5, 0.75)]
    return (few(dtype, *sizes, *(-size for size in sizes)),)


case("round", "floor, ceil, trunc and round of values with and without fractions", FLOATS, wholes, with_fractions,
     lambda x: tuple(in_f32(whole)(x) for whole in (np.floor, np.ceil, np.trunc, np.rint)))  # fmt: skip
case("round", "integers and bools are unchanged", (*BOOL, *INTEGERS), rounds, several, lambda x: x)


@vk.kernel(over="y")
def rounds_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = round(i) + vk.floor(i)


case(
    "round", "`index` is unchanged", INDEX, rounds_index, lambda t: (np.zeros(3, np.int32),), lambda x: np.arange(3) * 2
)


# -- fused multiply-add
@vk.kernel(over="y", strict=True)
def product_and_sum(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] * z[i] - x[i]


@vk.kernel(over="y")
def perhaps_fused(x: vk.In[T, "N"], z: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] * z[i] + x[i]


def close_products(dtype: DType) -> tuple[Any, Any]:
    """Return pairs for which a fused and a separately rounded multiply-add differ."""
    random = np.random.default_rng(1)
    return few(dtype, *random.uniform(1, 2, 64)), few(dtype, *random.uniform(1, 2, 64))


case("fused multiply-add", "with `strict=True`, `x * z - x` is rounded twice", FLOATS, product_and_sum, close_products,
     quietly(lambda x, z: x * z - x))  # fmt: skip
case("fused multiply-add", "without it, `x * z + x` may be rounded once or twice", FLOATS, perhaps_fused,
     close_products, quietly(lambda x, z: x * z + x), ulp=1.0)  # fmt: skip
case(
    "fused multiply-add",
    "integers are exact in both cases",
    INTEGERS,
    perhaps_fused,
    two,
    quietly(lambda x, z: x * z + x),
)
not_for("fused multiply-add", (*BOOL, *INDEX), "products of bools and of `index` are integers")


# -- functions
@vk.kernel(over="y")
def functions(x: vk.In[T, "N"], y: vk.Out[T, "N"], z: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = vk.exp(x[i])
    z[i] = vk.sin(x[i])


def expected_functions(x: Any) -> Any:
    if x.dtype.name == "bfloat16":
        return tuple(in_f32(lambda v, n=n: exact(n, [v]).astype(np.float32))(x) for n in ("exp", "sin"))
    with np.errstate(all="ignore"):
        return tuple(exact(name, [x]).astype(x.dtype) for name in ("exp", "sin"))


case("math functions", "exp and sin of floats; `python -m tools.ulp` measures all functions", FLOATS, functions,
     lambda t: (few(t, 0, 1, -1, 0.5, 3, -7, 10, 0.001),), expected_functions, ulp=measure.bound_of("exp") + 0.5)  # fmt: skip


@vk.kernel(over="y")
def functions_of_integers(x: vk.In[T, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.sqrt(x[i])


case("math functions", "integers and bools are converted to f32", (*BOOL, *INTEGERS), functions_of_integers, several,
     quietly(lambda x: np.sqrt(x.astype(np.float32))), ulp=measure.bound_of("sqrt"))  # fmt: skip


@vk.kernel(over="y")
def functions_of_index(x: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.sqrt(i)


case("math functions", "`index` is converted to f32", INDEX, functions_of_index, lambda t: (np.zeros(5, np.int32),),
     lambda x: np.sqrt(np.arange(5, dtype=np.float32)), ulp=measure.bound_of("sqrt"))  # fmt: skip
