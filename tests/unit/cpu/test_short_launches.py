"""Tests of short launches on the CPU device: they keep the interpreter's lock, and one that seems long costs little."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vkjit as vk

pytest.importorskip("llvmlite", reason="the CPU device needs llvmlite")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="the crew needs POSIX threads and signals")

from vkjit.backends.cpu.runtime import short_launch, thread_pool, workers  # noqa: E402  after the skip
from vkjit.backends.cpu.runtime.device import CpuDevice  # noqa: E402
from vkjit.backends.cpu.runtime.launch_code import cpu_code  # noqa: E402


@vk.kernel(over="y")
def increase(y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = y[i] + 1


@pytest.fixture
def processor() -> Iterator[CpuDevice]:
    opened = CpuDevice(0, threads=3)
    with vk.use_device(opened):
        yield opened
    opened.close()


# -- the interpreter's lock


def _kernel_launch(device: CpuDevice) -> Callable[[], Any]:
    y = vk.from_numpy(np.zeros(64, np.float32))
    return lambda: increase(y)


def _operation(device: CpuDevice) -> Callable[[], Any]:
    x, y = (vk.tensor(np.ones(16, np.float32), device=device) for _ in range(2))
    return lambda: x + y


def _checked_operation(device: CpuDevice) -> Callable[[], Any]:
    """An operation whose kernel has a report buffer."""
    x, at = vk.tensor(np.ones((8, 4), np.float32), device=device), vk.tensor(np.zeros(4, np.int64), device=device)
    return lambda: x.index_select(0, at)


@contextlib.contextmanager
def switch_interval(seconds: float) -> Iterator[None]:
    """Set the time for which a thread that runs Python keeps the lock though others wait for it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("in_python", [False, True])
@pytest.mark.parametrize("make", [_kernel_launch, _operation, _checked_operation])
def test_short_launches_keep_the_lock(
    make: Callable[[CpuDevice], Callable[[], Any]],
    in_python: bool,
    processor: CpuDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Launches known to be short must not let other threads run in between: that costs more than the launch."""

    def learn_one(pace: workers.Pace, _groups: int, _nanoseconds: int) -> None:
        pace.set(1.0)  # however long the system interrupts a launch

    monkeypatch.setattr(workers.Pace, "learn", learn_one)
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "0")  # else a thread may start to compile
    if in_python:
        monkeypatch.setattr(cpu_code, "call", cpu_code._call_in_python)
    launch = make(processor)
    for _ in range(20):
        launch()
    begin, ran = threading.Event(), []

    def note() -> None:
        begin.wait()
        ran.append(True)

    thread = threading.Thread(target=note)
    thread.start()
    with switch_interval(20):
        begin.set()  # the other thread waits for the lock from now on
        for _ in range(3000):
            launch()
        seen = list(ran)
    thread.join()
    assert not seen


def test_waiting_for_the_lock_is_not_the_time_of_a_kernel(
    processor: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise kernels would seem long beside a busy thread, and each launch would release the lock and wait for it."""
    learnt: list[int] = []
    learn, launching = workers.Pace.learn, threading.current_thread()

    def note(pace: workers.Pace, groups: int, nanoseconds: int) -> None:
        if threading.current_thread() is launching:
            learnt.append(nanoseconds)
        else:  # the thread that compiles machine code, and tests it
            learn(pace, groups, nanoseconds)

    monkeypatch.setattr(workers.Pace, "learn", note)
    launch, stopped = _kernel_launch(processor), False

    def run_python() -> None:
        while not stopped:
            pass

    thread = threading.Thread(target=run_python)
    thread.start()
    try:
        with switch_interval(0.05):
            for _ in range(40):
                launch()
    finally:
        stopped = True
        thread.join()
    assert len(learnt) == 40 and max(learnt) < 20e6


# -- launches that seem long once


def test_an_interrupted_short_launch_is_measured_again_before_it_is_shared() -> None:
    kernel: Any = SimpleNamespace(pace=workers.Pace(100.0))
    kernel.pace.learn_short(10, 50_000_000)
    assert short_launch.is_short(10, kernel)
    kernel.pace.learn_short(10, 50_000_000)
    assert not short_launch.is_short(10, kernel)
    assert 10 * kernel.pace.per_group < workers._THREAD_POOL_THRESHOLD


def test_the_thread_pool_is_compiled_for_more_than_a_few_launches(
    processor: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    make, kept = thread_pool._make, thread_pool._programs

    def noted() -> Any:
        made.append(make())
        kept.append(made[-1])  # helper threads may be inside of it for as long as the process lives
        return made[-1]

    def learn_long(pace: workers.Pace, _groups: int, _nanoseconds: int) -> None:
        pace.set(25_000.0)

    monkeypatch.setattr(thread_pool, "_programs", [])
    monkeypatch.setattr(thread_pool, "_make", noted)
    monkeypatch.setattr(workers.Pace, "learn", learn_long)
    y = vk.from_numpy(np.zeros(2048, np.float32))
    for _ in range(5):
        increase(y)
    assert not made
    for _ in range(60):
        increase(y)
    assert len(made) == 1
    assert (y.numpy() == 65).all()


# -- prints


def test_short_launches_print_all(processor: CpuDevice, capfd: pytest.CaptureFixture[str]) -> None:
    @vk.kernel(over="y")
    def show(y: vk.InOut[vk.f32, "N"], number: vk.i32):
        y[vk.global_id(0)] = 1.0
        print("number", number)

    y = vk.zeros(1)
    for number in range(30):
        show(y, number)
    processor.synchronize()
    assert [line for line in capfd.readouterr().out.splitlines() if line] == [f"number {n}" for n in range(30)]
