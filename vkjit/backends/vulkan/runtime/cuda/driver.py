"""The few functions of NVIDIA's CUDA driver that sharing memory and order with it takes, straight from its library.

Enters: file descriptors of Vulkan memory and semaphores, addresses, streams of CUDA. Leaves: addresses that CUDA knows,
and order in its streams. Holds: the library is opened once per process, on the first use; every failure is a typed error
that names the function; a descriptor that is given belongs to CUDA afterwards, or is closed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vkjit.errors import DeviceError, FeatureError, OutOfMemoryError

__all__ = ["CudaDriver", "driver"]

_OPAQUE_FD, _TIMELINE_FD = 1, 9
_OUT_OF_MEMORY = 2
_NON_BLOCKING = 1
_RESERVED = ("reserved", ctypes.c_uint * 16)
_DESCRIPTOR = (("kind", ctypes.c_uint64), ("descriptor", ctypes.c_uint64), ("name", ctypes.c_uint64))
"""The kind, padded, and a union of 16 bytes whose first four are the descriptor, on processors that store the low byte first."""


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
    """CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, and its like for waiting: the value, then what other kinds need."""

    _fields_ = (("value", ctypes.c_uint64), ("others", ctypes.c_uint64 * 17))


class CudaDriver:
    """The opened library. Addresses and handles are integers. Raises FeatureError where it doesn't start."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call("cuInit", 0)

    def ordinal_of(self, uuid: bytes) -> int:
        """CUDA's number of the GPU with this UUID. Raises FeatureError where it has none."""
        for ordinal in range(self.count()):
            if self.uuid_of(ordinal) == uuid:
                return ordinal
        raise FeatureError("CUDA doesn't see this device: look at CUDA_VISIBLE_DEVICES")

    def count(self) -> int:
        """How many GPUs CUDA sees."""
        found = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(found))
        return found.value

    def uuid_of(self, ordinal: int) -> bytes:
        """The 16 bytes by which CUDA and Vulkan know the same GPU."""
        uuid = (ctypes.c_char * 16)()
        self._call("cuDeviceGetUuid", uuid, self._device(ordinal))
        return bytes(uuid.raw)

    def retain(self, ordinal: int) -> int:
        """The GPU's primary context, the one that PyTorch and others use; it lives until it is released as often."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(ordinal))
        return int(context.value or 0)

    def release(self, ordinal: int) -> None:
        """Undoes one `retain`."""
        self._call("cuDevicePrimaryCtxRelease_v2", self._device(ordinal))

    @contextmanager
    def current(self, context: int) -> Iterator[None]:
        """Makes the context this thread's, inside the block."""
        self._call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def import_memory(self, descriptor: int, size: int) -> tuple[int, int]:
        """Memory of Vulkan, all of it: its handle, for `free_memory`, and its address in CUDA."""
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
        """Ends an import; nothing in CUDA may use the memory any more."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))
        self._call("cuDestroyExternalMemory", ctypes.c_void_p(memory))

    def import_timeline(self, descriptor: int) -> int:
        """A timeline semaphore of Vulkan."""
        semaphore = ctypes.c_void_p()
        handle = _SemaphoreHandle(kind=_TIMELINE_FD, descriptor=descriptor)
        self._take("cuImportExternalSemaphore", semaphore, handle, descriptor)
        return int(semaphore.value or 0)

    def destroy_timeline(self, semaphore: int) -> None:
        """Ends an import; no stream may have to signal or await it any more."""
        self._call("cuDestroyExternalSemaphore", ctypes.c_void_p(semaphore))

    def signal(self, semaphore: int, value: int, stream: int) -> None:
        """Has the semaphore set to the value when the stream gets there."""
        self._at("cuSignalExternalSemaphoresAsync", semaphore, value, stream)

    def wait(self, semaphore: int, value: int, stream: int) -> None:
        """Has the stream go on only when the semaphore is at the value."""
        self._at("cuWaitExternalSemaphoresAsync", semaphore, value, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copies between addresses of the GPU, in the order of the stream."""
        numbers = ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
        self._call("cuMemcpyDtoDAsync_v2", *numbers, ctypes.c_void_p(stream))

    def open_stream(self) -> int:
        """A stream that waits for no other."""
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        return int(stream.value or 0)

    def close_stream(self, stream: int) -> None:
        """Ends a stream of `open_stream`."""
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def synchronize(self) -> None:
        """Waits for everything in the current context."""
        self._call("cuCtxSynchronize")

    def _device(self, ordinal: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device

    def _take(self, name: str, out: ctypes.c_void_p, handle: ctypes.Structure, descriptor: int) -> None:
        """An import; a descriptor that CUDA doesn't take is closed."""
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
    """The process's CUDA driver. Raises FeatureError where there is none."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError as error:
        raise FeatureError(f"no CUDA driver here: {error}") from None
    try:
        return CudaDriver(library)
    except DeviceError as error:
        raise FeatureError(f"the CUDA driver doesn't start: {error}") from None
