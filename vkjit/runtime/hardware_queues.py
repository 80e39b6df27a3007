"""The hardware queues that a device is opened with, and which of them a new stream gets.

Enters: a physical device. Leaves: what vkCreateDevice is to be asked for, then VkQueue objects by priority. Holds: all
are of one family, the first that computes; a device with a single queue gives that one to every stream.
"""

from __future__ import annotations

from typing import Any

from ..errors import FeatureError
from ._vk import Functions
from .physical import Physical

__all__ = ["HardwareQueues"]

_COMPUTE = 0x2
_PRIORITIES = (0.5, 1.0, 0.0, 0.5)
_NORMAL, _HIGH, _LOW = (0, 3), (1,), (2,)
"""Which queues serve which streams: places in `_PRIORITIES`."""


class HardwareQueues:
    """The family, the number of queues, and which one comes next. Raises FeatureError where none computes."""

    def __init__(self, physical: Physical) -> None:
        self._vulkan = physical.instance.vulkan
        self.family, available, self.timestamp_bits = _compute_family(physical)
        self.count = min(available, len(_PRIORITIES))
        self._opened = 0

    def create_info(self) -> Any:
        """The VkDeviceQueueCreateInfo of the queues."""
        return self._vulkan.struct(
            "VkDeviceQueueCreateInfo",
            queueFamilyIndex=self.family,
            queueCount=self.count,
            pQueuePriorities=self._vulkan.array("float", _PRIORITIES[: self.count]),
        )

    def next(self, functions: Functions, device: Any, priority: int) -> Any:
        """The VkQueue of another stream; the first stream gets the first queue."""
        wanted = _NORMAL if priority == 0 else _HIGH if priority > 0 else _LOW
        present = [place for place in wanted if place < self.count] or [0]
        place = present[self._opened % len(present)]
        self._opened += 1
        out = self._vulkan.ffi.new("VkQueue *")
        functions.vkGetDeviceQueue(device, self.family, place, out)
        return out[0]


def _compute_family(physical: Physical) -> tuple[int, int, int]:
    """The first queue family that computes: its number, its queues, and its valid timestamp bits."""
    vulkan, functions = physical.instance.vulkan, physical.instance.functions
    call = functions.vkGetPhysicalDeviceQueueFamilyProperties
    for index, family in enumerate(vulkan.enumerate("VkQueueFamilyProperties", call, physical.handle)):
        if family.queueFlags & _COMPUTE:
            return index, int(family.queueCount), int(family.timestampValidBits)
    raise FeatureError(f"{physical.info.name} has no compute queue")
