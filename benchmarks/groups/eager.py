"""What eager operations cost the host: microseconds of Python per operation and per training step, beside PyTorch on the processor.

Sizes are so small that kernels take next to no time; what is measured is the thread that calls, from the call to its return, the
least of many. PyTorch runs the same on the processor with one thread, where an operation costs about what it costs to launch one.
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
    """PyTorch with one thread."""
    try:
        import torch as library
    except ImportError:
        raise Absent("PyTorch isn't installed: nothing to compare with") from None
    library.set_num_threads(1)
    return library


def least_microseconds(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """The least time of a call over rounds of a few queued ones; between rounds the device catches up."""
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
    return least_microseconds(make(*where, *args), vk.synchronize)


def theirs(make: Callable[..., Callable[[], Any]], *args: Any) -> float:
    library = torch()
    where = (library.nn, library.optim, library.tensor) if make is training_step else (library.tensor,)
    return least_microseconds(make(*where, *args), lambda: None)


def captured_step() -> float:
    """A replay of the step as a graph, with the numbers of its Adam."""
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
    return least_microseconds(lambda: graph.replay(x=x, y=y, **optimizer.advance(graph)), vk.synchronize)


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
]  # fmt: skip
