"""Tests of interruptions and concurrent events; for more: `python -m tests.faults.interruptions`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.faults.stress import environment
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.memory.free_list import RangeAllocator
from vkjit.runtime.capture import is_capturing
from vkjit.runtime.handles import new_lock


@vk.kernel(over="y")
def add(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]) -> None:
    y[vk.global_id(0)] = y[vk.global_id(0)] + x[vk.global_id(0)]


@pytest.fixture
def here(device: Any) -> Iterator[Any]:
    """The device, set as this thread's default."""
    with vk.use_device(device):
        yield device


def test_ctrl_c_at_any_moment(device: Any) -> None:
    if device.caps.kind == "interpreter":
        pytest.skip("one step of it takes too many moments")
    command = [sys.executable, "-m", "tests.faults.interruptions", "--device", device.name, "--step", "101"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]


def test_ctrl_c_leaves_no_mode_on(device: Any) -> None:
    command = [sys.executable, "-m", "tests.faults.interrupted_modes", "--device", device.name]
    chosen = ["--count", "0", "--step", "1", "no_grad", "decorated", "streams", "captures"]
    if device.caps.kind == "interpreter":
        chosen = chosen[:-1]  # one step of it takes too many moments
    for options in (["--count", "200"], chosen):
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]


@pytest.mark.usefixtures("here")
def test_blocks_that_are_left_in_another_order() -> None:
    def recording() -> Generator[None, None, None]:
        with vk.no_grad():
            yield

    first, second = recording(), recording()
    next(first)
    with vk.autocast(vk.bf16):
        next(second)
        first.close()
        assert not vk.is_grad_enabled()
        second.close()
        assert vk.is_grad_enabled()
        assert (vk.ones(2, 2) @ vk.ones(2, 2)).dtype is vk.bf16
    assert (vk.ones(2, 2) @ vk.ones(2, 2)).dtype is vk.f32


@pytest.mark.usefixtures("here")
def test_blocks_in_exit_stacks_and_as_decorators() -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(vk.no_grad())
        stream = stack.enter_context(vk.Stream())
        assert vk.current_stream() == stream
        assert not vk.is_grad_enabled()
    assert vk.is_grad_enabled()
    assert vk.current_stream() != stream
    with pytest.raises(vk.ArgumentError, match="isn't open here"):
        vk.no_grad().__exit__(None, None, None)
    assert not vk.profile()(vk.no_grad()(vk.is_grad_enabled))()


def test_a_capture_inside_an_exception_handler(here: Any) -> None:
    y = vk.zeros(4)
    try:
        raise ValueError
    except ValueError:
        with vk.capture() as graph:
            y += 1
        with pytest.raises(KeyError), vk.capture() as failed:
            raise KeyError from None
    graph.replay()
    assert not is_capturing(here)
    np.testing.assert_array_equal(y.numpy(), np.ones(4))
    with pytest.raises(vk.DeviceError, match="ended by an exception"):
        failed.replay()


