"""Elementwise kernels of which each invocation takes several neighbours: as `elementwise`, for contiguous arrays of any types.

Enters: vectors of one length, which `count` gives in groups of SIZE elements; elements of one and two bytes as words of 32 bits
that hold several; run-time scalars; the function F, and the type C that F computes in. Leaves: y. GPUs load and store up to 16
bytes at once, where the array begins at a multiple of 16 bytes. All of a group is read before any of it is stored: y may be one
of the inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import vkjit as vk

__all__ = ["FORMS", "fours0", "fours2_rows", "held_in_words", "in_words", "together"]

GROUP = 256
"""Invocations of a workgroup."""


def held_in_words(dtype: Any) -> bool:
    """Whether elements of the type come as words that hold several."""
    return bool(dtype.itemsize < 4)


def in_words(dtype: Any) -> int:
    """How many elements of a type lie in one element of the array that kernels take."""
    return 4 // int(dtype.itemsize) if held_in_words(dtype) else 1


def together(*dtypes: Any) -> int:
    """How many neighbours an invocation takes of arrays of these types: 16 bytes of the largest, a word of the least."""
    sizes = [int(dtype.itemsize) for dtype in dtypes]
    return max(16 // max(sizes), 4 // min(sizes))


@vk.func
def one_of(a, i, n, SIZE):
    """Element n of the i-th group."""
    return a[i * SIZE + n]


@vk.func
def truth_of(a, i, n, SIZE):
    """Bool n of the i-th group."""
    return ((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255)) != vk.u32(0)


@vk.func
def unsigned_of(a, i, n, SIZE):
    """Byte n of the i-th group."""
    return vk.u8((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255))


@vk.func
def signed_of(a, i, n, SIZE):
    """Byte n of the i-th group, with its sign."""
    return vk.bitcast(vk.i8, vk.u8((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255)))


@functools.cache
def half_of(T: Any) -> Any:
    """Element n, of the type T of two bytes, of the i-th group."""

    @vk.func
    def half_of(a, i, n, SIZE):
        return vk.bitcast(T, vk.u16((a[i * (SIZE // 2) + n // 2] >> vk.u32(16 * (n % 2))) & vk.u32(0xFFFF)))

    return half_of


@vk.func
def put_ones(y, i, values, SIZE):
    """Stores the i-th group element by element."""
    for n in vk.unroll(SIZE):
        y[i * SIZE + n] = values[n]


@vk.func
def bits_of_truth(value):
    """A bool as the byte that holds it."""
    return vk.where(value, vk.u32(1), vk.u32(0))


@vk.func
def bits_of_unsigned(value):
    """A u8 as the byte that holds it."""
    return vk.u32(value)


@vk.func
def bits_of_signed(value):
    """An i8 as the byte that holds it."""
    return vk.u32(vk.bitcast(vk.u8, value))


@vk.func
def bits_of_half(value):
    """An element of two bytes as these."""
    return vk.u32(vk.bitcast(vk.u16, value))


@functools.cache
def _put_words(bits: Any, parts: int) -> Any:
    """What stores the i-th group in words that hold so many elements."""

    @vk.func
    def put_words(y, i, values, SIZE):
        for w in vk.unroll(SIZE // parts):
            word = vk.u32(0)
            for n in vk.unroll(parts):
                word = word | (bits(values[w * parts + n]) << vk.u32(32 // parts * n))
            y[i * (SIZE // parts) + w] = word

    return put_words


def _taker(dtype: Any) -> Any:
    if not held_in_words(dtype):
        return one_of
    if dtype.itemsize == 2:
        return half_of(dtype)
    return truth_of if dtype.kind == "bool" else unsigned_of if dtype.kind == "uint" else signed_of


def _putter(dtype: Any) -> Any:
    """What stores a group of results of this type."""
    if not held_in_words(dtype):
        return put_ones
    if dtype.itemsize == 2:
        return _put_words(bits_of_half, 2)
    return _put_words({"bool": bits_of_truth, "uint": bits_of_unsigned}.get(dtype.kind, bits_of_signed), 4)


def _element(dtype: Any) -> Any:
    return vk.u32 if held_in_words(dtype) else dtype


def _groups(count: Any) -> Any:
    return -(-count // GROUP)


@vk.func
def taken(a, i, TAKE, AS, SIZE):
    """The i-th group, as the type AS."""
    values = ()
    for n in vk.unroll(SIZE):
        values = values + (AS(TAKE(a, i, n, SIZE)),)
    return values


@functools.cache
def fours0(S: Any, R: Any, SIZE: int = 4) -> Any:
    """y = s."""
    PUT, Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours0(s: S, y: vk.Out[Y, "N"], count: vk.i64):
        i = vk.global_id(0)
        if i < count:
            values = ()
            for n in vk.unroll(SIZE):  # noqa: B007  # as many times
                values = values + (R(S(s)),)
            PUT(y, i, values, SIZE)

    return fours0


@functools.cache
def fours1(T: Any, R: Any, SIZE: int = 4) -> Any:
    """y = F(a)."""
    A, TAKE_A = _element(T), _taker(T)
    PUT, Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours1(
        a: vk.In[A, "M"], y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = taken(a, i, TAKE_A, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n])),)
            PUT(y, i, values, SIZE)

    return fours1


@functools.cache
def fours2(T: Any, U: Any, R: Any, SIZE: int = 4) -> Any:
    """y = F(a, b)."""
    A, TAKE_A, B, TAKE_B = _element(T), _taker(T), _element(U), _taker(U)
    PUT, Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours2(
        a: vk.In[A, "M"], b: vk.In[B, "P"], y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = taken(a, i, TAKE_A, C, SIZE)
            second = taken(b, i, TAKE_B, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], second[n])),)
            PUT(y, i, values, SIZE)

    return fours2


@functools.cache
def fours2_right(S: Any, T: Any, R: Any, SIZE: int = 4) -> Any:
    """y = F(a, s)."""
    A, TAKE_A = _element(T), _taker(T)
    PUT, Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours2_right(
        a: vk.In[A, "M"], s: S, y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = taken(a, i, TAKE_A, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], C(S(s)))),)
            PUT(y, i, values, SIZE)

    return fours2_right


@functools.cache
def fours3(T: Any, U: Any, V: Any, R: Any, SIZE: int = 4) -> Any:
    """y = F(a, b, c); the first operand is taken as D, the others as C."""
    A, TAKE_A, B, TAKE_B, E, TAKE_E = _element(T), _taker(T), _element(U), _taker(U), _element(V), _taker(V)
    PUT, Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours3(
        a: vk.In[A, "M"], b: vk.In[B, "P"], c: vk.In[E, "Q"], y: vk.Out[Y, "N"], count: vk.i64,
        F: vk.Const[Any], D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = taken(a, i, TAKE_A, D, SIZE)
            second = taken(b, i, TAKE_B, C, SIZE)
            third = taken(c, i, TAKE_E, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], second[n], third[n])),)
            PUT(y, i, values, SIZE)

    return fours3


@functools.cache
def fours3_right(S: Any, T: Any, U: Any, R: Any, SIZE: int = 4) -> Any:
    """y = F(a, b, s)."""
    A, TAKE_A, B, TAKE_B = _element(T), _taker(T), _element(U), _taker(U)
    PUT, Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours3_right(
        a: vk.In[A, "M"], b: vk.In[B, "P"], s: S, y: vk.Out[Y, "N"], count: vk.i64,
        F: vk.Const[Any], D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = taken(a, i, TAKE_A, D, SIZE)
            second = taken(b, i, TAKE_B, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], second[n], C(S(s)))),)
            PUT(y, i, values, SIZE)

    return fours3_right


@functools.cache
def fours3_middle(S: Any, T: Any, U: Any, R: Any, SIZE: int = 4) -> Any:
    """y = F(a, s, c)."""
    A, TAKE_A, B, TAKE_B = _element(T), _taker(T), _element(U), _taker(U)
    PUT, Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours3_middle(
        a: vk.In[A, "M"], s: S, c: vk.In[B, "P"], y: vk.Out[Y, "N"], count: vk.i64,
        F: vk.Const[Any], D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = taken(a, i, TAKE_A, D, SIZE)
            third = taken(c, i, TAKE_B, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], C(S(s)), third[n])),)
            PUT(y, i, values, SIZE)

    return fours3_middle


@functools.cache
def fours3_outer(S: Any, T: Any, R: Any, SIZE: int = 4) -> Any:
    """y = F(a, s, t)."""
    A, TAKE_A = _element(T), _taker(T)
    PUT, Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours3_outer(
        a: vk.In[A, "M"], s: S, t: S, y: vk.Out[Y, "N"], count: vk.i64,
        F: vk.Const[Any], D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = taken(a, i, TAKE_A, D, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], C(S(s)), C(S(t)))),)
            PUT(y, i, values, SIZE)

    return fours3_outer


@functools.cache
def fours2_rows(T: Any, U: Any, R: Any) -> Any:
    """y = F(a, b) of matrices whose rows have a multiple of four elements of at least four bytes; `count` fours a row."""

    @vk.kernel(groups=lambda count, y: (_groups(count), y.shape[0]), local=GROUP, debug=False)
    def fours2_rows(
        a: vk.In[T, "R C"], b: vk.In[U, "R C"], y: vk.Out[R, "R C"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any]
    ):
        i, r = vk.global_id(0), vk.global_id(1)
        if i < count:
            values = ()
            for n in vk.unroll(4):
                values = values + (R(F(C(a[r, i * 4 + n]), C(b[r, i * 4 + n]))),)
            for n in vk.unroll(4):
                y[r, i * 4 + n] = values[n]

    return fours2_rows


FORMS: dict[str, Callable[..., Any]] = {
    "t": fours1, "tt": fours2, "ts": fours2_right, "ttt": fours3, "tts": fours3_right, "tst": fours3_middle,
    "tss": fours3_outer,
}  # fmt: skip
"""Which operands are tensors (t) and which numbers (s), to what makes the kernel of the numbers' type, if there are any, and of
the types of arrays.
"""
