# mypy: disable-error-code="arg-type, assignment, attr-defined, call-arg, call-overload, misc, no-untyped-call, valid-type"
# mypy: disable-error-code="no-untyped-def, operator, return-value"
"""Python constructs in kernels behave as in Python, on every executor."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


class Color(enum.IntEnum):
    RED = 1
    BLUE = 5


class Kind(enum.Enum):
    PLAIN = "plain"
    FANCY = "fancy"


@dataclasses.dataclass(frozen=True)
class Config:
    count: int = 3
    scale: float = 2.5
    inner: tuple[int, ...] = (1, 2)


class Window(NamedTuple):
    low: int
    high: float


CONFIG = Config()
WINDOW = Window(2, 3.5)
WIDE = np.float64(0.5)
PAIR = (3, 4)


def tuples(v, i):
    t = (v, 2 * v, 3.0)
    first, *rest = t
    *most, last = t
    return (
        sum(t) + max(*t) + min(t) + len(t) + t[-1] + sum(t[1:]) + sum((v,) * 3) + first + sum(rest) + last + sum(most)
    )


def tuples_of_tuples(v, i):
    t = ((v, 1.0), (2.0, v))
    s = v
    for k, (a, b) in enumerate(t):
        s += k * a + b
    for a, b in zip((1, 2), t[1]):  # noqa: B905
        s += a * b
    return s + t[1][0] + t[0][1]


def truths(v, i):
    return 1.0 * any((v > 1, v < -1)) + 2.0 * all((v > -2, v < 2)) + 4.0 * (not any(())) + 8.0 * all(())


def constants(v, i):
    a, b = PAIR
    return v * CONFIG.scale + CONFIG.count + CONFIG.inner[1] + Color.BLUE + WINDOW.high + WINDOW[0] + WIDE * v + a - b


def strings(v, i):
    mode = "dou" + "ble"
    if mode == "double" and mode in ("double", "triple"):
        v = 2 * v
    return v + len(mode)


def chains(v, i):
    a = b = v + 1
    return 1.0 if -1 < v <= b == a != 7 else -1.0


def loops_with_else(v, i):
    n = 0.0
    while n < 3:
        n += 1
        if v > 1:
            break
    else:
        n = 10.0
    for k in range(4):
        if k > v:
            break
        n += 0.25
    else:
        n += 100
    return n


def augmented(v, i):
    v += 2
    v *= 3
    v -= 1
    v /= 2
    v //= 1
    v %= 5
    v **= 2
    return v


def functions_of_math(v, i):
    w = abs(v) + 1
    return (
        math.floor(v) + math.ceil(v) + math.trunc(v) + math.hypot(v, w) + math.copysign(w, v) + math.degrees(math.radians(v))
        + math.log(w, 2) + math.log(w, 10) + math.log(w) / math.log(w + 1) - math.log(w, w + 1) + math.fabs(v)
        + math.gcd(12, 18) + math.factorial(4) + math.prod((v, 2.0)) + math.pow(w, 3) + math.pi + math.tau
    )  # fmt: skip


def functions_of_numpy(v, i):
    return (
        np.square(v) + np.clip(v, -1, 1) + np.sign(v) + np.add(v, 1) * np.subtract(v, 1) - np.multiply(v, 2)
        + np.divide(v, 4) + np.floor_divide(v, 2) + np.mod(v, 3) + np.negative(v) + np.maximum(v, 0) + np.minimum(v, 0)
        + np.where(np.less(v, 0), v, 2 * v) + np.where(np.logical_and(v > 0, v < 2), 1.0, 0.0) + np.deg2rad(v) + np.fabs(v)
    )  # fmt: skip


def builtins(v, i):
    q, r = divmod(v, 2.0)
    return (
        q
        + r
        + pow(v, 2)
        + float(int(v))
        + bool(v)
        + abs(v)
        + round(v)
        + max(v, 0.0, 1.0)
        + min(v, 0.5)
        + sum((v, v), start=3)
    )


def bits(v, i):
    n = int(v * 10) + 100
    return float((n & 12) | (n ^ 5) + (n << 2) - (n >> 1) + ~n)


def declared(v, i):
    """A docstring."""
    total: vk.f32 = 0.5
    pass
    ...
    return total + v


FUNCTIONS = [
    tuples, tuples_of_tuples, truths, constants, strings, chains, loops_with_else, augmented, functions_of_math,
    functions_of_numpy, builtins, bits, declared,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_python_gives(device: Any, function: Any) -> None:
    inner = vk.func(function)

    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = inner(x[i], i)

    x = np.array([-2.5, -1.0, 0.0, 0.75, 1.5, 3.0], np.float32)
    expected = [float(function(float(v), i)) for i, v in enumerate(x)]
    np.testing.assert_allclose(kernel(x), expected, rtol=2e-6, atol=2e-6)


@vk.kernel(over="y")
def configured(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], c: vk.Const[Any], mode: vk.Const[str] = "plain"):
    i = vk.global_id(0)
    if c is Kind.FANCY:
        y[i] = -x[i]
    elif mode == "plain":
        y[i] = x[i] * c.scale + c.count / 2
    else:
        y[i] = x[i]


def test_constants_of_every_class_count(device: Any) -> None:
    x = np.ones(1, np.float32)
    assert configured(x, c=Config())[0] == 4
    assert configured(x, c=Config(scale=1.0))[0] == 2.5
    assert configured(x, c=Config(count=4))[0] == 4.5
    assert configured(x, c=Kind.FANCY)[0] == -1
    assert configured(x, c=Config(), mode="none")[0] == 1


@vk.kernel(over="y")
def typed(x: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"], c: vk.Const[Any]):
    i = vk.global_id(0)
    y[i] = vk.f32(x[i] + c.value) / 2 if c.value != 1.5 else 9


@dataclasses.dataclass(frozen=True)
class Held:
    value: Any


def test_equal_constants_of_other_types_are_other_constants(device: Any) -> None:
    """1, 1.0 and True compare equal in Python but are distinct constants."""
    x = np.full(1, 2**24 + 1, np.int32)
    assert typed(x, c=Held(1))[0] == (2**24 + 2) / 2
    assert typed(x, c=Held(1.0))[0] == np.float32(np.float32(2**24 + 1) + 1) / 2
    assert typed(x, c=Held(np.float64(1.0)))[0] == np.float32(np.float32(2**24 + 1) + 1) / 2


@vk.kernel(over="y")
def signed(y: vk.Out[vk.f32, "N"], c: vk.Const[Any]):
    y[vk.global_id(0)] = vk.copysign(1.0, c)


@pytest.mark.parametrize("kind", [float, np.float16, np.float32, np.float64])
def test_zeros_of_both_signs_are_two_constants(device: Any, kind: Any) -> None:
    y = np.zeros(1, np.float32)
    for value in (0.0, -0.0, 0.0):
        signed(y, c=kind(value))
        assert y[0] == np.copysign(1, value)


@vk.kernel(over="y")
def padded(x: vk.In[vk.boolean, "N"], y: vk.Out[vk.boolean, "N"]):
    i = vk.global_id(0)
    y[i] = x.get(i + 1, pad=0) or x.get(i - 1, pad=1) or x.get(i + 9)


def test_pads_of_bools(device: Any) -> None:
    assert padded(np.array([False, False, True, False])).tolist() == [True, True, False, True]


def test_index_beyond_32_bits(device: Any) -> None:
    """An array of more than 2**32 elements that share one memory location."""

    @vk.kernel(groups=1, local=1)
    def far(x: vk.In[vk.u8, "N M"], y: vk.Out[vk.i64, "_"], j: vk.i64):
        n = len(x)
        y[0] = n * x.shape[1]
        y[1] = x[n - 1, x.shape[1] - 1] + x[j, -1]
        y[2] = x.size % 1000
        last = n - 1
        y[3] = last * 4
        y[4] = vk.i64(x.get(n, 0, pad=9)) + 10 * x.get(n - 1, 0, pad=9)

    base = np.full(1, 7, np.uint8)
    rows, columns = 3 * 2**30, 5
    x = np.lib.stride_tricks.as_strided(base, (rows, columns), (0, 0))
    y = np.zeros(5, np.int64)
    far(x, y, 2**31 + 5)
    assert y.tolist() == [rows * columns, 14, rows * columns % 1000, (rows - 1) * 4, 9 + 70]


def test_the_sign_of_a_narrowed_integer_is_not_that_of_the_wide_one(device: Any) -> None:
    """Masking makes the i64 non-negative, but its lower half may be a negative i32."""

    @vk.kernel(over="x")
    def thirds(x: vk.In[vk.i64, "N"], quotient: vk.Out[vk.i32, "N"], remainder: vk.Out[vk.i32, "N"]):
        i = vk.global_id(0)
        narrow = vk.i32(x[i] & vk.i64(0xFFFFFFF0))
        quotient[i] = narrow // 3
        remainder[i] = narrow % 3

    x = np.array([7, 3_000_000_000, 2**31, 2**32 - 1, 2**40 + 2**31], np.int64)
    narrow = (x & 0xFFFFFFF0).astype(np.int32)
    quotient, remainder = np.zeros_like(narrow), np.zeros_like(narrow)
    with vk.use_device(device):
        thirds(x, quotient, remainder)
    np.testing.assert_array_equal(quotient, narrow // 3)
    np.testing.assert_array_equal(remainder, narrow % 3)


@vk.kernel(local=64, groups=1)
def rising(base: vk.i32, y: vk.Out[vk.i32, "N"]):
    value = base + vk.i32(vk.local_id(0))
    if value >= 0:
        y[vk.local_id(0)] = value
    else:
        y[vk.local_id(0)] = 7


@vk.kernel(local=64, groups=1)
def falling(base: vk.i32, y: vk.Out[vk.i32, "N"]):
    value = base - vk.i32(vk.local_id(0))
    if value < 0:
        y[vk.local_id(0)] = value
    else:
        y[vk.local_id(0)] = 7


def test_conditions_on_values_that_wrap_within_a_vector(device: Any) -> None:
    """The first lane alone doesn't tell whether the condition holds in all lanes."""
    largest = 2**31 - 1
    for base in (largest - 3, largest - 63, largest, -5, 0):
        for kernel, start, step in ((rising, base, 1), (falling, -1 - base, -1)):
            values = (start + step * np.arange(64, dtype=np.int64)).astype(np.int32)
            y = vk.zeros(64, dtype=vk.i32)
            kernel(start, y)
            expected = np.where(values >= 0 if step > 0 else values < 0, values, 7)
            np.testing.assert_array_equal(y.numpy(), expected)


