"""Ownership of native objects, and hooks for interpreter exit and fork.

Every live native object has exactly one `Handle`, whose `close` is idempotent; live objects are counted by kind, for
leak tests. At interpreter exit, registered owners are closed once, in reverse order. After a fork, the child touches
none of the parent's native objects.
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

__all__ = ["Handle", "close_at_exit", "is_cut_off", "live_counts", "new_lock", "on_exit", "on_fork"]

_lock = threading.RLock()  # reentrant: finalizers and signal handlers may run while it is held
_live: Counter[str] = Counter()
_close_at_exit: list[weakref.ref[Any]] = []
_call_at_exit: list[Callable[[], None]] = []
_exiting = False
_forget_in_child: list[Callable[[], None]] = []
_renewed: weakref.WeakSet[Any] = weakref.WeakSet()


class Closable(Protocol):
    """An object with an idempotent `close`."""

    def close(self) -> None: ...


class Handle:
    """A native object and its destructor. `value` may be passed to native calls until `close()`."""

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
        """Destroy the object. Later calls do nothing."""
        with _lock:
            destroy, self._destroy = self._destroy, None
            if destroy is None:
                return
            _live[self.kind] -= 1
        destroy(self.value)
        self.value = None


def new_lock() -> Any:
    """Return a reentrant lock that survives forks: it is free in the child if another thread of the parent held it.

    It is reentrant because finalizers and signal handlers may run while the lock is held.
    """
    lock = threading.RLock()
    _renewed.add(lock)
    return lock


def live_counts() -> dict[str, int]:
    """Return the number of live native objects by kind, without kinds that have none."""
    with _lock:
        return {kind: count for kind, count in _live.items() if count}


def close_at_exit(owner: Closable) -> None:
    """Call `owner.close()` when the interpreter exits, in reverse order of registration.

    Holds only a weak reference.
    """
    with _lock:
        _close_at_exit[:] = [known for known in _close_at_exit if known() is not None]
        _close_at_exit.append(weakref.ref(owner))


def on_exit(call: Callable[[], None]) -> None:
    """Call `call()` when the interpreter exits, in reverse order of registration, before owners are closed."""
    _call_at_exit.append(call)


def on_fork(forget: Callable[[], None]) -> None:
    """Call `forget()` in every child of a fork, before other code runs there."""
    _forget_in_child.append(forget)


def is_cut_off() -> bool:
    """True in a daemon thread at interpreter exit: it may not begin new work, and nobody is left to tell of an error."""
    return _exiting and threading.current_thread().daemon


def _at_exit() -> None:
    global _exiting
    _exiting = True
    while _call_at_exit:
        _call_at_exit.pop()()
    while _close_at_exit:
        owner = _close_at_exit.pop()()
        if owner is not None:
            # A driver error at interpreter exit is of no use and would change the exit status.
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
