"""Base class of devices in host memory whose launches complete before `launch` returns (CPU, interpreter).

The base class checks the arguments of all calls, and has memory, statistics and copies. A back end adds how kernels are
loaded and run. What kernels print and report is collected by `note`, and delivered at `synchronize` or `read`: the text
is written to standard output, then the first error is raised. An interrupt doesn't lose either of them. Text is written
under a lock, so that texts of different threads don't mix.
"""

from __future__ import annotations

import sys
import threading
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError, DeviceError, KernelError, OutOfMemoryError
from ..runtime import memory_ledger
from ..runtime.array import LAYOUT_ALIGNMENT
from ..runtime.device import Buffer, Device, DeviceCaps, LoadedKernel
from ..runtime.handles import new_lock, on_fork
from ..runtime.observers import LaunchFields

__all__ = ["MAX_CHANGES", "NO_BYTES", "HostBuffer", "ImmediateDevice", "Usage", "bytes_at"]

Bytes: TypeAlias = "npt.NDArray[np.uint8]"

NO_BYTES: Bytes = np.zeros(0, dtype=np.uint8)

MAX_CHANGES = 1024
"""The length of `Usage.changes` from which the next new buffer calls `add_up`, so that the queue stays short."""

_devices: weakref.WeakSet[ImmediateDevice] = weakref.WeakSet()


def _in_child() -> None:
    for device in list(_devices):
        device.forget_parent()


on_fork(_in_child)


class Usage:
    """Statistics of the live buffers: their number and their bytes.

    Buffers append `nbytes` to `changes` when they are made and `~nbytes`, which is negative for 0 too, when they are
    closed, without a lock. `add_up` adds these up.
    """

    def __init__(self) -> None:
        self.changes: deque[int] = deque()
        self._count = self._allocated = self._peak = 0
        self._lock: Any = threading.RLock()

    def add_up(self, timeout: float = 0.0) -> None:
        """Add up the changes, unless another thread is doing so, or this call interrupted one of the same thread."""
        lock = self._lock
        if lock._is_owned():  # private, but the standard library's conditions use it too
            return
        try:
            if not lock.acquire(timeout=timeout):
                return
            changes = self.changes
            # Signals are handled after calls and at the ends of loops only. There is neither between the update of
            # `_count` and popleft(), so each change is counted once.
            while changes:
                nbytes = changes[0]
                self._count += 1 if nbytes >= 0 else -1
                self._allocated += nbytes if nbytes >= 0 else -(~nbytes)
                if self._peak < self._allocated:
                    self._peak = self._allocated
                changes.popleft()
        finally:
            if lock._is_owned():
                lock.release()

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
        self._lock = threading.RLock()


class HostBuffer(Buffer):
    """Memory of this process under its own address, aligned to `LAYOUT_ALIGNMENT`; new memory is zero.

    `data` are its bytes. A closed buffer has the address 0 and no bytes.
    """

    __slots__ = ("address", "data", "device", "nbytes")

    device: ImmediateDevice
    data: Bytes

    def __init__(self, device: ImmediateDevice, nbytes: int) -> None:
        memory = np.zeros(nbytes + LAYOUT_ALIGNMENT, dtype=np.uint8)
        begin = -int(memory.ctypes.data) % LAYOUT_ALIGNMENT
        self.data = memory[begin : begin + nbytes]
        self.register(device, nbytes, int(memory.ctypes.data) + begin)

    def register(self, device: ImmediateDevice, nbytes: int, address: int) -> None:
        """Make this a buffer of the device, which counts it until it is closed. `data` is set before."""
        self.device, self.nbytes, self.address = device, nbytes, address
        device.usage.changes.append(nbytes)
        if len(device.usage.changes) > MAX_CHANGES:
            device.usage.add_up()

    def close(self) -> None:
        address, self.address = getattr(self, "address", 0), 0
        if address:
            self.device.usage.changes.append(~self.nbytes)
            self.data = NO_BYTES

    __del__ = close


def bytes_at(buffers: Sequence[HostBuffer], address: int) -> tuple[Bytes, int]:
    """Return the bytes of the buffer that contains an address of an argument block, and the offset in it.

    `buffers` are those of a launch. An address in none of them is that of an array that the kernel doesn't access: the
    result is then empty.
    """
    for buffer in buffers:
        if buffer.address <= address <= buffer.address + buffer.nbytes:  # an empty array may begin at the end
            return buffer.data, address - buffer.address
    return NO_BYTES, 0


