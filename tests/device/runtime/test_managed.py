"""Managed tensors, whose memory migrates to the device that uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import errors
from vkjit.tensor.managed import ManagedTensor


@vk.kernel(over="y")
def double(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 2 * x[i]


@pytest.fixture
def other(device: Any) -> Any:
    """A second device."""
    found = vk.device("interpreter")
    return found if found is not device else vk.device([info for info in vk.devices() if info.index != device.index][0])


def test_memory_moves_with_its_user(device: Any, other: Any) -> None:
    with vk.use_device(device):
        x = vk.Tensor(np.arange(6, dtype=np.float32), managed=True)
        assert isinstance(x, ManagedTensor) and x.location is device
        here = x + 1
        assert here.device is device and type(here) is vk.Tensor
    with vk.use_device(other):
        y = vk.zeros(6)
        double(x, y)
        assert x.location is other and y.numpy().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        double(y, x)
    assert x.location is other  # reading values moves nothing
    assert x.numpy().tolist() == [0.0, 4.0, 8.0, 12.0, 16.0, 20.0]
    with vk.use_device(device):
        assert (x * 1).numpy().tolist() == [0.0, 4.0, 8.0, 12.0, 16.0, 20.0]
        assert x.location is device


def test_views_move_along(device: Any, other: Any) -> None:
    with vk.use_device(device):
        x = vk.Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], managed=True)
        column, flat = x[:, 1], x.reshape(6)
        assert isinstance(column, ManagedTensor)
    with vk.use_device(other):
        column.fill_(9.0)
        flat[0] = 7.0
    with vk.use_device(device):
        x += 1
        assert column.location is device
        assert x.tolist() == [[8.0, 10.0, 4.0], [5.0, 10.0, 7.0]]
        assert flat.numpy().tolist() == [8.0, 10.0, 4.0, 5.0, 10.0, 7.0]
        assert x.detach().shape == (2, 3) and column.numpy().tolist() == [10.0, 10.0]


def test_work_under_way_is_waited_for(device: Any, other: Any) -> None:
    with vk.use_device(device):
        x = vk.Tensor(np.ones(100_000, np.float32), managed=True)
        for _ in range(20):
            x *= 1.5
    with vk.use_device(other):
        assert np.allclose((x + 0)[:10].numpy(), 1.5**20)


def test_what_managed_tensors_cannot_do(device: Any) -> None:
    with vk.use_device(device):
        x = vk.Tensor([1.0, 2.0], managed=True)
        with pytest.raises(errors.ArgumentError, match=r"clone\(\)\.requires_grad_"):
            x.requires_grad_()
        y = vk.zeros(2)
        with pytest.raises(errors.ArgumentError, match=r"give them x\.clone"), vk.capture():
            double(x, y)
        double(x, y)
        assert y.tolist() == [2.0, 4.0]
        with pytest.raises(errors.ArgumentError, match=r"vk\.tensor"):
            vk.Tensor([1.0, 2.0])
