"""Device selection: `vk.devices()`, `vk.device(...)` and the default device.

Reads the table of back ends. The default device is the best usable one: a GPU, else the CPU device, else a software
Vulkan driver, else the interpreter. `VKJIT_DEVICE` overrides it: an index, a part of a device's or driver's name, or a
kind. No driver is loaded before a device is requested.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace

from ..errors import ArgumentError, DeviceNotFoundError, DriverNotFoundError, KernelError, VkjitError, shown
from ..runtime.device import Device
from ..runtime.device_info import DeviceInfo, DeviceList
from ..runtime.handles import new_lock, on_exit
from ..runtime.open_blocks import ReentrantBlock, while_set
from .table import BACKENDS, Backend

__all__ = [
    "Devices", "default_device", "device", "devices", "driver_error", "set_default_device", "synchronize", "use_device",
]  # fmt: skip

_MAX_UNWRITTEN = 4096
"""Number of failed writes at exit after which the remaining output is dropped."""


class Devices:
    """The devices of some back ends. Each device is opened once."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._listed = [backend for backend in backends if backend.listed]
        self._unlisted = {backend.name: backend for backend in backends if not backend.listed}
        self._ranks = {kind: rank for backend in backends for kind, rank in backend.ranks.items()}
        self._lock = new_lock()
        self._open: dict[tuple[str, str, str], Device] = {}
        self._default: dict[str | None, Device] = {}
        """Devices opened without a spec, keyed by the value of VKJIT_DEVICE at that time."""

    def devices(self) -> DeviceList:
        """Return all devices, in index order. Never raises for a missing driver: see `driver_error`."""
        return DeviceList(info for info, _ in self._rows())

    def driver_error(self) -> DriverNotFoundError | None:
        """Return the reason why there is no Vulkan device, including what to install; None if a driver was found."""
        errors = (backend.unavailable() for backend in self._listed)
        return next((error for error in errors if isinstance(error, DriverNotFoundError)), None)

    def open(self, spec: int | str | None = None) -> Device:
        """Open a device by index, by exact name or kind, or by part of its name or its driver's name (case-insensitive).

        Returns the same object each time until it is closed. Without a `spec`, VKJIT_DEVICE decides; without that, the
        best usable device is opened. Raises DeviceNotFoundError, with a list of the devices; DriverNotFoundError if
        there are none at all; FeatureError if the device lacks what kernels need.
        """
        if spec is not None:
            return self._opened(spec)
        wanted = os.environ.get("VKJIT_DEVICE")
        known = self._default.get(wanted)
        if known is None or known.closed:
            known = self._default[wanted] = self._opened(None)
        return known

    def _rows(self) -> list[tuple[DeviceInfo, Backend]]:
        with self._lock:
            found = [(i, b) for b in self._listed if b.unavailable() is None for i in b.devices()]
        return [(replace(info, index=index), backend) for index, (info, backend) in enumerate(found)]

    def _opened(self, spec: int | str | None) -> Device:
        with self._lock:
            unlisted = self._unlisted.get(spec) if isinstance(spec, str) else None
            if unlisted is not None:
                info, backend = unlisted.devices()[0], unlisted
                found = [info]
            else:
                rows = self._rows()
                if not rows:
                    raise self.driver_error() or DeviceNotFoundError("there are no devices")
                found = [info for info, _ in rows]
                info, backend = rows[self._choose(spec, found).index]
            key = backend.name, info.uuid, info.name
            device = self._open.get(key)
            if device is None or device.closed:
                device = self._open[key] = backend.open(info)
                device.set_spec(_specs(found)[found.index(info)])
            return device

    def _choose(self, spec: int | str | None, found: list[DeviceInfo]) -> DeviceInfo:
        asked = "asked for"
        if spec is None:
            spec = os.environ.get("VKJIT_DEVICE", "").strip() or None
            asked = "named by VKJIT_DEVICE"
        if spec is None:
            return min(found, key=lambda info: (bool(info.missing), self._ranks.get(info.kind, math.inf)))
        if isinstance(spec, str) and spec.strip().isdecimal() and len(spec.strip()) < 10:
            spec = int(spec)
        if isinstance(spec, int):
            if 0 <= spec < len(found):
                return found[spec]
        else:
            wanted = spec.strip().lower()
            named = [info for info, known in zip(found, _specs(found), strict=True) if wanted == known.lower()]
            exact = named or [info for info in found if wanted == info.kind]
            part = [i for i in found if wanted and (wanted in i.name.lower() or wanted in i.driver.lower())]
            if exact or part:
                return (exact or part)[0]
        listing = "\n".join(f"  {info.index}: {info.name} ({info.kind})" for info in found)
        error = self.driver_error()
        hint = f"\n{error}" if error is not None else ""
        raise DeviceNotFoundError(f"no device {spec!r}, {asked}; there are:\n{listing}{hint}")

    def last_words(self) -> None:
        """Print pending kernel output and report kernel errors that no `synchronize` has raised; called at exit."""
        for device in list(self._open.values()):
            if device.closed:
                continue
            with contextlib.suppress(VkjitError, OSError):  # at exit there is no caller to report it to
                try:
                    _wait(device)
                except KernelError as error:
                    if sys.stderr is not None:
                        sys.stderr.write(f"vkjit: at exit, {device.name}: {type(error).__name__}: {error}\n")


