"""Streams and events: results never change, and their guarantees of order and time hold."""

from __future__ import annotations

import gc
import sys
import threading
import time
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.faults.thread_stress import another_device
from tests.threads import run_in_threads
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.queue import streams
from vkjit.backends.vulkan.runtime.queue.queue import FIRST_BUDGET, Queue
from vkjit.runtime.handles import live_counts


@vk.kernel(over="y")
def mix(x: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "N"], a: vk.i64):
    i = vk.global_id(0)
    y[i] = (x[i] * 31 + y[i] * 17 + a) % 1000003


@vk.kernel(over="y")
def spin(y: vk.InOut[vk.i64, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    value = y[i]
    for _ in range(rounds):
        value = (value * 1103515245 + 12345) % 2147483648
    y[i] = value


@vk.kernel(over="x")
def refusing(x: vk.In[vk.i64, "N"]):
    assert x[vk.global_id(0)] > 0, "there is nothing"


def test_launches_in_streams_give_what_launches_in_order_give(device: Any) -> None:
    """Random launches, copies and temporary tensors on random streams."""
    random = Random(3)
    streams = [vk.Stream(device, priority=p) for p in (0, 1, -1, 0)]
    for _ in range(4):
        size = random.choice([1, 100, 5000])
        ours = [vk.tensor(np.arange(size) + n, dtype=vk.i64) for n in range(5)]
        theirs = [np.arange(size) + n for n in range(5)]
        for step in range(60):
            x, y = random.randrange(5), random.randrange(5)
            with random.choice(streams):
                if random.random() < 0.2:
                    copy = ours[x].clone()  # freed at the end of the step, possibly while in use
                    mix(copy, ours[y], step)
                elif x == y:
                    continue
                else:
                    mix(ours[x], ours[y], step)
                theirs[y] = (theirs[x] * 31 + theirs[y] * 17 + step) % 1000003
            if random.random() < 0.05:
                read = random.randrange(5)
                assert np.array_equal(ours[read].numpy(), theirs[read])
            if random.random() < 0.05:
                written = random.randrange(5)
                theirs[written] = np.arange(size) * step
                ours[written].copy_(vk.tensor(theirs[written]))
        for mine, expected in zip(ours, theirs, strict=True):
            assert np.array_equal(mine.numpy(), expected)


def test_many_readers_and_one_writer(device: Any) -> None:
    streams = [vk.Stream(device) for _ in range(3)]
    source = vk.tensor(np.arange(4000), dtype=vk.i64)
    targets = [vk.tensor(np.zeros(4000, np.int64)) for _ in streams]
    expected, sums = np.arange(4000), np.zeros(4000, np.int64)
    for step in range(12):
        for stream, target in zip(streams, targets, strict=True):
            with stream:
                mix(source, target, step)
        sums = (expected * 31 + sums * 17 + step) % 1000003
        with streams[step % 3]:
            spin(source, 1)  # must wait for all readers
        expected = (expected * 1103515245 + 12345) % 2147483648
    assert all(np.array_equal(target.numpy(), sums) for target in targets)
    assert np.array_equal(source.numpy(), expected)


def test_events_mark_what_was_launched_before_them(device: Any) -> None:
    stream, other = vk.Stream(device), vk.Stream(device)
    y = vk.tensor(np.ones(2000, np.int64))
    start, end = vk.Event(timing=True), vk.Event(timing=True)
    assert start.query()
    start.synchronize()
    with stream:
        start.record(stream)
        spin(y, 200)
        stream.record_event(end)
    other.wait_event(end)
    end.synchronize()
    assert end.query()
    stream.synchronize()
    assert stream.query()
    assert 0 < start.elapsed_time(end) < 60_000
    assert end.elapsed_time(start) < 0
    other.wait_stream(stream)
    other.synchronize()
    vk.synchronize()
    assert other.query()


@pytest.mark.parametrize("asked", ["stream", "event", "query"])
def test_a_stream_that_waits_and_does_nothing_else_is_done_after_what_it_waits_for(device: Any, asked: str) -> None:
    stream, other = vk.Stream(device), vk.Stream(device)
    y = vk.tensor(np.ones(2000, np.int64))
    with stream:
        spin(y, 2000)
    end, behind = stream.record_event(), vk.Event()
    other.wait_event(end)
    other.record_event(behind)
    if asked == "query":
        while not other.query():
            assert not behind.query() or end.query()
    else:
        (other if asked == "stream" else behind).synchronize()
    assert end.query()


def test_a_stream_isn_t_done_while_what_it_waits_for_is_being_sent(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Query a stream from another thread while its wait-only submission is being sent."""
    if not isinstance(device, VulkanDevice):
        pytest.skip("only queues of Vulkan devices send submissions")
    stream, other = vk.Stream(device), vk.Stream(device)
    y = vk.tensor(np.ones(2000, np.int64))
    with stream:
        spin(y, 2000)
    end = stream.record_event()
    other.wait_event(end)
    queue: Any = other._stream.queue  # type: ignore[attr-defined]  # a Vulkan stream
    usual, seen = Queue._send, []

    def send(self: Queue, submission: Any, info: Any) -> None:
        usual(self, submission, info)
        if self is queue:
            seen.append((self.newest, submission.serial))

    monkeypatch.setattr(Queue, "_send", send)
    device.flush()
    assert seen and all(newest == serial for newest, serial in seen)
    monkeypatch.undo()
    other.synchronize()
    assert end.query()


@pytest.mark.parametrize("how", ["launch", "other graph", "same graph"])
def test_what_another_thread_launches_while_one_waits_is_reported_to_the_next(
    device: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(device, VulkanDevice):
        pytest.skip("launches of other devices have run when they return")
    y, zeros, stream = vk.tensor(np.ones(2000, np.int64)), vk.zeros(4, dtype=vk.i64), vk.Stream(device)
    refusing(vk.ones(4, dtype=vk.i64))
    graphs = []
    for _ in range(2):
        with vk.capture() as captured:
            spin(y, 2000)
            refusing(zeros)
        graphs.append(captured)
    device.synchronize()
    usual = Queue.wait_all
    launched: list[None] = []

    def wait_all(self: Queue) -> None:
        usual(self)
        if not launched and self is device._queue:  # simulates another thread's launch at this point
            launched.append(None)
            with stream:
                if how == "launch":
                    spin(y, 2000)
                    refusing(zeros)
                else:
                    graphs[how == "same graph"].replay()
                device.flush()

    refusing(vk.ones(4, dtype=vk.i64))  # gives the wait a report to check
    if how != "launch":
        graphs[1].replay()
    monkeypatch.setattr(Queue, "wait_all", wait_all)
    if how == "launch":
        device.synchronize()
    else:
        with pytest.raises(vk.KernelAssertionError, match="there is nothing"):
            device.synchronize()
    assert launched
    if how != "same graph":  # the same graph's slots hold one report for both replays
        with pytest.raises(vk.KernelAssertionError, match="there is nothing"):
            device.synchronize()
    device.synchronize()


def test_finalizers_need_no_globals_which_are_gone_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []
    queue: Any = SimpleNamespace(group=SimpleNamespace(left=left))
    timestamps: Any = SimpleNamespace(free=left)
    stream, stamp = streams.QueueStream(None, queue, 0), streams.Stamp(timestamps, 1, None, 0)  # type: ignore[arg-type]
    unfinished = streams.Stamp.__new__(streams.Stamp)
    shown: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda report: shown.append(report.exc_value))
        for name in vars(streams):
            if not name.startswith("__"):
                patch.setattr(streams, name, None)
        del stream, stamp, unfinished
    assert left == [queue, (1, None, 0)] and not shown


def test_streams_and_events_of_a_closed_device_say_so(device: Any) -> None:
    own = another_device(device.name)
    stream, other = vk.Stream(own), vk.Stream(own)
    event, start, end, fresh = vk.Event(), vk.Event(timing=True), vk.Event(timing=True), vk.Event()
    for recorded in (event, start, end):
        recorded.record(stream)
    own.close()
    calls: list[Any] = [
        lambda: vk.Stream(own), lambda: vk.Stream(own, copies=True), stream.__enter__, stream.synchronize, stream.query,
        lambda: stream.wait_event(event), lambda: stream.wait_stream(other), stream.record_event,
        lambda: event.record(stream), lambda: fresh.record(stream), lambda: event.wait(stream), event.query,
        event.synchronize, lambda: start.elapsed_time(end), own.open_event,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(vk.DeviceError, match="was closed"):
            call()
    with vk.Stream(device):  # none of the refused blocks is open
        assert (vk.ones(3, device=device) + 1).tolist() == [2, 2, 2]


def test_a_full_submission_leaves_nothing_to_send(device: Any) -> None:
    """A full submission is sent immediately; waits and queries send no empty submissions."""
    if not isinstance(device, VulkanDevice) or type(device._queue) is not Queue:
        pytest.skip("only queues of Vulkan devices without a time limit make submissions ready")
    x, y = (vk.tensor(np.arange(64), device=device) for _ in range(2))
    expected, queue, stream = np.arange(64), device._queue, vk.current_stream(device)
    ready = 0
    for count in (FIRST_BUDGET, 5 * FIRST_BUDGET, 3, FIRST_BUDGET, 2 * FIRST_BUDGET):
        device.synchronize()
        for step in range(count):
            mix(x, y, step)
            expected = (np.arange(64) * 31 + expected * 17 + step) % 1000003
        if queue.recorded == 0:
            ready += queue.command_handle != 0
            sent = queue.serial
            stream.record_event().synchronize()
            stream.synchronize()
            device.flush()
            assert stream.query()
            assert queue.serial == sent
        assert np.array_equal(y.numpy(), expected)
    assert ready > 0


@pytest.mark.parametrize("asked", ["event", "stream"])
def test_asking_until_it_is_done_ends(device: Any, asked: str) -> None:
    """Querying an event or a stream submits the recorded launches that it depends on."""
    stream, event = vk.Stream(device), vk.Event()
    y = vk.tensor(np.ones(20, np.int64))
    with stream:
        spin(y, 1)
        stream.record_event(event)
    begun = time.perf_counter()
    while not (event if asked == "event" else stream).query():
        assert time.perf_counter() - begun < 60
    assert y.numpy()[0] != 1


def test_events_can_be_recorded_many_times(device: Any) -> None:
    stream, event, first = vk.Stream(device), vk.Event(timing=True), vk.Event(timing=True)
    first.record(stream)
    for _ in range(2100):  # more than the number of timestamp slots
        event.record(stream)
    assert first.elapsed_time(event) >= 0
    gc.collect()


def test_streams_belong_to_threads(device: Any) -> None:
    stream = vk.Stream(device)
    first = vk.current_stream(device)
    assert first != stream and hash(first) == hash(vk.current_stream(device))
    seen: list[bool] = []
    with stream:
        assert vk.current_stream(device) == stream
        thread = threading.Thread(target=lambda: seen.append(vk.current_stream(device) == stream))
        thread.start()
        thread.join()
        with vk.Stream(device) as inner:
            assert vk.current_stream(device) == inner
        assert vk.current_stream(device) == stream
    assert seen == [False] and vk.current_stream(device) == first


def test_threads_with_streams_of_their_own(device: Any) -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        with vk.use_device(device), vk.Stream(device):
            y = vk.tensor(np.full(300, number, np.int64))
            expected = np.full(300, number)
            for step in range(40):
                mix(y.clone(), y, step)
                expected = (expected * 48 + step) % 1000003
            if not np.array_equal(y.numpy(), expected):
                failures.append(f"thread {number}")

    run_in_threads(work, 6)
    assert failures == []


def test_reports_of_a_stream_surface_when_it_is_waited_for(device: Any) -> None:
    @vk.kernel(groups=1, local=1, debug=True)
    def fails(y: vk.InOut[vk.i64, "N"]):
        assert y[0] > 5, "too small"

    stream = vk.Stream(device)
    with stream:
        fails(vk.tensor(np.zeros(1, np.int64)))
    with pytest.raises(vk.KernelAssertionError, match="too small"):
        stream.synchronize()


def test_misuse_is_told(device: Any) -> None:
    with pytest.raises(vk.ArgumentError, match="priority is an integer, found 'high'"):
        vk.Stream(device, priority="high")  # type: ignore[arg-type]
    recorded = vk.Event()
    recorded.record()
    with pytest.raises(vk.ArgumentError, match="needs two recorded events"):
        recorded.elapsed_time(vk.Event(timing=True))
    other = vk.Event(timing=True)
    other.record()
    with pytest.raises(vk.ArgumentError, match="an event without timing has no time"):
        recorded.elapsed_time(other)


def test_a_stream_is_left_by_the_thread_that_entered_it(device: Any) -> None:
    stream, inside = vk.Stream(device), []
    first = vk.current_stream(device)

    def leave() -> None:
        with pytest.raises(vk.ArgumentError, match="leave it in the thread and asyncio task that entered it"):
            stream.__exit__(None, None, None)
        inside.append(vk.current_stream(device) == stream)

    with stream:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert vk.current_stream(device) == stream
    assert inside == [False]
    with pytest.raises(vk.ArgumentError, match="once for each time that it was entered"):
        stream.__exit__(None, None, None)
    assert vk.current_stream(device) == first


def test_streams_of_two_devices() -> None:
    names = [info.index for info in vk.devices() if not info.missing]
    if len(names) < 2:
        pytest.skip("one device only")
    first, second = vk.device(names[0]), vk.device(names[1])
    event = vk.Stream(first).record_event()
    with pytest.raises(vk.ArgumentError, match="an event of another device"):
        vk.Stream(second).wait_event(event)
    with pytest.raises(vk.ArgumentError, match="a stream of another device"):
        second.stream = first.stream


def test_dropped_streams_leave_nothing(device: Any) -> None:
    if not isinstance(device, VulkanDevice):
        pytest.skip("streams of other devices have no queues")
    with vk.use_device(device):
        vk.synchronize()
        before, live = len(device._group.queues), live_counts()
        results = []
        for n in range(200):
            with vk.Stream(device):
                results.append(vk.full((100,), float(n)) * 2)
        assert [int(result[7].item()) for result in results] == [2 * n for n in range(200)]
        many = [vk.Stream(device, priority=n % 3 - 1) for n in range(100)]
        for n, stream in enumerate(many):
            with stream:
                results[n] += 1
        del many, stream
        vk.synchronize()
        assert len(device._group.queues) <= before
        assert [int(result[7].item()) for result in results[:100]] == [2 * n + 1 for n in range(100)]
        del results
        for _ in range(200):
            vk.Stream(device)
        assert live_counts().get("command pool", 0) - live.get("command pool", 0) < 700
