"""Vectorized elementwise kernels: those of `maps` for contiguous arrays, with several adjacent elements per invocation.

The arrays are vectors of `count` groups of SIZE elements. Elements of one and two bytes are packed into 32-bit words. GPUs then
load and store up to 16 bytes at once, provided the array is 16-byte aligned. Each group is read completely before it is
stored, so y may alias an input.

The factories take the element types of the tensor operands (T, U, V) and of the result (R), the type S of scalars, and SIZE,
the number of elements per invocation. The kernels take F, the function to apply, and C, the type to which operands are
converted first, as in `maps`; those of three operands convert the first one to D instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import vkjit as vk

__all__ = ["KERNELS", "elements_per_invocation", "elements_per_word", "fill_vec", "is_packed", "map2_rows_vec4"]

GROUP = 256
"""Invocations of a workgroup."""


def is_packed(dtype: Any) -> bool:
    """True if arrays of this type are accessed as 32-bit words of several elements."""
    return bool(dtype.itemsize < 4)


def elements_per_word(dtype: Any) -> int:
    """Return the number of elements of this type per element of the array that the kernels access."""
    return 4 // int(dtype.itemsize) if is_packed(dtype) else 1


def elements_per_invocation(*dtypes: Any) -> int:
    """Return the elements per invocation: 16 bytes of the largest type, but at least 4 bytes of the smallest."""
    sizes = [int(dtype.itemsize) for dtype in dtypes]
    return max(16 // max(sizes), 4 // min(sizes))


@vk.func
def load_element(a, i, n, SIZE):
    """Load element n of the i-th group."""
    return a[i * SIZE + n]


@vk.func
def load_bool(a, i, n, SIZE):
    """Load bool n of the i-th group, from 32-bit words of four."""
    return ((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255)) != vk.u32(0)


@vk.func
def load_u8(a, i, n, SIZE):
    """Load u8 n of the i-th group, from 32-bit words of four."""
    return vk.u8((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255))


@vk.func
def load_i8(a, i, n, SIZE):
    """Load i8 n of the i-th group, from 32-bit words of four."""
    return vk.bitcast(vk.i8, vk.u8((a[i * (SIZE // 4) + n // 4] >> vk.u32(8 * (n % 4))) & vk.u32(255)))


@functools.cache
def load_16bit(T: Any) -> Any:
    """Return a function that loads element n, of the two-byte type T, of the i-th group, from 32-bit words of two."""

    @vk.func
    def half_of(a, i, n, SIZE):
        return vk.bitcast(T, vk.u16((a[i * (SIZE // 2) + n // 2] >> vk.u32(16 * (n % 2))) & vk.u32(0xFFFF)))

    return half_of


@vk.func
def store_elements(y, i, values, SIZE):
    """Store the i-th group element by element."""
    for n in vk.unroll(SIZE):
        y[i * SIZE + n] = values[n]


@vk.func
def bool_bits(value):
    """Return the byte that stores a bool, zero-extended to u32."""
    return vk.where(value, vk.u32(1), vk.u32(0))


@vk.func
def u8_bits(value):
    """Zero-extend a u8 to u32."""
    return vk.u32(value)


@vk.func
def i8_bits(value):
    """Return the bits of an i8, zero-extended to u32."""
    return vk.u32(vk.bitcast(vk.u8, value))


@vk.func
def bits_16(value):
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
    if not is_packed(dtype):
        return load_element
    if dtype.itemsize == 2:
        return load_16bit(dtype)
    return load_bool if dtype.kind == "bool" else load_u8 if dtype.kind == "uint" else load_i8


def _storer(dtype: Any) -> Any:
    """Return the function that stores a group of elements of this type."""
    if not is_packed(dtype):
        return store_elements
    if dtype.itemsize == 2:
        return _word_storer(bits_16, 2)
    return _word_storer({"bool": bool_bits, "uint": u8_bits}.get(dtype.kind, i8_bits), 4)


def _element(dtype: Any) -> Any:
    return vk.u32 if is_packed(dtype) else dtype


def _groups(count: Any) -> Any:
    return -(-count // GROUP)


@vk.func
def load_group(a, i, TAKE, AS, SIZE):
    """Load the i-th group of SIZE elements, each by TAKE(a, i, n, SIZE), and convert them to the type AS."""
    values = ()
    for n in vk.unroll(SIZE):
        values = values + (AS(TAKE(a, i, n, SIZE)),)
    return values


@functools.cache
def fill_vec(S: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = s for a scalar of type S and y of type R, with SIZE elements per invocation."""
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def fill_kernel(s: S, y: vk.Out[Y, "N"], count: vk.i64):
        i = vk.global_id(0)
        if i < count:
            values = ()
            for n in vk.unroll(SIZE):  # noqa: B007
                values = values + (R(S(s)),)
            PUT(y, i, values, SIZE)

    return fill_kernel


@functools.cache
def map1_vec(T: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = F(a) for a of type T and y of type R, with SIZE elements per invocation."""
    A, TAKE_A = _element(T), _loader(T)
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def map1_kernel(
        a: vk.In[A, "M"], y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = load_group(a, i, TAKE_A, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n])),)
            PUT(y, i, values, SIZE)

    return map1_kernel


@functools.cache
def map2_vec(T: Any, U: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = F(a, b) for types T, U and R of a, b and y, with SIZE elements per invocation."""
    A, TAKE_A, B, TAKE_B = _element(T), _loader(T), _element(U), _loader(U)
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def map2_kernel(
        a: vk.In[A, "M"], b: vk.In[B, "P"], y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = load_group(a, i, TAKE_A, C, SIZE)
            second = load_group(b, i, TAKE_B, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], second[n])),)
            PUT(y, i, values, SIZE)

    return map2_kernel


