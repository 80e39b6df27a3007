"""Launches of short kernels: one foreign call on the calling thread that keeps the GIL.

Calls through cffi release the GIL. If other threads wait for it, the release wakes one of them, and the caller must
then wait until that thread releases it in turn: with several threads, a launch of one microsecond costs ten or more. A
kernel that turns out to run longer polls the cancellation token, as in any launch, so signal handlers run and waiting
threads get the GIL then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .cancellation import token_of_thread
from .launch_code import HEADER, cpu_code

if TYPE_CHECKING:
    from .kernel import CpuKernel

__all__ = ["is_short", "launch_short"]


def is_short(groups: int, kernel: CpuKernel) -> bool:
    """True if a launch of this many workgroups is known to be short enough to keep the GIL."""
    return groups <= kernel.pace.limit[0]


def launch_short(kernel: CpuKernel, total: int, grid: tuple[int, int, int], block: bytes | bytearray) -> None:
    """Run all `total` workgroups of the grid. Raises the exceptions of signal handlers."""
    token = token_of_thread()
    record = HEADER.pack(kernel.address, total, *grid, token.address) + block
    start = time.perf_counter_ns()
    cpu_code.call(record)
    kernel.pace.learn_short(total, time.perf_counter_ns() - start)
    token.check()
