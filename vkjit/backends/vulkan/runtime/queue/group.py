"""The state that all queues of a device share, and the release of memory that several queues use.

Queues share one lock, one numbering of epochs and one failure state. A failed device stays failed. An `Awaited` item is
released once, when all queues that may use it are done.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from vkjit.errors import DeviceError
from vkjit.runtime.handles import is_cut_off, new_lock, on_exit
from vkjit.runtime.threads import this_thread

if TYPE_CHECKING:
    from ..pipeline.pipeline import VulkanKernel
    from .queue import Queue

__all__ = ["NOW", "Awaited", "QueueGroup", "Releasable", "Use"]

NOW = 1 << 62
"""A serial of external queues: all work that the other library has submitted by the time of the wait."""

_MAX_LEFT = 64
"""Number of busy queues of dropped streams from which on new streams share them."""

_LONGEST_USE, _NAP = 10.0, 1e-3
"""Seconds for which `close()` waits for other threads, and seconds between its looks."""


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
        self.left: deque[Queue] = deque()
        """Queues whose streams were dropped, for later streams. Finalizers append to it, without the lock."""
        self.idle: dict[Queue, None] = {}
        """Those of them that have nothing to do, and so aren't in `queues`."""
        self.epochs = itertools.count(1)
        self.kernels: weakref.WeakSet[VulkanKernel] = weakref.WeakSet()
        self.exports = False
        self.observed = False
        """True if the device has observers, which must see every launch."""
        self.exiting = False
        """True at interpreter exit: daemon threads are refused, as they could submit work for as long as it is awaited."""
        self.busy = False
        """True while a launching thread sends or opens a submission; other threads shouldn't wait for the lock then."""
        self.uses: dict[int, object] = {}
        """Per `Use`, by id: the token of its thread, or None if it belongs to none."""
        self.destroy: Callable[[], None] | None = None
        """Destroys the device's objects; set when the device is closed, and called when nothing uses them any more."""
        _groups.add(self)

    def check(self) -> None:
        """Raise the device's failure if it can't be used any more, SystemExit in a thread that the exit cuts off."""
        if self.failure is not None or (self.exiting and is_cut_off()):
            raise self.failed()

    def fail(self, failure: DeviceError) -> None:
        """Mark the device as failed, for the given reason."""
        self.failure = failure
        self._call_in_tickets()

    def enter(self) -> None:
        """Raise the device's failure, or DeviceError if this thread is in the midst of another call of the device."""
        if self.failure is not None or self.exiting:
            self.check()
        if self.lock._is_owned():  # private, but the standard library's conditions use it too
            raise DeviceError(
                "a handler of a signal, or a finalizer, used the device while the same thread was launching, copying or "
                "allocating: have it set a flag, and do the work where that is looked at"
            )

    def use(self, of_thread: bool = True) -> Use:
        """Return a new use of the device, for this thread or for none. Raises as `enter`."""
        self.enter()
        with self.lock:
            self.check()
            return Use(self, this_thread.token if of_thread else None)

    def wait_unused(self) -> None:
        """Wait until other threads have ended their uses, up to `_LONGEST_USE` seconds."""
        here, deadline = this_thread.token, time.monotonic() + _LONGEST_USE
        while not {None, here}.issuperset(list(self.uses.values())) and time.monotonic() < deadline:
            time.sleep(_NAP)

    def allow_fast_paths(self, allowed: bool) -> None:
        """Turn the queues' fast path on, or off from the next launch on."""
        with self.lock:
            self.observed = not allowed
            self._call_in_tickets()

    def begin_exit(self) -> None:
        """Refuse daemon threads from now on. Doesn't take the lock, which they may take again and again."""
        self.exiting = True
        self._call_in_tickets()

    def give_up(self) -> DeviceError:
        """Leave the device as it is, to be destroyed by the system, and return what is to be raised."""
        self.fail(DeviceError("the device hasn't completed its work long after the end of the program"))
        self.abandoned = True
        return self.failure  # type: ignore[return-value]

    def _call_in_tickets(self) -> None:
        for queue in self.queues:
            queue.command_handle = 0

    def failed(self) -> DeviceError | SystemExit:
        """Return a new copy of the device's failure, to be raised; in a thread that the exit cuts off, SystemExit."""
        if is_cut_off():
            return SystemExit()  # ends the thread without a traceback
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
        for queue in (*self.queues, *self.idle):
            queue.lock = self.lock

    def wait_all(self) -> None:
        """Submit and wait for everything recorded so far in all queues."""
        for queue in list(self.queues):
            queue.wait_all()
        if self.left:
            self.retire()

    def retire(self) -> None:
        """Take queues of dropped streams that have nothing to do out of `queues`, so that waits don't visit them."""
        with self.lock:
            resting: set[Queue] = set()
            for _ in range(len(self.left)):
                queue = self.left.popleft()
                if queue.is_at_rest():
                    resting.add(queue)
                else:
                    self.left.append(queue)
            self.idle.update(dict.fromkeys(resting))
            self.queues = [
                queue for queue in self.queues if queue not in resting
            ]  # finalizers may be reading the old one

    def take_idle(self, kind: object) -> Queue | None:
        """Return a queue of this kind that a dropped stream has left; None if there is none. Call it under the lock.

        Queues that are busy are given to new streams only if there are `_MAX_LEFT` of them.
        """
        self.retire()
        for queues in (list(self.idle), self.left if len(self.left) >= _MAX_LEFT else ()):
            queue = next((queue for queue in queues if queue.kind == kind), None)
            if queue is not None:
                if queues is self.left:
                    self.left.remove(queue)
                self.activate(queue)
                return queue
        return None

    def activate(self, queue: Queue) -> None:
        """Put a queue that had nothing to do among `queues` again. Call it under the lock."""
        if queue in self.idle:
            self.queues.append(queue)
            del self.idle[queue]

    def poll(self) -> None:
        """Update the completion of all queues, and release memory that is no longer used."""
        with self.lock:
            for queue in (*self.queues, *self.idle):
                queue.poll()
                queue.reclaim()

    def last(self) -> list[tuple[Queue, int]]:
        """Return the newest submission of each queue. Doesn't take the lock, because finalizers call it."""
        return [(queue, queue.newest) for queue in self.queues]


_groups: weakref.WeakSet[QueueGroup] = weakref.WeakSet()


def _begin_exit() -> None:
    for group in list(_groups):
        group.begin_exit()


on_exit(_begin_exit)


class Use:
    """A use of a device's objects without its lock. They are destroyed only when it has ended, or is collected.

    A context manager that ends itself.
    """

    __slots__ = ("_group",)

    def __init__(self, group: QueueGroup, thread: object) -> None:
        self._group = group
        group.uses[id(self)] = thread

    def __enter__(self) -> None:
        pass

    def end(self, *_: object, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """End the use. Later calls do nothing. If the device was closed meanwhile, and this was the last, destroy it."""
        try:
            group = self._group
        except AttributeError:  # its constructor was interrupted
            return
        if group.uses.pop(id(self), None) is not None and group.destroy is not None and not group.uses:
            if not _finalizing():  # too late to call the driver
                group.destroy()

    __exit__ = __del__ = end


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
