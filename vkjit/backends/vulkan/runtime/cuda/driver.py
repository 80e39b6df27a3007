"""The functions of NVIDIA's CUDA driver that are needed to share memory and semaphores with it, called through ctypes.

The library is opened once per process, on first use. Every failure raises a typed error that names the function. An
imported file descriptor is owned by CUDA afterwards; if the import fails, it is closed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

from vkjit.errors import DeviceError, FeatureError, OutOfMemoryError
from vkjit.runtime.open_blocks import block

__all__ = ["CudaDriver", "driver"]

_OPAQUE_FD, _TIMELINE_FD = 1, 9
_OUT_OF_MEMORY = 2
_NON_BLOCKING = 1
_RESERVED = ("reserved", ctypes.c_uint * 16)
_DESCRIPTOR = (("kind", ctypes.c_uint64), ("descriptor", ctypes.c_uint64), ("name", ctypes.c_uint64))
"""The handle type, padded, and a 16-byte union whose first four bytes are the descriptor (on little-endian CPUs)."""


class _MemoryHandle(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC."""

    _fields_ = (*_DESCRIPTOR, ("size", ctypes.c_uint64), ("flags", ctypes.c_uint), _RESERVED)


class _MemoryRange(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = (("offset", ctypes.c_uint64), ("size", ctypes.c_uint64), ("flags", ctypes.c_uint), _RESERVED)


class _SemaphoreHandle(ctypes.Structure):
    """CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC."""

    _fields_ = (*_DESCRIPTOR, ("flags", ctypes.c_uint), _RESERVED)


class _SemaphoreValue(ctypes.Structure):
    """CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and its counterpart for waiting: the value, then fields of other kinds."""

    _fields_ = (("value", ctypes.c_uint64), ("others", ctypes.c_uint64 * 17))


class CudaDriver:
    """The opened library. Addresses and handles are integers.

    The constructor raises DeviceError if CUDA doesn't initialize.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call("cuInit", 0)

    def ordinal_of(self, uuid: bytes) -> int:
        """Return CUDA's ordinal of the GPU with this UUID. Raises FeatureError if CUDA doesn't see it."""
        for ordinal in range(self.count()):
            if self.uuid_of(ordinal) == uuid:
                return ordinal
        raise FeatureError("CUDA doesn't see this device: look at CUDA_VISIBLE_DEVICES")

    def count(self) -> int:
        """Return the number of GPUs that CUDA sees."""
        found = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(found))
        return found.value

    def uuid_of(self, ordinal: int) -> bytes:
        """Return the GPU's UUID (16 bytes), which is the same in CUDA and Vulkan."""
        uuid = (ctypes.c_char * 16)()
        self._call("cuDeviceGetUuid", uuid, self._device(ordinal))
        return bytes(uuid.raw)

    def retain(self, ordinal: int) -> int:
        """Retain and return the GPU's primary context, which PyTorch and others use. Call `release` once for each call."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(ordinal))
        return int(context.value or 0)

    def release(self, ordinal: int) -> None:
        """Undo one `retain`."""
        self._call("cuDevicePrimaryCtxRelease_v2", self._device(ordinal))

    @block
    def current(self, context: int) -> Iterator[None]:
        """Context manager that makes the context current on this thread."""
        self._call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def import_memory(self, descriptor: int, size: int) -> tuple[int, int]:
        """Import an entire Vulkan memory block. Returns its handle, for `free_memory`, and its address in CUDA."""
        memory, address = ctypes.c_void_p(), ctypes.c_uint64()
        handle = _MemoryHandle(kind=_OPAQUE_FD, descriptor=descriptor, size=size)
        self._take("cuImportExternalMemory", memory, handle, descriptor)
        whole = _MemoryRange(offset=0, size=size)
        try:
            self._call("cuExternalMemoryGetMappedBuffer", ctypes.byref(address), memory, ctypes.byref(whole))
        except DeviceError:
            self._call("cuDestroyExternalMemory", memory)
            raise
        return int(memory.value or 0), int(address.value)

    def free_memory(self, memory: int, address: int) -> None:
        """End an import. CUDA must no longer use the memory."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))
        self._call("cuDestroyExternalMemory", ctypes.c_void_p(memory))

    def import_timeline(self, descriptor: int) -> int:
        """Import a Vulkan timeline semaphore and return its handle."""
        semaphore = ctypes.c_void_p()
        handle = _SemaphoreHandle(kind=_TIMELINE_FD, descriptor=descriptor)
        self._take("cuImportExternalSemaphore", semaphore, handle, descriptor)
        return int(semaphore.value or 0)

    def destroy_timeline(self, semaphore: int) -> None:
        """End an import. No stream may still have to signal or wait for the semaphore."""
        self._call("cuDestroyExternalSemaphore", ctypes.c_void_p(semaphore))

    def signal(self, semaphore: int, value: int, stream: int) -> None:
        """Set the semaphore to the value when the stream reaches this point."""
        self._at("cuSignalExternalSemaphoresAsync", semaphore, value, stream)

    def wait(self, semaphore: int, value: int, stream: int) -> None:
        """Make the stream wait until the semaphore has reached the value."""
        self._at("cuWaitExternalSemaphoresAsync", semaphore, value, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy between addresses on the GPU, in stream order."""
        numbers = ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
        self._call("cuMemcpyDtoDAsync_v2", *numbers, ctypes.c_void_p(stream))

    def open_stream(self) -> int:
        """Return a new stream that doesn't synchronize with the default stream."""
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        return int(stream.value or 0)

    def close_stream(self, stream: int) -> None:
        """Destroy a stream returned by `open_stream`."""
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def synchronize(self) -> None:
        """Wait for all work in the current context."""
        self._call("cuCtxSynchronize")

    def _device(self, ordinal: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device

    def _take(self, name: str, out: ctypes.c_void_p, handle: ctypes.Structure, descriptor: int) -> None:
        """Call an import function; close the descriptor if the call fails."""
        try:
            self._call(name, ctypes.byref(out), ctypes.byref(handle))
        except DeviceError:
            os.close(descriptor)
            raise

    def _at(self, name: str, semaphore: int, value: int, stream: int) -> None:
        semaphores = (ctypes.c_void_p * 1)(semaphore)
        self._call(name, semaphores, ctypes.byref(_SemaphoreValue(value=value)), 1, ctypes.c_void_p(stream))

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise FeatureError(f"the CUDA driver has no function {name}: update it") from None
        result = function(*arguments)
        if result:
            kind = OutOfMemoryError if result == _OUT_OF_MEMORY else DeviceError
            raise kind(f"{name} failed with {self._error_name(result)}")

    def _error_name(self, result: int) -> str:
        text = ctypes.c_char_p()
        if self._library.cuGetErrorName(result, ctypes.byref(text)) or text.value is None:
            return f"CUDA error {result}"
        return text.value.decode()


@functools.cache
def driver() -> CudaDriver:
    """Return the process's CUDA driver. Raises FeatureError if there is none or it doesn't initialize."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError as error:
        raise FeatureError(f"no CUDA driver here: {error}") from None
    try:
        return CudaDriver(library)
    except DeviceError as error:
        raise FeatureError(f"the CUDA driver doesn't start: {error}") from None
