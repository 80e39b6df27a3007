"""Streams and events of a Vulkan device: a stream is a queue, and an event is a submission of a queue.

Recording an event sends nothing to the device. The query of a timestamp is reused only after the device has written it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkjit.errors import ArgumentError, DeviceError, DeviceLostError, FeatureError
from vkjit.runtime.capture import check_waiting
from vkjit.runtime.handles import Handle
from vkjit.runtime.streams import DeviceEvent, DeviceStream

from ..loader import Functions, Vulkan
from .queue import Queue
from .transfer_queue import CopyQueue

if TYPE_CHECKING:
    from ..device import VulkanDevice

__all__ = ["QueueEvent", "QueueStream", "Timestamps"]

PLACES = 1024
_TIMESTAMP = 2  # VK_QUERY_TYPE_TIMESTAMP
_TOP_OF_PIPE, _BOTTOM_OF_PIPE = 0x1, 0x2000
_64_BIT, _WAIT = 0x1, 0x2


class QueueStream(DeviceStream):
    """A stream with its own command queue. Streams may share a hardware queue if the device has few."""

    def __init__(self, device: VulkanDevice, queue: Queue, priority: int) -> None:
        self.device: VulkanDevice = device
        self.queue = queue
        self.priority = priority
        self.copies = isinstance(queue, CopyQueue)

    def __del__(self) -> None:  # without this module's globals, which are gone late in interpreter shutdown
        try:
            queue = self.queue
        except AttributeError:  # the constructor was interrupted
            return
        queue.group.left.append(queue)

    def synchronize(self) -> None:
        check_waiting(self.device)
        self.device.check_reports_of(self.queue)

    def query(self) -> bool:
        self.queue.group.enter()
        with self.queue.lock:
            newest = self.queue.newest
        return _is_done(self.queue, newest)

    def wait_event(self, event: DeviceEvent) -> None:
        if not isinstance(event, QueueEvent) or event.device is not self.device:
            raise ArgumentError("an event of another device: wait for it with event.synchronize()")
        self.queue.group.enter()
        if event.queue is not None:
            self.queue.wait_for(event.queue, event.serial)


class QueueEvent(DeviceEvent):
    """An event, marked by submission `serial` of `queue`. `queue` is None before it is recorded."""

    def __init__(self, device: VulkanDevice, timing: bool) -> None:
        self.device: VulkanDevice = device
        self.queue: Queue | None = None
        self.serial = 0
        self._stamp: Stamp | None = None
        self._timing = timing

    def record(self, stream: DeviceStream, *, barrier: bool = True) -> None:
        if not isinstance(stream, QueueStream) or stream.device is not self.device:
            raise ArgumentError("an event is recorded in streams of its own device")
        queue = stream.queue
        queue.group.enter()
        with queue.lock:
            if self._timing:
                self._stamp = self.device.timestamps.take(queue, barrier)
            self.queue, self.serial = queue, queue.newest

    def query(self) -> bool:
        if self.queue is None:
            return True
        if not isinstance(self.queue.group.failure, DeviceLostError):  # what was complete before the loss stays so
            self.device.check_open()
        return _is_done(self.queue, self.serial)

    def synchronize(self) -> None:
        check_waiting(self.device)
        if self.queue is not None:
            self.queue.group.enter()
            self.queue.wait(self.serial)

    def nanoseconds_since(self, start: DeviceEvent) -> int:
        if not isinstance(start, QueueEvent) or start.device is not self.device:
            raise ArgumentError("time passes between two events of one device")
        if not (self._timing and start._timing):
            raise ArgumentError("an event without timing has no time: make both with timing=True")
        if self._stamp is None or start._stamp is None:
            raise DeviceError("an event that was never recorded has no time")
        self.device.timestamps.check()
        with self.device.use():
            self.synchronize()
            start.synchronize()
            return self.device.timestamps.difference(start._stamp, self._stamp)


def _is_done(queue: Queue, serial: int) -> bool:
    """Return True if the submission is complete. Sends it if it is open, so that polling programs make progress."""
    if serial <= queue.completed:
        return True
    queue.group.enter()  # nothing completes on a device that is lost or inherited through a fork
    if serial >= queue.serial:
        queue.submit()
    return queue.is_complete(serial)


class Stamp:
    """A query of the pool that a submission writes. It is freed together with this object."""

    __slots__ = ("_timestamps", "place", "queue", "serial")

    def __init__(self, timestamps: Timestamps, place: int, queue: Queue, serial: int) -> None:
        self._timestamps = timestamps
        self.place = place
        self.queue = queue
        self.serial = serial

    def __del__(self) -> None:  # see `QueueStream.__del__`
        try:
            query = self.place, self.queue, self.serial
        except AttributeError:  # the constructor was interrupted
            return
        self._timestamps.free.append(query)


class Timestamps:
    """The timestamp queries of a device. Raises FeatureError if its queues don't support timestamps.

    `period` is in nanoseconds per tick, `places` is the number of queries in the pool. With `resets_on_host`, no command
    resets a query, which would count as time of the work before it. With `in_order`, each command is complete before the
    next starts, and timestamps needn't wait for earlier work.
    """

    def __init__(
        self,
        vulkan: Vulkan,
        functions: Functions,
        device: Any,
        period: float,
        valid_bits: int,
        resets_on_host: bool,
        in_order: bool,
        places: int = PLACES,
    ) -> None:
        if not valid_bits or not period:
            raise FeatureError("this device's queues have no timestamps: measure on the host, after synchronize()")
        self._vulkan = vulkan
        self._functions = functions
        self._device = device
        self._period = period
        self._resets_on_host = resets_on_host
        self._stage = _TOP_OF_PIPE if in_order else _BOTTOM_OF_PIPE
        self._mask = (1 << valid_bits) - 1
        self.free: list[tuple[int, Queue | None, int]] = [(place, None, 0) for place in range(places)]
        info = vulkan.struct("VkQueryPoolCreateInfo", queryType=_TIMESTAMP, queryCount=places)
        out = vulkan.ffi.new("VkQueryPool *")
        vulkan.check(functions.vkCreateQueryPool(device, info, vulkan.null, out), "vkCreateQueryPool")
        destroy = functions.vkDestroyQueryPool
        self._pool = Handle("query pool", out[0], lambda handle: destroy(device, handle, vulkan.null))

    def take(self, queue: Queue, barrier: bool = True) -> Stamp:
        """Record a timestamp after everything recorded in the queue so far. Call it under the lock.

        The timestamp waits for earlier work in any case; with `barrier`, later work waits, too.
        """
        place = self._place()
        f = self._functions
        if self._resets_on_host:
            f.vkResetQueryPool(self._device, self._pool.value, place, 1)
        else:
            queue.record(f.vkCmdResetQueryPool, self._pool.value, place, 1, barrier=barrier)
        queue.record(f.vkCmdWriteTimestamp, self._stage, self._pool.value, place, barrier=barrier)
        return Stamp(self, place, queue, queue.serial)

    def difference(self, start: Stamp, end: Stamp) -> int:
        """Return the nanoseconds between two timestamps of complete submissions; negative if `end` came first."""
        ticks = (self._value(end) - self._value(start)) & self._mask
        if ticks > self._mask >> 1:
            ticks -= self._mask + 1
        return int(ticks * self._period)

    def check(self) -> None:
        """Raise DeviceError if the device, and with it the query pool, was closed."""
        if self._pool.closed:
            raise DeviceError("the device was closed, and with it the times of its events")

    def close(self) -> None:
        self._pool.close()

    def _value(self, stamp: Stamp) -> int:
        value = self._vulkan.ffi.new("uint64_t *")
        call = self._functions.vkGetQueryPoolResults
        result = call(self._device, self._pool.value, stamp.place, 1, 8, value, 8, _64_BIT | _WAIT)
        self._vulkan.check(result, "vkGetQueryPoolResults")
        return int(value[0])

    def _place(self) -> int:
        for index, (place, queue, serial) in enumerate(self.free):
            if queue is None or queue.is_complete(serial):
                del self.free[index]
                return place
        if not self.free:
            raise DeviceError(f"{PLACES} timed events are alive: drop some")
        place, queue, serial = self.free.pop(0)
        if queue is not None:
            queue.wait(serial)
        return place
