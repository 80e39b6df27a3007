"""Streams and events: the interfaces of all devices, and the implementation for synchronous devices.

`ImmediateStream` and `ImmediateEvent` serve devices on which a launch has completed when the call returns. Work in one
stream runs in the order of the calls. Work in different streams may overlap unless it accesses the same memory; then it
runs in the order of the calls as well, so that the choice of streams never changes results.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

from ..errors import ArgumentError, DeviceError
from .capture import check_waiting

if TYPE_CHECKING:
    from .artifact import KernelArtifact
    from .device import Device

__all__ = ["DeviceEvent", "DeviceStream", "ImmediateEvent", "ImmediateStream"]


class DeviceStream(ABC):
    """A sequence of work on a device, executed in order.

    Higher `priority` goes first if the device supports priorities.
    """

    device: Device
    priority: int
    copies = False
    """True if the stream takes copies only."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for everything launched in this stream so far."""

    @abstractmethod
    def query(self) -> bool:
        """Return True if everything launched in this stream so far is complete. Never waits."""

    @abstractmethod
    def wait_event(self, event: DeviceEvent) -> None:
        """Order later launches in this stream after the event. The host doesn't wait."""


def refuse(artifact: KernelArtifact) -> NoReturn:
    """Raise ArgumentError for a kernel that was launched in a stream for copies."""
    raise ArgumentError(
        f"kernel {artifact.name} was launched in a stream for copies: launch it in another stream; what it needs of this "
        f"one it waits for by itself"
    )


class DeviceEvent(ABC):
    """A point in a stream that can be waited for and timed."""

    device: Device

    @abstractmethod
    def record(self, stream: DeviceStream, *, barrier: bool = True) -> None:
        """Mark the work launched in the stream so far. An event can be recorded again.

        With `barrier`, later work in the stream starts after the marked work.
        """

    @abstractmethod
    def query(self) -> bool:
        """Return True if the marked work is complete, or if the event was never recorded. Never waits."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the marked work. Errors that kernels reported are raised only by waits for streams or the device."""

    @abstractmethod
    def nanoseconds_since(self, start: DeviceEvent) -> int:
        """Return the device time between two events that were recorded with timing. Waits for both."""


class ImmediateStream(DeviceStream):
    """A stream of a synchronous device, on which all work is complete."""

    def __init__(self, device: Device, priority: int, copies: bool = False) -> None:
        self.device = device
        self.priority = priority
        self.copies = copies

    def synchronize(self) -> None:
        """As in `DeviceStream`. Raises the errors that kernels reported."""
        self.device.synchronize()

    def query(self) -> bool:
        self.device.check_open()
        return True

    def wait_event(self, event: DeviceEvent) -> None:
        self.device.check_open()
        if event.device is not self.device:
            raise ArgumentError("an event of another device: wait for it with event.synchronize()")


class ImmediateEvent(DeviceEvent):
    """An event of a synchronous device: the host time at which it was recorded."""

    def __init__(self, device: Device, timing: bool) -> None:
        self.device = device
        self._timing = timing
        self._recorded: int | None = None

    def record(self, stream: DeviceStream, *, barrier: bool = True) -> None:
        del barrier
        self.device.check_open()
        if stream.device is not self.device:
            raise ArgumentError("an event is recorded in streams of its own device")
        self._recorded = time.perf_counter_ns()

    def query(self) -> bool:
        self.device.check_open()
        return True

    def synchronize(self) -> None:
        self.device.check_open()
        check_waiting(self.device)

    def nanoseconds_since(self, start: DeviceEvent) -> int:
        if not isinstance(start, ImmediateEvent) or start.device is not self.device:
            raise ArgumentError("time passes between two events of one device")
        if not (self._timing and start._timing):
            raise ArgumentError("an event without timing has no time: make both with timing=True")
        if self._recorded is None or start._recorded is None:
            raise DeviceError("an event that was never recorded has no time")
        self.synchronize()
        return self._recorded - start._recorded
