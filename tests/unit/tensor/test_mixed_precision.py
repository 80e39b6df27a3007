"""Tests of autocast, gradient scaling, and activation checkpointing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn, optim
from vkjit.autograd import autocast, checkpoint
from vkjit.errors import ArgumentError, VkjitError


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


@pytest.mark.parametrize("shapes", [((16, 1, 3, 4), (16, 4, 6)), ((16, 4, 6), (16, 1, 6, 3)), ((3, 4), (16, 4, 6))])
def test_gradients_of_products_are_rounded_once(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Also where operands of different rank are broadcast along the batch: the sum over it is in f32."""
    random = np.random.default_rng(0)
    a, b = (vk.tensor(random.standard_normal(shape), dtype=vk.f16, requires_grad=True) for shape in shapes)
    product = a @ b
    gradient = vk.tensor(random.standard_normal(product.shape), dtype=vk.f16)
    product.backward(gradient)
    x, y, g = (t.detach().numpy().astype(np.float64) for t in (a, b, gradient))
    for operand, expected in ((a, g @ y.swapaxes(-1, -2)), (b, x.swapaxes(-1, -2) @ g)):
        extra = expected.ndim - operand.ndim
        axes = [i for i in range(expected.ndim) if i < extra or operand.shape[i - extra] != expected.shape[i]]
        expected = expected.sum(axis=tuple(axes)).reshape(operand.shape)
        assert operand.grad is not None
        unit = np.spacing(np.abs(expected).astype(np.float16)).astype(np.float64)
        assert (np.abs(operand.grad.numpy() - expected) <= 0.51 * unit).all()


# -- autocast


@pytest.mark.parametrize("dtype", [vk.f16, vk.bf16])
def test_products_are_16_bit_and_losses_f32(dtype: Any) -> None:
    vk.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    x, y = vk.randn(5, 6), vk.tensor([0, 1, 2, 1, 0])
    with autocast(dtype):
        hidden = model[0](x)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
    assert hidden.dtype is dtype and logits.dtype is dtype and loss.dtype is vk.f32
    assert model[2](vk.randn(2, 8)).dtype is vk.f32
    loss.backward()
    reference = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    assert len(reference) == 6
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    step = 2.0**-11 if dtype is vk.f16 else 2.0**-8
    for name, p in model.named_parameters():
        assert p.dtype is vk.f32 and p.grad is not None and p.grad.dtype is vk.f32
        # a gradient passes through two layers, each of which rounds values and gradients to 16 bits a few times
        np.testing.assert_allclose(reference[name], p.grad.numpy(), rtol=0, atol=16 * step, err_msg=name)


def test_autocast_ends_and_can_be_switched_off_within() -> None:
    a = vk.ones(2, 2)
    with autocast(vk.f16):
        with autocast(enabled=False):
            assert (a @ a).dtype is vk.f32
        assert (a @ a).dtype is vk.f16
        assert ((a @ a) + a).dtype is vk.f32
    assert (a @ a).dtype is vk.f32
    assert autocast(vk.bf16)(lambda: a @ a)().dtype is vk.bf16
    with vk.autocast("cuda", dtype=vk.f16):  # PyTorch's signature
        assert (a @ a).dtype is vk.f16
    assert vk.autocast("cpu")(lambda: a @ a)().dtype is vk.bf16
    assert vk.autocast("cpu", enabled=False)(lambda: a @ a)().dtype is vk.f32
    with pytest.raises(vk.DTypeError, match="one type, found vk.bf16 and dtype=vk.f16"):
        vk.autocast(vk.bf16, vk.f16)
    with pytest.raises(vk.DTypeError, match="found 'f16'"):
        vk.autocast("cuda", "f16")  # type: ignore[arg-type]
    with pytest.raises(vk.DTypeError, match="f16 or bf16"):
        autocast(vk.f32)


# -- gradient scaling


def test_scaled_steps_are_those_without_scale() -> None:
    results = []
    for enabled in (True, False):
        p = vk.tensor([1.0, 2.0], requires_grad=True)
        optimizer, scaler = optim.SGD([p], lr=0.5), optim.GradScaler(init_scale=1024.0, enabled=enabled)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((p * p).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(p.tolist())
    assert results[0] == results[1] == [0, 0]


def test_steps_with_infinite_gradients_are_left_out() -> None:
    p = vk.tensor([1.0], requires_grad=True)
    optimizer, scaler = optim.SGD([p], lr=0.5), optim.GradScaler(init_scale=8.0, growth_interval=2)
    scales = []
    for value in (float("inf"), 1.0, 1.0, float("nan"), 1.0):
        p.grad = vk.tensor([value * 8 if scaler.get_scale() == 8 else value * scaler.get_scale()])
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [4, 4, 8, 4, 4]
    assert p.tolist() == [1 - 3 * 0.5]
    other = optim.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 4


def test_finite_gradients_whose_sum_overflows_are_stepped() -> None:
    p = vk.zeros(4, requires_grad=True)
    p.grad = vk.full((4,), 3e38)
    optimizer, scaler = optim.SGD([p], lr=1e-38), optim.GradScaler(init_scale=1.0)
    scaler.unscale_(optimizer)
    with pytest.raises(VkjitError, match="unscaled since the last update"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert p[0].item() == pytest.approx(-3.0, rel=1e-5)
    scaler.update()
    with pytest.raises(VkjitError, match="without a step"):
        scaler.update()


# -- activation checkpointing


def test_a_checkpoint_gives_the_same_gradients_with_dropout() -> None:
    grads = []
    for again in (False, True):
        vk.manual_seed(4)
        model: Any = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 2))
        x = vk.randn(3, 4, requires_grad=True)
        y: Any = checkpoint(model, x) if again else model(x)
        (y * y).sum().backward()
        after = vk.rand(1).item()
        assert x.grad is not None
        grads.append([x.grad.tolist(), *(p.grad.tolist() for p in model.parameters()), y.tolist(), after])
    assert grads[0] == grads[1]


def test_a_checkpoint_keeps_its_arguments_alone() -> None:
    x = vk.ones(3)
    weight = vk.full((3,), 2.0, requires_grad=True)
    a, b = checkpoint(lambda v: (v * weight, v), x)
    assert a.requires_grad
    (a + b).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [1, 1, 1]
    with vk.no_grad():
        assert checkpoint(lambda v: v * 2, x).tolist() == [2, 2, 2]


def test_what_a_checkpoint_cannot_do_is_an_error() -> None:
    x = vk.ones(2, requires_grad=True)
    y = checkpoint(lambda v: v * v, x)
    with pytest.raises(ArgumentError, match="can't go through checkpoint"):
        vk.autograd.grad(y.sum(), x)
    with pytest.raises(ArgumentError, match="returns a tensor"):
        checkpoint(lambda v: None, x)


def test_a_second_step_without_an_update_is_refused() -> None:
    """The gradients would still be scaled, as `step` unscales them only once per update."""
    parameter = vk.zeros(2, requires_grad=True)
    optimizer, scaler = optim.SGD([parameter], lr=1.0), optim.GradScaler(init_scale=8.0)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    assert parameter.tolist() == [-1.0, -1.0]
    with pytest.raises(VkjitError, match="call update\\(\\) after each step"):
        scaler.step(optimizer)
    with pytest.raises(VkjitError, match="call update\\(\\) after each step"):
        scaler.unscale_(optimizer)
    scaler.update()
    optimizer.zero_grad()
    for loss in scaler.scale([parameter[0], parameter[1]]):
        loss.backward()
    scaler.step(optimizer)
    assert parameter.tolist() == [-2.0, -2.0]
