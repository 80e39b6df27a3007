"""Memory statistics, live buffers, the memory budget, and out-of-memory errors."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.vulkan.runtime.memory import budget


@pytest.fixture
def traced() -> Any:
    vk.trace_memory()
    yield
    vk.trace_memory(False)


def test_statistics_follow_arrays(device: Any) -> None:
    vk.synchronize()
    gc.collect()
    vk.reset_peak_memory_stats()
    before = vk.memory_stats()
    x = vk.zeros(1000, 1000)
    during = vk.memory_stats()
    assert during["allocated"] - before["allocated"] >= 4_000_000 and during["count"] == before["count"] + 1
    assert during["reserved"] >= during["allocated"]
    del x
    vk.synchronize()
    gc.collect()
    after = vk.memory_stats()
    assert after["count"] == before["count"] and after["peak"] >= during["allocated"]
    vk.empty_cache()
    vk.reset_peak_memory_stats()
    assert vk.memory_stats()["peak"] == vk.memory_stats()["allocated"]


def test_live_buffers_tell_their_arrays_and_places(device: Any, traced: None) -> None:
    x = vk.tensor(np.zeros((7, 11), np.float16))
    part = x[:, 3]
    row = next(row for row in vk.live_buffers() if "f16 (7, 11)" in row.arrays)
    assert row.nbytes >= 154 and "f16 (7,)" in row.arrays and part.shape == (7,)
    assert f"{__file__}:" in row.made
    text = vk.memory_summary()
    assert f"memory of {device.name}" in text and "f16 (7, 11) and f16 (7,)" in text and __file__ in text


def test_summary_without_tracing_says_how_to_trace(device: Any) -> None:
    x = vk.zeros(3, 3)
    assert "f32 (3, 3)" in vk.memory_summary() and "VKJIT_TRACE_MEMORY=1" in vk.memory_summary() and x.shape == (3, 3)


def test_no_memory_names_the_holders(device: Any) -> None:
    x = vk.zeros(123, 1)
    with pytest.raises(vk.VkjitError) as caught:
        device.allocate(1 << 56)
    if isinstance(caught.value, vk.OutOfMemoryError):
        assert "f32 (123, 1)" in str(caught.value) and x.shape == (123, 1)
    assert (vk.ones(3) + 1).numpy().tolist() == [2, 2, 2]


@pytest.mark.parametrize("shape", [(2**61,), (2**63,), (2**80,), (2**40, 2**40), (10**14,)])
def test_no_memory_for_arrays_of_any_size(device: Any, shape: tuple[int, ...]) -> None:
    held = vk.zeros(123, 1)
    with pytest.raises(vk.OutOfMemoryError) as caught:
        vk.zeros(shape)
    text = str(caught.value)
    assert str(4 * math.prod(shape)) in text and "f32 (123, 1)" in text and "without an array" not in text
    assert (held + vk.ones(123, 1)).sum().item() == 123


def test_listings_refer_to_no_tuple_that_is_being_filled(device: Any) -> None:
    x = vk.zeros(7)

    def listed(n: int) -> bool:
        return (
            "f32 (7,)" in vk.memory_summary() and any("f32 (7,)" in row.arrays for row in vk.live_buffers()) and n > 0
        )

    assert tuple(n for n in range(4) if listed(n)) == (1, 2, 3) and x.shape == (7,)


def test_listings_skip_objects_that_are_being_made(device: Any) -> None:
    x = vk.zeros(7)
    kinds: list[Any] = [type(x._array), type(x._array.buffer)]
    half_made = [kind.__new__(kind) for kind in kinds]
    assert (
        [row.arrays for row in vk.live_buffers() if row.nbytes == 28] == [("f32 (7,)",)]
        and len(half_made) == 2
        and x.ndim == 1
    )


def test_buffers_that_were_closed_hold_nothing(device: Any) -> None:
    buffer = device.allocate(12_345)
    held = [row.nbytes for row in vk.live_buffers()]
    buffer.close()
    assert 12_345 in held and 12_345 not in [row.nbytes for row in vk.live_buffers()]


def test_views_of_more_elements_than_can_be_counted(device: Any) -> None:
    x = vk.ones(1)
    for shape in ((2**63,), (2**40, 2**40), (2**70, 1)):
        with pytest.raises(vk.ShapeError, match=r"at most 2\^63 - 1 elements"):
            x.expand(*shape)
    with pytest.raises(vk.ShapeError, match=r"at most 2\^63 - 1 elements"):
        vk.zeros(2**63, 0)
    assert x.expand(2**40, 2**20)[5, 7].item() == 1


@pytest.mark.parametrize("count", [2**61, 2**70])
def test_numbers_made_on_the_host_without_room(count: int) -> None:
    made: tuple[Callable[[], Any], ...] = (
        lambda: vk.arange(0.0, count),
        lambda: vk.linspace(0, 1, count),
        lambda: vk.logspace(0, 1, count),
        lambda: vk.eye(count, 1),
    )
    for make in made:
        with pytest.raises(vk.OutOfMemoryError, match=f"no memory for {8 * count} bytes on the host"):
            make()
    with pytest.raises(vk.OutOfMemoryError if count < 2**63 else vk.DTypeError, match="no memory for|out of range"):
        vk.arange(count)


def test_memory_in_cycles_is_found_before_giving_up(device: Any) -> None:
    if not hasattr(device, "_storage"):
        pytest.skip("only Vulkan devices have a budget")
    limit = vk.memory_stats()["limit"]
    half = int(limit * 0.6) & ~3
    before = vk.memory_stats()["allocated"]
    if half > 4 << 30 or before > limit // 4:
        pytest.skip("too much memory for a test")
    gc.disable()
    try:
        first = device.allocate(half)
        cycle: list[Any] = [first]
        cycle.append(cycle)
        del first, cycle
        second = device.allocate(half)
    finally:
        gc.enable()
    with pytest.raises(vk.OutOfMemoryError, match="past what this process may take"):
        device.allocate(half)
    second.close()
    vk.empty_cache()


def test_the_budget_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert budget.fraction() == 0.95
    monkeypatch.setenv("VKJIT_MEMORY_FRACTION", "0.5")
    assert budget.fraction() == 0.5
    for wrong in ("2", "0", "lots"):
        monkeypatch.setenv("VKJIT_MEMORY_FRACTION", wrong)
        with pytest.raises(vk.ArgumentError, match="expected a number above 0, at most 1"):
            budget.fraction()


def test_tracing_from_the_start() -> None:
    code = "import vkjit as vk\nx = vk.zeros(5, device='interpreter')\nprint(vk.live_buffers('interpreter')[0].made)"
    environment = {**os.environ, "VKJIT_TRACE_MEMORY": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "<string>:2"
