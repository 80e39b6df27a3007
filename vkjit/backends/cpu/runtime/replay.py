"""Launches a recorded kernel again, on the calling thread, with one foreign call.

Nothing about such a launch changes but the addresses of its arrays, so its argument block is packed in one step. Launches that
take long enough to be shared by threads, and all launches while somebody observes the device, are left to `Device.launch`.
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
from .workers import argument_pointer, is_short

if TYPE_CHECKING:
    from .device import CpuDevice, CpuKernel

__all__ = ["replayer"]


def replayer(device: CpuDevice, kernel: CpuKernel, launch: PreparedLaunch) -> Launcher:
    """Return the launch as a function of buffers and values; see `Device.launcher`."""
    function, pace, used, fields = kernel.function, kernel.pace, launch.used, launch.fields
    pack, size, reports = launch.packer.pack_into, launch.packer.size, kernel.report_offset is not None
    blocks: deque[tuple[bytearray, Any, Any, int]] = deque()  # a block belongs to one launch at a time

    def replay(buffers: Sequence[Any], values: tuple[Any, ...], groups: tuple[int, int, int]) -> bool:
        x, y, z = groups
        total = x * y * z
        if device.closed or device.observers or device.has_copy_streams or not is_short(total, pace):
            return False
        for number in used:
            buffer = buffers[number]
            if buffer.device is not device or not buffer.address:
                return False
        try:
            entry = blocks.pop()
        except IndexError:
            entry = _new_block(size, reports)
        block, pointer, words, report = entry
        try:
            pack(block, 0, *fields(values, report))
        except (struct.error, OverflowError):  # a scalar that doesn't fit; the slow path reports it
            blocks.append(entry)
            return False
        token = token_of_thread()
        start = time.perf_counter_ns()
        function(pointer, 0, total, x, y, z, token.pointer)
        pace.learn(total, time.perf_counter_ns() - start)
        if reports and words[0]:
            device.collect(kernel, words)
        blocks.append(entry)
        token.check()
        return True

    return replay


def _new_block(size: int, reports: bool) -> tuple[bytearray, Any, Any, int]:
    """Return an argument block, a pointer to it, and a report buffer with its address (None and 0 without reports)."""
    block = bytearray(size)
    words = np.zeros(REPORT_WORDS, dtype=np.uint32) if reports else None
    return block, argument_pointer(block), words, 0 if words is None else int(words.ctypes.data)
