# mypy: disable-error-code="arg-type, attr-defined, call-arg, misc, no-any-return, no-untyped-call, no-untyped-def, operator, index"
"""Structs in registers: their fields are replaced in kernels and device functions, those that are arrays, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

X = np.arange(1, 5, dtype=np.float32)


@vk.struct
class Inner(vk.Struct):
    q: vk.f32
    w: vk.Array[vk.i32, "2"]


@vk.struct
class Outer(vk.Struct):
    a: vk.f32
    m: vk.Array[vk.f32, "2 2"]
    v: vk.Vec[vk.f32, 2]
    inner: Inner


def made(x):
    return Outer(x, ((1.0, 2.0), (3.0, 4.0)), vk.vec(vk.f32, 2)(x, x), Inner(x, (5, 6)))


@vk.func
def updated(s, column, value):
    s.m[0, 1] = value
    s.m[1, column] = s.m[1, column] + value
    s.v.x = 7
    s.v[1] = 8
    s.inner.q += 1
    s.inner.w[1] = 9
    return s


def test_replaced_in_a_device_function(device: Any) -> None:
    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        old = made(x[i])
        s = updated(old, 1, x[i])
        rest = s.m[0, 0] + s.m[1][0] + old.m[0, 1] + old.v.x + vk.f32(old.inner.w[1])  # `old` is unchanged
        y[i] = s.m[0, 1] + 10 * s.m[1, 1] + s.v.x + s.v.y + s.inner.q + vk.f32(s.inner.w[1]) + rest

    assert kernel(X).tolist() == (X + 10 * (4 + X) + 7 + 8 + X + 1 + 9 + 1 + 3 + 2 + X + 6).tolist()


def test_replaced_in_branches_and_loops(device: Any) -> None:
    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        s = made(x[i])
        s.m[0, 0] += 10
        s.m[0][1] = 20
        for _ in range(3):
            s.inner.w[0] += 2
            s.m[1, 1] += x[i]
        if x[i] > 2:
            s.m[1, 0] = 100
        t = s
        t.m[0, 0] = 0
        s.m = (s.m[0], (s.m[1, 0], s.m[1, 1] + 1))
        y[i] = s.m[0, 0] + s.m[0, 1] + s.m[1, 0] + s.m[1, 1] + vk.f32(s.inner.w[0]) + t.m[0, 0]

    assert kernel(X).tolist() == (11 + 20 + np.where(X > 2, 100, 3) + 4 + 3 * X + 1 + 11).tolist()


def test_an_index_known_at_run_time(device: Any) -> None:
    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        s = made(x[i])
        j = vk.i32(i) % 2
        s.m[j, 0] = 9
        for k in range(2):
            s.m[1, k] += 100
        t = (x[i], 2.0, 3)
        y[i] = s.m[0, 0] + 2 * s.m[0, 1] + 3 * s.m[1, 0] + 4 * s.m[1, 1] + s.m[j, 1 - j] + t[j]

    j = np.arange(4) % 2
    m = np.empty((4, 2, 2))
    m[:] = [[1, 2], [3, 4]]
    m[np.arange(4), j, 0] = 9
    m[:, 1] += 100
    expected = (m * [[1, 2], [3, 4]]).sum(axis=(1, 2)) + m[np.arange(4), j, 1 - j] + np.where(j == 0, X, 2)
    assert kernel(X).tolist() == expected.tolist()


def test_elements_in_memory(device: Any) -> None:
    def put(p, i, value):
        p[i].m[0, 1] = value
        p[i].inner.w[1] = 3
        element = p[i]
        element.m[1, 1] = 5
        p[i] = element
        p[i] = updated(p[i], 0, value)

    @vk.kernel(over="p")
    def kernel(p: vk.InOut[Outer, "N"], x: vk.In[vk.f32, "N"]):
        i = vk.global_id(0)
        put(p, i, x[i])

    p = np.zeros(4, vk.struct_dtype(Outer))
    kernel(p, X)
    assert p["m"][:, 0, 1].tolist() == p["m"][:, 1, 0].tolist() == X.tolist()
    assert (p["m"][:, 1, 1] == 5).all()
    assert (p["inner"]["w"][:, 1] == 9).all()
    assert (p["v"] == [7, 8]).all()


def rejected(function: Any, *texts: str) -> None:
    @vk.kernel(over="y")
    def kernel(y: vk.Out[vk.f32, "N"]):
        y[vk.global_id(0)] = function(made(1.0), vk.global_id(0))

    with pytest.raises(vk.CompileError) as caught:
        vk.check(kernel)
    message = str(caught.value)
    assert all(text in message for text in (*texts, "help: ")), message


def outside(s, i):
    s.m[2, 0] = 2
    return s.a


def whole_row(s, i):
    s.m[0] = 2
    return s.a


def wrong_type(s, i):
    s.inner.w[0] = 2.5
    return s.a


def plain_tuple(s, i):
    t = (1.0, 2.0)
    t[0] = 2
    return t[0]


def test_rejected() -> None:
    rejected(outside, "index 2 is outside the 2 items", "the first is 0, the last 1 or -1")
    rejected(whole_row, "Outer.m is an array of vk.f32 with shape (2, 2)")
    rejected(wrong_type, "the literal 2.5 doesn't fit vk.i32")
    rejected(plain_tuple, "a tuple of 2 can't be stored into", "tuples don't change")
    rejected(lambda s, i: (1.0, s)[i], "an index known at run time takes items of one type")
