"""Tests of injected Vulkan failures: each call of a mixed run fails in turn, out of memory or with a lost device."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.device.runtime import runtime_kernels as kernels
from tests.device.runtime.runtime_kernels import BLOCK, groups, upload
from tests.faults import workload
from tests.faults.driver import DEVICE_LOST, OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, Injection, failing
from vkjit import errors
from vkjit.backends.vulkan.runtime import enumeration
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.instance import get_instance
from vkjit.backends.vulkan.runtime.physical_device import physical_devices
from vkjit.runtime import handles
from vkjit.runtime.observers import LaunchRequest

RETRIED = {
    "vkAllocateMemory", "vkBeginCommandBuffer", "vkBindBufferMemory", "vkCreateBuffer", "vkMapMemory", "vkQueueSubmit",
    "vkResetCommandPool", "vkResetFences",
}  # fmt: skip
"""Calls that the runtime retries after out-of-memory errors."""

FATAL = {"vkEndCommandBuffer"}
"""Calls whose out-of-memory errors lose recorded work, so that the device must not continue."""


@pytest.fixture(scope="module")
def physical() -> Any:
    error = enumeration.driver_error()
    if error is not None:
        pytest.skip(f"no Vulkan driver: {error}")
    usable = [info for info in enumeration.devices() if info.uuid and not info.missing]
    if not usable:
        pytest.skip("no Vulkan device has what kernels need")
    return physical_devices(get_instance())[usable[0].index]


@contextlib.contextmanager
def no_leak() -> Iterator[None]:
    gc.collect()
    before = handles.live_counts()
    yield
    gc.collect()
    assert handles.live_counts() == before


def run_under(physical: Any, injection: Injection) -> tuple[str | None, str | None]:
    """Return the errors (or None) of a first run under the injection and a second one on the same device without it."""
    with failing(injection):
        try:
            device = VulkanDevice(physical)
        except errors.DeviceError as error:
            return f"not opened: {type(error).__name__}", None
        try:
            first = outcome(device)
            injection.armed = injection.lasting
            second = outcome(device)
            if first is None and second is None:
                stats = device.memory_stats()
                assert 0 <= stats["allocated"] <= stats["reserved"] and stats["count"] <= 4
        finally:
            injection.armed = injection.lasting
            device.close()
    return first, second


def outcome(device: Any) -> str | None:
    try:
        workload.run(device)
    except errors.DeviceError as error:
        error.__traceback__ = None
        return type(error).__name__
    finally:
        gc.collect()
    return None


def calls_of_a_run(physical: Any) -> int:
    injection = Injection(0, 0)
    assert run_under(physical, injection) == (None, None)
    return len(injection.names) // 2


@pytest.mark.parametrize("result", [OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY])
def test_no_memory_is_an_error_of_that_call_alone(physical: Any, result: int) -> None:
    hit = set()
    for nth in range(1, calls_of_a_run(physical) + 1):
        injection = Injection(nth, result)
        with no_leak():
            first, second = run_under(physical, injection)
        if injection.hit is None:
            continue  # the number of fence queries depends on timing
        hit.add(injection.hit)
        if injection.hit in FATAL:
            expected: tuple[str | None, str | None] = ("OutOfMemoryError", "OutOfMemoryError")
        else:
            expected = (None if injection.hit in RETRIED else "OutOfMemoryError", None)
        if first is not None and first.startswith("not opened"):
            expected = ("not opened: OutOfMemoryError", None)
        assert (first, second) == expected, (nth, injection.hit)
    assert len(hit) >= 15


def test_a_lost_device_is_lost_for_good_and_leaves_nothing(physical: Any) -> None:
    hit = set()
    for nth in range(1, calls_of_a_run(physical) + 1):
        injection = Injection(nth, DEVICE_LOST, lasting=True)
        with no_leak():
            first, second = run_under(physical, injection)
        if injection.hit in (None, "vkDeviceWaitIdle"):
            continue  # errors while waiting in `close` aren't reported
        hit.add(injection.hit)
        if first == "not opened: DeviceLostError":
            continue
        assert (first, second) == ("DeviceLostError", "DeviceLostError"), (nth, injection.hit)
    assert len(hit) >= 15


def test_after_a_lost_device_another_can_be_opened(physical: Any) -> None:
    with no_leak():
        run_under(physical, Injection(20, DEVICE_LOST, lasting=True))
        device = VulkanDevice(physical)
        workload.run(device)
        device.close()


def test_submissions_that_keep_failing_end_the_device(physical: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded launches that can't be submitted must not be dropped silently."""
    with no_leak(), failing(Injection(0, 0)):
        device = VulkanDevice(physical)
        monkeypatch.setattr(device._functions, "vkQueueSubmit", lambda *_: OUT_OF_HOST_MEMORY, raising=False)
        assert outcome(device) == "OutOfMemoryError"
        with pytest.raises(errors.OutOfMemoryError, match="launches that were recorded are lost"):
            device.allocate(4)
        assert device.closed
        device.close()


def test_a_failure_while_asking_again_and_again_is_told(physical: Any) -> None:
    """On GPUs the fence is polled for a while before a blocking wait; errors of polling are reported too."""
    injection = Injection(0, OUT_OF_HOST_MEMORY)
    with no_leak(), failing(injection):
        device = VulkanDevice(physical)
        device._queue._spin_ns = 10**10
        device.fill(device.allocate(1 << 20), 0, 1 << 20, 1)
        injection.nth = len(injection.names) + 3  # after the end of the command buffer and its submission
        with pytest.raises(errors.OutOfMemoryError, match="vkGetFenceStatus"):
            device.synchronize()
        assert injection.hit == "vkGetFenceStatus"
        device.synchronize()
        device.close()


def test_a_lost_device_tells_what_was_under_way(physical: Any) -> None:
    injection = Injection(0, DEVICE_LOST, lasting=True)
    with no_leak(), failing(injection):
        device = VulkanDevice(physical)
        kernel, other = device.load(kernels.add()), device.load(kernels.shift())
        x, y = upload(device, np.zeros(640, np.uint32)), device.allocate(4 * 640)
        device.launch(LaunchRequest(other, groups(64), BLOCK.pack(x.address, 0, y.address, 64), (x,), (y,)))
        device.synchronize()
        stream = device.open_stream()
        device.stream = stream
        device.launch(LaunchRequest(kernel, groups(640), BLOCK.pack(x.address, x.address, y.address, 640), (x,), (y,)))
        injection.nth = len(injection.names) + 1
        with pytest.raises(errors.DeviceLostError) as caught:
            stream.synchronize()
        device.close()
    grid = " x ".join(map(str, groups(640)))
    assert f"under way in stream 1: kernel add ({grid} workgroups)" in str(caught.value)
    assert "shift" not in str(caught.value)
    del kernel, other, x, y, stream, device, caught
