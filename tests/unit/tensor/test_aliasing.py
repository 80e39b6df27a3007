"""Tests of autograd and aliasing: in-place operations, shared gradients, kernels that write tensors, changing indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk


@vk.kernel(over="y")
def increment(y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = y[i] + 1.0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda y: y.pow_(2), 6.0),
        (lambda y: y.square_(), 6.0),
        (lambda y: y.add_(y), 2.0),
        (lambda y: y.mul_(y), 6.0),
        (lambda y: y.clamp_(0.0, 1.0), 0.0),
        (lambda y: y.log_(), 1 / 3),
        (lambda y: y.mul_(4.0), 4.0),
    ],
)
def test_operations_in_place_know_their_old_value(device: Any, change: Callable[[Any], Any], expected: float) -> None:
    x = vk.tensor([3.0], requires_grad=True)
    change(x * 1).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(expected, rel=4 * 2.0**-23)


def test_the_other_operand_gets_the_old_value(device: Any) -> None:
    w = vk.tensor([2.0], requires_grad=True)
    y = vk.ones(1) * 5
    y *= w
    y.sum().backward()
    assert w.grad is not None
    assert w.grad.item() == 5.0


def test_gradients_of_leaves_have_memory_of_their_own(device: Any) -> None:
    a, b = (vk.tensor([1.0, 1.0], requires_grad=True) for _ in range(2))
    ((a + b) * vk.tensor([1.0, 2.0])).sum().backward()
    for leaf in (a, b):
        assert leaf.grad is not None
        leaf.grad.div_(2)
    assert a.grad is not None and b.grad is not None
    np.testing.assert_array_equal(a.grad.numpy(), [0.5, 1.0])
    np.testing.assert_array_equal(b.grad.numpy(), [0.5, 1.0])


def test_the_seed_of_backward_stays_the_callers(device: Any) -> None:
    seed = vk.ones(2)
    x = vk.tensor([1.0, 2.0], requires_grad=True)
    x.clone().backward(seed)
    assert x.grad is not None
    x.grad.zero_()
    np.testing.assert_array_equal(seed.numpy(), [1.0, 1.0])


def test_the_gradient_of_a_sum_can_be_changed(device: Any) -> None:
    x = vk.tensor([1.0, 2.0], requires_grad=True)
    x.sum().backward()
    assert x.grad is not None
    x.grad.mul_(0.5)
    np.testing.assert_array_equal(x.grad.numpy(), [0.5, 0.5])


def test_a_kernel_that_writes_a_tensor_counts_as_a_change(device: Any) -> None:
    for _ in range(3):  # the first launch and repeated ones use different paths
        x = vk.tensor([1.0, 2.0], requires_grad=True)
        y = x * 1
        z = y * y
        increment(y.detach())
        with pytest.raises(vk.VkjitError, match="changed in place"):
            z.sum().backward()


@pytest.mark.parametrize("read", [lambda x, i: x[i], lambda x, i: x.gather(0, i)])
def test_an_index_that_changes_is_noticed(device: Any, read: Callable[[Any, Any], Any]) -> None:
    x = vk.tensor([1.0, 2.0, 3.0], requires_grad=True)
    i = vk.tensor([0, 1])
    y = read(x, i)
    i += 1
    with pytest.raises(vk.VkjitError, match="changed in place"):
        y.sum().backward()


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[vk.tensor([2])],
        lambda x: x[vk.tensor([-3])],
        lambda x: x.index_select(1, vk.tensor([9])),
        lambda x: x.gather(1, vk.tensor([[9]])),
        lambda x: vk.nn.functional.one_hot(vk.tensor([3, 5]), 4),
    ],
)
def test_indices_out_of_range_are_reported(device: Any, read: Callable[[Any], Any]) -> None:
    x = vk.arange(6.0).reshape(2, 3)
    with pytest.raises(vk.KernelAssertionError, match="out of range"):
        read(x).numpy()


def test_numbers_become_integers_as_in_kernels(device: Any) -> None:
    made = vk.tensor([2e9, -3.7], dtype=vk.i32)
    np.testing.assert_array_equal(made.numpy(), [2_000_000_000, -3])
    for number in (1e10, float("nan")):
        with pytest.raises(vk.DTypeError, match="don't fit|out of range"):
            vk.tensor([number, 1.0], dtype=vk.i32)
    with pytest.raises(vk.DTypeError, match="don't fit"):
        vk.tensor(300, dtype=vk.u8)
