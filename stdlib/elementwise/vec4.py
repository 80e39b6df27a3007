"""Vectorized elementwise kernels: those of `maps` for contiguous arrays, with several adjacent elements per invocation.

The arrays are vectors of `count` groups of SIZE elements. Elements of one and two bytes are packed into 32-bit words. GPUs then
load and store up to 16 bytes at once, provided the array is 16-byte aligned. Each group is read completely before it is
stored, so y may alias an input. F is the function to apply and C the type in which it computes, as in `maps`.
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
    """True if arrays of this type are accessed as 32-bit words of several elements."""
    return bool(dtype.itemsize < 4)


def in_words(dtype: Any) -> int:
    """Return the number of elements of this type per element of the array that the kernels access."""
    return 4 // int(dtype.itemsize) if held_in_words(dtype) else 1


def together(*dtypes: Any) -> int:
    """Return the elements per invocation: 16 bytes of the largest type, but at least 4 bytes of the smallest."""
    sizes = [int(dtype.itemsize) for dtype in dtypes]
    return max(16 // max(sizes), 4 // min(sizes))


@vk.func
def one_of(a, i, n, SIZE):
    """Load element n of the i-th group."""
    return a[i * SIZE + n]


@vk.func
def truth_of(a, i, n, SIZE):
    """Load bool n of the i-th group, from 32-bit words of four."""
    return ((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255)) != vk.u32(0)


@vk.func
def unsigned_of(a, i, n, SIZE):
    """Load u8 n of the i-th group, from 32-bit words of four."""
    return vk.u8((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255))


@vk.func
def signed_of(a, i, n, SIZE):
    """Load i8 n of the i-th group, from 32-bit words of four."""
    return vk.bitcast(vk.i8, vk.u8((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255)))


@functools.cache
def half_of(T: Any) -> Any:
    """Return a function that loads element n, of the two-byte type T, of the i-th group, from 32-bit words of two."""

    @vk.func
    def half_of(a, i, n, SIZE):
        return vk.bitcast(T, vk.u16((a[i * (SIZE // 2) + n // 2] >> vk.u32(16 * (n % 2))) & vk.u32(0xFFFF)))

    return half_of


@vk.func
def put_ones(y, i, values, SIZE):
    """Store the i-th group element by element."""
    for n in vk.unroll(SIZE):
        y[i * SIZE + n] = values[n]


@vk.func
def bits_of_truth(value):
    """Return the byte that stores a bool, zero-extended to u32."""
    return vk.where(value, vk.u32(1), vk.u32(0))


@vk.func
def bits_of_unsigned(value):
    """Zero-extend a u8 to u32."""
    return vk.u32(value)


@vk.func
def bits_of_signed(value):
    """Return the bits of an i8, zero-extended to u32."""
    return vk.u32(vk.bitcast(vk.u8, value))


@vk.func
def bits_of_half(value):
    """Return the bits of a two-byte element, zero-extended to u32."""
    return vk.u32(vk.bitcast(vk.u16, value))


@functools.cache
def _word_storer(bits: Any, parts: int) -> Any:
    """Return a function that stores the i-th group as 32-bit words of `parts` elements."""

    @vk.func
    def put_words(y, i, values, SIZE):
        for w in vk.unroll(SIZE // parts):
            word = vk.u32(0)
            for n in vk.unroll(parts):
                word = word | (bits(values[w * parts + n]) << vk.u32(32 // parts * n))
            y[i * (SIZE // parts) + w] = word

    return put_words


def _loader(dtype: Any) -> Any:
    if not held_in_words(dtype):
        return one_of
    if dtype.itemsize == 2:
        return half_of(dtype)
    return truth_of if dtype.kind == "bool" else unsigned_of if dtype.kind == "uint" else signed_of


def _storer(dtype: Any) -> Any:
    """Return the function that stores a group of elements of this type."""
    if not held_in_words(dtype):
        return put_ones
    if dtype.itemsize == 2:
        return _word_storer(bits_of_half, 2)
    return _word_storer({"bool": bits_of_truth, "uint": bits_of_unsigned}.get(dtype.kind, bits_of_signed), 4)


def _element(dtype: Any) -> Any:
    return vk.u32 if held_in_words(dtype) else dtype


def _groups(count: Any) -> Any:
    return -(-count // GROUP)


@vk.func
def taken(a, i, TAKE, AS, SIZE):
    """Load the i-th group, converted to the type AS."""
    values = ()
    for n in vk.unroll(SIZE):
        values = values + (AS(TAKE(a, i, n, SIZE)),)
    return values


@functools.cache
def fours0(S: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = s."""
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fours0(s: S, y: vk.Out[Y, "N"], count: vk.i64):
        i = vk.global_id(0)
        if i < count:
            values = ()
            for n in vk.unroll(SIZE):  # noqa: B007
                values = values + (R(S(s)),)
            PUT(y, i, values, SIZE)

    return fours0


@functools.cache
def fours1(T: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = F(a)."""
    A, TAKE_A = _element(T), _loader(T)
    PUT, Y = _storer(R), _element(R)

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
    """Return the vectorized kernel y = F(a, b)."""
    A, TAKE_A, B, TAKE_B = _element(T), _loader(T), _element(U), _loader(U)
    PUT, Y = _storer(R), _element(R)

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
    """Return the vectorized kernel y = F(a, s)."""
    A, TAKE_A = _element(T), _loader(T)
    PUT, Y = _storer(R), _element(R)

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
    """Return the vectorized kernel y = F(a, b, c), which converts the first operand to D and the others to C."""
    A, TAKE_A, B, TAKE_B, E, TAKE_E = _element(T), _loader(T), _element(U), _loader(U), _element(V), _loader(V)
    PUT, Y = _storer(R), _element(R)

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
    """Return the vectorized kernel y = F(a, b, s), which converts the first operand to D and the others to C."""
    A, TAKE_A, B, TAKE_B = _element(T), _loader(T), _element(U), _loader(U)
    PUT, Y = _storer(R), _element(R)

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
    """Return the vectorized kernel y = F(a, s, c), which converts the first operand to D and the others to C."""
    A, TAKE_A, B, TAKE_B = _element(T), _loader(T), _element(U), _loader(U)
    PUT, Y = _storer(R), _element(R)

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
    """Return the vectorized kernel y = F(a, s, t), which converts the first operand to D and the others to C."""
    A, TAKE_A = _element(T), _loader(T)
    PUT, Y = _storer(R), _element(R)

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
    """Return the vec4 kernel y = F(a, b) for matrices with `count` vec4s per row, of elements of at least four bytes."""

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
"""Maps the kinds of the operands, tensor (t) or scalar (s), to the kernel factory, which takes the scalar type, if there are
scalars, then the array types.
"""
