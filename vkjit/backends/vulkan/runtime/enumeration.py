"""The Vulkan devices of this process: found once, when they are first asked for."""

from __future__ import annotations

from dataclasses import replace

from vkjit.errors import DriverNotFoundError
from vkjit.runtime.device import Device
from vkjit.runtime.device_info import DeviceInfo
from vkjit.runtime.handles import new_lock

from .instance import get_instance
from .physical_device import Physical, physical_devices

__all__ = ["devices", "driver_error", "open_device"]

_lock = new_lock()
_physical: list[Physical] | None = None
_driver_error: DriverNotFoundError | None = None


def devices() -> list[DeviceInfo]:
    """Return all Vulkan devices, best first. Never raises for a missing driver: see `driver_error`."""
    return [physical.info for physical in _devices()]


def driver_error() -> DriverNotFoundError | None:
    """Return the reason why there is no Vulkan device, including what to install; None if a driver was found."""
    _devices()
    return _driver_error


def open_device(info: DeviceInfo) -> Device:
    """Open a device that `devices` describes; its number is `info.index`. Raises FeatureError if it can't run kernels."""
    from .device import VulkanDevice

    physical = next(p for p in _devices() if replace(p.info, index=info.index) == info)
    return VulkanDevice(replace(physical, info=info))


def _devices() -> list[Physical]:
    global _physical, _driver_error
    with _lock:
        if _physical is None:
            try:
                _physical = physical_devices(get_instance())
            except DriverNotFoundError as error:
                _driver_error, _physical = error, []
            if not _physical and _driver_error is None:
                _driver_error = DriverNotFoundError("the Vulkan loader found no device")
        return _physical
