"""Device selection: `vk.devices()`, `vk.device(...)` and the default device.

Combines the Vulkan devices of the runtime with the kinds of other layers (the CPU device, the interpreter). No driver
is loaded before a device is requested.
"""

from __future__ import annotations

import functools
import threading

from ..errors import ArgumentError
from ..runtime.device import Device
from ..runtime.device_info import DeviceInfo
from ..runtime.meta import META_KIND, meta_device
from .vulkan.runtime import enumeration

__all__ = ["default_device", "device", "devices", "set_default_device", "synchronize", "use_device"]

_default = threading.local()


@functools.lru_cache(maxsize=1)
def _register_kinds() -> None:
    """Register the CPU device and the interpreter; their device classes are imported when first opened."""
    from . import cpu
    from .interp.runtime.device import INTERPRETER_CAPS

    if cpu.available():
        enumeration.register_device_kind("cpu", _open_cpu, kind="llvm-cpu")
    enumeration.register_device_kind("interpreter", _open_interpreter, INTERPRETER_CAPS)


def _open_cpu(index: int) -> Device:
    from .cpu.runtime.device import CpuDevice

    return CpuDevice(index)


def _open_interpreter(index: int) -> Device:
    from .interp.runtime.device import InterpreterDevice

    return InterpreterDevice(index)


def devices() -> list[DeviceInfo]:
    """Return all devices: Vulkan devices, best first, then the CPU device if available, then the reference interpreter."""
    _register_kinds()
    return enumeration.devices()


def device(spec: int | str | Device | DeviceInfo | None = None) -> Device:
    """Open a device by index, by part of its name, by kind ("cpu", "interpreter"), or by an item of `devices()`.

    Without an argument, return the default device. "meta" names a device whose tensors have shapes but no data.

    Opening a device again returns the same object until it is closed. Raises DeviceNotFoundError with a list of the
    available devices.
    """
    if isinstance(spec, Device):
        return spec
    if isinstance(spec, DeviceInfo):
        spec = spec.index
    if spec is None:
        return default_device()
    if isinstance(spec, bool) or not isinstance(spec, (int, str)):
        raise ArgumentError(
            f"a device is named by a number, a part of its name or an item of vk.devices(), found {spec!r}"
        )
    if spec == META_KIND:
        return meta_device()
    _register_kinds()
    return enumeration.open_device(spec)


def default_device() -> Device:
    """Return this thread's default device.

    This is the device set by `use_device`, else by `set_default_device`, else VKJIT_DEVICE, else the best available.
    """
    chosen: Device | None = getattr(_default, "device", None)
    if chosen is None or getattr(chosen, "closed", False):
        chosen = getattr(_process, "device", None)
    if chosen is None or getattr(chosen, "closed", False):
        _register_kinds()
        return enumeration.open_device(None)
    return chosen


class _Process:
    """The default device of threads without a default of their own."""

    device: Device | None = None


_process = _Process()


def set_default_device(spec: int | str | Device | DeviceInfo | None) -> Device | None:
    """Set the default device of all threads, used for NumPy arguments and new tensors. None restores the automatic
    choice.

    Returns the previous setting (None: automatic), so that it can be restored.
    """
    before = _process.device
    _process.device = None if spec is None else device(spec)
    return before


class use_device:  # noqa: N801  # a context manager, used like a function
    """Context manager that selects the default device of this thread: `with vk.use_device("interpreter"): ...`."""

    def __init__(self, spec: int | str | Device | DeviceInfo) -> None:
        self._device = device(spec)
        self._of_thread = threading.local()

    def __enter__(self) -> Device:
        self._of_thread.saved = (*getattr(self._of_thread, "saved", ()), getattr(_default, "device", None))
        _default.device = self._device
        return self._device

    def __exit__(self, *_: object) -> None:
        saved = self._of_thread.saved
        _default.device = saved[-1]
        self._of_thread.saved = saved[:-1]


def synchronize(spec: int | str | Device | DeviceInfo | None = None) -> None:
    """Wait for all queued work on the device (default: the default device). Raises errors that kernels reported."""
    device(spec).synchronize()
