"""Streams and events for users: work that may overlap, points in it to wait for, and time between them.

Enters: devices and priorities. Leaves: `Stream`, `Event`, `current_stream`. Holds: streams never change results: work that
uses the same memory runs in the order of the calls, whichever streams it is in. So events are for the host, for time,
and for order between things that share no memory.
"""

from __future__ import annotations

import threading
from types import TracebackType

from .devices import default_device
from .devices import device as open_device
from .errors import ArgumentError
from .runtime.interface import Device
from .runtime.streams import DeviceEvent, DeviceStream

__all__ = ["Event", "Stream", "current_stream"]


class Stream:
    """An order of work on a device (the default one if none is named).

    `with stream:` sends what this thread launches and copies on that device into the stream; each thread has its own
    current stream. `priority`: above 0 goes before other streams, below 0 after them, where the device can tell.
    `copies`: a stream for uploads, downloads and copies alone, which run beside kernels on GPUs that have hardware for it;
    launching a kernel in it is an ArgumentError. Raises ArgumentError for a priority that is no integer;
    DeviceNotFoundError.
    """

    def __init__(self, device: int | str | Device | None = None, *, priority: int = 0, copies: bool = False) -> None:
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ArgumentError(f"a stream's priority is an integer, found {priority!r}")
        self._stream = open_device(device).open_stream(priority, copies)
        self._of_thread = threading.local()

    @classmethod
    def _of(cls, stream: DeviceStream) -> Stream:
        made = cls.__new__(cls)
        made._stream, made._of_thread = stream, threading.local()
        return made

    @property
    def device(self) -> Device:
        """The stream's device."""
        return self._stream.device

    @property
    def priority(self) -> int:
        """As it was asked for."""
        return self._stream.priority

    def __repr__(self) -> str:
        return f"<Stream of {self.device.name}, priority {self.priority}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._stream is self._stream

    def __hash__(self) -> int:
        return hash(id(self._stream))

    def __enter__(self) -> Stream:
        former, here = getattr(self._of_thread, "former", ()), self.device.stream
        self._of_thread.former = (*former, here)
        try:
            self.device.stream = self._stream
        except BaseException:  # an interruption: the block isn't entered, and nobody calls __exit__
            self._of_thread.former, self.device.stream = former, here
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        former: tuple[DeviceStream, ...] = getattr(self._of_thread, "former", ())
        if not former:
            raise ArgumentError(
                "this thread leaves a stream that it isn't in: a stream is left by the thread that entered it, once for "
                "each time, best by a with block"
            )
        self.device.stream = former[-1]
        self._of_thread.former = former[:-1]

    def synchronize(self) -> None:
        """Waits for everything launched in this stream so far; raises what kernels reported."""
        self._stream.synchronize()

    def query(self) -> bool:
        """Whether everything launched in this stream so far is complete; never waits."""
        return self._stream.query()

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event (a new one if none is given) after everything launched in this stream so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Has what is launched here from now on run after the event; the host doesn't wait."""
        if not isinstance(event, Event):
            raise ArgumentError(f"wait_event() takes a vk.Event, found {event!r}")
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        """Has what is launched here from now on run after everything launched in the other stream so far."""
        self.wait_event(_checked(other, "wait_stream()").record_event())


class Event:
    """A point in a stream. With `timing`, the device notes when it gets there.

    An event that was never recorded counts as complete.
    """

    def __init__(self, *, timing: bool = False) -> None:
        self._timing = timing
        self._event: DeviceEvent | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Marks everything launched so far in the stream (this thread's current stream of the default device if none
        is given). Recording again moves the event.
        """
        chosen = default_device().stream if stream is None else _checked(stream, "record()")._stream
        if self._event is None or self._event.device is not chosen.device:
            self._event = chosen.device.open_event(self._timing)
        self._event.record(chosen)

    def wait(self, stream: Stream | None = None) -> None:
        """Has what is launched in the stream (the current one) from now on run after the event. The host doesn't wait.

        Raises ArgumentError for an event of another device: wait for that one with `synchronize()`.
        """
        if self._event is not None:
            chosen = default_device().stream if stream is None else _checked(stream, "wait()")._stream
            chosen.wait_event(self._event)

    def query(self) -> bool:
        """Whether everything that the event marks is complete; never waits."""
        return self._event is None or self._event.query()

    def synchronize(self) -> None:
        """Waits for everything that the event marks."""
        if self._event is not None:
            self._event.synchronize()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end` as the device measured them; waits for both.

        Raises ArgumentError for events without timing or never recorded, FeatureError where a device has no timestamps.
        """
        if not isinstance(end, Event) or self._event is None or end._event is None:
            raise ArgumentError("elapsed_time needs two recorded events: call record() on both first")
        return end._event.nanoseconds_since(self._event) / 1e6


def _checked(stream: Stream, what: str) -> Stream:
    if not isinstance(stream, Stream):
        raise ArgumentError(f"{what} takes a vk.Stream, found {stream!r}")
    return stream


def current_stream(device: int | str | Device | None = None) -> Stream:
    """The stream that this thread's launches on the device (the default one) go to."""
    return Stream._of(open_device(device).stream)
