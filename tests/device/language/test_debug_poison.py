"""Debug launches fill uninitialized memory: shared memory and allocated Outs start as NaN, on every executor."""

from __future__ import annotations

import contextlib
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="x", debug=True)
def odd_ones(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    if i % 2 == 1:
        y[i] = x[i]


@vk.kernel(groups=2, local=32, debug=True)
def through_shared(x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    s = vk.shared(x.dtype, (5, 20))
    if x[i] > 0:
        s[vk.local_id(0) // 20, vk.local_id(0) % 20] = x[i]
    vk.barrier()
    y[i] = s[vk.local_id(0) // 20, vk.local_id(0) % 20]


@vk.func
def halfway(x: vk.f32):
    s = vk.shared(vk.f32, 128)
    if x > 0:
        s[vk.local_id(1) * 8 + vk.local_id(0)] = x
    vk.barrier()
    return s[vk.local_id(1) * 8 + vk.local_id(0)] + s[127]


@vk.kernel(groups=1, local=(8, 4), debug=True)
def in_loop(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"], n: vk.i32):
    for _ in range(n):
        y[vk.local_id(1), vk.local_id(0)] = halfway(x[vk.local_id(1), vk.local_id(0)])


@vk.kernel(groups=1, local=64, debug=True)
def sums(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], n: vk.i32):
    wg, i = vk.workgroup(), vk.local_id(0)
    s = vk.shared(vk.f32, 64)
    for _ in range(n):
        s[i] = x[i]
        vk.barrier()
        y[i] = wg.sum(s[63 - i])
        vk.barrier()


FLOATS = [np.float32, np.float16, np.float64]


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.uint8])
@pytest.mark.parametrize("tensors", [False, True])
def test_an_element_of_an_out_that_nobody_writes(device: Any, dtype: type, tensors: bool) -> None:
    if vk.dtypes.from_numpy(dtype).name not in device.caps.dtypes:
        pytest.skip(f"{device.name} has no arithmetic for {dtype.__name__}")
    x: Any = np.arange(1, 6, dtype=dtype)
    for _ in range(3):  # the later launches use the cached dispatch
        y = odd_ones(vk.tensor(x, device=device)).numpy() if tensors else odd_ones(x)
        np.testing.assert_array_equal(y[1::2], x[1::2])
        expected = np.full(3, np.nan) if dtype in FLOATS else np.full(12, 255, np.uint8).view(dtype)[:3]
        np.testing.assert_array_equal(y[::2], expected)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int8])
def test_an_element_of_shared_memory_that_nobody_writes(device: Any, dtype: type) -> None:
    if vk.dtypes.from_numpy(dtype).name not in device.caps.dtypes:
        pytest.skip(f"{device.name} has no arithmetic for {dtype.__name__}")
    x: Any = np.arange(64).astype(dtype)
    y: Any = np.zeros(64, dtype)
    x[::3] = 0
    through_shared(x, y)
    unset = np.nan if dtype in FLOATS else np.frombuffer(b"\xaa" * 4, dtype)[0]
    np.testing.assert_array_equal(y, np.where(x > 0, x, np.asarray(unset).astype(dtype)))


def test_shared_memory_of_a_device_function_in_a_loop(device: Any) -> None:
    y = in_loop(np.ones((4, 8), np.float32), n=2)
    assert np.isnan(y).all()


def test_what_is_written_stays(device: Any) -> None:
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(sums(x, n=3), np.full(64, x.sum()))


def test_empty_with_debug_in_the_environment(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_DEBUG", "1")
    assert np.isnan(vk.empty(3, 5, device=device).numpy()).all()
    assert vk.empty(0, device=device).numpy().shape == (0,)


@pytest.mark.parametrize("setting", [None, "0", "1"])
def test_bounds_checks_follow_the_environment(
    device: Any, setting: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VKJIT_DEBUG", raising=False)
    if setting is not None:
        monkeypatch.setenv("VKJIT_DEBUG", setting)

    @vk.kernel(over="y")  # a new one, since kernels keep the code of calls that they have seen
    def next_one(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]) -> None:
        i = vk.global_id(0)
        y[i] = x[i + 1]

    whole, y = vk.arange(5, dtype=vk.f32, device=device), vk.zeros(4, device=device)
    kind = device.caps.kind
    checked = setting == "1" or (setting is None and kind in ("cpu", "llvm-cpu")) or kind == "interpreter"
    with pytest.raises(vk.BoundsError) if checked else contextlib.nullcontext():
        next_one(whole[:4], y)  # what it reads out of bounds is in the same memory
        device.synchronize()
    assert checked or y.tolist() == [1, 2, 3, 4]
