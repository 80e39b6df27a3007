"""Fast launches of prepared kernels: one foreign call, on the calling thread.

A launch's record is packed in one step. Launches that aren't short, and all launches while the device has observers, are
left to `Device.launch`.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vkjit.runtime.artifact import REPORT_WORDS
from vkjit.runtime.prepared_launch import Launcher, PreparedLaunch

from .cancellation import token_of_thread
from .launch_code import HEADER, cpu_code
from .short_launch import is_short

if TYPE_CHECKING:
    from .device import CpuDevice
    from .kernel import CpuKernel

__all__ = ["replayer"]


def replayer(device: CpuDevice, kernel: CpuKernel, launch: PreparedLaunch) -> Launcher:
    """Return the launch as a function of buffers, values and a grid; see `Device.launcher`."""
    used, fields = launch.used, launch.fields
    pack, reports = struct.Struct(HEADER.format + launch.packer.format[1:]).pack, kernel.report_offset is not None
    free: deque[tuple[Any, int]] = deque()  # report buffers with their addresses; each belongs to one launch at a time

    def replay(buffers: Sequence[Any], values: tuple[Any, ...], groups: tuple[int, int, int]) -> bool:
        x, y, z = groups
        total = x * y * z
        if device.closed or device.observers or device.has_copy_streams or not is_short(total, kernel):
            return False
        for number in used:
            buffer = buffers[number]
            if buffer.device is not device or not buffer.address:
                return False
        words, report = _report_buffer(free) if reports else (None, 0)
        token = token_of_thread()
        try:
            record = pack(kernel.address, total, x, y, z, token.address, *fields(values, report))
        except (struct.error, OverflowError):  # a scalar that doesn't fit; the slow path reports it
            return False
        start = time.perf_counter_ns()
        cpu_code.call(record)
        kernel.pace.learn_short(total, time.perf_counter_ns() - start)
        if words is not None:
            if words[0]:
                device.collect(kernel, words)
            free.append((words, report))
        token.check()
        return True

    return replay


def _report_buffer(free: deque[tuple[Any, int]]) -> tuple[Any, int]:
    """Return a free report buffer, or a new one, and its address."""
    try:
        return free.pop()
    except IndexError:
        words = np.zeros(REPORT_WORDS, dtype=np.uint32)
        return words, int(words.ctypes.data)
