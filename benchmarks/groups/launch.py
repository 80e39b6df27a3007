"""CPU cost of a warm launch, compared with PyTorch and Triton in the same process; graph replays; device-side cost.

Launches cycle through eight kernels, and each gets new arrays of its own shape. Launch times are CPU time of the
launching thread, including submissions; kernel times are from device timestamps. Kernels are tiny, so that launch
overhead dominates.
"""

from __future__ import annotations

import functools
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import vkjit as vk
from benchmarks.framework import Absent, Row, Target
from benchmarks.groups.compile import PROGRAMS, python_output

LAUNCHES = 1000
"""Consecutive launches; the queue accepts them without waiting for the device."""
ROUNDS = 8
TAILS = 9
REPLAYED = 100
CHAIN = 1000


@functools.cache
def gpu() -> Any:
    """Return the first hardware device; raises Absent if there is none."""
    for number, info in enumerate(vk.devices()):
        if info.kind in ("discrete", "integrated", "virtual"):
            device = vk.device(number)
            device.clock_ready()  # type: ignore[attr-defined]  # hardware devices are Vulkan devices
            return device
    raise Absent("no hardware device with a Vulkan driver")


@functools.cache
def lavapipe() -> Any:
    """Return Mesa's software driver."""
    try:
        return vk.device("llvmpipe")
    except vk.VkjitError as error:
        raise Absent(f"no llvmpipe (Debian's mesa-vulkan-drivers): {error}") from error


@functools.cache
def torch() -> Any:
    """Return PyTorch with CUDA."""
    try:
        import torch as module
    except ImportError as error:
        raise Absent("PyTorch isn't installed") from error
    if not module.cuda.is_available():
        raise Absent("PyTorch has no CUDA device")
    return module


# -- eight kernels, four over one axis, four over two