@vk.kernel(local=64, groups=1)
def wide_steps(base: vk.i8, bound: vk.i8, y: vk.Out[vk.i8, "N"]):
    value = base + vk.i8(vk.local_id(0)) * vk.i8(100)
    if value < bound:
        y[vk.local_id(0)] = value
    else:
        y[vk.local_id(0)] = vk.i8(7)


@vk.kernel(local=64, groups=1)
def unsigned_falling(base: vk.u16, bound: vk.u16, y: vk.Out[vk.u16, "N"]):
    value = base + vk.u16(vk.local_id(0)) * vk.u16(65529)
    if value <= bound:
        y[vk.local_id(0)] = value
    else:
        y[vk.local_id(0)] = vk.u16(7)


def test_conditions_on_values_that_wrap_several_times_within_a_vector(device: Any) -> None:
    """The lanes' distance doesn't fit the type."""
    lanes = np.arange(64)
    for base, bound in ((-125, 100), (-128, 127), (0, -100)):
        values, y = (base + 100 * lanes).astype(np.int8), np.zeros(64, np.int8)
        wide_steps(base, bound, y)
        np.testing.assert_array_equal(y, np.where(values < bound, values, 7))
    for base, bound in ((17, 65520), (0, 65000), (65535, 17)):
        large, z = (base - 7 * lanes).astype(np.uint16), np.zeros(64, np.uint16)
        unsigned_falling(base, bound, z)
        np.testing.assert_array_equal(z, np.where(large <= bound, large, 7))


