# mypy: disable-error-code="no-untyped-def, valid-type, index, operator"
"""Fuzz captured graphs against eager execution: `python -m tests.device.runtime.capture_fuzz --captures 1000`.

A random program makes views, writes in place, draws random numbers, uses constants and gradients, and replays another
graph. It runs in two worlds with equal tensors: eagerly, and captured and replayed. Between runs, arguments are replaced
or swapped, and results are written through. After each run, the values of all tensors of both worlds must be equal. A
program that fails is shrunk. The exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import vkjit as vk
from vkjit.nn import functional as F

__all__ = ["main", "search"]

Step = tuple[str, int, int, int]
"""An operation, and numbers that select its operands and parameters."""
SHAPES = ((8,), (4, 6), (2, 3, 4))
RUNS = 4


@vk.kernel(over="y", strict=True)
def mixed(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"], a: vk.f32):
    y[vk.global_id(0)] = y[vk.global_id(0)] * 0.5 + x[vk.global_id(0)] * a


def _write(x: Any, place: Any, value: Any) -> Any:
    x[place] = value
    return x.detach()  # not x itself, which replays with another argument don't change


def _gradient(x: Any, y: Any) -> Any:
    p = x.detach().clone().requires_grad_()
    (p * y.detach() + F.dropout(p, 0.5)).sum().backward()
    return p.grad


def _checkpointed(x: Any) -> Any:
    p = x.detach().clone().requires_grad_()
    vk.autograd.checkpoint(lambda t: F.dropout(t * t, 0.5), p).sum().backward()
    return p.grad


UNARY: dict[str, Callable[[Any, int], Any]] = {
    "neg": lambda x, n: -x,
    "abs": lambda x, n: x.abs(),
    "times": lambda x, n: x * (n % 3 - 1.5),
    "sum": lambda x, n: x.sum(-1),
    "cumsum": lambda x, n: x.cumsum(0),
    "cummax": lambda x, n: x.cummax(0)[0],
    "sort": lambda x, n: x.sort(-1)[0],
    "clone": lambda x, n: x.clone(),
    "softmax": lambda x, n: x.softmax(-1),
    "relu": lambda x, n: x.relu(),
    # views and functions that may return their operand
    "part": lambda x, n: x[n % 3 :],
    "step": lambda x, n: x[:: 1 + n % 2],
    "row": lambda x, n: x[n % x.shape[0]],
    "transpose": lambda x, n: x.transpose(0, -1),
    "reverse": lambda x, n: x[::-1],
    "flat": lambda x, n: x.reshape(-1),
    "same": lambda x, n: x.reshape(x.shape),
    "contiguous": lambda x, n: x.contiguous(),
    "to": lambda x, n: x.to(vk.f32),
    "inference": lambda x, n: F.dropout(x, 0.5, False),
    "detach": lambda x, n: x.detach(),
    "split": lambda x, n: x.split(2)[n % 2],
    "expand": lambda x, n: x[None].expand(2, *x.shape),
    "half": lambda x, n: x.unflatten(-1, (2, -1)),
    "diag": lambda x, n: x.diagonal(),
    # writes
    "add_": lambda x, n: x.add_(n % 5),
    "mul_": lambda x, n: x.mul_(0.5),
    "zero_": lambda x, n: x[n % 2 :].zero_(),
    "set": lambda x, n: _write(x, n % x.shape[0], 2.0),
    "set_list": lambda x, n: _write(x, [0, n % x.shape[0]], 3.0),
    "set_values": lambda x, n: _write(x, slice(0, 1), vk.tensor([float(n % 7)])),
    "clamp_": lambda x, n: x.clamp_(-2, 2),
    # random numbers
    "rand": lambda x, n: x + vk.rand(x.shape),
    "randn": lambda x, n: vk.randn_like(x),
    "randint": lambda x, n: x * vk.randint(0, 9, x.shape),
    "dropout": lambda x, n: F.dropout(x, 0.5),
    "uniform_": lambda x, n: x.uniform_(),
    "normal_": lambda x, n: x.normal_(),
    "bernoulli_": lambda x, n: x.bernoulli_(0.5),
    "randperm": lambda x, n: x[vk.randperm(x.shape[0])],
    "rrelu": lambda x, n: F.rrelu(x, training=True),
    "seeded": lambda x, n: x + vk.rand(x.shape, seed=n),
    "own": lambda x, n: x + vk.rand(x.shape, generator=vk.Generator(n)),
    "checkpoint": lambda x, n: _checkpointed(x),
    # constants
    "arange": lambda x, n: x + vk.arange(x.shape[-1]),
    "linspace": lambda x, n: x * vk.linspace(0, 1, x.shape[-1]),
    "eye": lambda x, n: x @ vk.eye(x.shape[-1]),
    "list": lambda x, n: x[..., [0, n % x.shape[-1]]],
    "tril": lambda x, n: x.tril(),
    "tensor": lambda x, n: x - vk.tensor([float(n % 9)]),
    "one_hot": lambda x, n: x[..., :1] + F.one_hot(vk.tensor(n % 3), 3),
    "causal": lambda x, n: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "resize": lambda x, n: F.interpolate(x[None], size=5),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "maximum": lambda x, y: vk.maximum(x, y),
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: vk.cat([x, y]),
    "where": lambda x, y: vk.where(x > 0, x, y),
    "gradient": _gradient,
    "iadd": lambda x, y: x.add_(y),
    "copy_": lambda x, y: x.copy_(y),
    "setrow": lambda x, y: _write(x, 0, y),
}
OTHERS = ("kernel", "inner", "generator", "tracked")
WRITES = {"iadd", "copy_", "setrow", "kernel"}
NAMES = (*UNARY, *BINARY, *OTHERS)


class World:
    """The tensors that a program works with: `arguments` by name, `state`, and the values that its last run computed."""

    def __init__(self, seed: int) -> None:
        numbers = np.random.default_rng(seed)

        def tensor(shape: tuple[int, ...]) -> Any:
            return vk.tensor(numbers.integers(-4, 5, shape).astype(np.float32))

        self.arguments = {name: tensor(shape) for name, shape in zip("xyzw", (*SHAPES, SHAPES[0]), strict=True)}
        self.state = [tensor(shape) for shape in SHAPES]
        self.parameter = tensor(SHAPES[0]).requires_grad_()
        self.generator = vk.Generator(seed)
        self.scalar = 1.5
        self.values: list[Any] = []
        vk.manual_seed(seed)
        source, self.drawn = self.state[0], vk.zeros(8)
        F.dropout(source, 0.5)  # so that seeds are uploaded
        with vk.capture() as self.inner:
            self.drawn.copy_(F.dropout(source, 0.5) + vk.rand(8) + source)
        vk.manual_seed(seed)

    def run(self, steps: list[Step], skipped: set[int] | None = None) -> None:
        """Run the program. With `skipped`, steps that raise errors are added to it."""
        values = self.values = [*self.arguments.values(), *self.state]
        for place, step in enumerate(steps):
            try:
                result = self.step(step, values)
            except (vk.VkjitError, IndexError, ZeroDivisionError):
                if skipped is None:
                    raise
                skipped.add(place)
            else:
                values.append(result)

    def step(self, step: Step, values: list[Any]) -> Any:
        """Run one step on the values so far and return its result."""
        name, first, second, number = step
        x, y = values[first % len(values)], values[second % len(values)]
        if name in WRITES and x.shares_memory_with(y):
            raise IndexError
        if name in UNARY:
            if x.ndim == 0:
                raise IndexError
            return UNARY[name](x, number)
        if name in BINARY:
            return BINARY[name](x, y)
        if name == "kernel":
            x, y = y.reshape(-1), self.state[number % 3].reshape(-1)
            if x.shape != y.shape or x.shares_memory_with(y):
                raise IndexError
            mixed(x, y, self.scalar)
            return y
        if name == "inner":
            self.inner.replay()
            return self.drawn
        if name == "tracked":
            return x[..., :8] * self.parameter[: x.shape[-1]]
        return x + vk.rand(x.shape, generator=self.generator)

    def gradient(self, place: int) -> Any:
        """Return the parameter's gradient of the sum of one value; None without or if autograd refuses."""
        computed = self.values[len(self.arguments) + len(self.state) :]
        recorded = [value for value in computed if value.requires_grad]
        if not recorded:
            return None
        self.parameter.grad = None
        try:
            recorded[place % len(recorded)].sum().backward(retain_graph=True)
        except vk.VkjitError:  # a value that it needs was written
            return None
        return None if self.parameter.grad is None else self.parameter.grad.numpy().copy()

    def forget_history(self) -> None:
        """Detach the tensors that a run has written in place from what autograd has recorded."""
        self.arguments = {name: x.detach() for name, x in self.arguments.items()}
        self.state = [x.detach() for x in self.state]

    def contents(self) -> list[Any]:
        """Return the contents of all tensors."""
        named = [*self.arguments.values(), *self.state, self.drawn, *self.values]
        return [t.detach().numpy().copy() for t in named]


