"""Training steps and the operations they consist of, on the default device, compared with PyTorch.

PyTorch runs on CUDA if the default device is an NVIDIA GPU that PyTorch can use, else on the CPU. Sizes depend on the
kind of device. Each row is checked against PyTorch before timing; PyTorch computes in full f32 (no TF32). The time per
call is that of a batch of queued calls, from the first call to the end of the last, divided by their number.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.framework import Absent, Row, Target

SECONDS = 0.6
"""Approximate duration of a measurement."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One benchmark in both libraries: `ours()` and `theirs()` queue it and return the resulting tensor."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    tolerance: float
    work: float = 0.0
    """Bytes or operations per call, for rates."""


@functools.cache
def torch() -> Any:
    """Return PyTorch, set to compute in full f32."""
    try:
        import torch as library
    except ImportError:
        raise Absent("PyTorch isn't installed: nothing to check and compare with") from None
    library.backends.cuda.matmul.allow_tf32 = False
    library.backends.cudnn.allow_tf32 = False
    return library


@functools.cache
def on_gpu() -> bool:
    """True if the default device is a GPU."""
    import vkjit as vk

    return vk.default_device().caps.kind not in ("cpu", "llvm-cpu", "interpreter")


@functools.cache
def reference_device() -> str:
    """Return the name of the PyTorch device to compare with."""
    import vkjit as vk

    is_nvidia = "nvidia" in vk.default_device().name.lower()
    return "cuda" if is_nvidia and torch().cuda.is_available() else "cpu"


def both(array: Any) -> tuple[Any, Any]:
    """Return the array as a vkjit tensor and a PyTorch tensor, on the compared devices."""
    import vkjit as vk

    return vk.tensor(array), torch().tensor(array, device=reference_device())


def wait_ours() -> None:
    import vkjit as vk

    vk.synchronize()


def wait_theirs() -> None:
    if reference_device() == "cuda":
        torch().cuda.synchronize()


