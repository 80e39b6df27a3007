"""The identity of threads: unlike `threading.get_ident()`, one that no later thread gets again."""

from __future__ import annotations

import threading

__all__ = ["this_thread"]


class _ThisThread(threading.local):
    """The running thread. `token` is an object of its own, which is compared by identity."""

    def __init__(self) -> None:
        self.token = object()


this_thread = _ThisThread()
