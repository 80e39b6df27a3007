"""Fuzz the op cache with repeated chains of operations, against NumPy: `python -m tests.device.tensor.op_cache_fuzz`.

Tensors of a few shapes are created, dropped, read, changed in place, viewed and used in several streams, threads and
captured graphs; some chains ask for gradients. All values are integers small enough for f32, so that results equal
NumPy's exactly. Repeated operations with cached dispatch reuse dropped memory immediately and track which streams must
wait for each other; a mistake there shows as a wrong number. The exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import vkjit as vk
from tests.device.language.staged import open_staged

__all__ = ["Chain", "main"]

SHAPES = ((5,), (700,), (64, 48), (70_000,))
"""The last shape is large enough that its memory is reused while the device still works on it."""
MAX_KEPT = 12
LIMIT = 1 << 20
"""Larger values are reduced again; f32 is exact for integers up to 2^24."""

Array = np.ndarray[Any, Any]
Pair = tuple[Any, Array]


class Chain:
    """A random sequence of operations on pairs of a tensor and its expected NumPy values."""

    def __init__(self, device: Any, seed: int, streams: int = 2) -> None:
        self.device, self.chance = device, random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.pairs: list[Pair] = []
        self.streams = [vk.Stream(device) for _ in range(streams)]
        self.done: list[str] = []
        self.actions: tuple[tuple[Callable[[], None], int], ...] = (
            (self.new, 2), (self.two, 12), (self.one, 6), (self.number, 8), (self.in_place, 8), (self.drop, 5),
            (self.read, 2), (self.view, 3), (self.gradient, 1), (self.elsewhere, 2), (self.graph, 1), (self.row, 3),
        )  # fmt: skip

    def run(self, steps: int) -> None:
        """Run random actions; raises AssertionError with the latest actions at the first difference."""
        actions, weights = zip(*self.actions, strict=True)
        with vk.use_device(self.device):
            for _ in range(steps):
                if len(self.pairs) < 3:
                    self.new()
                action = self.chance.choices(actions, weights)[0]
                self.done.append(action.__name__)
                action()
                del self.pairs[:-MAX_KEPT]
            for pair in self.pairs:
                self.check(pair)

    def check(self, pair: Pair) -> None:
        tensor, expected = pair
        found = tensor.numpy()
        if not np.array_equal(found, expected):
            places = np.argwhere(found != expected)
            raise AssertionError(
                f"{len(places)} of {expected.size} numbers of shape {expected.shape} differ, the first at {places[0]}: "
                f"{found[tuple(places[0])]} instead of {expected[tuple(places[0])]}, after {' '.join(self.done[-30:])}"
            )

    def keep(self, tensor: Any, expected: Array) -> None:
        """Add a pair; values that are too large are replaced by their signs."""
        expected = np.asarray(expected)  # a NumPy scalar couldn't be changed in place
        if expected.size and np.abs(expected).max() > LIMIT:
            tensor, expected = tensor.sign(), np.asarray(np.sign(expected))
        self.pairs.append((tensor, expected))

    def some(self) -> Pair:
        return self.chance.choice(self.pairs)

    def like(self, pair: Pair) -> Pair:
        """Return a pair of the same shape, often the same one."""
        return self.chance.choice([p for p in self.pairs if p[1].shape == pair[1].shape])

    # -- actions

    def new(self) -> None:
        values = self.values.integers(-9, 10, self.chance.choice(SHAPES)).astype(np.float32)
        self.pairs.append((vk.tensor(values, device=self.device), values))

    def two(self) -> None:
        (x, a), name = self.some(), self.chance.choice(("add", "sub", "mul", "maximum"))
        y, b = self.like((x, a))
        if name == "add":
            self.keep(x + y, a + b)
        elif name == "sub":
            self.keep(x - y, a - b)
        elif name == "maximum":
            self.keep(vk.maximum(x, y), np.maximum(a, b))
        elif np.abs(a).max() * np.abs(b).max() < LIMIT:
            self.keep(x * y, a * b)

    def one(self) -> None:
        x, a = self.some()
        name = self.chance.choice(("neg", "abs", "relu", "sign"))
        expected = {"neg": -a, "abs": np.abs(a), "relu": np.maximum(a, 0), "sign": np.sign(a)}[name]
        self.keep(getattr(x, name)(), expected + np.float32(0))

    def number(self) -> None:
        (x, a), n = self.some(), self.chance.choice((1.0, 2.0, -3.0, 1, 2, -1))
        self.keep(*((x + n, a + np.float32(n)) if self.chance.random() < 0.5 else (x * n, a * np.float32(n))))

    def in_place(self) -> None:
        x, a = self.some()
        y, b = self.like((x, a))
        if np.shares_memory(a, b) and a is not b:
            return  # the result of overlapping views is undefined
        if np.abs(a).max() > LIMIT or np.abs(b).max() > LIMIT:
            return
        kind = self.chance.randrange(4)
        if kind == 0:
            x.add_(y)
            a += b
        elif kind == 1:
            x.sub_(y)
            a -= b
        elif kind == 2:
            x.add_(2.0)
            a += np.float32(2)
        else:
            x.mul_(-1.0)
            a *= np.float32(-1)

    def drop(self) -> None:
        self.pairs.pop(self.chance.randrange(len(self.pairs)))

    def read(self) -> None:
        self.check(self.some())

    def view(self) -> None:
        x, a = self.some()
        if a.ndim == 1 and a.size > 8:
            start = self.chance.choice([n for n in (0, 1, 16, 64) if n < a.size])
            self.pairs.append((x[start : start + 600], a[start : start + 600]))
        elif a.ndim == 2:
            self.pairs.append((x[1:9], a[1:9]))

    def row(self) -> None:
        x, a = self.some()
        self.keep(x.sum(-1), a.sum(-1, dtype=np.float64).astype(np.float32) + np.float32(0))

    def gradient(self) -> None:
        x, a = self.some()
        y, b = self.like((x, a))
        if np.abs(a).max() > 1000 or np.abs(b).max() > 1000:
            return
        p, q = x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()
        ((p * q) + p).sum().backward()
        self.check((p.grad, b + 1))
        self.check((q.grad, a))

    def elsewhere(self) -> None:
        """Run a few actions in another stream, with tensors of this one."""
        with self.chance.choice(self.streams):
            for _ in range(3):
                self.chance.choice((self.two, self.one, self.number, self.in_place))()

    def graph(self) -> None:
        """Capture a graph and replay it after the operands have changed."""
        x, a = self.some()
        if np.abs(a).max() > 1000:
            return
        p = x.clone()
        with vk.capture(self.device) as captured:
            y = p * 2.0 + p
        for _ in range(2):
            captured.replay()
            self.check((y, a * 3))
            p.add_(1.0)
            a = a + 1


def in_threads(device: Any, seed: int, steps: int, count: int = 2) -> list[Exception]:
    """Run chains in concurrent threads on one device and return their failures.

    Graphs are left out, since their captures would include other threads' launches.
    """
    failures: list[Exception] = []

    def work(number: int) -> None:
        chain = Chain(device, seed * 100 + number)
        chain.actions = tuple(pair for pair in chain.actions if pair[0] != chain.graph)
        try:
            chain.run(steps)
        except Exception as error:  # noqa: BLE001  # any error is a failure
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="staged", help='a name, or "staged": a software driver taken for a GPU')
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args(arguments)
    device: Any = open_staged() if options.device == "staged" else vk.device(options.device)
    end, seed, failure_count = time.monotonic() + options.seconds, options.seed, 0
    while time.monotonic() < end:
        try:
            Chain(device, seed).run(options.steps)
        except Exception as error:  # noqa: BLE001  # any error is a failure
            failure_count += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
        for failure in in_threads(device, seed, options.steps):
            failure_count += 1
            print(f"seed {seed}, threads: {type(failure).__name__}: {failure}")
        seed += 1
    print(f"{seed - options.seed} rounds of {options.steps} steps, {failure_count} wrong")
    return 1 if failure_count else 0


if __name__ == "__main__":
    sys.exit(main())
