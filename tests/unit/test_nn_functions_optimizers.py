"""Steps of optimisers against PyTorch, several steps each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402  # after the check that skips
from vkjit.stdlib import optimizers  # noqa: E402

STEPS = 4
UNIT = 2.0**-24
Run = Callable[[Any, list[Any]], None]


def sgd(options: dict[str, Any]) -> Run:
    def run(p: Any, gradients: list[Any]) -> None:
        velocity = vk.zeros_like(p)._array if options.get("momentum") else None
        for step, g in enumerate(gradients):
            optimizers.sgd(
                p._array, g._array, velocity, rate=options["lr"], momentum=options.get("momentum", 0.0),
                dampening=options.get("dampening", 0.0), decay=options.get("weight_decay", 0.0),
                nesterov=options.get("nesterov", False), first=step == 0,
            )  # fmt: skip

    return run


def adam(options: dict[str, Any], decoupled: bool) -> Run:
    def run(p: Any, gradients: list[Any]) -> None:
        mean, square = vk.zeros_like(p), vk.zeros_like(p)
        largest = vk.zeros_like(p)._array if options.get("amsgrad") else None
        for step, g in enumerate(gradients, 1):
            optimizers.adam(
                p._array, g._array, mean._array, square._array, largest, step=step, rate=options["lr"],
                betas=options.get("betas", (0.9, 0.999)), decay=options.get("weight_decay", 0.01 if decoupled else 0.0),
                decoupled=decoupled,
            )  # fmt: skip

    return run


def rmsprop(options: dict[str, Any]) -> Run:
    def run(p: Any, gradients: list[Any]) -> None:
        square = vk.zeros_like(p)
        velocity = vk.zeros_like(p)._array if options.get("momentum") else None
        mean = vk.zeros_like(p)._array if options.get("centered") else None
        for g in gradients:
            optimizers.rmsprop(
                p._array, g._array, square._array, velocity, mean, rate=options["lr"], alpha=options.get("alpha", 0.99),
                decay=options.get("weight_decay", 0.0), momentum=options.get("momentum", 0.0),
            )  # fmt: skip

    return run


def adagrad(options: dict[str, Any]) -> Run:
    def run(p: Any, gradients: list[Any]) -> None:
        total = vk.zeros_like(p)
        for g in gradients:
            optimizers.adagrad(
                p._array, g._array, total._array, rate=options["lr"], decay=options.get("weight_decay", 0.0)
            )

    return run


CASES: list[tuple[str, dict[str, Any], Callable[[dict[str, Any]], Run]]] = [
    ("SGD", {"lr": 0.1}, sgd),
    ("SGD", {"lr": 0.1, "weight_decay": 0.02}, sgd),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, sgd),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}, sgd),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True}, sgd),
    ("Adam", {"lr": 0.01}, lambda o: adam(o, False)),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}, lambda o: adam(o, False)),
    ("Adam", {"lr": 0.01, "amsgrad": True}, lambda o: adam(o, False)),
    ("AdamW", {"lr": 0.01}, lambda o: adam(o, True)),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.2, "amsgrad": True}, lambda o: adam(o, True)),
    ("RMSprop", {"lr": 0.01}, rmsprop),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1, "alpha": 0.9}, rmsprop),
    ("Adagrad", {"lr": 0.05, "weight_decay": 0.1}, adagrad),
]


@pytest.mark.parametrize(("name", "options", "make"), CASES, ids=[f"{n} {o}" for n, o, _ in CASES])
def test_steps(device: Any, name: str, options: dict[str, Any], make: Callable[[dict[str, Any]], Run]) -> None:
    for shape in [(7,), (3, 5), (1,), (0, 4), (257,)]:
        rng = np.random.default_rng(sum(shape))
        values = rng.standard_normal(shape).astype(np.float32)
        gradients = [rng.standard_normal(shape).astype(np.float32) for _ in range(STEPS)]
        mine = vk.tensor(values)
        make(options)(mine, [vk.tensor(g) for g in gradients])
        other = torch.tensor(values.astype(np.float64), requires_grad=True)
        optimizer = getattr(torch.optim, name)([other], **options)
        for g in gradients:
            other.grad = torch.tensor(g.astype(np.float64))
            optimizer.step()
        expected = other.detach().numpy()
        # each step adds a few roundings of the parameter, and of a step of at most 10 times the rate
        bound = UNIT * STEPS * 16 * (np.abs(expected) + np.abs(values) + 10 * options["lr"])
        assert np.all(np.abs(mine.numpy() - expected) <= bound), (name, shape, np.abs(mine.numpy() - expected).max())


def test_lion(device: Any) -> None:
    rng = np.random.default_rng(1)
    p, m = rng.standard_normal(50).astype(np.float32), np.zeros(50)
    mine, mean = vk.tensor(p), vk.zeros(50)
    expected = p.astype(np.float64)
    for _ in range(STEPS):
        g = rng.standard_normal(50).astype(np.float32)
        optimizers.lion(mine._array, vk.tensor(g)._array, mean._array, rate=0.01, decay=0.1)
        expected = expected * (1 - 0.01 * 0.1) - 0.01 * np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
    assert np.all(np.abs(mine.numpy() - expected) <= UNIT * STEPS * 4 * (np.abs(expected) + 0.1))


def test_views_and_half_precision(device: Any) -> None:
    rng = np.random.default_rng(2)
    values, g = rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal((4, 6)).astype(np.float32)
    mine, slope = vk.tensor(values), vk.tensor(g)
    optimizers.sgd(mine._array, slope.t()._array, rate=0.5)
    assert np.all(np.abs(mine.numpy() - (values - 0.5 * g.T)) <= UNIT * 4 * (np.abs(values) + np.abs(g.T)))
    half = vk.tensor(values.astype(np.float16))
    optimizers.sgd(half._array, slope.t()._array, rate=0.5)
    expected = values.astype(np.float16).astype(np.float64) - 0.5 * g.T
    assert np.all(np.abs(half.numpy() - expected) <= 2.0**-11 * np.abs(expected) + 2.0**-20)