@pytest.mark.parametrize("step", ["_insert", "_take"])
def test_an_interrupted_allocator_is_whole(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = RangeAllocator()
    ranges.add_arena(1, 4096)
    kept = [ranges.allocate(500) for _ in range(4)]
    usual = getattr(ranges, step)

    def interrupted(*args: Any) -> None:
        usual(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ranges, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            ranges.allocate(300)
        with pytest.raises(KeyboardInterrupt):
            ranges.release(1, 1536, 500)
    kept.remove((1, 1536))
    assert ranges.free_ranges() == [(1, 1536, 2560)]
    for place in kept:
        assert place is not None
        ranges.release(*place, 500)
    assert ranges.is_empty(1)


@pytest.mark.parametrize("call", ["vkEndCommandBuffer", "vkQueueSubmit"])
def test_an_interrupted_submission_is_sent(here: Any, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(here, VulkanDevice):
        pytest.skip("it submits nothing")
    x, y = vk.ones(100), vk.zeros(100)
    add(x, y)
    vk.synchronize()
    add(x, y)
    functions = here._queue.functions
    usual, calls = getattr(functions, call), []

    def interrupted(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return usual(*args)

    with monkeypatch.context() as patch:
        patch.setattr(functions, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            vk.synchronize()
    assert len(calls) == 2
    np.testing.assert_array_equal(y.numpy(), np.full(100, 2))


HANDLER = """
import gc, signal, time, vkjit as vk

@vk.kernel(over="y")
def add(y: vk.InOut[vk.f32, "N"], a: vk.f32):
    y[vk.global_id(0)] = y[vk.global_id(0)] + a

device = vk.device({name!r})
vk.set_default_device(device)
y, other, counts = vk.zeros(50), vk.zeros(50), [0, 0]
stream = vk.Stream(device)
for _ in range(30):
    add(y, 0.0)
    add(other, 0.0)

def launch(*_):
    try:
        {what}
        counts[0] += 1
    except vk.DeviceError as error:
        assert "handler of a signal" in str(error), error
        counts[1] += 1

signal.signal(signal.SIGALRM, launch)
signal.setitimer(signal.ITIMER_REAL, 4e-4, 4e-4)
made, end = 0, time.monotonic() + 1.5
while time.monotonic() < end:
    for _ in range(20):
        add(y, 1.0)
        made += 1
    assert vk.full((100 + made % 7,), 2.0)[3:5].tolist() == [2, 2]
signal.setitimer(signal.ITIMER_REAL, 0)
same = {same}
assert y.tolist() == [made + same * counts[0]] * 50, (made, counts, y[0])
assert same or other.tolist() == [counts[0]] * 50, (counts, other[0])
"""


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGALRM")
@pytest.mark.parametrize("machine_code", ["0", "1"])
@pytest.mark.parametrize("what", ["add(other, 1.0)", "add(y, 1.0)"])
def test_launches_of_signal_handlers_run_or_are_refused(
    device: Any, what: str, machine_code: str, tmp_path: Path
) -> None:
    if device.caps.kind == "interpreter":
        pytest.skip("a launch takes longer than the signals")
    program = tmp_path / "program.py"  # kernels are read from files
    program.write_text(HANDLER.format(name=device.name, what=what, same=int("y" in what)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], env={**environment(), "VKJIT_NATIVE_LAUNCH": machine_code}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_arrays_of_another_device_are_an_error(here: Any) -> None:
    other = vk.device("interpreter" if here.caps.kind != "interpreter" else "meta")
    x, y = vk.ones(8), vk.zeros(8)
    for _ in range(3):
        add(x, y)
    with pytest.raises(vk.ArgumentError, match="lies on"):
        add(x, vk.zeros(8, device=other))
    add(x, y)
    np.testing.assert_array_equal(y.numpy(), np.full(8, 4))


def test_streams_and_devices_entered_by_several_threads(here: Any) -> None:
    shared, block = vk.Stream(), vk.use_device(here)
    both, found = threading.Barrier(2, timeout=30), []

    def work(_: int) -> None:
        own = vk.Stream(here)
        with own:
            with shared, block:
                both.wait()
            found.append(vk.current_stream(here) == own)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, range(2)))
        assert threads.submit(vk.current_stream, here).result() == vk.current_stream(here)
    assert found == [True, True]


@pytest.mark.usefixtures("here")
def test_what_is_no_stream_or_event() -> None:
    wrong: Any = "x"
    with pytest.raises(vk.ArgumentError, match=r"takes a vk\.Stream"):
        vk.Event().record(wrong)
    with pytest.raises(vk.ArgumentError, match=r"takes a vk\.Event"):
        vk.Stream().wait_event(wrong)
    with pytest.raises(vk.ArgumentError, match=r"takes a vk\.Stream"):
        vk.Stream().wait_stream(wrong)


def test_a_capture_that_another_thread_ends(here: Any) -> None:
    y = vk.zeros(4)
    capturing = vk.capture()
    capturing.__enter__()
    y += 1
    ending = threading.Thread(target=capturing.__exit__, args=(None, None, None))
    ending.start()
    ending.join()
    assert not is_capturing(here)
    y += 1
    np.testing.assert_array_equal(y.numpy(), np.ones(4))


def test_replays_of_threads_keep_their_own_arguments(here: Any) -> None:
    x, y = vk.ones(50), vk.zeros(50)
    with vk.capture(x=x, y=y) as graph:
        add(x, y)
    pairs = [(vk.full((50,), float(n)), vk.zeros(50)) for n in range(4)]

    def replay(n: int) -> None:
        with vk.use_device(here):
            for _ in range(30):
                graph.replay(x=pairs[n][0], y=pairs[n][1])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(replay, range(4)))
    assert [pair[1].numpy()[0] for pair in pairs] == [0, 30, 60, 90]


@pytest.mark.usefixtures("here")
def test_captured_arrays_without_elements() -> None:
    empty, y = vk.zeros(0), vk.zeros(3)
    with vk.capture(empty=empty, y=y) as graph:
        add(empty, empty)
        y += 1
    graph.replay(empty=vk.zeros(0))
    np.testing.assert_array_equal(y.numpy(), np.ones(3))


@pytest.mark.usefixtures("here")
def test_a_profile_that_is_still_open_tells_the_time_so_far() -> None:
    with vk.profile() as measured:
        assert 0 <= measured.seconds < 60


@pytest.mark.usefixtures("here")
def test_an_export_that_its_receiver_refuses_is_taken_back() -> None:
    from vkjit.tensor import dlpack

    before, shown = len(dlpack._exported), []
    usual, sys.unraisablehook = sys.unraisablehook, lambda report: shown.append(report.exc_value)
    try:
        with pytest.raises((SystemError, RuntimeError, BufferError)):
            np.from_dlpack(vk.ones(3).to(vk.bf16))
    finally:
        sys.unraisablehook = usual
    assert len(dlpack._exported) == before
    assert all("dtype" in str(error) for error in shown)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_finds_locks_of_other_threads_free() -> None:
    lock, taken, done = new_lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait(30)

    holding = threading.Thread(target=hold)
    holding.start()
    taken.wait(30)
    child = os.fork()
    if not child:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    done.set()
    holding.join()
    assert lock.acquire(timeout=5)
    lock.release()
