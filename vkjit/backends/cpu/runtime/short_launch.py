"""Launches of short kernels: one foreign call on the calling thread that keeps the GIL.

Calls through cffi release the GIL. If other threads wait for it, the release wakes one of them, and the caller must
then wait until that thread releases it in turn: with several threads, a launch of one microsecond costs ten or more. A
kernel that turns out to run longer polls the cancellation token, as in any launch, so signal handlers run and waiting
threads get the GIL then.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import llvm
from .cancellation import token_of_thread

if TYPE_CHECKING:
    from .kernel import CpuKernel

__all__ = ["RECORD", "caller", "is_short", "launch_short"]

RECORD = "<6Q"
"""Format of the header before the argument block: the kernel's address, the number of workgroups, the grid (3), the
cancellation token's address.
"""
_HEADER = struct.Struct(RECORD)

_TEXT = f"""
define void @call(ptr %record) {{
{"".join(f"  %p{n} = getelementptr i64, ptr %record, i64 {n}{chr(10)}" for n in range(7))}
  %function = load ptr, ptr %p0
  %end = load i64, ptr %p1
  %x = load i64, ptr %p2
  %y = load i64, ptr %p3
  %z = load i64, ptr %p4
  %watch = load ptr, ptr %p5
  call void %function(ptr %p6, i64 0, i64 %end, i64 %x, i64 %y, i64 %z, ptr %watch)
  ret void
}}
"""


@functools.cache
def _code() -> tuple[llvm.Linked, Any]:
    linked = llvm.link(llvm.compile_text(_TEXT, 1), "call")
    return linked, ctypes.PYFUNCTYPE(None, ctypes.c_char_p)(linked.addresses["call"])


def caller() -> Callable[[bytes], None]:
    """Return the function that runs all workgroups of a launch, given its record."""
    function: Callable[[bytes], None] = _code()[1]
    return function


def is_short(groups: int, kernel: CpuKernel) -> bool:
    """True if a launch of this many workgroups is known to be short enough to keep the GIL."""
    return groups <= kernel.pace.limit[0]


def launch_short(kernel: CpuKernel, total: int, grid: tuple[int, int, int], block: bytes | bytearray) -> None:
    """Run all `total` workgroups of the grid. Raises the exceptions of signal handlers."""
    token = token_of_thread()
    record = _HEADER.pack(kernel.address, total, *grid, token.address) + block
    call = caller()
    start = time.perf_counter_ns()
    call(record)
    kernel.pace.learn_short(total, time.perf_counter_ns() - start)
    token.check()
