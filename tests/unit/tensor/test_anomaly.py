"""Tests of anomaly mode: the error names the operation that produced the first NaN and the line that called it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import vkjit as vk
from vkjit.tensor.autograd import tape
from vkjit.tensor.autograd.mode import modes


def leaf(*values: float) -> Any:
    return vk.tensor(list(values), requires_grad=True)


def line_of(function: Callable[..., Any], text: str) -> str:
    """Return `file:line in function: source` for the function's first line that contains a text."""
    lines, first = inspect.getsourcelines(function)
    number, line = next((n, s) for n, s in enumerate(lines, first) if text in s)
    return f"{inspect.getsourcefile(function)}:{number} in {function.__name__}: {line.strip()}"


def root_of(x: Any) -> Any:
    y = x * 2.0
    return y.sqrt() * 0.0


def test_the_gradient_and_its_line_are_named(device: Any) -> None:
    x = leaf(0.0, 4.0)
    with vk.autograd.detect_anomaly(), pytest.raises(vk.VkjitError) as caught:
        root_of(x).sum().backward()
    text = str(caught.value)
    assert text.startswith("the gradient of operand 0 (shape (2,)) of sqrt holds NaN; it was recorded at")
    assert line_of(root_of, "y.sqrt()") in text and "called from " in text
    assert x.grad is None


def test_a_layer_is_named_by_the_users_line(device: Any) -> None:
    layer = vk.nn.Linear(2, 2)

    def forward(x: Any) -> Any:
        return vk.nn.functional.layer_norm(layer(x.log()), (2,))

    with vk.autograd.detect_anomaly(), pytest.raises(vk.VkjitError, match="holds NaN") as caught:
        forward(leaf(-1.0, 2.0)).sum().backward()
    assert line_of(forward, "layer_norm") in str(caught.value)


def test_seeds_that_are_nan_are_told_apart(device: Any) -> None:
    x = leaf(1.0)
    with vk.autograd.detect_anomaly(), pytest.raises(vk.VkjitError, match="backward\\(\\) was started with it"):
        (x * 2.0).backward(vk.tensor([float("nan")]))


def test_a_forward_pass_outside_of_the_mode_has_no_line(device: Any) -> None:
    y = root_of(leaf(0.0)).sum()
    with vk.autograd.detect_anomaly(), pytest.raises(vk.VkjitError, match="of sqrt holds NaN; it was recorded outside"):
        y.backward()


def test_results_are_looked_at_where_asked_for(device: Any) -> None:
    def forward(x: Any) -> Any:
        y = x - 1.0
        return y.log()

    x = vk.tensor([0.5, 3.0])
    with vk.autograd.detect_anomaly():
        forward(x)
    with vk.autograd.detect_anomaly(forward=True), pytest.raises(vk.VkjitError) as caught:
        forward(x)
    text = str(caught.value)
    assert text.startswith("result 0 (shape (2,)) of log holds NaN, and no operand does; it was called at")
    assert line_of(forward, "y.log()") in text
    with vk.autograd.detect_anomaly(forward=True):
        assert (vk.tensor([float("nan")]) + 1.0).isnan().item()  # the operand had the NaN already
        y = vk.tensor([-4.0])
        with pytest.raises(vk.VkjitError, match="of sqrt holds NaN"):
            y.sqrt_()


def test_errors_of_backward_get_the_line(device: Any) -> None:
    def forward(x: Any) -> Any:
        y = x * 1.0
        z = y.exp()
        z += 1.0
        return z

    with vk.autograd.detect_anomaly(), pytest.raises(vk.VkjitError, match="changed in place") as caught:
        forward(leaf(1.0)).sum().backward()
    assert line_of(forward, "y.exp()") in str(caught.value)


class Broken(vk.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        return gradient / 0.0 * 0.0


def test_functions_of_the_user_are_named(device: Any) -> None:
    with vk.autograd.detect_anomaly(), pytest.raises(vk.VkjitError, match=r"of function \(Broken\) holds NaN"):
        Broken.apply(leaf(1.0)).sum().backward()


def test_the_mode_ends_and_nests() -> None:
    assert not vk.autograd.is_anomaly_enabled()
    with vk.autograd.detect_anomaly(forward=True):
        with vk.autograd.set_detect_anomaly(False):
            assert not vk.autograd.is_anomaly_enabled() and not modes.get().intercepts
        assert vk.autograd.is_anomaly_enabled() and modes.get().interceptor is not None
        with vk.autograd.autocast(vk.bf16):
            assert modes.get().intercepts
        assert modes.get().intercepts
    assert not vk.autograd.is_anomaly_enabled() and not modes.get().intercepts
    assert tape.NodeClass is tape.Node
    vk.autograd.set_detect_anomaly(True)
    assert vk.autograd.is_anomaly_enabled()
    vk.autograd.set_detect_anomaly(False)
    assert tape.NodeClass is tape.Node


@vk.autograd.detect_anomaly(check_nan=False)
def unchecked(x: Any) -> None:
    root_of(x).sum().backward()


def test_looking_for_nan_can_be_left_out(device: Any) -> None:
    x = leaf(0.0)
    unchecked(x)
    assert x.grad.isnan().item()