@vk.kernel(local=64, groups=1)
def wrapping_cast(base: vk.u32, y: vk.Out[vk.i32, "N"]):
    value = vk.i32(vk.i64(base) * 3 - vk.i64(vk.local_id(0)))
    if value >= 5:
        y[vk.local_id(0)] = value
    else:
        y[vk.local_id(0)] = 7


@vk.kernel(local=64, groups=1)
def from_negative(base: vk.i16, bound: vk.u64, y: vk.Out[vk.i32, "N"]):
    first = vk.u64(vk.i32(base) + vk.i32(vk.local_id(0)))
    steps = vk.i32(0)
    for _ in range(first, bound):
        steps += 1
    y[vk.local_id(0)] = steps


def test_casts_that_wrap_in_some_lanes(device: Any) -> None:
    """The step from lane to lane is exact before the cast, but not after it."""
    lanes, y = np.arange(64), np.zeros(64, np.int32)
    for base in (2**31 + 19, 5, 2**32 - 1):
        wrapping_cast(base, y)
        values = (3 * base - lanes).astype(np.int32)
        np.testing.assert_array_equal(y, np.where(values >= 5, values, 7))
    for base in (-37, -3, 2):
        from_negative(base, 20, y)
        first = base + lanes
        np.testing.assert_array_equal(y, np.where(first < 0, 0, np.maximum(20 - first, 0)))


