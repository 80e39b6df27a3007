"""Elementwise kernels of which each invocation takes four neighbours: as `elementwise`, for contiguous arrays of any types.

Enters: vectors of one length, which `count` gives in fours; elements of one byte as words of 32 bits that hold four; run-time
scalars; the function F, and the type C that F computes in. Leaves: y. GPUs load and store four elements of up to four bytes at
once, where the array begins at a multiple of 16 bytes, and bytes as words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import vkjit as vk

__all__ = ["FORMS", "fours0", "held_in_words"]


def held_in_words(dtype: Any) -> bool:
    """Whether elements of the type come as words that hold four."""
    return bool(dtype.itemsize == 1)


@vk.func
def one_of(a, i, n):
    """Element n of the i-th four."""
    return a[i * 4 + n]


@vk.func
def truth_of(a, i, n):
    """Bool n of the i-th word."""
    return ((a[i] >> vk.u32(8 * n)) & vk.u32(255)) != vk.u32(0)


@vk.func
def unsigned_of(a, i, n):
    """Byte n of the i-th word."""
    return vk.u8((a[i] >> vk.u32(8 * n)) & vk.u32(255))


@vk.func
def signed_of(a, i, n):
    """Byte n of the i-th word, with its sign."""
    return vk.bitcast(vk.i8, vk.u8((a[i] >> vk.u32(8 * n)) & vk.u32(255)))


@vk.func
def kept(word, value, n):  # noqa: ARG001  # as those below
    """What is gathered of results that are stored one by one: nothing."""
    return word


@vk.func
def joined_truth(word, value, n):
    """A word with bool n put in."""
    return word | (vk.where(value, vk.u32(1), vk.u32(0)) << vk.u32(8 * n))


@vk.func
def joined_unsigned(word, value, n):
    """A word with byte n put in."""
    return word | (vk.u32(value) << vk.u32(8 * n))


@vk.func
def joined_signed(word, value, n):
    """A word with byte n put in."""
    return word | (vk.u32(vk.bitcast(vk.u8, value)) << vk.u32(8 * n))


@vk.func
def put_one(y, i, n, value):
    """Stores element n of the i-th four."""
    y[i * 4 + n] = value


@vk.func
def put_later(y, i, n, value):
    """Stores nothing: the word is stored as a whole."""


@vk.func
def end_of_ones(y, i, word):
    """Stores nothing: each was stored."""


@vk.func
def put_word(y, i, word):
    """Stores the i-th word."""
    y[i] = word


def _taker(dtype: Any) -> Any:
    if not held_in_words(dtype):
        return one_of
    return truth_of if dtype.kind == "bool" else unsigned_of if dtype.kind == "uint" else signed_of


def _putter(dtype: Any) -> tuple[Any, Any, Any]:
    """What joins, puts and ends results of this type."""
    if not held_in_words(dtype):
        return kept, put_one, end_of_ones
    joins = {"bool": joined_truth, "uint": joined_unsigned}.get(dtype.kind, joined_signed)
    return joins, put_later, put_word


def _element(dtype: Any) -> Any:
    return vk.u32 if held_in_words(dtype) else dtype


def _groups(count: Any) -> Any:
    return -(-count // 256)


@functools.cache
def fours0(S: Any, R: Any) -> Any:
    """y = s."""
    (JOIN, PUT, END), Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=256, debug=False)
    def fours0(s: S, y: vk.Out[Y, "N"], count: vk.i64):
        i = vk.global_id(0)
        if i < count:
            word = vk.u32(0)
            for n in vk.unroll(4):
                value = R(S(s))
                word = JOIN(word, value, n)
                PUT(y, i, n, value)
            END(y, i, word)

    return fours0


@functools.cache
def fours1(T: Any, R: Any) -> Any:
    """y = F(a)."""
    A, TAKE, (JOIN, PUT, END), Y = _element(T), _taker(T), _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=256, debug=False)
    def fours1(a: vk.In[A, "M"], y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any]):
        i = vk.global_id(0)
        if i < count:
            word = vk.u32(0)
            for n in vk.unroll(4):
                value = R(F(C(TAKE(a, i, n))))
                word = JOIN(word, value, n)
                PUT(y, i, n, value)
            END(y, i, word)

    return fours1


@functools.cache
def fours2(T: Any, U: Any, R: Any) -> Any:
    """y = F(a, b)."""
    A, TAKE, B, TAKE_B = _element(T), _taker(T), _element(U), _taker(U)
    (JOIN, PUT, END), Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=256, debug=False)
    def fours2(
        a: vk.In[A, "M"], b: vk.In[B, "P"], y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any]
    ):
        i = vk.global_id(0)
        if i < count:
            word = vk.u32(0)
            for n in vk.unroll(4):
                value = R(F(C(TAKE(a, i, n)), C(TAKE_B(b, i, n))))
                word = JOIN(word, value, n)
                PUT(y, i, n, value)
            END(y, i, word)

    return fours2


@functools.cache
def fours2_right(S: Any, T: Any, R: Any) -> Any:
    """y = F(a, s)."""
    A, TAKE, (JOIN, PUT, END), Y = _element(T), _taker(T), _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=256, debug=False)
    def fours2_right(a: vk.In[A, "M"], s: S, y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any]):
        i = vk.global_id(0)
        if i < count:
            word = vk.u32(0)
            for n in vk.unroll(4):
                value = R(F(C(TAKE(a, i, n)), C(S(s))))
                word = JOIN(word, value, n)
                PUT(y, i, n, value)
            END(y, i, word)

    return fours2_right


@functools.cache
def fours3(T: Any, U: Any, V: Any, R: Any) -> Any:
    """y = F(a, b, c); the first operand is taken as D, the others as C."""
    A, TAKE, B, TAKE_B, E, TAKE_C = _element(T), _taker(T), _element(U), _taker(U), _element(V), _taker(V)
    (JOIN, PUT, END), Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=256, debug=False)
    def fours3(
        a: vk.In[A, "M"], b: vk.In[B, "P"], c: vk.In[E, "Q"], y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any],
        D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            word = vk.u32(0)
            for n in vk.unroll(4):
                value = R(F(D(TAKE(a, i, n)), C(TAKE_B(b, i, n)), C(TAKE_C(c, i, n))))
                word = JOIN(word, value, n)
                PUT(y, i, n, value)
            END(y, i, word)

    return fours3


@functools.cache
def fours3_right(S: Any, T: Any, U: Any, R: Any) -> Any:
    """y = F(a, b, s)."""
    A, TAKE, B, TAKE_B = _element(T), _taker(T), _element(U), _taker(U)
    (JOIN, PUT, END), Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=256, debug=False)
    def fours3_right(
        a: vk.In[A, "M"], b: vk.In[B, "P"], s: S, y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], D: vk.Const[Any],
        C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            word = vk.u32(0)
            for n in vk.unroll(4):
                value = R(F(D(TAKE(a, i, n)), C(TAKE_B(b, i, n)), C(S(s))))
                word = JOIN(word, value, n)
                PUT(y, i, n, value)
            END(y, i, word)

    return fours3_right


@functools.cache
def fours3_middle(S: Any, T: Any, U: Any, R: Any) -> Any:
    """y = F(a, s, c)."""
    A, TAKE, B, TAKE_B = _element(T), _taker(T), _element(U), _taker(U)
    (JOIN, PUT, END), Y = _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=256, debug=False)
    def fours3_middle(
        a: vk.In[A, "M"], s: S, c: vk.In[B, "P"], y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], D: vk.Const[Any],
        C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            word = vk.u32(0)
            for n in vk.unroll(4):
                value = R(F(D(TAKE(a, i, n)), C(S(s)), C(TAKE_B(c, i, n))))
                word = JOIN(word, value, n)
                PUT(y, i, n, value)
            END(y, i, word)

    return fours3_middle


@functools.cache
def fours3_outer(S: Any, T: Any, R: Any) -> Any:
    """y = F(a, s, t)."""
    A, TAKE, (JOIN, PUT, END), Y = _element(T), _taker(T), _putter(R), _element(R)

    @vk.kernel(groups=_groups, local=256, debug=False)
    def fours3_outer(
        a: vk.In[A, "M"], s: S, t: S, y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], D: vk.Const[Any],
        C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            word = vk.u32(0)
            for n in vk.unroll(4):
                value = R(F(D(TAKE(a, i, n)), C(S(s)), C(S(t))))
                word = JOIN(word, value, n)
                PUT(y, i, n, value)
            END(y, i, word)

    return fours3_outer


FORMS: dict[str, Callable[..., Any]] = {
    "t": fours1, "tt": fours2, "ts": fours2_right, "ttt": fours3, "tts": fours3_right, "tst": fours3_middle,
    "tss": fours3_outer,
}  # fmt: skip
"""Which operands are tensors (t) and which numbers (s), to what makes the kernel of the numbers' type, if there are any, and of
the types of arrays.
"""
