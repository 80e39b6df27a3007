# mypy: disable-error-code="arg-type, attr-defined, call-arg, call-overload, index, misc, no-untyped-call, no-untyped-def"
# mypy: disable-error-code="operator, valid-type"
"""Launches through native code compared with launches in Python: same commands, same tracked uses, same results."""

from __future__ import annotations

import ctypes
import gc
import random
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.runtime.native_launches import (
    KERNELS,
    Arguments,
    Driver,
    along,
    counted,
    fixed,
    half_made,
    limited,
    mixed,
    scaled,
    shifted,
)
from tests.threads import run_in_threads
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.fast_path.accelerator import queue_code
from vkjit.launch import cache
from vkjit.runtime import sanitizer_reports
from vkjit.runtime.machine_code import cpython

SHIFT: Any = 1.0


@pytest.fixture
def hardware(device: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[VulkanDevice]:
    """A Vulkan device with native launches enabled."""
    if not isinstance(device, VulkanDevice):
        pytest.skip("machine code launches on Vulkan devices only")
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "1")
    queue_code.start()
    if not queue_code.is_ready():
        pytest.skip("no machine code without llvmlite, or on this interpreter")
    monkeypatch.setattr(cache, "_FIRST_HITS", 1)
    monkeypatch.setattr(cache, "_HITS", 2)
    for kernel in (*KERNELS, mixed):
        kernel._forget()
    device.synchronize()
    yield device
    device.synchronize()


def tracked_state(device: VulkanDevice, tensors: list[Any], epoch: int, serial: int) -> list[Any]:
    """Return the state that launches track for the queue and buffers, relative to `epoch` and `serial`."""
    queue = device._queue
    found: list[Any] = [queue.recorded, queue.transferred, queue.bound, queue.epoch - epoch]
    found += [] if queue.bound is None else [queue.bound.last_use - serial, queue.bound.user]
    for tensor in tensors:
        buffer = tensor.__vkjit_array__.buffer
        found += [max(e - epoch, -1) for e in (buffer.read_epoch, buffer.write_epoch)]
        found += [max(s - serial, -1) for s in (buffer.last_use, buffer.last_write)]
    return found


def try_call(kernel: Any, args: tuple[Any, ...]) -> str:
    try:
        kernel(*args)
    except vk.VkjitError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def all_tensors(args: Arguments) -> list[Any]:
    groups = [*args.lines.values(), *args.tables.values(), args.squares, args.wholes]
    return [t for group in groups for t in group]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_commands_and_notes_as_in_python(hardware: VulkanDevice, seed: int) -> None:
    args, chance = Arguments(hardware), random.Random(seed)
    calls = [args.call(chance) for _ in range(400)]
    for kernel, given in calls * 2:  # compile everything, and make all cached launches
        with watched(kernel, len(given), False):
            try_call(kernel, given)
    hardware.synchronize()
    tensors = all_tensors(args)
    logs, states, versions, errors, launched = [], [], [], [], 0
    for by_machine in (True, False):
        hardware._queue.fill(tensors[0].__vkjit_array__.buffer, 0, 4, 0)
        hardware.synchronize()
        before = [getattr(t, "version", 0) for t in tensors]
        epoch, serial = hardware._queue.epoch, hardware._queue.serial
        log, state, found = [], [], []
        for kernel, given in calls:
            with watched(kernel, len(given), by_machine) as by_machine_code, Driver(hardware) as driver:
                hardware._queue.budget = 10**6
                found.append(try_call(kernel, given))
            launched += sum(by_machine_code)
            log.append(driver.calls)
            state.append(tracked_state(hardware, tensors, epoch, serial))
        logs.append(log)
        states.append(state)
        errors.append(found)
        versions.append([getattr(t, "version", 0) - b for t, b in zip(tensors, before, strict=True)])
    assert errors[0] == errors[1]
    for number, (one, other) in enumerate(zip(*logs, strict=True)):
        assert one == other, (number, calls[number])
    for number, (one, other) in enumerate(zip(*states, strict=True)):
        assert one == other, (number, calls[number])
    assert versions[0] == versions[1]
    assert any(found and found[0] == "barrier" for log in logs for calls_of in log for found in calls_of)
    assert launched > len(calls) // 3, f"only {launched} of {len(calls)} by machine code"


@contextmanager
def watched(kernel: Any, count: int, by_machine: bool) -> Iterator[list[bool]]:
    """Collect the native launcher's answers for calls with `count` arguments; `by_machine=False` disables it."""
    said: list[bool] = []
    form = kernel._forms.get(count)
    usual = None if form is None else form.call

    def call(*args: Any) -> bool:
        assert usual is not None
        said.append(usual(*args))
        return said[-1]

    replaced = call if by_machine else None
    if usual is not None:
        form.call = replaced
    try:
        yield said
    finally:
        if usual is not None and form.call is replaced:  # else there are new plans
            form.call = usual


