"""Gradients compared with finite differences, on every executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [vk.f64, vk.f32], ids=lambda t: t.name)
@pytest.mark.parametrize("full", [True, False], ids=["full", "directions"])
def test_right_gradients_pass(device: Any, dtype: Any, full: bool) -> None:
    def function(x: Any, w: Any) -> Any:
        return vk.tanh(x @ w).sum(dim=0), x * 3.0

    inputs = [RNG.standard_normal((3, 4)), RNG.standard_normal((4, 2))]
    vk.testing.check_grads(function, inputs, device=device, dtype=dtype, full=full)


@pytest.mark.parametrize("dtype", [vk.f64, vk.f32], ids=lambda t: t.name)
def test_a_wrong_gradient_is_found(device: Any, dtype: Any) -> None:
    def function(x: Any) -> Any:
        return x * x.detach()  # autograd sees half of the derivative

    with pytest.raises(vk.testing.GradientError) as caught:
        vk.testing.check_grads(function, [RNG.standard_normal(3)], device=device, dtype=dtype, full=True)
    error = caught.value
    assert error.input == 0 and error.index == (0,) and error.difference == pytest.approx(2 * error.gradient, rel=1e-2)


def test_inputs_that_are_no_floats_are_passed_on(device: Any) -> None:
    def function(x: Any, factor: Any, index: Any) -> Any:
        return x[index] * factor

    vk.testing.check_grads(function, [RNG.standard_normal((4, 3)), 2, 1], device=device)


def test_an_unused_input_has_no_gradient(device: Any) -> None:
    vk.testing.check_grads(lambda x, y: x * 2.0 + 0.0 * y.detach(), [np.ones(3), np.ones(3)], device=device)


def test_what_can_not_be_checked_is_refused(device: Any) -> None:
    with pytest.raises(vk.ArgumentError, match="no floating point array"):
        vk.testing.check_grads(lambda x: x, [np.ones(3, np.int32)], device=device)
    with pytest.raises(vk.ArgumentError, match="floating point type"):
        vk.testing.check_grads(lambda x: x, [np.ones(3)], dtype=vk.i32, device=device)
    with pytest.raises(vk.ArgumentError, match="gives no floating point tensor"):
        vk.testing.check_grads(lambda x: x.shape, [np.ones(3)], device=device)
