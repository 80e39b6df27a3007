"""Buffers of the CPU device: aligned host memory from a pool, and memory of others."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from vkjit.backends.host import MAX_CHANGES, NO_BYTES, HostBuffer

if TYPE_CHECKING:
    from .device import CpuDevice

__all__ = ["CpuBuffer", "SharedBuffer", "new_buffer"]


_new = object.__new__


class CpuBuffer(HostBuffer):
    """Aligned memory from the device's pool, made by `new_buffer`. New memory is uninitialized."""

    __slots__ = ("is_viewed", "owner")

    device: CpuDevice
    owner: object
    is_viewed: bool

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
        self.owner, self.data = None, NO_BYTES

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


def new_buffer(device: CpuDevice, nbytes: int) -> CpuBuffer:
    """As `ImmediateDevice.new_buffer`; it is a method of `CpuDevice`."""
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
    if len(changes) > MAX_CHANGES:
        device.usage.add_up()
    return buffer


class SharedBuffer(CpuBuffer):
    """Buffer over memory that it doesn't own; see `CpuBuffer.around`."""

    __slots__ = ()

    shared = True
