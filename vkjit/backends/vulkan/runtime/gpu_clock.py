"""Keep an NVIDIA GPU at its working clock while a device is open.

With Vulkan work alone, some data-center GPUs stay at their idle clock and run several times slower. An open CUDA
context in any process raises the clock, so one is held while the device is open, if the driver's CUDA library can be
loaded. `VKJIT_CUDA_CLOCK=0` turns this off.

Nothing here raises; without the library nothing happens. Opening a context takes a few tenths of a second, so a
separate thread does it.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from typing import Any

from vkjit.settings import boolean_setting

__all__ = ["CudaClock"]

NVIDIA = 0x10DE


class CudaClock:
    """Holds a CUDA context on the GPU with this UUID (16 bytes), if CUDA sees one."""

    def __init__(self, uuid: bytes) -> None:
        self._uuid = uuid
        self._release: Any = None
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="vkjit-cuda-clock", daemon=True)
        self._thread.start()

    @staticmethod
    def wanted(vendor: int) -> bool:
        """True for an NVIDIA device, unless turned off."""
        return boolean_setting("VKJIT_CUDA_CLOCK") is not False and vendor == NVIDIA

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the context is open or known to be unavailable. True if it is held."""
        self._thread.join(seconds)
        return self._release is not None

    def close(self) -> None:
        """Release the context. May be called repeatedly."""
        self._thread.join()
        with self._lock:
            release, self._release = self._release, None
            self._closed = True
        if release is not None:
            release()

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
            self._open(cuda)

    def _open(self, cuda: Any) -> None:
        if cuda.cuInit(0):
            return
        count = ctypes.c_int()
        if cuda.cuDeviceGetCount(ctypes.byref(count)):
            return
        for number in range(count.value):
            device = ctypes.c_int()
            uuid = (ctypes.c_char * 16)()
            if cuda.cuDeviceGet(ctypes.byref(device), number) or cuda.cuDeviceGetUuid(uuid, device):
                continue
            if uuid.raw == self._uuid:
                self._retain(cuda, device)
                return

    def _retain(self, cuda: Any, device: Any) -> None:
        """Retain the device's primary context, which the other libraries of this process share."""
        context = ctypes.c_void_p()
        if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0:
            release = cuda.cuDevicePrimaryCtxRelease_v2
            with self._lock:
                self._release = lambda: release(device)
