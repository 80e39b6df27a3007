"""64-bit integers on devices that lack them: each operation against NumPy, at and near the ends of the types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vkjit as vk
from vkjit.ir import semantics
from vkjit.testing.masks import masked

T = TypeVar("T", bound=vk.Element)
Integers = npt.NDArray[Any]
COUNT = 64


@vk.kernel(over="x")
def integers(x: vk.In[T, "N"], y: vk.In[T, "N"], z: vk.Out[T, "N 24"], c: vk.Out[vk.i32, "N 6"]):
    i = vk.global_id(0)
    a, b = x[i], y[i]
    z[i, 0] = a + b
    z[i, 1] = a - b
    z[i, 2] = a * b
    z[i, 3] = a // b
    z[i, 4] = a % b
    z[i, 5] = -a
    z[i, 6] = a & b
    z[i, 7] = a | b
    z[i, 8] = a ^ b
    z[i, 9] = ~a
    z[i, 10] = a << b
    z[i, 11] = a >> b
    z[i, 12] = abs(a)
    z[i, 13] = vk.min(a, b)
    z[i, 14] = vk.max(a, b)
    z[i, 15] = vk.where(a < b, a, b)
    z[i, 16] = vk.popcount(a)
    z[i, 17] = vk.clz(a)
    z[i, 18] = vk.ctz(a)
    z[i, 19] = vk.sign(a)
    z[i, 20] = a * 24
    z[i, 21] = (a << 5) ^ (a >> 7) ^ (b << 33) ^ (b >> 40)
    z[i, 22] = a // 1000003
    z[i, 23] = a % 7
    c[i, 0] = vk.i32(a < b)
    c[i, 1] = vk.i32(a <= b)
    c[i, 2] = vk.i32(a > b)
    c[i, 3] = vk.i32(a >= b)
    c[i, 4] = vk.i32(a == b)
    c[i, 5] = vk.i32(a != b)


def expected(x: Integers, y: Integers) -> tuple[Integers, Integers]:
    kind, bits = x.dtype.type, 64
    amount = (y.astype(np.uint64) % np.uint64(bits)).astype(x.dtype)
    minus = (-x.astype(np.uint64)).astype(x.dtype) if x.dtype.kind == "u" else -x
    meaning = {name: semantics.MEANING[name] for name in ("popcount", "clz", "ctz", "floordiv", "floormod")}
    columns = [
        x + y, x - y, x * y, meaning["floordiv"](x, y), meaning["floormod"](x, y), minus, x & y, x | y, x ^ y, ~x,
        x << amount, x >> amount, np.abs(x), np.minimum(x, y), np.maximum(x, y), np.where(x < y, x, y),
        meaning["popcount"](x), meaning["clz"](x), meaning["ctz"](x), np.sign(x), x * kind(24),
        (x << kind(5)) ^ (x >> kind(7)) ^ (y << kind(33)) ^ (y >> kind(40)), x // kind(1000003), x % kind(7),
    ]  # fmt: skip
    comparisons = [x < y, x <= y, x > y, x >= y, x == y, x != y]
    return np.stack(columns, axis=1).astype(x.dtype), np.stack(comparisons, axis=1).astype(np.int32)


@vk.kernel(over="x")
def conversions(
    x: vk.In[T, "N"], f: vk.In[vk.f32, "N"], words: vk.Out[vk.u32, "N 3"], floats: vk.Out[vk.f32, "N 2"],
    wide: vk.Out[T, "N 8"],
):  # fmt: skip
    i = vk.global_id(0)
    words[i, 0] = vk.u32(x[i])
    words[i, 1] = vk.bitcast(vk.u32, vk.i32(x[i]))
    words[i, 2] = vk.u32(vk.boolean(x[i]))
    floats[i, 0] = vk.f32(x[i])
    floats[i, 1] = vk.f32(vk.u64(x[i]))
    wide[i, 0] = x.dtype(vk.i32(x[i]))
    wide[i, 1] = x.dtype(vk.u32(x[i]))
    wide[i, 2] = x.dtype(f[i])
    wide[i, 3] = x.dtype(x[i] > 5)
    wide[i, 4] = x.dtype(vk.i64(x[i]))
    wide[i, 5] = x.dtype(vk.u64(f[i]))
    wide[i, 6] = x.dtype(vk.i8(x[i]))
    wide[i, 7] = x.dtype(vk.u16(x[i]))


def converted(x: Integers, f: Integers) -> tuple[Integers, Integers, Integers]:
    own = vk.i64 if x.dtype.kind == "i" else vk.u64

    def to(value: Any, source: Any, target: Any) -> Any:
        return semantics.cast(value, source, target)

    words = [to(x, own, vk.u32), to(x, own, vk.i32).view(np.uint32), (x != 0).astype(np.uint32)]
    floats = [to(x, own, vk.f32), to(x.view(np.uint64), vk.u64, vk.f32)]
    wide = [
        to(to(x, own, vk.i32), vk.i32, own), to(to(x, own, vk.u32), vk.u32, own), to(f, vk.f32, own),
        (x > 5).astype(x.dtype), x, to(to(f, vk.f32, vk.u64), vk.u64, own), to(to(x, own, vk.i8), vk.i8, own),
        to(to(x, own, vk.u16), vk.u16, own),
    ]  # fmt: skip
    return np.stack(words, 1), np.stack(floats, 1), np.stack(wide, 1)


@pytest.fixture
def device(vkjit_device: Any) -> Iterator[Any]:
    if vkjit_device.caps.kind == "llvm-cpu":
        pytest.skip("the CPU has 64-bit integers")
    with masked("without=i64", vkjit_device) as smaller:
        yield smaller


EDGES = sorted({
    sign * ((1 << power) + offset) for power in (0, 1, 7, 15, 16, 24, 31, 32, 33, 48, 62, 63) for offset in (-1, 0, 1)
    for sign in (1, -1)
})  # fmt: skip


def integers_of(seed: int, dtype: Any, edges: list[int]) -> Integers:
    """Return random numbers of random magnitudes, the first ones replaced by `edges`."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 64, COUNT, dtype=np.uint64)
    values = (bits.view(np.int64) >> rng.integers(0, 64, COUNT)).astype(np.int64).view(np.uint64)
    values[: len(edges)] = [edge & (1 << 64) - 1 for edge in edges]
    return values.view(dtype)