def seconds_per_call(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Return the median time per call over batches of queued calls; a batch takes a tenth of `SECONDS`."""
    for _ in range(3):
        call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    count = max(1, min(200, int(SECONDS / 10 / max(time.perf_counter() - start, 1e-6))))
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


def values_of(result: Any) -> Any:
    """Return the values of a tensor of either library."""
    result = result.detach()
    on_host = result.cpu() if type(result).__module__.startswith("torch") else result
    return np.asarray(on_host.numpy(), np.float64)


def checked(pair: Pair, name: str) -> Pair:
    """Return the pair if both results agree; the tolerance is relative to the largest value."""
    found, expected = values_of(pair.ours()), values_of(pair.theirs())
    if found.shape != expected.shape:
        raise RuntimeError(f"{name}: shape {found.shape}, PyTorch gives {expected.shape}")
    error = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))
    if not error <= pair.tolerance:
        raise RuntimeError(f"{name}: differs from PyTorch by {error:.2e}, allowed are {pair.tolerance:.2e}")
    return pair


# -- operations


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


EPS = 2.0**-24


def make_add() -> Pair:
    count = 2**26 if on_gpu() else 2**22
    (a, ta), (b, tb) = both(normal(count)), both(normal(count, seed=1))
    return Pair(lambda: a + b, lambda: ta + tb, EPS, 12.0 * count)


def make_sum() -> Pair:
    count = 2**26 if on_gpu() else 2**22
    a, ta = both(np.abs(normal(count)))
    return Pair(lambda: a.sum(), lambda: ta.sum(), 32 * EPS, 4.0 * count)


def make_softmax() -> Pair:
    import vkjit as vk

    rows, columns = (4096, 4096) if on_gpu() else (512, 1024)
    a, ta = both(normal(rows, columns))
    return Pair(lambda: vk.nn.functional.softmax(a, -1), lambda: ta.softmax(-1), 32 * EPS, 8.0 * rows * columns)


def make_matmul() -> Pair:
    size = 2048 if on_gpu() else 512
    (a, ta), (b, tb) = both(normal(size, size)), both(normal(size, size, seed=1))
    return Pair(lambda: a @ b, lambda: ta @ tb, size * EPS, 2.0 * size**3)


def make_conv() -> Pair:
    import vkjit as vk

    batch, channels, filters, edge = (32, 64, 64, 56) if on_gpu() else (4, 16, 16, 28)
    (x, tx), (w, tw) = both(normal(batch, channels, edge, edge)), both(normal(filters, channels, 3, 3, seed=1))
    conv, reference = vk.nn.functional.conv2d, torch().nn.functional.conv2d
    work = 2.0 * batch * filters * edge * edge * channels * 9
    return Pair(lambda: conv(x, w, padding=1), lambda: reference(tx, tw, padding=1), channels * 9 * EPS, work)


# -- training steps


def stepper(library: Any, optimizers: Any, model: Any, x: Any, y: Any) -> Callable[[], Any]:
    optimizer = optimizers.Adam(model.parameters(), lr=1e-3)
    loss_of = library.CrossEntropyLoss()

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def make_training(make: Callable[[Any], Any], shape: tuple[int, ...]) -> Pair:
    """Return a training step in both libraries, from the same weights.

    The pair's result is the loss; the check compares the loss of the fourth step.
    """
    import vkjit as vk

    x, tx = both(normal(*shape))
    y, ty = both(np.random.default_rng(2).integers(0, 10, shape[0]))
    theirs = make(torch().nn).to(reference_device())
    ours = make(vk.nn)
    ours.load_state_dict(theirs.state_dict())
    first = stepper(vk.nn, vk.optim, ours, x, y)
    second = stepper(torch().nn, torch().optim, theirs, tx, ty)
    for _ in range(3):
        first()
        second()
    return Pair(first, second, 2000 * EPS)  # sums of up to 784 terms, three steps of Adam


def mlp(*sizes: int) -> Callable[[Any], Any]:
    def make(library: Any) -> Any:
        layers: list[Any] = []
        for fan_in, fan_out in itertools.pairwise(sizes):
            layers += [library.Linear(fan_in, fan_out), library.ReLU()]
        return library.Sequential(*layers[:-1])

    return make


def cnn(library: Any) -> Any:
    return library.Sequential(
        library.Conv2d(1, 16, 3, padding=1), library.ReLU(), library.MaxPool2d(2),
        library.Conv2d(16, 32, 3, padding=1), library.ReLU(), library.MaxPool2d(2),
        library.Flatten(), library.Linear(32 * 49, 10),
    )  # fmt: skip


# -- rows


@functools.cache
def pair_of(name: str) -> Pair:
    """Create and check the benchmark of a row, once."""
    return checked(JOBS[name][1](), name)


def measure(name: str, side: str) -> float:
    unit = JOBS[name][0]
    pair = pair_of(name)
    seconds = seconds_per_call(getattr(pair, side), wait_ours if side == "ours" else wait_theirs)
    return seconds * 1e3 if unit == "ms" else pair.work / seconds / 1e9


JOBS: dict[str, tuple[str, Callable[[], Pair]]] = {
    "MLP 784-128-10, batch 128, Adam: step": ("ms", lambda: make_training(mlp(784, 128, 10), (128, 784))),
    "MLP 784-512-512-10, batch 128, Adam: step": ("ms", lambda: make_training(mlp(784, 512, 512, 10), (128, 784))),
    "CNN 16-32 on 28 x 28, batch 64, Adam: step": ("ms", lambda: make_training(cnn, (64, 1, 28, 28))),
    "add, f32": ("GB/s", make_add),
    "sum, f32": ("GB/s", make_sum),
    "softmax along rows, f32": ("GB/s", make_softmax),
    "matmul, f32": ("GFLOP/s", make_matmul),
    "conv2d 3 x 3, f32": ("GFLOP/s", make_conv),
}


def target_of(name: str) -> Target:
    """Return PyTorch's time as the target, or twice that for a training step on a CPU."""
    return Target(ratio=1.0 if on_gpu() or not name.endswith("step") else 0.5)


ROWS = [
    Row(
        name,
        unit,
        functools.partial(measure, name, "ours"),
        functools.partial(target_of, name),
        "torch",
        functools.partial(measure, name, "theirs"),
    )
    for name, (unit, _) in JOBS.items()
]
