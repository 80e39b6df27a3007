"""Observers of a device's calls: captures, profiles, recorders and checks of launches.

An observer overrides the methods of `Observer` whose calls it wants to see. Observers stack: the one that was added
last sees a call first, and passes it on with `proceed`, or doesn't. For each method, `proceed` is the method of the
observer before it that overrides the method; for the first of these, it is the device's own method.

A method is replaced on the device instance only while an observer overrides it. So calls of a device that isn't
observed have no overhead. A device that is observed launches through `launch` only: its fast paths are off.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import ArgumentError
from .handles import new_lock, on_fork
from .threads import this_thread

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Self

    from .device import Buffer, Device, LoadedKernel

    Bytes: TypeAlias = npt.NDArray[np.uint8]

__all__ = ["Extents", "LaunchFields", "LaunchRequest", "Observable", "Observer"]

Extents: TypeAlias = "dict[int, tuple[int, int]]"
"""The address ranges [low, high) of arrays, by parameter index."""


class LaunchRequest(NamedTuple):
    """A launch of `groups` workgroups with the packed argument block `block`.

    `reads` and `writes` are the buffers that the kernel accesses. `extents` are the address ranges of its arrays, known
    only for launches that are captured: argument blocks have the addresses of arrays, but not their ends.
    """

    kernel: LoadedKernel
    groups: tuple[int, int, int]
    block: bytes
    reads: Sequence[Buffer]
    writes: Sequence[Buffer]
    extents: Extents | None = None


LaunchFields: TypeAlias = (
    "tuple[LoadedKernel, tuple[int, int, int], bytes, Sequence[Buffer], Sequence[Buffer], Extents | None]"
)
"""A `LaunchRequest`, or a plain tuple of its fields, which takes a quarter of the time to make."""


class Observer:
    """Base class of observers. Each method passes the call on; its other parameters are those of the device's method.

    `thread` is the thread whose calls it sees, by its `this_thread.token`. If it is None, the observer sees the calls of
    all threads, and its methods must be thread-safe.
    """

    thread: object = None
    calls_device = False
    """True if its methods call the device, other than by `proceed`. Observers added later see these calls, too."""

    def is_here(self) -> bool:
        """Return True if it sees the calls of the running thread."""
        return self.thread in (None, this_thread.token)

    def check(self, device: Device) -> None:
        """Raise DeviceError if this observer can't observe the device, or not beside the observers that it has."""

    def launch(self, proceed: Callable[..., None], request: LaunchRequest) -> None:
        proceed(request)

    def fill(self, proceed: Callable[..., None], buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        proceed(buffer, offset, nbytes, pattern)

    def copy(
        self, proceed: Callable[..., None], source: Buffer, source_offset: int, target: Buffer, target_offset: int,
        nbytes: int,
    ) -> None:  # fmt: skip
        proceed(source, source_offset, target, target_offset, nbytes)

    def write(self, proceed: Callable[..., None], buffer: Buffer, offset: int, data: Bytes) -> None:
        proceed(buffer, offset, data)

    def read(self, proceed: Callable[..., None], buffer: Buffer, offset: int, out: Bytes) -> None:
        proceed(buffer, offset, out)

    def allocate(self, proceed: Callable[..., Buffer], nbytes: int) -> Buffer:
        return proceed(nbytes)

    def adopt(self, proceed: Callable[..., Buffer | None], address: int, nbytes: int, owner: object) -> Buffer | None:
        return proceed(address, nbytes, owner)

    def host_view(self, proceed: Callable[..., Bytes | None], buffer: Buffer) -> Bytes | None:
        return proceed(buffer)

    def synchronize(self, proceed: Callable[[], None]) -> None:
        proceed()


_METHODS = ("launch", "fill", "copy", "write", "read", "allocate", "adopt", "host_view", "synchronize")
_lock = new_lock()
"""Held while the methods of a device change. Acquire it with `with _lock:` only: after `_lock.acquire()`, an interrupt could
come before the `try` statement that releases it."""
_observed: weakref.WeakSet[Observable] = weakref.WeakSet()
"""The devices that have been observed."""


class Observable:
    """The part of a device that observers are added to.

    `observers` are in the order in which they were added. A signal handler may interrupt `_intercept` at any point, and
    may add or remove observers itself, since the lock is reentrant. So `_intercept` works on a copy of the list, and
    starts again if the list has changed in the meantime.
    """

    observers: list[Observer]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        self.observers = []
        return self

    def add_observer(self, observer: Observer) -> None:
        """Show the observer all calls from now on, before other observers.

        If this is interrupted, call `remove_observer`. Raises the DeviceError of `Observer.check`, ArgumentError for
        other objects than observers and for those of a thread that is given by its ident.
        """
        if not isinstance(observer, Observer):
            raise ArgumentError(f"add_observer() takes a vkjit.runtime.observers.Observer, found {observer!r:.80}")
        if isinstance(observer.thread, int):
            raise ArgumentError(
                "an observer's thread is this_thread.token of vkjit.runtime.threads, found a number: idents are reused by "
                "later threads"
            )
        with _lock:
            observer.check(self)  # type: ignore[arg-type]  # a device
            _observed.add(self)
            self.observers.append(observer)
            self._intercept()

    def remove_observer(self, observer: Observer) -> None:
        """Remove an observer, in any order. May be called repeatedly, and for observers that weren't added.

        Calls of other threads that have begun already may still reach it.
        """
        with _lock:
            with contextlib.suppress(ValueError):
                self.observers.remove(observer)
            self._intercept()

    def observers_here(self) -> list[Observer]:
        """Return the observers that see calls of the running thread and asyncio task."""
        return [observer for observer in self.observers if observer.is_here()]

    def allow_fast_paths(self, allowed: bool) -> None:
        """Allow launches that bypass `launch`, or forbid them from now on. Devices with fast paths override it."""

    def _intercept(self) -> None:
        while True:
            observers = list(self.observers)
            if observers:
                self.allow_fast_paths(False)
            for name in _METHODS:
                call = own = functools.partial(getattr(type(self), name), self)
                for observer in observers:
                    if getattr(type(observer), name) is not getattr(Observer, name):
                        call = _link(observer, getattr(observer, name), call)
                if call is not own:
                    setattr(self, name, functools.partial(_launch, call) if name == "launch" else call)
                else:
                    with contextlib.suppress(AttributeError):
                        delattr(self, name)
            if not observers:
                self.allow_fast_paths(True)
            if observers == self.observers:  # unchanged while the methods were replaced
                return


def _launch(call: Callable[[LaunchRequest], None], request: LaunchFields) -> None:
    """Pass a launch, whose fields may come as a plain tuple, to the first observer as a LaunchRequest."""
    call(LaunchRequest._make(request))


def _link(observer: Observer, method: Callable[..., Any], proceed: Callable[..., Any]) -> Any:
    """Return the replacement of a method: `method` if the observer sees the running thread's calls, else `proceed`."""
    observed, is_here = functools.partial(method, proceed), observer.is_here
    if observer.thread is None:
        return observed

    def call(*args: Any, **kwargs: Any) -> Any:
        return (observed if is_here() else proceed)(*args, **kwargs)

    return call


def _in_child() -> None:
    """Remove the observers of threads that don't exist in a child of a fork."""
    for device in list(_observed):
        for observer in list(device.observers):
            if observer.thread not in (None, this_thread.token):
                device.remove_observer(observer)


on_fork(_in_child)
