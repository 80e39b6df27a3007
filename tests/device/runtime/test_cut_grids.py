"""Grids beyond the device's dispatch limits: they are split, and each invocation keeps its id."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.launch import grid, plan


@pytest.fixture
def small(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device with a limit of three workgroups along each axis."""
    monkeypatch.setattr(device, "caps", dataclasses.replace(device.caps, max_groups=(3, 3, 3)))
    return device


def last_part_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make launches beyond the limits run only their last four workgroups."""

    def last(groups: grid.Grid, limits: grid.Grid) -> Any:
        count = min(4, limits[0])
        yield (groups[0] - count, 0, 0), (count, groups[1], groups[2])

    monkeypatch.setattr(plan, "parts", last)


@vk.kernel(local=2)
def count_ids(y: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    if i < y.shape[0]:
        vk.atomic.add(y, i, 1)


@vk.kernel(local=(2, 1, 1))
def write_ids(y: vk.InOut[vk.i64, "Z Y X 5"]):
    x, row, z = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    y[z, row, x, 0] += x
    y[z, row, x, 1] += vk.group_id(1)
    y[z, row, x, 2] += vk.group_id(2) * 100 + vk.local_id(0)
    y[z, row, x, 3] += vk.num_groups(0)
    y[z, row, x, 4] += vk.num_groups(1) * 100 + vk.num_groups(2)


@vk.kernel(local=1)
def write_far(y: vk.InOut[vk.i64, "N 3"], start: vk.i64):
    i = vk.global_id(0)
    at = i - start
    if 0 <= at < y.shape[0]:
        y[at, 0] = i
        y[at, 1] = vk.group_id(0)
        y[at, 2] = vk.num_groups(0)


@pytest.mark.parametrize("groups", [3, 4, 7, 10])
def test_each_id_comes_once(small: Any, groups: int) -> None:
    y = vk.zeros(2 * groups, dtype=vk.i32)
    for _ in range(3):
        count_ids[groups](y)
    np.testing.assert_array_equal(y.numpy(), np.full(2 * groups, 3))


def test_ids_along_all_axes(small: Any) -> None:
    groups = (4, 5, 7)
    y = vk.zeros((7, 5, 8, 5), dtype=vk.i64)
    write_ids[groups](y)
    z, row, x = np.indices((7, 5, 8))
    expected = np.stack([x, row, z * 100 + x % 2, np.full_like(x, 4), np.full_like(x, 507)], -1)
    np.testing.assert_array_equal(y.numpy(), expected)


def test_kernels_that_read_no_id(small: Any) -> None:
    @vk.kernel(local=1)
    def count(y: vk.InOut[vk.i32, "N"]):
        vk.atomic.add(y, 0, 1)

    y = vk.zeros(1, dtype=vk.i32)
    for groups in (8, 2, 8, 8, 2, 8):
        count[groups](y)
    assert y.item() == 36


def test_reports_name_the_invocation(small: Any) -> None:
    @vk.kernel(local=1)
    def check(y: vk.InOut[vk.i32, "N"]):
        i = vk.global_id(0)
        assert i != 8, "eight"
        y[i] = 1

    check[10](vk.zeros(10, dtype=vk.i32))
    with pytest.raises(vk.KernelAssertionError) as caught:
        vk.synchronize()
    assert caught.value.invocation == (8, 0, 0)


@pytest.mark.parametrize("groups", [2**31 + 5, 2**32 + 2, 2**32 + 7, 2**40 + 1, 2**60])
def test_ids_past_32_bits(device: Any, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    last_part_only(monkeypatch)
    y = vk.zeros((4, 3), dtype=vk.i64)
    write_far[groups](y, groups - 4)
    ids = np.arange(groups - 4, groups)
    np.testing.assert_array_equal(y.numpy(), np.stack([ids, ids, np.full(4, groups)], 1))


def test_ids_past_32_bits_are_in_no_short_array(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    last_part_only(monkeypatch)
    y = vk.zeros(16, dtype=vk.i32)
    for groups in (2**31 + 2, 2**32 + 2):
        count_ids[groups](y)
    assert not y.numpy().any()


@pytest.mark.parametrize("groups", [(2**62,), (2**63,), (2**80,), (2**31, 2**31, 2**31)])
def test_ids_past_64_bits_are_refused(device: Any, groups: tuple[int, ...]) -> None:
    y = vk.zeros((4, 4, 4, 5), dtype=vk.i64)
    with pytest.raises(vk.ArgumentError, match=r"2\^63 - 1 invocations.*launch fewer"):
        write_ids[groups](y)
    assert not y.numpy().any()


def test_the_processor_refuses_more_workgroups_than_it_can_number() -> None:
    pytest.importorskip("llvmlite")
    with vk.use_device("cpu"):
        y = vk.zeros((4, 4, 4, 5), dtype=vk.i64)
        with pytest.raises(vk.ArgumentError, match=r"at most 2\^63 - 1"):
            write_ids[(2**31 - 1,) * 3](y)
