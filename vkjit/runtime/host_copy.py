"""Host memory: allocation of byte arrays, and multithreaded copies between them.

A single core copies more slowly than the bus to a device transfers. Small copies, and all copies on machines with few
cores, run on the calling thread. The worker threads start with the first large copy, and start again in a child process
after a fork.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import OutOfMemoryError
from .handles import on_fork

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["copy_bytes", "host_bytes"]

Bytes = npt.NDArray[np.uint8]

SHARED_FROM = 4 << 20
"""Minimum size in bytes of copies that use several threads."""
PART = 1 << 20
MAX_WORKERS = 8

_pools: list[ThreadPoolExecutor] = []


def host_bytes(nbytes: int) -> Bytes:
    """Return a new uninitialized byte array. Raises OutOfMemoryError."""
    try:
        return np.empty(nbytes, dtype=np.uint8)
    except (MemoryError, ValueError) as error:  # ValueError: the size exceeds 64 bits
        raise OutOfMemoryError(f"no memory for {nbytes} bytes on the host") from error


def copy_bytes(target: Bytes, source: Bytes) -> None:
    """Copy all bytes of the source to a target of the same length. NumPy releases the GIL meanwhile."""
    count = 0 if source.nbytes < SHARED_FROM else _workers()
    if count < 2:
        target[:] = source
        return
    if not _pools:
        from concurrent.futures import ThreadPoolExecutor

        _pools.append(ThreadPoolExecutor(count, thread_name_prefix="vkjit-copy"))
    starts = range(0, int(source.nbytes), PART)
    for _ in _pools[0].map(lambda start: np.copyto(target[start : start + PART], source[start : start + PART]), starts):
        pass


def _workers() -> int:
    """Return the number of worker threads: at most half of the CPUs that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_WORKERS, usable // 2)


on_fork(_pools.clear)