def test_results_of_long_sequences(hardware: VulkanDevice) -> None:
    """With the real driver functions, every launch sees the results of earlier launches."""
    chance = np.random.default_rng(5)
    arrays = [chance.integers(0, 1009, 200) for _ in range(5)]
    tensors = [vk.tensor(array, device=hardware) for array in arrays]
    said: list[bool] = []
    for step in range(3000):
        a, b, out = (int(i) for i in chance.choice(5, 3, replace=False))
        with watched(mixed, 4, True) as found:
            mixed(tensors[a], tensors[b], step, tensors[out])
        said += found
        arrays[out] = (arrays[a] * 31 + arrays[b] * 17 + step) % 1009
        if step % 7 == 0:
            tensors[out].fill_(1)
            arrays[out] = np.ones(200, np.int64)
        if step % 500 == 499:
            for tensor, array in zip(tensors, arrays, strict=True):
                np.testing.assert_array_equal(tensor.numpy(), array)
    assert sum(said) > 2000


def test_errors_are_those_of_the_long_way_and_launch_nothing(hardware: VulkanDevice) -> None:
    x, total = vk.zeros(64, dtype=vk.i32, device=hardware), vk.zeros(1, dtype=vk.i32, device=hardware)
    y = vk.zeros(50, device=hardware)
    for _ in range(3):
        limited(x, 1, 1, 1)
        scaled(y, 1.0, 1, False, 0.0)
        counted(x, total)
    before = x.numpy(), y.numpy()
    for wrong in ((256, 1, 1), (-1, 1, 1), (1, 2**64, 1), (1, -1, 1), (1, 1, 2**63), (1, 1, 1.5), (1, 1, None)):
        with pytest.raises((vk.DTypeError, vk.ArgumentError)):
            limited(x, *wrong)
    for unfit in ((1e39, 0, False, 0.0), (1.0, 2**31, False, 0.0), (1.0, 0, 1, 0.0)):
        with pytest.raises(vk.DTypeError):
            scaled(y, *unfit)
    longer, square = vk.zeros(51, device=hardware), vk.zeros((5, 5), device=hardware)
    table, out = vk.zeros((4, 5), device=hardware), vk.zeros(50, device=hardware)
    for _ in range(10):
        along(y, y, out)
        fixed(table, square)
    for call in (
        lambda: along(y, y, longer),
        lambda: along(y, longer, out),
        lambda: fixed(square, square),
        lambda: fixed(table, vk.zeros((5, 6), device=hardware)),
    ):
        with pytest.raises(vk.ShapeError):
            call()
        along(y, y, out)  # reopen a submission
        fixed(table, square)
    assert along(y, y).shape == (50,)
    np.testing.assert_array_equal(x.numpy(), before[0])
    np.testing.assert_array_equal(y.numpy(), before[1])


