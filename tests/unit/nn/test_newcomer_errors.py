"""Tests of programs written for PyTorch: checkpoints, tensors, modules, averages of parameters, gradient scalers."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn, optim
from vkjit.autograd import checkpoint
from vkjit.errors import ArgumentError


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


# -- checkpoints


def test_a_checkpoint_leaves_the_graph_around_it_to_others() -> None:
    x = vk.tensor([0.5, 2.0], requires_grad=True)
    outer = x * 2
    (checkpoint(lambda v: v * outer, x).sum() + outer.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [4.0, 10.0]  # 4 x + 2


@pytest.mark.parametrize("form", ["list", "keyword"])
def test_a_checkpoint_takes_tensors_in_lists_and_keywords(form: str) -> None:
    x = vk.tensor([0.5, 2.0], requires_grad=True)
    outer = x * 2
    if form == "list":
        y = checkpoint(lambda pair: pair[0] * pair[1], [x, outer])
    else:
        y = checkpoint(lambda v, by: v * by, x, by=outer)
    (y.sum() + outer.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [4.0, 10.0]


def test_a_graph_that_is_retained_goes_through_a_checkpoint_twice() -> None:
    x = vk.tensor([3.0], requires_grad=True)
    outer = x * 2
    loss = checkpoint(lambda v: v * outer, x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert x.grad is not None and x.grad.tolist() == [24.0]


# -- tensors


def test_pickling_says_how_tensors_are_saved() -> None:
    for what in (vk.ones(1), nn.Parameter(vk.ones(1)), nn.Linear(1, 1), {"a": vk.ones(1)}):
        with pytest.raises(ArgumentError, match=r"can't be pickled: save them with vk\.io\.save"):
            pickle.dumps(what)


def test_a_shallow_copy_is_the_same_tensor() -> None:
    for x in (vk.ones(2, requires_grad=True), nn.Parameter(vk.ones(2))):
        y: Any = copy.copy(x)
        assert type(y) is type(x) and y.meta is x.meta and y is not x
    managed: Any = vk.Tensor(np.ones(2), managed=True)
    copy.copy(managed).add_(1)
    assert managed.tolist() == [2.0, 2.0]


def test_gradients_that_are_none_are_refused() -> None:
    x = vk.ones(2, requires_grad=True)
    for value, message in (
        (np.ones(2), "found ndarray"),
        ([1.0, 1.0], "found list"),
        (vk.ones(2, dtype=vk.i64), "found vk.i64"),
        (vk.ones(2, device="meta"), "lies with its tensor"),
        (vk.ones(1), "doesn't fit"),
    ):
        with pytest.raises(ArgumentError, match=message):
            x.grad = value
    assert x.grad is None


def test_other_memory_keeps_hooks_and_what_was_recorded() -> None:
    layer, calls = nn.Linear(2, 1), []
    layer.weight.register_hook(lambda _: calls.append(1))
    loss = layer(vk.ones(1, 2)).sum()
    layer.weight.data = vk.zeros(1, 2)
    loss.backward()
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [[1.0, 1.0]] and len(calls) == 1
    layer.to(vk.f64)
    layer(vk.ones(1, 2, dtype=vk.f64)).sum().backward()
    assert layer.weight.grad.tolist() == [[2.0, 2.0]] and len(calls) == 2


# -- modules


@pytest.mark.parametrize("name", ["weight", "table", "child"])
def test_what_is_registered_is_not_replaced_by_anything_else(name: str) -> None:
    module: Any = nn.Linear(1, 1)
    module.register_buffer("table", vk.ones(2))
    module.child = nn.ReLU()
    with pytest.raises(ArgumentError, match="or None, found int"):
        setattr(module, name, 3)
    assert set(module.state_dict()) == {"weight", "bias", "table"} and len(list(module.children())) == 1


def test_sequences_of_modules_change_as_lists_do() -> None:
    a, b, c, d = (nn.Linear(1, 1) for _ in range(4))
    for made in (nn.Sequential(a, b), nn.ModuleList([a, b])):
        model: Any = made
        model.insert(0, c)
        model.extend([d])
        assert list(model) == [c, a, b, d]
        assert model.pop() is d and model.pop(0) is c
        assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"] and list(model) == [a, b]
        del model[0]
        assert list(model) == [b] and model[0] is b
        assert list(model + type(model)()) == [b]
        with pytest.raises(ArgumentError, match="is a vk.nn.Module"):
            model.insert(0, 3)
        assert list(model) == [b]
        with pytest.raises(IndexError):
            del model[5]
    more: Any = nn.ModuleList([a])
    more += more
    assert list(more) == [a, a]
    named: Any = nn.Sequential({"first": a, "second": b, "third": c})
    del named[1]
    assert [name for name, _ in named.named_children()] == ["first", "third"]
    del named[:]
    assert len(named) == 0


def test_instance_norms_forget_their_statistics() -> None:
    norm: Any = nn.InstanceNorm1d(2, track_running_stats=True)
    norm(vk.rand(2, 2, 5) + 3)
    norm.reset_running_stats()
    assert norm.running_mean.tolist() == [0, 0] and norm.running_var.tolist() == [1, 1]


# -- optimizers, averages, scalers and schedules


def test_a_state_that_was_left_behind_is_told_and_moved() -> None:
    layer = nn.Linear(2, 1)
    optimizer = optim.Adam(layer.parameters(), lr=0.1)

    def step(device: str) -> None:
        optimizer.zero_grad()
        layer(vk.ones(1, 2, device=device)).sum().backward()
        optimizer.step()

    step("interpreter")
    layer.to("cpu" if "cpu" in [d.name for d in vk.devices()] else pytest.skip("there is no second device"))
    with pytest.raises(ArgumentError, match=r"load_state_dict\(optimizer\.state_dict\(\)\) moves"):
        step("cpu")
    optimizer.load_state_dict(optimizer.state_dict())
    step("cpu")


def test_averages_of_16_bits_go_on_moving() -> None:
    parameter = nn.Parameter(vk.ones(1, dtype=vk.f16))
    averages = optim.EMA([parameter], 0.999)
    with vk.no_grad():
        parameter.fill_(2.0)
    for _ in range(100):
        averages.update()
    np.testing.assert_allclose(averages.averages[0].tolist(), [2 - 0.999**100], rtol=1e-5)
    with averages.averaged():
        assert parameter.dtype is vk.f16 and abs(parameter.item() - (2 - 0.999**100)) < 1e-3


def test_averages_take_parameters_and_their_own_state() -> None:
    for wrong in (nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1))):
        with pytest.raises(ArgumentError, match=r"pass .*parameters\(\)"):
            optim.EMA(wrong)  # type: ignore[arg-type]
    averages = optim.EMA([nn.Parameter(vk.ones(2))])
    with pytest.raises(ArgumentError, match="a mapping with"):
        averages.load_state_dict({})
    averages.load_state_dict({"averages": [np.full(2, 3.0)], "updates": 4})
    assert averages.averages[0].tolist() == [3.0, 3.0] and averages.updates == 4


def test_a_scaler_goes_on_from_pytorchs_state() -> None:
    scaler = optim.GradScaler()
    state = {"scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 3}
    scaler.load_state_dict(state)
    assert scaler.state_dict() == {"scale": 8.0, "good_steps": 3}
    assert (scaler.growth_factor, scaler.backoff_factor, scaler.growth_interval) == (4.0, 0.25, 7)


@pytest.mark.parametrize(
    "state", [{}, None, {"scale": -1.0, "good_steps": 0}, {"scale": math.nan, "good_steps": 0}, {"scale": 1.0}]
)
def test_states_of_scalers_are_checked(state: Any) -> None:
    scaler = optim.GradScaler()
    with pytest.raises(ArgumentError, match="the state of a GradScaler has"):
        scaler.load_state_dict(state)
    assert scaler.get_scale() == 65536.0


def test_a_chain_refuses_another_schedules_state() -> None:
    optimizer = optim.SGD([nn.Parameter(vk.ones(1))], lr=0.1)
    schedules = optim.lr_scheduler
    chain = schedules.ChainedScheduler([schedules.ExponentialLR(optimizer, 0.9)])
    with pytest.raises(ArgumentError, match="lacks schedulers"):
        chain.load_state_dict(schedules.StepLR(optimizer, 2).state_dict())
