"""Buffers of the CPU device: aligned host memory from a pool, and memory of others."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vkjit.runtime.device import Buffer

if TYPE_CHECKING:
    from .device import CpuDevice

__all__ = ["CpuBuffer", "SharedBuffer", "Usage"]

_NOTHING = np.zeros(0, dtype=np.uint8)


_new = object.__new__
_MAX_CHANGES = 1024
"""Number of noted sizes from which they are added up."""


class Usage:
    """Statistics of the live buffers: their number and their bytes.

    Buffers note their sizes in `changes`, and ~size when they are released, without a lock. `add_up` does the rest.
    """

    def __init__(self) -> None:
        self.changes: deque[int] = deque()
        self._count = self._allocated = self._peak = 0
        self._lock = threading.Lock()

    def add_up(self, timeout: float = 0.0) -> None:
        """Count what was noted, unless another thread or an interrupted call of this one does that."""
        if not self._lock.acquire(timeout=timeout):
            return
        try:
            changes = self.changes
            while changes:
                nbytes = changes.popleft()
                self._count += 1 if nbytes >= 0 else -1
                self._allocated += nbytes if nbytes >= 0 else -(~nbytes)
                self._peak = max(self._peak, self._allocated)
        finally:
            self._lock.release()

    def read(self) -> tuple[int, int, int]:
        """Return the number of buffers, their bytes, and the highest number of bytes."""
        self.add_up(timeout=0.1)
        return self._count, self._allocated, self._peak

    def reset_peak(self) -> None:
        """Set the peak to the bytes that are allocated now."""
        self.add_up(timeout=0.1)
        self._peak = self._allocated

    def forget_lock(self) -> None:
        """Replace the lock in a forked child, since another thread of the parent may have held it."""
        self._lock = threading.Lock()


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
        buffer.address = address  # before a signal handler may raise: `close` notes the buffer's end, too
        changes = device.usage.changes
        changes.append(nbytes)
        if len(changes) > _MAX_CHANGES:
            device.usage.add_up()
        return buffer

    def close(self) -> None:
        try:
            address, self.address = self.address, 0
        except AttributeError:  # its construction didn't finish
            return
        if address and self.owner is None:
            device, nbytes, data = self.device, self.nbytes, self.data
            device.usage.changes.append(~nbytes)
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