def test_what_is_captured_is_looked_at_each_time(hardware: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    factor: Any = 2.0

    @vk.kernel(over="x")
    def inner(x: vk.InOut[vk.f32, "N"]):
        i = vk.global_id(0)
        x[i] = x[i] + factor + SHIFT

    x, expected, answers = vk.zeros(10, device=hardware), 0.0, list[bool]()
    for _ in range(10):  # the first submissions are short
        shifted(x)
    x.fill_(0.0)
    for shift, own in (
        (1.0, 2.0),
        (1.0, 2.0),
        (5.0, 2.0),
        (5.0, 9.0),
        (1.0, 7.0),
        (1.0, 2.0),
        (5.0, 70.0),
        (500.0, 70.0),
    ):
        monkeypatch.setitem(globals(), "SHIFT", shift)
        factor = own
        for _ in range(4):  # nothing waits, so a submission is open when a captured value changes
            with watched(inner, 1, True) as said:
                inner(x)
            answers += said
            expected += own + shift
    np.testing.assert_array_equal(x.numpy(), np.full(10, expected, np.float32))
    assert sum(answers) > 5 and answers.count(False) > 3
    monkeypatch.delitem(globals(), "SHIFT")
    with pytest.raises(vk.CompileError):
        inner(x)


def test_who_watches_sees_every_launch(hardware: VulkanDevice) -> None:
    x = vk.zeros(100, device=hardware)
    for _ in range(5):
        shifted(x)
    with vk.profile() as profile:
        shifted(x)
    assert any("shifted" in str(row) for row in profile.kernels())
    with vk.capture() as graph:
        shifted(x)
    before = x.numpy()
    graph.replay()
    np.testing.assert_array_equal(x.numpy(), before + SHIFT)
    for _ in range(10):
        shifted(x)  # leaves a submission open
    sanitizer_reports.OPEN_BLOCKS.append(None)  # as an active sanitizer does
    try:
        with watched(shifted, 1, True) as said:
            shifted(x)
    finally:
        sanitizer_reports.OPEN_BLOCKS.pop()
    assert said and not any(said)


def test_another_thread_that_holds_the_lock_is_waited_for(hardware: VulkanDevice) -> None:
    x = vk.zeros(100, device=hardware)
    for _ in range(5):
        shifted(x)
    before, lock, held, go = x.numpy(), hardware._queue.lock, threading.Event(), threading.Event()
    shifted(x)  # opens a submission

    def hold() -> None:
        with lock:
            held.set()
            go.wait(30)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(30)
    threading.Timer(0.2, go.set).start()
    with watched(shifted, 1, True) as said:
        shifted(x)
    other.join()
    assert said == [False, True]  # it was asked again when the lock was free
    np.testing.assert_array_equal(x.numpy(), before + 2 * SHIFT)


def test_buffers_of_other_streams_are_left_to_python(hardware: VulkanDevice) -> None:
    """Launches on buffers last used by another stream fall back to Python, which inserts the waits."""
    x, y, total = vk.zeros(200_000, device=hardware), vk.zeros(200_000, device=hardware), 0.0
    for _ in range(10):
        along(x, x, y)
        shifted(x)
        total += SHIFT
    stream, here_alone = vk.Stream(hardware), vk.zeros(100, device=hardware)
    with stream:
        there_alone = vk.zeros(100, device=hardware)
    for _ in range(20):
        event = vk.Event()
        event.record()
        event.wait(stream)
        with stream:
            z = x * 1.0  # reads x in the other stream
            used = launched_by_machine(there_alone)
        assert used.user is not hardware._queue
        assert launched_by_machine(here_alone) is used and used.user is hardware._queue
        with watched(shifted, 1, True) as here:
            shifted(x)
        moves = y.__vkjit_array__.buffer.queue is hardware._queue  # in the first round
        with stream, watched(along, 3, True) as there:
            along(z, z, y)
        assert not any(here) and not (moves and any(there))
        total += SHIFT
        event = vk.Event()
        event.record(stream)
        event.wait()
        np.testing.assert_array_equal(y.numpy(), np.full(200_000, SHIFT - total, np.float32))
    np.testing.assert_array_equal(x.numpy(), np.full(200_000, total, np.float32))


def launched_by_machine(x: Any) -> Any:
    """Launch until native code is used, with an open submission; return the bound kernel."""
    for _ in range(20):
        with watched(shifted, 1, True) as said:
            shifted(x)
        if said == [True]:
            break
    else:
        pytest.fail("machine code has launched none of 20")
    return x.__vkjit_array__.buffer.queue.bound


def test_threads_that_make_plans_while_others_launch(hardware: VulkanDevice) -> None:
    """Plans are created and discarded during concurrent launches."""
    wrong: list[str] = []

    def launch(number: int) -> None:
        if number == 0:
            for _ in range(60):
                along._forget()
                inputs = [vk.zeros((n, 2), device=hardware)[:, 0] for n in (10, 20)]
                along(inputs[0], inputs[0], vk.zeros(10, device=hardware))
            return
        a, b, out = (vk.full(64 + number, float(v), device=hardware) for v in (number, 1, 0))
        for step in range(400):
            along(a, b, out)
            if step % 40 == 0 and out.numpy()[-1] != number - 2:
                wrong.append(f"thread {number}, step {step}: {out.numpy()[-1]}")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        run_in_threads(launch, 4)
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_nothing_is_kept_alive_or_let_go(hardware: VulkanDevice) -> None:
    """Thousands of launches leak no references, and arguments are freed with their last reference."""
    x, y, out = (vk.zeros(100, device=hardware) for _ in range(3))
    for _ in range(5):
        along(x, y, out)
        shifted(out)
    kernel = along._forms[3]._plans[0].kept[0].kernel
    watched_objects = [
        x,
        x.__vkjit_array__,
        x.__vkjit_array__.buffer,
        x.__vkjit_array__.descriptor,
        kernel,
        hardware._queue,
        None,
        True,
        False,
    ]
    watched_objects += [
        shifted._forms[1]._plans[0].kept[0].kernel,
        out.__vkjit_array__.buffer,
        hardware._current,
    ]
    gc.collect()
    before = [sys.getrefcount(one) for one in watched_objects]
    with watched(along, 3, True) as said:
        for _ in range(2000):
            along(x, y, out)
            hardware._queue.budget = 10**6
    assert sum(said) > 1900
    del said
    gc.collect()
    blocks = sys.getallocatedblocks()
    for _ in range(5000):
        along(x, y, out)
        shifted(out)  # alternate between kernels
        hardware._queue.budget = 10**6
    assert sys.getallocatedblocks() - blocks < 1000
    after = [sys.getrefcount(one) for one in watched_objects]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), (before, after)
    hardware.synchronize()
    gone = weakref.ref(out)
    buffers = weakref.ref(out.__vkjit_array__.buffer)
    del watched_objects, out
    gc.collect()
    assert gone() is None and buffers() is None


