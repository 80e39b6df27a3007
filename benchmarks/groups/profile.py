"""Times of `vk.profile` compared with replayed graphs of the same launches, on the GPU and Mesa's software driver.

A row launches one operation on its own result, over and over. Its figure is the difference between the time of a launch
according to the profile and the time of a launch in a replayed graph, divided by the tolerance: 10 % of the latter, or 2
us if that is more. A replayed graph waits for each kernel's results before the next one starts, as the launches of a
profile do.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import vkjit as vk
import vkjit.nn.functional as F
from benchmarks.framework import Row, Target
from benchmarks.groups.launch import gpu, lavapipe, replay_microseconds

LAUNCHES, PROFILES = 20, 3
RELATIVE, MICROSECONDS = 0.10, 2.0
SECONDS = 0.3
"""Time for which graphs are replayed."""


@vk.kernel(over="y")  # type: ignore[untyped-decorator]
def iterate(y: vk.InOut[vk.f32, "N"], steps: vk.i32) -> None:
    """A kernel that is bound by arithmetic."""
    i = vk.global_id(0)
    value = y[i]
    for _ in range(steps):
        value = value * 0.999 + 0.001
    y[i] = value


@vk.kernel(over="y")  # type: ignore[untyped-decorator]
def increase(y: vk.InOut[vk.f32, "N"]) -> None:
    """A kernel that is bound by memory."""
    i = vk.global_id(0)
    y[i] = y[i] + 1


Step = Callable[[Any], Any]


def filled(device: Any, shape: tuple[int, ...], dtype: Any = vk.f32, scale: float = 1.0) -> Any:
    vk.manual_seed(len(shape))
    return (vk.randn(*shape, device=device) * scale).to(dtype)


def in_place(kernel: Any, size: int, *values: int) -> Callable[[Any], tuple[Any, Step]]:
    """Return a function of a device that returns an array and a launch which changes it."""

    def make(device: Any) -> tuple[Any, Step]:
        def launch(y: Any) -> Any:
            kernel(y, *values)
            return y

        return vk.zeros(size, device=device), launch

    return make


def mapped(function: Step, shape: tuple[int, ...], dtype: Any = vk.f32) -> Callable[[Any], tuple[Any, Step]]:
    """Return a function of a device that returns a tensor and an operation on it."""
    return lambda device: (filled(device, shape, dtype), function)


def product(rows: int, size: int, dtype: Any) -> Callable[[Any], tuple[Any, Step]]:
    """As `mapped`, of a product with a square matrix that keeps the magnitude of the elements."""

    def make(device: Any) -> tuple[Any, Step]:
        weight = filled(device, (size, size), dtype, size**-0.5)
        return filled(device, (rows, size), dtype), lambda x: x @ weight

    return make


def convolution(batch: int, channels: int, side: int) -> Callable[[Any], tuple[Any, Step]]:
    def make(device: Any) -> tuple[Any, Step]:
        weight = filled(device, (channels, channels, 3, 3), scale=(9 * channels) ** -0.5)
        return filled(device, (batch, channels, side, side)), lambda x: F.conv2d(x, weight, padding=1)

    return make


def normalized(x: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:])


def soft(x: Any) -> Any:
    return F.softmax(x, -1)


def pooled(x: Any) -> Any:
    return F.max_pool2d(x, 3, stride=1, padding=1)


def start_and_step(make: Callable[[Any], tuple[Any, Step]], device: Any) -> tuple[Any, Step]:
    """Return the start and the step, warmed up: kernels are compiled, and there is memory for all results."""
    start, step = make(device)
    for _ in range(3):
        run(start, step)
        device.synchronize()
    return start, step


def run(start: Any, step: Step) -> None:
    """Launch the step `LAUNCHES` times, each on the result of the one before."""
    value = start
    for _ in range(LAUNCHES):
        value = step(value)


def profiled(device: Any, start: Any, step: Step) -> float:
    """Return the microseconds per step according to the median of `PROFILES` profiles."""
    seconds: list[float] = []
    for _ in range(PROFILES):
        with vk.profile(device) as profile:
            run(start, step)
        seconds.append(sum(kernel.seconds for kernel in profile.kernels()))
    return statistics.median(seconds) / LAUNCHES * 1e6


def replayed(device: Any, start: Any, step: Step) -> float:
    """Return the microseconds per step of a replayed graph."""
    with vk.capture(device) as graph:
        run(start, step)
    graph.replay()
    device.synchronize()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < SECONDS:
        times.append(replay_microseconds(device, graph))
    return statistics.median(times) / LAUNCHES


_notes: dict[str, list[str]] = {}
"""By row, the times that its figures were computed from."""


def difference(name: str, find: Callable[[], Any], make: Callable[[Any], tuple[Any, Step]]) -> float:
    """Return how many tolerances lie between the two times."""
    device = find()
    with vk.no_grad():
        start, step = start_and_step(make, device)
        profile, graph = profiled(device, start, step), replayed(device, start, step)
    _notes.setdefault(name, []).append(f"{profile:.4g} us in the profile, {graph:.4g} us in a graph")
    return abs(profile - graph) / max(RELATIVE * graph, MICROSECONDS)


CASES: dict[str, tuple[Callable[[Any], tuple[Any, Step]], Callable[[Any], tuple[Any, Step]]]] = {
    # on the GPU, on the software driver
    "add 1, 64 elements": (in_place(increase, 64),) * 2,
    "add 1 in memory, small": (in_place(increase, 80_000),) * 2,
    "add 1 in memory, medium": (in_place(increase, 1 << 22), in_place(increase, 1 << 20)),
    "add 1 in memory, large": (in_place(increase, 1 << 28), in_place(increase, 1 << 24)),
    "arithmetic, short": (in_place(iterate, 1 << 14, 1_000), in_place(iterate, 1 << 12, 100)),
    "arithmetic, medium": (in_place(iterate, 1 << 16, 20_000), in_place(iterate, 1 << 14, 1_000)),
    "arithmetic, long": (in_place(iterate, 1 << 20, 100_000), in_place(iterate, 1 << 16, 4_000)),
    "sigmoid": (mapped(vk.sigmoid, (1 << 20,)), mapped(vk.sigmoid, (1 << 17,))),
    "softmax, small": (mapped(soft, (128, 768)), mapped(soft, (32, 768))),
    "softmax, large": (mapped(soft, (16384, 1024)), mapped(soft, (1024, 1024))),
    "layer norm, small": (mapped(normalized, (128, 768)), mapped(normalized, (32, 768))),
    "layer norm, large": (mapped(normalized, (16384, 4096)), mapped(normalized, (512, 1024))),
    "transposition": (
        mapped(lambda x: x.T.contiguous(), (4096, 4096)), mapped(lambda x: x.T.contiguous(), (512, 512)),
    ),
    "max pooling": (mapped(pooled, (8, 64, 56, 56)), mapped(pooled, (1, 16, 28, 28))),
    "convolution, small": (convolution(1, 64, 28), convolution(1, 8, 14)),
    "convolution, large": (convolution(32, 128, 56), convolution(2, 16, 56)),
    "product, few rows": (product(16, 4096, vk.f16), product(4, 512, vk.f32)),
    "product, small": (product(128, 768, vk.f16), product(32, 256, vk.f32)),
    "product, medium": (product(1024, 1024, vk.f32), product(128, 256, vk.f32)),
    "product, large": (product(8192, 4096, vk.f16), product(512, 512, vk.f32)),
}  # fmt: skip


def row(name: str, place: str, find: Callable[[], Any], make: Callable[[Any], tuple[Any, Step]]) -> Row:
    full = f"{name}, {place}: difference between profile and replayed graph, in tolerances"
    return Row(
        full, "times", functools.partial(difference, full, find, make), Target(value=1),
        note=lambda: "; ".join(_notes.get(full, [])),
    )  # fmt: skip


ROWS = [
    row(name, place, find, makers[number])
    for number, (place, find) in enumerate((("GPU", gpu), ("llvmpipe", lavapipe)))
    for name, makers in CASES.items()
]
