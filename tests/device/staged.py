"""Mesa's software driver opened as if its memory were a GPU's own: the host sees none of a buffer's bytes, so that everything is
staged, pinned, and used again while the device still works on it.
"""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from vkjit.runtime import memory, select
from vkjit.runtime.block import MemoryKind
from vkjit.runtime.device import VulkanDevice
from vkjit.runtime.instance import get_instance
from vkjit.runtime.physical import physical_devices

__all__ = ["open_staged"]


def open_staged(mapped: bool = False) -> VulkanDevice:
    """A new device of that kind; skips where there is no software driver. `mapped`: the host does see the bytes, as through a
    window into a GPU's memory.
    """
    usable = [info for info in select.devices() if info.kind == "cpu" and info.caps is not None and not info.missing]
    if not usable:
        pytest.skip("no software Vulkan driver")
    physical = physical_devices(get_instance())[usable[0].index]
    assert physical.info.caps is not None
    apart = replace(physical, info=replace(physical.info, caps=replace(physical.info.caps, unified_memory=False)))
    choose = memory._choose

    def unseen(*arguments: object) -> tuple[MemoryKind, ...]:
        main, *others = choose(*arguments)  # type: ignore[arg-type]
        return replace(main, mapped=mapped), *others

    with mock.patch.object(memory, "_choose", unseen):
        return VulkanDevice(apart)