def _specs(found: Sequence[DeviceInfo]) -> list[str]:
    """Return a spec for each device: its name, followed by ":1", ":2", ... if earlier ones have the same name."""
    names = [info.name for info in found]
    earlier = [names[:number].count(name) for number, name in enumerate(names)]
    return [f"{name}:{count}" if count else name for name, count in zip(names, earlier, strict=True)]


def _wait(device: Device) -> None:
    """Synchronize the device, retrying if its output can't be written."""
    for _ in range(_MAX_UNWRITTEN):
        with contextlib.suppress(OSError):  # the text that couldn't be written is lost; go on with the rest
            device.synchronize()
            break


_devices = Devices(BACKENDS)
on_exit(_devices.last_words)
_default: ContextVar[Device | None] = ContextVar("default device", default=None)


def devices() -> list[DeviceInfo]:
    """Return all devices, by back end: those of Vulkan, best first, then "cpu" if available, then the interpreter."""
    return _devices.devices()


def driver_error() -> DriverNotFoundError | None:
    """Return the reason why there is no Vulkan device, including what to install; None if a driver was found."""
    return _devices.driver_error()


def device(spec: int | str | Device | DeviceInfo | None = None) -> Device:
    """Open a device by index, by name ("cpu", "interpreter") or a part of it, by kind, or by an item of `devices()`.

    A name takes precedence over a kind. For example, "cpu" selects the device that runs kernels through LLVM, which has
    that name; if it isn't available, a software Vulkan driver, whose kind is "cpu". Of several devices with the same
    name, "NAME" is the first and "NAME:1" the next one: `str(device)` returns this unique form. "meta" names a device
    whose tensors have shapes but no data. Without an argument, return the default device.

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
            f"a device is named by a number, a part of its name or an item of vk.devices(), found {shown(spec)}"
        )
    return _devices.open(spec)


def default_device() -> Device:
    """Return the default device of this thread or asyncio task.

    This is the device set by `use_device`, else by `set_default_device`, else VKJIT_DEVICE, else the best available.
    Raises DeviceError if it was set, and then closed or lost: another one isn't chosen silently.
    """
    chosen = _default.get()
    if chosen is None:
        chosen = getattr(_process, "device", None)
    if chosen is None:
        return _devices.open()
    if chosen.closed:
        chosen.check_open()
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


class use_device(ReentrantBlock[Device]):  # noqa: N801  # a context manager, used like a function
    """Context manager that selects the default device of this thread or asyncio task:
    `with vk.use_device("interpreter"): ...`.
    """

    def __init__(self, spec: int | str | Device | DeviceInfo) -> None:
        super().__init__(functools.partial(while_set, _default, device(spec)))


def synchronize(spec: int | str | Device | DeviceInfo | None = None) -> None:
    """Wait for all queued work on the device (default: the default device). Raises errors that kernels reported."""
    device(spec).synchronize()
