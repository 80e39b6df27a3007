"""Many threads at once, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["run_in_threads"]


def run_in_threads(work: Callable[[int], None], count: int) -> None:
    """Calls `work(number)` in `count` threads and waits for all of them. What a thread raises is pytest's to report."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
