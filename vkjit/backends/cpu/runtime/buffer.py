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


class Usage:
    """Statistics of the live buffers: their number and their bytes."""

    def __init__(self) -> None:
        self.count = self.allocated = self.peak = 0
        self._lock = threading.RLock()  # garbage collection may release buffers at any point of this thread

    def add(self, nbytes: int) -> None:
        with self._lock:
            self.count += 1
            self.allocated += nbytes
            self.peak = max(self.peak, self.allocated)

    def remove(self, nbytes: int) -> None:
        with self._lock:
            self.count -= 1
            self.allocated -= nbytes

    def forget_lock(self) -> None:
        self._lock = threading.RLock()


class CpuBuffer(Buffer):
    """Aligned host memory. New memory is uninitialized."""

    __slots__ = ("address", "data", "device", "is_viewed", "nbytes", "owner")

    device: CpuDevice

    def __init__(self, device: CpuDevice, nbytes: int) -> None:
        self.data: npt.NDArray[np.uint8]
        self.data, address = device.blocks.take(nbytes)
        self.device = device  # set after the allocation: a buffer without memory isn't the device's
        self.nbytes = nbytes
        self.owner: object = None
        self.is_viewed = False
        self.address = address
        device.usage.add(nbytes)

    def close(self) -> None:
        if getattr(self, "address", 0):  # else its constructor didn't finish
            data, address, owner = self.data, self.address, self.owner
            self.address, self.owner, self.data = 0, None, _NOTHING
            if owner is None:
                self.device.usage.remove(self.nbytes)
                if not self.is_viewed:
                    self.device.blocks.give_small(data, address)

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