@vk.struct
class Pair:
    a: vk.i32
    b: vk.f32


@vk.struct
class Nested:
    pair: Pair
    lanes: vk.vec(vk.f32, 2)


@vk.kernel(groups=1, local=1)
def equalities(x: vk.In[vk.i32, "N"], f: vk.In[vk.f32, "M"], y: vk.InOut[vk.i32, "K"]):
    p, nan = Pair(x[0], f[0]), Pair(x[0], f[2])
    v, w = vk.vec(vk.f32, 2)(f[0], f[1]), vk.vec(vk.f32, 2)(f[0], f[0])
    y[0] = x.shape == (2,)
    y[1] = (x[0], 2) == (1, x[1])
    y[2] = (1, (x[0], 2)) != (x[0], (1, 3))
    y[3] = p == Pair(1, 1.0) and p != Pair(1, 2.0)
    y[4] = (x[0], x[1]) in ((1, 3), (1, 2)) and x[0] not in (x[1], 3)
    y[5] = nan != nan and not (nan == nan)
    y[6] = Nested(p, v) == Nested(Pair(1, 1.0), v)
    y[7] = Nested(p, v) != Nested(p, w)
    y[8] = x.shape != f.shape[0:0] and () == ()
    y[9] = x.dtype == np.int32 and np.float32 == f.dtype and x.dtype in (np.float32, np.intc)
    y[10] = x.dtype != np.float32 and x.dtype != np.complex64 and vk.bf16 != np.float32
    y[11] = (x.dtype, x[0]) == (np.int32, 1)
    y[12] = not ((1, (x[0], 2)) == (1, x[0])) and (1, (x[0], 2)) != (1, x[0])
    y[13] = x[0] != (1, 2) and not (() == x[0]) and x[0] != p and not (p == f[0])
    y[14] = (x[0], None) != (1, x[1]) and not ((1, "a") == (x[0], x[0])) and (x[0], None) == (1, None)
    y[15] = x[0] not in ((1,), None, "1") and (x[0], (x[1],)) in ((1, 2), (1, (2,)))


def test_equality_is_that_of_the_parts(device: Any) -> None:
    y = np.zeros(16, np.int32)
    with vk.use_device(device):
        equalities(np.array([1, 2], np.int32), np.array([1, 2, np.nan], np.float32), y)
    assert y.tolist() == [1] * 16


@vk.func
def never(v):
    assert False, "never"  # noqa: B011, PT015
    return v


