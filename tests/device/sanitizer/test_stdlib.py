"""Standard library kernels under the sanitizer: no reports, in the variants for CPUs and for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.sanitizer import launch as sanitizing
from vkjit.stdlib.registry import forcing_class

N = 300


def values(*shape: int) -> Any:
    return vk.tensor(np.random.default_rng(len(shape)).random(shape, dtype=np.float32))


def trained() -> Any:
    """Run a forward and backward step of a small network and return a gradient."""
    x, w = values(9, 5), values(5, 3).requires_grad_()
    loss = vk.nn.functional.cross_entropy(vk.tanh(x @ w), vk.tensor(np.arange(9) % 3))
    loss.backward()
    return w.grad


def convolved() -> Any:
    x, w = values(2, 3, 9, 9).requires_grad_(), values(4, 3, 3, 3).requires_grad_()
    vk.nn.functional.conv2d(x, w, padding=1).sum().backward()
    return w.grad


def embedded() -> Any:
    table = values(7, 4).requires_grad_()
    vk.nn.functional.embedding(vk.tensor(np.array([0, 3, 3, 6, 3])), table).sum().backward()
    return table.grad


OPERATIONS: dict[str, Callable[[], Any]] = {
    "elementwise": lambda: vk.exp(values(N) + values(N)) * 2,
    "in place": lambda: values(N).add_(values(N)),
    "broadcast": lambda: values(17, 1) * values(1, 19),
    "sum": lambda: values(N).sum(),
    "sum of rows": lambda: values(7, N).sum(dim=1),
    "sum of columns": lambda: values(N, 7).sum(dim=0),
    "argmax": lambda: values(7, N).argmax(dim=1),
    "scan": lambda: values(3, N).cumsum(dim=1),
    "softmax": lambda: vk.softmax(values(5, N), dim=1),
    "norm": lambda: vk.nn.functional.layer_norm(values(5, N), (N,)),
    "product": lambda: values(33, 40) @ values(40, 35),
    "training": trained,
    "convolution": convolved,
    "embedding": embedded,
}

SLOW = frozenset({"product", "training", "convolution", "norm", "softmax"})
"""Operations whose GPU kernels take long to compile or interpret on other devices."""


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels launched under the sanitizer."""
    names: list[str] = []

    def launch(plan: Any, *rest: Any) -> None:
        names.append(plan.artifact.name)
        launched(plan, *rest)

    launched = sanitizing.launch
    monkeypatch.setattr(sanitizing, "launch", launch)
    return names


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in OPERATIONS])
def test_operations(device: Any, name: str, launches: list[str]) -> None:
    with vk.use_device(device), vk.testing.sanitized("bounds,uninitialised,races"):
        OPERATIONS[name]().numpy()
    assert launches


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - SLOW))
def test_variants_for_gpus(device: Any, name: str, launches: list[str]) -> None:
    with vk.use_device(device), forcing_class("gpu"), vk.testing.sanitized("bounds,uninitialised,races"):
        OPERATIONS[name]().numpy()
    assert launches


def test_a_product_through_shared_memory(launches: list[str]) -> None:
    with (
        vk.use_device(vk.device("interpreter")),
        forcing_class("gpu"),
        vk.testing.sanitized("bounds,uninitialised,races"),
    ):
        OPERATIONS["product"]().numpy()
    assert any("tiles" in name for name in launches)