def _new_arguments(world: World, chance: random.Random) -> dict[str, Any]:
    """Return arguments to replace: new tensors, the other of two of a shape, or parts of larger ones."""
    found: dict[str, Any] = {}
    for name, value in world.arguments.items():
        if chance.random() < 0.4:
            numbers = np.random.default_rng(chance.randrange(1 << 30)).integers(-4, 5, (2, *value.shape))
            values = numbers.astype(np.float32)
            found[name] = vk.tensor(values)[1] if chance.random() < 0.3 else vk.tensor(values[0])
    if chance.random() < 0.2:
        found["x"], found["w"] = world.arguments["w"], world.arguments["x"]
    return found


def _aligned(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without those that a graph refuses for their alignment."""
    return {name: x if x.__vkjit_array__.address % 64 == 0 else x.clone() for name, x in arguments.items()}


def difference(seed: int, steps: list[Step], counts: dict[str, int]) -> str | None:
    """Run a program in both worlds; return how they differ, or None."""
    eager, captured = World(seed), World(seed)
    vk.manual_seed(seed)
    unused: set[str] = set()
    while True:  # arguments that the program doesn't use can't be named
        named = {name: x for name, x in captured.arguments.items() if name not in unused}
        vk.manual_seed(seed)
        before = vk.get_rng_state(), captured.generator.get_state()
        try:
            with vk.capture(**named) as graph:
                captured.run(steps)
        except vk.ArgumentError as error:
            name = next((n for n in named if f"{n} isn't used" in str(error)), None)
            if name is None:
                return f"the capture is refused: {error}"
            unused.add(name)
            captured.forget_history()
            continue
        break
    if (vk.get_rng_state(), captured.generator.get_state()) != before:
        return "the capture has drawn random numbers"
    chance, random_state = random.Random(seed), vk.get_rng_state()
    for run in range(RUNS):
        plan = chance.randrange(1 << 30)
        poke, scalar = chance.randrange(1 << 30) if run else None, chance.choice((1.5, 2.0, -0.25))
        results = []
        for world in (eager, captured):
            vk.set_rng_state(random_state)
            if poke is not None:
                written = world.values[poke % len(world.values)]
                try:
                    written.detach().add_(1.0)
                except vk.VkjitError:
                    counts["unwritten"] = counts.get("unwritten", 0) + 1
                vk.rand(3)
            replaced = _aligned(_new_arguments(world, random.Random(plan))) if run else {}
            world.arguments |= replaced
            world.scalar = scalar
            if world is eager:
                world.run(steps)
            else:
                given = {name: x for name, x in replaced.items() if name in named}
                if "mixed.a" in graph.arguments:
                    given["mixed.a"] = scalar
                graph.replay(**given)
                world.values[: len(world.arguments)] = world.arguments.values()
            gradient = world.gradient(plan)
            if world is eager:  # replays know no history of earlier runs
                world.forget_history()
            results.append((world.contents(), gradient, vk.get_rng_state(), world.generator.get_state()))
        (ours, our_gradient, *ours_drawn), (theirs, their_gradient, *theirs_drawn) = results
        if our_gradient is not None and their_gradient is not None:
            counts["gradients"] = counts.get("gradients", 0) + 1
            if not np.allclose(our_gradient, their_gradient, rtol=1e-5, atol=1e-6, equal_nan=True):
                return f"run {run}: the gradient is {their_gradient}, expected {our_gradient}"
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if a.shape != b.shape or not np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True):
                return f"run {run}: tensor {place} is {b.reshape(-1)[:8]}, expected {a.reshape(-1)[:8]}"
        if ours_drawn != theirs_drawn:
            return f"run {run}: the random state is {theirs_drawn}, expected {ours_drawn}"
        random_state = ours_drawn[0]
    return None


def valid(seed: int, steps: list[Step]) -> list[Step]:
    """Return the steps that don't raise errors."""
    while True:
        skipped: set[int] = set()
        World(seed).run(steps, skipped)
        if not skipped:
            return steps
        steps = [step for place, step in enumerate(steps) if place not in skipped]


def search(seed: int, counts: dict[str, int]) -> str | None:
    """Return how one random program fails, after shrinking, or None."""
    chance = random.Random(seed)
    steps: list[Step] = [
        (
            chance.choice((*NAMES, *["tracked"] * 6)),
            chance.randrange(1 << 20),
            chance.randrange(1 << 20),
            chance.randrange(1 << 20),
        )
        for _ in range(chance.randrange(4, 26))
    ]
    steps = valid(seed, steps)
    found = difference(seed, steps, counts)
    counts["steps"] = counts.get("steps", 0) + len(steps)
    if found is None:
        return None
    place = 0
    while place < len(steps):
        fewer = valid(seed, steps[:place] + steps[place + 1 :])
        smaller = difference(seed, fewer, counts)
        if smaller is None:
            place += 1
        else:
            steps, found = fewer, smaller
    return f"{found}\n  {steps}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.device.runtime.capture_fuzz", description=__doc__)
    parser.add_argument("--captures", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new capture after that time")
    options = parser.parse_args(arguments)
    start, failures, count, counts = time.monotonic(), 0, 0, dict[str, int]()
    with vk.use_device(options.device):
        for seed in range(options.seed, options.seed + options.captures):
            if time.monotonic() - start > options.seconds:
                break
            count += 1
            found = search(seed, counts)
            if found is not None:
                failures += 1
                print(f"seed {seed}: {found}", flush=True)
    seconds = time.monotonic() - start
    work = f"{count} captures of {counts.get('steps', 0)} steps and {counts.get('gradients', 0)} gradients"
    print(f"{work} on {options.device} in {seconds:.0f} s: {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
