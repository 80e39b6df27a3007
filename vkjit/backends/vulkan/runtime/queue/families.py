"""The hardware queues that a device is opened with, and which of them a new stream gets.

Enters: a physical device. Leaves: what vkCreateDevice is to be asked for, then VkQueue objects by kind and priority.
Holds: queues that compute are of one family, the first that computes; a device with a single one gives that to every
stream. Queues that only copy, which many GPUs have engines of their own for, are of the first family that does nothing
else, where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vkjit.errors import FeatureError

from ..loader import Functions
from ..physical_device import Physical

__all__ = ["Family", "HardwareQueues"]

_GRAPHICS, _COMPUTE, _TRANSFER = 0x1, 0x2, 0x4
_PRIORITIES = (0.5, 1.0, 0.0, 0.5)
_NORMAL, _HIGH, _LOW = (0, 3), (1,), (2,)
"""Which queues serve which streams: places in `_PRIORITIES`."""

_MAX_COPYING = 2
"""Queues that only copy: one for each direction."""


@dataclass(frozen=True, slots=True)
class Family:
    """A queue family: its number, how many queues of it are opened, and the valid bits of their timestamps."""

    index: int
    count: int
    timestamp_bits: int


class HardwareQueues:
    """The families, and which queue comes next. Raises FeatureError where none computes."""

    def __init__(self, physical: Physical) -> None:
        self._vulkan = physical.instance.vulkan
        self.compute, self.copying = _families(physical)
        self._opened = {True: 0, False: 0}

    @property
    def indices(self) -> tuple[int, ...]:
        """The numbers of the families in use."""
        return (self.compute.index,) if self.copying is None else (self.compute.index, self.copying.index)

    def create_infos(self) -> Any:
        """An array with a VkDeviceQueueCreateInfo per family."""
        families: list[tuple[Family, tuple[float, ...]]] = [(self.compute, _PRIORITIES)]
        if self.copying is not None:
            families.append((self.copying, (0.5,) * _MAX_COPYING))
        rows = [
            self._vulkan.struct(
                "VkDeviceQueueCreateInfo",
                queueFamilyIndex=family.index,
                queueCount=family.count,
                pQueuePriorities=self._vulkan.array("float", priorities[: family.count]),
            )
            for family, priorities in families
        ]
        infos = self._vulkan.array("VkDeviceQueueCreateInfo", [row[0] for row in rows])
        return infos, rows  # the rows own what the array points to

    def next(self, functions: Functions, device: Any, priority: int, copying: bool = False) -> tuple[Any, Family]:
        """The VkQueue of another stream, and its family; the first stream gets the first queue.

        `copying`: one that only copies, where there is such; one that computes elsewhere.
        """
        family = self.copying if copying and self.copying is not None else self.compute
        opened = self._opened[family is self.compute]
        self._opened[family is self.compute] += 1
        if family is self.compute:
            wanted = _NORMAL if priority == 0 else _HIGH if priority > 0 else _LOW
            present = [place for place in wanted if place < family.count] or [0]
            place = present[opened % len(present)]
        else:
            place = opened % family.count
        out = self._vulkan.ffi.new("VkQueue *")
        functions.vkGetDeviceQueue(device, family.index, place, out)
        return out[0], family


def _families(physical: Physical) -> tuple[Family, Family | None]:
    """The first queue family that computes, and the first that only copies."""
    vulkan, functions = physical.instance.vulkan, physical.instance.functions
    call = functions.vkGetPhysicalDeviceQueueFamilyProperties
    compute = copying = None
    for index, row in enumerate(vulkan.enumerate("VkQueueFamilyProperties", call, physical.handle)):
        flags, bits = row.queueFlags, int(row.timestampValidBits)
        if flags & _COMPUTE and compute is None:
            compute = Family(index, min(int(row.queueCount), len(_PRIORITIES)), bits)
        if flags & _TRANSFER and not flags & (_GRAPHICS | _COMPUTE) and copying is None:
            copying = Family(index, min(int(row.queueCount), _MAX_COPYING), bits)
    if compute is None:
        raise FeatureError(f"{physical.info.name} has no compute queue")
    return compute, copying