class LaunchesAtItsEnd:
    """An object in a reference cycle, which launches when it is collected."""

    def __init__(self, *arrays: Any) -> None:
        self.arrays, self.itself = arrays, self

    def __del__(self) -> None:
        along(*self.arrays)


def test_garbage_is_not_collected_in_the_middle(hardware: VulkanDevice) -> None:
    """Before Python 3.12, making a tuple may collect garbage, and finalizers may launch with the same plan."""
    a, b, other = (vk.full((64,), value, device=hardware) for value in (5.0, 1.0, 9.0))
    outs = [vk.zeros(64, device=hardware) for _ in range(200)]
    for _ in range(20):
        along(a, b, other)
    call = along._forms[3].call
    assert call is not None
    before, kept = gc.get_threshold(), [(out,) for out in outs * 20]
    gc.disable()
    try:
        for out in outs:
            LaunchesAtItsEnd(b, b, other)
            gc.set_threshold(1)
            for _ in range(3):  # so that there are no tuples of one item to be used again
                kept.append((out,))
            gc.enable()
            launched = call(a, b, out)
            gc.disable()
            if not launched:
                along(a, b, out)
    finally:
        gc.set_threshold(*before)
        gc.enable()
    assert all((out.numpy() == 3).all() for out in outs)


def test_a_kernel_goes_with_its_plans(hardware: VulkanDevice) -> None:
    @vk.kernel(over="x")
    def short_lived(x: vk.InOut[vk.f32, "N"]):
        i = vk.global_id(0)
        x[i] = x[i] * 2.0

    x = vk.zeros(10, device=hardware)
    for _ in range(5):
        short_lived(x)
    plan = weakref.ref(short_lived._forms[1]._plans[0])
    hardware.synchronize()
    del short_lived
    gc.collect()
    assert plan() is None
    shifted(x)


def test_types_that_have_to_be_asked_are_left_to_python(hardware: VulkanDevice) -> None:
    class Odd:
        """An object that implements `__vkjit_array__` but isn't a tensor."""

        def __init__(self, tensor: Any) -> None:
            self.tensor, self.asked = tensor, 0

        @property
        def __vkjit_array__(self) -> Any:
            self.asked += 1
            return self.tensor.__vkjit_array__

        def __vkjit_written__(self) -> None:
            self.tensor.bump_version()

        @staticmethod
        def __vkjit_wrap__(array: Any) -> Any:
            return array

    x = vk.zeros(10, device=hardware)
    odd = Odd(x)
    for _ in range(6):
        shifted(odd)
        shifted(x)
    np.testing.assert_array_equal(x.numpy(), np.full(10, 12 * SHIFT, np.float32))
    assert odd.asked >= 6 and x.version == 12


def test_where_this_interpreter_keeps_things() -> None:
    if not cpython.usable():
        pytest.skip("not a CPython with a global lock")

    class Slotted:
        __slots__ = ("first", "second")

    places = cpython.offsets(Slotted, "first", "second")
    assert places is not None and len(set(places.values())) == 2
    one = Slotted()
    one.second = "x"
    assert ctypes.c_uint64.from_address(id(one) + places["second"]).value == id(one.second)
    assert ctypes.c_uint64.from_address(id(one) + (cpython.type_of_objects() or 0)).value == id(Slotted)
    assert cpython.offsets(Slotted, "third") is None
    assert cpython.offsets(int, "real") is None


@pytest.mark.parametrize("unset", ["all", "_array", "_version", "meta", "buffer", "descriptor"])
def test_half_made_tensors_and_arrays_are_left_to_python(hardware: VulkanDevice, unset: str) -> None:
    """As on the device cpu."""
    x, y = vk.ones(1000, device=hardware), vk.zeros(1000, device=hardware)
    for _ in range(8):
        along(x, x, y)
    call = along._forms[3].call
    assert call is not None and call(x, x, y)
    broken = half_made(x, unset)
    assert not call(broken, x, y)
    along(x, x, y)
    assert y.numpy().tolist() == [-1.0] * 1000