RANDOM = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
edges = st.lists(st.sampled_from(EDGES), max_size=COUNT)
dtypes = st.sampled_from([np.int64, np.uint64])


@RANDOM
@given(seed=st.integers(0, 2**32), dtype=dtypes, x_edges=edges, y_edges=edges)
def test_operations(device: Any, seed: int, dtype: Any, x_edges: list[int], y_edges: list[int]) -> None:
    x, y = integers_of(seed, dtype, x_edges), integers_of(seed + 1, dtype, y_edges)
    z, c = np.zeros((COUNT, 24), dtype), np.zeros((COUNT, 6), np.int32)
    integers(x, y, z, c)
    device.synchronize()
    with semantics.silence_warnings():
        numbers, comparisons = expected(x, y)
    np.testing.assert_array_equal(z, numbers)
    np.testing.assert_array_equal(c, comparisons)


@RANDOM
@given(seed=st.integers(0, 2**32), dtype=dtypes, x_edges=edges)
def test_conversions(device: Any, seed: int, dtype: Any, x_edges: list[int]) -> None:
    if not {"i8", "u16"} <= device.caps.dtypes:
        pytest.skip("the device has no narrow integers")
    x = integers_of(seed, dtype, x_edges)
    f = integers_of(seed + 1, np.int64, x_edges).astype(np.float32) * np.float32(2.0) ** np.float32(seed % 5 - 2)
    f[:5] = [np.nan, np.inf, -np.inf, -0.0, 0.5]
    results = np.zeros((COUNT, 3), np.uint32), np.zeros((COUNT, 2), np.float32), np.zeros((COUNT, 8), dtype)
    conversions(x, f, *results)
    device.synchronize()
    with semantics.silence_warnings():
        wanted = converted(x, f)
    for found, value in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(found, value)
