"""Grids split so that no submission exceeds the time budget."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.vulkan.runtime import enumeration
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.instance import get_instance
from vkjit.backends.vulkan.runtime.physical_device import physical_devices
from vkjit.backends.vulkan.runtime.queue import budgeted as budgeted_queue
from vkjit.backends.vulkan.runtime.queue.budgeted import BudgetedQueue, parts, time_budget


@vk.kernel(over="y")
def count_up(x: vk.In[vk.i32, "*N"], y: vk.InOut[vk.i32, "*N"], rounds: vk.i32):
    i = vk.global_id(0)
    value = x[i]
    for k in range(rounds):
        value = value * 3 + k
    y[i] += value


@vk.kernel(over="y")
def places(y: vk.InOut[vk.i32, "A B C"]):
    z, r, c = vk.global_id(2), vk.global_id(1), vk.global_id(0)
    y[z, r, c] += z * 10000 + r * 100 + c


@vk.kernel(local=8)
def strided(y: vk.InOut[vk.i32, "N"]):
    step = vk.num_groups(0) * 8
    for i in range(vk.global_id(0), y.shape[0], step):
        y[i] += 1


@pytest.fixture
def budgeted(monkeypatch: pytest.MonkeyPatch) -> Iterator[VulkanDevice]:
    """A device with a time budget of a millisecond per submission."""
    usable = [info for info in enumeration.devices() if info.uuid and not info.missing]
    if not usable:
        pytest.skip("no Vulkan device has what kernels need")
    monkeypatch.setenv("VKJIT_TIME_BUDGET", "0.001")
    device = VulkanDevice(physical_devices(get_instance())[usable[0].index])
    assert isinstance(device._queue, BudgetedQueue)
    with vk.use_device(device):
        yield device
    device.close()


def dispatches(device: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return a list that collects the parts recorded from now on, as base and size."""
    seen: list[tuple[int, ...]] = []
    real = device._functions.vkCmdDispatchBase

    def record(command: Any, *numbers: int) -> None:
        seen.append(numbers)
        real(command, *numbers)

    monkeypatch.setattr(device._functions, "vkCmdDispatchBase", record, raising=False)
    return seen


def test_every_workgroup_runs_once(budgeted: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = dispatches(budgeted, monkeypatch)
    x = np.arange(200_000, dtype=np.int32)
    expected = x.copy()
    for k in range(60):
        expected = expected * 3 + k
    given, y = vk.tensor(x), vk.zeros(200_000, dtype=vk.i32)
    for turn in range(1, 4):
        count_up(given, y, 60)
        assert np.array_equal(y.numpy(), expected * turn)
    assert isinstance(budgeted._queue, BudgetedQueue)
    (groups,) = {kernel.grid[0] for kernel in budgeted._queue._costs if kernel.grid is not None}
    assert len(seen) > 3 and sum(part[3] for part in seen) == 3 * groups


def test_parts_know_their_place(budgeted: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgeted_queue, "FIRST_PART", 3)
    seen = dispatches(budgeted, monkeypatch)
    y = vk.zeros(7, 30, 90, dtype=vk.i32)
    places(y)
    a, b, c = np.indices((7, 30, 90))
    assert np.array_equal(y.numpy(), a * 10000 + b * 100 + c)
    assert len(seen) > 2 and len({part[:3] for part in seen}) == len(seen)


def test_kernels_that_ask_for_the_grid_are_left_whole(budgeted: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = dispatches(budgeted, monkeypatch)
    y = vk.zeros(10_000, dtype=vk.i32)
    strided[500](y)
    assert y.numpy().tolist() == [1] * 10_000 and seen == []


@pytest.mark.parametrize("groups", [(1, 1, 1), (7, 1, 1), (3, 5, 1), (4, 3, 5), (1, 9, 2), (2, 1, 6)])
def test_parts_cover_a_grid_once(groups: tuple[int, int, int]) -> None:
    for most in (1, 2, 3, 5, 8, 1000):
        sizes = itertools.cycle([most, max(1, most // 2), most + 3])
        seen: list[tuple[int, ...]] = []
        for base, size in parts(groups, lambda sizes=sizes: next(sizes)):  # type: ignore[misc]
            assert size[0] * size[1] * size[2] <= most + 3
            seen += itertools.product(*(range(b, b + s) for b, s in zip(base, size, strict=True)))
        assert sorted(seen) == sorted(itertools.product(*map(range, groups)))


def test_where_there_is_a_limit(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    monkeypatch.delenv("VKJIT_TIME_BUDGET", raising=False)
    caps = device.caps
    assert time_budget(caps) == (
        0.5 if caps.kind in ("discrete", "integrated") and caps.vendor in (0x1002, 0x8086) else 0
    )
    monkeypatch.setenv("VKJIT_TIME_BUDGET", "soon")
    with pytest.raises(vk.VkjitError, match="expected seconds"):
        time_budget(caps)
