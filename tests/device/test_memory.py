"""Statistics of memory, who holds it, the budget, and what is said when there is none left."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime import budget


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
