"""Profiling events of the host: time spans and the declared cost of launches.

Code under `span` is reported to all listeners. Without listeners, a span costs a single check.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["Listener", "listeners", "span"]


class Listener(Protocol):
    """A receiver of events. Times are in nanoseconds, from `time.perf_counter_ns`."""

    def heard(self, kind: str, name: str, begin: int, end: int, thread: int) -> None:
        """Called when a span has ended."""

    def stated(self, kernel: str, cost: Any) -> None:
        """Called after a launch of a kernel with a declared cost, on the launching thread.

        `cost` is the total of its dispatches.
        """

    def replayed(self) -> None:
        """Called after the launches of a graph were made one by one, on the launching thread; they state no cost."""


listeners: list[Listener] = []


@contextmanager
def span(kind: str, name: str) -> Iterator[None]:
    """Context manager that reports the begin and end times of its block to the listeners."""
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
