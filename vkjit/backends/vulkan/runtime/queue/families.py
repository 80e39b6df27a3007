"""Selection of hardware queues: the queues to create with a device, and their assignment to streams.

All compute queues belong to the first family with compute support; if it has a single queue, all streams share it. Copy
queues, which many GPUs implement with separate engines, belong to the first transfer-only family, if there is one.
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
"""Indices of the queues for streams of normal, high and low priority, into `_PRIORITIES`."""

_MAX_COPYING = 2
"""Maximum number of copy queues: one for each direction."""


@dataclass(frozen=True, slots=True)
class Family:
    """A queue family: its index, the number of queues to create, and the number of valid bits of timestamps."""

    index: int
    count: int
    timestamp_bits: int


class HardwareQueues:
    """The queue families in use, and the assignment of queues to streams.

    Raises FeatureError without a compute queue.
    """

    def __init__(self, physical: Physical) -> None:
        self._vulkan = physical.instance.vulkan
        self.compute, self.copying = _families(physical)
        self._opened = {True: 0, False: 0}

    @property
    def indices(self) -> tuple[int, ...]:
        """The indices of the families in use."""
        return (self.compute.index,) if self.copying is None else (self.compute.index, self.copying.index)

    def create_infos(self) -> Any:
        """Return an array with a VkDeviceQueueCreateInfo per family, and the objects that own its memory."""
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
        return infos, rows  # the rows own the memory that the array points to

    def next(self, functions: Functions, device: Any, priority: int, copying: bool = False) -> tuple[Any, Family]:
        """Return the VkQueue for another stream, and its family.

        The first stream of normal priority gets the first queue. With `copying`, return a copy queue if the device has
        one, else a compute queue.
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
    """Return the first queue family with compute support, and the first transfer-only one or None."""
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
