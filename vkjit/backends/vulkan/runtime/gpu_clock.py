"""Keeps an NVIDIA GPU at its working clock while a device is open.

Vulkan work alone leaves some data-centre GPUs at their idle clock, at which everything runs several times slower; an
open CUDA context of any process lifts it. So where the driver's CUDA library loads, one context is held for as long as
the device is open. `VKJIT_CUDA_CLOCK=0` turns this off.

Enters: a device's UUID. Leaves: an object to close. Holds: nothing here ever raises; without the library nothing
happens. Opening a context takes some tenths of a second, so it is done on a thread of its own.
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
    """Holds a CUDA context for the GPU with this UUID (16 bytes), if there is one."""

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
        """Waits until the context is open or known to be unavailable. True when it is held."""
        self._thread.join(seconds)
        return self._release is not None

    def close(self) -> None:
        """Lets the context go; any number of times."""
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
        """Holds the device's primary context, the one that other libraries of this process share."""
        context = ctypes.c_void_p()
        if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0:
            release = cuda.cuDevicePrimaryCtxRelease_v2
            with self._lock:
                self._release = lambda: release(device)
