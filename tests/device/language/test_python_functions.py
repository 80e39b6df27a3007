# mypy: disable-error-code="arg-type, assignment, var-annotated, attr-defined, call-arg"
# mypy: disable-error-code="misc, no-any-return, no-untyped-call, no-untyped-def, operator"
"""Functions in kernels behave as in Python: lambdas, nested and plain functions, functions as values, recursion, arguments."""

from __future__ import annotations

import functools
import math
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from tests.device.language.rejections import rejected

T = TypeVar("T", bound=vk.Element)
SCALE = 2.0


def doubled(v, by=SCALE):
    return v * by


def plain(v: float, shift: int = 1, *, sign: float = 1.0) -> float:
    return sign * doubled(v) + shift


square = lambda v: v * v
tripled = functools.partial(doubled, by=3)


def apply(function, *args, **options):
    return function(*args, **options)


def composed(f, g):
    return lambda v: f(g(v))


def adder(n):
    def add(v):
        return v + n

    return add


def identity(f):
    return f


def power(v, n):
    return v * power(v, n - 1) if n > 0 else 1.0


def total(items):
    if not items:
        return 0
    return items[0] + total(items[1:])


def even(n, v):
    return odd(n - 1, v) if n > 0 else v


def odd(n, v):
    return even(n - 1, v) if n > 0 else -v


def variadic(first, /, *rest, scale=1, **named):
    result = first * scale
    for item in rest:
        result += item
    for name in named:
        result += named[name]
    return result + len(rest) + len(named) + named.get("missing", 5)


def lambdas(v, i):
    f = lambda a, b=2: a * b
    return f(v) + f(1, b=3) + (lambda q: q + 1)(v) + square(v)


def late_binding(v, i):
    n = 1
    f = lambda a: a * n + v
    n = 3
    v = v + 1
    return f(v)


def default_binding(v, i):
    fs = ()
    for j in (0, 1, 2):
        fs = (*fs, lambda q, j=j: q * j, lambda q: q * j)  # noqa: B023
    result = 0.0
    for f in fs:
        result += f(v)
    return result


def carried(v, i):
    acc = 0.0
    add = lambda q: acc + q
    for _ in range(4):
        acc = add(v)
    while acc < 10:
        acc = add(3.0)
    return acc


def branches(v, i):
    def clipped(a, *, low=0.0):
        if a < low:
            return low
        for k in range(3):
            if a > k + 1:
                a -= 0.5
            else:
                break
        return a

    if v > 1:
        w = 2.0
        f = lambda q: q * w
        return f(clipped(v))
    return clipped(v, low=-1.0)


def nested_twice(v, i):
    k = 2.0

    def outer(a):
        m = a + k

        def inner(b):
            return b * m + v

        return inner(1.0) + apply(inner, a)

    return outer(3.0)


def nested_recursion(v, i):
    def p(n):
        return v * p(n - 1) if n > 0 else 1.0

    return p(3)


def shadowing(v, i):
    def g(a):
        SCALE = 10.0
        v = a + SCALE
        return v

    return g(v) * SCALE + v


def plain_functions(v, i):
    return plain(v) + plain(v, 3, sign=-1.0) + tripled(v) + tripled(v=2.0)


def higher_order(v, i):
    h = composed(lambda a: a + v, doubled)
    return (
        h(v) + apply(plain, v, 2) + apply(plain, v, sign=2) + apply(lambda q: q * v, 2.0) + apply(math.floor, v)
        + apply(max, v, 1.0) + adder(v)(1.0) + adder(adder(1.0)(2.0))(v) + composed(abs, adder(1))(v)
    )  # fmt: skip


def returned_and_changed(v, i):
    n = v
    f = identity(lambda q: q * n)
    n = n + 1
    return f(2.0)


def partials(v, i):
    f = functools.partial(doubled, v)
    g = functools.partial(lambda a, b, c: a - b * c, b=2.0)
    return f() + f(by=5) + apply(f, 4) + g(v, c=1.0) + functools.partial(g, 1.0)(c=v)


def recursion(v, i):
    return power(v, 5) + total((v, 1, 2.5)) + even(4, v) + even(3, v)


FUNCTIONS = [
    lambdas, late_binding, default_binding, carried, branches, nested_twice, nested_recursion, shadowing,
    plain_functions, higher_order, returned_and_changed, partials, recursion,
]  # fmt: skip


