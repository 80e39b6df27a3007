"""Generic elementwise kernels: y = F(a, b, ...) for any device function F.

The tensor operations launch them. The caller broadcasts and coalesces the arrays to a common shape; they may have any
strides, and y may alias an input. The kernels share these constants:

- F: the device function to apply, for example one of `functions`.
- C: the compute type. Operands are converted to C on load, and the result is converted once, to the type of y, on
  store.
- A: the type to which kernels of three operands convert the first operand instead of C, such as bool for a condition.

T, U and V are the element types of the operands, R that of y. A kernel with scalar operands is generated for the type S
of its scalars, by the function of the same name: `map2_right(vk.f32)` returns a kernel. Its scalar parameters have a
declared type, so a launch need not derive one from their values.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import vkjit as vk

__all__ = [
    "fill",
    "iota",
    "map1",
    "map2",
    "map2_left",
    "map2_right",
    "map3",
    "map3_middle",
    "map3_outer",
    "map3_right",
]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
V = TypeVar("V", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(over="y", debug=False)
def map1(a: vk.In[T, "*N"], y: vk.Out[R, "*N"], F: vk.Const[Any], C: vk.Const[Any]):
    """y = F(a)."""
    i = vk.index()
    y[i] = R(F(C(a[i])))


@vk.kernel(over="y", debug=False)
def map2(a: vk.In[T, "*N"], b: vk.In[U, "*N"], y: vk.Out[R, "*N"], F: vk.Const[Any], C: vk.Const[Any]):
    """y = F(a, b)."""
    i = vk.index()
    y[i] = R(F(C(a[i]), C(b[i])))


@functools.cache
def map2_right(S: Any) -> Any:
    """Return the kernel y = F(a, s) for a scalar of type S."""

    @vk.kernel(over="y", debug=False)
    def map2_right(a: vk.In[T, "*N"], s: S, y: vk.Out[R, "*N"], F: vk.Const[Any], C: vk.Const[Any]):
        i = vk.index()
        y[i] = R(F(C(a[i]), C(S(s))))

    return map2_right


@functools.cache
def map2_left(S: Any) -> Any:
    """Return the kernel y = F(s, b) for a scalar of type S."""

    @vk.kernel(over="y", debug=False)
    def map2_left(s: S, b: vk.In[T, "*N"], y: vk.Out[R, "*N"], F: vk.Const[Any], C: vk.Const[Any]):
        i = vk.index()
        y[i] = R(F(C(S(s)), C(b[i])))

    return map2_left


@vk.kernel(over="y", debug=False)
def map3(
    a: vk.In[T, "*N"],
    b: vk.In[U, "*N"],
    c: vk.In[V, "*N"],
    y: vk.Out[R, "*N"],
    F: vk.Const[Any],
    A: vk.Const[Any],
    C: vk.Const[Any],
):
    """y = F(a, b, c); a is converted to the type A, b and c to C."""
    i = vk.index()
    y[i] = R(F(A(a[i]), C(b[i]), C(c[i])))


@functools.cache
def map3_right(S: Any) -> Any:
    """Return the kernel y = F(a, b, s) for a scalar of type S."""

    @vk.kernel(over="y", debug=False)
    def map3_right(
        a: vk.In[T, "*N"],
        b: vk.In[U, "*N"],
        s: S,
        y: vk.Out[R, "*N"],
        F: vk.Const[Any],
        A: vk.Const[Any],
        C: vk.Const[Any],
    ):
        i = vk.index()
        y[i] = R(F(A(a[i]), C(b[i]), C(S(s))))

    return map3_right


@functools.cache
def map3_middle(S: Any) -> Any:
    """Return the kernel y = F(a, s, c) for a scalar of type S."""

    @vk.kernel(over="y", debug=False)
    def map3_middle(
        a: vk.In[T, "*N"],
        s: S,
        c: vk.In[U, "*N"],
        y: vk.Out[R, "*N"],
        F: vk.Const[Any],
        A: vk.Const[Any],
        C: vk.Const[Any],
    ):
        i = vk.index()
        y[i] = R(F(A(a[i]), C(S(s)), C(c[i])))

    return map3_middle


@functools.cache
def map3_outer(S: Any) -> Any:
    """Return the kernel y = F(a, s, t) for two scalars of type S."""

    @vk.kernel(over="y", debug=False)
    def map3_outer(
        a: vk.In[T, "*N"],
        s: S,
        t: S,
        y: vk.Out[R, "*N"],
        F: vk.Const[Any],
        A: vk.Const[Any],
        C: vk.Const[Any],
    ):
        i = vk.index()
        y[i] = R(F(A(a[i]), C(S(s)), C(S(t))))

    return map3_outer


@functools.cache
def fill(S: Any) -> Any:
    """Return the kernel that fills y with a scalar of type S."""

    @vk.kernel(over="y", debug=False)
    def fill(s: S, y: vk.Out[R, "*N"]):
        i = vk.index()
        y[i] = R(S(s))

    return fill


@vk.kernel(over="y", debug=False)
def iota(y: vk.Out[R, "N"]):
    """y[n] = n, converted to the type of y."""
    i = vk.global_id(0)
    y[i] = R(i)


# -- packed kernels: contiguous arrays of equal element size (16 or 32 bits), accessed as 64-bit words of elements


@vk.func
def unpack_element(word, shift, D, BITS):
    """Extract the element of type D that begins at bit `shift` of a 64-bit word.

    BITS is the unsigned integer type of D's size.
    """
    return vk.bitcast(D, BITS(word >> shift))


@vk.func
def pack_element(value, shift, BITS):
    """Return a 64-bit word that contains the element `value` from bit `shift` on, and zeros elsewhere.

    BITS is the unsigned integer type of the element's size.
    """
    return vk.u64(vk.bitcast(BITS, value)) << shift


def _bits(Y: Any) -> Any:
    """Return the unsigned integer type of the same size as the element type Y, of 16 or 32 bits."""
    return vk.u32 if Y.itemsize == 4 else vk.u16


@functools.cache
def map1_packed(A: Any, Y: Any) -> Any:
    """Return the packed kernel y = F(a) for element types A and Y, both of 16 or both of 32 bits."""
    BITS, SIZE = _bits(Y), Y.itemsize * 8

    @vk.kernel(over="y", debug=False)
    def map1_packed_kernel(a: vk.In[vk.u64, "N"], y: vk.Out[vk.u64, "N"], F: vk.Const[Any], C: vk.Const[Any]):
        i = vk.global_id(0)
        word = a[i]
        result = vk.u64(0)
        for n in vk.unroll(64 // SIZE):
            result |= pack_element(Y(F(C(unpack_element(word, n * SIZE, A, BITS)))), n * SIZE, BITS)
        y[i] = result

    return map1_packed_kernel


@functools.cache
def map2_packed(A: Any, B: Any, Y: Any) -> Any:
    """Return the packed kernel y = F(a, b) for element types A, B and Y, all of 16 or all of 32 bits."""
    BITS, SIZE = _bits(Y), Y.itemsize * 8

    @vk.kernel(over="y", debug=False)
    def map2_packed_kernel(
        a: vk.In[vk.u64, "N"], b: vk.In[vk.u64, "N"], y: vk.Out[vk.u64, "N"], F: vk.Const[Any], C: vk.Const[Any]
    ):
        i = vk.global_id(0)
        a_word, b_word = a[i], b[i]
        result = vk.u64(0)
        for n in vk.unroll(64 // SIZE):
            value = F(C(unpack_element(a_word, n * SIZE, A, BITS)), C(unpack_element(b_word, n * SIZE, B, BITS)))
            result |= pack_element(Y(value), n * SIZE, BITS)
        y[i] = result

    return map2_packed_kernel


@functools.cache
def map2_right_packed(S: Any, A: Any, Y: Any) -> Any:
    """Return the packed kernel y = F(a, s) for a scalar of type S and element types A and Y of equal size.

    The scalar isn't packed.
    """
    BITS, SIZE = _bits(Y), Y.itemsize * 8

    @vk.kernel(over="y", debug=False)
    def map2_right_packed_kernel(
        a: vk.In[vk.u64, "N"], s: S, y: vk.Out[vk.u64, "N"], F: vk.Const[Any], C: vk.Const[Any]
    ):
        i = vk.global_id(0)
        word = a[i]
        result = vk.u64(0)
        for n in vk.unroll(64 // SIZE):
            result |= pack_element(Y(F(C(unpack_element(word, n * SIZE, A, BITS)), C(S(s)))), n * SIZE, BITS)
        y[i] = result

    return map2_right_packed_kernel
