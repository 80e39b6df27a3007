"""Cases of the table of semantics: index type, literals, variables, mixed types, narrowing, overflow."""

# mypy: disable-error-code="valid-type, index, misc"
# ruff: noqa: B007
from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

import vkjit as vk
from tests.semantics.table import ALL, BOOL, FLOATS, INDEX, INTEGERS, NUMBERS, Refused, Table
from tests.semantics.values import array_type, counterpart, few, quietly, several, two
from vkjit import dtypes
from vkjit.dtypes import DType

T = TypeVar("T", bound=vk.Element)
TABLE = Table()
case, not_for = TABLE.case, TABLE.not_for


# -- index type
@vk.kernel(over="y")
def index_sum(x: vk.In[T, "N"], y: vk.Out[T, "N"], wide: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    k = i * 1_000_003 + x[i]
    y[i] = k
    wide[i] = k


def expected_index_sum(x: Any) -> Any:
    k = np.arange(len(x)) * 1_000_003 + x.astype(np.int64)
    return k.astype(x.dtype), k


case("index type", "`i * 1_000_003 + x[i]` is a 64-bit `index`; a store to a narrower array wraps",
     INTEGERS, index_sum, several, expected_index_sum)  # fmt: skip


@vk.kernel(over="y")
def index_large(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = (i + 3_000_000_000) * 4 + len(x)


case("index type", "`(i + 3_000_000_000) * 4` doesn't wrap", INDEX, index_large, lambda t: (np.zeros(5, np.int32),),
     lambda x: (np.arange(5) + 3_000_000_000) * 4 + 5)  # fmt: skip


@vk.kernel(over="y")
def counts_to_the_end(x: vk.In[T, "N"], y: vk.Out[vk.i32, "N"], none: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    n = 0
    for k in range(x[i] - 2, x[i]):
        n += 1
    y[i] = n
    m = 0
    for k in range(0, 5, x[i] - x[i]):
        m += 1
    none[i] = m


case("index type", "a range that ends at the maximum of its type doesn't wrap; a run-time step of 0 gives no iterations",
     INTEGERS, counts_to_the_end, lambda t: (np.array([np.iinfo(t.numpy).max, 2], t.numpy),),
     lambda x: (np.array([2, 2], np.int32), np.zeros(2, np.int32)))  # fmt: skip


@vk.kernel(over="y")
def value_as_an_index(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[x[i]]


case("index type", "`x[x[i]]` is rejected, since the index isn't an integer", (*BOOL, *FLOATS), value_as_an_index, several,
     Refused(("must be an integer", "vk.i32(x[i])")))  # fmt: skip


# -- literals
@vk.kernel(over="y", strict=True)
def literal(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = (x[i] + 3) * 2


case("literals", "`(x[i] + 3) * 2` has the type of x", NUMBERS, literal, several,
     quietly(lambda x: (x + x.dtype.type(3)) * x.dtype.type(2)))  # fmt: skip


@vk.kernel(over="y")
def literal_alone(x: vk.In[T, "N"], y: vk.Out[vk.i32, "N"], z: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    a = 7
    b = 0.1
    y[i] = a
    z[i] = b
    y[i] += x[i] == x[i]


case("literals", "literals without another operand, or with a bool, are i32 and f32", BOOL, literal_alone, several,
     lambda x: (np.full(len(x), 8, np.int32), np.full(len(x), 0.1, np.float32)))  # fmt: skip


@vk.kernel(over="y", strict=True)
def first_join(x: vk.In[T, "N"], y: vk.Out[T, "M"]):
    total = 0
    for k in range(len(x)):
        total += x[k]
    y[vk.global_id(0)] = total


def expected_first_join(x: Any, y: Any) -> None:
    total = x.dtype.type(0)
    with np.errstate(all="ignore"):
        for value in x:
            total = x.dtype.type(total + value)
    y[:] = total


case("literals", "`total = 0`, then `total += x[k]` in a loop: total has the type of x", NUMBERS, first_join,
     lambda t: (few(t, 100, 27, 3, 4, 5, 0.5, 100), np.zeros(1, array_type(t))), expected_first_join)  # fmt: skip


@vk.kernel(over="y")
def index_literal(x: vk.In[vk.i8, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = i + 4_000_000_000


case("literals", "`i + 4_000_000_000` is `index`", INDEX, index_literal, lambda t: (np.zeros(3, np.int8),),
     lambda x: np.arange(3) + 4_000_000_000)  # fmt: skip


# -- variables
def joins_with_another_type(dtype: DType) -> Any:
    target = vk.i32 if dtype.is_float else vk.f32

    @vk.kernel(over="y")
    def kernel(x: vk.In[T, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        if i > 2:
            v = x[i]
        else:
            v = target(3)
        y[i] = v

    return kernel


@vk.kernel(over="y")
def straight_line(x: vk.In[T, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    v = x[i]
    v = v == v
    v = vk.f32(v) / 2
    y[i] = v


case("variables", "`v = x[i]`, `v = v == v`, `v = vk.f32(v) / 2`: one name, three types", ALL, straight_line, several,
     quietly(lambda x: (x == x).astype(np.float32) / 2))  # fmt: skip
case("variables", "a variable with the type of x on one path and another type on the other is rejected", ALL,
     joins_with_another_type, several, Refused(("values of two kinds", "here it is")))  # fmt: skip


@vk.kernel(over="y")
def read_before_written(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    if i > 2:
        v = x[i]
    y[i] = v


case("variables", "reading a variable that is bound in only one branch is rejected", ALL, read_before_written, several,
     Refused(("v may be read before it has a value", "no value when the condition is false")))  # fmt: skip


@vk.kernel(over="y")
def joins_index(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    if i > 2:
        v = i
    else:
        v = x[i]
    y[i] = v


case("variables", "`index` on one path and f32 on the other is rejected", INDEX, joins_index,
     lambda t: (np.zeros(3, np.float32),), Refused(("vk.index", "vk.f32", "two kinds")))  # fmt: skip

# -- mixed types
JOINS: dict[DType, tuple[DType, DType]] = {
    dtypes.boolean: (dtypes.u8, dtypes.u8), dtypes.i8: (dtypes.i64, dtypes.i64), dtypes.i16: (dtypes.u8, dtypes.i16),
    dtypes.i32: (dtypes.f32, dtypes.f32), dtypes.i64: (dtypes.f16, dtypes.f16), dtypes.u8: (dtypes.i16, dtypes.i16),
    dtypes.u16: (dtypes.u64, dtypes.u64), dtypes.u32: (dtypes.i64, dtypes.i64), dtypes.u64: (dtypes.f32, dtypes.f32),
    dtypes.f16: (dtypes.bf16, dtypes.f32), dtypes.bf16: (dtypes.f32, dtypes.f32), dtypes.f32: (dtypes.f64, dtypes.f64),
    dtypes.f64: (dtypes.i64, dtypes.f64),
}  # fmt: skip
"""For each type, another operand's type and the type of their sum."""


def mixed(dtype: DType) -> Any:
    partner, result = JOINS[dtype]

    @vk.kernel(over="y", strict=True)
    def kernel(x: vk.In[T, "N"], z: vk.In[partner, "N"], y: vk.Out[result, "N"]):
        i = vk.global_id(0)
        y[i] = x[i] + z[i]

    return kernel


def mixed_operands(dtype: DType) -> tuple[Any, Any]:
    return few(dtype, 0, 1, 2, 100, 27, 3), few(JOINS[dtype][0], 1, 2, 100, 5, 77, 30)


def expected_mixed(x: Any, z: Any) -> Any:
    dtype = next(t for t in ALL if array_type(t) == x.dtype)
    kind = array_type(JOINS[dtype][1])
    with np.errstate(all="ignore"):
        return x.astype(kind) + z.astype(kind)


case("mixed types", "pairs of types: " + ", ".join(
    f"{a.name} and {b.name} give {c.name}" for a, (b, c) in JOINS.items()), ALL, mixed, mixed_operands,
     expected_mixed)  # fmt: skip


def signed_with_unsigned(dtype: DType) -> Any:
    partner = counterpart(dtype)

    @vk.kernel(over="y")
    def kernel(x: vk.In[T, "N"], z: vk.In[partner, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        y[i] = x[i] + z[i]

    return kernel


case("mixed types", "signed with unsigned of the same width is rejected; the hint shows both casts", INTEGERS,
     signed_with_unsigned, lambda t: (np.zeros(3, t.numpy), np.zeros(3, counterpart(t).numpy)),
     Refused(("have no common type", "cast one of them: vk.", "(z[i])")))  # fmt: skip


@vk.kernel(over="y")
def index_with_float(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = i + x[i]


case("mixed types", "`index` with f32 gives f32", INDEX, index_with_float, lambda t: (few(vk.f32, 0.5, 1.5, -2),),
     lambda x: np.arange(3, dtype=np.float32) + x)  # fmt: skip

# -- narrowing
NARROWER: dict[DType, DType] = {dtypes.f64: dtypes.f32, dtypes.f32: dtypes.f16}
BLOCKED: dict[DType, DType] = {
    dtypes.boolean: dtypes.boolean, dtypes.i8: dtypes.boolean, dtypes.i16: dtypes.i8, dtypes.i32: dtypes.i16,
    dtypes.i64: dtypes.i32, dtypes.u8: dtypes.i8, dtypes.u16: dtypes.u8, dtypes.u32: dtypes.i32, dtypes.u64: dtypes.u32,
    dtypes.f16: dtypes.i16, dtypes.bf16: dtypes.i32, dtypes.f32: dtypes.i32, dtypes.f64: dtypes.i64,
}  # fmt: skip


def stores_as(targets: dict[DType, DType]) -> Any:
    def make(dtype: DType) -> Any:
        target = targets[dtype]

        @vk.kernel(over="y")
        def kernel(x: vk.In[T, "N"], y: vk.Out[target, "N"]):
            i = vk.global_id(0)
            y[i] = x[i]

        return kernel

    return make


case("narrowing", "stores of f64 to f32 and of f32 to f16 round to nearest", tuple(NARROWER), stores_as(NARROWER), several,
     quietly(lambda x: x.astype(np.float32 if x.dtype == np.float64 else np.float16)))  # fmt: skip
case("narrowing", "other narrowing stores are rejected: " + ", ".join(
    f"{a.name} to {b.name}" for a, b in BLOCKED.items() if a is not b), tuple(t for t in BLOCKED if t not in BOOL),
     stores_as(BLOCKED), several, Refused(("silently", "convert it where you mean it", "(x[i])")))  # fmt: skip
not_for("narrowing", BOOL, "no type is narrower than bool")
case("narrowing", "`index` can be stored to any integer type (see 'index type')", INDEX, index_sum,
     lambda t: (np.array([1, 2], np.int16),), expected_index_sum)  # fmt: skip
TO_BF16: dict[DType, DType] = {dtypes.f32: dtypes.bf16, dtypes.f64: dtypes.bf16}
case("narrowing", "stores of f32 and f64 to bf16 round to nearest", tuple(TO_BF16), stores_as(TO_BF16), several,
     quietly(lambda x: x.astype(np.float32).astype(array_type(dtypes.bf16))))  # fmt: skip


# -- integer overflow
@vk.kernel(over="y", strict=True)
def squares(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] * x[i] + x[i]


case("integer overflow", "`x * x + x` wraps", INTEGERS, squares, several, quietly(lambda x: x * x + x))
case("integer overflow", "floats overflow to infinity", FLOATS, squares, several, quietly(lambda x: x * x + x))


@vk.kernel(over="y")
def sum_of_bools(x: vk.In[T, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] + x[i]


case("integer overflow", "bools are converted to i32; nothing overflows", BOOL, sum_of_bools, several,
     lambda x: x.astype(np.int32) * 2)  # fmt: skip


@vk.kernel(over="y")
def index_overflow(x: vk.In[vk.i64, "N"], y: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    y[i] = (i + x[i]) * 3


case("integer overflow", "`index` wraps at 64 bits", INDEX, index_overflow, lambda t: (two(vk.i64)[0],),
     quietly(lambda x: (np.arange(len(x)) + x) * 3))  # fmt: skip
