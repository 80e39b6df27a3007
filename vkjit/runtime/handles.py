"""Ownership of native objects: one owner, an idempotent close, a live count per kind; what happens at exit and fork.

Enters: native objects with the function that destroys them. Leaves: `Handle`s and counts for leak tests. Holds: every
native object that is alive has exactly one Handle; closing twice is harmless; at interpreter exit whatever is
registered is closed once, in reverse order; after a fork nothing that the parent made is touched by the child.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Handle", "close_at_exit", "live_counts", "new_lock", "on_fork"]

_lock = threading.RLock()  # finalizers and handlers of signals may come in between
_live: Counter[str] = Counter()
_close_at_exit: list[weakref.ref[Any]] = []
_forget_in_child: list[Callable[[], None]] = []
_renewed: weakref.WeakSet[Any] = weakref.WeakSet()


class Closable(Protocol):
    """Whatever can be closed, any number of times."""

    def close(self) -> None: ...


class Handle:
    """A native object and how to destroy it. `value` may be passed to native calls until `close()`."""

    __slots__ = ("_destroy", "kind", "value")

    def __init__(self, kind: str, value: Any, destroy: Callable[[Any], object]) -> None:
        self.kind = kind
        self.value = value
        self._destroy: Callable[[Any], object] | None = destroy
        with _lock:
            _live[kind] += 1

    @property
    def closed(self) -> bool:
        return self._destroy is None

    def close(self) -> None:
        """Destroys the object; later calls do nothing."""
        with _lock:
            destroy, self._destroy = self._destroy, None
            if destroy is None:
                return
            _live[self.kind] -= 1
        destroy(self.value)
        self.value = None


def new_lock() -> Any:
    """A lock that a child of a fork finds free where another thread of the parent held it. Whoever has it may take it again, as
    finalizers and handlers of signals do, which run in the middle of anything.
    """
    lock = threading.RLock()
    _renewed.add(lock)
    return lock


def live_counts() -> dict[str, int]:
    """How many native objects of each kind are alive; kinds without any are left out."""
    with _lock:
        return {kind: count for kind, count in _live.items() if count}


def close_at_exit(owner: Closable) -> None:
    """Has `owner.close()` called once when the interpreter exits, later owners first. Holds no reference to it."""
    with _lock:
        _close_at_exit[:] = [known for known in _close_at_exit if known() is not None]
        _close_at_exit.append(weakref.ref(owner))


def on_fork(forget: Callable[[], None]) -> None:
    """Has `forget()` called in every child of a fork, before anything else runs there."""
    _forget_in_child.append(forget)


def _at_exit() -> None:
    while _close_at_exit:
        owner = _close_at_exit.pop()()
        if owner is not None:
            # The interpreter is going away: a driver's complaint helps nobody and would change the exit status.
            with contextlib.suppress(Exception):
                owner.close()


def _in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held the old one
    _close_at_exit.clear()
    _live.clear()
    for lock in list(_renewed):
        if not lock._is_owned():
            lock._at_fork_reinit()
    for forget in _forget_in_child:
        forget()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
