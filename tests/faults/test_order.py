"""Tests of the runtime's synchronization: it is sufficient, and the checker detects each missing barrier."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.language.staged import open_staged
from tests.device.runtime import runtime_kernels as kernels
from tests.device.runtime.runtime_kernels import BLOCK, groups
from tests.device.tensor.op_cache_fuzz import Chain
from tests.faults.happens_before import (
    Access,
    Barrier,
    Command,
    Submit,
    Trace,
    barriers_that_matter,
    tracing,
    unordered,
    without,
)
from tests.faults.test_driver_failures import physical
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.memory import buffer as buffers_module, suballocator
from vkjit.runtime.array import DeviceArray
from vkjit.runtime.capture import Copy, Fill, Launch
from vkjit.runtime.observers import LaunchRequest

__all__ = ["physical"]

COUNT = 64
A, B = Access(1, 0, 8, True), Access(1, 4, 12, False)
WRITE, READ, ELSEWHERE = Command("w", (A,)), Command("r", (B,)), Command("e", (Access(1, 8, 12, True),))


def submit(*items: Command | Barrier, queue: int = 1, waits: Any = (), signals: Any = (), fence: int = 0) -> Submit:
    return Submit(queue, items, waits, signals, fence)


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ([submit(WRITE, READ)], 1),
        ([submit(WRITE, Barrier(), READ)], 0),
        ([submit(WRITE, ELSEWHERE)], 0),
        ([submit(WRITE), submit(READ)], 1),
        ([submit(WRITE), submit(Barrier(), READ)], 0),
        ([submit(WRITE), submit(READ, queue=2)], 1),
        ([submit(WRITE, signals=((7, 1),)), submit(READ, queue=2, waits=((7, 1),))], 0),
        ([submit(WRITE, signals=((7, 1),)), submit(READ, queue=2)], 1),
        ([submit(WRITE, fence=5), 5, submit(READ, queue=2)], 0),
        ([submit(WRITE, fence=5), submit(READ, queue=2), 5], 1),
        ([submit(WRITE, signals=((7, 1),)), submit(queue=2, waits=((7, 1),)), submit(READ, queue=2)], 0),
        ([submit(READ), submit(READ, queue=2)], 0),
        ([submit(Command("copy", (A,)), Barrier(copies=False), READ)], 1),
        ([submit(Command("copy", (A,)), Barrier(copies=False), Barrier(), READ)], 0),
        ([submit(Command("copy", (B,)), Barrier(copies=False), WRITE)], 0),
    ],
)
def test_the_checker_knows_what_orders(events: list[Submit | int], wrong: int) -> None:
    assert len(unordered(Trace(events))) == wrong


def random_work(device: Any, random: Random, steps: int) -> None:
    """Run launches, copies, fills, transfers and short-lived buffers over several streams."""
    add, shift = device.load(kernels.add()), device.load(kernels.shift())
    streams = [device.stream, *(device.open_stream(p) for p in (0, 1))]
    buffers = [device.allocate(4 * COUNT) for _ in range(6)]
    for buffer in buffers:
        device.write(buffer, 0, np.zeros(4 * COUNT, np.uint8))
    graph = device.make_graph([
        Launch(add, groups(COUNT), BLOCK.pack(buffers[i].address, buffers[j].address, buffers[k].address, COUNT),
               [buffers[i], buffers[j]], [buffers[k]])
        for i, j, k in (random.sample(range(4), 3) for _ in range(5))
    ] + [Copy(buffers[0], 0, buffers[1], 0, 64), Fill(buffers[1], 0, 64, 1)])  # fmt: skip
    for _ in range(steps):
        device.stream = random.choice(streams)
        a, b, c = (random.choice(buffers) for _ in range(3))
        choice = random.random()
        if random.random() < 0.05:
            graph.replay()
        if choice < 0.5:
            device.launch(
                LaunchRequest(add, groups(COUNT), BLOCK.pack(a.address, b.address, c.address, COUNT), (a, b), (c,))
            )
        elif choice < 0.65 and a is not c:
            device.launch(LaunchRequest(shift, groups(COUNT), BLOCK.pack(a.address, 0, c.address, COUNT), (a,), (c,)))
        elif choice < 0.75 and a is not c:
            device.copy(a, 0, c, 128, 64)
        elif choice < 0.8:
            device.fill(c, 64, 64, 3)
        elif choice < 0.86:
            device.write(c, 0, np.zeros(16, np.uint8))
        elif choice < 0.9:
            device.read(c, 0, np.zeros(16, np.uint8))
        elif choice < 0.94:
            random.choice(streams).wait_event(_recorded(device, device.stream))
        elif choice < 0.98:
            buffers[random.randrange(4, 6)] = device.allocate(4 * COUNT)
        else:
            device.flush()
    device.stream = streams[0]
    device.synchronize()


@vk.kernel(over="out")
def join(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    out[i] = a[i] + b[i]


@vk.kernel(over="x")
def grow(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = x[i] + 1.0


def random_calls(device: Any, random: Random, steps: int) -> None:
    """Launch kernels on slices of a few buffers, mostly by the fast path, mixed with fills, copies and streams."""
    streams = [device.stream, device.open_stream(0)]
    buffers = [device.allocate(4 * COUNT) for _ in range(5)]
    for buffer in buffers:
        device.fill(buffer, 0, 4 * COUNT, 0)

    def part(size: int) -> DeviceArray:
        return DeviceArray(random.choice(buffers), 16 * random.randrange(5), vk.f32, (size,), (1,))

    for _ in range(steps):
        device.stream = streams[random.random() < 0.1]
        size, choice = 4 * random.randrange(1, 9), random.random()
        if choice < 0.6:
            join(part(size), part(size), part(size))
        elif choice < 0.85:
            grow(part(size))
        elif choice < 0.92:
            device.fill(random.choice(buffers), 64, 64, 3)
        elif choice < 0.96:
            device.copy(*(x for b in random.sample(buffers, 2) for x in (b, 0)), 64)
        else:
            buffers[random.randrange(5)] = device.allocate(4 * COUNT)
    device.stream = streams[0]
    device.synchronize()


def _recorded(device: Any, stream: Any) -> Any:
    event = device.open_event()
    event.record(stream)
    return event


def traced_work(
    physical: Any, seed: int, steps: int = 90, work: Any = random_work, opened: Callable[[Any], Any] = VulkanDevice
) -> Trace:
    with tracing() as trace:
        device = opened(physical)
        try:
            work(device, Random(seed), steps)
        finally:
            device.close()
    return trace


def test_random_work_is_ordered_and_each_missing_barrier_is_seen(physical: Any) -> None:
    deleted = commands = semaphores = 0
    for seed in range(60):
        if deleted >= 500:
            break
        trace = traced_work(physical, seed)
        assert unordered(trace) == [], seed
        commands += sum(isinstance(i, Command) for e in trace.events if isinstance(e, Submit) for i in e.items)
        semaphores += sum(len(e.waits) for e in trace.events if isinstance(e, Submit))
        for place in barriers_that_matter(trace):
            assert unordered(without(trace, place)), (seed, place)
            deleted += 1
    assert deleted >= 500 and commands > 1000 and semaphores > 100, (deleted, commands, semaphores)


def test_short_calls_are_ordered_and_each_missing_barrier_is_seen(physical: Any) -> None:
    deleted = short = 0
    for seed in range(8):
        trace = traced_work(physical, seed, 150, random_calls)
        assert unordered(trace) == [], seed
        short += trace.short
        for place in barriers_that_matter(trace):
            assert unordered(without(trace, place)), (seed, place)
            deleted += 1
    assert deleted >= 300 and short >= 200, (deleted, short)  # the first call of each shape takes the long way


def test_a_runtime_without_semaphores_would_be_seen(physical: Any) -> None:
    found = 0
    for seed in range(20):  # a run in which the host saw the fences in time has no errors
        trace = traced_work(physical, seed)
        events = [e if isinstance(e, int) else Submit(e.queue, e.items, (), e.signals, e.fence) for e in trace.events]
        found += bool(unordered(Trace(events)))
        if found == 5:
            break
    assert found == 5


def many_short_lives(device: Any, random: Random, steps: int) -> None:
    """Run chains of launches with arrays that are dropped while the device still uses them."""
    add = device.load(kernels.add())
    kept = [device.allocate(4 * COUNT) for _ in range(3)]
    for buffer in kept:
        device.fill(buffer, 0, 4 * COUNT, 0)
    for _ in range(steps):
        a, b, made = random.choice(kept), random.choice(kept), device.allocate(4 * COUNT)
        device.launch(
            LaunchRequest(add, groups(COUNT), BLOCK.pack(a.address, b.address, made.address, COUNT), (a, b), (made,))
        )
        kept[random.randrange(3)] = made
    device.synchronize()


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "in flight"])
def test_memory_that_is_used_again_at_once_stays_in_order(
    physical: Any, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    revived, careless, wrong = 0, False, 0
    owner: Any = buffers_module.VulkanBuffer if kept else buffers_module._Recent
    name = "again" if kept else "revive"
    real = getattr(owner, name)

    def revive(*arguments: Any) -> Any:
        nonlocal revived
        made = real(*arguments)
        revived += made is not None
        if careless and made is not None:
            made.read_epoch = made.write_epoch = 0
        return made

    if not kept:
        monkeypatch.setattr(buffers_module, "_KEPT", 0)
        monkeypatch.setattr(suballocator.Pool, "find", _only_once(suballocator.Pool.find))
    monkeypatch.setattr(buffers_module, "_REUSED_FROM", 1)
    monkeypatch.setattr(owner, name, staticmethod(revive) if kept else lambda *arguments: revive(*arguments))
    for seed in range(4):
        assert unordered(traced_work(physical, seed, 60, many_short_lives, lambda _: open_staged())) == [], seed
    assert revived > 80, revived
    careless = True
    for seed in range(3):
        wrong += len(unordered(traced_work(physical, seed, 60, many_short_lives, lambda _: open_staged())))
    assert wrong > 0


def chains_of_operations(device: Any, random: Random, steps: int) -> None:
    """Run repeated operations on tensors in two streams, most of them by the fast path for allocation and launch."""
    with vk.use_device(device):
        Chain(device, random.randrange(1000), streams=1).run(steps)
    device.synchronize()


def test_repeated_operations_are_ordered_and_each_missing_barrier_is_seen(physical: Any) -> None:
    deleted = short = 0
    for seed in range(2):
        trace = traced_work(physical, seed, 250, chains_of_operations, lambda _: open_staged())
        assert unordered(trace) == [], seed
        short += trace.short
        for place in list(barriers_that_matter(trace))[::8]:
            assert unordered(without(trace, place)), (seed, place)
            deleted += 1
    assert deleted >= 10 and short >= 150, (deleted, short)


def _only_once(find: Any) -> Any:
    """Wrap a pool's search so that it has room for a few buffers only and memory must be reused."""

    def limited(self: Any, nbytes: int) -> Any:
        return find(self, nbytes) if self.kind.mapped or self.count < 8 else None

    return limited
