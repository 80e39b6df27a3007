# mypy: disable-error-code="arg-type, misc, no-untyped-call, no-untyped-def, override, valid-type"
"""Kernels that get tensors that require gradients are refused while autograd records, instead of losing the gradient."""

from __future__ import annotations

import time
from typing import Any

import pytest

import vkjit as vk


@vk.kernel(over="y")
def squared(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)] * x[vk.global_id(0)]


@vk.kernel(over="y")
def squared_in_place(y: vk.InOut[vk.f32, "N"]):
    y[vk.global_id(0)] = y[vk.global_id(0)] * y[vk.global_id(0)]


class Squared(vk.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return squared(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2 * ctx.saved_tensors[0]


def leaf() -> Any:
    return vk.tensor([1.0, 2.0, 3.0], requires_grad=True)


def refusals(y: Any) -> list[Any]:
    """Return launches that would lose a gradient; `y` is a tensor that requires none."""
    x, base = leaf(), vk.zeros(3)
    view = base[0:3]
    base.add_(leaf())  # makes `view` stale: it requires a gradient now
    return [
        lambda: squared(x),
        lambda: squared(x * 2, y),
        lambda: squared(y, x),
        lambda: squared((x * 1)[0:3], y),
        lambda: squared_in_place(x * 1),
        lambda: squared_in_place(x),
        lambda: squared(view, y),
    ]


@pytest.mark.parametrize("warm", [False, True], ids=["first", "cached"])
def test_launches_that_would_lose_a_gradient_are_refused(device: Any, warm: bool) -> None:
    with vk.use_device(device):
        y, plain = vk.zeros(3), vk.ones(3)
        for _ in range(2 if warm else 0):
            for _ in range(1200):
                squared(plain, y)
                squared_in_place(y)
            time.sleep(0.5)  # machine code is made in the background
        for launch in refusals(y):
            with pytest.raises(
                vk.ArgumentError, match=r"squared.*requires a gradient.*\.detach\(\).*autograd.Function"
            ):
                launch()
        assert y.tolist() == [warm, warm, warm]


def test_the_ways_out(device: Any) -> None:
    with vk.use_device(device):
        x = leaf()
        assert squared(x.detach()).tolist() == [1, 4, 9]
        for _ in range(3):
            with vk.no_grad():
                assert squared(x).tolist() == [1, 4, 9]
                changed = x * 1
                squared_in_place(changed)
                assert changed.tolist() == [1, 4, 9]
            with pytest.raises(vk.ArgumentError, match="requires a gradient"):
                squared(x)
        ((x * 3).sum() + Squared.apply(x * 2).sum()).backward()
        assert x.grad.tolist() == [11, 19, 27]


def test_captures_refuse_them_too(device: Any) -> None:
    with vk.use_device(device):
        y = vk.zeros(3)
        x = leaf()
        with pytest.raises(vk.ArgumentError, match="requires a gradient"), vk.capture(y=y):
            squared(x, y)
