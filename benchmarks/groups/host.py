"""Host time of eager operations on tiny tensors, beside PyTorch's in the same process.

Each operation is called with one set of operands and with four in turn, in f16 and f32, with and without recording for
autograd. A figure is the median of 100 consecutive calls after the first 10, 100 or 10,000, measured on the calling
thread until the call returns; the device drains between batches, outside of the measurement. The results are dropped at
once, as in most programs.

On a hardware device PyTorch runs on CUDA, otherwise on one thread of the CPU. `VKJIT_HOST_DEVICE` names the device
(default: the first hardware device, else "cpu").

A block of GPT-2 is measured, too: one sequence of 128 tokens, f16, eager, without recording, on a hardware device or one
that `VKJIT_HOST_DEVICE` names. Its result is verified first.
"""

from __future__ import annotations

import functools
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.framework import Absent, Row, Target
from benchmarks.gpt2_block import gpt2_block, inputs

STAGES = (10, 100, 10_000)
"""Calls before a figure is measured."""
BATCH, BATCHES = 10, 10

ROWS_, WIDTH = 4, 16


@dataclass(frozen=True, slots=True)
class Library:
    """vkjit or PyTorch: module, the function that waits for the device, and how a tensor is made."""

    module: Any
    wait: Callable[[], None]
    place: Callable[[Any], Any]
    float_type: Any
    recorded: bool
    random: np.random.Generator

    def floats(self, *shape: int) -> Any:
        """Return a tensor of random values in the measured type; it requires a gradient if calls are recorded."""
        x = self.place(self.random.standard_normal(shape, dtype=np.float32)).to(self.float_type)
        return x.requires_grad_(True) if self.recorded else x

    def integers(self, high: int, *shape: int) -> Any:
        return self.place(self.random.integers(0, high, shape))

    @property
    def functional(self) -> Any:
        return self.module.nn.functional


Make = Callable[[Library], Callable[[], Any]]


def _add(lib: Library) -> Callable[[], Any]:
    x, y = lib.floats(WIDTH), lib.floats(WIDTH)
    return lambda: x + y


def _softmax(lib: Library) -> Callable[[], Any]:
    x, softmax = lib.floats(ROWS_, WIDTH), lib.functional.softmax
    return lambda: softmax(x, -1)


def _product(lib: Library) -> Callable[[], Any]:
    a, b = lib.floats(ROWS_, WIDTH), lib.floats(WIDTH, WIDTH)
    return lambda: a @ b


def _linear(lib: Library) -> Callable[[], Any]:
    x, w, b, linear = lib.floats(ROWS_, WIDTH), lib.floats(WIDTH, WIDTH), lib.floats(WIDTH), lib.functional.linear
    return lambda: linear(x, w, b)


def _layer_norm(lib: Library) -> Callable[[], Any]:
    x, w, b, norm = lib.floats(ROWS_, WIDTH), lib.floats(WIDTH), lib.floats(WIDTH), lib.functional.layer_norm
    return lambda: norm(x, (WIDTH,), w, b)


def _conv2d(lib: Library) -> Callable[[], Any]:
    x, w, b, conv = lib.floats(1, 4, 8, 8), lib.floats(4, 4, 3, 3), lib.floats(4), lib.functional.conv2d
    return lambda: conv(x, w, b, padding=1)


def _attention(lib: Library) -> Callable[[], Any]:
    q, k, v = (lib.floats(1, 2, 4, 16) for _ in range(3))
    attention = lib.functional.scaled_dot_product_attention
    return lambda: attention(q, k, v, is_causal=True)


def _views(lib: Library) -> Callable[[], Any]:
    x = lib.floats(ROWS_, WIDTH)
    return lambda: x.reshape(ROWS_, 4, 4).permute(1, 0, 2)


def _slice(lib: Library) -> Callable[[], Any]:
    x = lib.floats(ROWS_, WIDTH)
    return lambda: x[1:3]


def _embedding(lib: Library) -> Callable[[], Any]:
    table, index, embedding = lib.floats(32, WIDTH), lib.integers(32, 4), lib.functional.embedding
    return lambda: embedding(index, table)


def _cross_entropy(lib: Library) -> Callable[[], Any]:
    x, y, loss = lib.floats(ROWS_, WIDTH), lib.integers(WIDTH, ROWS_), lib.functional.cross_entropy
    return lambda: loss(x, y)


