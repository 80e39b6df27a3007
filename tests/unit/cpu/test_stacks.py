"""Tests of the CPU device: kernels with large arrays in threads with small stacks, and Ctrl-C in any loop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import vkjit as vk
from tests.threads import run_in_threads

pytest.importorskip("llvmlite", reason="the CPU device needs llvmlite")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stacks' sizes are those of POSIX threads")

from vkjit.backends.cpu.runtime import llvm, stacks  # noqa: E402  after the skip
from vkjit.backends.cpu.runtime.device import CpuDevice  # noqa: E402
from vkjit.backends.cpu.runtime.stacks import stack_of_thread  # noqa: E402

_DEEP = 30_000


@vk.kernel(over="y")
def deep(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    memory = vk.local(vk.f32, _DEEP)
    for k in range(rounds):
        memory[(k * 7919 + i) % _DEEP] = x[i] + vk.f32(k)
    assert x[i] < 100.0, "too much"
    y[i] = memory[i % _DEEP]


@vk.kernel(over="y")
def many_carried(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    a, b, c, d, e, f, g, h, k, m = (x[i], x[i], x[i], x[i], x[i], x[i], x[i], x[i], x[i], x[i])
    for _ in range(rounds):
        for _ in range(3):
            a = b * 0.5 + a
            b = c * 0.5 - b
            c = d * 0.5 + c
            d = e * 0.5 - d
            e = f * 0.5 + e
            f = g * 0.5 - f
            g = h * 0.5 + g
            h = k * 0.5 - h
            k = m * 0.5 + k
            m = a * 0.5 - m
    y[i] = a + b + c + d + e + f + g + h + k + m


@vk.kernel(over="y")
def many_carried_flat(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    a, b, c, d, e, f, g, h, k, m = (x[i], x[i], x[i], x[i], x[i], x[i], x[i], x[i], x[i], x[i])
    for _ in range(rounds):
        a = b * 0.5 + a
        b = c * 0.5 - b
        c = d * 0.5 + c
        d = e * 0.5 - d
        e = f * 0.5 + e
        f = g * 0.5 - f
        g = h * 0.5 + g
        h = k * 0.5 - h
        k = m * 0.5 + k
        m = a * 0.5 - m
    y[i] = a + b + c + d + e + f + g + h + k + m


@pytest.fixture
def processor() -> Iterator[CpuDevice]:
    opened = CpuDevice(0, threads=3)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    try:
        with vk.use_device(opened):
            yield opened
    finally:
        signal.signal(signal.SIGINT, before)
        opened.close()


@pytest.mark.parametrize("stack", [64 << 10, 256 << 10, 1 << 20])
def test_kernels_with_large_arrays_run_in_threads_with_small_stacks(processor: CpuDevice, stack: int) -> None:
    found = []

    def launch() -> None:
        with vk.use_device(processor):
            x, y = vk.ones(64), vk.zeros(64)
            for _ in range(3):
                deep(x, y, 1)
            found.append(y.tolist() == [1.0] * 64)
            with vk.capture(x=x) as graph:
                deep(x, y, 1)
            graph.replay(x=x * 2)
            found.append(y.tolist() == [2.0] * 64)
            deep(x * 200, y, 1)
            with pytest.raises(vk.KernelError, match="too much"):
                vk.synchronize()

    deep(vk.ones(64), vk.zeros(64), 1)  # the main thread learns how fast it is
    usual = threading.stack_size(stack)
    try:
        run_in_threads(lambda _: launch(), 2)
        assert threading.stack_size() == stack  # the helpers' own size is no setting of the process
    finally:
        threading.stack_size(usual)
    assert found == [True] * 4


def test_llvm_runs_on_a_large_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []

    def compiled(text: str, _: int) -> bytes:
        found.append(stack_of_thread())
        if not text:
            raise vk.ArgumentError("no text")
        return b""

    def work() -> None:
        assert stack_of_thread() < 1 << 20
        llvm.compile_text("x")
        with pytest.raises(vk.ArgumentError, match="no text"):
            llvm.compile_text("")

    monkeypatch.setattr(llvm, "_compiled", compiled)
    usual = threading.stack_size(64 << 10)
    try:
        run_in_threads(lambda _: work(), 1)
    finally:
        threading.stack_size(usual)
    assert len(found) == 2 and min(found) >= 8 << 20


def test_ctrl_c_ends_a_kernel_with_large_arrays(processor: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    y = vk.zeros(8)
    monkeypatch.setattr(stacks._of_thread, "stack_bytes", 1000, raising=False)
    deep(vk.ones(8), y, 10)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        deep(vk.ones(8), y, 2_000_000_000)
    timer.join()
    deep(vk.ones(8), y, 1)
    assert y.tolist() == [1.0] * 8


@pytest.mark.parametrize("kernel", [many_carried, many_carried_flat])
def test_ctrl_c_is_seen_in_loops_that_carry_many_vectors(processor: CpuDevice, kernel: Any) -> None:
    x, y = vk.ones(16), vk.zeros(16)
    kernel(x, y, 3)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        kernel(x, y, 2**31 - 1)
    assert time.monotonic() - begun < 2
    timer.join()
