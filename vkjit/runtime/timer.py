"""Time as the device measures it, by timestamp queries.

Enters: nothing. Leaves: nanoseconds between two points of the queue. Holds: everything recorded before a point is
complete when its timestamp is taken.
"""

from __future__ import annotations

from typing import Any

from ..errors import DeviceError, FeatureError
from ._vk import Functions, Vulkan
from .handles import Handle
from .queue import Queue

__all__ = ["Timer"]

_TIMESTAMP = 2  # VK_QUERY_TYPE_TIMESTAMP
_BOTTOM_OF_PIPE = 0x2000
_WAIT_64 = 0x1 | 0x2  # 64-bit results, waited for


class Timer:
    """Two timestamps and the difference between them. One measurement at a time per device."""

    def __init__(
        self, vulkan: Vulkan, functions: Functions, device: Any, queue: Queue, period: float, valid_bits: int
    ) -> None:
        if not valid_bits or not period:
            raise FeatureError("this device's queue has no timestamps")
        self._vulkan = vulkan
        self._functions = functions
        self._device = device
        self._queue = queue
        self._period = period
        self._mask = (1 << valid_bits) - 1
        self._running = False
        info = vulkan.struct("VkQueryPoolCreateInfo", queryType=_TIMESTAMP, queryCount=2)
        out = vulkan.ffi.new("VkQueryPool *")
        vulkan.check(functions.vkCreateQueryPool(device, info, vulkan.null, out), "vkCreateQueryPool")
        destroy = functions.vkDestroyQueryPool
        self._pool = Handle("query pool", out[0], lambda handle: destroy(device, handle, vulkan.null))

    def begin(self) -> None:
        """Takes the first timestamp in order with the launches made so far."""
        f = self._functions
        self._queue.record(f.vkCmdResetQueryPool, self._pool.value, 0, 2)
        self._queue.record(f.vkCmdWriteTimestamp, _BOTTOM_OF_PIPE, self._pool.value, 0)
        self._running = True

    def end(self) -> int:
        """Takes the second timestamp, waits for it, and returns the nanoseconds between the two."""
        if not self._running:
            raise DeviceError("time_end() without time_begin()")
        self._running = False
        self._queue.record(self._functions.vkCmdWriteTimestamp, _BOTTOM_OF_PIPE, self._pool.value, 1)
        self._queue.wait_all()
        values = self._vulkan.ffi.new("uint64_t[2]")
        call = self._functions.vkGetQueryPoolResults
        result = call(self._device, self._pool.value, 0, 2, 16, values, 8, _WAIT_64)
        self._vulkan.check(result, "vkGetQueryPoolResults")
        return int(((values[1] - values[0]) & self._mask) * self._period)

    def close(self) -> None:
        self._pool.close()