@functools.cache
def map2_right_vec(S: Any, T: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = F(a, s) for a scalar s of type S and types T and R of a and y.

    Each invocation computes SIZE elements.
    """
    A, TAKE_A = _element(T), _loader(T)
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def map2_right_kernel(
        a: vk.In[A, "M"], s: S, y: vk.Out[Y, "N"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = load_group(a, i, TAKE_A, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], C(S(s)))),)
            PUT(y, i, values, SIZE)

    return map2_right_kernel


@functools.cache
def map3_vec(T: Any, U: Any, V: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = F(a, b, c), which converts the first operand to D and the others to C."""
    A, TAKE_A, B, TAKE_B, E, TAKE_E = _element(T), _loader(T), _element(U), _loader(U), _element(V), _loader(V)
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def map3_kernel(
        a: vk.In[A, "M"], b: vk.In[B, "P"], c: vk.In[E, "Q"], y: vk.Out[Y, "N"], count: vk.i64,
        F: vk.Const[Any], D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = load_group(a, i, TAKE_A, D, SIZE)
            second = load_group(b, i, TAKE_B, C, SIZE)
            third = load_group(c, i, TAKE_E, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], second[n], third[n])),)
            PUT(y, i, values, SIZE)

    return map3_kernel


@functools.cache
def map3_right_vec(S: Any, T: Any, U: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = F(a, b, s), which converts the first operand to D and the others to C."""
    A, TAKE_A, B, TAKE_B = _element(T), _loader(T), _element(U), _loader(U)
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def map3_right_kernel(
        a: vk.In[A, "M"], b: vk.In[B, "P"], s: S, y: vk.Out[Y, "N"], count: vk.i64,
        F: vk.Const[Any], D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = load_group(a, i, TAKE_A, D, SIZE)
            second = load_group(b, i, TAKE_B, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], second[n], C(S(s)))),)
            PUT(y, i, values, SIZE)

    return map3_right_kernel


@functools.cache
def map3_middle_vec(S: Any, T: Any, U: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = F(a, s, c), which converts the first operand to D and the others to C."""
    A, TAKE_A, B, TAKE_B = _element(T), _loader(T), _element(U), _loader(U)
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def map3_middle_kernel(
        a: vk.In[A, "M"], s: S, c: vk.In[B, "P"], y: vk.Out[Y, "N"], count: vk.i64,
        F: vk.Const[Any], D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = load_group(a, i, TAKE_A, D, SIZE)
            third = load_group(c, i, TAKE_B, C, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], C(S(s)), third[n])),)
            PUT(y, i, values, SIZE)

    return map3_middle_kernel


@functools.cache
def map3_outer_vec(S: Any, T: Any, R: Any, SIZE: int = 4) -> Any:
    """Return the vectorized kernel y = F(a, s, t), which converts the first operand to D and the others to C."""
    A, TAKE_A = _element(T), _loader(T)
    PUT, Y = _storer(R), _element(R)

    @vk.kernel(groups=_groups, local=GROUP, debug=False)
    def map3_outer_kernel(
        a: vk.In[A, "M"], s: S, t: S, y: vk.Out[Y, "N"], count: vk.i64,
        F: vk.Const[Any], D: vk.Const[Any], C: vk.Const[Any],
    ):  # fmt: skip
        i = vk.global_id(0)
        if i < count:
            first = load_group(a, i, TAKE_A, D, SIZE)
            values = ()
            for n in vk.unroll(SIZE):
                values = values + (R(F(first[n], C(S(s)), C(S(t)))),)
            PUT(y, i, values, SIZE)

    return map3_outer_kernel


@functools.cache
def map2_rows_vec4(T: Any, U: Any, R: Any) -> Any:
    """Return the vec4 kernel y = F(a, b) for matrices with `count` vec4s per row, of elements of at least four bytes."""

    @vk.kernel(groups=lambda count, y: (_groups(count), y.shape[0]), local=GROUP, debug=False)
    def map2_rows_kernel(
        a: vk.In[T, "R C"], b: vk.In[U, "R C"], y: vk.Out[R, "R C"], count: vk.i64, F: vk.Const[Any], C: vk.Const[Any]
    ):
        i, r = vk.global_id(0), vk.global_id(1)
        if i < count:
            values = ()
            for n in vk.unroll(4):
                values = values + (R(F(C(a[r, i * 4 + n]), C(b[r, i * 4 + n]))),)
            for n in vk.unroll(4):
                y[r, i * 4 + n] = values[n]

    return map2_rows_kernel


KERNELS: dict[str, Callable[..., Any]] = {
    "t": map1_vec, "tt": map2_vec, "ts": map2_right_vec, "ttt": map3_vec, "tts": map3_right_vec, "tst": map3_middle_vec,
    "tss": map3_outer_vec,
}  # fmt: skip
"""Maps the kinds of the operands, tensor (t) or scalar (s), to the kernel factory, which takes the scalar type, if there are
scalars, then the array types.
"""
