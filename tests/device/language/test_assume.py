# mypy: disable-error-code="arg-type, attr-defined, call-arg, no-untyped-call, no-untyped-def, operator, var-annotated"
"""`vk.assume`: how passes use assumptions, and how violated assumptions are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime.device import Device


@vk.kernel(groups=1, local=32)
def scaled(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"], start: vk.i32, count: vk.i32):
    vk.assume(start % 4 == 0)
    vk.assume((count >= 0) & (count <= 128))
    for i in range(vk.local_id(0), count // 4, 32):
        at = start + i * 4
        a, b, c, d = x[at], x[at + 1], x[at + 2], x[at + 3]
        y[at], y[at + 1], y[at + 2], y[at + 3] = 2 * a, 3 * b, 4 * c, 5 * d


@pytest.mark.parametrize("debug", [False, True])
def test_promises_that_hold_change_nothing(debug: bool, device: Device) -> None:
    x = np.arange(200, dtype=np.float32)
    kernel: Any = vk.kernel(groups=1, local=32, debug=debug)(scaled.__wrapped__)
    with vk.use_device(device):
        y = np.zeros_like(x)
        kernel(x, y, 8, 128)
    expected = np.zeros_like(x)
    expected[8:136] = x[8:136] * np.tile([2, 3, 4, 5], 32)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("options", [{"debug": True}, {"sanitize": True}], ids=["debug", "sanitize"])
def test_promises_that_do_not_hold_are_reported(options: dict[str, Any], device: Device) -> None:
    kernel: Any = vk.kernel(groups=1, local=32, **options)(scaled.__wrapped__)
    x = np.zeros(200, np.float32)
    message = r"vk\.assume: start % 4 == 0 doesn't hold, 2 stands on the left and 0 on the right"
    with vk.use_device(device), pytest.raises(vk.AssumptionError, match=message) as caught:
        kernel(x, x.copy(), 6, 4)
    assert caught.value.loc.line == scaled.__wrapped__.__code__.co_firstlineno + 2


def test_the_interpreter_reports_without_debug() -> None:
    x = np.zeros(200, np.float32)
    with vk.use_device("interpreter"), pytest.raises(vk.AssumptionError, match=r"\(count >= 0\) & \(count <= 128\)"):
        scaled(x, x.copy(), 4, 132)


@vk.kernel(groups=1, local=8)
def in_a_branch(x: vk.InOut[vk.i32, "N"], n: vk.i32):
    i = vk.local_id(0)
    if i < n:
        vk.assume(n <= 8)
        x[i] = vk.min(n, 8) + i // 2


def test_promises_end_with_their_branch(device: Device) -> None:
    for n in (0, 3, 8):
        with vk.use_device(device):
            x = np.zeros(8, np.int32)
            in_a_branch(x, n)
        np.testing.assert_array_equal(x, np.where(np.arange(8) < n, n + np.arange(8) // 2, 0))


@vk.func
def halved(n):
    vk.assume(n >= 0)
    return n // 2, n % 2


@vk.kernel(over="y")
def in_a_function(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    half, odd = halved(x[i])
    y[i] = half * 10 + odd


def test_promises_in_functions(device: Device) -> None:
    with vk.use_device(device):
        np.testing.assert_array_equal(in_a_function(np.arange(9, dtype=np.int32)), [0, 1, 10, 11, 20, 21, 30, 31, 40])


@vk.kernel(over="y")
def lanes_and_strides(x: vk.In[vk.i32, "M N"], v: vk.Vec[vk.i32, 2], y: vk.InOut[vk.i32, "L"]):
    vk.assume(v.x <= v.y)
    vk.assume(x.strides[1] <= x.strides[0])
    y[vk.global_id(0)] = vk.min(v.y, v.x) + 10 * vk.i32(vk.min(x.strides[0], x.strides[1]))


def test_lanes_and_strides_are_told_apart(device: Device) -> None:
    y = np.zeros(3, np.int32)
    with vk.use_device(device):
        lanes_and_strides(np.zeros((2, 5), np.int32), (3, 7), y)
    assert y.tolist() == [13, 13, 13]


# -- optimizations based on assumptions
def compiled(kernel: Any, *arguments: Any, **options: Any) -> Any:
    with vk.use_device("llvmpipe"):
        return vk.inspect(kernel, *arguments, **options)


@vk.kernel(groups=lambda c, BM, BN: (vk.cdiv(c.shape[1], BN), vk.cdiv(c.shape[0], BM)), local=32)
def product(
    a: vk.In[vk.f32, "M K"], b: vk.In[vk.f32, "K N"], c: vk.Out[vk.f32, "M N"], WHOLE: vk.Const[bool],
    BM: vk.Const[int] = 16, BN: vk.Const[int] = 16, BK: vk.Const[int] = 8,
):  # fmt: skip
    wg = vk.workgroup()
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    if WHOLE:
        vk.assume(a.shape[1] % BK == 0)
        vk.assume(i + BM <= c.shape[0])
        vk.assume(j + BN <= b.shape[1])
    acc = wg.zeros((BM, BN), vk.f32)
    for k in range(0, a.shape[1], BK):
        acc = wg.mma(a[i : i + BM, k : k + BK], b[k : k + BK, j : j + BN], acc)
    wg.store(c[i : i + BM, j : j + BN], acc)


@pytest.mark.parametrize("whole", [False, True])
def test_whole_tiles_need_no_tests(whole: bool, device: Device) -> None:
    a, b = (
        np.random.default_rng(n).normal(size=shape).astype(np.float32) for n, shape in enumerate(((32, 24), (24, 16)))
    )
    with vk.use_device(device):
        c = product(a, b, WHOLE=whole)
        exact = a.astype(np.float64) @ b
        assert (np.abs(c - exact) <= 25 * 2.0**-23 * (np.abs(a) @ np.abs(b))).all()
        if device.caps.kind == "interpreter":
            return
        text = vk.inspect(product, a, b, np.zeros((32, 16), np.float32), whole).stage("lower_tiles").text
    assert (" if " in text) != whole


def test_what_can_be_known_is_an_error_or_nothing() -> None:
    @vk.kernel(over="y")
    def wrong(y: vk.Out[vk.f32, "N"], SIZE: vk.Const[int]):
        vk.assume(SIZE % 4 == 0)
        y[vk.global_id(0)] = SIZE

    with vk.use_device("interpreter"):
        assert wrong(np.zeros(3, np.float32), 8) is None
        with pytest.raises(
            vk.CompileError, match="the promise SIZE % 4 == 0 doesn't hold: it is false at compile time"
        ):
            wrong(np.zeros(3, np.float32), 6)
