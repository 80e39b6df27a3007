"""What the queues of one device share, and what is dropped while several of them may use it.

Enters: queues. Leaves: one lock, one numbering of epochs, one state of the device for all of them. Holds: a device that
failed stays failed; something awaited is released once, when every queue that may use it is done with it.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

from vkjit.errors import DeviceError

if TYPE_CHECKING:
    from ..pipeline.pipeline import VulkanKernel
    from .queue import Queue

__all__ = ["NOW", "Awaited", "QueueGroup", "Releasable"]

NOW = 1 << 62
"""A serial of foreign queues: whatever the other library has asked for by the time that somebody waits for it."""


class Releasable(Protocol):
    """What may be dropped while the device still uses it."""

    @property
    def nbytes(self) -> int: ...

    def release(self) -> None: ...


class QueueGroup:
    """What the queues of a device have in common: the lock, the numbering of epochs, the end of the device."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.failure: DeviceError | None = None
        self.abandoned = False
        self.queues: list[Queue] = []
        self.epochs = itertools.count(1)
        self.kernels: weakref.WeakSet[VulkanKernel] = weakref.WeakSet()
        self.exports = False  # whether timelines can be given to other libraries
        self.watchers: set[object] = set()
        self.sending = False
        """Whether a submission is under way, in which handlers of signals and finalizers may not launch."""
        self.busy = False
        """True while a thread that launches sends or opens a submission: others shouldn't queue up for the lock."""

    def check(self) -> None:
        """Raises when the device can't be used any more."""
        if self.failure is not None:
            raise self.failed()

    def fail(self, failure: DeviceError) -> None:
        """Ends the use of the device."""
        self.failure = failure
        self._call_in_tickets()

    def watch(self, watcher: object, watching: bool) -> None:
        """Notes those that have to see each launch; while there are any, none takes the direct way."""
        with self.lock:
            (self.watchers.add if watching else self.watchers.discard)(watcher)
            self._call_in_tickets()

    def _call_in_tickets(self) -> None:
        for queue in self.queues:
            queue.command_handle = 0

    def failed(self) -> DeviceError:
        """A fresh copy of the reason why the device can't be used."""
        failure = self.failure or DeviceError("the device is in order")
        return type(failure)(*failure.args)

    def abandon(self, reason: str) -> None:
        """In a child of fork: nothing of the parent's driver may be touched, not even to destroy it.

        Some drivers crash in exit handlers of their own when such a child exits by `sys.exit`; children of
        multiprocessing end by `os._exit` and don't run them.
        """
        self.fail(DeviceError(reason))
        self.abandoned = True
        self.lock = threading.RLock()  # another thread of the parent may have held the old one
        for queue in self.queues:
            queue.lock = self.lock

    def wait_all(self) -> None:
        """Submits and waits for everything recorded so far in any queue."""
        for queue in list(self.queues):
            queue.wait_all()

    def poll(self) -> None:
        """Notes what has completed, and releases what nobody uses any more."""
        with self.lock:
            for queue in self.queues:
                queue.poll()
                queue.reclaim()

    def last(self) -> list[tuple[Queue, int]]:
        """What has to be complete before everything recorded so far is. Finalizers ask, so without the lock."""
        return [(queue, queue.newest) for queue in self.queues]


class Awaited:
    """Something dropped that several queues may use; it is released when all of them are done with it."""

    __slots__ = ("_item", "_uses", "nbytes")

    def __init__(self, item: Releasable, uses: list[tuple[Queue, int]]) -> None:
        self._item = item
        self._uses = uses
        self.nbytes = item.nbytes

    def release(self) -> None:
        """Passes itself on to the next queue that isn't done; releases at the end. Called under the lock."""
        while self._uses:
            queue, serial = self._uses.pop()
            if serial > queue.completed:
                queue.dropped.append((serial, self))
                return
        self._item.release()
