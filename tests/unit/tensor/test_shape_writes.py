"""Tests of in-place operations that change the shape: the memory is the same, and gradients are recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

CASES: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("t_", (), (2, 3)),
    ("t_", (), (4,)),
    ("t_", (), ()),
    ("transpose_", (0, -1), (2, 3, 4)),
    ("swapaxes_", (1, 2), (2, 3, 4)),
    ("swapdims_", (-1, 0), (2, 3)),
    ("squeeze_", (), (1, 3, 1)),
    ("squeeze_", (0,), (1, 3, 1)),
    ("squeeze_", ((0, 2),), (1, 3, 1)),
    ("squeeze_", (1,), (1, 3, 1)),
    ("unsqueeze_", (-1,), (2, 3)),
    ("unsqueeze_", (0,), ()),
]


def numbers(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def gradient(x: vk.Tensor) -> vk.Tensor:
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize(("name", "args", "shape"), CASES)
def test_the_tensor_itself_gets_the_shape(name: str, args: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    values = numbers(shape)
    x = vk.tensor(values)
    memory, expected = x.memory_key, getattr(vk.tensor(values), name[:-1])(*args)
    assert getattr(x, name)(*args) is x
    assert x.shape == expected.shape and x.strides == expected.strides and x.memory_key is memory and x.version == 1
    np.testing.assert_array_equal(x.numpy(), expected.numpy())


@pytest.mark.parametrize(("name", "args", "shape"), CASES)
def test_gradients_go_through(name: str, args: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    x = vk.tensor(numbers(shape)).requires_grad_()
    y = x * 2.0
    getattr(y, name)(*args)
    weights = vk.tensor(numbers(y.shape))
    (y * weights).sum().backward()
    plain = vk.tensor(numbers(shape)).requires_grad_()
    (getattr(plain * 2.0, name[:-1])(*args) * weights).sum().backward()
    np.testing.assert_array_equal(gradient(x).numpy(), gradient(plain).numpy())


def test_views_of_the_memory_stay() -> None:
    x = vk.tensor(numbers((2, 3))).requires_grad_()
    y = x * 2.0
    row = y[0]
    y.t_()
    (row.sum() + y.sum()).backward()
    assert gradient(x).tolist() == [[4, 4, 4], [2, 2, 2]]
    base = vk.zeros(2, 3)
    part = base[1:]
    part.squeeze_(0)
    part.fill_(1.0)
    assert part.shape == (3,) and base.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_writes_after_it_are_recorded() -> None:
    x = vk.tensor(numbers((2, 3))).requires_grad_()
    y = x * 2.0
    y.t_()
    y[0].mul_(3.0)
    y.add_(1.0)
    y.sum().backward()
    assert gradient(x).tolist() == [[6, 2, 2], [6, 2, 2]]


def test_what_a_rule_kept_is_refused() -> None:
    x = vk.tensor(numbers((2, 3))).requires_grad_()
    y = vk.exp(x)
    y.t_()
    with pytest.raises(vk.VkjitError, match="changed in place"):
        y.sum().backward()


def test_leaves() -> None:
    x = vk.tensor(numbers((2, 3))).requires_grad_()
    for name, args, _ in CASES[3:4] + CASES[6:7] + CASES[10:11]:
        with pytest.raises(vk.ArgumentError, match="a leaf that requires a gradient"):
            getattr(x, name)(*args)
    (x * x).sum().backward()
    with vk.no_grad():
        x.t_()
    assert x.shape == gradient(x).shape == (3, 2) and x.requires_grad and x.is_leaf
    (x * x).sum().backward()
    np.testing.assert_array_equal(gradient(x).numpy(), 4 * numbers((2, 3)).T)
    dependent = x * 2.0
    with vk.no_grad(), pytest.raises(vk.ArgumentError, match="depends on others"):
        dependent.t_()


def test_managed_tensors_refuse() -> None:
    with pytest.raises(vk.ArgumentError, match="managed"):
        vk.Tensor(numbers((2, 3)), managed=True).t_()
