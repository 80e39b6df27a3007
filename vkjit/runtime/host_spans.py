"""What a profile hears of the host: spans of time, and what launches cost.

Enters: pieces of code under `span`. Leaves: calls of whoever listens. Holds: without a listener a span costs one look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["Listener", "listeners", "span"]


class Listener(Protocol):
    """Whoever listens. Times are nanoseconds of `time.perf_counter_ns`."""

    def heard(self, kind: str, name: str, begin: int, end: int, thread: int) -> None:
        """A span has ended."""

    def stated(self, kernel: str, cost: Any) -> None:
        """The launches of this kernel that this thread has just made cost this much together."""


listeners: list[Listener] = []


@contextmanager
def span(kind: str, name: str) -> Iterator[None]:
    """Tells listeners when the block began and ended."""
    if not listeners:
        yield
        return
    begin = time.perf_counter_ns()
    try:
        yield
    finally:
        end = time.perf_counter_ns()
        for listener in listeners:
            listener.heard(kind, name, begin, end, threading.get_ident())
