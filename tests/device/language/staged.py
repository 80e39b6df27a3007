"""Mesa's software driver with device memory that the host can't access, as on a discrete GPU.

All transfers are staged or pinned, and memory is reused while the device still works on it.
"""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from vkjit.backends.vulkan.runtime import enumeration
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.instance import get_instance
from vkjit.backends.vulkan.runtime.memory import suballocator
from vkjit.backends.vulkan.runtime.memory.block import MemoryKind
from vkjit.backends.vulkan.runtime.physical_device import physical_devices

__all__ = ["open_staged"]


def open_staged(mapped: bool = False) -> VulkanDevice:
    """Open such a device; skips the test without a software driver.

    `mapped=True` lets the host access the memory, as through a mapped GPU memory window.
    """
    usable = [
        info for info in enumeration.devices() if info.kind == "cpu" and info.caps is not None and not info.missing
    ]
    if not usable:
        pytest.skip("no software Vulkan driver")
    physical = physical_devices(get_instance())[usable[0].index]
    assert physical.info.caps is not None
    apart = replace(physical, info=replace(physical.info, caps=replace(physical.info.caps, unified_memory=False)))
    choose = suballocator._choose

    def unseen(*arguments: object) -> tuple[MemoryKind, ...]:
        main, *others = choose(*arguments)  # type: ignore[arg-type]
        return replace(main, mapped=mapped), *others

    with mock.patch.object(suballocator, "_choose", unseen):
        return VulkanDevice(apart)
