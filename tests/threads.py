"""A helper that runs a function in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["run_in_threads"]


def run_in_threads(work: Callable[[int], None], count: int) -> None:
    """Call `work(number)` in `count` threads and wait for all of them. Exceptions in threads are reported by pytest."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