def _cat(lib: Library) -> Callable[[], Any]:
    x, y, cat = lib.floats(ROWS_, WIDTH), lib.floats(ROWS_, WIDTH), lib.module.cat
    return lambda: cat([x, y], 1)


def _index(lib: Library) -> Callable[[], Any]:
    x, index = lib.floats(32, WIDTH), lib.integers(32, 4)
    return lambda: x[index]


def _transpose(lib: Library) -> Callable[[], Any]:
    x = lib.floats(ROWS_, WIDTH)
    return lambda: x.transpose(0, 1).contiguous()


def _dropout(lib: Library) -> Callable[[], Any]:
    x, dropout = lib.floats(ROWS_, WIDTH), lib.functional.dropout
    return lambda: dropout(x, 0.5, True)


def _batch_norm(lib: Library) -> Callable[[], Any]:
    layer = lib.module.nn.BatchNorm1d(WIDTH)
    layer = layer.to(lib.place(np.zeros(1, np.float32)).device).to(lib.float_type)
    for parameter in layer.parameters():
        parameter.requires_grad_(lib.recorded)
    x = lib.floats(ROWS_, WIDTH)
    return lambda: layer(x)


def _pool(lib: Library) -> Callable[[], Any]:
    x, pool = lib.floats(1, 4, 8, 8), lib.functional.max_pool2d
    return lambda: pool(x, 2)


def _adam(lib: Library) -> Callable[[], Any]:
    shapes: tuple[tuple[int, ...], ...] = ((WIDTH, WIDTH), (WIDTH,)) * 3
    parameters = [lib.module.nn.Parameter(lib.floats(*shape).detach()) for shape in shapes]
    for parameter, shape in zip(parameters, shapes, strict=True):
        parameter.grad = lib.floats(*shape).detach()
    return lib.module.optim.Adam(parameters, lr=1e-3, **({} if _is_ours(lib) else {"foreach": True})).step


def _is_ours(lib: Library) -> bool:
    return str(lib.module.__name__) == "vkjit"


OPERATIONS: dict[str, tuple[Make, float]] = {
    "x + y": (_add, 12),
    "softmax": (_softmax, 12),
    "a @ b": (_product, 12),
    "linear with bias": (_linear, 12),
    "layer norm": (_layer_norm, 12),
    "conv2d": (_conv2d, 15),
    "attention": (_attention, 15),
    "reshape + permute": (_views, 3),
    "slice": (_slice, 3),
    "embedding": (_embedding, 12),
    "cross entropy": (_cross_entropy, 12),
    "cat": (_cat, 12),
    "index": (_index, 12),
    "transpose, contiguous": (_transpose, 12),
    "dropout": (_dropout, 12),
    "batch norm": (_batch_norm, 12),
    "max pooling": (_pool, 12),
    "Adam, 6 tensors": (_adam, float("inf")),
}
"""Operations and the microseconds that a call may take on a hardware device, whatever PyTorch takes."""


@functools.cache
def device() -> Any:
    """Return the device to measure."""
    import vkjit as vk

    if name := os.environ.get("VKJIT_HOST_DEVICE"):
        return vk.device(name)
    number = next((i.index for i in vk.devices() if i.kind in ("discrete", "integrated", "virtual")), None)
    return vk.device("cpu") if number is None else vk.device(number)


def is_hardware() -> bool:
    return device().caps.kind in ("discrete", "integrated", "virtual")


def ours(half: bool, recorded: bool) -> Library:
    import vkjit as vk

    return Library(
        vk, device().synchronize, lambda x: vk.tensor(x, device=device()), vk.f16 if half else vk.f32, recorded,
        np.random.default_rng(1),
    )  # fmt: skip


def theirs(half: bool, recorded: bool) -> Library:
    try:
        import torch
    except ImportError:
        raise Absent("PyTorch isn't installed") from None
    torch.set_num_threads(1)
    if is_hardware() and not torch.cuda.is_available():
        raise Absent("PyTorch has no CUDA device")
    place, wait = ("cuda", torch.cuda.synchronize) if is_hardware() else ("cpu", lambda: None)
    return Library(
        torch, wait, lambda x: torch.tensor(x, device=place), torch.float16 if half else torch.float32, recorded,
        np.random.default_rng(1),
    )  # fmt: skip


