"""List the available devices and open them; each device is opened once.

Vulkan devices come first, best first, then the kinds registered by higher layers ("cpu", "interpreter"). The default
device is the best usable one: a GPU, else the CPU device, else a software Vulkan driver, else the interpreter.

`VKJIT_DEVICE` overrides the default: an index, a part of a device's or driver's name, or a kind.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from vkjit.errors import DeviceNotFoundError, DriverNotFoundError, InternalError, KernelError, VkjitError
from vkjit.runtime.device import Device, DeviceCaps
from vkjit.runtime.device_info import DeviceInfo
from vkjit.runtime.handles import on_fork

from .instance import get_instance
from .physical_device import Physical, physical_devices

__all__ = ["DeviceInfo", "devices", "driver_error", "open_device", "register_device_kind"]


_PREFERENCE = {"discrete": 0, "integrated": 0, "virtual": 0, "llvm-cpu": 1, "cpu": 2, "other": 2}
_LAST = 3
"""Rank of device kinds that `_PREFERENCE` doesn't list. The default device is the one with the lowest rank."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A registered kind of non-Vulkan device. `factory` takes the device index."""

    name: str
    factory: Callable[[int], Device]
    caps: DeviceCaps | None
    kind: str


_lock = threading.RLock()
_kinds: dict[str, _Kind] = {}
_physical: list[Physical] | None = None
_driver_error: DriverNotFoundError | None = None
_open: dict[str, Device] = {}
_default: dict[str | None, Device] = {}
"""Devices opened without a spec, keyed by the value of VKJIT_DEVICE at that time."""


def register_device_kind(
    name: str, factory: Callable[[int], Device], caps: DeviceCaps | None = None, *, kind: str = ""
) -> None:
    """Register a non-Vulkan device, listed after the Vulkan devices. `kind` defaults to its name.

    Raises InternalError if the name is already registered.
    """
    with _lock:
        if name in _kinds:
            raise InternalError(f"the device kind {name} is registered twice")
        _kinds[name] = _Kind(name, factory, caps, kind or name)
        _default.clear()


def devices() -> list[DeviceInfo]:
    """Return all devices, in index order. Never raises for a missing driver: see `driver_error`."""
    with _lock:
        found = [physical.info for physical in _vulkan_devices()]
        for kind in _kinds.values():
            found.append(DeviceInfo(len(found), kind.name, kind.kind, driver="vkjit", caps=kind.caps))
        return found


def driver_error() -> DriverNotFoundError | None:
    """Return the reason why there is no Vulkan device, including what to install; None if a driver was found."""
    with _lock:
        _vulkan_devices()
        return _driver_error


def open_device(spec: int | str | None = None) -> Device:
    """Open a device by index, by exact name or kind, or by part of its name or its driver's name (case-insensitive).

    Returns the same object each time until it is closed. Without a `spec`, VKJIT_DEVICE decides; without that, the best
    usable device is opened. Raises DeviceNotFoundError, with a list of the devices; DriverNotFoundError if there are
    none at all; FeatureError if the device lacks what kernels need.
    """
    if spec is not None:
        return _opened(spec)
    wanted = os.environ.get("VKJIT_DEVICE")
    known = _default.get(wanted)
    if known is None or getattr(known, "closed", False):
        known = _default[wanted] = _opened(None)
    return known


def _opened(spec: int | str | None) -> Device:
    with _lock:
        found = devices()
        if not found:
            raise _driver_error or DeviceNotFoundError("there are no devices")
        info = _choose(spec, found)
        key = info.uuid + info.name
        device = _open.get(key)
        if device is None or getattr(device, "closed", False):
            device = _open[key] = _open_new(info)
        return device


def _open_new(info: DeviceInfo) -> Device:
    from .device import VulkanDevice

    vulkan = _vulkan_devices()
    if info.index < len(vulkan):
        return VulkanDevice(vulkan[info.index])
    return _kinds[info.name].factory(info.index)


def _choose(spec: int | str | None, found: list[DeviceInfo]) -> DeviceInfo:
    asked = "" if spec is None else "asked for"
    if spec is None:
        spec = os.environ.get("VKJIT_DEVICE", "").strip() or None
        asked = "named by VKJIT_DEVICE"
    if spec is None:
        return min(found, key=lambda info: (bool(info.missing), _PREFERENCE.get(info.kind, _LAST)))
    if isinstance(spec, str) and spec.strip().isdecimal():
        spec = int(spec)
    if isinstance(spec, int):
        if 0 <= spec < len(found):
            return found[spec]
    else:
        wanted = spec.strip().lower()
        exact = [info for info in found if wanted == info.name.lower()] or [i for i in found if wanted == i.kind]
        part = [i for i in found if wanted and (wanted in i.name.lower() or wanted in i.driver.lower())]
        if exact or part:
            return (exact or part)[0]
    listing = "\n".join(f"  {info.index}: {info.name} ({info.kind})" for info in found)
    hint = f"\n{_driver_error}" if _driver_error is not None else ""
    raise DeviceNotFoundError(f"no device {spec!r}, {asked}; there are:\n{listing}{hint}")


def _vulkan_devices() -> list[Physical]:
    global _physical, _driver_error
    if _physical is None:
        try:
            _physical = physical_devices(get_instance())
        except DriverNotFoundError as error:
            _driver_error, _physical = error, []
        if not _physical and _driver_error is None:
            _driver_error = DriverNotFoundError("the Vulkan loader found no device")
    return _physical


def _forget() -> None:
    global _lock
    _lock = threading.RLock()


_MAX_UNWRITTEN = 4096
"""Number of failed writes at exit after which the remaining output is dropped."""


def _last_words() -> None:
    """At exit, print pending kernel output and report kernel errors that no `synchronize` has raised."""
    for device in list(_open.values()):
        if getattr(device, "closed", False):
            continue
        with contextlib.suppress(VkjitError, OSError):  # at exit there is no caller to report it to
            try:
                _wait(device)
            except KernelError as error:
                if sys.stderr is not None:
                    sys.stderr.write(f"vkjit: at exit, {device.name}: {type(error).__name__}: {error}\n")


def _wait(device: Device) -> None:
    """Synchronize the device, retrying if its output can't be written."""
    for _ in range(_MAX_UNWRITTEN):
        with contextlib.suppress(OSError):  # the text that couldn't be written is lost; go on with the rest
            device.synchronize()
            break


on_fork(_forget)
atexit.register(_last_words)