@vk.kernel(over="x")
def unreachable(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"], size: vk.Const[int] = 3):
    v = x[vk.global_id(0)]
    if v > 100:
        assert size == 4, f"{v} of {size}"
    for _ in range(v - 200):
        assert size == 4, "in a loop"
    y[vk.global_id(0)] = v if v <= 150 else never(v)
    if v > 160:
        vk.assume(size == 4)
    if v <= 170:
        return
    assert size > 3


@pytest.mark.parametrize(
    ("value", "message"), [(101, "101 of 3"), (201, "201 of 3|in a loop|never"), (150, "150 of 3")]
)
def test_assertions_that_are_false_at_compile_time_fail_where_they_are_reached(
    device: Any, value: int, message: str
) -> None:
    with vk.use_device(device):
        assert unreachable(np.array([1, 100], np.int32)).tolist() == [1, 100]
        with pytest.raises(vk.errors.KernelAssertionError, match=message):
            unreachable(np.array([1, value], np.int32))


def test_assertions_that_are_certainly_reached_fail_at_compile_time(device: Any) -> None:
    @vk.kernel(over="x")
    def always(x: vk.InOut[vk.i32, "N"], size: vk.Const[int] = 3):
        if size == 3:
            x[vk.global_id(0)] = never(1)

    with vk.use_device(device), pytest.raises(vk.CompileError, match="assertion fails at compile time: never"):
        always(np.zeros(3, np.int32))


def test_identity_of_element_types_and_numpy_types_is_refused(device: Any) -> None:
    @vk.kernel(over="x")
    def identical(x: vk.InOut[vk.i32, "N"]):
        if x.dtype is np.int32:
            x[vk.global_id(0)] = 1

    with vk.use_device(device), pytest.raises(vk.CompileError, match=r"(?s)other objects.*write =="):
        identical(np.zeros(3, np.int32))


class First(enum.IntEnum):
    A = 1


class Second(enum.IntEnum):
    A = 1
    B = 2


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Word(str, enum.Enum):
    A = "a"


class OtherWord(str, enum.Enum):
    A = "a"


@dataclasses.dataclass(frozen=True)
class Chosen:
    member: Any


@vk.func
def which(member):
    if member is First.A:
        return 10
    if member is Second.A:
        return 20
    if member is Word.A:
        return 40
    if member is OtherWord.A:
        return 50
    return 30 if member is not True else 60


@vk.kernel(over="o")
def told_apart(o: vk.Out[vk.i32, "N"], member: vk.Const[object]):
    o[vk.global_id(0)] = which(member)


@vk.kernel(over="o")
def told_apart_inside(o: vk.Out[vk.i32, "N"], pair: vk.Const[tuple[Any, ...]], chosen: vk.Const[object]):
    copied = pair[1]
    o[vk.global_id(0)] = which(copied) + 100 * which(chosen.member)


def test_members_of_equal_value_are_other_constants(device: Any) -> None:
    cases = [(First.A, 10), (1, 30), (Second.A, 20), (True, 60), (Second.B, 30), (Word.A, 40), ("a", 30)]
    cases += [(OtherWord.A, 50), (1.0, 30), (np.float64(1), 30), (Bits.B, 30)]
    out = vk.zeros(1, dtype=vk.i32)
    for _ in range(2):
        for member, expected in cases:
            for _ in range(10):  # cached launches, and machine code
                told_apart(out, member)
                assert out.tolist() == [expected], member
            told_apart_inside(out, (2, member), Chosen(member))
            assert out.tolist() == [101 * expected], member


def test_members_in_globals_closures_and_arithmetic(device: Any) -> None:
    def made(member):
        @vk.kernel(over="o")
        def kernel(o: vk.Out[vk.i32, "N"]):
            o[vk.global_id(0)] = which(member) + member * 1000 + (member | Bits.B) * 10000

        return kernel

    for member, expected in ((First.A, 31010), (Second.A, 31020), (1, 31030), (Second.B, 22030)):
        out = vk.zeros(1, dtype=vk.i32)
        made(member)(out)
        assert out.tolist() == [expected]


@vk.kernel(over="o")
def flag_or_number(o: vk.Out[vk.i32, "N"], member: vk.Const[object]):
    o[vk.global_id(0)] = 1 if member is Bits.A else 2


def test_identity_of_flags_and_numbers_is_refused(device: Any) -> None:
    out = vk.zeros(1, dtype=vk.i32)
    flag_or_number(out, Bits.A)
    assert out.tolist() == [1]
    flag_or_number(out, Bits.B)
    assert out.tolist() == [2]
    with pytest.raises(vk.CompileError, match="may be a flag"):
        flag_or_number(out, 1)


@vk.kernel(over="y")
def masked(y: vk.InOut[T, "N"], z: vk.Out[T, "N"], w: vk.Out[T, "N"]):
    i = vk.global_id(0)
    x = y[i]
    y[i] &= ~3
    z[i] = x | ~7
    mask = ~0xF
    w[i] = (-1 ^ x) & mask


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8", "i1", "i4"])
def test_negative_literals_are_bit_patterns_of_unsigned_types(device: Any, kind: str) -> None:
    dtype = np.dtype(kind)
    x = np.array([0, 1, 5, 123, 100, np.iinfo(dtype).max], dtype)

    def wrapped(value):
        return np.array([value], np.int64).astype(dtype)

    with vk.use_device(device):
        y = x.copy()
        z, w = masked(y)
    np.testing.assert_array_equal(y, x & wrapped(~3))
    np.testing.assert_array_equal(z, x | wrapped(~7))
    np.testing.assert_array_equal(w, (wrapped(-1) ^ x) & wrapped(~0xF))


@vk.kernel(over="y")
def masked_beyond_the_type(y: vk.InOut[vk.u8, "N"]):
    y[vk.global_id(0)] &= ~256


def test_negative_literals_of_more_bits_are_refused(device: Any) -> None:
    with vk.use_device(device), pytest.raises(vk.CompileError, match="the literal -257 doesn't fit vk.u8"):
        masked_beyond_the_type(np.zeros(1, np.uint8))
