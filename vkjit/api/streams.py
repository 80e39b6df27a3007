"""Streams and events: overlapping work, synchronization and timing.

Streams never change results: operations that access the same memory run in the order of the calls, in any stream.
Events are therefore only needed for the host, for timing, and to order work that shares no memory.
"""

from __future__ import annotations

import functools

from ..backends.selection import default_device, device as open_device
from ..errors import ArgumentError
from ..runtime.device import Device
from ..runtime.open_blocks import ReentrantBlock
from ..runtime.streams import DeviceEvent, DeviceStream

__all__ = ["Event", "Stream", "current_stream"]


class Stream(ReentrantBlock["Stream"]):
    """A queue of work on a device (default: the default device).

    `with stream:` makes the stream current for launches and copies of this thread or asyncio task on that device; tasks
    begin with the current stream of the code that creates them. Streams with positive `priority` run before other
    streams, and those with negative `priority` after them, if the device supports priorities. With `copies`, the stream
    accepts only uploads, downloads and copies, which overlap with kernels on GPUs with copy engines; launching a kernel
    in it raises ArgumentError.

    Raises ArgumentError if `priority` isn't an integer, DeviceNotFoundError if there is no such device.
    """

    _yields_itself = True

    def __init__(self, device: int | str | Device | None = None, *, priority: int = 0, copies: bool = False) -> None:
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ArgumentError(f"a stream's priority is an integer, found {priority!r}")
        self._wrap(open_device(device).open_stream(priority, copies))

    @classmethod
    def _of(cls, stream: DeviceStream) -> Stream:
        """Wrap an existing stream of the runtime."""
        wrapper = cls.__new__(cls)
        wrapper._wrap(stream)
        return wrapper

    def _wrap(self, stream: DeviceStream) -> None:
        super().__init__(functools.partial(stream.device.while_in_stream, stream))
        self._stream = stream

    @property
    def device(self) -> Device:
        """The device of the stream."""
        return self._stream.device

    @property
    def priority(self) -> int:
        """The priority requested when the stream was made."""
        return self._stream.priority

    def __repr__(self) -> str:
        return f"<Stream of {self.device.name}, priority {self.priority}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._stream is self._stream

    def __hash__(self) -> int:
        return hash(id(self._stream))

    def synchronize(self) -> None:
        """Wait for all work launched in this stream so far. Raises errors that kernels reported."""
        self._stream.synchronize()

    def query(self) -> bool:
        """Return True if all work launched in this stream so far is complete. Never blocks."""
        return self._stream.query()

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (a new one by default) after all work launched in this stream so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Make all future work in this stream wait for the event. Doesn't block the host."""
        if not isinstance(event, Event):
            raise ArgumentError(f"wait_event() takes a vk.Event, found {event!r}")
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        """Make all future work in this stream wait for all work launched in the other stream so far."""
        self.wait_event(_checked(other, "wait_stream()").record_event())


class Event:
    """A marker in a stream. With `timing`, the device records the time at which it reaches the marker.

    An event that was never recorded counts as complete.
    """

    def __init__(self, *, timing: bool = False) -> None:
        self._timing = timing
        self._event: DeviceEvent | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Record the event after all work launched in the stream so far. Recording again moves the event.

        `stream` defaults to this thread's current stream on the default device.
        """
        chosen = default_device().stream if stream is None else _checked(stream, "record()")._stream
        if self._event is None or self._event.device is not chosen.device:
            self._event = chosen.device.open_event(self._timing)
        self._event.record(chosen)

    def wait(self, stream: Stream | None = None) -> None:
        """Make all future work in the stream wait for this event. Doesn't block the host.

        `stream` defaults to this thread's current stream on the default device. Raises ArgumentError if the event was
        recorded on another device than the stream's; use `synchronize()` then.
        """
        if self._event is not None:
            chosen = default_device().stream if stream is None else _checked(stream, "wait()")._stream
            chosen.wait_event(self._event)

    def query(self) -> bool:
        """Return True if all work launched before the event was recorded is complete. Never blocks."""
        return self._event is None or self._event.query()

    def synchronize(self) -> None:
        """Wait for all work launched before the event was recorded."""
        if self._event is not None:
            self._event.synchronize()

    def elapsed_time(self, end: Event) -> float:
        """Return the device time from this event to `end` in milliseconds. Waits for both.

        Raises ArgumentError for events without timing or never recorded, FeatureError if the device has no timestamps.
        """
        if not isinstance(end, Event) or self._event is None or end._event is None:
            raise ArgumentError("elapsed_time needs two recorded events: call record() on both first")
        return end._event.nanoseconds_since(self._event) / 1e6


def _checked(stream: Stream, what: str) -> Stream:
    """Return the stream. Raises ArgumentError if it isn't a `Stream`; `what` names the caller in the message."""
    if not isinstance(stream, Stream):
        raise ArgumentError(f"{what} takes a vk.Stream, found {stream!r}")
    return stream


def current_stream(device: int | str | Device | None = None) -> Stream:
    """Return this thread's current stream on the device (default: the default device)."""
    return Stream._of(open_device(device).stream)
