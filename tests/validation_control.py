"""Invalid Vulkan calls made on purpose, to check that the validation layer is active and reports them.

Not collected with the suite; `tests/device/language/test_validation.py` runs it and expects it to fail.
"""

from __future__ import annotations

import pytest

import vkjit as vk
from vkjit.backends.vulkan.runtime.device import VulkanDevice


@pytest.fixture
def opened() -> VulkanDevice:
    found = next(info for info in vk.devices() if info.kind not in ("llvm-cpu", "interpreter") and not info.missing)
    device = vk.device(found.index)
    assert isinstance(device, VulkanDevice)
    return device


def test_a_structure_with_unknown_flags(opened: VulkanDevice) -> None:
    info = opened._vulkan.struct("VkFenceCreateInfo", flags=0x40)
    out = opened._vulkan.ffi.new("VkFence *")
    opened._functions.vkCreateFence(opened._handle.value, info, opened._vulkan.null, out)
    opened._functions.vkDestroyFence(opened._handle.value, out[0], opened._vulkan.null)


def test_two_writes_without_a_barrier(opened: VulkanDevice) -> None:
    buffer = opened.allocate(64)
    for pattern in (1, 2):
        opened._queue.record(opened._functions.vkCmdFillBuffer, buffer.handle, buffer.offset, 64, pattern)
    opened.synchronize()


def test_a_right_call(opened: VulkanDevice) -> None:
    assert opened.allocate(64).nbytes == 64