def check(function: Any) -> None:
    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = function(x[i], i)

    x = np.array([-2.5, -1.0, 0.0, 0.75, 1.5, 3.0], np.float32)
    expected = [float(function(float(v), i)) for i, v in enumerate(x)]
    np.testing.assert_allclose(kernel(x), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_python_gives(device: Any, function: Any) -> None:
    check(function)


def test_arguments_as_in_python(device: Any) -> None:
    def function(v, i):
        t = (v, 2.0)
        return (
            variadic(v) + variadic(v, 1, 2, scale=3) + variadic(*t, *t, extra=v) + variadic(*t, **{"scale": 4, "more": 1})
            + variadic(1.0, **{**{"a": v}, "b": 2})
        )  # fmt: skip

    check(function)


def test_a_nested_function_stores_to_arrays_around_it(device: Any) -> None:
    @vk.kernel(over="y")
    def kernel(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        held = vk.local(T, 2)

        def at(j: vk.i32, pad: T = 0) -> T:
            return x.get(j, pad=pad)

        def keep(j, v):
            held[j] = v

        keep(0, at(vk.i32(i) + 1))
        keep(1, at(vk.i32(i) - 1, pad=5))
        y[i] = held[0] + held[1]

    for dtype in (np.float32, np.int32):
        assert kernel(np.array([1, 2, 3], dtype)).tolist() == [7, 4, 2]


def test_slices_and_tiles_that_nested_functions_read(device: Any) -> None:
    @vk.kernel(groups=lambda x: x.shape[0], local=32)
    def rows(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"]):
        wg, r = vk.workgroup(), vk.group_id(0)
        row = x[r, :]
        most = wg.max(row)
        scaled = lambda a: a * row
        wg.store(y[r, :], scaled(row) + scaled(2) + (lambda a: a - most)(row))

    @vk.kernel(groups=1, local=64)
    def tiles(a: vk.In[vk.f32, "M K"], y: vk.Out[vk.f32, "M K"]):
        wg = vk.workgroup()
        t = wg.load(a[0:16, 0:16])
        f = lambda u, s=2: u * t + s
        wg.store(y[0:16, 0:16], (lambda v: vk.max(v, 0.5))(f(t)) + f(1.0))

    x = np.random.default_rng(1).random((3, 40), np.float32)
    np.testing.assert_allclose(rows(x), x * x + 3 * x - x.max(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)
    a = np.random.default_rng(2).random((16, 16), np.float32)
    np.testing.assert_allclose(tiles(a), np.maximum(a * a + 2, 0.5) + a + 2, rtol=1e-5)


def test_lambdas_as_constants(device: Any) -> None:
    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], f: vk.Const[Any] = lambda a: a + 1):
        i = vk.global_id(0)
        y[i] = f(x[i])

    x = np.ones(1, np.float32)
    pair = (lambda a: a * 5, lambda a: a * 6)
    assert kernel(x)[0] == 2
    assert kernel(x, f=lambda a: a * SCALE)[0] == 2
    assert kernel(x, f=functools.partial(doubled, by=7))[0] == 7
    assert [kernel(x, f=f)[0] for f in pair] == [5, 6]


def test_what_a_plain_function_reads_is_watched(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def local(v, i):
        return doubled(v) * SCALE if i > 0 else plain(v) * SCALE

    check(local)
    monkeypatch.setattr(f"{__name__}.SCALE", 4.0)
    check(local)
    monkeypatch.setattr(f"{__name__}.doubled", lambda v: -v)
    check(local)


def chosen(v, i):
    return (square if v > 0 else doubled)(v)


def chosen_by_if(v, i):
    if v > 0:
        f = lambda a: a
    else:
        f = lambda a: -a
    return f(v)


def mutual(v, i):
    def a(n):
        return b(n - 1) if n > 0 else v

    def b(n):
        return a(n - 1) if n > 0 else -v

    return a(3)


def forever(v, n):
    return forever(v, n + 1)


def rebound(v, i):
    t = 0.0

    def f():
        nonlocal t
        t += v

    f()
    return t


def lanes_changed(v, i):
    w = vk.vec(vk.f32, 2)(v, v)

    def f():
        w.x = 1

    f()
    return w.x


def given_twice(v, i):
    return doubled(v, **{"by": 1}, by=2)  # noqa: PLE1132


def given_a_tuple_of_names(v, i):
    return doubled(v, **(1, 2))


def decorated(v, i):
    @functools.lru_cache
    def f(a):
        return a

    return f(v)


def of_the_library(v, i):
    return functools.reduce(doubled, (v, v))


def test_rejected_functions() -> None:
    rejected(chosen, "the two values don't agree", "functions can't be chosen at run time")
    rejected(chosen_by_if, "f has values of two kinds here", "functions can't be chosen at run time")
    rejected(mutual, "b and a call each other")
    rejected(lambda v, i: forever(v, 0), "forever calls itself 40 levels deep")
    rejected(rebound, "nonlocal can't be used in a kernel")
    rejected(lanes_changed, "w belongs to the function around this one")
    rejected(given_twice, "by is given twice")
    rejected(given_a_tuple_of_names, "** takes a dictionary of constants, found a tuple of 2")
    rejected(decorated, "a nested function can't be decorated by functools.lru_cache")
    rejected(of_the_library, "functools.reduce has no meaning in a kernel")


def test_a_slice_isn_t_taken_along() -> None:
    @vk.kernel(groups=lambda x: x.shape[0], local=32)
    def kernel(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"]):
        wg, r = vk.workgroup(), vk.group_id(0)
        row = x[r, :]
        wg.store(y[r, :], apply(lambda a: a * row, row))

    with pytest.raises(vk.CompileError, match="reads a slice of the function around it"):
        vk.check(kernel)
