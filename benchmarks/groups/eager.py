"""Host overhead of eager operations: microseconds of Python per operation and per training step, compared with PyTorch.

Tensors are so small that kernel time is negligible. The figure is the minimum time of a call on the calling thread,
until it returns. PyTorch runs on the CPU with one thread, where an operation costs about as much as launching one.

On a GPU, operations on 1M elements are also compared with PyTorch on CUDA. The calls are queued, so that only host time
counts.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.framework import Absent, Row, Target

WIDTH, BATCH, CLASSES = 16, 8, 10
ROUNDS, CALLS = 60, 5


@functools.cache
def torch() -> Any:
    """Return PyTorch, limited to one thread."""
    try:
        import torch as library
    except ImportError:
        raise Absent("PyTorch isn't installed: nothing to compare with") from None
    library.set_num_threads(1)
    return library


def min_microseconds(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Return the minimum time per call over batches of a few queued calls; the device drains between batches."""
    least = float("inf")
    for number in range(ROUNDS + 5):
        for _ in range(CALLS):
            start = time.perf_counter()
            kept = call()
            if number >= 5:
                least = min(least, time.perf_counter() - start)
            del kept
        wait()
    return least * 1e6


def linear_stack(library: Any, *sizes: int) -> Any:
    layers: list[Any] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layers += [library.Linear(fan_in, fan_out), library.ReLU()]
    return library.Sequential(*layers[:-1])


def training_step(library: Any, optimizers: Any, tensor: Any) -> Callable[[], Any]:
    model = linear_stack(library, WIDTH, WIDTH, WIDTH, CLASSES)
    optimizer, loss_of = optimizers.Adam(model.parameters(), lr=1e-3), library.CrossEntropyLoss()
    random = np.random.default_rng(1)
    x = tensor(random.standard_normal((BATCH, WIDTH), dtype=np.float32))
    y = tensor(random.integers(0, CLASSES, BATCH))

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def addition(tensor: Any, recorded: bool) -> Callable[[], Any]:
    a, b = (tensor(np.ones(WIDTH, np.float32)) for _ in range(2))
    a.requires_grad_(recorded)
    return lambda: a + b


def product(tensor: Any) -> Callable[[], Any]:
    a, b = (tensor(np.ones((WIDTH, WIDTH), np.float32)) for _ in range(2))
    return lambda: a @ b


def ours(make: Callable[..., Callable[[], Any]], *args: Any) -> float:
    import vkjit as vk

    where = (vk.nn, vk.optim, vk.tensor) if make is training_step else (vk.tensor,)
    return min_microseconds(make(*where, *args), vk.synchronize)


def theirs(make: Callable[..., Callable[[], Any]], *args: Any) -> float:
    library = torch()
    where = (library.nn, library.optim, library.tensor) if make is training_step else (library.tensor,)
    return min_microseconds(make(*where, *args), lambda: None)


def captured_step() -> float:
    """Measure the replay of a captured training step, including the update of Adam's scalar arguments."""
    import vkjit as vk

    model = linear_stack(vk.nn, WIDTH, WIDTH, WIDTH, CLASSES)
    optimizer = vk.optim.Adam(model.parameters(), lr=1e-3)
    x, y = vk.randn(BATCH, WIDTH), vk.tensor(np.zeros(BATCH, np.int64))

    def step() -> Any:
        optimizer.zero_grad()
        loss = vk.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step()
    optimizer.capturable = True
    with vk.capture(x=x, y=y) as graph:
        step()
    return min_microseconds(lambda: graph.replay(x=x, y=y, **optimizer.advance(graph)), vk.synchronize)


# -- compared with CUDA

QUEUED: tuple[Callable[[Any, Any, Any, Any], Any], ...] = (
    lambda x, y, c, m: x + y,
    lambda x, y, c, m: x - y,
    lambda x, y, c, m: x * y,
    lambda x, y, c, m: x / y,
    lambda x, y, c, m: x + 1.5,
    lambda x, y, c, m: x * 2.0,
    lambda x, y, c, m: -x,
    lambda x, y, c, m: x.abs(),
    lambda x, y, c, m: x.exp(),
    lambda x, y, c, m: x.relu(),
    lambda x, y, c, m: x.sigmoid(),
    lambda x, y, c, m: x.tanh(),
    lambda x, y, c, m: x.sqrt(),
    lambda x, y, c, m: x.sum(),
    lambda x, y, c, m: x.mean(),
    lambda x, y, c, m: x.max(),
    lambda x, y, c, m: m.sum(0),
    lambda x, y, c, m: m.sum(1),
    lambda x, y, c, m: m.softmax(-1),
    lambda x, y, c, m: m @ m,
    lambda x, y, c, m: x.clone(),
    lambda x, y, c, m: x > y,
    lambda x, y, c, m: x.maximum(y),
    lambda x, y, c, m: x.clamp(-1.0, 1.0),
    lambda x, y, c, m: c.add_(y),
    lambda x, y, c, m: c.mul_(1.0),
)
"""Operations on `x` and `y` (1M elements), `c` (updated in place) and `m` (32 x 32)."""
MANY = 1 << 20


@functools.cache
def queued(ours: bool) -> float:
    """Return the median microseconds per queued call over `QUEUED`. Raises Absent without a GPU."""
    import vkjit as vk

    number = next((i.index for i in vk.devices() if i.kind in ("discrete", "integrated", "virtual")), None)
    if number is None:
        raise Absent("no hardware device with a Vulkan driver")
    device = vk.device(number)
    if not ours and not torch().cuda.is_available():
        raise Absent("PyTorch has no CUDA device")
    wait = device.synchronize if ours else torch().cuda.synchronize
    with vk.use_device(device):

        def tensor(values: Any) -> Any:
            return vk.tensor(values) if ours else torch().tensor(values, device="cuda")

        random = np.random.default_rng(1)
        x, y, c = (tensor(random.standard_normal(MANY, dtype=np.float32)) for _ in range(3))
        m = tensor(random.standard_normal((32, 32), dtype=np.float32))
        return float(np.median([_queued(call, (x, y, c, m), wait) for call in QUEUED]))


def _queued(call: Callable[..., Any], tensors: tuple[Any, ...], wait: Callable[[], None]) -> float:
    times = []
    for number in range(40):
        start = time.perf_counter()
        for _ in range(20):
            call(*tensors)
        if number >= 10:
            times.append((time.perf_counter() - start) / 20)
        wait()
    return float(np.median(times)) * 1e6


def row(name: str, make: Callable[..., Callable[[], Any]], *args: Any) -> Row:
    return Row(
        name, "us", functools.partial(ours, make, *args), Target(ratio=1.0), "torch, processor",
        functools.partial(theirs, make, *args),
    )  # fmt: skip


ROWS = [
    row("x + y of 16 elements", addition, False),
    row("x + y of 16 elements, recorded", addition, True),
    row("x @ y, 16 x 16", product),
    row("training step: MLP of three layers, Adam", training_step),
    Row(
        "the same step replayed as a graph", "us", captured_step, Target(ratio=1.0), "torch, processor",
        functools.partial(theirs, training_step),
    ),
    Row(
        "26 operations of 1M elements, the median", "us", lambda: queued(ours=True), Target(ratio=0.9), "torch, CUDA",
        lambda: queued(ours=False), rounds=1,
    ),
]  # fmt: skip
