# mypy: disable-error-code="arg-type, attr-defined, call-arg, call-overload, index, misc, no-untyped-call, no-untyped-def"
# mypy: disable-error-code="operator, valid-type"
"""Launches by machine code on the device cpu: what Python would do, also beside signal handlers, threads and observers."""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.runtime.native_launches import KERNELS, Arguments, along, half_made, mixed, scaled, shifted
from tests.device.runtime.test_machine_code_launch import all_tensors, try_call, watched
from tests.threads import run_in_threads
from vkjit.backends.cpu import obstacle
from vkjit.launch import cache

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=f"no native code: {obstacle()}")


@vk.kernel(over="x")
def patient(x: vk.InOut[vk.f32, "N"], steps: vk.i32):
    """A loop that polls the cancellation token."""
    i = vk.global_id(0)
    for _ in range(steps):
        x[i] = x[i] * 0.5 + 1.0


@vk.kernel(over="y")
def picked(x: vk.In[vk.f32, "N"], at: vk.In[vk.i32, "M"], y: vk.Out[vk.f32, "M"]):
    """A kernel that reports an index out of bounds."""
    y[vk.global_id(0)] = x[at[vk.global_id(0)]]


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A CPU device whose kernels are compiled to machine code after their first launches, and count as short."""
    from vkjit.backends.cpu.runtime.device import CpuDevice
    from vkjit.backends.cpu.runtime.launch_code import cpu_code
    from vkjit.backends.cpu.runtime.workers import Pace

    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "1")
    cpu_code.start()
    if not cpu_code.is_ready():
        pytest.skip("no machine code on this interpreter")
    monkeypatch.setattr(cache, "_FIRST_HITS", 1)
    monkeypatch.setattr(cache, "_HITS", 2)
    monkeypatch.setattr(Pace, "learn", lambda pace, groups, nanoseconds: pace.set(1.0))
    for kernel in (*KERNELS, mixed, patient, picked):
        kernel._forget()
    opened = CpuDevice(0, threads=2)
    with vk.use_device(opened):
        yield opened
    opened.close()


def warmed(kernel: Any, *args: Any) -> Any:
    """Launch until machine code does it, and return that."""
    for _ in range(8):
        kernel(*args)
    call = kernel._forms[len(args)].call
    assert call is not None and call(*args)
    return call


@pytest.mark.parametrize("unset", ["all", "_array", "_version", "meta", "buffer", "descriptor"])
def test_half_made_tensors_and_arrays_are_left_to_python(processor: Any, unset: str) -> None:
    """`__new__` without `__init__`, or `del`, leaves slots that are null pointers."""
    x, y = vk.ones(1000), vk.zeros(1000)
    call = warmed(along, x, x, y)
    broken = half_made(x, unset)
    assert not call(broken, x, y)
    with pytest.raises((vk.ArgumentError, AttributeError)):
        along(broken, x, y)
    along(x, x, y)
    assert y.numpy().tolist() == [-1.0] * 1000


@pytest.mark.parametrize("seed", range(3))
def test_the_same_results_as_in_python(processor: Any, seed: int) -> None:
    args, chance = Arguments(processor), random.Random(seed)
    calls = [args.call(chance) for _ in range(400)]
    for kernel, given in calls * 2:
        with watched(kernel, len(given), False):
            try_call(kernel, given)
    tensors = all_tensors(args)
    arrays = [getattr(t, "__vkjit_array__", t) for t in tensors]
    buffers = list({id(a.buffer): a.buffer for a in arrays}.values())
    contents, versions, errors, launched = [], [], [], 0
    for by_machine in (True, False):
        for number, buffer in enumerate(buffers):
            processor.host_view(buffer).view(np.int32)[:] = np.arange(buffer.nbytes // 4) % 97 + number
        before = [getattr(t, "version", 0) for t in tensors]
        found = []
        for kernel, given in calls:
            with watched(kernel, len(given), by_machine) as by_machine_code:
                found.append(try_call(kernel, given))
            launched += sum(by_machine_code)
        errors.append(found)
        contents.append([processor.host_view(buffer).copy() for buffer in buffers])
        versions.append([getattr(t, "version", 0) - b for t, b in zip(tensors, before, strict=True)])
    assert errors[0] == errors[1] and versions[0] == versions[1]
    for one, other in zip(*contents, strict=True):
        np.testing.assert_array_equal(one, other)
    assert launched > len(calls) // 3, f"only {launched} of {len(calls)} by machine code"


def test_operations_give_the_same_with_and_without(processor: Any) -> None:
    from vkjit.tensor.op_cache.replay import FastLaunch, Replay

    a, b = vk.tensor(np.random.default_rng(0).random((4, 16), np.float32)), vk.ones((16, 16))
    for function in (
        lambda: a + 1.5,
        lambda: vk.nn.functional.softmax(a, -1),
        lambda: a @ b,
        lambda: vk.cat([a, a], 1),
    ):
        with vk.no_grad():
            first = function().numpy()
            for _ in range(10):
                np.testing.assert_array_equal(function().numpy(), first)
    replays = [entry for entry in processor.dispatch_cache.values() if isinstance(entry, Replay)]
    launches = [s.step for entry in replays for s in entry.steps if isinstance(s.step, FastLaunch)]
    assert len(launches) >= 4 and all(launch.call for launch in launches)


def test_reports_surface_and_the_next_launch_is_clean(processor: Any) -> None:
    x, y = vk.ones(8), vk.zeros(4)
    right, wrong = (vk.tensor(np.array(at, np.int32)) for at in ([0, 1, 2, 7], [0, 1, 2, 8]))
    call = warmed(picked, x, right, y)
    for _ in range(3):
        assert call(x, wrong, y)
        with pytest.raises(vk.KernelError, match="index 8"):
            processor.synchronize()
        assert call(x, right, y)
        processor.synchronize()


def test_launches_that_are_not_short_are_left_to_python(processor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, long = vk.zeros(64), vk.zeros(1 << 16)
    call = warmed(shifted, x)
    kernel = shifted._forms[1]._plans[0].kept[0].kernel
    kernel.pace.set(5_000.0)  # two workgroups are short
    assert call(x) and not call(long)
    kernel.pace.set(0.0)
    assert not call(x)
    np.testing.assert_array_equal(long.numpy(), np.zeros(1 << 16, np.float32))


def test_a_launch_that_took_long_is_noted(processor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vkjit.backends.cpu.runtime.workers import Pace

    x = vk.zeros(64)
    call = warmed(patient, x, 1)
    noted: list[int] = []
    monkeypatch.setattr(Pace, "learn", lambda _pace, _groups, nanoseconds: noted.append(nanoseconds))
    assert call(x, 2_000_000)
    assert noted and noted[0] > 10_000


def test_observers_copy_streams_and_closing_shut_the_gate(processor: Any) -> None:
    x = vk.zeros(100)
    call = warmed(shifted, x)
    with vk.profile() as profile:
        assert not call(x)
        shifted(x)
    assert any("shifted" in str(row) for row in profile.kernels())
    with vk.capture() as graph:
        assert not call(x)
        shifted(x)
    before = x.numpy()
    graph.replay()
    np.testing.assert_array_equal(x.numpy(), before + 1)
    assert call(x)
    processor.open_stream(copies=True)
    assert not call(x)
    processor.close()
    assert not call(x)


def test_closed_buffers_are_refused(processor: Any) -> None:
    x, y, out = (vk.zeros(16) for _ in range(3))
    call = warmed(along, x, y, out)
    y.__vkjit_array__.buffer.close()
    assert not call(x, y, out)
    with pytest.raises(vk.VkjitError):
        along(x, y, out)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer")
def test_handlers_may_launch_forget_and_raise(processor: Any) -> None:
    """Signal handlers run while a kernel polls: the plan is busy then, and lives until the kernel has run."""
    x, inner, ran = vk.zeros(64), vk.zeros(64), []
    call = warmed(patient, x, 1)
    x.fill_(0.0)
    inner.fill_(0.0)

    def launch(*_: Any) -> None:
        ran.append(call(inner, 3))  # busy
        patient(inner, 3)
        patient._forget()
        gc.collect()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, launch)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert call(x, 200_000_000)
        assert ran == [False]
        np.testing.assert_array_equal(inner.numpy(), np.full(64, 1.75, np.float32))
        np.testing.assert_array_equal(x.numpy(), np.full(64, 2.0, np.float32))
        assert call(inner, 0)  # no longer busy
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            call(x, 2_000_000_000)
        assert call(x, 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_threads_share_a_plan(processor: Any) -> None:
    a, b = vk.full(64, 3.0), vk.full(64, 1.0)
    warmed(along, a, b, vk.zeros(64))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    wrong: list[Any] = []

    def launch(number: int) -> None:
        with vk.use_device(processor):
            mine, out = vk.full(64, float(number)), vk.zeros(64)
            for _ in range(500):
                along(mine, b, out)
                if out.numpy()[-1] != number - 2:
                    wrong.append((number, out.numpy()))

    try:
        run_in_threads(launch, 4)
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_nothing_is_kept_alive_or_let_go(processor: Any) -> None:
    x, y, out = (vk.zeros(100) for _ in range(3))
    call = warmed(along, x, y, out)
    plan = along._forms[3]._plans[0]
    objects = [x, x.__vkjit_array__, x.__vkjit_array__.buffer, out.__vkjit_array__.buffer, plan, None, True]
    gc.collect()
    before = [sys.getrefcount(one) for one in objects]
    blocks = sys.getallocatedblocks()
    for _ in range(5000):
        call(x, y, out)
    assert sys.getallocatedblocks() - blocks < 500
    after = [sys.getrefcount(one) for one in objects]
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True)), (before, after)
    gone, memory = weakref.ref(out), weakref.ref(out.__vkjit_array__.buffer)
    del objects, out
    gc.collect()
    assert gone() is None and memory() is None


def test_scalars_are_checked(processor: Any) -> None:
    y = vk.zeros(50)
    call = warmed(scaled, y, 1.0, 1, False, 0.0)
    for unfit in ((1e39, 0, False, 0.0), (1.0, 2**31, False, 0.0), (1.0, 0, 1, 0.0)):
        assert not call(y, *unfit)
        with pytest.raises(vk.DTypeError):
            scaled(y, *unfit)
    np.testing.assert_array_equal(call(y, 0.0, 2, True, 1.0) and y.numpy(), np.full(50, -1.0, np.float32))


def test_another_threads_first_launch_finds_no_token(processor: Any) -> None:
    """A thread without a cancellation token launches in Python first."""
    x, said = vk.zeros(16), []
    call = warmed(shifted, x)

    def launch() -> None:
        with vk.use_device(processor):
            said.append(call(x))
            shifted(x)
            said.append(call(x))

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert said == [False, True]
