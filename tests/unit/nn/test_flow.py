"""Tests of `nn.flow`: names, layers and live memory of a model's tensors; the model is left unchanged."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import vkjit as vk
from vkjit import nn


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


class Residual(nn.Module):
    def __init__(self) -> None:
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + self.inner(x).relu()


def test_operations_in_order_with_what_they_take_and_give() -> None:
    model = nn.Sequential(nn.Linear(3, 4), Residual())
    found = nn.flow(model, vk.ones(5, 3))
    assert [(r.layer, r.operation, r.takes) for r in found.rows] == [
        ("0", "linear", ("input 0", "0.weight", "0.bias")),
        ("1.inner", "linear", ("t0", "1.inner.weight", "1.inner.bias")),
        ("1", "relu", ("t1",)),
        ("1", "add", ("t0", "t2")),
    ]
    assert found.rows[0].gives == (("t0", (5, 4), "f32"),)
    assert found.results == ("t3",)


def test_what_is_still_needed_is_counted_once_and_parameters_not_at_all() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter(vk.ones(8))

        def forward(self, x: Any) -> Any:
            y = x.exp()
            halves = y[:, :4] + y[:, 4:]
            return halves * self.scale[:4]

    rows = nn.flow(Views(), vk.ones(2, 8)).rows
    assert [r.operation for r in rows] == ["exp", "slice", "slice", "add", "slice", "mul"]
    assert [r.live_nbytes for r in rows] == [64, 64, 64, 32, 32, 32]
    assert nn.flow(Views(), vk.ones(2, 8)).peak_nbytes == 64


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)).train()

    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("broken")

    text = str(nn.flow(model, vk.ones(1, 3)))
    assert "0.weight" in text and "peak 16 bytes" in text
    assert all(m.training for m in model.modules())
    broken = nn.Sequential(nn.Tanh(), Broken())
    with pytest.raises(ValueError, match="broken"):
        nn.flow(broken, vk.ones(2))
    assert broken.training
    hooks = broken[0]._hooks
    assert hooks is None or not (hooks.before or hooks.after)
    y = broken[0](vk.ones(2, requires_grad=True))
    assert y.requires_grad


def test_other_threads_may_use_the_model_meanwhile() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x, expected, errors = vk.ones(1, 4), str(nn.flow(model, vk.ones(1, 4))), []
    done = threading.Event()

    def call(repeat: Callable[[], Any]) -> None:
        try:
            with vk.use_device("interpreter"):
                while not done.is_set():
                    repeat()
        except Exception as error:  # noqa: BLE001  # any error of a thread
            errors.append(error)

    calls = (lambda: model(x), lambda: nn.flow(model, x), lambda: nn.summary(model, x))
    threads = [threading.Thread(target=call, args=(repeat,)) for repeat in calls]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        texts = {str(nn.flow(model, x)) for _ in range(15)}
    finally:
        sys.setswitchinterval(interval)
        done.set()
        for thread in threads:
            thread.join()
    assert (errors, texts) == ([], {expected})
    assert model.training