def _median_microseconds(calls: Iterator[Callable[[], Any]], wait: Callable[[], None]) -> float:
    """Return the median time of a call over some batches."""
    times = []
    for _ in range(BATCHES):
        for _ in range(BATCH):
            call = next(calls)
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        wait()
    return statistics.median(times) * 1e6


@functools.cache
def stages(name: str, library: Callable[[bool, bool], Library], half: bool, recorded: bool, sets: int) -> list[float]:
    """Return the figures of an operation after each number of calls of `STAGES`."""
    lib = library(half, recorded)
    make, _ = OPERATIONS[name]
    # Recording is on where nothing else is said; inference runs without it.
    with lib.module.enable_grad() if recorded else lib.module.no_grad():
        made = [make(lib) for _ in range(sets)]
        calls, done, figures = itertools.cycle(made), 0, []
        for stage in STAGES:
            while done < stage:
                next(calls)()
                done += 1
                if done % BATCH == 0:
                    lib.wait()
            figures.append(_median_microseconds(calls, lib.wait))
            done += BATCH * BATCHES
        return figures


@functools.cache
def block(library: Callable[[bool, bool], Library]) -> tuple[float, float, Any]:
    """Return the milliseconds of a forward pass of a GPT-2 block, and its result.

    The first figure is the median time until the call returns, with calls queued in batches; the second the median time
    per call from the first call of a batch until the device has run the last.
    """
    if not is_hardware() and "VKJIT_HOST_DEVICE" not in os.environ:
        raise Absent("no hardware device with a Vulkan driver; VKJIT_HOST_DEVICE names another one")
    if "f16" not in device().caps.dtypes:
        raise Absent(f"{device().name} has no f16")
    lib = library(True, False)
    x = lib.place(inputs()).to(lib.float_type)
    module = gpt2_block(lib.module).to(x.device).to(lib.float_type)
    warmup, batches, batch = (200, 20, 20) if is_hardware() else (3, 2, 2)
    with lib.module.no_grad():
        result = module(x).float()
        values = (result if _is_ours(lib) else result.cpu()).numpy()
        for _ in range(warmup):
            module(x)
        host, wall = [], []
        for _ in range(batches):
            lib.wait()
            begin = time.perf_counter()
            for _ in range(batch):
                start = time.perf_counter()
                module(x)
                host.append(time.perf_counter() - start)
            lib.wait()
            wall.append((time.perf_counter() - begin) / batch)
    return statistics.median(host) * 1e3, statistics.median(wall) * 1e3, values


def block_of_torch(figure: int) -> float:
    """Return PyTorch's figure. Raises RuntimeError if the results differ by more than f16 allows."""
    expected = block(theirs)[2]
    error = float(np.abs(block(ours)[2] - expected).max() / np.abs(expected).max())
    if not error <= 5e-3:
        raise RuntimeError(f"the block's result differs from PyTorch's by {error:.1e} of its largest value")
    return float(block(theirs)[figure])


def _block_row(name: str, figure: int) -> Row:
    return Row(
        f"GPT-2 block forward, 1 x 128 tokens, f16, eager, no_grad: {name}", "ms", lambda: block(ours)[figure],
        Target(value=0.30), "torch", lambda: block_of_torch(figure), rounds=1,
    )  # fmt: skip


def _row(name: str, half: bool, recorded: bool, sets: int, stage: int) -> Row:
    place = STAGES.index(stage)

    def target() -> Target:
        if not is_hardware():
            return Target(ratio=0.25)  # and 0.5 in the median over all rows
        limit = OPERATIONS[name][1] * (3 if stage == STAGES[0] else 1)
        ratio = 1.0 / 3 if stage == STAGES[0] else 1.0
        return Target(ratio=ratio) if limit == float("inf") else Target(limit, ratio)

    mode = f"{'f16' if half else 'f32'}, {'recorded' if recorded else 'no_grad'}"
    return Row(
        f"{name}, {mode}, {sets} set{'s' if sets > 1 else ''}, after {stage:,} calls", "us",
        lambda: stages(name, ours, half, recorded, sets)[place], target, "torch",
        lambda: stages(name, theirs, half, recorded, sets)[place], rounds=1,
    )  # fmt: skip


ROWS = [
    _row(name, half, recorded, sets, stage)
    for name in OPERATIONS
    for half in (True, False)
    for recorded in (False, True)
    if name != "Adam, 6 tensors" or not (half or recorded)
    for sets in (1, 4)
    for stage in STAGES
] + [_block_row("host time", 0), _block_row("wall time", 1)]
