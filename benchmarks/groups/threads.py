"""Launches shared by several threads of one process, on one device: wall time compared with that of one thread.

Each of 1, 2 or 4 threads launches its share of 20,000, with operands of its own; the time runs from a common start until
the last thread has launched. The device drains before, outside of the measurement. The interpreter's lock lets one thread
run Python at a time, so several threads can't be faster than one; a ratio above 1 is what they spend on waiting for each
other and on switching between them. The reference is PyTorch's own ratio: on CUDA for a hardware device, otherwise on the
CPU with one thread per operation.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import vkjit as vk
from benchmarks.framework import Absent, Row, Target
from benchmarks.groups.launch import gpu, lavapipe

LAUNCHES = 20_000
WARMUP = 2_000
REPEATS = 3
THREADS = (2, 4)
MAX_RATIO = 1.5
VECTOR, WIDTH = 1024, 16

Place = Callable[[Any], Any]
"""Makes a tensor of a NumPy array."""
Make = Callable[[Place, Any], Callable[[], Any]]
"""Makes a launch of operands of its own; the second argument is the library."""


@vk.kernel(over="out")  # type: ignore[untyped-decorator]
def multiply_add(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"]) -> None:
    i = vk.global_id(0)
    out[i] = a[i] * 2 + b[i]


def _kernel(place: Place, library: Any) -> Callable[[], Any]:
    a, b, out = (place(np.ones(VECTOR, np.float32)) for _ in range(3))
    if library is vk:
        return lambda: multiply_add(a, b, out)
    return lambda: library.add(b, a, alpha=2, out=out)


def _add(place: Place, _library: Any) -> Callable[[], Any]:
    x, y = (place(np.ones(WIDTH, np.float32)) for _ in range(2))
    return lambda: x + y


def _product(place: Place, _library: Any) -> Callable[[], Any]:
    a, b = (place(np.ones((WIDTH, WIDTH), np.float32)) for _ in range(2))
    return lambda: a @ b


LAUNCHED: dict[str, Make] = {
    "kernel, three f32 vectors of 1,024": _kernel,
    "x + y of 16 elements": _add,
    "x @ y, 16 x 16": _product,
}


@functools.cache
def _processor() -> Any:
    try:
        return vk.device("cpu")
    except vk.VkjitError as error:
        raise Absent(str(error)) from error


DEVICES: dict[str, Callable[[], Any]] = {"GPU": gpu, "llvmpipe": lavapipe, "cpu": _processor}


@functools.cache
def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise Absent("PyTorch isn't installed") from None
    torch.set_num_threads(1)
    return torch


def _calls(calls: list[Callable[[], Any]], launches: int) -> float:
    """Return the seconds that as many threads as there are calls take for their shares of the launches."""
    share = launches // len(calls)
    barrier = threading.Barrier(len(calls) + 1)

    def work(call: Callable[[], Any]) -> None:
        barrier.wait()
        for _ in range(share):
            call()

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


@functools.cache
def seconds(make: Make, device: Callable[[], Any], ours: bool) -> dict[int, float]:
    """Return the minimum seconds of 20,000 launches by number of threads, over repeats that alternate between them."""
    found = device()
    if ours:
        library, wait = vk, found.synchronize
        place: Place = functools.partial(vk.tensor, device=found)
    else:
        library = _torch()
        cuda = device is gpu
        if cuda and not library.cuda.is_available():
            raise Absent("PyTorch has no CUDA device")
        place, wait = functools.partial(library.tensor, device="cuda" if cuda else "cpu"), lambda: None
        wait = library.cuda.synchronize if cuda else wait
    calls = [make(place, library) for _ in range(max(THREADS))]
    counts = (1, *THREADS)
    times = dict.fromkeys(counts, float("inf"))
    for count in counts:
        _calls(calls[:count], WARMUP * count)
    for _ in range(REPEATS):
        for count in counts:
            wait()
            times[count] = min(times[count], _calls(calls[:count], LAUNCHES))
    wait()
    return times


def _rows(name: str, make: Make, place: str, device: Callable[[], Any]) -> list[Row]:
    def ratio(count: int, ours: bool) -> float:
        times = seconds(make, device, ours)
        return times[count] / times[1]

    def microseconds(ours: bool) -> float:
        return seconds(make, device, ours)[1] / LAUNCHES * 1e6

    single = Target(ratio=1.0 if device is gpu else 0.25)
    reference = "torch, CUDA" if device is gpu else "torch, processor"
    return [
        Row(
            f"{name}, {place}, 1 thread", "us", functools.partial(microseconds, True), single, reference,
            functools.partial(microseconds, False), rounds=1,
        ),
        *[
            Row(
                f"{name}, {place}, {count} threads: time over one thread's", "times",
                functools.partial(ratio, count, True), Target(value=MAX_RATIO), reference,
                functools.partial(ratio, count, False), rounds=1,
            )
            for count in THREADS
        ],
    ]  # fmt: skip


ROWS = [
    row
    for place, device in DEVICES.items()
    for name, make in LAUNCHED.items()
    for row in _rows(name, make, place, device)
]