def _along(factor: int) -> Any:
    @vk.kernel(over="out")  # type: ignore[untyped-decorator]
    def along(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"]) -> None:
        i = vk.global_id(0)
        out[i] = a[i] * factor + b[i]

    return along


def _across(factor: int) -> Any:
    @vk.kernel(over="out")  # type: ignore[untyped-decorator]
    def across(a: vk.In[vk.f32, "M N"], b: vk.In[vk.f32, "M N"], out: vk.Out[vk.f32, "M N"]) -> None:
        i, j = vk.index()
        out[i, j] = a[i, j] * factor + b[i, j]

    return across


@functools.cache
def kernels() -> list[Any]:
    return [make(factor) for factor in range(1, 5) for make in (_along, _across)]


def shape_of(number: int, chance: random.Random) -> tuple[int, ...]:
    if number % 2 == 0:
        return (chance.randrange(1, 4097),)
    return (chance.randrange(1, 65), chance.randrange(1, 65))


def independent(device: Any, seed: int) -> list[tuple[Any, Any, Any]]:
    """Return arguments for each launch, with no shared memory."""
    empty = functools.partial(vk.empty, device=device)
    chance = random.Random(seed)
    shapes = [shape_of(number, chance) for number in range(LAUNCHES)]
    return [(empty(shape), empty(shape), empty(shape)) for shape in shapes]


def dependent(device: Any, seed: int) -> list[tuple[Any, Any, Any]]:
    """Return arguments for each launch, such that it reads what the previous one wrote.

    The arguments are views of two buffers, each with its own shape.
    """
    chance = random.Random(seed)
    buffers = [vk.empty(4096, device=device) for _ in range(2)]
    sets = []
    for number in range(LAUNCHES):
        shape = shape_of(number, chance)
        read, written = (buffers[(number + i) % 2][: _size(shape)].reshape(shape) for i in range(2))
        sets.append((read, vk.empty(shape, device=device), written))
    return sets


def _size(shape: tuple[int, ...]) -> int:
    return shape[0] if len(shape) == 1 else shape[0] * shape[1]


def launch_all(sets: list[tuple[Any, Any, Any]]) -> None:
    all_kernels = kernels()
    for number, (a, b, out) in enumerate(sets):
        all_kernels[number & 7](a, b, out)


def cpu_microseconds(prepare: Callable[[int], Any], run: Callable[[Any], None], finish: Callable[[], None]) -> float:
    """Return the CPU time of this thread per launch; the minimum of several runs, since interference only adds time."""
    times = []
    for number in range(ROUNDS):
        prepared = prepare(number)
        finish()
        begin = time.thread_time_ns()
        run(prepared)
        times.append(time.thread_time_ns() - begin)
        finish()
    return min(times) / LAUNCHES / 1e3


def ours(find: Callable[[], Any], prepare: Callable[[Any, int], Any]) -> float:
    device = find()
    return cpu_microseconds(lambda seed: prepare(device, seed), launch_all, device.synchronize)


def tail() -> float:
    """Return the ratio of the 99th percentile to the median of single warm launches, in wall time.

    Wall time includes interruptions by the system. The result is the median of several runs, after a run of 4,000
    launches that compiles the launch code and allocates its memory.
    """
    device = gpu()
    return statistics.median([tail_of(device, seed) for seed in range(TAILS + 1)][1:])


def tail_of(device: Any, seed: int) -> float:
    all_kernels, clock = kernels(), time.perf_counter_ns
    sets = [one for part in range(4) for one in independent(device, 4 * seed + part)]
    device.synchronize()
    times = []
    for number, (a, b, out) in enumerate(sets):
        begin = clock()
        all_kernels[number & 7](a, b, out)
        times.append(clock() - begin)
    return percentile_over_median(times)


def system_tail() -> float:
    """Return the same ratio for a loop that launches nothing, as a baseline for the system's interruptions."""
    gpu()

    def work() -> None:
        for _ in range(80):
            pass

    def measure() -> float:
        clock, times = time.perf_counter_ns, []
        for _ in range(4 * LAUNCHES):
            begin = clock()
            work()
            times.append(clock() - begin)
        return percentile_over_median(times)

    return statistics.median(measure() for _ in range(TAILS))


def percentile_over_median(times: list[int]) -> float:
    times.sort()
    return times[len(times) * 99 // 100] / times[len(times) // 2]


def torch_add() -> float:
    module = torch()

    def prepare(seed: int) -> list[Any]:
        chance = random.Random(seed)
        shapes = [shape_of(number, chance) for number in range(LAUNCHES)]
        return [tuple(module.zeros(shape, device="cuda") for _ in range(2)) for shape in shapes]

    def run(sets: list[Any]) -> None:
        for x, y in sets:
            x.add_(y)

    return cpu_microseconds(prepare, run, module.cuda.synchronize)


def triton_add() -> float:
    module = torch()
    from benchmarks.triton_kernels import add

    def prepare(seed: int) -> list[Any]:
        chance = random.Random(seed)
        sizes = [_size(shape_of(number, chance)) for number in range(LAUNCHES)]
        return [(*(module.zeros(size, device="cuda") for _ in range(3)), size) for size in sizes]

    def run(sets: list[Any]) -> None:
        for a, b, out, size in sets:
            add[(-(-size // 256),)](a, b, out, size, BLOCK=256)

    return cpu_microseconds(prepare, run, module.cuda.synchronize)


# -- graphs and the device


def chained(device: Any, count: int) -> Any:
    """Return a graph of kernels in which each reads what the previous one wrote."""
    kernel = kernels()[0]
    a, b, c = (vk.zeros(64, device=device) for _ in range(3))
    with vk.capture(device) as graph:
        for number in range(count):
            kernel(*((a, b, c) if number % 2 else (c, b, a)))
    return graph


def spread(device: Any, count: int) -> Any:
    """Return a graph of independent kernels."""
    kernel = kernels()[0]
    a, b = (vk.zeros(64, device=device) for _ in range(2))
    outs = [vk.zeros(64, device=device) for _ in range(count)]
    with vk.capture(device) as graph:
        for out in outs:
            kernel(a, b, out)
    return graph


def replay() -> float:
    device = gpu()
    graph = chained(device, REPLAYED)
    times = []
    for _ in range(100):
        device.synchronize()
        begin = time.thread_time_ns()
        graph.replay()
        times.append(time.thread_time_ns() - begin)
    return statistics.median(times) / 1e3


def replay_microseconds(device: Any, graph: Any) -> float:
    """Return the time of one replay by the device's clock."""
    start, end = (vk.Event(timing=True) for _ in range(2))
    start.record(vk.current_stream(device))
    graph.replay()
    end.record(vk.current_stream(device))
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def device_microseconds(make: Callable[[Any, int], Any]) -> float:
    device = gpu()
    graph = make(device, CHAIN)
    return statistics.median(replay_microseconds(device, graph) for _ in range(10)) / CHAIN


# -- the longest launch of a new process

_longest: dict[str, list[str]] = {}
"""By device, the figures of each process and the launches where they were measured."""


def longest(place: str) -> float:
    """Return the milliseconds of the longest of 10,000 launches in a new process; see the program."""
    milliseconds, number, collection = python_output(str(PROGRAMS / "longest_launch.py"), place).split()
    _longest.setdefault(place, []).append(
        f"{float(milliseconds):.3g} ms at launch {int(number):,} (Python's longest garbage collection: "
        f"{float(collection):.3g} ms)"
    )
    return float(milliseconds)


def longest_row(place: str, name: str) -> Row:
    return Row(
        f"40 kernels launched 10,000 times in turn, {name}: longest launch after each kernel's second call", "ms",
        lambda: longest(place), Target(value=5), "without launches", lambda: longest("none"),
        note=lambda: ", ".join(_longest[place]),
    )  # fmt: skip


INDEPENDENT = functools.partial(ours, gpu, independent)
DEPENDENT = functools.partial(ours, gpu, dependent)

ROWS = [
    Row("independent launch", "us", INDEPENDENT, Target(value=4.5, ratio=2), "torch x.add_", torch_add),
    Row("independent launch beside Triton", "us", INDEPENDENT, Target(value=4.5, ratio=2), "Triton", triton_add),
    Row("dependent launch", "us", DEPENDENT, Target(value=6, ratio=2), "torch x.add_", torch_add),
    Row("dependent launch beside Triton", "us", DEPENDENT, Target(value=6, ratio=2), "Triton", triton_add),
    Row("99th percentile over median, independent", "times", tail, Target(value=3), "without launches", system_tail),
    Row("replay of a graph of 100 dependent kernels", "us", replay, Target(value=30)),
    Row("device time of a dependent tiny kernel", "us", lambda: device_microseconds(chained), Target(value=2.5)),
    Row("device time of an independent tiny kernel", "us", lambda: device_microseconds(spread), Target(value=0.3)),
    Row("launch on llvmpipe", "us", functools.partial(ours, lavapipe, independent), Target(value=8)),
    Row("dependent launch on llvmpipe", "us", functools.partial(ours, lavapipe, dependent), Target(value=8)),
    *[longest_row(*names) for names in (("GPU", "GPU"), ("llvmpipe", "llvmpipe"), ("cpu", 'device "cpu"'))],
]
