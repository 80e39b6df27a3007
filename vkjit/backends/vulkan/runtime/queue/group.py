"""The state that all queues of a device share, and the release of memory that several queues use.

Queues share one lock, one numbering of epochs and one failure state. A failed device stays failed. An `Awaited` item is
released once, when all queues that may use it are done.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from vkjit.errors import DeviceError
from vkjit.runtime.handles import new_lock

if TYPE_CHECKING:
    from ..pipeline.pipeline import VulkanKernel
    from .queue import Queue

__all__ = ["NOW", "Awaited", "QueueGroup", "Releasable"]

NOW = 1 << 62
"""A serial of external queues: all work that the other library has submitted by the time of the wait."""


class Releasable(Protocol):
    """Memory that may be dropped while the device still uses it."""

    @property
    def nbytes(self) -> int: ...

    def release(self) -> None: ...


class QueueGroup:
    """The shared state of a device's queues: the lock, the numbering of epochs, the failure of the device.

    `exports` is True if timelines can be exported to other libraries. `abandoned` is True in a child of a fork.
    """

    def __init__(self) -> None:
        self.lock: Any = new_lock()
        self.failure: DeviceError | None = None
        self.abandoned = False
        self.queues: list[Queue] = []
        self.epochs = itertools.count(1)
        self.kernels: weakref.WeakSet[VulkanKernel] = weakref.WeakSet()
        self.exports = False
        self.observed = False
        """True if the device has observers, which must see every launch."""
        self.sending = False
        """True during a submission, when signal handlers and finalizers may not launch."""
        self.busy = False
        """True while a launching thread sends or opens a submission; other threads shouldn't wait for the lock then."""

    def check(self) -> None:
        """Raise the device's failure if it can't be used any more."""
        if self.failure is not None:
            raise self.failed()

    def fail(self, failure: DeviceError) -> None:
        """Mark the device as failed, for the given reason."""
        self.failure = failure
        self._call_in_tickets()

    def allow_fast_paths(self, allowed: bool) -> None:
        """Turn the queues' fast path on, or off from the next launch on."""
        with self.lock:
            self.observed = not allowed
            self._call_in_tickets()

    def _call_in_tickets(self) -> None:
        for queue in self.queues:
            queue.command_handle = 0

    def failed(self) -> DeviceError:
        """Return a new copy of the device's failure, to be raised."""
        failure = self.failure or DeviceError("the device is in order")
        return type(failure)(*failure.args)

    def abandon(self, reason: str) -> None:
        """Mark the device as unusable in a child of a fork, which must not call the parent's driver at all.

        Some drivers crash in their exit handlers if the child exits by `sys.exit`; children of multiprocessing end by
        `os._exit` and don't run them.
        """
        self.fail(DeviceError(reason))
        self.abandoned = True
        self.lock = threading.RLock()  # another thread of the parent may have held the old one
        for queue in self.queues:
            queue.lock = self.lock

    def wait_all(self) -> None:
        """Submit and wait for everything recorded so far in all queues."""
        for queue in list(self.queues):
            queue.wait_all()

    def poll(self) -> None:
        """Update the completion of all queues, and release memory that is no longer used."""
        with self.lock:
            for queue in self.queues:
                queue.poll()
                queue.reclaim()

    def last(self) -> list[tuple[Queue, int]]:
        """Return the newest submission of each queue. Doesn't take the lock, because finalizers call it."""
        return [(queue, queue.newest) for queue in self.queues]


class Awaited:
    """A dropped item that several queues may use, released when all of them are done. `uses` are (queue, serial)."""

    __slots__ = ("_item", "_uses", "nbytes")

    def __init__(self, item: Releasable, uses: list[tuple[Queue, int]]) -> None:
        self._item = item
        self._uses = uses
        self.nbytes = item.nbytes

    def release(self) -> None:
        """Requeue itself with the next queue that isn't done, or release the item if all are. Called under the lock."""
        while self._uses:
            queue, serial = self._uses.pop()
            if serial > queue.completed:
                queue.dropped.append((serial, self))
                return
        self._item.release()
