"""Gradient rules of nn operations compared with finite differences, including second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.ops.test_gradient_rules import between, check_rule, normal, well_separated
from vkjit.stdlib.registry import forcing_class
from vkjit.tensor.nn import pool
from vkjit.tensor.nn.embedding import dropout_with_seed
from vkjit.tensor.ops.random import seed_tensor

F = vk.nn.functional
CLASSES = np.array([2, 0, 3, 1])
ROWS = np.array([[0, 2, 1], [2, 2, 0]])


def classes() -> Any:
    return vk.tensor(CLASSES)


def of_gradient(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the gradient of a function, as a function of x and of the incoming gradient."""

    def slope(x: Any, given: Any) -> Any:
        with vk.enable_grad():
            leaf = x if x.requires_grad else x.detach().requires_grad_()
            return vk.grad([function(leaf)], [leaf], [given], create_graph=True)[0]

    return slope


def for_gpus(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with GPU kernels."""

    def run(*arguments: Any) -> Any:
        with forcing_class("gpu"):
            return function(*arguments)

    return run


class _Cube(vk.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:  # noqa: D102
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # noqa: D102
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x


def _elsewhere(x: Any) -> Any:
    return x.to(device=vk.device("interpreter")).to(device=x.device) ** 2


def _at_places(x: Any) -> Any:
    """Gather x at the max indices of a picture, as in the second derivative of max pooling."""
    picture = vk.tensor(PICTURE, dtype=x.dtype, requires_grad=True)
    with vk.enable_grad():
        pooled, _ = F.max_pool2d(picture, 2, return_indices=True)
        node = pooled.meta.node
    return pool.gather_at_indices(x, node.output(1), **node.params) ** 2


PICTURE = well_separated(1, 2, 4, 4)
HALVES = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])

SMOOTH: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "gather_at_indices": (_at_places, [normal(1, 2, 4, 4)]),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2) ** 2, [normal(1, 2, 4, 4)]),
    "avg_pool_gradient": (of_gradient(lambda x: F.avg_pool2d(x, 2)), [normal(1, 1, 4, 4), normal(1, 1, 2, 2)]),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True) ** 2,
        [normal(4, 2, 3), between(0.5, 2, 2), normal(2)],
    ),
    "binary_entropy": (
        lambda x, t: F.binary_cross_entropy(x, t),
        [between(0.2, 0.8, 2, 3), between(0.2, 0.8, 2, 3)],
    ),
    "binary_entropy_logits": (
        lambda x, t: F.binary_cross_entropy_with_logits(x, t),
        [normal(2, 3), between(0.2, 0.8, 2, 3)],
    ),
    "bag_sum": (
        lambda w: F.embedding_bag(vk.tensor(ROWS).reshape(-1), w, vk.tensor([0, 1, 1]), mode="sum") ** 2,
        [normal(4, 3)],
    ),
    "convolution": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1) ** 2,
        [normal(1, 2, 4, 4), normal(3, 2, 3, 3), normal(3)],
    ),
    "convolution_input": (lambda x, w: F.conv2d(x, w) ** 2, [normal(1, 2, 4, 4), normal(3, 2, 3, 3)]),
    "convolution_weight": (lambda x, w: F.conv1d(x, w) ** 2, [normal(1, 2, 5), normal(3, 2, 3)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, classes(), reduction="sum"), [normal(4, 4)]),
    "divergence": (lambda x, t: F.kl_div(x, t, reduction="sum"), [normal(2, 3), between(0.2, 0.8, 2, 3)]),
    "dropout": (lambda x: dropout_with_seed(x, seed_tensor(3, x.device), 0.5) ** 2, [normal(8)]),
    "embedding": (lambda w: F.embedding(vk.tensor(ROWS), w) ** 2, [normal(4, 3)]),
    "embedding_gradient": (of_gradient(lambda w: F.embedding(vk.tensor(ROWS), w)), [normal(4, 3), normal(2, 3, 3)]),
    "norm_with_statistics": (
        lambda x, w, b: (
            F.batch_norm(x, vk.tensor([0.5, -0.5], dtype=x.dtype), vk.tensor([2.0, 1.0], dtype=x.dtype), w, b) ** 2
        ),
        [normal(4, 2, 3), between(0.5, 2, 2), normal(2)],
    ),
    "function": (_Cube.apply, [normal(5)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b) ** 2, [normal(2, 4, 3), between(0.5, 2, 4), normal(4)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b) ** 2, [normal(3, 4), between(0.5, 2, 4), normal(4)]),
    "linear": (lambda x, w, b: F.linear(x, w, b) ** 2, [normal(3, 4), normal(2, 4), normal(2)]),
    "log_divergence": (lambda x, t: F.kl_div(x, t, reduction="sum", log_target=True), [normal(2, 3), normal(2, 3)]),
    "move": (_elsewhere, [normal(5)]),
    "nll": (lambda x: F.nll_loss(x, classes(), reduction="sum") ** 2, [normal(4, 4)]),
    "nll_gradient": (of_gradient(lambda x: F.nll_loss(x, classes(), reduction="none")), [normal(4, 4), normal(4)]),
    "squared_difference": (lambda x, t: F.mse_loss(x, t), [normal(2, 3), normal(2, 3)]),
}
"""Rules whose second derivatives are checked, too."""

OTHERS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "absolute_difference": (lambda x, t: F.l1_loss(x, t), [well_separated(6), well_separated(6) / 3 + 0.1]),
    "cross_entropy_mean": (for_gpus(lambda x: F.cross_entropy(x, classes())), [normal(4, 4)]),
    "ctc": (
        lambda x: F.ctc_loss(
            vk.log_softmax(x, 2), vk.tensor([[1, 2], [2, 1]]), vk.tensor([4, 4]), vk.tensor([2, 2])
        ),
        [normal(4, 2, 3)],
    ),
    "huber": (lambda x, t: F.huber_loss(x, t, delta=0.7), [well_separated(6), normal(6) / 9]),
    "max_pool": (lambda x: F.max_pool2d(x, 2), [PICTURE]),
    "max_pool_gradient": (
        of_gradient(lambda x: F.max_pool2d(x, 2)), [PICTURE, normal(1, 2, 2, 2)]
    ),
    "mean_of_rows": (for_gpus(lambda x: F.nll_loss(x, classes())), [normal(4, 4)]),
    "smooth_l1": (lambda x, t: F.smooth_l1_loss(x, t, beta=0.7), [well_separated(6), normal(6) / 9]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SMOOTH))
def test_first_and_second_derivatives(device: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_rule(monkeypatch, name, SMOOTH[name], device, 2)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_first_derivatives(device: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_rule(monkeypatch, name, OTHERS[name], device, 1)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_checkpoints_have_the_gradients_of_what_they_run_again(device: Any, scale: float) -> None:
    """`check_grads` doesn't go through checkpoints, so compare with the function without one."""
    slopes = []
    for run in (lambda f, x: f(x), vk.autograd.checkpoint):
        with vk.use_device(device):
            x = vk.tensor([0.5, -1.0, 2.0], requires_grad=True)
            run(lambda y: (y.sin() * y * scale).sum(), x).backward()
            assert x.grad is not None
            slopes.append(x.grad.tolist())
    assert slopes[0] == slopes[1]
