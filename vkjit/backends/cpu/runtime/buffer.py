"""Buffers of the CPU device: aligned host memory from a pool, and memory of others."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vkjit.runtime.device import Buffer

if TYPE_CHECKING:
    from .device import CpuDevice

__all__ = ["CpuBuffer", "SharedBuffer", "Usage"]

_NOTHING = np.zeros(0, dtype=np.uint8)


_new = object.__new__


class Usage:
    """Statistics of the live buffers: their number and their bytes. Change them under the lock."""

    def __init__(self) -> None:
        self.count = self.allocated = self.peak = 0
        self.lock = threading.RLock()  # garbage collection may release buffers at any point of this thread

    def forget_lock(self) -> None:
        self.lock = threading.RLock()


class CpuBuffer(Buffer):
    """Aligned host memory. New memory is uninitialized."""

    __slots__ = ("address", "data", "device", "is_viewed", "nbytes", "owner")

    device: CpuDevice
    data: npt.NDArray[np.uint8]
    owner: object
    is_viewed: bool

    @staticmethod
    def new(device: CpuDevice, nbytes: int) -> CpuBuffer:
        """Return a new buffer. Raises MemoryError or ValueError."""
        small = device.blocks.small.get(nbytes)
        try:
            data, address = small.pop() if small else device.blocks.take(nbytes)
        except IndexError:  # another thread took the last one
            data, address = device.blocks.take(nbytes)
        buffer = _new(CpuBuffer)
        buffer.data, buffer.device, buffer.nbytes, buffer.owner, buffer.is_viewed = data, device, nbytes, None, False
        usage = device.usage
        with usage.lock:
            usage.count += 1
            usage.allocated = allocated = usage.allocated + nbytes
            if allocated > usage.peak:
                usage.peak = allocated
        buffer.address = address
        return buffer

    def close(self) -> None:
        try:
            address, self.address = self.address, 0
        except AttributeError:  # its construction didn't finish
            return
        if address and self.owner is None:
            device, nbytes, data = self.device, self.nbytes, self.data
            usage = device.usage
            with usage.lock:
                usage.count -= 1
                usage.allocated -= nbytes
            small = device.blocks.small.get(nbytes)
            if small is not None and not self.is_viewed:
                small.append((data, address))  # drops the oldest if it is full
        self.owner, self.data = None, _NOTHING

    __del__ = close
    """Most buffers are released this way: the alias saves a call."""

    @staticmethod
    def around(device: CpuDevice, address: int, nbytes: int, owner: object) -> CpuBuffer:
        """Return a buffer over memory owned by `owner`."""
        buffer = SharedBuffer.__new__(SharedBuffer)
        buffer.device, buffer.nbytes, buffer.address, buffer.owner = device, nbytes, address, owner
        memory = memoryview((ctypes.c_uint8 * nbytes).from_address(address)) if nbytes else b""
        buffer.data, buffer.is_viewed = np.frombuffer(memory, dtype=np.uint8), True
        return buffer


class SharedBuffer(CpuBuffer):
    """Buffer over memory that it doesn't own; see `CpuBuffer.around`."""

    __slots__ = ()

    shared = True