class ImmediateDevice(Device):
    """A device that runs launches synchronously, on buffers in host memory."""

    closed = False
    kernel_type: type[LoadedKernel] = LoadedKernel
    """The class of its loaded kernels."""

    def __init__(self, name: str, caps: DeviceCaps, index: int) -> None:
        self.name, self.caps, self.index, self.closed = name, caps, index, False
        self.usage = Usage()
        self._lock = new_lock()
        self._text: list[str] = []
        self._error: KernelError | None = None
        _devices.add(self)

    def forget_parent(self) -> None:
        """In a forked child, drop the text and error that the parent delivers, and locks that its threads may hold."""
        self._text, self._error = [], None
        self.usage.forget_lock()

    # -- memory

    def new_buffer(self, nbytes: int) -> HostBuffer:
        """Return a new buffer. Raises MemoryError or ValueError if there is no memory for it."""
        return HostBuffer(self, nbytes)

    def allocate(self, nbytes: int) -> HostBuffer:
        if self.closed or nbytes < 0:
            self.check_open()
            raise DeviceError(f"a buffer of {nbytes} bytes: expected zero or more")
        try:
            buffer = self.new_buffer(nbytes)
        except (MemoryError, ValueError) as error:
            raise OutOfMemoryError(
                f"no memory for a buffer of {nbytes} bytes\n{memory_ledger.holders(self)}"
            ) from error
        if memory_ledger.tracing:
            memory_ledger.note(buffer)
        return buffer

    def write(self, buffer: Buffer, offset: int, data: Bytes) -> None:
        self._part(buffer, offset, len(data))[:] = data

    def read(self, buffer: Buffer, offset: int, out: Bytes) -> None:
        self._surface()
        out[:] = self._part(buffer, offset, len(out))

    def copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        self._part(target, target_offset, nbytes)[:] = self._part(source, source_offset, nbytes)

    def fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        if offset % 4 or nbytes % 4:
            raise DeviceError(f"fill: expected multiples of 4, found offset {offset} and {nbytes} bytes")
        self._part(buffer, offset, nbytes).view(np.uint32)[:] = np.uint32(pattern & 0xFFFFFFFF)

    def host_view(self, buffer: Buffer) -> Bytes | None:
        return self.own(buffer).data

    def memory_stats(self) -> dict[str, int]:
        count, allocated, peak = self.usage.read()
        return {"allocated": allocated, "reserved": allocated, "peak": peak, "count": count}

    def reset_peak_memory(self) -> None:
        self.usage.reset_peak()

    # -- kernels

    @abstractmethod
    def run(self, kernel: Any, groups: tuple[int, int, int], block: bytes, buffers: Sequence[HostBuffer]) -> None:
        """Run the workgroups of a kernel, of `kernel_type`, and `note` what it prints and reports.

        `groups` are all positive; `buffers` are those that the kernel accesses, of this device and open.
        """

    def launch(self, request: LaunchFields) -> None:
        """Run the kernel. What it prints and reports is kept for the next `synchronize` or `read`."""
        kernel, groups, block, reads, writes, _ = request
        if self.closed:
            self.check_open()
        self.check_stream(kernel.artifact)
        if not isinstance(kernel, self.kernel_type):
            raise DeviceError(f"kernel {kernel.artifact.name} was loaded on another device")
        buffers: Any = (*reads, *writes)
        for buffer in buffers:
            if buffer.device is not self or not buffer.address:
                self.own(buffer)  # raises the error
        if min(groups) > 0:
            self.run(kernel, groups, block, buffers)

    def note(self, text: Sequence[str] = (), error: KernelError | None = None) -> None:
        """Keep what a kernel printed, and the error that it reported unless there is one already."""
        with self._lock:
            self._text += text
            if self._error is None:
                self._error = error

    @property
    def report_address(self) -> int:
        """0: launches share no report buffer."""
        return 0

    def flush(self) -> None:
        """Do nothing: no work is queued."""
        self.check_open()

    def synchronize(self) -> None:
        self.check_open()
        self._surface()

    def close(self) -> None:
        self.closed = True

    def own(self, buffer: Buffer) -> HostBuffer:
        """Return the buffer. Raises DeviceError if it is another device's, or closed."""
        own: Any = buffer
        if own.device is not self:  # all buffers of this device are HostBuffers
            raise DeviceError("the buffer belongs to another device")
        if not own.address:
            raise DeviceError("the buffer was closed")
        found: HostBuffer = own
        return found

    def _part(self, buffer: Buffer, offset: int, nbytes: int) -> Bytes:
        self.check_open()
        own = self.own(buffer)
        if offset < 0 or nbytes < 0 or offset + nbytes > own.nbytes:
            raise ArgumentError(f"bytes {offset} to {offset + nbytes} lie outside a buffer of {own.nbytes} bytes")
        data = own.data
        if len(data) != own.nbytes:  # another thread has just closed it
            raise DeviceError("the buffer was closed")
        return data[offset : offset + nbytes]

    def _surface(self) -> None:
        with self._lock:  # no call between taking an item and using it: no interrupt can come in between
            if self._text:
                text = "".join(self._text)
                self._text = []
                if sys.stdout is not None:
                    sys.stdout.write(text)
            if self._error is not None:
                error = self._error
                self._error = None
                raise error
